"""Fast self-rectification against 1000 Adam steps, on the same episodes of each data set.

Cells are data sets, missing rates and both rules for the mean of an available view. `adam (other
axes)` is the same 1000 steps after turning the latent space: Adam depends on the axes, so the
difference between the two Adams says how much of a difference means anything. Every variant is
written as a method, so others can be tried: --variants "ugda:rectify_tolerance=0.01".

    python benchmarks/ugda_rectifier.py --device cuda --json benchmarks/results/paper-rectifier.json
"""

import numpy as np
import torch
from common import keep_table, parser, predictions, print_machine, print_table, tasks, timed

import fewview.methods.ugda._rectification as rectification
from fewview.datasets import get_spec
from fewview.engine._registry import create

TITLE = "Fast self-rectification against 1000 Adam steps"
HEADER = ("data set", "eta", "rule", "rectifier", "accuracy", "minus adam", "same", "seconds")
SETS = "handwritten,scene15,cub_googlenet_doc2vec,orl,caltech102"
ADAM = "ugda:rectifier=adam"
OTHER_AXES = "adam (other axes)"
VARIANTS = {"none": "ugda:rectify=none", "fast": "ugda", OTHER_AXES: ADAM}


def main() -> None:
    options = parser(__doc__ or "")
    options.set_defaults(datasets=SETS)
    options.add_argument("--etas", default="0,0.3,0.5")
    options.add_argument("--rules", default="paper,code", help="of the mean of an available view")
    options.add_argument("--variants", default="", help="methods, separated by spaces")
    options.add_argument("--splits", type=int, default=10)
    options.add_argument("--episodes", type=int, default=40, help="per class split")
    options.add_argument("--json", default=None, help="write rows there, after every cell")
    arguments = options.parse_args()
    print_machine(arguments.device)
    variants = {text: text for text in arguments.variants.split()} or VARIANTS
    rows = []
    for name in arguments.datasets.split(","):
        for eta in map(float, arguments.etas.split(",")):
            for rule in arguments.rules.split(","):
                rows += cell_rows(name, eta, rule, {"adam": ADAM, **variants}, arguments)
                keep_table(arguments.json, TITLE, arguments.device, HEADER, rows)
    print_table(HEADER, rows)


def cell_rows(name, eta, rule, variants, arguments) -> list[list[str]]:
    """One row per variant."""
    found: dict[str, list[np.ndarray]] = {variant: [] for variant in variants}
    seconds = dict.fromkeys(variants, 0.0)
    truth = []
    common = f":mean_rule={rule}:n_anchors={get_spec(name).n_anchors or 100}"
    turn = rectification.random_rotation
    for split in range(arguments.splits):
        data, base, task, episodes = tasks(
            name, split, eta, 0, arguments.episodes, arguments.data_dir
        )
        truth.append(episodes.query_labels)
        for variant, text in variants.items():
            method = create(text + common, device=arguments.device)
            if arguments.device != "cpu":
                method.set_params(max_memory=16.0)
            prepared = method.prepare_base(base, task)
            if variant == OTHER_AXES:
                rectification.random_rotation = _identity
            out, took = timed(
                lambda m=method, p=prepared, d=data, e=episodes: predictions(m, d, p, e),
                arguments.device,
            )
            rectification.random_rotation = turn
            found[variant].append(out)
            seconds[variant] += took
    hits = {
        variant: np.concatenate([100 * (p == y).mean(1) for p, y in zip(out, truth, strict=True)])
        for variant, out in found.items()
    }
    rows = []
    for variant, out in found.items():
        same = np.mean([np.mean(p == q) for p, q in zip(out, found["adam"], strict=True)])
        difference = hits[variant] - hits["adam"]
        error = difference.std() / len(difference) ** 0.5
        rows.append(
            [
                name, f"{eta:g}", rule, variant, f"{hits[variant].mean():.2f}",
                f"{difference.mean():+.2f} ±{error:.2f}", f"{100 * same:.1f} %",
                f"{seconds[variant]:.2f}",
            ]
        )  # fmt: skip
    return rows


def _identity(width: int, like: torch.Tensor) -> torch.Tensor:
    return torch.eye(width, device=like.device, dtype=like.dtype)


if __name__ == "__main__":
    main()
