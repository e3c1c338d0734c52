"""Ids and labels as plain values: how those that are numbers or text go into a file and come back.

Every format writes with these, so that a label is the same label whatever file it went through.
`Note` is what files of fewview add where a format cannot say it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError
from fewview.files._file_contents import Contents
from fewview.ground._words import MISSING, number_text

KINDS = ("int", "float", "bool", "str", "json")
# What a text that is of another kind than expected makes `from_text` raise.
UNFIT = (ValueError, TypeError, RecursionError)
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_WHOLE = re.compile(r"(0|-?[1-9][0-9]{0,14})\.0+")


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


def label_kind(labels: Iterable[Any]) -> str:
    """Say how labels can be stored, see `kind_of`; unknown ones do not count."""
    return kind_of((label for label in labels if label is not None), "label")


def to_text(kind: str, value: Any) -> str:
    """Write one id or label as text that `from_text` reads."""
    if kind == "json" or kind == "bool":
        return json.dumps(value)
    return repr(value) if kind == "float" else str(value)


def from_text(kind: str, text: str) -> Hashable:
    """Undo `to_text`; one of `UNFIT` where the text is not of that kind."""
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


def infer(texts: Iterable[str | None]) -> Callable[[str], Hashable]:
    """Read texts as integers where all are written like one, else as they are."""
    known = [text for text in texts if text is not None]
    if known and all(_INTEGER.fullmatch(text) for text in known):
        return int
    return str


def whole_text(value: object) -> str:
    """A value as text, in which 3.0 is written 3.

    Example:
        >>> whole_text("3.0"), whole_text(3.0), whole_text("v3.0")
        ('3', '3', 'v3.0')
    """
    text = number_text(value) if isinstance(value, float) else str(value)
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else text


def whole_numbers(values: Sequence[Any]) -> NDArray[np.int64] | None:
    """Integers and floats that are whole, as the integers that they are; None for anything else.

    A column of integers in which a frame had a gap is one of floats, whatever was done about it.

    Example:
        >>> whole_numbers([3.0, 4]).tolist(), whole_numbers([3.0, 4.5])
        ([3, 4], None)
    """
    kinds = {*map(type, values)}
    if not kinds or not kinds <= {int, float}:
        return None
    if float in kinds and not all(type(v) is int or v.is_integer() for v in values):
        return None
    try:
        return np.array([int(value) for value in values], dtype=np.int64)
    except OverflowError:
        return None


def as_labels(values: Iterable[Any]) -> list[Any]:
    """Understand labels of a foreign table: without spaces around, None where there is none.

    Whole numbers are integers, however they are written: a column of numbers in which some cells
    are empty is one of 3.0, not of 3, to most programs.

    Example:
        >>> as_labels(["3.0", "", " 4"]), as_labels(["1.5", "2.0"]), as_labels(["gout ", "?"])
        ([3, None, 4], ['1.5', '2.0'], ['gout', None])
    """
    texts = [value.strip() if isinstance(value, str) else value for value in values]
    known = [None if value in MISSING or value != value else value for value in texts]
    found = [value for value in known if value is not None]
    if found and all(type(value) is float and value.is_integer() for value in found):
        return [None if value is None else int(value) for value in known]
    if not all(isinstance(value, str) for value in found):
        return known
    whole = [value and whole_text(value) for value in known]
    as_text = infer(whole)
    return [x if x is None else as_text(x) for x in (known if as_text is str else whole)]


def code_labels(labels: Sequence[Any]) -> tuple[str, NDArray[np.int64], list[Any] | None]:
    """Number labels for a file.

    Returns:
        kind: how they can be stored, see `kind_of`.
        codes: int64, positions in the classes, -1 where the label is unknown; the labels
            themselves where all are known integers.
        classes: the different labels, in order; None where the codes say it all. Those of mixed
            kinds are told apart by what is written, so that 1, 1.0 and True stay what they are.
    """
    kind = label_kind(labels)
    if kind == "int" and None not in labels:
        return kind, np.array(labels, dtype=np.int64), None
    written = [None if x is None else json.dumps(x) for x in labels] if kind == "json" else labels
    known = dict.fromkeys(label for label in written if label is not None)
    classes = list(known) if kind == "json" else sorted(known)
    place = {label: index for index, label in enumerate(classes)} | {None: -1}
    codes = np.array([place[label] for label in written], dtype=np.int64)
    return kind, codes, [json.loads(text) for text in classes] if kind == "json" else classes


@dataclass(frozen=True)
class Note:
    """What fewview notes in a file beside the data: views in order, kinds of ids and labels.

    Every view has a `name`, its `dtype` and its `columns`; ids are of kind "none" where samples
    have no names.
    """

    views: dict[str, dict[str, Any]] = field(default_factory=dict)
    ids: str | None = None
    labels: str | None = None

    @classmethod
    def of(cls, contents: Contents) -> Note:
        """Note what is to be written."""
        columns = {view: list(names) for view, names in contents.columns.items()}
        views = {
            view: {"name": view, "dtype": block.dtype.name, "columns": columns.get(view)}
            for view, block in contents.views.items()
        }
        ids = "none" if contents.ids is None else kind_of(contents.ids, "id")
        return cls(views, ids, None if contents.labels is None else label_kind(contents.labels))

    def write(self, indent: int | None = None) -> str:
        """Write the note as JSON."""
        content = {"version": 1, "views": [*self.views.values()], "ids": self.ids}
        return json.dumps({**content, "labels": self.labels}, indent=indent)

    @classmethod
    def read(cls, text: str, called: str, advice: str) -> Note:
        """Understand what `write` wrote, or say that `called` is damaged and what to do."""
        try:
            content = json.loads(text)
            views = {view["name"]: dict(view) for view in content["views"]}
            note = cls(views, content["ids"], content["labels"])
            valid = (
                content["version"] == 1
                and note.ids in (*KINDS, "none")
                and note.labels in (*KINDS, None)
                and are_texts(list(views))
                and all(view.get("dtype", "float32").startswith("float") for view in views.values())
                and all(are_texts(view["columns"] or []) for view in views.values())
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            valid = False
        if not valid:
            raise FewviewError(f"{called} is damaged or from another version of fewview; {advice}")
        return note


def are_texts(values: Any) -> bool:
    """Say whether this is a list of texts."""
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
