r"""The fused kernel of Algorithm 1: descent of the model, ascent of the dual.

For a batch B, with ``F`` the probabilities that the penalty sees and ``A = f'(e^z)``,

.. math::

    g_\theta &= \frac1b \sum_{i \in B} \nabla \ell_i
        + \lambda \sum_j G_{r_i j k_i} \nabla F_{ij}, \quad
        G_{rjk} = \frac{w_r}{\rho_r}
            \Big(A_{rjk} - \sum_{k'} \pi_{rk'} f^*(A_{rjk'})\Big)

    g_{rjk} &= \hat P_{rjk} - \pi_{rk} \hat P_{rj} e^{z_{rjk}}

Both are taken at the old parameters, from the same batch. The model takes an Adagrad
step; the dual moves its log-ratio by ``g / (pi_k P_j)``, which has the fixed point
``z = ln(P / Q)`` whatever the divergence, and stays in its box. ``L`` fairness weights,
the *lanes*, are trained in one pass: X is read once for all of them.

Arrays in, arrays changed in place; tables are (strata, classes, groups, lanes).
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN202, C901, PLR0913, PLR0917

import math
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core.errors import NumbaExperimentalFeatureWarning

from fferm._types import FloatArray, IntArray
from fferm.duals import FIRST_DUAL_STEP, LARGEST_PUSH, SMALLEST_RATE
from fferm.solvers._rows import add_row, row_times

__all__ = [
    "FIRST_DUAL_STEP",
    "LARGEST_PUSH",
    "SMALLEST_RATE",
    "Dual",
    "Model",
    "NumbaExperimentalFeatureWarning",
    "Rows",
    "Steps",
    "sgda_epoch",
]


class Rows(NamedTuple):
    """What is known of the rows.

    Attributes
    ----------
    X
        (n, d) array, or (data, indices, indptr).
    y
        (n,) class codes.
    loss_weight, penalty_weight
        (n,) weights in loss and penalty; each term is a mean over all rows.
    stratum
        (n,) strata, -1 outside.
    group
        (n, n_attributes) groups, numbered through all attributes, -1 where unknown.
    """

    X: Any
    y: IntArray
    loss_weight: FloatArray
    penalty_weight: FloatArray
    stratum: IntArray
    group: IntArray


class Model(NamedTuple):
    """Parameters of all lanes: (d + 1, n_outputs * n_lanes) each.

    Attributes
    ----------
    theta
        The iterate.
    squares
        Sums of squared gradients, for the Adagrad step.
    average
        The mean of the iterates since averaging began.
    """

    theta: FloatArray
    squares: FloatArray
    average: FloatArray


class Dual(NamedTuple):
    """The dual table of all lanes, and the constants of the data it needs.

    Attributes
    ----------
    z
        (R, m, K, L) log-ratios.
    rate
        (R, m, A, L) running rates of the classes.
    prior
        (R, K) group weights within stratum and attribute.
    factor
        (R, A) ``w_r / rho_r``, the weight of a stratum over its share.
    share
        (R, A) ``1 / rho_r``.
    ends
        (A + 1,) where the groups of each attribute begin and end.
    lower, upper
        The box: a number, and (R, K).
    """

    z: FloatArray
    rate: FloatArray
    prior: FloatArray
    factor: FloatArray
    share: FloatArray
    ends: IntArray
    lower: float
    upper: FloatArray


class Steps(NamedTuple):
    """How far to go.

    Attributes
    ----------
    weights
        (L,) fairness weights.
    sharpness, l2
        Of the objective.
    lr
        Adagrad's step.
    dual_lr
        The dual step is ``dual_lr / t``: the dual averages over the last steps, a share
        ``1 / dual_lr`` of all.
    average_from
        The step after which iterates are averaged.
    warm_up
        The steps over which the penalty comes in: before, its dual is a guess.
    fit_intercept
        Whether the last row of the parameters is free.
    """

    weights: FloatArray
    sharpness: float
    l2: float
    lr: float
    dual_lr: float
    average_from: int
    warm_up: int
    fit_intercept: bool


@numba.njit(nogil=True, cache=True)
def payoff_into(dual, dual_at, conjugate_at, payoff):
    """Write ``G`` of the current dual into ``payoff`` (R, m, K, L)."""
    n_strata, n_classes, _, n_lanes = dual.z.shape
    for r in range(n_strata):
        for a in range(dual.ends.size - 1):
            begin, end = dual.ends[a], dual.ends[a + 1]
            for j in range(n_classes):
                for lane in range(n_lanes):
                    charge = 0.0
                    for k in range(begin, end):
                        if dual.prior[r, k] > 0:
                            z = dual.z[r, j, k, lane]
                            charge += dual.prior[r, k] * conjugate_at(z)
                    for k in range(begin, end):
                        value = dual_at(dual.z[r, j, k, lane]) - charge
                        payoff[r, j, k, lane] = dual.factor[r, a] * value


@numba.njit(nogil=True, cache=True)
def probabilities_into(logits, sharpness, prob):
    """Write ``softmax(sharpness * logits)`` of one row into ``prob`` (m, L)."""
    n_classes, n_lanes = prob.shape
    if logits.size == n_lanes:  # two classes, one output: the first logit is 0
        for lane in range(n_lanes):
            p = 1.0 / (1.0 + math.exp(-sharpness * logits[lane]))
            prob[1, lane] = p
            prob[0, lane] = 1.0 - p
        return
    for lane in range(n_lanes):
        top = -math.inf
        for j in range(n_classes):
            top = max(top, logits[j * n_lanes + lane])
        total = 0.0
        for j in range(n_classes):
            e = math.exp(sharpness * (logits[j * n_lanes + lane] - top))
            prob[j, lane] = e
            total += e
        for j in range(n_classes):
            prob[j, lane] /= total


@numba.njit(nogil=True, cache=True)
def loss_into(y, weight, prob, factor):
    """Write the gradient of one row's cross-entropy by its logits into ``factor``."""
    n_classes, n_lanes = prob.shape
    first = 1 if factor.size == n_lanes else 0
    for j in range(first, n_classes):
        target = 1.0 if y == j else 0.0
        for lane in range(n_lanes):
            factor[(j - first) * n_lanes + lane] = weight * (prob[j, lane] - target)


