"""Parameters of methods: ranges of numbers that one checker speaks for, and presets.

What a parameter's type is, the contract checks for all methods; what values make sense, a method
says here in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import partial
from numbers import Integral, Real
from typing import Any, TypeVar

from fewview.ground._errors import FewviewError

Options = TypeVar("Options")


def check_numbers(
    parameters: object,
    *,
    positive: Iterable[str] = (),
    not_negative: Iterable[str] = (),
    shares: Iterable[str] = (),
    whole: Mapping[str, int] | None = None,
) -> None:
    """Raise an error unless numbers are in their ranges; None is always allowed.

    Args:
        parameters: a method, or a dictionary of its settings.
        positive: names of numbers above zero; of a tuple, all of them.
        not_negative: names of numbers that may be zero too.
        shares: names of numbers from 0 to 1.
        whole: names of whole numbers, and the least that each may be.

    Example:
        >>> check_numbers({"C": 1.0, "n_iter": 0}, positive=["C"], whole={"n_iter": 1})
        Traceback (most recent call last):
        ...
        fewview.FewviewError: n_iter is 0; it must be a whole number >= 1
    """
    rules: list[tuple[str, str, Callable[[Any], bool]]] = [
        *((name, "positive", lambda x: x > 0) for name in positive),
        *((name, ">= 0", lambda x: x >= 0) for name in not_negative),
        *((name, "a number from 0 to 1", lambda x: 0 <= x <= 1) for name in shares),
    ]
    for name, least in (whole or {}).items():
        rules.append((name, f"a whole number >= {least}", partial(_is_whole, least)))
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
