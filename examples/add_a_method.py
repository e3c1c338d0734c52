"""A complete new method in one file: class means, where near queries pull each other.

Run: python examples/add_a_method.py
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fewview import EpisodeBatch, Method, State, Tags, param, register
from fewview.numerics.distances import class_means, partial_distances, squared_distances
from fewview.numerics.iterate import iterate
from fewview.numerics.softmax import log_softmax


@register("lap-proto")
@dataclass(kw_only=True, eq=False, repr=False)
class LapProto(Method):
    """Nearest class mean with a Laplacian over the queries (LaplacianShot, Ziko et al. 2020).

    Minimises sum_q u_q . |q - centres|^2 - strength / 2 sum_{q,p near} u_q . u_p - entropy of u.

    Args:
        strength: of the pull between near queries; 0 is the nearest class mean.
        n_neighbors: queries that are near a query, by the views that both have.
    """

    scaling: str = param("by-width")
    padding: str = param("zero")
    strength: float = param(1.0, least=0, tune=(0.3, 1.0, 3.0))
    n_neighbors: int = param(3, least=1, tune=(1, 3, 5))

    tags: ClassVar[Tags] = Tags(transductive=True, iterative=True)

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Logarithms of the soft assignments u, [tasks, n_query, way]."""
        support, query = batch.concatenated()
        fit = -squared_distances(query, class_means(support, batch.one_hot()))
        if batch.n_query == 1:
            return fit
        return iterate(self.step, (log_softmax(fit),), (fit, self.near(batch)), max_iter=50)

    def near(self, batch: EpisodeBatch) -> Tensor:
        """1 for the nearest neighbours of a query, else 0: [tasks, n_query, n_query]."""
        mask, n = batch.query_mask, batch.n_query
        distances, shared = partial_distances(batch.query, batch.query, mask, mask)
        others = shared & ~torch.eye(n, dtype=torch.bool, device=batch.device)
        distances = torch.where(others, distances, torch.inf)
        reach = distances.kthvalue(min(self.n_neighbors, n - 1), keepdim=True).values
        return (others & (distances <= reach)).to(distances)

    def step(self, carry: tuple[Tensor], fit: Tensor, near: Tensor) -> tuple[tuple[Tensor], Tensor]:
        """One round for all tasks, and which of them have settled, bool [tasks]."""
        u = carry[0].exp()
        log_u = log_softmax(fit + self.strength * near @ u)
        return (log_u,), (log_u.exp() - u).abs().amax((1, 2)) < 1e-5


if __name__ == "__main__":
    from fewview import check_method
    from fewview.evaluate import bench, make_grid

    check_method(LapProto())  # silent, or an error that names the law which is broken
    grid = make_grid(["digits"], methods="lap-proto,proto", eta="0,0.3", splits=2, episodes=20)
    for row in bench(grid, store="none")[0]:
        print(f"{row['method']:<10} eta {row['eta']:<4} accuracy {row['accuracy']:.1f} %")
