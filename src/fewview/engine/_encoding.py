"""Learnt things as plain JSON and named arrays, and back, without ever naming code to run.

A file may only speak of methods that are registered and of the dataclasses that their states are
made of. Everything else it holds is numbers, text and arrays.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, get_args, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor

from fewview.engine._contract import Contract
from fewview.engine._fitted import FittedBase
from fewview.engine._parameters import NOT_IN_KEY, joined
from fewview.engine._registry import entries_of, get_entry
from fewview.engine._saving import Arrays, Document
from fewview.engine._state import Prepared, State
from fewview.engine.open_world._rejection import Thresholds
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError
from fewview.samples._columns import KINDS, Column
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule
from fewview.samples._scaling import SCALINGS, ViewScaling

PLAIN = (str, int, float, bool, type(None))


@dataclass
class Writer:
    """Collects arrays while objects are turned into JSON."""

    arrays: Arrays = field(default_factory=dict)

    def array(self, value: Any, where: str) -> Document:
        """Put an array away under a readable name."""
        name = f"{len(self.arrays)}.{where}"
        self.arrays[name] = np.array(value, order="C")  # a copy: views of one array may overlap
        return {"array": name}

    def value(self, value: Any, where: str) -> Any:
        """Turn tensors, tuples, dicts, dataclasses of states and plain values into JSON."""
        if isinstance(value, Tensor):
            return self.array(value.detach().cpu().numpy(), where) | {"tensor": True}
        if isinstance(value, np.ndarray):
            return self.array(value, where)
        if isinstance(value, (tuple, list)):
            items = [self.value(item, f"{where}.{k}") for k, item in enumerate(value)]
            return {"tuple" if isinstance(value, tuple) else "list": items}
        if isinstance(value, dict):
            return {"dict": [[plain(k), self.value(x, f"{where}.{k}")] for k, x in value.items()]}
        if is_dataclass(value) and not isinstance(value, type):
            name = type(value).__name__
            known = state_classes().get(name)
            if known is None:
                raise FewviewError(f"{name} is not part of a method's state and cannot be saved")
            if known is not type(value):
                raise FewviewError(
                    f"two classes of states are called {name}, in {known.__module__} and in "
                    f"{type(value).__module__}, and a file knows them by name; rename one"
                )
            held = {item.name: getattr(value, item.name) for item in fields(value)}
            return {
                "class": name,
                "fields": {k: self.value(x, f"{where}.{k}") for k, x in held.items()},
            }
        return plain(value)

    def data(self, data: MultiViewData, where: str) -> Document:
        """Samples: one array per view."""
        return {
            "views": [[v, self.array(block, f"{where}.{v}")] for v, block in data.views.items()],
            "labels": None if data.labels is None else [plain(x) for x in data.labels.tolist()],
            "ids": None if data.ids is None else [plain(x) for x in data.ids.tolist()],
            "columns": data.columns,
            "kinds": _kinds(data),
            "name": data.name,
        }

    def task(self, task: TaskSpec) -> Document:
        """The shape of a task; patterns as the different ones and how often each occurs."""
        rule = task.missing
        patterns = None
        if rule.patterns is not None:
            rows, counts = np.unique(rule.patterns, axis=0, return_counts=True)
            patterns = {"rows": rows.tolist(), "counts": counts.tolist()}
        return {**vars(task), "missing": {**vars(rule), "patterns": patterns}}

    def prepared(self, prepared: Prepared, where: str) -> Document:
        """Scaling, means and state."""
        scaling = {"rule": prepared.scaling.rule, "rules": prepared.scaling.rules}
        for name in ("shift", "factor", "means"):
            blocks = getattr(prepared.scaling, name)
            scaling[name] = {v: self.array(x, f"{where}.{name}.{v}") for v, x in blocks.items()}
        return {
            "scaling": scaling,
            "means": self.value(prepared.base_means, f"{where}.means"),
            "state": self.value(prepared.state, f"{where}.state"),
            "view_dims": list(prepared.reference.view_dims.items()),
            "columns": prepared.reference.columns,
            "kinds": _kinds(prepared.reference),
            "seconds": prepared.seconds,
        }

    def base(self, base: FittedBase, rows: bool) -> Document:
        """What was learnt from base classes, and the rows only if asked."""
        limits = base.thresholds
        document = {
            "method": base.method,
            "key": joined(base.parameters),
            "classes": [plain(label) for label in base.classes],
            "fingerprint": base.fingerprint,
            "task": self.task(base.task),
            "prepared": self.prepared(base.prepared, "base"),
            "thresholds": None,
            "known": self.value(base.known, "known"),
            "sets": self.value(base.sets, "sets"),
            "n_samples": base.n_samples,
            "rows": None,
            "sample": None,
        }
        if limits is not None:
            quantiles = self.array(limits.quantiles, "thresholds")
            document["thresholds"] = {"shots": limits.shots, "quantiles": quantiles}
        for name, data in (("rows", base.rows), ("sample", base.sample)):
            if rows and data is not None:
                document[name] = self.data(data, name)
        return document


@dataclass
class Reader:
    """Turns JSON and arrays back into objects; everything unexpected is an error."""

    arrays: Arrays

    def array(self, value: Any, kinds: str = "fiub") -> NDArray[Any]:
        """Look an array up and check its kind of numbers."""
        array = self.arrays[value["array"]]
        if array.dtype.kind not in kinds:
            raise FewviewError(f"array {value['array']!r} holds {array.dtype} values")
        return array

    def value(self, value: Any) -> Any:
        """The opposite of `Writer.value`."""
        if isinstance(value, PLAIN):
            return value
        if "array" in value:
            array = self.array(value)
            return torch.from_numpy(array.copy()) if value.get("tensor") else array
        if "tuple" in value:
            return tuple(self.value(item) for item in value["tuple"])
        if "list" in value:
            return [self.value(item) for item in value["list"]]
        if "dict" in value:
            return {key: self.value(item) for key, item in value["dict"]}
        return self.state(value)

    def state(self, value: Document) -> Any:
        """A dataclass of a method's state, by name, from those that are known here."""
        kind = state_classes().get(value["class"])
        if kind is None:
            raise FewviewError(
                f"it holds a {value['class']}, which no method here knows; install the package "
                "that the method came from"
            )
        given = {name: self.value(item) for name, item in value["fields"].items()}
        odd = sorted(given.keys() ^ {item.name for item in fields(kind)})
        if odd:
            raise FewviewError(f"{value['class']} does not have the fields {odd}")
        return kind(**given)

    def data(self, value: Document) -> MultiViewData:
        """Samples."""
        views = {view: self.array(block, "f") for view, block in value["views"]}
        data = MultiViewData(
            views, value["labels"], ids=value["ids"], columns=value["columns"], name=value["name"]
        )
        return data.with_kinds(_read_kinds(value, data.view_dims))

    def task(self, value: Document) -> TaskSpec:
        """The shape of a task."""
        rule, patterns = value["missing"], None
        if rule["patterns"] is not None:
            rows = np.array(rule["patterns"]["rows"], dtype=bool)
            patterns = np.repeat(rows, rule["patterns"]["counts"], axis=0)
        return TaskSpec(**{**value, "missing": MissingRule(**{**rule, "patterns": patterns})})

    def prepared(self, value: Document) -> Prepared:
        """Scaling, means and state, with shapes that fit each other."""
        scaling = value["scaling"]
        if scaling["rule"] not in SCALINGS:
            raise FewviewError(f"unknown scaling {scaling['rule']!r}")
        dims = dict(value["view_dims"])
        parts = []
        for name in ("shift", "factor"):
            found = {view: self.array(item, "f") for view, item in scaling[name].items()}
            fits = (found[view].shape in ((), (width,)) for view, width in dims.items())
            if list(found) != list(dims) or not all(fits):
                raise FewviewError("the scaling does not fit the views")
            parts.append(found)
        rules = scaling["rules"]
        if not (rules.keys() <= dims.keys() and set(rules.values()) <= set(SCALINGS)):
            raise FewviewError("the scaling does not fit the views")
        cells = {view: self.array(item, "f") for view, item in scaling["means"].items()}
        if {v: x.shape for v, x in cells.items()} != {v: (d,) for v, d in dims.items()}:
            raise FewviewError("the means of cells do not fit the views")
        means = self.value(value["means"])
        if means is not None and [tuple(m.shape) for m in means] != [(d,) for d in dims.values()]:
            raise FewviewError("the means do not fit the views")
        state = self.value(value["state"])
        if not isinstance(state, State):
            raise FewviewError("the state is no state of a method")
        blocks = {view: np.zeros((0, width), dtype=np.float32) for view, width in dims.items()}
        return Prepared(
            scaling=ViewScaling(scaling["rule"], parts[0], parts[1], rules, cells),
            base_means=means,
            state=state,
            reference=MultiViewData(blocks, columns=value["columns"]).with_kinds(
                _read_kinds(value, dims)
            ),
            seconds=value["seconds"],
        )

    def base(self, value: Document) -> FittedBase:
        """What was learnt from base classes."""
        limits = value["thresholds"]
        found = (value[name] for name in ("rows", "sample"))
        rows, sample = (None if item is None else self.data(item) for item in found)
        return FittedBase(
            method=value["method"],
            parameters={},  # those of the method, which is written beside it
            classes=tuple(value["classes"]),
            fingerprint=value["fingerprint"],
            task=self.task(value["task"]),
            prepared=self.prepared(value["prepared"]),
            rows=rows,
            thresholds=None
            if limits is None
            else Thresholds(tuple(limits["shots"]), self.array(limits["quantiles"], "f")),
            known=self.value(value["known"]),
            sets=self.value(value["sets"]),
            n_samples=value["n_samples"],
            sample=sample,
        )


