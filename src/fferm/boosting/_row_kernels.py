"""Passes over rows: probabilities and tables of scores, gradients, sums over leaves.

Rows are taken by blocks that stay in cache, and each loop reads few arrays: compilers
make vectors of such loops, and of no others. Sums over kinds of rows are loops of their
own. Arrays of scores are (n_scores, n): two classes have one score, that of the second.

Arrays in, arrays changed in place.
"""

# Numba caches code by the text of its own file alone, so each names its release: 0.1.0.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from fferm._types import FloatArray
from fferm.boosting.scores import LEAST_CURVATURE
from fferm.solvers._rows import FAST
from fferm.solvers._scalar import exp, log1p_of_share

BLOCK = 1024
# A sum that is read right after it was written waits for it: so many take turns.
N_TURNS = 4
# Spreads whole numbers over the slots of a table: 2^64 over the golden ratio.
SPREAD = np.uint64(0x9E3779B97F4A7C15)
SPREAD_BITS = np.uint64(40)


class Rows(NamedTuple):
    """Constants of the rows, in the smallest numbers that hold them."""

    y: NDArray[np.signedinteger]
    weight: NDArray[np.floating]  # in the loss
    bend: NDArray[np.floating]  # in the curvature
    own: NDArray[np.floating]  # in the tables
    kind: NDArray[np.unsignedinteger]


class Aim(NamedTuple):
    """What trees are grown along, in the single precision that LightGBM takes.

    ``worth`` is what a unit of the probability of a class costs; with two classes only
    that of the second counts.
    """

    worth: FloatArray  # (n_classes, n_kinds)
    gradient: NDArray[np.float32]  # (n_scores, n)
    diagonal: NDArray[np.float32]  # (n_scores, n)


class Room(NamedTuple):
    """Room for what a block needs, and for sums over kinds."""

    top: FloatArray  # (BLOCK,)
    total: FloatArray  # (BLOCK,)
    soft: FloatArray  # (n_turns, n_kinds), or (n_classes, n_kinds)
    hard: FloatArray  # the same shape


def make_room(n_classes: int, n_kinds: int) -> Room:
    """Return room for blocks of rows."""
    shape = (N_TURNS if n_classes == 2 else n_classes, n_kinds)
    return Room(np.empty(BLOCK), np.empty(BLOCK), np.zeros(shape), np.zeros(shape))


@numba.njit(**FAST)
def look_into(rows, sharpness, before, value, code, scores, prob, seen, aim, room):
    """Add the values of leaves to scores, and look at the rows from there.

    Writes scores, probabilities and what the penalty sees of them, and the gradient and
    curvature there; the tables of both probabilities and decisions go into the room.
    Returns the weighted loss.

    Parameters
    ----------
    rows, sharpness
        Constants.
    before
        (n_scores, n) scores.
    value, code
        (n_scores, n_leaves) values of leaves, and the (n_scores, n) leaves of rows.
    scores, prob, seen, aim
        Room for the results.
    room
        For blocks, and for sums over kinds.
    """
    room.soft[:] = 0.0
    room.hard[:] = 0.0
    n_scores, n = before.shape
    loss = 0.0
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        for c in range(n_scores):
            z = scores[c][begin:end]
            _move(before[c][begin:end], value[c], code[c][begin:end], z)
        if n_scores == 1:
            z, total = scores[0][begin:end], room.total[: end - begin]
            _logistic(z, 1.0, prob[0][begin:end], total)
            loss += _logistic_loss(z, total, rows.y[begin:end], rows.weight[begin:end])
            _logistic(z, sharpness, seen[0][begin:end], total)
            own, kind = rows.own[begin:end], rows.kind[begin:end]
            _add_two(own, kind, z, seen[0][begin:end], room.soft, room.hard)
        else:
            _softmax(scores, 1.0, begin, end, prob, room)
            loss += _softmax_loss(rows, begin, end, scores, room)
            _softmax(scores, sharpness, begin, end, seen, room)
            _add_many(rows, begin, end, scores, seen, room)
        _aim_block(rows, begin, end, prob, seen, aim)
    return loss


@numba.njit(**FAST)
def _move(before, value, code, scores):
    for i in range(before.size):
        scores[i] = before[i] + value[code[i]]


@numba.njit(**FAST)
def _logistic(z, factor, prob, smaller):
    # The probability, and e^-|z|, of which the smaller probability is a share.
    for i in range(z.size):
        x = factor * z[i]
        e = exp(-abs(x))
        larger = 1.0 / (1.0 + e)
        prob[i] = larger if x >= 0 else e * larger
        smaller[i] = e


