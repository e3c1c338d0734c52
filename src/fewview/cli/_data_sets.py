"""`fewview data`: look at data sets and files, convert, download."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fewview.cli._declared import DataDir, Force, Html, Wide, takes
from fewview.cli._fit import read_samples
from fewview.cli._text import examples, leads_to, print_table, print_text, suggest
from fewview.ground._flags import READING

if TYPE_CHECKING:
    from fewview.datasets._spec import DatasetSpec

data_app = typer.Typer(
    help="Look at data sets and files, convert them, download them.",
    no_args_is_help=True,
    epilog=examples(
        "fewview data list", "all known sets, and which are here",
        "fewview data info handwritten", "views, classes, the paper's setting, source",
        "fewview data show my_data.npz", "what a file holds",
        "fewview data show my_data.npz --html data.html", "the same with distributions, as a page",
        "fewview data convert tables/ my_data.npz", "one table per view into one file",
        "fewview data convert cells.h5ad cells.npz --labels cell_type", "from AnnData",
        "fewview data convert my_data.npz my_data.mat", "for MATLAB",
        "fewview data fetch handwritten", "download from its public address",
    ),
)  # fmt: skip

FILE = "An .npz, .mat, .h5mu or .h5ad file, or a folder with one table per view."


@data_app.command("list")
@leads_to("fewview data info NAME")
def list_(data_dir: DataDir = None, wide: Wide = False) -> None:
    """List the known data sets and say which are present."""
    from fewview.datasets._catalogue import data_folder, get_spec, is_present, names

    lines = []
    for name in names():
        spec = get_spec(name)
        here = "embedded" if spec.embedded else "yes" if is_present(name, data_dir) else "no"
        if here == "no" and spec.fetchable:
            here = "no, can be fetched"
        lines.append(
            (
                name,
                here,
                "?" if spec.n_samples is None else str(spec.n_samples),
                str(spec.n_classes),
                _views(spec),
                f"{spec.n_base}/{spec.n_novel}",
                f"{spec.way}-way {spec.shot}-shot {spec.queries}",
                spec.role,
                spec.same_as_paper,
            )
        )
    header = (
        "data set", "present", "samples", "classes", "views", "base/novel", "task (queries)",
        "role", "same as paper",
    )  # fmt: skip
    print_table(header, lines, right=(2, 3), drop=(5, 8, 7), text={4: 24}, wide=wide)
    print(f"data folder: {data_folder(data_dir)}")


def _views(spec: DatasetSpec) -> str:
    return ", ".join(name if width is None else f"{name} {width}" for name, width in spec.views)


@data_app.command()
@leads_to("fewview bench {name}")
def info(
    name: Annotated[str, typer.Argument(help="A known data set, or a file.")],
    data_dir: DataDir = None,
) -> None:
    """Show what is known about a data set: views, classes, the paper's setting, source."""
    from pathlib import Path

    from fewview.datasets._catalogue import get_spec, is_present, names, path_of

    if name not in names() and Path(name).exists():
        _show(name)
        return
    spec = get_spec(name)
    path = path_of(name, data_dir)
    where = "embedded" if path is None else str(path)
    if not is_present(name, data_dir):
        where = f"not present (expected at {where})"
    classes = f"{spec.n_classes}: {spec.n_base} base"
    classes += f" (of {spec.base_from})" if spec.base_from else ""
    classes += f", {spec.n_val} validation" if spec.n_val else ""
    classes += f", {spec.n_novel} novel"
    classes += " (one fixed split)" if spec.fixed_split else ""
    authors = [
        f"{label} {value}"
        for label, value in (
            ("latent width", spec.latent_dim),
            ("anchors", spec.n_anchors),
            ("tasks per batch", spec.tasks_per_batch),
        )
        if value is not None
    ]
    table = f" (table {spec.paper_table})" if spec.paper_table else ""
    facts = (
        ("name", spec.name),
        ("title", spec.title),
        ("file", where),
        ("samples", "unknown" if spec.n_samples is None else str(spec.n_samples)),
        ("views", _views(spec)),
        ("classes", classes),
        ("task", f"{spec.way}-way {spec.shot}-shot, {spec.queries} queries per class"),
        ("authors' UGDA", ", ".join(authors)),
        ("role", spec.role),
        ("same as paper", spec.same_as_paper + table),
        ("source", spec.source),
        ("licence", spec.licence),
        ("cite", spec.citation),
        ("how to get it", spec.how_to_get),
        ("note", spec.note),
    )
    for label, value in facts:
        if value:
            print_text(f"{label + ':':<15}{value}", 15)


@data_app.command()
@takes(READING)
def show(
    file: Annotated[str, typer.Argument(help=FILE)], html: Html = None, **reading: Any
) -> None:
    """Show what a file or folder holds: samples, views, classes, which views are missing."""
    from fewview.datasets._catalogue import names

    _show(file, html, **reading)
    predict = f", or fewview predict --data {file} --new A,B -o predictions.csv"
    suggest(f"fewview advise {file}{'' if file in names() else predict}")


def _show(file: str, html: str | None = None, **reading: Any) -> None:
    from fewview.datasets._catalogue import names
    from fewview.datasets._loading import load
    from fewview.ground._whole_files import check_output

    known = file in names()
    if html is not None:
        check_output(html, [] if known else [file])
    data = load(file) if known else read_samples(file, **reading)
    print_text(str(data), 4)
    first, *rest = str(data.summary()).split("\n")
    print_text(first, 4)
    print("\n".join(rest))
    if html is not None:
        from fewview.report.pages._looking import write_samples

        print(f"written: {write_samples(html, data, f'What is in {file}')}")


@data_app.command()
@leads_to("fewview data show {target}")
@takes(READING)
def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help=FILE)],
    target: Annotated[
        str,
        typer.Argument(
            metavar="OUT", help="A file that ends in .npz, .mat, .h5mu or .h5ad, or a new folder."
        ),
    ],
    format: Annotated[
        str | None, typer.Option(help="For a folder: csv, parquet or npy.", show_default=False)
    ] = None,
    force: Force = False,
    **reading: Any,
) -> None:
    """Convert between all file formats: .npz, .mat, .h5mu, .h5ad and folders of tables."""
    from fewview.ground._whole_files import refuse_inputs

    refuse_inputs(target, [source], force)
    data = read_samples(source, **reading)
    data.write(target, format=format)
    print_text(f"written: {target} ({data})", 4)


@data_app.command()
@leads_to("fewview bench {name}")
def fetch(
    name: Annotated[str, typer.Argument(help="A known data set with a public address.")],
    data_dir: DataDir = None,
) -> None:
    """Download a data set from its public address, check it, and put it into the data folder."""
    from fewview.datasets._fetching import fetch as fetch_data

    print(f"written: {fetch_data(name, data_dir)}")
