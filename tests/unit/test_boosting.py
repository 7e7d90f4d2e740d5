"""Fair trees: what goes in, what comes out, and what is refused."""

import itertools
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

lgb = pytest.importorskip("lightgbm")

import fferm  # noqa: E402 - after lightgbm
from fferm import (  # noqa: E402
    FairBoostingClassifier,
    LargeShift,
    SmallShift,
    audit,
    boosting_objective,
    tradeoff_curve,
)
from fferm.datasets import load_adult, make_biased  # noqa: E402
from fferm.errors import (  # noqa: E402
    CollapseWarning,
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
    MissingSensitiveError,
    PersistenceError,
)
from fferm.metrics import violation  # noqa: E402
from fferm.solvers import Result  # noqa: E402

FAST = {"n_estimators": 20, "num_leaves": 7, "n_jobs": 1, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return make_biased(600, random_state=0)


def fit(data, X=None, y=None, **options):
    model = FairBoostingClassifier(**{**FAST, **options})
    return model.fit(
        data.X if X is None else X,
        data.y if y is None else y,
        sensitive_features=data.sensitive_features,
    )


def gap(model, data):
    decided = model.predict(data.X)
    return violation(data.y, decided, sensitive_features=data.sensitive_features)


def objectives(model):
    return np.array([record["objective"] for record in model.history_])


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
    with pytest.raises(PersistenceError, match="its content makes none"):
        fferm.load(tmp_path / "model.fferm")


def test_an_audit_takes_the_model(data):
    model = fit(data, fairness_weight=10)
    found = audit(
        model, data.X_test, data.y_test, sensitive_features=data.sensitive_features_test
    )
    assert 0 <= found.violation <= 1


# ---- what goes in -------------------------------------------------------------------

FORMS = {
    "pandas": pd.DataFrame,
    "polars": lambda X: pl.DataFrame(X, schema=[f"x{j}" for j in range(X.shape[1])]),
    "csr": sp.csr_array,
    "list": lambda X: X.tolist(),
}


@pytest.mark.parametrize("form", FORMS)
def test_features_of_any_form_give_the_same_trees(form, data):
    reference = fit(data)
    model = fit(data, FORMS[form](data.X))
    found = model.predict_proba(FORMS[form](data.X_test))
    assert_allclose(found, reference.predict_proba(data.X_test), atol=1e-12)


def mixed(data, kind=pd.DataFrame):
    """The data with a column of text and one with gaps."""
    text = np.array(["low", "middle", "high"])[np.digitize(data.X[:, 0], [-0.5, 0.5])]
    gaps = np.where(np.abs(data.X[:, 1]) < 0.3, np.nan, data.X[:, 1])
    columns = {"kind of {text}": text, "gaps": gaps, "flag": data.X[:, 2] > 0}
    return kind(columns)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_categories_and_gaps_are_taken_as_they_are(kind, data):
    frame = mixed(data, kind)
    model = fit(data, frame, fairness_weight=1)
    assert model.categorical_ == (0,)
    assert model.feature_names_in_.tolist() == ["kind of {text}", "gaps", "flag"]
    assert model.score(frame, data.y) > 0.7
    assert "kind_of__text_" in model.booster_.feature_name()


def test_categories_are_recognised_by_their_names(data):
    frame = mixed(data)
    model = fit(data, frame)
    # Other levels first, in another order, and one that training never saw.
    other = pd.concat(
        [frame.iloc[[0]].assign(**{"kind of {text}": "new"}), frame[::-1]]
    )
    found = model.predict_proba(other)[1:][::-1]
    assert_array_equal(found, model.predict_proba(frame))


def test_lightgbm_predicts_frames_with_categories_by_itself(data):
    frame = mixed(data).astype({"kind of {text}": "category"})
    model = fit(data, frame)
    found = model.booster_.predict(frame)
    assert_allclose(found, model.predict_proba(frame)[:, 1], atol=1e-12)


def test_codes_in_an_array_can_be_categories(data):
    X = data.X.copy()
    X[:, 0] = np.digitize(X[:, 0], [-1, 0, 1])
    model = fit(data, X, categorical_features=[0])
    assert model.categorical_ == (0,)
    assert "num_cat=1" in model.booster_.model_to_string()
    with pytest.raises(InvalidInputError, match="no codes"):
        fit(data, categorical_features=[0])


def test_rows_of_weight_0_might_as_well_not_be_there(data):
    weight = np.random.default_rng(0).integers(0, 2, len(data.y)).astype(float)
    kept = weight > 0
    groups = data.sensitive_features
    one = FairBoostingClassifier(**FAST).fit(
        data.X, data.y, sensitive_features=groups, sample_weight=weight
    )
    other = FairBoostingClassifier(**FAST).fit(
        data.X[kept], data.y[kept], sensitive_features=groups[kept]
    )
    assert_array_equal(one.predict_proba(data.X), other.predict_proba(data.X))


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_only_ratios_of_extreme_weights_count(scale, data):
    weight = np.random.default_rng(0).uniform(0.5, 2, len(data.y))
    models = [
        FairBoostingClassifier(**FAST).fit(
            data.X,
            data.y,
            sensitive_features=data.sensitive_features,
            sample_weight=weight * factor,
        )
        for factor in (scale, 2 * scale)
    ]
    assert_allclose(*(model.predict_proba(data.X) for model in models))


def test_the_penalty_can_be_taken_on_other_rows():
    data, shifted = (make_biased(800, random_state=seed) for seed in (0, 1))
    model = FairBoostingClassifier(**FAST, fairness_weight=100)
    model.fit(data.X, data.y, penalty_data=(shifted.X, shifted.sensitive_features))
    plain = fit(data, fairness_weight=0)
    assert gap(model, shifted) < 0.05 < gap(plain, shifted)


def test_the_penalty_can_be_taken_on_other_rows_of_a_frame(data):
    frame = mixed(data)
    model = FairBoostingClassifier(**FAST, fairness_weight=100)
    model.fit(frame, data.y, penalty_data=(frame, data.sensitive_features))
    found = model.predict(frame)
    assert violation(data.y, found, sensitive_features=data.sensitive_features) < 0.1


PENALTIES = {
    "small shift": {"uncertainty": SmallShift(0.01)},
    "large shift": {"uncertainty": LargeShift(0.01), "divergence": "jensen_shannon"},
    "total variation": {"divergence": "total_variation", "fairness_weight": 0.5},
    "equal opportunity": {"notion": "equal_opportunity"},
    "predictive parity": {"notion": "predictive_parity"},
}


@pytest.mark.parametrize("name", PENALTIES)
def test_every_kind_of_penalty_trains(name, data):
    model = fit(data, **{"fairness_weight": 3, **PENALTIES[name]})
    assert model.score(data.X, data.y) > 0.6
    assert np.isfinite(objectives(model)).all()


def test_several_attributes_are_held_to_fairness_one_by_one(data):
    rng = np.random.default_rng(0)
    groups = data.sensitive_features.assign(other=rng.integers(0, 2, len(data.y)))
    model = FairBoostingClassifier(**FAST, groups="marginal", fairness_weight=100)
    model.fit(data.X, data.y, sensitive_features=groups)
    assert len(model.groups_) == 4
    assert gap(model, data) < 0.06


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
        **{**FAST, "n_estimators": 40, "max_violation": 0.05}
    )
    model.fit(adult.frame[rows], adult.y[rows], sensitive_features=sex)
    assert model.feasible_
    assert model.violation_ <= 0.05
    assert model.fairness_weight_ > 0
    decided = model.predict(adult.frame_test)
    others = adult.sensitive_features_test
    assert violation(adult.y_test, decided, sensitive_features=others) < 0.08


