"""Scores by look-up against LightGBM's own, to the last bit."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

lgb = pytest.importorskip("lightgbm")

from fferm import FairBoostingClassifier, load, save  # noqa: E402 - after lightgbm
from fferm.boosting import predictor as module  # noqa: E402
from fferm.boosting.predictor import Predictor  # noqa: E402
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


def strange(X):
    """Rows as no training row was: unknown and odd categories, extremes."""
    X = X.copy()
    X[::7, 5] = 500
    X[1::7, 5] = -3
    X[2::7, 4] = 2.7
    X[3::7, 4] = -0.5
    X[4::7, 0] = 1e300
    X[5::7, 1] = -1e300
    X[6::7, 2] = np.tile([1e-36, -1e-36, 1e-34, -0.0], len(X))[: len(X[6::7])]
    return X


def train(seed, n_classes=2, categories=(4, 5), **settings):
    X, score = rows(seed)
    y = np.digitize(score, np.quantile(score, np.arange(1, n_classes) / n_classes))
    kind = {"objective": "binary"}
    if n_classes > 2:
        kind = {"objective": "multiclass", "num_class": n_classes}
    common = {"verbose": -1, "num_threads": 1, "min_data_in_leaf": 5}
    data = lgb.Dataset(X, y, categorical_feature=list(categories))
    rounds = settings.pop("rounds", 20)
    return lgb.train({**common, **kind, **settings}, data, rounds), X


def assert_same(booster, X):
    found = Predictor(booster).raw_scores(X, 1)
    assert_array_equal(found, booster.predict(X, raw_score=True))


def is_by_look_up(booster, X):
    predictor = Predictor(booster)
    predictor.raw_scores(X, 1)
    return predictor._tables is not None


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"zero_as_missing": True},
        {"use_missing": False},
        {"num_leaves": 60},
        {"max_cat_to_onehot": 100},
        {"n_classes": 3},
        {"categories": ()},
        {"bagging_fraction": 0.5, "bagging_freq": 1, "feature_fraction": 0.5},
    ],
    ids=str,
)
def test_scores_are_those_of_lightgbm_to_the_last_bit(settings, seed):
    booster, X = train(seed, **settings)
    assert is_by_look_up(booster, X)
    assert_same(booster, X)
    assert_same(booster, strange(X))


def test_trees_without_splits_add_their_constant():
    booster, X = train(0, min_data_in_leaf=10**6, rounds=3)
    assert booster.dump_model()["tree_info"][0]["num_leaves"] == 1
    assert_same(booster, X)


@pytest.mark.parametrize("settings", [{"num_leaves": 90}, {"linear_tree": True}])
def test_trees_that_do_not_fit_a_mask_are_left_to_lightgbm(settings):
    booster, X = train(0, categories=(), **settings)
    assert not is_by_look_up(booster, X)
    assert_same(booster, X)


def test_few_rows_sparse_rows_and_huge_tables_are_left_to_lightgbm(monkeypatch):
    booster, X = train(0, categories=())
    assert not is_by_look_up(booster, X[: module.LEAST_ROWS - 1])
    assert_same(booster, sp.csr_matrix(np.nan_to_num(X)))
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    assert not is_by_look_up(booster, X)
    assert_same(booster, X)


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


def test_tables_are_neither_copied_nor_saved(tmp_path):
    data = make_biased(N_ROWS, random_state=0)
    model = FairBoostingClassifier(n_estimators=10, n_jobs=1)
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    small = len(pickle.dumps(model))
    expected = model.decision_function(data.X)
    assert len(pickle.dumps(model)) == small
    save(model, tmp_path / "model")
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for again in (*copies, load(tmp_path / "model")):
        assert again._predictor._tables is None
        assert_array_equal(again.decision_function(data.X), expected)
        assert again._predictor._tables is not None


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