def _kinds(data: MultiViewData) -> Document:
    """What columns of words are, as JSON."""
    return {view: [[c.name, c.kind, list(c.levels)] for c in cs] for view, cs in data.kinds.items()}


def _read_kinds(value: Document, dims: dict[str, int]) -> dict[str, tuple[Column, ...]]:
    """The opposite of `_kinds`."""
    found = {}
    for view, columns in value["kinds"].items():
        found[view] = tuple(Column(name, kind, tuple(levels)) for name, kind, levels in columns)
        fits = sum(column.width for column in found[view]) == dims.get(view)
        if not fits or any(column.kind not in KINDS for column in found[view]):
            raise FewviewError(f"the columns of view {view!r} do not fit its width")
    return found


def plain(value: Any) -> Any:
    """Return a value that JSON holds as it is, or say that it cannot be saved."""
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, PLAIN):
        raise FewviewError(
            f"{value!r} cannot be saved: only numbers, text and truth values can (labels and "
            "parameters too)"
        )
    return value


def state_classes() -> dict[str, type[Any]]:
    """Dataclasses that states of the methods loaded so far are made of, by name."""
    out: dict[str, type[Any]] = {}
    todo: list[Any] = [State]
    while todo:
        kind = todo.pop()
        if isinstance(kind, type) and is_dataclass(kind):
            if kind.__name__ in out:
                continue
            out[kind.__name__] = kind
            with suppress(NameError):  # a type that only a type checker imports holds no state
                todo += get_type_hints(kind).values()
            todo += kind.__subclasses__() if issubclass(kind, State) else []
        else:
            todo += get_args(kind)
    return out