@numba.njit(nogil=True, cache=True)
def add_fairness(payoff, cell, weight, weights, sharpness, prob, factor):
    """Add the gradient of one row's fairness term by its logits to ``factor``.

    ``payoff`` is (m, K, L) of the row's stratum, ``cell`` the row's group.
    """
    n_classes, n_lanes = prob.shape
    first = 1 if factor.size == n_lanes else 0
    for lane in range(n_lanes):
        centre = 0.0
        for j in range(n_classes):
            centre += prob[j, lane] * payoff[j, cell, lane]
        scale = weights[lane] * sharpness * weight
        for j in range(first, n_classes):
            push = prob[j, lane] * (payoff[j, cell, lane] - centre)
            factor[(j - first) * n_lanes + lane] += scale * push


@numba.njit(nogil=True, cache=True)
def batch_gradients_into(rows, batch, theta, steps, payoff, gradient, mass, ramp):
    """Write the gradients of one batch: of the model, and the masses of the dual's.

    The penalty counts by ``ramp``.
    ``gradient`` (d + 1, C L) is the mean over the batch, without the ridge; ``mass``
    (R, m, K, L) the mean of ``F`` by stratum and group.
    """
    n_classes, n_lanes = mass.shape[1], mass.shape[3]
    logits, factor = np.empty(theta.shape[1]), np.empty(theta.shape[1])
    prob, seen = np.empty((n_classes, n_lanes)), np.empty((n_classes, n_lanes))
    gradient[:] = 0.0
    mass[:] = 0.0
    for i in batch:
        row_times(rows.X, i, theta, logits)
        probabilities_into(logits, 1.0, prob)
        loss_into(rows.y[i], rows.loss_weight[i] / batch.size, prob, factor)
        weight = rows.penalty_weight[i] / batch.size
        r = rows.stratum[i]
        if r >= 0:
            if steps.sharpness != 1.0:
                probabilities_into(logits, steps.sharpness, seen)
            else:
                seen[:] = prob
            for a in range(rows.group.shape[1]):
                k = rows.group[i, a]
                if k >= 0:
                    add_fairness(
                        payoff[r],
                        k,
                        ramp * weight,
                        steps.weights,
                        steps.sharpness,
                        seen,
                        factor,
                    )
                    for j in range(n_classes):
                        for lane in range(n_lanes):
                            mass[r, j, k, lane] += weight * seen[j, lane]
        add_row(rows.X, i, factor, gradient)


