"""What is a task? Task shapes, the episode sampler, and tasks as tensors."""

from typing import TYPE_CHECKING, Any

from fewview.episodes.sampler import SAMPLER_VERSION, Episodes, EpisodeSampler
from fewview.episodes.task import TaskSpec

if TYPE_CHECKING:
    from fewview.episodes.batch import EpisodeBatch, ViewTensors

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
        from fewview.episodes import batch

        return getattr(batch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
