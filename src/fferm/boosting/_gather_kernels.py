"""The pass that finds the leaves of rows, and adds up derivatives over leaves.

Arrays in, arrays changed in place.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg"
# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fferm._jit import _bits, _double, kernel
from fferm.boosting._row_kernels import BLOCK
from fferm.boosting.scores import LEAST_CURVATURE

# Spreads whole numbers over the slots of a table: 2^64 over the golden ratio.
SPREAD = np.uint64(0x9E3779B97F4A7C15)
SPREAD_BITS = np.uint64(40)


class Slots(NamedTuple):
    """Room for leaves, told apart by how far they move a score."""

    slot: NDArray[np.int32]  # the leaf of a key, a power of 2 in size
    key: NDArray[np.int64]  # (n_keys,) moves of leaves, in whole units


def make_slots(n_keys: int) -> Slots:
    """Return room for so many leaves, a power of 2."""
    return Slots(np.empty(4 * n_keys, dtype=np.int32), np.empty(n_keys, dtype=np.int64))


@kernel
def gather_into(rows, prob, seen, before, after, same, slots, code, c, sums):
    """Find the leaves of rows, and add up derivatives over leaves.

    A leaf is told by how far it moved a score; leaves are numbered as they come.
    Returns how many there are, -1 where there is no room for so many, and the unit
    that moves were rounded to. In the end ``before`` is ``after``.

    Parameters
    ----------
    rows, prob, seen
        The rows, and what a look at them gave.
    before, after
        (n,) scores of the library that grows trees.
    same
        Moves are rounded to this, relative to the largest score or 1.
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
    n_leaves, n_scores, unit = 0, prob.shape[0], same * max(1.0, _largest(after))
    for begin in range(0, before.size, BLOCK):
        end = min(begin + BLOCK, before.size)
        leaf, known = code[begin:end], n_leaves
        moves = before[begin:end], after[begin:end], 1.0 / unit
        n_leaves = _find(*moves, slots, leaf, known)
        if n_leaves < 0:
            return n_leaves, unit
        sums[known:n_leaves] = 0.0
        if n_scores == 1:
            _add_rows_of_two(rows, begin, leaf, prob[0], seen[0], sums)
        else:
            _add_rows_of_many(rows, begin, leaf, prob, seen, c, sums)
    for i in range(before.size):
        before[i] = after[i]
    return n_leaves, unit


@kernel
def _largest(scores):
    # The bits of positive numbers are in the order of the numbers, and whole numbers
    # are compared in vectors.
    found = np.int64(0)
    for i in range(scores.size):
        found = max(found, _bits(abs(scores[i])))
    return _double(found)


@kernel
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


@kernel
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


@kernel
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
