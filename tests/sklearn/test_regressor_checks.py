"""scikit-learn's own checks on the fair regressor, with no expected failures."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from fferm import FairRegressor


class GroupsFromFeatures(FairRegressor):
    """A fair model that reads its groups off X: the checks pass no sensitive values."""

    def fit(self, X, y, *, sample_weight=None):
        return super().fit(
            X, y, sensitive_features=_Parity(X), sample_weight=sample_weight
        )


class _Parity:
    """Groups that are computed only when they are read, after X was validated."""

    def __init__(self, X):
        self.X = X

    def __array__(self, dtype=None, copy=None):
        X = self.X.toarray() if hasattr(self.X, "toarray") else np.asarray(self.X)
        mixture = np.asarray(X, dtype=np.float64) @ np.sin(1 + np.arange(X.shape[1]))
        return (np.floor(mixture * 7) % 2).astype(np.int64)


@pytest.mark.filterwarnings(
    # The checks fit on a handful of rows; that their groups are tiny is no news.
    "ignore::fferm.errors.DataFairnessWarning",
)
@parametrize_with_checks(
    [FairRegressor(fairness_weight=0), GroupsFromFeatures(fairness_weight=0.1)]
)
def test_every_scikit_learn_check_passes_on_a_regressor(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    # All rows a batch, so that weights are exactly repeated rows.
    [
        FairRegressor(
            fairness_weight=0,
            hidden=(16,),
            max_epochs=100,
            batch_size=256,
            learning_rate=0.05,
        )
    ]
)
def test_every_scikit_learn_check_passes_on_a_network_regressor(estimator, check):
    check(estimator)