@numba.njit(nogil=True, cache=True)
def dual_gradient_into(dual, mass, slope):
    """Write ``P_rjk - pi_rk P_rj e^z``, the gradient by the dual A, into ``slope``."""
    n_strata, n_classes, _, n_lanes = dual.z.shape
    for r in range(n_strata):
        for a in range(dual.ends.size - 1):
            begin, end = dual.ends[a], dual.ends[a + 1]
            for j in range(n_classes):
                for lane in range(n_lanes):
                    total = 0.0
                    for k in range(begin, end):
                        total += mass[r, j, k, lane]
                    total *= dual.share[r, a]
                    for k in range(begin, end):
                        ratio = math.exp(dual.z[r, j, k, lane])
                        slope[r, j, k, lane] = (
                            dual.share[r, a] * mass[r, j, k, lane]
                            - dual.prior[r, k] * total * ratio
                        )


@numba.njit(nogil=True, cache=True)
def ascend(dual, mass, slope, step, batch_size):
    """Move the log-ratios along ``slope / (pi_k P_j)``, within the box.

    ``P_j`` is the running rate of a class. A group of which a batch holds few members
    moves by no more than ``LARGEST_PUSH`` a member, however short its history is.
    """
    n_strata, n_classes, _, n_lanes = dual.z.shape
    for r in range(n_strata):
        for a in range(dual.ends.size - 1):
            if dual.share[r, a] <= 0:  # nobody is in this stratum
                continue
            begin, end = dual.ends[a], dual.ends[a + 1]
            cap = LARGEST_PUSH * batch_size / dual.share[r, a]
            for j in range(n_classes):
                for lane in range(n_lanes):
                    total = 0.0
                    for k in range(begin, end):
                        total += mass[r, j, k, lane]
                    rate = dual.rate[r, j, a, lane]
                    rate += step * (dual.share[r, a] * total - rate)
                    dual.rate[r, j, a, lane] = rate
                    for k in range(begin, end):
                        prior = dual.prior[r, k]
                        if prior > 0:
                            eta = min(step, cap * prior)
                            scale = eta / (prior * max(rate, SMALLEST_RATE))
                            z = dual.z[r, j, k, lane] + scale * slope[r, j, k, lane]
                            z = min(max(z, dual.lower), dual.upper[r, k])
                            dual.z[r, j, k, lane] = z


@numba.njit(nogil=True, cache=True)
def descend(model, gradient, steps, t):
    """Take an Adagrad step of the model, and average from step ``average_from`` on."""
    n_rows, n_columns = gradient.shape
    n_free = n_rows if steps.fit_intercept else n_rows - 1
    keep = 1.0 / (t - steps.average_from) if t > steps.average_from else 0.0
    for a in range(n_free):
        ridge = steps.l2 if a < n_rows - 1 else 0.0
        for q in range(n_columns):
            g = gradient[a, q] + ridge * model.theta[a, q]
            model.squares[a, q] += g * g
            model.theta[a, q] -= steps.lr * g / math.sqrt(model.squares[a, q])
            model.average[a, q] += keep * (model.theta[a, q] - model.average[a, q])


@numba.njit(nogil=True, cache=True)
def sgda_epoch(rows, order, batch_size, model, dual, steps, pointers, t):
    """Run over all rows once in the given order and return the number of steps so far.

    ``model`` and ``dual`` are changed in place; ``pointers`` are those of ``A(z)`` and
    ``C(z)``.
    """
    gradient = np.empty(model.theta.shape)
    payoff, mass = np.empty(dual.z.shape), np.empty(dual.z.shape)
    slope = np.empty(dual.z.shape)
    dual_at, conjugate_at = pointers
    for begin in range(0, order.size, batch_size):
        batch = order[begin : begin + batch_size]
        payoff_into(dual, dual_at, conjugate_at, payoff)
        ramp = min(1.0, (t + 1) / steps.warm_up)
        batch_gradients_into(
            rows, batch, model.theta, steps, payoff, gradient, mass, ramp
        )
        dual_gradient_into(dual, mass, slope)
        t += 1
        descend(model, gradient, steps, t)
        step = min(FIRST_DUAL_STEP, steps.dual_lr / t)
        ascend(dual, mass, slope, step, batch.size)
    return t
