"""What a table's columns are, and words as numbers: learnt once, then the same for every table.

A `Column` says whether a column holds numbers, categories, truth values, dates or sentences, and
which categories there are. It is learnt from one table (the base set) and travels with it, so that
a table that comes later, of one row even, gets the same numbers in the same places.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError, FewviewWarning, shorten
from fewview.ground._words import Texts, as_number, number_text
from fewview.samples._labels import in_order

KINDS = ("number", "category", "boolean", "date", "words")
# Texts of more different values than this are taken for sentences or names.
MOST_CATEGORIES = 40
# Numbers that sentences become: shares of their pieces of three and four letters, by hash.
WORD_WIDTH = 128
# A column with a word in it whose other cells are so many different numbers holds a mistake.
MOST_CODES = 10
# Numbers as some people write them; read as words, they would lose their order.
ODD_NUMBER = re.compile(
    r"[+-]?(\d+,\d+|\d{1,3}([,_' ]\d{3})+(\.\d+)?|\d{1,3}(\.\d{3}){2,}|\d+(_\d+)+)"
)
# Numbers in a unit, such as 12 kg, 5%, 37.2 °C or $3: they are texts, and told.
IN_UNIT = re.compile(
    r"([$€£¥]?) ?[+\N{MINUS SIGN}-]?\d+(?:[.,]\d+)?(?:[eE][+-]?\d+)? ?"
    r"([^\s\d.,:;/_'+*±\N{EN DASH}-]\S{0,11})?"
)
# Cells of digits and signs alone that are no number, such as 3-5, 2 ± 1 or 12:30.
SIGNS = re.compile(r"[\d\W]*\d[\d\W]*")
# What stands for an empty cell among numbers, in small letters.
DASHES = frozenset({
    "-", "--", "\N{EN DASH}", "\N{EM DASH}", ".", "*", "none", "missing", "unknown", "n.a.", "nd",
    "n.d.", "not available",
})  # fmt: skip
# Numbers that some people write where they know none.
STANDINS = frozenset(float(sign + "9" * digits) for sign in ("", "-") for digits in range(2, 7))
# So many rows that are counted up are no coincidence.
FEWEST_COUNTED = 10
# Dates as day.month.year, which no one writes in another order.
DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
# Dates as 31 May 2024, 31-May-2024 or May 31, 2024, and as 2024/05/31.
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
NAMED = re.compile(
    r"(?:(?P<day>\d{1,2})\.?[ -])?(?P<month>[A-Za-z]{3,9})\.?[ -]"
    r"(?:(?P<other>\d{1,2}),? )?(?P<year>\d{4})"
)
YEAR_FIRST = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})")
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


# A kind of column, and its levels.
Reading = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class Said:
    """What the texts of a column tell; what several parts of it tell adds up.

    Attributes:
        texts: the different ones; of more than categories may have, one.
        many: whether there are more.
        readings: what else than categories or sentences the column may be, the likeliest first.
        units: of texts that are all numbers, "" for none; None where a text is no number.
        signs: whether all texts are digits and signs.

    Example:
        >>> Said.of(["2024-05-31"]).joined(Said.of(["29/12/2023"])).column("when").levels
        ('day first',)
    """

    texts: tuple[str, ...]
    many: bool
    readings: tuple[Reading, ...]
    units: frozenset[str] | None
    signs: bool

    @classmethod
    def of(cls, texts: Texts) -> Said:
        """Look at texts."""
        different = in_order({text for text in texts if text is not None})
        return cls(
            *_few(different),
            _readings(different),
            units=_units(different),
            signs=all(map(SIGNS.fullmatch, different)),
        )

    def joined(self, other: Said) -> Said:
        """What both tell: the column is what can be read from either."""
        texts, many = _few(in_order({*self.texts, *other.texts}))
        return Said(
            texts,
            self.many or other.many or many,
            tuple(reading for reading in self.readings if reading in other.readings),
            None if self.units is None or other.units is None else self.units | other.units,
            self.signs and other.signs,
        )

    def column(self, name: str) -> Column:
        """What a column is that has these texts and no others."""
        for kind, levels in self.readings:
            return Column(name, kind, levels)
        return Column(name, "words") if self.many else Column(name, "category", self.texts)

    @property
    def dashes(self) -> bool:
        """Whether all texts are signs for empty cells."""
        return not self.many and all(map(_is_dash, self.texts))

    def check(self, holds: str) -> None:
        """Refuse, or tell of, what no text by itself shows; `holds` begins the message."""
        if self.readings == (("date", DAY_FIRST), ("date", MONTH_FIRST)):
            raise FewviewError(
                f"{holds}, and no date of the column tells whether days or months come first; "
                "write dates such as 2024-05-31"
            )
        if self.readings:
            return
        if self.units is not None and (self.many or len(self.units - {""}) == 1):
            warnings.warn(
                f"{holds}, and all its cells are numbers in a unit; they are taken for texts, so "
                "leave the unit out if they are measurements",
                FewviewWarning,
                stacklevel=2,
            )
        elif self.many and self.signs:
            warnings.warn(
                f"{holds}, and all its cells are digits and signs; they are taken for texts, so "
                "write one number in a cell if they are measurements",
                FewviewWarning,
                stacklevel=2,
            )


def _few(texts: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """Texts, if they may be categories, else one of them; and whether there are more."""
    if len(texts) <= MOST_CATEGORIES:
        return tuple(texts), False
    return (_telling(texts),), True


def _telling(texts: Sequence[str]) -> str:
    """The text that messages show: a date whose days and months may be mistaken, or any."""
    return next(filter(SLASHED.fullmatch, texts), texts[0])


def _units(texts: Iterable[str]) -> frozenset[str] | None:
    """Units of texts that are all numbers, "" for none; None where a text is no number."""
    found = [IN_UNIT.fullmatch(text) for text in texts]
    if not all(found):
        return None
    return frozenset(f"{match[1]}{match[2] or ''}" for match in found if match)


def _readings(texts: Sequence[str]) -> tuple[Reading, ...]:
    """Truth values and dates, as which all texts can be read."""
    if not texts:
        return ()
    lower = {text.lower() for text in texts}
    if truths := tuple(("boolean", pair) for pair in TRUTHS if lower <= set(pair)):
        return truths
    orders: tuple[tuple[str, ...], ...] = ((), DAY_FIRST, MONTH_FIRST)
    if not _are_days(texts, ()):  # what needs no order can be read in any
        orders = tuple(order for order in orders[1:] if _are_days(texts, order))
    return tuple(("date", order) for order in orders)


def learn_column(name: str, texts: Texts) -> Column:
    """Learn what a column of texts is."""
    return Said.of(texts).column(name)


def merge_columns(parts: Sequence[Columns]) -> Columns:
    """Columns that can hold what all parts hold; the first part says which there are."""
    return tuple(
        _merged([c for part in parts for c in part if c.name == column.name]) for column in parts[0]
    )


def _merged(alike: Sequence[Column]) -> Column:
    """One column that can hold what several hold."""
    name, kinds = alike[0].name, {c.kind for c in alike}
    if all(c == alike[0] for c in alike):
        return alike[0]
    if kinds <= {"date", "number"}:  # texts are in one order by now; numbers may be empty
        # One with an order can read the dates of all.
        return max((c for c in alike if c.kind == "date"), key=lambda c: len(c.levels))
    if "words" in kinds:
        return Column(name, "words")
    levels = in_order({level for c in alike for level in c.levels})
    return Column(name, "category", tuple(levels))


# ------------------------------------------------------------------ tables in parts

# By view and column.
Told = dict[str, dict[str, Said]]
_looked_at: ContextVar[Told | None] = ContextVar("looked_at", default=None)


@contextmanager
def looking() -> Iterator[Told]:
    """Collect what the texts of tables tell that are read meanwhile.

    Such a table is a part of a longer one. What no part need tell by itself, such as whether days
    or months come first, is not refused here: `merge_seen` does that.
    """
    told: Told = {}
    token = _looked_at.set(told)
    try:
        yield told
    finally:
        _looked_at.reset(token)


@dataclass(frozen=True)
class Seen:
    """What the columns of one part of a table are.

    Attributes:
        columns: as learnt from the part alone.
        numbers: texts of different numbers in each column of numbers, as many as may be codes and
            one more; none where the column is empty.
        said: what the texts of the other columns tell.
    """

    columns: Columns
    numbers: Mapping[str, tuple[str, ...]]
    said: Mapping[str, Said]

    @classmethod
    def of(cls, block: Block, columns: Columns, said: Mapping[str, Said]) -> Seen:
        """Look at the numbers that columns became."""
        starts = np.cumsum([0, *(column.width for column in columns)])
        numbers = {}
        for column, start in zip(columns, starts.tolist(), strict=False):
            if column.kind == "number":
                different = np.unique(block[:, start])[: MOST_CODES + 1]  # NaN comes last
                known = different[~np.isnan(different)].tolist()
                numbers[column.name] = tuple(number_text(float(value)) for value in known)
        return cls(columns, numbers, said)

    @property
    def empty(self) -> set[str]:
        """Columns of which this part tells nothing."""
        return {name for name, found in self.numbers.items() if not found}

    @property
    def settled(self) -> bool:
        """Whether all columns hold numbers, so that words elsewhere are mistakes."""
        return not self.empty and len(self.numbers) == len(self.columns)

    def spelt(self, names: Sequence[str]) -> Seen:
        """The same with names of columns as another part has them."""
        mine = [column.name for column in self.columns]
        new = dict(zip(mine, respelt(mine, names), strict=True))
        return Seen(
            tuple(replace(column, name=new[column.name]) for column in self.columns),
            {new[name]: found for name, found in self.numbers.items()},
            {new[name]: one for name, one in self.said.items()},
        )

    def only(self, names: set[str]) -> Seen:
        """The same of some columns alone."""
        return Seen(
            tuple(column for column in self.columns if column.name in names),
            {name: found for name, found in self.numbers.items() if name in names},
            {name: one for name, one in self.said.items() if name in names},
        )


def merge_seen(view: str, parts: Sequence[Seen]) -> Columns:
    """What columns are by all parts of a table: what the whole would be.

    The first part says which there are, and which hold numbers.
    """
    names = [column.name for column in parts[0].columns]
    alike = [part.spelt(names) for part in parts]
    merged = []
    for name in names:
        said = [part.said[name] for part in alike if name in part.said]
        if parts[0].numbers.get(name) or not said:
            merged.append(Column(name))
            continue
        codes = {code for part in alike for code in part.numbers.get(name, ())}
        merged.append(_settled(view, name, functools.reduce(Said.joined, said), codes))
    return tuple(merged)


def _settled(view: str, name: str, said: Said, codes: set[str]) -> Column:
    """What a column is that has texts in some parts, and these different numbers in others."""
    if codes and said.dashes:
        return Column(name)
    where = f"view {view!r}: column {name!r} holds"
    said.check(f"{where} {_telling(said.texts)!r}")
    column = said.column(name)
    if not codes or column.kind not in ("category", "boolean"):
        return column
    if len(codes) > MOST_CODES:
        raise FewviewError(
            f"{where} numbers in some parts and words such as {said.texts[0]!r} in others; correct "
            "it, leave cells empty where they are unknown, or take the column out"
        )
    return said.joined(Said.of([*codes])).column(name)


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
            known = self._learn()
        else:
            self = replace(self, names=respelt(self.names, [column.name for column in known]))
        told = Differences(self.view, what=self.what, named=False)
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

    def _learn(self) -> Columns:
        """What columns are, by this table or, of a part that is looked at, for the time being."""
        said = {self.names[index]: Said.of(texts) for index, texts in self.texts.items()}
        parts = _looked_at.get()
        if parts is not None:
            parts[self.view] = said
        for index in self.texts:
            self._refuse_mistakes(index, said[self.names[index]], whole=parts is None)
        return tuple(
            said[name].column(name) if name in said else Column(name) for name in self.names
        )

    def _only_dashes(self, index: int) -> bool:
        """Whether a column has numbers, and signs for empty cells in place of words."""
        empty = np.isnan(self.block[:, index])
        words = {self.texts[index][row] for row in np.flatnonzero(empty).tolist()}
        words -= {None}
        return bool(words) and all(map(_is_dash, words)) and not empty.all()

    def checked(self) -> RawView:
        """Without what is no measurement; what may be none is told."""
        for index in range(len(self.names)):
            if index not in self.texts:
                self._tell_standins(index)
        counting = [k for k in range(len(self.names)) if k not in self.texts and self._counts(k)]
        gone = [
            k for k in counting if not self.names[k].strip("_ ") or "Unnamed: " in self.names[k]
        ]
        for index in counting:
            # In a table that is sorted by class the number of a row tells the class.
            end = " and is left out" if index in gone else "; take it out if it is no measurement"
            self._warn(index, f"counts the rows{end}")
        kept = [index for index in range(len(self.names)) if index not in gone]
        return replace(
            self, block=self.block[:, kept], names=[self.names[index] for index in kept],
            texts={kept.index(index): texts for index, texts in self.texts.items()},
        ) if gone and kept else self  # fmt: skip

    def _warn(self, index: int, text: str) -> None:
        named = f"view {self.view!r}: column {self.names[index]!r}"
        warnings.warn(f"{named} {text}", FewviewWarning, stacklevel=2)

    def _counts(self, index: int) -> bool:
        """Whether a column has the numbers of rows."""
        steps = np.diff(self.block[:, index])
        return len(steps) + 1 >= FEWEST_COUNTED and bool((steps == 1).all())

    def _tell_standins(self, index: int) -> None:
        """Tell of numbers such as -999 that lie far from all others of their column."""
        values = self.block[:, index]
        values = values[~np.isnan(values)]
        for odd in {values.min(), values.max()} & STANDINS if len(values) else ():
            others = values[values != odd]
            low, high = (others.min(), others.max()) if len(others) else (odd, odd)
            if min(abs(odd - low), abs(odd - high)) > 2 * (high - low):
                count = _many(len(values) - len(others), "cell", "cells")
                self._warn(index, f"holds {odd:g} in {count}, and the others lie between {low:g} "
                           f"and {high:g}; leave cells empty where nothing is known")  # fmt: skip

    def _refuse_mistakes(self, index: int, said: Said, whole: bool) -> None:
        """Say where a word stands among many different numbers, or a number looks like a word.

        What the whole column alone can tell is told where these are all its rows.
        """
        name, texts = self.names[index], self.texts[index]
        kind = said.column(name).kind
        numbers = self.block[:, index]
        numbers = numbers[~np.isnan(numbers)]
        words = [
            row
            for row, text in enumerate(texts)
            if text is not None and np.isnan(self.block[row, index])
        ]
        # What is no sign for an empty cell is told before what is one.
        words.sort(key=lambda row: _is_dash(texts[row]))
        where = f"view {self.view!r}: column {name!r}, {self.row(words[0])}"
        holds = f"{where} holds {texts[words[0]]!r}"
        if all(ODD_NUMBER.fullmatch(texts[row] or "") for row in words):
            raise FewviewError(
                f"{holds}; write numbers with a point, such as 1000.5, and no other signs"
            )
        if len(numbers) < len(words) or kind == "date":
            if whole:
                said.check(holds)
            return
        if np.unique(numbers).size > MOST_CODES:
            raise FewviewError(
                f"{holds}, and most other cells hold numbers; correct it, leave the cell empty "
                "where it is unknown, or take the column out"
            )
        warnings.warn(
            f"{holds} among numbers; they are taken for categories", FewviewWarning, stacklevel=2
        )


def respelt(found: Sequence[str], known: Sequence[str]) -> list[str]:
    """Names of columns as they were learnt, where only spaces or large letters differ.

    Example:
        >>> respelt(["OLEIC ", "x", "X"], ["oleic", "x"])
        ['oleic', 'x', 'X']
    """
    there = set(found)
    left = [name for name in known if name not in there]
    wanted = Counter(name.strip().casefold() for name in left)
    given = Counter(name.strip().casefold() for name in found)
    alike = {name.strip().casefold(): name for name in left}
    return [
        alike[bare] if wanted[bare] == given[bare] == 1 else name
        for name, bare in ((name, name.strip().casefold()) for name in found)
    ]


@dataclass
class Differences:
    """What of a table does not fit what was learnt, counted."""

    view: str
    new: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    unknown: dict[str, Counter[str]] = field(default_factory=dict)
    what: str = ""
    named: bool = True  # errors say what it is; not where files are read, which names them anyway

    @property
    def title(self) -> str:
        """How warnings call the view."""
        return f"{self.what}: view {self.view!r}" if self.what else f"view {self.view!r}"

    @property
    def place(self) -> str:
        """How errors call it."""
        return self.title if self.named else f"view {self.view!r}"

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
        if value is None and _is_dash(text):
            continue
        if value is None:
            wanted = "dates such as 2024-05-31" if column.kind == "date" else "numbers"
            raise FewviewError(
                f"{told.place}: column {column.name!r} holds {text!r}; it was learnt with "
                f"{wanted}, so correct the cell or leave it empty"
            )
        out[row] = value
    return out


def _number(text: str) -> float | None:
    try:
        return as_number(text)
    except ValueError:
        return None


def _is_dash(text: str | None) -> bool:
    return text is not None and text.casefold() in DASHES


def _are_days(texts: Iterable[str], order: tuple[str, ...]) -> bool:
    """Whether all texts are dates, if days and months come in this order."""
    return all(_days(text, order) is not None for text in texts)


def _days(text: str, order: tuple[str, ...] = ()) -> float | None:
    """Days since 1970 of a date or time in the form 2024-05-31T12:00, or a date as 31.5.2024.

    Also as 2024/05/31, 31 May 2024 or May 31, 2024; where an order is given as 31/5/2024 or
    5/31/2024.
    """
    if named := NAMED.fullmatch(text):
        day, other, short = named["day"], named["other"], named["month"][:3].lower()
        if (day is None) == (other is None) or short not in MONTHS:
            return None
        text = f"{named['year']}-{MONTHS.index(short) + 1:02d}-{day or other:0>2}"
    elif numbered := YEAR_FIRST.fullmatch(text):
        year, month, day = numbered.groups()
        text = f"{year}-{month:0>2}-{day:0>2}"
    elif dotted := DOTTED.fullmatch(text):
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
    names = respelt([column.name for column in mine], [column.name for column in known])
    mine = tuple(replace(column, name=name) for column, name in zip(mine, names, strict=True))
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
