"""Your own tables: one per view, rows that do not match, a handful of labels for new classes.

A made-up clinic has blood values for some patients and scans for others. Four diseases are well
known; two new ones have three patients each. Run: python examples/own_tables.py
"""

import numpy as np
import pandas as pd

from fewview import MultiViewData, create

# Make the tables. Yours come from pd.read_csv, pd.read_parquet, polars, ...
rng = np.random.default_rng(0)
disease = np.repeat(["asthma", "gout", "anaemia", "measles", "new A", "new B"], [40] * 4 + [15] * 2)
patients = np.array([f"P{number:03d}" for number in rng.permutation(len(disease))])
state = rng.normal(size=(6, 3)).repeat([40] * 4 + [15] * 2, axis=0)
state = state + 0.35 * rng.normal(size=state.shape)
blood = pd.DataFrame(state @ rng.normal(size=(3, 5)), columns=["Hb", "CRP", "Na", "K", "urate"])
scan = pd.DataFrame(state @ rng.normal(size=(3, 8))).add_prefix("region ")
blood.insert(0, "id", patients)
scan.insert(0, "id", patients)
blood = blood.sample(frac=0.8, random_state=1)  # not everybody gave blood ...
scan = scan.sample(frac=0.7, random_state=2)  # ... and not everybody was scanned
tested = set(blood["id"]) | set(scan["id"])
labels = {
    patient: name for patient, name in zip(patients, disease, strict=True) if patient in tested
}

# Join by the column `id`. Rows may be in any order; a patient without a row lacks that view.
data = MultiViewData.from_frames({"blood": blood, "scan": scan}, labels=labels, name="clinic")
print(data.summary())

# Well-known diseases are the base set. Of the new ones, three patients each are labelled.
is_new = np.isin(data.labels, ["new A", "new B"])
base, new = data[~is_new], data[is_new]
order = np.argsort(new.codes, kind="stable")
first_three = np.concatenate([np.flatnonzero(new.codes == code)[:3] for code in (0, 1)])
support = new[first_three]
query = new[np.setdiff1d(order, first_three)]

clf = create("ugda", base=base).fit(support)
answers = pd.DataFrame(
    {
        "patient": query.ids,
        "views": [" and ".join(np.array(query.view_names)[row]) for row in query.mask],
        "answer": clf.predict(query),
        "probability": clf.predict_proba(query).max(axis=1).round(2),
        "truth": query.labels,
    }
)
print(answers.head(8).to_string(index=False))
print(f"right: {np.mean(answers['answer'] == answers['truth']):.0%} of {len(answers)} patients")
