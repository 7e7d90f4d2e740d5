"""Scores of boosted trees: one look-up per tree and feature, no walk down the tree.

Values of a feature are told apart only by the thresholds, or categories, of the whole
forest: their *bin* says all. For a tree and a feature, a bin rules out the leaves on
the other side of every split of that feature: a *mask* of the leaves that are left. The
masks of all features of a tree leave one leaf. Look-ups of one row do not wait for each
other, and rows are taken by blocks whose bins and masks stay in cache.

Arrays in, arrays changed in place.
"""

# Numba caches code by the text of its own file alone, so each names its release: 0.1.0.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg"
# ruff: noqa: ANN001, ANN202

import math

import numba
import numpy as np

from fferm.solvers._rows import FAST
from fferm.solvers._scalar import _bits

BLOCK = 1024
# What LightGBM takes for 0 where 0 stands for a gap.
ZERO = float(np.float32(1e-35))
# Of a split's kind: categories, gaps go left, and what counts as a gap.
IS_CATEGORY, GAP_LEFT, GAP_KIND = 1, 2, 2
GAP_IS_ZERO, GAP_IS_NAN = 1, 2


@numba.njit(**FAST)
def goes_left(kind, threshold, value):
    """Return whether LightGBM sends a number to the left of a split by threshold."""
    gap = (kind >> GAP_KIND) & 3
    is_gap = math.isnan(value)
    if gap != GAP_IS_NAN and is_gap:
        value = 0.0
        is_gap = False
    if gap == GAP_IS_ZERO:
        is_gap = -ZERO <= value <= ZERO
    if is_gap:
        return kind & GAP_LEFT != 0
    return value <= threshold


@numba.njit(**FAST)
def leaves_below_into(forest, below):
    """Write the leaves left and right of every split, as bits.

    Parameters
    ----------
    forest
        A `Forest`.
    below
        (n_nodes, 2) room for the result.
    """
    for t in range(forest.n_leaves.size):
        first = forest.node_begin[t]
        for n in range(forest.n_leaves[t] - 2, -1, -1):  # children come after parents
            for side in range(2):
                child = forest.child[first + n, side]
                if child < 0:
                    below[first + n, side] = np.uint64(1) << np.uint64(~child)
                else:
                    both = below[first + child, 0] | below[first + child, 1]
                    below[first + n, side] = both


@numba.njit(**FAST)
def masks_into(forest, below, bins, node_mask, masks):
    """Rule out leaves in masks of ones.

    Parameters
    ----------
    forest, below
        A `Forest`, and the leaves below its splits.
    bins
        A `Bins`: where the bins of each feature begin, and a value in each.
    node_mask
        (n_nodes,) where the masks of a split's tree and feature begin.
    masks
        Of all trees, features and bins.
    """
    for node in range(node_mask.size):
        feature, kind = forest.feature[node], forest.kind[node]
        begin, end = bins.begin[feature], bins.begin[feature + 1]
        for b in range(begin, end):
            if kind & IS_CATEGORY:
                is_left = _has_category(forest, node, b - begin, end - begin - 1)
            else:
                is_left = goes_left(kind, forest.threshold[node], bins.value[b])
            lost = below[node, 1] if is_left else below[node, 0]
            masks[node_mask[node] + b - begin] &= ~lost


@numba.njit(**FAST)
def _has_category(forest, node, category, n_known):
    number = forest.category_set[node]
    begin, end = forest.category_begin[number], forest.category_begin[number + 1]
    word = begin + category // 32
    if category >= n_known or word >= end:
        return False
    return (forest.category_bits[word] >> np.uint32(category % 32)) & np.uint32(1) != 0


@numba.njit(**FAST)
def numbers_into(column, thresholds, codes):
    """Write the bins of numbers: how many thresholds lie below; gaps are the last."""
    n, gap = thresholds.size, thresholds.size + 1
    for i in range(column.size):
        value, low, size = column[i], 0, n
        while size > 0:
            half = size // 2
            is_above = thresholds[low + half] < value
            low = low + half + 1 if is_above else low
            size = size - half - 1 if is_above else half
        codes[i] = gap if math.isnan(value) else low


@numba.njit(**FAST)
def categories_into(column, n_known, codes):
    """Write the bins of categories: their codes; gaps and unknown ones are the last."""
    for i in range(column.size):
        value = column[i]
        is_known = -1 < value < n_known  # false for NaN; LightGBM cuts off decimals
        codes[i] = np.int64(value) if is_known else n_known


@numba.njit(**FAST)
def scores_into(codes, plan, masks, leaf_value, left, scores):
    """Add the trees to scores, in order.

    Parameters
    ----------
    codes
        (n_features, n) bins of the rows.
    plan
        A `Plan` of look-ups.
    masks
        What bins leave of the leaves.
    leaf_value
        Of all trees.
    left
        (BLOCK,) room for masks of rows.
    scores
        (n_scores, n), changed.
    """
    n_scores, n = scores.shape
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        some = left[: end - begin]
        for t in range(plan.leaf_begin.size):
            score = scores[t % n_scores][begin:end]
            first, last = plan.look_begin[t], plan.look_begin[t + 1]
            if first == last:  # a tree without splits
                _add_constant(leaf_value[plan.leaf_begin[t]], score)
                continue
            for look in range(first, last):
                codes_here = codes[plan.feature[look]][begin:end]
                own = masks[plan.mask_begin[look] : plan.mask_begin[look + 1]]
                if look == first:
                    _begin(own, codes_here, some)
                else:
                    _narrow(own, codes_here, some)
            _add(leaf_value[plan.leaf_begin[t] :], some, score)


@numba.njit(**FAST)
def _add_constant(value, score):
    for i in range(score.size):
        score[i] += value


@numba.njit(**FAST)
def _begin(masks, codes, left):
    for i in range(codes.size):
        left[i] = masks[codes[i]]


@numba.njit(**FAST)
def _narrow(masks, codes, left):
    for i in range(codes.size):
        left[i] &= masks[codes[i]]


@numba.njit(**FAST)
def _add(leaf_value, left, score):
    # One bit is left: as a floating-point number, its place is the exponent.
    for i in range(score.size):
        place = (_bits(np.float64(left[i])) >> 52) - 1023
        score[i] += leaf_value[np.uint64(place)]
