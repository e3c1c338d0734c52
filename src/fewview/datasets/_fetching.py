"""Downloading the data sets that have a stable public address, and converting them.

The archive is downloaded with pooch, its text files are parsed, and the arrays are compared with
the checksum in the catalogue before a file appears in the data folder, under a temporary name
first. Whatever goes wrong is one `FewviewError`, and nothing is left behind.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from io import BytesIO
from os import PathLike
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from fewview.datasets._catalogue import data_folder, get_spec, names
from fewview.datasets._loading import load
from fewview.datasets._spec import DatasetSpec
from fewview.errors import FewviewError, shorten
from fewview.samples._data import MultiViewData

TIMEOUT_SECONDS = 60
CHUNK_BYTES = 64 * 1024

FloatArray = NDArray[np.float64]
Views = dict[str, NDArray[np.float32]]
Candidate = tuple[Views, list[int]]


def fetch(
    name: str,
    data_dir: str | PathLike[str] | None = None,
    base_url: str | None = None,
    progress: bool = True,
) -> Path:
    """Download a data set with a stable public address into the data folder.

    A file that is already there and right is kept; one that is there and wrong is replaced.

    Args:
        name: a data set with `get_spec(name).fetchable`.
        data_dir: where to put it; without it `$FEWVIEW_DATA`, else the user's cache folder.
        base_url: a mirror to ask instead of the original host, which serves the same paths.
        progress: show how far the download is, when standard error is a terminal.

    Returns:
        The path of the converted file, which `load` reads.

    Example:
        >>> fetch("digits")
        Traceback (most recent call last):
        ...
        fewview.FewviewError: data set 'digits' comes with fewview; nothing to fetch
    """
    spec = get_spec(name)
    if spec.embedded:
        raise FewviewError(f"data set {name!r} comes with fewview; nothing to fetch")
    if spec.download is None:
        fetchable = [known for known in names() if get_spec(known).fetchable]
        raise FewviewError(
            f"data set {name!r} has no public address to fetch from (these have: "
            f"{', '.join(fetchable)}). {spec.how_to_get}. Put the file into {data_folder(data_dir)}"
        )
    target = data_folder(data_dir) / spec.files[0]
    if target.is_file():
        with suppress(FewviewError):
            load(name, data_dir)
            return target
    url = spec.download
    if base_url is not None:
        url = base_url.rstrip("/") + urlsplit(url).path
    file, convert = _CONVERTERS[name]
    members = {view: file.format(view=view, View=view.title()) for view in spec.view_names}
    with tempfile.TemporaryDirectory(prefix="fewview-") as folder:
        archive = Path(folder) / "archive.zip"
        _download(url, archive, target, spec, progress)
        texts = _texts_in(archive, members, url)
    data = _matching(spec, convert(texts, url), url)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FewviewError(
            f"{target.parent}: cannot create this folder ({error.strerror}); name another one with "
            "--data-dir or $FEWVIEW_DATA"
        ) from None
    data.write(target)
    return target


def _download(url: str, path: Path, target: Path, spec: DatasetSpec, progress: bool) -> None:
    import pooch

    bar = _Progress(spec.name) if progress and sys.stderr.isatty() else None
    downloader = pooch.HTTPDownloader(
        progressbar=bar or False, chunk_size=CHUNK_BYTES, timeout=TIMEOUT_SECONDS
    )
    try:
        downloader(url, str(path), None)
    except (OSError, ValueError) as error:  # requests' exceptions are OSError
        raise FewviewError(
            f"data set {spec.name!r}: could not download {url} ({_reason(error)}). Try again "
            f"later, or run 'fewview data fetch {spec.name}' on a machine with a network and copy "
            f"the file that it names to {target}"
        ) from None
    finally:
        if bar is not None:
            bar.close()


def _reason(error: Exception) -> str:
    """Say in a few words what a download failed of; connection errors nest and ramble."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"the server answered {status}"
    kind = type(error).__name__
    known = {
        "ConnectionError": "no connection to the server",
        "ConnectTimeout": "the server does not answer",
        "ReadTimeout": "the server stopped answering",
        "ChunkedEncodingError": "the connection broke off",
    }
    return known.get(kind, f"{kind}: {str(error)[:200]}")


class _Progress:
    """What pooch wants of a progress bar, in one line on standard error."""

    def __init__(self, name: str) -> None:
        self.name, self.total, self.done, self.closed = name, 0, 0, False

    def update(self, amount: int) -> None:
        """Count `amount` more bytes."""
        self.done += amount
        if self.total:
            share = f"{min(100, 100 * self.done // self.total)} %"
        else:
            share = f"{self.done / 2**20:.1f} MiB"
        print(f"\rfetching {self.name}: {share}", end="", file=sys.stderr, flush=True)

    def reset(self) -> None:
        """Start counting again."""
        self.done = 0

    def close(self) -> None:
        """End the line, once."""
        if not self.closed:
            print(file=sys.stderr)
        self.closed = True


