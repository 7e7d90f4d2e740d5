"""Fused passes and table kernels against the NumPy forms that they stand for."""

from dataclasses import dataclass

import numpy as np
import pytest
from boosting_problems import NOTIONS, classes_of, make
from instances import REGISTERED
from numpy.testing import assert_allclose, assert_array_equal

from fferm import LargeShift
from fferm.boosting.objective import N_KEYS, Leaves
from fferm.divergences import Alpha, trainable
from fferm.divergences.base import FEW, evaluate
from fferm.notions import Comparison, EqualizedOdds, Notion

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")

# More rows than a block, and no multiple of it.
N_ROWS = 2500


def assert_same_penalty(objective, oracle, scores):
    point, compiled = oracle.at(scores), objective.penalty
    value, payoffs = oracle.penalty.on_tables(point.tables)
    actual, payoff = compiled.value_and_payoff(compiled.join(point.tables))
    assert_allclose(actual, value, atol=1e-14, rtol=1e-12)
    scale = max(1.0, np.abs(compiled.join(payoffs)).max())
    assert_allclose(payoff, compiled.join(payoffs), atol=1e-12 * scale)


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("divergence", REGISTERED)
def test_a_penalty_on_cells_is_that_on_tables(divergence, notion):
    for n_classes in classes_of(notion):
        objective, oracle, scores = make(REGISTERED[divergence], notion, n_classes)
        assert_same_penalty(objective, oracle, scores)
        assert_same_penalty(objective, oracle, 30 * scores)  # nearly empty cells


@pytest.mark.parametrize("n_classes", [2, 3])
def test_attributes_one_by_one_and_empty_cells_are_those_of_tables(n_classes):
    objective, oracle, scores = make(n_classes=n_classes, how="marginal")
    assert_same_penalty(objective, oracle, scores)
    assert_same_penalty(objective, oracle, scores - 1e4)
    problem = make(n_classes=n_classes, uncertainty=LargeShift(0.01))
    assert_same_penalty(*problem)


@dataclass(frozen=True)
class Merged(Notion, abstract=True):
    """A notion with tables of its own, for tests."""

    weights: str
    is_moving: bool

    @property
    def weighting(self):
        return self.weights

    def strata(self, labels):
        return EqualizedOdds().strata(labels)

    def comparison(self, strata, classes):
        # Labels given the prediction, of which two are one; or two predictions that are
        # one given the label. One prediction of the first label is left out.
        condition, outcome = np.indices((len(strata), len(classes)))
        outcome = np.minimum(outcome, 1)
        if self.is_moving:
            condition, outcome = outcome, condition
        n_outcomes = int(outcome.max()) + 1
        place = condition * n_outcomes + outcome
        place[0, -1] = -1
        names = [tuple(map(str, range(n.max() + 1))) for n in (condition, outcome)]
        return Comparison(*names, place)


@pytest.mark.parametrize("how", ["intersection", "marginal"])
@pytest.mark.parametrize("weights", ["unit", "frequency", "probability"])
@pytest.mark.parametrize("is_moving", [False, True])
def test_tables_of_a_notion_of_ones_own_are_compared(is_moving, weights, how):
    notion = Merged(weights, is_moving)
    for divergence in ("kl", "total_variation", Alpha(3)):
        problem = make(divergence, notion, 3, how)
        assert_same_penalty(*problem)
        objective, oracle, scores = problem
        cells = oracle.cells(oracle.at(scores))
        root = objective.penalty.root(cells)
        assert root.shape == (cells.size, cells.size)
        assert np.isfinite(root).all()


def passes(objective, scores):
    """A pass over the rows, and leaves of every tree."""
    at = objective.row_pass(scores.copy())
    output = np.linspace(-2, 3, 7)
    code = np.arange(scores.size).reshape(scores.shape) % 7
    before = 5 * scores
    leaves, sums = objective.gather(at, before, before + output[code])
    return at, leaves, sums


