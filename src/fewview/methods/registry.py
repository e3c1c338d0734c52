"""Methods by name, and the short language of `--methods`: `name:parameter=value:...`.

A method of your own is named by an import string, `package.module:Class`, registered by its
decorator, found through the entry point group `fewview.methods` of an installed package, or given
as an object in Python.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from inspect import isabstract
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sklearn.base import clone

from fewview.errors import FewviewError, FewviewWarning
from fewview.methods.base import Contract
from fewview.methods.params import NOT_IN_RESULTS, describe_params

if TYPE_CHECKING:
    from fewview.methods.estimator.method import Method

# Name of a method of this package -> module under `fewview.methods` that registers it.
METHODS = {
    "alpha-tim": "tim",
    "bavardage": "bavardage",
    "bd-cspn": "bd_cspn",
    "class-impute": "class_impute",
    "completer": "networks.completer",
    "concat-hgb": "concat",
    "concat-logistic": "concat",
    "concat-nn": "concat",
    "cpm": "networks.cpm",
    "cpm-gan": "networks.cpm",
    "icmsc": "networks.icmsc",
    "marginal": "marginal",
    "match": "match",
    "paddle": "paddle",
    "partial-nn": "partial_nn",
    "proto": "proto",
    "ptmap": "ptmap",
    "ptmap+ugda": "combined",
    "rfs": "rfs",
    "rfs+ugda": "combined",
    "tim": "tim",
    "tim-adm": "tim",
    "ugda": "ugda",
    "unem": "unem",
}
# The same of methods that need a package which fewview does not bring along: in no list of names.
OPTIONAL = {"tabicl": "concat", "tabpfn": "concat"}
MethodClass = TypeVar("MethodClass", bound="type[Contract]")


@dataclass(frozen=True)
class Entry:
    """One name: a class and the parameters that the name stands for."""

    name: str
    factory: type[Contract]
    parameters: dict[str, Any] = field(default_factory=dict)
    own: bool = False  # an object or an import string: its parameters are what a user has chosen

    def create(self) -> Method:
        """Make the method; nested methods are not shared between instances."""
        method: Method = clone(self.factory(**self.parameters))
        return method


_entries: dict[str, Entry] = {}
_objects: dict[str, Entry] = {}  # methods that were given as objects or classes
broken: list[str] = []  # installed packages whose methods could not be read


def register(name: str, **parameters: Any) -> Callable[[MethodClass], MethodClass]:
    """Class decorator: list a method under `name`, with `parameters` set.

    A class may be registered under several names; the lowest decorator gives its `name`.

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
        elif name in METHODS | OPTIONAL:
            owner = f"fewview.methods.{(METHODS | OPTIONAL)[name]}"
        if not f"{place}.".startswith(f"{owner}."):
            raise FewviewError(
                f"two methods want the name {name!r}: {owner}, and {factory.__qualname__} in "
                f"{factory.__module__}; give this one another name"
            )
        _entries[name] = Entry(name, factory, parameters)
        if "name" not in vars(factory):
            factory.name = name
        return factory

    return add


@cache
def _load_installed() -> None:
    """Read the methods of other packages; one that is broken must not take the others down."""
    for point in entry_points(group="fewview.methods"):
        try:
            point.load()
        except Exception as error:
            broken.append(point.value)
            warnings.warn(
                f"the methods of {point.value!r} are left out: {type(error).__name__}: {error}",
                FewviewWarning,
                stacklevel=3,
            )


def names() -> tuple[str, ...]:
    """All known names, sorted, but for methods that need packages which may not be here."""
    _load_installed()
    return tuple(sorted({*METHODS, *_entries} - set(OPTIONAL)))


def get_entry(name: str) -> Entry:
    """Look a name up and load its method; an unknown one is an error that suggests close names."""
    if name in _objects:
        return _objects[name]
    if ":" in name:
        return _imported(name)
    if name not in _entries and name in METHODS | OPTIONAL:
        import_module(f"fewview.methods.{(METHODS | OPTIONAL)[name]}")
    if name not in _entries:
        _load_installed()
    if name not in _entries:
        raise FewviewError(
            f"no method {name!r}{_suggestion(name, names())} (known: {', '.join(names())}; one of "
            "your own is package.module:Class)"
        )
    return _entries[name]


def _imported(name: str) -> Entry:
    """The method of an import string `package.module:Class`; the current folder is on the path."""
    module_name, _, thing = name.partition(":")
    if module_name in METHODS | OPTIONAL | _entries:
        raise FewviewError(f"{name!r}: write {thing!r} as parameter=value")
    if module_name.endswith(".py"):
        raise FewviewError(f"method {name!r}: write {module_name[:-3].replace('/', '.')}:{thing}")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise FewviewError(f"method {name!r}: cannot import {module_name!r} ({error})") from None
    value = getattr(module, thing, None)
    if not _is_method(value):
        whole = {key: item for key, item in vars(module).items() if not isabstract(item)}
        found = [key for key, item in whole.items() if _is_method(item)]
        raise FewviewError(
            f"method {name!r}: {module_name} has no method {thing!r}{_suggestion(thing, found)} "
            f"(it has: {', '.join(found) or 'none'})"
        )
    return _entry_of(value, name)


def _is_method(value: Any) -> bool:
    return isinstance(value, Contract) or (isinstance(value, type) and issubclass(value, Contract))


