"""scikit-learn's tools take MultiViewData as X: splitting, cross-validation, grid search.

Run: python examples/sklearn_tools.py
"""

import numpy as np
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, train_test_split

from fewview import MissingRule, Proto, create, load
from fewview.datasets import class_split

data = load("digits")
split = class_split("digits", 0)
base = data[np.isin(data.labels, split.base)]

# 20 samples of each novel class; 40 % of their views go missing.
novel = np.concatenate([np.flatnonzero(data.labels == label)[:20] for label in split.novel])
X = data[novel]
X = X.with_mask(MissingRule().draw(np.zeros(1, np.uint64), len(X), X.n_views, eta=0.4)[0])
y = X.labels
print(X)

# train_test_split and KFold index it like an array.
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=16, stratify=y, random_state=0)
print(f"train_test_split: {len(X_train)} and {len(X_test)} samples")
print(f"KFold: {[len(test) for _, test in KFold(4).split(X)]} test samples")

# cross_val_score with Proto alone, and with a method that has learnt from base classes. The base
# set is a parameter, so clones keep it; what is learnt from it is learnt once and shared.
folds = KFold(3, shuffle=True, random_state=0)
fitted = create("ugda", n_anchors=5).fit_base(base)
for name, clf in (("proto", Proto()), ("ugda with a fitted base", fitted)):
    scores = cross_val_score(clf, X, y, cv=folds)
    print(f"cross_val_score, {name}: {scores.mean():.3f}")

# GridSearchCV over parameters of the method.
for name, clf, grid in (
    ("proto", Proto(), {"scaling": ["scale", "standard"], "padding": ["episode", "zero"]}),
    ("ugda with a fitted base", fitted, {"n_neighbors": [1, 2]}),
):
    search = GridSearchCV(clf, grid, cv=folds).fit(X_train, y_train)
    accuracy = search.score(X_test, y_test)
    print(f"GridSearchCV, {name}: best {search.best_params_}, test accuracy {accuracy:.3f}")
