"""Looking at samples before using them: how large, how many classes, which views are missing where.

`summarise` counts once; the `Summary` it returns prints itself as text, as HTML for notebooks and
as a picture of the combinations of views that occur. matplotlib is imported only to draw.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from fewview.ground._markup import framed, histogram, markup_table, share_bar
from fewview.samples._profile import Profile, profile

if TYPE_CHECKING:
    from fewview.samples._data import MultiViewData

MAX_PATTERNS = 20
TEXT_PATTERNS = 10
_HEAD = ["view", "width", "present", "missing", "min", "max"]

# Blue of the palette of Okabe and Ito, made for all kinds of colour vision; presence is also
# shown by filled against hollow marks, so that no colour is needed to read the picture.
PRESENT = "#0072B2"
ABSENT = "#999999"


@dataclass(frozen=True)
class ViewSummary:
    """One line of the table of views; `minimum` and `maximum` are NaN where no sample has it."""

    name: str
    width: int
    present: int
    missing_rate: float
    minimum: float
    maximum: float
    columns: str = ""  # what they hold, for instance "10 categories, 1 number"


@dataclass(frozen=True)
class Summary:
    """What a `MultiViewData` holds, in numbers.

    Args:
        name: what the data are called, if anything.
        n_samples: number of samples.
        views: one entry per view.
        n_classes: number of different labels.
        smallest_class: samples of the class with fewest, 0 without labels.
        largest_class: samples of the class with most, 0 without labels.
        unlabelled: samples without a label.
        missing_rate: share of missing (sample, view) cells.
        patterns: which views a sample has, and how many samples have just these; most first.
        n_complete: samples that have every view.
        empty_cells: cells without a value in views that are there.
        worded: whether some columns were words, and numbers are what they became.
        profile: distributions, and missing views by class.
    """

    name: str | None
    n_samples: int
    views: tuple[ViewSummary, ...]
    n_classes: int
    smallest_class: int
    largest_class: int
    unlabelled: int
    missing_rate: float
    patterns: tuple[tuple[tuple[bool, ...], int], ...]
    n_complete: int
    empty_cells: int = 0
    worded: bool = False
    profile: Profile | None = None

    @property
    def frequencies(self) -> tuple[float, ...]:
        """Share of samples with each of `patterns`."""
        return tuple(count / self.n_samples for _, count in self.patterns)

    @property
    def headline(self) -> str:
        """The most important numbers in one line."""
        labels = "no labels"
        if self.n_classes:
            ends = dict.fromkeys((self.smallest_class, self.largest_class))
            labels = (
                f"{_count(self.n_classes, 'class', 'classes')} of {' to '.join(map(str, ends))}"
            )
            labels += f", {self.unlabelled} unlabelled" if self.unlabelled else ""
        return (
            f"{self._title}, {_count(len(self.views), 'view')}, {labels}, "
            f"{_percent(self.missing_rate)} of views missing, {self.n_complete} complete"
            + (f", {_count(self.empty_cells, 'empty cell')}" if self.empty_cells else "")
        )

    def __str__(self) -> str:
        lines = [_printable(self.headline), "", *_aligned(self._view_rows, 1)]
        if self.patterns:
            lines += ["", *_aligned(self._pattern_rows("x", "-")), *self._rest_lines]
        return "\n".join(lines)

    def to_html(self) -> str:
        """Write the summary as HTML that needs nothing else and suits light and dark pages."""
        title = f"<p><strong>MultiViewData</strong>: {escape(_printable(self.headline))}</p>"
        return framed(title + self.markup())

    def markup(self) -> str:
        """The tables alone, for a page that has the headline and the style."""
        head, *cells = self._view_rows
        lines = [[escape(_printable(cell)) for cell in row] for row in cells]
        known = self.profile
        if known is not None:
            head = [*head, "values"]
            for line, counts, view in zip(lines, known.values, self.views, strict=True):
                words = f"values of {view.name} from {view.minimum:.4g} to {view.maximum:.4g}"
                line.append(histogram(counts, words) if counts else "")
        out = markup_table("Views", head, lines, scroll=True)
        if known is not None and known.classes:
            out += self._class_table(known)
        if self.patterns:
            has = '<span role="img" aria-label="present">&#9679;</span>'
            lacks = '<span role="img" aria-label="missing">&#9675;</span>'
            head, *rows = self._pattern_rows(has, lacks)
            for row, share in zip(rows, self.frequencies, strict=False):
                row[1] = share_bar(share, row[1])
            out += markup_table(
                "Which views samples have", head, rows, row_heads=False, scroll=True
            )
        out += "".join(f"<p>{escape(line)}</p>" for line in self._rest_lines)
        if known is not None:
            out += "".join(_column_details(known, k, view) for k, view in enumerate(self.views))
        return out

    def _class_table(self, known: Profile) -> str:
        """Which views the samples of every class lack."""
        rows = [
            [
                escape(_printable(name)),
                str(count),
                *(share_bar(m, _percent(m), "others") for m in missing),
            ]
            for name, count, missing in known.classes
        ]
        shown, total = len(known.classes), known.n_classes
        caption = "Missing views by class"
        caption += f": the largest {shown} of {total} classes" if shown < total else ""
        head = ["class", "samples", *(_printable(view.name) for view in self.views)]
        return markup_table(caption, head, rows, scroll=True)

    def _repr_html_(self) -> str:
        return self.to_html()

    def plot(self, ax: Any = None) -> Any:
        """Draw which combinations of views occur (dots below) and how often (bars above).

        Args:
            ax: matplotlib axes to draw in. Without it a new figure is made, independent of pyplot;
                `ax.figure.savefig(...)` writes it.
        """
        from matplotlib.ticker import MaxNLocator

        shown = self.patterns[:MAX_PATTERNS]
        rest, n_rest = self._rest(MAX_PATTERNS), len(self.patterns) - len(shown)
        n_bars, n_views = len(shown) + bool(rest), len(self.views)
        if ax is None:
            from matplotlib.figure import Figure

            size = (max(4.5, 2.0 + 0.4 * n_bars), 2.8 + 0.28 * n_views)
            ax = Figure(figsize=size, layout="constrained").add_subplot()
        places = np.arange(len(shown))
        highest = max([1, rest, *(count for _, count in shown)])
        bars = [ax.bar(places, [count for _, count in shown], width=0.6, color=PRESENT)]
        if rest:
            bars.append(
                ax.bar([len(shown)], [rest], width=0.6, fill=False, edgecolor=ABSENT, hatch="///")
            )
        for group in bars:
            ax.bar_label(group, fmt="{:,.0f}", fontsize="small", padding=1)

        # The dots share the axes with the bars, below zero, so that the picture fits wherever axes
        # fit. One line of dots is as high as 14 % of the highest bar, 0.28 inch in our own figure.
        step = 0.14 * highest
        lines = -step * (np.arange(n_views) + 0.75)
        for place, (pattern, _) in zip(places, shown, strict=True):
            has = np.array(pattern, dtype=bool)
            at = np.full(n_views, place)
            ax.plot(at[~has], lines[~has], "o", markersize=6, mfc="none", mec=ABSENT)
            ax.plot(at[has], lines[has], "-o", markersize=6, color=PRESENT, linewidth=1.5)
        if rest:
            text = f"{n_rest} others"
            ax.text(len(shown), lines[0] + step / 4, text, rotation=90, ha="center", va="top")
        ticks = [t for t in MaxNLocator(4, integer=True).tick_values(0, highest) if t <= highest]
        names = [_plain_text(view.name) for view in self.views]
        ax.set_yticks([*ticks, *lines], [*(f"{tick:,.0f}" for tick in ticks), *names])
        for tick in ax.yaxis.get_major_ticks()[len(ticks) :]:
            tick.tick1line.set_visible(False)
        ax.set_ylim(lines[-1] - 0.6 * step, 1.12 * highest)
        ax.set_xlim(-0.6, max(n_bars, 1) - 0.4)
        ax.set_xticks([])
        ax.set_xlabel("combinations of views (filled: present)")
        ax.set_ylabel("samples", loc="top")
        ax.set_title(_plain_text(self._title), loc="left", fontsize="medium")
        ax.axhline(0, color="black", linewidth=0.8)
        ax.spines[["top", "right", "bottom"]].set_visible(False)
        ax.spines["left"].set_bounds(0, highest)
        return ax

    @property
    def _view_rows(self) -> list[list[str]]:
        """The table of views with its head; what columns hold is told where some are words."""
        more = ["columns"] if self.worded else []
        return [[*_HEAD, *more]] + [
            [*_cells(view), *([view.columns] if self.worded else [])] for view in self.views
        ]

    @property
    def _title(self) -> str:
        return _count(self.n_samples, "sample") + (f" ({self.name})" if self.name else "")

    def _pattern_rows(self, present: str, absent: str) -> list[list[str]]:
        """The most frequent combinations of views as a table, with its head."""
        rows = [["samples", "share", *(_printable(view.name) for view in self.views)]]
        for (pattern, count), share in zip(self.patterns, self.frequencies, strict=True):
            marks = (present if has else absent for has in pattern)
            rows.append([str(count), _percent(share), *marks])
        return rows[: TEXT_PATTERNS + 1]

    def _rest(self, limit: int) -> int:
        return sum(count for _, count in self.patterns[limit:])

    @property
    def _rest_lines(self) -> list[str]:
        """One line about the combinations that are not shown, if any."""
        rest = self._rest(TEXT_PATTERNS)
        others = _count(len(self.patterns) - TEXT_PATTERNS, "other combination")
        return [f"and {others} in {_count(rest, 'sample')}"] if rest else []


def summarise(data: MultiViewData) -> Summary:
    """Count samples, views, classes and combinations of views."""
    views = []
    for index, (name, block) in enumerate(data.views.items()):
        rows = block[data.mask[:, index]]
        views.append(
            ViewSummary(
                name=name,
                width=int(block.shape[1]),
                present=len(rows),
                missing_rate=1.0 - len(rows) / len(data) if len(data) else 0.0,
                minimum=float(np.nanmin(rows)) if len(rows) else math.nan,
                maximum=float(np.nanmax(rows)) if len(rows) else math.nan,
                columns=_columns(data, name, rows),
            )
        )
    codes = data.codes
    sizes = np.bincount(codes[codes >= 0], minlength=len(data.classes))
    kinds, counts = np.unique(data.mask, axis=0, return_counts=True)
    patterns = [
        (tuple(bool(has) for has in kind), int(count))
        for kind, count in zip(kinds, counts, strict=True)
    ]
    # Ties: more views first, then earlier views first, so that the order is always the same.
    patterns.sort(key=lambda item: (-item[1], -sum(item[0]), [not has for has in item[0]]))
    return Summary(
        name=data.name,
        n_samples=len(data),
        views=tuple(views),
        n_classes=len(data.classes),
        smallest_class=int(sizes.min()) if len(sizes) else 0,
        largest_class=int(sizes.max()) if len(sizes) else 0,
        unlabelled=int((codes < 0).sum()),
        missing_rate=data.missing_rate,
        patterns=tuple(patterns),
        n_complete=int(data.mask.all(axis=1).sum()),
        empty_cells=data.empty_cells,
        worded=bool(data.kinds),
        profile=profile(data),
    )


def _columns(data: MultiViewData, view: str, rows: Any) -> str:
    """Say what the columns of a view hold; whole numbers from zero on are counts."""
    if view not in data.kinds:
        whole = np.isnan(rows) | ((rows >= 0) & (rows == np.round(rows)))
        counts = int((whole.all(axis=0) & (rows > 1).any(axis=0)).sum()) if len(rows) else 0
        kinds = {"count": counts, "number": rows.shape[1] - counts}
    else:
        kinds = Counter(column.kind for column in data.kinds[view])
    names = {"category": "categorical", "words": "text", "boolean": "yes/no"}
    return ", ".join(
        f"{count} {names.get(kind, kind if count == 1 else kind + 's')}"
        for kind, count in kinds.items()
        if count
    )


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _cells(view: ViewSummary) -> list[str]:
    ends = ["-" if math.isnan(end) else f"{end:.4g}" for end in (view.minimum, view.maximum)]
    return [view.name, str(view.width), str(view.present), _percent(view.missing_rate), *ends]


def _printable(text: str) -> str:
    """Show line breaks and other signs that would upset a table as escapes."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def _plain_text(text: str) -> str:
    """Keep matplotlib from reading dollar signs as mathematics."""
    return _printable(text).replace("$", r"\$")


def _aligned(rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Align columns, the first `left` of them to the left, the others to the right."""
    cells = [[_printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _column_details(known: Profile, place: int, view: ViewSummary) -> str:
    """The first columns of a view, opened by a press."""
    columns, total = known.columns[place], known.n_columns[place]
    rows = []
    for column in columns:
        numbers = (column.mean, column.deviation, column.minimum, column.maximum)
        words = f"{column.name}: values of {_count(known.n_rows, 'row')}"
        rows.append([
            escape(_printable(column.name)),
            escape(column.kind),
            _percent(column.empty),
            *("" if math.isnan(number) else f"{number:.4g}" for number in numbers),
            histogram(column.counts, words) if column.counts else "",
            escape(_printable(column.common)),
        ])  # fmt: skip
    rest = f", the first {len(columns)} of {total}" if len(columns) < total else ""
    heads = [
        "column",
        "kind",
        "empty",
        "mean",
        "deviation",
        "min",
        "max",
        "values",
        "most frequent",
    ]
    name = _printable(view.name)
    if not any(column.common for column in columns):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    table = markup_table(f"Columns of {name}{rest}", heads, rows, scroll=True)
    return f"<details><summary>Columns of {escape(name)} ({total})</summary>{table}</details>"
