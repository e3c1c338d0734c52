"""Per-view scaling, fitted on base classes only.

Every scaling is an affine map of each feature, after a square root and followed by unit row length
where the name says so. `scale` is the rule of CPM-Nets: one mean and one range over all entries of
a view.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError, check_word, shorten
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
# Numbers of a block that are worked on at once, on a CPU and on a GPU.
CACHED, GPU_CACHED = 1 << 20, 1 << 24


@dataclass(frozen=True)
class ViewScaling:
    """A fitted scaling: x -> (x - shift) * factor, then unit rows where the rule ends so.

    Where the rule begins with `root`, x is the square root of an entry, with its sign.

    Attributes:
        rule: its name, one of `SCALINGS`.
        shift: per view, float64 of shape [] or [width].
        factor: per view, float64 of shape [] or [width].
        rules: per view, which may be another than that name.
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
    rules: dict[str, str]
    means: dict[str, Float64Array]

    def rooted(self, view: str) -> bool:
        """Whether square roots are taken first."""
        return takes_roots(self.rules[view])

    def unit_rows(self, view: str) -> bool:
        """Whether rows are brought to unit length in the end."""
        return self.rules[view].endswith("unit")

    def _fill(self, view: str, rows: Any) -> None:
        """Put means into the empty cells of rows [n, width]; rows of NaN are missing and stay."""
        neutral = np.broadcast_to(_unrooted(self.shift[view], self.rooted(view)), rows.shape[1:])
        means = self.means[view]
        silent = np.isnan(means)
        empty = library(rows).isnan(rows)
        if not empty.any() and not silent.any():
            return
        gone = empty.all(axis=1)
        rows[...] = library(rows).where(empty, _beside(rows, means), rows)
        rows[:, _beside(rows, silent)] = _beside(rows, neutral[silent])
        rows[gone] = np.nan

    def apply(
        self, view: str, block: Any, dtype: Any = np.float32, keep_empty: bool = False
    ) -> Any:
        """Scale one block [..., width], an array or a tensor on a GPU, which is scaled there.

        Computed in float64, returned in `dtype` (of numpy). Empty cells are filled with the means
        that were learnt, unless they are to be kept; then they count in the length of a row with
        the mean of their squares (`expected_squares`).
        """
        block = block if library(block) is not np else np.asarray(block)
        rows = block.reshape(-1, block.shape[-1])
        out = _empty(rows, dtype)
        for some in _slices(rows):
            out[some] = self._applied(view, as_type(rows[some], np.float64), dtype, keep_empty)
        return out.reshape(block.shape)

    def _applied(self, view: str, part: Any, dtype: Any, keep_empty: bool) -> Any:
        """Scale rows [n, width] of float64, which may be overwritten."""
        lib, limit = library(part), float(np.finfo(dtype).max)
        empty = lib.isnan(part) if keep_empty else None
        self._fill(view, part)
        if empty is not None:
            # Columns that say nothing are the same for all rows, not empty.
            empty &= _beside(part, ~np.isnan(self.means[view])) | empty.all(axis=1)[:, None]
        if self.rooted(view):
            part = signed_root(part)
        part -= _beside(part, self.shift[view])
        part *= _beside(part, self.factor[view])
        if self.unit_rows(view):
            # Dividing by the largest entry first keeps the squares from over- and underflowing.
            if empty is not None:
                usual = np.sqrt(self.expected_squares(view, part.shape[1]))
                part = lib.where(empty, _beside(part, usual), part)
            largest = lib.amax(lib.abs(part), axis=-1, keepdims=True)
            part /= lib.where(largest > 0, largest, 1.0)
            norm = lib.sqrt((part * part).sum(axis=-1, keepdims=True))
            part /= lib.where(norm > 0, norm, 1.0)
        lib.clip(part, -limit, limit, out=part)
        if empty is not None:
            part[empty] = np.nan
        return part

    def expected_squares(self, view: str, width: int) -> Float64Array:
        """Mean squares of the features before rows are brought to unit length, [width].

        One where columns are standardised; else as the means tell: that of counts or other numbers
        without negative ones is the mean square of their roots.
        """
        if "standard" in self.rules[view]:
            return np.ones(width)
        means = np.nan_to_num(self.means[view])
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
        silent = bool(np.isnan(self.means[view]).any())
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
        self,
        data: MultiViewData,
        dtype: Any = np.float32,
        keep_empty: bool = False,
        device: Any = "cpu",
    ) -> MultiViewData:
        """Scale every view; missing rows stay missing, empty cells are filled with learnt means.

        Args:
            data: with views of the names and widths this scaling was fitted on.
            dtype: float type of the result; None keeps that of the data and is quicker, see
                `apply_quickly`.
            keep_empty: leave empty cells NaN, for who can do without them.
            device: where to compute; float64 sums of rows differ in their last digit.
        """
        unknown = [view for view in data.view_names if view not in self.shift]
        if unknown:
            raise FewviewError(
                f"view {shorten(map(repr, unknown))} was not there when the scaling was fitted"
            )
        blocks = {
            view: self.apply_quickly(view, block)
            if dtype is None
            else as_array(self.apply(view, on_device(block, device), dtype, keep_empty))
            for view, block in data.views.items()
        }
        return MultiViewData.unchecked(
            blocks, data.mask, data.labels, data.ids, data.columns, data.name
        )


