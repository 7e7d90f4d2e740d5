"""A fair model scores with its booster: raw scores are LightGBM's, to the last bit."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

lgb = pytest.importorskip("lightgbm")

from fferm import FairBoostingClassifier, load, save  # noqa: E402 - after lightgbm
from fferm.datasets import make_biased  # noqa: E402

N_ROWS = 3000


def rows(seed, n=N_ROWS):
    """Numbers with gaps, zeros and ties; the last two columns are categories."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    X[:, 1] = np.round(X[:, 1], 1)
    X[:, 2] = np.where(rng.random(n) < 0.5, 0.0, X[:, 2])
    X[rng.random(X.shape) < 0.1] = np.nan
    X[:, 4] = rng.integers(0, 5, n)
    X[:, 5] = rng.integers(0, 80, n)
    X[rng.random(n) < 0.1, 5] = np.nan
    score = np.nan_to_num(X[:, 0]) + (X[:, 4] == 2) + np.sin(np.nan_to_num(X[:, 5]))
    return X, score + rng.normal(size=n)


def unseen(X):
    """Rows unlike any training row: unknown categories, extremes, tiny numbers."""
    X = X.copy()
    X[::7, 5] = 500
    X[2::7, 4] = 7
    X[4::7, 0] = 1e300
    X[5::7, 1] = -1e300
    X[6::7, 2] = np.tile([1e-36, -1e-36, 1e-34, -0.0], len(X))[: len(X[6::7])]
    return X


def train(seed=0, n_classes=2, categories=(4, 5), **params):
    X, score = rows(seed)
    y = np.digitize(score, np.quantile(score, np.arange(1, n_classes) / n_classes))
    group = np.random.default_rng(seed).integers(0, 2, len(y))
    model = FairBoostingClassifier(
        n_estimators=20, n_jobs=1, categorical=categories, **params
    )
    return model.fit(X, y, sensitive_features=group), X


@pytest.mark.parametrize("weight", [0, 3])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"lightgbm_params": {"zero_as_missing": True}},
        {"lightgbm_params": {"use_missing": False}},
        {"num_leaves": 90},
        {"n_classes": 3},
        {"categories": ()},
        {"subsample": 0.5, "colsample_bytree": 0.5},
        {"min_child_samples": 10**6},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::fferm.errors.FfermWarning")
def test_scores_are_those_of_the_booster(params, weight):
    model, X = train(fairness_weight=weight, **params)
    plain = lgb.Booster(model_str=model.booster_.model_to_string())
    for table in (X, unseen(X), X[:3]):
        expected = plain.predict(table, raw_score=True)
        assert_array_equal(model.decision_function(table), expected)


def test_sparse_rows_are_scored_as_lightgbm_does():
    model, X = train(categories=())
    table = sp.csr_matrix(np.nan_to_num(X))
    expected = model.booster_.predict(table, raw_score=True)
    assert_array_equal(model.decision_function(table), expected)
    assert_array_equal(model.decision_function(table.toarray()), expected)


def frame(n=N_ROWS):
    X, score = rows(3, n)
    table = pd.DataFrame(X[:, :4], columns=list("abcd"))
    table["town"] = pd.Categorical([f"t{c:g}" for c in X[:, 5]])
    table.loc[::11, "town"] = np.nan
    return table, (score > 0).astype(int), (X[:, 4] > 2).astype(int)


def test_frames_with_categories_are_scored_as_lightgbm_does():
    X, y, group = frame()
    model = FairBoostingClassifier(fairness_weight=1, n_estimators=20, n_jobs=1)
    model.fit(X, y, sensitive_features=group)
    other = X.copy()
    other["town"] = other["town"].astype(object).replace({"t3": "nowhere"})
    other["town"] = other["town"].astype("category")
    for table in (X, other, X.iloc[::-1]):
        expected = model.booster_.predict(table, raw_score=True)
        assert_array_equal(model.decision_function(table), expected)


def test_copies_and_saved_models_score_the_same(tmp_path):
    data = make_biased(N_ROWS, random_state=0)
    model = FairBoostingClassifier(n_estimators=10, n_jobs=1)
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    expected = model.decision_function(data.X)
    save(model, tmp_path / "model")
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for again in (*copies, load(tmp_path / "model")):
        assert_array_equal(again.decision_function(data.X), expected)


def test_another_booster_is_predicted_by():
    data = make_biased(N_ROWS, random_state=0)
    groups = {"sensitive_features": data.sensitive_features}
    model, other = (
        FairBoostingClassifier(n_estimators=n, n_jobs=1).fit(data.X, data.y, **groups)
        for n in (5, 10)
    )
    model.decision_function(data.X)
    model.booster_ = other.booster_
    expected = other.decision_function(data.X)
    assert_array_equal(model.decision_function(data.X), expected)
