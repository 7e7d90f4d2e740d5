"""One pass over the logits of a model: loss, right decisions and tables together."""

# Numba caches code by the text of its own file alone, so each names its release: 0.1.0.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN202

from typing import NamedTuple

import numba
import numpy as np

from fferm._typing import FloatArray, IntArray
from fferm.solvers._full_batch import BLOCK, surprise_into
from fferm.solvers._kernels import probabilities_into
from fferm.solvers._rows import FAST


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


class BlockRoom(NamedTuple):
    """Room for a block of rows."""

    logits: FloatArray  # (C, B)
    label: IntArray  # (B,)
    prob: FloatArray  # (m, B)
    surprise: FloatArray  # (B,)


def make_room(n_outputs: int, n_classes: int) -> BlockRoom:
    """Return room for a block."""
    return BlockRoom(
        np.zeros((n_outputs, BLOCK)),
        np.zeros(BLOCK, dtype=np.int64),
        np.empty((n_classes, BLOCK)),
        np.empty(BLOCK),
    )


@numba.njit(**FAST)
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


@numba.njit(**FAST)
def _add_to_tables(weight, cell, decided, prob, hard, soft):
    # One attribute: the weights of a block, with -1 for rows that are left out.
    for b in range(weight.size):
        at = cell[b]
        if at >= 0:
            hard[at, decided[b]] += weight[b]
            for j in range(soft.shape[1]):
                soft[at, j] += weight[b] * prob[j, b]


@numba.njit(**FAST)
def add_up(logits, y, weight, cells, most, room, sums):
    """Add all rows to the sums.

    ``logits`` are (C, n), ``cells`` (A, n) with -1 for rows that are left out; no row
    costs more than ``most``.
    """
    n_outputs, n = logits.shape
    label, surprise = room.label, room.surprise
    flat = room.logits.reshape(-1)
    for begin in range(0, n, BLOCK):
        size = min(BLOCK, n - begin)
        w, decided = weight[begin : begin + size], sums.decided[begin : begin + size]
        for c in range(n_outputs):
            for b in range(size):
                room.logits[c, b] = logits[c, begin + b]
        for b in range(size):
            label[b] = y[begin + b]
        probabilities_into(flat, 1.0, room.prob)
        surprise_into(flat, label, surprise)
        _decide(room.logits, decided)
        loss, right = 0.0, 0.0
        for b in range(size):
            loss += w[b] * min(surprise[b], most)
            right += w[b] if decided[b] == label[b] else 0.0
        sums.loss[0] += loss
        sums.right[0] += right
        for a in range(cells.shape[0]):
            cell = cells[a, begin : begin + size]
            _add_to_tables(w, cell, decided, room.prob, sums.hard[a], sums.soft[a])
