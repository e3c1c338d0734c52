"""What must not change while the house is rebuilt: answers, keys, files and what commands print.

Everything here was recorded before the first move, through the doors that users go through: scores
of every method on the way that `fewview bench` takes, keys of results, an old store, old models,
and the output of commands. A change that is meant is recorded again, in a commit of its own:

    python tests/test_frozen.py scores|keys|models|commands [name ...]

Files of models and stores are never written again. Every version leaves its own when it is released
(`released/VERSION`), and all later ones read them:

    python tests/test_frozen.py release
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

HERE = Path(__file__).resolve().parent / "frozen"
# Another processor adds numbers up in another order. In float64 that moved no log-probability by
# more than 1e-9 here (other instruction sets, another number of threads); a real change does.
TOLERANCE = 1e-7

# ---------------------------------------------------------------------- scores

SMALL_NETWORKS = {
    "cpm": "cpm:latent=16:epochs=4:query_epochs=4",
    "cpm-gan": "cpm-gan:latent=16:epochs=4:query_epochs=4:discriminator_hidden=8",
    "icmsc": "icmsc:width=32:epochs=4+4:view_width=32",
    "completer": "completer:width=32:code=8:epochs=4:warm_up=2:learning_rate=0.003",
}
PLAIN = (
    "alpha-tim", "bavardage", "bd-cspn", "class-impute", "concat-hgb", "concat-logistic",
    "concat-nn", "marginal", "match", "paddle", "partial-nn", "proto", "ptmap", "ptmap+ugda", "rfs",
    "rfs+ugda", "tim", "tim-adm", "ugda", "unem",
)  # fmt: skip
SHORT = "n_iter=3:n_steps=3:n_anchors=5:latent_dim=16:rectify_steps=20"
VARIANTS = (
    f"ugda:solver=adam:{SHORT}",
    f"ugda:solver=reference:{SHORT}",
    f"ugda:solver=adam:update_evaluator=false:{SHORT}",
    f"ugda:solver=adam:update_anchors=false:{SHORT}",
    f"ugda:solver=adam:share_evaluator=batch:train_nets=last:shared_adam=true:{SHORT}",
    "ugda:n_neighbors=0",
    "ugda:n_neighbors=2",
    "ugda:n_anchors=0",
    "ugda:rectify=none",
    "ugda:rectify=entropy",
    "ugda:mean_rule=code",
    "ugda:rectifier=adam:rectify_steps=40",
    "ugda:logit_scale=1:ridge=0:latent_dim=8",
    "marginal:transductive=false",
    "marginal:score=variational",
    "marginal:structure=imputed",
    "marginal:structure=diagonal",
    "marginal:balance=1:rank=16:components=20",
    "ptmap:power=signed",
    "ptmap:power=none:n_iter=5",
    "ptmap+ugda:ugda__n_anchors=10:ptmap__step=0.4",
    "partial-nn:weighting=feature",
    *(f"proto:scaling={rule}" for rule in ("minmax", "standard", "unit", "standard+unit",
                                           "root+standard+unit", "none")),
    *(f"proto:padding={rule}" for rule in ("zero", "support", "base")),
)  # fmt: skip
GRID: dict[str, Any] = {
    "datasets": ("digits",), "splits": 1, "episodes": 2, "way": 3, "queries": 4, "dtype": "float64",
}  # fmt: skip


def score_cases() -> dict[str, dict[str, Any]]:
    """Name of a case -> fields of its grid."""
    cases: dict[str, dict[str, Any]] = {}
    for text in (*PLAIN, *SMALL_NETWORKS.values(), *VARIANTS):
        cases[text] = {"methods": (text,), "etas": (0.5,)}
    for text in PLAIN:
        cases[f"{text} complete"] = {"methods": (text,), "etas": (0.0,), "shot": 2}
    for text in (*PLAIN, *SMALL_NETWORKS.values()):
        cases[f"{text} paper"] = {
            "methods": (text,), "etas": (0.3,), "scaling": "paper", "padding": "paper",
        }  # fmt: skip
    for text in ("proto", "ptmap", "ugda"):
        cases[f"{text} tuned"] = {"methods": (text,), "etas": (0.3,), "tune": True}
    for text in ("proto", "tim", "marginal", "ugda"):
        other = {"methods": (text,), "etas": (0.3,)}
        cases[f"{text} dirichlet"] = {**other, "query_counts": "dirichlet:2"}
        cases[f"{text} class"] = {**other, "missing": "class", "seed": 3}
        # Two ways leave enough base classes for automatic settings.
        cases[f"{text} two ways"] = {**other, "way": 2}
    return cases


@contextlib.contextmanager
def noted_scores(method_class: type[Any]) -> Iterator[list[Any]]:
    """Write down what `scores` of a class returns, whoever calls it."""
    own = "scores" in vars(method_class)
    before = method_class.scores
    found: list[Any] = []

    def scores(self: Any, batch: Any, state: Any) -> Any:
        out = before(self, batch, state)
        found.append(out.detach().cpu())
        return out

    method_class.scores = scores
    try:
        yield found
    finally:
        if own:
            method_class.scores = before
        else:
            del method_class.scores


def scores_of(fields: dict[str, Any]) -> dict[str, Any]:
    """Version of a method, and what a benchmark's last batch came to.

    Returns:
        `version`, and `scores`: log-probabilities [tasks, queries, classes].
    """
    import torch

    from fewview import create
    from fewview.evaluate import Grid, run

    with noted_scores(type(create(fields["methods"][0]))) as found, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = run(Grid(**(GRID | fields)))
    assert not outcome.failures, outcome.failures
    logs = torch.log_softmax(found[-1].double(), dim=-1)
    rounded = np.vectorize(lambda x: float(f"{x:.10g}"))(logs.numpy())
    return {"version": outcome.cells[0].method_version, "scores": rounded.tolist()}


def recorded(name: str) -> Any:
    return json.loads((HERE / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", score_cases())
def test_scores_on_the_way_that_bench_takes(case: str) -> None:
    """Results of a method change only together with its version."""
    again = f"record it with: python tests/test_frozen.py scores {case!r}"
    assert case in recorded("scores.json"), f"nothing is recorded for {case}; {again}"
    found, wanted = scores_of(score_cases()[case]), recorded("scores.json")[case]
    assert found["version"] == wanted["version"], f"the method has a new version; {again}"
    assert np.shape(found["scores"]) == np.shape(wanted["scores"])
    np.testing.assert_allclose(
        found["scores"], wanted["scores"], rtol=TOLERANCE, atol=TOLERANCE,
        err_msg=f"other results; if that is meant, raise the method's `version` and {again}",
    )  # fmt: skip


def test_every_method_has_scores() -> None:
    listed = json.loads(fresh("names"))
    assert set(PLAIN) | set(SMALL_NETWORKS) == set(listed)
    assert set(recorded("scores.json")) == set(score_cases())


def fresh(*arguments: str) -> str:
    """Run this file in a process of its own: other tests register methods of theirs."""
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout


# ---------------------------------------------------------------------- keys of results

KEY_GRIDS: dict[str, dict[str, Any]] = {
    "usual": {"etas": (0.0, 0.3), "splits": 2},
    "paper": {"scaling": "paper", "padding": "paper", "splits": 1, "episodes": 400},
    "tuned": {"tune": True, "splits": 1},
    "other tasks": {
        "etas": (0.2,), "way": 2, "shot": 5, "queries": 7, "query_counts": "dirichlet:2",
        "missing": "class", "seed": 5, "dtype": "float64", "scaling": "standard", "splits": 1,
    },
}  # fmt: skip


def keys_of(fields: dict[str, Any]) -> dict[str, str]:
    from fewview.evaluate import Grid, plan

    texts = (*PLAIN, *SMALL_NETWORKS, *SMALL_NETWORKS.values(), *VARIANTS)
    grid = Grid(datasets=("digits",), methods=texts, **fields)

    def called(cell: Any) -> str:
        name = f"{cell.dataset} split {cell.split} eta {cell.eta:g} {cell.method}"
        return f"{name} {cell.identity[:8]}"

    return {called(cell): cell.hash for cell in plan(grid)}


@pytest.mark.parametrize("name", KEY_GRIDS)
def test_keys_of_results(name: str) -> None:
    assert keys_of(KEY_GRIDS[name]) == recorded("keys.json")[name]


# ---------------------------------------------------------------------- a store

STORE = HERE / "store.db"
RELEASED = HERE / "released"
STORED: dict[str, Any] = {
    # With the settings that were usual then, where others are now.
    "datasets": ("digits",), "methods": (
        "proto:scaling=scale:padding=episode", "match:scaling=scale:padding=episode",
        "ptmap:scaling=scale", "ugda:scaling=scale", "marginal",
    ),
    "etas": (0.0, 0.5), "splits": 3, "episodes": 3, "queries": 5,
}  # fmt: skip
# Methods whose version has risen since the store was written.
CHANGED = ("ugda:scaling=scale", "marginal")


def test_an_old_store_is_read_without_computing(tmp_path: Path) -> None:
    from fewview.evaluate import Grid, run

    path = tmp_path / "old.sqlite"
    shutil.copy(STORE, path)
    outcome = run(Grid(**STORED), path)
    again = sum(method in CHANGED for method in STORED["methods"]) * 2 * 3
    assert (outcome.computed, outcome.failures) == (again, ())
    assert outcome.reused == len(STORED["methods"]) * 2 * 3 - again


# ---------------------------------------------------------------------- releases


# What a version leaves: models by how they are fitted, and results.
LEFT = {
    "proto": "new", "ugda": "new", "marginal": "new", "known-and-new": "all", "cpm": "new",
}  # fmt: skip
LEFT_STORE: dict[str, Any] = {
    "datasets": ("digits",), "methods": ("proto", "ugda", "marginal"), "etas": (0.3,), "splits": 1,
    "episodes": 3, "queries": 5,
}  # fmt: skip


def leave(number: str) -> None:
    """Write what a version leaves; never again once it is released."""
    from fewview import create
    from fewview.evaluate import Grid, run

    folder = RELEASED / number
    if versions().get(number) and folder.exists():
        sys.exit(f"{number} is released, and what it left stays as it is")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, classes in LEFT.items():
        clf = create(MODELS.get(name, "marginal")).fit_base(samples(0, 8, 12))
        clf.fit(samples(8, 3, 2), classes=classes).save(folder / f"{name}.model")
    run(Grid(**LEFT_STORE), folder / "store.db")
    (folder / "store.db.lock").unlink(missing_ok=True)


def versions() -> dict[str, bool]:
    """Versions of the changelog, and whether each one is released."""
    text = (HERE.parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.findall(r"^## (\d+\.\d+\.\d+) \((.*)\)", text, re.MULTILINE)
    return {number: said != "unreleased" for number, said in found}


def test_every_version_left_its_files() -> None:
    assert versions()
    for number in versions():
        left = {path.name for path in (RELEASED / number).glob("*")}
        wanted = {"store.db", *(f"{name}.model" for name in LEFT)}
        assert left >= wanted, f"{number} left {sorted(left)}: python tests/test_frozen.py release"


@pytest.mark.parametrize("number", versions())
def test_a_store_of_every_version_is_read(number: str, tmp_path: Path) -> None:
    """What was computed then is there with all its episodes; a reader changes nothing."""
    from fewview.results import Store

    path = tmp_path / "old.sqlite"
    shutil.copy(RELEASED / number / "store.db", path)
    before = path.read_bytes()
    with Store(path, write=False) as store:
        results = store.select()
    assert {result.cell.method for result in results} == {*LEFT_STORE["methods"]}
    for result in results:
        assert result.metrics.accuracy.shape == (LEFT_STORE["episodes"],)
        assert 1 / 3 < result.metrics.accuracy.mean() <= 1
    assert path.read_bytes() == before


# ---------------------------------------------------------------------- models

MODELS = {
    "proto": "proto",
    "ugda": "ugda:n_anchors=5",
    "marginal": "marginal",
    "stated": "marginal:settings=default:balance=0.3",
    "combined": "ptmap+ugda:ugda__n_anchors=5",
    "bavardage": "bavardage",
    "logistic": "concat-logistic:padding=support",
    "completer": SMALL_NETWORKS["completer"],
    "cpm": SMALL_NETWORKS["cpm"],
}


def samples(first: int, classes: int, each: int, labelled: bool = True) -> Any:
    """Made-up samples of some classes with three views and gaps, the same for everybody."""
    from fewview import MultiViewData

    centres = np.random.default_rng(7).normal(size=(12, 4)) * 2.0
    rng = np.random.default_rng(first)
    codes = np.repeat(np.arange(first, first + classes), each)
    hidden = centres[codes] + 0.5 * rng.normal(size=(len(codes), 4))
    views = {}
    for k, (view, width) in enumerate({"blood": 5, "scan": 7, "gait": 3}.items()):
        mixing = np.random.default_rng(k).normal(size=(4, width))
        noise = 0.2 * rng.normal(size=(len(codes), width))
        views[view] = (hidden @ mixing + noise).round(3)
    mask = rng.random((len(codes), 3)) > 0.25
    mask[~mask.any(1), 0] = True
    labels = [f"class {code}" for code in codes] if labelled else None
    ids = [f"S{first}-{row}" for row in range(len(codes))]
    columns = {view: [f"{view}{c}" for c in range(b.shape[1])] for view, b in views.items()}
    return MultiViewData(views, labels, ids=ids, mask=mask, columns=columns)


def answers(path: Path) -> dict[str, Any]:
    """What a model says about some queries, and how it would reject them."""
    from fewview import load_model

    clf = load_model(path)
    query = samples(8, 4, 5, labelled=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        probability = clf.predict_proba(query)
        return {
            "method": type(clf).__name__,
            "labels": clf.predict(query).tolist(),
            "rejected": clf.predict(query, reject=0.1).tolist(),
            "probability": probability.round(6).tolist(),
        }


def old_models() -> list[str]:
    """Files of models from before the first release and of every release."""
    places = [*(HERE / "models").glob("*.model"), *RELEASED.glob("*/*.model")]
    return sorted(path.relative_to(HERE).with_suffix("").as_posix() for path in places)


@pytest.mark.parametrize("name", old_models())
@pytest.mark.filterwarnings("ignore:saved by version")
def test_an_old_model_says_the_same(name: str) -> None:
    found, wanted = answers(HERE / f"{name}.model"), recorded("models.json")[name]
    # Models are in float32: sums in another order show in the fifth place.
    np.testing.assert_allclose(found.pop("probability"), wanted.pop("probability"), atol=2e-4)
    assert found == wanted


# ---------------------------------------------------------------------- files of the future


def test_a_model_of_a_future_format_is_refused(tmp_path: Path) -> None:
    """What a later fewview writes is whole and right; this one says that it is too old for it."""
    from fewview import FewviewError, load_model
    from fewview.engine import _saving

    arrays, document = _saving.read_file(HERE / "models" / "proto.model")
    plain = {key: document[key] for key in document if key not in ("arrays", "sha256", "format")}
    later = {**plain, "version": _saving.FORMAT_VERSION + 1, "written_by": "fewview 9.0.0"}
    for number, content in enumerate((plain, later)):
        _saving.write_file(tmp_path / f"{number}.model", content, arrays)
    assert load_model(tmp_path / "0.model") is not None
    with pytest.raises(
        FewviewError, match=r"written by fewview 9\.0\.0 in format version 2.*newer"
    ):
        load_model(tmp_path / "1.model")


@pytest.mark.parametrize("write", [False, True])
def test_a_store_of_a_future_schema_is_refused(tmp_path: Path, write: bool) -> None:
    from fewview import FewviewError
    from fewview.results import Store

    path = tmp_path / "later.sqlite"
    shutil.copy(STORE, path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2")
    before = path.read_bytes()
    with pytest.raises(FewviewError, match=r"a store of schema 2, this fewview knows 1; use"):
        Store(path, write=write)
    assert path.read_bytes() == before, "a file of the future is left as it is"


# ---------------------------------------------------------------------- commands

HELP = (
    "", "data", "data list", "data info", "data show", "data convert", "data fetch", "methods",
    "advise", "fit", "predict", "impute", "serve", "bench", "results", "reproduce", "report",
    "run", "doctor", "suite", "suite run", "suite show", "suite submit",
)  # fmt: skip
BENCH = "bench digits --splits 2 --episodes 3 --queries 5 --store none"
COMMANDS = {
    **{f"help {name}".strip(): f"{name} --help" for name in HELP},
    "methods": "methods",
    "methods ugda": "methods ugda",
    "methods marginal": "methods marginal",
    "data list": "data list --data-dir nowhere",
    "data info": "data info handwritten --data-dir nowhere",
    "data show": "data show base",
    "data convert": "data convert base base.npz",
    "data converted": "data show base.npz",
    "bench": f"{BENCH} --methods proto,ptmap,ugda --eta 0,0.3 --json out.json",
    "bench own": "bench base --methods proto,tim --missing patterns --splits 2 --episodes 3 "
    "--store none --json out.json",
    "open set": f"{BENCH} --methods proto --open-set --json out.json",
    "results": "results store.db",
    "results csv": "results store.db --format csv",
    "results json": "results store.db --where eta=0.5 --format json",
    "results latex": "results store.db --format latex",
    "results markdown": "results store.db --format markdown",
    "results cells": "results store.db --level cell --format csv --where method=proto",
    "results episodes": "results store.db --level episode --format csv --where method=ptmap",
    "results compare": "results store.db --compare",
    "results compare json": "results store.db --compare --format json",
    "fit": "fit --base base --method marginal:settings=default -o made.model",
    "predict": "predict --model made.model --support support --query query -o out.csv",
    "predict reject": "predict --model made.model --support support --query query --reject 0.1 "
    "-o out.json",
    "predict explain": "predict --model made.model --support support --query query --explain "
    "-o out.csv",
    "predict alone": "predict --method proto --support support --query query -o out.csv",
    "advise": "advise base --methods proto,match --splits 2 --episodes 3 --jobs 1 -o advice",
    "reproduce nothing": "reproduce handwritten --plan --store none.sqlite --data-dir nowhere",
    "wrong method": "bench digits --methods prot",
    "wrong parameter": "bench digits --methods ugda:n_anchor=3",
    "wrong rate": "bench digits --eta 0.9",
    "wrong data": "bench nothing.npz",
    "wrong store": "results support/labels.csv",
    "wrong model": "predict --model support/labels.csv --support support --query query -o out.csv",
}
OUTPUTS = ("out.csv", "out.json", "out.reasons.csv")
# Times, sizes of files and versions differ from run to run and from machine to machine.
VARYING = (
    (r'"(seconds|seconds_base)": [0-9.e+-]+', r'"\1": TIME'),
    (r"\b\d+(\.\d+)? (s|min|kB)\b", r"N \2"),
    (r", and \S+ is much faster", ""),
    (r"fewview \d+\.\d+\.\d+\S*", "fewview VERSION"),
)


def write_tables(folder: Path) -> None:
    """The folders and files that the commands work on."""
    for name, data in (
        ("base", samples(0, 8, 12)),
        ("support", samples(8, 3, 2)),
        ("query", samples(8, 4, 5, labelled=False)),
    ):
        place = folder / name
        place.mkdir()
        for index, (view, block) in enumerate(data.views.items()):
            with (place / f"{view}.csv").open("w", newline="", encoding="utf-8") as file:
                rows = csv.writer(file)
                rows.writerow(["id", *data.columns[view]])
                for row in np.flatnonzero(data.mask[:, index]):
                    rows.writerow([data.ids[row], *block[row].tolist()])
        if data.labels is not None:
            with (place / "labels.csv").open("w", newline="", encoding="utf-8") as file:
                rows = csv.writer(file)
                rows.writerow(["id", "label"])
                rows.writerows(zip(data.ids.tolist(), data.labels.tolist(), strict=True))
    shutil.copy(STORE, folder / "store.db")


def run_commands(folder: Path) -> dict[str, str]:
    """Run all commands one after another in a folder: what they print, exit status, files."""
    out = {}
    write_tables(folder)
    before = Path.cwd()
    os.chdir(folder)
    try:
        for name, command in COMMANDS.items():
            for file in OUTPUTS:
                Path(file).unlink(missing_ok=True)
            out[name] = f"$ fewview {command}\n" + run_command(command.split())
    finally:
        os.chdir(before)
    return out


def run_command(arguments: list[str]) -> str:
    from fewview.cli import _app, main  # before warnings are shown: libraries have theirs

    assert _app is not None
    argv, columns = sys.argv, os.environ.get("COLUMNS")
    sys.argv = ["fewview", *arguments]
    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    told, errors, code = io.StringIO(), io.StringIO(), 0
    shown = warnings.formatwarning
    try:
        with (
            contextlib.redirect_stdout(told), contextlib.redirect_stderr(errors),
            warnings.catch_warnings(),
        ):  # fmt: skip
            warnings.simplefilter("always")
            # Old libraries have deprecations of their own, which Python does not show to users.
            warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"(?!fewview)")
            main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    finally:
        sys.argv, warnings.formatwarning = argv, shown
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns
    parts = [told.getvalue(), f"--- errors\n{errors.getvalue()}", f"--- status {code}\n"]
    for file in OUTPUTS:
        if Path(file).exists():
            parts.append(f"--- {file}\n{Path(file).read_text(encoding='utf-8')}")
    return normal("\n".join(parts).replace(os.getcwd(), "FOLDER"))


def normal(text: str) -> str:
    """Text without what differs from run to run."""
    for pattern, plain in VARYING:
        text = re.sub(pattern, plain, text)
    lines, times = [], 0
    for line in text.splitlines():
        # The last columns of some tables are times.
        times = times if line else 0
        for header, count in (("  seconds", 1), ("ms per task  base s", 2)):
            times = count if line.endswith(header) else times
        times_at_end = rf"( +\d+\.\d+){{{times}}}$"
        lines.append(re.sub(times_at_end, " TIME", line) if times else line.rstrip())
    return "\n".join(lines) + "\n"


NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")


def words(text: str) -> list[str]:
    """Text without its numbers; a number that is shorter or longer moves its neighbours."""
    return [" ".join(NUMBER.sub("#", line).split()) for line in text.splitlines()]


BINNED = re.compile(r'"ece": (\S+),')


def numbers(text: str) -> list[float]:
    return [float(found) for found in NUMBER.findall(text)]


def other_typer() -> bool:
    """Whether help pages are set by another typer than the pinned one, which made the record."""
    pinned = (HERE.parents[1] / "constraints.txt").read_text(encoding="utf-8")
    return f"\ntyper=={version('typer')}\n" not in pinned


def said(text: str) -> Counter[str]:
    """The words of a help page, however typer writes types and arguments and breaks lines."""
    kinds = r"<[\w\[\] ]+>|\b(TEXT|INTEGER|FLOAT|PATH)( RANGE)?\b"
    return Counter(re.findall(r"[\w$./-]+", re.sub(rf"{kinds}|\S*…|\.\.\.", " ", text).lower()))


def path_of(name: str) -> Path:
    return HERE / "commands" / f"{name.replace(' ', '-')}.txt"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What all commands print, run once for all processes that test."""
    folder = tmp_path_factory.getbasetemp()
    kept = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "printed.json"
    with FileLock(f"{kept}.lock"):
        if not kept.exists():
            kept.write_text(fresh("print", str(tmp_path_factory.mktemp("frozen"))))
    found: dict[str, str] = json.loads(kept.read_text())
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_what_commands_print(name: str, printed: dict[str, str]) -> None:
    # Lines that say how far a run is come every two seconds: as many as the machine is slow.
    found, wanted = (
        re.sub(r"^\[\d+/\d+\] .*\n", "", text, flags=re.MULTILINE)
        for text in (printed[name], path_of(name).read_text(encoding="utf-8"))
    )
    if name.startswith("help") and other_typer():
        assert said(wanted) - said(found) == Counter(), "words are missing"
        return
    assert words(found) == words(wanted)
    # A last digit may bring one of 90 queries into another bin of the calibration error, which then
    # differs by up to 2 / 90.
    binned = [[float(x) for x in BINNED.findall(text)] for text in (found, wanted)]
    np.testing.assert_allclose(*binned, rtol=0, atol=2 / 90)
    # Results are in float32, whose last digits differ between processors.
    plain = (numbers(BINNED.sub("", text)) for text in (found, wanted))
    np.testing.assert_allclose(*plain, rtol=1e-4, atol=2e-5)
    if name.startswith("help") and not other_typer():
        assert found == wanted


