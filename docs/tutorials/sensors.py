"""Tutorial, run by docs/_tools/tutorials.py when the site is built."""

# %% [markdown]
# # Tutorial: sensors that fail
#
# Six sensors look at the same thing, and each of them is out of order now and then. The things here
# are written digits and the sensors six ways to measure them: Fourier coefficients, profile
# correlations, Karhunen-Loève coefficients, pixels, Zernike moments, shape. The data are
# `handwritten` where that set is, else the embedded `digits`, which have the same six views.

# %%
import matplotlib.pyplot as plt
import numpy as np

from fewview import EpisodeSampler, FewviewError, TaskSpec, create, load
from fewview.datasets import class_split

try:
    data = load("handwritten")
except FewviewError:
    data = load("digits")
print(data)

# %% [markdown]
# ## A task with gaps
#
# Six digits are known, with all their samples (the base set). Of three others there is one sample
# each. In a task some sensors are silent for every sample: `eta=0.4` means that 40 % of all cells
# (one for every sample and sensor) are missing.

# %%
split = class_split(data.name, 0)
base = data[np.isin(data.labels, split.base)]
task = TaskSpec(way=3, shot=1, queries=10, eta=0.4)
episode = EpisodeSampler(data, task, split.novel).draw(0, 1)
support = data[episode.support[0]].with_mask(episode.support_mask[0])
query = data[episode.query[0]].with_mask(episode.query_mask[0])
print("supports:", support)
print("queries: ", query)

# %%
figure, ax = plt.subplots(figsize=(7, 2.2))
ax.imshow(query.mask.T, aspect="auto", cmap="Blues", vmin=0, interpolation="nearest")
ax.set_yticks(range(len(query.view_names)), query.view_names)
ax.set_xlabel("queries")
ax.set_title("Which sensors worked")

# %% [markdown]
# ## How much does a silent sensor cost?
#
# The same tasks at growing missing rates, for three methods: the nearest class mean, UGDA and
# `marginal`. `bench` draws the tasks, keeps results and gives intervals; this is the small form of
# what `fewview bench` does.

# %%
from fewview.evaluate import bench, make_grid

rates = (0.0, 0.2, 0.4, 0.6)
grid = make_grid(
    [data.name], methods="proto,ugda,marginal", eta=",".join(map(str, rates)),
    splits=2, episodes=5, queries=10,
)  # fmt: skip
rows, outcome = bench(grid, store="none")
print(f"{outcome.computed} cells computed, {len(outcome.failures)} failed")

# %%
figure, ax = plt.subplots(figsize=(7, 3.2))
for name in ("marginal", "ugda", "proto"):
    mine = sorted((row for row in rows if row["method"] == name), key=lambda row: row["eta"])
    ax.plot([row["eta"] for row in mine], [row["accuracy"] for row in mine], "o-", label=name)
    print(f"{name:<9}", "  ".join(f"{row['accuracy']:5.1f}" for row in mine))
ax.set_xlabel("share of missing views")
ax.set_ylabel("accuracy, %")
ax.set_title("Accuracy as sensors fail")
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))

# %% [markdown]
# ## Something that is none of the three
#
# A new kind of thing may turn up that nobody labelled. `reject=0.05` draws a line so that at most
# about 5 % of true members fall outside, learnt from the known digits. How many strangers it finds
# depends on how unlike they are, and on how much one labelled sample of each class says: count it
# on your own known classes before you rely on it (`fewview bench --open-set`).

# %%
clf = create("marginal").fit_base(base).fit(support)
fourth = next(label for label in split.novel if label not in support.labels)
strange = data[np.flatnonzero(data.labels == fourth)[:30]]
unknown = np.mean(clf.p_values(strange) < 0.05)  # as `predict(strange, reject=0.05)` has it
print(f"{unknown:.0%} of 30 samples of '{fourth}' are called unknown")
print(f"{np.mean(clf.p_values(query) < 0.05):.0%} of the {len(query)} queries are")

# %% [markdown]
# ## A page of predictions
#
# The digit, how sure the method is together with the other queries and of each one by itself, and
# the sensors that worked.

# %%
import pandas as pd

from fewview.report import render

proba = clf.predict_proba(query)
best = proba.argmax(axis=1)
page = pd.DataFrame(
    {
        "answer": clf.classes_[best],
        "probability": proba.max(axis=1).round(3),
        "by itself": clf.predict_proba(query, inductive=True)[range(len(query)), best].round(3),
        "sensors": ["+".join(np.array(query.view_names)[has]) for has in query.mask],
        "truth": query.labels,
    }
)
print(f"{np.sum(page['answer'] == page['truth'])} of {len(page)} right")
render(page.to_dict("records"), list(page), "markdown")
