"""What all readers of files share: whose fault an error is, and what a file may cost.

A file of a few bytes can claim to hold terabytes. `memory_limit` and `time_limit` say what reading
may take; both grow with the file, and both can be set by the user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fewview.ground._errors import FewviewError

MEMORY = "FEWVIEW_READ_MEMORY"
SECONDS = "FEWVIEW_READ_SECONDS"
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the name of the file in front of messages, and let nothing but FewviewError out.

    Example:
        >>> with naming(Path("pets.npz")):
        ...     raise FewviewError("no labels")
        Traceback (most recent call last):
        ...
        fewview.FewviewError: pets.npz: no labels
    """
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


def memory_limit(size: int) -> int:
    """Say how many bytes of memory the reading of a file of `size` bytes may take.

    2 GiB and 32 times the size of the file, which leaves room for compressed and sparse data;
    `$FEWVIEW_READ_MEMORY` (such as `16G`) takes its place.

    Example:
        >>> memory_limit(2**20) // 2**20
        2080
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


def time_limit(size: int) -> float:
    """Say how many seconds the reading of a file of `size` bytes may take.

    Half a minute and a second for every 2 MiB; `$FEWVIEW_READ_SECONDS` takes its place.

    Example:
        >>> time_limit(2**22)
        32.0
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
    """Write the message for a file that needs more memory than it may take.

    Example:
        >>> too_large(2**31)
        'needs more than 2.0 GiB of memory, the limit for a file of its size; it is damaged, or ...
    """
    return (
        f"needs more than {limit / 2**30:.1f} GiB of memory, the limit for a file of its size; it "
        f"is damaged, or if you trust it set {MEMORY} to more, such as {MEMORY}=64G"
    )
