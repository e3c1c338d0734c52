"""How long does an answer take? One query and 1000 queries, for the main methods.

python benchmarks/latency.py --datasets handwritten,scene15
"""

from time import perf_counter
from warnings import simplefilter

import numpy as np
from common import parser, print_machine, print_table

from fewview import MissingRule
from fewview.datasets import class_split, load
from fewview.engine._registry import create
from fewview.samples import MultiViewData

METHODS = "proto,partial-nn,concat-logistic,ptmap,tim-adm,rfs,ugda,marginal"
WAY, SHOT, REPEATS = 5, 3, 7


def split(name: str, eta: float, data_dir: str | None) -> tuple[MultiViewData, ...]:
    """Base set, supports of at most five novel classes, and 1000 queries (some of them twice)."""
    data = load(name, data_dir)
    classes = class_split(name, 0, data_dir=data_dir)
    base = data[np.isin(data.labels, classes.base)]
    novel = data[np.isin(data.labels, classes.novel[:WAY])]
    mask = MissingRule().draw(np.zeros(1, np.uint64), len(novel), data.n_views, eta)[0]
    novel = novel.with_mask(mask)
    first = np.concatenate(
        [np.flatnonzero(novel.codes == c)[:SHOT] for c in np.unique(novel.codes)]
    )
    rest = np.setdiff1d(np.arange(len(novel)), first)
    return base, novel[first], novel[np.random.default_rng(0).choice(rest, 1000)]


def median_milliseconds(function: object, *arguments: object) -> float:
    """Median over a few calls, after one that is not counted."""
    times = []
    for _ in range(REPEATS + 1):
        start = perf_counter()
        function(*arguments)  # type: ignore[operator]
        times.append(1000 * (perf_counter() - start))
    return float(np.median(times[1:]))


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--methods", default=METHODS)
    arguments = options.parse_args()
    simplefilter("ignore")
    print_machine(arguments.device)
    rows = []
    for name in arguments.datasets.split(","):
        base, support, query = split(name, arguments.eta, arguments.data_dir)
        for text in arguments.methods.split(","):
            clf = create(text, device=arguments.device)
            start = perf_counter()
            clf.fit_base(base)
            learning = perf_counter() - start
            fitting = median_milliseconds(clf.fit, support)
            one = median_milliseconds(clf.predict_proba, query[:1])
            many = median_milliseconds(clf.predict_proba, query)
            rows.append(
                [name, text, f"{learning:.2f}", f"{fitting:.1f}", f"{one:.1f}", f"{many:.0f}"]
            )
    header = ("data set", "method", "base s", "fit ms", "1 query ms", "1000 queries ms")
    print_table(header, rows)


if __name__ == "__main__":
    main()
