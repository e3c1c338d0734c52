"""A user with CSV files: advise, fit, predict, and everything that can go wrong on the way."""

from __future__ import annotations

import csv
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewview import FewviewWarning, MultiViewData, create, load_model
from fewview.evaluate._advice import first_choice, recommend

Invoke = Callable[..., tuple[int, str, str]]
WIDTHS = {"blood": 4, "scan": 6}


@pytest.fixture
def invoke(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Invoke:
    """Run the command in an empty folder: exit status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    return invoke


def write_tables(folder: Path, codes: Any, names: list[str], first: int, labels: bool) -> list[str]:
    """One CSV per view with the rows that have it, in another order, as a spreadsheet would."""
    folder.mkdir()
    rng = np.random.default_rng(first)
    codes = np.asarray(codes)
    centres = np.random.default_rng(0).normal(size=(12, 3)) * 3.0
    hidden = centres[codes] + 0.4 * rng.normal(size=(len(codes), 3))
    ids = [f"P{first + k:03d}" for k in range(len(codes))]
    has = rng.random((len(codes), 2)) < 0.75
    has[~has.any(1), 0] = True
    for k, (view, width) in enumerate(WIDTHS.items()):
        mixing = np.random.default_rng(k + 1).normal(size=(3, width))
        block = hidden @ mixing + 0.3 * rng.normal(size=(len(codes), width))
        with (folder / f"{view}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *(f"{view}{c}" for c in range(width))])
            for row in rng.permutation(np.flatnonzero(has[:, k])):
                writer.writerow([ids[row], *block[row].round(4)])
    if labels:
        with (folder / "labels.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "label"])
            writer.writerows([i, names[c]] for i, c in zip(ids, codes, strict=True))
    return [names[code] for code in codes]


NAMES = [*(f"known {k}" for k in range(8)), "ague", "croup", "pest", "other"]


@pytest.fixture
def tables(tmp_path: Path) -> list[str]:
    """Base classes, three new ones with two shots, and queries of those and of a stranger."""
    write_tables(tmp_path / "base", np.repeat(np.arange(8), 12), NAMES, 0, labels=True)
    write_tables(tmp_path / "support", np.repeat([8, 9, 10], 2), NAMES, 200, labels=True)
    return write_tables(tmp_path / "query", np.tile([8, 9, 10, 11], 6), NAMES, 300, labels=False)


FIT = ("fit", "--base", "base", "--method", "marginal", "-o", "base.model")
PREDICT = ("predict", "--model", "base.model", "--support", "support", "--query", "query")


def test_from_tables_to_predictions(invoke: Invoke, tables: list[str], tmp_path: Path) -> None:
    code, out, errors = invoke(*FIT)
    assert code == 0, errors
    assert out.startswith("written: base.model (")
    assert "learnt for 3-way 1-shot tasks" in errors
    code, out, errors = invoke(*PREDICT, "-o", "p.csv")
    assert code == 0, errors
    lines = list(csv.DictReader((tmp_path / "p.csv").open()))
    columns = ["id", "label", "p_ague", "p_croup", "p_pest", "views", "rejected"]
    assert list(lines[0]) == [*columns, "probability_alone"]
    assert [line["id"] for line in lines] == [f"P{300 + k:03d}" for k in range(24)]
    query = MultiViewData.read(tmp_path / "query")
    for line, mask in zip(lines, query.mask, strict=True):
        parts = [float(line[f"p_{name}"]) for name in ("ague", "croup", "pest")]
        assert sum(parts) == pytest.approx(1, abs=1e-5)
        assert line["label"] == ("ague", "croup", "pest")[int(np.argmax(parts))]
        assert line["views"] == "+".join(np.array(query.view_names)[mask])
        assert line["rejected"] == "false"
    known = [(a["label"], b) for a, b in zip(lines, tables, strict=True) if b != "other"]
    assert np.mean([found == truth for found, truth in known]) > 0.6  # a third by chance
    # The same in Python gives the same digits.
    clf = load_model("base.model").fit(MultiViewData.read("support"))
    wanted = clf.predict_proba(query).round(6)
    found = np.array([[float(li[f"p_{n}"]) for n in ("ague", "croup", "pest")] for li in lines])
    assert np.array_equal(found, wanted)
    alone = clf.predict_proba(query, inductive=True)[np.arange(24), wanted.argmax(axis=1)]
    assert [float(line["probability_alone"]) for line in lines] == alone.round(6).tolist()


def test_queries_that_look_unbalanced_are_told(
    invoke: Invoke, tables: list[str], tmp_path: Path
) -> None:
    assert invoke(*FIT)[0] == 0
    write_tables(tmp_path / "skewed", [8] * 26 + [9, 10] * 2, NAMES, 400, labels=False)
    code, _, errors = invoke(*PREDICT[:-1], "skewed", "-o", "p.csv")
    assert code == 0, errors
    assert re.search("warning: Marginal pulls towards .* unbalanced", errors)
    assert "warning" not in invoke(*PREDICT, "-o", "q.csv")[2]


def test_what_samples_say_alone_is_written_where_it_is_asked_for(
    invoke: Invoke, tables: list[str], tmp_path: Path
) -> None:
    files = ("--support", "support", "--query", "query", "-o", "p.csv")
    for method, option, wanted in (
        ("ptmap", (), False),
        ("ptmap", ("--alone",), True),
        ("proto", ("--alone",), False),  # alone anyway
        ("marginal:transductive=false", (), False),
    ):
        assert invoke("predict", "--method", method, *files, *option)[0] == 0
        lines = list(csv.DictReader((tmp_path / "p.csv").open()))
        assert ("probability_alone" in lines[0]) == wanted
    assert invoke("predict", "--method", "ptmap", *files, "--alone")[0] == 0
    line = next(csv.DictReader((tmp_path / "p.csv").open()))
    clf = create("ptmap").fit(MultiViewData.read("support"))
    alone = clf.predict_proba(MultiViewData.read("query")[:1])[0]
    wanted_p = dict(zip(clf.classes_.tolist(), alone.tolist(), strict=True))[line["label"]]
    assert float(line["probability_alone"]) == pytest.approx(wanted_p, abs=1e-5)


def test_predictions_as_a_page(invoke: Invoke, tables: list[str], tmp_path: Path) -> None:
    assert invoke(*FIT)[0] == 0
    code, out, errors = invoke(*PREDICT, "-o", "p.csv", "--reject", "0.1", "--html", "p.html")
    assert code == 0, errors
    assert "written: p.html (" in out
    text = (tmp_path / "p.html").read_text()
    for line in csv.DictReader((tmp_path / "p.csv").open()):
        (row,) = [part for part in text.split("<tbody") if f">{line['id']}</button>" in part]
        assert f'data-label="{line["label"]}"' in row
    assert "fewview predict --model base.model --support support" in text
    code, _, errors = invoke(*PREDICT, "-o", "p.csv", "--html", "query/p.html")
    assert code == 2
    assert "in the folder of inputs" in errors


def test_rejection_and_reasons(invoke: Invoke, tables: list[str], tmp_path: Path) -> None:
    assert invoke(*FIT)[0] == 0
    code, out, errors = invoke(
        *PREDICT, "-o", "p.csv", "--reject", "0.1", "--reject-label", "none", "--explain"
    )
    assert code == 0, errors
    assert "written: p.reasons.csv" in out
    lines = list(csv.DictReader((tmp_path / "p.csv").open()))
    rejected = np.array([line["rejected"] == "true" for line in lines])
    assert ((np.array([line["label"] for line in lines]) == "none") == rejected).all()
    strange = np.array(tables) == "other"
    assert rejected[strange].mean() > rejected[~strange].mean()
    reasons = list(csv.DictReader((tmp_path / "p.reasons.csv").open()))
    assert {"id", "views", "label", "runner_up", "margin", "from_blood"} <= set(reasons[0])
    first = reasons[0]
    parts = sum(float(value) for name, value in first.items() if name.startswith("from_"))
    assert parts == pytest.approx(float(first["margin"]), abs=1e-4)
    for reason, line in zip(reasons, lines, strict=True):
        assert reason["label"] == line["label"] or line["rejected"] == "true"
        wanted = float(line[f"p_{reason['label']}"])
        assert float(reason["probability"]) == pytest.approx(wanted, abs=1e-3)
    assert (tmp_path / "p.reasons.png").read_bytes()[:4] == b"\x89PNG"


def test_without_base_classes_and_other_formats(
    invoke: Invoke, tables: list[str], tmp_path: Path
) -> None:
    query = MultiViewData.read(tmp_path / "query")
    query.with_labels(tables).write(tmp_path / "query.npz")
    rest = ("--support", "support", "--query", "query.npz")
    code, _, errors = invoke("predict", "--method", "proto", *rest, "-o", "p.json")
    assert code == 0, errors
    assert "accuracy" in errors  # these queries have labels
    rows = json.loads((tmp_path / "p.json").read_text())
    assert rows[0]["rejected"] is False
    assert invoke("predict", "--method", "proto", *rest, "-o", "p.parquet")[0] == 0
    from pyarrow import parquet

    assert parquet.read_table(tmp_path / "p.parquet").column("label").to_pylist() == [
        row["label"] for row in rows
    ]


@pytest.mark.parametrize("method", ["marginal", "ugda:n_anchors=3"])
def test_a_base_set_without_labels(
    invoke: Invoke, tables: list[str], tmp_path: Path, method: str
) -> None:
    (tmp_path / "base" / "labels.csv").unlink()
    code, out, errors = invoke("fit", "--base", "base", "--method", method, "-o", "base.model")
    assert code == 0, errors
    assert out.startswith("written: base.model (")
    assert "no labels, so no base classes" in errors
    code, _, errors = invoke(*PREDICT, "-o", "p.csv", "--explain")
    assert code == 0, errors
    lines = list(csv.DictReader((tmp_path / "p.csv").open()))
    known = [(a["label"], b) for a, b in zip(lines, tables, strict=True) if b != "other"]
    assert np.mean([found == truth for found, truth in known]) > 0.6  # a third by chance
    model = load_model("base.model")
    assert model.base.rows is None
    assert model.base.n_samples == len(MultiViewData.read(tmp_path / "base"))


def test_accuracy_of_queries_of_other_classes(
    invoke: Invoke, tables: list[str], tmp_path: Path
) -> None:
    query = MultiViewData.read(tmp_path / "query").with_labels(tables)
    query.write(tmp_path / "query.npz")
    query[[label != "other" for label in tables]].write(tmp_path / "known.npz")
    assert invoke(*FIT)[0] == 0
    for folder, options in (("query", ()), ("query", ("--reject", "0.1")), ("known", ())):
        code, _, errors = invoke(*PREDICT[:-1], f"{folder}.npz", "-o", "p.csv", *options)
        assert code == 0, errors
        lines = list(csv.DictReader((tmp_path / "p.csv").open()))
        truth = tables if folder == "query" else [label for label in tables if label != "other"]
        kept = [(line["label"], label) for line, label in zip(lines, truth, strict=True)
                if label != "other" and line["rejected"] == "false"]  # fmt: skip
        share = f"{100 * np.mean([a == b for a, b in kept]):.1f} %"
        if folder == "known":
            assert f"accuracy {share} on 18 labelled queries\n" in errors
            continue
        gone = sum(line["rejected"] == "true" for line, label in zip(lines, truth, strict=True)
                   if label == "other")  # fmt: skip
        strange = "6 queries have a label that no support has (other)"
        if options:
            ending = f", {gone} rejected; accuracy on the other {len(kept)} that were not rejected"
        else:
            ending = "; accuracy on the other 18"
        assert f"{strange}{ending} is {share}" in errors


def test_too_few_base_classes_to_reject(invoke: Invoke, tables: list[str], tmp_path: Path) -> None:
    base = MultiViewData.read(tmp_path / "base")
    base[base.codes < 3].write(tmp_path / "few.npz")
    needed = "needs at least 4 base classes, 2 of them with"
    code, _, errors = invoke("fit", "--base", "few.npz", *FIT[3:])
    assert code == 0, errors
    assert "warning: " in errors
    assert "--reject" in errors
    assert needed in errors
    code, _, errors = invoke(*PREDICT, "-o", "p.csv", "--reject", "0.1")
    assert code == 2
    assert "is learnt from at least 4 base classes, and this model has 3" in errors
    assert "warning" not in invoke(*FIT)[2]


def test_labels_by_another_name(invoke: Invoke, tables: list[str], tmp_path: Path) -> None:
    assert invoke(*FIT)[0] == 0
    assert invoke(*PREDICT, "-o", "p.csv")[0] == 0
    wanted = (tmp_path / "p.csv").read_text()
    for folder in ("base", "support"):
        file = tmp_path / folder / "labels.csv"
        file.write_text(file.read_text().replace("id,label", "id,illness"))
    assert invoke(*FIT)[0] == 0  # it is the only column beside the ids
    code, _, errors = invoke(*FIT, "--labels", "illness")
    assert code == 0, errors
    code, _, errors = invoke(*PREDICT, "-o", "p.csv", "--labels", "illness")
    assert code == 0, errors
    assert "queries are read without labels" in errors
    assert (tmp_path / "p.csv").read_text() == wanted


def test_a_misspelt_view(invoke: Invoke, tables: list[str], tmp_path: Path) -> None:
    assert invoke(*FIT)[0] == 0
    (tmp_path / "query" / "scan.csv").rename(tmp_path / "query" / "scans.csv")
    _, _, errors = invoke(*PREDICT, "-o", "p.csv")
    assert "'scans'" in errors
    assert "did you mean 'scan'?" in errors
    # In the supports it is taken for a new sensor, and told.
    (tmp_path / "support" / "scan.csv").rename(tmp_path / "support" / "scans.csv")
    with pytest.warns(FewviewWarning, match="'scans' is not in the base.*did you mean 'scan'"):
        assert invoke(*PREDICT, "-o", "p.csv")[0] == 0
    for folder in ("query", "support"):  # without samples that have nothing else
        blood = set((tmp_path / folder / "blood.csv").read_text().split())
        known = {line.split(",")[0] for line in blood}
        for file in (tmp_path / folder).glob("*.csv"):
            lines = file.read_text().splitlines(keepends=True)
            file.write_text("".join(x for x in lines if x.split(",")[0].strip() in known))
        (tmp_path / folder / "scans.csv").unlink()
    code, _, errors = invoke(*PREDICT, "-o", "p.csv")
    assert code == 0, errors
    assert "view 'scan' is only in the base set" in errors


def test_advise(invoke: Invoke, tables: list[str], tmp_path: Path) -> None:
    code, out, errors = invoke(
        "advise", "base", "--methods", "proto,partial-nn", "--splits", "3", "--episodes", "4",
        "--shot", "2", "-o", "advice",
    )  # fmt: skip
    assert code == 0, errors
    assert "2-shot" in out
    rate = 100 * MultiViewData.read(tmp_path / "base").missing_rate
    assert f"{rate:.0f} % of views missing as in the data" in out
    for name in ("proto", "partial-nn", "concat-logistic", "concat-hgb"):
        assert name in out
    assert "Use " in out
    assert (tmp_path / "advice" / "report.html").read_text().startswith("<!doctype html>")
    again = invoke("advise", "base", "--methods", "proto,partial-nn", "--splits", "3",
                   "--episodes", "4", "--shot", "2", "-o", "advice")  # fmt: skip
    assert "15 already stored" in again[2]


def test_marginal_is_credited_with_the_classes_that_it_could_not_learn_from() -> None:
    """Leads of 8 and 15 points on soybean were taken for chance; now they count."""
    assert (
        first_choice({"ptmap": 97.0, "marginal": 82.0}, {"marginal": (-60.0, 90.0)}, 3) == "ptmap"
    )
    assert (
        first_choice({"ptmap": 97.0, "marginal": 94.5}, {"marginal": (2.0, 3.0)}, 3) == "marginal"
    )
    assert first_choice({"ptmap": 97.0, "proto": 96.0}, {}, 3) == "ptmap"


def test_of_level_plain_classifiers_logistic_regression_is_taken() -> None:
    found = {"concat-hgb": 90.0, "concat-nn": 89.9, "concat-logistic": 89.6, "proto": 80.0}
    assert first_choice(found, {"concat-logistic": (-0.2, 1.0)}) == "concat-logistic"
    assert first_choice(found, {"concat-logistic": (0.2, 1.0)}) == "concat-hgb"
    unknown = (float("nan"), float("nan"))  # one division: no interval
    assert first_choice(found, {"concat-logistic": unknown}) == "concat-logistic"
    # Special methods and logistic regression are different things: no such rule.
    both = {"ugda": 90.0, "concat-logistic": 89.5}
    assert first_choice(both, {"concat-logistic": (-1.0, 2.0)}) == "ugda"
    plain = {"concat-logistic": 90.0, "concat-nn": 89.5}
    assert first_choice(plain, {"concat-nn": (-1.0, 2.0)}) == "concat-logistic"


def test_the_recommendation_says_how_sure_it_is() -> None:
    def row(method: str, accuracy: float, seconds: float) -> dict[str, Any]:
        return {"method": method, "accuracy": accuracy, "ci_low": accuracy - 2, "way": 3,
                "ci_high": accuracy + 2, "shot": 1, "seconds": seconds}  # fmt: skip

    def pair(one: str, two: str, difference: float, half: float) -> dict[str, Any]:
        return {"one": one, "two": two, "difference": difference, "low": difference - half,
                "high": difference + half,
                "verdict": "better" if difference > half else "open"}  # fmt: skip

    rows = [row("ugda", 90, 10), row("proto", 88, 1), row("concat-logistic", 80, 2)]
    pairs = [
        pair("proto", "ugda", -2.0, 3.0),
        pair("ugda", "concat-logistic", 10.0, 4.0),
        pair("proto", "concat-logistic", 8.0, 4.0),
    ]
    text = recommend(rows, pairs)
    assert text.startswith("Use ugda: 90.0 %")
    assert "88.0 to 92.0" in text
    assert "10.0 points above" in text
    assert "proto is not clearly worse" in text
    assert "as many queries" in text  # ugda assumes balance
    usual = recommend([row("marginal", 89, 2), *rows], [pair("ugda", "marginal", 1.0, 3.0)])
    assert usual.startswith("Use marginal: 89.0 %")
    assert "ugda is 1.0 points ahead" in usual
    plain = recommend([rows[2], rows[1]], [pair("concat-logistic", "proto", 5.0, 1.0)])
    assert "no special method is ahead" in plain
    assert "clearly worse" not in plain


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "--base", "nosuch", "-o", "x.model"), "nosuch"),
        (("fit", "--base", "base", "-o", "no/such/x.model"), "does not exist"),
        (("fit", "--base", "query", "--method", "bavardage", "-o", "x.model"),
         "learns from base classes first"),
        (("fit", "--base", "base", "--eta", "0.9", "-o", "x.model"), "largest possible rate"),
        (("fit", "--base", "base", "--way", "1", "-o", "x.model"), "at least 2 classes"),
        (("fit", "--base", "base", "--method", "concat-logistic", "-o", "x.model"), "--base-rows"),
        (("fit", "--base", "base", "--method", "nosuch", "-o", "x.model"), "no method 'nosuch'"),
        (("predict", "--query", "query", "-o", "x.csv"), "either --model"),
        (("predict", "--method", "proto", "--query", "query", "-o", "x.csv"), "give --support"),
        (("predict", "--method", "proto", "--support", "query", "--query", "query", "-o", "x.csv"),
         "supports have no labels; in a folder, add labels.csv"),
        (("predict", "--method", "proto", "--support", "support", "--query", "query",
          "-o", "x.doc"), "write predictions as .csv"),
        (("predict", "--method", "bavardage", "--support", "support", "--query", "query", "-o",
          "x.csv"), "learns from base classes first"),
        (("predict", "--method", "proto", "--support", "support", "--query", "query", "-o", "x.csv",
          "--reject", "0.05"), "there are none"),
        (("predict", "--model", "support/labels.csv", "--support", "support", "--query", "query",
          "-o", "x.csv"), "not a model file"),
        (("advise", "query"), "no labels"),
    ],
)  # fmt: skip
def test_mistakes_are_one_message_and_leave_nothing_behind(
    invoke: Invoke, tables: list[str], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    before = sorted(path for path in tmp_path.rglob("*") if path.name != "advice")
    code, out, errors = invoke(*arguments)
    assert code == 2, errors
    assert message in errors
    assert [line for line in errors.splitlines() if line.startswith("error: ")] == [
        errors.splitlines()[-1]
    ]
    assert out == ""
    assert sorted(p for p in tmp_path.rglob("*") if p.name != "advice") == before


def test_open_set(invoke: Invoke, tmp_path: Path) -> None:
    methods = "proto,marginal"
    code, out, errors = invoke(
        "bench", "digits", "--methods", methods, "--eta", "0,0.5", "--splits", "2",
        "--episodes", "6", "--open-set", "--json", "open.json",
    )  # fmt: skip
    assert code == 0, errors
    assert "precision at recall 0.9" in out
    rows = json.loads((tmp_path / "open.json").read_text())
    assert [(row["method"], row["eta"]) for row in rows] == [
        ("proto", 0.0), ("marginal", 0.0),
        ("proto", 0.5), ("marginal", 0.5),
    ]  # fmt: skip
    for row in rows:
        assert (row["way"], row["n_episodes"]) == (2, 12)  # 4 novel digits: two are unknown
        assert row["auroc"] > 60
        assert row["precision_at_recall_90"] >= 50  # as many unknown as known: chance is 50
    assert rows[0]["auroc"] > rows[2]["auroc"]


def test_a_base_class_among_the_supports_is_refused(invoke: Invoke, tables: list[str]) -> None:
    assert invoke(*FIT)[0] == 0
    code, _, errors = invoke(
        "predict", "--model", "base.model", "--support", "base", "--query", "query", "-o", "x.csv"
    )
    assert code == 2
    assert "must not overlap" in errors


def test_one_command_from_folder_to_predictions(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of mice, with the key and the group under names of their own."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    groups = [*np.repeat(list("PQRST"), 8), *"AABB", *[""] * 10]
    truth = [*np.repeat(list("PQRST"), 8), *"AABB", *"ABABABABAB"]
    (tmp_path / "mice").mkdir()
    centres = 6 * rng.normal(size=(7, 3))
    blood, scan = ["mouse,group,diet,x,y"], ["mouse,z"]
    for row, (group, name) in enumerate(zip(groups, truth, strict=True)):
        place = "PQRSTAB".index(name)
        x, y, z = centres[place] + rng.normal(size=3)
        diet = ["hay", "corn", "meat", "oats", "rice", "peas", "fish"][place]
        blood.append(f"m{row},{group},{diet if row % 3 else ''},{x},{y if row % 5 else ''}")
        scan += [f"m{row},{z}"] if row % 4 else []
    (tmp_path / "mice" / "blood.csv").write_text("\n".join(blood) + "\n")
    (tmp_path / "mice" / "scan.csv").write_text("\n".join(scan) + "\n")
    command = ("predict", "--data", "mice", "--key", "mouse", "--labels", "group", "-o", "p.csv")
    code, out, errors = invoke(*command, "--new", "A,B", "--seconds", "0")
    assert code == 0, errors
    assert "5 known classes with 40 samples; 2 new classes (A, B) with 4 labelled" in errors
    assert "10 samples to predict" in errors
    assert "expect about " in errors
    assert "empty cells, integrated out" in errors  # marginal was chosen
    assert errors.rstrip().splitlines()[-1].startswith("next: ")
    assert "written: p.csv (10 predictions, 2 classes)" in out
    with (tmp_path / "p.csv").open() as file:
        found = {row["id"]: row["label"] for row in csv.DictReader(file)}
    assert list(found) == [f"m{row}" for row in range(44, 54)]
    assert sum(found[f"m{row}"] == truth[row] for row in range(44, 54)) >= 8
    code, _, errors = invoke(*command, "--method", "proto")  # A and B have fewest samples
    assert code == 0, errors
    assert "which have the fewest" in errors
    for more, message in (
        (("--model", "a.model"), "--data holds everything"),
        (("--new", "A,C"), "--new C: no labelled sample is of this class"),
    ):
        code, _, errors = invoke(*command, *more)
        assert code == 2
        assert message in errors
    code, _, errors = invoke("predict", "-o", "p.csv")
    assert code == 2
    assert "give --query" in errors


def test_what_is_missing_is_filled_in(invoke: Invoke, tables: list[str], tmp_path: Path) -> None:
    """By a model or by the samples themselves; ids, labels and measured cells stay."""
    status, _, _ = invoke("fit", "--base", "base", "-o", "base.model")
    assert status == 0
    status, out, err = invoke("impute", "query", "--model", "base.model", "-o", "filled")
    assert status == 0, err
    query, filled = MultiViewData.read(tmp_path / "query"), MultiViewData.read(tmp_path / "filled")
    unsure = MultiViewData.read(tmp_path / "filled-deviations")
    assert sorted(filled.ids.tolist()) == sorted(query.ids.tolist()) == sorted(unsure.ids.tolist())
    assert f"{int((~query.mask).sum())} missing views and 0 empty cells filled" in out
    assert filled.missing_rate == 0
    place = {name: row for row, name in enumerate(filled.ids.tolist())}
    order = [place[name] for name in query.ids.tolist()]
    wanted, deviations = load_model(tmp_path / "base.model").impute(query)
    for view in WIDTHS:
        np.testing.assert_allclose(filled.view(view)[order], wanted.view(view), atol=1e-6)
        np.testing.assert_allclose(unsure.view(view)[order], deviations.view(view), atol=1e-6)
        there = query.mask[:, query.view_names.index(view)]
        assert np.array_equal(filled.view(view)[order][there], query.view(view)[there])
        assert (unsure.view(view)[order][~there] > 0).all()
    assert invoke("impute", "base", "-o", "own.npz")[0] == 0
    own = MultiViewData.read(tmp_path / "own.npz")
    assert own.labels.tolist() == MultiViewData.read(tmp_path / "base").labels.tolist()
    status, _, err = invoke("impute", "query", "-o", "query")
    assert status == 2
    assert "is an input" in err
    assert invoke("fit", "--base", "base", "--method", "proto", "-o", "other.model")[0] == 0
    status, _, err = invoke("impute", "query", "--model", "other.model", "-o", "x")
    assert status == 2
    assert "only marginal can impute" in err


def test_sets_of_classes(invoke: Invoke, tables: list[str], tmp_path: Path) -> None:
    given = ("--support", "support", "--query", "query", "-o", "p.csv", "--sets", "0.9")
    assert invoke("fit", "--base", "base", "--shot", "2", "-o", "base.model")[0] == 0
    status, _, err = invoke("predict", "--model", "base.model", *given)
    assert status == 0, err
    with (tmp_path / "p.csv").open() as file:
        for row in csv.DictReader(file):
            assert row["label"] == row["set"].split("|")[0]


def test_queries_may_be_of_base_classes_too(
    invoke: Invoke, tables: list[str], tmp_path: Path
) -> None:
    assert invoke("fit", "--base", "base", "-o", "base.model")[0] == 0
    given = ("--model", "base.model", "--support", "support", "-o", "p.csv", "--classes", "all")
    for asked, share in (("base", 0.5), ("query", 0.5)):
        status, _, err = invoke("predict", *given, "--query", asked, "--reject", "0.05")
        assert status == 0, err
        with (tmp_path / "p.csv").open() as file:
            rows = list(csv.DictReader(file))
        known = [key for key in rows[0] if key.startswith("p_known")]
        assert len(known) == 8
        assert {"p_ague", "p_croup", "fit"} <= rows[0].keys()
        mass = np.mean([sum(float(row[key]) for key in known) for row in rows])
        assert mass > share if asked == "base" else mass < share
        assert all((float(row["fit"]) < 0.05) == (row["rejected"] == "true") for row in rows)
    status, _, err = invoke("predict", *given[:-1], "both", "--query", "query")
    assert status == 2
    assert "classes" in err
    status, _, err = invoke("predict", *given, "--query", "query", "--sets", "0.9")
    assert status == 2
    assert "leave out --sets or --classes all" in err


def test_queries_in_other_units_are_told(invoke: Invoke, tables: list[str], tmp_path: Path) -> None:
    """Grams in place of kilograms: 15 % right where 69 were, and no word about it."""
    query = MultiViewData.read(tmp_path / "query")
    scaled = MultiViewData(
        {view: 1000 * block for view, block in query.views.items()},
        ids=None if query.ids is None else query.ids.tolist(), columns=query.columns,
    )  # fmt: skip
    scaled.write(tmp_path / "grams")
    command = ("predict", "--method", "proto", "--support", "support", "-o", "x.csv", "--query")
    with pytest.warns(FewviewWarning, match="'blood': numbers of the queries are about 900 times"):
        assert invoke(*command, "grams")[0] == 0
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*units are the same", FewviewWarning)
        assert invoke(*command, "query")[0] == 0
