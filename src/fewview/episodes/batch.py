"""Tasks as tensors: what a method gets to see.

`ViewTensors` is a data set on a device; `EpisodeBatch` is a stack of tasks gathered from it. Inside
a batch a missing view is a row of zeros with `mask` False, never NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewview.episodes.episodes import Episodes
from fewview.errors import FewviewError
from fewview.numerics.iterate import map_tensors
from fewview.samples._data import MultiViewData
from fewview.samples._scaling import on_device


@dataclass(frozen=True)
class EpisodeBatch:
    """A stack of tasks.

    Attributes:
        support: per view a float tensor [tasks, n_support, width], zeros where missing.
        query: per view a float tensor [tasks, n_query, width], zeros where missing.
        support_mask: bool [tasks, n_support, V].
        query_mask: bool [tasks, n_query, V].
        support_labels: int64 [tasks, n_support], 0..way-1.
        query_labels: int64 [tasks, n_query] or None; for scoring only, methods never see it.
        seeds: int64 [tasks] (the bits of the uint64 seeds).
        way: number of classes.
        view_names: names of the views.
        support_weights: float [tasks, n_support] or None (all one): an anchor may count for less
            than one support, the mean of a base class for more.
        has_nan: whether cells of present views may be NaN.
    """

    support: tuple[Tensor, ...]
    query: tuple[Tensor, ...]
    support_mask: Tensor
    query_mask: Tensor
    support_labels: Tensor
    query_labels: Tensor | None
    seeds: Tensor
    way: int
    view_names: tuple[str, ...]
    support_weights: Tensor | None = None
    has_nan: bool = False

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return int(self.seeds.shape[0])

    @property
    def n_support(self) -> int:
        """Supports per task."""
        return int(self.support_labels.shape[1])

    @property
    def n_query(self) -> int:
        """Queries per task."""
        return int(self.query_mask.shape[1])

    @property
    def n_views(self) -> int:
        """Number of views."""
        return len(self.support)

    @property
    def dtype(self) -> torch.dtype:
        """Float type of the features."""
        return self.support[0].dtype

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.support[0].device

    def one_hot(self) -> Tensor:
        """Membership of supports in classes, [tasks, n_support, way], weighted if they are."""
        classes = torch.arange(self.way, device=self.support_labels.device)
        members = (self.support_labels[..., None] == classes).to(self.dtype)
        if self.support_weights is None:
            return members
        return members * self.support_weights[..., None]

    def concatenated(self) -> tuple[Tensor, Tensor]:
        """All views side by side: supports [tasks, n_support, D], queries [tasks, n_query, D]."""
        return side_by_side(self.support), side_by_side(self.query)

    def tasks(self, key: Any) -> EpisodeBatch:
        """Return some of the tasks (a slice or an index)."""
        chosen: EpisodeBatch = map_tensors(self, lambda tensor: tensor[key])
        return chosen

    def with_queries(self, rows: Tensor) -> EpisodeBatch:
        """The same tasks with some of their queries, int64 [n]."""
        labels = None if self.query_labels is None else self.query_labels[:, rows]
        query = tuple(view[:, rows] for view in self.query)
        return replace(self, query=query, query_mask=self.query_mask[:, rows], query_labels=labels)

    def one_by_one(self, rows: Tensor) -> EpisodeBatch:
        """Of the only task, some queries (int64 [n]) as tasks of their own, with all supports."""
        return replace(
            self.with_queries(rows[:0]).tasks(torch.zeros_like(rows)),
            query=tuple(view[0, rows][:, None] for view in self.query),
            query_mask=self.query_mask[0, rows][:, None],
            query_labels=None if self.query_labels is None else self.query_labels[0, rows][:, None],
        )

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> EpisodeBatch:
        """Move to a device and, for features, a float type."""
        moved: EpisodeBatch = map_tensors(
            self, lambda x: x.to(device, dtype if x.is_floating_point() else x.dtype)
        )
        return moved


def latent_batch(
    batch: EpisodeBatch,
    support: Tensor,
    query: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
) -> EpisodeBatch:
    """The tasks with one complete view `latent`, as a method's `embed` returns them.

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


