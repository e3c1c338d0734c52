"""Where methods go wrong: by views present, by class, and query by query.

Probabilities come from the store (`--keep-probabilities`); which samples they are about is drawn
again from the data. One method is run again to say what its views contributed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fewview.drawing._charts import Point, Scale, Series, chart
from fewview.drawing._looks import Look, look_of
from fewview.drawing._small import digits_of, heat
from fewview.errors import FewviewError, FewviewWarning
from fewview.report._contents import Contents
from fewview.report._elements import (
    Drawn,
    Question,
    Section,
    as_attribute,
    listed,
    name_of,
    picture,
)
from fewview.report._examples import runnable, setting_of
from fewview.results._cells import Cell, Result
from fewview.results._comparing import Panel
from fewview.results._store import Store

if TYPE_CHECKING:
    from fewview.episodes.episodes import Episodes
    from fewview.evaluate._grid import Setting
    from fewview.methods.estimator.method import Method

# Queries that can be opened, and classes that a square of confusions has.
MOST_QUESTIONS, MOST_CLASSES = 12, 14
OPENED = "samples"  # the section's name in the address
NOT_KEPT = "probabilities were not kept; 'fewview bench --keep-probabilities' keeps them"


@dataclass
class Counts:
    """What the queries of one method add up to."""

    asked: Any  # [views + 1], queries by number of views present
    right: Any
    said: Any  # [classes, classes], true by said
    both: Any  # [classes, classes], queries of a class in tasks that have the other one too


@dataclass(frozen=True)
class Closer:
    """A closer look at one panel."""

    views: tuple[str, ...]
    classes: tuple[str, ...]
    counts: dict[str, Counts]
    method: str = ""  # whose wrong answers are listed
    eta: float = 0.0
    questions: list[Question] = field(default_factory=list)
    n_wrong: int = 0
    n_asked: int = 0


def look_closer(
    panel: Panel,
    store: Store,
    data_dir: str | None = None,
    tell: Callable[[str], None] | None = None,
) -> Closer | str:
    """Count the queries of a panel and open the most confidently wrong ones, or say why not."""
    results = [r for some in panel.results.values() for rs in some.values() for r in rs]
    try:
        setting = setting_of(panel.cell, data_dir)
        drawn = _Drawn(setting, panel.cell)
        counts = _count(panel, store, drawn)
        if not counts:
            raise FewviewError(NOT_KEPT)
        if tell is not None:
            tell(f"queries of {panel.title}, {len(results)} cells")
        closer = Closer(tuple(setting.source.data.view_names), drawn.classes, counts)
        with warnings.catch_warnings():
            # Whoever ran the method was told already.
            warnings.simplefilter("ignore", FewviewWarning)
            return _with_questions(closer, panel, store, drawn)
    except FewviewError as error:
        return str(error)


class _Drawn:
    """The episodes of cells, drawn again."""

    def __init__(self, setting: Setting, cell: Cell) -> None:
        self.setting = setting
        self._known: dict[Any, Episodes] = {}
        self.classes = tuple(str(label) for label in setting.source.data.classes.tolist())

    def rows(self, cell: Cell) -> Any:
        from fewview.evaluate._grid import row_numbers

        return row_numbers(self.setting.source.data, cell.novel)

    def episodes(self, cell: Cell) -> Episodes:
        from fewview.episodes.sampler import EpisodeSampler

        place = (cell.novel, cell.eta, cell.start, cell.stop)
        if place not in self._known:
            novel = self.setting.source.data[self.rows(cell)]
            task = replace(self.setting.task, eta=cell.eta)
            sampler = EpisodeSampler(novel, task, seed=cell.seed, name=cell.dataset)
            self._known[place] = sampler.draw(cell.start, cell.stop)
        return self._known[place]

    def names(self, episodes: Episodes) -> Any:
        """Which of all classes the classes of the tasks are, [tasks, way]."""
        place = {name: k for k, name in enumerate(self.classes)}
        return np.array([place[str(n)] for n in episodes.class_names])[episodes.classes]


def _count(panel: Panel, store: Store, drawn: _Drawn) -> dict[str, Counts]:
    whose = {
        result.cell.hash: (name, result.cell)
        for name, by_eta in panel.results.items()
        for results in by_eta.values()
        for result in results
    }
    n_views, n_classes = drawn.setting.source.data.n_views, len(drawn.classes)
    out: dict[str, Counts] = {}
    for key, found in store.answers(whose):
        name, cell = whose[key]
        episodes = drawn.episodes(cell)
        if not np.array_equal(episodes.query_labels, found.labels):
            raise FewviewError("the episodes drawn here are not those that were answered")
        here = out.setdefault(
            name,
            Counts(*(np.zeros(n_views + 1) for _ in range(2)),
                   *(np.zeros((n_classes, n_classes)) for _ in range(2))),
        )  # fmt: skip
        said = np.asarray(found.scores).argmax(axis=-1)
        views = episodes.query_mask.sum(axis=-1)
        np.add.at(here.asked, views, 1)
        np.add.at(here.right, views, said == found.labels)
        classes = drawn.names(episodes)
        true = np.take_along_axis(classes, found.labels, axis=1)
        np.add.at(here.said, (true, np.take_along_axis(classes, said, axis=1)), 1)
        np.add.at(here.both, (true[..., None], classes[:, None, :]), 1)
    return {name: out[name] for name in panel.methods if name in out}


# ---------------------------------------------------------------------- queries one by one


def _with_questions(closer: Closer, panel: Panel, store: Store, drawn: _Drawn) -> Closer:
    eta = panel.etas[len(panel.etas) // 2]
    try:
        name, _, method = runnable(panel, eta)
    except FewviewError:
        return closer
    results = {r.cell.hash: r for r in panel.results[name][eta]}
    wrong, n_asked = [], 0
    for key, found in store.answers(results):
        p = _probabilities(found.scores)
        n_asked += found.labels.size
        for t, q in zip(*np.nonzero(p.argmax(axis=-1) != found.labels), strict=True):
            wrong.append((float(p[t, q].max()), key, int(t), int(q)))
    wrong.sort(key=lambda one: (-one[0], *one[1:]))
    top: list[tuple[float, str, int, int]] = []
    samples: set[int] = set()
    for one in wrong:  # a sample that several tasks get wrong is shown once
        cell = results[one[1]].cell
        sample = int(drawn.rows(cell)[drawn.episodes(cell).query[one[2], one[3]]])
        if sample not in samples and len(top) < MOST_QUESTIONS:
            samples.add(sample)
            top.append(one)
    others = _others(panel, eta, store, {results[key].cell.split for _, key, _, _ in top})
    tasks: dict[Any, Any] = {}
    questions = [
        _question(panel.title, number, results[key], t, q, drawn, name, method, tasks, others)
        for number, (_, key, t, q) in enumerate(top)
    ]
    return replace(closer, method=name, eta=eta, questions=questions, n_wrong=len(wrong),
                   n_asked=n_asked)  # fmt: skip


def _probabilities(scores: Any) -> Any:
    p = np.exp(np.asarray(scores, dtype=float) - np.max(scores, axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def _others(panel: Panel, eta: float, store: Store, splits: set[int]) -> dict[Any, Any]:
    """Probabilities of all methods on some class splits, {(method, split): ...}."""
    whose = {
        result.cell.hash: (name, result.cell.split)
        for name in panel.methods
        for result in panel.results[name].get(eta, [])
        if result.cell.split in splits
    }
    return {whose[key]: _probabilities(found.scores) for key, found in store.answers(whose)}


def _question(
    place: str, number: int, result: Result, t: int, q: int, drawn: _Drawn, name: str,
    method: Method, tasks: dict[Any, Any], others: dict[Any, Any],
) -> Question:  # fmt: skip
    cell, data = result.cell, drawn.setting.source.data
    episodes, rows = drawn.episodes(cell)[t], drawn.rows(cell)
    if (cell.split, t) not in tasks:
        tasks[cell.split, t] = _explained(drawn.setting, cell, method, episodes, rows, tasks)
    batch, reasons = tasks[cell.split, t]
    classes = [str(episodes.class_names[k]) for k in episodes.classes[0]]
    mine = others[name, cell.split]
    true, said = int(episodes.query_labels[0][q]), int(mine[t, q].argmax())
    mask, support_mask = episodes.query_mask[0][q], episodes.support_mask[0]
    distances = _distances(batch, q)
    supports = rows[episodes.support[0]]
    labels = episodes.support_labels[0]
    near = {c: min(np.flatnonzero(labels == c), key=lambda k: distances[k]) for c in (said, true)}
    row = int(rows[episodes.query[0][q]])
    views: list[dict[str, Any]] = []
    for v, view in enumerate(data.view_names):

        def shown(what: str, at: int, has: bool, view: str = view) -> dict[str, Any]:
            digits, line = digits_of(data.views[view][at], *_span(data, view)) if has else ("", 0)
            return {"what": what, "digits": digits, "line": line}

        evidence = float(reasons.contributions[q, v, said] - reasons.contributions[q, v, true])
        without = int(reasons.decided_without[q, v])
        views.append(
            {
                "name": view,
                "pictures": [
                    shown("this sample", row, bool(mask[v])),
                    *(shown(f"support of {classes[c]}", int(supports[near[c]]),
                            bool(support_mask[near[c], v])) for c in (said, true)),
                ],
                "evidence": evidence if mask[v] else None,
                "without": classes[without] if mask[v] and without >= 0 else "",
            }
        )  # fmt: skip
    here = {other: found[t, q] for (other, split), found in others.items() if split == cell.split}
    right = [other for other, found in here.items() if found.argmax() == true]
    order = [said, true, *(k for k in range(len(classes)) if k not in (said, true))]
    spoken = {view["name"]: view["evidence"] for view in views if view["evidence"] is not None}
    answers = {view["name"]: view["without"] for view in views if view["without"]}
    pull = reasons.together[q, said] - reasons.together[q, true] if reasons.together.size else 0.0
    words = [
        _why(spoken, float(pull), answers, classes[said], classes[true]),
        f"Class split {cell.split}, episode {cell.start + t}, missing rate {cell.eta:.3g}. "
        f"Right here: {listed(right) if right else 'no method'}.",
    ]
    return Question(
        id=f"query-{name_of(place)}-{number}",
        sample=_identity(data, row),
        sure=_sure(float(mine[t, q, said])),
        has=[bool(has) for has in mask],
        right=right,
        words=words,
        views=views,
        classes=[classes[k] for k in order],
        probabilities=[
            (look_of(other).key, other, [f"{found[k]:.2f}" for k in order])
            for other, found in here.items()
        ],
        supports=[
            [_identity(data, int(supports[k])), classes[int(labels[k])],
             f"{distances[k]:.2f}" if np.isfinite(distances[k]) else "no view shared",
             listed([v for v, a, b in zip(data.view_names, mask, support_mask[k], strict=True)
                     if a and b]) or "-"]
            for k in np.argsort(distances, kind="stable")[:6]
        ],
    )  # fmt: skip


def _why(
    evidence: dict[str, float], pull: float, without: dict[str, str], said: str, true: str
) -> str:
    """Why a query was got wrong, in a sentence: its own views, the other queries, or one view.

    `without` has the answer without every view.
    """
    wrong = [name for name, value in evidence.items() if value > 0]
    own = sum(evidence.values())
    strongest = max(evidence, key=lambda name: evidence[name])
    count = f"{len(wrong)} of its {len(evidence)}"
    if len(wrong) == len(evidence):
        count = f"All {len(wrong)} of its" if len(wrong) > 1 else "Its only"
    verb = "speaks" if len(wrong) == 1 else "speak"
    noun = "view" if len(evidence) == 1 else "views"
    text = f"{count} {noun} {verb} for {said} rather than {true}"
    if wrong:
        text += f", most of all {strongest} ({evidence[strongest]:+.2f})"
    text += f"; its own views add up to {own:+.2f} in log-odds"
    if pull:
        text += f", the other queries of the task {pull:+.2f}"
    turns = [name for name, answer in without.items() if answer == true]
    if turns:
        return f"{text}. Without {listed(turns, 4)} the answer would be right."
    elsewhere = [name for name, answer in without.items() if answer != said]
    if elsewhere:
        other = listed(list(dict.fromkeys(without[name] for name in elsewhere)), 3)
        return f"{text}. Without {listed(elsewhere, 4)} it would be {other}: wrong too."
    return f"{text}. No single view decides: without any one of them the answer would be the same."


def _sure(p: float) -> str:
    """A probability in percent, with as many digits as tell it from certainty."""
    if p >= 1 - 1e-6:
        return "over 99.9999 %"
    digits = max(1, int(np.floor(-np.log10(1 - p))) - 1)
    return f"{np.floor(100 * p * 10**digits) / 10**digits:.{digits}f} %"


def _identity(data: Any, row: int) -> str:
    return str(row if data.ids is None else data.ids[row])


def _span(data: Any, view: str) -> tuple[Any, Any]:
    """Lowest and highest values of a view: of all its columns where they are alike."""
    block = data.views[view]
    low, high = np.nanmin(block, axis=0), np.nanmax(block, axis=0)
    spread = high - low
    if spread.max() <= 4 * max(
        float(np.median(spread[spread > 0])) if (spread > 0).any() else 0, 0
    ):
        return np.full_like(low, low.min()), np.full_like(high, high.max())
    return low, high


def _explained(
    setting: Setting, cell: Cell, method: Method, episodes: Episodes, rows: Any, tasks: Any
) -> tuple[Any, Any]:
    """The task as tensors, and what every view contributed."""
    from fewview.evaluate._grid import rows_of
    from fewview.evaluate._tuning import learn_for

    novel = setting.source.data[rows]
    if ("fitted", cell.split) not in tasks:
        base = rows_of(setting.base.data, cell.base_classes)
        task = replace(setting.task, eta=cell.eta)
        tasks["fitted", cell.split] = learn_for(method, base, novel, task)
    fitted = tasks["fitted", cell.split]
    (batch,) = method.batches(method.tensors(novel, fitted), episodes)
    return batch, method.explain_batch(batch, fitted)


def _distances(batch: Any, q: int) -> Any:
    """Root mean square distance of a query to every support over the views that both have."""
    total, count = np.zeros(batch.n_support), np.zeros(batch.n_support)
    for v, (support, query) in enumerate(zip(batch.support, batch.query, strict=True)):
        both = (batch.support_mask[0, :, v] & batch.query_mask[0, q, v]).cpu().numpy()
        apart = ((support[0] - query[0, q]) ** 2).mean(-1).cpu().numpy()
        total += np.where(both, apart, 0.0)
        count += both
    return np.where(count > 0, np.sqrt(total / np.maximum(count, 1)), np.inf)


# ---------------------------------------------------------------------- the section


def opened_queries(contents: Contents, found: Sequence[Closer | str]) -> Section | None:
    """The most confidently wrong queries of the best method, each with everything that says why."""
    parts = [
        Section(
            panel.title,
            [
                f"{one.method}, the best method that can be run again here, is wrong about "
                f"{one.n_wrong:,} of {one.n_asked:,} queries at missing rate {one.eta:.3g}. These "
                f"are the {len(one.questions)} samples that it is wrong about and surest of, the "
                "surest first. Press one to see its views beside the supports, what each view "
                "says, and what the other methods say."
            ],
            questions=one.questions,
        )
        for panel, one in zip(contents.panels, found, strict=False)
        if isinstance(one, Closer) and one.questions
    ]
    return Section("Wrong answers, and why", parts=parts, id=OPENED) if parts else None


def wrong_answers(
    contents: Contents, found: Sequence[Closer | str], looks: dict[str, Look]
) -> Section:
    """Accuracy by views present, and confusion by class."""
    words, parts = [], []
    if not found:
        words.append("Left out: this page was made without reading the data again.")
    for panel, one in zip(contents.panels, found, strict=False):
        if isinstance(one, str):
            words.append(f"{panel.title}: left out, {one.rstrip('.')}.")
            continue
        told = [
            "Squares: rows are true classes, columns what was said, among tasks that have both. "
            "The diagonal is right answers; wrong ones are drawn three times as strong."
        ]
        figures = [_by_views(panel, one, looks), *_confusions(panel, one)]
        parts.append(Section(panel.title, told, figures))
    return Section("Where methods go wrong", words, parts=parts, id="wrong")


def _by_views(panel: Panel, one: Closer, looks: dict[str, Look]) -> Drawn:
    series, values = [], []
    for name, counts in one.counts.items():
        points = [
            Point(k, 100 * float(counts.right[k] / n), words=(
                f"{name}, {k} of {len(one.views)} views: {100 * counts.right[k] / n:.1f} % of "
                f"{int(n)} queries"))
            for k, n in enumerate(counts.asked) if n >= 20
        ]  # fmt: skip
        values += [p.y for p in points]
        series.append(Series(name, looks[name], tuple(points)))
    counts_there = [p.x for line in series for p in line.points]
    low, high = min(counts_there, default=1), max(counts_there, default=1)
    ticks = tuple(float(k) for k in range(int(low), int(high) + 1))
    across = Scale("views that the query has", low, high, pad=0.04, ticks=ticks)
    up = Scale("accuracy (%)", min(values, default=0), max(values, default=100), pad=0.05)
    best = series[0]
    return picture(
        chart(series, across, up, height=320),
        "Queries of all missing rates and class splits by how many views they have; points of "
        "fewer than 20 queries are not drawn.",
        title=f"Accuracy against the number of views present on {panel.title}",
        description=(
            f"{best.name} goes from {best.points[0].y:.0f} % with {best.points[0].x:g} to "
            f"{best.points[-1].y:.0f} % with {best.points[-1].x:g} of {len(one.views)} views."
            if best.points else "Too few queries."
        ),
        series=series,
        axes=(across.name, up.name),
    )  # fmt: skip


def _confusions(panel: Panel, one: Closer) -> list[Drawn]:
    errors = np.sum([c.said - np.diag(np.diag(c.said)) for c in one.counts.values()], axis=0)
    seen = np.sum([c.both for c in one.counts.values()], axis=0).any(axis=1)
    most = np.argsort(-(errors.sum(0) + errors.sum(1)), kind="stable")
    chosen = np.sort([k for k in most if seen[k]][:MOST_CLASSES])
    names = [one.classes[k] for k in chosen]
    figures = []
    for name, counts in one.counts.items():
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = (counts.said / counts.both)[np.ix_(chosen, chosen)]
        off = np.where(np.eye(len(names), dtype=bool), -1.0, np.nan_to_num(shares))
        true, said = np.unravel_index(int(off.argmax()), off.shape)
        told = f"Most often {names[true]} is taken for {names[said]}: {100 * off.max():.0f} %."
        title = f"Confusion of {name} on {panel.title}"
        rows = [
            [names[i], *([names[j], round(float(shares[i, j]), 3)] for j in range(len(names))
                         if np.nan_to_num(shares[i, j]) >= 0.005)]
            for i in range(len(names))
        ]  # fmt: skip
        figures.append(
            Drawn(
                heat(
                    shares, names, f"{title}. Rows are true classes, columns what was said. {told}"
                ),
                told,
                name_of(title),
                as_attribute([["said", "share"], *rows]),
                switch=look_of(name).key,
                title=name,
            )
        )
    return figures
