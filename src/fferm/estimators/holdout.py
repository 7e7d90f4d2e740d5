"""Rows held out of training, the same share of every kind."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from fferm._types import IntArray
from fferm.data import FairRows
from fferm.estimators.base import FitInput
from fferm.estimators.validation import TrainingData


def kinds(rows: FairRows, label: IntArray) -> IntArray:
    """Return (n_samples,) numbers: rows of one label, stratum and groups share one."""
    kind: IntArray = np.asarray(label, dtype=np.int64)
    for code in (rows.strata.code, *(a.code for a in rows.attributes)):
        # Numbers of pairs, which sort ten times as fast as the pairs.
        pair = kind * (code.max() + 2) + code + 1
        kind = np.unique(pair, return_inverse=True)[1]
    return kind


def hold_out(
    kind: IntArray, fraction: float, random_state: int | np.random.RandomState | None
) -> NDArray[np.bool_]:
    """Return which rows are held out: the same share of every kind.

    Of two rows of a kind, at least one is on either side.
    """
    size = np.bincount(kind)
    count = np.minimum(np.maximum(np.rint(fraction * size), 1), size - 1)
    order = np.lexsort((check_random_state(random_state).random(kind.size), kind))
    rank = np.empty_like(kind)
    rank[order] = np.arange(kind.size) - np.repeat(np.cumsum(size) - size, size)
    return np.asarray(rank < count[kind])


def weigh(given: FitInput, data: TrainingData, kept: NDArray[np.bool_]) -> FitInput:
    """Return the same rows with weight 0 for those that are not kept.

    No row is taken out, so every kind of table works as it came.
    """
    weight = np.zeros(data.kept.size)
    weight[data.kept] = np.where(kept, data.weight, 0.0)
    return replace(given, sample_weight=weight)
