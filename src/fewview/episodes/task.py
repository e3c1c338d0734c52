"""What a task looks like before any sample is drawn: ways, shots, queries, missing views."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from fewview.errors import FewviewError
from fewview.samples._masks import MissingRule


@dataclass(frozen=True)
class TaskSpec:
    """The shape of a few-shot task.

    Args:
        way: number of classes.
        shot: labelled samples per class: one number, or one per class of the task.
        queries: queries per class; with unbalanced queries, their mean per class.
        eta: missing rate over supports and queries together.
        missing: how views go missing.
        query_counts: `"balanced"`; `"dirichlet:A"` for class proportions drawn from a
            Dirichlet distribution with parameter A; `"dominant:S"` for one class, drawn task by
            task, with the share S of the queries and the others with equal parts of the rest.

    Example:
        >>> TaskSpec(way=3, shot=1, queries=15, eta=0.3).n_support
        3
        >>> TaskSpec(way=2, shot=(1, 4)).shots
        (1, 4)
    """

    way: int = 5
    shot: int | tuple[int, ...] = 1
    queries: int = 15
    eta: float = 0.0
    missing: MissingRule = field(default_factory=MissingRule)
    query_counts: str = "balanced"

    def __post_init__(self) -> None:
        if isinstance(self.shot, list):
            object.__setattr__(self, "shot", tuple(self.shot))
        if self.way < 2:
            raise FewviewError(f"way is {self.way}; a task needs at least 2 classes")
        if isinstance(self.shot, tuple) and len(self.shot) != self.way:
            raise FewviewError(f"{len(self.shot)} shots given for {self.way} classes")
        if min(self.shots) < 1:
            raise FewviewError("shot must be at least 1 for every class")
        if self.queries < 1:
            raise FewviewError(f"queries is {self.queries}; at least 1 per class is needed")
        self._check_counts()

    @property
    def shots(self) -> tuple[int, ...]:
        """Labelled samples of every class."""
        return self.shot if isinstance(self.shot, tuple) else (self.shot,) * self.way

    @property
    def n_support(self) -> int:
        """Supports of a task."""
        return sum(self.shots)

    @property
    def n_query(self) -> int:
        """Queries of a task."""
        return self.way * self.queries

    @property
    def dirichlet(self) -> float | None:
        """Parameter of the Dirichlet distribution of class proportions, None for other counts."""
        kind, _, value = self.query_counts.partition(":")
        return float(value) if kind == "dirichlet" else None

    @property
    def dominant(self) -> Fraction | None:
        """Share of the queries that one class has, None for other counts."""
        kind, _, value = self.query_counts.partition(":")
        return Fraction(value) if kind == "dominant" else None

    def _check_counts(self) -> None:
        """Refuse query counts that mean nothing."""
        if self.query_counts == "balanced":
            return
        kind, _, value = self.query_counts.partition(":")
        try:
            number = float(Fraction(value) if kind == "dominant" else value)
        except (ValueError, ZeroDivisionError, OverflowError):
            number = 0.0
        if kind not in ("dirichlet", "dominant") or not 0 < number < float("inf"):
            raise FewviewError(
                f"query counts {self.query_counts!r}: use 'balanced', 'dirichlet:2' (any positive "
                "number) or 'dominant:0.8' (the share of one class)"
            )
        if kind == "dominant" and not 1 / self.way <= number <= 1:
            raise FewviewError(
                f"query counts {self.query_counts!r}: the share of the dominant one of {self.way} "
                f"classes is between 1/{self.way} and 1"
            )
