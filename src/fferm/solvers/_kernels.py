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

Arrays in, arrays changed in place.
"""

# Numba caches code by the text of its own file alone, so each names its release: 0.1.0.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg"
# ruff: noqa: ANN001, ANN202, C901, PLR0913, PLR0917

import math

import numba

from fferm.penalty.dual import FIRST_DUAL_STEP, LARGEST_PUSH, SMALLEST_RATE
from fferm.solvers._pointers import read_table
from fferm.solvers._rows import (
    FAST,
    INLINED,
    PER_ROW,
    add_row,
    entry_of,
    fetch,
    fetch_row,
    note_columns,
    row_times,
)
from fferm.solvers._scalar import exp

# A root and a division cost more than the rest of a step: Adagrad's are renewed once
# the squares have grown by this factor.
RENEWAL = 1.05


@numba.njit(**FAST)
def payoff_into(dual, pointer, scratch):
    """Write ``G`` of the current dual into the scratch, and the ratios with it.

    ``pointer`` is the address of the function that reads the dual's variable.
    """
    charge, payoff, sums = scratch.charge, scratch.payoff, scratch.sums
    read_table(
        pointer,
        dual.z.ctypes.data,
        scratch.dual.ctypes.data,
        charge.ctypes.data,
        scratch.ratio.ctypes.data,
        dual.z.size,
    )
    n_strata, n_classes, _, n_lanes = dual.z.shape
    for r in range(n_strata):
        for a in range(dual.ends.size - 1):
            begin, end = dual.ends[a], dual.ends[a + 1]
            for j in range(n_classes):
                for lane in range(n_lanes):
                    sums[lane] = 0.0
                for k in range(begin, end):
                    prior = dual.prior[r, k]
                    if prior > 0:
                        for lane in range(n_lanes):
                            sums[lane] += prior * charge[r, j, k, lane]
                for k in range(begin, end):
                    for lane in range(n_lanes):
                        value = scratch.dual[r, j, k, lane] - sums[lane]
                        payoff[r, j, k, lane] = dual.factor[r, a] * value


@numba.njit(**PER_ROW)
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


@numba.njit(**PER_ROW)
def loss_into(y, weight, prob, factor):
    """Write the gradient of one row's cross-entropy by its logits into ``factor``."""
    n_classes, n_lanes = prob.shape
    outputs = factor.reshape(-1, n_lanes)
    first = n_classes - outputs.shape[0]  # of two classes the second has a logit
    for c in range(outputs.shape[0]):
        target = 1.0 if y == c + first else 0.0
        for lane in range(n_lanes):
            outputs[c, lane] = weight * (prob[c + first, lane] - target)


@numba.njit(**PER_ROW)
def add_fairness(payoff, r, k, weight, steps, prob, factor, sums):
    """Add the gradient of one row's fairness term by its logits to ``factor``.

    The row is of stratum ``r`` and group ``k``.
    """
    n_classes, n_lanes = prob.shape
    first = 1 if factor.size == n_lanes else 0
    scale = steps.sharpness * weight
    if first == 1:  # of two classes, p_1 (G_1 - p_0 G_0 - p_1 G_1)
        for lane in range(n_lanes):
            push = prob[0, lane] * prob[1, lane]
            push *= payoff[r, 1, k, lane] - payoff[r, 0, k, lane]
            factor[lane] += scale * steps.weights[lane] * push
        return
    for lane in range(n_lanes):
        sums[lane] = 0.0
    for j in range(n_classes):
        for lane in range(n_lanes):
            sums[lane] += prob[j, lane] * payoff[r, j, k, lane]
    for j in range(first, n_classes):
        for lane in range(n_lanes):
            push = prob[j, lane] * (payoff[r, j, k, lane] - sums[lane])
            factor[(j - first) * n_lanes + lane] += scale * steps.weights[lane] * push


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


@numba.njit(**FAST)
def batch_gradients_into(rows, batch, following, theta, steps, ramp, scratch):
    """Write the gradients of one batch: of the model, and the masses of the dual's.

    The penalty counts by ``ramp``. The gradient of the model is the mean over the
    batch, without the ridge; the mass is the mean of ``F`` by stratum and group.
    Rows are drawn at random, so the memory of the ``following`` batch is asked for
    while this one is worked on.
    """
    prob, mass = scratch.prob, scratch.mass
    seen = prob if steps.sharpness == 1.0 else scratch.seen
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
                probabilities_into(logits, steps.sharpness, seen)
            for a in range(group.shape[1]):
                k = group[i, a]
                if k >= 0:
                    add_fairness(payoff, r, k, ramp * weight, steps, seen, factor, sums)
                    for j in range(n_classes):
                        for lane in range(n_lanes):
                            mass[r, j, k, lane] += weight * seen[j, lane]
        n_used = note_columns(indices, indptr, i, number, gradient, used, stamp, n_used)
        add_row(data, indices, indptr, i, factor, gradient)
    scratch.counts[0] = n_used


@numba.njit(**FAST)
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


@numba.njit(**FAST)
def ascend(dual, scratch, step, batch_size):
    """Move the dual along ``slope / (pi_k P_j)``, within the box.

    ``P_j`` is the running rate of a class. A group of which a batch holds few members
    moves by no more than ``LARGEST_PUSH`` a member, however short its history is.
    """
    mass, slope, sums = scratch.mass, scratch.slope, scratch.sums
    n_strata, n_classes, _, n_lanes = dual.z.shape
    for r in range(n_strata):
        for a in range(dual.ends.size - 1):
            share = dual.share[r, a]
            if share <= 0:  # nobody is in this stratum
                continue
            begin, end = dual.ends[a], dual.ends[a + 1]
            cap = LARGEST_PUSH * batch_size / share
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


@numba.njit(**FAST)
def descend(model, scratch, steps, t):
    """Take step ``t`` of the model, by Adagrad, in the columns that the batch uses."""
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
            step = steps.lr * rate[a, q]
            theta[a, q] -= step * (gradient[q] + ridge * theta[a, q])


@numba.njit(**FAST)
def sgda_epoch(rows, order, batch_size, model, dual, steps, pointer, scratch, t):
    """Run over all rows once in the given order and return the number of steps so far.

    ``model`` and ``dual`` are changed in place; ``pointer`` reads the dual's variable.
    """
    for begin in range(0, order.size, batch_size):
        batch = order[begin : begin + batch_size]
        payoff_into(dual, pointer, scratch)
        ramp = min(1.0, (t + 1) / steps.warm_up)
        following = order[begin + batch_size : begin + 2 * batch_size]
        batch_gradients_into(rows, batch, following, model.theta, steps, ramp, scratch)
        dual_gradient_into(dual, scratch)
        t += 1
        descend(model, scratch, steps, t)
        step = min(FIRST_DUAL_STEP, steps.dual_lr / t)
        ascend(dual, scratch, step, batch.size)
    return t
