r"""Passes over all rows: loss, tables, and the gradients of both.

The gradient of a penalty needs its table first, and the table needs all rows. Instead
of reading X twice, the pass keeps the gradient of every cell of the table,

.. math:: J_{rjk} = \sum_{i : r_i = r, k_i = k} w_i \nabla F_{ij}

and the gradient of the penalty is then :math:`\sum_{rjk} G_{rjk} J_{rjk}` for any
payoff :math:`G`. With two classes :math:`J_{r0k} = -J_{r1k}`: the latter is kept.

`add_up` is a pass over the logits of a model: loss, right decisions and tables.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN202, C901, PLR0913, PLR0917

import math
from typing import NamedTuple

import numpy as np

from fferm._jit import exp, kernel, log1p_of_share
from fferm._typing import FloatArray, IntArray
from fferm.solvers._kernels import probabilities_into
from fferm.solvers._rows import add_row, entry_of, row_times

# Rows are taken by so many: their logits stay in cache, and the rows of one lane make
# vectors as the lanes of one row do.
BLOCK = 64


class Sums(NamedTuple):
    """What a pass adds up.

    Attributes
    ----------
    loss, gradient
        (L,) and (d + 1, C L): the weighted loss and its gradient, or an empty array.
    mass
        (R, m, K, L) the weighted table.
    jacobian
        (R, K, P, d + 1, C L) the gradient of the table, of the P classes that are kept.
    """

    loss: FloatArray
    gradient: FloatArray
    mass: FloatArray
    jacobian: FloatArray


class Workspace(NamedTuple):
    """Arrays for a block of rows: (C L,) numbers of one, and of all rows and lanes."""

    logits: FloatArray
    factor: FloatArray
    all_logits: FloatArray  # (C, B L)
    prob: FloatArray  # (m, B L)
    label: IntArray  # (B L,)
    entropy: FloatArray  # (B L,)


def workspace(n_outputs: int, n_classes: int, n_lanes: int = 1) -> Workspace:
    """Return arrays for a block of rows."""
    n = BLOCK * n_lanes
    return Workspace(
        np.empty(n_outputs * n_lanes),
        np.empty(n_outputs * n_lanes),
        np.zeros((n_outputs, n)),
        np.empty((n_classes, n)),
        np.zeros(n, dtype=np.int64),
        np.empty(n),
    )


@kernel
def cross_entropy_into(logits, label, entropy):
    """Write the cross-entropy of (n_outputs * n) logits under (n,) labels."""
    n = entropy.size
    if logits.size == n:  # two classes, one output: the first logit is 0
        for f in range(n):
            margin = logits[f] if label[f] == 1 else -logits[f]
            distance = log1p_of_share(exp(-abs(margin)))
            entropy[f] = distance + max(-margin, 0.0)
        return
    for f in range(n):
        top = -math.inf
        for c in range(f, logits.size, n):
            top = max(top, logits[c])
        total = 0.0
        for c in range(f, logits.size, n):
            total += exp(logits[c] - top)
        entropy[f] = top + math.log(total) - logits[label[f] * n + f]


@kernel
def add_rows_of_loss(rows, begin, size, work, loss, gradient):
    """Add the loss of a block of rows, and its gradient where it has an array."""
    prob, entropy, factor = work.prob, work.entropy, work.factor
    n_classes, n_lanes = prob.shape[0], loss.size
    n_outputs = factor.size // n_lanes
    first = n_classes - n_outputs
    data, indices, indptr = rows.X
    for b in range(size):
        y = max(rows.y[begin + b], 0)  # a row without a label has no weight either
        for lane in range(n_lanes):
            work.label[b * n_lanes + lane] = y
    cross_entropy_into(work.all_logits.reshape(-1), work.label, entropy)
    for b in range(size):
        i, weight = begin + b, entry_of(rows.loss_weight, begin + b)
        if weight <= 0:
            continue
        for lane in range(n_lanes):
            loss[lane] += weight * entropy[b * n_lanes + lane]
        if gradient.size == 0:
            continue
        for c in range(n_outputs):
            target = 1.0 if rows.y[i] == c + first else 0.0
            for lane in range(n_lanes):
                p = prob[c + first, b * n_lanes + lane]
                factor[c * n_lanes + lane] = weight * (p - target)
        add_row(data, indices, indptr, i, factor, gradient)


@kernel
def add_rows_of_table(rows, begin, size, work, sharpness, mass, jacobian):
    """Add a block of rows to the table, and to its gradient."""
    n_classes, n_lanes = mass.shape[1], mass.shape[3]
    prob, factor = work.prob, work.factor
    n_outputs, n_kept = factor.size // n_lanes, jacobian.shape[2]
    first = n_classes - n_outputs
    data, indices, indptr = rows.X
    for b in range(size):
        i, at = begin + b, b * n_lanes
        r, weight = entry_of(rows.stratum, i), entry_of(rows.penalty_weight, i)
        if r < 0 or weight <= 0:
            continue
        for a in range(rows.group.shape[1]):
            k = rows.group[i, a]
            if k < 0:
                continue
            for j in range(n_classes):
                for lane in range(n_lanes):
                    mass[r, j, k, lane] += weight * prob[j, at + lane]
            for j in range(n_kept):
                for c in range(n_outputs):
                    same = 1.0 if c == j else 0.0
                    for lane in range(n_lanes):
                        slope = same - prob[c + first, at + lane]
                        slope *= weight * sharpness * prob[j + first, at + lane]
                        factor[c * n_lanes + lane] = slope
                cell = jacobian[r, k, j]
                add_row(data, indices, indptr, i, factor, cell)


@kernel
def accumulate(rows, begin, end, theta, sharpness, with_loss, work, sums):
    """Add the rows from ``begin`` to ``end`` to the sums.

    ``theta`` is (d + 1, C L); the penalty sees ``softmax(sharpness * logits)``.
    """
    n_lanes = sums.loss.size
    logits, together = work.logits, work.all_logits
    data, indices, indptr = rows.X
    for start in range(begin, end, BLOCK):
        size = min(BLOCK, end - start)
        for b in range(size):
            row_times(data, indices, indptr, start + b, theta, logits)
            for c in range(together.shape[0]):
                for lane in range(n_lanes):
                    together[c, b * n_lanes + lane] = logits[c * n_lanes + lane]
        if with_loss:
            probabilities_into(together.reshape(-1), 1.0, work.prob)
            add_rows_of_loss(rows, start, size, work, sums.loss, sums.gradient)
        if sums.mass.size > 0:
            if sharpness != 1.0 or not with_loss:
                probabilities_into(together.reshape(-1), sharpness, work.prob)
            add_rows_of_table(
                rows, start, size, work, sharpness, sums.mass, sums.jacobian
            )


@kernel
def add_penalty_gradient(payoff, weight, jacobian, gradient):
    """Add the gradient of a penalty with a (R, m, K) payoff to that of one lane.

    A payoff of nobody may be infinite; where nothing moves it does not count.
    """
    n_strata, n_groups, n_kept, n_columns, n_outputs = jacobian.shape
    first = payoff.shape[1] - n_kept  # of two classes the second is kept
    for r in range(n_strata):
        for k in range(n_groups):
            for j in range(n_kept):
                pull = payoff[r, j + first, k]
                if first == 1:
                    pull -= payoff[r, 0, k]
                for a in range(n_columns):
                    for c in range(n_outputs):
                        slope = jacobian[r, k, j, a, c]
                        if slope != 0.0:
                            gradient[a, c] += weight * pull * slope


class RowSums(NamedTuple):
    """What a pass adds up.

    Attributes
    ----------
    loss, right
        (1,) the weighted cross-entropy, and the weight of rows decided as labelled.
    decided
        (n,) the class that each row is given.
    hard, soft
        (A, cells, m) the weights of decisions and of probabilities by attribute.
    """

    loss: FloatArray
    right: FloatArray
    decided: IntArray
    hard: FloatArray
    soft: FloatArray


def no_sums(n_rows: int, n_attributes: int, n_cells: int, n_classes: int) -> RowSums:
    """Return sums of no row yet."""
    shape = n_attributes, n_cells, n_classes
    decided = np.zeros(n_rows, dtype=np.int64)
    return RowSums(np.zeros(1), np.zeros(1), decided, np.zeros(shape), np.zeros(shape))


@kernel
def _decide(logits, decided):
    # The class of the largest logit; of two classes the first has the logit 0.
    if logits.shape[0] == 1:
        for b in range(decided.size):
            decided[b] = 1 if logits[0, b] > 0 else 0
        return
    for b in range(decided.size):
        decided[b] = 0
        for c in range(1, logits.shape[0]):
            if logits[c, b] > logits[decided[b], b]:
                decided[b] = c


@kernel
def add_up(logits, y, weight, cells, most, work, sums):
    """Add all rows to the sums.

    ``logits`` are (C, n), ``cells`` (A, n) with -1 for rows that are left out; no row
    costs more than ``most``.
    """
    n_outputs, n = logits.shape
    label, entropy = work.label, work.entropy
    flat = work.all_logits.reshape(-1)
    for begin in range(0, n, BLOCK):
        size = min(BLOCK, n - begin)
        w, decided = weight[begin : begin + size], sums.decided[begin : begin + size]
        for c in range(n_outputs):
            for b in range(size):
                work.all_logits[c, b] = logits[c, begin + b]
        for b in range(size):
            label[b] = y[begin + b]
        probabilities_into(flat, 1.0, work.prob)
        cross_entropy_into(flat, label, entropy)
        _decide(work.all_logits, decided)
        loss, right = 0.0, 0.0
        for b in range(size):
            loss += w[b] * min(entropy[b], most)
            right += w[b] if decided[b] == label[b] else 0.0
        sums.loss[0] += loss
        sums.right[0] += right
        for a in range(cells.shape[0]):
            hard, soft = sums.hard[a], sums.soft[a]
            for b in range(size):
                at = cells[a, begin + b]
                if at >= 0:
                    hard[at, decided[b]] += w[b]
                    for j in range(soft.shape[1]):
                        soft[at, j] += w[b] * work.prob[j, b]
