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

Algorithm 2 (`sreda_steps`) and Algorithm 3 (`run_batches` without a dual) take the same
gradients and steps. Arrays in, arrays changed in place. Parameters are stored
(n_features + 1, n_outputs * n_lanes), intercept last, and tables (strata, classes,
groups, lanes): the last axis is the one that vector instructions run along.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg"
# ruff: noqa: ANN001, ANN202, C901, PLR0913, PLR0917

import math
from typing import Any, NamedTuple

import numba
import numpy as np

from fferm._jit import INLINED, exp, kernel, row_kernel
from fferm._typing import FloatArray, IntArray
from fferm.penalty.compiled import payoff_into
from fferm.penalty.dual import FIRST_DUAL_STEP, LARGEST_STEP, SMALLEST_RATE
from fferm.solvers._rows import (
    add_row,
    entry_of,
    fetch,
    fetch_row,
    note_columns,
    row_times,
)

# A root and a division cost more than the rest of a step: Adagrad's are renewed once
# the squares have grown by this factor.
RENEWAL = 1.05
# The first inner steps of Algorithm 2, before c / t is small.
FIRST_INNER_STEP = 0.2


class RowArrays(NamedTuple):
    """What is known of the rows.

    What all rows have in common is stored once, in an array of one entry: a stratum, a
    weight. Existing arrays are not copied, because rows may be many.

    Attributes
    ----------
    X
        (data, indices, indptr) of a CSR matrix, or ((n, d) array, None, None).
    y
        (n,) classes.
    stratum
        (n,) or (1,) strata, -1 outside.
    group
        (n, n_attributes) groups, numbered through all attributes, -1 where unknown; of
        no row where all are outside.
    loss_weight, penalty_weight
        (n,) or (1,) weights in loss and penalty; each term is a mean over all rows.
    """

    X: Any
    y: IntArray
    stratum: IntArray
    group: IntArray
    loss_weight: FloatArray
    penalty_weight: FloatArray

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.y.size


class Model(NamedTuple):
    """Parameters of all lanes: (d + 1, n_outputs * n_lanes) each.

    A step moves the columns of X that its batch uses, and the intercept. What all
    others are due, their part in the average and their ridge, waits until they move.

    Attributes
    ----------
    theta
        The iterate.
    squares
        Sums of squared gradients.
    rate
        Adagrad's ``1 / sqrt(squares)``, renewed as the squares grow.
    total
        Sum of the iterates since averaging began, up to the last move of each column.
    moved
        (d + 1,) the step at which each column last moved.
    """

    theta: FloatArray
    squares: FloatArray
    rate: FloatArray
    total: FloatArray
    moved: IntArray


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
    is_plain
        Whether ``lr`` and ``dual_lr`` are the constant steps of plain gradients.
    """

    weights: FloatArray
    sharpness: float
    l2: float
    lr: float
    dual_lr: float
    average_from: int
    warm_up: int
    fit_intercept: bool
    is_plain: bool = False


class Scratch(NamedTuple):
    """Arrays for one step.

    Attributes
    ----------
    logits, factor
        (C L,) of one row, and the gradient of its terms by them.
    prob, penalized_prob
        (m, L) its probabilities, and those that the penalty sees.
    gradient
        (d + 1, C L) of the batch, valid where ``used`` says so.
    used
        (d + 1,) columns that the batch uses, as many as the first of ``counts``.
    stamp
        (d + 1,) the last batch that used each column.
    counts
        (2,) the number of used columns, and the number of the batch.
    dual, conjugate, ratio
        (R, m, K, L) ``A``, ``f*(A)`` and ``(f*)'(A)`` of the dual table.
    payoff, mass, slope
        (R, m, K, L) ``G``, mass of the batch by cell, gradient by the dual.
    sums
        (L,) a sum of each lane.
    """

    logits: FloatArray
    factor: FloatArray
    prob: FloatArray
    penalized_prob: FloatArray
    gradient: FloatArray
    used: IntArray
    stamp: IntArray
    counts: IntArray
    dual: FloatArray
    conjugate: FloatArray
    ratio: FloatArray
    payoff: FloatArray
    mass: FloatArray
    slope: FloatArray
    sums: FloatArray


def make_scratch(theta: FloatArray, z: FloatArray) -> Scratch:
    """Return arrays for steps of a model and a dual table."""
    n_columns, n_factors = theta.shape
    _, n_classes, _, n_lanes = z.shape
    tables = (np.empty(z.shape) for _ in range(6))
    return Scratch(
        np.empty(n_factors),
        np.empty(n_factors),
        np.empty((n_classes, n_lanes)),
        np.empty((n_classes, n_lanes)),
        np.zeros(theta.shape),
        np.empty(n_columns, np.int64),
        np.zeros(n_columns, np.int64),
        np.zeros(2, np.int64),
        *tables,
        np.empty(n_lanes),
    )


@row_kernel
def probabilities_into(logits, sharpness, prob):
    """Write ``softmax(sharpness * logits)`` of one row into ``prob`` (m, L)."""
    n_classes, n_lanes = prob.shape
    if logits.size == n_lanes:  # two classes, one output: the first logit is 0
        for lane in range(n_lanes):
            p = 1.0 / (1.0 + exp(-sharpness * logits[lane]))
            prob[1, lane] = p
            prob[0, lane] = 1.0 - p
        return
    for lane in range(n_lanes):
        top = -math.inf
        for j in range(n_classes):
            top = max(top, logits[j * n_lanes + lane])
        total = 0.0
        for j in range(n_classes):
            e = exp(sharpness * (logits[j * n_lanes + lane] - top))
            prob[j, lane] = e
            total += e
        for j in range(n_classes):
            prob[j, lane] /= total


@row_kernel
def loss_into(y, weight, prob, factor):
    """Write the gradient of one row's cross-entropy by its logits into ``factor``."""
    n_classes, n_lanes = prob.shape
    outputs = factor.reshape(-1, n_lanes)
    first = n_classes - outputs.shape[0]  # of two classes the second has a logit
    for c in range(outputs.shape[0]):
        target = 1.0 if y == c + first else 0.0
        for lane in range(n_lanes):
            outputs[c, lane] = weight * (prob[c + first, lane] - target)


