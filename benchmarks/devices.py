"""The same episodes on CPU and GPU: share of equal predictions and difference in accuracy.

python benchmarks/devices.py --methods ugda,ptmap --episodes 400
"""

import numpy as np
import torch
from common import accuracy, parser, print_machine, print_table, tasks

from fewview.engine._registry import create


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--methods", default="proto,ugda")
    options.add_argument("--episodes", type=int, default=400)
    arguments = options.parse_args()
    print_machine("cuda")
    rows = []
    for name in arguments.datasets.split(","):
        data, base, task, episodes = tasks(
            name, 0, arguments.eta, 0, arguments.episodes, arguments.data_dir
        )
        for text in arguments.methods.split(","):
            scores = {}
            for device in ("cpu", "cuda"):
                method = create(text, device=device)
                prepared = method.prepare_base(base, task)
                scores[device] = method.score_episodes(data, episodes, prepared)
            best = {device: out.argmax(-1).numpy() for device, out in scores.items()}
            probability = {d: torch.softmax(out.double(), -1) for d, out in scores.items()}
            gap = (probability["cpu"] - probability["cuda"]).abs().max().item()
            hits = [accuracy(best[device], episodes) for device in ("cpu", "cuda")]
            rows.append(
                [
                    name,
                    text,
                    f"{100 * np.mean(best['cpu'] == best['cuda']):.3f} %",
                    f"{gap:.1e}",
                    f"{hits[0]:.2f}",
                    f"{hits[1] - hits[0]:+.3f}",
                ]
            )
    print_table(
        ("data set", "method", "same prediction", "largest gap", "accuracy", "GPU minus CPU"), rows
    )


if __name__ == "__main__":
    main()