@pytest.mark.parametrize("how", ["intersection", "marginal"])
@pytest.mark.parametrize("notion", NOTIONS)
def test_a_fused_pass_looks_at_rows_as_numpy_does(notion, how):
    for n_classes in classes_of(notion):
        objective, oracle, scores = make("kl", notion, n_classes, how, n=N_ROWS)
        at, leaves, sums = passes(objective, scores)
        point = oracle.at(scores)
        slopes = oracle.slopes(point)
        first = objective.n_classes - objective.n_scores
        assert_allclose(at.loss, point.loss, rtol=1e-13)
        assert_allclose(at.prob, point.prob[first:], rtol=1e-12)
        assert_allclose(at.penalized, point.penalized[first:], rtol=1e-12)
        assert_allclose(at.cells, oracle.cells(point), atol=1e-14)
        assert_allclose(at.decided, oracle.decided(scores), atol=1e-14)
        gradient, diagonal = objective.gradients(at, slopes.payoff)
        expected = oracle.gradient(point, slopes)
        assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6)
        assert_allclose(diagonal, slopes.diagonal, rtol=1e-6)
        assert gradient.dtype == diagonal.dtype == np.float32
        expected = oracle.leaf_sums(point, slopes, leaves)
        assert_allclose(sums.gradient, expected.gradient, atol=1e-10)
        assert_allclose(sums.diagonal, expected.diagonal, rtol=1e-12)
        assert_allclose(sums.moved, expected.moved, atol=1e-12)
        assert_allclose(objective.value(scores), oracle.value(point), rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_move_is_a_look_from_the_scores_that_it_leads_to(n_classes):
    objective, oracle, scores = make(n_classes=n_classes, n=N_ROWS)
    at, leaves, _ = passes(objective, scores)
    payoff = np.random.default_rng(0).normal(size=at.cells.shape)
    values = [
        np.linspace(-1, 1, tree.output.size) * (s + 1) for s, tree in enumerate(leaves)
    ]
    moved = objective.row_pass(at.scores, values, payoff)
    there = scores + [v[tree.code] for v, tree in zip(values, leaves, strict=True)]
    assert_array_equal(moved.scores, there)
    point = oracle.at(there)
    assert_allclose(moved.loss, point.loss, rtol=1e-13)
    assert_allclose(moved.cells, oracle.cells(point), atol=1e-14)
    gradient, _ = objective.gradients(moved, payoff)
    expected = oracle.gradient(point, oracle.slopes(point), payoff)
    assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6)


def test_scores_that_are_far_out_stay_finite():
    objective, oracle, scores = make(n=N_ROWS)
    at, point = objective.row_pass(400 * scores), oracle.at(400 * scores)
    assert_allclose(at.loss, point.loss, rtol=1e-13)
    assert_allclose(at.cells, oracle.cells(point), atol=1e-14)


def test_leaves_are_told_apart_by_how_far_they_move_scores():
    rng = np.random.default_rng(0)
    objective, _, scores = make(n=N_ROWS)
    at = objective.row_pass(scores)
    output = rng.permutation(np.r_[np.linspace(-1, 1, 3 * N_KEYS), 1 + 1e-7])
    code = rng.integers(0, output.size, scores.shape)
    before = 10 * scores
    (leaves,), _ = objective.gather(at, before.copy(), before + output[code])
    assert leaves.output.size == np.unique(code).size
    assert_allclose(leaves.output[leaves.code], output[code[0]], atol=1e-10)


def test_trees_of_one_round_may_have_few_leaves_and_many():
    objective, _, scores = make(n_classes=3, n=N_ROWS)
    at = objective.row_pass(scores.copy())
    sizes = np.array([[7], [2 * N_KEYS], [3]])
    code = np.arange(N_ROWS) % sizes
    leaves, _ = objective.gather(at, np.zeros_like(scores), 0.5 * code)
    assert [tree.output.size for tree in leaves] == sizes.ravel().tolist()
    moved = objective.row_pass(at.scores, [tree.output for tree in leaves])
    assert_allclose(moved.scores, scores + 0.5 * code, atol=1e-9)


def test_one_leaf_is_one_leaf():
    objective, _, scores = make()
    before = 5 * scores
    (leaves,), _ = objective.gather(objective.row_pass(scores), before, before + 0.25)
    assert isinstance(leaves, Leaves)
    assert leaves.output.size == 1
    assert_array_equal(leaves.code, np.zeros(scores.size))


@pytest.mark.parametrize("name", REGISTERED)
def test_a_formula_is_the_same_one_by_one_as_on_an_array(name):
    divergence = trainable(REGISTERED[name])
    t = np.r_[0.0, np.geomspace(1e-4, 1e4, FEW - 3), 1.0, 1 + 1e-9]
    for formula in (divergence.f_prime, divergence.f_second):
        assert_allclose(evaluate(formula, t), formula(t, np), rtol=1e-13, atol=1e-15)


def test_a_number_that_python_refuses_is_left_to_numpy():
    found = evaluate(lambda t, xp: xp.log(t), np.array([0.0, 1.0]))
    assert_array_equal(found, [-np.inf, 0.0])


def test_a_formula_that_takes_arrays_alone_is_given_an_array():
    found = evaluate(lambda t, xp: xp.log(t).reshape(t.shape), np.array([1.0, np.e]))
    assert_allclose(found, [0.0, 1.0], rtol=1e-15)