# ---------------------------------------------------------------------- recording


def record(part: str, chosen: list[str]) -> None:
    """Write a part again, whole or some of its names."""
    HERE.mkdir(exist_ok=True)
    if part == "release":
        from fewview import __version__

        leave(__version__)
        record("models", [])
    elif part == "commands":
        import tempfile

        path_of("x").parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            for name, text in run_commands(Path(folder)).items():
                if not chosen or name in chosen:
                    path_of(name).write_text(text, encoding="utf-8")
    else:
        makers: dict[str, Any] = {
            "scores": lambda: {name: scores_of(fields) for name, fields in score_cases().items()
                               if not chosen or name in chosen},
            "keys": lambda: {name: keys_of(fields) for name, fields in KEY_GRIDS.items()},
            "models": lambda: {name: answers(HERE / f"{name}.model") for name in old_models()},
        }  # fmt: skip
        file = HERE / f"{part}.json"
        known = json.loads(file.read_text()) if chosen and file.exists() else {}
        content = json.dumps(known | makers[part](), indent=0, ensure_ascii=False)
        file.write_text(re.sub(r",\n(?=-?[\d.])", ", ", content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "print":
        print(json.dumps(run_commands(Path(sys.argv[2]))))
    elif sys.argv[1] == "names":
        from fewview.methods import names

        print(json.dumps(names()))
    elif sys.argv[1] == "method":  # everything that a new method needs
        cases = [case for case in score_cases() if case.split(" ")[0] in sys.argv[2:]]
        record("scores", cases)
        record("keys", [])
        record("commands", ["methods", "wrong method"])
    else:
        record(sys.argv[1], sys.argv[2:])
