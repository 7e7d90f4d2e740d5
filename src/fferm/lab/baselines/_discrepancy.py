"""The maximum mean discrepancy between groups, for penalties that match numbers."""

# Numba caches code by the text of its own file alone, so each names its release: 0.1.0.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN202

import math

import numba
import numpy as np


@numba.njit(nogil=True, cache=True)
def discrepancy_into(number, group, n_groups, h, slope):
    """Return the discrepancy of a batch and write its derivative into ``slope``.

    It is the mean over the groups that the batch holds of the squared distance between
    the embedding of a group's numbers, by the kernel exp(-|a - b| / h), and the mean of
    the groups' embeddings. Sorting makes it exact in O(b log b).

    Parameters
    ----------
    number, group
        (b,) numbers and codes of groups.
    n_groups
        How many groups there are in all.
    h
        The width of the kernel.
    slope
        (b,) zeros, to be filled with the derivative by each number.
    """
    size = number.size
    count = np.zeros(n_groups)
    for n in range(size):
        count[group[n]] += 1
    present = np.sum(count > 0)
    if present < 2:
        return 0.0
    order = np.argsort(number)
    value = 0.0
    near = np.zeros(n_groups)  # each group's embedding, at the number that is reached
    for way in (1, -1):
        near[:] = 0.0
        last = number[order[0 if way == 1 else size - 1]]
        for n in range(size):
            i = order[n if way == 1 else size - 1 - n]
            near *= math.exp(-abs(number[i] - last) / h)
            last = number[i]
            k, w = group[i], 1 / count[group[i]]
            own, mean = near[k] / present, near.sum() / present**2
            value += w * (own - mean + (1 / present - 1 / present**2) * w / 2)
            slope[i] -= way * 2 * w * (own - mean) / h
            near[k] += w
    return value