@numba.njit(**FAST)
def _logistic_loss(z, smaller, y, weight):
    found = 0.0
    for i in range(z.size):
        x = z[i]
        value = (x if x > 0 else 0.0) + log1p_of_share(smaller[i]) - y[i] * x
        found += weight[i] * value
    return found


@numba.njit(**FAST)
def _add_two(own, kind, z, seen, soft, hard):
    for i in range(own.size):
        turn, k, w = i & (N_TURNS - 1), kind[i], own[i]
        soft[turn, k] += w * seen[i]
        hard[turn, k] += w if z[i] > 0 else 0.0


@numba.njit(**FAST)
def _softmax(scores, factor, begin, end, prob, room):
    # Leaves the highest scores and the sums of exponentials in the room.
    n_scores, n = scores.shape[0], end - begin
    top, total = room.top[:n], room.total[:n]
    for i in range(n):
        top[i] = -math.inf
        total[i] = 0.0
    for c in range(n_scores):
        _raise(scores[c][begin:end], top)
    for c in range(n_scores):
        _exponential(scores[c][begin:end], top, factor, prob[c][begin:end])
        _increase(prob[c][begin:end], total)
    for c in range(n_scores):
        _divide(prob[c][begin:end], total)


@numba.njit(**FAST)
def _raise(z, top):
    for i in range(z.size):
        top[i] = z[i] if z[i] > top[i] else top[i]


@numba.njit(**FAST)
def _exponential(z, top, factor, prob):
    for i in range(z.size):
        prob[i] = exp(factor * (z[i] - top[i]))


@numba.njit(**FAST)
def _increase(prob, total):
    for i in range(prob.size):
        total[i] += prob[i]


@numba.njit(**FAST)
def _divide(prob, total):
    for i in range(prob.size):
        prob[i] /= total[i]


@numba.njit(**FAST)
def _softmax_loss(rows, begin, end, scores, room):
    found = 0.0
    for i in range(begin, end):
        above = room.top[i - begin] - scores[rows.y[i], i]
        found += rows.weight[i] * (math.log(room.total[i - begin]) + above)
    return found


@numba.njit(**FAST)
def _add_many(rows, begin, end, scores, seen, room):
    for i in range(begin, end):
        k, w, best = rows.kind[i], rows.own[i], 0
        for c in range(scores.shape[0]):
            room.soft[c, k] += w * seen[c, i]
            best = c if scores[c, i] > scores[best, i] else best
        room.hard[best, k] += w


@numba.njit(**FAST)
def aim_into(rows, prob, seen, aim):
    """Write gradient and curvature of all rows that were looked at."""
    n = prob.shape[1]
    for begin in range(0, n, BLOCK):
        _aim_block(rows, begin, min(begin + BLOCK, n), prob, seen, aim)


@numba.njit(**FAST)
def _aim_block(rows, begin, end, prob, seen, aim):
    n_scores = prob.shape[0]
    if n_scores == 1:
        p, g = prob[0][begin:end], aim.gradient[0][begin:end]
        _descend(rows.y[begin:end], rows.weight[begin:end], p, g)
        own, kind = rows.own[begin:end], rows.kind[begin:end]
        _add_worth(own, kind, seen[0][begin:end], aim.worth[1], g)
        _bend(rows.bend[begin:end], p, 1.0, aim.diagonal[0][begin:end])
        return
    _aim_many(rows, begin, end, prob, seen, aim.worth, aim.gradient)
    factor = n_scores / (n_scores - 1)
    for c in range(n_scores):
        diagonal = aim.diagonal[c][begin:end]
        _bend(rows.bend[begin:end], prob[c][begin:end], factor, diagonal)


@numba.njit(**FAST)
def _descend(y, weight, prob, gradient):
    for i in range(prob.size):
        gradient[i] = weight[i] * (prob[i] - y[i])


@numba.njit(**FAST)
def _add_worth(own, kind, seen, worth, gradient):
    for i in range(seen.size):
        gradient[i] += worth[kind[i]] * own[i] * seen[i] * (1.0 - seen[i])


@numba.njit(**FAST)
def _aim_many(rows, begin, end, prob, seen, worth, gradient):
    for i in range(begin, end):
        k, y, mean = rows.kind[i], rows.y[i], 0.0
        for c in range(seen.shape[0]):
            mean += worth[c, k] * seen[c, i]
        for c in range(seen.shape[0]):
            descent = rows.weight[i] * (prob[c, i] - (1.0 if y == c else 0.0))
            slope = rows.own[i] * seen[c, i] * (worth[c, k] - mean)
            gradient[c, i] = descent + slope


