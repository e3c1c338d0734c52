"""The leaderboard of the frozen suite: recorded and submitted results, one row per method.

Results of the suite are recorded as those of the paper are (`paper/_recorded.py`), and a submission
is one JSON file with the same rows. Whatever is read is checked against the suite first.
"""

from __future__ import annotations

import os
import re
import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata
from scipy.stats import t as student

from fewview._version import __version__
from fewview.engine._checks import check_method
from fewview.engine._method import Method
from fewview.engine._registry import create, get_entry, is_in_file, name_and_settings
from fewview.evaluate._executors import kept_workers
from fewview.evaluate._options import store_path
from fewview.evaluate._progress import Progress
from fewview.evaluate._runner import run
from fewview.evaluate.suites._suite import FORMS, Suite
from fewview.ground._errors import FewviewError
from fewview.ground._rows import Row
from fewview.ground._whole_files import check_writable
from fewview.paper._compute import Gathered, recorded_rows
from fewview.paper._recorded import identity, read_json, read_rows, write, write_json
from fewview.paper._studies import Part, Wish
from fewview.results._intervals import wilson_interval
from fewview.results._stale import version_key

FOLDER = Path(__file__).parent / "boards"
SUBMITTED = "submitted"
KIND = "fewview suite submission"
EMBEDDED = "digits"  # comes with fewview
# Checks of a method from a file: who reads labels, or the place of a query, knows the answers.
FAIR = ("query labels", "query order")
# What a row of the board says, besides its numbers.
FLAGS = ("queries together", "needs base", "assumes balance")
Setting = tuple[str, str, float]  # panel, data set, missing rate


@dataclass(frozen=True)
class Line:
    """One method on the board."""

    label: str
    version: str
    mean: float
    low: float | None
    high: float | None
    rank: float
    wins: float  # share of comparisons with other methods, in percent
    milliseconds: float  # per task
    seconds_base: float  # per class split
    flags: tuple[str, ...]
    submitted: bool
    note: str = ""  # of an older version, for instance


@dataclass(frozen=True)
class Board:
    """Methods that have everything, best first, and how many settings the others lack."""

    suite: Suite
    lines: tuple[Line, ...]
    settings: tuple[Setting, ...]
    lacking: Mapping[str, int]
    panels: Mapping[str, Mapping[str, float]]  # method -> panel -> mean accuracy


# ---------------------------------------------------------------------- running


def run_suite(
    suite: Suite,
    methods: Sequence[str],
    *,
    store: str | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    device: str = "cpu",
    data_dir: str | None = None,
    progress: Progress | None = None,
) -> tuple[list[Gathered], dict[str, str]]:
    """Run methods on all data of a suite that are here; results, and why data are skipped."""
    for text in methods:
        _check_fair(text)
    grids, skipped = suite.grids(methods, data_dir, device)
    told = progress or Progress()
    for name, why in skipped.items():
        told.message(f"skipped: {name} ({why})")
    settings = sum(len(grid.etas) for _, grid in grids)
    tasks = settings * len(suite.splits) * suite.episodes
    told.message(
        f"{suite.title}: {settings} of {suite.n_settings} settings, {tasks} tasks for each of "
        f"{len(methods)} {'method' if len(methods) == 1 else 'methods'}; what was finished is "
        "stored, so the same command goes on where it was stopped"
    )
    out = []
    with kept_workers():
        for number, (panel, grid) in enumerate(grids, 1):
            (data,) = grid.datasets
            named = data if isinstance(data, str) else data.name
            told.message(f"panel {number} of {len(grids)}: {named}, {panel.name}")
            found = run(grid, store_path(store), jobs=jobs, cluster=cluster, progress=progress)
            labels = {label_of(text): text for text in grid.methods}
            part = Part(panel.name, grid, methods=labels)
            out.append(Gathered(part, found.cells, found.results, found.failures))
    return out, skipped


def _check_fair(text: str) -> None:
    """Refuse a name that nobody knows, and a method of a file that looks at what it may not."""
    method = create(text)
    if is_in_file(text):
        try:
            check_method(method, only=FAIR)
        except AssertionError as error:
            raise FewviewError(f"{text}: {error}; the suite takes no such method") from None


def label_of(text: str) -> str:
    """What a method is called on the board: one in a file by its name there."""
    if not is_in_file(text):
        return text
    name, settings = name_and_settings(text)
    return ":".join([name.rpartition(".py")[2].removeprefix(":"), *settings])


