"""The other libraries, as a user would call them, and what they reach on test rows."""

import warnings
from typing import Any

import numpy as np
from fairlearn.reductions import (
    DemographicParity,
    ExponentiatedGradient,
    GridSearch,
)
from sklearn.linear_model import LogisticRegression

from fferm.datasets import FairDataset

GRID_SIZE = 20


def exponentiated_gradient(data: FairDataset, bound: float) -> ExponentiatedGradient:
    """Return a fit whose groups may differ from the overall rate by a bound."""
    parity = DemographicParity(difference_bound=bound)
    return _fitted(
        ExponentiatedGradient(LogisticRegression(max_iter=1000), parity), data
    )


def grid_search(data: FairDataset) -> GridSearch:
    """Return a fit of a grid of twenty models."""
    learner = LogisticRegression(max_iter=1000)
    return _fitted(GridSearch(learner, DemographicParity(), grid_size=GRID_SIZE), data)


def expected(baseline: ExponentiatedGradient, data: FairDataset) -> tuple[float, float]:
    """Return accuracy and violation on test rows, expected over the ensemble."""
    chance = baseline._pmf_predict(data.X_test)[:, 1]  # of a positive decision
    right = chance * data.y_test + (1 - chance) * (1 - data.y_test)
    groups = data.sensitive_features_test.astype(str).agg(" ".join, axis=1).to_numpy()
    rates = [chance[groups == group].mean() for group in np.unique(groups)]
    return float(right.mean()), float(max(rates) - min(rates))


def _fitted(baseline: Any, data: FairDataset) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their warnings are not our figures
        return baseline.fit(data.X, data.y, sensitive_features=data.sensitive_features)
