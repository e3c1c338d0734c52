"""Wrong tables, models and options: refused or told, by name, and no input is changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Invoke = Callable[..., tuple[int, str, str]]
HEAD = {"blood": "id,hb,crp,iron,diet", "scan": "id,area,depth", "labels": "id,label"}
PREDICT = "predict --model a.model --support support --query query -o p.csv"
ONE = "predict --data all --method proto -o p.csv"
SHOW = "data show base"


def put(file: str | Path, rows: Sequence[str]) -> None:
    Path(file).write_text("\n".join(rows) + "\n", encoding="utf-8")


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    """Folders base, support and query with the views blood and scan, `all` of them, a model."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    centres = {name: 3 * rng.normal(size=5) for name in "PQRSXY"}
    whole: dict[str, list[str]] = {view: [] for view in HEAD}
    for part, classes in {"base": "PQRS" * 10, "support": "XY" * 2, "query": "XY" * 6}.items():
        own: dict[str, list[str]] = {view: [] for view in HEAD}
        for row, name in enumerate(classes):
            sample = f"{part[0]}{row}"
            numbers = [f"{x:.4f}" for x in centres[name] + rng.normal(size=5)]
            own["blood"].append(f"{sample},{','.join(numbers[:3])},{'hay' if row % 2 else 'corn'}")
            own["scan"].append(f"{sample},{','.join(numbers[3:])}")
            own["labels"].append(f"{sample},{name}")
        Path(part).mkdir()
        for view, rows in own.items():
            put(f"{part}/{view}.csv", [HEAD[view], *rows])
            whole[view] += rows if (view, part) != ("labels", "query") else []
    Path("all").mkdir()
    for view, rows in whole.items():
        put(f"all/{view}.csv", [HEAD[view], *rows])
    assert invoke("fit", "--base", "base", "--method", "proto", "-o", "a.model")[0] == 0


def cells(file: str, *at: int, rows: slice = slice(None), to: Any) -> None:
    """Change cells of some lines after the head, to a text or by a function of the old one."""
    head, *body = Path(file).read_text(encoding="utf-8").splitlines()
    for number in range(len(body))[rows]:
        parts = body[number].split(",")
        for place in at:
            parts[place] = to(parts[place]) if callable(to) else to
        body[number] = ",".join(parts)
    put(file, [head, *body])


def replace(file: str, old: str, new: str) -> None:
    text = Path(file).read_text(encoding="utf-8")
    assert old in text
    put(file, text.replace(old, new).splitlines())


def cut(file: str, size: int) -> None:
    Path(file).write_bytes(Path(file).read_bytes()[:size])


def altered() -> None:
    content = Path("a.model").read_bytes()
    Path("a.model").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def ids_as_decimals() -> None:
    for view in HEAD:
        cells(f"base/{view}.csv", 0, to=lambda x, v=view: x[1:] + ".0" * (v == "scan"))


def another_key() -> None:
    for view in HEAD:
        replace(f"base/{view}.csv", "id,", "who,")


def only_in_base() -> None:
    for part in ("support", "query"):
        Path(f"{part}/scan.csv").unlink()


def new_sensor() -> None:
    for part in ("support", "query"):
        put(f"{part}/new.csv", Path(f"{part}/scan.csv").read_text().splitlines())


def no_view() -> None:
    cells("query/blood.csv", 1, 2, 3, 4, rows=slice(1), to="")
    cells("query/scan.csv", 1, 2, rows=slice(1), to="")


def all_labelled() -> None:
    ids = [line.split(",")[0] for line in Path("all/blood.csv").read_text().splitlines()[1:]]
    put("all/labels.csv", ["id,label", *(f"{k},{'XYPQ'[n % 4]}" for n, k in enumerate(ids))])


def save_npz(**arrays: Any) -> None:
    np.savez("mine.npz", **arrays)


def nothing() -> None:
    pass


