"""First steps: learn new digits from one labelled sample each while views are missing.

Run: python examples/quickstart.py
"""

import numpy as np

from fewview import EpisodeSampler, TaskSpec, create, load
from fewview.datasets import class_split

# 1797 handwritten digits, described by six views each; they come with the package.
data = load("digits")
print(data)

# Six classes are known beforehand (base). Three of the other four are new to us (novel).
split = class_split("digits", 0)
base = data[np.isin(data.labels, split.base)]
print(f"base classes {split.base}, novel classes {split.novel}")

# A task: 3 classes, 1 labelled sample and 10 queries of each, 30 % of all views missing.
task = TaskSpec(way=3, shot=1, queries=10, eta=0.3)
episode = EpisodeSampler(data, task, split.novel).draw(4, 5)
support = data[episode.support[0]].with_mask(episode.support_mask[0])
query = data[episode.query[0]].with_mask(episode.query_mask[0])
print(f"supports: {support}")
print(f"queries:  {query}")

# Every method is a scikit-learn style classifier.
for name in ("proto", "ugda"):
    clf = create(name, base=base).fit(support)
    predicted = clf.predict(query)
    accuracy = np.mean(predicted == query.labels)
    sure = clf.predict_proba(query).max(axis=1).mean()
    print(f"{name}: accuracy {accuracy:.0%}, mean probability of its answers {sure:.2f}")
