"""The fused pass over all rows against the objective in plain NumPy."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from instances import REGISTERED
from numpy.testing import assert_allclose
from test_sgda_kernel import CASES, make_problem

from fferm import LargeShift, SmallShift
from fferm.notions import get as get_notion
from fferm.solvers import LBFGS, full_batch, linear
from fferm.solvers.full_batch import FusedEvaluator
from fferm.solvers.linear import (
    Evaluator,
    make_evaluator,
    parameter_shape,
    value_and_gradient,
)

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")


def models(problem, count=1):
    rng = np.random.default_rng(2)
    return list(0.5 * rng.normal(size=(count, *parameter_shape(problem))))


def assert_parity(problem):
    (theta,) = models(problem)
    value, gradient = FusedEvaluator(problem).value_and_gradient(problem, theta)
    expected = value_and_gradient(problem, theta)
    assert value == pytest.approx(expected[0], rel=1e-12)
    assert_allclose(gradient, expected[1], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("divergence", REGISTERED)
def test_value_and_gradient_are_those_of_numpy(case, divergence):
    assert_parity(make_problem(REGISTERED[divergence], **case))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "change",
    [
        {"uncertainty": SmallShift(0.01)},
        {"uncertainty": LargeShift(0.01)},
        {"notion": get_notion("sufficiency")},
        {"fairness_weight": 0.0},
    ],
    ids=str,
)
def test_every_penalty_is_evaluated(change, n_classes):
    problem = make_problem("kl", "equalized_odds", n=40, n_classes=n_classes)
    objective = replace(problem.objective, **change)
    rows, classes = problem.penalty.rows, problem.penalty.classes
    penalty = type(problem.penalty)(objective, rows, classes)
    assert_parity(replace(problem, objective=objective, penalty=penalty))


def test_sparse_rows_and_rows_of_mostly_zeros_are_evaluated():
    problem = make_problem("chi2", n=40)
    zeros = replace(problem, X=np.where(problem.X < 0.8, 0.0, problem.X))
    assert FusedEvaluator(zeros).rows.X[1] is not None  # a compact copy
    assert_parity(zeros)
    assert_parity(replace(problem, X=scipy.sparse.csr_array(problem.X)))


def test_rows_of_numbers_and_ones_are_packed_and_evaluated(monkeypatch):
    problem = make_problem("chi2", "equalized_odds", n=40)
    rng = np.random.default_rng(3)
    ones = np.eye(12)[rng.integers(0, 12, (2, 40))]
    ones[1, ::3] = 0  # not all rows have as many ones
    X = np.column_stack([ones[0], problem.X[:, 0], ones[1], np.zeros(40)])
    X[::5, 12] = 0
    problem = replace(problem, X=scipy.sparse.csr_array(X))
    monkeypatch.setattr(full_batch, "LEAST_ROWS", 1)
    rows, place = FusedEvaluator(problem)._packed
    assert [part.shape for part in rows.X[:2]] == [(40, 1), (40, 2)]
    assert place[[12, 0, 25, 26]].tolist() == [0, 1, 25, 27]
    assert_parity(problem)
    few = replace(problem, X=scipy.sparse.csr_array(2 * X))
    assert FusedEvaluator(few)._packed[0].X[2] is not None  # numbers stay as they are
    assert_parity(few)


def test_the_penalty_may_be_taken_on_other_rows():
    problem = make_problem("js", n=40)
    assert_parity(replace(problem, penalty_X=problem.X[::-1] + 0.3))


def test_a_plain_model_is_evaluated():
    problem = replace(make_problem("kl", n=40), penalty=None)
    assert_parity(problem)
    (theta,) = models(problem)
    (found,) = FusedEvaluator(problem).measure(problem, [theta], [0.0])
    assert found.dual == FusedEvaluator(problem).duals(problem, theta) == ()


def test_rows_with_groups_are_evaluated_without_a_penalty_where_there_is_none():
    problem = make_problem("kl", n=40)
    evaluator, (theta,) = FusedEvaluator(problem), models(problem)
    plain = replace(problem, penalty=None)
    value, gradient = evaluator.value_and_gradient(plain, theta)
    expected = value_and_gradient(plain, theta)
    assert value == pytest.approx(expected[0], rel=1e-12)
    assert_allclose(gradient, expected[1], rtol=1e-10, atol=1e-13)
    (found,) = evaluator.measure(plain, [theta], [1.5])
    assert (found.objective, found.dual) == (pytest.approx(value, rel=1e-12), ())


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize(
    "case",
    [{}, {"notion": "equalized_odds"}, {"how": "marginal", "with_gaps": True}],
    ids=str,
)
@pytest.mark.parametrize("divergence", ["kl", "chi2", "jensen_shannon"])
def test_the_curvature_at_independence_is_the_second_derivative(divergence, case, form):
    # There the penalty is lowest, so what Gauss and Newton leave out is 0.
    problem = make_problem(divergence, n=40, **case)
    problem = replace(problem, objective=replace(problem.objective, l2=0.0))
    if form == "csr":
        problem = replace(problem, X=scipy.sparse.csr_array(problem.X))
    theta, step = np.array([[0.0, 0.0, 0.0, 0.4]]), 1e-5

    found = FusedEvaluator(problem).curvature(problem, theta)

    ends = [
        [value_and_gradient(problem, theta + sign * step * unit)[1] for sign in (1, -1)]
        for unit in np.eye(4)
    ]
    expected = [(after - before)[0] / (2 * step) for after, before in ends]
    assert_allclose(found, expected, rtol=1e-5, atol=1e-8)


def test_three_classes_have_the_curvature_of_the_loss_at_even_odds():
    problem = make_problem("kl", n=40, n_classes=3)
    (theta,) = models(problem)
    with_ones = np.column_stack([problem.X, np.ones(40)])
    expected = with_ones.T @ (problem.share[:, None] * with_ones) / 4
    found = FusedEvaluator(problem).curvature(problem, theta)
    assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("divergence", ["kl", "chi2"])
def test_a_sample_of_the_rows_saves_passes_and_changes_no_optimum(
    divergence, form, monkeypatch
):
    problem = make_problem(divergence, n=2000)
    noisy = problem.X[:, 0] + np.random.default_rng(1).logistic(size=2000) > 0
    problem = replace(problem, y=noisy.astype(int))
    if form == "csr":
        problem = replace(problem, X=scipy.sparse.csr_array(problem.X))
    plain = LBFGS().solve(problem)
    monkeypatch.setattr(linear, "FUSED_FROM", 0)

    fused = LBFGS().solve(problem)

    assert FusedEvaluator(problem).sample(problem).rows.size == 250
    assert FusedEvaluator(make_problem(n=400)).sample(problem) is None
    plain_sample = FusedEvaluator(problem).sample(replace(problem, penalty=None))
    assert plain_sample.mass(problem, [plain.value]).size == 0  # nobody is in a cell
    assert fused.result is plain.result
    assert fused.stats["n_evaluations"] < plain.stats["n_evaluations"]
    objective = plain.stats["objective"]
    assert fused.stats["objective"] == pytest.approx(objective, rel=1e-9)


def test_a_robust_path_begins_each_model_where_a_single_fit_does(monkeypatch):
    monkeypatch.setattr(linear, "FUSED_FROM", 0)
    problem = make_problem("kl", n=400, uncertainty=SmallShift(0.01))
    problem = replace(problem, y=(problem.X[:, 0] > 0).astype(int))
    weights = [1.0, 100.0]
    for weight, found in zip(
        weights, LBFGS().solve_path(problem, weights), strict=True
    ):
        alone = LBFGS().solve(problem.with_weight(weight))
        assert found.stats["n_evaluations"] == alone.stats["n_evaluations"]
        assert np.array_equal(found.value, alone.value)


def test_large_margins_neither_overflow_nor_vanish():
    problem = make_problem("kl", n=40)
    theta = np.array([[900.0, -900.0, 900.0, 1.0]])
    found = FusedEvaluator(problem).value_and_gradient(problem, theta)
    expected = value_and_gradient(problem, theta)
    assert found[0] == pytest.approx(expected[0], rel=1e-12)
    assert_allclose(found[1], expected[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_lanes_are_measured_as_single_models_are(n_classes):
    problem = make_problem("kl", "equalized_odds", n=40, n_classes=n_classes)
    thetas, weights = models(problem, 5), [0.0, 1.0, 2.0, 3.0, 10.0]
    found = FusedEvaluator(problem).measure(problem, thetas, weights)
    for measured, theta, weight in zip(found, thetas, weights, strict=True):
        value, _ = value_and_gradient(problem.with_weight(weight), theta)
        (dual,) = Evaluator().duals(problem, theta)
        assert measured.objective == pytest.approx(value, rel=1e-12)
        assert_allclose(measured.dual[0], dual, rtol=1e-9, atol=1e-12)
        assert_allclose(FusedEvaluator(problem).duals(problem, theta)[0], dual, 1e-9)


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    problem = make_problem("kl", n=40)
    (theta,) = models(problem)
    found = []
    for count in (1, 3):
        monkeypatch.setattr(full_batch, "n_threads", lambda count=count: count)
        found.append(FusedEvaluator(problem).value_and_gradient(problem, theta))
    assert found[0][0] == found[1][0]
    assert np.array_equal(found[0][1], found[1][1])


def test_large_data_are_evaluated_in_one_pass_and_lead_to_the_same_model(monkeypatch):
    problem = make_problem("kl", n=400)
    assert isinstance(make_evaluator(problem), Evaluator)
    plain = LBFGS().solve(problem)
    monkeypatch.setattr(linear, "FUSED_FROM", 0)
    assert isinstance(make_evaluator(problem), FusedEvaluator)
    fused = LBFGS().solve(problem)
    assert_allclose(fused.value, plain.value, rtol=1e-6)
    monkeypatch.setattr(linear, "LARGEST_JACOBIAN", 0)
    assert isinstance(make_evaluator(problem), Evaluator)
