"""The loop in which penalties are trained, on all rows or on minibatches.

A penalty is an ordinary function of one batch, compiled here::

    penalty(prob, group, n_groups, settings, slope) -> float

``prob`` are the (b,) probabilities of the positive class, ``group`` the (b,) codes. It
returns its value and writes the derivative by each probability into ``slope``, which
comes as zeros. It sees the rows of one stratum at a time.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

from fferm._jit import CACHE_KEY, cached
from fferm._typing import FloatArray, IntArray

Penalty = Callable[[FloatArray, IntArray, int, FloatArray, FloatArray], float]


class Data(NamedTuple):
    """All rows, as the compiled loop takes them."""

    X: FloatArray
    y: FloatArray
    group: IntArray
    stratum: IntArray
    n_groups: int
    n_strata: int


class Terms(NamedTuple):
    """The objective beside the loss: the penalty's weight and settings, the ridge."""

    weight: float
    settings: FloatArray
    l2: float


@numba.njit(nogil=True)
def _gradient_into(penalty, data, batch, terms, theta, gradient):
    """Write the gradient of the objective of a batch.

    ``theta`` are the coefficients and, last, the intercept.
    """
    X, y = data.X, data.y
    size, d = batch.size, theta.size - 1
    prob, push = np.empty(size), np.empty(size)
    for n in range(size):
        i = batch[n]
        logit = theta[d]
        for a in range(d):
            logit += X[i, a] * theta[a]
        tail = math.exp(-abs(logit))
        prob[n] = (1.0 if logit >= 0 else tail) / (1.0 + tail)
        push[n] = (prob[n] - y[i]) / size
    if terms.weight > 0:
        add_penalty(penalty, data, batch, terms, prob, push)
    for a in range(d):
        gradient[a] = terms.l2 * theta[a]
    gradient[d] = 0.0
    for n in range(size):
        i = batch[n]
        for a in range(d):
            gradient[a] += push[n] * X[i, a]
        gradient[d] += push[n]


@numba.njit(nogil=True)
def add_penalty(penalty, data, batch, terms, prob, push):
    """Return the weighted penalty of a batch; add its slopes to ``push``.

    ``push`` is the gradient by the logits. Strata are seen one by one.
    """
    size = batch.size
    place = np.empty(size, dtype=np.int64)
    part_prob, part_group = np.empty(size), np.empty(size, dtype=np.int64)
    value = 0.0
    for r in range(data.n_strata):
        count = 0
        for n in range(size):
            if data.stratum[batch[n]] == r:
                place[count] = n
                part_prob[count] = prob[n]
                part_group[count] = data.group[batch[n]]
                count += 1
        if count == 0:
            continue
        slope = np.zeros(count)
        value += penalty(
            part_prob[:count], part_group[:count], data.n_groups, terms.settings, slope
        )
        for n in range(count):
            p = part_prob[n]
            push[place[n]] += terms.weight * slope[n] * p * (1 - p)
    return terms.weight * value


@numba.njit(nogil=True)
def epoch(penalty, data, order, size, terms, lr, average_from, state):
    """Run once over rows in the given order; ``state`` is changed in place.

    Steps are Adagrad's, as in `fferm.solvers`, and parameters are averaged from step
    ``average_from`` on.
    """
    theta, squares, total, count = state
    gradient = np.empty(theta.size)
    for begin in range(0, order.size, size):
        batch = order[begin : begin + size]
        _gradient_into(penalty, data, batch, terms, theta, gradient)
        for a in range(theta.size):
            g = gradient[a]
            squares[a] += g * g
            if squares[a] > 0:
                theta[a] -= lr * g / math.sqrt(squares[a])
        count[0] += 1
        if count[0] > average_from:
            count[1] += 1
            for a in range(theta.size):
                total[a] += theta[a]


# What penalties share


@functools.partial(cached, nogil=True)
def group_sums(number, group, n_groups):
    """Return the rows of each group and the sum of their numbers."""
    count, total = np.zeros(n_groups), np.zeros(n_groups)
    for n in range(number.size):
        count[group[n]] += 1
        total[group[n]] += number[n]
    return count, total


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
    count = group_sums(number, group, n_groups)[0]
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


# The loop is compiled for any penalty of this signature, once and for all: the machine
# keeps it on disk, and a new penalty costs its own compilation only.
VECTOR, CODES = types.float64[::1], types.int64[::1]
SIGNATURE = types.float64(VECTOR, CODES, types.int64, VECTOR, VECTOR)


@functools.cache
def compiled(penalty: Penalty) -> Any:
    """Return the compiled form of a penalty."""
    try:
        return _cached(penalty, SIGNATURE)
    except RuntimeError:  # written in a notebook, which has no file to cache beside
        return numba.njit(SIGNATURE, nogil=True)(penalty)


@functools.cache
def kernels() -> tuple[Any, Any]:
    """Return `add_penalty` and `epoch`, compiled for all penalties alike."""
    row, code = np.zeros(1), np.zeros(1, dtype=np.int64)
    data = numba.typeof(Data(np.zeros((1, 1)), row, code, code, 1, 1))
    terms = numba.typeof(Terms(0.0, row, 0.0))
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