# ------------------------------------------------------------------ methods


def write_method(method: Contract) -> Document:
    """A method as its registered name and its parameters.

    All of them are written, because defaults may change; one that is no plain value (a scikit-learn
    estimator) only as "what the name stands for".
    """
    given = {k: v for k, v in method.get_params(deep=False).items() if k not in NOT_IN_KEY}
    problem = FewviewError(
        f"{type(method).__name__} is not a registered method, so that a file cannot name it; use "
        "@register"
    )
    found: list[tuple[int, Document]] = []
    for entry in entries_of(type(method)):
        usual = entry.create()
        same = [key for key, value in given.items() if _same(value, getattr(usual, key))]
        try:
            parameters = {
                key: _write_parameter(key, value)
                for key, value in given.items()
                if not (key in same and isinstance(value, BaseEstimator))
            }
        except FewviewError as error:
            problem = error
            continue
        document = {"name": entry.name, "version": method.version, "parameters": parameters}
        found.append((len(same), document))
    if not found:
        raise problem
    return max(found, key=lambda item: item[0])[1]  # the name that says most


def _same(one: Any, two: Any) -> bool:
    text = Contract.key if isinstance(one, Contract) else repr
    return type(one) is type(two) and text(one) == text(two)


def _write_parameter(name: str, value: Any) -> Any:
    if isinstance(value, Contract):
        return {"method": write_method(value)}
    if isinstance(value, tuple):
        return {"tuple": [_write_parameter(name, item) for item in value]}
    try:
        return plain(value)
    except FewviewError:
        raise FewviewError(
            f"parameter {name}={value!r} cannot be saved; only numbers, text, truth values, tuples "
            "of them and methods can"
        ) from None


def read_method(document: Document) -> Contract:
    """The opposite of `write_method`."""
    parameters = {name: _read_parameter(v) for name, v in document["parameters"].items()}
    method = get_entry(document["name"]).create()
    strange = set(parameters) - set(method.get_params(deep=False))
    if strange:
        raise FewviewError(f"{document['name']} has no parameter {sorted(strange)[0]!r} here")
    method.set_params(**parameters)
    method.validate()
    return method


def _read_parameter(value: Any) -> Any:
    if isinstance(value, dict):
        if "method" in value:
            return read_method(value["method"])
        return tuple(_read_parameter(item) for item in value["tuple"])
    return value
