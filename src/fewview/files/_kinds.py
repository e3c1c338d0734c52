"""Ids and labels as plain values: how those that are numbers or text go into a file and come back.

Every format writes with these, so that a label is the same label whatever file it went through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fewview.ground._errors import FewviewError

if TYPE_CHECKING:
    from fewview.samples._data import MultiViewData

KINDS = ("int", "float", "bool", "str", "json")


def kind_of(values: Iterable[Any], what: str) -> str:
    """Say how labels or ids can be stored: int, float, bool, str, or json for anything mixed.

    json also takes what the plain kinds would change: integers beyond 64 bits, text with a NUL at
    its end (numpy drops it) or with lone surrogates (not UTF-8).
    """
    kinds: set[type] = set()
    exact = True
    for value in values:
        kinds.add(type(value))
        if type(value) is str:
            exact = exact and "\0" not in value and not re.search("[\ud800-\udfff]", value)
        elif type(value) is int:
            exact = exact and -(2**63) <= value < 2**63
        elif type(value) not in (bool, float):
            advice = (
                "data.with_labels([None if x is None else str(x) for x in data.labels])"
                if what == "label"
                else "ids=[str(x) for x in data.ids]"
            )
            raise FewviewError(
                f"{what} {value!r} is a {type(value).__name__}; files hold numbers and text only, "
                f"convert first: {advice}"
            )
    if len(kinds) > 1 or not exact:
        return "json"
    return next(iter(kinds)).__name__ if kinds else "str"


def to_text(kind: str, value: Any) -> str:
    """Write one id or label as text that `from_text` reads."""
    if kind == "json" or kind == "bool":
        return json.dumps(value)
    return repr(value) if kind == "float" else str(value)


def from_text(kind: str, text: str) -> Hashable:
    """Undo `to_text`; ValueError where the text is not of that kind."""
    if kind == "str":
        return text
    if kind in ("json", "bool"):
        value = json.loads(text)
        if not isinstance(value, (bool, int, float, str)):
            raise ValueError(text)
        return value
    return int(text) if kind == "int" else float(text)


def to_array(kind: str, values: Sequence[Any]) -> NDArray[Any]:
    """Make an array of numbers or text; json values become texts."""
    if kind == "json":
        values = [json.dumps(value) for value in values]
    dtypes: dict[str, type] = {"int": np.int64, "float": np.float64, "bool": np.bool_}
    return np.array(values, dtype=dtypes.get(kind, np.str_))


_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def infer(texts: Iterable[str | None]) -> Callable[[str], Hashable]:
    """Read texts as integers where all are written like one, else as they are."""
    known = [text for text in texts if text is not None]
    if known and all(_INTEGER.fullmatch(text) for text in known):
        return int
    return str


def code_labels(data: MultiViewData) -> tuple[str, NDArray[np.int64], list[Any]]:
    """Number the labels of data for a file.

    Returns:
        kind: how they can be stored, see `kind_of`.
        codes: int64 [n_samples], positions in the classes, -1 where the label is unknown.
        classes: the different labels. Those of mixed kinds are told apart by what is written, so
            that 1, 1.0 and True stay what they are.

    Example:
        >>> from fewview.samples._data import MultiViewData
        >>> kind, codes, classes = code_labels(MultiViewData([[[1.0], [2.0]]], ["b", None]))
        >>> kind, codes.tolist(), classes
        ('str', [0, -1], ['b'])
    """
    labels = [] if data.labels is None else data.labels.tolist()
    kind = kind_of((label for label in labels if label is not None), "label")
    if kind != "json":
        return kind, data.codes, data.classes.tolist()
    texts = [None if label is None else json.dumps(label) for label in labels]
    unique = dict.fromkeys([None, *texts])
    place = {text: index - 1 for index, text in enumerate(unique)}
    codes = np.array([place[text] for text in texts], dtype=np.int64)
    return kind, codes, [json.loads(text) for text in unique if text is not None]
