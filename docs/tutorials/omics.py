"""Tutorial, run by docs/_tools/tutorials.py when the site is built."""

# %% [markdown]
# # Tutorial: cancer cell lines with gaps as found
#
# Three laboratories measured cell lines: metabolites, proteins, and how drugs act. Each one took
# the lines it had, so most lines lack something. Some tissues are well known; of four others only
# three lines each are labelled. Which tissue do the remaining lines come from?
#
# The tables are those of the Cancer Cell Line Encyclopedia where they are (`ccle/` in the folder
# `$FEWVIEW_DATA`). Where they are not, a made-up stand-in with the same widths and about the same
# share of gaps takes their place, and the first line below says so.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from fewview import MultiViewData, create

folder = Path(os.environ.get("FEWVIEW_DATA", "")) / "ccle"


def stand_in() -> MultiViewData:
    """Twenty made-up tissues, three assays of the real widths, a fifth of the views missing."""
    rng = np.random.default_rng(0)
    tissue = np.repeat(np.arange(20), 40)
    hidden = rng.normal(size=(20, 8))[tissue] + 0.7 * rng.normal(size=(800, 8))
    views = {
        name: hidden @ rng.normal(size=(8, width)) + 4 * rng.normal(size=(800, width))
        for name, width in {"metabolites": 225, "proteins": 214, "drugs": 24}.items()
    }
    mask = rng.random((800, 3)) > [0.03, 0.08, 0.48]
    mask[~mask.any(1), 0] = True
    ids = [f"line {row:03d}" for row in range(800)]
    return MultiViewData(views, [f"tissue {t:02d}" for t in tissue], ids=ids, mask=mask)


if folder.is_dir():
    data = MultiViewData.read(folder)
    print("the real tables:")
else:
    data = stand_in()
    print("a made-up stand-in, since the real tables are not here:")
print(data.summary())

# %% [markdown]
# ## What is missing
#
# One line of the picture is one cell line, dark where an assay was made. Nothing has to be filled
# in or thrown away: a missing view is simply not there.

# %%
figure, ax = plt.subplots(figsize=(7, 2.2))
order = np.lexsort(data.mask.T[::-1])
ax.imshow(data.mask[order].T, aspect="auto", cmap="Blues", interpolation="nearest")
ax.set_yticks(range(len(data.view_names)), data.view_names)
ax.set_xlabel("cell lines, ordered by what they have")
ax.set_title("Which assays were made")
print(f"{1 - data.mask.mean():.1%} of the views are missing")

# %% [markdown]
# ## Known tissues, new tissues, three lines of each
#
# The largest tissues are the known (base) classes. Four of the others are held out as new: three
# lines of each are labelled (the supports), up to twenty more are asked (the queries).

# %%
names, counts = np.unique(data.labels, return_counts=True)
by_size = names[np.argsort(-counts, kind="stable")]
new = by_size[10:14]
base = data[~np.isin(data.labels, new)]
supports, queries = [], []
rng = np.random.default_rng(0)
for tissue in new:
    rows = rng.permutation(np.flatnonzero(data.labels == tissue))
    supports.extend(rows[:3])
    queries.extend(rows[3:23])
support, query = data[np.array(supports)], data[np.array(queries)]
print("new:", ", ".join(map(str, new)))
print(f"{len(base)} known lines, {len(support)} labelled ones of new tissues, {len(query)} queries")

# %% [markdown]
# ## Fit and count
#
# `marginal` learns from the known tissues how the assays go together and integrates over what is
# missing. Beside it stand the nearest class mean and logistic regression on columns side by side,
# with gaps filled in.

# %%
right = {}
for name in ("marginal", "proto", "concat-logistic"):
    clf = create(name).fit_base(base).fit(support)
    right[name] = clf.predict(query) == query.labels
    print(f"{name:<16} {right[name].mean():.0%} of {len(query)} right (chance: 25%)")

# %%
figure, ax = plt.subplots(figsize=(7, 3))
have = query.mask.sum(axis=1)
groups = [count for count in (1, 2, 3) if (have == count).sum() >= 5]
for place, (name, good) in enumerate(right.items()):
    heights = [100 * good[have == count].mean() for count in groups]
    ax.bar(np.arange(len(groups)) + 0.27 * place, heights, 0.25, label=name)
ax.set_xticks(
    np.arange(len(groups)) + 0.27,
    [f"{count} of 3 assays\n({(have == count).sum()} lines)" for count in groups],
)
ax.set_ylabel("right, %")
ax.set_title("Accuracy by how much is known of a line")
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))

# %% [markdown]
# ## Why?
#
# Every answer can be taken apart: what each assay adds to the log-odds of the answer against the
# runner-up.

# %%
clf = create("marginal").fit_base(base).fit(support)
reasons = clf.explain(query[:8])
axes = reasons.plot()

# %% [markdown]
# ## A page of predictions
#
# One row for every line: the answer, its probability, the assays it rests on. `predict -o FILE` on
# the command line writes the same.

# %%
import pandas as pd

from fewview.report import render

page = pd.DataFrame(
    {
        "line": query.ids,
        "answer": clf.predict(query),
        "probability": clf.predict_proba(query).max(axis=1).round(3),
        "assays": ["+".join(np.array(query.view_names)[has]) for has in query.mask],
        "truth": query.labels,
    }
)
render(page[::5].to_dict("records"), list(page), "markdown")