def _texts_in(path: Path, members: Mapping[str, str], url: str) -> dict[str, str]:
    """Read one text file per view from a zip archive, in whatever folder of it they are.

    Archives inside the archive are looked into as well: UCI has packed this data in both ways.
    """
    wanted = {file: view for view, file in members.items()}
    texts: dict[str, str] = {}
    try:
        for file, content in _files_in(path.read_bytes(), wanted):
            texts.setdefault(wanted[file], content.decode("utf-8", errors="replace"))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise FewviewError(
            f"{url}: not a complete zip archive ({error}); the download was cut short or the "
            "server sent something else. Try again later"
        ) from None
    absent = [file for file, view in wanted.items() if view not in texts]
    if absent:
        raise FewviewError(
            f"{url}: no file {shorten(absent)} in the archive; it is not the one that fewview knows"
        )
    return texts


def _files_in(
    content: bytes, wanted: Mapping[str, str], nested: bool = False
) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(BytesIO(content)) as archive:
        for member in archive.namelist():
            file = PurePosixPath(member).name
            if file in wanted:
                yield file, archive.read(member)
            elif file.lower().endswith(".zip") and not nested:
                yield from _files_in(archive.read(member), wanted, nested=True)


def _matching(spec: DatasetSpec, candidates: Iterator[Candidate], url: str) -> MultiViewData:
    """Return the candidate whose content hash is that of the catalogue."""
    for views, labels in candidates:
        data = MultiViewData(views, labels, name=spec.name)
        if data.fingerprint == spec.checksum:
            return data
    raise FewviewError(
        f"{url}: the converted arrays are not those that fewview knows (their checksum differs "
        f"from {str(spec.checksum)[:12]}...); the archive is damaged or has changed. Nothing was "
        f"written. By hand: {spec.how_to_get}"
    )


def _handwritten(texts: Mapping[str, str], url: str) -> Iterator[Candidate]:
    """Convert UCI Multiple Features: rows of numbers, 200 per digit, digits in order."""
    spec = get_spec("handwritten")
    views: Views = {}
    for view, width in spec.views:
        numbers = _numbers(texts[view].split(), view, url)
        if spec.n_samples is None or width is None or numbers.size != spec.n_samples * width:
            raise FewviewError(
                f"{url}: view {view!r} has {numbers.size} numbers; there should be "
                f"{spec.n_samples} rows of {width}"
            )
        views[view] = numbers.reshape(spec.n_samples, width).astype(np.float32)
    yield views, np.repeat(np.arange(10), 200).tolist()


def _leaves(texts: Mapping[str, str], url: str) -> Iterator[Candidate]:
    """Convert UCI leaves: a species and 64 numbers per line, 16 lines per species.

    The texture file lacks the first line of Acer Campestre. Our copy has the mean of the other 15
    in its place, computed in double precision; so has this. Species are numbered as in the margin
    file or by the alphabet: the checksum tells which.
    """
    spec = get_spec("leaves100")
    tables = {view: _by_species(texts[view], view, url) for view in spec.view_names}
    species = list(tables["margin"])
    per_species = (spec.n_samples or 0) // spec.n_classes
    for view, table in tables.items():
        if set(table) != set(species) or len(species) != spec.n_classes:
            raise FewviewError(
                f"{url}: view {view!r} has {len(table)} species, the margin file {len(species)}; "
                f"there should be the same {spec.n_classes} in both"
            )
        for kind, rows in table.items():
            if view == "texture" and len(rows) == per_species - 1:
                rows.insert(0, np.mean(rows, axis=0))
            if len(rows) != per_species:
                raise FewviewError(
                    f"{url}: view {view!r} has {len(rows)} rows of {kind}; there should be "
                    f"{per_species}"
                )
    labels = np.repeat(np.arange(spec.n_classes), per_species).tolist()
    for order in (species, sorted(species, key=str.casefold)):
        views = {
            view: np.concatenate([table[kind] for kind in order]).reshape(-1, 64).astype(np.float32)
            for view, table in tables.items()
        }
        yield views, labels


def _by_species(text: str, view: str, url: str) -> dict[str, list[FloatArray]]:
    table: dict[str, list[FloatArray]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        kind, *fields = line.split(",")
        if len(fields) != 64:
            raise FewviewError(
                f"{url}: view {view!r}, line {number} has {len(fields)} numbers; there should be 64"
            )
        table.setdefault(kind.strip(), []).append(_numbers(fields, view, url))
    return table


def _numbers(fields: list[str], view: str, url: str) -> FloatArray:
    try:
        return np.array(fields, dtype=np.float64)
    except ValueError as error:
        raise FewviewError(
            f"{url}: view {view!r} holds something else than numbers ({error})"
        ) from None


_Converter = Callable[[Mapping[str, str], str], Iterator[Candidate]]
_CONVERTERS: dict[str, tuple[str, _Converter]] = {
    "handwritten": ("mfeat-{view}", _handwritten),
    "leaves100": ("data_{View:.3}_64.txt", _leaves),
}
