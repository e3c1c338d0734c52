"""Do the versions that pyproject.toml promises pass? Every Python, oldest and newest libraries.

    python release/matrix.py --list                     # environments and parts, and what is known
    python release/matrix.py                            # all that is not known yet: hours
    python release/matrix.py --jobs 2                   # the same, two parts at a time
    python release/matrix.py 3.11-oldest --parts files,commands
    python release/matrix.py --page                     # docs/versions.md from the record

An environment is built in build/matrix by uv, tested part by part and removed again (--keep keeps
it), so that one of them lies on the disk at a time (two, where the next begins while parts of the
last still run); what is known of this version of the source is not run again (--again does). Every
part is one pytest process and one entry of release/results/matrix.json. Oldest means the lower
bounds of pyproject.toml, or the first version with a wheel for that Python; everything behind them,
and the tools of the tests, is the newest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "release" / "results" / "matrix.json"
PAGE = ROOT / "docs" / "versions.md"
PLACE = ROOT / "build" / "matrix"
PYTHONS = ("3.11", "3.12", "3.13")
SETS = {"oldest": "lowest-direct", "newest": "highest"}
# Small enough that each one ends in minutes; together they are all of tests/. The longest come
# first, so that none of them runs alone at the end.
PARTS: dict[str, tuple[str, ...]] = {
    "documents": (
        "test_docs.py", "test_doctests.py", "test_examples.py", "test_floors.py", "test_package.py",
        "test_face.py", "test_release.py",
    ),
    "cluster": ("evaluate",),
    "engine": ("engine", "episodes", "numerics", "results"),
    "methods": ("methods",),
    "pages": ("drawing", "paper", "report"),
    "commands": ("cli", "ground"),
    "files": ("files", "samples", "datasets"),
    "frozen": ("test_frozen.py",),
}  # fmt: skip
WHAT = {
    "files": "files of all formats, tables, data sets",
    "commands": "the command line",
    "cluster": "benchmarks, processes, a Dask cluster with lost workers",
    "engine": "estimators, model files, the store, statistics",
    "methods": "every method",
    "pages": "charts, the report, the paper's tables",
    "frozen": "recorded scores, keys, models, stores, what commands print",
    "documents": "examples, code in the documentation, rules of the house, the public face",
}


def environments() -> list[str]:
    """Names such as 3.11-oldest."""
    return [f"{python}-{chosen}" for python in PYTHONS for chosen in SETS]


def source_of(part: str) -> str:
    """A key of the committed source and the tests of a part, to know what was tested."""
    paths = ["src", "pyproject.toml", *(f"tests/{path}" for path in PARTS[part])]
    listed = subprocess.run(
        ["git", "ls-files", "-s", *paths], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return hashlib.sha256(listed.stdout.encode()).hexdigest()[:12]


def commit() -> str:
    """The commit that is tested, `+` behind it where files differ from it."""
    said = [
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        for words in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "src", "tests"))
    ]
    return said[0] + "+" * bool(said[1])


def data_folder() -> Path:
    """Where the tests look for data sets (tests/conftest.py)."""
    return Path(os.environ.get("FEWVIEW_DATA", ROOT.parent / "shared" / "data"))


def run(command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; one that fails ends everything with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, **more)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done


def find_uv() -> str:
    """Find uv, or install it beside the environments."""
    found = shutil.which("uv")
    if found:
        return found
    home = PLACE / "uv"
    if not (home / "bin" / "uv").exists():
        run([sys.executable, "-m", "venv", str(home)])
        run([str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"])
    return str(home / "bin" / "uv")


def find_python(version: str) -> str | None:
    """Find a Python of a version: by name, or as pyenv keeps it."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)
    for candidate in [shutil.which(f"python{version}"), *map(str, places)]:
        if candidate is None:
            continue
        asked = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        told = subprocess.run(asked, capture_output=True, text=True)
        if told.stdout.strip() == version:
            return candidate
    return None


def cpu_torch(python: str) -> str | None:
    """The oldest CPU build of torch for a Python among the files of $PIP_FIND_LINKS.

    PyPI has builds for CUDA only, which do the same on a machine without a GPU but are ten times as
    large.
    """
    tag = f"cp{python.replace('.', '')}"
    found = []
    for folder in os.environ.get("PIP_FIND_LINKS", "").split():
        found += Path(folder).glob(f"torch-*+cpu-{tag}-*.whl")
    return os.fspath(min(found)) if found else None


