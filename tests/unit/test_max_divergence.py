"""The constrained form: the smallest weight whose table keeps a divergence."""

import numpy as np
import pytest
from sklearn.base import clone

import fferm
from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairNetClassifier,
    FairRegressor,
    LargeShift,
    SmallShift,
)
from fferm.datasets import make_biased
from fferm.errors import FfermWarning, InfeasibleWarning, InvalidParameterError
from fferm.metrics import soft_violation
from fferm.metrics.certificates import divergence_for
from fferm.tables import joint, penalty

DATA = make_biased(3000, random_state=0)
X, Y = np.asarray(DATA.X), np.asarray(DATA.y)
GROUP = DATA.sensitive_features.iloc[:, 0].to_numpy()


def divergence_of(model, divergence="kl", uncertainty=None):
    """Return the divergence of a model's probabilities on the training rows."""
    code = np.unique(GROUP, return_inverse=True)[1]
    table = joint(model.predict_proba(X), code, 2)
    return penalty(table, divergence, uncertainty)[0]


def fit(model):
    return model.fit(X, Y, sensitive_features=GROUP)


@pytest.mark.parametrize("divergence", ["kl", "chi2", "total_variation"])
def test_the_smallest_weight_whose_table_keeps_the_divergence_is_found(divergence):
    plain = fit(FairLogisticRegression(divergence=divergence, fairness_weight=0.0))
    most = divergence_of(plain, divergence) / 10

    model = fit(FairLogisticRegression(divergence=divergence, max_divergence=most))

    assert model.feasible_ is True
    value = divergence_of(model, divergence)
    assert value == pytest.approx(model.divergence_value_, rel=1e-9)
    assert 0.8 * most < value <= most
    less = clone(model).set_params(
        max_divergence=None, fairness_weight=0.8 * model.fairness_weight_
    )
    assert divergence_of(fit(less), divergence) > most
    assert not hasattr(model, "violation_")


@pytest.mark.parametrize(
    "uncertainty", [SmallShift(0.005), LargeShift(0.005, mode="simplex")], ids=str
)
def test_with_an_uncertainty_set_the_worst_table_keeps_it(uncertainty):
    options = {"uncertainty": uncertainty, "divergence": "chi2"}
    plain = fit(FairLogisticRegression(**options, fairness_weight=0.0))
    most = divergence_of(plain, "chi2", uncertainty) / 3

    model = fit(FairLogisticRegression(**options, max_divergence=most))

    assert model.feasible_
    worst = divergence_of(model, "chi2", uncertainty)
    assert worst == pytest.approx(model.divergence_value_, rel=1e-9)
    assert divergence_of(model, "chi2") < worst <= most


def test_a_certificate_turns_a_violation_into_a_divergence():
    share = np.unique(GROUP, return_counts=True)[1] / GROUP.size
    most = divergence_for(0.1, share, "kl")

    model = fit(FairLogisticRegression(max_divergence=most))

    prob, options = model.predict_proba(X), {"classes": [0, 1]}
    soft = soft_violation(Y, prob, sensitive_features=GROUP, **options)
    assert model.feasible_
    assert soft <= 0.1


def test_every_estimator_takes_the_constraint():
    for model, target in (
        (FairBoostingClassifier(n_estimators=20, n_jobs=1), Y),
        (FairNetClassifier(hidden=(4,), max_epochs=4, random_state=0), Y),
        (FairRegressor(), X.sum(axis=1)),
    ):
        rows = {"sensitive_features": GROUP}
        plain = clone(model).set_params(max_divergence=1.0).fit(X, target, **rows)
        assert plain.fairness_weight_ == 0
        most = plain.divergence_value_ / 2
        model.set_params(max_divergence=most).fit(X, target, **rows)
        assert model.feasible_
        assert 0 <= model.divergence_value_ <= most
        assert model.fairness_weight_ > 0


def test_a_divergence_that_nothing_keeps_is_warned_of():
    model = FairLogisticRegression(max_divergence=0.0)
    with pytest.warns(InfeasibleWarning, match="max_divergence=0 with more than one"):
        fit(model)
    assert not model.feasible_


def test_a_constrained_model_is_saved_and_loaded(tmp_path):
    model = fit(FairLogisticRegression(max_divergence=0.01))
    fferm.save(model, tmp_path / "model.fferm")
    again = fferm.load(tmp_path / "model.fferm")
    assert again.divergence_value_ == model.divergence_value_
    assert again.get_params() == model.get_params()


def test_what_contradicts_the_constraint_is_refused():
    both = FairLogisticRegression(max_divergence=0.1, max_violation=0.1)
    with pytest.raises(InvalidParameterError, match="contradict each other"):
        fit(both)
    with pytest.raises(InvalidParameterError, match="'auto' compares several"):
        fit(FairLogisticRegression(max_divergence=0.1, divergence="auto"))
    with pytest.raises(InvalidParameterError, match="a critic has no table"):
        fit(FairRegressor(max_divergence=0.1, method="critic", max_epochs=1))
    with pytest.warns(FfermWarning, match="because max_divergence=0.1 finds its own"):
        fit(FairLogisticRegression(max_divergence=0.1, fairness_weight=3.0))
