"""`fewview predict`: classify samples with a model and a few labelled samples of new classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from fewview.cli._declared import Device, Force, Html, takes
from fewview.cli._fit import read_samples
from fewview.cli._text import say, shows, suggest
from fewview.ground._flags import BLOCK, PARTS, READING

if TYPE_CHECKING:
    from fewview.engine._method import Method
    from fewview.evaluate._advice import Advice
    from fewview.evaluate._divided import Divided
    from fewview.samples._data import MultiViewData

FORMATS = {".csv": "csv", ".json": "json", ".parquet": "parquet"}


@takes({**READING, **BLOCK, **PARTS})
@shows(
    "fewview predict --data tables/ --labels group --new A,B,C -o predictions.csv",
    "one folder with everything: known classes, a few of A, B and C, and unlabelled samples",
    "fewview predict --model base.model --support support/ --query query/ -o predictions.csv",
    "the usual way",
    "fewview predict --model base.model --support support/ --query query/ -o p.csv --reject 0.05",
    "queries that look like none of the classes are called 'unknown'",
    "fewview predict --model base.model --support support/ --query query/ -o p.csv --classes all",
    "queries may be of base classes too",
    "fewview predict --method proto --support support.npz --query query.npz -o p.parquet",
    "without a model of base classes",
    "fewview predict --model base.model --support support/ --query parts/ -o p.parquet --jobs 2",
    "queries in parts, larger than memory: one folder of tables per part",
)  # fmt: skip
def predict(
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Predictions: .csv, .json or .parquet."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="One folder or file with everything: labelled samples of known and of new "
            "classes, and unlabelled ones, which are classified into the new classes.",
        ),
    ] = None,
    new: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="With --data: the new classes. Default: those with at most 5 labelled samples.",
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            help="With --data and without --method: after this time no other method is tried."
        ),
    ] = 60.0,
    query: Annotated[str | None, typer.Option(metavar="DATA", help="Samples to classify.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="FILE", help="What 'fewview fit' wrote.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="Instead of --model: a method that works without base classes; with --data, the "
            "method to use instead of the best one."
        ),
    ] = None,
    support: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="A few labelled samples of every new class."),
    ] = None,
    reject: Annotated[
        float | None,
        typer.Option(
            help="Call queries that look like none of the classes unknown; the number is the "
            "share of known ones that may be rejected by mistake, such as 0.05."
        ),
    ] = None,
    reject_label: Annotated[
        str, typer.Option(help="What rejected queries are called.")
    ] = "unknown",
    classes: Annotated[
        str,
        typer.Option(
            metavar="new|all",
            help="What samples may be: of the new classes, or of all, the base classes too.",
        ),
    ] = "new",
    sets: Annotated[
        float | None,
        typer.Option(
            help="Add the column set: the classes that hold the true one with this probability, "
            "such as 0.9; with --model, of 'fewview fit --sets'."
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Write reasons too: NAME.reasons.csv and NAME.reasons.png beside the output.",
        ),
    ] = False,
    html: Html = None,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone",
            help="Add the column probability_alone for every method that looks at queries "
            "together; marginal has it anyway, others take one more pass per query.",
        ),
    ] = False,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option(
            "--spreadsheet-safe",
            help="Put an apostrophe before texts that a spreadsheet would take for a formula "
            "(=, +, -, @); only in .csv.",
        ),
    ] = False,
    device: Device = "cpu",
    force: Force = False,
    **reading: Any,
) -> None:
    """Classify samples and write labels with probabilities.

    The columns are id, label, p_CLASS for every class, views (which ones the sample has) and
    rejected; with --reject fit, the share of samples of a class that fit worse; for methods that
    look at queries together also probability_alone, the probability of the most probable class if
    the sample were the only query. Labels are as in the supports; labels of the queries are
    optional and only used to print the accuracy.

    With --data, one folder or file is divided into known classes, supports and queries; the method
    is chosen on the known classes, and how many predictions will be right is told.

    Where --query has a folder of tables for every part, the table may be larger than memory: the
    output is a folder too, a part after the other, and a run that was stopped goes on.
    """
    from fewview.ground._rows import as_written, by_row, save, save_columns
    from fewview.ground._whole_files import check_output, refuse_inputs

    if sets is not None and classes == "all":
        _refuse("--sets is for new classes alone: leave out --sets or --classes all")
    target = Path(output)
    form = FORMATS.get(target.suffix.lower())
    if form is None:
        _refuse(f"{output}: write predictions as {', '.join(FORMATS)}")
    parted = _check_parted(query, reading, explain or html is not None)
    for place in (output, html):
        if place is not None:
            (refuse_inputs if parted else check_output)(place, [data, model, support, query], force)
    if parted:
        asked = {"reject": reject, "reject_label": reject_label, "alone": alone, "sets": sets,
                 "safe": spreadsheet_safe, "device": device}  # fmt: skip
        _predict_parts(model, method, support, str(query), target, classes, reading, asked)
        return
    reading = {name: reading[name] for name in READING}
    advice = divided = None
    if data is not None:
        if model or support or query:
            _refuse("--data holds everything; leave out --model, --support and --query")
        clf, divided, advice = _from_one_table(data, new, method, seconds, classes, device, reading)
        samples = divided.query
    else:
        clf, samples = _from_parts(model, method, support, query, reject, classes, device, reading)
    samples = samples.like(clf.prepared_.reference, query or "queries")
    _tell_unused(clf, samples)
    columns = clf.prediction_columns(samples, reject, reject_label, alone=alone, sets=sets)
    reasons = clf.explain(samples.with_labels(None)) if explain else None
    save_columns(as_written(columns, form, spreadsheet_safe), target)
    count = len(columns["id"])
    print(f"written: {output} ({count} predictions, {len(clf.classes_)} classes)")
    expected = ""
    if divided is not None:
        from fewview.evaluate._divided import expectation

        classes_of = zip(*(columns[f"p_{label}"] for label in clf.classes_.tolist()), strict=True)
        best = [max(row) for row in classes_of]
        sure = sum(best) / len(best)
        expected = expectation(advice, divided, sure, given=method is not None)
    if html is not None:
        _write_page(html, clf, samples, by_row(columns), alone, expected)
    if reasons is not None:
        table, picture = (target.with_suffix(f".reasons{end}") for end in (".csv", ".png"))
        lines = reasons.rows()
        save(lines, list(lines[0]) if lines else [], "csv", table)
        reasons.save(picture)
        print(f"written: {table}")
        print(f"written: {picture}")
    _tell_accuracy(columns, samples, clf.classes_.tolist(), reject is not None)
    if expected:
        say(expected)
    if not explain and html is None:
        suggest("the same with --explain, for the reasons behind every prediction")


def _write_page(
    html: str,
    clf: Method,
    samples: MultiViewData,
    rows: list[dict[str, Any]],
    alone: bool,
    expected: str,
) -> None:
    import shlex
    import sys

    from fewview.report.pages._prediction import reasons_for_page, write_predictions

    found = reasons_for_page(clf, samples, alone)
    command = shlex.join(["fewview", *sys.argv[1:]])
    write_predictions(html, clf, samples, rows, found, command=command, expected=expected)
    print(f"written: {html} ({Path(html).stat().st_size / 1e3:.0f} kB)")


def _from_one_table(
    data: str,
    new: str | None,
    method: str | None,
    seconds: float,
    classes: str,
    device: str,
    reading: dict[str, Any],
) -> tuple[Method, Divided, Advice | None]:
    """Divide one table, choose a method in the time given, and fit it."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from fewview.cli._bar import make_progress
    from fewview.evaluate._divided import choose_method, divide, fit_divided, usual_method

    samples = read_samples(data, **reading)
    say(f"{samples}")
    parts = divide(samples, None if new is None else [name.strip() for name in new.split(",")])
    known = "no known classes" if parts.base is None else (
        f"{len(parts.base.classes)} known classes with {len(parts.base)} samples"
    )  # fmt: skip
    names = ", ".join(map(str, parts.support.classes.tolist()))
    say(
        f"{known}; {parts.way} new classes ({names}) with {len(parts.support)} labelled samples"
        f"{', which have the fewest (--new names others)' if parts.guessed else ''}; "
        f"{len(parts.query)} samples to predict"
    )
    advice = None
    if method is None:
        say(f"trying methods on known classes; no new one is begun after {seconds:.0f} s")
        with TemporaryDirectory() as folder:
            store = str(Path(folder) / "results.sqlite")
            advice, remark = choose_method(parts, seconds, store, make_progress())
        if remark:
            say(remark)
        method = usual_method(parts) if advice is None else advice.method
        say(f"method: {method}" if advice is None else advice.sentence)
    clf = fit_divided(parts, method, device, classes=classes)
    _tell_empty(clf, parts.query, "the supports" if parts.base is None else "the known classes")
    return clf, parts, advice


