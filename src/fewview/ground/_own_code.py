"""Code that users bring: whether some takes part, and digests of the functions in a parameter.

A result must not be taken for that of other code. Who writes a method raises its `version`; a
function in a pipeline has none, so it is known by its bytecode and what it uses.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

from joblib.hashing import NumpyHasher

_SESSION = uuid.uuid4().hex[:12]  # of what has no content: another session cannot know it
# Packages whose code does not look at what it may not: fewview and what it computes with.
_TRUSTED = ("fewview", "sklearn", "numpy", "scipy", "torch", "pandas")


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


def content_digest(value: Any) -> str:
    """Digest of the content of any object, the same in every process with the same Python.

    That of joblib, but for functions that users bring: their bytecode, defaults, what they close
    over and the global values they use. What has no content that can be read is known in this
    session only.

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
        if isinstance(obj, FunctionType) and is_foreign([obj]):
            again = obj in self._met
            self._met.append(obj)
            obj = ("function again", obj.__qualname__) if again else _parts(obj)
        elif isinstance(obj, ModuleType):
            obj = ("module", obj.__name__)
        elif isinstance(obj, type) and is_foreign([obj]):
            obj = ("class", obj.__module__, obj.__qualname__)
        super().save(obj)


def _parts(function: FunctionType) -> tuple[Any, ...]:
    """What an own function computes with."""
    closed = [cell.cell_contents for cell in function.__closure__ or ()]
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
