"""Writing files so that nobody ever sees half of one: a temporary name first, then a rename.

Everything that fewview writes, data, models, pages and tables, goes through here.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from fewview.ground._errors import FewviewError


def check_writable(path: str | PathLike[str]) -> Path:
    """Say what is wrong with a place for a file; worth asking before hours of work."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FewviewError(f"{target}: the folder {target.parent} does not exist; create it first")
    if target.is_dir():
        raise FewviewError(f"{target} is a folder; give the name of a file")
    return target


def made_folder(path: str | PathLike[str]) -> Path:
    """The folder at a path, made where it is not there."""
    folder = Path(path).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FewviewError(f"{folder}: cannot make this folder ({error.strerror})") from None
    return folder


@contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it takes the name `path` when the block succeeds."""
    target = check_writable(path)
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent
        )
    except OSError as error:
        raise FewviewError(f"{target}: cannot write there ({error.strerror})") from None
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
        raise FewviewError(f"{target}: cannot write ({error.strerror or error})") from None
    finally:
        temporary.unlink(missing_ok=True)
