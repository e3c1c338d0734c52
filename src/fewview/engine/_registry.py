"""The list of methods by name, and the short language of `--methods`.

A method enters the list with `@register("name")` above its class. Methods of this package are found
by the catalogue of `fewview.methods`, so that using one does not load the others; installed
packages may add theirs through the entry point group `fewview.methods`. A method may also be given
as an object, or by the file that has it (`mine.py:MyMethod`); those are in no list.
"""

from __future__ import annotations

import difflib
import pickle
import re
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sklearn.base import clone

from fewview.engine._contract import Contract
from fewview.engine._parameters import NOT_IN_KEY
from fewview.ground._errors import FewviewError, FewviewWarning
from fewview.ground._own_code import (
    file_digest,
    load_file,
    own_digest,
    pickle_by_value,
)

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
    own: bool = False  # an object, or of a file: its parameters are what a user has chosen
    digest: str = ""  # of the code that such a method is made of; empty: installed packages alone

    def create(self) -> Method:
        """Make the method; nested methods are not shared between instances."""
        method: Method = clone(self.factory(**self.parameters))
        return method


_entries: dict[str, Entry] = {}
_own: dict[str, Entry] = {}  # methods given as objects, and those that came from another process
_FILE = re.compile(r"(?P<name>(?P<file>[^,]+?\.py)(?::(?P<thing>[^:=]*))?)(?P<settings>:.*)?")
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
    return catalogue | _optional()


def _optional() -> dict[str, str]:
    """Those of them that need packages of others."""
    optional: dict[str, str] = import_module(PLACE).OPTIONAL
    return optional


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
    """All known names, sorted, but for methods that need packages which may not be here."""
    _load_installed()
    return tuple(sorted({*_catalogue(), *_entries} - set(_optional())))


def get_entry(name: str) -> Entry:
    """Look a name up and load its method; an unknown one is an error that suggests close names."""
    if name in _own:
        return _own[name]
    if found := _FILE.fullmatch(name):
        return _entry_in_file(name, Path(found["file"]).expanduser(), found["thing"] or "")
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


# ---------------------------------------------------------------------- methods of users' own


def name_and_settings(text: str) -> tuple[str, list[str]]:
    """Split what is typed for one method; the name of one in a file has a colon of its own.

    Example:
        >>> name_and_settings("ptmap:padding=zero"), name_and_settings("my/own.py:Mine:k=3")
        (('ptmap', ['padding=zero']), ('my/own.py:Mine', ['k=3']))
    """
    text = text.strip()
    if text in _own:
        return text, []
    found = _FILE.fullmatch(text)
    name, settings = text.partition(":")[::2]
    if found:
        name, settings = found["name"], (found["settings"] or "")[1:]
    return name.strip(), settings.split(":") if settings else []


def _entry_in_file(name: str, path: Path, thing: str) -> Entry:
    """The method that a file calls `thing`: a class, an object, or a name that it registers."""
    module = load_file(path)
    here = {
        key: value
        for key, value in vars(module).items()
        if not key.startswith("_")
        and _is_method(value)
        and (isinstance(value, Contract) or value.__module__ == module.__name__)
    }
    registered = [
        entry for entry in _entries.values() if entry.factory.__module__ == module.__name__
    ]
    listed = ", ".join(here) or "none"
    if not thing:
        example = next(iter(here), "MyMethod")
        raise FewviewError(
            f"{path}: say which method of the file, as {path}:{example} (it has: {listed})"
        )
    if hasattr(module, thing):
        value = getattr(module, thing)
        if not _is_method(value):
            raise FewviewError(f"{path}: {_not_a_method(thing, value)} (methods there: {listed})")
        entry = _entry_of(value, name)
        # An object made of installed packages alone is what its file says it is.
        return entry if entry.digest else replace(entry, digest=file_digest(path))
    for entry in registered:
        if entry.name == thing:
            digest = own_digest([entry.factory, *entry.create().get_params().values()])
            return Entry(name, entry.factory, entry.parameters, digest=digest)
    known = [*here, *(entry.name for entry in registered)]
    raise FewviewError(
        f"{path} has no method {thing!r}{_suggestion(thing, known)} (it has: {listed})"
    )


def _is_method(value: Any) -> bool:
    return isinstance(value, Contract) or (isinstance(value, type) and issubclass(value, Contract))


def _not_a_method(name: str, value: Any) -> str:
    """What to say of something that was given as a method and is none."""
    kind = value if isinstance(value, type) else type(value)
    what = f"{name} is a {'class' if kind is value else kind.__name__}, not a method of fewview"
    if hasattr(kind, "fit") and hasattr(kind, "predict"):
        made = f"{kind.__name__}(...)"
        return f"{what}; wrap a scikit-learn classifier as Concat({made})"
    return f"{what}; derive its class from fewview.Method"


