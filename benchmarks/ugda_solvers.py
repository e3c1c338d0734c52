"""UGDA's three solvers on the same episodes: seconds per episode and accuracy.

CPU:  python benchmarks/ugda_solvers.py --episodes 20
GPU:  python benchmarks/ugda_solvers.py --episodes 400 --device cuda
"""

from common import accuracy, parser, predictions, print_machine, print_table, tasks, timed

from fewview.engine._registry import create
from fewview.paper._studies import solved_by


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--episodes", type=int, default=20)
    options.add_argument("--splits", type=int, default=1)
    options.add_argument("--solvers", default="exact,adam,reference")
    options.add_argument("--max-memory", type=float, default=None, help="GiB per batch of tasks")
    arguments = options.parse_args()
    print_machine(arguments.device)
    rows = []
    for name in arguments.datasets.split(","):
        seconds: dict[str, float] = {}
        hits: dict[str, float] = {}
        for split in range(arguments.splits):
            data, base, task, episodes = tasks(
                name, split, arguments.eta, 0, arguments.episodes, arguments.data_dir
            )
            for solver in arguments.solvers.split(","):
                method = create(solved_by(solver, "ugda", name), device=arguments.device)
                if arguments.max_memory:
                    method.set_params(max_memory=arguments.max_memory)
                prepared = method.prepare_base(base, task)
                if split == 0:  # warm up: libraries load, kernels are chosen
                    predictions(method, data, prepared, episodes[: 2 if solver == "exact" else 1])
                found, took = timed(
                    lambda m=method, p=prepared, d=data, e=episodes: predictions(m, d, p, e),
                    arguments.device,
                )
                seconds[solver] = seconds.get(solver, 0.0) + took
                hits[solver] = hits.get(solver, 0.0) + accuracy(found, episodes)
        total = arguments.episodes * arguments.splits
        for solver, took in seconds.items():
            ratio = seconds["reference"] / took if "reference" in seconds else float("nan")
            rows.append(
                [
                    name,
                    solver,
                    str(total),
                    f"{took:.2f}",
                    f"{1e3 * took / total:.2f}",
                    f"{ratio:.1f}",
                    f"{hits[solver] / arguments.splits:.2f}",
                ]
            )
    print_table(
        ("data set", "solver", "episodes", "seconds", "ms/episode", "x reference", "accuracy"),
        rows,
    )


if __name__ == "__main__":
    main()
