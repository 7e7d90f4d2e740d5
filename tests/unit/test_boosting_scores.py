"""The objective of raw scores: its derivatives, its Newton steps, its descent."""

import numpy as np
import pytest
from instances import REGISTERED
from numpy.testing import assert_allclose, assert_array_equal

from fferm import LargeShift, SmallShift
from fferm.boosting.curvature import curvature_root
from fferm.boosting.decisions import follow
from fferm.boosting.leaves import (
    Leaves,
    NewtonStep,
    assign,
    find_leaves,
    newton_step,
    search,
)
from fferm.boosting.scores import ScoreObjective
from fferm.data import encode_rows
from fferm.notions import Labels, Notion
from fferm.objective import Penalty, Problem, make_objective

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")

NOTIONS = [
    "demographic_parity",
    "equal_opportunity",
    "equalized_odds",
    "false_positive_rate_parity",
    "sufficiency",
    "predictive_parity",
]


def make(
    divergence="kl",
    notion="demographic_parity",
    n_classes=2,
    how="intersection",
    seed=0,
    uncertainty=None,
    fairness_weight=3.0,
):
    """An objective on random rows, and scores to look at it from."""
    rng = np.random.default_rng(seed)
    n = 40
    y = np.arange(n) % n_classes
    weight = rng.uniform(0.5, 2, n)
    groups = {"a": rng.integers(0, 2, n), "b": rng.integers(0, 3, n)}
    objective = make_objective(
        divergence,
        notion,
        uncertainty,
        fairness_weight=fairness_weight,
        sharpness=1.7,
    )
    labels = Labels(n, y, tuple(range(n_classes)))
    rows = encode_rows(
        groups if how == "marginal" else groups["a"],
        objective.notion,
        labels,
        how=how,
        sample_weight=weight,
    )
    penalty = Penalty(objective, rows, objective.notion.kept_class(labels.classes))
    found = ScoreObjective(objective, y, weight, n_classes, penalty)
    return found, rng.normal(size=(found.link.n_scores, n))


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


def kind_of(notion):
    return 2 if notion in ("equal_opportunity", "false_positive_rate_parity") else 3


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("divergence", REGISTERED)
def test_the_gradient_is_that_of_finite_differences(divergence, notion):
    for n_classes in {2, kind_of(notion)} if notion != "predictive_parity" else {2}:
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


def test_offsets_move_the_table_and_not_its_slope():
    objective, scores = make()
    offsets = follow(objective, objective.at(scores), None)
    assert_is_gradient(objective, scores, offsets)


def test_offsets_come_to_rest_at_the_table_of_decisions():
    objective, scores = make()
    point, offsets = objective.at(scores), None
    for _ in range(200):
        offsets = follow(objective, point, offsets)
    decided = objective.placement.decided((scores[0] > 0).astype(int), 2)
    assert_allclose(point.tables[0] + offsets[0], decided[0], atol=1e-9)


def test_decisions_that_know_one_class_are_not_followed():
    objective, scores = make()
    point = objective.at(scores - 100)
    assert_array_equal(follow(objective, point, None)[0], np.zeros((1, 2, 2)))


def hessian(divergence, notion, table):
    """The curvature of the penalty on a table, in the order of the root."""
    objective = make_objective(divergence, notion)
    rows = encode_rows([0, 1], objective.notion, Labels(2, np.array([0, 1]), (0, 1)))
    penalty = Penalty(objective, rows)
    shape = table.shape

    def payoff(flat):
        cells = flat.reshape(shape[0], shape[2], shape[1]).transpose(0, 2, 1)
        return penalty.on_table(cells)[1].transpose(0, 2, 1).ravel()

    found = central(payoff, table.transpose(0, 2, 1).ravel(), 1e-6)
    return objective, (found + found.T) / 2


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
    objective, second = hessian(divergence, notion, table)
    root, move = curvature_root(objective, table), fixed_columns(table)
    excess = move.T @ (root.T @ root - second) @ move
    scale = np.abs(move.T @ second @ move).max()
    assert np.linalg.eigvalsh(excess).min() > -1e-5 * scale
    if divergence == "chi2" and notion == "demographic_parity":
        assert_allclose(excess, np.zeros_like(excess), atol=1e-5 * scale)


