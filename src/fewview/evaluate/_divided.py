"""One table with everything in it: known classes, a few samples of new ones, and the rest.

`divide` finds out which rows are what; `choose_method` tries methods on the known classes, as if
they were new, in a stated time, and says what to expect.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from time import perf_counter

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import brentq
from scipy.special import ndtr

from fewview.errors import FewviewError, FewviewWarning, shorten
from fewview.evaluate._advice import Advice, give_advice
from fewview.evaluate._progress import Progress
from fewview.ground._words import number_text
from fewview.methods.estimator.fitted_base import usual_task
from fewview.methods.estimator.method import Method
from fewview.methods.registry import create
from fewview.samples._data import MultiViewData

# Classes with so few labelled samples are new, where nobody says which are.
FEW = 5
# What is tried, the likeliest first; boosting takes longest, minutes on wide tables.
CANDIDATES = (
    "marginal", "concat-logistic", "concat-nn", "proto", "ugda", "ptmap", "bd-cspn", "concat-hgb",
)  # fmt: skip
SPLITS, EPISODES = 5, 10
# What is taken where nothing can be tried: without known classes, too, it is ahead of others.
USUAL = "marginal"
# Nobody knows how many samples to be predicted are of which class: shares are drawn.
QUERY_COUNTS = "dirichlet:2"
# A class lends itself to tasks only with some samples beside the shots.
FEWEST_QUERIES = 2


@dataclass(frozen=True)
class Divided:
    """What the rows of one table are.

    Attributes:
        base: labelled samples of known classes; None where there are none.
        support: the labelled samples of new classes.
        query: samples without a label.
        guessed: whether new classes were told from known ones by their numbers of samples.
    """

    base: MultiViewData | None
    support: MultiViewData
    query: MultiViewData
    guessed: bool

    @property
    def way(self) -> int:
        """Number of new classes."""
        return len(self.support.classes)

    @property
    def shot(self) -> int:
        """Labelled samples of the new class that has fewest."""
        return int(np.bincount(self.support.codes).min())

    @property
    def queries(self) -> int:
        """Queries per new class to expect, at most 15."""
        return max(1, min(15, round(len(self.query) / self.way)))


def divide(data: MultiViewData, new: Sequence[str] | None = None) -> Divided:
    """Divide samples into known classes, supports of new ones and queries.

    Args:
        data: labelled and unlabelled samples.
        new: names of the new classes; without it those with at most five labelled samples.

    Example:
        >>> rows, labels = [[0.0], [1.0], [2.0], [5.0]], ["x", "y", "x", None]
        >>> divide(MultiViewData({"a": rows}, labels), ["x", "y"]).query.view("a").tolist()
        [[5.0]]
    """
    if data.labels is None or not len(data.classes):
        raise FewviewError(
            "no sample has a label; name the column that holds labels with --labels, and leave it "
            "empty where a sample is to be predicted"
        )
    sizes = dict(zip(data.classes.tolist(), np.bincount(data.codes[data.codes >= 0]).tolist(),
                     strict=True))  # fmt: skip
    chosen = _few(sizes) if new is None else _named(sizes, new)
    if len(chosen) < 2:
        raise FewviewError(
            f"--new {','.join(map(str, chosen))}: one class; at least two new classes are needed "
            f"(the classes are {_counted(sizes)})"
        )
    places = [position for position, name in enumerate(sizes) if name in chosen]
    is_new = np.isin(data.codes, places)
    query = data[data.codes < 0].with_labels(None)
    if not len(query):
        raise FewviewError(
            "every sample has a label, so nothing is left to predict; leave the label empty where "
            "it is unknown"
        )
    known = (data.codes >= 0) & ~is_new
    base, support = (data[known] if known.any() else None), data[is_new]
    # A view that known classes lack is a new sensor: what supports say about it is used.
    learnt = [] if base is None else _present(base)
    support = support.select_views(
        [v for v in data.view_names if v in (*learnt, *_present(support))]
    )
    return Divided(None if base is None else base.select_views(learnt), support, query, new is None)


def _present(data: MultiViewData) -> list[str]:
    """The views that some sample has."""
    return [view for index, view in enumerate(data.view_names) if data.mask[:, index].any()]


def _few(sizes: dict[object, int]) -> list[object]:
    chosen = [label for label, count in sizes.items() if count <= FEW]
    if len(chosen) < 2:
        raise FewviewError(
            f"which classes are new? Fewer than two have {FEW} labelled samples or less; name them "
            f"with --new (the classes are {_counted(sizes)})"
        )
    return chosen


def _named(sizes: dict[object, int], new: Sequence[str]) -> list[object]:
    known = {str(label): label for label in sizes}
    new = [name if name in known else _as_whole(name) for name in new]
    for name in new:
        if name not in known:
            near = get_close_matches(name, list(known), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the classes are {_counted(sizes)}"
            raise FewviewError(f"--new {name}: no labelled sample is of this class; {hint}")
    return [known[name] for name in dict.fromkeys(new)]


def _as_whole(name: str) -> str:
    """4 for 4.0, as labels are read."""
    try:
        return number_text(float(name))
    except (ValueError, OverflowError):
        return name


def _counted(sizes: dict[object, int]) -> str:
    return shorten([f"{label} ({count})" for label, count in sizes.items()], 10)


def fit_divided(
    divided: Divided, method: str, device: str = "cpu", *, classes: str = "new"
) -> Method:
    """Fit a method to the known classes, if there are any, and to the supports.

    `classes` is `"new"`, or `"all"` where samples may be of known classes too.
    """
    clf = create(method, device=device)
    base = divided.base
    if base is not None:
        task = usual_task(base, way=divided.way, shot=divided.shot, queries=divided.queries)
        clf.fit_base(base, task=task)
    return clf.fit(divided.support, classes=classes)


def choose_method(
    divided: Divided, seconds: float, store: str, progress: Progress | None = None
) -> tuple[Advice | None, str]:
    """Try methods on known classes as if they were new; stop when the time is over.

    Args:
        divided: what `divide` found.
        seconds: time for all of them. The first one is always tried; any other is begun before
            it is over, and left out where its first class split shows that the others would not
            end in time.
        store: file that results are kept in meanwhile.
        progress: told what is going on.

    Returns:
        The advice, or None where there are too few known classes; and why, or what was left out.
    """
    base = divided.base
    if base is not None:
        enough = np.bincount(base.codes) >= divided.shot + FEWEST_QUERIES
        base = base[enough[base.codes]]
    if base is None or len(base.classes) < 3:
        return None, (
            f"fewer than 3 known classes have {divided.shot + FEWEST_QUERIES} labelled samples, so "
            "that nothing can be tried beforehand"
        )
    base = base.with_name(base.name or "data").without_ids()
    novel = len(base.classes) - min(round(0.6 * len(base.classes)), len(base.classes) - 2)
    # What the store has is not computed again, so the last call compares what was tried.
    ask = partial(
        give_advice, base, plain=(), shot=divided.shot, way=min(divided.way, novel),
        queries=_fitting(base, divided), episodes=EPISODES, store=store,
        query_counts=QUERY_COUNTS, progress=progress,
    )  # fmt: skip
    start = perf_counter()
    tried: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewviewWarning)
        for name in CANDIDATES:
            begun = perf_counter() - start
            if tried and begun > seconds:
                break
            if tried:
                ask(methods=name, splits=1)
                now = perf_counter() - start
                if now + (SPLITS - 1) * (now - begun) > seconds:
                    continue
            tried.append(name)
            advice = ask(methods=",".join(tried), splits=SPLITS)
    left = [name for name in CANDIDATES if name not in tried]
    return advice, f"not tried, for want of time: {', '.join(left)}" if left else ""


def _fitting(base: MultiViewData, divided: Divided) -> int:
    return min(divided.queries, int(np.bincount(base.codes).min()) - divided.shot)


def expectation(
    advice: Advice | None, divided: Divided, confidence: float, *, given: bool = False
) -> str:
    """Say in a sentence or two how many predictions will be right, and how sure that is.

    `confidence` is the mean probability that predictions were given, `given` whether the user chose
    the method, so that none was tried.
    """
    own = f"its own probabilities say {100 * confidence:.0f} %"
    if advice is None and given and divided.base is not None:
        return f"how many are right was not measured, since the method was given; {own}"
    if advice is None:
        return f"how many are right cannot be measured without more known classes; {own}"
    best = advice.rows[0]
    single = np.concatenate(
        [
            100 * np.asarray(result.metrics.accuracy)
            for result in advice.outcome.results.values()
            if result.cell.method == best["method"]
        ]
    )
    low, high = np.quantile(single, (0.1, 0.9))
    expected, more = best["accuracy"], ""
    if best["way"] < divided.way:
        expected = 100 * in_more_ways(expected / 100, best["way"], divided.way)
        more = f"; among {divided.way} classes that would be {expected:.0f} %"
    text = (
        f"expect about {expected:.0f} % right: {best['method']} reached {best['accuracy']:.0f} % "
        f"on {best['n_episodes']} {best['way']}-way {best['shot']}-shot tasks of your known "
        f"classes as if they were new, with unequal shares of classes; 8 of 10 such tasks had "
        f"between {low:.0f} and {high:.0f} % right{more}"
    )
    return f"{text}; {own}"


def in_more_ways(accuracy: float, way: int, more: int) -> float:
    """What an accuracy among few classes would be among more, all being equally hard.

    Scores of the true class and of the others are taken to be Gaussian and equally wide, as where
    people choose one of several signals; their distance is that of the accuracy given.

    Example:
        >>> round(in_more_ways(0.76, 2, 4), 2), in_more_ways(1.0, 2, 4), in_more_ways(0.5, 2, 4)
        (0.55, 1.0, 0.25)
    """
    points, weights = hermegauss(64)
    weights = weights / weights.sum()

    def share(distance: float, count: int) -> float:
        return float(weights @ ndtr(points + distance) ** (count - 1))

    if accuracy >= 1 or accuracy <= 1 / way:
        return 1.0 if accuracy >= 1 else accuracy * way / more
    distance = brentq(lambda distance: share(distance, way) - accuracy, 0.0, 40.0)
    return share(distance, more)