def _from_parts(
    model: str | None,
    method: str | None,
    support: str | None,
    query: str | None,
    reject: float | None,
    classes: str,
    device: str,
    reading: dict[str, Any],
) -> tuple[Method, MultiViewData]:
    """Read a model or make a method, fit it to the supports, and read the queries."""
    if query is None:
        _refuse(
            "give --query with the samples to classify (and --model and --support), or --data with "
            "one folder or file that holds everything"
        )
    clf = _classifier(model, method, device, reject)
    supports, samples = _read_supports(clf, support, reading), None
    if supports is not None:
        if clf.base is None:
            samples = _read_queries(query, reading)
            supports, samples = _read_alike(supports, samples)
        clf.fit(supports, classes=classes)
    if samples is None:
        samples = _read_queries(query, reading, clf.prepared_.reference)
    _tell_empty(clf, samples, "the supports" if clf.base is None else "the base set")
    return clf, samples


def _check_parted(query: str | None, reading: dict[str, Any], explain: bool) -> bool:
    """Whether queries come in parts; what goes with parts alone is refused elsewhere."""
    from fewview.samples._parts import TableParts

    parted = TableParts.found(query)
    given = [name for name in ("block", "cluster") if reading[name] is not None]
    if given and not parted:
        _refuse(
            f"--{given[0]} is for queries in parts: a folder --query that has a folder of tables "
            "for every part"
        )
    if parted and explain:
        _refuse(
            "--explain and --html are for queries that fit into memory; give some by themselves"
        )
    return parted