def test_the_curvature_of_sufficiency_is_exact_at_independence():
    label, group = np.array([0.3, 0.7]), np.array([0.6, 0.4])
    table = np.einsum("l,j,k->ljk", label, [0.2, 0.8], group)
    objective, second = hessian("kl", "sufficiency", table)
    root, move = curvature_root(objective, table), fixed_columns(table)
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
    root = slopes.root @ jacobian(objective, scores) @ flat
    diagonal = slopes.diagonal.ravel() / (0.1 * objective.total)
    whole = flat.T @ np.diag(diagonal) @ flat
    whole += objective.objective.fairness_weight * root.T @ root
    gradient = flat.T @ objective.gradient(point, slopes).ravel() / objective.total
    found = newton_step(objective, point, slopes, leaves, 0.1)
    assert_allclose(found.values, -np.linalg.solve(whole, gradient), atol=1e-7)
    assert_allclose(found.slope, gradient @ found.values, rtol=1e-6)
    assert found.slope < 0


def step_of(objective, scores, factor):
    """A Newton step over five leaves, too long by a factor."""
    point = objective.at(scores)
    leaves = [Leaves(np.arange(scores.size) % 5, np.arange(5.0))]
    step = newton_step(objective, point, objective.slopes(point), leaves)
    longer = NewtonStep(factor * step.values, factor * step.slope, step.payoff)
    return point, leaves, longer


def test_a_step_that_overshoots_is_halved_until_the_objective_falls():
    objective, scores = make()
    point, leaves, step = step_of(objective, scores, 1000)
    taken = search(objective, point, leaves, step, objective.value(point))
    assert taken.n_halvings > 3
    assert taken.objective < objective.value(point)
    assert_allclose(taken.values[0], step.values * 0.5**taken.n_halvings)


def test_a_step_that_climbs_is_not_taken():
    objective, scores = make()
    point, leaves, step = step_of(objective, scores, -1)
    taken = search(objective, point, leaves, step, objective.value(point))
    assert_array_equal(taken.values[0], np.zeros(5))
    assert taken.objective == objective.value(point)


def test_the_multiplier_is_the_payoff_of_the_table_that_a_step_leads_to():
    objective, scores = make("chi2", fairness_weight=1000.0)
    point, leaves, step = step_of(objective, scores, 1)
    after = objective.at(scores + step.values[leaves[0].code])
    ahead, last = (objective.slopes(p).payoff for p in (after, point))
    spread = [np.ptp(payoff[:, 1] - payoff[:, 0]) for payoff in (ahead, last)]
    found = np.ptp(step.payoff[:, 1] - step.payoff[:, 0])
    assert abs(found - spread[0]) < 0.1 * abs(spread[1])


def test_leaves_are_told_apart_by_their_outputs():
    rng = np.random.default_rng(0)
    code, before = rng.integers(0, 4, 300), rng.normal(size=300) * 10
    output = np.array([-0.3, 0.1, 0.1 + 1e-7, 2.0])
    after = before + output[code]
    leaves = find_leaves(before, after)
    assert_array_equal(leaves.code, code)
    assert_allclose(leaves.output, output, atol=1e-10)
    assert_array_equal(assign(leaves.output, after - before), code)


def test_leaves_of_one_output_are_one():
    before = np.linspace(-5, 5, 50)
    leaves = find_leaves(before, before + 0.25)
    assert leaves.size == 1
    assert_array_equal(leaves.code, np.zeros(50))


def test_every_notion_with_strata_is_tested_here():
    known = {name for name in Notion.known() if "fferm" in str(Notion.registered(name))}
    assert known - {"conditional_parity"} <= set(NOTIONS)
