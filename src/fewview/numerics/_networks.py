"""Networks for many tasks at once: weights, steps, losses on observed cells, watching a training.

Networks are plain lists of tensors whose leading dimensions say whose they are ([tasks, ...] or
[tasks, views, ...]), so that one call trains as many networks as there are tasks. Weights start
from `_tensor_draws.py`, keyed by the task's seed and by what they are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fewview.episodes._task import TaskSpec
from fewview.ground._draws import combine, stream_key
from fewview.numerics._batch import EpisodeBatch, ViewTensors
from fewview.numerics._optimise import take_step
from fewview.numerics._tensor_draws import streams, uniform
from fewview.samples._data import MultiViewData

# ---------------------------------------------------------------------------- watching


@dataclass(frozen=True)
class Epoch:
    """How far a training is."""

    method: str
    stage: str  # what is being trained
    # Epochs of this stage done; where an epoch has many steps on all samples, 0 comes first and is
    # the loss before training.
    number: int
    total: int  # epochs of this stage
    # [tasks], before the last step; of one network for all tasks, [1]. Where a loss can be negative
    # it is counted from the least value it could have.
    loss: Tensor
    parts: Mapping[str, Tensor]  # terms of the loss by name, [tasks] each, as they count in it

    def describe(self) -> str:
        """Write it in one phrase."""
        return f"{self.method}: {self.stage}, epoch {self.number} of {self.total}"


Watcher = Callable[[Epoch], None]
_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watch_training(watcher: Watcher) -> Iterator[None]:
    """Have `watcher` called with an `Epoch` after every epoch of every training inside the block.

    Example:
        >>> seen = []
        >>> with watch_training(lambda epoch: seen.append(epoch.describe())):
        ...     tell("cpm", "networks", 1, 30, torch.zeros(2))
        >>> seen
        ['cpm: networks, epoch 1 of 30']
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell(method: str, stage: str, number: int, total: int, loss: Tensor, **parts: Tensor) -> None:
    """Tell the watcher, if there is one, about an epoch; see `Epoch`."""
    watcher = _watcher.get()
    if watcher is not None:
        found = {name: part.detach() for name, part in parts.items()}
        watcher(Epoch(method, stage, number, total, loss.detach(), found))


# ---------------------------------------------------------------------------- weights and steps


def draw_weights(
    seeds: Tensor, bound: float, shape: tuple[int, ...], dtype: torch.dtype, *names: object
) -> Tensor:
    """Draw weights uniform between -bound and bound, [len(seeds), *shape], ready to be trained."""
    draws = uniform(streams(seeds, *names), shape, dtype)
    return draws.mul_(2 * bound).sub_(bound).requires_grad_()


def xavier(fan_in: int, fan_out: int) -> float:
    """Bound of uniform Xavier weights (Glorot and Bengio 2010)."""
    return float((6.0 / max(1, fan_in + fan_out)) ** 0.5)


def descend(optimiser: torch.optim.Adam, loss: Tensor) -> None:
    """Move the optimiser's tensors, and no others, one step down the loss [tasks]."""
    parameters = [item for group in optimiser.param_groups for item in group["params"]]
    take_step(optimiser, torch.autograd.grad(loss.sum(), parameters, allow_unused=True))


# ---------------------------------------------------------------------------- samples


def masked_mean_square(difference: Tensor, observed: Tensor, width: Tensor | int) -> Tensor:
    """Mean of squares [...] over observed samples, zero where nothing is observed.

    Differences are [..., n, features], of which `width` count: others are zeros.
    """
    squares = difference.square().sum(-1) * observed
    return squares.sum(-1) / (observed.sum(-1).clamp(min=1) * width)


def reduce_views(views: Sequence[Tensor], width: int) -> list[Tensor]:
    """Describe every view of a task by fewer features with (nearly) the same inner products.

    Features are principal axes without centring, at most as many as there are samples: with a
    `width` of that size or more the map is an isometry, with a smaller one the best of its rank.
    A discrete cosine transform then spreads the axes over all features: Adam moves every feature
    at the same pace, so one that carries nearly everything would be learnt last. Views are
    [tasks, n, features]; a `width` of 0 leaves them as they are.
    """
    from scipy.fft import idct  # late: commands that train nothing start without it

    out = []
    for view in views:
        n, features = view.shape[1:]
        keep = min(n, features, width)
        if width == 0 or keep == features:
            out.append(view)
            continue
        # In float64: squaring the features costs half of the digits.
        exact = view.double()
        if n <= features:
            values, vectors = torch.linalg.eigh(exact @ exact.mT)
            reduced = vectors * values.clamp(min=0).sqrt()[:, None]
        else:
            reduced = exact @ torch.linalg.eigh(exact.mT @ exact)[1]
        reduced = reduced.flip(-1)[..., :keep]
        # The sign of an axis is arbitrary, and not the same on every machine.
        largest = reduced.gather(1, reduced.abs().argmax(1, keepdim=True))
        reduced = reduced * torch.where(largest < 0, -1.0, 1.0)
        cosines = torch.from_numpy(idct(np.eye(keep), norm="ortho")).to(reduced)
        out.append((reduced @ cosines).to(view.dtype))
    return out


def all_samples(batch: EpisodeBatch) -> tuple[list[Tensor], Tensor]:
    """Supports and then queries of every task: views [tasks, n, width], mask [tasks, n, V]."""
    views = [torch.cat(pair, 1) for pair in zip(batch.support, batch.query, strict=True)]
    return views, torch.cat([batch.support_mask, batch.query_mask], 1)


def masked_base(
    base: MultiViewData, task: TaskSpec, seed: int, device: torch.device, dtype: torch.dtype
) -> tuple[list[Tensor], Tensor]:
    """The base set with views missing as in the task: views [1, n, width], mask [1, n, V]."""
    states = combine(np.array([seed], dtype=np.uint64), stream_key("masked base"))
    # Samples without labels are of one class.
    labels, present = np.maximum(base.codes, 0)[None], base.mask[None]
    drawn = task.missing.draw(
        states, len(base), base.n_views, task.eta, labels=labels, present=present
    )
    tensors = ViewTensors.of(base, device, dtype)
    mask = torch.from_numpy(drawn).to(device)
    views = [view[None] * mask[..., index, None] for index, view in enumerate(tensors.views)]
    return views, mask