def fit_scaling(data: MultiViewData, rule: str, device: Any = "cpu") -> ViewScaling:
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
        device: where to compute; float64 sums of columns differ in their last digit.

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
    there = _rows_there(data, device)
    rules = {view: rule_for(rule, width) for view, width in data.view_dims.items()}
    if rule == NATURAL:
        rules = natural_rules(data, there)
    for view, rows in there.items():
        means[view] = _column_means(rows)
        empty = library(rows).isnan(rows)
        if empty.any():
            silent = np.isnan(means[view])
            filled = np.where(silent, means[view][~silent].mean(), means[view])
            rows = library(rows).where(empty, _beside(rows, filled), rows)
        shift[view], factor[view] = _fit_view(rows, rules[view])
        if rule in (BY_WIDTH, NATURAL) and rules[view] == "standard" and math.prod(rows.shape):
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


def _rows_there(data: MultiViewData, device: Any = "cpu") -> dict[str, Any]:
    """Per view the rows that have it, on a device; no copy where all are there already."""
    return {
        view: on_device(block if seen.all() else block[seen], device)
        for (view, block), seen in zip(data.views.items(), data.mask.T, strict=True)
    }


def _pieces(rows: Any, rooted: bool = False) -> Iterator[Any]:
    """Rows [n, width] in float64, roots of them where asked, a few at a time (`_slices`)."""
    for some in _slices(rows):
        part = as_type(rows[some], np.float64)
        yield signed_root(part) if rooted else part


def _column_sums(parts: Iterable[Any]) -> Float64Array:
    """Sums of columns; of arrays one row added after the other whatever the parts, so that their
    digits are one."""
    total: Any = None
    for part in parts:
        lib = library(part)
        total = (part if total is None else lib.concatenate([total[None], part])).sum(axis=0)
    return as_array(total)


def _column_means(rows: Any) -> Float64Array:
    """Means of the cells that are there; NaN for columns without any."""
    if not len(rows):
        return np.zeros(rows.shape[1])
    means = _column_sums(_pieces(rows)) / len(rows)
    if not np.isnan(means).any():
        return means
    lib = library(rows)
    known = ~lib.isnan(rows)
    count = as_array(known.sum(axis=0))
    total = as_array(lib.where(known, rows, 0.0).sum(axis=0, dtype=lib.float64))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _unrooted(shift: Float64Array, rooted: bool) -> Float64Array:
    """What becomes zero by roots and a shift."""
    return np.copysign(shift * shift, shift) if rooted else shift


