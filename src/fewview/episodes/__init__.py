"""What is a task? Its shape, which samples it is made of, and tasks pretended from base classes."""

from fewview.episodes._sampler import SAMPLER_VERSION, Episodes, EpisodeSampler
from fewview.episodes._task import TaskSpec

__all__ = ["SAMPLER_VERSION", "EpisodeSampler", "Episodes", "TaskSpec"]
