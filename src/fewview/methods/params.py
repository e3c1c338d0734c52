"""Hyper-parameters of methods: declared by `param`, checked, written as text.

A method is an ordinary dataclass; `param` adds to a field what values it may have. As text,
parameters are the key of a result and what a fitted base set remembers.
"""

from __future__ import annotations

import re
from dataclasses import field, fields
from inspect import get_annotations
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from fewview.errors import FewviewError

# Parameters that say where and from what, not how: no part of what results depend on.
NOT_IN_RESULTS = ("base", "device", "max_memory")


def param(
    default: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    among: tuple[Any, ...] | None = None,
    tune: tuple[Any, ...] | None = None,
) -> Any:
    """A hyper-parameter: its default, the values it may have, and those to tune over.

    Rules hold for every entry of a tuple. A rule that is not given is inherited from the class
    above; `tune=()` takes a parameter out of the grid of `--tune`.
    """
    rules = {"above": above, "least": least, "most": most, "among": among, "tune": tune}
    return field(default=default, metadata={k: v for k, v in rules.items() if v is not None})


def rules_of(kind: type[Any]) -> dict[str, dict[str, Any]]:
    """Rules by parameter; a class that changes a default keeps the rules of the classes above."""
    found: dict[str, dict[str, Any]] = {}
    for above in reversed(kind.__mro__):
        # What is learnt ends in an underscore, as in scikit-learn, and is no parameter.
        own = [
            name
            for name, kinds in get_annotations(above).items()
            if "ClassVar" not in str(kinds) and not name.startswith("_") and name[-1] != "_"
        ]
        if not own or above.__module__.startswith("sklearn."):
            continue
        if "__dataclass_fields__" not in vars(above):
            raise TypeError(
                f"{above.__name__} declares parameters and is no dataclass: write "
                "@dataclass(kw_only=True, eq=False, repr=False) above it"
            )
        for name in own:
            own_rules = vars(above)["__dataclass_fields__"][name].metadata
            found[name] = {**found.get(name, {}), **own_rules}
    return found


def check_params(method: Any) -> None:
    """Raise FewviewError for the first parameter outside its declared type or rules."""
    known = rules_of(type(method))
    for item in fields(method):
        value, rules, kinds = getattr(method, item.name), known[item.name], str(item.type)
        if value is None and "None" in kinds:
            continue
        if isinstance(value, tuple) != kinds.startswith("tuple") and "Any" not in kinds:
            wanted = "a tuple" if kinds.startswith("tuple") else "a single value"
            raise FewviewError(f"{item.name} is {value!r}; it must be {wanted}")
        count = kinds.count(",") + 1  # of `tuple[float, float]`; `...` is any number
        if isinstance(value, tuple) and "..." not in kinds and len(value) != count:
            raise FewviewError(f"{item.name} is {value!r}; it must have {count} entries")
        for one in value if isinstance(value, tuple) else (value,):
            problem = _problem(one, kinds.removeprefix("tuple["), rules)
            if problem:
                raise FewviewError(f"{item.name} is {value!r}; it must be {problem}")


def _problem(value: Any, kinds: str, rules: dict[str, Any]) -> str:
    """What a value must be and is not; empty where it is right."""
    truth = isinstance(value, (bool, np.bool_))
    number = isinstance(value, Real) and not truth and isfinite(value)
    if "among" in rules and not ("float" in kinds and number):
        allowed = ", ".join(map(str, rules["among"]))
        return "" if value in rules["among"] else f"one of {allowed}"
    if kinds.startswith("bool"):
        return "" if truth else "true or false"
    if kinds.startswith("int") and not (number and isinstance(value, Integral)):
        return "a whole number"
    if kinds.startswith("float") and not number:
        return "a finite number"
    limits = (("above", "above", "__gt__"), ("least", "at least", "__ge__"))
    for rule, words, compare in (*limits, ("most", "at most", "__le__")):
        if rule in rules and not (number and getattr(float(value), compare)(float(rules[rule]))):
            return f"{words} {rules[rule]:g}"
    return ""


def describe_params(method: Any) -> dict[str, str]:
    """All parameters that change results, as text, in sorted order.

    Example:
        >>> from fewview import Proto
        >>> describe_params(Proto())["padding"]
        'zero'
    """
    values = method.resolved_params()
    return {name: _text(values[name]) for name in sorted(values) if name not in NOT_IN_RESULTS}


def _text(value: Any) -> str:
    if hasattr(value, "resolved_params"):
        inner = ",".join(f"{k}={v}" for k, v in describe_params(value).items())
        return f"{type(value).__name__}({inner})"
    if isinstance(value, tuple):
        return "+".join(map(_text, value)) or "none"
    if isinstance(value, BaseEstimator):
        text = " ".join(value.__repr__(N_CHAR_MAX=10**6).split())
        plain = re.sub(r" at 0x[0-9a-fA-F]+", "", text)
        if plain != text or "..." in text:  # a function, or a list of over 30 that is cut
            from fewview.ground._own_code import content_digest

            return f"{plain} {content_digest(value)}"
        return text
    return str(value)
