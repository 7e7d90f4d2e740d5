"""Fair trees: how they are trained, and what comes out."""

import copy
import itertools
import os
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

lgb = pytest.importorskip("lightgbm")

from boosting_models import FAST, fit, gap, objectives  # noqa: E402 - after lightgbm

import fferm  # noqa: E402
from fferm import (  # noqa: E402
    FairBoostingClassifier,
    audit,
    boosting_objective,
    tradeoff_curve,
)
from fferm.boosting.rounds import split_trees  # noqa: E402
from fferm.datasets import load_adult, make_biased  # noqa: E402
from fferm.errors import (  # noqa: E402
    InvalidInputError,
    InvalidParameterError,
    PersistenceError,
)
from fferm.metrics import violation  # noqa: E402
from fferm.solvers import Result  # noqa: E402


@pytest.fixture(scope="module")
def data():
    return make_biased(600, random_state=0)


def test_a_larger_weight_is_fairer():
    data = make_biased(3000, random_state=0)
    options = {"num_leaves": 15, "n_estimators": 50}
    gaps = [
        gap(fit(data, fairness_weight=w, **options), data) for w in (0, 1, 10, 1000)
    ]
    assert gaps[0] > 0.2
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.02


def test_a_fitted_model_tells_how_it_was_trained(data):
    model = fit(data, fairness_weight=3)
    assert model.dual_.shape == (1, 2, 2)
    assert model.groups_.tolist() == sorted(
        data.sensitive_features.iloc[:, 0].astype(str).unique()
    )
    assert model.result_ is Result.schedule_completed
    assert model.n_iter_ == len(model.history_) == 20
    assert model.fairness_weight_ == 3
    assert model.booster_.num_trees() == 20


# ---- plain training is LightGBM's own -----------------------------------------------