def build(name: str, uv: str, interpreter: str, fresh: bool) -> tuple[Path, dict[str, str]]:
    """Make an environment: its folder, and the versions of what pyproject.toml names."""
    python, _, chosen = name.partition("-")
    place = PLACE / name
    if fresh:
        shutil.rmtree(place, ignore_errors=True)
    PLACE.mkdir(parents=True, exist_ok=True)
    compiling = [uv, "pip", "compile", "-q", "--python", interpreter, "--only-binary", ":all:"]
    ours, tools = PLACE / f"{name}.txt", PLACE / f"{name}-tools.txt"
    torch = cpu_torch(python) if chosen == "oldest" else None
    run([*compiling, "--resolution", SETS[chosen], "--extra", "all", "pyproject.toml",
         "-o", str(ours), "--upgrade"])  # fmt: skip
    fixed = PLACE / f"{name}-fixed.txt"
    fixed.write_text(ours.read_text(encoding="utf-8"), encoding="utf-8")
    run([*compiling, "-c", str(fixed), "--extra", "all", "--extra", "test", "--extra", "docs",
         "pyproject.toml", "-o", str(tools), "--upgrade"])  # fmt: skip
    lines = re.findall(r"^[\w.-]+==\S+", tools.read_text(encoding="utf-8"), re.MULTILINE)
    if torch is not None:
        heavy = ("torch==", "nvidia", "cuda-", "triton==")
        lines = [*(line for line in lines if not line.startswith(heavy)), torch]
    tools.write_text("\n".join(lines) + "\n", encoding="utf-8")
    inside = {**os.environ, "VIRTUAL_ENV": str(place)}
    if not (place / "bin" / "python").exists():
        run([uv, "venv", "-q", "--python", interpreter, str(place)])
    run([uv, "pip", "install", "-q", "--no-deps", "--only-binary", ":all:", "-r", str(tools)],
        env=inside)  # fmt: skip
    run([uv, "pip", "install", "-q", "--no-deps", "-e", "."], env=inside)
    listed = json.loads(run([uv, "pip", "list", "--format", "json"], env=inside).stdout)
    installed = {entry["name"].lower(): entry["version"] for entry in listed}
    wanted = [re.split(r"[<>=\[]", line)[0].lower() for line in stated()]
    return place, {package: installed[package] for package in [*wanted, "click"]}


