"""The layers of UNEM: rounds of generalised EM for Gaussian classes, and learning their numbers.

Pure functions of the inner products of a task's samples, which are all that rounds of EM need: a
centre is a weighted mean of samples. Nothing here knows where tasks come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fewview.engine._state import State
from fewview.numerics._softmax import log_softmax

SMALLEST_SHARE = 1e-6
# Numbers before softplus from which learning starts: balance 1.31, temperature 2.31.
START = 1.0
HALVED_EVERY = 50  # steps after which the learning rate is halved


@dataclass(frozen=True)
class Layers(State):
    """What is learnt: one balance and one temperature per layer, and a factor of all features."""

    balance: Tensor  # lambda, [layers]
    temperature: Tensor  # T, [layers]
    scale: Tensor  # []

    @staticmethod
    def of(raw: Tensor) -> Layers:
        """From free numbers [2 * layers + 1]: balances, temperatures, the logarithm of the scale.

        As in the authors' code, the balance is softplus(x) and the temperature 1 + softplus(x), so
        that assignments are never harder than those of EM.
        """
        free = softplus(raw[:-1])
        n_layers = len(free) // 2
        return Layers(free[:n_layers], 1 + free[n_layers:], raw[-1].exp())


@dataclass(frozen=True)
class Tasks:
    """Tasks with answers."""

    products: Tensor  # of the samples, [tasks, n_support + n_query, n_support + n_query]
    members: Tensor  # of the supports, [tasks, n_support, way]
    answers: Tensor  # [tasks, n_query]


def inner_products(support: Tensor, query: Tensor) -> Tensor:
    """Inner products [tasks, n, n] of the samples of a task, supports first, about their mean."""
    samples = torch.cat((support, query), dim=1)
    samples = samples - samples.mean(1, keepdim=True)
    return samples @ samples.mT


def unroll(products: Tensor, members: Tensor, layers: Layers) -> Tensor:
    """Logarithm of the assignments [tasks, n_query, way] after the last layer.

    Layer l does one round of block coordinate descent on

        sum_{n,k} u_nk / 2 |z_n - w_k|^2 - lambda_l Q sum_k m_k log m_k + T_l sum_{q,k} u_qk log
        u_qk

    with m_k = mean_q u_qk over Q queries and u of a support its label: u_qk = softmax_k((-|z_q -
    w_k|^2 / 2 + lambda_l log m_k) / T_l), then m_k, then w_k = mean of supports and queries by u.
    PADDLE is all lambda_l = T_l = 1, run until nothing moves. The first layer has equal m_k.
    """
    n_support, way = members.shape[1:]
    own = products.diagonal(dim1=1, dim2=2)[:, n_support:, None]  # |z_q|^2
    weights = members / members.sum(1, keepdim=True).clamp(min=1e-30)
    # Of all samples in the centres, [tasks, n, way]: supports alone at first.
    weights = torch.cat((weights, products.new_zeros(len(products), own.shape[1], way)), dim=1)
    prior = products.new_zeros(len(products), 1, way)  # equal shares: any constant
    log_u = prior
    for balance, temperature in zip(layers.balance, layers.temperature, strict=True):
        across = products @ weights  # z_n . w_k
        lengths = (weights * across).sum(1, keepdim=True)  # |w_k|^2
        distances = (own - 2 * across[:, n_support:] + lengths).clamp(min=0)
        fit = -0.5 * layers.scale**2 * distances
        log_u = log_softmax((fit + balance * prior) / temperature)
        u = log_u.exp()
        prior = (u.mean(1, keepdim=True) + SMALLEST_SHARE).log()
        weights = torch.cat((members, u), dim=1)
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-30)
    return log_u


def loss(raw: Tensor, tasks: Tasks) -> Tensor:
    """Mean cross entropy of the answers; `raw` as in `Layers.of`."""
    log_u = unroll(tasks.products, tasks.members, Layers.of(raw))
    return -log_u.gather(-1, tasks.answers[..., None]).mean()


def start(n_layers: int, scale: float, like: Tensor) -> Tensor:
    """Free numbers from which learning starts, and that stand where nothing can be learnt."""
    raw = like.new_full((2 * n_layers + 1,), START)
    raw[-1] = torch.tensor(scale).log()
    return raw


def learn(tasks: Tasks, n_layers: int, scales: Sequence[float], steps: int, rate: float) -> Tensor:
    """Free numbers after some steps of Adam from the best of some scales, by the loss on tasks.

    The best numbers met on the way are returned: steps of a fixed length may overshoot.
    """
    like = tasks.products
    with torch.no_grad():
        starts = [start(n_layers, scale, like) for scale in scales]
        raw = min(starts, key=lambda one: float(loss(one, tasks)))
    raw = raw.requires_grad_()
    optimiser = torch.optim.Adam([raw], lr=rate)
    halving = torch.optim.lr_scheduler.StepLR(optimiser, HALVED_EVERY, 0.5)
    best, lowest = raw.detach().clone(), float("inf")
    for step in range(steps + 1):
        optimiser.zero_grad()
        value = loss(raw, tasks)
        if value.item() < lowest:
            best, lowest = raw.detach().clone(), value.item()
        if step < steps:
            value.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            halving.step()
    return best
