"""The data sets that fewview knows, and where their files are looked for.

The sets stand in `data/catalogue.toml`: those of the paper, their stand-ins, one that is not in the
paper, and the embedded `digits`. Each becomes a `DatasetSpec`.
"""

from __future__ import annotations

import difflib
import os
import sys
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from fewview.datasets._spec import DatasetSpec
from fewview.errors import FewviewError


def _as_spec(entry: Mapping[str, Any], words: Mapping[str, str]) -> DatasetSpec:
    """Fill words into the texts of an entry, twice: a word may hold `{file}`."""
    holes = {**words, "file": next(iter(entry.get("files", ())), "")}
    fields: dict[str, Any] = {
        name: value.format_map(holes).format_map(holes) if isinstance(value, str) else value
        for name, value in entry.items()
    }
    fields["views"] = tuple((view, width or None) for view, width in entry["views"].items())
    fields["files"] = tuple(entry.get("files", ()))
    return DatasetSpec(**fields)


def _read_catalogue() -> dict[str, DatasetSpec]:
    text = files("fewview.datasets").joinpath("data", "catalogue.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    specs = [_as_spec(entry, content["words"]) for entry in content["datasets"]]
    return {spec.name: spec for spec in specs}


_BY_NAME = _read_catalogue()


def names() -> tuple[str, ...]:
    """Return the names of all known data sets, those of the paper first.

    Example:
        >>> "handwritten" in names(), names()[-1]
        (True, 'digits')
    """
    return tuple(_BY_NAME)


def get_spec(name: str) -> DatasetSpec:
    """Look up what is known about a data set.

    Args:
        name: one of `names()`.

    Returns:
        The specification; an unknown name is an error that proposes close matches.

    Example:
        >>> get_spec("orl").n_anchors
        50
        >>> get_spec("hand-written")
        Traceback (most recent call last):
        ...
        fewview.FewviewError: no data set 'hand-written'; did you mean handwritten? ...
    """
    try:
        return _BY_NAME[name]
    except (KeyError, TypeError):
        pass
    wanted = str(name).strip().lower().replace("-", "_").replace(" ", "_")
    close = difflib.get_close_matches(wanted, _BY_NAME, n=3, cutoff=0.5)
    close += [known for known in _BY_NAME if len(wanted) > 2 and wanted in known]
    guess = " or ".join(dict.fromkeys(close))
    hint = f"did you mean {guess}? " if guess else ""
    raise FewviewError(
        f"no data set {name!r}; {hint}known: {', '.join(_BY_NAME)} "
        "(your own data are read by file name)"
    )


def data_folder(data_dir: str | PathLike[str] | None = None) -> Path:
    """Say in which folder data files are looked for.

    Args:
        data_dir: an explicit folder; without it `$FEWVIEW_DATA`, else the user's cache folder.

    Returns:
        The folder; it need not exist.

    Example:
        >>> data_folder("my/data").as_posix()
        'my/data'
    """
    if data_dir is not None and str(data_dir):
        return Path(data_dir).expanduser()
    from_environment = os.environ.get("FEWVIEW_DATA")
    if from_environment:
        return Path(from_environment).expanduser()
    return cache_folder(sys.platform)


def cache_folder(platform: str) -> Path:
    """Return the user's cache folder by the custom of the platform (`sys.platform`)."""
    if platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        root = Path(local) if local else Path.home() / "AppData" / "Local"
        return root / "fewview" / "Cache"
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "fewview"
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    root = Path(cache) if cache.startswith("/") else Path.home() / ".cache"
    return root / "fewview"


def path_of(name: str, data_dir: str | PathLike[str] | None = None) -> Path | None:
    """Say where the file of a data set is, or would be.

    Args:
        name: one of `names()`.
        data_dir: see `data_folder`.

    Returns:
        The first accepted file that exists, else the preferred one; None for an embedded set.

    Example:
        >>> path_of("orl", "my/data").as_posix()
        'my/data/orl.npz'
        >>> path_of("digits") is None
        True
    """
    spec = get_spec(name)
    candidates = [data_folder(data_dir) / file for file in spec.files]
    present = [path for path in candidates if path.is_file()]
    return next(iter(present + candidates), None)


def is_present(name: str, data_dir: str | PathLike[str] | None = None) -> bool:
    """Say whether `load` would find the data set (embedded sets are always there).

    Args:
        name: one of `names()`.
        data_dir: see `data_folder`.

    Example:
        >>> is_present("digits"), is_present("orl", "no/such/folder")
        (True, False)
    """
    path = path_of(name, data_dir)
    return path is None or path.is_file()
