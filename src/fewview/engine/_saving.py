"""Models on disk: one file, safetensors with a JSON document in its header, never a pickle.

The document has the version of the format and a checksum of itself and of every array. A file that
was cut, altered, padded or written for something else is refused before anything is made of it.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fewview._version import __version__
from fewview.engine._contract import Method
from fewview.engine._encoding import Arrays, Document, Reader, Writer, read_method, write_method
from fewview.engine._fitted import FittedBase, usual_task
from fewview.engine._inputs import as_data
from fewview.ground._errors import FewviewError, FewviewWarning
from fewview.ground._whole_files import replacing

FORMAT = "fewview-model"
FORMAT_VERSION = 1
KEY = "fewview"
# Headers hold names and numbers, no samples; a larger one is no model.
LARGEST_HEADER = 64 * 2**20
DTYPES = {"F32": "float32", "F64": "float64", "I64": "int64", "BOOL": "bool"}


def save_model(
    method: Method,
    path: str | PathLike[str],
    *,
    supports: bool = True,
    base_rows: bool = False,
) -> None:
    """Write a method and what it learnt to one file, whole or not at all.

    What was learnt from base classes is written as statistics. Supports are samples, and are
    written where `fit` was called, because predictions are made from them.

    Args:
        method: after `fit_base`, `fit` or both.
        path: the file; an existing one is replaced.
        supports: False leaves the supports out; the file then waits for `fit`.
        base_rows: True writes the base samples too, so that parameters may change after loading;
            of a base set that came in parts, the samples that were kept, for new thresholds.

    Example:
        >>> import tempfile
        >>> from fewview.methods.proto import Proto
        >>> path = Path(tempfile.mkdtemp()) / "a.model"
        >>> save_model(Proto().fit([[0.0], [9.0]], ["cat", "dog"]), path)
        >>> load_model(path).predict([[8.0]]).tolist()
        ['dog']
    """
    from safetensors.numpy import save_file

    writer = Writer()
    base = _fitted_base(method)
    fitted = hasattr(method, "support_") and supports
    if base is None and not fitted:
        raise FewviewError(
            "nothing has been learnt that could be saved; call fit_base or fit first"
        )
    if base is not None and base.prepared.state.holds_rows and not base_rows:
        raise FewviewError(
            f"{type(method).__name__} keeps base samples themselves, and models are saved without "
            "samples unless asked; give base_rows=True (--base-rows) if they may be in the file"
        )
    document: Document = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "written_by": f"fewview {__version__}",
        "method": write_method(method),
        "base": None if base is None else writer.base(base, base_rows),
        "prepared": writer.prepared(method.prepared_, "alone") if fitted and base is None else None,
        "support": writer.data(method.support_, "support") if fitted else None,
    }
    document["arrays"] = {
        name: {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": _digest(array)}
        for name, array in writer.arrays.items()
    }
    document["sha256"] = _document_digest(document)
    with replacing(path) as temporary:
        save_file(writer.arrays, temporary, metadata={KEY: json.dumps(document)})


def load_model(path: str | PathLike[str], *, device: str = "cpu") -> Method:
    """Read a model written by `save_model`; it gives the same digits as the one saved.

    Args:
        path: the file.
        device: where to put it.
    """
    arrays, document = _read(Path(path))
    try:
        return _build(arrays, document, device)
    except FewviewError as error:
        raise FewviewError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
        raise FewviewError(
            f"{path}: not a model that this version can read ({type(error).__name__}: {error})"
        ) from None


def _build(arrays: Arrays, document: Document, device: str) -> Method:
    method = read_method(document["method"])
    method.set_params(device=device)
    if method.version != document["method"]["version"]:
        warnings.warn(
            f"saved by version {document['method']['version']} of {document['method']['name']}, "
            f"and this is version {method.version}; answers may differ",
            FewviewWarning,
            stacklevel=4,
        )
    reader = Reader(arrays)
    if document["base"] is not None:
        # Written together, so fitted with these parameters, however later versions write them.
        method.base = replace(reader.base(document["base"]), key=method.key())
    if document["support"] is not None:
        support = reader.data(document["support"])
        if document["prepared"] is not None:
            prepared = reader.prepared(document["prepared"]).to(method.torch_device)
        else:
            prepared = method.base.prepared_for(method)
        method.n_features_in_ = support.shape[1]
        method._fit(support, prepared)
    return method


def _fitted_base(method: Method) -> FittedBase | None:
    """What there is to write about base classes."""
    base = method.base
    if base is None:
        return None
    if not isinstance(base, FittedBase):
        rows = as_data(base)
        if rows.labels is None and not hasattr(method, "prepared_"):
            raise FewviewError("without labels nothing is learnt before fit; call fit first")
        task = usual_task(rows)
        prepared = (
            method.prepared_ if hasattr(method, "prepared_") else method.prepare_base(rows, task)
        )
        base = FittedBase(
            method=type(method).__name__,
            key=method.key(),
            classes=tuple(rows.classes.tolist()),
            fingerprint=rows.fingerprint,
            task=task,
            prepared=prepared,
            rows=rows,
            n_samples=len(rows),
        )
    elif base.stream is not None:
        base = base.completed(method)
    elif base.changes(method):
        base = replace(base, key=method.key(), prepared=base.prepared_for(method), thresholds=None)
    if base.thresholds is None and base.samples is not None and base.samples.labels is not None:
        # With too few base classes to reject by, asking for it later says so.
        with suppress(FewviewError):
            base = replace(base, thresholds=method.thresholds())
    return base


# ------------------------------------------------------------------ the file


def _digest(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _document_digest(document: Document) -> str:
    rest = {key: value for key, value in document.items() if key != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path) -> tuple[Arrays, Document]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        content = path.read_bytes()
    except OSError as error:
        raise FewviewError(f"{path}: cannot be read ({error.strerror})") from None
    header = _header(path, content)
    document = _document(path, header)
    try:
        arrays = load(content)
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise FewviewError(f"{path}: damaged ({error})") from None
    expected = document["arrays"]
    if set(expected) != set(arrays):
        raise FewviewError(f"{path}: arrays are missing or were added; the file was altered")
    for name, array in arrays.items():
        facts = expected[name]
        if [str(array.dtype), list(array.shape)] != [facts["dtype"], facts["shape"]]:
            raise FewviewError(
                f"{path}: array {name!r} is {array.dtype} {list(array.shape)} and should be "
                f"{facts['dtype']} {facts['shape']}; the file was altered"
            )
        if _digest(array) != facts["sha256"]:
            raise FewviewError(f"{path}: array {name!r} has a wrong checksum; the file was altered")
    return arrays, document


def _header(path: Path, content: bytes) -> Document:
    """Check the outline of the file: lengths first, before anything is parsed."""
    no_model = f"{path}: not a model file"
    # A header may be as long as those first bytes say, but then it begins with a brace.
    if content[8:9] != b"{" and content.startswith((b"\x80", b"PK")):
        raise FewviewError(
            f"{no_model}; it looks like a pickle or an archive, which may run code when it is "
            "read and which fewview never opens"
        )
    if len(content) < 8:
        raise FewviewError(f"{no_model}: {len(content)} bytes; it may have been cut off")
    length = int.from_bytes(content[:8], "little")
    if length > LARGEST_HEADER:
        raise FewviewError(f"{no_model} (its header would be {length} bytes)")
    if 8 + length > len(content):
        raise FewviewError(f"{path}: cut off: {len(content)} bytes, its header alone needs more")
    try:
        header = json.loads(content[8 : 8 + length])
        ends = [0]
        for name, facts in header.items():
            if name == "__metadata__":
                continue
            if facts["dtype"] not in DTYPES:
                raise FewviewError(f"{path}: array {name!r} is of dtype {facts['dtype']}, which no "
                                   "model has; the file was altered")  # fmt: skip
            ends.append(int(facts["data_offsets"][1]))
    except FewviewError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise FewviewError(f"{no_model}: its header is damaged") from None
    size = 8 + length + max(ends)
    if len(content) != size:
        what = "cut off" if len(content) < size else "longer than it should be"
        raise FewviewError(f"{path}: {what}: {len(content)} bytes instead of {size}")
    return header  # type: ignore[no-any-return]


def _document(path: Path, header: Document) -> Document:
    try:
        document: Document = json.loads(header["__metadata__"][KEY])
        kind, version = document["format"], document["version"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise FewviewError(f"{path}: safetensors, but not a fewview model") from None
    if kind != FORMAT:
        raise FewviewError(f"{path}: a {kind!r}, not a fewview model")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise FewviewError(
            f"{path}: written by {document.get('written_by')} in format version {version}; this "
            f"is fewview {__version__}, which reads up to {FORMAT_VERSION}; install a newer one"
        )
    if document.get("sha256") != _document_digest(document):
        raise FewviewError(f"{path}: its description has a wrong checksum; the file was altered")
    return document