def record_suite(suite: Suite, gathered: Sequence[Gathered], folder: Path = FOLDER) -> str:
    """Write results to the recorded ones of a suite; say what was done."""
    fresh, sources, too_few = recorded_rows(gathered, partial(_command, suite))
    kept = {identity(row): row for row in [*_recorded(suite, folder), *fresh]}
    order = sorted(kept, key=lambda key: _place(suite, kept[key]))
    total = write(suite.title, Wish(), fresh, order, sources, folder)
    short = f"; {too_few} say too little and are not recorded" if too_few else ""
    return f"{suite.title}: {len(fresh)} rows recorded, {total} are there now{short}"


def _command(suite: Suite, device: str, methods: Sequence[str] = ()) -> str:
    which = f"--methods {shlex.quote(','.join(methods))}" if methods else "--record"
    return f"fewview suite run --form {suite.form} {which} --device {device}"


def _place(suite: Suite, row: Row) -> tuple[Any, ...]:
    at = (row["role"], row["dataset"])
    known = suite.settings.index(at) if at in suite.settings else len(suite.settings)
    return known, row["eta"], str(row["label"])


# ---------------------------------------------------------------------- submissions


def write_submission(
    suite: Suite,
    gathered: Sequence[Gathered],
    path: str | os.PathLike[str],
    note: str = "",
) -> int:
    """Write the results of some methods to one file that can be sent; return how many rows."""
    check_writable(path)
    own = list(dict.fromkeys(text for item in gathered for text in item.part.grid.methods))
    rows, (runs, settings), _ = recorded_rows(gathered, partial(_command, suite, methods=own))
    texts = {row["label"]: row["method"] for row in rows}
    if taken := sorted(set(texts) & set(suite.methods)):
        raise FewviewError(
            f"the board has a method {taken[0]!r} already; give your class another name and run "
            "the suite again"
        )
    content = {
        "kind": KIND, "suite": suite.name, "form": suite.form, "fewview": __version__,
        "note": note,
        "methods": {label: _about(text) for label, text in texts.items()},
        "runs": runs, "settings": settings,
        "rows": [row | {"tag": list(row["tag"])} for row in rows],
    }  # fmt: skip
    read_content(content, suite, str(path))
    write_json(Path(path), content)
    return len(rows)


def _about(text: str) -> dict[str, Any]:
    method = create(text)
    first = (type(method).__doc__ or "").strip().partition("\n")[0]
    return {"class": type(method).__name__, "what": first, "flags": list(flags_of(method))}


def flags_of(method: Method) -> tuple[str, ...]:
    """What people should know of a method, as `FLAGS` say."""
    tags = method.tags
    balance = "partly" if 0 < tags.assumes_balance < 1 else "yes" if tags.assumes_balance else "-"
    return method.queries_together, "yes" if tags.needs_base else "-", balance


def read_submission(path: str | os.PathLike[str], suite: Suite) -> dict[str, Any]:
    """Read a submission and check that it is of this suite, whole, and possible."""
    file = Path(path)
    if not file.is_file():
        raise FewviewError(f"{path}: no such file")
    return read_content(read_json(file), suite, str(path))


def read_content(content: Mapping[str, Any], suite: Suite, path: str) -> dict[str, Any]:
    """Check the content of a submission; every error says where it is."""
    wanted = {"kind": KIND, "suite": suite.name, "form": suite.form}
    for key, value in wanted.items():
        if content.get(key) != value:
            raise FewviewError(f"{path}: {key} is {content.get(key)!r}, not {value!r}")
    try:
        rows = [_checked(row, suite) for row in content["rows"]]
        about = content["methods"]
        for label in {row["label"] for row in rows}:
            flags = about[label]["flags"]
            if len(flags) != len(FLAGS) or not set(flags) <= {"yes", "-", "partly", "by padding"}:
                raise FewviewError(f"the flags of {label} are {flags}")
    except FewviewError as error:
        raise FewviewError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FewviewError(f"{path}: not a submission of {suite.name} ({error!r})") from None
    if not rows:
        raise FewviewError(f"{path}: no results")
    for label in {row["label"] for row in rows}:
        have = [setting_of(row) for row in rows if row["label"] == label]
        data = {name for _, name, _ in have}
        if EMBEDDED not in data:
            raise FewviewError(f"{path}: {label} has no results on {EMBEDDED}, which everybody has")
        here = {(panel, name) for panel, name, _ in have}
        absent = [at for at in suite.settings if at[1] in data and at not in here]
        if absent:
            raise FewviewError(
                f"{path}: {label} lacks {len(absent)} settings, the first is {absent[0][1]}, "
                f"{absent[0][0]}; run the suite and submit again"
            )
        if len(have) != len(set(have)):
            raise FewviewError(f"{path}: {label} has two rows for one setting")
    return {**content, "rows": rows}


