"""The driver, the coordinates and L-BFGS, through the solvers' own interface."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse
from scipy.special import softmax

from fferm import LargeShift, SmallShift
from fferm.data.groups import Attribute
from fferm.data.rows import Rows
from fferm.datasets import make_biased
from fferm.errors import NonFiniteError, UnknownNameError
from fferm.notions import Labels
from fferm.penalty.objective import Penalty, Problem, make_objective
from fferm.solvers import (
    LBFGS,
    Monitor,
    Result,
    Solver,
    choose,
    lbfgs,
    make,
)
from fferm.solvers.full_batch import as_rows
from fferm.solvers.lbfgs import Coordinates, whiten
from fferm.solvers.linear import (
    Evaluator,
    linear_logits,
    parameter_shape,
    value_and_gradient,
)

STEP = 1e-6


def make_problem(
    divergence="kl",
    notion="demographic_parity",
    *,
    uncertainty=None,
    n_classes=2,
    n_groups=2,
    change=lambda X: X,
    **factors,
):
    """Return a problem on synthetic data whose features went through `change`."""
    data = make_biased(500, n_classes=n_classes, n_groups=n_groups, random_state=3)
    X, y = change(np.asarray(data.X)), np.asarray(data.y)
    group = data.sensitive_features["group"].astype(int).to_numpy()
    factors = {"l2": 1e-3, "fairness_weight": 3.0} | factors
    objective = make_objective(divergence, notion, uncertainty, **factors)
    labels = Labels(len(y), y, tuple(range(n_classes)))
    names = tuple(map(str, range(n_groups)))
    rows = Rows(
        (Attribute("group", names, group),),
        objective.notion.strata(labels),
        np.ones(len(y)),
    )
    share = np.full(len(y), 1 / len(y))
    penalty = Penalty(objective, rows, labels.classes)
    return Problem(objective, X, y, share, n_classes, penalty)


def some_parameters(problem, seed=0):
    return np.random.default_rng(seed).normal(size=parameter_shape(problem))


FORMS = {
    "dense": lambda X: X,
    "csr matrix": scipy.sparse.csr_matrix,
    "csr array": scipy.sparse.csr_array,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("has_other_rows", [False, True])
def test_the_gradient_by_parameters_is_that_of_finite_differences(
    form, n_classes, has_other_rows
):
    problem = make_problem(n_classes=n_classes, change=FORMS[form])
    if has_other_rows:
        problem = replace(problem, penalty_X=FORMS[form](problem.X * 0.7))
    theta = some_parameters(problem)
    expected = np.empty_like(theta)
    for place in np.ndindex(theta.shape):
        step = np.zeros_like(theta)
        step[place] = STEP
        high, low = (
            value_and_gradient(problem, theta + sign * step)[0] for sign in (1, -1)
        )
        expected[place] = (high - low) / (2 * STEP)

    gradient = value_and_gradient(problem, theta)[1]

    atol = 1e-7 * np.abs(expected).max()
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=atol)


def test_two_classes_have_one_output_and_the_first_has_logit_zero():
    problem = make_problem()

    logits = linear_logits(problem.X, some_parameters(problem))

    assert parameter_shape(problem) == (1, 6)
    assert np.all(logits[:, 0] == 0)
    assert parameter_shape(make_problem(n_classes=3)) == (3, 6)


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_round_coordinates_go_there_and_back(monkeypatch, is_wide, form):
    if is_wide:
        monkeypatch.setattr(lbfgs, "WIDEST_GRAM", 2)
    problem = make_problem(n_classes=3, change=FORMS[form])
    theta = some_parameters(problem)

    coordinates = whiten(problem.X, problem.share, 1e-3)

    assert (coordinates.factor is None) is is_wide
    back = coordinates.to_theta(coordinates.to_phi(theta))
    np.testing.assert_allclose(back, theta, rtol=1e-12)


def test_round_coordinates_carry_gradients_by_the_chain_rule():
    problem = make_problem(n_classes=3)
    coordinates = whiten(problem.X, problem.share, 1e-3)
    by_theta, phi_step = some_parameters(problem, 1), some_parameters(problem, 2)

    along = np.sum(coordinates.gradient(by_theta) * phi_step)

    expected = np.sum(by_theta * coordinates.to_theta(phi_step))
    assert along == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_round_coordinates_make_the_curvature_round_at_any_scale(scale):
    X = make_problem().X * scale
    share, l2 = np.full(len(X), 1 / len(X)), 1e-3
    coordinates = whiten(X, share, l2)
    with_ones = np.column_stack([X, np.ones(len(X))])
    hessian = with_ones.T @ (share[:, None] * with_ones) / 4
    hessian += l2 * np.diag([1.0] * 5 + [0.0])

    M = coordinates.to_theta(np.eye(6))  # row a is the parameters of coordinate a

    np.testing.assert_allclose(M @ hessian @ M.T, np.eye(6), atol=1e-6)


def test_blocks_of_rows_make_one_gram(monkeypatch):
    problem = make_problem()
    whole = whiten(problem.X, problem.share, 1e-3)

    monkeypatch.setattr(lbfgs, "ROWS_PER_BLOCK", 7)
    blocks = whiten(problem.X, problem.share, 1e-3)

    np.testing.assert_allclose(blocks.factor, whole.factor, rtol=1e-12, atol=1e-14)


def test_a_feature_that_is_always_zero_has_finite_coordinates():
    X = np.zeros((20, 2))

    coordinates = whiten(X, np.full(20, 0.05), 0.0)

    assert np.all(np.isfinite(coordinates.to_theta(np.ones((1, 3)))))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("divergence", ["kl", "chi2", "jensen_shannon"])
def test_the_gradient_vanishes_at_the_optimum_in_plain_coordinates_too(
    divergence, n_classes
):
    problem = make_problem(divergence, n_classes=n_classes)

    solution = LBFGS(tol=1e-8).solve(problem)

    assert solution.result is Result.converged
    gradient = value_and_gradient(problem, solution.value)[1]
    # Features are of size 1, so the coordinates stretch by no more than a few.
    assert np.abs(gradient).max() < 1e-7


def test_no_random_step_from_the_optimum_descends():
    problem = make_problem(n_classes=3)
    solution = LBFGS(tol=1e-8).solve(problem)
    best = value_and_gradient(problem, solution.value)[0]

    for seed in range(20):
        step = 1e-2 * some_parameters(problem, seed)
        assert value_and_gradient(problem, solution.value + step)[0] > best


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_any_start_ends_at_the_same_objective(n_classes, seed):
    problem = make_problem(n_classes=n_classes, fairness_weight=20.0)

    cold = LBFGS().solve(problem)
    warm = LBFGS().solve(problem, start=some_parameters(problem, seed))

    assert warm.stats["objective"] == pytest.approx(cold.stats["objective"], rel=1e-6)


SHIFTS = {
    "small": ("kl", SmallShift(0.02)),
    "small, p=1": ("kl", SmallShift(0.02, p=1)),
    "small, p=inf": ("kl", SmallShift(0.02, p="inf")),
    "large": ("jensen_shannon", LargeShift(0.02)),
    "large, coupled": ("jensen_shannon", LargeShift(0.02, mode="coupled")),
    "large, total variation": ("total_variation", LargeShift(0.02)),
}


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_robust_penalty_does_not_hold_the_model_at_its_start(shift, n_classes):
    divergence, uncertainty = SHIFTS[shift]
    problem = make_problem(
        divergence,
        uncertainty=uncertainty,
        n_classes=n_classes,
        n_groups=3,
        fairness_weight=50.0,
    )
    # One distribution for everyone is independent of the group, so no solution that
    # costs more than the best of those is a solution.
    theta = np.zeros(parameter_shape(problem))
    counts = np.bincount(problem.y)
    log_odds = np.log(counts)
    theta[:, -1] = log_odds if n_classes > 2 else log_odds[1] - log_odds[0]
    constant = value_and_gradient(problem, theta)[0]

    solution = LBFGS().solve(problem)

    assert solution.stats["objective"] <= constant + 1e-5 * abs(constant)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_an_intercept_the_last_column_stays_exactly_zero(n_classes):
    problem = make_problem(n_classes=n_classes, change=lambda X: X + 1.5)

    cold = LBFGS(tol=1e-8, fit_intercept=False).solve(problem)
    warm = LBFGS(tol=1e-8, fit_intercept=False).solve(
        problem, start=some_parameters(problem)
    )

    for solution in (cold, warm):
        assert solution.result is Result.converged
        assert np.all(solution.value[:, -1] == 0)
        gradient = value_and_gradient(problem, solution.value)[1][:, :-1]
        assert np.abs(gradient).max() < 1e-7


def test_a_start_is_not_written_to():
    problem = make_problem()
    start = some_parameters(problem)
    before = start.copy()

    LBFGS(fit_intercept=False).solve(problem, start=start)

    np.testing.assert_array_equal(start, before)


def test_known_coordinates_are_used():
    problem = make_problem()
    rough = Coordinates(np.ones(6))

    state = LBFGS(coordinates=rough).init(problem, None)

    assert state.coordinates is rough


def test_the_dual_of_a_solution_is_the_slope_at_its_table():
    problem = make_problem("kl", "equalized_odds", n_classes=3)

    solution = LBFGS().solve(problem)

    prob = softmax(linear_logits(problem.X, solution.value), axis=1)
    expected = problem.penalty.duals(problem.penalty.tables(prob))
    np.testing.assert_allclose(solution.dual[0], expected[0], rtol=1e-12)


def test_a_problem_without_penalty_has_no_dual():
    problem = replace(make_problem(), penalty=None)

    assert LBFGS().solve(problem).dual == ()


def test_history_descends_and_ends_at_the_objective():
    solution = LBFGS().solve(make_problem("chi2", n_classes=3))

    objective = [record["objective"] for record in solution.history]
    seconds = [record["seconds"] for record in solution.history]
    assert len(objective) == solution.stats["n_iter"] > 3
    assert np.all(np.diff(objective) <= 0)
    assert objective[-1] == solution.stats["objective"]
    assert [record["iteration"] for record in solution.history] == list(
        range(len(objective))
    )
    assert np.all(np.diff(seconds) >= 0)
    assert solution.stats["seconds"] >= seconds[-1]
    assert solution.stats["n_evaluations"] >= len(objective)


def test_iterations_that_run_out_are_named():
    solution = LBFGS(max_iter=2).solve(make_problem())

    assert solution.result is Result.max_epochs_reached
    assert solution.stats["n_iter"] == 2


def test_a_spent_time_budget_is_named():
    solution = LBFGS().solve(make_problem(), time_budget=0.0)

    assert solution.result is Result.time_budget_spent
    assert len(solution.history) == 1


def test_a_long_time_budget_changes_nothing():
    solution = LBFGS().solve(make_problem(), time_budget=1e6)

    assert solution.result is Result.converged


def test_a_callback_sees_every_record_and_may_stop_the_run():
    seen = []

    def stop_at_third(record):
        seen.append(record)
        return len(seen) == 3

    solution = LBFGS().solve(make_problem(), callbacks=(stop_at_third,))

    assert solution.result is Result.stopped_by_callback
    assert tuple(seen) == solution.history
    assert solution.stats["objective"] == seen[-1]["objective"]
    assert len(seen) == 3


def test_only_true_stops_a_run():
    solution = LBFGS().solve(make_problem(), callbacks=(lambda record: "go on",))

    assert solution.result is Result.converged


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("tol", [1e-9, 1e-300])
def test_no_tolerance_asks_for_more_than_rounding_gives(n_classes, tol):
    solution = LBFGS(tol=tol).solve(make_problem(n_classes=n_classes))

    assert solution.result is Result.converged


def test_a_stall_of_a_smooth_problem_is_named(monkeypatch):
    def climb(problem, theta):
        value, gradient = value_and_gradient(problem, theta)
        return value, -gradient

    monkeypatch.setattr(Evaluator, "value_and_gradient", staticmethod(climb))

    assert LBFGS().solve(make_problem()).result is Result.stalled


def test_a_kink_is_named():
    problem = make_problem(
        "jensen_shannon", uncertainty=LargeShift(0.02), fairness_weight=50.0
    )

    assert LBFGS().solve(problem).result is Result.kink_reached


@pytest.mark.parametrize("is_raised", [False, True])
def test_the_line_search_steps_back_from_an_infinite_penalty(monkeypatch, is_raised):
    problem, n_calls = make_problem(), 0
    expected = LBFGS().solve(problem)

    def infinite_at_trial_points(problem, theta):
        nonlocal n_calls
        n_calls += 1
        if n_calls not in (2, 3, 6, 9):
            return value_and_gradient(problem, theta)
        if is_raised:
            raise NonFiniteError("The penalty is infinite here.")
        return math.inf, np.full_like(theta, math.inf)

    evaluate = staticmethod(infinite_at_trial_points)
    monkeypatch.setattr(Evaluator, "value_and_gradient", evaluate)
    solution = LBFGS().solve(problem)

    assert n_calls > 9
    assert solution.result is Result.converged
    np.testing.assert_allclose(solution.value, expected.value, rtol=1e-6)


def test_an_infinite_penalty_at_the_second_start_does_not_end_the_run(monkeypatch):
    problem = make_problem("jensen_shannon", uncertainty=LargeShift(0.02))
    expected = LBFGS().solve(problem)
    start = LBFGS().solve(replace(problem, penalty=None)).value * lbfgs.SHRUNKEN

    def infinite_there(problem, theta):
        if problem.penalty is not None and np.allclose(theta, start, rtol=1e-9):
            raise NonFiniteError("The penalty is infinite here.")
        return value_and_gradient(problem, theta)

    monkeypatch.setattr(Evaluator, "value_and_gradient", staticmethod(infinite_there))

    found = LBFGS().solve(problem).stats["objective"]
    assert found == pytest.approx(expected.stats["objective"], rel=1e-5)


WIDE = {
    "large, wide": ("squared_hellinger", LargeShift(0.05)),
    "simplex, wide": ("jensen_shannon", LargeShift(0.05, mode="simplex")),
}


@pytest.mark.parametrize("shift", SHIFTS | WIDE)
@pytest.mark.parametrize("weight", [1.0, 8.0])
def test_no_other_start_is_much_better_or_the_result_says_so(shift, weight):
    divergence, uncertainty = (SHIFTS | WIDE)[shift]
    problem = make_problem(
        divergence,
        uncertainty=uncertainty,
        n_classes=3,
        n_groups=4,
        fairness_weight=weight,
    )
    fair = LBFGS().solve(make_problem("kl", n_classes=3, n_groups=4)).value

    solution = LBFGS().solve(problem)
    others = [
        LBFGS().solve(problem, start=start).stats["objective"]
        for start in (fair, fair / 2, -fair / 10, some_parameters(problem) / 3)
    ]

    is_best = solution.stats["objective"] <= 1.005 * min(others)
    assert is_best or solution.result is Result.several_optima
    last = solution.history[-1]["objective"]
    assert last == pytest.approx(solution.stats["objective"], rel=1e-5)
    assert solution.stats["n_iter"] <= LBFGS.max_iter


def test_starts_that_end_in_different_optima_are_named_and_the_better_is_kept():
    divergence, uncertainty = WIDE["large, wide"]
    problem = make_problem(
        divergence,
        uncertainty=uncertainty,
        n_classes=3,
        n_groups=4,
        fairness_weight=1.0,
    )
    loss = LBFGS().solve(replace(problem, penalty=None)).value

    solution = LBFGS().solve(problem)
    worse = LBFGS().solve(problem, start=loss)

    assert solution.result is Result.several_optima
    assert not solution.result.is_success
    assert "radius" in solution.result.value
    assert solution.stats["objective"] < 0.97 * worse.stats["objective"]
    value = value_and_gradient(problem, solution.value)[0]
    assert value == pytest.approx(solution.stats["objective"], rel=1e-12)


def test_an_infinite_penalty_ends_in_a_named_error():
    problem = make_problem("kl", uncertainty=LargeShift(0.9, floor=0.0))

    with pytest.raises(NonFiniteError, match=r"penalty is infinite.*jensen_shannon"):
        LBFGS().solve(problem)


def test_features_that_are_not_numbers_end_in_a_named_error():
    problem = replace(make_problem(), penalty=None)
    problem.X[3, 1] = np.nan

    with pytest.raises(NonFiniteError, match="not a finite number"):
        LBFGS(coordinates=Coordinates(np.ones(6))).solve(problem)


def test_results_say_whether_to_warn_and_what_to_do():
    assert [result.name for result in Result if result.is_success] == [
        "converged",
        "kink_reached",
        "schedule_completed",
        "nothing_gained",
    ]
    assert "max_iter" in Result.max_epochs_reached.value
    assert "scale the features" in Result.stalled.value
    assert len({result.value for result in Result}) == len(Result)


def test_a_solver_takes_the_options_that_it_knows():
    assert make("lbfgs", {"tol": 1e-3, "batch_size": 8}) == LBFGS(tol=1e-3)


def test_an_unknown_solver_is_refused_with_a_suggestion():
    with pytest.raises(UnknownNameError, match=r"Unknown solver 'lbgfs'.*'lbfgs'"):
        choose("lbgfs", make_objective(), 1, [1.0])


@pytest.mark.parametrize(
    ("options", "n_numbers", "weights", "expected"),
    [
        ({}, 1_000, [1.0] * 20, "lbfgs"),
        ({}, 3_000_000, [1.0], "lbfgs"),
        ({}, 3_000_000, [1.0] * 3, "lbfgs"),
        ({}, 3_000_000, [100.0] * 20, "sgda"),
        ({}, 3_000_000, [101.0] * 20, "lbfgs"),
        ({}, 300_000_000, [1.0], "sgda"),
        ({"uncertainty": SmallShift(0.01)}, 300_000_000, [1.0] * 20, "lbfgs"),
        ({"notion": "sufficiency"}, 300_000_000, [1.0] * 20, "lbfgs"),
    ],
)
def test_auto_chooses_by_size_weights_and_penalty(
    options, n_numbers, weights, expected
):
    assert choose("auto", make_objective(**options), n_numbers, weights) == expected


@dataclass(frozen=True)
class Countdown(Solver[int]):
    """Counts down from a number of chunks; the objective is what is left."""

    chunks: int
    ending: float = 0.0

    def init(self, problem, start):
        return self.chunks

    def advance(self, problem, state, monitor):
        monitor.record(objective=float(state - 1) or self.ending)
        return state - 1

    def is_done(self, state):
        return Result.converged if state == 0 else None

    def solve_path(self, problem, weights, *, start=None, callbacks=()):
        for weight in weights:
            yield self.solve(problem.with_weight(weight))

    def finish(self, problem, state):
        value = np.full((1, 6), self.ending)
        return {"value": value, "dual": (), "stats": {"n_iter": self.chunks - state}}


def test_the_driver_runs_chunks_until_the_solver_is_done():
    solution = Countdown(4).solve(make_problem())

    assert solution.result is Result.converged
    assert [record["objective"] for record in solution.history] == [3.0, 2.0, 1.0, 0.0]
    assert solution.stats["n_iter"] == 4


def test_the_driver_stops_between_chunks():
    solution = Countdown(4).solve(
        make_problem(), callbacks=(lambda record: record["objective"] <= 2,)
    )

    assert solution.result is Result.stopped_by_callback
    assert len(solution.history) == 2


def test_the_driver_does_not_start_what_is_done():
    solution = Countdown(0).solve(make_problem())

    assert solution.result is Result.converged
    assert solution.history == ()


@pytest.mark.parametrize("ending", [math.nan, math.inf])
def test_the_driver_refuses_numbers_that_are_not_finite(ending):
    with pytest.raises(NonFiniteError, match="not a finite number"):
        Countdown(1, ending).solve(make_problem())
    with pytest.raises(NonFiniteError, match="not a finite number"):
        Countdown(0, ending).solve(make_problem())


def test_a_callback_outranks_the_time_budget():
    monitor = Monitor(time_budget=0.0, callbacks=(lambda record: True,))

    assert monitor.record(objective=1.0)
    assert monitor.stopped is Result.stopped_by_callback


def test_what_rows_have_in_common_is_kept_once():
    y, group = np.array([0, 1, 1, 0]), np.array([[0], [1], [-1], [0]])
    alike, shares = np.zeros(4, dtype=np.int64), np.array([0.125, 0.5, 0.25, 0.125])

    rows = as_rows(np.ones((4, 1)), y, alike, group, np.full(4, 0.25), shares)

    np.testing.assert_array_equal(rows.stratum, [0])
    np.testing.assert_array_equal(rows.loss_weight, [1.0])
    np.testing.assert_array_equal(rows.penalty_weight, [0.5, 2.0, 1.0, 0.5])
    assert rows.size == 4


def test_kernels_read_codes_where_they_are_and_never_write_to_them():
    y, group = np.array([0, 1]), np.array([[0], [1]])
    share = np.full(2, 0.5)

    rows = as_rows(np.eye(2), y, y, group, share, share)

    for codes, own in ((rows.y, y), (rows.stratum, y), (rows.group, group)):
        assert np.shares_memory(codes, own)
        assert not codes.flags.writeable
    assert y.flags.writeable
