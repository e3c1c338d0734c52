"""Writing files so that nobody ever sees half of one: a temporary name first, then a rename.

Everything that fewview writes, data, models, pages and tables, goes through here.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
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
