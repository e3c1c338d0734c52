"""Peak memory of scoring many episodes of wide data: 400 episodes of ORL (views up to 6750 wide).

python benchmarks/peak_memory.py --datasets orl --episodes 400
"""

import resource

from common import accuracy, parser, predictions, print_machine, print_table, tasks, timed

from fewview.engine._registry import create


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--methods", default="ugda")
    options.add_argument("--episodes", type=int, default=400)
    arguments = options.parse_args()
    print_machine(arguments.device)
    rows = []
    for name in arguments.datasets.split(","):
        data, base, task, episodes = tasks(
            name, 0, arguments.eta, 0, arguments.episodes, arguments.data_dir
        )
        for text in arguments.methods.split(","):
            method = create(text, device=arguments.device)
            prepared = method.prepare_base(base, task)
            found, took = timed(
                lambda m=method, p=prepared, d=data, e=episodes: predictions(m, d, p, e),
                arguments.device,
            )
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            rows.append(
                [name, text, f"{accuracy(found, episodes):.2f}", f"{took:.1f}", f"{peak:.2f}"]
            )
    print_table(("data set", "method", "accuracy", "seconds", "peak GiB of the process"), rows)


if __name__ == "__main__":
    main()