def _predict_parts(
    model: str | None,
    method: str | None,
    support: str | None,
    query: str,
    target: Path,
    classes: str,
    reading: dict[str, Any],
    asked: dict[str, Any],
) -> None:
    """Fit to the supports, and answer queries part by part."""
    from fewview.cli._bar import make_progress
    from fewview.evaluate.parts._larger import predict_parts
    from fewview.samples._parts import TableParts

    how = {name: reading[name] for name in READING}
    clf = _classifier(model, method, asked["device"], asked["reject"])
    supports = _read_supports(clf, support, how)
    if supports is not None:
        clf.fit(supports, classes=classes)
    say(f"counting samples of {query}")
    # Labels of queries are not looked at, and may not be there.
    table = TableParts.open(query, **{**how, "labels": None})
    say(f"{table.n_samples} queries in {len(table.folders)} parts")
    rows = predict_parts(
        clf, table, target, block=reading["block"], jobs=reading["jobs"],
        cluster=reading["cluster"], progress=make_progress(), **asked,
    )  # fmt: skip
    count = f"{rows} of {table.n_samples} predictions now"
    print(f"written: {target}/ ({count}, {len(clf.classes_)} classes)")


def _read_supports(
    clf: Method, support: str | None, reading: dict[str, Any]
) -> MultiViewData | None:
    """Labelled samples of new classes; None where the model has them already."""
    if support is None:
        if not hasattr(clf, "support_"):
            _refuse("give --support: a few labelled samples of every class")
        return None
    like = None if clf.base is None else clf.base.prepared.reference
    supports = read_samples(support, like, **reading)
    if supports.labels is None:
        _refuse(
            f"{support}: supports have no labels; in a folder, add labels.csv with the columns "
            "id and label; in a file, name what holds them with --labels"
        )
    return supports