def setting_of(row: Row) -> Setting:
    """Which setting a row is of; gaps as found have the rate that was found."""
    return row["role"], row["dataset"], round(row["eta"], 4)


def _checked(row: Mapping[str, Any], suite: Suite) -> Row:
    """A row of a submission, if it can be one of the suite."""
    out = dict(row)
    out["tag"] = tuple(row["tag"])
    out["split_means"] = {int(k): float(mean) for k, mean in row["split_means"].items()}
    where = f"{row['label']} on {row['dataset']}, {row['role']}"
    panel = next((p for p in suite.panels if p.name == row["role"]), None)
    data = next((d for d in suite.data if d.name == row["dataset"]), None)
    if panel is None or data is None or panel.name not in data.panels:
        raise FewviewError(f"{where}: the suite has no such setting")
    facts = {
        "shot": panel.shot, "query_counts": panel.query_counts, "queries": data.queries,
        "seed": suite.seed, "data": data.checksum[:8],
        "episodes": suite.episodes * len(suite.splits),
    }  # fmt: skip
    for name, value in facts.items():
        if row[name] != value:
            raise FewviewError(f"{where}: {name} is {row[name]!r}; in the suite it is {value!r}")
    if not str(row["missing"]).startswith(panel.missing):
        raise FewviewError(f"{where}: missing is {row['missing']!r}, not {panel.missing!r}")
    if panel.missing != "patterns" and round(row["eta"], 9) not in panel.rates:
        raise FewviewError(f"{where}: {row['eta']} is no missing rate of the suite")
    means = out["split_means"]
    if sorted(means) != sorted(suite.splits):
        raise FewviewError(f"{where}: class splits {sorted(means)}; wanted {list(suite.splits)}")
    if not all(0 <= mean <= 100 for mean in means.values()):
        raise FewviewError(f"{where}: an accuracy is not between 0 and 100")
    if abs(float(np.mean(list(means.values()))) - float(row["accuracy"])) > 1e-3:
        raise FewviewError(f"{where}: the accuracy is not the mean over class splits")
    if float(row["seconds_per_episode"]) < 0:
        raise FewviewError(f"{where}: a negative time")
    return out


# ---------------------------------------------------------------------- the board


def _recorded(suite: Suite, folder: Path) -> list[Row]:
    path = folder / f"{suite.title}.csv"
    return read_rows(path) if path.is_file() else []


def make_board(
    suite: Suite,
    folder: Path = FOLDER,
    files: Iterable[str | os.PathLike[str]] = (),
    data: Sequence[str] = (),
) -> Board:
    """Put recorded and submitted results together, and what some further files have.

    With `data`, the board is of these data sets alone.
    """
    for name in data:
        if name not in (known := [one.name for one in suite.data]):
            raise FewviewError(f"--data {name}: {suite.title} has {', '.join(known)}")
    by_label: dict[str, list[Row]] = {}
    flags: dict[str, tuple[str, ...]] = {}
    notes: dict[str, str] = {}
    for row in _recorded(suite, folder):
        by_label.setdefault(str(row["label"]), []).append(row)
    for label, rows in by_label.items():
        method = create(rows[0]["method"])
        flags[label] = flags_of(method)
        now = version_key(method, get_entry(name_and_settings(rows[0]["method"])[0]).digest)
        if old := sorted({row["version"] for row in rows if row["version"] != now}):
            notes[label] = f"recorded with version {', '.join(old)}, now {now}"
    own = set(by_label)
    sent = sorted((folder / SUBMITTED).glob(f"{suite.title}-*.json"))
    for path in [*sent, *files]:
        content = read_submission(path, suite)
        for row in content["rows"]:
            label = str(row["label"])
            if label in own:
                raise FewviewError(f"{path}: the board has a method {label!r} already")
            by_label.setdefault(label, []).append(row)
            flags[label] = tuple(content["methods"][label]["flags"])
            if " " not in str(row["version"]):  # no digest of code
                notes[label] = f"no file of code: {_made_of(content, row)}"
    by_label = {
        label: kept
        for label, rows in by_label.items()
        if (kept := [row for row in rows if not data or row["dataset"] in data])
    }
    if not by_label:
        raise FewviewError(
            f"nothing is recorded for {suite.title}; '{_command(suite, 'cpu')}' computes and "
            "records it"
        )
    settings = list(dict.fromkeys(setting_of(row) for rows in by_label.values() for row in rows))
    found = {label: {setting_of(row): row for row in rows} for label, rows in by_label.items()}
    whole = [label for label in found if len(found[label]) == len(settings)]
    lacking = {k: len(settings) - len(rows) for k, rows in found.items() if k not in whole}
    # [methods, settings, splits]: class splits of a setting are the same for all.
    table = [[list(found[k][s]["split_means"].values()) for s in settings] for k in whole]
    ranks = _ranks(table)
    lines = []
    for place, label in enumerate(whole):
        rows = [found[label][setting] for setting in settings]
        mean, low, high = interval(rows)
        lines.append(
            Line(
                label, str(rows[0]["version"]), mean, low, high, ranks[place],
                100 * _wins(table, place),
                1000 * float(np.mean([row["seconds_per_episode"] for row in rows])),
                float(np.mean([row["seconds_base_per_split"] for row in rows])),
                flags[label], label not in own, notes.get(label, ""),
            )
        )  # fmt: skip
    lines.sort(key=lambda line: (-line.mean, line.label))
    panels = {
        label: {
            panel: float(np.mean([found[label][s]["accuracy"] for s in settings if s[0] == panel]))
            for panel in dict.fromkeys(s[0] for s in settings)
        }
        for label in whole
    }
    shown = replace(suite, data=tuple(d for d in suite.data if not data or d.name in data))
    return Board(shown, tuple(lines), tuple(settings), lacking, panels)


