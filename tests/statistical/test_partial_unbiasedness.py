"""Pieces of one row are right on average: their gradients have the full one as mean."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from fferm import FairLogisticRegression, GroupCounts
from fferm.data.rows import FitInput
from fferm.estimators import partial
from fferm.penalty.compiled import bind_dual, payoff_into
from fferm.penalty.dual import dual_variable
from fferm.solvers._kernels import (
    Steps,
    batch_gradients_into,
    dual_gradient_into,
    make_scratch,
)
from fferm.solvers.linear import linear_logits, value_and_gradient
from fferm.solvers.partial import PartialTrainer

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")

N_ROWS, N_FEATURES = 24, 3
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N_ROWS, N_FEATURES))
S = np.array([["a", "u"], ["b", "u"], ["a", "v"], ["b", "v"]] * 6)
# Sums of tens of terms of size 1 in double precision.
EXACT = 1e-12


def gradients(piece, theta, z):
    """Return the kernel's gradients of one batch, by parameters and by dual."""
    objective = piece.problem.objective
    dual = bind_dual(objective, piece.weights, piece.problem.n_classes, 1)
    dual = dual._replace(z=z[..., None].copy())
    steps = Steps(
        dual.scale * np.array([objective.fairness_weight]),
        objective.sharpness,
        objective.l2,
        0.0,
        0.0,
        0,
        1,
        True,
    )
    columns = np.ascontiguousarray(theta.T)
    scratch = make_scratch(columns, dual.z)
    payoff_into(dual, scratch)
    batch = np.arange(piece.rows.size)
    batch_gradients_into(piece.rows, batch, batch[:0], columns, steps, 1.0, scratch)
    dual_gradient_into(dual, scratch)
    used = scratch.used[: scratch.counts[0]]
    gradient = np.zeros_like(columns)
    gradient[used] = scratch.gradient[used]
    return gradient.T, scratch.slope[..., 0].copy()


def noting(trainers):
    """Return a trainer that notes itself when it is made."""

    class Noted(PartialTrainer):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            trainers.append(self)

    return Noted


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("how", ["intersection", "marginal"])
@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
@pytest.mark.parametrize("divergence", ["kl", "chi2", "js", "tv"])
def test_pieces_of_one_row_average_to_the_full_gradient(
    divergence, notion, how, n_classes, monkeypatch
):
    y = np.tile(np.repeat(np.arange(n_classes), 4), N_ROWS)[:N_ROWS]
    s = np.where(np.arange(N_ROWS)[:, None] % 11 == 5, None, S)  # some are missing
    model = FairLogisticRegression(
        divergence=divergence, notion=notion, groups=how, fairness_weight=2.0
    )
    counts = GroupCounts()
    counts.update(sensitive_features=s, y=y)

    def piece(i):
        trainers = []
        monkeypatch.setattr(partial, "PartialTrainer", noting(trainers))
        clone(model).partial_fit(
            X[[i]], y[[i]], groups=counts, sensitive_features=s[[i]]
        )
        return trainers[0]

    problem = model._encode(FitInput(X, y, s)).problem
    rng = np.random.default_rng(4)
    theta = rng.normal(size=(1 if n_classes == 2 else n_classes, N_FEATURES + 1))
    variable = dual_variable(problem.objective.divergence)
    prob = problem.penalized_prob(linear_logits(X, theta))
    tables = problem.penalty.tables(prob)
    best = np.concatenate([_best(variable, table) for table in tables], axis=2)
    by_theta, by_dual = zip(
        *(gradients(piece(i), theta, best) for i in range(N_ROWS)), strict=True
    )
    mean = np.mean(by_theta, axis=0)
    mean[:, :-1] += problem.objective.l2 * theta[:, :-1]
    assert_allclose(mean, value_and_gradient(problem, theta)[1], atol=EXACT)
    if divergence != "tv":  # whose dual may rest at the end of its box
        assert_allclose(np.mean(by_dual, axis=0), 0, atol=EXACT)


def _best(variable, table):
    """Return the best variable on an (R, m, K) table of joint probabilities."""
    stratum = table.sum(axis=(1, 2), keepdims=True)
    product = table.sum(axis=1, keepdims=True) * table.sum(axis=2, keepdims=True)
    return variable.best(table * stratum / product)
