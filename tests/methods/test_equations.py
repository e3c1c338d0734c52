"""Every equation of the paper is cited in the source, by printed number and label."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fewview

# Label in the TeX source -> number in print.
PRINTED = {
    "eq:2": 1, "eq:1": 2, "eq:3": 3, "eq:4": 4, "eq:5": 5, "eq:6a": 6, "eq:6b": 7, "eq:8": 8,
    "eq:9": 9, "eq:10": 10, "eq:11": 11, "eq:12": 12, "eq:16": 13, "eq:23": 14, "eq:24": 15,
    "eq:25": 16, "eq:26": 17, "eq:27": 18, "eq:30": 19, "eq:29": 20, "eq:31": 21, "eq:33": 22,
    "eq:34": 23, "eq:35": 24, "eq:36": 26,
}  # fmt: skip
SOURCE = Path(fewview.__file__).parent
# A label may stand on the line after its number.
TEXT = {
    path.relative_to(SOURCE).as_posix(): re.sub(
        r"\s*\n\s*(# )?", " ", path.read_text(encoding="utf-8")
    )
    for path in sorted(SOURCE.rglob("*.py"))
}


@pytest.mark.parametrize("label", PRINTED)
def test_an_equation_is_cited_by_its_printed_number(label: str) -> None:
    cited = [found for text in TEXT.values() for found in re.findall(rf".{{8}}\b{label}\b", text)]
    assert cited
    for found in cited:
        assert found.endswith(f" {PRINTED[label]} [{label}"), found


def test_no_other_labels_are_cited() -> None:
    found = {label for text in TEXT.values() for label in re.findall(r"\beq:\w+", text)}
    assert found == set(PRINTED)


def test_documents_that_are_not_here_are_not_cited() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    here = {path.name for path in docs.glob("*.md")}
    for name, text in TEXT.items():
        if not name.startswith(("methods/", "numerics/")):
            continue
        for document in re.findall(r"(?<!\w)([\w-]+\.md)\b", text):
            assert document in here, (name, document)
