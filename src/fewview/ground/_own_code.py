"""Code that users bring: a file of Python read as a module, and digests of what defines an object.

A result must not be taken for that of other code. So what a user's own class is made of is known by
the content of its file, wherever the class came from.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
import uuid
from collections.abc import Iterable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from fewview.ground._errors import FewviewError

LENGTH = 12  # hex digits of a digest: no accident makes two files alike
_SESSION = uuid.uuid4().hex[:LENGTH]  # of code that no file has: another session cannot know it
_PREFIX = "fewview_own_"
_loaded: dict[Path, tuple[str, ModuleType]] = {}


def file_digest(path: Path) -> str:
    """Digest of the content of a file of code."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:LENGTH]
    except FileNotFoundError:
        raise FewviewError(f"{path}: no such file") from None
    except OSError as error:
        raise FewviewError(f"{path}: cannot be read ({error.strerror or error})") from None


def load_file(path: Path) -> ModuleType:
    """Run a file of Python as a module of its own; again only when its content has changed.

    Its folder is put at the end of `sys.path`, so that it may import its neighbours.
    """
    digest, path = file_digest(path), path.absolute()
    if path in _loaded and _loaded[path][0] == digest:
        return _loaded[path][1]
    # The same name for a changed file: its methods take the place of those before.
    name = f"{_PREFIX}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:LENGTH]}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FewviewError(f"{path}: not a file of Python; its name must end in .py")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise FewviewError(
            f"{path}: running it gave {type(error).__name__}: {error}{_line(path, error)}"
        ) from error
    _loaded[path] = digest, module
    return module


def _line(path: Path, error: BaseException) -> str:
    """Where in the file an error came up, if it is known."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    return f" (line {lines[-1]})" if lines and lines[-1] else ""


def pickle_by_value(value: Any) -> bytes:
    """Pickle something so that classes of users' files and scripts need not be found elsewhere."""
    try:
        cloudpickle = import_module("cloudpickle")
    except ImportError:  # joblib brought it along until 1.5
        cloudpickle = import_module("joblib.externals.cloudpickle")

    for _, module in _loaded.values():
        cloudpickle.register_pickle_by_value(module)
    try:
        packed: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise FewviewError(
            f"a method of your own cannot be sent to other processes ({type(error).__name__}: "
            f"{error}); leave --jobs at 1 and --cluster out, or keep open files, locks and "
            "generators out of its class and its parameters"
        ) from None
    return packed


def own_digest(things: Iterable[Any]) -> str:
    """Digest of the files that define some objects; empty where they are all of installed packages.

    Code without a file (a notebook, a console) is known in this session only.
    """
    files: dict[str, str] = {}
    kinds = [thing if hasattr(thing, "__qualname__") else type(thing) for thing in things]
    for kind in chain.from_iterable(getattr(kind, "__mro__", (kind,)) for kind in kinds):
        name = getattr(kind, "__module__", None) or "builtins"
        if name.partition(".")[0] in (*sys.stdlib_module_names, "fewview"):
            continue
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None or not Path(file).is_file():
            files[f"{name}.{kind.__qualname__}"] = f"{_SESSION}{id(kind)}"
        elif {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts):
            files[name.removeprefix(_PREFIX)] = file_digest(Path(file))
    if len(files) < 2:
        return next(iter(files.values()), "")
    text = "\n".join(sorted(files.values()))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]
