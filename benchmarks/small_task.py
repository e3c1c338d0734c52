"""What a small task costs beside the computation: functions crossed, seconds of `fit_base`.

    python benchmarks/small_task.py [--methods proto,ugda,marginal] [--repeats 20]

Digits: six base classes, three new ones with one support each. Functions are distinct functions of
the package that `fit_base`, `fit` and `predict` of 45 queries call. Runs in both editions.
"""

from __future__ import annotations

import argparse
import sys
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

import fewview


def functions_of(work: Any) -> int:
    """Distinct functions of the package that are called meanwhile."""
    seen: set[Any] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and "/fewview/" in code.co_filename and code.co_name[0] != "<":
            seen.add(code)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return len(seen)


def main() -> None:
    """Print a line for each method."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--methods", default="proto,ugda,marginal")
    parser.add_argument("--repeats", type=int, default=20)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    data = fewview.load("digits")
    base, novel = data[data.labels < 6], data[data.labels >= 7]
    rows = np.concatenate([np.flatnonzero(novel.codes == code)[:16] for code in range(3)])
    first = np.arange(len(rows)) % 16 == 0
    support, query = novel[rows[first]], novel[rows[~first]]
    print(f"{'method':12s} {'functions':>9s} {'fit_base':>10s} {'fit':>9s} {'one query':>10s}")
    for name in asked.methods.split(","):

        def task(base: Any, name: str = name) -> Any:
            return fewview.create(name).fit_base(base).fit(support).predict(query)

        task(base)  # modules are loaded
        other, third = base[1:], base[2:]  # not what was learnt from already
        start = process_time()
        clf = fewview.create(name).fit_base(other)
        learnt = process_time() - start
        found = functions_of(lambda task=task, third=third: task(third))
        times: dict[str, list[float]] = {"fit": [], "query": []}
        for _ in range(asked.repeats):
            start = perf_counter()
            clf.fit(support)
            times["fit"].append(perf_counter() - start)
            start = perf_counter()
            clf.predict(query[:1])
            times["query"].append(perf_counter() - start)
        fit, one = (1e3 * float(np.median(times[key])) for key in ("fit", "query"))
        print(f"{name:12s} {found:9d} {1e3 * learnt:8.1f}ms {fit:7.2f}ms {one:8.2f}ms")


if __name__ == "__main__":
    main()
