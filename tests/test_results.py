"""What is published is what was recorded: the results page, README's tables and picture."""

from __future__ import annotations

import csv
import importlib.util
import re
import shutil
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks" / "results" / "accuracy"
# A setting or a rule was chosen while looking at novel classes of these.
DEVELOPMENT = {
    "arrhythmia", "citeseer", "cub_googlenet_doc2vec", "dermatology", "epilepsy", "ering", "libras",
    "movies617", "newsgroups", "proteinfold", "satimage", "scene15", "webkb", "wikipedia",
}  # fmt: skip
FILES = (
    "README.md", "docs/results.md", "docs/images/measured/results.svg",
    "docs/images/measured/results-dark.svg",
)  # fmt: skip


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def make() -> ModuleType:
    pytest.importorskip("pandas")
    return script("benchmarks/make_results.py")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_published_results_are_up_to_date(make: ModuleType) -> None:
    assert make.problems() == []


@pytest.mark.parametrize("name", FILES)
def test_a_digit_changed_by_hand_is_found(make: ModuleType, copy: Path, name: str) -> None:
    text = (copy / name).read_text(encoding="utf-8")
    inside = max(text.find("<!-- results:digits"), text.find("<dc:description>"), 0)
    number = re.compile(r"\d+\.\d").search(text, inside)
    assert number is not None
    last = int(number[0][-1])
    changed = text[: number.end() - 1] + str((last + 1) % 10) + text[number.end() :]
    (copy / name).write_text(changed, encoding="utf-8")
    (found,) = make.problems(copy)
    assert name in found


def test_numbers_of_readme_come_from_records(make: ModuleType, copy: Path) -> None:
    readme = copy / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(text + "\nMarginal has 92.9 % on digits, with Python 3.11.\n", "utf-8")
    (found,) = make.problems(copy)
    assert "92.9" in found


def test_means_of_digits_in_readme(make: ModuleType) -> None:
    """Computed here with the standard library alone."""
    found = defaultdict(list)
    with (RECORD / "digits.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["is_default"] == "true":
                found[row["method"], float(row["eta"])].append(float(row["accuracy"]))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("proto", "ugda", "ptmap", "marginal"):
        (line,) = re.findall(rf"^\| .*\(`{name}`\) \|.*$", readme, re.MULTILINE)
        for eta in (0.0, 0.3, 0.5):
            assert len(found[name, eta]) == 10
            assert f"| {statistics.fmean(found[name, eta]):.1f} (" in line


def test_the_papers_verdict_is_that_of_the_reproduction(
    make: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(summary=lambda: "1 of 2 claims holds.")
    monkeypatch.setitem(sys.modules, "reproduction", SimpleNamespace(claims=found))
    monkeypatch.setitem(sys.modules, "reproduction.claims", found)
    assert "1 of 2 claims holds." in make.paper_verdict("something else")


def test_every_published_set_has_a_role_and_its_relation_to_the_paper(make: ModuleType) -> None:
    told = make.roles()
    assert {name for name, (role, _) in told.items() if role == "development"} == DEVELOPMENT
    assert {path.stem for path in RECORD.glob("*.csv")} <= set(told)
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    headers = [line for line in page.splitlines() if line.startswith("| ") and "role" in line]
    assert len(headers) == page.count("\n| --- |")
    assert all("| role | same as paper |" in line for line in headers)
    for name, (role, same) in told.items():
        assert role in ("development", "seen")
        assert same in ("yes", "recomputed", "stand-in", "no")
        if (RECORD / f"{name}.csv").exists():
            assert f"| {name} | {role} | {same} |" in page


def test_short_runs_and_sets_without_a_role_are_refused(make: ModuleType, tmp_path: Path) -> None:
    text = (RECORD / "digits.csv").read_text(encoding="utf-8")
    (tmp_path / "mine.csv").write_text(text.replace("digits,", "mine,"), encoding="utf-8")
    with pytest.raises(SystemExit, match="mine"):
        make.record(tmp_path)
    (tmp_path / "mine.csv").write_text(re.sub(r",40,(?=[\d.]+,cpu)", ",5,", text), "utf-8")
    with pytest.raises(SystemExit, match="too few tasks"):
        make.record(tmp_path)


def test_settings_of_records_are_resolved(make: ModuleType) -> None:
    settings = (RECORD / "settings.json").read_text(encoding="utf-8")
    used = {
        row["settings_id"]
        for path in RECORD.glob("*.csv")
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    }
    assert used
    assert all(f'"{name}"' in settings for name in used)


def test_a_default_setting_spelt_out_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And stands in the record once: PT-MAP was once left out for how it was typed."""
    accuracy = script("benchmarks/experiments/accuracy.py")
    monkeypatch.setattr(accuracy, "QUICK", tmp_path)
    monkeypatch.setattr(accuracy, "ROOT", tmp_path)
    arguments = ["accuracy.py", "record", "--quick", "--datasets", "digits"]
    arguments += ["--store", str(tmp_path / "store.sqlite"), "--methods"]
    for typed in ("ptmap", "ptmap:scaling=standard+unit", "ptmap:scaling=standard"):
        monkeypatch.setattr(sys, "argv", [*arguments, typed])
        accuracy.main()
    rows = list(csv.DictReader((tmp_path / "digits.csv").read_text("utf-8").splitlines()))
    assert {row["method"] for row in rows} == {"ptmap"}
    assert sorted(row["is_default"] for row in rows) == ["false"] * 6 + ["true"] * 6
    assert {row["n_tasks"] for row in rows} == {"5"}