@row_kernel
def add_fairness(payoff, r, k, weight, steps, prob, factor, sums):
    """Add the gradient of one row's fairness term by its logits to ``factor``.

    The row is of stratum ``r`` and group ``k``.
    """
    n_classes, n_lanes = prob.shape
    first = 1 if factor.size == n_lanes else 0
    scale = steps.sharpness * weight
    if first == 1:  # of two classes, p_1 (G_1 - p_0 G_0 - p_1 G_1)
        for lane in range(n_lanes):
            step = prob[0, lane] * prob[1, lane]
            step *= payoff[r, 1, k, lane] - payoff[r, 0, k, lane]
            factor[lane] += scale * steps.weights[lane] * step
        return
    for lane in range(n_lanes):
        sums[lane] = 0.0
    for j in range(n_classes):
        for lane in range(n_lanes):
            sums[lane] += prob[j, lane] * payoff[r, j, k, lane]
    for j in range(first, n_classes):
        for lane in range(n_lanes):
            step = prob[j, lane] * (payoff[r, j, k, lane] - sums[lane])
            factor[(j - first) * n_lanes + lane] += scale * steps.weights[lane] * step


@numba.njit(**INLINED)
def _ask_for(rows, i):
    # Row i is read soon.
    data, indices, indptr = rows.X
    fetch_row(data, indices, indptr, i)
    fetch(rows.y, i)
    fetch(rows.stratum, i)
    fetch(rows.group, i)
    fetch(rows.loss_weight, i)
    fetch(rows.penalty_weight, i)


@kernel
def batch_gradients_into(rows, batch, following, theta, steps, ramp, scratch):
    """Write the gradients of one batch: of the model, and the masses of the dual's.

    The penalty counts by ``ramp``. The gradient of the model is the mean over the
    batch, without the ridge; the mass is the mean of ``F`` by stratum and group.
    Rows are drawn at random, so the memory of the ``following`` batch is asked for
    while this one is worked on.
    """
    prob, mass = scratch.prob, scratch.mass
    penalized_prob = prob if steps.sharpness == 1.0 else scratch.penalized_prob
    logits, factor, sums = scratch.logits, scratch.factor, scratch.sums
    gradient, used = scratch.gradient, scratch.used
    stamp, payoff = scratch.stamp, scratch.payoff
    data, indices, indptr = rows.X
    group = rows.group
    n_classes, n_lanes = prob.shape
    n_used = 0
    scratch.counts[1] += 1
    number = scratch.counts[1]
    mass[:] = 0.0
    for n in range(batch.size):
        i = batch[n]
        if n < following.size:
            _ask_for(rows, following[n])
        row_times(data, indices, indptr, i, theta, logits)
        probabilities_into(logits, 1.0, prob)
        loss_into(rows.y[i], entry_of(rows.loss_weight, i) / batch.size, prob, factor)
        weight = entry_of(rows.penalty_weight, i) / batch.size
        r = entry_of(rows.stratum, i)
        if r >= 0:
            if steps.sharpness != 1.0:
                probabilities_into(logits, steps.sharpness, penalized_prob)
            for a in range(group.shape[1]):
                k = group[i, a]
                if k >= 0:
                    add_fairness(
                        payoff, r, k, ramp * weight, steps, penalized_prob, factor, sums
                    )
                    for j in range(n_classes):
                        for lane in range(n_lanes):
                            mass[r, j, k, lane] += weight * penalized_prob[j, lane]
        n_used = note_columns(indices, indptr, i, number, gradient, used, stamp, n_used)
        add_row(data, indices, indptr, i, factor, gradient)
    scratch.counts[0] = n_used


