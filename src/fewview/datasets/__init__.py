"""Where do samples come from? The known data sets, their loaders, the embedded default, splits."""

from fewview.datasets._catalogue import data_folder, get_spec, is_present, names, path_of
from fewview.datasets._digits import digit_views, make_digits
from fewview.datasets._fetching import fetch
from fewview.datasets._loading import load, load_split_column
from fewview.datasets._spec import DatasetSpec
from fewview.datasets._splits import ClassSplit, all_splits, class_split, draw_split
from fewview.datasets.synthetic import make_few_shot, split_few_shot

__all__ = [
    "ClassSplit",
    "DatasetSpec",
    "all_splits",
    "class_split",
    "data_folder",
    "digit_views",
    "draw_split",
    "fetch",
    "get_spec",
    "is_present",
    "load",
    "load_split_column",
    "make_digits",
    "make_few_shot",
    "names",
    "path_of",
    "split_few_shot",
]
