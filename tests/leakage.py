"""Rows with names, spies that note who sees which rows, and numbers made by hand.

The first feature of a row is its name: no two rows have the same number there. So
whoever is handed features can be asked which rows they are, in which order.
"""

import numpy as np
import pandas as pd
from numpy.testing import assert_allclose
from scipy.special import expit

from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairNetClassifier,
    FairRegressor,
)
from fferm.data.groups import find_edges
from fferm.data.rows import FitInput

N_SOURCE, N_OTHER = 212, 90
SOURCE, OTHER = np.split(np.arange(N_SOURCE + N_OTHER), [N_SOURCE])


def make_rows():
    """Return named rows: two sensitive columns, one in bands, and uneven weights."""
    rng = np.random.default_rng(0)
    n = N_SOURCE + N_OTHER
    sex, age = rng.choice(["f", "m"], n), rng.uniform(20, 70, n)
    merit = (sex == "m") + age / 40 + rng.normal(0, 0.7, n)
    X = np.column_stack([rng.normal(size=n), merit, rng.normal(size=n) + (sex == "m")])
    y = (merit + rng.normal(0, 0.7, n) > np.median(merit)).astype(int)
    sensitive = pd.DataFrame({"age": age, "sex": sex})
    return FitInput(X, y, sensitive, rng.uniform(0.5, 2.0, n))


ROWS = make_rows()
NUMBERS = ROWS.X[:, 1] + ROWS.y  # what regressors predict
NAMES = {name: position for position, name in enumerate(ROWS.X[:, 0])}

SHARED = {"groups": "marginal", "random_state": 5}
MODELS = {
    "linear": FairLogisticRegression(**SHARED),
    "minibatches": FairLogisticRegression(**SHARED, solver="sgda"),
    "trees": FairBoostingClassifier(
        **SHARED, n_estimators=6, min_child_samples=5, n_jobs=1
    ),
    "network": FairNetClassifier(
        **SHARED,
        hidden=(4,),
        max_epochs=5,
        batch_size=32,
        learning_rate=0.03,
        device="cpu",
    ),
    "regressor": FairRegressor(**SHARED, violation_metric="mean_gap", n_bins=4),
}
CLASSIFIERS = [name for name in MODELS if name != "regressor"]


def target(model):
    """Return what a model predicts, in all rows."""
    return NUMBERS if isinstance(model, FairRegressor) else ROWS.y


def take(model, index, has_weight=True):
    """Return some rows as arguments of `fit`, in this order."""
    return FitInput(
        ROWS.X[index],
        target(model)[index],
        ROWS.sensitive_features.iloc[index].reset_index(drop=True),
        ROWS.sample_weight[index] if has_weight else None,
    )


def rows_of(X):
    """Return the positions of rows, by their names."""
    return np.array([NAMES[name] for name in np.asarray(X)[:, 0]])


def partitions(edges, index):
    """Return which rows are in which group: by sex, and by age between edges."""
    sensitive = ROWS.sensitive_features.iloc[index]
    bands = np.searchsorted(edges, sensitive["age"], "right")
    columns = sensitive["sex"].to_numpy(), bands
    return [[column == group for group in np.unique(column)] for column in columns]


def gap(edges, values, index, has_weight=True):
    """Return the largest difference of group means, of ages between these edges."""
    weight = ROWS.sample_weight[index] if has_weight else np.ones(len(index))
    gaps = []
    for groups in partitions(edges, index):
        means = [np.average(values[mask], weights=weight[mask]) for mask in groups]
        gaps.append(max(means) - min(means))
    return max(gaps)


def loss_and_penalty(model, edges, index):
    """Return the weighted cross-entropy and KL divergences of some rows."""
    y, weight = ROWS.y[index], ROWS.sample_weight[index]
    logits = model.decision_function(ROWS.X[index])
    counted = weight
    if getattr(model, "class_weight", None) == "balanced":
        counted = weight / np.bincount(y, weight)[y]
    loss = np.average(np.logaddexp(0, np.where(y, -logits, logits)), weights=counted)
    prob, penalty = expit(model.sharpness * logits), 0.0
    share = weight / weight.sum()
    for groups in partitions(edges, index):
        sums = [[share[g] @ prob[g], share[g] @ (1 - prob[g])] for g in groups]
        joint = np.array(sums)
        apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        penalty += np.sum(joint * np.log(joint / apart))
    return loss, penalty


def edges_of(index):
    """Return the edges of bands with equally many of these rows."""
    return find_edges(ROWS.sensitive_features["age"].to_numpy()[index])


def accuracy(model, predicted, index, has_weight=True):
    """Return the share of right decisions, or of variance explained."""
    y = target(model)[index]
    weight = ROWS.sample_weight[index] if has_weight else np.ones(len(index))
    if not isinstance(model, FairRegressor):
        return np.average(predicted == y, weights=weight)
    spread = np.average((y - np.average(y, weights=weight)) ** 2, weights=weight)
    return 1 - np.average((y - predicted) ** 2, weights=weight) / spread


def scores(model):
    """Return what a model says about all rows, as finely as it can."""
    is_number = isinstance(model, FairRegressor)
    return (model.predict if is_number else model.decision_function)(ROWS.X)


def assert_same(one, other):
    """Assert that two models learned the same: edges of bands, and scores."""
    assert one.band_edges_ == other.band_edges_
    expected = scores(other)
    assert_allclose(scores(one), expected, atol=1e-7 * np.abs(expected).max())


class Spy:
    """Notes which rows models were asked about, and the paths they were trained on.

    Attributes
    ----------
    asked
        Pairs of a model and the positions of the rows it was asked to predict.
    paths
        For each path its model, rows, weights and start, and the models it gave.
    """

    def __init__(self, monkeypatch):
        self.asked, self.paths = [], []
        for kind in {type(model) for model in MODELS.values()}:
            self._watch(monkeypatch, kind)

    def _watch(self, monkeypatch, kind):
        check, fit_path = kind._check_fitted_features, kind.fit_path

        def checked(model, X):
            self.asked.append((model, rows_of(X)))
            return check(model, X)

        def followed(model, passed, weights, start=None):
            models = []
            self.paths.append((model, passed, list(weights), start, models))
            for fitted in fit_path(model, passed, weights, start):
                models.append(fitted)
                yield fitted

        monkeypatch.setattr(kind, "_check_fitted_features", checked)
        monkeypatch.setattr(kind, "fit_path", followed)

    def asked_of(self, models):
        """Return the distinct sets of rows that some of these models saw, in order."""
        ids = {id(model) for model in models}
        distinct = {frozenset(r): r for model, r in self.asked if id(model) in ids}
        return sorted(distinct.values(), key=len, reverse=True)
