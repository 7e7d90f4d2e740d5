"""The loop in which penalties are trained, on all rows or on minibatches.

A penalty is an ordinary function of one batch, compiled here::

    penalty(prob, group, n_groups, settings, slope) -> float

``prob`` are the (b,) probabilities of the positive class, ``group`` the (b,) codes. It
returns its value and writes the derivative by each probability into ``slope``, which
is passed as zeros. It sees the rows of one stratum at a time.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917

import functools
import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types

from fferm._jit import CACHE_KEY, cached, one_at_a_time
from fferm._typing import FloatArray, IntArray
from fferm.lab.baselines.base import TrainingRows

# Below every square of a gradient that counts.
TINY = 1e-300

Penalty = Callable[[FloatArray, IntArray, int, FloatArray, FloatArray], float]
Terms = tuple[float, FloatArray, float]


@numba.njit(nogil=True)
def add_penalty(penalty, data, batch, terms, prob, push):
    """Return the weighted penalty of a batch; add its slopes to ``push``.

    ``push`` is the gradient by the logits. Strata are seen one by one. ``terms`` are
    the penalty's weight, its settings and the strength of the ridge.
    """
    weight, settings, _ = terms
    value = 0.0
    stratum = data.stratum[batch]
    for r in range(data.n_strata):
        place = np.flatnonzero(stratum == r)
        if place.size == 0:
            continue
        part, slope = prob[place], np.zeros(place.size)
        group = data.group[batch[place]]
        value += penalty(part, group, data.n_groups, settings, slope)
        push[place] += weight * slope * part * (1 - part)
    return weight * value


@numba.njit(nogil=True)
def epoch(penalty, data, order, size, terms, lr, average_from, state):
    """Run once over rows in the given order; ``state`` is changed in place.

    Steps are Adagrad's, as in `fferm.solvers`, and parameters are averaged from step
    ``average_from`` on.
    """
    theta, squares, total, count = state
    weight, _, l2 = terms
    d = theta.size - 1
    gradient = np.empty(d + 1)
    for begin in range(0, order.size, size):
        batch = order[begin : begin + size]
        prob = np.empty(batch.size)
        for n, i in enumerate(batch):
            logit = theta[d]
            for a in range(d):
                logit += data.X[i, a] * theta[a]
            prob[n] = 1 / (1 + math.exp(-logit))
        push = (prob - data.y[batch]) / batch.size
        if weight > 0:
            add_penalty(penalty, data, batch, terms, prob, push)
        gradient[:d] = l2 * theta[:d]
        gradient[d] = push.sum()
        for n, i in enumerate(batch):
            for a in range(d):
                gradient[a] += push[n] * data.X[i, a]
        squares += gradient**2
        theta -= lr * gradient / np.sqrt(np.maximum(squares, TINY))
        count[0] += 1
        if count[0] > average_from:
            count[1] += 1
            total += theta


# What penalties share


@functools.partial(cached, nogil=True)
def group_rates(number, group, n_groups):
    """Return the rows and mean number of each group, and the mean of all.

    A group that the batch lacks has the mean of all, which differs from nothing.
    """
    count, rate = np.zeros(n_groups), np.zeros(n_groups)
    for n in range(number.size):
        count[group[n]] += 1
        rate[group[n]] += number[n]
    mean = rate.sum() / number.size
    for k in range(n_groups):
        rate[k] = rate[k] / count[k] if count[k] > 0 else mean
    return count, rate, mean


@functools.partial(cached, nogil=True)
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
    count = group_rates(number, group, n_groups)[0]
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
            gap = near[k] / present - near.sum() / present**2
            value += w * (gap + (1 / present - 1 / present**2) * w / 2)
            slope[i] -= way * 2 * w * gap / h
            near[k] += w
    return value


# The loop is compiled for any penalty of this signature, once and for all: the machine
# keeps it on disk, and a new penalty costs its own compilation only.
VECTOR, CODES = types.float64[::1], types.int64[::1]
SIGNATURE = types.float64(VECTOR, CODES, types.int64, VECTOR, VECTOR)


@one_at_a_time
@functools.cache
def compiled(penalty: Penalty) -> Any:
    """Return the compiled form of a penalty."""
    try:
        return _cached(penalty, SIGNATURE)
    except RuntimeError:  # written in a notebook, which has no file to cache beside
        return numba.njit(SIGNATURE, nogil=True)(penalty)


@one_at_a_time
@functools.cache
def kernels() -> tuple[Any, Any]:
    """Return `add_penalty` and `epoch`, compiled for all penalties alike."""
    row, code = np.zeros(1), np.zeros(1, dtype=np.int64)
    data = numba.typeof(TrainingRows(np.zeros((1, 1)), row, code, code, 1, 1))
    terms = numba.typeof((0.0, row, 0.0))
    penalty = types.FunctionType(SIGNATURE)
    state = types.UniTuple(VECTOR, 4)
    real, whole = types.float64, types.int64
    signatures = (
        (add_penalty, real(penalty, data, CODES, terms, VECTOR, VECTOR)),
        (epoch, types.void(penalty, data, CODES, whole, terms, real, whole, state)),
    )
    penalize, run = (_cached(k.py_func, signature) for k, signature in signatures)
    return penalize, run


def _cached(function: Callable[..., Any], signature: Any) -> Any:
    function.__qualname__ += f"_{CACHE_KEY}"
    return numba.njit(signature, nogil=True, cache=True)(function)
