"""`fewview fit` and `fewview impute`: learn from samples; a model, or what they lack."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fewview.cli._declared import Device, Force, takes
from fewview.cli._text import leads_to, say, shows, suggest
from fewview.ground._flags import PARTS, READING

if TYPE_CHECKING:
    from fewview.samples._data import MultiViewData


def read_samples(path: str, like: MultiViewData | None = None, **reading: Any) -> MultiViewData:
    """Read a file or folder of samples; `reading` are options of `READING`."""
    from fewview.samples._data import MultiViewData

    return MultiViewData.read(path, like=like, **reading)


@leads_to("fewview predict --model {output} --support DATA --query DATA -o predictions.csv")
@takes({**READING, **PARTS})
@shows(
    "fewview fit --base base/ -o base.model", "Marginal, from a folder with one table per view",
    "fewview fit --base base.npz --method ugda:n_neighbors=2 -o base.model", "UGDA",
    "fewview fit --base base/ --shot 3 --eta 0.5 -o base.model", "for 3 shots, half missing",
    "fewview fit --base parts/ --jobs 2 -o base.model", "a base set in parts, larger than memory",
)  # fmt: skip
def fit(
    base: Annotated[
        str,
        typer.Option(
            metavar="DATA",
            help="Base classes: a file, or a folder of tables. Without labels, only how samples "
            "vary is learnt (marginal, ugda).",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The model, one file.")
    ],
    method: Annotated[
        str, typer.Option(help="Method, parameters after colons: 'ugda:n_neighbors=2'.")
    ] = "marginal",
    way: Annotated[
        int | None,
        typer.Option(help="Classes per task. Default: up to 5."),
    ] = None,
    shot: Annotated[
        int | None, typer.Option(help="Labelled samples per class to expect. Default: 1.")
    ] = None,
    queries: Annotated[
        int | None, typer.Option(help="Queries per class to expect. Default: 15.")
    ] = None,
    eta: Annotated[
        float | None,
        typer.Option(help="Missing rate to expect. Default: the gaps of the base set, else 0.3."),
    ] = None,
    base_rows: Annotated[
        bool,
        typer.Option("--base-rows", help="Keep the base samples in the file; never done unasked."),
    ] = False,
    device: Device = "cpu",
    force: Force = False,
    **reading: Any,
) -> None:
    """Learn from base classes and write a model for `fewview predict`.

    The model holds statistics of the base classes, never their samples (unless asked), and no
    code: it can be shipped. What is learnt is for the task given by the options.

    A base set may be larger than memory: a folder with a folder of tables for every part.
    """
    from pathlib import Path
    from time import perf_counter

    from fewview.cli._bar import make_progress, working
    from fewview.errors import FewviewError
    from fewview.ground._whole_files import check_output
    from fewview.methods.estimator.fitted_base import usual_task
    from fewview.methods.estimator.pretend import too_few_classes
    from fewview.methods.registry import create
    from fewview.samples._parts import TableParts
    from fewview.samples._rates import check_rate

    check_output(output, [base], force)
    clf = create(method, device=device)
    jobs, cluster = reading.pop("jobs"), reading.pop("cluster")
    start = perf_counter()
    stream = None
    if TableParts.found(base):
        from fewview.evaluate._cluster_worker import single_thread
        from fewview.evaluate.parts._larger import gather_parts
        from fewview.evaluate.parts._pieces import check_workers
        from fewview.files._guarded import kept_reader

        how: dict[str, Any] = {"jobs": jobs, "cluster": cluster, "progress": make_progress()}
        check_workers(jobs, cluster)  # counting may take long
        with kept_reader():  # one process for counting and for reading
            table = TableParts.open(base, **reading)
            say(f"base set: {table.n_samples} samples in {len(table.folders)} parts")
            stream = gather_parts(clf, table, **how)
        shape, data = stream.skeleton(), stream.sample.rows
    elif cluster is not None:
        raise FewviewError("--cluster is for a base set in parts: a folder of folders of tables")
    else:
        shape = data = read_samples(base, **reading)
        say(f"base set: {data}")
    if eta is not None:
        check_rate(eta, data.n_views)
    task = usual_task(shape, way=way, shot=shot, queries=queries, eta=eta)
    # With one thread, as the sums: the same digits on any machine.
    threads = nullcontext() if stream is None else single_thread()
    with working(f"learning from {len(data)} samples"), threads:
        if stream is not None:
            clf.fit_base(stream, task=task)
        else:
            clf.fit_base(data, task=task)
        clf.save(output, base_rows=base_rows)
    learnt = f"learnt for {task.way}-way {task.shot}-shot tasks"
    if data.labels is None:
        learnt = "learnt how samples vary; there are no labels, so no base classes"
    say(f"{learnt}, {100 * task.eta:.0f} % of views missing, in {perf_counter() - start:.1f} s")
    if problem := too_few_classes(data):
        say(f"warning: 'fewview predict --reject' will not work with this model: {problem}")
    print(f"written: {output} ({Path(output).stat().st_size / 1e3:.0f} kB, {method})")


@takes(READING)
@shows(
    "fewview impute tables/ -o filled/", "a folder of tables, from what its own samples tell",
    "fewview impute query.npz --model base.model -o filled.npz", "by a model of 'fewview fit'",
)  # fmt: skip
def impute(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="Samples that lack views or have empty cells.")
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="OUT", help="A new folder of tables, or a file (.npz, ...)."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="What 'fewview fit' learnt with marginal. Default: from DATA."
        ),
    ] = None,
    force: Force = False,
    **reading: Any,
) -> None:
    """Fill in missing views and empty cells with means, and say how sure they are.

    Filled cells are conditional means given all that a sample has, in the Gaussian model of
    marginal. A second folder or file, with '-deviations' in its name, has the standard deviation of
    every cell: zero where it was measured. Ids and labels are kept; of a column of words there is
    one column per word.
    """
    from pathlib import Path

    from fewview.errors import FewviewError
    from fewview.ground._whole_files import refuse_inputs
    from fewview.methods.estimator.method import load_model
    from fewview.methods.marginal import Marginal

    target = Path(output)
    beside = target.with_name(f"{target.stem}-deviations{target.suffix}")
    for path in (target, beside):
        refuse_inputs(path, [data, model], force)
    clf = Marginal() if model is None else load_model(model)
    if not isinstance(clf, Marginal):
        raise FewviewError(f"{model}: a model of {type(clf).__name__}; only marginal can impute")
    like = None if clf.base is None else clf.base.reference
    samples = read_samples(data, like, **reading)
    say(f"{samples}")
    if model is None:
        labelled = samples if samples.labels is None else samples[samples.codes >= 0]
        known = samples.labels is not None and len(labelled.classes) > 1
        clf = clf.fit_base(labelled if known else samples.with_labels(None))
    filled, deviations = clf.impute(samples)
    filled.write(target)
    deviations.write(beside)
    whole = int((~samples.mask).sum())
    print(f"written: {target} ({whole} missing views and {samples.empty_cells} empty cells filled)")
    print(f"written: {beside} (standard deviations)")
    suggest(f"fewview data show {target}")
