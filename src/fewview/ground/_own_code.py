"""Code that users bring: a file of Python read as a module, and digests of what defines an object.

A result must not be taken for that of other code. So what a user's own class is made of is known by
the content of its file, wherever the class came from, and a function that no file has by its
bytecode and what it uses.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from joblib.hashing import NumpyHasher

from fewview.ground._errors import FewviewError

LENGTH = 12  # hex digits of a digest: no accident makes two files alike
_SESSION = uuid.uuid4().hex[:LENGTH]  # of code that no file has: another session cannot know it
_PREFIX = "fewview_own_"
# Packages whose code does not look at what it may not: fewview and what it computes with.
_TRUSTED = ("fewview", "sklearn", "numpy", "scipy", "torch", "pandas")
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

    A function without a file (a notebook, a console) is known by its bytecode, a class without one
    in this session only (`is_fleeting`).
    """
    files: dict[str, str] = {}
    for kind in _kinds(things):
        if _is_own(kind):
            name, file = kind.__module__ or "builtins", _file_of(kind)
            if file is not None:
                files[name.removeprefix(_PREFIX)] = file_digest(file)
            elif is_fleeting(found := content_digest(kind)):
                files[f"{name}.{kind.__qualname__}"] = found
            else:
                files[f"{name}.{kind.__qualname__}"] = found[:LENGTH]
    if len(files) < 2:
        return next(iter(files.values()), "")
    text = "\n".join(sorted(files.values()))
    short = hashlib.sha256(text.encode()).hexdigest()[:LENGTH]
    return f"{_SESSION}{short}" if is_fleeting(text) else short


def is_fleeting(digest: str) -> bool:
    """Whether a digest is of code that another session cannot know: that no file has."""
    return _SESSION in digest


def is_foreign(things: Iterable[Any]) -> bool:
    """Whether code takes part that is neither of fewview nor of the libraries it computes with."""
    known = (*sys.stdlib_module_names, *_TRUSTED)
    return any(kind.__module__.partition(".")[0] not in known for kind in _kinds(things))


def _kinds(things: Iterable[Any]) -> Iterator[Any]:
    """The classes and functions that some objects are made of."""
    for thing in things:
        found = thing
        while isinstance(found, partial):
            found = found.func
        kind = found if hasattr(found, "__qualname__") else type(found)
        for one in getattr(kind, "__mro__", (kind,)):
            if isinstance(getattr(one, "__module__", None), str):
                yield one


def _is_own(kind: Any) -> bool:
    """Whether a class or function is of a user, not of an installed package."""
    if kind.__module__.partition(".")[0] in (*sys.stdlib_module_names, "fewview"):
        return False
    file = _file_of(kind)
    return file is None or {"site-packages", "dist-packages"}.isdisjoint(file.parts)


def _file_of(kind: Any) -> Path | None:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return None if file is None or not Path(file).is_file() else Path(file)


def content_digest(value: Any) -> str:
    """Digest of the content of any object, the same in every process with the same Python.

    That of joblib, but for functions that users bring: their bytecode, defaults, and what they
    close over; where no file has them, the global values they use too. What has no content that
    can be read is known in this session only.

    Example:
        >>> powers = [lambda x, p=p: x**p for p in (2, 3)]
        >>> content_digest(powers[0]) == content_digest(powers[1])
        False
    """
    try:
        return str(_Hasher().hash(value))
    except Exception:  # whatever pickling meets
        return f"{_SESSION}{id(value)}"


class _Hasher(NumpyHasher):  # type: ignore[misc]
    """joblib's, which knows functions by their names alone."""

    def __init__(self) -> None:
        super().__init__()
        self._met: list[FunctionType] = []

    def save(self, obj: Any) -> None:
        """Put what a function is made of in its place, and the name of a module in its."""
        if isinstance(obj, FunctionType) and _is_own(obj):
            again = obj in self._met
            self._met.append(obj)
            obj = ("function again", obj.__qualname__) if again else _parts(obj)
        elif isinstance(obj, ModuleType):
            obj = ("module", obj.__name__)
        elif isinstance(obj, type) and _is_own(obj):
            if _file_of(obj) is None:
                raise TypeError("a class that no file has")
            obj = ("class", obj.__qualname__, own_digest([obj]))
        super().save(obj)


def _parts(function: FunctionType) -> tuple[Any, ...]:
    """What an own function computes with."""
    closed = [cell.cell_contents for cell in function.__closure__ or ()]
    used: dict[str, Any] = {}
    if _file_of(function) is None:  # else the digest of the file has them
        around = function.__globals__
        used = {name: around[name] for name in _names(function.__code__) if name in around}
    return (
        "function", _code_text(function.__code__), function.__defaults__, function.__kwdefaults__,
        closed, used,
    )  # fmt: skip


def _names(code: CodeType) -> set[str]:
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _code_text(code: CodeType) -> str:
    """Bytecode and constants as text, without the lines and the file they came from."""
    consts = [
        _code_text(const) if isinstance(const, CodeType)
        else sorted(map(repr, const)) if isinstance(const, frozenset)
        else const
        for const in code.co_consts
    ]  # fmt: skip
    return repr((code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars))
