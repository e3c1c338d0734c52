"""What a table's columns are, and words as numbers: learnt once, then the same for every table.

A `Column` says whether a column holds numbers, categories, truth values, dates or sentences, and
which categories there are. It is learnt from one table (the base set) and travels with it, so that
a table that comes later, of one row even, gets the same numbers in the same places.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.ground._errors import FewviewError, FewviewWarning, shorten
from fewview.ground._words import Texts, number_text
from fewview.samples._labels import in_order

KINDS = ("number", "category", "boolean", "date", "words")
# Texts of more different values than this are taken for sentences or names.
MOST_CATEGORIES = 40
# Numbers that sentences become: shares of their pieces of three and four letters, by hash.
WORD_WIDTH = 128
# A column with a word in it whose other cells are so many different numbers holds a mistake.
MOST_CODES = 10
# Numbers as some people write them; read as words, they would lose their order.
_PLAIN = r"[+-]?\d+([.,]\d+)?"
ODD_NUMBER = re.compile(
    r"[+-]?(\d+,\d+|\d{1,3}([,_' ]\d{3})+(\.\d+)?|\d+(_\d+)+)"
    rf"|[$€£] ?{_PLAIN}|{_PLAIN} ?[%$€£]"
)
# Signs that stand for an empty cell among numbers.
DASHES = frozenset({"-", "--", "\N{EN DASH}", "\N{EM DASH}", ".", "*"})
# Dates as day.month.year, which no one writes in another order.
DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
# Dates as 31/5/2024 or 5/31/2024, perhaps with a time: which it is, the whole column tells.
SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})((?:[ T].+)?)")
DAY_FIRST, MONTH_FIRST = ("day first",), ("month first",)
TRUTHS = (("no", "yes"), ("false", "true"), ("n", "y"))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Block = NDArray[Any]


@dataclass(frozen=True)
class Column:
    """One column of a table, as it was learnt.

    Attributes:
        name: as in the table.
        kind: one of `KINDS`.
        levels: the categories; for truth values the words for false and true.

    Example:
        >>> Column("leaf", "category", ("dry", "wet")).names
        ('leaf=dry', 'leaf=wet')
    """

    name: str
    kind: str = "number"
    levels: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        return {"category": len(self.levels), "words": WORD_WIDTH}.get(self.kind, 1)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of those numbers."""
        if self.kind == "category":
            return tuple(f"{self.name}={level}" for level in self.levels)
        if self.kind == "words":
            return tuple(f"{self.name}~{piece}" for piece in range(WORD_WIDTH))
        return (self.name,)


Columns = tuple[Column, ...]


def expanded(columns: Iterable[Column]) -> tuple[str, ...]:
    """Names of all numbers that columns become."""
    return tuple(chain.from_iterable(column.names for column in columns))


def narrowed(block: Block) -> Block:
    """The same numbers in float32, where that changes none of them."""
    with np.errstate(over="ignore"):
        narrow = block.astype(np.float32)
    return narrow if np.array_equal(narrow, block, equal_nan=True) else block


def plain_columns(names: Iterable[str]) -> Columns:
    """Columns that are all numbers."""
    return tuple(Column(name) for name in names)


def learn_column(name: str, texts: Texts) -> Column:
    """Learn what a column of texts is."""
    levels = in_order({text for text in texts if text is not None})
    lower = {level.lower() for level in levels}
    for pair in TRUTHS:
        if lower and lower <= set(pair):
            return Column(name, "boolean", pair)
    for order in ((), DAY_FIRST, MONTH_FIRST):
        if levels and all(_days(level, order) is not None for level in levels):
            return Column(name, "date", order)
    if len(levels) > MOST_CATEGORIES:
        return Column(name, "words")
    return Column(name, "category", tuple(levels))


