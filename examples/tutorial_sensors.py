"""Tutorial: a machine with four sensors that fail now and then.

The data are made up here, so the truth is known: ten known faults, recorded day by day, and new
faults that turn up one after the other with two recordings each, and some that nobody labelled.
Run: python examples/tutorial_sensors.py
"""

import numpy as np

from fewview import MultiViewData, create

WIDTHS = {"vibration": 32, "sound": 48, "current": 8, "temperature": 4}
rng = np.random.default_rng(1)
mixing = {sensor: rng.normal(size=(5, width)) for sensor, width in WIDTHS.items()}
known = [f"fault {k}" for k in range(10)]
faults = {name: rng.normal(size=5) for name in (*known, "new leak", "new crack", "new rattle")}


def record(names: list[str], broken: tuple[float, ...] = (0.3, 0.3, 0.1, 0.5)) -> MultiViewData:
    """Recordings of some faults; every sensor is out of order for its share of the time."""
    state = np.array([faults[name] for name in names]) + 0.4 * rng.normal(size=(len(names), 5))
    views = {
        sensor: state @ mixing[sensor] + rng.normal(size=(len(names), width))
        for sensor, width in WIDTHS.items()
    }
    works = rng.random((len(names), 4)) >= broken
    works[~works.any(axis=1), 2] = True
    return MultiViewData(views, names, mask=works)


# 1. Known faults come in day by day; sums and a few rows are kept, the first day fixes the scaling.
clf = create("marginal")
for _ in range(5):
    clf.partial_fit_base(record(list(rng.choice(known, 160))))
print(f"base: {clf.base}")

# 2. Two new faults, two recordings each. Later a third one: no need to start over.
clf.fit(record(["new leak", "new crack"] * 2))
print(f"classes: {', '.join(clf.classes_)}")
clf.partial_fit(record(["new rattle"] * 2))
print(f"classes: {', '.join(clf.classes_)}")

# 3. The truth is known here, so count.
query = record(["new leak", "new crack", "new rattle"] * 40)
print(query)
print(f"right: {clf.score(query):.0%} of {len(query)} recordings (chance: 33%)")
broken = query.mask.sum(axis=1)
for count in (1, 2, 3, 4):
    rows = broken == count
    print(
        f"  {count} of 4 sensors working: {clf.score(query[rows]):.0%} of {rows.sum()} recordings"
    )

# 4. What if a fault is none of the three? What is still usual is learnt on known faults.
strangers = ["stranger 1", "stranger 2", "stranger 3"]
faults.update(zip(strangers, rng.normal(size=(3, 5)), strict=True))
strange = record(strangers * 20)
found, alarm = (np.mean(clf.p_values(part) < 0.1) for part in (strange, query))
print(f"faults that nobody labelled: {found:.0%} called unknown")
print(f"false alarms among the labelled ones: {alarm:.0%} (10% were allowed)")
