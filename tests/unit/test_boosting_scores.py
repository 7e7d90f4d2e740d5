"""The objective of raw scores: its derivatives, its Newton steps, its descent."""

import numpy as np
import pytest
from boosting_problems import NOTIONS, classes_of, make
from instances import REGISTERED
from numpy.testing import assert_allclose, assert_array_equal

from fferm import LargeShift, SmallShift
from fferm.boosting.decisions import follow
from fferm.boosting.descent import Descent
from fferm.boosting.leaves import Bowl, Leaves, NewtonStep, assign, merged, newton_step
from fferm.boosting.placement import place
from fferm.boosting.table_slopes import TablePenalty
from fferm.data.rows import encode_rows
from fferm.notions import Labels, Notion
from fferm.penalty.objective import Penalty, Problem, make_objective

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")


def central(function, x, step):
    """The derivative of a function of a vector by central differences."""
    ends = [
        [np.asarray(function(x + sign * step * e)) for e in np.eye(x.size)]
        for sign in (1, -1)
    ]
    return ((np.array(ends[0]) - np.array(ends[1])) / (2 * step)).T


def assert_is_gradient(objective, scores, offsets=None):
    """Compare with differences along some scores, and along all of them at once."""
    rng = np.random.default_rng(1)
    point = objective.at(scores)
    slopes = objective.slopes(point, offsets)
    gradient = objective.gradient(point, slopes) / objective.total
    single = np.eye(scores.size)[rng.choice(scores.size, 6, replace=False)]
    directions = np.vstack([single, rng.normal(size=(4, scores.size))])

    def along(steps):
        moved = scores + (steps @ directions).reshape(scores.shape)
        return objective.value(objective.at(moved), offsets)

    expected = central(along, np.zeros(len(directions)), 1e-5)
    assert_allclose(directions @ gradient.ravel(), expected, atol=1e-6)


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("divergence", REGISTERED)
def test_the_gradient_is_that_of_finite_differences(divergence, notion):
    for n_classes in classes_of(notion):
        objective, scores = make(REGISTERED[divergence], notion, n_classes)
        assert_is_gradient(objective, scores)


@pytest.mark.parametrize(
    "uncertainty",
    [SmallShift(0.01), LargeShift(0.01), LargeShift(0.01, mode="coupled")],
)
def test_the_gradient_of_a_worst_case_is_that_of_finite_differences(uncertainty):
    objective, scores = make("jensen_shannon", uncertainty=uncertainty)
    assert_is_gradient(objective, scores)