def _entry_of(value: Any, name: str) -> Entry:
    """An entry for a class or an object, whose parameters are those that differ from usual."""
    factory = value if isinstance(value, type) else type(value)
    try:
        usual = factory().get_params(deep=False)
    except TypeError as error:  # a class that is not whole, or that has no defaults
        raise FewviewError(f"{name} cannot be made: {error}") from None
    given = usual if value is factory else value.get_params(deep=False)
    if given["base"] is not None:
        raise FewviewError(
            f"{name} has a base set of its own; leave it out, base classes come from the data set"
        )
    chosen = {
        key: item
        for key, item in given.items()
        if key not in NOT_IN_RESULTS
        and (type(item), repr(item)) != (type(usual[key]), repr(usual[key]))
    }
    return Entry(name, factory, chosen, own=True)


def enter(method: Any) -> str:
    """A name for a method that is given as an object or a class, in this process.

    Example:
        >>> from fewview import Proto
        >>> enter("proto"), enter(Proto()), enter(Proto(padding="base"))
        ('proto', 'proto', 'proto[padding=base]')
    """
    if isinstance(method, str):
        return method
    if not _is_method(method):
        what = f"{method!r:.60} is not a method of fewview"
        if hasattr(method, "fit") and hasattr(method, "predict"):
            raise FewviewError(f"{what}; wrap a scikit-learn classifier as Concat(...)")
        raise FewviewError(f"{what}; derive its class from fewview.Method")
    factory = method if isinstance(method, type) else type(method)
    entry = _entry_of(method, factory.__name__)
    plain = [e.name for e in _entries.values() if e.factory is factory and not e.parameters]
    name = plain[0] if plain else factory.__name__
    if entry.parameters:
        texts = describe_params(factory(**entry.parameters))
        name += f"[{'+'.join(f'{key}={texts[key]}' for key in sorted(entry.parameters))}]"
    elif plain:
        return name
    name = name.replace(":", " ").replace(",", " ").replace("|", " ")
    _objects[name] = Entry(name, factory, entry.parameters, own=True)
    return name


def pack_objects(methods: Iterable[str]) -> bytes:
    """Methods that another process does not find by their names, by value."""
    import cloudpickle  # type: ignore[import-untyped]

    own = [get_entry(name_and_settings(text)[0]) for text in methods]
    outside = [entry for entry in own if not entry.factory.__module__.startswith("fewview.")]
    # An import string may name an object of a class of this package: the module is not there.
    own = [entry for entry in own if entry.own or entry in outside]
    for module in {sys.modules[entry.factory.__module__] for entry in outside}:
        cloudpickle.register_pickle_by_value(module)
    try:
        found: bytes = cloudpickle.dumps(own + [e for e in _objects.values() if e not in own])
    except Exception as error:
        raise FewviewError(
            f"a method of your own cannot be sent to other processes ({type(error).__name__}: "
            f"{error}); leave --jobs at 1 and --cluster out, or keep open files, locks and "
            "generators out of its class and its parameters"
        ) from None
    return found


def unpack_objects(packed: bytes) -> None:
    """In another process: let the methods of `pack_objects` be found by their names."""
    import pickle

    for entry in pickle.loads(packed) if packed else ():
        _objects[entry.name] = entry


def entries_of(factory: type[Any]) -> list[Entry]:
    """The names that a class is registered under."""
    return [entry for entry in _entries.values() if entry.factory is factory]


def name_and_settings(text: str) -> tuple[str, list[str]]:
    """Split what is typed for one method; an import string has a colon of its own.

    Example:
        >>> name_and_settings("ptmap:padding=zero"), name_and_settings("my.own:Mine:k=3")
        (('ptmap', ['padding=zero']), ('my.own:Mine', ['k=3']))
    """
    text = text.strip()
    if text in _objects:
        return text, []
    name, *settings = text.split(":")
    if settings and settings[0] and "=" not in settings[0]:
        name = f"{name}:{settings.pop(0)}"
    return name.strip(), settings


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
    name, settings = name_and_settings(text)
    method = get_entry(name).create()
    known = method.get_params(deep=True)
    chosen: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals:
            raise FewviewError(f"{text!r}: write {setting!r} as parameter=value")
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
        chosen[key] = _parse(key, value, known[key], method)
    method.set_params(**{**parameters, **chosen})  # what is typed wins
    method.check()
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
    return parsed


def _literal(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def expand(methods: Any) -> list[str]:
    """Split the value of `--methods` at commas; `all` is every method not tagged `trained`.

    From Python it may be a method, or several in a list, as text or as objects.
    """
    given = [methods] if isinstance(methods, str) or _is_method(methods) else methods
    if not isinstance(given, Iterable):
        raise FewviewError(f"methods is {methods!r:.60}; give names or methods")
    out: list[str] = []
    parts = (p for one in given for p in (one.split(",") if isinstance(one, str) else [one]))
    for part in filter(None, (p.strip() if isinstance(p, str) else enter(p) for p in parts)):
        if part == "all":
            out += [name for name in names() if not get_entry(name).create().tags.trained]
        else:
            out.append(part)
    if not out:
        raise FewviewError("no methods given; try --methods proto or --methods all")
    return list(dict.fromkeys(out))


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""
