"""Per-view scaling, fitted on base classes only.

Every scaling is an affine map of each feature, after a square root and followed by unit row length
where the name says so. `scale` is the rule of CPM-Nets: one mean and one range over all entries of
a view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.ground._checkers import check_word
from fewview.ground._errors import FewviewError, shorten
from fewview.samples._data import MultiViewData

BY_WIDTH, NATURAL = "by-width", "natural"
SCALINGS = (
    "scale", "minmax", "standard", "unit", "root+unit", "standard+unit", "root+standard+unit",
    BY_WIDTH, NATURAL, "none",
)  # fmt: skip
# Of fewer features, the direction of a row says too little: of one, no more than its sign.
WIDE = 6
Float64Array = NDArray[np.float64]
# A view without negative entries has words or other rare things in it when so many are zero and it
# has so many columns, those of categories left out: a few flags are no words.
SPARSE, WORDS = 0.5, 32
# Numbers of a block that are worked on at once.
CACHED = 1 << 20


@dataclass(frozen=True)
class ViewScaling:
    """A fitted scaling: x -> (x - shift) * factor, then unit rows where the rule ends so.

    Where the rule begins with `root`, x is the square root of an entry, with its sign.

    Attributes:
        rule: its name, one of `SCALINGS`.
        shift: per view, float64 of shape [] or [width].
        factor: per view, float64 of shape [] or [width].
        rules: per view, where it is another than that name.
        means: per view, float64 [width]: what empty cells are filled with, before anything else.
            NaN for columns without any value, which say nothing and become the same for all rows.

    Example:
        >>> data = MultiViewData({"a": [[0.0, 2.0], [4.0, 6.0]]})
        >>> fit_scaling(data, "scale").transform(data).view("a").tolist()
        [[-0.5, -0.1666666716337204], [0.1666666716337204, 0.5]]
    """

    rule: str
    shift: dict[str, Float64Array]
    factor: dict[str, Float64Array]
    rules: dict[str, str] = field(default_factory=dict)
    means: dict[str, Float64Array] = field(default_factory=dict)

    def rooted(self, view: str) -> bool:
        """Whether square roots are taken first."""
        return takes_roots(self._rule_of(view))

    def unit_rows(self, view: str) -> bool:
        """Whether rows are brought to unit length in the end."""
        return self._rule_of(view).endswith("unit")

    def _rule_of(self, view: str) -> str:
        return self.rules.get(view, self.rule)

    def _fill(self, view: str, rows: NDArray[Any]) -> None:
        """Put means into the empty cells of rows [n, width]; rows of NaN are missing and stay."""
        means = self.means.get(view)
        if means is None:  # learnt by an earlier version
            means = np.broadcast_to(_unrooted(self.shift[view], self.rooted(view)), rows.shape[1:])
        silent = np.isnan(means)
        empty = np.isnan(rows)
        if not empty.any() and not silent.any():
            return
        gone = empty.all(axis=1)
        neutral = np.broadcast_to(_unrooted(self.shift[view], self.rooted(view)), rows.shape[1:])
        np.copyto(rows, means, where=empty)
        rows[:, silent] = neutral[silent]
        rows[gone] = np.nan

    def apply(
        self, view: str, block: Any, dtype: Any = np.float32, keep_empty: bool = False
    ) -> NDArray[Any]:
        """Scale one block [..., width]; computed in float64, returned in `dtype`.

        Empty cells are filled with the means that were learnt, unless they are to be kept; then
        they count in the length of a row with the mean of their squares (`expected_squares`).
        """
        block = np.asarray(block)
        rows = block.reshape(-1, block.shape[-1])
        out = np.empty(rows.shape, dtype=dtype)
        limit = np.finfo(dtype).max
        # A few rows at a time stay in cache, which is where the time goes.
        size = max(1, CACHED // max(rows.shape[1], 1))
        for start in range(0, len(rows), size):
            part = rows[start : start + size].astype(np.float64)
            empty = np.isnan(part) if keep_empty else None
            self._fill(view, part)
            if empty is not None and view in self.means:
                # Columns that say nothing are the same for all rows, not empty.
                empty &= ~np.isnan(self.means[view]) | empty.all(axis=1)[:, None]
            if self.rooted(view):
                part = signed_root(part)
            part -= self.shift[view]
            part *= self.factor[view]
            if self.unit_rows(view):
                # Dividing by the largest entry first keeps the squares from over- and underflowing.
                if empty is not None:
                    np.copyto(
                        part, np.sqrt(self.expected_squares(view, rows.shape[1])), where=empty
                    )
                largest = np.abs(part).max(axis=-1, keepdims=True)
                part /= np.where(largest > 0, largest, 1.0)
                norm = np.sqrt((part * part).sum(axis=-1, keepdims=True))
                part /= np.where(norm > 0, norm, 1.0)
            np.clip(part, -limit, limit, out=part)
            if empty is not None:
                part[empty] = np.nan
            out[start : start + size] = part
        return out.reshape(block.shape)

    def expected_squares(self, view: str, width: int) -> Float64Array:
        """Mean squares of the features before rows are brought to unit length, [width].

        One where columns are standardised; else as the means tell: that of counts or other numbers
        without negative ones is the mean square of their roots.
        """
        if "standard" in self._rule_of(view):
            return np.ones(width)
        means = np.nan_to_num(self.means.get(view, np.zeros(width)))
        if self.rooted(view):
            return np.abs(means)
        return np.square((means - self.shift[view]) * self.factor[view])

    def undo(
        self, view: str, means: Float64Array, variances: Float64Array, block: Any
    ) -> tuple[Float64Array, Float64Array]:
        """Means and variances [n, width] of scaled features in the units of the table.

        `block` are the rows that were scaled, NaN in empty cells: they say how long the rows were,
        as far as they can (`apply` with `keep_empty`). Where roots were taken these are the
        moments of the signed square of a Gaussian.
        """
        factor = np.asarray(self.factor[view], dtype=np.float64)
        if self.unit_rows(view):
            rows = np.asarray(block, dtype=np.float64)
            before = signed_root(rows) if self.rooted(view) else rows
            squares = np.square((before - self.shift[view]) * factor)
            expected = self.expected_squares(view, rows.shape[1])
            squares = np.where(np.isnan(rows), expected, squares)
            factor = factor / np.sqrt(squares.sum(axis=1, keepdims=True))
        mean, variance = means / factor + self.shift[view], variances / np.square(factor)
        if not self.rooted(view):
            return mean, variance
        from scipy.special import ndtr  # late: `import fewview` stays light

        deviation = np.sqrt(np.maximum(variance, 1e-300))
        place = mean / deviation
        squared = (mean * mean + variance) * (2 * ndtr(place) - 1)
        squared += 2 * mean * deviation * np.exp(-place * place / 2) / np.sqrt(2 * np.pi)
        fourth = mean**4 + 6 * mean**2 * variance + 3 * variance**2
        return squared, np.maximum(fourth - squared**2, 0.0)

    def apply_quickly(self, view: str, block: NDArray[Any]) -> NDArray[Any]:
        """Scale rows [n, width] in their own dtype, for streams of millions of rows.

        Float32 rows come out within about 1e-6 of what `apply` gives, relative to their largest
        entry: the shift is subtracted in two pieces, so that a large mean costs no digits.
        """
        dtype = block.dtype
        shift = self.shift[view].astype(dtype)
        rest = (self.shift[view] - shift).astype(dtype)
        factor = self.factor[view].astype(dtype)
        needed = bool(np.any(np.abs(rest * factor) > 1e-7))
        limit = np.finfo(dtype).max
        out = np.empty(block.shape, dtype=dtype)
        size = max(1, CACHED // max(block.shape[1], 1))
        silent = view in self.means and bool(np.isnan(self.means[view]).any())
        with np.errstate(all="ignore"):
            for start in range(0, len(block), size):
                part = out[start : start + size]
                rows = block[start : start + size]
                # One sum per row tells whether a cell is empty, at the speed of memory.
                odd = np.flatnonzero(silent | ~np.isfinite(np.einsum("ij->i", rows)))
                if odd.size and (silent or not np.isnan(rows[odd]).all()):
                    whole = rows[odd]
                    self._fill(view, whole)
                    rows = rows.copy()
                    rows[odd] = whole
                if self.rooted(view):  # roots of large numbers differ beyond float32
                    part[:] = signed_root(rows.astype(np.float64)) - self.shift[view]
                else:
                    np.subtract(rows, shift, out=part)
                    if needed:
                        part -= rest
                part *= factor
                if self.unit_rows(view):
                    norm = np.sqrt(np.einsum("ij,ij->i", part, part))
                    np.divide(part, np.where(norm > 0, norm, 1)[:, None], out=part)
                    # Squares that were lost, or too large: those rows the careful way.
                    odd = np.flatnonzero((norm < 1e-12) | np.isinf(norm))
                    if odd.size:
                        part[odd] = self.apply(view, rows[odd], dtype)
                else:
                    np.clip(part, -limit, limit, out=part)
        return out

    def transform(
        self, data: MultiViewData, dtype: Any = np.float32, keep_empty: bool = False
    ) -> MultiViewData:
        """Scale every view; missing rows stay missing, empty cells are filled with learnt means.

        Args:
            data: with views of the names and widths this scaling was fitted on.
            dtype: float type of the result; None keeps that of the data and is quicker, see
                `apply_quickly`.
            keep_empty: leave empty cells NaN, for who can do without them.
        """
        unknown = [view for view in data.view_names if view not in self.shift]
        if unknown:
            raise FewviewError(
                f"view {shorten(map(repr, unknown))} was not there when the scaling was fitted"
            )
        blocks = {
            view: self.apply_quickly(view, block)
            if dtype is None
            else self.apply(view, block, dtype, keep_empty)
            for view, block in data.views.items()
        }
        return MultiViewData.unchecked(
            blocks, data.mask, data.labels, data.ids, data.columns, data.name
        )


def fit_scaling(data: MultiViewData, rule: str) -> ViewScaling:
    """Learn a scaling from data, usually the base set; missing rows are left out.

    Empty cells count as the mean of their column, and will be filled with it.

    Args:
        data: the samples to learn from.
        rule: `"scale"` (subtract the mean and divide by the range of all entries of the view),
            `"minmax"` (all entries of the view to [0, 1]), `"standard"` (mean 0 and standard
            deviation 1 per feature), `"unit"` (rows to unit length), `"standard+unit"`,
            `"root+unit"` and `"root+standard+unit"` (the same after square roots, which make the
            long tails of counts, histograms and activations shorter), `"by-width"` (the latter for
            views of six features or more, and for narrower ones `"standard"` over the root of their
            number, so that rows are about as long), `"natural"` (one of these for every view, by
            what its entries are, see `natural_rules`), `"none"`.

    A constant feature under `standard` is divided by the typical standard deviation of its view,
    so that it stays harmless and the result does not depend on the units of the view. A view that
    no sample has is left as it is.

    Example:
        >>> fit_scaling(MultiViewData({"a": [[1.0], [3.0]]}), "minmax").factor["a"].item()
        0.5
    """
    check_word(f"scaling {rule!r}", rule, SCALINGS)
    shift: dict[str, Float64Array] = {}
    factor: dict[str, Float64Array] = {}
    means: dict[str, Float64Array] = {}
    rules = {view: rule_for(rule, width) for view, width in data.view_dims.items()}
    if rule == NATURAL:
        rules = natural_rules(data)
    for index, (view, block) in enumerate(data.views.items()):
        rows = _present(block, data.mask[:, index])
        means[view] = _column_means(rows)
        if np.isnan(rows).any():
            silent = np.isnan(means[view])
            typical = means[view][~silent].mean()
            rows = np.where(np.isnan(rows), np.where(silent, typical, means[view]), rows)
        shift[view], factor[view] = _fit_view(rows, rules[view])
        if rule in (BY_WIDTH, NATURAL) and rules[view] == "standard" and rows.size:
            factor[view] = factor[view] / np.sqrt(rows.shape[1])
    return ViewScaling(rule, shift, factor, rules, means)


def rule_for(rule: str, width: int) -> str:
    """The rule of one view: another for wide and for narrow ones, by `BY_WIDTH`."""
    if rule != BY_WIDTH:
        return rule
    return "root+standard+unit" if width >= WIDE else "standard"


def takes_roots(rule: str) -> bool:
    """Whether a rule begins with square roots."""
    return rule.startswith("root+")


def _present(block: NDArray[Any], present: NDArray[np.bool_]) -> NDArray[Any]:
    """Rows that are there; no copy where all are."""
    return np.asarray(block if present.all() else block[present])


def _pieces(rows: NDArray[Any], rooted: bool = False) -> Iterator[Float64Array]:
    """Rows [n, width] in float64, roots of them where asked, as many at a time as stay in cache."""
    size = max(1, CACHED // max(rows.shape[1], 1))
    for start in range(0, len(rows), size):
        part = rows[start : start + size].astype(np.float64)
        yield signed_root(part) if rooted else part


def _column_sums(parts: Iterable[Float64Array]) -> Float64Array:
    """Sums of columns, one row added after the other whatever the parts: their digits are one."""
    total: Float64Array | None = None
    for part in parts:
        total = (part if total is None else np.concatenate([total[None], part])).sum(axis=0)
    assert total is not None
    return total


def _column_means(rows: NDArray[Any]) -> Float64Array:
    """Means of the cells that are there; NaN for columns without any."""
    if not len(rows):
        return np.zeros(rows.shape[1])
    means = _column_sums(_pieces(rows)) / len(rows)
    if not np.isnan(means).any():
        return means
    known = ~np.isnan(rows)
    count = known.sum(axis=0)
    total = np.where(known, rows, 0.0).sum(axis=0, dtype=np.float64)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _unrooted(shift: Float64Array, rooted: bool) -> Float64Array:
    """What becomes zero by roots and a shift."""
    return np.copysign(shift * shift, shift) if rooted else shift


def natural_rules(data: MultiViewData) -> dict[str, str]:
    """The scaling of every view that its entries ask for.

    Without negative entries and mostly zeros, as counts of words are: square roots and unit rows;
    dividing by the deviations of rare words would make them what rows differ by. (Categories, and
    views of a few columns, are mostly zeros too and are no words.) Otherwise
    standardised columns and unit rows (not of fewer than six features, whose direction says too
    little), after square roots where no view has negative entries: histograms and activations have
    long tails. (Roots of some views and not of others were no better on base classes,
    docs/marginal.md.)
    """
    lowest, zeros = {}, {}
    for index, (view, block) in enumerate(data.views.items()):
        rows = _present(block, data.mask[:, index])
        finite = np.isfinite(rows)
        cells = rows if finite.all() else rows[finite]
        lowest[view] = float(cells.min()) if cells.size else 0.0
        zeros[view] = 1 - np.count_nonzero(cells) / cells.size if cells.size else 0.0
    dense = "standard+unit" if min(lowest.values()) < 0 else "root+standard+unit"
    rules = {}
    for view, width in data.view_dims.items():
        listed = data.kinds.get(view, ())
        flags = sum(column.width for column in listed if column.kind in ("category", "boolean"))
        sparse = lowest[view] >= 0 and zeros[view] > SPARSE and width - flags >= WORDS
        rules[view] = "standard" if width < WIDE else "root+unit" if sparse else dense
    return rules


def signed_root(block: NDArray[Any]) -> NDArray[Any]:
    """Square roots of the sizes of entries, with their signs."""
    out: NDArray[Any] = np.sqrt(np.abs(block))
    np.copysign(out, block, out=out)
    return out


def _fit_view(rows: NDArray[Any], rule: str) -> tuple[Float64Array, Float64Array]:
    zero, one = np.zeros(()), np.ones(())
    rooted, rule = takes_roots(rule), rule.removeprefix("root+")
    if rows.size == 0 or rule in ("none", "unit"):
        return zero, one
    if rule in ("scale", "minmax"):
        rows = rows.astype(np.float64)
        low, high = rows.min(), rows.max()
        spread = high - low
        if spread == 0:
            return np.asarray(low), one
        return np.asarray(rows.mean() if rule == "scale" else low), np.asarray(1.0 / spread)
    mean = _column_sums(_pieces(rows, rooted)) / len(rows)
    squares = _column_sums(np.square(part - mean) for part in _pieces(rows, rooted))
    deviation = np.sqrt(squares / len(rows))
    largest, first = np.abs(rows).max(axis=0).astype(np.float64), rows[0].astype(np.float64)
    if rooted:
        largest, first = np.sqrt(largest), signed_root(first)
    # Rounding makes a constant feature look as if it varied in its last digit.
    varies = deviation > 1e-10 * largest
    typical = np.sqrt(np.mean(deviation[varies] ** 2)) if varies.any() else 1.0
    # The exact constant: its rounded mean would leave a rest that unit rows blow up.
    return np.where(varies, mean, first), 1.0 / np.where(varies, deviation, typical)
