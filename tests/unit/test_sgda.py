"""Fair logistic regression on minibatches: the same model at every batch size."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

import fferm
from fferm import FairLogisticRegression, LargeShift, tradeoff_curve
from fferm.data.rows import FitInput
from fferm.datasets import load_adult, make_biased
from fferm.divergences import Divergence, get
from fferm.errors import ConvergenceWarning, InvalidParameterError
from fferm.metrics import soft_violation
from fferm.notions import EqualOpportunity
from fferm.solvers import LBFGS, Result, full_batch, stochastic
from fferm.solvers.linear import value_and_gradient
from fferm.solvers.stochastic import SGDA

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")


@pytest.fixture(scope="module")
def data():
    return make_biased(1000, n_groups=3, random_state=0)


def fit(data, **options):
    options = {"solver": "sgda", "fairness_weight": 3.0, "random_state": 0} | options
    model = FairLogisticRegression(**options)
    return model.fit(data.X, data.y, sensitive_features=data.sensitive_features)


def objective_of(model, data):
    """Return the objective at the parameters of a model, and the best there is."""
    given = FitInput(data.X, data.y, data.sensitive_features)
    problem = model._encode(given).problem
    theta = np.column_stack([model.coef_, model.intercept_])
    best = LBFGS().solve(problem).stats["objective"]
    return value_and_gradient(problem, theta)[0], best


@pytest.mark.parametrize("batch_size", [1, 2, 8, 64, 10_000])
def test_every_batch_size_gives_the_model_of_the_full_batch(batch_size, data):
    found, best = objective_of(fit(data, batch_size=batch_size), data)
    assert best <= found + 1e-9 < 1.005 * best


@pytest.mark.parametrize(
    "notion",
    ["demographic_parity", EqualOpportunity(positive=1), "equalized_odds"],
    ids=str,
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_notion_of_strata_is_trained(notion, n_classes):
    data = make_biased(1500, n_classes=n_classes, random_state=1)
    found, best = objective_of(fit(data, notion=notion), data)
    assert found < 1.01 * best


def test_sparse_rows_weights_marginal_groups_and_gaps_are_trained(data):
    place = np.arange(len(data.y))
    s = {
        "a": np.where(place % 7 == 0, None, place % 2),
        "b": data.sensitive_features["group"].to_numpy(),
    }
    rows = {
        "sensitive_features": s,
        "sample_weight": np.random.default_rng(0).uniform(0.5, 2, len(data.y)),
    }
    options = {"groups": "marginal", "fairness_weight": 3.0}
    full = FairLogisticRegression(**options).fit(data.X, data.y, **rows)
    dense, sparse = (
        FairLogisticRegression(solver="sgda", random_state=0, **options).fit(
            X, data.y, **rows
        )
        for X in (data.X, scipy.sparse.csr_array(data.X))
    )
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-8)
    np.testing.assert_allclose(
        dense.predict_proba(data.X), full.predict_proba(data.X), atol=0.03
    )


def test_the_penalty_may_be_taken_on_other_rows(data):
    def soft_gap(model):
        return soft_violation(
            data.y_test,
            model.predict_proba(data.X_test),
            classes=[0, 1],
            sensitive_features=data.sensitive_features_test,
        )

    model = FairLogisticRegression(solver="sgda", fairness_weight=20.0, random_state=0)
    model.fit(data.X, data.y, penalty_data=(data.X_test, data.sensitive_features_test))
    plain = FairLogisticRegression(fairness_weight=0).fit(data.X, data.y)
    assert soft_gap(model) < soft_gap(plain) / 3


def test_a_seed_gives_the_same_model_and_another_seed_a_near_one(data):
    first, again, other = fit(data), fit(data), fit(data, random_state=1)
    np.testing.assert_array_equal(first.coef_, again.coef_)
    assert not np.array_equal(first.coef_, other.coef_)
    np.testing.assert_allclose(
        first.predict_proba(data.X), other.predict_proba(data.X), atol=0.05
    )


def test_a_curve_trains_its_weights_as_lanes(data):
    curve = tradeoff_curve(
        FairLogisticRegression(solver="sgda"),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        fairness_weights=[0, 1, 10],
    )
    train = curve.records.query("split == 'train'")
    assert train["soft_violation"].is_monotonic_decreasing
    assert set(train["result"]) == {"schedule_completed"}


def test_a_plain_model_needs_no_groups(data):
    model = FairLogisticRegression(solver="sgda", fairness_weight=0, random_state=0)
    model.fit(data.X, data.y)
    full = FairLogisticRegression(fairness_weight=0).fit(data.X, data.y)
    np.testing.assert_allclose(
        model.predict_proba(data.X), full.predict_proba(data.X), atol=0.03
    )


def test_a_users_own_divergence_runs_in_the_kernel(data):
    @dataclass(frozen=True)
    class Neyman(Divergence):
        name: ClassVar[str] = "neyman_of_the_sgda_test"

        def f(self, t, xp):
            return (t - 1) * (t - 1) / (2 * xp.where(t > 0, t, 1e-300))

        def f_prime(self, t, xp):
            safe = xp.where(t > 0, t, 1e-150)
            return (1 - 1 / (safe * safe)) / 2

        def conjugate(self, a, xp):
            return 1 - xp.sqrt(xp.where(a < 0.5, 1 - 2 * a, 0.0))

        def conjugate_prime(self, a, xp):
            return 1 / xp.sqrt(xp.where(a < 0.5, 1 - 2 * a, 1e-300))

    found, best = objective_of(fit(data, divergence=Neyman()), data)
    assert found < 1.01 * best


def test_a_penalty_that_minibatches_cannot_train_is_refused_by_name(data):
    with pytest.raises(InvalidParameterError, match=r"that of LargeShift.*'lbfgs'"):
        fit(data, divergence="js", uncertainty=LargeShift(0.01))
    with pytest.raises(InvalidParameterError, match=r"that of Sufficiency.*'lbfgs'"):
        fit(data, notion="sufficiency")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size must be .*; got 0"),
        ({"batch_size": 2.5}, r"batch_size must be .*; got 2\.5"),
        ({"max_epochs": -1}, "max_epochs must be .*; got -1"),
        ({"learning_rate": 0}, "learning_rate must be .*; got 0"),
    ],
)
def test_options_out_of_range_are_refused(options, words, data):
    with pytest.raises(InvalidParameterError, match=words):
        fit(data, **options)


def test_a_model_of_minibatches_is_saved_and_loaded(data, tmp_path):
    model = fit(data)
    fferm.save(model, tmp_path / "model")
    back = fferm.load(tmp_path / "model")
    np.testing.assert_array_equal(
        back.predict_proba(data.X), model.predict_proba(data.X)
    )


@pytest.mark.parametrize(
    ("divergence", "largest"),
    [("kl", 0.005), ("chi2", 0.005), ("reverse_kl", 0.005), ("total_variation", 0.02)],
)
def test_adult_by_sex_and_race_is_right_at_small_batches(divergence, largest):
    data = load_adult(sensitive=("sex", "race"))
    options = {"divergence": divergence, "fairness_weight": 10.0}
    for batch_size in (2, 64):
        model = fit(data, batch_size=batch_size, **options)
        found, best = objective_of(model, data)
        assert found < (1 + largest) * best


@pytest.mark.parametrize("early_stopping", ["training", "validation"])
@pytest.mark.parametrize("solver", ["sgda", "semi_stochastic", "sreda"])
def test_training_stops_when_nothing_is_gained(data, solver, early_stopping):
    options = {"max_epochs": 400, "early_stopping": early_stopping, "solver": solver}
    model = fit(data, **options)
    assert model.result_ is Result.nothing_gained
    assert model.n_iter_ < 400
    assert len(model.history_) > 3
    found, best = objective_of(model, data)
    assert found < 1.01 * best


def test_patience_is_counted_in_epochs_without_a_gain(data):
    short, long = (
        fit(data, max_epochs=400, early_stopping="training", patience=n) for n in (1, 8)
    )
    assert short.n_iter_ < long.n_iter_


def test_the_lanes_of_a_path_stop_together(data, monkeypatch):
    monkeypatch.setattr(stochastic, "n_threads", lambda: 2)
    model = FairLogisticRegression(
        solver="sgda", max_epochs=400, early_stopping="training", random_state=0
    )
    given = FitInput(data.X, data.y, data.sensitive_features)
    weights = [0.1 * 2**n for n in range(16)]
    assert len({lane.n_iter_ for lane in model.fit_path(given, weights)}) == 1


def validation_parts(model, data):
    """Return the problems that a model trains on and is judged by."""
    encoded = model._prepare(FitInput(data.X, data.y, data.sensitive_features))
    return encoded.problem, encoded.watched.problem


def test_early_stopping_keeps_the_best_model_that_was_met(data):
    model = fit(data, max_epochs=400, early_stopping="validation")
    met = [record["objective"] for record in model.history_]
    assert np.argmin(met) < len(met) - 1
    theta = np.column_stack([model.coef_, model.intercept_])
    _, judged_on = validation_parts(model, data)
    found = value_and_gradient(judged_on, theta)[0]
    assert found == pytest.approx(min(met), rel=1e-9)


def test_rows_for_early_stopping_are_not_trained_on(data, monkeypatch):
    trained_on, begin = [], SGDA.begin

    def noted(self, problem, start, weights):
        trained_on.append(problem.X)
        return begin(self, problem, start, weights)

    monkeypatch.setattr(SGDA, "begin", noted)
    model = fit(data, early_stopping="validation", validation_fraction=0.3)
    problem, judged_on = validation_parts(model, data)
    np.testing.assert_array_equal(trained_on, [problem.X])
    assert judged_on.y.size == pytest.approx(0.3 * len(data.y), abs=3)
    both = np.concatenate([problem.X, judged_on.X])
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(data.X, axis=0))


def test_lanes_stop_together_and_each_keeps_its_best(data):
    model = FairLogisticRegression(
        solver="sgda", random_state=0, early_stopping="training", max_epochs=400
    )
    given = FitInput(data.X, data.y, data.sensitive_features)
    models = list(model.fit_path(given, [0.0, 1.0, 5.0]))
    assert {m.n_iter_ for m in models} == {models[0].n_iter_}
    for one in models:
        found, best = objective_of(one, data)
        assert found < 1.01 * best


def test_auto_takes_minibatches_where_stopping_is_asked_for(data):
    stopped = fit(data, solver="auto", early_stopping="training")
    assert stopped.result_.name in ("nothing_gained", "schedule_completed")
    robust = {"uncertainty": LargeShift(0.001), "divergence": "js"}
    model = FairLogisticRegression(early_stopping="training", **robust)
    size = data.X.size
    assert model._solver_name(model._objective(), size, [1.0]) == "semi_stochastic"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"early_stopping": "loss"}, "early_stopping must be .*; got 'loss'"),
        (
            {"early_stopping": "training", "solver": "lbfgs"},
            "no early_stopping. Use solver='sgda'",
        ),
        ({"early_stopping": "training", "patience": 0}, "patience must be .*; got 0"),
        ({"dual": "primal"}, "dual must be .*; got 'primal'"),
    ],
)
def test_options_that_do_not_fit_are_refused(data, options, words):
    with pytest.raises(InvalidParameterError, match=words):
        fit(data, **options)


@pytest.mark.parametrize("divergence", ["kl", "chi2", "total_variation"])
def test_either_variable_of_the_dual_reaches_the_optimum(data, divergence):
    models = [
        fit(data, dual=dual, divergence=divergence)
        for dual in ("log_ratio", "projected")
    ]
    for model in models:
        found, best = objective_of(model, data)
        assert found < 1.02 * best
    # Of Kullback-Leibler, the dual is the log-ratio.
    is_same = np.allclose(models[0].coef_, models[1].coef_, rtol=1e-9, atol=0)
    assert is_same == (divergence == "kl")


@pytest.mark.parametrize("solver", ["sgda", "sreda"])
def test_the_step_of_the_dual_can_be_set(data, solver):
    usual, named, other = (
        fit(data, solver=solver, max_epochs=1, **options).coef_
        for options in ({}, {"dual_learning_rate": 4.0}, {"dual_learning_rate": 0.5})
    )
    np.testing.assert_array_equal(named, usual)
    assert not np.allclose(other, usual, rtol=1e-3)


def test_many_lanes_are_shared_between_threads_and_come_out_the_same(data, monkeypatch):
    model = FairLogisticRegression(solver="sgda", random_state=0)
    given = FitInput(data.X, data.y, data.sensitive_features)
    weights = list(np.geomspace(0.1, 10, 17))
    found, shares, in_threads = [], [], stochastic.in_threads

    def noted(function, arguments):
        shares.append([len(part) for (part,) in arguments])
        return in_threads(function, arguments)

    monkeypatch.setattr(stochastic, "in_threads", noted)
    for count in (1, 2):
        monkeypatch.setattr(stochastic, "n_threads", lambda count=count: count)
        monkeypatch.setattr(full_batch, "n_threads", lambda count=count: count)
        found.append([m.coef_ for m in model.fit_path(given, weights)])
    assert shares == [[17], [9, 8]]
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("divergence", "weight", "change"),
    [
        ("total_variation", 30.0, lambda X: X),
        ("kl", 1.0, lambda X: X * np.array([1e4, 50.0, 1.0, 1.0, 1.0])),
    ],
    ids=["a kink", "features of other sizes"],
)
def test_a_run_that_ends_above_the_optimum_says_so_and_warns(
    divergence, weight, change
):
    data = make_biased(2000, random_state=0)
    X = change(data.X)
    s = data.sensitive_features
    options = {"divergence": divergence, "random_state": 0, "fairness_weight": weight}
    model = FairLogisticRegression(solver="sgda", **options)

    with pytest.warns(ConvergenceWarning, match="1 % above the optimum"):
        model.fit(X, data.y, sensitive_features=s)

    best = FairLogisticRegression(**options).fit(X, data.y, sensitive_features=s)
    excess = model.history_[-1]["objective"] / best.history_[-1]["objective"] - 1
    assert model.result_ is Result.above_optimum
    assert excess > 0.01


def test_only_the_models_of_a_path_that_end_above_the_optimum_say_so():
    data = make_biased(2000, random_state=0)
    model = FairLogisticRegression(
        divergence="total_variation", solver="sgda", random_state=0
    )

    with pytest.warns(ConvergenceWarning, match="1 % above the optimum"):
        near, far = model.fit_path(
            FitInput(data.X, data.y, data.sensitive_features), [1.0, 30.0]
        )

    assert near.result_ is Result.schedule_completed
    assert far.result_ is Result.above_optimum


def test_large_features_that_train_well_are_not_warned_of():
    data = make_biased(2000, random_state=0)
    X = data.X.copy()
    X[0, 0] = 101.0
    model = FairLogisticRegression(solver="sgda", random_state=0)

    model.fit(X, data.y, sensitive_features=data.sensitive_features)

    assert model.result_ is Result.schedule_completed


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(1.0, Result.schedule_completed), (1e4, Result.converged)],
)
def test_auto_takes_the_full_batch_for_unscaled_features(monkeypatch, factor, expected):
    monkeypatch.setattr("fferm.solvers.base.SINGLE_FROM", 1)
    data = make_biased(2000, random_state=0)
    X = data.X * np.array([factor, 1.0, 1.0, 1.0, 1.0])
    model = FairLogisticRegression(random_state=0)

    model.fit(X, data.y, sensitive_features=data.sensitive_features)

    assert model.result_ is expected


@pytest.mark.parametrize("divergence", ["kl", "chi2"])
def test_plain_steps_are_those_of_algorithm_1_as_printed(divergence):
    data, f, weight = make_biased(60, random_state=0), get(divergence), 2.0
    X, y = np.column_stack([data.X, np.ones(len(data.y))]), data.y
    names = data.sensitive_features.to_numpy().ravel()
    member = (names[:, None] == np.unique(names)).astype(float)
    n_rows, prior = len(y), member.mean(axis=0)
    rates = {"learning_rate": 0.05, "dual_learning_rate": 0.02}
    model = FairLogisticRegression(
        divergence=divergence, fairness_weight=weight, solver="sgda", dual="plain",
        batch_size=n_rows, l2=0.0, **rates,
    )  # fmt: skip
    model.fit(data.X, y, sensitive_features=data.sensitive_features)

    theta, A = np.zeros(X.shape[1]), np.zeros((2, prior.size))
    for _ in range(-(-100_000 // n_rows)):  # a pass is a step
        p = 1 / (1 + np.exp(-X @ theta))
        joint = np.stack([1 - p, p]) @ member / n_rows
        ratio = f.conjugate_prime(A, np)
        slope = joint - prior * joint.sum(axis=1, keepdims=True) * ratio
        payoff = A @ member.T - (f.conjugate(A, np) @ prior)[:, None]
        push = p - y + weight * p * (1 - p) * (payoff[1] - payoff[0])
        theta = theta - rates["learning_rate"] * X.T @ push / n_rows
        A = A + rates["dual_learning_rate"] * slope
    assert_allclose(model.coef_[0], theta[:-1], rtol=1e-9, atol=1e-12)
    assert model.intercept_[0] == pytest.approx(theta[-1], rel=1e-9)