@kernel
def dual_gradient_into(dual, scratch):
    """Write ``P_rjk - pi_rk P_rj (f*)'(A)``, the gradient by the dual A."""
    mass, ratio, slope, sums = scratch.mass, scratch.ratio, scratch.slope, scratch.sums
    n_strata, n_classes, _, n_lanes = dual.z.shape
    for r in range(n_strata):
        for a in range(dual.ends.size - 1):
            begin, end = dual.ends[a], dual.ends[a + 1]
            share = dual.share[r, a]
            for j in range(n_classes):
                for lane in range(n_lanes):
                    sums[lane] = 0.0
                for k in range(begin, end):
                    for lane in range(n_lanes):
                        sums[lane] += share * mass[r, j, k, lane]
                for k in range(begin, end):
                    prior = dual.prior[r, k]
                    for lane in range(n_lanes):
                        expected = prior * sums[lane] * ratio[r, j, k, lane]
                        slope[r, j, k, lane] = share * mass[r, j, k, lane] - expected


@kernel
def ascend(dual, scratch, step, batch_size):
    """Move the dual along ``slope / (pi_k P_j)``, within the box.

    ``P_j`` is the running rate of a class. A group of which a batch holds few members
    moves by no more than ``LARGEST_STEP`` a member, however short its history is.
    """
    mass, slope, sums = scratch.mass, scratch.slope, scratch.sums
    n_strata, n_classes, _, n_lanes = dual.z.shape
    for r in range(n_strata):
        for a in range(dual.ends.size - 1):
            share = dual.share[r, a]
            if share <= 0:  # nobody is in this stratum
                continue
            begin, end = dual.ends[a], dual.ends[a + 1]
            cap = LARGEST_STEP * batch_size / share
            for j in range(n_classes):
                for lane in range(n_lanes):
                    sums[lane] = 0.0
                for k in range(begin, end):
                    for lane in range(n_lanes):
                        sums[lane] += share * mass[r, j, k, lane]
                for lane in range(n_lanes):
                    rate = dual.rate[r, j, a, lane]
                    rate += step * (sums[lane] - rate)
                    dual.rate[r, j, a, lane] = rate
                    sums[lane] = dual.speed / max(rate, SMALLEST_RATE)
                for k in range(begin, end):
                    prior = dual.prior[r, k]
                    if prior > 0:
                        eta = min(step, cap * prior) / prior
                        upper = dual.upper[r, k]
                        for lane in range(n_lanes):
                            z = dual.z[r, j, k, lane]
                            z += eta * sums[lane] * slope[r, j, k, lane]
                            dual.z[r, j, k, lane] = min(max(z, dual.lower), upper)


@kernel
def ascend_plainly(dual, slope, step):
    """Move the dual A along its own gradient, within the box."""
    n_strata, n_classes, n_groups, n_lanes = dual.z.shape
    for r in range(n_strata):
        for j in range(n_classes):
            for k in range(n_groups):
                for lane in range(n_lanes):
                    z = dual.z[r, j, k, lane] + step * slope[r, j, k, lane]
                    dual.z[r, j, k, lane] = min(max(z, dual.lower), dual.upper[r, k])