def natural_rules(data: MultiViewData, there: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The scaling of every view that its entries ask for; `there` are the rows that have a view.

    Without negative entries and mostly zeros, as counts of words are: square roots and unit rows;
    dividing by the deviations of rare words would make them what rows differ by. (Categories, and
    views of a few columns, are mostly zeros too and are no words.) Otherwise
    standardised columns and unit rows (not of fewer than six features, whose direction says too
    little), after square roots where no view has negative entries: histograms and activations have
    long tails. (Roots of some views and not of others were no better on base classes,
    docs/marginal.md.)
    """
    lowest, zeros = {}, {}
    for view, rows in (_rows_there(data) if there is None else there).items():
        lib = library(rows)
        finite = lib.isfinite(rows)
        cells = rows if finite.all() else rows[finite]
        size = math.prod(cells.shape)
        lowest[view] = float(cells.min()) if size else 0.0
        zeros[view] = 1 - int(lib.count_nonzero(cells)) / size if size else 0.0
    dense = "standard+unit" if min(lowest.values()) < 0 else "root+standard+unit"
    rules = {}
    for view, width in data.view_dims.items():
        listed = data.kinds.get(view, ())
        flags = sum(column.width for column in listed if column.kind in ("category", "boolean"))
        sparse = lowest[view] >= 0 and zeros[view] > SPARSE and width - flags >= WORDS
        rules[view] = "standard" if width < WIDE else "root+unit" if sparse else dense
    return rules


def signed_root(block: Any) -> Any:
    """Square roots of the sizes of entries, with their signs."""
    lib = library(block)
    out = lib.sqrt(lib.abs(block))
    lib.copysign(out, block, out=out)
    return out


def _fit_view(rows: Any, rule: str) -> tuple[Float64Array, Float64Array]:
    zero, one = np.zeros(()), np.ones(())
    rooted, rule = takes_roots(rule), rule.removeprefix("root+")
    if not math.prod(rows.shape) or rule in ("none", "unit"):
        return zero, one
    if rule in ("scale", "minmax"):
        rows = as_type(rows, np.float64)
        low, high = float(rows.min()), float(rows.max())
        spread = high - low
        if spread == 0:
            return np.asarray(low), one
        return np.asarray(float(rows.mean()) if rule == "scale" else low), np.asarray(1.0 / spread)
    lib, mean = library(rows), _column_sums(_pieces(rows, rooted)) / len(rows)
    about = _beside(rows, mean)
    squares = _column_sums(lib.square(part - about) for part in _pieces(rows, rooted))
    deviation = np.sqrt(squares / len(rows))
    largest, first = (
        as_array(found).astype(np.float64) for found in (lib.amax(lib.abs(rows), axis=0), rows[0])
    )
    if rooted:
        largest, first = np.sqrt(largest), signed_root(first)
    # Rounding makes a constant feature look as if it varied in its last digit.
    varies = deviation > 1e-10 * largest
    typical = np.sqrt(np.mean(deviation[varies] ** 2)) if varies.any() else 1.0
    # The exact constant: its rounded mean would leave a rest that unit rows blow up.
    return np.where(varies, mean, first), 1.0 / np.where(varies, deviation, typical)


# ---------------------------------------------------------------------- arrays and tensors


def library(block: Any) -> Any:
    """What computes with a block: torch with tensors, else numpy."""
    return sys.modules["torch"] if type(block).__module__ == "torch" else np


def on_device(block: NDArray[Any], device: Any) -> Any:
    """The block itself on a CPU, else a tensor on that device."""
    return block if str(device) == "cpu" else import_module("torch").tensor(block, device=device)


def as_array(block: Any) -> NDArray[Any]:
    """An array of what a block holds."""
    return np.asarray(block if library(block) is np else block.cpu())


def as_type(block: Any, dtype: Any) -> Any:
    """A copy in a dtype of numpy's."""
    if library(block) is np:
        return block.astype(dtype)
    return block.to(_torch_type(block, dtype), copy=True)


def _empty(rows: Any, dtype: Any) -> Any:
    """Room for as much in another dtype of numpy's."""
    if library(rows) is np:
        return np.empty(rows.shape, dtype)
    return rows.new_empty(rows.shape, dtype=_torch_type(rows, dtype))


def _torch_type(block: Any, dtype: Any) -> Any:
    return getattr(library(block), np.dtype(dtype).name)


def _beside(rows: Any, array: NDArray[Any]) -> Any:
    """A small array where rows are."""
    lib = library(rows)
    return array if lib is np else lib.tensor(array, device=rows.device)


def _slices(rows: Any) -> Iterator[slice]:
    """Few rows at a time: they stay in cache, which is where the time goes; on a GPU many."""
    most = CACHED if library(rows) is np else GPU_CACHED
    size = max(1, most // max(rows.shape[1], 1))
    return (slice(start, start + size) for start in range(0, len(rows), size))
