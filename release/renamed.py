"""Rename a public parameter on purpose, in a copy: which test fails, and what does it say?

    python release/renamed.py
    python release/renamed.py fewview.TaskSpec eta rate

The checkout is copied to a temporary folder, the name is replaced wherever the function or class
has it, and the tests of the public face run there. Status 0 if one of them failed and named the
parameter; else the promise of docs/stability.md is not kept.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Rename, test, say what came out."""
    words = sys.argv[1:] or ["fewview.datasets.class_split", "index", "number"]
    if len(words) != 3:
        sys.exit(__doc__)
    path, old, new = words
    package, _, name = path.rpartition(".")
    found = inspect.unwrap(getattr(importlib.import_module(package), name))
    if old not in inspect.signature(found).parameters:
        sys.exit(f"{path} has no parameter {old!r}")
    inside = Path(inspect.getfile(found)).resolve().relative_to(ROOT)
    with tempfile.TemporaryDirectory(prefix="fewview-renamed-") as folder:
        copy = Path(folder) / "fewview"
        for part in ("src", "tests", "CHANGELOG.md", "pyproject.toml", "constraints.txt"):
            place = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy.mkdir(exist_ok=True)
            place(ROOT / part, copy / part)
        source, before = copy / inside, inspect.getsource(found)
        after, count = re.subn(rf"\b{old}\b", new, before)
        text = source.read_text(encoding="utf-8")
        source.write_text(text.replace(before, after), encoding="utf-8")
        print(f"{inside}: {old} -> {new}, {count} places\n$ pytest tests/test_face.py", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_face.py"],
            cwd=copy, env={**os.environ, "PYTHONPATH": str(copy / "src")}, capture_output=True,
            text=True,
        )  # fmt: skip
    print(done.stdout + done.stderr)
    told = f"gone: parameter {path}({old}) (renamed to parameter {path}({new})?)" in done.stdout
    print("told" if told and done.returncode == 1 else "NOT told")
    return int(not told or done.returncode != 1)


if __name__ == "__main__":
    sys.exit(main())
