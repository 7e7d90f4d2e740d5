"""The objective of raw scores: its derivatives, its Newton steps, its descent."""

import numpy as np
import pytest
from boosting_problems import NOTIONS, classes_of, make
from instances import REGISTERED
from numpy.testing import assert_allclose, assert_array_equal

from fferm import LargeShift, SmallShift
from fferm.boosting._kernels import update_offsets_into
from fferm.boosting.newton import (
    LEAST_DECIDED,
    OFFSET_RATE,
    Descent,
    NewtonStep,
)
from fferm.boosting.objective import Leaves, merge_leaves
from fferm.data.rows import encode_rows
from fferm.notions import Labels, Notion
from fferm.penalty.compiled import CompiledPenalty
from fferm.penalty.objective import Penalty, Problem, make_objective

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")


def central(function, x, step):
    """The derivative of a function of a vector by central differences."""
    ends = [
        [np.asarray(function(x + sign * step * e)) for e in np.eye(x.size)]
        for sign in (1, -1)
    ]
    return ((np.array(ends[0]) - np.array(ends[1])) / (2 * step)).T


def assert_is_gradient(objective, oracle, scores, offsets=None):
    """Compare with differences along some scores, and along all of them at once."""
    rng = np.random.default_rng(1)
    point = oracle.at(scores)
    slopes = oracle.slopes(point, offsets)
    gradient = oracle.gradient(point, slopes) / objective.total
    single = np.eye(scores.size)[rng.choice(scores.size, 6, replace=False)]
    directions = np.vstack([single, rng.normal(size=(4, scores.size))])

    def along(steps):
        moved = scores + (steps @ directions).reshape(scores.shape)
        return oracle.value(oracle.at(moved), offsets)

    expected = central(along, np.zeros(len(directions)), 1e-5)
    assert_allclose(directions @ gradient.ravel(), expected, atol=1e-6)


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("divergence", REGISTERED)
def test_the_gradient_is_that_of_finite_differences(divergence, notion):
    for n_classes in classes_of(notion):
        assert_is_gradient(*make(REGISTERED[divergence], notion, n_classes))


@pytest.mark.parametrize(
    "uncertainty",
    [SmallShift(0.01), LargeShift(0.01), LargeShift(0.01, mode="coupled")],
)
def test_the_gradient_of_a_worst_case_is_that_of_finite_differences(uncertainty):
    assert_is_gradient(*make("jensen_shannon", uncertainty=uncertainty))