def merge_columns(parts: Sequence[Columns]) -> Columns:
    """Columns that can hold what all parts hold; the first part says which there are."""
    merged = []
    for column in parts[0]:
        alike = [c for part in parts for c in part if c.name == column.name]
        if any(c != column for c in alike):
            kinds = {c.kind for c in alike}
            if kinds == {"date"}:
                pass  # their texts are in one order by now
            elif "words" in kinds:
                column = Column(column.name, "words")
            else:
                levels = in_order({level for c in alike for level in c.levels})
                column = Column(column.name, "category", tuple(levels))
        merged.append(column)
    return tuple(merged)


# ------------------------------------------------------------------ tables that are to be read


@dataclass(frozen=True)
class RawView:
    """A view before its words are numbers: cells by column, and how messages call a row."""

    view: str
    block: Block
    names: Sequence[str]
    texts: Mapping[int, Texts]
    row: Any = "row {}".format
    what: str = ""  # how messages call the samples

    def encode(self, known: Columns | None) -> tuple[Block, Columns]:
        """Make numbers of words, as learnt or as `known` says.

        What does not fit is told once, with counts: columns that are new or not there, categories
        that are not known.
        """
        if known is None:
            words = {k: texts for k, texts in self.texts.items() if not self._only_dashes(k)}
            self = replace(self, texts=words)
            known = tuple(
                learn_column(name, self.texts[index]) if index in self.texts else Column(name)
                for index, name in enumerate(self.names)
            )
            self._refuse_mistakes(known)
        told = Differences(self.view, what=self.what)
        place = {name: index for index, name in enumerate(self.names)}
        told.columns([column.name for column in known], self.names)
        blocks = []
        for column in known:
            index = place.get(column.name)
            if index is None:
                blocks.append(np.full((len(self.block), column.width), np.nan))
                continue
            texts = self.texts.get(index)
            if texts is None and column.kind == "number":
                blocks.append(self.block[:, [index]])
            elif texts is None:
                blocks.append(encode_numbers(column, self.block[:, index], told))
            else:
                blocks.append(encode_texts(column, texts, told))
        told.warn()
        return narrowed(np.concatenate(blocks, axis=1)), known

    def _only_dashes(self, index: int) -> bool:
        """Whether a column has numbers, and signs for empty cells in place of words."""
        empty = np.isnan(self.block[:, index])
        words = {self.texts[index][row] for row in np.flatnonzero(empty).tolist()}
        words -= {None}
        return bool(words) and words <= DASHES and not empty.all()

    def _refuse_mistakes(self, columns: Columns) -> None:
        """Say where a word stands among many different numbers, or a number looks like a word."""
        for index, texts in self.texts.items():
            numbers = self.block[:, index]
            numbers = numbers[~np.isnan(numbers)]
            words = [
                row
                for row, text in enumerate(texts)
                if text is not None and np.isnan(self.block[row, index])
            ]
            where = f"view {self.view!r}: column {self.names[index]!r}, {self.row(words[0])} holds "
            if all(ODD_NUMBER.fullmatch(texts[row] or "") for row in words):
                raise FewviewError(
                    f"{where}{texts[words[0]]!r}; write numbers with a point, such as 1000.5, and "
                    "no other signs"
                )
            if columns[index].levels == DAY_FIRST and _days_either_way(texts):
                raise FewviewError(
                    f"{where}{texts[words[0]]!r}, and no date of the column tells whether days or "
                    "months come first; write dates such as 2024-05-31"
                )
            if len(numbers) < len(words) or columns[index].kind == "date":
                continue
            if np.unique(numbers).size > MOST_CODES:
                raise FewviewError(
                    f"{where}{texts[words[0]]!r}, and most other cells hold numbers; correct it, "
                    "leave the cell empty where it is unknown, or take the column out"
                )
            warnings.warn(
                f"{where}{texts[words[0]]!r} among numbers; they are taken for categories",
                FewviewWarning,
                stacklevel=2,
            )


