"""Tutorial, run by docs/_tools/tutorials.py when the site is built."""

# %% [markdown]
# # Tutorial: documents by their words
#
# Documents were prepared in three ways, each with its own vocabulary, and not every document went
# through all of them. Three topics are known. Of two new ones, two documents each are labelled. The
# counts are those of `newsgroups.npz` where that file is (in the folder `$FEWVIEW_DATA`), else a
# made-up stand-in with the same shapes, and the first line below says so.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from fewview import FewviewError, MultiViewData, create

file = Path(os.environ.get("FEWVIEW_DATA", "")) / "newsgroups.npz"


def stand_in() -> MultiViewData:
    """Word counts of 500 made-up documents on five topics, by three vocabularies."""
    rng = np.random.default_rng(1)
    topic = np.repeat(np.arange(5), 100)
    views = {}
    for name in ("first", "second", "third"):
        usual = rng.gamma(0.3, size=2000)
        shares = usual * rng.gamma(0.8, 1 / 0.8, size=(5, 2000))
        shares = 80 * shares / shares.sum(axis=1, keepdims=True)
        views[name] = rng.poisson(shares[topic]).astype(float)
    return MultiViewData(views, [f"topic {t}" for t in topic])


if file.is_file():
    data = MultiViewData.read(file)
    print("the real documents:")
else:
    data = stand_in()
    print("made-up documents, since the real ones are not here:")
print(data)

# %% [markdown]
# Most words are in few documents, so most counts are zero. Methods have a scaling for such views
# (`natural` looks at what the entries are), which is why raw counts can be handed over.

# %%
figure, ax = plt.subplots(figsize=(7, 2.8))
for view, block in data.views.items():
    present = (block > 0).mean(axis=0)
    ax.plot(np.sort(present)[::-1], label=view)
    print(f"{view:<8} {block.shape[1]} words, {(block == 0).mean():.1%} of the counts are zero")
ax.set_xscale("log")
ax.set_xlabel("words, most frequent first")
ax.set_ylabel("share of documents")
ax.set_title("How rare words are")
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))

# %% [markdown]
# ## Known topics, new topics, gaps
#
# A third of the preparations are left out at random, so that every document keeps one at least.

# %%
rng = np.random.default_rng(0)
mask = rng.random(data.mask.shape) > 1 / 3
mask[~mask.any(axis=1), 0] = True
partial = data.with_mask(mask)
topics = sorted(set(data.labels.tolist()))
known, new = topics[:3], topics[3:]
base = partial[np.isin(partial.labels, known)]
rows = [rng.permutation(np.flatnonzero(partial.labels == topic)) for topic in new]
support = partial[np.concatenate([found[:2] for found in rows])]
query = partial[np.concatenate([found[2:42] for found in rows])]
print(f"base {len(base)} documents of {known}, new {new}")
print(f"{len(support)} labelled documents, {len(query)} queries")

# %% [markdown]
# ## Which method?
#
# Known topics can be held out as new ones, and `fewview advise` tries methods that way; with three
# known topics that says little, so here a few are counted on the documents that were set aside.

# %%
found = {}
for name in ("marginal", "proto", "rfs", "concat-logistic"):
    clf = create(name).fit_base(base).fit(support)
    found[name] = np.mean(clf.predict(query) == query.labels)
    print(f"{name:<16} {found[name]:.0%} of {len(query)} right (chance: 50%)")

# %%
figure, ax = plt.subplots(figsize=(7, 2.2))
ax.barh(list(found)[::-1], [100 * value for value in found.values()][::-1], color="#0b5cad")
ax.axvline(50, color="grey", linestyle=":")
ax.set_xlabel("right, %")
ax.set_title("Two documents per topic, a third of the views missing")

# %% [markdown]
# ## Save it, and ask later
#
# A model file holds what was learnt, not the documents: it can be handed on and loaded elsewhere.
# It is read without running any code in it.

# %%
from fewview import load_model

create("marginal").fit_base(base).save("topics.model")
clf = load_model("topics.model").fit(support)
print(f"{Path('topics.model').stat().st_size / 1000:.0f} kB, of {len(base)} documents")
Path("cut.model").write_bytes(Path("topics.model").read_bytes()[:-100])
try:
    load_model("cut.model")
except FewviewError as error:
    print(f"a file that was cut is refused: {error}")

# %% [markdown]
# ## A page of predictions

# %%
import pandas as pd

from fewview.report import render

page = pd.DataFrame(
    {
        "answer": clf.predict(query),
        "probability": clf.predict_proba(query).max(axis=1).round(3),
        "prepared": ["+".join(np.array(query.view_names)[has]) for has in query.mask],
        "truth": query.labels,
    }
)
render(page[::4].to_dict("records"), list(page), "markdown")
