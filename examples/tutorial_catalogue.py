"""Tutorial: a catalogue with image and text embeddings, and products that lack one of them.

The data are made up here, so the truth is known: thirty known product groups, five new ones with
one example each; half of the new products have a photo only or a description only.
Run: python examples/tutorial_catalogue.py
"""

import warnings

import numpy as np

from fewview import FewviewWarning, MultiViewData, create

rng = np.random.default_rng(2)
groups = [f"group {k:02d}" for k in range(30)]
new = ["kites", "kayaks", "kettles", "kilts", "kazoos"]
# Embeddings of both kinds see the same meaning, each through its own network and with its own
# errors. Kettles are made to mean nearly what group 07 means.
meaning = dict(zip([*groups, *new], rng.normal(size=(35, 16)), strict=True))
meaning["kettles"] = meaning["group 07"] + 0.3 * rng.normal(size=16)
network = {"image": rng.normal(size=(16, 128)), "text": rng.normal(size=(16, 96))}
noise = {"image": 4.0, "text": 3.0}


def products(names: list[str]) -> dict[str, np.ndarray]:
    """Embeddings of some products."""
    centre = np.array([meaning[name] for name in names])
    own = centre + 0.5 * rng.normal(size=centre.shape)
    return {
        view: own @ weights + noise[view] * rng.normal(size=(len(names), weights.shape[1]))
        for view, weights in network.items()
    }


# 1. The shop so far: complete products of known groups.
names = groups * 25
base = MultiViewData(products(names), names)

# 2. One example of every new group, and 40 products of each to be sorted, half of them partial.
support = MultiViewData(products(new), new)
truth = new * 40
kind = rng.choice(4, len(truth))  # 0 photo only, 1 description only, else both
mask = np.column_stack([kind != 1, kind != 0])
query = MultiViewData(products(truth), truth, mask=mask)

# 3. Two methods; the truth is known here, so count.
for name in ("marginal", "ugda"):
    clf = create(name).fit_base(base).fit(support)
    right, complete = clf.predict(query) == query.labels, mask.all(axis=1)
    print(
        f"{name}: right: {right.mean():.0%} of {len(query)} products "
        f"({right[complete].mean():.0%} complete, {right[~complete].mean():.0%} partial; "
        "chance: 20%)"
    )

# 4. Reasons: which embedding decided, what came second, which known groups the product is like.
frame = clf.explain(query[:8]).frame()
columns = ["views", "label", "runner_up", "margin", "from_image", "from_text"]
print(frame[[*columns, "nearest_base_classes"]].round(2).to_string(index=False))
kettles = np.array(truth) == "kettles"
nearest = [row[0] for row in clf.explain(query).neighbours]
alike = np.mean(np.array(nearest)[kettles] == "group 07")
print(f"kettles that are most like group 07, as they were made: {alike:.0%}")

# 5. One product at a time, as a web service gets them: decided by the supports alone.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", FewviewWarning)
    clf = create("marginal").fit_base(base).fit(support)
    single = np.mean([clf.predict(query[k])[0] == truth[k] for k in range(50)])
print(f"one at a time: right: {single:.0%} of 50 products")