def _entry_of(value: Any, name: str) -> Entry:
    """An entry for a class or an object, whose parameters are those that differ from usual."""
    factory = value if isinstance(value, type) else type(value)
    try:
        usual = factory().get_params(deep=False)
        given = usual if value is factory else value.get_params(deep=False)
    except TypeError as error:  # a class that is not whole, or that has no defaults
        raise FewviewError(f"{name} cannot be made: {error}") from None
    if given["base"] is not None:
        raise FewviewError(
            f"{name} has a base set of its own; leave it out, base classes come from the data set"
        )
    chosen = {k: v for k, v in given.items() if k not in NOT_IN_KEY and _differ(v, usual[k])}
    digest = own_digest([factory, *factory(**chosen).get_params().values()])
    return Entry(name, factory, chosen, own=True, digest=digest)


def _differ(one: Any, two: Any) -> bool:
    return type(one) is not type(two) or repr(one) != repr(two)


def enter(method: Any) -> str:
    """Give a method that is an object or a class a name that stands for it in this process.

    Example:
        >>> from fewview import Proto
        >>> enter("proto"), enter(Proto()), enter(Proto(padding="base"))
        ('proto', 'proto', 'proto[padding=base]')
    """
    if isinstance(method, str):
        return method
    if not _is_method(method):
        raise FewviewError(f"methods: {_not_a_method(repr(method)[:60], method)}")
    factory = method if isinstance(method, type) else type(method)
    registered = entries_of(factory)
    plain = next((entry.name for entry in registered if not entry.parameters), "")
    own_name = "" if registered else vars(factory).get("name", "")
    name = plain or own_name or factory.__name__
    entry = _entry_of(method, name)
    if plain and not entry.parameters:
        return name  # what the registered name stands for
    if entry.parameters:
        name += f"[{'+'.join(_short(*item) for item in sorted(entry.parameters.items()))[:60]}]"
    name = re.sub(r"[\s:,|]+", " ", name)
    key, number, free = factory(**entry.parameters).key(), 1, name
    while free in names() or (
        (old := _own.get(free)) is not None
        and (old.factory is not factory or old.factory(**old.parameters).key() != key)
    ):
        number += 1
        free = f"{name}#{number}"
    _own[free] = Entry(free, factory, entry.parameters, own=True, digest=entry.digest)
    return free


def _short(key: str, value: Any) -> str:
    """A parameter in few letters: of an estimator the classes that it is made of."""
    steps = getattr(value, "steps", None)
    if hasattr(value, "fit"):
        return "+".join(type(step).__name__ for _, step in steps or [("", value)])
    return f"{key}={value}"


def pack_own(methods: Iterable[str]) -> bytes:
    """Methods that another process does not find by itself, by value."""
    entries = [get_entry(name_and_settings(text)[0]) for text in methods]
    others = [e for e in entries if e.own or e.digest or not _of_package(e.factory)]
    return pickle_by_value(others) if others else b""


def _of_package(factory: type[Any]) -> bool:
    return factory.__module__.startswith("fewview.")


def unpack_own(packed: bytes) -> None:
    """In another process: let the methods of `pack_own` be found by their names."""
    try:
        entries = pickle.loads(packed) if packed else ()
    except Exception as error:  # what unpickling imports may fail in any way
        raise FewviewError(
            f"a method of your own cannot be read there ({type(error).__name__}: {error}); install "
            "what it imports on all machines"
        ) from None
    for entry in entries:
        _own[entry.name] = entry


def present_digest(text: str) -> str | None:
    """Digest of the code of a method as it is now, without running it; None where it is gone."""
    name, _ = name_and_settings(text)
    found = _FILE.fullmatch(name)
    if name in _own or not found:
        return _own[name].digest if name in _own else ""
    try:
        return file_digest(Path(found["file"]).expanduser())
    except FewviewError:
        return None


def is_in_file(text: str) -> bool:
    """Whether a method is named by the file that has it."""
    return _FILE.fullmatch(text.strip()) is not None


def entries_of(factory: type[Any]) -> list[Entry]:
    """The names that a class is registered under."""
    return [entry for entry in _entries.values() if entry.factory is factory]


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def create(text: str, **parameters: Any) -> Method:
    """Make a method from `name` or `name:parameter=value:...`.

    Args:
        text: as on the command line; a method in a file of yours is `mine.py:MyMethod`. Values are
            numbers, words, `true`, `false` or `none`; where the parameter is a tuple, `+`
            separates its parts and `none` is the empty tuple.
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


def expand(methods: Any) -> list[str]:
    """Split the value of `--methods` at commas; `all` is every method not tagged `trained`.

    From Python it may be a method, or several in a list, as text or as objects.
    """
    given = [methods] if isinstance(methods, str) or _is_method(methods) else methods
    if not isinstance(given, Iterable):
        raise FewviewError(f"methods: {_not_a_method(repr(methods)[:60], methods)}")
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
