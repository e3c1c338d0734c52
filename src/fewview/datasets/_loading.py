"""Reading a known data set from the data folder and checking it against its specification.

`load` either returns exactly the data that the catalogue describes or says what is wrong with
which file and how to get the right one. Files are read without pickles.
"""

from __future__ import annotations

from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.datasets._catalogue import data_folder, get_spec, path_of
from fewview.datasets._digits import make_digits
from fewview.datasets._spec import DatasetSpec
from fewview.errors import FewviewError, shorten
from fewview.files._npz import read_npz_column
from fewview.samples._data import MultiViewData

PARTS = ("base", "val", "novel")


def load(name: str, data_dir: str | PathLike[str] | None = None) -> MultiViewData:
    """Load a known data set; labels are the integers 0 to n_classes - 1.

    The result is kept for the life of the process (the last dozen sets) and read again when the
    file changes.

    Args:
        name: one of `fewview.datasets.names()`.
        data_dir: folder of data files; without it `$FEWVIEW_DATA`, else the user's cache folder.

    Returns:
        The data, float32, complete, in the order of the file.

    Example:
        >>> load("digits").view_dims["pix"]
        16
        >>> load("orl", "no/such/folder")
        Traceback (most recent call last):
        ...
        fewview.FewviewError: data set 'orl' is not in no/such/folder (looked for ...
    """
    spec = get_spec(name)
    if spec.embedded:
        return make_digits()
    path = _present_path(spec, data_dir)
    status = path.stat()
    return _load_file(spec.name, str(path.resolve()), status.st_mtime_ns, status.st_size)


def load_split_column(
    name: str, data_dir: str | PathLike[str] | None = None
) -> NDArray[np.str_] | None:
    """Read which part of a fixed class split every sample belongs to.

    Args:
        name: one of `fewview.datasets.names()`.
        data_dir: see `load`.

    Returns:
        Text array [n_samples] of "base", "val" or "novel"; None for sets without a fixed split.

    Example:
        >>> load_split_column("digits") is None
        True
    """
    spec = get_spec(name)
    if not spec.fixed_split:
        return None
    path = _present_path(spec, data_dir)
    try:
        column = read_npz_column(path, "split")
    except FewviewError as error:
        raise FewviewError(f"{error}. {_again(spec, path)}") from None
    parts = column.astype(np.str_)
    unknown = sorted(set(parts.tolist()) - set(PARTS))
    if unknown:
        raise FewviewError(
            f"{path}: array 'split' holds {shorten(unknown)}; it must hold {', '.join(PARTS)} only"
        )
    return parts


def _present_path(spec: DatasetSpec, data_dir: str | PathLike[str] | None) -> Path:
    path = path_of(spec.name, data_dir)
    if path is None or not path.is_file():
        folder = data_folder(data_dir)
        raise FewviewError(
            f"data set {spec.name!r} is not in {folder} (looked for {' and '.join(spec.files)}). "
            f"{spec.how_to_get}. Put the file into that folder, or name another folder with "
            "--data-dir or $FEWVIEW_DATA"
        )
    return path


@lru_cache(maxsize=12)  # all tables of the paper and more, so that a grid reads each once
def _load_file(name: str, path_text: str, modified: int, size: int) -> MultiViewData:
    """Read and check one file; `modified` and `size` only tell versions of the file apart."""
    del modified, size
    spec, path = get_spec(name), Path(path_text)
    try:
        data = _read_matlab(spec, path) if path.suffix == ".mat" else _read_native(spec, path)
        problem = _difference(spec, data)
        if problem is not None:
            raise FewviewError(f"{path}: {problem}")
        return data
    except FewviewError as error:
        raise FewviewError(f"{error}. {_again(spec, path)}") from None


def _read_native(spec: DatasetSpec, path: Path) -> MultiViewData:
    data = MultiViewData.read(path)
    labels = data.labels
    if labels is not None and labels.dtype.kind not in "iu":
        # A file with names in `classes` is read with names as labels; class splits are numbers.
        labels = read_npz_column(path, "y")
    return _tidy(spec, data.views, labels)


def _tidy(spec: DatasetSpec, views: dict[str, Any], labels: Any) -> MultiViewData:
    """Put views into the order of the specification, in float32, with plain integers as labels."""
    known = [view for view in spec.view_names if view in views]
    others = [view for view in views if view not in spec.view_names]
    blocks = {view: np.asarray(views[view], dtype=np.float32) for view in known + others}
    return MultiViewData(
        blocks, None if labels is None else np.ravel(labels).tolist(), name=spec.name
    )


def _read_matlab(spec: DatasetSpec, path: Path) -> MultiViewData:
    """Read a MATLAB file with a cell array `X` of views and labels `gt`, counted from 1.

    The file may hold more views than the specification names: then those of the right widths are
    taken, in their order.
    """
    data = MultiViewData.read(path)
    if data.labels is None:
        raise FewviewError(f"{path}: no labels; expected a cell array X and labels gt")
    chosen: dict[str, Any] = {}
    rest = iter(data.views.values())
    for view, width in spec.views:
        found = next((block for block in rest if width in (None, block.shape[1])), None)
        if found is None:
            widths = shorten(data.view_dims.values(), 12)
            raise FewviewError(
                f"{path}: no view {view!r} of width {width} in X (its views are {widths} wide)"
            )
        chosen[view] = found
    return _tidy(spec, chosen, data.codes)


def _difference(spec: DatasetSpec, data: MultiViewData) -> str | None:
    """Say where what was read first differs from the specification."""
    if set(data.view_names) != set(spec.view_names):
        return (
            f"the views are {shorten(data.view_names, 8)}; data set {spec.name!r} has "
            f"{shorten(spec.view_names, 8)}"
        )
    for view, width in spec.views:
        if width is not None and data.view_dims[view] != width:
            return f"view {view!r} is {data.view_dims[view]} wide; it should be {width}"
    if spec.n_samples is not None and data.n_samples != spec.n_samples:
        return f"{data.n_samples} samples; there should be {spec.n_samples}"
    if data.labels is None:
        return "no labels (array y)"
    if data.classes.tolist() != list(range(spec.n_classes)):
        return (
            f"{len(data.classes)} classes ({shorten(data.classes)}); there should be "
            f"{spec.n_classes}, numbered from 0"
        )
    if spec.checksum is not None and data.fingerprint != spec.checksum:
        return (
            "the shapes are right but the values are not those that fewview knows (checksum "
            f"{data.fingerprint[:12]}..., expected {spec.checksum[:12]}...)"
        )
    return None


def _again(spec: DatasetSpec, path: Path) -> str:
    return f"To get data set {spec.name!r} again, remove {path.name} and: {spec.how_to_get}"
