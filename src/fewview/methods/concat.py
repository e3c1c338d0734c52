"""Concat: any scikit-learn classifier on the views side by side, the plain baseline.

Foundation models for tables enter through it too (`tabicl`, `tabpfn`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch, ViewTensors
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError
from fewview.methods.base import State, Tags
from fewview.methods.estimator.method import Method
from fewview.methods.params import param
from fewview.methods.registry import register
from fewview.numerics.distances import partial_distances
from fewview.samples._data import MultiViewData

# What is best for plain classifiers on base classes of the development sets.
IMPUTED = {"scaling": "by-width", "impute": "knn"}
# Trees that may split so few samples at all. Every split sees a twentieth of the features: with
# one support per class any feature separates them, and a tree would look at few.
BOOSTING = HistGradientBoostingClassifier(
    max_iter=60, min_samples_leaf=1, max_leaf_nodes=8, max_features=0.05, early_stopping=False
)
# Classifiers with weights of their own: package -> class. Both take NaN for an empty cell.
PRETRAINED = {"tabicl": "TabICLClassifier", "tabpfn": "TabPFNClassifier"}


@dataclass(eq=False, repr=False)
class Pretrained(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of a package of `PRETRAINED`; it is loaded when it is fitted.

    Example:
        >>> Pretrained("tabicl").package
        'tabicl'
    """

    package: str = "tabicl"
    n_estimators: int | None = None  # the package's own number when None
    random_state: int | None = None

    def check(self) -> None:
        """Raise an error that says what to install, unless the package is here."""
        if self.package not in sys.modules and find_spec(self.package) is None:
            raise FewviewError(
                f"{self.package} is not installed; pip install {self.package}, which downloads its "
                "weights on first use (look at their licence)"
            )

    def fit(self, X: Any, y: Any) -> Pretrained:
        """Make the classifier of the package and fit it."""
        self.check()
        kind = getattr(import_module(self.package), PRETRAINED[self.package])
        sizes = {} if self.n_estimators is None else {"n_estimators": self.n_estimators}
        self.model_ = kind(random_state=self.random_state, **sizes).fit(X, y)
        return self

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes."""
        return self.model_.predict_proba(X)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """With the version of the package, so that results of two are not taken for one."""
        try:
            found = version(self.package)
        except PackageNotFoundError:
            found = str(getattr(sys.modules.get(self.package), "__version__", "unknown"))
        return f"{super().__repr__(N_CHAR_MAX)} of {self.package} {found}"


@dataclass(frozen=True)
class Donors(State):
    """Samples that imputation may borrow from: the scaled base set."""

    views: tuple[Tensor, ...]  # per view [n, width], zeros where missing
    mask: Tensor  # bool [n, V]

    holds_rows: ClassVar[bool] = True

    def mean(self, view: int) -> Tensor:
        """Mean of one view over the samples that have it, [width]."""
        return self.views[view].sum(0) / self.mask[:, view].sum().clamp(min=1)


@register("tabicl", estimator=Pretrained("tabicl"), impute="none")
@register("tabpfn", estimator=Pretrained("tabpfn"), impute="none")
@register("concat-nn", estimator=KNeighborsClassifier(n_neighbors=1), **IMPUTED)
@register("concat-hgb", estimator=BOOSTING, impute="none")
@register("concat-logistic", estimator=LogisticRegression(max_iter=1000), **IMPUTED)
@dataclass(kw_only=True, eq=False, repr=False)
class Concat(Method):
    """A scikit-learn classifier fitted to the concatenated, imputed supports of every task.

    This is the one method that loops over tasks. Views are put in the order of their names. It
    is tagged as random because the classifier may be: one that has a `random_state` that is None
    gets the task's seed, and trees break ties by the order of samples and features.

    Args:
        estimator: any scikit-learn classifier; logistic regression when None.
        impute: how missing views are filled: `"mean"` (of the supports that have the view, else of
            the base set), `"base"` (of the base set, or without one of the supports), `"zero"`,
            `"knn"` (mean of the view over the nearest base samples, or supports without a base
            set, by partial distance), or `"none"` (NaN is passed through, for classifiers that
            accept it).
        n_neighbors: of `"knn"`.

    Example:
        >>> from sklearn.svm import SVC
        >>> from fewview import Concat
        >>> clf = Concat(SVC(kernel="linear")).fit([[0.0], [9.0]], ["cat", "dog"])
        >>> clf.predict([[8.0], [1.0]]).tolist()
        ['dog', 'cat']
    """

    estimator: Any = field(default=None, kw_only=False)
    padding: str = param("episode", tune=())
    impute: str = param(
        "mean", among=("mean", "base", "zero", "knn", "none"), tune=("mean", "base", "knn")
    )
    n_neighbors: int = param(5, least=1)

    version: ClassVar[int] = 2
    tags: ClassVar[Tags] = Tags(handles_missing=True, random=True)

    def check(self) -> None:
        """Check that the estimator is a classifier, too."""
        super().check()
        if self.estimator is not None and not hasattr(self.estimator, "fit"):
            raise FewviewError(f"estimator {self.estimator!r} is not a scikit-learn classifier")
        if isinstance(self.estimator, Pretrained):
            self.estimator.check()

    def learn(self, base: MultiViewData, task: TaskSpec, seed: int) -> Donors:
        """Keep the base samples for imputation."""
        tensors = ViewTensors.of(base, dtype=self.torch_dtype)
        return Donors(tensors.views, tensors.mask)

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Log-probabilities of the classifier, one task after the other."""
        base = state if isinstance(state, Donors) else None
        support = self.filled(batch, base, batch.support, batch.support_mask).cpu().numpy()
        query = self.filled(batch, base, batch.query, batch.query_mask).cpu().numpy()
        labels, seeds = batch.support_labels.cpu().numpy(), batch.seeds.tolist()
        usual = LogisticRegression(max_iter=1000) if self.estimator is None else self.estimator
        out = []
        # Problems this small only lose by threads, but for large networks.
        with threadpool_limits(None if isinstance(usual, Pretrained) else 1):
            for seed, *task in zip(seeds, support, labels, query, strict=True):
                estimator = clone(usual)
                if estimator.get_params().get("random_state", 0) is None:
                    estimator.set_params(random_state=seed % 2**32)
                out.append(_fit_and_score(estimator, *task))
        return torch.from_numpy(np.stack(out)).to(batch.support[0])

    def filled(
        self, batch: EpisodeBatch, base: Donors | None, views: Sequence[Tensor], mask: Tensor
    ) -> Tensor:
        """Supports or queries as [tasks, n, all widths], missing views filled or NaN."""
        donors, donor_mask, distances = batch.support, batch.support_mask, views[0]
        if self.impute == "knn":
            if base is not None:
                donors = tuple(view.expand(len(mask), -1, -1) for view in base.views)
                donor_mask = base.mask.expand(len(mask), -1, -1)
            distances, shared = partial_distances(views, donors, mask, donor_mask)
            distances = torch.where(shared, distances, torch.finfo(distances.dtype).max)
        out = []
        for view in sorted(range(batch.n_views), key=lambda v: batch.view_names[v]):
            donor, has = donors[view], donor_mask[..., view]
            if self.impute == "knn":
                fill = nearest_mean(donor, has, distances, self.n_neighbors)
            elif self.impute == "base" and base is not None and bool(base.mask[:, view].any()):
                fill = base.mean(view).expand(len(mask), 1, -1)
            elif self.impute in ("mean", "base"):
                count, last = has.sum(1)[:, None], 0.0 if base is None else base.mean(view)
                fill = torch.where(count > 0, donor.sum(1) / count.clamp(min=1), last)[:, None]
            else:
                # Zeros stay where no support has the view: histograms of nothing are an error.
                stays = has.any(1)[:, None, None] & (self.impute == "none")
                fill = torch.where(stays, torch.nan, 0.0)
            out.append(torch.where(mask[..., view, None], views[view], fill))
        return torch.cat(out, dim=-1)

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Features; for `"knn"` also distances to the base set, taken as 2000 samples."""
        more = 8 * n_query * 2000 * self.torch_dtype.itemsize if self.impute == "knn" else 0
        return super().bytes_per_task(n_support, n_query, dims, way) + more


def nearest_mean(donor: Tensor, has: Tensor, distances: Tensor, count: int) -> Tensor:
    """Mean [tasks, n, width] of a view over the nearest donors that have it.

    As many as `count`, more where distances [tasks, n, m] are equal; these are large where a pair
    shares no view. Donors are [tasks, m, width], zeros where they lack the view, `has` [tasks, m].
    """
    far = torch.where(has[:, None], distances, torch.inf)
    limit = far.kthvalue(min(count, far.shape[2]), dim=2, keepdim=True).values
    weights = (has[:, None] & (far <= limit)).to(donor)
    return weights @ donor / weights.sum(-1, keepdim=True).clamp(min=1)


def _fit_and_score(
    estimator: Any, support: NDArray[Any], labels: NDArray[Any], query: NDArray[Any]
) -> NDArray[Any]:
    """Fit to one task and score its queries, [n_query, way]."""
    estimator.fit(support, labels)
    if hasattr(estimator, "predict_proba"):
        out: NDArray[Any] = np.log(np.maximum(estimator.predict_proba(query), 1e-12))
        # Trees vote in steps: classes that tie must tie in any precision.
        return np.round(out, 6)
    margin = estimator.decision_function(query)
    return margin if margin.ndim == 2 else np.stack((-margin / 2, margin / 2), axis=1)
