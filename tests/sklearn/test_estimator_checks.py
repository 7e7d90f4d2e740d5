"""scikit-learn's own checks, with no expected failures."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from fferm import FairBoostingClassifier, FairLogisticRegression, FairNetClassifier


class GroupsFromFeatures(FairLogisticRegression):
    """A fair model that reads its groups off X: the checks pass no sensitive values.

    The group of a row is the parity of a fixed mixture of its columns, cut to sevenths:
    about half of the rows each, whatever the data.
    """

    def fit(self, X, y, *, sample_weight=None):
        return super().fit(
            X, y, sensitive_features=_Parity(X), sample_weight=sample_weight
        )

    def partial_fit(self, X, y, *, classes=None, sample_weight=None):
        return super().partial_fit(
            X,
            y,
            classes=classes,
            groups={0: 1, 1: 1},
            sensitive_features=_Parity(X),
            sample_weight=sample_weight,
        )


class _Parity:
    """Groups that are computed only when they are read, after X was validated."""

    def __init__(self, X):
        self.X = X

    def __array__(self, dtype=None, copy=None):
        X = self.X.toarray() if hasattr(self.X, "toarray") else np.asarray(self.X)
        # Each row's group depends on that row alone: weights and order cannot move it.
        mixture = np.asarray(X, dtype=np.float64) @ np.sin(1 + np.arange(X.shape[1]))
        codes = (np.floor(mixture * 7) % 2).astype(np.int64)
        return codes


@pytest.mark.filterwarnings(
    # The checks fit on a handful of rows; that their groups are tiny is no news.
    "ignore::fferm.errors.DataFairnessWarning",
)
@parametrize_with_checks(
    [FairLogisticRegression(fairness_weight=0), GroupsFromFeatures(fairness_weight=0.1)]
)
def test_every_scikit_learn_check_passes(estimator, check):
    check(estimator)


# A smaller network and fewer steps than by default: the checks fit some 150 times.
SMALL_NET = FairNetClassifier(
    fairness_weight=0, hidden=(16,), max_epochs=60, learning_rate=0.02
)


@pytest.mark.filterwarnings(
    # One check weighs a class ten million times the other, and asks for a collapse.
    "ignore::fferm.errors.CollapseWarning",
)
@parametrize_with_checks([SMALL_NET])
def test_every_scikit_learn_check_passes_on_a_network(estimator, check):
    check(estimator)


class TreesWithGroupsFromFeatures(FairBoostingClassifier):
    """Fair trees that read their groups off X, as the linear model above does."""

    def fit(self, X, y, *, sample_weight=None):
        return super().fit(
            X, y, sensitive_features=_Parity(X), sample_weight=sample_weight
        )


FEW_TREES = {"n_estimators": 30, "num_leaves": 7, "n_jobs": 1}


@pytest.mark.filterwarnings(
    "ignore::fferm.errors.DataFairnessWarning",
    # Leaves of twenty rows cannot tell a handful of rows apart.
    "ignore::fferm.errors.CollapseWarning",
)
@parametrize_with_checks(
    [
        FairBoostingClassifier(fairness_weight=0, **FEW_TREES),
        TreesWithGroupsFromFeatures(fairness_weight=0.1, **FEW_TREES),
    ]
)
def test_every_scikit_learn_check_passes_on_trees(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fferm.errors.CollapseWarning")
@parametrize_with_checks([FairNetClassifier(fairness_weight=0)])
def test_every_scikit_learn_check_passes_on_the_default_network(estimator, check):
    check(estimator)
