"""alpha-TIM: TIM with alpha-entropies, for unbalanced queries (Veilleux et al. 2021)."""

from __future__ import annotations

from typing import Any, ClassVar

from fewview.engine._contract import TUNED_SCALINGS
from fewview.engine._registry import register
from fewview.engine._state import Tags
from fewview.ground._errors import FewviewError
from fewview.methods.tim import TIM


@register("alpha-tim")
class AlphaTIM(TIM):
    """TIM whose two entropies are alpha-entropies, which pull less towards equal class sizes.

    L = CE(supports) - H_a(mean p) + mean H_a(p) with H_a(p) = (1 - sum_k p_k^a) / (a - 1); the
    cross-entropy stays Shannon's and all three weights are one, as in the authors' settings for
    Dirichlet queries. Temperature, Adam and number of steps are TIM's.

    Args:
        alpha: kind of the entropies, above 1. The authors' settings are 2 for one shot and 7 for
            five shots and more.

    Example:
        >>> from fewview.methods.alpha_tim import AlphaTIM
        >>> clf = AlphaTIM(steps=50).fit([[1.0, 0.0], [0.0, 1.0]], ["x", "y"])
        >>> clf.predict([[3.0, 1.0], [2.0, 1.0], [1.0, 3.0]]).tolist()
        ['x', 'x', 'y']
    """

    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    alpha: float = 2.0  # type: ignore[misc]

    tags: ClassVar[Tags] = Tags(transductive=True, iterative=True)
    tune_grid: ClassVar[dict[str, tuple[Any, ...]]] = {
        "scaling": TUNED_SCALINGS,
        "padding": ("episode", "zero"),
        "alpha": (2.0, 5.0, 7.0),
    }
    paper_settings: ClassVar[dict[str, str]] = {"scaling": "scale", "padding": "zero"}

    def validate(self) -> None:
        """Check alpha and the solver."""
        super().validate()
        if not self.alpha > 1:
            raise FewviewError(f"alpha is {self.alpha}; it must be above 1 (use TIM for 1)")
        if self.solver != "gd":
            raise FewviewError("alpha-TIM has closed-form updates for no solver but 'gd'")