@kernel
def descend(model, scratch, steps, t):
    """Take step ``t`` of the model, by Adagrad, in the columns that the batch uses.

    Plain steps are all of size ``lr``.
    """
    theta, squares, rate = model.theta, model.squares, model.rate
    last, n_factors = theta.shape[0] - 1, theta.shape[1]
    for u in range(scratch.counts[0]):
        a = scratch.used[u]
        if a == last and not steps.fit_intercept:
            continue
        gradient = scratch.gradient[a]
        waited = t - model.moved[a]
        due = t - max(model.moved[a], steps.average_from + 1)
        model.moved[a] = t
        if due > 0:
            for q in range(n_factors):
                model.total[a, q] += due * theta[a, q]
        ridge = steps.l2 * waited if a != last else 0.0
        n_grown = 0
        for q in range(n_factors):
            g = gradient[q] + ridge * theta[a, q]
            squares[a, q] += g * g
            n_grown += squares[a, q] * rate[a, q] * rate[a, q] > RENEWAL
        if n_grown > 0:
            for q in range(n_factors):
                renewed = 1.0 / math.sqrt(squares[a, q])
                is_grown = squares[a, q] * rate[a, q] * rate[a, q] > RENEWAL
                rate[a, q] = renewed if is_grown else rate[a, q]
        for q in range(n_factors):
            step = steps.lr if steps.is_plain else steps.lr * rate[a, q]
            theta[a, q] -= step * (gradient[q] + ridge * theta[a, q])


@kernel
def run_batches(rows, order, batch_size, model, dual, steps, scratch, t):
    """Run over rows in the given order and return the number of steps so far.

    ``model`` and ``dual`` are changed in place; without a dual, the payoff stays that
    of the scratch.
    """
    for begin in range(0, order.size, batch_size):
        batch = order[begin : begin + batch_size]
        if dual is not None:
            payoff_into(dual, scratch)
        ramp = min(1.0, (t + 1) / steps.warm_up)
        following = order[begin + batch_size : begin + 2 * batch_size]
        batch_gradients_into(rows, batch, following, model.theta, steps, ramp, scratch)
        t += 1
        descend(model, scratch, steps, t)
        if dual is not None:
            dual_gradient_into(dual, scratch)
            if steps.is_plain:
                ascend_plainly(dual, scratch.slope, steps.dual_lr)
            else:
                step = min(FIRST_DUAL_STEP, steps.dual_lr / t)
                ascend(dual, scratch, step, batch.size)
    return t


@kernel
def estimate_into(rows, batch, theta, dual, steps, scratch):
    """Write the gradients of one batch at a point into the scratch."""
    payoff_into(dual, scratch)
    # The same rows are read twice, and then others that are not known here.
    batch_gradients_into(rows, batch, batch[:0], theta, steps, 1.0, scratch)
    dual_gradient_into(dual, scratch)


@kernel
def add_into(scratch, sign, held):
    """Add the gradients of a batch, times a sign, to the estimators."""
    for n in range(scratch.counts[0]):
        a = scratch.used[n]
        for q in range(held.gradient.shape[1]):
            held.gradient[a, q] += sign * scratch.gradient[a, q]
    slope, sums = scratch.slope.reshape(-1), held.slope.reshape(-1)
    for n in range(slope.size):
        sums[n] += sign * slope[n]


@kernel
def follow(rows, batch, before, now, steps, scratch, held):
    """Add the change of a batch's gradients from one point to the next.

    A point is the parameters of the model and the dual.
    """
    estimate_into(rows, batch, before[0], before[1], steps, scratch)
    add_into(scratch, -1.0, held)
    estimate_into(rows, batch, now[0], now[1], steps, scratch)
    add_into(scratch, 1.0, held)


@kernel
def copy_into(values, copy):
    """Copy an array into another of its shape."""
    flat, copied = values.reshape(-1), copy.reshape(-1)
    for a in range(flat.size):
        copied[a] = flat[a]


@kernel
def sreda_steps(rows, draws, picks, model, dual, before, steps, scratch, held, t):
    """Run from one large batch to the next and return the number of steps so far.

    ``held`` comes with the estimators of the large batch. ``draws`` (q, m + 1, b) are
    the rows of the small ones, ``picks`` (q,) the inner steps that are kept. ``model``,
    ``dual`` and ``held`` are changed in place; the point ``before`` is memory.
    """
    now = (model.theta, dual)
    for k in range(picks.size):
        copy_into(model.theta, before[0])
        copy_into(dual.z, before[1].z)
        t += 1
        descend(model, held, steps, t)
        for s in range(picks[k] + 1):
            follow(rows, draws[k, s], before, now, steps, scratch, held)
            if s < picks[k]:
                copy_into(model.theta, before[0])
                copy_into(dual.z, before[1].z)
                step = min(FIRST_INNER_STEP, steps.dual_lr / t)
                ascend(dual, held, step, draws.shape[2])
    return t
