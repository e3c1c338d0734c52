"""Every view votes by the distance to the class means; a missing view has no vote.

Run: python examples/mine.py
"""

import torch

from fewview import Method, Tags, check_method
from fewview.numerics import class_means, squared_distances


class Mine(Method):
    """Mean over views of the softmax of distances to class means."""

    name = "mine"
    sharpness: float = 10.0
    tags = Tags(handles_missing=True)

    def scores(self, batch, state):
        """Add up the votes of the views that a query has."""
        votes = 1e-9
        for view, (support, query) in enumerate(zip(batch.support, batch.query, strict=True)):
            members = batch.one_hot() * batch.support_mask[..., view, None]
            far = squared_distances(query, class_means(support, members)) / support.shape[-1]
            far = torch.where(members.sum(1)[:, None] > 0, far, far.mean(-1, keepdim=True))
            vote = torch.softmax(-self.sharpness * far, -1)
            votes = votes + vote * batch.query_mask[..., view, None]
        return torch.log(votes)


if __name__ == "__main__":
    check_method(Mine())
    print("Mine passes the common checks")
