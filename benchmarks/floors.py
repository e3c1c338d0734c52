"""The least that an answer costs: operations and bytes by formula, rates of this machine measured.

A floor is max(operations / rate of the matrix product, bytes / rate of copying). Operations are
multiplications plus additions of the matrix work that the answer consists of; bytes are inputs
read once and results written once. Nobody reaches a floor: it leaves out random numbers, softmax,
sorting and everything between the steps. What it is good for is to say how much is left.

Names below: T tasks of N_S supports and N_Q queries (N together) in K classes, view widths d_v
that sum to D, M anchors, L latent dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from time import perf_counter, process_time

import torch

FLOAT = 4  # bytes of a float32


@dataclass(frozen=True)
class Cost:
    """What an answer needs.

    Attributes:
        operations: multiplications and additions.
        bytes: read and written.
    """

    operations: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.operations + other.operations, self.bytes + other.bytes)

    def __mul__(self, times: float) -> Cost:
        return Cost(self.operations * times, self.bytes * times)

    def seconds(self, rates: Rates) -> float:
        """The floor on a machine with these rates."""
        return max(self.operations / rates.product, self.bytes / rates.copy)


@dataclass(frozen=True)
class Rates:
    """What a machine does at its best.

    Attributes:
        product: operations per second of a float32 matrix product.
        copy: bytes per second, read and written, of a copy.
    """

    product: float
    copy: float


def best_time(action: Callable[[], object], device: str, repeats: int = 5) -> float:
    """Shortest of a few runs, in seconds."""
    times, clock = [], clock_for(device)
    for _ in range(repeats + 1):  # the first one warms up
        _wait(device)
        start = clock()
        action()
        _wait(device)
        times.append(clock() - start)
    return min(times[1:])


def clock_for(device: str) -> Callable[[], float]:
    """Processor time where one thread of a CPU works, so that others on the machine do not count.

    With several threads, of which some wait for others, and on a GPU it is the time that passes.
    """
    alone = device == "cpu" and torch.get_num_threads() == 1
    return process_time if alone else perf_counter


def measure_rates(device: str = "cpu", largest: int | None = None) -> Rates:
    """Best rate over products of several sizes, single and batched, and of a copy.

    Args:
        device: where.
        largest: side of the largest product; by default 2048, on a GPU 8192.
    """
    large = device.startswith("cuda")
    most = largest or (8192 if large else 2048)
    product = 0.0
    for batch, side in [(16, 256), (1, 512), (1, 1024), (1, 2048), (1, 8192)]:
        if side > most:
            continue
        a, b = (torch.rand(batch, side, side, device=device) for _ in range(2))
        took = best_time(partial(torch.bmm, a, b, out=torch.empty_like(a)), device)
        product = max(product, product_cost(side, side, side).operations * batch / took)
    source = torch.rand((1 << 30 if large else 1 << 27) // FLOAT, device=device)
    target = torch.empty_like(source)
    took = best_time(partial(target.copy_, source), device)
    return Rates(product, 2 * source.numel() * FLOAT / took)


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


# ---------------------------------------------------------------------------- pieces


def product_cost(rows: float, inner: float, columns: float) -> Cost:
    """[rows, inner] @ [inner, columns]: a multiplication and an addition each."""
    return Cost(2 * rows * inner * columns)


def symmetric_cost(n: float, width: float) -> Cost:
    """Sum of n outer products of width w: one triangle with its diagonal, n w (w + 1)."""
    return Cost(n * width * (width + 1))


def cholesky_cost(n: float) -> Cost:
    """n^3 / 3."""
    return Cost(n**3 / 3)


def solve_cost(n: float, columns: float) -> Cost:
    """A triangular system with several right-hand sides: n^2 each."""
    return Cost(n * n * columns)


def moved(*shape: float, times: int = 1) -> Cost:
    """Float32 numbers read or written."""
    return Cost(0.0, FLOAT * prod(shape) * times)


# ---------------------------------------------------------------------------- jobs


def episodes_cost(tasks: int, samples: int, dims: Sequence[int]) -> Cost:
    """Every row of every task read once and written once."""
    return moved(tasks, samples, sum(dims), times=2)


def class_statistics_cost(counts: Sequence[int], width: int, dense: bool) -> Cost:
    """Rows of one view read once; one covariance per class, or nothing where deviations stay.

    Args:
        counts: samples of every class.
        width: of the view.
        dense: whether the method uses d x d covariances; else deviations are kept as they are.
    """
    total = moved(sum(counts), width) + Cost(sum(counts) * width)
    for n in counts:
        total += symmetric_cost(n, width) + moved(width, width) if dense else moved(n, width)
    return total


def marginal_statistics_cost(n: int, dims: Sequence[int], kept: Sequence[int]) -> Cost:
    """Rows read once, projected on k_v axes per view, one pooled matrix of products."""
    total = moved(n, sum(dims)) + symmetric_cost(n, sum(kept))
    for width, axes in zip(dims, kept, strict=True):
        total += product_cost(n, width, axes)
    return total


def anchors_cost(anchors: int, dims: Sequence[int], ranks: Sequence[int | None]) -> Cost:
    """Noise through a triangular factor (rank None) or through r rows per view; written once."""
    total = moved(anchors, sum(dims))
    for width, rank in zip(dims, ranks, strict=True):
        total += (
            Cost(anchors * width * width) if rank is None else product_cost(anchors, rank, width)
        )
    return total


def ugda_exact_cost(
    n_support: int,
    n_query: int,
    way: int,
    dims: Sequence[int],
    ranks: Sequence[int | None],
    n_anchors: int,
    evaluations: float,
) -> Cost:
    """One task. Anchors; where D >= M their Gram matrix, its factor and the queries' coordinates.

    The search needs logits and a gradient, 4 (M + N_Q) L K operations, per evaluation; how many it
    takes is counted in the run.
    """
    m, d = n_support * n_anchors, sum(dims)
    total = anchors_cost(m, dims, ranks) + moved(m + n_query, d)
    latent = d
    if d >= m:
        latent = m
        total += symmetric_cost(d, m) + product_cost(m, d, n_query)
        total += cholesky_cost(m) + solve_cost(m, n_query)
    return total + product_cost(m + n_query, latent, way) * (2 * evaluations)


def ugda_adam_cost(
    n_support: int,
    n_query: int,
    way: int,
    dims: Sequence[int],
    ranks: Sequence[int | None],
    n_anchors: int,
    latent: int,
    n_iter: int,
    n_steps: int,
    rectify_steps: int,
    trained: int | None = None,
) -> Cost:
    """One task by Algorithm 1: n_iter x n_steps steps of the evaluator and of the anchors.

    A step is a product and its gradient, 4 M L D; queries take n_iter steps; ADSR takes
    `rectify_steps` of 4 (M + N_Q) L K. The released code trains the evaluator of the last view
    only, whose width is then `trained`.
    """
    m, d = n_support * n_anchors, sum(dims)
    total = anchors_cost(m, dims, ranks) + moved(m + n_query, d)
    total += product_cost(m, latent, d) * (2 * n_iter * n_steps)
    total += product_cost(m, latent, d if trained is None else trained) * (2 * n_iter * n_steps)
    total += product_cost(n_query, latent, d) * (2 * n_iter)
    return total + product_cost(m + n_query, latent, way) * (2 * rectify_steps)


def marginal_cost(
    n_support: int,
    n_query: int,
    way: int,
    dims: Sequence[int],
    kept: Sequence[int],
    rank: int,
    eta: float,
    rounds: float = 0,
    left: Sequence[int] = (),
    directions: int = 0,
) -> Cost:
    """One task. Rows read once and projected, then brought into k = `rank` coordinates.

    Scores: k^2 per query and class; factors are shared by tasks and not counted. A round of
    expectation maximisation under one explanation (how many are taken is counted in the run): per
    class an inverse, k^3, one triangle of a sum over the patterns of views and of as many traces,
    k (k + 1) for a pattern each, and 2 k per query to gather the queries and as much to score them.
    Where one view is wider than all others together, of the k coordinates twice as many as the
    others have are inverted, and each of the rest is one more pattern and two products with those.
    Views that something is `left` over of: one triangle of the products of rows, of width d_v and
    of the components, and three products of it with `directions` columns.
    """
    n = n_support + n_query
    total = moved(n, sum(dims))
    for width, axes in zip(dims, kept, strict=True):
        total += product_cost((1 - eta) * n, width, axes)
        total += product_cost((1 - eta) * n, axes, rank)
    for view in left:
        total += symmetric_cost(dims[view] + kept[view], n)
        total += product_cost(n, n, directions) * 3
    total += solve_cost(rank, n_query * way)
    patterns = min(2 ** len(dims) - 1, n) if eta else 0
    own = min(rank, 2 * (sum(kept) - max(kept)))
    once = Cost(own**3) + symmetric_cost(patterns + rank - own, own) * 2 if eta else Cost()
    once += product_cost(1, own, rank - own) * 2 if eta else Cost()
    once += product_cost(1, n_query, rank) * 2
    return total + once * (way * rounds)


def ptmap_cost(n_support: int, n_query: int, way: int, dims: Sequence[int], n_iter: int) -> Cost:
    """One task: Gram matrix of the N rows, its factor, then distances and centres per round."""
    n, d = n_support + n_query, sum(dims)
    reduced = min(n, d)
    total = moved(n, d) + symmetric_cost(d, n) + cholesky_cost(reduced)
    return total + product_cost(n, reduced, way) * (2 * n_iter)


def tim_cost(n_support: int, n_query: int, way: int, dims: Sequence[int], steps: int) -> Cost:
    """One task: logits and their gradient per step, 4 N D K."""
    n, d = n_support + n_query, sum(dims)
    return moved(n, d) + product_cost(n, d, way) * (2 * steps)


def rfs_cost(n_support: int, n_query: int, way: int, dims: Sequence[int]) -> Cost:
    """One task: an orthonormal basis of the supports, queries projected on it and classified."""
    d = sum(dims)
    rank = min(n_support, d)
    total = moved(n_support + n_query, d) + Cost(2 * d * rank * rank)
    return total + product_cost(n_query, d, rank) + product_cost(n_query, rank, way)