def _made_of(content: Mapping[str, Any], row: Row) -> str:
    """What a submission says of a method that is made of installed packages alone."""
    try:
        used = content["runs"][row["run"]]["versions"]
        return (
            f"{content['methods'][row['label']]['class']}({content['settings'][row['settings']]}), "
            f"scikit-learn {used['sklearn']}, fewview {used['fewview']}"
        )
    except (KeyError, TypeError):
        return "the submission does not say what it is made of"


def interval(rows: Sequence[Row], level: float = 0.95) -> tuple[float, float | None, float | None]:
    """Mean accuracy over settings, and its interval over class splits.

    Settings of one data set share their class splits: their means over settings, one per class
    split, are the independent numbers. Data sets count by their settings; degrees of freedom are
    Welch and Satterthwaite's. Of a data set with one fixed class split, further tasks take the
    place of class splits. Where the interval reaches an end of the scale, or nothing varies, it is
    at least Wilson's of as many trials as there are tasks, those of one setting per data set.
    """
    groups: dict[str, list[list[float]]] = {}
    tasks: dict[str, int] = {}
    for row in rows:
        groups.setdefault(row["dataset"], []).append(list(row["split_means"].values()))
        tasks[row["dataset"]] = int(row["episodes"])
    mean = float(np.mean([row["accuracy"] for row in rows]))
    parts = []
    for table in groups.values():
        means = np.mean(table, axis=0)
        if len(means) < 2:
            return mean, None, None
        share = len(table) / len(rows)
        parts.append((share**2 * means.var(ddof=1) / len(means), len(means) - 1))
    total = sum(part for part, _ in parts)
    half = 0.0
    if total > 0:
        freedom = total**2 / sum(part**2 / df for part, df in parts)
        half = float(student.ppf((1 + level) / 2, freedom)) * total**0.5
    low, high = mean - half, mean + half
    if low <= 0 or high >= 100 or half <= 1e-7:
        bottom, top = wilson_interval(np.array([mean / 100]), sum(tasks.values()), level)
        low, high = min(low, 100 * float(bottom[0])), max(high, 100 * float(top[0]))
    return mean, max(0.0, low), min(100.0, high)


def _ranks(table: Sequence[Sequence[Sequence[float]]]) -> list[float]:
    """Mean rank of every method over settings, by mean accuracy; ties share theirs."""
    means = np.array([[np.mean(splits) for splits in line] for line in table])
    return [float(rank) for rank in rankdata(-means.round(6), axis=0).mean(axis=1)]


def _wins(table: Sequence[Sequence[Sequence[float]]], place: int) -> float:
    """Share of (other method, setting, class split) in which a method is better; ties are half."""
    won, count = 0.0, 0
    for other, line in enumerate(table):
        if other == place:
            continue
        for mine, theirs in zip(table[place], line, strict=True):
            difference = np.array(mine) - np.array(theirs)
            won += float((difference > 1e-9).sum() + 0.5 * (np.abs(difference) <= 1e-9).sum())
            count += len(difference)
    return won / count if count else 0.5


HEADER = (
    "method", "mean %", "95 % interval", "rank", "wins %", "ms per task", "base s", *FLAGS,
    "version",
)  # fmt: skip


