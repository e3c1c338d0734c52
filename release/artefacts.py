"""Build wheel and source archive, and try the wheel where nothing else is.

    python release/artefacts.py build     # into dist/, and what is in the wheel
    python release/artefacts.py check     # an empty environment outside the checkout; minutes

`check` installs the wheel of dist/ into a new environment in a temporary folder and runs the main
job, one prediction, one report and `fewview doctor` there; what an
extra gives, first without it, then with `all`; and puts the source archive in the place of the
wheel: the same files must come out. The transcript is kept in release/results/transcript.txt and
the contents in release/results/wheel.json; docs/artefacts.md is made from both.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from hashlib import sha256
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
TRANSCRIPT = ROOT / "release" / "results" / "transcript.txt"
CONTENTS = ROOT / "release" / "results" / "wheel.json"
PAGE = ROOT / "docs" / "artefacts.md"
# What the rooms of the package answer is in docs/architecture.md; these hold more than code.
WHAT = {
    "datasets": "readers and specifications of data sets; class splits; no data (`digits` are read "
    "from scikit-learn)",
    "paper": "the paper's studies; recorded means of ours, no samples",
    "report": "the page and its templates",
    "evaluate": "grids, runner, clusters",
    "cli": "the command",
}

# Written by the check itself: two views of six samples of two classes, three queries, with gaps.
TABLES = {
    "support/blood.csv": "id,a,b\ns1,0.1,1.2\ns2,0.2,1.1\ns3,2.1,0.1\ns4,2.0,0.3\n",
    "support/scan.csv": "id,x,y,z\ns1,5,1,0\ns3,1,4,2\ns4,0,5,1\n",
    "support/labels.csv": "id,label\ns1,well\ns2,well\ns3,ill\ns4,ill\n",
    "query/blood.csv": "id,a,b\nq1,0.2,1.0\nq2,1.9,0.2\n",
    "query/scan.csv": "id,x,y,z\nq2,1,5,2\nq3,5,0,0\n",
}


def build() -> None:
    """Make both archives anew, and say what the wheel has."""
    for old in DIST.glob("fewview-*"):
        old.unlink()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(DIST)], cwd=ROOT, check=True
    )
    facts = contents()
    CONTENTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    for name, size in facts["archives"].items():
        print(f"{name}: {size / 1000:.0f} kB")
    for folder, (files, size) in facts["folders"].items():
        print(f"  {folder:<22}{files:>4} files {size / 1000:>8.0f} kB")


def wheel() -> Path:
    """The wheel of dist/."""
    found = sorted(DIST.glob("fewview-*.whl"))
    if len(found) != 1:
        sys.exit(f"{DIST} has {len(found)} wheels; run: python release/artefacts.py build")
    return found[0]


def contents() -> dict[str, dict[str, object]]:
    """Sizes of the archives, and files and bytes of the wheel by room."""
    folders: dict[str, list[int]] = {}
    with zipfile.ZipFile(wheel()) as archive:
        for info in archive.infolist():
            parts = info.filename.split("/")
            place = parts[1] if parts[0] == "fewview" and len(parts) > 2 else parts[0]
            place = re.sub(r"^fewview-.*dist-info$", "metadata and licence", place)
            entry = folders.setdefault(place, [0, 0])
            entry[0] += 1
            entry[1] += info.file_size
    sizes = {
        re.sub(r"-\d+(\.\d+)+", "-VERSION", path.name, count=1): path.stat().st_size
        for path in sorted(DIST.glob("fewview-*"))
    }
    return {"archives": dict(sizes), "folders": dict(sorted(folders.items()))}


def check() -> int:
    """Try the wheel outside the checkout; the transcript is written whatever happens."""
    told: list[str] = []
    with tempfile.TemporaryDirectory(prefix="fewview-check-") as name:
        folder = Path(name)
        try:
            return _check(folder, told)
        finally:
            text = "\n".join(told).replace(str(folder.resolve()), "FOLDER").replace(name, "FOLDER")
            text = text.replace(str(Path.home()), "HOME")
            TRANSCRIPT.write_text(text + "\n", encoding="utf-8")
            PAGE.write_text(page(), encoding="utf-8")


def _check(folder: Path, told: list[str]) -> int:
    # Nothing of the checkout, the user's store or the data beside it is seen.
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONPATH", "FEWVIEW_DATA", "VIRTUAL_ENV")
    }
    environment |= {
        "FEWVIEW_STORE": str(folder / "store.sqlite"),
        "NO_COLOR": "1",
        "COLUMNS": "100",
    }
    binaries = folder / "venv" / "bin"

    def run(command: list[str], shown: str = "", status: int = 0, last: int = 60) -> str:
        start = perf_counter()
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        out = (done.stdout + done.stderr).strip().splitlines()
        # Progress is as long as the machine is slow.
        out = [line.rstrip() for line in out if not re.match(r"\[\d+/\d+\]|WARNING: Loc", line)]
        cut = ["..."] if len(out) > last else []
        took = f"[status {done.returncode}, {perf_counter() - start:.0f} s]\n"
        now = [f"$ {shown or ' '.join(command)}", *cut, *out[-last:], took]
        print("\n".join(now), flush=True)
        told.extend(now)
        if done.returncode != status:
            sys.exit(f"status {done.returncode}, expected {status}")
        return "\n".join(out)

    def fewview(line: str, status: int = 0, last: int = 60) -> str:
        return run([str(binaries / "fewview"), *line.split()], f"fewview {line}", status, last)

    python = str(binaries / "python")
    run([sys.executable, "-m", "venv", str(folder / "venv")], "python -m venv venv")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    constraints = ["-c", str(ROOT / "constraints.txt")]
    pinned = re.findall(r"^torch==\S+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    run([*pip, *constraints, *pinned], f"pip install {' '.join(pinned)}")
    run([*pip, *constraints, str(wheel())], f"pip install {wheel().name}")
    where = "import fewview; print(fewview.__file__)"
    home = run([python, "-c", where], f"python -c '{where}'")
    if not Path(home.splitlines()[-1]).resolve().is_relative_to((folder / "venv").resolve()):
        sys.exit(f"not the installed package: {home}")
    fewview("--version")
    fewview("run --splits 2 --output first", last=40)
    for path, text in TABLES.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    fewview("predict --method proto --support support --query query -o predictions.csv")
    run(["cat", "predictions.csv"])
    rows = (folder / "predictions.csv").read_text(encoding="utf-8").splitlines()
    said = [line.split(",")[1] for line in rows[1:]]
    if said != ["well", "ill", "well"]:
        sys.exit(f"predictions are {said}")
    fewview("report first/results.sqlite -o report.html")
    if "<html" not in (folder / "report.html").read_text(encoding="utf-8")[:300]:
        sys.exit("the report is no page")
    # Without an extra, its feature says which one to install.
    (folder / "a.h5ad").write_bytes(b"\x89HDF\r\n\x1a\n")
    parquet = "results first/results.sqlite --format parquet --output out.parquet"
    for line, extra in (
        ("data show a.h5ad", "omics"),
        (parquet, "frames"),
        (
            "bench digits --methods proto --splits 1 --episodes 1 --cluster tcp://127.0.0.1:8786",
            "cluster",
        ),
    ):
        if f"fewview[{extra}]" not in fewview(line, status=2):
            sys.exit(f"{line} does not name the extra {extra}")
    fewview("doctor")
    run([*pip, *constraints, f"{wheel()}[all]"], f"pip install '{wheel().name}[all]'")
    fewview(parquet)
    fewview("data convert support support.h5mu")
    fewview("data show support.h5mu")
    (source,) = DIST.glob("fewview-*.tar.gz")
    before = installed(folder)
    run([*pip, "--no-deps", "--force-reinstall", str(source)], f"pip install {source.name}")
    fewview("--version")
    if installed(folder) != before:
        sys.exit(f"{source.name} installs other files than {wheel().name}")
    told.append(f"{len(before)} files, the same from {source.name} as from {wheel().name}\n")
    told.append("everything of the check passed")
    return 0


def installed(folder: Path) -> dict[str, str]:
    """The package's files in the environment, with their checksums."""
    (home,) = (folder / "venv").glob("lib/python*/site-packages/fewview")
    return {
        str(path.relative_to(home)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(home.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def page() -> str:
    """The artefacts for people, as Markdown."""
    facts = json.loads(CONTENTS.read_text(encoding="utf-8"))
    lines = [
        "# Wheel and source archive",
        "",
        "`make dist` builds both into `dist/`. `make check-dist` installs the wheel into an empty",
        "environment outside the checkout and runs the main job, a prediction, a report and the",
        "installed tests there, then what extras give, and compares what the source archive",
        "installs; its transcript is below. This page is made by these commands.",
        "",
        "| archive | kB |",
        "|---|---|",
        *(f"| `{name}` | {size / 1000:.0f} |" for name, size in facts["archives"].items()),
        "",
        "## What the wheel contains",
        "",
        "| folder | files | kB unpacked | |",
        "|---|---|---|---|",
    ]
    for folder, (files, size) in facts["folders"].items():
        lines.append(f"| {folder} | {files} | {size / 1000:.0f} | {WHAT.get(folder, '')} |")
    lines += [
        "",
        "Tests, documentation, examples and benchmarks are in the source archive.",
        "",
        "## What can be added",
        "",
        "| install | gives |",
        "|---|---|",
        "| `pip install fewview` | methods, benchmarks, pages; CSV, `.npz` and MATLAB files |",
        "| `pip install 'fewview[frames]'` | pandas frames, and parquet files read and written |",
        "| `pip install 'fewview[omics]'` | `.h5ad` and `.h5mu` files |",
        "| `pip install 'fewview[cluster]'` | `--cluster`: cells on many machines |",
        "| `pip install 'fewview[all]'` | all of these |",
        "",
        "Without an extra its feature ends in a sentence that names it. For work on fewview itself",
        "there are `test`, `docs` and `dev`.",
    ]
    if TRANSCRIPT.exists():
        lines += ["", "## Transcript", "", "```text"]
        lines += [*TRANSCRIPT.read_text(encoding="utf-8").rstrip().splitlines(), "```"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word == "build":
        build()
    elif word == "check":
        sys.exit(check())
    elif word == "page":
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.exit(__doc__)
