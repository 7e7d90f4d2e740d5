"""Fair trees: how they are trained, and what comes out."""

import itertools
import pickle

import numpy as np
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
    with pytest.raises(PersistenceError, match="cannot be loaded"):
        fferm.load(tmp_path / "model.fferm")


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
        **{**FAST, "n_estimators": 40, "max_violation": 0.05, "categorical": []}
    )
    model.fit(adult.frame[rows], adult.y[rows], sensitive_features=sex)
    assert model.feasible_
    assert model.violation_ <= 0.05
    assert model.fairness_weight_ > 0
    decided = model.predict(adult.frame_test)
    others = adult.sensitive_features_test
    assert violation(adult.y_test, decided, sensitive_features=others) < 0.08


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
