"""Minibatch gradients are right on average: every batch is enumerated, none drawn.

Two estimators are exact at any batch size: the gradient of the dual objective at a
fixed dual table (fully stochastic), and the look-up of a payoff that was computed on
the whole table (semi-stochastic). Computing the penalty on the batch itself is not:
its bias is shown, and at batch size 1 it sees nothing at all.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from instances import REGISTERED
from numpy.testing import assert_allclose
from scipy.special import softmax

from fferm import tables
from fferm.data.groups import Attribute
from fferm.data.rows import Rows
from fferm.divergences import KL, Affine
from fferm.notions import EqualizedOdds, Labels, Strata
from fferm.notions import get as get_notion
from fferm.penalty.objective import Objective, Penalty

N_SAMPLES = 6
# Sums of tens of terms of size 1 in double precision.
EXACT = 1e-12

DIVERGENCES = {**REGISTERED, "tilted": Affine(KL(), scale=2.0, slope=0.5)}
NOTIONS = {
    "demographic_parity": get_notion("demographic_parity"),
    "equal_opportunity": get_notion("equal_opportunity"),
    "equalized_odds_unit": EqualizedOdds(weights="unit"),
    "equalized_odds_frequency": EqualizedOdds(weights="frequency"),
}
SIZES = {
    "two_classes_two_groups": (2, np.array([0, 0, 1, 0, 1, 1])),
    "three_classes_two_groups": (3, np.array([0, 0, 1, 0, 1, 1])),
    "three_classes_three_groups": (3, np.array([0, 1, 2, 0, 1, 2])),
}
Y = np.array([0, 0, 0, 1, 1, 1])

EVERYONE = list(range(N_SAMPLES))
BATCHES = {
    "one": [[i] for i in EVERYONE],
    "two_with_replacement": [list(b) for b in itertools.product(EVERYONE, EVERYONE)],
    "two_without_replacement": [list(b) for b in itertools.permutations(EVERYONE, 2)],
}

every_divergence = pytest.mark.parametrize(
    "divergence", DIVERGENCES.values(), ids=DIVERGENCES
)
every_notion = pytest.mark.parametrize("notion", NOTIONS.values(), ids=NOTIONS)


@dataclass(frozen=True)
class Case:
    """A linear softmax model on six rows, and what the notion makes of them."""

    X: np.ndarray  # (n, d)
    theta: np.ndarray  # (d, m)
    group: np.ndarray  # (n,)
    strata: Strata
    weight: np.ndarray  # (n_strata,) w_e

    @property
    def n_groups(self):
        return int(self.group.max()) + 1

    @property
    def in_cell(self):
        """Return (n, n_strata, n_groups) one-hot places of the rows."""
        code, names = self.strata.code, self.strata.names
        in_stratum = code[:, None] == np.arange(len(names))
        in_group = self.group[:, None] == np.arange(self.n_groups)
        return (in_stratum[:, :, None] & in_group[:, None, :]).astype(float)

    @property
    def share(self):
        """Return (n_strata,) rho_e of the whole data."""
        return self.in_cell.sum(axis=(0, 2)) / N_SAMPLES

    @property
    def prior(self):
        """Return (n_strata, n_groups) pi_{k|e} of the whole data."""
        count = self.in_cell.sum(axis=0)
        return count / count.sum(axis=1, keepdims=True)

    def prob(self, theta):
        return softmax_of(self.X @ theta)

    def by_theta(self, rows, by_prob):
        """Return the (d, m) gradient of some rows' term, from that by their prob."""
        prob = self.prob(self.theta)[rows]
        by_logits = prob * (by_prob - np.sum(prob * by_prob, axis=1, keepdims=True))
        return self.X[rows].T @ by_logits


def softmax_of(logits):
    """Return the softmax of logits that may be complex."""
    grown = np.exp(logits - logits.real.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True)


