"""What is a task? Task shapes, the episode sampler, and tasks as tensors."""

from typing import TYPE_CHECKING, Any

from fewview.episodes._sampler import SAMPLER_VERSION, Episodes, EpisodeSampler
from fewview.episodes._task import TaskSpec

if TYPE_CHECKING:
    from fewview.numerics._batch import EpisodeBatch, ViewTensors

__all__ = [
    "SAMPLER_VERSION",
    "EpisodeBatch",
    "EpisodeSampler",
    "Episodes",
    "TaskSpec",
    "ViewTensors",
]


def __getattr__(name: str) -> Any:
    # Tensors need torch, which takes seconds to import; drawing episodes does not.
    if name in ("EpisodeBatch", "ViewTensors"):
        import fewview.numerics._batch as batch

        return getattr(batch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
