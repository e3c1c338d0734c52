"""Parameters of methods: declared as annotated attributes, checked, written as text.

A class under `Parameters` is made a dataclass by itself, so that an author declares a parameter by
writing it down once. As text, parameters are the key of a result and what a fitted base remembers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import partial
from inspect import get_annotations
from math import isfinite
from numbers import Integral, Real
from typing import Any, TypeVar, dataclass_transform

import numpy as np
from sklearn.base import BaseEstimator

from fewview.ground._errors import FewviewError
from fewview.ground._own_code import content_digest

Options = TypeVar("Options")

# Parameters that say where and from what, not how: no part of a key, and not saved with a model.
NOT_IN_KEY = ("base", "device", "max_memory")
# Where an object is in memory, which another process does not know.
_PLACE = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class Parameters(BaseEstimator):  # type: ignore[misc]
    """Makes a dataclass of every class under it: annotated attributes are its parameters.

    A value without annotation, where a class above has the parameter, is its new default.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = get_annotations(cls)
        for name in ("__init__", "__post_init__"):
            if name in vars(cls):
                raise TypeError(
                    f"{cls.__name__} has a {name}: the constructor is made from the annotated "
                    "attributes and stores them, nothing else (what is derived from them would be "
                    "old after set_params); work it out where it is used"
                )
        for name in ("name", "tags", "tune_grid", "version"):
            if name in own and "ClassVar" not in str(own[name]):
                raise TypeError(
                    f"{cls.__name__}.{name} is no parameter; annotate it with ClassVar, or not at "
                    "all"
                )
        above: tuple[Field[Any], ...] = fields(cls) if is_dataclass(cls) else ()
        changed = {f.name: f.type for f in above if f.name in vars(cls) and f.name not in own}
        cls.__annotations__ = {**changed, **own}
        dataclass(kw_only=True, eq=False, repr=False)(cls)

    def resolved_parameters(self) -> dict[str, Any]:
        """Parameters by name; a class in which some follow from others fills those in."""
        return dict(self.get_params(deep=False))

    def described(self) -> dict[str, str]:
        """All resolved parameters that change results, as text, in sorted order."""
        return _described(self.resolved_parameters())

    def key(self) -> str:
        """`described` as one text.

        Example:
            >>> from fewview import Proto
            >>> Proto().key()
            'dtype=float32,padding=zero,random_state=0,scaling=by-width'
        """
        return joined(self.described())

    def check_types(self) -> None:
        """Check that parameters declared as numbers or truth values are that, and finite."""
        for item in fields(self):
            kinds = [kind.strip() for kind in str(item.type).split("|")]
            value = getattr(self, item.name)
            if set(kinds) <= {"int", "float", "bool", "None"} and not (
                value is None and "None" in kinds
            ):
                _check_number(item.name, value, kinds)


def _described(values: dict[str, Any]) -> dict[str, str]:
    return {name: _text(values[name]) for name in sorted(values) if name not in NOT_IN_KEY}


def joined(texts: Mapping[str, str]) -> str:
    """Parameters as one text, `name=value` after commas."""
    return ",".join(f"{name}={text}" for name, text in texts.items())


def _text(value: Any) -> str:
    if isinstance(value, Parameters):
        # As given, not resolved: so it was written from the first version on.
        return f"{type(value).__name__}({joined(_described(value.get_params(deep=False)))})"
    if isinstance(value, tuple):
        return "+".join(map(_text, value)) or "none"
    text = " ".join(repr(value).split()) if isinstance(value, BaseEstimator) else str(value)
    # Long representations are cut, those of functions say where they are: neither tells two apart.
    cut = isinstance(value, BaseEstimator) and "..." in text
    if cut or (_PLACE.search(text) and not isinstance(value, str)):
        return f"{_PLACE.sub('', text)} {content_digest(value)}"
    return text


def _check_number(name: str, value: Any, kinds: list[str]) -> None:
    truth = isinstance(value, (bool, np.bool_))
    if "bool" in kinds:
        right, wanted = truth, "true or false"
    elif "float" in kinds:
        right, wanted = isinstance(value, Real) and isfinite(value), "a finite number"
    else:
        right, wanted = isinstance(value, Integral), "a whole number"
    if not right or (truth and "bool" not in kinds):
        raise FewviewError(f"{name} is {value!r}; it must be {wanted}")


def choose(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Raise an error that lists the allowed values unless `value` is one of them."""
    options = tuple(allowed)
    if value not in options:
        raise FewviewError(f"{name} is {value!r}; it must be one of {', '.join(map(str, options))}")


def check_numbers(
    parameters: object,
    *,
    positive: Iterable[str] = (),
    not_negative: Iterable[str] = (),
    shares: Iterable[str] = (),
    whole: Mapping[str, int] | None = None,
) -> None:
    """Raise an error unless numbers, or all numbers of a tuple, are in their ranges.

    None is always allowed. `parameters` is a method or a dictionary of its settings, `shares` are
    numbers from 0 to 1, and `whole` has the least that each whole number may be.
    """
    rules: list[tuple[str, str, Callable[[Any], bool]]] = [
        *((name, "positive", lambda x: x > 0) for name in positive),
        *((name, ">= 0", lambda x: x >= 0) for name in not_negative),
        *((name, "a number from 0 to 1", lambda x: 0 <= x <= 1) for name in shares),
        *(
            (name, f"a whole number >= {least}", partial(_is_whole, least))
            for name, least in (whole or {}).items()
        ),
    ]
    values = parameters if isinstance(parameters, Mapping) else vars(parameters)
    for name, wanted, right in rules:
        value = values[name]
        for number in value if isinstance(value, tuple) else (value,):
            is_number = isinstance(number, Real) and not isinstance(number, bool)
            if number is not None and not (is_number and right(number)):
                raise FewviewError(f"{name} is {value!r}; it must be {wanted}")


def _is_whole(least: int, number: Any) -> bool:
    return isinstance(number, Integral) and int(number) >= least


def follow_preset(method: object, preset: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that a preset has a say in: the value given, or the preset's where it is None."""
    given = {name: getattr(method, name) for name in preset}
    return {name: preset[name] if value is None else value for name, value in given.items()}


def gather_options(kind: type[Options], method: object, settings: Mapping[str, Any]) -> Options:
    """Fill a dataclass of options with the settings, and else the parameters, of these names."""
    names = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    return kind(**{n: settings[n] if n in settings else getattr(method, n) for n in names})
