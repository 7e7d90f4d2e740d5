"""Raw scores of a booster, bit for bit LightGBM's own, several times as fast.

`fferm.boosting._forest_kernels` says how. Tables of masks are made when they first pay;
boosters that they do not fit, and sparse rows, are left to LightGBM.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fferm._typing import FloatArray, IntArray, Table, is_sparse
from fferm.boosting import _forest_kernels as kernels
from fferm.boosting.forest_text import Forest, read_forest
from fferm.boosting.trees import Booster

# A mask has a bit for every leaf.
MOST_LEAVES = 64
# Bins are 16-bit numbers, and masks of this many bytes at most are kept.
MOST_BINS, MOST_BYTES = 2**16, 2**28
# Tables are made for so many rows; a few LightGBM predicts sooner.
LEAST_ROWS = 500


class Bins(NamedTuple):
    """How values of features are told apart."""

    begin: IntArray  # (n_features + 1,) the first bin of each feature
    value: FloatArray  # a value in each bin of numbers


class Plan(NamedTuple):
    """Look-ups: one for each tree and feature that it splits by."""

    look_begin: IntArray  # (n_trees + 1,)
    leaf_begin: IntArray  # (n_trees,)
    feature: IntArray  # (n_looks,)
    mask_begin: IntArray  # (n_looks + 1,)


@dataclass(frozen=True)
class _Features:
    # By feature: thresholds in order, none of categories, and how many bins.

    thresholds: list[FloatArray]
    n_bins: IntArray
    is_category: NDArray[np.bool_]


@dataclass(frozen=True)
class _Tables:
    features: _Features
    plan: Plan
    masks: NDArray[np.unsignedinteger[Any]]
    leaf_value: FloatArray
    n_scores: int


class Predictor:
    """Raw scores of a booster.

    Parameters
    ----------
    booster
        It is not changed, and must not be later on.
    text
        Its text, where it is at hand: LightGBM takes its time to write it.
    """

    def __init__(self, booster: Booster, text: str | None = None) -> None:
        self.booster = booster
        self._text = text
        self._tables: _Tables | None = None
        self._is_ready = False

    def __getstate__(self) -> dict[str, Any]:
        """Return the booster alone: tables are made anew where they are needed."""
        nothing = {"_text": None, "_tables": None, "_is_ready": False}
        return {"booster": self.booster, **nothing}

    def raw_scores(self, X: Table, n_threads: int) -> FloatArray:
        """Return (n,) scores of two classes, else (n, n_scores).

        Parameters
        ----------
        X
            A float64 array, a data frame or a CSR matrix.
        n_threads
            Of LightGBM, where it predicts.
        """
        if not self._is_ready and X.shape[0] >= LEAST_ROWS and not is_sparse(X):
            self._tables = _make_tables(self._text or self.booster.model_to_string(-1))
            self._text, self._is_ready = None, True
        if self._tables is None or is_sparse(X):
            scores = self.booster.predict(X, raw_score=True, num_threads=n_threads)
            return np.asarray(scores, dtype=np.float64)
        return _scores(self._tables, columns_of(X, self.booster.pandas_categorical))


def columns_of(X: Table, levels: Sequence[Sequence[Any]] | None) -> list[FloatArray]:
    """Return the columns as LightGBM sees them: categories are codes, -1 for gaps.

    Parameters
    ----------
    X
        Array or data frame.
    levels
        Known categories of each column of categories, in order.
    """
    if not isinstance(X, pd.DataFrame):
        return list(np.asarray(X, dtype=np.float64).T)
    found, known = [], iter(levels or ())
    for _, column in X.items():
        if isinstance(column.dtype, pd.CategoricalDtype):
            own = column.cat.set_categories(next(known))
            column = own.cat.codes
        found.append(column.to_numpy(dtype=np.float64))
    return found


def _scores(tables: _Tables, columns: Sequence[FloatArray]) -> FloatArray:
    features, n = tables.features, columns[0].size
    codes = np.zeros((len(columns), n), dtype=np.uint16)
    for f in np.unique(tables.plan.feature):
        column = np.ascontiguousarray(columns[f])
        if features.is_category[f]:
            kernels.categories_into(column, int(features.n_bins[f]) - 1, codes[f])
        else:
            kernels.numbers_into(column, features.thresholds[f], codes[f])
    scores = np.zeros((tables.n_scores, n))
    left = np.empty(kernels.BLOCK, dtype=tables.masks.dtype)
    kernels.scores_into(
        codes, tables.plan, tables.masks, tables.leaf_value, left, scores
    )
    return scores[0] if tables.n_scores == 1 else np.ascontiguousarray(scores.T)


def _make_tables(text: str) -> _Tables | None:
    forest = read_forest(text)
    if forest is None or forest.n_leaves.max() > MOST_LEAVES:
        return None
    features = _make_features(forest)
    n_bytes = 8 * features.n_bins[forest.feature].sum()
    if features.n_bins.max() >= MOST_BINS or n_bytes > MOST_BYTES:
        return None
    plan, look = _make_plan(forest, features.n_bins)
    masks = _make_masks(forest, features, plan, look)
    return _Tables(features, plan, masks, forest.leaf_value, forest.n_scores)


def _make_features(forest: Forest) -> _Features:
    is_category = np.zeros(forest.n_features, dtype=bool)
    is_category[forest.feature[forest.kind & kernels.IS_CATEGORY > 0]] = True
    thresholds, n_bins = [], []
    for f in range(forest.n_features):
        nodes = np.flatnonzero(forest.feature == f)
        if is_category[f]:
            sets = forest.category_set[nodes]
            words = forest.category_begin[sets + 1] - forest.category_begin[sets]
            thresholds.append(np.zeros(0))
            n_bins.append(32 * int(words.max()) + 1)  # and one for all others
            continue
        edges = [forest.threshold[nodes]]
        if np.any(forest.kind[nodes] >> kernels.GAP_KIND & 3 == kernels.GAP_IS_ZERO):
            edges.append(np.array([np.nextafter(-kernels.ZERO, -1), kernels.ZERO]))
        thresholds.append(np.unique(np.concatenate(edges)))
        n_bins.append(thresholds[-1].size + 2)  # above all of them, and gaps
    return _Features(thresholds, np.array(n_bins, dtype=np.int64), is_category)


def _make_plan(forest: Forest, n_bins: IntArray) -> tuple[Plan, IntArray]:
    # The look-ups, and the one that each split belongs to.
    n_trees = forest.n_leaves.size
    tree = np.repeat(np.arange(n_trees), forest.n_leaves - 1)
    pair = tree * forest.n_features + forest.feature
    looks, look = np.unique(pair, return_inverse=True)
    feature = looks % forest.n_features
    of_tree = looks // forest.n_features
    look_begin = np.searchsorted(of_tree, np.arange(n_trees + 1)).astype(np.int64)
    mask_begin = np.concatenate([[0], np.cumsum(n_bins[feature])]).astype(np.int64)
    return Plan(look_begin, forest.leaf_begin, feature, mask_begin), look


def _make_masks(
    forest: Forest, features: _Features, plan: Plan, look: IntArray
) -> NDArray[np.unsignedinteger[Any]]:
    n_looks = np.diff(plan.look_begin)
    whole = np.uint64(2**64 - 1) >> (64 - forest.n_leaves).astype(np.uint64)
    n_bins = features.n_bins[plan.feature]
    masks = np.repeat(np.repeat(whole, n_looks), n_bins)
    values = [
        np.zeros(n) if is_category else np.concatenate([edges, [np.inf, np.nan]])
        for edges, n, is_category in zip(
            features.thresholds, features.n_bins, features.is_category, strict=True
        )
    ]
    begin = np.concatenate([[0], np.cumsum(features.n_bins)]).astype(np.int64)
    below = np.zeros((forest.feature.size, 2), dtype=np.uint64)
    kernels.leaves_below_into(forest, below)
    bins = Bins(begin, np.concatenate(values))
    kernels.masks_into(forest, below, bins, plan.mask_begin[look], masks)
    return masks if forest.n_leaves.max() > 32 else masks.astype(np.uint32)
