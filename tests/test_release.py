"""What is released and said about it: pages made by commands, extras, licences, tutorials."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def script(path: str) -> Any:
    """A script of the repository as a module."""
    name = f"script_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# ------------------------------------------------------------------ versions


def test_the_page_of_versions_is_what_was_recorded() -> None:
    """After a run: `python release/matrix.py --page`."""
    matrix = script("release/matrix.py")
    assert (ROOT / "docs" / "versions.md").read_text(encoding="utf-8") == matrix.page(
        matrix.known()
    )


def test_the_parts_of_the_matrix_are_all_tests() -> None:
    matrix = script("release/matrix.py")
    listed = [path for part in matrix.PARTS.values() for path in part]
    there = {
        path.name
        for path in (ROOT / "tests").iterdir()
        if path.name.startswith("test_") or (path.is_dir() and any(path.rglob("test_*.py")))
    }
    assert sorted(listed) == sorted(there)
    assert set(matrix.WHAT) == set(matrix.PARTS)


def test_oldest_versions_are_those_that_are_promised() -> None:
    """What was tested as oldest is not above what pyproject.toml promises, where wheels exist."""

    matrix = script("release/matrix.py")
    tested = matrix.known()["3.11-oldest"]["versions"]
    for need in matrix.stated():
        package, bound = need.split(">=")
        found = tested[package.lower()].partition("+")[0]
        assert Version(found) >= Version(bound), (
            f"{package} {found} was tested, {bound} is promised"
        )
        assert found.startswith(bound), f"{package}: {bound} is promised, {found} the oldest tested"


def test_a_failure_is_on_the_page_of_versions() -> None:
    matrix = script("release/matrix.py")
    part = {"passed": 3, "failed": 1, "skipped": 0, "minutes": 0.5, "failures": ["tests.a::b"],
            "data": "no", "commit": "abc+", "date": "2026-01-01"}  # fmt: skip
    text = matrix.page({"3.12-oldest": {"versions": {"numpy": "1.26.0"}, "parts": {"files": part}}})
    assert "3 of 4, 0.5 min" in text
    assert "| *data sets beside the checkout* | no |\n| *commit* | abc+ |\n" in text
    assert "\n3.12-oldest, files: tests.a::b\n" in text
    assert "| numpy | 1.26 | 1.26.0 |" in text


# ------------------------------------------------------------------ artefacts and extras


def test_messages_name_extras_that_exist() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    texts += [path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")]
    named = {word for text in texts for found in re.findall(r"fewview\[([\w,]+)\]", text)
             for word in found.split(",")}  # fmt: skip
    assert named <= set(PROJECT["optional-dependencies"])
    assert {"cluster", "frames", "omics"} <= named


@pytest.mark.parametrize(
    ("library", "extra"), [("pyarrow", "frames"), ("anndata", "omics"), ("distributed", "cluster")]
)
def test_without_an_extra_its_feature_names_it(
    library: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fewview import FewviewError, MultiViewData
    from fewview.evaluate._cluster import connect
    from fewview.ground._rows import save

    find = importlib.util.find_spec

    def not_there(name: str, package: str | None = None) -> Any:
        return None if name.partition(".")[0] == library else find(name, package)

    monkeypatch.setitem(sys.modules, library, None)  # importing it fails
    for place in ("fewview.ground._checkers.find_spec", "importlib.util.find_spec"):
        monkeypatch.setattr(place, not_there)
    (tmp_path / "a.h5ad").write_bytes(b"\x89HDF\r\n\x1a\n")
    deeds = {
        "pyarrow": lambda: save([{"a": 1}], ["a"], "parquet", tmp_path / "a.parquet"),
        "anndata": lambda: MultiViewData.read(tmp_path / "a.h5ad"),
        "distributed": lambda: connect("tcp://127.0.0.1:1", 0.1),
    }
    with pytest.raises(FewviewError, match=rf"pip install '?fewview\[{extra}\]"):
        deeds[library]()


def test_the_page_of_artefacts_is_what_was_recorded() -> None:
    artefacts = script("release/artefacts.py")
    assert (ROOT / "docs" / "artefacts.md").read_text(encoding="utf-8") == artefacts.page()


def test_the_transcript_ends_well() -> None:
    """After `make check-dist`, whatever it found."""
    text = (ROOT / "release" / "results" / "transcript.txt").read_text(encoding="utf-8")
    assert text.endswith("everything of the check passed\n")
    for line in ("fewview run", "fewview predict", "fewview report", "fewview doctor --full"):
        assert f"$ {line}" in text
    assert "/tmp/" not in text


# ------------------------------------------------------------------ licences


def test_every_dependency_and_every_data_set_has_a_licence() -> None:
    """After a new dependency or data set: `python release/licences.py`."""
    from fewview.datasets._catalogue import get_spec, names

    page = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `?([\w.-]+)`? \| (.*) \|$", page, re.MULTILINE))
    extras = PROJECT["optional-dependencies"].values()
    for line in [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]:
        library = re.split(r"[<>=\[]", line)[0].lower()
        assert library in {*rows, "fewview"}, library
    for name in names():
        assert rows[name].endswith(f"| {get_spec(name).licence}"), name
    assert "not stated" not in page.replace("no licence stated", "")


def test_licences_are_found_in_what_libraries_say() -> None:
    licences = script("release/licences.py")

    class Said:
        def __init__(self, **facts: str) -> None:
            self.metadata = self
            self.facts = facts
            self.files = ["x/__init__.py", "x-1.dist-info/METADATA"]

        def get(self, key: str) -> str | None:
            return self.facts.get(key.replace("-", "_"))

        def get_all(self, key: str) -> list[str]:
            return [self.facts["Classifier"]] if "Classifier" in self.facts else []

    bsd = "License :: OSI Approved :: BSD License"
    assert licences.licence(Said(License_Expression="MIT OR Apache-2.0")) == "MIT OR Apache-2.0"
    assert licences.licence(Said(License="BSD 3-Clause License\n\nCopyright")) == (
        "BSD 3-Clause License"
    )
    assert (
        licences.licence(Said(License="Copyright (c) x\nRedistribution", Classifier=bsd)) == "BSD"
    )
    assert licences.licence(Said()) == "not stated"
    only_names = Said()
    only_names.files = ["x-1.dist-info/METADATA"]
    assert licences.licence(only_names) == "has no code, only needs others"


# ------------------------------------------------------------------ tutorials

SCRIPT = '''"""For nobody."""

# %% [markdown]
# # A title
#
# Some text.

# %%
import matplotlib.pyplot as plt
x = 2
print("said", x)
x + 1

# %%
figure, ax = plt.subplots()
ax.set_title("A drawing")

# %%
"| a |\\n|---|\\n| 1 |"
'''


def test_a_tutorial_becomes_a_page_and_a_notebook() -> None:
    tutorials = script("docs/_tools/tutorials.py")
    parts = tutorials.divide(SCRIPT)
    assert [part.is_code for part in parts] == [False, True, True, True]
    tutorials.run(parts, "made-up")
    text, pictures = tutorials.as_page(parts, "made-up")
    assert text.startswith("# A title\n\nSome text.")
    assert "```text\nsaid 2\n```\n\n```text\n3\n```" in text
    assert "![A drawing](made-up-1.png)" in text
    assert "Text(" not in text
    assert "\n| a |\n|---|\n| 1 |\n" in text
    (content,) = pictures.values()
    assert content.startswith(b"\x89PNG")
    book = json.loads(tutorials.as_notebook(parts))
    assert [cell["cell_type"] for cell in book["cells"]] == ["markdown", *["code"] * 3]
    kinds = [output["output_type"] for cell in book["cells"][1:] for output in cell["outputs"]]
    assert kinds == ["stream", "execute_result", "display_data", "execute_result"]


def test_a_tutorial_that_fails_is_told() -> None:
    tutorials = script("docs/_tools/tutorials.py")
    with pytest.raises(ZeroDivisionError):
        tutorials.run(tutorials.divide("# %%\n1 / 0\n"), "made-up")


def test_every_tutorial_is_in_the_menu_and_says_what_data_it_used() -> None:
    tutorials, pages = script("docs/_tools/tutorials.py"), script("docs/_tools/pages.py")
    assert [f"tutorials/{name}" for name in tutorials.names()] == [*pages.NAVIGATION["Tutorials"]]
    for name in ("omics", "text"):
        text = (tutorials.SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
        assert "stand-in" in text
        assert "A page of predictions" in text
