"""Baselines keep their contract, refuse bad input and differentiate correctly."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError

from fferm import divergences, tables
from fferm.datasets import load_german, make_biased
from fferm.errors import (
    ComponentError,
    InvalidInputError,
    InvalidParameterError,
    MissingDependencyError,
    MissingSensitiveError,
    NonFiniteError,
    install_line,
)
from fferm.lab import baselines
from fferm.lab.baselines import (
    Baseline,
    ConstrainedBaseline,
    CovarianceConstraint,
    CurvatureMatching,
    ExponentiatedGradient,
    Fermi,
    KernelChiSquare,
    LinearBaseline,
    PenalizedBaseline,
    RenyiFairInference,
    RobustCovariateShift,
    ThresholdPostprocessing,
)
from fferm.lab.baselines.robust import play, play_on_labels
from fferm.testing import check_baseline

ABSTRACT = {Baseline, ConstrainedBaseline, LinearBaseline, PenalizedBaseline}
BASELINES = [
    baseline
    for baseline in (getattr(baselines, name) for name in baselines.__all__)
    if issubclass(baseline, Baseline) and baseline not in ABSTRACT
]
PENALIZED = [cls for cls in BASELINES if issubclass(cls, PenalizedBaseline)]
WRAPPED = {"ExponentiatedGradient", "ReductionsGrid", "ThresholdPostprocessing"}


@pytest.mark.parametrize("baseline", BASELINES, ids=lambda baseline: baseline.__name__)
def test_every_baseline_keeps_the_contract(baseline):
    if baseline.__name__ in WRAPPED:
        pytest.importorskip("fairlearn")
    if baseline.__name__ == "RelaxedThresholds":
        pytest.importorskip("error_parity")
    check_baseline(baseline())


@pytest.mark.parametrize("size", [1, 2, 9, 60])
@pytest.mark.parametrize("baseline", PENALIZED, ids=lambda baseline: baseline.__name__)
def test_a_penalty_writes_its_own_derivative(baseline, size):
    rng = np.random.default_rng(size)
    prob, group = rng.uniform(0.05, 0.95, size), rng.integers(0, 3, size)
    settings, slope, step = np.array(baseline()._settings()), np.zeros(size), 1e-6

    def value(prob):
        return baseline.penalty(prob, group, 3, settings, np.zeros(size))

    baseline.penalty(prob, group, 3, settings, slope)
    moves = step * np.eye(size)
    difference = [(value(prob + m) - value(prob - m)) / (2 * step) for m in moves]
    # Rounding of values of at most 10 over two steps.
    assert_allclose(slope, difference, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("batch_size", [None, 8, 2, 1])
@pytest.mark.parametrize("baseline", PENALIZED, ids=lambda baseline: baseline.__name__)
def test_a_penalty_trains_at_any_batch_size(baseline, batch_size):
    data = make_biased(300, n_groups=3, random_state=0)
    model = baseline(batch_size=batch_size, max_epochs=1, random_state=0)
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    assert np.all(np.isfinite(model.coef_))


@pytest.mark.parametrize("baseline", PENALIZED, ids=lambda baseline: baseline.__name__)
def test_a_batch_of_one_group_has_nothing_to_compare(baseline):
    slope = np.zeros(4)
    prob, group = np.array([0.1, 0.4, 0.4, 0.8]), np.ones(4, dtype=np.int64)
    value = baseline.penalty(prob, group, 2, np.array(baseline()._settings()), slope)
    assert value == pytest.approx(0, abs=1e-12)
    assert_allclose(slope, 0, atol=1e-12)


def test_renyi_correlation_of_two_classes_is_the_chi_square_divergence():
    rng = np.random.default_rng(0)
    prob, group = rng.uniform(size=50), rng.integers(0, 4, 50)
    found = RenyiFairInference.penalty(prob, group, 4, np.zeros(0), np.zeros(50))
    table = tables.joint(np.column_stack([1 - prob, prob]), group, 4)
    assert found == pytest.approx(divergences.get("chi2").between(table), rel=1e-12)


def test_the_kernel_chi_square_teaches_nothing_in_batches_of_two():
    slope = np.zeros(2)
    KernelChiSquare.penalty(
        np.array([0.2, 0.7]), np.array([0, 1]), 2, np.array([50.0, 2.5]), slope
    )
    assert_allclose(slope, 0, atol=1e-12)


def test_strata_are_compared_one_by_one():
    data = load_german("age_over_25")
    fitted = {}
    for notion in ("demographic_parity", "equal_opportunity"):
        model = RenyiFairInference(fairness_weight=30, notion=notion)
        model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
        fitted[notion] = model.predict_proba(data.X)[:, 1]
    old = data.sensitive_features.to_numpy().ravel() == ">25"
    good = data.y == 1
    gaps = {
        name: abs(prob[old & good].mean() - prob[~old & good].mean())
        for name, prob in fitted.items()
    }
    assert gaps["equal_opportunity"] < gaps["demographic_parity"]
    assert gaps["equal_opportunity"] < 0.02


def test_sparse_features_give_the_same_model():
    import scipy.sparse

    data = make_biased(200, random_state=0)
    dense, sparse = (
        RenyiFairInference().fit(X, data.y, sensitive_features=data.sensitive_features)
        for X in (data.X, scipy.sparse.csr_matrix(data.X))
    )
    assert_allclose(dense.coef_, sparse.coef_)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            RenyiFairInference(fairness_weight=-1),
            r"fairness_weight must be .*; got -1\.",
        ),
        (RenyiFairInference(batch_size=0), r"batch_size must be .*; got 0\."),
        (RenyiFairInference(notion="sufficiency"), "must be one of demographic_parity"),
        (CovarianceConstraint(share=2), r"share must be .*; got 2\."),
        (CovarianceConstraint(l2=-1), r"l2 must be .*; got -1\."),
        (RobustCovariateShift(share=2), r"share must be .*; got 2\."),
        (
            CurvatureMatching(curvature_weight=-1),
            r"curvature_weight must be .*; got -1\.",
        ),
        (
            ExponentiatedGradient(difference_bound=-1),
            r"difference_bound must be .*; got -1\.",
        ),
        (
            ThresholdPostprocessing(tolerance=0.1, notion="equalized_odds"),
            "fairlearn cannot relax",
        ),
    ],
)
def test_a_parameter_out_of_range_is_named(model, message):
    data = make_biased(400, random_state=0)
    with pytest.raises(InvalidParameterError, match=message):
        model.fit(data.X, data.y, sensitive_features=data.sensitive_features)


def test_missing_groups_are_refused():
    data = make_biased(100, random_state=0)
    groups = data.sensitive_features.iloc[:, 0].astype(object).tolist()
    groups[:3] = [None] * 3
    with (
        pytest.warns(UserWarning, match="3 of"),
        pytest.raises(InvalidInputError, match="3 rows have no value"),
    ):
        Fermi().fit(data.X, data.y, sensitive_features=groups)


def test_thresholds_by_group_need_known_groups_to_predict():
    pytest.importorskip("fairlearn")
    data = make_biased(400, random_state=0)
    model = ThresholdPostprocessing()
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    with pytest.raises(MissingSensitiveError, match="decides by group"):
        model.predict(data.X_test)
    with pytest.raises(InvalidInputError, match=r"not trained on the groups \['new'\]"):
        model.predict(data.X_test, sensitive_features=["new"] * len(data.X_test))


@pytest.mark.parametrize("strategy", [play, play_on_labels])
def test_an_adversary_of_labels_plays_the_derivative_of_the_game(strategy):
    rng, step = np.random.default_rng(0), 1e-6
    score, pull = rng.normal(0, 3, 200), rng.uniform(-5, 5, 200)
    found, up, down = (strategy(score + move, pull) for move in (0, step, -step))
    assert np.all(np.abs(found.label - 0.5) <= 0.5 + 1e-12)
    assert_allclose(found.label, (up.value - down.value) / (2 * step), atol=1e-8)
    # Where the adversary has just become certain the second derivative jumps.
    smooth = (up.bend > 0) == (down.bend > 0)
    bend = (up.label - down.label) / (2 * step)
    assert_allclose(found.bend[smooth], bend[smooth], atol=1e-8)
    assert np.any(found.bend == 0)


@pytest.mark.parametrize("notion", RobustCovariateShift.notions)
def test_what_is_left_of_a_violation_is_left_on_target_rows(notion):
    data = load_german("age_over_25")
    groups = data.sensitive_features
    target = data.X_test + 0.3, data.sensitive_features_test
    left = {}
    for share in (1.0, 0.4):
        model = RobustCovariateShift(notion=notion, share=share)
        model.fit(data.X, data.y, sensitive_features=groups, penalty_data=target)
        rows = model._encode(data.X, data.y, groups)
        code = np.searchsorted(model.groups_, target[1].to_numpy().ravel())
        factor = np.array([-1, 1]) / model._shares(rows, target[0], code)
        left[share] = model._violation(target[0], code, factor)
    # The multiplier is known to a thousandth.
    assert left[0.4] == pytest.approx(0.4 * left[1.0], abs=2e-3)


def test_far_from_training_rows_an_adversary_leaves_less_to_be_sure_of():
    data = load_german("age_over_25")
    far, groups = data.X_test + 0.5, data.sensitive_features_test
    chance = {}
    for name, target in {"none": None, "far": (far, groups)}.items():
        model = RobustCovariateShift(notion="demographic_parity", share=1)
        model.fit(
            data.X,
            data.y,
            sensitive_features=data.sensitive_features,
            penalty_data=target,
        )
        chance[name] = model.predict_proba(far, sensitive_features=groups)[:, 1]
    sure = {name: np.mean(np.abs(prob - 0.5)) for name, prob in chance.items()}
    assert sure["far"] < sure["none"]


def test_groups_that_an_adversary_does_not_know_are_refused():
    data = make_biased(200, n_groups=3, random_state=0)
    model = RobustCovariateShift()
    with pytest.raises(InvalidInputError, match="needs two groups; got 3"):
        model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    data = make_biased(200, random_state=0)
    target = data.X_test, ["new"] * len(data.X_test)
    with pytest.raises(InvalidInputError, match=r"not trained on the groups \['new'\]"):
        model.fit(
            data.X,
            data.y,
            sensitive_features=data.sensitive_features,
            penalty_data=target,
        )


def test_without_fairlearn_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fairlearn.reductions", None)
    data = make_biased(100, random_state=0)
    with pytest.raises(
        MissingDependencyError, match=re.escape(install_line("baselines"))
    ):
        ExponentiatedGradient().fit(
            data.X, data.y, sensitive_features=data.sensitive_features
        )


class Undocumented(RenyiFairInference):
    """A baseline that says nothing."""


class Ineffective(RenyiFairInference):
    """A baseline whose parameter does nothing.

    Notes
    -----
    Differs from the original: all of it.

    References
    ----------
    None.
    """

    @staticmethod
    def penalty(prob, group, n_groups, settings, slope):
        return 0.0


class Careless(Ineffective):
    """A baseline that forgets its derivative.

    Notes
    -----
    Differs from the original: all of it.

    References
    ----------
    None.
    """

    @staticmethod
    def penalty(prob, group, n_groups, settings, slope):
        return (prob * group).sum()


class Divisive(Ineffective):
    """A baseline that divides by what may be 0.

    Notes
    -----
    Differs from the original: all of it.

    References
    ----------
    None.
    """

    @staticmethod
    def penalty(prob, group, n_groups, settings, slope):
        return 1.0 / group.min()


class Misnamed(Ineffective):
    """A baseline with another's parameter.

    Notes
    -----
    Differs from the original: all of it.

    References
    ----------
    None.
    """

    tradeoff_param = "share"


class Forgetful(RenyiFairInference):
    """A baseline that overwrites what it was asked for.

    Notes
    -----
    Differs from the original: all of it.

    References
    ----------
    None.
    """

    def _train(self, rows):
        super()._train(rows)
        self.max_epochs = 1


@pytest.mark.parametrize(
    ("baseline", "law"),
    [
        (Undocumented, "no section Notes"),
        (Ineffective, "trades accuracy for fairness"),
        (Misnamed, "not a parameter of Misnamed"),
        (Careless, "a penalty writes its own derivative"),
        (Divisive, r"probabilities \(0.0, 1.0.* made it divide by zero"),
        (Forgetful, "fit changed its own parameters"),
    ],
)
def test_a_broken_contract_is_told(baseline, law):
    with pytest.raises(ComponentError, match=law):
        check_baseline(baseline())


@pytest.mark.parametrize("batch_size", [None, 8])
def test_a_penalty_that_divides_by_zero_is_told_why(batch_size):
    data = make_biased(100, random_state=0)
    model = Divisive(batch_size=batch_size, random_state=0)
    with pytest.raises(NonFiniteError, match="penalty of Divisive divided by zero"):
        model.fit(data.X, data.y, sensitive_features=data.sensitive_features)


def test_the_decision_function_is_the_logit_of_the_probability():
    data = make_biased(200, random_state=0)
    model = RenyiFairInference()
    with pytest.raises(NotFittedError, match="not fitted"):
        model.decision_function(data.X)
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    prob = model.predict_proba(data.X)[:, 1]
    assert_allclose(model.decision_function(data.X), np.log(prob / (1 - prob)))
