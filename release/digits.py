"""Record the digits that `fewview doctor` compares with; `make record` runs this.

python release/digits.py
"""

from __future__ import annotations

import json
from importlib.metadata import version

from fewview.cli.doctor import _trials
from fewview.methods import CATALOGUE

# Methods that train networks take minutes; their numbers are frozen by tests/test_frozen.py.
LEFT_OUT = ("cpm", "cpm-gan", "icmsc", "completer")
# What numbers are made by.
LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch")
GRID = {
    "datasets": ["digits"], "splits": 1, "episodes": 5, "queries": 5, "etas": [0.0, 0.5],
    "dtype": "float64",
}  # fmt: skip


def main() -> None:
    """Measure every method on the grid, and keep it."""
    versions = {name: version(name).partition("+")[0] for name in LIBRARIES}
    content = {"grid": GRID, "numbers": {}, "versions": versions}
    _trials.RECORD.write_text(json.dumps(content), encoding="utf-8")
    names = tuple(name for name in sorted(CATALOGUE) if name not in LEFT_OUT)
    content["numbers"] = _trials.measure(names)
    _trials.RECORD.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"{_trials.RECORD}: {len(names)} methods")


if __name__ == "__main__":
    main()
