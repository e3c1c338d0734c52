"""The contract of a method: what an author writes, and how many tasks are run with it.

A method implements one function, `scores`, over a batch of tasks, and may implement `prepare` (what
is learnt from base classes) and `embed` (its own space). Scaling, padding, splitting a batch to fit
memory, device and dtype are here and nowhere else. The estimator face is in `_method.py`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import groupby
from numbers import Integral
from threading import Lock
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fewview.engine._explaining import Explanation, explain_by_leaving_out
from fewview.engine._parameters import Parameters, choose
from fewview.engine._state import DTYPES, Answered, Prepared, State, Tags, Work
from fewview.episodes._sampler import Episodes
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError, FewviewWarning, shorten
from fewview.ground._memory import LRUCache, cached
from fewview.numerics._batch import CACHED, EpisodeBatch, ViewTensors
from fewview.numerics._distances import nearest_support
from fewview.numerics._padding import FROM_QUERIES, KEEPING, PADDINGS, pad
from fewview.samples._data import MultiViewData
from fewview.samples._inputs import as_data
from fewview.samples._scaling import SCALINGS, ViewScaling, fit_scaling

# What `--tune` tries, beside a method's own settings.
TUNED: dict[str, tuple[Any, ...]] = {
    "scaling": ("scale", "standard", "standard+unit", "by-width"),
    "padding": ("episode", "zero"),
}
# The same for methods that answer queries one by one: no filling that looks at the others.
INDUCTIVE: dict[str, tuple[Any, ...]] = {**TUNED, "padding": ("support", "base", "zero")}
# GiB of one batch of tasks by kind of device, where nothing is said. On a GPU small batches are
# nothing but launches; on a CPU large ones leave the cache.
BUDGETS = {"cpu": 1.0, "cuda": 16.0}


class Contract(Parameters, ABC):
    """What a method is to everything that runs it; see `Method` for the parameters."""

    base: Any = None
    scaling: str = "scale"
    padding: str = "episode"
    device: str = "cpu"
    dtype: str = "float32"
    max_memory: float | None = None
    random_state: Any = 0

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    tags: ClassVar[Tags] = Tags()
    # What `padding` may be; with one of `KEEPING`, gaps stay gaps.
    paddings: ClassVar[tuple[str, ...]] = PADDINGS
    # Settings that `--tune` may choose from on base classes: parameter -> values.
    tune_grid: ClassVar[dict[str, tuple[Any, ...]]] = {}
    # What `--scaling paper` and `--padding paper` mean for this method.
    paper_settings: ClassVar[dict[str, str]] = {"scaling": "scale"}

    # ------------------------------------------------------------------ what a method implements

    @abstractmethod
    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Unnormalised log-probabilities [tasks, n_query, way] of the queries."""

    def prepare(self, base: MultiViewData, task: TaskSpec, seed: int) -> State:
        """Learn from the scaled base set; nothing by default."""
        return State()

    def prepare_each(
        self, base: MultiViewData, tasks: Sequence[TaskSpec], seed: int
    ) -> list[State]:
        """`prepare` for several tasks; a method that trains networks may do so for all at once."""
        return [self.prepare(base, task, seed) for task in tasks]

    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """The same tasks with one view `latent`; by default the padded views side by side."""
        support, query = batch.concatenated()
        return latent_batch(batch, support, query, batch.support_labels)

    def validate(self) -> None:
        """Check hyper-parameters; called before any work. Subclasses add their own checks."""
        self.check_types()
        choose("scaling", self.scaling, SCALINGS)
        if self.padding in KEEPING and self.padding not in self.paddings:
            raise FewviewError(
                f"padding is {self.padding!r}, which leaves gaps, and {type(self).__name__} has no "
                f"such setting; use one of {', '.join(self.paddings)}, or a method that has it "
                "(cpm, cpm-gan, icmsc, completer)"
            )
        choose("padding", self.padding, self.paddings)
        choose("dtype", self.dtype, tuple(DTYPES))
        state = self.random_state
        known = isinstance(state, (Integral, np.random.RandomState)) or state is None
        if not known or isinstance(state, bool):
            raise FewviewError(
                f"random_state is {state!r}; it must be a whole number, None or a RandomState"
            )
        if self.max_memory is not None and not self.max_memory > 0:
            raise FewviewError(f"max_memory is {self.max_memory}; give a positive number of GiB")
        _ = self.torch_device  # an impossible device is an error now, not when it is used

    @property
    def queries_together(self) -> str:
        """Whether answers depend on the other queries: "yes", "by padding", or "-" where not.

        With these parameters: a method that takes queries one by one is still told something about
        the others where gaps are filled from them.
        """
        if self.tags.transductive and getattr(self, "transductive", True):
            return "yes"
        return "by padding" if self.pads_from_queries else "-"

    @property
    def use_of_base(self) -> str:
        """What base classes are to a method: "needed", "learns from them if given", "for scaling".

        A network that may do without base classes is trained on the task instead, and who imputes
        nothing needs no donors.
        """
        if self.tags.needs_base:
            return "needed"
        made_of = [part for part in vars(self).values() if isinstance(part, Contract)]
        without = self.tags.trained or getattr(self, "impute", "") == "none"
        learns = type(self).prepare is not Contract.prepare and not without
        if made_of:
            learns = any(part.use_of_base != "for scaling" for part in made_of)
        return "learns from them if given" if learns else "for scaling"

    @property
    def pads_from_queries(self) -> bool:
        """Whether gaps are filled from the queries of the task."""
        return self.padding in FROM_QUERIES and not self.tags.handles_missing

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Working memory of one task; sets the batch size. Depends on shapes only."""
        return 4 * (n_support + n_query) * sum(dims) * self.torch_dtype.itemsize

    # ------------------------------------------------------------------ what some methods replace

    def prepare_alone(self, rows: MultiViewData, task: TaskSpec, seed: int) -> State:
        """Do without base classes; nothing by default.

        `rows` are all scaled samples there are: unlabelled ones, if any were given, and the
        supports with their labels.
        """
        return State()

    def told_by_queries(
        self, support: MultiViewData, query: MultiViewData, task: TaskSpec
    ) -> Prepared | None:
        """What supports and queries tell where nothing else does; None: queries tell nothing."""
        return None

    def start_statistics(self, sample: MultiViewData) -> Any:
        """Empty statistics that a base set in parts is added to (`update`, `merge`), or None.

        `sample` are scaled samples that fix what must be known first.
        """
        if type(self).prepare is not Contract.prepare:
            raise self.cannot_stream()
        return None

    def cannot_stream(self) -> FewviewError:
        """The error of a method that needs all base samples at once."""
        return FewviewError(
            f"{type(self).__name__} cannot learn from a base set in parts; call fit_base with all "
            "of it (ugda, marginal, proto can)"
        )

    def prepare_statistics(
        self, statistics: Any, task: TaskSpec, seed: int, sample: MultiViewData | None = None
    ) -> State:
        """Make the state from statistics, as `prepare` makes it from samples.

        `sample` are scaled base samples, for what sums do not tell.
        """
        return State()

    @property
    def joins(self) -> bool:
        """Whether tasks of different cells go through one batch.

        On a GPU a batch costs its launches, whatever its size; on a CPU nothing is gained, and the
        digits of a cell do not depend on which others are computed.
        """
        return self.torch_device.type != "cpu" and not self.tags.trained

    def stack(self, states: Sequence[State]) -> State | None:
        """One state for tasks of different base sets, or None where they are scored one by one.

        `scores` then finds in `batch.states` which of them a task has. A method that learns
        nothing but the scaling has nothing to stack.
        """
        return states[0] if all(type(state) is State for state in states) else None

    def typicality(self, batch: EpisodeBatch, state: State) -> Tensor:
        """How well queries fit every class on a scale of its own, [tasks, n_query, way].

        Higher is better; unlike `scores`, it can be compared between queries, and it is what
        rejecting a query is decided by. By default, minus the partial distance to the nearest
        support of the class. The batch comes with its gaps.
        """
        return nearest_support(batch)

    def scores_alone(self, batch: EpisodeBatch, state: State) -> Tensor | None:
        """`scores` of every query as if it were the only one; None where there is no quick way.

        Methods that look at queries together may have one. Padding looks at all queries too.
        """
        tags = self.tags
        return None if tags.transductive or not tags.handles_missing else self.scores(batch, state)

    def explain_batch(self, batch: EpisodeBatch, prepared: Prepared) -> Explanation:
        """Reasons for one scaled task; by default, every view is left out in turn."""
        return explain_by_leaving_out(batch, lambda part: self.score_batch(part, prepared))

    def spell_parameter(self, name: str) -> str:
        """Turn a parameter as written on the command line into the one `set_params` knows."""
        return name

    # ------------------------------------------------------------------ many tasks at once

    def prepare_base(self, base: MultiViewData, task: TaskSpec) -> Prepared:
        """Scale the base set and learn from it; memoised by what the answer depends on."""
        self.validate()
        prepared: Prepared = learn_base(self, base, task)
        return prepared

    def prepare_rows(self, rows: MultiViewData, task: TaskSpec) -> Prepared:
        """Scale unlabelled samples, supports or both and learn from them what they tell."""
        device = self.torch_device
        scaling = fit_scaling(rows, self.scaling, device)
        scaled = scaling.transform(rows, self.dtype, self.tags.reads_empty_cells, device)
        state = self.prepare_alone(scaled, task, self.random_state)
        return Prepared(scaling, None, state.to(self.torch_device, self.torch_dtype), rows[:0])

    def prepare_for(self, base: MultiViewData, novel: MultiViewData, task: TaskSpec) -> Prepared:
        """What an evaluation lets a method learn before it is given tasks of the novel samples.

        That is the base set, and for a method that says so the novel samples without their labels.
        """
        if not self.tags.learns_novel:
            return self.prepare_base(base, task)
        self.validate()
        start = perf_counter()
        prepared = self.prepare_rows(novel.with_labels(None), task)
        return replace(prepared, seconds=perf_counter() - start)

    def scaled(self, data: MultiViewData, prepared: Prepared, what: str = "data") -> ViewTensors:
        """Data (`what` in messages) in the base set's order of views, scaled, on the device."""
        device, dtype = self.torch_device, self.torch_dtype
        known = data.like(prepared.reference, what)
        keep = self.tags.reads_empty_cells

        def scale(view: str, block: Any) -> Any:
            return prepared.scaling.apply(view, block, self.dtype, keep)

        return ViewTensors.of(known, device, dtype, scale)

    @property
    def takes_new_views(self) -> bool:
        """Whether views that base classes lack can be used: nothing but scaling is learnt."""
        return type(self).prepare is Contract.prepare and not self.tags.needs_base

    def with_new_views(self, prepared: Prepared, support: MultiViewData) -> Prepared:
        """What was learnt, and views that only supports have: scaled by what they say, and told."""
        known = prepared.reference.view_names
        new = [view for view in support.view_names if view not in known]
        if not new or not self.takes_new_views or all(v not in known for v in support.view_names):
            return prepared
        there = support.mask[:, [view in new for view in support.view_names]].any(axis=1)
        rows = support[there].select_views(new)
        scaling = fit_scaling(rows, prepared.scaling.rule)
        means = prepared.base_means
        if means is not None:
            scaled = scaling.transform(rows, self.dtype)
            means += _view_means(scaled, self.torch_dtype, self.torch_device)
        warnings.warn(
            f"view {shorten(map(repr, new))} is not in the base set; it is used, scaled by the "
            f"{_count(len(rows))} that have it{_meant(new, known)}",
            FewviewWarning,
            stacklevel=4,
        )
        merged = {
            name: getattr(prepared.scaling, name) | getattr(scaling, name)
            for name in ("shift", "factor", "rules", "means")
        }
        before = prepared.reference
        reference = MultiViewData.unchecked(
            {**before.views, **rows[:0].views},
            np.zeros((0, before.n_views + len(new)), dtype=bool),
            columns={**before.columns, **rows.columns},
            kinds={**before.kinds, **rows.kinds},
        )
        return replace(
            prepared,
            scaling=replace(prepared.scaling, **merged),
            base_means=means,
            reference=reference,
        )

    def batches(
        self, data: MultiViewData, episodes: Episodes, prepared: Prepared
    ) -> Iterator[tuple[Episodes, EpisodeBatch]]:
        """Episodes of unscaled data as scaled tasks without answers, so many as fit memory."""
        tensors, _ = kept_tensors(self, data, prepared)
        size = self.batch_size(
            episodes.support.shape[1], episodes.query.shape[1], prepared.reference.view_dims,
            episodes.way,
        )  # fmt: skip
        for start in range(0, len(episodes), size):
            part = episodes[start : start + size]
            yield part, tensors.gather(part).without_query_labels()

    def score_in_batches(self, works: Iterable[Work]) -> Iterator[Answered]:
        """Answer the tasks of many works in as few batches as fit memory.

        A work is asked for when there is room for it, so that what was learnt for others may be
        gone by then. Works of another shape, and where `joins` is False all of them, begin a batch
        of their own.
        """
        waiting: list[tuple[int, Episodes, Work]] = []
        room, before = 0, None
        for number, work in enumerate(works):
            episodes, dims = work.episodes, work.prepared.reference.view_dims
            shape = (episodes.support.shape[1], episodes.query.shape[1], dims, episodes.way)
            if waiting and (shape != before or not self.joins):
                yield from self._answer(waiting)
                waiting = []
            size, before, start = self.batch_size(*shape), shape, 0
            while start < len(episodes):
                room = room if waiting else size
                part = episodes[start : start + room]
                waiting.append((number, part, work))
                start, room = start + len(part), room - len(part)
                if room == 0:
                    yield from self._answer(waiting)
                    waiting = []
        if waiting:
            yield from self._answer(waiting)

    def _answer(self, waiting: Sequence[tuple[int, Episodes, Work]]) -> Iterator[Answered]:
        """Score one batch, of one state or of several."""
        tensors = [
            work.rows or kept_tensors(self, work.data, work.prepared)[0] for _, _, work in waiting
        ]
        begin = perf_counter()  # scaling is not scoring
        learnt = list({id(work.prepared.state): work.prepared for _, _, work in waiting}.values())
        of = [next(k for k, p in enumerate(learnt) if p.state is work.prepared.state)
              for _, _, work in waiting]  # fmt: skip
        # Tasks of the same rows one after another, those of several missing rates, at once.
        runs: list[tuple[int, EpisodeBatch]] = []
        for _, run in groupby(
            range(len(waiting)), key=lambda place: (id(tensors[place]), of[place])
        ):
            places = list(run)
            episodes = Episodes.join([waiting[place][1] for place in places])
            batch = tensors[places[0]].gather(episodes).without_query_labels()
            runs.append((of[places[0]], batch))
        if len(learnt) > 1 and (stacked := self._stacked(learnt)) is not None:
            runs = [(0, replace(b, states=torch.full_like(b.seeds, k))) for k, b in runs]
            learnt, of = [stacked], [0] * len(of)
        found_scores: dict[int, Tensor] = {}
        for k, prepared in enumerate(learnt):
            mine = [place for place, which in enumerate(of) if which == k]
            joined = EpisodeBatch.join([batch for which, batch in runs if which == k])
            scores = self.score_batch(joined, prepared).cpu()
            parts = torch.split(scores, [len(waiting[place][1]) for place in mine])
            found_scores |= dict(zip(mine, parts, strict=True))
        per_task = (perf_counter() - begin) / sum(len(part) for _, part, _ in waiting)
        for place, (number, part, _) in enumerate(waiting):
            yield Answered(number, part, found_scores[place], per_task * len(part))

    def _stacked(self, learnt: Sequence[Prepared]) -> Prepared | None:
        """Several prepared states as one, base means [states, width]; None where there is none."""
        state = self.stack([prepared.state for prepared in learnt])
        if state is None:
            return None
        means = [prepared.base_means for prepared in learnt]
        known = [found for found in means if found is not None]
        if 0 < len(known) < len(means):
            return None
        stacked = tuple(map(torch.stack, zip(*known, strict=True))) if known else None
        return replace(learnt[0], state=state, base_means=stacked)

    def score_episodes(self, data: MultiViewData, episodes: Episodes, prepared: Prepared) -> Tensor:
        """All of `score_in_batches` in one tensor, [tasks, n_query, way]."""
        found = self.score_in_batches([Work(data, episodes, prepared)])
        return torch.cat([answered.scores for answered in found])

    def score_batch(self, batch: EpisodeBatch, prepared: Prepared) -> Tensor:
        """Pad if needed and score one batch of scaled tasks: [tasks, n_query, way]."""
        padded = self.padded(batch, prepared)
        if padded.n_query == 0:
            return padded.support[0].new_zeros(padded.n_tasks, 0, padded.way)
        with torch.no_grad():
            out = self.scores(padded, prepared.state)
        name, wanted = type(self).__name__, (padded.n_tasks, padded.n_query, padded.way)
        if not isinstance(out, Tensor) or tuple(out.shape) != wanted:
            found = f"of shape {tuple(out.shape)}" if hasattr(out, "shape") else f"{out!r:.40}"
            raise TypeError(
                f"{name}.scores gave a {type(out).__name__} {found}; it must give a tensor "
                f"[tasks, queries, classes] = {wanted}"
            )
        if not bool(torch.isfinite(out).all()):
            raise FloatingPointError(
                f"{name} gave scores that are not finite: it divides by zero or takes the "
                "logarithm of zero somewhere; if it is a method of fewview, please report this"
            )
        return out

    def padded(self, batch: EpisodeBatch, prepared: Prepared) -> EpisodeBatch:
        """Fill missing views unless the method handles them itself."""
        if self.tags.handles_missing:
            return batch
        means = prepared.base_means
        if means is not None and batch.states is not None:
            means = tuple(mean[batch.states] for mean in means)
        return pad(batch, self.padding, means)

    def batch_size(self, n_support: int, n_query: int, dims: dict[str, int], way: int) -> int:
        """Tasks that go together: a function of shapes and `max_memory`, never of free memory."""
        need = self.bytes_per_task(n_support, n_query, tuple(dims.values()), way)
        most = int(self.batch_bytes // max(need, 1))
        if self.rows_in_cache and self.torch_device.type == "cpu":
            rows = (n_support + n_query) * sum(dims.values()) * self.torch_dtype.itemsize
            most = min(most, self.rows_in_cache // max(rows, 1))
        return max(1, most)

    @property
    def rows_in_cache(self) -> int:
        """Bytes of rows that a batch has at most on a CPU, 0 for no limit.

        What stays in a cache is read several times faster. Who takes many small steps loses more by
        taking them again for every batch.
        """
        return 0 if self.tags.iterative else CACHED

    @property
    def batch_bytes(self) -> float:
        """Bytes that a batch may take: `max_memory`, or what is usual on this kind of device.

        A GPU gives half of what it has at most: of its memory, not of what others left free.
        """
        if self.max_memory is not None:
            return self.max_memory * 2**30
        device = self.torch_device
        usual = BUDGETS.get(device.type, BUDGETS["cpu"]) * 2**30
        if device.type != "cuda":
            return usual
        return min(usual, torch.cuda.get_device_properties(device).total_memory / 2)

    # ------------------------------------------------------------------ where and in what numbers

    @property
    def torch_device(self) -> torch.device:
        """The device that `device` stands for on this machine."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
        except RuntimeError:
            raise FewviewError(f"device {self.device!r}: use 'cpu', 'cuda' or 'auto'") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            raise FewviewError("device 'cuda': no CUDA device is available here; use 'cpu'")
        return device

    @property
    def torch_dtype(self) -> torch.dtype:
        """`dtype` as torch knows it."""
        return DTYPES[self.dtype]


def _meant(new: list[str], known: tuple[str, ...]) -> str:
    """Ask about views that look misspelt."""
    near = [match for view in new for match in get_close_matches(view, known, n=1)]
    return f"; or did you mean {shorten(map(repr, near))}?" if near else ""


def _count(samples: int) -> str:
    return f"{samples} support{'s' if samples > 1 else ''}"


def latent_batch(
    batch: EpisodeBatch,
    support: Tensor,
    query: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
) -> EpisodeBatch:
    """The tasks with the single view `latent`, complete, for `embed`.

    Supports (or anchors) are [tasks, n, width], with labels and weights [tasks, n]; queries are
    [tasks, n_query, width].
    """
    return replace(
        batch,
        support=(support,),
        query=(query,),
        support_mask=torch.ones_like(support[..., :1], dtype=torch.bool),
        query_mask=torch.ones_like(query[..., :1], dtype=torch.bool),
        support_labels=labels,
        view_names=("latent",),
        support_weights=weights,
    )


def labelled_data(X: Any, y: Any, called: str, without: str) -> MultiViewData:
    """`as_data`, all of it labelled; the message `without` is for data without any labels."""
    data = as_data(X, y)
    if data.labels is None or not len(data.classes):
        raise FewviewError(without)
    unknown = np.flatnonzero(data.codes < 0)
    if len(unknown):
        raise FewviewError(f"{called} row {unknown[0]} has no label; label it or drop it")
    return data


# ------------------------------------------------------------------ what is kept between tasks


def _learn_key(method: Contract, base: MultiViewData, task: TaskSpec) -> Hashable:
    depends = tuple(
        (task.missing.describe(), task.eta) if name == "missing" else getattr(task, name)
        for name in sorted(method.tags.prepare_depends_on)
    )
    device = str(method.torch_device)
    # The class itself: one that was defined again in a notebook learns again.
    return base.fingerprint, type(method), method.key(), device, depends


@cached(LRUCache(16), key=_learn_key, lock=Lock())
def learn_base(method: Contract, base: MultiViewData, task: TaskSpec) -> Prepared:
    """Scale a base set and let a method learn from it; the same question is answered once."""
    return learn_together(method, base, (task,))[0]


def learn_together(
    method: Contract, base: MultiViewData, tasks: Sequence[TaskSpec]
) -> list[Prepared]:
    """What a method learns from a base set for several tasks, with its share of the seconds."""
    start = perf_counter()
    labelled_data(base, None, "base", "the base set has no labels; base classes must be known")
    keep = method.tags.reads_empty_cells
    device = str(method.torch_device)
    scaling, rows = scale_base(base, method.scaling, method.dtype, keep, device)
    states = method.prepare_each(rows, tasks, method.random_state)
    for state in states:
        if not isinstance(state, State):
            raise TypeError(
                f"{type(method).__name__}.prepare gave a {type(state).__name__}; it must give a "
                "State: a frozen dataclass under it, of tensors and plain values"
            )
    means = _view_means(rows, method.torch_dtype, method.torch_device)
    states = [state.to(method.torch_device, method.torch_dtype) for state in states]
    seconds = (perf_counter() - start) / len(tasks)
    return [Prepared(scaling, means, state, base[:0], seconds) for state in states]


@cached(
    LRUCache(4),
    key=lambda base, *how: (base.fingerprint, *how),
    lock=Lock(),
)
def scale_base(
    base: MultiViewData,
    rule: str,
    dtype: str = "float32",
    keep_empty: bool = False,
    device: str = "cpu",
) -> tuple[ViewScaling, MultiViewData]:
    """Fit a scaling on a base set and apply it; shared by methods that use the same one."""
    scaling = fit_scaling(base, rule, device)
    return scaling, scaling.transform(base, dtype, keep_empty, device)


def _kept_key(method: Contract, data: MultiViewData, prepared: Prepared) -> Hashable:
    keep = method.tags.reads_empty_cells
    return id(data), id(prepared.scaling), method.dtype, str(method.torch_device), keep


@cached(LRUCache(3), key=_kept_key, lock=Lock())
def kept_tensors(
    method: Contract, data: MultiViewData, prepared: Prepared
) -> tuple[ViewTensors, Any]:
    """`Contract.scaled`, shared by all cells of a data set, class split and scaling.

    What the key is made of is kept too, or another object might get its identity.
    """
    return method.scaled(data, prepared), (data, prepared.scaling)


def _view_means(data: MultiViewData, dtype: torch.dtype, device: Any) -> tuple[Tensor, ...]:
    means = []
    for index, block in enumerate(data.views.values()):
        present = data.mask[:, index]
        rows = block if present.all() else block[present]
        if np.isnan(rows).any():  # for a method that reads empty cells
            rows = np.where(np.isnan(rows), np.nan_to_num(np.nanmean(rows, axis=0)), rows)
        mean = rows.mean(axis=0, dtype=np.float64) if len(rows) else np.zeros(block.shape[1])
        means.append(torch.as_tensor(mean, dtype=dtype, device=device))
    return tuple(means)
