"""Small fair trees, and what is measured of them."""

import numpy as np

from fferm import FairBoostingClassifier
from fferm.metrics import violation

FAST = {"n_estimators": 20, "num_leaves": 7, "n_jobs": 1, "random_state": 0}


def fit(data, X=None, y=None, **options):
    """Return trees trained on a data set, or on other features or labels of it."""
    model = FairBoostingClassifier(**{**FAST, **options})
    return model.fit(
        data.X if X is None else X,
        data.y if y is None else y,
        sensitive_features=data.sensitive_features,
    )


def gap(model, data):
    """Return the violation of a model's decisions on training rows."""
    decided = model.predict(data.X)
    return violation(data.y, decided, sensitive_features=data.sensitive_features)


def objectives(model):
    """Return the objective of every round."""
    return np.array([record["objective"] for record in model.history_])