def _read_alike(
    supports: MultiViewData, queries: MultiViewData
) -> tuple[MultiViewData, MultiViewData]:
    """Without a base set, categories are learnt from supports and queries together."""
    from fewview.samples._data import MultiViewData

    if not supports.kinds and not queries.kinds:
        return supports, queries
    shared = [view for view in queries.view_names if view in supports.view_names]
    if not shared:
        return supports, queries
    say("categories are learnt from supports and queries, since there is no base set")
    both = [part.without_ids() for part in (supports, queries)]
    learnt = MultiViewData.concat(both)[:0]
    reference = learnt.select_views([v for v in learnt.view_names if v in supports.view_names])
    keep = [view for view in queries.view_names if view not in reference.view_names]
    return supports.like(reference), queries if keep else queries.like(reference)


def _read_queries(
    path: str, reading: dict[str, Any], like: MultiViewData | None = None
) -> MultiViewData:
    from fewview.ground._errors import FewviewError

    if reading["labels"] is None:
        return read_samples(path, like, **reading)
    try:
        return read_samples(path, like, **reading)
    except FewviewError as problem:
        # Labels of queries are optional, so that theirs may be missing where supports have them.
        # Anything else that is wrong with the file is found by reading it once more.
        samples = read_samples(path, like, **{**reading, "labels": None}).with_labels(None)
        say(f"queries are read without labels: {problem}")
        return samples


def _tell_empty(clf: Method, samples: MultiViewData, source: str) -> None:
    """Say how many cells were empty, and what is put there."""
    count = samples.empty_cells
    if count:
        cells = "1 empty cell" if count == 1 else f"{count} empty cells"
        done = f"filled with means of {source}"
        say(f"queries: {cells}, {'integrated out' if clf.tags.reads_empty_cells else done}")


def _tell_unused(clf: Method, samples: MultiViewData) -> None:
    """Say which views of the base set nothing else has."""
    for index, view in enumerate(samples.view_names):
        if not clf.support_.mask[:, index].any() and not samples.mask[:, index].any():
            say(f"view {view!r} is only in the base set, and is not used")


def _classifier(model: str | None, method: str | None, device: str, reject: float | None) -> Method:
    if (model is None) == (method is None):
        _refuse("give either --model FILE (from 'fewview fit') or --method NAME")
    if model is not None:
        from fewview.engine._method import load_model

        clf = load_model(model, device=device)
    else:
        from fewview.engine._registry import create

        clf = create(method or "", device=device)
    if reject is not None and clf.base is None:
        _refuse(
            "--reject: a threshold for rejecting is set on base classes and there are none; give "
            "--model with what 'fewview fit' learnt from some"
        )
    return clf


def _tell_accuracy(
    columns: dict[str, list[Any]], samples: MultiViewData, classes: list[Any], rejecting: bool
) -> None:
    """The queries had labels after all: say how many were met.

    Rejected queries and those of classes that no support has are counted apart.
    """
    from fewview.ground._errors import shorten

    if samples.labels is None:
        return
    answers = zip(columns["label"], columns["rejected"], samples.labels.tolist(), strict=True)
    labelled = [(found, gone, label) for found, gone, label in answers if label is not None]
    # As texts: tables of words and of numbers may both have a class 1.
    known = {str(label) for label in classes}
    strange = [(gone, label) for _, gone, label in labelled if str(label) not in known]
    right = [str(found) == str(label) for found, gone, label in labelled
             if str(label) in known and not gone]  # fmt: skip
    parts = []
    if strange:
        names = shorten(map(str, dict.fromkeys(label for _, label in strange)))
        text = f"{_queries(len(strange))} a label that no support has ({names})"
        if rejecting:
            text += f", {sum(gone for gone, _ in strange)} rejected"
        parts.append(text)
    if right:
        share = f"{100 * sum(right) / len(right):.1f} %"
        kept = " that were not rejected" if rejecting else ""
        parts.append(
            f"accuracy on the other {len(right)}{kept} is {share}" if strange
            else f"accuracy {share} on {len(right)} labelled queries{kept}"
        )  # fmt: skip
    if parts:
        say("; ".join(parts))


def _queries(count: int) -> str:
    return "1 query has" if count == 1 else f"{count} queries have"


def _refuse(message: str) -> NoReturn:
    from fewview.ground._errors import FewviewError

    raise FewviewError(message)