EXPLAINED = """\
- **mean**: accuracy, every setting counting the same. The interval is over class splits: what other
  new classes of the same data sets would give (other tasks, where a data set has one fixed class
  split). Methods are run on the same tasks, so two whose intervals overlap may still differ; the
  wins say more.
- **rank**: mean over settings. **wins**: share of other methods, settings and class splits on which
  it is better; equal counts half.
- **ms per task** is scoring, **base s** what is learnt from base classes per class split; times are
  of the machine that recorded them, and of one run.
- **queries together**: an answer depends on what else is asked, by the method itself (`yes`) or
  because gaps are filled from all queries (`by padding`). **needs base**: cannot work without base
  classes. **assumes balance**: uses that classes are equally frequent.
- **version**: of the method, in brackets of those it is made of; of a submitted one also a digest
  of its file. Below it is said what one that has no file is made of.""".splitlines()


def board_table(board: Board) -> list[tuple[str, ...]]:
    """The board as texts under `HEADER`."""
    return [
        (
            line.label + (" (submitted)" if line.submitted else "") + (" *" if line.note else ""),
            f"{line.mean:.1f}",
            "" if line.low is None or line.high is None else f"{line.low:.1f} to {line.high:.1f}",
            f"{line.rank:.1f}",
            f"{line.wins:.0f}",
            f"{line.milliseconds:.1f}",
            f"{line.seconds_base:.1f}",
            *line.flags,
            line.version,
        )
        for line in board.lines
    ]


def remarks(board: Board) -> list[str]:
    """What has to be said below the board."""
    out = [f"* {line.label}: {line.note}" for line in board.lines if line.note]
    total = len(board.settings)
    out += [f"{k}: {n} of {total} settings are missing" for k, n in board.lacking.items()]
    if board.lacking:
        out.append(
            "'--data NAMES' compares all methods on the data sets named, for instance --data "
            f"{EMBEDDED}"
        )
    there = {line.label for line in board.lines} | set(board.lacking)
    if absent := [name for name in board.suite.methods if name not in there]:
        out.append(f"not run in this form: {', '.join(absent)}")
    named = {data for _, data, _ in board.settings}
    out += [f"{one.name}: no results recorded" for one in board.suite.data if one.name not in named]
    return out


def board_page(board: Board) -> str:
    """The board as a page of the documentation, in Markdown."""
    suite = board.suite
    data = ", ".join(dict.fromkeys(d for _, d, _ in board.settings))
    lite = suite.form == FORMS[0]
    file = "leaderboard.md" if lite else f"leaderboard-{suite.form}.md"
    lines = [
        "# Leaderboard" if lite else f"# Leaderboard, {suite.form} form",
        "",
        *_wrapped(
            f"Suite `{suite.name}`, form `{suite.form}`: {len(board.settings)} settings on {data}; "
            f"{len(suite.splits)} class splits x {suite.episodes} tasks each. Made by "
            f"`fewview suite show --form {suite.form} --output docs/{file}` from recorded "
            "results; nothing here is written by hand. How to enter: "
            "[Enter the benchmark](enter-the-benchmark.md)."
        ),
        "",
        *_markdown(HEADER, board_table(board)),
        "",
        *EXPLAINED,
        *(line for text in remarks(board) for line in _wrapped(f"- {text}")),
        "",
        "## By kind of task",
        "",
        *_markdown(
            ("method", *next(iter(board.panels.values()), {})),
            [
                (line.label, *(f"{value:.1f}" for value in board.panels[line.label].values()))
                for line in board.lines
            ],
        ),
        "",
    ]
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    """A paragraph or an entry of a list in lines of readable length; code is not broken."""
    held = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", "\0"), text)
    wrap = textwrap.TextWrapper(
        98, subsequent_indent="  " * text.startswith("- "), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace("\0", " ") for line in wrap.wrap(held)]


def _markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    cells = [header, ["---"] * len(header), *lines]
    return [f"| {' | '.join(text.replace('|', '/') for text in line)} |" for line in cells]


def stored_suite(
    suite: Suite, methods: Sequence[str], store: str | None, data_dir: str | None, device: str
) -> tuple[list[Gathered], dict[str, str]]:
    """What a store has of a suite, nothing computed; results, and why data are skipped."""
    from fewview.evaluate._grid import plan
    from fewview.results._store import Store

    grids, skipped = suite.grids(methods, data_dir, device)
    out = []
    with Store(store_path(store), write=False) as reader:
        for panel, grid in grids:
            cells = tuple(plan(grid))
            labels = {label_of(text): text for text in grid.methods}
            found = reader.get([cell.hash for cell in cells])
            found = {
                cell.hash: replace(found[cell.hash], cell=cell)
                for cell in cells
                if cell.hash in found
            }
            out.append(Gathered(Part(panel.name, grid, methods=labels), cells, found))
    return out, skipped
