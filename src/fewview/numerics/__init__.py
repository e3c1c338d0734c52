"""The numerical pieces that methods share: tasks as tensors, draws, distances, optimisers.

Pure functions over batched tensors; nothing here knows what a method is.
"""

from fewview.numerics._batch import EpisodeBatch, ViewTensors
from fewview.numerics._distances import class_means, partial_distances, squared_distances, unit_rows
from fewview.numerics._networks import watch_training
from fewview.numerics._padding import pad
from fewview.numerics._sinkhorn import sinkhorn
from fewview.numerics._tensor_draws import normal, streams, uniform

__all__ = [
    "EpisodeBatch",
    "ViewTensors",
    "class_means",
    "normal",
    "pad",
    "partial_distances",
    "sinkhorn",
    "squared_distances",
    "streams",
    "uniform",
    "unit_rows",
    "watch_training",
]
