"""Figures and tables for papers: as wide as a column, readable, the best and its ties marked."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.text import Text

from fewview.drawing._charts import COLUMNS, accuracy_chart, accuracy_series, for_print
from fewview.drawing._looks import looks
from fewview.report._contents import collect
from fewview.report._papers import latex_table, write_for_papers
from fewview.report._sections import difference_chart
from fewview.results._cells import Result, example_cell
from fewview.results._comparing import winner
from fewview.results._metrics import EpisodeMetrics


def results(own: str = "my_own", etas: tuple[float, ...] = (0.0, 0.5)) -> list[Result]:
    """Two methods that cannot be told apart, and one that is far behind, on eight class splits."""
    out = []
    for name, level in (("proto", 0.8), ("match", 0.8), (own, 0.4)):
        for eta in etas:
            for k in range(8):
                shift = 0.02 * (-1) ** k - 0.001 if name == "match" else 0.0
                values = np.full(3, level - 0.2 * eta + shift)
                metrics = EpisodeMetrics(values, values, 1 - values, 1 - values, np.ones((3, 15)))
                cell = example_cell(
                    method=name, method_class=name, parameters=name, eta=eta, split=k, stop=3,
                    novel=tuple("abcdefghijklm"[k : k + 4]),
                )  # fmt: skip
                out.append(Result(cell=cell, metrics=metrics, seconds=0.1, seconds_base=0.0))
    return out


def test_a_table_is_pivoted_and_marks_the_best_and_its_ties() -> None:
    (panel,) = collect(results()).panels
    text = latex_table(panel)
    lines = [line for line in text.splitlines() if " & " in line]
    assert lines[0] == r"missing rate & \multicolumn{1}{c}{0} & \multicolumn{1}{c}{0.5} \\"
    assert len(lines) == 4
    first, second, last = lines[1:]
    assert first.count(r"\textbf{") == 2
    assert second.count(r"\underline{") == 2
    assert last.startswith(r"my\_own & 40.")
    assert "textbf" not in last
    assert "underline" not in last
    assert [text.count(rf"\{rule}") for rule in ("toprule", "midrule", "bottomrule")] == [1, 1, 1]


@pytest.mark.parametrize(("name", "inches"), COLUMNS.items())
def test_figures_are_as_wide_as_a_column_and_can_be_read(name: str, inches: float) -> None:
    (panel,) = collect(results("a name that is far too long for a column")).panels
    known = looks(panel.methods)
    series, *_ = accuracy_series(panel.rows, known, panel.methods)
    figure = for_print(accuracy_chart(panel.rows, known, panel.methods, "proto"), inches, series)
    assert figure.get_size_inches()[0] == pytest.approx(inches)
    figure.draw_without_rendering()
    letters = [t.get_fontsize() for t in figure.findobj(Text) if t.get_text()]
    assert min(letters) >= 6.99
    assert max(letters) <= 9.01
    whole = figure.bbox
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible():
            box = text.get_window_extent()
            assert box.x0 >= whole.x0 - 1, text.get_text()
            assert box.x1 <= whole.x1 + 1, text.get_text()
    long = for_print(difference_chart(winner(panel), known)[0], inches)
    assert min(text.get_window_extent().x0 for text in long.texts) >= 0
    bands = [p for p in figure.axes[0].patches if (p.get_gid() or "").startswith("band")]
    assert len(bands) == 1, "one band, so that none lies over another"


def test_everything_is_written_in_both_widths(tmp_path: Path) -> None:
    files = write_for_papers(collect(results()), tmp_path / "paper")
    names = {file.name for file in files}
    assert "digits.tex" in names
    for what in ("accuracy", "differences", "time", "ranks"):
        for width, inches in COLUMNS.items():
            assert (tmp_path / "paper" / f"digits-{what}-{width}.pdf").read_bytes()[:4] == b"%PDF"
            drawn = ElementTree.parse(tmp_path / "paper" / f"digits-{what}-{width}.svg").getroot()
            points = float(re.sub("[^0-9.]", "", drawn.get("width") or ""))
            assert points == pytest.approx(72 * inches, abs=0.5)


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no pdflatex here: apt-get install "
                    "texlive-latex-recommended texlive-fonts-recommended")  # fmt: skip
def test_the_example_is_one_page_without_a_complaint(tmp_path: Path) -> None:
    """Two figures and a table in two columns, with every letter that LaTeX reads as a command."""
    strange = r"a&b_c%d#e$f{g}h~i^j\k<l>m"
    found = results(strange, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5))
    files = write_for_papers(collect(found), tmp_path)
    assert files[-1] == tmp_path / "example.tex"
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "example.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    log = (tmp_path / "example.log").read_text(encoding="latin-1")
    assert "(1 page," in log
    for complaint in ("Overfull", "Missing character", "LaTeX Warning", "Font Warning"):
        assert complaint not in log
    if shutil.which("pdftotext"):
        asked = ["pdftotext", "-layout", "example.pdf", "-"]
        said = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True)
        for part in (strange, "Table 1: digits", "Figure 1: digits", "Figure 2: digits"):
            assert part in said.stdout
        fonts = ["pdffonts", "example.pdf"]
        kinds = subprocess.run(fonts, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "Type 3" not in kinds.stdout
