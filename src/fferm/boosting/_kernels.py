"""Compiled passes over rows, and the small linear algebra of a round.

Rows are taken by blocks that stay in cache, and each loop reads few arrays, because
compilers vectorise only such loops. Arrays of scores are (n_scores, n): two classes
have one score, that of the second. A dozen calls of NumPy on a few numbers each would
take longer, after LightGBM has had the cache to itself, than a pass over all rows.

Arrays in, arrays changed in place.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg"
# ruff: noqa: ANN001, ANN202, C901, PLR0912, PLR0913, PLR0917

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fferm._jit import _bits, _double, exp, kernel, log1p_of_share
from fferm._typing import FloatArray

# Least curvature of a row, relative to its weight: what a saturated score leaves.
LEAST_CURVATURE = 1e-12
# Spreads integers over the slots of a hash table: 2^64 over the golden ratio.
SPREAD = np.uint64(0x9E3779B97F4A7C15)
SPREAD_BITS = np.uint64(40)
BLOCK = 1024
# A sum that is read right after it was written waits for it: so many take turns.
N_TURNS = 4
# So few cells are summed one after the other.
FEW_CELLS = 6
# A sharpness of so many halves needs no exponential of its own.
MOST_HALVES = 8


class Rows(NamedTuple):
    """Constants of the rows, in the smallest numbers that hold them."""

    y: NDArray[np.signedinteger]
    weight: NDArray[np.floating]  # in the loss
    hessian_weight: NDArray[np.floating]  # in the curvature
    table_weight: NDArray[np.floating]  # in the tables
    cell: NDArray[np.unsignedinteger]  # joint cell, see `join_cells`
    sharpness: float
    membership: FloatArray  # (n_cells, n_joint), what sums add to the cells of tables
    mass: FloatArray  # (n_cells, 1) weights of all rows in a cell


class RowPass(NamedTuple):
    """What a pass over the rows gives at some scores."""

    scores: FloatArray  # (n_scores, n)
    prob: FloatArray  # (n_scores, n), with two classes that of the second
    penalized: FloatArray  # (n_scores, n), the probabilities that the penalty sees
    cells: FloatArray  # (n_cells, n_classes), of the tables that the penalty sees
    decided: FloatArray  # the same, of the tables of decisions
    loss: float = 0.0


class Workspace(NamedTuple):
    """Memory for one block of rows, for sums over joint cells, and for gradients.

    Trees are grown along the latter, in the single precision that LightGBM takes.
    """

    top: FloatArray  # (BLOCK,)
    total: FloatArray  # (BLOCK,)
    soft: FloatArray  # (N_TURNS, n_joint), or (n_classes, n_joint)
    hard: FloatArray  # the same shape
    gradient: NDArray[np.float32]  # (n_scores, n)
    diagonal: NDArray[np.float32]  # (n_scores, n)


@kernel
def row_pass_into(rows, before, value, code, at, cell_gradient, workspace):
    """Add the values of leaves to scores, and evaluate the rows there.

    Writes a `RowPass`, and gradient and curvature. Returns the weighted loss.

    Parameters
    ----------
    rows
        Constants.
    before
        (n_scores, n) scores.
    value, code
        (n_scores, n_leaves) values of leaves, and the (n_scores, n) leaves of rows.
    at
        Memory for the results.
    cell_gradient
        (n_classes, n_joint) gradient of the penalty by the probability of a class; with
        two classes only that of the second is used.
    workspace
        Memory, for gradient and curvature too.
    """
    workspace.soft[:] = 0.0
    workspace.hard[:] = 0.0
    n_scores, n = before.shape
    loss = 0.0
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        for c in range(n_scores):
            z, old = at.scores[c][begin:end], before[c][begin:end]
            by_leaf, leaf = value[c], code[c][begin:end]
            for i in range(z.size):
                z[i] = old[i] + by_leaf[leaf[i]]
        if n_scores == 1:
            loss += _evaluate_two(rows, begin, end, at, workspace)
        else:
            loss += _evaluate_many(rows, begin, end, at, workspace)
        _gradients_of_block(rows, begin, end, at, cell_gradient, workspace)
    _tables_into(rows, workspace.soft, at.cells)
    _tables_into(rows, workspace.hard, at.decided)
    return loss


@kernel
def _tables_into(rows, sums, cells):
    # From sums over joint cells, or parts of the sums of the second of two classes; the
    # first class gets the rest.
    n_cells, n_classes = cells.shape
    first, membership = 0 if n_classes == 2 else 1, rows.membership
    for q in range(n_cells):
        cells[q, :] = 0.0
        for k in range(membership.shape[1]):
            if membership[q, k] != 0:
                for n in range(first, sums.shape[0]):
                    j = 1 if n_classes == 2 else n
                    cells[q, j] += membership[q, k] * sums[n, k]
        rest = rows.mass[q, 0]
        for j in range(1, n_classes):
            rest -= cells[q, j]
        cells[q, 0] = rest if rest > 0 else 0.0


@kernel
def _evaluate_two(rows, begin, end, at, workspace):
    z, decay = at.scores[0][begin:end], workspace.total[: end - begin]
    prob, penalized = at.prob[0][begin:end], at.penalized[0][begin:end]
    _logistic(z, rows.sharpness, decay, prob, penalized)
    y, weight, loss = rows.y[begin:end], rows.weight[begin:end], 0.0
    for i in range(z.size):
        x = z[i]
        value = (x if x > 0 else 0.0) + log1p_of_share(decay[i]) - y[i] * x
        loss += weight[i] * value
    soft, hard = workspace.soft, workspace.hard
    weight, cell = rows.table_weight[begin:end], rows.cell[begin:end]
    if soft.shape[1] <= FEW_CELLS:  # a vector of rows at once, of one cell
        for k in range(soft.shape[1]):
            _add_cell(weight, cell, z, penalized, k, soft, hard)
        return loss
    for i in range(weight.size):
        turn, k, w = i & (N_TURNS - 1), cell[i], weight[i]
        soft[turn, k] += w * penalized[i]
        hard[turn, k] += w if z[i] > 0 else 0.0
    return loss


@kernel
def _logistic(z, sharpness, decay, prob, penalized):
    # Probabilities of the second class, and e^-|z|, of which the smaller is a share.
    halves = round(2.0 * sharpness)
    if halves == 2.0 * sharpness and 2 <= halves <= MOST_HALVES:
        # Multiplications take less than an exponential of its own.
        _decay(z, 0.5, decay)
        for i in range(z.size):
            penalized[i] = decay[i] * decay[i]
        for _ in range(halves - 2):
            for i in range(z.size):
                penalized[i] *= decay[i]
        for i in range(z.size):
            decay[i] *= decay[i]
    else:
        _decay(z, 1.0, decay)
        _decay(z, sharpness, penalized)
    for i in range(z.size):  # one division serves both
        a, b = 1.0 + decay[i], 1.0 + penalized[i]
        both = 1.0 / (a * b)
        larger, largest = b * both, a * both
        prob[i] = larger if z[i] >= 0 else decay[i] * larger
        penalized[i] = largest if z[i] >= 0 else penalized[i] * largest


@kernel
def _decay(z, factor, decay):
    for i in range(z.size):
        decay[i] = exp(-factor * abs(z[i]))


@kernel
def _add_cell(weight, cell, z, prob, k, soft, hard):
    probable, decided = 0.0, 0.0
    for i in range(weight.size):
        w = weight[i] if cell[i] == k else 0.0
        probable += w * prob[i]
        decided += w if z[i] > 0 else 0.0
    soft[0, k] += probable
    hard[0, k] += decided


@kernel
def _evaluate_many(rows, begin, end, at, workspace):
    scores, penalized, loss = at.scores, at.penalized, 0.0
    _softmax(scores, 1.0, begin, end, at.prob, workspace)
    for i in range(begin, end):
        above = workspace.top[i - begin] - scores[rows.y[i], i]
        loss += rows.weight[i] * (math.log(workspace.total[i - begin]) + above)
    _softmax(scores, rows.sharpness, begin, end, penalized, workspace)
    for i in range(begin, end):
        k, w, best = rows.cell[i], rows.table_weight[i], 0
        for c in range(scores.shape[0]):
            workspace.soft[c, k] += w * penalized[c, i]
            best = c if scores[c, i] > scores[best, i] else best
        workspace.hard[best, k] += w
    return loss


@kernel
def _softmax(scores, factor, begin, end, prob, workspace):
    # Leaves the highest scores and the sums of exponentials in the workspace.
    n_scores, n = scores.shape[0], end - begin
    top, total = workspace.top[:n], workspace.total[:n]
    for i in range(n):
        top[i] = -math.inf
        total[i] = 0.0
    for c in range(n_scores):
        z = scores[c][begin:end]
        for i in range(n):
            top[i] = z[i] if z[i] > top[i] else top[i]
    for c in range(n_scores):
        z, p = scores[c][begin:end], prob[c][begin:end]
        for i in range(n):
            p[i] = exp(factor * (z[i] - top[i]))
        for i in range(n):
            total[i] += p[i]
    for c in range(n_scores):
        p = prob[c][begin:end]
        for i in range(n):
            p[i] /= total[i]


@kernel
def gradients_into(rows, at, cell_gradient, workspace):
    """Write gradient and curvature of all rows after a pass."""
    n = at.prob.shape[1]
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        _gradients_of_block(rows, begin, end, at, cell_gradient, workspace)


@kernel
def _gradients_of_block(rows, begin, end, at, cell_gradient, workspace):
    n_scores, weight = at.prob.shape[0], rows.hessian_weight[begin:end]
    prob, diagonal = at.prob[0][begin:end], workspace.diagonal[0][begin:end]
    if n_scores == 1:
        gradient = workspace.gradient[0][begin:end]
        _gradients_of_two(rows, begin, end, at, cell_gradient[1], gradient)
        _hessian_into(weight, prob, 1.0, diagonal)
        return
    _gradients_of_many(rows, begin, end, at, cell_gradient, workspace.gradient)
    for c in range(n_scores):
        prob, diagonal = at.prob[c][begin:end], workspace.diagonal[c][begin:end]
        _hessian_into(weight, prob, n_scores / (n_scores - 1), diagonal)


@kernel
def _hessian_into(weight, prob, factor, diagonal):
    for i in range(prob.size):
        h = factor * prob[i] * (1.0 - prob[i])
        diagonal[i] = weight[i] * (h if h > LEAST_CURVATURE else LEAST_CURVATURE)


@kernel
def _gradients_of_two(rows, begin, end, at, by_cell, gradient):
    y, weight, cell = rows.y[begin:end], rows.weight[begin:end], rows.cell[begin:end]
    table_weight = rows.table_weight[begin:end]
    prob, penalized = at.prob[0][begin:end], at.penalized[0][begin:end]
    for i in range(prob.size):
        gradient[i] = weight[i] * (prob[i] - y[i])
    if by_cell.size <= FEW_CELLS:
        for k in range(by_cell.size):
            _add_cell_gradient(table_weight, cell, penalized, k, by_cell[k], gradient)
        return
    for i in range(prob.size):
        slope = by_cell[cell[i]] * table_weight[i]
        gradient[i] += slope * penalized[i] * (1.0 - penalized[i])


@kernel
def _add_cell_gradient(weight, cell, prob, k, cell_gradient, gradient):
    for i in range(prob.size):
        w = weight[i] if cell[i] == k else 0.0
        gradient[i] += cell_gradient * w * prob[i] * (1.0 - prob[i])


@kernel
def _gradients_of_many(rows, begin, end, at, by_cell, gradient):
    prob, penalized = at.prob, at.penalized
    for i in range(begin, end):
        k, y, mean = rows.cell[i], rows.y[i], 0.0
        for c in range(penalized.shape[0]):
            mean += by_cell[c, k] * penalized[c, i]
        for c in range(penalized.shape[0]):
            descent = rows.weight[i] * (prob[c, i] - (1.0 if y == c else 0.0))
            slope = rows.table_weight[i] * penalized[c, i] * (by_cell[c, k] - mean)
            gradient[c, i] = descent + slope


@kernel
def gather_into(rows, at, before, after, tolerance, slot, key, code, c, sums):
    """Find the leaves of rows, and add up derivatives over leaves.

    A leaf is recognised by how far it moved a score; leaves are numbered in order of
    appearance. Returns their number, -1 if they do not fit into memory, the unit that
    moves were rounded to, and whether moves are more than two units apart. In the end
    ``before`` is ``after``.

    Parameters
    ----------
    rows, at
        The rows, and what the last pass over them gave.
    before, after
        (n,) scores of the library that grows trees.
    tolerance
        Moves are rounded to this, relative to the largest score or 1.
    slot, key
        Memory for a hash table, a power of 2 in size, and for the moves of leaves in
        units.
    code
        (n,) memory for the leaf of each row.
    c
        The score.
    sums
        (n_keys, n_joint, 2 + n_classes) memory for sums: gradient and curvature of the
        loss, and how the probability of each class but the first moves with the score.
    """
    slot[:] = -1
    n_leaves, unit = 0, tolerance * max(1.0, _largest(after))
    for begin in range(0, before.size, BLOCK):
        end = min(begin + BLOCK, before.size)
        leaf, known = code[begin:end], n_leaves
        moves = before[begin:end], after[begin:end], 1.0 / unit
        n_leaves = _find_leaves(*moves, slot, key, leaf, known)
        if n_leaves < 0:
            return n_leaves, unit, True
        sums[known:n_leaves] = 0.0
        if at.prob.shape[0] == 1:
            _add_rows_of_two(rows, begin, leaf, at.prob[0], at.penalized[0], sums)
        else:
            _add_rows_of_many(rows, begin, leaf, at, c, sums)
    for i in range(before.size):
        before[i] = after[i]
    are_apart = True
    for a in range(n_leaves):
        for b in range(a):
            are_apart = are_apart and abs(key[a] - key[b]) > 2
    return n_leaves, unit, are_apart


@kernel
def _largest(scores):
    # The bits of positive numbers are in the order of the numbers, and whole numbers
    # are compared in vectors.
    bits = np.int64(0)
    for i in range(scores.size):
        bits = max(bits, _bits(abs(scores[i])))
    return _double(bits)


@kernel
def _find_leaves(before, after, per_unit, slot, key, code, n_leaves):
    last = np.uint64(slot.size - 1)
    for i in range(before.size):
        move = np.int64(np.rint((after[i] - before[i]) * per_unit))
        at = ((np.uint64(move) * SPREAD) >> SPREAD_BITS) & last
        while slot[at] >= 0 and key[slot[at]] != move:
            at = (at + np.uint64(1)) & last
        if slot[at] < 0:
            if n_leaves == key.size:
                return -1
            key[n_leaves] = move
            slot[at] = n_leaves
            n_leaves += 1
        code[i] = slot[at]
    return n_leaves


@kernel
def _add_rows_of_two(rows, begin, leaf, prob, penalized, sums):
    end = begin + leaf.size
    y, cell, weight = rows.y[begin:end], rows.cell[begin:end], rows.weight[begin:end]
    bent, table_weight = rows.hessian_weight[begin:end], rows.table_weight[begin:end]
    prob, penalized = prob[begin:end], penalized[begin:end]
    for i in range(leaf.size):
        p, s, leaf_, k = prob[i], penalized[i], leaf[i], cell[i]
        h = p * (1.0 - p)
        sums[leaf_, k, 0] += weight[i] * (p - y[i])
        sums[leaf_, k, 1] += bent[i] * (h if h > LEAST_CURVATURE else LEAST_CURVATURE)
        sums[leaf_, k, 3] += table_weight[i] * s * (1.0 - s)


@kernel
def _add_rows_of_many(rows, begin, leaf, at, c, sums):
    prob, penalized, n_scores = at.prob, at.penalized, at.prob.shape[0]
    for n in range(leaf.size):
        i, leaf_, k = begin + n, leaf[n], rows.cell[begin + n]
        p, s = prob[c, i], penalized[c, i]
        h = n_scores / (n_scores - 1) * p * (1.0 - p)
        sums[leaf_, k, 0] += rows.weight[i] * (p - (1.0 if rows.y[i] == c else 0.0))
        sums[leaf_, k, 1] += rows.hessian_weight[i] * max(h, LEAST_CURVATURE)
        for j in range(1, n_scores):
            moved = penalized[j, i] * ((1.0 if j == c else 0.0) - s)
            sums[leaf_, k, 2 + j] += rows.table_weight[i] * moved


@kernel
def leaf_sums_into(sums, member, gradient, diagonal, moved):
    """Add up over joint cells, and over the table cells that they belong to.

    Parameters
    ----------
    sums
        (n_leaves, n_joint, 2 + n_classes), as passes over rows leave them: nothing yet
        of the first class.
    member
        (n_cells, n_joint): how a table cell moves with a joint cell.
    gradient, diagonal
        (n_leaves,) memory for derivatives of the loss.
    moved
        (n_cells * n_classes, n_leaves) memory for how tables move.
    """
    n_cells, n_joint = member.shape
    n_classes = sums.shape[2] - 2
    for leaf in range(gradient.size):
        gradient[leaf], diagonal[leaf] = 0.0, 0.0
        for k in range(n_joint):
            gradient[leaf] += sums[leaf, k, 0]
            diagonal[leaf] += sums[leaf, k, 1]
        for q in range(n_cells):
            first = q * n_classes
            moved[first, leaf] = 0.0  # probabilities sum to 1
            for j in range(1, n_classes):
                total = 0.0
                for k in range(n_joint):
                    total += member[q, k] * sums[leaf, k, 2 + j]
                moved[first + j, leaf] = total
                moved[first, leaf] -= total


@kernel
def newton_into(
    sums, added, pull, curvature, lam, total, rate, root, system, values, solved
):
    """Write the Newton step over leaves, and the payoff that it leads to.

    Returns how fast the objective falls along it.

    Parameters
    ----------
    sums
        A `LeafSums`: derivatives by the values of leaves.
    added
        (n_leaves,) what is added to the curvature of the loss; its memory is used.
    pull, curvature
        (n,) gradient of the penalty by its tables, and (n, n) root of its curvature,
        with n the cells of all classes.
    lam, total
        The weight of the penalty, and W, by which the sums of the loss are divided.
    rate
        The share of a step that is taken where the table does not move.
    root, system
        (n, n_leaves) and (n, n) memory.
    values, solved
        (n_leaves,) and (n,) memory for the step and the payoff.
    """
    gradient, moved = sums.gradient, sums.moved
    n, n_leaves = moved.shape
    for u in range(n_leaves):
        slope = 0.0
        for q in range(n):
            slope += pull[q] * moved[q, u]
        values[u] = gradient[u] / total + lam * slope
    for q in range(n):
        root[q, :] = 0.0
        for c in range(n):
            if curvature[q, c] != 0:
                for u in range(n_leaves):
                    root[q, u] += curvature[q, c] * moved[c, u]
    inverse = added  # of the curvature of the loss
    for u in range(n_leaves):
        inverse[u] = rate * total / (sums.diagonal[u] + added[u])
    for q in range(n):
        solved[q] = 0.0
        for u in range(n_leaves):
            solved[q] += root[q, u] * values[u] * inverse[u]
        for c in range(q + 1):
            shared = 0.0
            for u in range(n_leaves):
                shared += root[q, u] * root[c, u] * inverse[u]
            system[q, c] = lam * shared + (1.0 if q == c else 0.0)
    _cholesky_solve(system, solved)
    slope = 0.0
    for u in range(n_leaves):
        held = 0.0
        for q in range(n):
            held += lam * solved[q] * root[q, u]
        down = values[u]
        values[u] = (held - down) * inverse[u]
        slope += down * values[u]
    for q in range(n):
        solved[q] = pull[q]
    for q in range(n):
        change = 0.0
        for u in range(n_leaves):
            change += root[q, u] * values[u]
        for c in range(n):
            solved[c] += curvature[q, c] * change
    return slope


@kernel
def _cholesky_solve(system, solved):
    # Cholesky's factor takes the place of the lower half.
    n = solved.size
    for i in range(n):
        for j in range(i + 1):
            rest = system[i, j]
            for k in range(j):
                rest -= system[i, k] * system[j, k]
            system[i, j] = math.sqrt(rest) if i == j else rest / system[j, j]
    for i in range(n):
        for k in range(i):
            solved[i] -= system[i, k] * solved[k]
        solved[i] /= system[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            solved[i] -= system[k, i] * solved[k]
        solved[i] /= system[i, i]


@kernel
def regularisation_into(sums, pulled, output, rate, least, most, added):
    """Write what LightGBM added to the curvature of each leaf, from its output.

    Parameters
    ----------
    sums
        A `LeafSums`.
    pulled
        (n_cells * n_classes,) the gradient of the penalty that trees were grown along.
    output
        (n_leaves,) values that LightGBM gave.
    rate
        The learning rate.
    least, most
        Bounds.
    added
        (n_leaves,) memory for the result.
    """
    for u in range(output.size):
        gradient = sums.gradient[u]
        for q in range(pulled.size):
            gradient += pulled[q] * sums.moved[q, u]
        whole = -rate * gradient / output[u] if output[u] != 0 else 0.0
        added[u] = min(max(whole - sums.diagonal[u], least), most)


@kernel
def update_offsets_into(cells, decided, ends, rate, least_decided, offsets):
    """Move offsets a step nearer to those that lead to the tables of decisions.

    Parameters
    ----------
    cells, decided
        (n_cells, n_classes) cells of the tables of probabilities and of decisions.
    ends
        Where the cells of each table end.
    rate
        How much of the way.
    least_decided
        Decisions are trusted in full where every class is decided at least so often,
        as a share of its probability.
    offsets
        (n_cells, n_classes) the last ones, changed.
    """
    begin = 0
    for end in ends:
        trust = 1.0
        for j in range(cells.shape[1]):
            mass, known = 0.0, 0.0
            for q in range(begin, end):
                mass += cells[q, j]
                known += decided[q, j]
            if mass > 0:
                trust = min(trust, known / (least_decided * mass))
        for q in range(begin, end):
            slack = 1.0
            for j in range(cells.shape[1]):
                goal = trust * (decided[q, j] - cells[q, j])
                offsets[q, j] += rate * (goal - offsets[q, j])
                # Every class keeps a tenth of its own.
                if offsets[q, j] < 0:
                    slack = min(slack, 0.9 * cells[q, j] / -offsets[q, j])
            for j in range(cells.shape[1]):
                offsets[q, j] *= slack
        begin = end
