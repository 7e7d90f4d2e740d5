"""Fair trees: what goes in, and what is refused."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from ulps import assert_same_up_to_ulps

lgb = pytest.importorskip("lightgbm")

from boosting_models import FAST, fit, gap, objectives  # noqa: E402 - after lightgbm

from fferm import (  # noqa: E402
    FairBoostingClassifier,
    LargeShift,
    SmallShift,
)
from fferm.datasets import make_biased  # noqa: E402
from fferm.errors import (  # noqa: E402
    CollapseWarning,
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
    MissingSensitiveError,
)
from fferm.metrics import violation  # noqa: E402


@pytest.fixture(scope="module")
def data():
    return make_biased(600, random_state=0)


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
    # Exponentials depend on where in an array a row lies.
    assert_same_up_to_ulps(found, model.predict_proba(frame))


def test_lightgbm_predicts_frames_with_categories_by_itself(data):
    frame = mixed(data).astype({"kind of {text}": "category"})
    model = fit(data, frame)
    found = model.booster_.predict(frame)
    assert_allclose(found, model.predict_proba(frame)[:, 1], atol=1e-12)


def test_codes_in_an_array_can_be_categories(data):
    X = data.X.copy()
    X[:, 0] = np.digitize(X[:, 0], [-1, 0, 1])
    model = fit(data, X, categorical=[0])
    assert model.categorical_ == (0,)
    assert "num_cat=1" in model.booster_.model_to_string()
    with pytest.raises(InvalidInputError, match="must hold integers"):
        fit(data, categorical=[0])


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


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_of_the_penalty_alone_have_leaves_of_their_own(n_classes):
    # The last column tells them from the rows with a label, so that a tree can be fair
    # on the ones without a change for the others.
    rng, n = np.random.default_rng(2), 600
    x, s = rng.normal(size=n), rng.integers(0, 2, n)
    y = np.digitize(x + 0.5 * rng.normal(size=n), [0, 1][: n_classes - 1])
    X = np.column_stack([x, np.zeros(n)])
    others = np.column_stack([rng.normal(size=n) + 2.4 * s, np.ones(n)])
    model, plain = (
        FairBoostingClassifier(fairness_weight=weight, n_estimators=40, random_state=0)
        for weight in (5, 0)
    )
    model.fit(X, y, penalty_data=(others, s))
    plain.fit(X, y, sensitive_features=s)
    means = [
        [fitted.predict_proba(others)[s == k].mean(axis=0) for k in (0, 1)]
        for fitted in (model, plain)
    ]
    fair, unfair = (np.abs(one - other).max() for one, other in means)
    assert fair < 0.01 < 0.4 < unfair
    assert model.score(X, y) > plain.score(X, y) - 0.02


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


# ---- what is refused ----------------------------------------------------------------

REFUSED = {
    "n_estimators": (0, "an integer of at least 1"),
    "learning_rate": (0, "above 0"),
    "num_leaves": (1, "at least 2"),
    "max_depth": (0, "an integer of at least 1"),
    "min_child_samples": (0, "an integer of at least 1"),
    "reg_lambda": (-1, "of at least 0"),
    "subsample": (1.5, "at most 1"),
    "colsample_bytree": (0, "above 0"),
    "early_stopping": ("accuracy", "'validation', 'loss' or 'violation'"),
    "n_jobs": (0, "an integer of at least 1"),
    "categorical": (["x"], "must be columns of X"),
    "lightgbm_params": ({"objective": "binary"}, "must not contain 'objective'"),
    "sharpness": (0, "above 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_parameter_is_refused_by_its_name(name, data):
    value, message = REFUSED[name]
    with pytest.raises(InvalidParameterError, match=message):
        fit(data, **{name: value})


def test_fairness_without_groups_is_refused(data):
    with pytest.raises(MissingSensitiveError, match="needs sensitive_features"):
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
    with pytest.raises(InvalidTypeError, match="contains dates"):
        fit(data, frame.assign(day=pd.Timestamp("2020-01-01")))


def test_text_where_there_were_numbers_is_refused(data):
    frame = mixed(data)
    model = fit(data, frame)
    with pytest.raises(InvalidInputError, match="could not convert"):
        model.predict(frame.assign(gaps="many"))


def test_early_stopping_and_other_rows_are_refused_together(data):
    model = FairBoostingClassifier(**FAST, early_stopping="loss")
    with pytest.raises(InvalidParameterError, match="None with penalty_data"):
        model.fit(data.X, data.y, penalty_data=(data.X, data.sensitive_features))


def test_a_collapse_warns():
    data = make_biased(200, random_state=0)
    y = (np.arange(len(data.y)) % 20 == 0).astype(int)
    with pytest.warns(CollapseWarning, match="for every training row"):
        fit(data, y=y, fairness_weight=0, n_estimators=2)


@pytest.mark.parametrize("name", ["num_class", "boosting_type", "reg_alpha", "eta"])
def test_a_setting_of_lightgbm_that_fferm_sets_is_refused(name, data):
    with pytest.raises(InvalidParameterError, match=f"must not contain '{name}'"):
        fit(data, lightgbm_params={name: 1})