PLAIN = {
    "num_leaves": 7,
    "learning_rate": 0.1,
    "num_threads": 1,
    "verbose": -1,
    "deterministic": True,
    "force_row_wise": True,
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_no_weight_is_lightgbms_own_objective(n_classes, is_weighted):
    data = make_biased(600, n_classes=n_classes, random_state=0)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(data.y))
    weight = weight if is_weighted else None
    kind = {"objective": "binary"}
    if n_classes > 2:
        kind = {"objective": "multiclass", "num_class": n_classes}
    own = lgb.train(
        {**PLAIN, **kind}, lgb.Dataset(data.X, data.y, weight=weight), 20
    ).predict(data.X_test)
    model = FairBoostingClassifier(**FAST, fairness_weight=0)
    model.fit(data.X, data.y, sample_weight=weight)
    found = model.predict_proba(data.X_test)
    assert_allclose(found[:, 1] if n_classes == 2 else found, own, atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_vanishing_weight_is_nearly_lightgbms_own_objective(n_classes):
    data = make_biased(600, n_classes=n_classes, random_state=0)
    plain, tiny = (fit(data, fairness_weight=w) for w in (0, 1e-12))
    difference = plain.predict_proba(data.X_test) - tiny.predict_proba(data.X_test)
    # LightGBM rounds gradients to single precision, and a near tie may break otherwise.
    assert np.median(np.abs(difference)) < 1e-6


# ---- the objective never rises ------------------------------------------------------


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")
@pytest.mark.filterwarnings("ignore::fferm.errors.CollapseWarning")
def test_no_round_increases_the_objective(seed):
    rng = np.random.default_rng(seed)
    names = ["kl", "chi2", "reverse_kl", "total_variation", "jensen_shannon", "alpha"]
    notions = ["demographic_parity", "equalized_odds", "sufficiency"]
    data = make_biased(
        int(rng.integers(100, 400)),
        n_classes=int(rng.integers(2, 4)),
        random_state=seed,
    )
    for weight, calibrated in itertools.product((0.1, 10, 1000), (True, False)):
        model = fit(
            data,
            fairness_weight=weight,
            calibrated=calibrated,
            divergence=names[seed % 6],
            notion=notions[rng.integers(3)],
            sharpness=float(rng.uniform(1, 4)),
            learning_rate=float(rng.uniform(0.05, 1)),
            n_estimators=8,
        )
        steps = np.diff(objectives(model))
        assert steps.max() <= 0


def test_many_rounds_at_a_strong_weight_keep_decreasing_the_objective(data):
    model = fit(data, fairness_weight=1000, n_estimators=150, learning_rate=0.3)
    assert np.diff(objectives(model)).max() <= 0
    assert objectives(model)[-1] < objectives(model)[0] / 2
    assert all(record["n_halvings"] < 40 for record in model.history_)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_booster_scores_as_training_did(n_classes):
    data = make_biased(600, n_classes=n_classes, random_state=0)
    model = fit(data, fairness_weight=10)
    prob = model.predict_proba(data.X)
    loss = -np.mean(np.log(prob[np.arange(len(data.y)), data.y]))
    assert_allclose(loss, model.history_[-1]["loss"], rtol=1e-9)


# ---- what comes out -----------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_booster_predicts_without_fferm(n_classes, tmp_path):
    data = make_biased(400, n_classes=n_classes, random_state=0)
    model = fit(data, fairness_weight=3)
    model.booster_.save_model(tmp_path / "model.txt")
    found = lgb.Booster(model_file=tmp_path / "model.txt").predict(data.X_test)
    prob = model.predict_proba(data.X_test)
    assert_allclose(found, prob[:, 1] if n_classes == 2 else prob, atol=1e-12)


def test_the_same_data_give_the_same_booster(data):
    options = {"subsample": 0.7, "colsample_bytree": 0.7}
    one, other = (fit(data, **options) for _ in range(2))
    assert one.booster_.model_to_string() == other.booster_.model_to_string()
    moved = fit(data, **options, random_state=1)
    assert one.booster_.model_to_string() != moved.booster_.model_to_string()


def test_labels_of_text_come_out_as_they_went_in():
    data = make_biased(300, n_classes=3, random_state=0)
    y = np.array(["a", "b", "c"])[data.y]
    model = fit(data, y=y)
    assert model.decision_function(data.X).shape == (len(y), 3)
    assert set(model.predict(data.X)) <= {"a", "b", "c"}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weight", [0, 3])
def test_saved_models_come_back_the_same(weight, n_classes, tmp_path):
    data = make_biased(300, n_classes=n_classes, random_state=0)
    options = {"lightgbm_params": {"max_bin": 63}, "fairness_weight": weight}
    model = fit(data, **options)
    fferm.save(model, tmp_path / "model.fferm")
    back = fferm.load(tmp_path / "model.fferm")
    assert_array_equal(back.predict_proba(data.X), model.predict_proba(data.X))
    assert back.get_params() == model.get_params()
    assert back.history_ == model.history_
    pickled = pickle.loads(pickle.dumps(model))
    assert_array_equal(pickled.predict_proba(data.X), model.predict_proba(data.X))


def test_a_saved_booster_that_is_none_is_refused(data, tmp_path):
    model = fit(data)
    parameters, learned = model._to_saved()
    model._to_saved = lambda: (parameters, {**learned, "booster_": "no trees"})
    fferm.save(model, tmp_path / "model.fferm")
    with pytest.raises(PersistenceError, match="booster_ must be a text of LightGBM"):
        fferm.load(tmp_path / "model.fferm")


# Numbers of the first tree that are replaced, by name and position.
EDITS = {
    "more leaves than there are": ("num_leaves", 0, "999999999"),
    "fewer leaves than there are": ("num_leaves", 0, "2"),
    "leaves below 0": ("num_leaves", 0, "-1"),
    "a child beyond the last node": ("left_child", 0, "1000"),
    "a child beyond the last leaf": ("left_child", 0, "-1000"),
    "a node that is its own child": ("left_child", 0, "0"),
    "a child that is its grandparent": ("right_child", -1, "0"),
    "a leaf that is reached twice": ("right_child", -1, "-1"),
    "a child that is not a whole number": ("left_child", 0, "1.5"),
    "a child that is left out": ("left_child", 0, ""),
    "a column beyond the last": ("split_feature", 0, "5"),
    "a column below 0": ("split_feature", 0, "-1"),
    "a leaf of NaN": ("leaf_value", 0, "nan"),
    "a leaf of infinity": ("leaf_value", 0, "1e+999"),
    "a leaf whose sums overflow": ("leaf_value", 0, "1e+308"),
    "a threshold of NaN": ("threshold", 0, "nan"),
    "a split of an unknown kind": ("decision_type", 0, "12"),
    "a split of categories without any": ("decision_type", 0, "1"),
    "categories where there are none": ("num_cat", 0, "1"),
    "leaves with linear models": ("is_linear", 0, "1"),
    "more trees a round": ("num_tree_per_iteration", 0, "0"),
    "more classes": ("num_class", 0, "2"),
    "more columns": ("max_feature_idx", 0, "1000000"),
    "a tree that begins elsewhere": ("tree_sizes", 0, "1"),
    "another format": ("version", 0, "v3"),
}
CATEGORIES = {
    "a set beyond the last": ("threshold", -1, "7"),
    "a set that begins before the first": ("cat_boundaries", 0, "-5"),
    "a set that ends after the last": ("cat_boundaries", -1, "1000"),
    "more sets than there are": ("num_cat", 0, "1000"),
    "levels of another column": ("pandas_categorical", 0, "[[],"),
}


@pytest.fixture(scope="module")
def categories():
    rng = np.random.default_rng(0)
    level = rng.choice(list("abcdefgh"), 400)
    X = pd.DataFrame({"level": level})
    y = (X["level"].isin(list("abc")) ^ (rng.random(400) < 0.2)).astype(int)
    options = {"cat_smooth": 1, "min_data_per_group": 1}
    model = FairBoostingClassifier(
        **FAST, fairness_weight=0, lightgbm_params=options
    ).fit(X, y)
    return model, X


def saved_with(model, path, text):
    """Save a model with other trees."""
    parameters, learned = model._to_saved()
    changed = copy.copy(model)
    changed._to_saved = lambda: (parameters, {**learned, "booster_": text})
    fferm.save(changed, path)


def edit(text, key, position, number):
    """Replace one number, and make the sizes of trees right again."""
    line = re.search(rf"^{key}[=:](.*)$", text, flags=re.M)
    numbers = line[1].split(" ")
    numbers[position] = number
    text = text[: line.start(1)] + " ".join(numbers) + text[line.end(1) :]
    sizes = " ".join(str(len(block)) for block in split_trees(text)[1])
    sized = re.sub("tree_sizes=.*", f"tree_sizes={sizes}", text)
    return text if key == "tree_sizes" else sized


@pytest.mark.parametrize("name", [*EDITS, *CATEGORIES])
def test_edited_trees_are_refused_before_lightgbm_sees_them(
    name, data, categories, tmp_path, monkeypatch
):
    model = categories[0] if name in CATEGORIES else fit(data)
    text = model.booster_.model_to_string()
    assert edit(text, "num_leaves", 0, re.search(r"num_leaves=(\d+)", text)[1]) == text
    changed = edit(text, *{**EDITS, **CATEGORIES}[name])
    assert changed != text
    saved_with(model, tmp_path / "model", changed)

    if name != "levels of another column":  # which LightGBM does not look at
        monkeypatch.setattr(lgb, "Booster", pytest.fail)
    with pytest.raises(PersistenceError):
        fferm.load(tmp_path / "model")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("left_child", "left_chill", 1),
        lambda text: re.sub("leaf_value=.*\n", "", text, count=1),
        lambda text: text.replace("num_cat=0\n", "num_cat=0\nnum_cat=0\n", 1),
        lambda text: text.replace("parameters:\n", "parameters:\n[x\n", 1),
        lambda text: text.replace("[linear_tree: 0]", "[linear_tree: 1]"),
        lambda text: text.replace("\nTree=1", "\0\nTree=1"),
        lambda text: text.replace("objective=binary sigmoid:1", "average_output=1"),
        lambda text: text.replace("end of trees", "Tree=99\nend of trees"),
    ],
)
def test_a_text_of_another_form_is_refused_before_lightgbm_sees_it(
    change, data, tmp_path, monkeypatch
):
    model = fit(data)
    text = model.booster_.model_to_string()
    assert change(text) != text
    saved_with(model, tmp_path / "model", change(text))
    monkeypatch.setattr(lgb, "Booster", pytest.fail)
    with pytest.raises(PersistenceError):
        fferm.load(tmp_path / "model")