@dataclass
class Differences:
    """What of a table does not fit what was learnt, counted."""

    view: str
    new: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    unknown: dict[str, Counter[str]] = field(default_factory=dict)
    what: str = ""

    @property
    def title(self) -> str:
        """How messages call the view."""
        return f"{self.what}: view {self.view!r}" if self.what else f"view {self.view!r}"

    def columns(self, known: Sequence[str], found: Sequence[str]) -> None:
        """Compare names; none in common is an error."""
        names, there = set(known), set(found)
        self.new = [name for name in found if name not in names]
        self.gone = [name for name in known if name not in there]
        if len(self.gone) == len(known):
            raise FewviewError(
                f"view {self.view!r}: {self.what or 'this table'} has none of the columns that "
                f"were learnt ({shorten(map(repr, known), 3)}), but {shorten(map(repr, found), 3)};"
                " check that it is the same view"
            )

    def level(self, column: str, text: str, count: int = 1) -> None:
        """Count a category that is not known."""
        self.unknown.setdefault(column, Counter())[text] += count

    def warn(self) -> None:
        """Tell all of it in one warning."""
        parts = []
        if self.gone:
            parts.append(
                f"{_many(len(self.gone), 'learnt column is', 'learnt columns are')} not there, "
                f"taken for empty ({shorten(map(repr, self.gone), 3)})"
            )
        if self.new:
            parts.append(
                f"{_many(len(self.new), 'column is new and', 'columns are new and')} left out "
                f"({shorten(map(repr, self.new), 3)})"
            )
        if self.unknown:
            cells = sum(counts.total() for counts in self.unknown.values())
            listed = [
                f"{column}: {text!r} {count} times" if count > 1 else f"{column}: {text!r}"
                for column, counts in self.unknown.items()
                for text, count in counts.items()
            ]
            parts.append(
                f"{_many(cells, 'cell holds a category', 'cells hold categories')} that nothing "
                f"was learnt about ({shorten(listed, 3)}), counted as none of the known ones"
            )
        if parts:
            warnings.warn(f"{self.title}: {'; '.join(parts)}", FewviewWarning, stacklevel=2)


def _many(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def encode_texts(column: Column, texts: Texts, told: Differences) -> Block:
    """Turn texts into the numbers of a column, [rows, width]; NaN where a cell is empty."""
    different = list(dict.fromkeys(text for text in texts if text is not None))
    rows = np.full((len(different) + 1, column.width), np.nan)  # the last for empty cells
    if different:
        rows[:-1] = _codes(column, different, told)
    place = {text: index for index, text in enumerate(different)} | {None: len(different)}
    index = np.array([place[text] for text in texts], dtype=np.int64)
    if column.kind in ("category", "boolean"):
        for text, count in Counter(text for text in texts if text is not None).items():
            if not np.nansum(rows[place[text]]) and not _known(column, text):
                told.level(column.name, text, count)
    out: Block = rows[index]
    return out


def encode_numbers(column: Column, values: NDArray[Any], told: Differences) -> Block:
    """The same for numbers, where the column is none: codes such as 1, 2, 3 for categories."""
    texts = [None if np.isnan(value) else number_text(float(value)) for value in values]
    levels = {}
    for level in column.levels:
        try:
            levels[number_text(float(level))] = level  # "01" and "1.0" are what 1 may stand for
        except ValueError:
            continue
    return encode_texts(column, [levels.get(t, t) if t is not None else t for t in texts], told)


def _known(column: Column, text: str) -> bool:
    return (text.lower() if column.kind == "boolean" else text) in column.levels


def _codes(column: Column, texts: list[str], told: Differences) -> Block:
    """The numbers of different texts; a category that is not known is none of the known ones."""
    if column.kind == "category":
        place = {level: index for index, level in enumerate(column.levels)}
        out = np.zeros((len(texts), column.width))
        for row, text in enumerate(texts):
            if text in place:
                out[row, place[text]] = 1.0
        return out
    if column.kind == "words":
        from sklearn.feature_extraction.text import HashingVectorizer

        pieces = HashingVectorizer(
            analyzer="char_wb", ngram_range=(3, 4), n_features=WORD_WIDTH, alternate_sign=False
        )
        dense: Block = pieces.transform(texts).toarray().astype(np.float32)
        return dense
    out = np.full((len(texts), 1), np.nan)
    for row, text in enumerate(texts):
        if column.kind == "boolean":
            if _known(column, text):
                out[row] = column.levels.index(text.lower())
            continue
        value = _days(text, column.levels) if column.kind == "date" else _number(text)
        if value is None and text in DASHES:
            continue
        if value is None:
            wanted = "dates such as 2024-05-31" if column.kind == "date" else "numbers"
            raise FewviewError(
                f"{told.title}: column {column.name!r} holds {text!r}; it was learnt with "
                f"{wanted}, so correct the cell or leave it empty"
            )
        out[row] = value
    return out


def _number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _days_either_way(texts: Texts) -> bool:
    """Whether dates with slashes can be read with the day first and with the month first."""
    return all(text is None or _days(text, MONTH_FIRST) is not None for text in texts)


def _days(text: str, order: tuple[str, ...] = ()) -> float | None:
    """Days since 1970 of a date or time in the form 2024-05-31T12:00, or a date as 31.5.2024.

    Where an order is given also as 31/5/2024 or 5/31/2024.
    """
    if dotted := DOTTED.fullmatch(text):
        day, month, year = dotted.groups()
        text = f"{year}-{month:0>2}-{day:0>2}"
    elif order and (slashed := SLASHED.fullmatch(text)):
        day, month, year, time = slashed.groups()
        day, month = (day, month) if order == DAY_FIRST else (month, day)
        text = f"{year}-{month:0>2}-{day:0>2}{time}"
    if len(text) < 10 or not text[:4].isdigit() or text[4] != "-":
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - EPOCH).total_seconds() / 86400


