"""`fewview predict`: classify samples with a model and a few labelled samples of new classes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from fewview.cli._declared import takes
from fewview.cli._fit import read_samples
from fewview.cli._text import say, shows, suggest
from fewview.ground._flags import BLOCK, PARTS, PREDICT, READING

if TYPE_CHECKING:
    from fewview.evaluate._advice import Advice
    from fewview.evaluate._divided import Divided
    from fewview.methods.estimator.explanation import Explanation
    from fewview.methods.estimator.method import Method
    from fewview.samples._data import MultiViewData

FORMATS = {".csv": "csv", ".json": "json", ".parquet": "parquet"}


@takes({**PREDICT, **READING, **BLOCK, **PARTS})
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
    **given: Any,
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
    from fewview.ground._rows import as_written, by_row, save_columns

    asked = SimpleNamespace(**given)
    reading = {name: given[name] for name in READING}
    target, form = Path(output), _checked(output, asked)
    if _is_parted(asked):
        _predict_parts(target, asked, reading)
        return
    if asked.jobs > 1:
        say("--jobs is for queries in parts; these are answered by one process")
    from fewview.evaluate._predictions import predict_table

    advice = divided = None
    if asked.data is not None:
        clf, divided, advice = _from_one_table(asked, reading)
        samples = divided.query
    else:
        clf, samples = _from_parts(asked, reading)
    samples = samples.like(clf.fitted_.reference, asked.query or "queries")
    _tell_unused(clf, samples)
    _tell_other_units(clf, samples)
    if asked.sets is not None:
        say("calibrating sets of classes where known classes play new ones; this takes a while")
    columns = predict_table(
        clf, samples, asked.reject, asked.reject_label, inductive=asked.alone, coverage=asked.sets
    )
    for sentence in clf.diagnose(samples):
        say(f"warning: {sentence}")
    reasons = clf.explain(samples.with_labels(None)) if asked.explain else None
    save_columns(as_written(columns, form, asked.spreadsheet_safe), target)
    count = len(columns["id"])
    print(f"written: {output} ({count} predictions, {len(clf.classes_)} classes)")
    _tell_doubt(columns, asked.reject, len(clf.classes_))
    expected = ""
    if divided is not None:
        from fewview.evaluate._divided import expectation

        classes_of = zip(*(columns[f"p_{label}"] for label in clf.classes_.tolist()), strict=True)
        best = [max(row) for row in classes_of]
        sure = sum(best) / len(best)
        expected = expectation(advice, divided, sure, given=asked.method is not None)
    if asked.html is not None:
        named = asked.method or (advice.method if advice is not None else "")
        _write_page(asked.html, clf, samples, by_row(columns), asked.alone, expected, named)
    if reasons is not None:
        _write_reasons(reasons, target)
    _tell_accuracy(columns, samples, clf.classes_.tolist(), asked.reject is not None)
    if expected:
        say(expected)
    if not asked.explain and asked.html is None:
        suggest("the same with --explain, for the reasons behind every prediction")


def _checked(output: str, asked: SimpleNamespace) -> str:
    """Refuse what does not go together before anything is computed; the format of the output."""
    from fewview.ground._whole_files import check_output, refuse_inputs

    if asked.sets is not None and asked.classes == "all":
        _refuse("--sets is for new classes alone: leave out --sets or --classes all")
    form = FORMATS.get(Path(output).suffix.lower())
    if form is None:
        _refuse(f"{output}: write predictions as {', '.join(FORMATS)}")
    check = refuse_inputs if _is_parted(asked) else check_output
    for place in (output, asked.html):
        if place is not None:
            check(place, [asked.data, asked.model, asked.support, asked.query], asked.force)
    if asked.data is not None and (asked.model or asked.support or asked.query):
        _refuse("--data holds everything; leave out --model, --support and --query")
    return form


def _write_reasons(reasons: Explanation, target: Path) -> None:
    from fewview.ground._rows import save

    table, picture = (target.with_suffix(f".reasons{end}") for end in (".csv", ".png"))
    lines = reasons.rows()
    save(lines, list(lines[0]) if lines else [], "csv", table)
    reasons.plot().figure.savefig(picture, dpi=150)
    print(f"written: {table}")
    print(f"written: {picture}")


def _write_page(
    html: str,
    clf: Method,
    samples: MultiViewData,
    rows: list[dict[str, Any]],
    alone: bool,
    expected: str,
    named: str,
) -> None:
    import shlex
    import sys

    from fewview.report.pages._prediction import reasons_for_page, write_predictions

    found = reasons_for_page(clf, samples, alone)
    command = shlex.join(["fewview", *sys.argv[1:]])
    write_predictions(
        html, clf, samples, rows, found, command=command, expected=expected, named=named
    )
    print(f"written: {html} ({Path(html).stat().st_size / 1e3:.0f} kB)")


def _from_one_table(
    asked: SimpleNamespace, reading: dict[str, Any]
) -> tuple[Method, Divided, Advice | None]:
    """Divide one table, choose a method in the time given, and fit it."""
    from tempfile import TemporaryDirectory

    from fewview.cli._bar import make_progress, working
    from fewview.evaluate._divided import USUAL, choose_method, divide, fit_divided

    samples = read_samples(asked.data, **reading)
    say(f"{samples}")
    new = None if asked.new is None else [name.strip() for name in asked.new.split(",")]
    parts = divide(samples, new)
    known = "no known classes" if parts.base is None else (
        f"{len(parts.base.classes)} known classes with {len(parts.base)} samples"
    )  # fmt: skip
    names = ", ".join(map(str, parts.support.classes.tolist()))
    say(
        f"{known}; {parts.way} new classes ({names}) with {len(parts.support)} labelled samples"
        f"{', which have the fewest (--new names others)' if parts.guessed else ''}; "
        f"{len(parts.query)} samples to predict"
    )
    advice, method = None, asked.method
    if method is None:
        say(f"choosing a method on known classes, in about {asked.seconds:.0f} s (--seconds)")
        with TemporaryDirectory() as folder:
            store = str(Path(folder) / "results.sqlite")
            advice, remark = choose_method(parts, asked.seconds, store, make_progress())
        if remark:
            say(remark)
        method = USUAL if advice is None else advice.method
        say(f"method: {method}" if advice is None else advice.sentence)
    say(f"learning from all of them with {method}")
    with working(f"fitting {method}"):
        clf = fit_divided(parts, method, asked.device, classes=asked.classes)
    _tell_empty(clf, parts.query, "the supports" if parts.base is None else "the known classes")
    return clf, parts, advice


def _from_parts(asked: SimpleNamespace, reading: dict[str, Any]) -> tuple[Method, MultiViewData]:
    """Read a model or make a method, fit it to the supports, and read the queries."""
    if asked.query is None:
        _refuse(
            "give --query with the samples to classify (and --model and --support), or --data with "
            "one folder or file that holds everything"
        )
    clf = _classifier(asked)
    supports, samples = _read_supports(clf, asked.support, reading), None
    if supports is not None:
        if clf.base is None:
            samples = _read_queries(asked.query, reading)
            supports, samples = _read_alike(supports, samples)
        clf.fit(supports, classes=asked.classes)
    if samples is None:
        samples = _read_queries(asked.query, reading, clf.fitted_.reference)
    _tell_empty(clf, samples, "the supports" if clf.base is None else "the base set")
    return clf, samples


def _is_parted(asked: SimpleNamespace) -> bool:
    """Whether queries come in parts; what goes with parts alone is refused elsewhere."""
    from fewview.samples._parts import TableParts

    parted = TableParts.found(asked.query)
    given = [name for name in ("block", "cluster") if getattr(asked, name) is not None]
    if given and not parted:
        _refuse(
            f"--{given[0]} is for queries in parts: a folder --query that has a folder of tables "
            "for every part, and no table beside them"
        )
    if parted and (asked.explain or asked.html is not None):
        _refuse(
            "--explain and --html are for queries that fit into memory; give some by themselves"
        )
    return parted


def _predict_parts(target: Path, asked: SimpleNamespace, reading: dict[str, Any]) -> None:
    """Fit to the supports, and answer queries part by part."""
    from fewview.cli._bar import make_progress
    from fewview.evaluate.parts._larger import check_asked, predict_parts
    from fewview.evaluate.parts._part_columns import settled_by_all
    from fewview.evaluate.parts._pieces import check_workers
    from fewview.files._guarded import kept_reader
    from fewview.samples._parts import TableParts

    clf = _classifier(asked)
    supports = _read_supports(clf, asked.support, reading)
    if supports is not None:
        clf.fit(supports, classes=asked.classes)
    options = {
        "reject": asked.reject, "reject_label": asked.reject_label, "alone": asked.alone,
        "sets": asked.sets, "safe": asked.spreadsheet_safe, "device": asked.device,
    }  # fmt: skip
    check_asked(clf, target, asked.block, options)  # counting may take long
    check_workers(asked.jobs, asked.cluster)
    say(f"counting samples of {asked.query}")
    with kept_reader():  # one process for counting and for reading
        # Labels of queries are not looked at, and may not be there.
        table = TableParts.open(asked.query, **{**reading, "labels": None})
        folders = len(table.folders)
        say(f"{table.n_samples} queries in {folders} part{'s' if folders > 1 else ''}")
        how: dict[str, Any] = {"jobs": asked.jobs, "cluster": asked.cluster}
        how["progress"] = make_progress()
        try:
            if supports is not None and clf.base is None:
                settled = settled_by_all(supports, table, **how)
                if settled is not supports:
                    clf.fit(settled, classes=asked.classes)
            rows = predict_parts(clf, table, target, block=asked.block, **how, **options)
        except KeyboardInterrupt:
            say(f"stopped; what is in {target}/ is whole, and the same command goes on from there")
            raise typer.Exit(130) from None
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
    like = None if clf.base is None else clf.base.reference
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
    from fewview.errors import FewviewError

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
        say(f"queries: {cells}, {'integrated out' if clf.tags.handles_nan else done}")


def _tell_unused(clf: Method, samples: MultiViewData) -> None:
    """Say which views of the base set nothing else has."""
    for index, view in enumerate(samples.view_names):
        if not clf.support_.mask[:, index].any() and not samples.mask[:, index].any():
            say(f"view {view!r} is only in the base set, and is not used")


def _tell_other_units(clf: Method, samples: MultiViewData) -> None:
    """Warn where a view of the queries is of another size than that of the supports."""
    import warnings

    from fewview.errors import FewviewWarning
    from fewview.samples._profile import sizes_beside

    for view, times in sizes_beside(samples, clf.support_).items():
        if not 0.1 < times < 10:
            about = float(f"{times:.1g}")
            warnings.warn(
                f"view {view!r}: numbers of the queries are about {about:g} times as large as "
                "those of the supports; check that units are the same",
                FewviewWarning,
                stacklevel=2,
            )


def _classifier(asked: SimpleNamespace) -> Method:
    """Read the model, or make the method; not both, and not neither."""
    if (asked.model is None) == (asked.method is None):
        _refuse("give either --model FILE (from 'fewview fit') or --method NAME")
    if asked.model is not None:
        from fewview.methods.estimator.method import load_model

        clf = load_model(asked.model, device=asked.device)
    else:
        from fewview.methods.registry import create

        clf = create(asked.method, device=asked.device)
    if asked.reject is not None and clf.base is None:
        _refuse(
            "--reject: a threshold for rejecting is set on base classes and there are none; give "
            "--model with what 'fewview fit' learnt from some"
        )
    return clf


def _tell_doubt(columns: dict[str, list[Any]], reject: float | None, n_classes: int) -> None:
    """How many samples were rejected, and how large sets of classes are."""
    count = len(columns["id"])
    if reject is not None:
        gone = sum(columns["rejected"])
        text = f"{gone} of {count} rejected{': they fit no class' if gone else ''}"
        if gone > 3 * reject * count + 3:
            text += (
                f"; in the mean over classes {100 * reject:g} % of samples that belong to them "
                "would be, of a single class it may be several times that"
            )
        say(text)
    if "set" in columns:
        size = sum(text.count("|") + 1 for text in columns["set"] if text) / max(count, 1)
        text = f"sets have {size:.1f} of {n_classes} classes on average"
        if size > 0.9 * n_classes:
            text += (
                ": they say next to nothing here; ask for less than this, or give more base classes"
            )
        say(text)


def _tell_accuracy(
    columns: dict[str, list[Any]], samples: MultiViewData, classes: list[Any], rejecting: bool
) -> None:
    """The queries had labels after all: say how many were met.

    Rejected queries and those of classes that no support has are counted apart.
    """
    from fewview.errors import shorten

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
    from fewview.errors import FewviewError

    raise FewviewError(message)
