"""The file of a model: safetensors with a JSON document in its header, never a pickle.

Objects become a tree of plain values and named arrays, and back. A file speaks of registered
methods and of the dataclasses listed here and under `State`; nothing else is made of it. One digest
over the document and all arrays finds damage, not tampering.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor

from fewview._version import __version__
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError, FewviewWarning
from fewview.ground._whole_files import replacing
from fewview.methods.base import Contract, State
from fewview.methods.estimator import calibration
from fewview.methods.estimator.fitted_base import FittedBase
from fewview.methods.params import NOT_IN_RESULTS, describe_params
from fewview.methods.registry import create, entries_of
from fewview.samples._columns import Column
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule
from fewview.samples._scaling import ViewScaling

if TYPE_CHECKING:
    from fewview.methods.estimator.method import Method

FORMAT = 1
PLAIN = (str, int, float, bool, type(None))
Arrays = dict[str, NDArray[Any]]


# ------------------------------------------------------------------------------ models


def save_model(
    method: Method, path: Path, *, supports: bool, base_rows: bool, calibrate: bool
) -> None:
    """Write what a method has learnt; see `Method.save`."""
    fitted = method.fitted_ if hasattr(method, "fitted_") and supports else None
    base = _learnt_base(method)
    if base is None and fitted is None:
        raise FewviewError(
            "nothing has been learnt that could be saved; call fit_base or fit first"
        )
    if base is not None and calibrate:
        calibration.calibrate_all(method, base)
    if base is not None and base.state.holds_rows and not base_rows:
        raise FewviewError(
            f"{type(method).__name__} keeps base samples themselves, and models are saved without "
            "samples unless asked; give base_rows=True (--base-rows) if they may be in the file"
        )
    same = fitted is not None and base is not None and fitted.state is base.state
    same = same and fitted.reference.view_names == base.reference.view_names  # type: ignore[union-attr]
    arrays: Arrays = {}
    document = {
        "format": FORMAT,
        "written_by": f"fewview {__version__}",
        "method": write_method(method),
        "base": None if base is None else flatten(_without_rows(base, base_rows), "base", arrays),
        "fitted": None if same or fitted is None else flatten(_bare(fitted), "fitted", arrays),
        "support": None if fitted is None else flatten(method.support_, "support", arrays),
        "known": None if fitted is None else flatten(method.known_, "known", arrays),
        "seed": getattr(method, "seed_", 0),
    }
    write_file(path, document, arrays)


def _learnt_base(method: Method) -> FittedBase | None:
    """What there is to write about the base set."""
    base = method.base
    if base is None or isinstance(base, FittedBase):
        changed = {} if base is None else base.changes(method)
        if changed:
            listed = ", ".join(f"{name}={text}" for name, text in changed.items())
            raise FewviewError(
                f"parameters have changed since the base set was learnt from ({listed}); call "
                "fit_base or fit again before save"
            )
        return base
    if hasattr(base, "finish"):
        finished: FittedBase = base.finish(method)
        return finished
    if not hasattr(method, "fitted_"):
        raise FewviewError(
            "nothing has been learnt from the base set yet; call fit_base or fit first"
        )
    return method.fitted_


def _without_rows(base: FittedBase, base_rows: bool) -> FittedBase:
    return replace(base, stream=None, rows=base.rows if base_rows else None, seconds=0.0)


def _bare(fitted: FittedBase) -> FittedBase:
    return replace(fitted, stream=None, rows=None, calibrations={}, seconds=0.0)


def load_model(path: Path, device: str) -> Any:
    """Read a model; see `method.load_model`."""
    document, arrays = read_file(path)
    try:
        method = read_method(document["method"]).set_params(device=device)
        if method.version != document["method"]["version"]:
            warnings.warn(
                f"{path}: saved by version {document['method']['version']} of "
                f"{document['method']['name']}, and this is version {method.version}; answers may "
                "differ",
                FewviewWarning,
                stacklevel=3,
            )
        method.seed_ = document["seed"]
        base, fitted, support, known = (
            restore(document[name], arrays) for name in ("base", "fitted", "support", "known")
        )
        if base is not None:
            method.base = base.to(method.torch_device)
        if support is not None:
            found = method.base if fitted is None else fitted.to(method.torch_device)
            method._remember(support, found, known)
    except FewviewError as error:
        raise FewviewError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
        raise FewviewError(
            f"{path}: not a model that this version can read ({type(error).__name__}: {error})"
        ) from None
    return method


# ------------------------------------------------------------------------------ methods


def write_method(method: Contract) -> dict[str, Any]:
    """A method as its registered name and all its parameters.

    One that is no plain value (a scikit-learn estimator) is only written as "what the name stands
    for".
    """
    given = {k: v for k, v in method.get_params(deep=False).items() if k not in NOT_IN_RESULTS}
    problem = FewviewError(
        f"{type(method).__name__} is not a registered method, so that a file cannot name it; use "
        "@register"
    )
    found: list[tuple[int, dict[str, Any]]] = []
    for entry in entries_of(type(method)):
        usual = describe_params(entry.create())
        same = {name for name, text in describe_params(method).items() if usual[name] == text}
        try:
            parameters = {
                name: _write_parameter(name, value)
                for name, value in given.items()
                if not (name in same and isinstance(value, BaseEstimator))
            }
        except FewviewError as error:
            problem = error
            continue
        document = {"name": entry.name, "version": method.version, "parameters": parameters}
        found.append((len(same), document))
    if not found:
        raise problem
    return max(found, key=lambda item: item[0])[1]  # the name that says most


def _write_parameter(name: str, value: Any) -> Any:
    if isinstance(value, Contract):
        return {"method": write_method(value)}
    if isinstance(value, tuple):
        return {"tuple": [_write_parameter(name, item) for item in value]}
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.random.RandomState):
        return None  # what it drew is the seed of the file
    if not isinstance(value, PLAIN):
        raise FewviewError(
            f"parameter {name}={value!r} cannot be saved; only numbers, text, truth values, tuples "
            "of them and methods can"
        )
    return value


def read_method(document: dict[str, Any]) -> Any:
    """The opposite of `write_method`."""
    parameters = {name: _read_parameter(v) for name, v in document["parameters"].items()}
    if ":" in document["name"]:  # an import string: a file must not have a module run
        raise FewviewError(f"{document['name']!r} is not the name of a registered method")
    method = create(document["name"])
    strange = set(parameters) - set(method.get_params(deep=False))
    if strange:
        raise FewviewError(f"{document['name']} has no parameter {min(strange)!r} here")
    method.set_params(**parameters)
    method.check()
    return method


def _read_parameter(value: Any) -> Any:
    if isinstance(value, dict) and "method" in value:
        return read_method(value["method"])
    return tuple(map(_read_parameter, value["tuple"])) if isinstance(value, dict) else value


# ------------------------------------------------------------------------------ trees


def flatten(value: Any, path: str, arrays: Arrays) -> Any:
    """A tree of dataclasses, tuples, dictionaries and arrays as JSON; arrays are put into a map."""
    if isinstance(value, (Tensor, np.ndarray)):
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        name = f"{len(arrays)}.{path}"
        arrays[name] = np.array(array, order="C")  # a copy: views of one array may overlap
        return {"tensor" if isinstance(value, Tensor) else "array": name}
    if isinstance(value, (tuple, list)):
        items = [flatten(item, f"{path}.{k}", arrays) for k, item in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    if isinstance(value, dict):
        pairs = value.items()
        return {"dict": [[flatten(k, path, arrays), flatten(v, f"{path}.{k}", arrays)]
                         for k, v in pairs]}  # fmt: skip
    if isinstance(value, MultiViewData):
        names = ("views", "columns", "kinds", "name")
        held = {name: flatten(getattr(value, name), f"{path}.{name}", arrays) for name in names}
        for name in ("labels", "ids"):
            found = getattr(value, name)
            held[name] = None if found is None else [plain(item) for item in found.tolist()]
        return {"data": held}
    if is_dataclass(value) and not isinstance(value, type):
        if _classes().get(type(value).__name__) is not type(value):
            raise FewviewError(f"{type(value).__name__} is no part of a state; it cannot be saved")
        held = {
            f.name: flatten(getattr(value, f.name), f"{path}.{f.name}", arrays)
            for f in fields(value)
        }
        return {"class": type(value).__name__, "fields": held}
    return plain(value)


def restore(value: Any, arrays: Arrays) -> Any:
    """The opposite of `flatten`."""
    if isinstance(value, list):
        return [restore(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return torch.from_numpy(arrays[value["tensor"]])
    if "array" in value:
        return arrays[value["array"]]
    if "tuple" in value or "list" in value:
        items = [restore(one, arrays) for one in value["tuple" if "tuple" in value else "list"]]
        return tuple(items) if "tuple" in value else items
    if "dict" in value:
        return {restore(k, arrays): restore(item, arrays) for k, item in value["dict"]}
    if "data" in value:
        held = {name: restore(item, arrays) for name, item in value["data"].items()}
        kinds = held.pop("kinds")
        return MultiViewData(held.pop("views"), **held).with_kinds(kinds)
    kind = _classes().get(value["class"])
    if kind is None:
        raise FewviewError(f"it speaks of {value['class']}, which is no part of a state here")
    return kind(**{name: restore(item, arrays) for name, item in value["fields"].items()})


def plain(value: Any) -> Any:
    """A value that JSON holds as it is, or an error."""
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, PLAIN):
        raise FewviewError(
            f"{value!r} cannot be saved: only numbers, text and truth values can (labels and "
            "parameters too)"
        )
    return value


def _classes() -> dict[str, type[Any]]:
    """Dataclasses that a file may speak of, by name: these, states, and what states are made of."""
    out: dict[str, type[Any]] = {}
    todo: list[Any] = [FittedBase, ViewScaling, TaskSpec, MissingRule, Column, State]
    while todo:
        kind = todo.pop()
        if not (isinstance(kind, type) and is_dataclass(kind)):
            todo += get_args(kind)
        elif out.setdefault(kind.__name__, kind) is kind and kind not in (FittedBase,):
            with suppress(NameError):  # a type that only a type checker imports holds no state
                todo += [t for t in get_type_hints(kind).values() if t not in out.values()]
            todo += [one for one in kind.__subclasses__() if one.__name__ not in out]
    return out


# ------------------------------------------------------------------------------ files


def write_file(path: Path, document: dict[str, Any], arrays: Arrays) -> None:
    """Write a document and its arrays, whole or not at all."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    text = json.dumps(document)
    # One entry: several come in an order that changes, and the same model is to be the same bytes.
    metadata = {"fewview": _digest(text, arrays) + text}
    with replacing(path) as temporary:
        try:
            save_file(arrays, temporary, metadata=metadata)
        except SafetensorError as error:  # a full disk, for instance
            raise FewviewError(f"{path}: cannot write the model ({error})") from None


def read_file(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Read the document and the arrays of a file, or say what is wrong with it."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise FewviewError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (SafetensorError, ValueError) as error:
        raise FewviewError(f"{path}: not a model file, or cut off ({error})") from None
    digest, text = metadata.get("fewview", "")[:64], metadata.get("fewview", "")[64:]
    if not text:
        raise FewviewError(f"{path}: safetensors, but not a fewview model")
    if digest != _digest(text, arrays):
        raise FewviewError(f"{path}: its checksum is wrong; the file is damaged, save it again")
    document: dict[str, Any] = json.loads(text)
    if document.get("format") != FORMAT:
        raise FewviewError(
            f"{path}: written by {document.get('written_by')} in another format; fit and save it "
            "again"
        )
    return document, arrays


def _digest(text: str, arrays: Arrays) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
