"""Which scaling is best for every method, chosen on base classes of the development sets.

    python benchmarks/experiments/scaling_choice.py [--methods proto,rfs] [--json FILE]

Development sets are scene15, cub_googlenet_doc2vec and movies617: of each, the base classes of
class split 0, some of which play novel ones as `--tune` does it, 4 divisions of 15 tasks, complete
and with half the views missing. Novel classes are not looked at, and no other data set is.

The rule, written before the first run: of the four scalings that `--tune` tries, and where gaps are
filled for the method the fillings that do not look at queries, a method gets the setting with the
best mean over sets and rates. What a method has now stays unless another one is more than half a
point better, and where it may not stay (a filling that looks at queries, in a method that says it
does not), it counts for nothing. Methods that train networks, and Marginal, which chooses its
scaling itself, are left as they are. Where `root+standard+unit` wins, the default is `by-width`,
the same but for views of fewer than six features, which these sets do not have.

concat-hgb takes longest: 1440 fits of boosted trees, 23 minutes of a core, most of them on
movies617 (3276 features).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fewview import Method, TaskSpec, create
from fewview.evaluate._sources import find_source
from fewview.evaluate._tuning import choose
from fewview.methods.registry import names
from fewview.samples import MultiViewData

SETS = ("scene15", "cub_googlenet_doc2vec", "movies617")
RATES = (0.0, 0.5)
SCALINGS = ("scale", "standard", "standard+unit", "root+standard+unit")
LEAST = 0.5  # points that a change must bring
BEFORE = {"scaling": "scale"}  # of every method that is weighed


def base_of(name: str) -> tuple[MultiViewData, dict[str, int]]:
    """Base samples of class split 0, and the usual task of the data set."""
    path = Path(os.environ["FEWVIEW_DATA"]) / f"{name}.npz"
    source = find_source(name if name != "movies617" else str(path))
    rows = source.data[np.isin(source.data.labels, source.split(0).base)]
    return rows, {"way": source.way, "shot": source.shot, "queries": source.queries or 15}


def settings_of(name: str, method: Method) -> list[dict[str, str]]:
    """What may become the default, the former one first."""
    choices: dict[str, tuple[str, ...]] = {"scaling": SCALINGS}
    if hasattr(method, "impute"):
        # Trees take gaps as they are.
        choices["impute"] = ("none",) if name == "concat-hgb" else ("mean", "base", "knn")
    elif not method.tags.handles_missing:
        choices["padding"] = ("support", "base", "zero")
        if method.tags.transductive:
            choices["padding"] = ("episode",)
    found = [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]
    former = dict(BEFORE)
    if "impute" in choices:
        former["impute"] = choices["impute"][0]
    elif "padding" in choices:
        former["padding"] = "episode"
    return [former, *(one for one in found if one != former)]


def weigh(name: str) -> dict[str, Any]:
    """Accuracy of every setting of one method on every set and at every rate, in percent."""
    method = create(name)
    settings = settings_of(name, method)
    table = {}
    for dataset, eta in product(SETS, RATES):
        base, shape = base_of(dataset)
        found = choose(method, settings, base, TaskSpec(**shape, eta=eta), seed=0)
        table[f"{dataset} {eta:g}"] = [round(100 * one, 2) for one in found["accuracy"]]
    means = np.mean(list(table.values()), axis=0)
    honest = method.tags.transductive or settings[0].get("padding") != "episode"
    if not honest:
        means[0] = 0.0
    best = int(means.argmax())
    if honest and means[best] <= means[0] + LEAST:
        best = 0
    return {"settings": settings, "accuracy": table, "best": best}


def main() -> None:
    """Weigh methods one after another; what was weighed before and is in the file stays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="")
    parser.add_argument("--json", default="benchmarks/results/scalings.json")
    options = parser.parse_args()
    path = Path(options.json)
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"methods": {}}
    everyone = [n for n in names() if n != "marginal" and not create(n).tags.trained]
    for name in options.methods.split(",") if options.methods else everyone:
        kept["methods"][name] = found = weigh(name)
        means = np.mean(list(found["accuracy"].values()), axis=0)
        best = found["best"]
        print(
            f"{name}: {found['settings'][0]} {means[0]:.1f} -> {found['settings'][best]} "
            f"{means[best]:.1f}",
            flush=True,
        )
        kept["command"] = " ".join(["python", *sys.argv])
        kept["computed"] = datetime.now(UTC).date().isoformat()
        kept["methods"] = dict(sorted(kept["methods"].items()))
        path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
