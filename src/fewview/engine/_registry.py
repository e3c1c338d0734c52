"""The list of methods by name, and the short language of `--methods`.

A method enters the list with `@register("name")` above its class; every module of this folder is
read on first use, and installed packages may add methods through the entry point group
`fewview.methods`.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from fewview.ground._errors import FewviewError, FewviewWarning

if TYPE_CHECKING:
    from fewview.engine._contract import Method

MethodClass = TypeVar("MethodClass", bound="type[Method]")


@dataclass(frozen=True)
class Entry:
    """One registered name: a class and the parameters that the name stands for."""

    name: str
    factory: type[Method]
    parameters: dict[str, Any]

    def create(self, **parameters: Any) -> Method:
        """Make the method, with some parameters changed."""
        method = self.factory(**self.parameters)
        # A fresh default object per instance: nested methods must not be shared between them.
        from sklearn.base import clone

        method = clone(method)
        return method.set_params(**parameters)  # type: ignore[no-any-return]


_entries: dict[str, Entry] = {}
_state = {"discovered": False}
broken: list[str] = []  # entry points of other packages that could not be read


def register(name: str, **parameters: Any) -> Callable[[MethodClass], MethodClass]:
    """Class decorator: list a method under `name`, with `parameters` set.

    A class may be registered under several names; the first one becomes its `name`.

    Example:
        >>> from fewview.engine._registry import create
        >>> create("proto").scaling
        'scale'
    """

    def add(factory: MethodClass) -> MethodClass:
        known = _entries.get(name)
        if known is not None and known.factory.__qualname__ != factory.__qualname__:
            raise FewviewError(f"two methods want the name {name!r}")
        _entries[name] = Entry(name, factory, parameters)
        if "name" not in vars(factory):
            factory.name = name  # decorators run upwards: the lowest name is the class's own
        return factory

    return add


def _discover() -> None:
    if _state["discovered"]:
        return
    _state["discovered"] = True
    import fewview.methods as package

    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
    for point in entry_points(group="fewview.methods"):
        _load(point)


def _load(point: EntryPoint) -> None:
    """Read the methods of another package; one that is broken must not take the others down."""
    try:
        point.load()
    except Exception as error:
        package = point.dist.name if point.dist is not None else point.module
        broken.append(point.name)
        warnings.warn(
            f"methods of the package {package!r} are left out: reading {point.value!r} gave "
            f"{type(error).__name__}: {error}",
            FewviewWarning,
            stacklevel=4,
        )


def names() -> tuple[str, ...]:
    """All registered names, sorted.

    Example:
        >>> "proto" in names()
        True
    """
    _discover()
    return tuple(sorted(_entries))


def get_entry(name: str) -> Entry:
    """Look a registered name up; an unknown one is an error that suggests close names."""
    _discover()
    if name not in _entries:
        close = difflib.get_close_matches(name, _entries, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise FewviewError(f"no method {name!r}{hint} (known: {', '.join(names())})")
    return _entries[name]


def create(text: str, **parameters: Any) -> Method:
    """Make a method from `name` or `name:parameter=value:...`.

    Args:
        text: as on the command line. Values are numbers, words, `true`, `false` or `none`; where
            the parameter is a tuple, `+` separates its parts and `none` is the empty tuple.
        parameters: further parameters, already of their right types.

    Example:
        >>> create("proto:padding=zero", device="cpu").padding
        'zero'
    """
    name, *settings = text.split(":")
    entry = get_entry(name.strip())
    method = entry.create()
    known = method.get_params(deep=True)
    chosen: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip()
        if not equals:
            raise FewviewError(f"{text!r}: write {setting!r} as parameter=value")
        key = method.spell_parameter(key)
        if key == "base":
            raise FewviewError(
                f"method {name!r} has no parameter 'base' here; use --base, or the data set's own "
                "base classes"
            )
        if key not in known:
            close = difflib.get_close_matches(key, known, n=3, cutoff=0.5)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise FewviewError(
                f"method {name!r} has no parameter {key!r}{hint} "
                f"(it has {', '.join(sorted(k for k in known if k != 'base'))})"
            )
        chosen[key] = _parse(key, value.strip(), known[key], method)
    method.set_params(**{**parameters, **chosen})  # what is typed wins
    method.validate()
    return method


def _parse(key: str, value: str, default: Any, method: Method) -> Any:
    if _is_tuple(key, default, method):
        return () if value in ("", "none") else tuple(_literal(part) for part in value.split("+"))
    parsed = _literal(value)
    if isinstance(default, str) and parsed is not None and not isinstance(parsed, bool):
        # `scaling=none` is a word; a number where a word is usual ("auto") stays a number.
        return parsed if isinstance(parsed, (int, float)) else value
    if isinstance(default, str):
        return value
    if isinstance(default, bool) and not isinstance(parsed, bool):
        raise FewviewError(f"parameter {key!r} is true or false, not {value!r}")
    return parsed


def _is_tuple(key: str, default: Any, method: Method) -> bool:
    if isinstance(default, tuple):
        return True
    if "__" in key:
        return False
    kinds = {item.name: str(item.type) for item in fields(method)}
    return kinds.get(key, "").startswith("tuple")


def _literal(text: str) -> Any:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered == "none":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def expand(text: str) -> list[str]:
    """Split the value of `--methods` at commas; `all` is every method not tagged `trained`.

    Example:
        >>> expand("proto:padding=zero,proto")
        ['proto:padding=zero', 'proto']
    """
    out: list[str] = []
    for part in text.split(","):
        part = part.strip()
        if not part:
            continue
        found = (
            [name for name in names() if not get_entry(name).create().tags.trained]
            if part == "all"
            else [part]
        )
        out += [item for item in found if item not in out]
    if not out:
        raise FewviewError("no methods given; try --methods proto or --methods all")
    return out
