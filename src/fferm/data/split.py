"""Rows held out of training, the same share of every label, stratum and group."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from fferm._typing import IntArray
from fferm.data.rows import FitInput, Rows
from fferm.data.validate import TrainingData


def kinds(rows: Rows, label: IntArray) -> IntArray:
    """Return (n_samples,) codes, one for each label, stratum and group."""
    code: IntArray = np.asarray(label, dtype=np.int64)
    for other in (rows.strata.code, *(a.code for a in rows.attributes)):
        # Codes of pairs sort ten times as fast as the pairs themselves.
        pair = code * (other.max() + 2) + other + 1
        code = np.unique(pair, return_inverse=True)[1]
    return code


def hold_out(
    kind: IntArray, fraction: float, random_state: int | np.random.RandomState | None
) -> NDArray[np.bool_]:
    """Return which rows are held out, stratified by ``kind``.

    If there are two rows of a kind, at least one is on either side.
    """
    size = np.bincount(kind)
    count = np.minimum(np.maximum(np.rint(fraction * size), 1), size - 1)
    order = np.lexsort((check_random_state(random_state).random(kind.size), kind))
    rank = np.empty_like(kind)
    rank[order] = np.arange(kind.size) - np.repeat(np.cumsum(size) - size, size)
    return np.asarray(rank < count[kind])


def keep_rows(
    passed: FitInput, data: TrainingData, kept: NDArray[np.bool_]
) -> FitInput:
    """Return the same arguments of `fit`, with weight 0 for rows that are not kept.

    No row is removed, so tables of every kind work as passed.
    """
    weight = np.zeros(data.kept.size)
    weight[data.kept] = np.where(kept, data.weight, 0.0)
    return replace(passed, sample_weight=weight)