def stated() -> list[str]:
    """The dependencies of pyproject.toml, extras for users included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *extras["cluster"], *extras["frames"], *extras["omics"]]


def test(place: Path, part: str, more: list[str]) -> dict[str, Any]:
    """Run one part: how many tests passed, failed, were skipped, and how long it took."""
    report = PLACE / f"{place.name}-{part}.xml"
    report.unlink(missing_ok=True)
    paths = [f"tests/{path}" for path in PARTS[part] if (ROOT / "tests" / path).exists()]
    command = [str(place / "bin" / "python"), "-m", "pytest", "-q", "-x" if "-x" in more else "-q",
               "-p", "no:cacheprovider", f"--junitxml={report}", *paths]  # fmt: skip
    # uv compiles nothing: what processes of the tests cannot keep, each of them compiles again.
    unwanted = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    start = perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    took = perf_counter() - start
    if not report.exists():
        sys.exit(f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    count = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
    wrong = count["failures"] + count["errors"]
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    (PLACE / f"{place.name}-{part}.log").write_text(done.stdout, encoding="utf-8")
    return {
        "passed": count["tests"] - wrong - count["skipped"], "failed": wrong,
        "skipped": count["skipped"], "minutes": round(took / 60, 1), "failures": failed,
        "source": source_of(part), "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(), "data": "yes" if data_folder().is_dir() else "no",
    }  # fmt: skip


def known() -> dict[str, Any]:
    """What is recorded: environment -> `versions` and `parts`."""
    out: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return out


@contextmanager
def only_one() -> Iterator[None]:
    """Inside, no other part, of this run or another one, writes the record."""
    import fcntl

    with (PLACE / "record.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def note(name: str, versions: dict[str, str], part: str, found: dict[str, Any]) -> None:
    """Tell what was found, and add it to the record."""
    told = f"{found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped"
    lines = [f"{name} {part}: {told}, {found['minutes']} min"]
    print("\n    ".join([*lines, *found["failures"]]), flush=True)
    with only_one():
        record = known()
        if record.get(name, {}).get("versions") != versions:
            record[name] = {"versions": versions, "parts": {}}  # others say nothing of these
        record[name]["parts"][part] = found
        write(record)


def write(record: dict[str, Any]) -> None:
    """Keep what was found, and make its page."""
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(page(record), encoding="utf-8")


def page(record: dict[str, Any]) -> str:
    """The record for people, as Markdown."""
    there = [name for name in environments() if name in record]
    lines = [
        "# Tested versions",
        "",
        "`make test-matrix` tests what `pyproject.toml` promises: oldest and newest libraries on",
        "Python 3.11, 3.12 and 3.13. It runs what is not known yet, one environment at a time,",
        "part by part; `make test-matrix MATRIX='--jobs 2'` runs two parts at a time,",
        "`make test-matrix MATRIX='3.11-oldest --parts files'` some of it. This page is made from",
        "the record (`release/results/matrix.json`).",
        "",
        "## Passes",
        "",
        "Tests passed of those that ran, and minutes of one process on a machine that others used",
        "too. Tests are skipped where a browser, a GPU or a package is missing; without data sets",
        "beside the checkout, tests take the embedded one and made-up ones. An empty cell, or an",
        "environment without a column, was not run yet; `--list` says what the present source has.",
        "",
        "| part | " + " | ".join(there) + " |",
        "|---" * (len(there) + 1) + "|",
    ]
    for part in PARTS:
        cells = []
        for name in there:
            entry = record[name]["parts"].get(part)
            ran = entry and entry["passed"] + entry["failed"]
            cells.append(f"{entry['passed']} of {ran}, {entry['minutes']:g} min" if entry else "")
        lines.append(f"| {WHAT[part]} | " + " | ".join(cells) + " |")
    for key, what in (
        ("data", "data sets beside the checkout"), ("commit", "commit"), ("date", "date"),
    ):  # fmt: skip
        told = [
            sorted({str(entry.get(key, "not noted")) for entry in record[name]["parts"].values()})
            for name in there
        ]
        lines.append(f"| *{what}* | " + " | ".join(", ".join(words) for words in told) + " |")
    wrong = [
        f"{name}, {part}: {failure}"
        for name in there
        for part, entry in record[name]["parts"].items()
        for failure in entry["failures"]
    ]
    if wrong:
        lines += ["", "What failed:", "", "```text", *wrong, "```"]
    lines += ["", "## Versions", "", "| library | needed | " + " | ".join(there) + " |"]
    lines.append("|---" * (len(there) + 2) + "|")
    for need in [*stated(), "click"]:
        package = re.split(r"[<>=]", need)[0]
        bound = need.removeprefix(package).replace(">=", "") or "by typer"
        cells = [record[name]["versions"].get(package.lower(), "") for name in there]
        lines.append(f"| {package} | {bound} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Where *oldest* is above the bound, it is the first version with a wheel for that Python.",
        "The bound of torch is the oldest CPU build that could be installed for these tests; older",
        "ones may work, and nobody has tried. typer before 0.26 fails or leaves out the help of",
        "arguments with a click of today. How help pages are set differs between versions of",
        "typer; their words do not. scipy before 1.15 gives other p-values of Wilcoxon's test",
        "where differences are tied, before 1.14 even others when two methods change places.",
        "scikit-learn's own checks of estimators cannot be imported before 1.7 with such a scipy.",
    ]
    return "\n".join(lines) + "\n"


def attempt(
    part: str,
    given: argparse.Namespace,
    name: str,
    place: Path,
    versions: dict[str, str],
    unfinished: set[str],
) -> int:
    """Test a part and note what was found; the last one of an environment removes it."""
    found = test(place, part, ["-x"] if given.stop else [])
    note(name, versions, part, found)
    unfinished.remove(part)
    if not unfinished and not given.keep:
        shutil.rmtree(place)
    return int(found["failed"])


def main() -> int:
    """Run what was asked for; 1 if anything failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environments", nargs="*", help="such as 3.11-oldest; default: all")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of them, by comma")
    parser.add_argument("--jobs", type=int, default=1, help="parts at a time")
    parser.add_argument("--again", action="store_true", help="also what is known")
    parser.add_argument("--keep", action="store_true", help="leave environments where they are")
    parser.add_argument("--stop", action="store_true", help="end a part at its first failure")
    parser.add_argument("--list", action="store_true", help="say what is known, run nothing")
    parser.add_argument("--page", action="store_true", help="make the page, run nothing")
    given = parser.parse_args()
    record = known()
    parts = given.parts.split(",")
    for word in {*given.environments} - {*environments()} | {*parts} - {*PARTS}:
        parser.error(f"no {word!r}; there are {', '.join([*environments(), *PARTS])}")
    if given.page:
        write(record)
        return 0
    uv = "" if given.list else find_uv()
    running: list[Future[int]] = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for name in given.environments or environments():
            old = {part: record.get(name, {"parts": {}})["parts"].get(part) for part in parts}
            left = [
                part for part, found in old.items()
                if given.again or not found or found["source"] != source_of(part) or found["failed"]
            ]  # fmt: skip
            if given.list:
                print(f"{name}: known {', '.join(set(parts) - set(left)) or 'nothing'}; "
                      f"to do {', '.join(left) or 'nothing'}")  # fmt: skip
                continue
            interpreter = find_python(name.partition("-")[0])
            if interpreter is None:
                print(f"{name}: no such Python here; it stays untested", flush=True)
                continue
            if not left:
                continue
            while sum(not future.done() for future in running) >= given.jobs:
                wait([future for future in running if not future.done()], None, FIRST_COMPLETED)
            print(f"{name}: building", flush=True)
            place, versions = build(name, uv, interpreter, fresh=not given.keep)
            about = given, name, place, versions, {*left}
            running += [pool.submit(attempt, part, *about) for part in left]
    return int(sum(future.result() for future in running) > 0)


if __name__ == "__main__":
    sys.exit(main())