@dataclass(frozen=True)
class ViewTensors:
    """A whole data set as tensors on one device, from which batches of tasks are gathered.

    Attributes:
        views: per view a float tensor [n_samples, width], zeros where missing; parts of one tensor,
            so that rows of all views are copied at once.
        mask: bool [n_samples, V].
        view_names: names of the views.

    Example:
        >>> from fewview import EpisodeSampler, TaskSpec
        >>> data = MultiViewData(np.ones((20, 3)), labels=np.repeat([0, 1], 10))
        >>> episodes = EpisodeSampler(data, TaskSpec(way=2, queries=4)).draw(0, 6)
        >>> batch = ViewTensors.of(data).gather(episodes)
        >>> batch.support[0].shape, batch.query[0].shape
        (torch.Size([6, 2, 3]), torch.Size([6, 8, 3]))
    """

    views: tuple[Tensor, ...]
    mask: Tensor
    view_names: tuple[str, ...]

    @cached_property
    def has_nan(self) -> bool:
        """Whether a cell may be NaN: sums tell, and one look at them."""
        return bool(torch.stack([view.sum() for view in self.views]).isnan().any())

    @cached_property
    def whole(self) -> Tensor:
        """All views side by side, [n_samples, all widths]."""
        return side_by_side(self.views)

    @classmethod
    def of(
        cls,
        data: MultiViewData,
        device: Any = "cpu",
        dtype: torch.dtype = torch.float32,
        change: Callable[[str, Any], Any] | None = None,
    ) -> ViewTensors:
        """Copy a data set to a device, zeros in place of missing rows; NaN cells stay NaN.

        A `change` gets the name and the block of every view, on a GPU a tensor there, and gives
        the rows that are taken instead.
        """
        widths = list(data.view_dims.values())
        whole = torch.empty(len(data), sum(widths), device=device, dtype=dtype)
        views = torch.split(whole, widths, dim=1)
        for rows, (view, block), present in zip(
            views, data.views.items(), data.mask.T, strict=True
        ):
            there: Any = on_device(block, device)
            if change is not None:
                there = change(view, there)
            rows.copy_(there if isinstance(there, Tensor) else torch.tensor(there))
            if not present.all():
                rows[torch.tensor(~present, device=device)] = 0
        return cls(tuple(views), torch.tensor(data.mask, device=device), data.view_names)

    def gather(self, episodes: Episodes) -> EpisodeBatch:
        """Build the tensors of some tasks."""
        if episodes.view_names != self.view_names:
            raise FewviewError(
                f"episodes are about views {episodes.view_names}, the data have {self.view_names}"
            )
        last = max(int(episodes.support.max()), int(episodes.query.max()))
        if last >= len(self.mask):
            raise FewviewError(
                f"episodes speak of row {last}, the data have {len(self.mask)} rows; they were "
                "drawn from another data set"
            )

        def here(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(array).to(self.mask.device)

        support, support_mask = here(episodes.support), here(episodes.support_mask)
        query, query_mask = here(episodes.query), here(episodes.query_mask)
        return EpisodeBatch(
            support=self._rows(support, support_mask),
            query=self._rows(query, query_mask),
            support_mask=support_mask & self.mask[support],
            query_mask=query_mask & self.mask[query],
            support_labels=here(episodes.support_labels),
            query_labels=here(episodes.query_labels),
            seeds=here(episodes.seeds.view(np.int64)),
            way=episodes.way,
            view_names=self.view_names,
            has_nan=self.has_nan,
        )

    def _rows(self, index: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """Per view the samples [tasks, n, width] at positions [tasks, n], zeros where masked."""
        flat = index.reshape(-1)
        rows = _new_rows(flat.shape[0], self.whole, self.whole.shape[1])
        torch.index_select(self.whole, 0, flat, out=rows)
        found = torch.split(rows, [view.shape[1] for view in self.views], dim=1)
        gone = ~mask.reshape(-1, len(found))
        if rows.device.type != "cpu":  # to count them would be to wait for the device
            for view, part in enumerate(found):
                part.masked_fill_(gone[:, view, None], 0.0)
        else:  # numpy is quicker there
            views, where = np.nonzero(gone.numpy().T)
            ends = np.searchsorted(views, range(len(found) + 1)).tolist()
            for part, (low, high) in zip(found, pairwise(ends), strict=True):
                if low < high:
                    part.numpy()[where[low:high]] = 0.0
        return tuple(part.reshape(*index.shape, part.shape[1]) for part in found)


def side_by_side(views: Sequence[Tensor]) -> Tensor:
    """Views [..., width] as one, [..., all widths]; nothing is copied where they lie so already."""
    first = views[0]
    if len(views) == 1:
        return first
    width = sum(view.shape[-1] for view in views)
    if _adjacent(views, width):
        shape = (*first.shape[:-1], width)
        return first.as_strided(shape, first.stride(), first.storage_offset())
    shape = first.shape[:-1]
    rows = _new_rows(shape.numel(), first, width)
    return torch.cat(tuple(views), dim=-1, out=rows.reshape(*shape, -1))


def _adjacent(views: Sequence[Tensor], width: int) -> bool:
    """Whether views are all the parts, in order, of one tensor that is so wide."""
    first = views[0]
    if first.dim() < 2 or first.stride(-1) != 1 or first.stride(-2) != width:
        return False
    end, store = first.storage_offset(), first.untyped_storage().data_ptr()
    for view in views:
        alike = view.stride() == first.stride() and view.shape[:-1] == first.shape[:-1]
        if not alike or view.storage_offset() != end or view.untyped_storage().data_ptr() != store:
            return False
        end += view.shape[-1]
    return True


def _new_rows(count: int, block: Tensor, width: int) -> Tensor:
    """Make an uninitialised tensor [count, width] of the kind of `block`."""
    shape = (count, width)
    if block.device.type == "cpu" and block.dtype in (torch.float32, torch.float64):
        # numpy asks the system for huge pages, torch does not: filling new memory is about ten
        # times faster, and gathering tasks is nothing but that.
        kind = np.float32 if block.dtype == torch.float32 else np.float64
        return torch.from_numpy(np.empty(shape, dtype=kind))
    return torch.empty(shape, dtype=block.dtype, device=block.device)
