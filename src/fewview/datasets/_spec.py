"""What is known about a data set before its file is opened: `DatasetSpec`.

Sizes, the paper's setting, where the data come from and how to get them. One instance per set
stands in `data/catalogue.toml`; loaders check files against it and the command line prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["development", "seen"]
SameAsPaper = Literal["yes", "recomputed", "stand-in", "no"]


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """One data set: its shape, the paper's task on it, and where it comes from.

    Attributes:
        name: what `load` and the command line call it, and the stem of its file.
        title: a name for people.
        views: (name, width) of every view, in order; width None where it is not known.
        n_samples: number of samples; None where it is not known.
        n_classes: number of classes; labels are 0 to n_classes - 1.
        n_base: number of base classes (of `base_from` where that is set).
        n_novel: number of novel classes.
        n_val: number of classes kept for validation.
        way: classes per task.
        shot: supports per class.
        queries: queries per class.
        latent_dim: width of UGDA's latent space in the authors' scripts.
        n_anchors: anchors per support (the paper's N_F) in the authors' scripts.
        learning_rate: of UGDA's reference solver in the authors' scripts.
        tasks_per_batch: tasks that share one evaluator in the authors' scripts.
        base_from: the data set that the base classes are taken from, if not this one.
        paper_table: the paper's table that reports this set, by content ("cub", "birds", ...).
        role: "development" where a setting or a rule of a method was chosen on these data, "seen"
            where versions of methods were compared on them; none of the known sets is held-out.
        same_as_paper: whether these arrays are those of the paper; only with "yes" can digits be
            compared with the paper's. "no" is a set that is not in the paper.
        fixed_split: base, validation and novel classes are given by the file, not drawn.
        source: who published it.
        licence: terms of use.
        citation: what to cite.
        how_to_get: what to download and what to make of it.
        files: file names that `load` accepts, the preferred one first; empty when embedded.
        checksum: `MultiViewData.fingerprint` of what `load` returns; None where not known.
        download: stable public address of the original archive; None where there is none.
        embedded: comes with fewview, no file needed.
        note: anything else that a reader of results should know.

    Example:
        >>> from fewview.datasets._catalogue import get_spec
        >>> spec = get_spec("scene15")
        >>> spec.view_dims, spec.n_base, spec.n_novel, spec.way
        ({'phog': 20, 'gist': 59}, 8, 7, 3)
        >>> spec.role, spec.same_as_paper
        ('development', 'yes')
    """

    name: str
    title: str
    views: tuple[tuple[str, int | None], ...]
    n_samples: int | None = None
    n_classes: int
    n_base: int
    n_novel: int
    n_val: int = 0
    way: int
    shot: int = 1
    queries: int
    latent_dim: int | None = None
    n_anchors: int | None = None
    learning_rate: float = 1e-2
    tasks_per_batch: int | None = None
    base_from: str | None = None
    paper_table: str | None = None
    role: Role
    same_as_paper: SameAsPaper
    fixed_split: bool = False
    source: str
    licence: str
    citation: str
    how_to_get: str
    files: tuple[str, ...] = ()
    checksum: str | None = None
    download: str | None = None
    embedded: bool = False
    note: str = ""

    @property
    def view_names(self) -> tuple[str, ...]:
        """Names of the views, in order."""
        return tuple(view for view, _ in self.views)

    @property
    def view_dims(self) -> dict[str, int | None]:
        """Width of every view, None where it is not known."""
        return dict(self.views)

    @property
    def n_views(self) -> int:
        """Number of views."""
        return len(self.views)

    @property
    def fetchable(self) -> bool:
        """Whether `fetch` can download it."""
        return self.download is not None
