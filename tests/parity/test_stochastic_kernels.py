"""The kernels of semi-stochastic descent and of SREDA against plain NumPy.

Their gradients are right on average over every batch, and their steps are those that
the formulas say. The plain side takes shares and tables from the penalty itself.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from instances import REGISTERED
from numpy.testing import assert_allclose
from scipy.special import softmax

from fferm import FairLogisticRegression, LargeShift, SmallShift
from fferm.data.rows import FitInput
from fferm.divergences import get, strip
from fferm.notions import EqualizedOdds
from fferm.solvers import LBFGS, stochastic
from fferm.solvers._kernels import (
    FIRST_INNER_STEP,
    RENEWAL,
    batch_gradients_into,
    follow,
    make_scratch,
)
from fferm.solvers.linear import linear_logits, value_and_gradient
from fferm.solvers.stochastic import (
    SREDA,
    SemiStochastic,
    lane_parameters,
    make_estimators,
    mean_iterate,
    refresh,
    run_steps,
)

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.FfermWarning")
# A kernel may sum in another order than NumPy does.
EXACT = 1e-12
STEPS = 1e-10

LINEAR = {
    "kl": {},
    "reverse_kl": {"divergence": "reverse_kl"},
    "total_variation": {"divergence": "total_variation"},
    "scaled": {"divergence": REGISTERED["affine"]},
    "odds": {"notion": EqualizedOdds("frequency"), "divergence": "chi2"},
    "three_classes": {"n_classes": 3, "sharpness": 2.0, "divergence": "js"},
    "marginal": {"groups": "marginal"},
}
ANY = LINEAR | {
    "small_shift": {"uncertainty": SmallShift(0.01)},
    "large_shift": {"divergence": "js", "uncertainty": LargeShift(0.01)},
    "coupled": {"uncertainty": LargeShift(0.01, mode="coupled")},
    "sufficiency": {"notion": "sufficiency"},
    "predictive_parity": {"notion": "predictive_parity"},
}
linear_case = pytest.mark.parametrize("case", LINEAR.values(), ids=LINEAR)
any_case = pytest.mark.parametrize("case", ANY.values(), ids=ANY)


def make_problem(n=8, n_classes=2, **options):
    """Return a small weighted problem; marginal groups come with a gap."""
    rng = np.random.default_rng(0)
    place = np.arange(n)
    s = {"a": place // 2 % 2}
    if options.get("groups") == "marginal":
        s = {"a": np.where(place == 1, None, place // 2 % 2), "b": place % 3 % 2}
    given = FitInput(
        rng.normal(size=(n, 3)), place % n_classes, s, rng.uniform(0.5, 2, n)
    )
    options = {"fairness_weight": 1.5, "l2": 0.01} | options
    return FairLogisticRegression(**options)._encode(given)[1]


def start_of(problem, seed=1):
    n_outputs = 1 if problem.n_classes == 2 else problem.n_classes
    theta = 0.5 * np.random.default_rng(seed).normal(size=(n_outputs, 4))
    return theta - theta.mean(axis=0) if n_outputs > 1 else theta


def without_ridge(problem):
    return replace(problem, objective=replace(problem.objective, l2=0.0))


def pairs_of(n):
    single = [np.array([i]) for i in range(n)]
    return single, [np.array(b) for b in itertools.product(range(n), repeat=2)]


# Plain NumPy.


def seen_by_penalty(problem, theta):
    return problem.penalized_prob(linear_logits(problem.X, theta))


def batch_gradient(problem, theta, payoffs, batch):
    """Return the mean gradient of some rows, at a payoff for each attribute."""
    n = problem.y.size
    logits = linear_logits(problem.X, theta)
    by_logits = softmax(logits, axis=1) - np.eye(problem.n_classes)[problem.y]
    by_logits *= problem.share[:, None]
    seen, o = seen_by_penalty(problem, theta), problem.objective
    for cells, payoff in zip(problem.penalty.rows.cells, payoffs, strict=True):
        by_prob = np.zeros_like(seen)
        flat = payoff.transpose(0, 2, 1).reshape(-1, problem.n_classes)
        by_prob[cells.rows] = cells.share[:, None] * flat[cells.cell]
        centre = np.sum(seen * by_prob, axis=1, keepdims=True)
        by_logits += o.fairness_weight * o.sharpness * seen * (by_prob - centre)
    used = n / len(batch) * (by_logits if len(theta) > 1 else by_logits[:, 1:])[batch]
    return np.column_stack([used.T @ problem.X[batch], used.sum(axis=0)])


def batch_tables(problem, theta, batch):
    """Return what a batch says of the table of each attribute."""
    n, tables = problem.y.size, []
    seen = seen_by_penalty(problem, theta)
    for c in problem.penalty.rows.cells:
        rows = np.arange(n)[c.rows]
        table = np.zeros((c.shape[0] * c.shape[1], problem.n_classes))
        for i in batch:
            at = np.flatnonzero(rows == i)
            table[c.cell[at]] += n / len(batch) * c.share[at, None] * seen[i]
        shape = (*c.shape, -1)
        tables.append(table.reshape(shape).transpose(0, 2, 1))
    return tables


def constants(problem):
    """Return the share of strata and the priors of groups of each attribute."""
    n = problem.y.size
    theta = np.zeros((1 if problem.n_classes == 2 else problem.n_classes, 4))
    mass = [t.sum(axis=1) for t in batch_tables(problem, theta, range(n))]
    return [(m.sum(axis=1), m / m.sum(axis=1, keepdims=True)) for m in mass]


def plain_payoffs(problem, zs):
    divergence, scale, _ = strip(problem.objective.divergence)
    payoffs = []
    for (rho, prior), z in zip(constants(problem), zs, strict=True):
        A, C = divergence.dual_at(z, np), divergence.conjugate_at(z, np)
        charge = np.sum(prior[:, None] * C, axis=2, keepdims=True)
        weight = 1.0 if problem.objective.notion.weighting == "unit" else rho
        payoffs.append(scale * (weight / rho)[:, None, None] * (A - charge))
    return payoffs


def plain_estimate(problem, theta, zs, batch):
    """Return the gradients of a batch by the model and by the dual A."""
    u = [
        (table - prior[:, None] * table.sum(axis=2, keepdims=True) * np.exp(z))
        / rho[:, None, None]
        for table, z, (rho, prior) in zip(
            batch_tables(problem, theta, batch), zs, constants(problem), strict=True
        )
    ]
    return batch_gradient(problem, theta, plain_payoffs(problem, zs), batch), u


class PlainAdagrad:
    def __init__(self, problem, theta, steps):
        self.l2, self.steps, self.t = problem.objective.l2, steps, 0
        self.squares, self.average = np.full(theta.shape, 1e-12), theta
        self.pace = 1 / np.sqrt(self.squares)

    def step(self, theta, gradient):
        gradient = gradient.copy()
        gradient[:, :-1] += self.l2 * theta[:, :-1]
        self.squares = self.squares + gradient**2
        self.t += 1
        is_grown = self.squares * self.pace**2 > RENEWAL
        self.pace = np.where(is_grown, 1 / np.sqrt(self.squares), self.pace)
        theta = theta - self.steps.lr * self.pace * gradient
        late = self.t - self.steps.average_from
        if late > 0:
            self.average = self.average + (theta - self.average) / late
        return theta


# Semi-stochastic.


def kernel_gradient(state, batch):
    scratch = state.scratch
    batch_gradients_into(
        state.rows, batch, batch, state.model.theta, state.steps, 1.0, scratch
    )
    assert scratch.counts[0] == len(scratch.gradient)  # no entry of X is 0
    return scratch.gradient.T.copy()


@any_case
def test_batches_look_up_the_full_gradient_on_average(case):
    problem = make_problem(**case)
    theta = start_of(problem)
    state = SemiStochastic().init(problem, theta)
    expected = value_and_gradient(without_ridge(problem), theta)[1]
    for batches in pairs_of(problem.y.size):
        mean = np.mean([kernel_gradient(state, batch) for batch in batches], axis=0)
        assert_allclose(mean, expected, rtol=0, atol=EXACT)


@any_case
def test_semi_stochastic_steps_are_those_of_plain_numpy(case, monkeypatch):
    monkeypatch.setattr(stochastic, "LATE_MOVE", 0.1)  # so that moves do shrink
    problem = make_problem(n=24, **case)
    solver = SemiStochastic(batch_size=5, refresh_every=3, max_epochs=4)
    theta = start_of(problem)
    state = solver.init(problem, theta)
    state = replace(state, steps=state.steps._replace(average_from=8, warm_up=6))
    rng = np.random.default_rng(solver.seed)
    payoffs = table_payoffs(problem, theta)
    plain, count = PlainAdagrad(problem, theta, state.steps), 0
    for epoch in range(4):
        # The step falls to 0 over the 600 steps, 120 epochs of 5, that there are.
        plain.steps = state.steps._replace(lr=0.3 * (1 - epoch / 120))
        order = rng.permutation(24)
        for begin in range(0, 24, 5):
            if plain.t % 3 == 0 and plain.t > 0:
                count += 1
                move = min(0.05, 0.1 / count)
                new = table_payoffs(problem, theta)
                payoffs = [
                    g + move * (h - g) for g, h in zip(payoffs, new, strict=True)
                ]
            ramp = min(1.0, (plain.t + 1) / 6)
            ramped = [ramp * payoff for payoff in payoffs]
            batch = order[begin : begin + 5]
            theta = plain.step(theta, batch_gradient(problem, theta, ramped, batch))
        state = solver.advance(problem, state, None)
    assert state.n_steps == plain.t == 20
    assert_allclose(state.model.theta.T, theta, rtol=0, atol=STEPS)
    assert_allclose(mean_iterate(state).T, plain.average, rtol=0, atol=STEPS)


def table_payoffs(problem, theta):
    tables = problem.penalty.tables(seen_by_penalty(problem, theta))
    return problem.penalty.on_tables(tables)[1]


# SREDA.


def split(problem, table):
    """Return the (R, m, K) part of each attribute of a one-lane table."""
    ends = np.cumsum([c.shape[1] for c in problem.penalty.rows.cells])[:-1]
    return np.split(table[..., 0], ends, axis=2)


def joined(parts):
    return np.concatenate(parts, axis=2)[..., None]


def begin_sreda(problem, seed=1, **options):
    state = SREDA(**options).init(problem, start_of(problem, seed))
    move = np.random.default_rng(seed).normal(size=state.dual.z.shape)
    state.dual.z[:] += 0.1 * move
    return state


@linear_case
def test_a_large_batch_of_all_rows_gives_the_full_gradients(case):
    problem = make_problem(**case)
    everyone = np.arange(problem.y.size)
    state = begin_sreda(problem)
    refresh(state, everyone)
    theta = lane_parameters(problem, state.model.theta, 0)
    v, u = plain_estimate(problem, theta, split(problem, state.dual.z), everyone)
    assert_allclose(state.held.gradient.T, v, rtol=0, atol=EXACT)
    assert_allclose(state.held.slope, joined(u), rtol=0, atol=EXACT)


@linear_case
def test_sreda_begins_at_the_best_dual(case):
    problem = make_problem(**case)
    theta = start_of(problem)
    state = SREDA().init(problem, theta)
    refresh(state, np.arange(problem.y.size))
    expected = value_and_gradient(without_ridge(problem), theta)[1]
    assert_allclose(state.held.gradient.T, expected, rtol=1e-10, atol=EXACT)
    assert_allclose(state.held.slope, 0, atol=EXACT)


@linear_case
def test_the_recursion_is_right_on_average(case):
    problem = make_problem(**case)
    everyone = np.arange(problem.y.size)
    old, new = begin_sreda(problem, 1), begin_sreda(problem, 2)
    points = [(state.model.theta, state.dual) for state in (old, new)]
    for state in (old, new):
        refresh(state, everyone)
    shape = old.model.theta, old.dual.z
    for batches in pairs_of(everyone.size):
        v, u = (np.zeros_like(part) for part in shape)
        for batch in batches:
            held, work = make_estimators(*shape), make_scratch(*shape)
            held.gradient[:], held.slope[:] = 0.3, -0.2
            follow(old.rows, batch, *points, old.steps, work, held)
            v += held.gradient / len(batches)
            u += held.slope / len(batches)
        step_v = new.held.gradient - old.held.gradient
        step_u = new.held.slope - old.held.slope
        assert_allclose(v, 0.3 + step_v, rtol=0, atol=EXACT)
        assert_allclose(u, -0.2 + step_u, rtol=0, atol=EXACT)


def plain_ascent(problem, zs, u, rates, step, size):
    floor = np.log(strip(problem.objective.divergence)[2])
    raised = []
    for z, slope, rate, (rho, prior) in zip(
        zs, u, rates, constants(problem), strict=True
    ):
        # The stratum's share of all rows, known or not, bounds the push of a member.
        known = rho * known_share(problem)[len(raised)]
        eta = np.minimum(step, 0.2 * size * known[:, None] * prior)[:, None]
        scale = eta / (prior[:, None] * np.maximum(rate, 1e-3))
        raised.append(np.clip(z + scale * slope, floor, -np.log(prior)[:, None]))
    return raised


def known_share(problem):
    rows = problem.penalty.rows
    return [rows.weight[a.code >= 0].sum() / rows.weight.sum() for a in rows.attributes]


@linear_case
def test_sreda_steps_are_those_of_plain_numpy(case):
    problem = make_problem(n=24, **case)
    everyone, rng = np.arange(24), np.random.default_rng(3)
    state = begin_sreda(problem)
    state = replace(state, steps=state.steps._replace(average_from=3))
    theta = lane_parameters(problem, state.model.theta, 0)
    zs = split(problem, state.dual.z.copy())
    plain = PlainAdagrad(problem, theta, state.steps)
    for _ in range(2):
        draws, picks = rng.integers(24, size=(4, 4, 5)), rng.integers(1, 4, size=4)
        refresh(state, everyone)
        state = replace(state, n_steps=run_steps(state, draws, picks))
        v, u = plain_estimate(problem, theta, zs, everyone)
        tables = zip(
            batch_tables(problem, theta, everyone), constants(problem), strict=True
        )
        rates = [
            t.sum(axis=2, keepdims=True) / rho[:, None, None] for t, (rho, _) in tables
        ]
        for batches, pick in zip(draws, picks, strict=True):
            before, theta = (theta, zs), plain.step(theta, v)
            for s in range(pick + 1):
                new = plain_estimate(problem, theta, zs, batches[s])
                old = plain_estimate(problem, *before, batches[s])
                v = v + new[0] - old[0]
                u = [a + b - c for a, b, c in zip(u, new[1], old[1], strict=True)]
                if s < pick:
                    before = theta, zs
                    step = min(FIRST_INNER_STEP, state.steps.dual_lr / plain.t)
                    zs = plain_ascent(problem, zs, u, rates, step, 5)
    assert state.n_steps == plain.t == 8
    assert_allclose(state.model.theta.T, theta, rtol=0, atol=STEPS)
    assert_allclose(mean_iterate(state).T, plain.average, rtol=0, atol=STEPS)
    assert_allclose(state.dual.z, joined(zs), rtol=0, atol=STEPS)


def test_a_large_batch_may_be_a_part_of_the_rows():
    problem = make_problem(n=400)
    problem = replace(problem, y=(problem.X[:, 0] > 0).astype(int))
    best = LBFGS().solve(problem).stats["objective"]
    found = SREDA(refresh_size=200).solve(problem).stats["objective"]
    assert best <= found + 1e-9 < 1.02 * best


# Both.


@pytest.mark.parametrize("solver", [SemiStochastic(batch_size=8), SREDA(batch_size=8)])
def test_lanes_are_the_runs_of_single_weights(solver):
    problem = make_problem(n=40, divergence=get("js"))
    lanes = list(solver.solve_path(problem, [0.0, 1.0, 5.0]))
    for weight, lane in zip([0.0, 1.0, 5.0], lanes, strict=True):
        alone = solver.solve(problem.with_weight(weight))
        assert_allclose(lane.value, alone.value, rtol=0, atol=1e-9)
