"""Fast self-rectification against 1000 Adam steps, on the same episodes of each data set.

Cells are data sets, missing rates and both rules for the mean of an available view. `adam (other
axes)` is the same 1000 steps after turning the latent space: Adam depends on the axes, so the
difference between the two Adams says how much of a difference means anything. `--why` takes the
ways apart in which the two differ instead. Every variant is written as a method, so others can be
tried: --variants "ugda:rectify_tolerance=0.01".

    python benchmarks/ugda_rectifier.py --device cuda --json benchmarks/results/paper-rectifier.json
    python benchmarks/ugda_rectifier.py --why --datasets handwritten --etas 0,0.3 --rules paper
"""

from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import torch
from common import keep_table, parser, predictions, print_machine, print_table, tasks, timed
from torch import Tensor

import fewview.methods.ugda._rectification as rectification
import fewview.methods.ugda._ugda as ugda
from fewview.datasets import get_spec
from fewview.engine._registry import create

HEADER = ("data set", "eta", "rule", "rectifier", "accuracy", "minus adam", "same", "seconds")
SETS = "handwritten,scene15,cub_googlenet_doc2vec,orl,caltech102"
ADAM = "ugda:rectifier=adam"
OTHER_AXES, ONE_SCALE, TIED = "adam (other axes)", "adam (one scale)", "fast (tied offsets)"
VARIANTS = {"none": "ugda:rectify=none", "fast": "ugda", OTHER_AXES: ADAM}
WHY = {
    "fast": "ugda",
    "fast (to 1e-6)": "ugda:rectify_tolerance=1e-6",
    TIED: "ugda",
    "adam (100 steps)": f"{ADAM}:rectify_steps=100",
    "adam (rate 0.03)": f"{ADAM}:rectify_rate=0.03",
    ONE_SCALE: ADAM,
}


def one_scale(gradient, start: Tensor, *, learning_rate: float, steps: int) -> Tensor:
    """Adam whose steps are scaled by the mean over all coordinates of a task, not one by one."""
    x, first, second = start, torch.zeros_like(start), start.new_zeros(start.shape[0], 1, 1)
    for step in range(1, steps + 1):
        slope = gradient(x)
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope.square().mean((1, 2), keepdim=True)
        scale = (second / (1 - 0.999**step)).sqrt() + 1e-8
        x = x - learning_rate * first / (1 - 0.9**step) / scale
    return x


def same_axes(width: int, like: Tensor) -> Tensor:
    """No rotation."""
    return torch.eye(width, device=like.device, dtype=like.dtype)


# What is put in place of what while a variant runs.
PATCHES = {
    OTHER_AXES: (rectification, "random_rotation", same_axes),
    ONE_SCALE: (rectification, "minimise_adam", one_scale),
    # The search over centres themselves, which is usual in few dimensions alone.
    TIED: (ugda, "fit_classifier", rectification._fit_few_dimensions),
}


def main() -> None:
    options = parser(__doc__ or "")
    options.set_defaults(datasets=SETS)
    options.add_argument("--etas", default="0,0.3,0.5")
    options.add_argument("--rules", default="paper,code", help="of the mean of an available view")
    options.add_argument("--why", action="store_true", help="take the two apart")
    options.add_argument("--variants", default="", help="methods or names of variants, by spaces")
    options.add_argument("--splits", type=int, default=10)
    options.add_argument("--episodes", type=int, default=40, help="per class split")
    options.add_argument("--json", default=None, help="write rows there, after every cell")
    arguments = options.parse_args()
    print_machine(arguments.device)
    named = VARIANTS | WHY
    variants = {text: named.get(text, text) for text in arguments.variants.split()}
    variants = variants or (WHY if arguments.why else VARIANTS)
    title = "Fast self-rectification against 1000 Adam steps"
    title = f"{title}: what they differ in" if arguments.why else title
    rows = []
    for name in arguments.datasets.split(","):
        for eta in map(float, arguments.etas.split(",")):
            for rule in arguments.rules.split(","):
                rows += cell_rows(name, eta, rule, {"adam": ADAM, **variants}, arguments)
                keep_table(arguments.json, title, arguments.device, HEADER, rows)
    print_table(HEADER, rows)


def cell_rows(name, eta, rule, variants, arguments) -> list[list[str]]:
    """One row per variant."""
    found: dict[str, list[np.ndarray]] = {variant: [] for variant in variants}
    seconds = dict.fromkeys(variants, 0.0)
    truth = []
    common = f":mean_rule={rule}:n_anchors={get_spec(name).n_anchors or 100}"
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
            with patch.object(*PATCHES[variant]) if variant in PATCHES else nullcontext():
                out, took = timed(
                    lambda m=method, p=prepared, d=data, e=episodes: predictions(m, d, p, e),
                    arguments.device,
                )
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


if __name__ == "__main__":
    main()