@pytest.mark.parametrize("how", ["intersection", "marginal"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_objective_is_that_of_the_oracle(n_classes, how):
    objective, scores = make(n_classes=n_classes, how=how)
    share = objective.weight / objective.total
    problem = Problem(
        objective.objective, None, objective.y, share, n_classes, objective.penalty
    )
    logits = scores.T
    if n_classes == 2:
        logits = np.column_stack([np.zeros(len(logits)), logits])
    value, gradient = problem.value_and_gradient(logits)
    point = objective.at(scores)
    assert_allclose(objective.value(point), value, rtol=1e-12)
    found = objective.gradient(point, objective.slopes(point)) / objective.total
    expected = gradient.T[1:] if n_classes == 2 else gradient.T
    assert_allclose(found, expected, atol=1e-14)


def cells_of(objective, scores):
    """Cells of probabilities and of decisions, and where each table ends."""
    place, link = objective.placement, objective.link
    decided = place.decided(link.decide(scores), link.n_classes)
    cells = place.join(objective.at(scores).tables)
    return cells, place.join(decided), place.ends


def test_offsets_move_the_table_and_not_its_slope():
    objective, scores = make()
    cells, decided, ends = cells_of(objective, scores)
    offsets = follow(cells, decided, np.zeros_like(cells), ends)
    assert_is_gradient(objective, scores, objective.placement.split(offsets))


def test_offsets_come_to_rest_at_the_table_of_decisions():
    objective, scores = make(how="marginal")
    cells, decided, ends = cells_of(objective, scores)
    offsets = np.zeros_like(cells)
    for _ in range(200):
        offsets = follow(cells, decided, offsets, ends)
    assert_allclose(cells + offsets, decided, atol=1e-9)


def test_decisions_that_know_one_class_are_not_followed():
    objective, scores = make()
    cells, decided, ends = cells_of(objective, scores - 100)
    found = follow(cells, decided, np.zeros_like(cells), ends)
    assert_array_equal(found, np.zeros((2, 2)))


def hessian(divergence, notion, table):
    """The root of the curvature on a table, and the curvature by differences."""
    objective = make_objective(divergence, notion)
    n_strata, _, n_groups = shape = table.shape
    y, group = (a.ravel() for a in np.indices((2, n_groups)))
    rows = encode_rows(group, objective.notion, Labels(y.size, y, (0, 1)))
    penalty = Penalty(objective, rows)
    found = TablePenalty(penalty, place(penalty, y.size))
    cells = table.transpose(0, 2, 1).reshape(n_strata * n_groups, -1)

    def payoff(flat):
        cells = flat.reshape(shape[0], shape[2], shape[1]).transpose(0, 2, 1)
        return penalty.on_table(cells)[1].transpose(0, 2, 1).ravel()

    second = central(payoff, cells.ravel(), 1e-6)
    return found.root(cells), (second + second.T) / 2


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


def jacobian(objective, scores):
    """How the cells of all tables move with each score."""

    def cells(flat):
        point = objective.at(flat.reshape(scores.shape))
        return objective.placement.join(point.tables).ravel()

    return central(cells, scores.ravel(), 1e-5)


@pytest.mark.parametrize("how", ["intersection", "marginal"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_step_over_leaves_is_the_newton_step_of_their_values(n_classes, how):
    objective, scores = make(n_classes=n_classes, how=how)
    point = objective.at(scores)
    slopes = objective.slopes(point)
    n, n_scores = scores.shape[1], scores.shape[0]
    leaves = [
        Leaves(np.arange(n) % (3 + s), np.arange(3.0 + s)) for s in range(n_scores)
    ]
    incidence = np.zeros((n_scores, n, sum(tree.size for tree in leaves)))
    first = 0
    for s, tree in enumerate(leaves):
        incidence[s, np.arange(n), first + tree.code] = 1
        first += tree.size
    flat = incidence.reshape(n_scores * n, -1)
    bowl = bowl_of(objective, scores)
    root = bowl.root @ jacobian(objective, scores) @ flat
    diagonal = slopes.diagonal.ravel() / (0.1 * objective.total)
    whole = flat.T @ np.diag(diagonal) @ flat
    whole += objective.objective.fairness_weight * root.T @ root
    gradient = flat.T @ objective.gradient(point, slopes).ravel() / objective.total
    found = newton_step(objective.leaf_sums(point, slopes, leaves), bowl, 0.1)
    assert_allclose(found.values, -np.linalg.solve(whole, gradient), atol=1e-7)
    assert_allclose(found.slope, gradient @ found.values, rtol=1e-6)
    assert found.slope < 0


def bowl_of(objective, scores):
    """Slope and curvature of the penalty at scores."""
    point, place = objective.at(scores), objective.placement
    root = TablePenalty(objective.penalty, place).root(place.join(point.tables))
    payoff = objective.slopes(point).payoff
    return Bowl(payoff, root, objective.objective.fairness_weight, objective.total)


def step_of(objective, scores, factor):
    """Where descent stands, five leaves, and a step over them, too long by a factor."""
    descent = Descent(objective, scores, is_calibrated=False)
    output = np.arange(5.0)
    leaves, sums = descent.gather(
        np.zeros_like(scores), output[np.arange(scores.size) % 5][None]
    )
    step = newton_step(sums, descent.bowl())
    longer = NewtonStep(factor * step.values, factor * step.slope, step.payoff)
    return descent, leaves, longer


def test_a_step_that_overshoots_is_halved_until_the_objective_falls():
    objective, scores = make()
    descent, leaves, step = step_of(objective, scores, 1000)
    start = descent.value
    values, n_halvings = descent.take(leaves, step)
    assert n_halvings > 3
    assert descent.value < start
    assert_allclose(values[0], step.values * 0.5**n_halvings)
    assert_allclose(descent.scores[0], scores[0] + values[0][leaves[0].code])


def test_a_step_that_climbs_is_not_taken():
    objective, scores = make()
    descent, leaves, step = step_of(objective, scores, -1)
    start, before = descent.value, descent.scores.copy()
    values, _ = descent.take(leaves, step)
    assert_array_equal(values[0], np.zeros(5))
    assert_array_equal(descent.scores, before)
    assert descent.value == start
    gradient, _ = descent.aim(step.payoff)  # of the scores that are kept
    point = objective.at(scores)
    expected = objective.gradient(point, objective.slopes(point), step.payoff)
    assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6)


def test_the_multiplier_is_the_payoff_of_the_table_that_a_step_leads_to():
    objective, scores = make("chi2", fairness_weight=1000.0)
    _, leaves, step = step_of(objective, scores, 1)
    after = objective.at(scores + step.values[leaves[0].code])
    last = objective.at(scores)
    spread = [
        np.ptp(payoff[:, 1] - payoff[:, 0])
        for payoff in (objective.slopes(p).payoff for p in (after, last))
    ]
    found = np.ptp(step.payoff[:, 1] - step.payoff[:, 0])
    assert abs(found - spread[0]) < 0.1 * abs(spread[1])


def test_outputs_one_unit_apart_are_one_leaf():
    code = np.array([0, 1, 2, 1, 3], dtype=np.uint32)
    leaves, sums = merged(code, np.array([70, 10, 11, 40]), 0.5, np.arange(4.0) + 1)
    assert_array_equal(leaves.output, [5.0, 20.0, 35.0])
    assert_array_equal(leaves.code, [2, 0, 0, 0, 1])
    assert_array_equal(sums, [5.0, 4.0, 1.0])


def test_the_nearest_output_is_that_of_the_leaf():
    output = np.array([0.1, -0.3, 2.0, 0.1 + 1e-7])
    moved = output[[2, 0, 3, 1, 3]] + 1e-12
    assert_array_equal(assign(output, moved), [2, 0, 3, 1, 3])


def test_every_notion_with_strata_is_tested_here():
    known = {name for name in Notion.known() if "fferm" in str(Notion.registered(name))}
    assert known <= set(NOTIONS)
