"""The file of a model: safetensors with a JSON document in its header, never a pickle.

The document has the version of the format and a checksum of itself and of every array. A file that
was cut, damaged, padded or written for something else is refused before anything is made of it.
Checksums find damage, not tampering: who alters a file on purpose can write new ones.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview._version import __version__
from fewview.ground._errors import FewviewError
from fewview.ground._whole_files import replacing

FORMAT = "fewview-model"
FORMAT_VERSION = 1
KEY = "fewview"
# Headers hold names and numbers, no samples; a larger one is no model.
LARGEST_HEADER = 64 * 2**20
DTYPES = ("F32", "F64", "I64", "BOOL")
Arrays = dict[str, NDArray[Any]]
Document = dict[str, Any]


def write_file(path: Path, document: Document, arrays: Arrays) -> None:
    """Write a document and its arrays, whole or not at all."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    document = {"format": FORMAT, "version": FORMAT_VERSION, **document}
    document["arrays"] = {
        name: {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": _digest(array)}
        for name, array in arrays.items()
    }
    document["sha256"] = _document_digest(document)
    with replacing(path) as temporary:
        try:
            save_file(arrays, temporary, metadata={KEY: json.dumps(document)})
        except SafetensorError as error:  # a full disk, for instance
            raise FewviewError(
                f"{path}: cannot write the model ({error}); is the disk full?"
            ) from None


def _digest(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _document_digest(document: Document) -> str:
    rest = {key: value for key, value in document.items() if key != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_file(path: Path) -> tuple[Arrays, Document]:
    """Read arrays and document of a file, or say what is wrong with it."""
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
    except SafetensorError as error:
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
        arrays = {
            name: (facts["dtype"], int(facts["data_offsets"][1]))
            for name, facts in header.items()
            if name != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise FewviewError(f"{no_model}: its header is damaged") from None
    for name, (dtype, _) in arrays.items():
        if dtype not in DTYPES:
            raise FewviewError(
                f"{path}: array {name!r} is of dtype {dtype}, which no model has; the file was "
                "altered"
            )
    size = 8 + length + max((end for _, end in arrays.values()), default=0)
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
