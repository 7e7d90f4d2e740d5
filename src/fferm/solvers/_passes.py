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
from typing import Any, NamedTuple

import numpy as np

from fferm._jit import exp, kernel, log1p_of_share
from fferm._typing import FloatArray, IntArray
from fferm.solvers._kernels import probabilities_into
from fferm.solvers._rows import (
    add_row,
    add_to_pair,
    add_waiting,
    block_times,
    entry_of,
    fetch_row,
    row_times,
)

# Rows are taken by so many: their logits stay in cache, and the rows of one lane make
# vectors as the lanes of one row do.
BLOCK = 128


class Sums(NamedTuple):
    """What a pass adds up.

    Attributes
    ----------
    loss, gradient
        (L,) and (d + 1, C): the weighted loss and its gradient, or an empty array.
    mass
        (R K + 1, m, L) the weighted table; the last cell is that of rows outside.
    jacobian
        (R K + 1, P, d + 1, C) the gradient of the table, of the P classes that are
        kept.
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
    pull: FloatArray  # (C, B L), the gradient of the loss
    cell: IntArray  # (B,)
    weight: FloatArray  # (B L,), in the loss, then in its cell
    waiting: tuple[Any, ...]  # of each cell, see `add_to_pair`


def workspace(
    n_outputs: int, n_classes: int, n_lanes: int = 1, n_cells: int = 0
) -> Workspace:
    """Return arrays for a block of rows."""
    n, four = BLOCK * n_lanes, (n_cells + 1, 4)
    return Workspace(
        np.empty(n_outputs * n_lanes),
        np.empty(n_outputs * n_lanes),
        np.zeros((n_outputs, n)),
        np.empty((n_classes, n)),
        np.zeros(n, dtype=np.int64),
        np.empty(n),
        np.empty((n_outputs, n)),
        np.empty(BLOCK, dtype=np.int64),
        np.empty(n),
        (
            np.zeros(n_cells + 1, dtype=np.int64),
            np.zeros(four, dtype=np.int64),
            np.empty(four),
            np.empty(four),
        ),
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
def _add_loss(rows, begin, size, work, loss):
    # Add the loss of a block of rows, and write its gradient by their logits.
    label, entropy, weight = work.label, work.entropy, work.weight
    n_outputs, n_lanes = work.pull.shape[0], loss.size
    first = work.prob.shape[0] - n_outputs
    y = rows.y[begin : begin + size]
    for lane in range(n_lanes):  # a loop over rows is vectorised
        for b in range(size):  # a row without a label has no weight either
            label[b * n_lanes + lane] = max(y[b], 0)
        for b in range(size):
            weight[b * n_lanes + lane] = entry_of(rows.loss_weight, begin + b)
    cross_entropy_into(work.all_logits.reshape(-1), label, entropy)
    for lane in range(n_lanes):
        total = 0.0
        for f in range(lane, size * n_lanes, n_lanes):
            total += weight[f] * entropy[f] if weight[f] > 0 else 0.0
        loss[lane] += total
    for c in range(n_outputs):
        pull, prob = work.pull[c], work.prob[c + first]
        for f in range(size * n_lanes):
            pull[f] = weight[f] * (prob[f] - (1.0 if label[f] == c + first else 0.0))


@kernel
def _add_mass(rows, begin, size, attribute, n_groups, work, mass):
    # Write cells and weights of a block of rows, and add them to the table.
    n_none, n_classes, n_lanes = mass.shape[0] - 1, mass.shape[1], mass.shape[2]
    cell, weight = work.cell, work.weight
    for b in range(size):
        cell[b], weight[b] = n_none, 0.0
        if n_none > 0 and attribute < rows.group.shape[1]:
            i = begin + b
            r, k = entry_of(rows.stratum, i), rows.group[i, attribute]
            of_row = entry_of(rows.penalty_weight, i)
            if r >= 0 and k >= 0 and of_row > 0:
                cell[b], weight[b] = r * n_groups + k, of_row
    prob = work.prob
    if n_classes == 2 and n_lanes == 1:  # a loop of its own, three times as fast
        for b in range(size):
            mass[cell[b], 0, 0] += weight[b] * prob[0, b]
            mass[cell[b], 1, 0] += weight[b] * prob[1, b]
        return
    for b in range(size):
        for j in range(n_classes):
            for lane in range(n_lanes):
                mass[cell[b], j, lane] += weight[b] * prob[j, b * n_lanes + lane]


@kernel
def _add_slopes(rows, begin, size, is_first, sharpness, work, sums):
    # Add a block of rows to the gradients of the loss and of the table, of one model.
    gradient, jacobian, prob, pull = sums.gradient, sums.jacobian, work.prob, work.pull
    data, indices, indptr = rows.X
    n_outputs, n_kept = pull.shape[0], jacobian.shape[1]
    flat, by_cell = gradient.reshape(-1), jacobian.reshape(jacobian.shape[0], -1)
    for b in range(size):
        i, cell, weight = begin + b, work.cell[b], sharpness * work.weight[b]
        if data.ndim == 2:
            fetch_row(data, indices, indptr, min(i + BLOCK, rows.y.size - 1))
        if n_outputs == 1:
            loss = pull[0, b] if is_first else 0.0
            factors = loss, weight * prob[0, b] * prob[1, b]
            sums_of_cell = cell, flat, by_cell[cell], work.waiting
            add_to_pair(data, indices, indptr, i, factors, *sums_of_cell)
            continue
        if is_first:
            for c in range(n_outputs):
                work.factor[c] = pull[c, b]
            add_row(data, indices, indptr, i, work.factor, gradient)
        for j in range(n_kept if weight > 0 else 0):
            for c in range(n_outputs):
                same = 1.0 if c == j else 0.0
                work.factor[c] = weight * prob[j, b] * (same - prob[c, b])
            add_row(data, indices, indptr, i, work.factor, jacobian[cell, j])


@kernel
def accumulate(rows, begin, end, theta, sharpness, with_loss, n_groups, work, sums):
    """Add the rows from ``begin`` to ``end`` to the sums.

    ``theta`` is (d + 1, C L); the penalty sees ``softmax(sharpness * logits)``.
    Gradients are those of a single model.
    """
    n_lanes = sums.loss.size
    logits, together = work.logits, work.all_logits
    data, indices, indptr = rows.X
    for start in range(begin, end, BLOCK):
        size = min(BLOCK, end - start)
        if logits.size == 1:
            block_times(
                data,
                indices,
                indptr,
                start,
                start + size,
                theta.reshape(-1),
                together[0],
            )
        else:
            for b in range(size):
                row_times(data, indices, indptr, start + b, theta, logits)
                for c in range(together.shape[0]):
                    for lane in range(n_lanes):
                        together[c, b * n_lanes + lane] = logits[c * n_lanes + lane]
        if with_loss:
            probabilities_into(together.reshape(-1), 1.0, work.prob)
            _add_loss(rows, start, size, work, sums.loss)
        for a in range(max(1, rows.group.shape[1])):
            if a == 0 and (sharpness != 1.0 or not with_loss):
                probabilities_into(together.reshape(-1), sharpness, work.prob)
            _add_mass(rows, start, size, a, n_groups, work, sums.mass)
            if sums.gradient.size > 0:
                _add_slopes(rows, start, size, a == 0, sharpness, work, sums)
    if sums.gradient.size > 0:
        for cell in range(sums.mass.shape[0]):
            flat, of_cell = sums.gradient.reshape(-1), sums.jacobian[cell].reshape(-1)
            add_waiting(data, cell, flat, of_cell, work.waiting)


@kernel
def add_penalty_gradient(payoff, weight, jacobian, gradient):
    """Add the gradient of a penalty with a (R, m, K) payoff to that of one model.

    A payoff of nobody may be infinite; where nothing moves it does not count.
    """
    n_strata, n_classes, n_groups = payoff.shape
    n_kept, n_columns, n_outputs = jacobian.shape[1:]
    first = n_classes - n_kept  # of two classes the second is kept
    for r in range(n_strata):
        for k in range(n_groups):
            for j in range(n_kept):
                pull = payoff[r, j + first, k]
                if first == 1:
                    pull -= payoff[r, 0, k]
                of_cell = jacobian[r * n_groups + k, j]
                for a in range(n_columns):
                    for c in range(n_outputs):
                        if of_cell[a, c] != 0.0:
                            gradient[a, c] += weight * pull * of_cell[a, c]


@kernel
def add_curvature(rows, begin, end, step, theta, logit, curvature):
    """Add the lower half of the curvature of the loss of CSR rows, of two classes."""
    data, indices, indptr = rows.X
    last = theta.shape[0] - 1
    for i in range(begin, end, step):
        row_times(data, indices, indptr, i, theta, logit)
        decay = exp(-abs(logit[0]))
        weight = entry_of(rows.loss_weight, i) * decay / ((1 + decay) * (1 + decay))
        curvature[last, last] += weight
        for p in range(indptr[i], indptr[i + 1]):
            of_column, x = curvature[indices[p]], weight * data[p]
            curvature[last, indices[p]] += x
            for q in range(indptr[i], p + 1):
                of_column[np.uint32(indices[q])] += x * data[q]


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