@pytest.mark.parametrize("how", ["intersection", "marginal"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_objective_is_that_of_the_oracle(n_classes, how):
    objective, oracle, scores = make(n_classes=n_classes, how=how)
    share = objective.weight / objective.total
    problem = Problem(
        objective.objective, None, objective.y, share, n_classes, oracle.penalty
    )
    logits = scores.T
    if n_classes == 2:
        logits = np.column_stack([np.zeros(len(logits)), logits])
    value, gradient = problem.value_and_gradient(logits)
    point = oracle.at(scores)
    assert_allclose(oracle.value(point), value, rtol=1e-12)
    actual = oracle.gradient(point, oracle.slopes(point)) / objective.total
    expected = gradient.T[1:] if n_classes == 2 else gradient.T
    assert_allclose(actual, expected, atol=1e-14)


def cells_of(objective, oracle, scores):
    """Cells of probabilities and of decisions, and where each table ends."""
    cells = oracle.cells(oracle.at(scores))
    return cells, oracle.decided(scores), objective.penalty.ends


def update_offsets(cells, decided, offsets, ends):
    updated = offsets.copy()
    limits = OFFSET_RATE, LEAST_DECIDED
    update_offsets_into(cells, decided, ends, *limits, updated)
    return updated


def test_offsets_move_the_table_and_not_its_slope():
    objective, oracle, scores = make()
    cells, decided, ends = cells_of(objective, oracle, scores)
    offsets = update_offsets(cells, decided, np.zeros_like(cells), ends)
    assert_is_gradient(objective, oracle, scores, objective.penalty.split(offsets))


def test_offsets_come_to_rest_at_the_table_of_decisions():
    cells, decided, ends = cells_of(*make(how="marginal"))
    offsets = np.zeros_like(cells)
    for _ in range(200):
        offsets = update_offsets(cells, decided, offsets, ends)
    assert_allclose(cells + offsets, decided, atol=1e-9)


def test_decisions_that_know_one_class_are_not_followed():
    objective, oracle, scores = make()
    cells, decided, ends = cells_of(objective, oracle, scores - 100)
    offsets = update_offsets(cells, decided, np.zeros_like(cells), ends)
    assert_array_equal(offsets, np.zeros((2, 2)))


def hessian(divergence, notion, table):
    """The root of the curvature on a table, and the curvature by differences."""
    objective = make_objective(divergence, notion)
    n_strata, _, n_groups = shape = table.shape
    y, group = (a.ravel() for a in np.indices((2, n_groups)))
    rows = encode_rows(group, objective.notion, Labels(y.size, y, (0, 1)))
    penalty = Penalty(objective, rows, (0, 1))
    compiled = CompiledPenalty(penalty)
    cells = table.transpose(0, 2, 1).reshape(n_strata * n_groups, -1)

    def payoff(flat):
        cells = flat.reshape(shape[0], shape[2], shape[1]).transpose(0, 2, 1)
        return penalty.on_tables([cells])[1][0].transpose(0, 2, 1).ravel()

    second = central(payoff, cells.ravel(), 1e-6)
    return compiled.root(cells), (second + second.T) / 2


def fixed_columns(table):
    """Directions that keep the weight of each stratum and group."""
    n = table.size // table.shape[1]
    move = np.zeros((table.size, n))
    for cell in range(n):
        move[cell * table.shape[1] : (cell + 1) * table.shape[1], cell] = (1, -1)
    return move


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
@pytest.mark.parametrize("divergence", ["chi2", "kl", "reverse_kl", "jensen_shannon"])
def test_the_curvature_of_a_table_is_at_least_its_second_derivative(divergence, notion):
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(8)).reshape(2, 2, 2)
    table = table if notion == "equalized_odds" else table[:1] / table[:1].sum()
    root, second = hessian(divergence, notion, table)
    move = fixed_columns(table)
    excess = move.T @ (root.T @ root - second) @ move
    scale = np.abs(move.T @ second @ move).max()
    assert np.linalg.eigvalsh(excess).min() > -1e-5 * scale
    if divergence == "chi2" and notion == "demographic_parity":
        assert_allclose(excess, np.zeros_like(excess), atol=1e-5 * scale)


def test_the_curvature_of_sufficiency_is_exact_at_independence():
    label, group = np.array([0.3, 0.7]), np.array([0.6, 0.4])
    table = np.einsum("l,j,k->ljk", label, [0.2, 0.8], group)
    root, second = hessian("kl", "sufficiency", table)
    move = fixed_columns(table)
    expected = move.T @ second @ move
    found = move.T @ root.T @ root @ move
    assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def jacobian(oracle, scores):
    """How the cells of all tables move with each score."""

    def cells(flat):
        return oracle.cells(oracle.at(flat.reshape(scores.shape))).ravel()

    return central(cells, scores.ravel(), 1e-5)


@pytest.mark.parametrize("how", ["intersection", "marginal"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_step_over_leaves_is_the_newton_step_of_their_values(n_classes, how):
    objective, oracle, scores = make(n_classes=n_classes, how=how)
    point = oracle.at(scores)
    slopes = oracle.slopes(point)
    n, n_scores = scores.shape[1], scores.shape[0]
    leaves = [
        Leaves(np.arange(n) % (3 + s), np.arange(3.0 + s)) for s in range(n_scores)
    ]
    incidence = np.zeros((n_scores, n, sum(tree.output.size for tree in leaves)))
    first = 0
    for s, tree in enumerate(leaves):
        incidence[s, np.arange(n), first + tree.code] = 1
        first += tree.output.size
    flat = incidence.reshape(n_scores * n, -1)
    descent = Descent(objective, scores, is_calibrated=False)
    root = objective.penalty.root(oracle.cells(point))
    root = root @ jacobian(oracle, scores) @ flat
    diagonal = slopes.diagonal.ravel() / (0.1 * objective.total)
    whole = flat.T @ np.diag(diagonal) @ flat
    whole += objective.objective.fairness_weight * root.T @ root
    gradient = flat.T @ oracle.gradient(point, slopes).ravel() / objective.total
    step = descent.newton_step(oracle.leaf_sums(point, slopes, leaves), 0.1)
    assert_allclose(step.values, -np.linalg.solve(whole, gradient), atol=1e-7)
    assert_allclose(step.slope, gradient @ step.values, rtol=1e-6)
    assert step.slope < 0


def step_of(objective, scores, factor):
    """Where descent stands, five leaves, and a step over them, too long by a factor."""
    descent = Descent(objective, scores, is_calibrated=False)
    output = np.arange(5.0)
    leaves, sums = objective.gather(
        descent.at, np.zeros_like(scores), output[np.arange(scores.size) % 5][None]
    )
    step = descent.newton_step(sums)
    longer = NewtonStep(factor * step.values, factor * step.slope, step.payoff)
    return descent, leaves, longer


def test_a_step_that_overshoots_is_halved_until_the_objective_falls():
    objective, _, scores = make()
    descent, leaves, step = step_of(objective, scores, 1000)
    start = descent.value
    values, n_halvings = descent.take(leaves, step)
    assert n_halvings > 3
    assert descent.value < start
    assert_allclose(values[0], step.values * 0.5**n_halvings)
    assert_allclose(descent.at.scores[0], scores[0] + values[0][leaves[0].code])


def test_a_step_that_climbs_is_not_taken():
    objective, oracle, scores = make()
    descent, leaves, step = step_of(objective, scores, -1)
    start, before = descent.value, descent.at.scores.copy()
    values, _ = descent.take(leaves, step)
    assert_array_equal(values[0], np.zeros(5))
    assert_array_equal(descent.at.scores, before)
    assert descent.value == start
    gradient, _ = objective.gradients(
        descent.at, step.payoff
    )  # of the scores that are kept
    point = oracle.at(scores)
    expected = oracle.gradient(point, oracle.slopes(point), step.payoff)
    assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6)


def test_the_multiplier_is_the_payoff_of_the_table_that_a_step_leads_to():
    objective, oracle, scores = make("chi2", fairness_weight=1000.0)
    _, leaves, step = step_of(objective, scores, 1)
    after = oracle.at(scores + step.values[leaves[0].code])
    last = oracle.at(scores)
    spread = [
        np.ptp(payoff[:, 1] - payoff[:, 0])
        for payoff in (oracle.slopes(p).payoff for p in (after, last))
    ]
    actual = np.ptp(step.payoff[:, 1] - step.payoff[:, 0])
    assert abs(actual - spread[0]) < 0.1 * abs(spread[1])


def test_outputs_one_unit_apart_are_one_leaf():
    code = np.array([0, 1, 2, 1, 3], dtype=np.uint32)
    leaves, sums = merge_leaves(
        code, np.array([70, 10, 11, 40]), 0.5, np.arange(4.0) + 1
    )
    assert_array_equal(leaves.output, [5.0, 20.0, 35.0])
    assert_array_equal(leaves.code, [2, 0, 0, 0, 1])
    assert_array_equal(sums, [5.0, 4.0, 1.0])


def test_the_nearest_output_is_that_of_the_leaf():
    rounds = pytest.importorskip("fferm.boosting.rounds", exc_type=ImportError)
    output = np.array([0.1, -0.3, 2.0, 0.1 + 1e-7])
    moved = output[[2, 0, 3, 1, 3]] + 1e-12
    assert_array_equal(rounds.nearest(output, moved), [2, 0, 3, 1, 3])


def test_every_notion_with_strata_is_tested_here():
    known = {name for name in Notion.known() if "fferm" in str(Notion.registered(name))}
    assert known <= set(NOTIONS)
