"""Writing files so that nobody ever sees half of one: a temporary name first, then a rename.

Everything that fewview writes, data, models, pages and tables, goes through here.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from fewview.errors import FewviewError


def check_writable(path: str | PathLike[str]) -> Path:
    """Say what is wrong with a place for a file; worth asking before hours of work."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FewviewError(f"{target}: the folder {target.parent} does not exist; create it first")
    if target.is_dir():
        raise FewviewError(f"{target} is a folder; give the name of a file")
    return target


def check_output(
    path: str | PathLike[str], inputs: Iterable[str | PathLike[str] | None], force: bool = False
) -> Path:
    """`check_writable`, and no input is replaced and no folder of inputs gets another file.

    With `force` the user wants that.
    """
    refuse_inputs(path, inputs, force)
    return check_writable(path)


def refuse_inputs(
    path: str | PathLike[str], inputs: Iterable[str | PathLike[str] | None], force: bool
) -> None:
    """The second half of `check_output`, for folders too."""
    target = Path(path)
    where = target.resolve()
    for given in inputs:
        if given is None or force:
            continue
        source = Path(given).expanduser().resolve()
        if where == source:
            raise FewviewError(
                f"{target} is an input, which would be lost; choose another name with -o, or give "
                "--force"
            )
        if source.is_dir() and source in where.parents:
            raise FewviewError(
                f"{target} is in the folder of inputs {given}, where it would be read as data next "
                "time; choose another place with -o, or give --force"
            )


def made_folder(path: str | PathLike[str]) -> Path:
    """The folder at a path, made where it is not there."""
    folder = Path(path).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FewviewError(f"{folder}: cannot make this folder ({error.strerror})") from None
    return folder


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder that is gone afterwards; what cannot be written there is said so."""
    try:
        with tempfile.TemporaryDirectory(prefix="fewview-") as name:
            yield Path(name)
    except OSError as error:
        if not is_full(error):
            raise
        raise FewviewError(no_room_for_temporary()) from None


def is_full(error: OSError) -> bool:
    """Whether a disk, or what one may use of it, is used up."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def no_room(place: str | PathLike[str], needed: int | None = None) -> str:
    """Say that a folder is full, and how much would be needed."""
    free = shutil.disk_usage(place).free
    more = "" if needed is None else f", {_size(needed)} needed"
    return f"no room is left in {place} ({_size(free)} free{more})"


def no_room_for_temporary(needed: int | None = None) -> str:
    """The same of the folder for temporary files, and what to do."""
    folder = tempfile.gettempdir()
    return (
        f"{no_room(folder, needed)}, where temporary files are written; make room there, or set "
        "TMPDIR to a folder that has more"
    )


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


@contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it takes the name `path` when the block succeeds."""
    target = check_writable(path)
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent
        )
    except OSError as error:
        raise FewviewError(f"{target}: cannot write there ({_why(error, target)})") from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes private files; what the user gets follows the umask as usual.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, target)
    except OSError as error:
        raise FewviewError(f"{target}: cannot write ({_why(error, target)})") from None
    finally:
        temporary.unlink(missing_ok=True)


def _why(error: OSError, target: Path) -> str:
    """Why a file cannot be written, and what to do about it."""
    if is_full(error):
        where = "elsewhere (-o, or TMPDIR for temporary files)"
        return f"{no_room(target.parent)}; make room there, or write {where}"
    return str(error.strerror or error)