@pytest.fixture(params=SIZES.values(), ids=SIZES)
def case(request, notion):
    n_classes, group = request.param
    rng = np.random.default_rng(5)
    strata = notion.strata(Labels(N_SAMPLES, y=Y, classes=(0, 1)))
    share = np.array([np.mean(strata.code == r) for r in range(len(strata.names))])
    return Case(
        X=np.column_stack([np.ones(N_SAMPLES), rng.normal(size=(N_SAMPLES, 2))]),
        theta=rng.normal(size=(3, n_classes)) / 2,
        group=group,
        strata=strata,
        weight=share if notion.weighting == "frequency" else np.ones_like(share),
    )


@pytest.fixture
def dual(case, divergence):
    """Return any (n_strata, m, K) dual table within the domain."""
    rng = np.random.default_rng(6)
    shape = (len(case.share), case.theta.shape[1], case.n_groups)
    if divergence.is_smooth:
        return divergence.f_prime(np.exp(rng.normal(size=shape)), np)
    return rng.uniform(-0.45, 0.45, size=shape)


def central(function, theta, step):
    """Return central differences; with a complex step they are exact."""
    gradient = np.empty(theta.shape)
    for cell in np.ndindex(theta.shape):
        move = np.zeros(theta.shape, dtype=type(step))
        move[cell] = step
        up, down = function(theta + move), function(theta - move)
        change = (up - down) / (2 * step)
        gradient[cell] = change.real
    return gradient


# The fully stochastic estimator.


def dual_value(case, theta, dual, divergence):
    """Return the dual objective on the whole data, from its tables."""
    given = case.in_cell / (N_SAMPLES * case.share[:, None])
    p = np.einsum("ij,irk->rjk", case.prob(theta), given)  # P(j, k | e)
    q = p.sum(axis=2, keepdims=True) * case.prior[:, None, :]
    parts = np.sum(dual * p - divergence.conjugate(dual, np) * q, axis=(1, 2))
    return case.weight @ parts


def minibatch_theta_gradient(case, rows, dual, divergence):
    """Return the gradient of sum_e (w_e / rho_e) 1[e_i = e] sum_j F_ij (A - C)."""
    charge = np.einsum("rk,rjk->rj", case.prior, divergence.conjugate(dual, np))
    payoff = dual - charge[:, :, None]
    factor = case.weight / case.share
    by_prob = np.einsum("r,irk,rjk->ij", factor, case.in_cell[rows], payoff)
    return case.by_theta(rows, by_prob) / len(rows)


def minibatch_dual_gradient(case, rows, dual, divergence):
    prob, place = case.prob(case.theta)[rows], case.in_cell[rows]
    joint = np.einsum("ij,irk->rjk", prob, place) / len(rows)
    predicted = joint.sum(axis=2, keepdims=True)
    ratio = divergence.conjugate_prime(dual, np)
    factor = (case.weight / case.share)[:, None, None]
    return factor * (joint - ratio * predicted * case.prior[:, None, :])


@every_notion
@every_divergence
def test_the_dual_estimator_is_unbiased_at_any_dual(case, dual, divergence):
    def value(theta):
        return dual_value(case, theta, dual, divergence)

    descent = central(value, case.theta, 1e-20j)
    ascent = minibatch_dual_gradient(case, EVERYONE, dual, divergence)
    for batches in BATCHES.values():
        by_theta, by_dual = zip(
            *(
                (
                    minibatch_theta_gradient(case, rows, dual, divergence),
                    minibatch_dual_gradient(case, rows, dual, divergence),
                )
                for rows in batches
            ),
            strict=True,
        )
        assert_allclose(np.mean(by_theta, axis=0), descent, rtol=EXACT, atol=EXACT)
        assert_allclose(np.mean(by_dual, axis=0), ascent, rtol=EXACT, atol=EXACT)


@every_notion
@every_divergence
def test_the_dual_gradient_is_the_slope_of_the_dual_objective(case, dual, divergence):
    # Which makes the full-batch gradient, to which batches average, the right one.
    ascent = minibatch_dual_gradient(case, EVERYONE, dual, divergence)
    slope = central(
        lambda dual: np.float64(dual_value(case, case.theta, dual, divergence)),
        dual,
        1e-6,
    )
    assert_allclose(ascent, slope, rtol=1e-6, atol=1e-8)


