"""A complete new method in one file: every view that a query has casts a vote.

Run: python examples/add_a_method.py
"""

from typing import ClassVar

import torch
from torch import Tensor

from fewview import EpisodeBatch, FewviewError, Method, State, Tags, register
from fewview.numerics import class_means, squared_distances


def vote(support: Tensor, query: Tensor, members: Tensor) -> Tensor:
    """Probabilities of the classes in one view, [tasks, n_query, way].

    Args:
        support: [tasks, n_support, width].
        query: [tasks, n_query, width].
        members: [tasks, n_support, way], membership of the supports that have the view.
    """
    known = (members.sum(1) > 0)[:, None]  # [tasks, 1, way]: classes that have the view at all
    distances = squared_distances(query, class_means(support, members)) / support.shape[-1]
    # A class without the view is as far away as the others are on average.
    mean = (distances * known).sum(-1, keepdim=True) / known.sum(-1, keepdim=True).clamp(min=1)
    return torch.softmax(-torch.where(known, distances, mean), dim=-1)


@register("view-vote")
class ViewVote(Method):
    """Mean over a query's views of the probability by distance to the class mean.

    Args:
        sharpness: how sure one view may be: large values let a single view decide.

    Example:
        >>> clf = ViewVote().fit({"a": [[0.0], [9.0]], "b": [[1.0], [5.0]]}, ["cat", "dog"])
        >>> clf.predict({"a": [[8.0], [float("nan")]], "b": [[5.0], [1.5]]}).tolist()
        ['dog', 'cat']
    """

    sharpness: float = 10.0

    tags: ClassVar[Tags] = Tags(handles_missing=True)

    def validate(self) -> None:
        """Check `sharpness` too."""
        super().validate()
        if not self.sharpness > 0:
            raise FewviewError(f"sharpness is {self.sharpness}; give a positive number")

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Average the votes of the views that a query has."""
        total = batch.query[0].new_zeros(batch.n_tasks, batch.n_query, batch.way)
        scale = self.sharpness**0.5
        for view, (support, query) in enumerate(zip(batch.support, batch.query, strict=True)):
            members = batch.one_hot() * batch.support_mask[..., view, None]
            votes = vote(scale * support, scale * query, members)
            total = total + votes * batch.query_mask[..., view, None]
        mean = total / batch.query_mask.sum(-1, keepdim=True).clamp(min=1)
        return mean.clamp(min=1e-12).log()


if __name__ == "__main__":
    from fewview import check_method
    from fewview.evaluate import bench, make_grid

    check_method(ViewVote())
    print("ViewVote passes the common checks")
    grid = make_grid(["digits"], methods="view-vote,proto", eta="0,0.3,0.5", splits=2, episodes=10)
    rows, _ = bench(grid, store="none")
    for row in rows:
        print(f"{row['method']:<10} eta {row['eta']:<4} accuracy {row['accuracy']:.1f} %")
