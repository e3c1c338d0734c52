"""The settings of Marginal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Numbers of the model and of the rounds; the values here are the stated ones.

    They were the best or near it on base classes of six data sets (docs/marginal.md).
    """

    components: int = 128  # most principal components of a view
    shrinkage: float = 0.4  # of the covariance within classes towards its diagonal in every view
    prior: float = 0.65  # share of what is assumed beforehand in the covariance of class means
    prior_detail: float = 0.5  # whether that is like samples (0) or like base classes (1)
    temperature: float = 0.5  # factor of scores inside the rounds
    anneal: float = 0.2  # share of `temperature` that the first round starts with
    balance: float | None = None  # 0 (class masses free) to 1 (equal); None: by evidence
    # Factor of the final scores; None: `alone`, or for queries together one for every task.
    calibration: float | None = None
    alone: float = 0.7  # factor of scores by supports alone, see `Marginal.resolved`

    @property
    def by_itself(self) -> float:
        """Factor of the scores of a query by itself."""
        return self.alone if self.calibration is None else self.calibration