@numba.njit(**FAST)
def _bend(bend, prob, factor, diagonal):
    for i in range(prob.size):
        h = factor * prob[i] * (1.0 - prob[i])
        diagonal[i] = bend[i] * (h if h > LEAST_CURVATURE else LEAST_CURVATURE)


class Slots(NamedTuple):
    """Room for leaves, told apart by how far they move a score."""

    slot: NDArray[np.int32]  # the leaf of a key, a power of 2 in size
    key: NDArray[np.int64]  # (n_keys,) moves of leaves, in whole units


def make_slots(n_keys: int) -> Slots:
    """Return room for so many leaves, a power of 2."""
    return Slots(np.empty(4 * n_keys, dtype=np.int32), np.empty(n_keys, dtype=np.int64))


@numba.njit(**FAST)
def gather_into(rows, prob, seen, before, after, unit, slots, code, c, sums):
    """Find the leaves of rows, and add up derivatives over leaves.

    A leaf is told by how far it moved a score; leaves are numbered as they come.
    Returns how many there are, -1 where there is no room for so many.

    Parameters
    ----------
    rows, prob, seen
        The rows, and what a look at them gave.
    before, after
        (n,) scores of the library that grows trees.
    unit
        Moves are rounded to whole multiples of it.
    slots
        Room for leaves.
    code
        (n,) room for the leaves of rows.
    c
        Which score it is.
    sums
        (n_keys, n_kinds, 2 + n_classes) room for sums: gradient and curvature of the
        loss, and how the probability of each class but the first moves with the score.
    """
    slots.slot[:] = -1
    n_leaves, n_scores = 0, prob.shape[0]
    for begin in range(0, before.size, BLOCK):
        end = min(begin + BLOCK, before.size)
        leaf, known = code[begin:end], n_leaves
        moves = before[begin:end], after[begin:end], 1.0 / unit
        n_leaves = _find(*moves, slots, leaf, known)
        if n_leaves < 0:
            return n_leaves
        sums[known:n_leaves] = 0.0
        if n_scores == 1:
            _add_rows_of_two(rows, begin, leaf, prob[0], seen[0], sums)
        else:
            _add_rows_of_many(rows, begin, leaf, prob, seen, c, sums)
    return n_leaves


@numba.njit(**FAST)
def _find(before, after, per_unit, slots, code, n_leaves):
    last = np.uint64(slots.slot.size - 1)
    for i in range(before.size):
        key = np.int64(np.rint((after[i] - before[i]) * per_unit))
        at = ((np.uint64(key) * SPREAD) >> SPREAD_BITS) & last
        while slots.slot[at] >= 0 and slots.key[slots.slot[at]] != key:
            at = (at + np.uint64(1)) & last
        if slots.slot[at] < 0:
            if n_leaves == slots.key.size:
                return -1
            slots.key[n_leaves] = key
            slots.slot[at] = n_leaves
            n_leaves += 1
        code[i] = slots.slot[at]
    return n_leaves


@numba.njit(**FAST)
def _add_rows_of_two(rows, begin, leaf, prob, seen, sums):
    end = begin + leaf.size
    y, kind, weight = rows.y[begin:end], rows.kind[begin:end], rows.weight[begin:end]
    bend, own = rows.bend[begin:end], rows.own[begin:end]
    prob, seen = prob[begin:end], seen[begin:end]
    for i in range(leaf.size):
        p, s, leaf_, k = prob[i], seen[i], leaf[i], kind[i]
        h = p * (1.0 - p)
        sums[leaf_, k, 0] += weight[i] * (p - y[i])
        sums[leaf_, k, 1] += bend[i] * (h if h > LEAST_CURVATURE else LEAST_CURVATURE)
        sums[leaf_, k, 3] += own[i] * s * (1.0 - s)


@numba.njit(**FAST)
def _add_rows_of_many(rows, begin, leaf, prob, seen, c, sums):
    n_scores = prob.shape[0]
    for n in range(leaf.size):
        i, at, k = begin + n, leaf[n], rows.kind[begin + n]
        p, s = prob[c, i], seen[c, i]
        h = n_scores / (n_scores - 1) * p * (1.0 - p)
        sums[at, k, 0] += rows.weight[i] * (p - (1.0 if rows.y[i] == c else 0.0))
        sums[at, k, 1] += rows.bend[i] * max(h, LEAST_CURVATURE)
        for j in range(1, n_scores):
            moved = seen[j, i] * ((1.0 if j == c else 0.0) - s)
            sums[at, k, 2 + j] += rows.own[i] * moved