# ------------------------------------------------------------------ numbers that were words


def recode(
    view: str, block: Block, mine: Columns, known: Columns, what: str
) -> tuple[Block, tuple[str, ...]]:
    """Bring numbers that were made by some columns into the form of others, by name.

    Returns:
        block: [rows, width of `known`], NaN where a column is not there.
        names: of the numbers.
    """
    told = Differences(view, what=what)
    told.columns([column.name for column in known], [column.name for column in mine])
    starts = np.cumsum([0, *(column.width for column in mine)])
    place = {column.name: k for k, column in enumerate(mine)}
    blocks: list[Block] = []
    for column in known:
        index = place.get(column.name)
        if index is None:
            blocks.append(np.full((len(block), column.width), np.nan, dtype=block.dtype))
            continue
        own, part = mine[index], block[:, starts[index] : starts[index + 1]]
        if own == column:
            blocks.append(part)
        elif own.kind == "number":
            blocks.append(encode_numbers(column, part[:, 0], told))
        else:
            blocks.append(encode_texts(column, _texts(view, own, part), told))
    told.warn()
    out = np.concatenate(blocks, axis=1) if blocks else block[:, :0]
    return out.astype(block.dtype), expanded(known)


def _texts(view: str, column: Column, part: Block) -> Texts:
    """The texts that numbers were made of."""
    if column.kind == "words":
        raise FewviewError(
            f"view {view!r}: column {column.name!r} holds more than {MOST_CATEGORIES} different "
            "texts here and was learnt otherwise; read this table with like= the base set"
        )
    empty: NDArray[np.bool_] = np.asarray(np.isnan(part).any(axis=1))
    if column.kind == "date":
        days = [None if gone else float(x) for gone, x in zip(empty, part[:, 0], strict=True)]
        return [
            None if x is None else datetime.fromtimestamp(x * 86400, tz=UTC).isoformat()
            for x in days
        ]
    codes = np.nan_to_num(part[:, 0]).astype(int)
    if column.kind == "category":
        codes = part.argmax(axis=1)
    # A category that was not known is none of them, and cannot be named any more.
    lost: NDArray[np.bool_] = empty | (~part.astype(bool).any(axis=1) & (column.kind == "category"))
    return [None if gone else column.levels[k] for gone, k in zip(lost, codes, strict=True)]
