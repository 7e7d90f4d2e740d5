"""The pass that looks at rows: probabilities and tables of scores, and gradients.

Rows are taken by blocks that stay in cache, and each loop reads few arrays: compilers
make vectors of such loops, and of no others. Sums over kinds of rows are loops of their
own. Arrays of scores are (n_scores, n): two classes have one score, that of the second.

Arrays in, arrays changed in place.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg"
# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fferm._jit import exp, kernel, log1p_of_share
from fferm._typing import FloatArray
from fferm.boosting.scores import LEAST_CURVATURE

BLOCK = 1024
# A sum that is read right after it was written waits for it: so many take turns.
N_TURNS = 4
# So few kinds are summed one after the other.
FEW_KINDS = 6
# A sharpness of so many halves needs no exponential of its own.
MOST_HALVES = 8


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


@kernel
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
            z, decay = scores[0][begin:end], room.total[: end - begin]
            p, s = prob[0][begin:end], seen[0][begin:end]
            _logistic(z, sharpness, decay, p, s)
            loss += _logistic_loss(z, decay, rows.y[begin:end], rows.weight[begin:end])
            own, kind = rows.own[begin:end], rows.kind[begin:end]
            _add_two(own, kind, z, s, room.soft, room.hard)
        else:
            _softmax(scores, 1.0, begin, end, prob, room)
            loss += _softmax_loss(rows, begin, end, scores, room)
            _softmax(scores, sharpness, begin, end, seen, room)
            _add_many(rows, begin, end, scores, seen, room)
        _aim_block(rows, begin, end, prob, seen, aim)
    return loss


@kernel
def _move(before, value, code, scores):
    for i in range(before.size):
        scores[i] = before[i] + value[code[i]]


@kernel
def _logistic(z, sharpness, decay, prob, seen):
    # Probabilities of the second class, and e^-|z|, of which the smaller is a share.
    halves = round(2.0 * sharpness)
    if halves == 2.0 * sharpness and 2 <= halves <= MOST_HALVES:
        # Multiplications take less than an exponential of its own.
        _decay(z, 0.5, decay)
        for i in range(z.size):
            seen[i] = decay[i] * decay[i]
        for _ in range(halves - 2):
            for i in range(z.size):
                seen[i] *= decay[i]
        for i in range(z.size):
            decay[i] *= decay[i]
    else:
        _decay(z, 1.0, decay)
        _decay(z, sharpness, seen)
    _shares(z, decay, prob, seen)


@kernel
def _decay(z, factor, decay):
    for i in range(z.size):
        decay[i] = exp(-factor * abs(z[i]))


@kernel
def _shares(z, decay, prob, seen):
    # One division serves both.
    for i in range(z.size):
        a, b = 1.0 + decay[i], 1.0 + seen[i]
        both = 1.0 / (a * b)
        larger, largest = b * both, a * both
        prob[i] = larger if z[i] >= 0 else decay[i] * larger
        seen[i] = largest if z[i] >= 0 else seen[i] * largest


@kernel
def _logistic_loss(z, decay, y, weight):
    found = 0.0
    for i in range(z.size):
        x = z[i]
        value = (x if x > 0 else 0.0) + log1p_of_share(decay[i]) - y[i] * x
        found += weight[i] * value
    return found


@kernel
def _add_two(own, kind, z, seen, soft, hard):
    if soft.shape[1] <= FEW_KINDS:  # a vector of rows at once, of one kind
        for k in range(soft.shape[1]):
            _add_kind(own, kind, z, seen, k, soft, hard)
        return
    for i in range(own.size):
        turn, k, w = i & (N_TURNS - 1), kind[i], own[i]
        soft[turn, k] += w * seen[i]
        hard[turn, k] += w if z[i] > 0 else 0.0


@kernel
def _add_kind(own, kind, z, seen, k, soft, hard):
    probable, decided = 0.0, 0.0
    for i in range(own.size):
        w = own[i] if kind[i] == k else 0.0
        probable += w * seen[i]
        decided += w if z[i] > 0 else 0.0
    soft[0, k] += probable
    hard[0, k] += decided


@kernel
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


@kernel
def _raise(z, top):
    for i in range(z.size):
        top[i] = z[i] if z[i] > top[i] else top[i]


@kernel
def _exponential(z, top, factor, prob):
    for i in range(z.size):
        prob[i] = exp(factor * (z[i] - top[i]))


@kernel
def _increase(prob, total):
    for i in range(prob.size):
        total[i] += prob[i]


@kernel
def _divide(prob, total):
    for i in range(prob.size):
        prob[i] /= total[i]


@kernel
def _softmax_loss(rows, begin, end, scores, room):
    found = 0.0
    for i in range(begin, end):
        above = room.top[i - begin] - scores[rows.y[i], i]
        found += rows.weight[i] * (math.log(room.total[i - begin]) + above)
    return found


@kernel
def _add_many(rows, begin, end, scores, seen, room):
    for i in range(begin, end):
        k, w, best = rows.kind[i], rows.own[i], 0
        for c in range(scores.shape[0]):
            room.soft[c, k] += w * seen[c, i]
            best = c if scores[c, i] > scores[best, i] else best
        room.hard[best, k] += w


@kernel
def aim_into(rows, prob, seen, aim):
    """Write gradient and curvature of all rows that were looked at."""
    n = prob.shape[1]
    for begin in range(0, n, BLOCK):
        _aim_block(rows, begin, min(begin + BLOCK, n), prob, seen, aim)


@kernel
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


@kernel
def _descend(y, weight, prob, gradient):
    for i in range(prob.size):
        gradient[i] = weight[i] * (prob[i] - y[i])


@kernel
def _add_worth(own, kind, seen, worth, gradient):
    if worth.size <= FEW_KINDS:
        for k in range(worth.size):
            _add_worth_of_kind(own, kind, seen, k, worth[k], gradient)
        return
    for i in range(seen.size):
        gradient[i] += worth[kind[i]] * own[i] * seen[i] * (1.0 - seen[i])


@kernel
def _add_worth_of_kind(own, kind, seen, k, worth, gradient):
    for i in range(seen.size):
        w = own[i] if kind[i] == k else 0.0
        gradient[i] += worth * w * seen[i] * (1.0 - seen[i])


@kernel
def _aim_many(rows, begin, end, prob, seen, worth, gradient):
    for i in range(begin, end):
        k, y, mean = rows.kind[i], rows.y[i], 0.0
        for c in range(seen.shape[0]):
            mean += worth[c, k] * seen[c, i]
        for c in range(seen.shape[0]):
            descent = rows.weight[i] * (prob[c, i] - (1.0 if y == c else 0.0))
            slope = rows.own[i] * seen[c, i] * (worth[c, k] - mean)
            gradient[c, i] = descent + slope


@kernel
def _bend(bend, prob, factor, diagonal):
    for i in range(prob.size):
        h = factor * prob[i] * (1.0 - prob[i])
        diagonal[i] = bend[i] * (h if h > LEAST_CURVATURE else LEAST_CURVATURE)
