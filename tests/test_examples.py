"""The scripts in examples/ run as they are and say what they promise."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# What a reader is to find in the output; the other numbers may move with the methods.
PROMISES = {
    "quickstart.py": [
        r"1797 samples, views: fou\[40\]",
        r"supports: .*3 samples.*3 classes",
        r"queries: .*30 samples.*3 classes",
        r"proto: accuracy \d+%",
        r"ugda: accuracy \d+%",
    ],
    "sklearn_tools.py": [
        r"40\.0% of views missing",
        r"train_test_split: 16 and 64 samples",
        r"KFold: \[20, 20, 20, 20\]",
        r"cross_val_score, proto: 0\.[6-9]",
        r"cross_val_score, ugda with a fitted base: 0\.[6-9]",
        r"GridSearchCV, proto: best \{'padding'",
        r"GridSearchCV, ugda with a fitted base: best \{'n_neighbors'",
    ],
    "own_tables.py": [
        r"181 samples \(clinic\), 2 views, 6 classes",
        r"patient +views +answer +probability +truth",
        r"right: (100|[89]\d)% of 24 patients",
    ],
    "tutorial_omics.py": [
        r"424 samples \(cohort\), 3 views, 15 classes",
        r"343 patients behind it, none inside",
        r"right: (100|9\d|8[5-9])% of 72 patients",
        r"logistic regression on filled tables: \d\d%",
    ],
    "tutorial_sensors.py": [
        r"BaseStream\(800 samples, 10 classes, .* \d+ rows kept\)",
        r"classes: new crack, new leak, new rattle",
        r"right: (100|9\d|8[5-9])% of 120 recordings",
        r"nobody labelled: (100|[2-9]\d)% called unknown",
        r"labelled ones: (\d|1[0-7])% \(10% were allowed\)",
    ],
    "tutorial_catalogue.py": [
        r"marginal: right: (100|9\d)% of 200 products",
        r"ugda: right: [5-9]\d% of 200 products",
        r"like group 07, as they were made: (100|9\d)%",
        r"one at a time: right: (100|9\d|8[5-9])% of 50 products",
    ],
    "add_a_method.py": [
        r"lap-proto +eta 0\.3 +accuracy \d\d",
        r"proto +eta 0\.3 +accuracy \d\d",
    ],
}


def run(script: Path, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", str(script)],
        cwd=folder,
        env={**os.environ, "FEWVIEW_DATA": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES} == set(PROMISES)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_example_runs_anywhere_and_leaves_nothing_behind(script: Path, tmp_path: Path) -> None:
    text = run(script, tmp_path)
    for promise in PROMISES[script.name]:
        assert re.search(promise, text), f"{promise!r} not in\n{text}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_example_is_short_and_says_how_it_is_run(script: Path) -> None:
    text = script.read_text()
    assert f"Run: python examples/{script.name}" in text
    assert len(text.splitlines()) <= 85


# ------------------------------------------------------------------ docs/add-a-method.md, followed

RECIPE = (ROOT / "docs" / "add-a-method.md").read_text(encoding="utf-8")
(FILE, *_) = re.findall(r"^```python\n(.*?)^```$", RECIPE, re.MULTILINE | re.DOTALL)


def command(words: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_of_the_recipe_work_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    lines = re.findall(r"^(?:python|fewview) .*mine:.*$", RECIPE, re.MULTILINE)
    laws, bench = (shlex.split(line)[1:] for line in lines)
    assert command(laws, tmp_path) == "mine:Near: all laws hold\n"
    said = command(["-m", "fewview", *bench, "--store", "none"], tmp_path)
    assert re.search(r"^mine:Near +\d\d\.\d", said, re.MULTILINE)
    assert re.search(r"^mine:Near:temperature=3 +\d\d\.\d", said, re.MULTILINE)


def test_a_method_from_another_package_is_a_choice_on_the_command_line(tmp_path: Path) -> None:
    """What pip writes for a package with the entry point of docs/add-a-method.md, by hand."""
    package, facts = tmp_path / "my_package", tmp_path / "my_package-1.0.dist-info"
    package.mkdir()
    facts.mkdir()
    (package / "__init__.py").write_text("")
    (package / "near.py").write_text(FILE)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (name, module), *_ = re.findall(r'^([\w-]+) = "(my_package.*)"$', RECIPE, re.MULTILINE)
    (facts / "entry_points.txt").write_text(f"[fewview.methods]\n{name} = {module}\n")
    words = ["bench", "digits", "--methods", f"{name}:temperature=3", "--splits", "1"]
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    said = command(
        ["-m", "fewview", *words, "--episodes", "2", "--store", "none"], tmp_path, PYTHONPATH=path
    )
    assert re.search(r"near:temperature=3 +\d\d\.\d", said)
