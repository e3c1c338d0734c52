"""The list of methods by name, and the short language of `--methods`.

A method enters the list with `@register("name")` above its class. Methods of this package are found
by the catalogue of `fewview.methods`, so that using one does not load the others; installed
packages may add theirs through the entry point group `fewview.methods`.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from sklearn.base import clone

from fewview.engine._contract import Contract
from fewview.ground._errors import FewviewError, FewviewWarning

if TYPE_CHECKING:
    from fewview.engine._method import Method

# Where methods are looked for: a package with a `CATALOGUE`, name of a method -> module in it. By
# name, because what registers itself here lies to the right of this room.
PLACE = "fewview.methods"
MethodClass = TypeVar("MethodClass", bound="type[Contract]")


@dataclass(frozen=True)
class Entry:
    """One registered name: a class and the parameters that the name stands for."""

    name: str
    factory: type[Contract]
    parameters: dict[str, Any]

    def create(self) -> Method:
        """Make the method; nested methods are not shared between instances."""
        method: Method = clone(self.factory(**self.parameters))
        return method


_entries: dict[str, Entry] = {}
broken: list[str] = []  # entry points of other packages that could not be read


def register(name: str, **parameters: Any) -> Callable[[MethodClass], MethodClass]:
    """Class decorator: list a method under `name`, with `parameters` set.

    A class may be registered under several names; the first one becomes its `name`.

    Args:
        name: as typed after `--methods`.
        parameters: what the name stands for beside the class.

    Example:
        >>> from fewview import Proto, create, register
        >>> @register("far-proto", padding="zero")
        ... class FarProto(Proto):
        ...     pass
        >>> create("far-proto").padding
        'zero'
    """

    def add(factory: MethodClass) -> MethodClass:
        place = f"{factory.__module__}.{factory.__qualname__}"
        owner = place  # a name that is free, or a cell of a notebook that is run again
        if name in _entries:
            known = _entries[name].factory
            owner = f"{known.__module__}.{known.__qualname__}"
        elif name in _catalogue():
            owner = f"{PLACE}.{_catalogue()[name]}"
        if not f"{place}.".startswith(f"{owner}."):
            raise FewviewError(
                f"two methods want the name {name!r}: {owner}, and {factory.__qualname__} in "
                f"{factory.__module__}; give this one another name"
            )
        _entries[name] = Entry(name, factory, parameters)
        if "name" not in vars(factory):
            factory.name = name  # decorators run upwards: the lowest name is the class's own
        return factory

    return add


def _catalogue() -> dict[str, str]:
    """Methods of this package -> their modules; the one place where a room points to its right."""
    catalogue: dict[str, str] = import_module(PLACE).CATALOGUE
    return catalogue


@cache
def _load_installed() -> None:
    """Read the methods of other packages; one that is broken must not take the others down."""
    for point in entry_points(group=PLACE):
        try:
            point.load()
        except Exception as error:
            package = point.dist.name if point.dist is not None else point.module
            broken.append(point.name)
            warnings.warn(
                f"methods of the package {package!r} are left out: reading {point.value!r} gave "
                f"{type(error).__name__}: {error}",
                FewviewWarning,
                stacklevel=3,
            )


def names() -> tuple[str, ...]:
    """All known names, sorted."""
    _load_installed()
    return tuple(sorted({*_catalogue(), *_entries}))


def get_entry(name: str) -> Entry:
    """Look a name up and load its method; an unknown one is an error that suggests close names."""
    catalogue = _catalogue()
    if name not in _entries and name in catalogue:
        import_module(f"{PLACE}.{catalogue[name]}")
    if name not in _entries:
        _load_installed()
    if name not in _entries and name in catalogue:
        raise FewviewError(
            f"method {name!r} is said to be in {PLACE}.{catalogue[name]}, which registers no "
            f'method of that name; write @register("{name}") above its class'
        )
    if name not in _entries:
        raise FewviewError(
            f"no method {name!r}{_suggestion(name, names())} (known: {', '.join(names())})"
        )
    return _entries[name]


def entries_of(factory: type[Any]) -> list[Entry]:
    """The names that a class is registered under."""
    return [entry for entry in _entries.values() if entry.factory is factory]


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


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
    method = get_entry(name.strip()).create()
    known = method.get_params(deep=True)
    chosen: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise FewviewError(f"{text!r}: write {setting!r} as parameter=value")
        key = method.spell_parameter(key.strip())
        if key == "base":
            raise FewviewError(
                f"method {name!r} has no parameter 'base' here; use --base, or the data set's own "
                "base classes"
            )
        if key not in known:
            raise FewviewError(
                f"method {name!r} has no parameter {key!r}{_suggestion(key, known)} "
                f"(it has {', '.join(sorted(k for k in known if k != 'base'))})"
            )
        chosen[key] = _parse(key, value.strip(), known[key], method)
    method.set_params(**{**parameters, **chosen})  # what is typed wins
    method.validate()
    return method


def _parse(key: str, value: str, default: Any, method: Contract) -> Any:
    kinds = {item.name: str(item.type) for item in fields(method)}
    if isinstance(default, tuple) or kinds.get(key, "").startswith("tuple"):
        return () if value in ("", "none") else tuple(_literal(part) for part in value.split("+"))
    parsed = _literal(value)
    if isinstance(default, str):
        # `scaling=none` is a word; a number where a word is usual ("auto") stays a number.
        number = isinstance(parsed, (int, float)) and not isinstance(parsed, bool)
        return parsed if number else value
    if isinstance(default, bool) and not isinstance(parsed, bool):
        raise FewviewError(f"parameter {key!r} is true or false, not {value!r}")
    return parsed


def _literal(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def expand(text: str) -> list[str]:
    """Split the value of `--methods` at commas; `all` is every method not tagged `trained`."""
    out: list[str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        if part == "all":
            out += [name for name in names() if not get_entry(name).create().tags.trained]
        else:
            out.append(part)
    if not out:
        raise FewviewError("no methods given; try --methods proto or --methods all")
    return list(dict.fromkeys(out))