@pytest.mark.parametrize("criterion", ["loss", "violation", "objective"])
@pytest.mark.parametrize("weight", [0, 1])
def test_early_stopping_keeps_the_best_round(criterion, weight, data):
    options = {"early_stopping": criterion, "patience": 5, "n_estimators": 200}
    if weight == 0 and criterion == "violation":
        with pytest.raises(InvalidParameterError, match="looks at no groups"):
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
    from fferm.data import encode_rows
    from fferm.estimators.holdout import hold_out, kinds
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


# ---- what is refused ----------------------------------------------------------------

REFUSED = {
    "n_estimators": (0, "whole number above 0"),
    "learning_rate": (0, "above 0"),
    "num_leaves": (1, "at least 2"),
    "max_depth": (0, "whole number above 0"),
    "min_child_samples": (0, "whole number above 0"),
    "reg_lambda": (-1, "of at least 0"),
    "subsample": (1.5, "at most 1"),
    "colsample_bytree": (0, "above 0"),
    "early_stopping": ("accuracy", "'loss', 'violation' or 'objective'"),
    "n_jobs": (0, "whole number above 0"),
    "categorical_features": (["x"], "no column of X"),
    "lightgbm_params": ({"objective": "binary"}, "Leave it out"),
    "sharpness": (0, "above 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_parameter_is_refused_by_its_name(name, data):
    value, message = REFUSED[name]
    with pytest.raises(InvalidParameterError, match=message):
        fit(data, **{name: value})


def test_fairness_without_groups_is_refused(data):
    with pytest.raises(MissingSensitiveError, match="no sensitive_features came"):
        FairBoostingClassifier(**FAST).fit(data.X, data.y)


def test_infinity_and_dates_are_refused(data):
    X = data.X.copy()
    X[0, 0] = np.inf
    with pytest.raises(InvalidInputError, match="infinity"):
        fit(data, X)
    frame = mixed(data)
    frame.loc[0, "gaps"] = np.inf
    with pytest.raises(InvalidInputError, match="infinity in 'gaps'"):
        fit(data, frame)
    with pytest.raises(InvalidTypeError, match="holds dates"):
        fit(data, frame.assign(day=pd.Timestamp("2020-01-01")))


def test_text_where_there_were_numbers_is_refused(data):
    frame = mixed(data)
    model = fit(data, frame)
    with pytest.raises(InvalidInputError, match="could not convert"):
        model.predict(frame.assign(gaps="many"))


def test_early_stopping_and_other_rows_are_refused_together(data):
    model = FairBoostingClassifier(**FAST, early_stopping="loss")
    with pytest.raises(InvalidParameterError, match="taken on penalty_data"):
        model.fit(data.X, data.y, penalty_data=(data.X, data.sensitive_features))


def test_a_collapse_warns():
    data = make_biased(200, random_state=0)
    y = (np.arange(len(data.y)) % 20 == 0).astype(int)
    with pytest.warns(CollapseWarning, match="for every training row"):
        fit(data, y=y, fairness_weight=0, n_estimators=2)


def test_a_missing_lightgbm_is_named():
    code = (
        "import sys; sys.modules['lightgbm'] = None; import fferm\n"
        "fferm.boosting_objective\n"
        "try: fferm.FairBoostingClassifier\n"
        "except ImportError as error: print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("MissingDependencyError")
    assert 'pip install "fferm[boosting]"' in done.stdout


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
    with pytest.raises(InvalidInputError, match="class codes 0, 1"):
        boosting_objective(data.y + 1, data.sensitive_features)
    with pytest.raises(InvalidParameterError, match="fairness_weight=-1"):
        boosting_objective(data.y, data.sensitive_features, fairness_weight=-1)


@pytest.mark.parametrize("name", ["num_class", "boosting_type", "reg_alpha", "eta"])
def test_a_setting_of_lightgbm_that_fferm_sets_is_refused(name, data):
    with pytest.raises(InvalidParameterError, match=f"holds '{name}'"):
        fit(data, lightgbm_params={name: 1})
