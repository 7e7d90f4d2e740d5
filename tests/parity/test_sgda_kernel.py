"""The fused kernel of stochastic descent-ascent against plain NumPy.

Its gradients are right on average over every batch, and its steps are those that the
formulas say, one by one.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from instances import REGISTERED
from numpy.testing import assert_allclose
from scipy.special import softmax
from ulps import assert_same_up_to_ulps

from fferm import SmallShift
from fferm.data.rows import encode_rows
from fferm.divergences import LinearTail, TotalVariation, get, strip
from fferm.errors import InvalidParameterError
from fferm.notions import ConditionalParity, EqualizedOdds, Labels
from fferm.notions import get as get_notion
from fferm.penalty.compiled import make_dual
from fferm.penalty.objective import Penalty, Problem, make_objective
from fferm.solvers import _kernels
from fferm.solvers._kernels import make_scratch
from fferm.solvers.full_batch import make_rows
from fferm.solvers.lbfgs import LBFGS
from fferm.solvers.linear import value_and_gradient
from fferm.solvers.stochastic import SGDA, lane_parameters, mean_iterate

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")

NOTIONS = {
    "demographic_parity": get_notion("demographic_parity"),
    "equal_opportunity": get_notion("equal_opportunity"),
    "equalized_odds": EqualizedOdds(),
    "equalized_odds_frequency": EqualizedOdds("frequency"),
    "conditional_parity": ConditionalParity("control"),
}
# A kernel may sum in another order than NumPy does.
EXACT = 1e-12


def make_problem(
    divergence="kl", notion="demographic_parity", *, n=6, n_classes=2, **options
):
    """Return a small problem with weights, two attributes and rows without a group."""
    rng = np.random.default_rng(0)
    how = options.pop("how", "intersection")
    X = rng.normal(size=(n, 3)).round(2)
    y = np.arange(n) % n_classes
    s = {"a": np.arange(n) // 2 % 2, "b": np.arange(n) % 3 % 2}
    s = s if how == "marginal" else {"a": s["a"]}
    if options.pop("with_gaps", False):
        s["a"] = np.where(np.arange(n) == 1, None, s["a"].astype(object))
    weight = rng.uniform(0.5, 2, n)
    objective = make_objective(
        divergence, NOTIONS[notion], l2=0.01, fairness_weight=1.5, **options
    )
    # Strata are by a label of two values, and predictions of more; or by a control
    # feature that some rows miss.
    label = np.minimum(y, 1) if n_classes == 2 else np.arange(n) % 2
    control = np.array([None, "low", "high"], dtype=object)[np.arange(n) % 5 // 2]
    frame = pd.DataFrame({"control": control})
    rows = encode_rows(
        s,
        objective.notion,
        Labels(n, label, (0, 1)),
        frame,
        how=how,
        sample_weight=weight,
    )
    penalty = Penalty(objective, rows, tuple(range(n_classes)))
    return Problem(objective, X, y, weight / weight.sum(), n_classes, penalty)


def begin(problem, n_lanes=1, seed=1, dual="log_ratio"):
    """Return the state of a run, moved away from its start."""
    solver = SGDA(batch_size=2, dual=dual)
    weights = problem.objective.fairness_weight * np.arange(1, n_lanes + 1)
    state = solver.begin(problem, None, list(weights))
    rng = np.random.default_rng(seed)
    state.model.theta[:] = 0.3 * rng.normal(size=state.model.theta.shape)
    state.dual.z[:] = 0.2 * rng.normal(size=state.dual.z.shape)
    return state


def kernel_gradients(state, batch):
    """Return what the kernel computes of one batch: gradients of model and dual."""
    scratch = make_scratch(state.model.theta, state.dual.z)
    _kernels.payoff_into(state.dual, scratch)
    _kernels.batch_gradients_into(
        state.rows, batch, batch, state.model.theta, state.steps, 1.0, scratch
    )
    _kernels.dual_gradient_into(state.dual, scratch)
    gradient = np.zeros_like(scratch.gradient)
    used = scratch.used[: scratch.counts[0]]
    gradient[used] = scratch.gradient[used]
    return gradient, scratch.slope, scratch.mass


def dual_objective(problem, state, theta, lane):
    """Return loss plus penalty at the dual of a lane, by the definition."""
    divergence, *_ = strip(problem.objective.divergence)
    logits = problem.X @ theta[:, :-1].T + theta[:, -1]
    if theta.shape[0] == 1:
        logits = np.column_stack([np.zeros(len(logits)), logits])
    value = problem.loss(logits)[0]
    prob = softmax(problem.objective.sharpness * logits, axis=1)
    begin = 0
    for table in problem.penalty.tables(prob):
        end = begin + table.shape[2]
        for r, stratum in enumerate(table):
            rho = stratum.sum()
            if rho == 0:
                continue
            p = stratum / rho
            q = p.sum(axis=1, keepdims=True) * p.sum(axis=0)
            z = state.dual.z[r, :, begin:end, lane]
            cells = p * divergence.dual_at(z, np) - q * divergence.conjugate_at(z, np)
            weight = (
                1 if problem.objective.notion.weighting == "unit" else rho / table.sum()
            )
            value += state.steps.weights[lane] * weight * cells.sum()
        begin = end
    return value


def differences(function, theta, step=1e-6):
    slopes = np.empty_like(theta)
    for cell in np.ndindex(theta.shape):
        up, down = theta.copy(), theta.copy()
        up[cell] += step
        down[cell] -= step
        slopes[cell] = (function(up) - function(down)) / (2 * step)
    return slopes


CASES = [
    {"notion": "demographic_parity"},
    {"notion": "equal_opportunity"},
    {"notion": "equalized_odds", "n_classes": 3, "n": 12},
    {"notion": "equalized_odds_frequency", "n": 12},
    {"notion": "demographic_parity", "how": "marginal", "n": 12, "with_gaps": True},
    {"notion": "demographic_parity", "sharpness": 2.0, "n_classes": 3},
    {"notion": "conditional_parity", "n": 20, "how": "marginal", "with_gaps": True},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_gradient_of_all_rows_is_that_of_the_objective(case):
    problem = make_problem(**case)
    state = begin(problem, n_lanes=2)
    everyone = np.arange(problem.y.size)
    gradient = kernel_gradients(state, everyone)[0]
    for lane in range(2):
        shape = (-1, state.model.theta.shape[0])
        theta = state.model.theta.T.reshape(-1, 2, shape[1])[:, lane]
        found = gradient.T.reshape(-1, 2, shape[1])[:, lane]
        expected = differences(
            lambda t, lane=lane: dual_objective(problem, state, t, lane), theta
        )
        assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("divergence", REGISTERED)
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("dual", ["log_ratio", "projected"])
def test_batches_are_right_on_average(divergence, notion, size, dual):
    problem = make_problem(REGISTERED[divergence], notion)
    state = begin(problem, dual=dual)
    n = problem.y.size
    batches = [np.array(b) for b in itertools.product(range(n), repeat=size)]
    found = [kernel_gradients(state, batch) for batch in batches]
    whole = kernel_gradients(state, np.arange(n))
    for part in range(2):  # of the model, of the dual
        mean = np.mean([gradients[part] for gradients in found], axis=0)
        assert_allclose(mean, whole[part], rtol=0, atol=EXACT)


@pytest.mark.parametrize("divergence", REGISTERED)
@pytest.mark.parametrize("size", [2, 3])
def test_the_variance_of_a_batch_is_that_of_a_row_over_its_size(divergence, size):
    problem = make_problem(REGISTERED[divergence])
    state, n = begin(problem), problem.y.size

    def variances(batches):
        found = [kernel_gradients(state, np.array(batch)) for batch in batches]
        return [np.var([each[part] for each in found], axis=0) for part in range(2)]

    of_rows = variances(itertools.combinations(range(n), 1))
    drawn = variances(itertools.product(range(n), repeat=size))
    different = variances(itertools.combinations(range(n), size))
    left = (n - size) / (n - 1)  # of draws that put nothing back
    for row, batch, other in zip(of_rows, drawn, different, strict=True):
        assert row.max() > 0.01
        assert_allclose(batch, row / size, rtol=0, atol=EXACT)
        assert_allclose(other, left * row / size, rtol=0, atol=EXACT)


@pytest.mark.parametrize("divergence", REGISTERED)
def test_at_the_optimal_dual_the_gradient_is_that_of_the_penalty(divergence):
    problem = make_problem(REGISTERED[divergence])
    state = begin(problem)
    theta = lane_parameters(problem, state.model.theta, 0)
    logits = np.column_stack([np.zeros(6), problem.X @ theta[0, :-1] + theta[0, -1]])
    (table,) = problem.penalty.tables(softmax(logits, axis=1))
    product = table.sum(axis=2, keepdims=True) * table.sum(axis=1, keepdims=True)
    state.dual.z[:] = np.log(table / product)[..., None]
    gradient, slope, _ = kernel_gradients(state, np.arange(6))
    assert_allclose(slope, 0, atol=EXACT)
    expected = value_and_gradient(replace_l2(problem), theta)[1]
    # Total variation is rounded alike in both; its dual of a kinkless cell is exact.
    assert_allclose(gradient.T, expected, rtol=1e-9, atol=EXACT)


def replace_l2(problem):
    return replace(problem, objective=replace(problem.objective, l2=0.0))


def plain_steps(problem, state, orders, batch_size):
    """Return model and dual after epochs, by NumPy and one sample after another."""
    divergence, rows = strip(problem.objective.divergence)[0], state.rows
    theta, squares = state.model.theta.copy(), state.model.squares.copy()
    pace, z = state.model.rate.copy(), state.dual.z.copy()
    rate, dual, steps, t = state.dual.rate.copy(), state.dual, state.steps, 0
    average = np.zeros_like(theta)
    moved = np.zeros(len(theta))
    for order in orders:
        for begin in range(0, order.size, batch_size):
            batch = order[begin : begin + batch_size]
            now = dual._replace(z=z, rate=rate)
            held = replace(state, dual=now, model=state.model._replace(theta=theta))
            ramp = min(1.0, (t + 1) / steps.warm_up)
            gradient, slope, mass = plain_gradients(divergence, held, batch, ramp)
            t += 1
            used = np.append(np.any(rows.X[batch] != 0, axis=0), True)[:, None]
            # The ridge of a column waits until a batch uses the column.
            waited = (t - moved)[:, None] * np.append(np.ones(len(theta) - 1), 0)[
                :, None
            ]
            gradient += np.where(used, steps.l2 * waited * theta, 0)
            moved[used[:, 0]] = t
            squares += np.where(used, gradient**2, 0)
            grown = squares * pace**2 > _kernels.RENEWAL
            pace = np.where(grown & used, 1 / np.sqrt(squares), pace)
            theta = theta - np.where(used, steps.lr * pace * gradient, 0)
            if t > steps.average_from:
                average = average + (theta - average) / (t - steps.average_from)
            step = min(_kernels.FIRST_DUAL_STEP, steps.dual_lr / t)
            z, rate = plain_ascent(dual, z, rate, mass, slope, step, batch.size)
    return theta, average, z


def plain_gradients(divergence, state, batch, ramp):
    rows, dual, steps = state.rows, state.dual, state.steps
    gradient = np.zeros_like(state.model.theta)
    mass = np.zeros_like(dual.z)
    A, C, ratio = read_dual(divergence, state)
    for i in batch:
        x = np.append(rows.X[i], 1.0)
        logits = np.array([0.0, *(x @ state.model.theta)])
        prob = softmax(logits)
        r, loss_weight, penalty_weight = (
            np.broadcast_to(values, rows.size)[i]
            for values in (rows.stratum, rows.loss_weight, rows.penalty_weight)
        )
        k = rows.group[i, 0]
        by_logits = loss_weight * (prob - np.eye(2)[rows.y[i]])
        if r >= 0:
            charge = np.sum(dual.prior[r] * C[r, :, :, 0], axis=1)
            payoff = dual.factor[r, 0] * (A[r, :, k, 0] - charge)
            push = prob * (payoff - prob @ payoff)
            by_logits += ramp * steps.weights[0] * penalty_weight * push
            mass[r, :, k, 0] += penalty_weight * prob / batch.size
        gradient[:, 0] += x * by_logits[1] / batch.size
    share = dual.share[:, 0][:, None, None, None]
    totals = mass.sum(axis=2, keepdims=True)
    prior = dual.prior[:, None, :, None]
    slope = share * (mass - prior * totals * ratio)
    return gradient, slope, mass


def read_dual(divergence, state):
    z = state.dual.z
    if state.dual.lower == math.log(strip(divergence)[2]):  # a log-ratio
        return divergence.dual_at(z, np), divergence.conjugate_at(z, np), np.exp(z)
    return z, divergence.conjugate(z, np), divergence.conjugate_prime(z, np)


def plain_ascent(dual, z, rate, mass, slope, step, size):
    share = dual.share[:, 0][:, None, None, None]
    rate = rate + step * (share * mass.sum(axis=2, keepdims=True) - rate)
    prior = dual.prior[:, None, :, None]
    eta = np.minimum(step, _kernels.LARGEST_STEP * size / share * prior)
    eta = dual.speed * eta
    z = z + eta * slope / (prior * np.maximum(rate, _kernels.SMALLEST_RATE))
    return np.clip(z, dual.lower, dual.upper[:, None, :, None]), rate


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("divergence", REGISTERED)
@pytest.mark.parametrize("dual", ["log_ratio", "projected"])
def test_two_hundred_steps_are_those_of_plain_numpy(divergence, notion, dual):
    problem = make_problem(REGISTERED[divergence], notion, n=40)
    if dual == "projected":  # rows of mostly 0, which the kernel reads as CSR
        problem = replace(problem, X=np.where(problem.X < 0.8, 0.0, problem.X))
    state = SGDA(batch_size=2, max_epochs=10, dual=dual).begin(problem, None, [1.5])
    state = replace(state, steps=state.steps._replace(average_from=100, warm_up=20))
    rng = np.random.default_rng(3)
    orders = [rng.permutation(40) for _ in range(10)]
    plain = replace(state, rows=state.rows._replace(X=problem.X))
    theta, average, z = plain_steps(problem, plain, orders, 2)
    t = 0
    for order in orders:
        t = _kernels.run_batches(
            state.rows,
            order,
            2,
            state.model,
            state.dual,
            state.steps,
            state.scratch,
            t,
        )
    assert t == 200
    assert_allclose(state.model.theta, theta, rtol=0, atol=1e-10)
    found = mean_iterate(replace(state, n_steps=200))
    assert_allclose(found, average, rtol=0, atol=1e-10)
    assert_allclose(state.dual.z, z, rtol=0, atol=1e-10)


def test_sparse_rows_give_the_steps_of_dense_rows():
    problem = make_problem("chi2", n=40)
    sparse = replace(problem, X=scipy.sparse.csr_array(problem.X))
    dense, other = (SGDA(batch_size=4).solve(p) for p in (problem, sparse))
    assert_allclose(other.value, dense.value, rtol=0, atol=1e-10)


def test_lanes_are_the_runs_of_single_weights():
    problem = make_problem("js", n=40)
    solver = SGDA(batch_size=4)
    lanes = list(solver.solve_path(problem, [0.0, 1.0, 5.0]))
    for weight, lane in zip([0.0, 1.0, 5.0], lanes, strict=True):
        alone = solver.solve(problem.with_weight(weight))
        assert_allclose(lane.value, alone.value, rtol=0, atol=1e-9)
        assert lane.stats["objective"] == pytest.approx(alone.stats["objective"])


def test_rows_of_another_domain_carry_the_penalty():
    problem = make_problem("kl", n=40)
    same = replace(problem, penalty_X=problem.X)
    rows = make_rows(same)
    assert rows.size == 80
    everyone = np.arange(80)
    state = begin(problem)
    other = replace(state, rows=rows, dual=same_dual(same, state))
    found, expected = (
        kernel_gradients(other, everyone),
        kernel_gradients(state, np.arange(40)),
    )
    for part in range(3):
        assert_allclose(found[part], expected[part], rtol=0, atol=EXACT)


def same_dual(problem, state):
    return make_dual(problem, 1, solver="sgda")._replace(z=state.dual.z)


@pytest.mark.parametrize("name", ["sufficiency", "shift"])
def test_a_penalty_without_a_linear_dual_is_refused_by_name(name):
    problem = make_problem("kl", n=12)
    change = (
        {"notion": get_notion("sufficiency")}
        if name == "sufficiency"
        else {"uncertainty": SmallShift(0.01)}
    )
    problem = replace(problem, objective=replace(problem.objective, **change))
    with pytest.raises(InvalidParameterError, match=r"Use solver='semi_stochastic'"):
        SGDA().solve(problem)


@pytest.mark.parametrize("batch_size", [1, 8, 64, 1000])
@pytest.mark.parametrize("divergence", ["kl", "chi2", "reverse_kl", "js"])
def test_every_batch_size_reaches_the_optimum(divergence, batch_size):
    problem = make_problem(divergence, n=1000)
    problem = replace(problem, y=(problem.X[:, 0] > 0).astype(int))
    best = LBFGS().solve(problem).stats["objective"]
    found = SGDA(batch_size=batch_size).solve(problem).stats["objective"]
    assert best <= found + 1e-9 < 1.01 * best


def test_total_variation_is_rounded_and_tails_and_tilts_are_stripped():
    base, scale, floor = strip(get("tv"))
    assert (base, scale, floor) == (TotalVariation(smoothing=1e-3), 1.0, 1e-3)
    base, scale, _ = strip(get("kl", normalisation="paper", scale="curvature"))
    assert base == get("kl")
    assert math.isclose(scale, 2.0)


def test_a_linear_tail_of_the_users_own_is_the_box_of_the_dual():
    problem = make_problem(LinearTail(get("kl"), floor=0.9), n=400)
    problem = replace(problem, y=(problem.X[:, 0] > 0).astype(int))
    lower = make_dual(problem, 1, solver="sgda").lower
    assert_same_up_to_ulps(lower, math.log(0.9), ulps=2)
    best = LBFGS().solve(problem).stats["objective"]
    found = SGDA(batch_size=8).solve(problem).stats["objective"]
    assert best <= found + 1e-9 < 1.01 * best
