"""What all readers of files share: whose fault an error is, and what a file may cost.

A file of a few bytes can claim to hold terabytes. `memory_limit` and `time_limit` say what reading
may take; both grow with the file, and both can be set by the user.
"""

from __future__ import annotations

import errno
import os
import re
import struct
import traceback
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError

MEMORY = "FEWVIEW_READ_MEMORY"
SECONDS = "FEWVIEW_READ_SECONDS"
# What the machine refuses, whatever is in the file.
_MACHINE = {
    errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO, errno.EROFS,
    errno.EDQUOT,
}  # fmt: skip
# How parsers say that bytes are damaged or cut: kinds of errors, or words of theirs.
_DAMAGE = (EOFError, OSError, UnicodeError, struct.error, zipfile.BadZipFile, zlib.error)
_DAMAGE_NAMED = ("ArrowInvalid", "MatReadError", "LZMAError")
_DAMAGE_WORDS = (
    r"truncat|corrupt|damage|signature|magic|checksum|\bcrc\b|inflate|decompress|mat file type|"
    r"unable to (synchronously )?(open|read|get)|can't (synchronously )?(open|read|get)|"
    r"end of file|buffer is (too small|smaller)"
)
# Bytes that are left when reading stops for want of memory.
SPARE = 2**25
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the name of the file in front of messages, and let nothing but FewviewError out."""
    try:
        yield
    except FewviewError as error:
        message = str(error)
        if message.startswith(str(path)):
            raise
        raise FewviewError(f"{path}: {message}") from error.__cause__
    except MemoryError:
        raise FewviewError(f"{path}: does not fit into memory") from None
    except (OSError, ValueError) as error:  # ValueError: names that the file system cannot have
        reason = getattr(error, "strerror", None) or error
        raise FewviewError(f"{path}: {reason}") from error


def whose_fault(error: Exception, called: str, damaged: str | None = None) -> str:
    """Say whose fault it is that reading a file failed: the file's, a library's, or our own.

    Parsers fail on foreign bytes in any way they like. What they are known to raise for damaged
    ones is put down to the file, and whatever is raised where the caller says how to call that.
    Not so a call that fits no signature, a name that is not there (a library of another version),
    what the machine refused, and slips, which Python tells by their kind. Anything else out of a
    library may be the fault of either.

    Args:
        error: what was raised.
        called: what files of this kind are called.
        damaged: what to say where it is the file, with `{reason}`.
    """
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    known = f"reader of {called} files fails with {type(error).__name__} ({reason})"
    innocent = "cannot be read here, which is not the fault of the file"
    if isinstance(error, OSError) and error.errno in _MACHINE:
        return f"{innocent}: {reason}"
    said = r"unexpected keyword argument|positional argument|^module '\S+' has no attribute"
    if isinstance(error, (ImportError, NameError)) or re.search(said, str(error)):
        return (
            f"{innocent}: the {known}; update the libraries that fewview needs: pip install "
            "--upgrade fewview"
        )
    place = traceback.extract_tb(error.__traceback__)[-1]
    own = Path(__file__).parents[1] in Path(place.filename).parents
    slip = isinstance(error, (TypeError, AttributeError, AssertionError))
    if slip and own:
        return (
            f"cannot be read: fewview's own {known} in {Path(place.filename).name}, "
            f"line {place.lineno}, which it should not whatever a file holds; update fewview, "
            "or report this"
        )
    if not _says_damage(error) and (slip or not (own or damaged)):
        return (
            f"cannot be read: the {known} in {Path(place.filename).name}, a library's; the file is "
            "not what it should be, or the version of the library does not suit "
            "('fewview doctor' shows it)"
        )
    usual = "is not a readable {called} file, or is damaged or cut short ({reason}); get it again"
    return (damaged or usual).format(called=called, reason=reason)


def _says_damage(error: Exception) -> bool:
    """Whether a parser says that a file is damaged."""
    return (
        isinstance(error, _DAMAGE)
        or type(error).__name__ in _DAMAGE_NAMED
        or re.search(_DAMAGE_WORDS, str(error), re.IGNORECASE) is not None
    )


def memory_limit(size: int) -> int:
    """Say how many bytes of memory the reading of a file of `size` bytes may take.

    2 GiB and 32 times the size of the file, which leaves room for compressed and sparse data;
    `$FEWVIEW_READ_MEMORY` (such as `16G`) takes its place.
    """
    text = os.environ.get(MEMORY, "")
    if not text:
        return 2**31 + 32 * size
    match = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    try:
        if match is None:
            raise ValueError
        return int(float(match[1]) * _UNITS[match[2].upper()])
    except (ValueError, OverflowError):
        raise FewviewError(f"${MEMORY} is {text!r}; give a size such as 500M or 16G") from None


def used_memory() -> int | None:
    """Bytes of address space that this process takes, where the system tells."""
    try:
        import resource

        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
        return int(pages) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        return None


def check_memory() -> None:
    """Raise MemoryError where a limit of this process is near.

    For what makes many small things: where not even a few bytes are left, Python may try to say so
    for ever.
    """
    try:
        import resource
    except ImportError:  # not a POSIX system, where no limit holds
        return
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most != resource.RLIM_INFINITY and (used_memory() or 0) > most - SPARE:
        raise MemoryError


def time_limit(size: int) -> float:
    """Say how many seconds the reading of a file of `size` bytes may take.

    Half a minute and a second for every 2 MiB; `$FEWVIEW_READ_SECONDS` takes its place.
    """
    text = os.environ.get(SECONDS, "")
    if not text:
        return 30.0 + size / 2**21
    try:
        seconds = float(text)
        if not 0 < seconds < 10**7:
            raise ValueError
    except ValueError:
        raise FewviewError(f"${SECONDS} is {text!r}; give a number of seconds") from None
    return seconds


def too_large(limit: int) -> str:
    """Write the message for a file that needs more memory than it may take."""
    return (
        f"needs more than {limit / 2**30:.1f} GiB of memory, the limit for a file of its size; it "
        f"is damaged, or if you trust it set {MEMORY} to more, such as {MEMORY}=64G"
    )


def dense_matrix(where: str, matrix: Any, memory: int) -> NDArray[Any]:
    """Fill a CSR or CSC matrix of scipy, as a file has it, into a dense one after checking it.

    scipy's own check lets pointers through that lead out of the arrays, where they are unsigned or
    where the last one is zero.
    """
    data, indices, pointers = matrix.data, matrix.indices, matrix.indptr
    major, minor = matrix.shape if matrix.format == "csr" else matrix.shape[::-1]
    valid = (
        data.ndim == indices.ndim == pointers.ndim == 1
        and indices.dtype.kind in "iu"
        and pointers.dtype.kind in "iu"
        and len(pointers) == major + 1
        and len(indices) == len(data) == pointers[-1]
        and pointers[0] == 0
        and bool((pointers[1:] >= pointers[:-1]).all())
        and (len(indices) == 0 or (int(indices.min()) >= 0 and int(indices.max()) < minor))
    )
    if not valid:
        raise FewviewError(f"{where} is not a valid sparse matrix; the file is damaged")
    if data.dtype.kind not in "fiub":
        raise FewviewError(f"{where} holds {data.dtype} values; it must hold numbers")
    # scipy knows no half precision.
    narrow = {"b": np.uint8, "f": np.float32}.get(data.dtype.kind)
    dtype = np.dtype(narrow) if narrow is not None and data.dtype.itemsize < 4 else data.dtype
    if major * minor * dtype.itemsize > memory:
        raise MemoryError
    native = data.astype(dtype.newbyteorder("="))
    parts = (native, indices.astype(np.int64), pointers.astype(np.int64))
    out: NDArray[Any] = type(matrix)(parts, shape=matrix.shape).toarray()
    return out
