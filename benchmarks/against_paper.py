"""Compare the JSON of `fewview bench` with the paper's tables, cell by cell.

    fewview bench handwritten scene15 cub_googlenet_doc2vec --methods ugda --scaling scale \
        --eta 0,0.1,0.2,0.3,0.4,0.5 --json ugda.json
    python benchmarks/against_paper.py ugda.json
"""

import argparse
import json

from common import paper_accuracies, print_table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", help="what `fewview bench --json` wrote")
    options = parser.parse_args()
    paper = paper_accuracies()
    with open(options.results, encoding="utf-8") as file:
        results = json.load(file)
    rows, inside = [], 0
    for row in results:
        key = (row["dataset"], row["method"], row["eta"])
        if key not in paper or row["split_low"] is None:
            continue
        within = row["split_low"] <= paper[key] <= row["split_high"]
        inside += within
        rows.append(
            [
                row["dataset"],
                row["method"],
                f"{row['eta']:g}",
                f"{row['accuracy']:.2f}",
                f"{paper[key]:.2f}",
                f"{row['accuracy'] - paper[key]:+.2f}",
                f"{row['split_low']:.2f} to {row['split_high']:.2f}",
                "yes" if within else "no",
            ]
        )
    print_table(
        ("data set", "method", "eta", "ours", "paper", "difference", "our range", "inside"), rows
    )
    print(f"the paper's number lies inside our range over class splits in {inside} of {len(rows)}")


if __name__ == "__main__":
    main()