# The semi-stochastic estimator.


def joint_of(case, theta, rows):
    return tables.joint(
        case.prob(theta)[rows],
        case.group[rows],
        case.n_groups,
        stratum=case.strata.code[rows],
        n_strata=len(case.strata.names),
    )


def surrogate_gradient(case, rows, payoff):
    """Return the gradient of the look-up (1/b) sum_i sum_j F_ij G[r_i, j, k_i]."""
    by_prob = np.einsum("irk,rjk->ij", case.in_cell[rows], payoff)
    return case.by_theta(rows, by_prob) / len(rows)


@every_notion
@every_divergence
def test_the_payoff_of_the_whole_table_is_unbiased(case, notion, divergence):
    def value(theta):
        joint = joint_of(case, theta, EVERYONE)
        return tables.penalty(joint, divergence, weighting=notion.weighting)[0]

    joint = joint_of(case, case.theta, EVERYONE)
    _, payoff = tables.penalty(joint, divergence, weighting=notion.weighting)
    full = surrogate_gradient(case, EVERYONE, payoff)
    slope = central(value, case.theta, 1e-6)
    # Central differences are right to 1e-9 or so of the largest entry.
    assert_allclose(full, slope, rtol=1e-6, atol=1e-7 * np.abs(slope).max())
    for batches in BATCHES.values():
        mean = np.mean([surrogate_gradient(case, b, payoff) for b in batches], axis=0)
        assert_allclose(mean, full, rtol=EXACT, atol=EXACT)


@every_notion
@every_divergence
def test_the_penalty_for_training_averages_to_its_own_gradient(
    case, notion, divergence
):
    groups = tuple(f"group {k}" for k in range(case.n_groups))
    rows = Rows(
        (Attribute("group", groups, case.group),), case.strata, np.ones(N_SAMPLES)
    )
    penalty = Penalty(Objective(divergence, notion), rows)
    prob = softmax(case.X @ case.theta, axis=1)
    (table,) = penalty.tables(prob)
    _, (payoff,) = penalty.on_tables([table])
    by_prob = penalty.by_prob(prob, [payoff])
    mean = np.mean(
        [surrogate_gradient(case, [i], payoff) for i in range(N_SAMPLES)], axis=0
    )
    expected = case.by_theta(EVERYONE, by_prob)
    assert_allclose(mean, expected, rtol=EXACT, atol=EXACT)


# What goes wrong without either.


def plug_in_gradient(case, rows, notion, divergence):
    """Return the gradient of the penalty of the batch's own table."""
    joint = joint_of(case, case.theta, rows)
    if joint.sum() == 0:  # no row of the batch is in any stratum
        return np.zeros_like(case.theta)
    _, payoff = tables.penalty(joint, divergence, weighting=notion.weighting)
    return surrogate_gradient(case, rows, payoff)


def bias_of_plug_in(case, batches, notion, divergence):
    mean = np.mean(
        [plug_in_gradient(case, b, notion, divergence) for b in batches], axis=0
    )
    full = plug_in_gradient(case, EVERYONE, notion, divergence)
    return np.linalg.norm(mean - full) / np.linalg.norm(full)


@every_notion
@every_divergence
def test_the_penalty_of_a_batch_of_two_is_biased(case, notion, divergence):
    for drawn in ("two_with_replacement", "two_without_replacement"):
        assert bias_of_plug_in(case, BATCHES[drawn], notion, divergence) > 0.1


@every_notion
@every_divergence
def test_the_penalty_of_one_sample_has_no_gradient(case, notion, divergence):
    for row in range(N_SAMPLES):
        gradient = plug_in_gradient(case, [row], notion, divergence)
        # One sample is always independent of itself.
        assert np.abs(gradient).max() <= EXACT
