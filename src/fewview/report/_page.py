"""One self-contained page of a store: `write_report` is the way in.

Sections are made in `_answers.py`, `_sections.py`, `_queries.py`, `_examples.py` and
`_provenance.py`; markup, style and script are in `templates/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

from markupsafe import Markup

from fewview.drawing._looks import looks
from fewview.ground._whole_files import replacing
from fewview.report._answers import answers, leaderboard, use_key
from fewview.report._contents import Contents, collect
from fewview.report._elements import plural, sign
from fewview.report._examples import Example, example, example_episodes, missing_views
from fewview.report._provenance import how_made
from fewview.report._queries import Closer, look_closer, opened_queries, wrong_answers
from fewview.report._sections import (
    N_SHOWN,
    all_results,
    calibration,
    curves,
    ranks,
    times,
)
from fewview.report.pages._shell import make_page
from fewview.results._store import Store


def write_report(
    store: str | PathLike[str],
    output: str | PathLike[str] = "report.html",
    *,
    where: Sequence[str] = (),
    title: str | None = None,
    data_dir: str | None = None,
    examples: bool = True,
    figures: str | PathLike[str] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """Write one self-contained HTML page about the results of a store.

    Args:
        store: file of results.
        output: the page; written whole or not at all.
        where: conditions on results, as for `Store.select`.
        title: of the page; by default it names the data sets.
        data_dir: folder of data files, for example episodes.
        examples: read the data again and show example episodes.
        figures: folder for the figures as PDF and SVG, one and two columns wide, and for tables in
            LaTeX.
        tell: is told what is going on.

    Returns:
        The file written.

    Example:
        >>> import tempfile
        >>> from fewview.evaluate import Grid, run
        >>> grid = Grid(datasets=("digits",), methods=("proto", "match"), splits=2, episodes=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run(grid, f"{folder}/a.sqlite")
        ...     page = write_report(f"{folder}/a.sqlite", f"{folder}/a.html", examples=False)
        ...     page.read_text(encoding="utf-8").startswith("<!doctype html>")
        True
    """
    with replacing(output) as temporary:  # says now if the file cannot be written
        with Store(store, write=False) as reader:
            contents = collect(reader.select(where))
            told = tell or (lambda text: None)
            told(f"{len(contents.results)} results of {len(contents.panels)} data set(s)")
            some = contents.panels if examples else []
            shown = [example(panel, data_dir, tell) for panel in some]
            closer = [look_closer(panel, reader, data_dir, tell) for panel in some]
        if figures is not None:
            from fewview.report._papers import write_for_papers

            count = len(write_for_papers(contents, figures))
            told(f"{count} files for papers in {figures}; 'pdflatex example.tex' there shows some")
        asked = ["fewview", "report", str(store), "-o", str(output)]
        for condition in where:
            asked += ["--where", condition]
        text = render(contents, store=str(store), title=title, examples=shown, closer=closer,
                      asked=asked)  # fmt: skip
        temporary.write_text(text, encoding="utf-8")
    return Path(output)


def render(
    contents: Contents,
    *,
    store: str = "results.sqlite",
    title: str | None = None,
    examples: Sequence[Example | str] = (),
    closer: Sequence[Closer | str] = (),
    asked: Sequence[str] = (),
) -> str:
    """Make the page.

    Of `examples` and `closer` there is one per panel, or the reason why there is none; without any,
    the page says that they were left out. `asked` is the command that made the page.
    """
    known = looks(contents.methods)
    datasets = list(dict.fromkeys(panel.cell.dataset for panel in contents.panels))
    listed = ", ".join(datasets[:3]) + (f" and {len(datasets) - 3} more" if datasets[3:] else "")
    episodes = sum(len(result.metrics) for result in contents.results)
    etas = {row["eta"] for panel in contents.panels for row in panel.rows}
    opened = opened_queries(contents, closer)
    whose = {panel.title: one.method for panel, one in zip(contents.panels, closer, strict=False)
             if isinstance(one, Closer)}  # fmt: skip
    after = {
        part.title: (
            f"{opened.id}-{k}-part", f"Which samples does {whose[part.title]} get wrong, and why?"
        )
        for k, part in enumerate(opened.parts)
    } if opened else {}  # fmt: skip
    sections = [
        answers(contents, after),
        leaderboard(contents, contents.methods[:N_SHOWN]),
        curves(contents, known),
        opened,
        wrong_answers(contents, closer, known),
        calibration(contents, known),
        ranks(contents, known),
        times(contents, known),
        missing_views(contents, examples),
        example_episodes(contents, examples),
        all_results(contents),
        how_made(contents, store, asked),
    ]
    return make_page(
        "page.html",
        ("sorting.js", "script.js"),
        title=title or f"Few-shot accuracy with missing views: {listed}",
        summary=(
            f"{plural(len(datasets), 'data set')}, {plural(len(contents.methods), 'method')}, "
            f"{plural(len(etas), 'missing rate')}, {episodes:,} scored episodes."
        ),
        sections=[section for section in sections if section is not None],
        # Every method's line and marker stand on the page once; `use_key` points there.
        signs=[(look.key, inside(sign(look))) for look in known.values()],
        use_key=use_key,
    )


def inside(drawing: Markup) -> Markup:
    """What an `svg` element holds."""
    return Markup(drawing[drawing.index(">") + 1 : drawing.rindex("</svg>")])
