"""Tutorial: multi-omics tables with different patients in every table.

The data are made up here, so the truth is known: twelve known disease subtypes, three new ones with
three patients each, three tables that cover different patients.
Run: python examples/tutorial_omics.py
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fewview import MultiViewData, create, load_model

rng = np.random.default_rng(0)
subtype = np.repeat([f"known {k:02d}" for k in range(12)] + ["new A", "new B", "new C"], 30)
patient = np.array([f"patient{k:04d}" for k in rng.permutation(len(subtype))])
# Every subtype disturbs six hidden pathways in its own way; patients differ around it.
pathways = rng.normal(size=(15, 6)).repeat(30, axis=0) + 0.5 * rng.normal(size=(450, 6))


def table(name: str, width: int, noise: float, covered: float) -> pd.DataFrame:
    """One assay: a noisy mixture of the pathways, for some of the patients, in its own order."""
    values = pathways @ rng.normal(size=(6, width)) + noise * rng.normal(size=(450, width))
    frame = pd.DataFrame(values, columns=[f"{name}_{c}" for c in range(width)])
    frame.insert(0, "id", patient)
    return frame.sample(frac=covered, random_state=len(name))


tables = {
    "rna": table("rna", 200, 4.0, 0.8),
    "protein": table("protein", 40, 2.0, 0.5),
    "methylation": table("methylation", 80, 3.0, 0.6),
}
measured = set().union(*(frame["id"] for frame in tables.values()))
labels = {p: s for p, s in zip(patient, subtype, strict=True) if p in measured}

# 1. Join the tables by patient; nobody needs to be in all of them.
data = MultiViewData.from_frames(tables, labels=labels, name="cohort")
print(data.summary())

# 2. Known subtypes are the base set. Of each new one, three patients are labelled.
is_new = np.array([label.startswith("new") for label in data.labels])
base, new = data[~is_new], data[is_new]
first = np.concatenate([np.flatnonzero(new.codes == code)[:3] for code in range(3)])
support, query = new[first], new[np.setdiff1d(np.arange(len(new)), first)]

# 3. Learn from the base set once, and ship what was learnt: statistics, no patients.
with tempfile.TemporaryDirectory() as folder:
    model = Path(folder) / "subtypes.model"
    create("marginal").fit_base(base).save(model)
    print(
        f"model: {model.stat().st_size / 1e3:.0f} kB, {len(base)} patients behind it, none inside"
    )
    clf = load_model(model)

# 4. Three patients per subtype, then everybody else. The truth is known here, so count.
right = clf.fit(support).predict(query) == query.labels
print(f"right: {right.mean():.0%} of {len(query)} patients (chance: 33%)")
for count in (1, 2, 3):
    rows = query.mask.sum(axis=1) == count
    print(f"  with {count} of 3 tables: {right[rows].mean():.0%} of {rows.sum()} patients")

# 5. What a plain classifier does with the same nine patients: columns side by side, gaps filled.
flat = [np.hstack(list(part.views.values())) for part in (support, query)]
plain = make_pipeline(
    SimpleImputer(keep_empty_features=True), StandardScaler(), LogisticRegression()
)
plain.fit(flat[0], support.labels)
print(f"logistic regression on filled tables: {plain.score(flat[1], query.labels):.0%}")