@pytest.mark.filterwarnings("ignore::fferm.errors.CollapseWarning")
@pytest.mark.parametrize("weight", [0, 1])
def test_trees_of_any_kind_come_back_to_the_letter(weight, categories, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    gaps = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    y, s = (X[:, 0] > 0).astype(int), rng.choice(["a", "b"], 300)
    words = np.array(["p", "q", "r"])[y + (X[:, 1] > 0)]
    few_bins = {"lightgbm_params": {"max_bin": 3}}  # thresholds of infinity
    fits = [
        ({}, np.ones_like(X), y),  # trees of one leaf
        (few_bins, gaps, np.isnan(gaps[:, 0]).astype(int)),
        ({"lightgbm_params": {"zero_as_missing": True}}, gaps, words),
        ({"subsample": 0.5, "colsample_bytree": 0.5}, X[:, :2], words),
        ({"categorical": [1]}, np.abs(np.round(X * 3)), y),
        ({}, categories[1][:300], y),
    ]
    for options, table, labels in fits:
        model = FairBoostingClassifier(**FAST, fairness_weight=weight, **options)
        model.fit(table, labels, sensitive_features=s)
        fferm.save(model, tmp_path / "model")
        back = fferm.load(tmp_path / "model")
        assert back.booster_.model_to_string() == model.booster_.model_to_string()
        scores = [each.decision_function(table) for each in (back, model)]
        assert_array_equal(*scores)


def test_a_file_cannot_ask_for_more_threads_than_the_machine_has(data, monkeypatch):
    model, asked = fit(data).set_params(n_jobs=10**6), []
    predict = model.booster_.predict

    def note(X, **options):
        asked.append(options["num_threads"])
        return predict(X, raw_score=True, num_threads=1)

    monkeypatch.setattr(model.booster_, "predict", note)
    model.predict(data.X)
    assert asked == [os.cpu_count()]


def test_an_audit_takes_the_model(data):
    model = fit(data, fairness_weight=10)
    found = audit(
        model, data.X_test, data.y_test, sensitive_features=data.sensitive_features_test
    )
    assert 0 <= found.violation <= 1


# ---- curves, bounds and early stopping ----------------------------------------------


def test_a_curve_trains_each_weight_as_it_would_be_alone():
    data, options = make_biased(3000, random_state=0), {**FAST, "n_estimators": 40}
    curve = tradeoff_curve(
        FairBoostingClassifier(**options),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        test=(data.X_test, data.y_test, data.sensitive_features_test),
        fairness_weights=[0, 3, 100],
    )
    rows = curve.records.query("split == 'train'")
    assert rows["violation"].is_monotonic_decreasing
    assert curve.select(max_violation=0.2) is not None
    alone = fit(data, fairness_weight=3, n_estimators=40)
    swept = curve.models[3, 0]
    assert_array_equal(alone.predict_proba(data.X), swept.predict_proba(data.X))


def test_a_bound_on_the_violation_is_kept():
    adult = load_adult(sensitive=("sex",))
    rows = slice(None, None, 8)
    sex = adult.sensitive_features[rows]
    model = FairBoostingClassifier(
        **{**FAST, "n_estimators": 40, "max_violation": 0.1, "categorical": []}
    )
    model.fit(adult.frame[rows], adult.y[rows], sensitive_features=sex)
    assert model.feasible_
    assert model.violation_ <= 0.07
    assert model.fairness_weight_ > 0
    decided = model.predict(adult.frame_test)
    others = adult.sensitive_features_test
    assert violation(adult.y_test, decided, sensitive_features=others) < 0.1


@pytest.mark.parametrize("criterion", ["loss", "violation", "validation"])
@pytest.mark.parametrize("weight", [0, 1])
def test_early_stopping_keeps_the_best_round(criterion, weight, data):
    options = {"early_stopping": criterion, "patience": 5, "n_estimators": 200}
    if weight == 0 and criterion == "violation":
        with pytest.raises(InvalidParameterError, match="fairness_weight above 0"):
            fit(data, fairness_weight=0, **options)
        return
    model = fit(data, fairness_weight=weight, learning_rate=0.3, **options)
    judged = [record["held_out"] for record in model.history_]
    assert model.n_iter_ == np.argmin(judged) + 1 == model.booster_.current_iteration()
    assert model.result_ is Result.nothing_gained
    assert len(model.history_) == model.n_iter_ + 5


def test_scores_of_held_out_rows_are_those_of_the_booster(data):
    weight = np.where(np.arange(len(data.y)) < 0, 0, 1.0)
    model = FairBoostingClassifier(
        **FAST, fairness_weight=5, early_stopping="loss", patience=30
    )
    model.fit(
        data.X, data.y, sensitive_features=data.sensitive_features, sample_weight=weight
    )
    from fferm.data.rows import encode_rows
    from fferm.data.split import hold_out, kinds
    from fferm.notions import DemographicParity, Labels

    rows = encode_rows(
        data.sensitive_features,
        DemographicParity(),
        Labels(len(data.y), data.y, (0, 1)),
    )
    held = hold_out(kinds(rows, data.y), 0.2, 0)
    prob = model.predict_proba(data.X[held])[np.arange(held.sum()), data.y[held]]
    best = model.history_[model.n_iter_ - 1]["held_out"]
    assert_allclose(-np.mean(np.log(prob)), best, rtol=1e-9)


def test_callbacks_of_progress_and_clones_work(data, capsys):
    model = clone(FairBoostingClassifier(**FAST, verbose=1))
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    assert "objective" in capsys.readouterr().err


# ---- in training calls of one's own -------------------------------------------------


def train_lightgbm(data, objective, n_classes=2, n_rounds=30, weight=None):
    settings = {**PLAIN, "objective": objective}
    if n_classes > 2:
        settings["num_class"] = n_classes
    rows = lgb.Dataset(data.X, data.y, weight=weight)
    return lgb.train(settings, rows, n_rounds).predict(data.X)


def train_xgboost(data, objective, n_classes=2, n_rounds=30, weight=None):
    xgb = pytest.importorskip("xgboost")
    settings = {"max_depth": 4, "eta": 0.1, "nthread": 1, "base_score": 0.0}
    if n_classes > 2:
        settings["num_class"] = n_classes
    rows = xgb.DMatrix(data.X, data.y, weight=weight)
    booster = xgb.train(settings, rows, n_rounds, obj=objective)
    return booster.predict(rows, output_margin=True)


LIBRARIES = {"lightgbm": train_lightgbm, "xgboost": train_xgboost}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_an_objective_makes_other_training_calls_fair(library, n_classes):
    data = make_biased(1500, n_classes=n_classes, random_state=0)
    gaps = []
    for weight in (0, 100):
        objective = boosting_objective(
            data.y, data.sensitive_features, fairness_weight=weight
        )
        scores = LIBRARIES[library](data, objective, n_classes)
        decided = scores > 0 if n_classes == 2 else scores.argmax(axis=1)
        accuracy = np.mean(decided == data.y)
        assert accuracy > 1.1 / n_classes
        groups = data.sensitive_features
        gaps.append(violation(data.y, decided.astype(int), sensitive_features=groups))
    assert gaps[1] < 0.07 < gaps[0]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_weight_the_objective_is_lightgbms_own(n_classes):
    data = make_biased(600, n_classes=n_classes, random_state=0)
    kind = {"objective": "binary"}
    if n_classes > 2:
        kind = {"objective": "multiclass", "num_class": n_classes}
    weight = np.random.default_rng(0).uniform(0.5, 2, len(data.y)).astype(np.float32)
    settings = {**PLAIN, **kind, "boost_from_average": False}
    own = lgb.train(settings, lgb.Dataset(data.X, data.y, weight=weight), 20)
    objective = boosting_objective(data.y, data.sensitive_features, fairness_weight=0)
    found = train_lightgbm(data, objective, n_classes, 20, weight)
    assert_allclose(found, own.predict(data.X, raw_score=True), atol=1e-6)


def test_an_objective_says_its_value_and_refuses_other_rows(data):
    objective = boosting_objective(data.y, data.sensitive_features)
    rows = lgb.Dataset(data.X, data.y).construct()
    assert_allclose(objective.value(np.zeros(len(data.y)), rows), np.log(2))
    with pytest.raises(InvalidInputError, match="num_class"):
        objective(np.zeros(3), rows)
    other = boosting_objective(data.y, data.sensitive_features)
    with pytest.raises(InvalidInputError, match="not those of y"):
        other(np.zeros(len(data.y)), lgb.Dataset(data.X, 1 - data.y).construct())
    with pytest.raises(InvalidInputError, match="class code per row, 0, 1"):
        boosting_objective(data.y + 1, data.sensitive_features)
    with pytest.raises(InvalidParameterError, match="fairness_weight must be"):
        boosting_objective(data.y, data.sensitive_features, fairness_weight=-1)