# What is done to the inputs, the command, its status, and what its message names.
BLOOD, SCAN = "base/blood.csv", "base/scan.csv"
CASES: dict[str, tuple[Callable[[], object], str, int, tuple[str, ...]]] = {
    "empty cells": (lambda: cells("query/blood.csv", 1, to=""), PREDICT, 0, ("12 empty",)),
    "a word among numbers": (lambda: cells(BLOOD, 1, rows=slice(3, 4), to="high"), SHOW, 2,
                             ("'blood'", "'hb'", "line 5", "'high'")),
    "decimal commas": (lambda: cells(SCAN, 1, to='"0,85"'), SHOW, 2, ("'scan'", "'0,85'")),
    "thousands": (lambda: cells(SCAN, 1, to='"1,234.5"'), SHOW, 2, ("'scan'", "'1,234.5'")),
    "infinite": (lambda: cells(SCAN, 1, rows=slice(1), to="inf"), SHOW, 2, ("'area'", "infinite")),
    "an unseen category": (lambda: cells("query/blood.csv", 4, to="fish"), PREDICT, 0,
                           ("'blood'", "diet")),
    "a word for a number": (lambda: cells("query/scan.csv", 1, to="far"), PREDICT, 2,
                            ("'scan'", "'area'", "'far'")),
    "a column is gone": (lambda: replace("query/scan.csv", "depth", "width"), PREDICT, 0,
                         ("'scan'", "'depth'")),
    "all columns are gone": (lambda: replace("query/scan.csv", HEAD["scan"], "id,u,v"), PREDICT, 2,
                             ("'scan'", "'area'", "'u'")),
    "a new sensor": (new_sensor, PREDICT, 0, ("'new'", "base set")),
    "a view only in the base set": (only_in_base, PREDICT, 0, ("'scan'",)),
    "a misspelt view": (lambda: Path("query/scan.csv").rename("query/scans.csv"), PREDICT, 0,
                        ("'scans'", "blood, scan")),
    "ids with spaces": (lambda: cells(SCAN, 0, to=" {} ".format), SHOW, 2,
                        ("blood.csv", "scan.csv", "' b0 '")),
    "ids as decimals": (ids_as_decimals, SHOW, 2, ("'0.0'", "scan.csv")),
    "an id twice": (lambda: cells(SCAN, 0, rows=slice(2, 3), to="b0"), SHOW, 2,
                    ("scan.csv", "'b0'", "line 2", "line 4")),
    "no id": (lambda: cells(SCAN, 0, rows=slice(2, 3), to=""), SHOW, 2, ("scan.csv", "line 4")),
    "no column id": (another_key, SHOW, 0, ("'id'", "'who'", "--key")),
    "no such key": (nothing, f"{SHOW} --key mouse", 2, ("'mouse'", "--key")),
    "labels of nobody": (lambda: cells("base/labels.csv", 0, rows=slice(1), to="zz"), SHOW, 0,
                         ("labels.csv", "'zz'")),
    "no such label column": (nothing, f"{SHOW} --labels grop", 2, ("'grop'", "area")),
    "no labels": (lambda: Path("support/labels.csv").unlink(), PREDICT, 2, ("support", "labels")),
    "a base class as support": (lambda: replace("support/labels.csv", "X", "P"), PREDICT, 2,
                                ("'P'", "base")),
    "supports of one class": (lambda: replace("support/labels.csv", "Y", "X"), PREDICT, 2,
                              ("one class",)),
    "no view at all": (no_view, PREDICT, 2, ("q0", "no view")),
    "a short line": (lambda: replace(SCAN, "b3,", "b3\nb99,"), SHOW, 2, (SCAN, "line 5")),
    "not UTF-8": (lambda: Path(SCAN).write_bytes("id,größe\nb0,1\n".encode("latin-1")), SHOW, 0,
                  ("scan.csv", "UTF-8", "'größe'")),
    "an empty file": (lambda: Path(SCAN).write_bytes(b""), SHOW, 2, (SCAN, "empty")),
    "no such folder": (nothing, "data show nowhere/", 2, ("nowhere", "no such")),
    "an array": (lambda: np.save("a.npy", np.ones((3, 2))), "data show a.npy", 2, ("a.npy", "ids")),
    "a pickle": (lambda: save_npz(view_a=np.array([[{}]], dtype=object)), "data show mine.npz", 2,
                 ("mine.npz", "view_a", "pickle")),
    "a cut .npz": (lambda: (save_npz(view_a=np.ones((9, 9))), cut("mine.npz", 200)),
                   "data show mine.npz", 2, ("mine.npz", "damaged")),
    "a cut model": (lambda: cut("a.model", -9), PREDICT, 2, ("a.model", "cut off")),
    "an altered model": (altered, PREDICT, 2, ("a.model", "checksum")),
    "output is an input": (nothing, PREDICT.replace("p.csv", "query/blood.csv"), 2,
                           ("query/blood.csv",)),
    "output among inputs": (nothing, "fit --base base --method proto -o base/new.model", 2,
                            ("base/new.model",)),
    "output over its input": (lambda: save_npz(view_a=np.ones((3, 2))),
                              "data convert mine.npz mine.npz", 2, ("mine.npz",)),
    "no such new class": (nothing, f"{ONE} --new X,Z", 2, ("--new", "Z")),
    "nothing to predict": (all_labelled, f"{ONE} --new X,Y", 2, ("label",)),
    "--data and --query": (nothing, f"{ONE} --query query", 2, ("--data", "--query")),
    "no such method": (nothing, "fit --base base --method margnal -o b.model", 2,
                       ("'margnal'", "marginal?")),
}  # fmt: skip


def inputs() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path().rglob("*.*"))}


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("case", CASES)
def test_a_wrong_input_is_named_and_left_as_it_is(
    case: str, invoke: Invoke, recwarn: pytest.WarningsRecorder
) -> None:
    act, command, wanted, named = CASES[case]
    act()
    before = inputs()
    status, out, errors = invoke(*command.split())
    assert status == wanted, errors
    assert "Traceback" not in errors
    said = " ".join([errors, *(str(warning.message) for warning in recwarn)])
    for word in named:
        assert word in said
    if status:
        assert (errors.count("error: "), out) == (1, "")
    assert {path: text for path, text in inputs().items() if path != "p.csv"} == before
