"""`reference` against seven numbers that the authors' released code gave on the same data.

The released code was run on these copies of the data, with these class splits, 400 episodes of its
own each. `adam` stands beside it, and both with the ridge and the logit scale as
printed (none and 1), which `reference` does not have: the released code has 1e-3 and 0.5.

    python benchmarks/authors_numbers.py --device cuda
"""

from __future__ import annotations

from common import keep_table, parser, predictions, print_machine, print_table, tasks

from fewview.engine._registry import create
from fewview.paper._studies import solved_by

# data set, missing rate, class split -> accuracy of the released code
AUTHORS = {
    ("scene15", 0.3, 0): 51.25,
    ("scene15", 0.3, 1): 57.59,
    ("cub_googlenet_doc2vec", 0.3, 0): 74.69,
    ("cub_googlenet_doc2vec", 0.3, 1): 82.48,
    ("cub_googlenet_doc2vec", 0.0, 1): 91.36,
    ("handwritten", 0.3, 0): 61.18,
    ("handwritten", 0.3, 1): 73.61,
}
VALUES = {
    "released": {"ridge": 1e-3, "logit_scale": 0.5},
    "printed": {"ridge": 0.0, "logit_scale": 1.0},
}
HEADER = ("data set", "eta", "split", "authors", "solver", "ridge and scale", "ours", "errors away")
TITLE = "The authors' released code, and our solvers on the same class splits"


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--episodes", type=int, default=400)
    options.add_argument("--solvers", default="reference,adam")
    options.add_argument("--json", default=None, help="keep the table there")
    arguments = options.parse_args()
    print_machine(arguments.device)
    rows = []
    for (name, eta, split), authors in AUTHORS.items():
        data, base, task, episodes = tasks(
            name, split, eta, 0, arguments.episodes, arguments.data_dir
        )
        for values, settings in VALUES.items():
            for solver in arguments.solvers.split(","):
                text = solved_by(solver, "ugda", name)
                method = create(text, device=arguments.device, **settings)
                prepared = method.prepare_base(base, task)
                found = predictions(method, data, prepared, episodes)
                hits = 100 * (found == episodes.query_labels).mean(1)
                error = hits.std() / len(hits) ** 0.5
                rows.append(line(name, eta, split, authors, solver, values, hits.mean(), error))
                keep_table(arguments.json, TITLE, arguments.device, HEADER, rows)
    print_table(HEADER, rows)


def line(
    name: str, eta: float, split: int, authors: float, solver: str, values: str, mean: float,
    error: float,
) -> list[str]:  # fmt: skip
    """A row; the authors' 400 episodes are others than ours, so both sides have an error."""
    away = (mean - authors) / (2**0.5 * error)
    ours = f"{mean:.2f} ±{error:.2f}"
    return [name, f"{eta:g}", str(split), f"{authors:.2f}", solver, values, ours, f"{away:+.1f}"]


if __name__ == "__main__":
    main()
