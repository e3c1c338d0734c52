"""Synthetic few-shot data, and a division of any labelled data for a first look.

`make_few_shot` draws samples of Gaussian classes in correlated views; `split_few_shot` makes some
of the classes of a data set new, with a few labelled samples each.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from fewview.errors import FewviewError
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule

WIDTHS: Mapping[str, int] = MappingProxyType({"a": 20, "b": 8})
NAMES = ("ape", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay")
FACTORS = 8  # behind all views of a sample


def make_few_shot(
    n_classes: int = 10,
    n_per_class: int = 30,
    views: Mapping[str, int] = WIDTHS,
    separation: float = 2.0,
    noise: float = 1.0,
    missing: float = 0.0,
    seed: int = 0,
) -> MultiViewData:
    """Draw samples of Gaussian classes that share one covariance over all views.

    A sample has eight factors: those of its class, drawn once with the standard deviation
    `separation`, and its own, of variance 1. Every column is a random mixture of the factors and
    noise of its own, so that each view tells something about the others.

    Args:
        n_classes: number of classes.
        n_per_class: samples of each class.
        views: number of columns by name of a view.
        separation: how far apart classes are, in standard deviations of a factor.
        noise: standard deviation of the noise of every column.
        missing: share of missing views; every sample keeps at least one.
        seed: another seed gives other data.

    Returns:
        float32 samples in random order.

    Example:
        >>> make_few_shot(n_classes=4, n_per_class=5, missing=0.3)
        MultiViewData(20 samples, views: a[20], b[8], 4 classes, 30.0% of views missing)
    """
    sizes = {"n_classes": n_classes, "n_per_class": n_per_class, **views}
    if min(sizes.values()) < 1:
        raise FewviewError(f"{sizes}: every number must be at least 1")
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(n_classes), n_per_class))
    centres = separation * rng.normal(size=(n_classes, FACTORS))
    factors = centres[codes] + rng.normal(size=(len(codes), FACTORS))
    blocks = {}
    for view, width in views.items():
        mixing = rng.normal(size=(FACTORS, width))
        block = factors @ mixing + noise * rng.normal(size=(len(codes), width))
        blocks[view] = block.astype(np.float32)
    names = [*NAMES, *(f"class {number}" for number in range(len(NAMES), n_classes))]
    mask = MissingRule().draw(np.array([seed], np.uint64), len(codes), len(views), missing)[0]
    return MultiViewData(blocks, [names[code] for code in codes], mask=mask)


def split_few_shot(
    data: MultiViewData, new: int = 4, shot: int = 1, seed: int = 0
) -> tuple[MultiViewData, MultiViewData, MultiViewData]:
    """Divide labelled samples into a base set, supports and queries of new classes, for a look.

    Benchmarks draw many such tasks, see `EpisodeSampler`. Samples without a label are left out.

    Args:
        data: samples with labels.
        new: number of new classes, drawn from those with more than `shot` samples.
        shot: supports of every new class; its other samples are queries.
        seed: another seed draws other classes and other supports.

    Returns:
        Base set, supports and queries, all with labels.

    Example:
        >>> base, support, query = split_few_shot(make_few_shot(), new=4, shot=1)
        >>> len(base), len(support), len(query)
        (180, 4, 116)
    """
    if new < 2 or shot < 1:
        raise FewviewError(f"new={new} and shot={shot}; new must be at least 2, shot at least 1")
    if data.labels is None:
        raise FewviewError("the samples have no labels, so that no class can be new")
    codes = data.codes
    enough = np.flatnonzero(np.bincount(codes[codes >= 0]) > shot)
    if len(data.classes) <= new or len(enough) < new:
        raise FewviewError(
            f"{len(data.classes)} classes, {len(enough)} of them with at least {shot + 1} samples: "
            f"{new} new classes need as many of those, and a base class beside them; lower new or "
            "shot"
        )
    rng = np.random.default_rng(seed)
    novel = rng.choice(enough, new, replace=False)
    chosen = [rng.choice(np.flatnonzero(codes == code), shot, replace=False) for code in novel]
    is_support = np.isin(np.arange(len(codes)), np.concatenate(chosen))
    is_new = np.isin(codes, novel)
    return data[(codes >= 0) & ~is_new], data[is_support], data[is_new & ~is_support]
