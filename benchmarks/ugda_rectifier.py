"""Fast self-rectification against 1000 Adam steps, on the same 400 episodes of each data set.

`adam (other axes)` is the same 1000 steps after turning the latent space: Adam depends on the
axes, so the difference between the two Adams says how much of a difference means anything.
"""

import numpy as np
import torch
from common import parser, predictions, print_machine, print_table, tasks, timed

import fewview.methods.ugda._rectification as rectification
from fewview.engine._registry import create


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--splits", type=int, default=10)
    options.add_argument("--episodes", type=int, default=40, help="per class split")
    arguments = options.parse_args()
    print_machine(arguments.device)
    variants = {
        "none": "ugda:rectify=none",
        "fast": "ugda",
        "adam": "ugda:rectifier=adam",
        "adam (other axes)": "ugda:rectifier=adam",
    }
    turn = rectification.random_rotation
    rows = []
    for name in arguments.datasets.split(","):
        found: dict[str, list[np.ndarray]] = {variant: [] for variant in variants}
        seconds = dict.fromkeys(variants, 0.0)
        truth = []
        for split in range(arguments.splits):
            data, base, task, episodes = tasks(
                name, split, arguments.eta, 0, arguments.episodes, arguments.data_dir
            )
            truth.append(episodes.query_labels)
            for variant, text in variants.items():
                method = create(text, device=arguments.device)
                prepared = method.prepare_base(base, task)
                if variant == "adam (other axes)":
                    rectification.random_rotation = lambda width, like: torch.eye(
                        width, device=like.device, dtype=like.dtype
                    )
                out, took = timed(
                    lambda m=method, p=prepared, d=data, e=episodes: predictions(m, d, p, e),
                    arguments.device,
                )
                rectification.random_rotation = turn
                found[variant].append(out)
                seconds[variant] += took
        hits = {
            variant: np.concatenate(
                [100 * (p == y).mean(1) for p, y in zip(out, truth, strict=True)]
            )
            for variant, out in found.items()
        }
        for variant, out in found.items():
            same = np.mean([np.mean(p == q) for p, q in zip(out, found["adam"], strict=True)])
            difference = hits[variant] - hits["adam"]
            error = difference.std() / len(difference) ** 0.5
            rows.append(
                [
                    name,
                    variant,
                    f"{hits[variant].mean():.2f}",
                    f"{difference.mean():+.2f} ±{error:.2f}",
                    f"{100 * same:.1f} %",
                    f"{seconds[variant]:.2f}",
                ]
            )
    print_table(
        ("data set", "rectifier", "accuracy", "minus adam", "same prediction", "seconds"), rows
    )


if __name__ == "__main__":
    main()
