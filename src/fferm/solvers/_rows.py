"""How kernels touch X: three helpers, for dense rows and for CSR rows.

X is given by three arrays, ``(data, indices, indptr)`` of a CSR matrix, by a 2-D
``data`` and None twice, or for models of one output by ``(numbers, codes, None)``, both
2-D, where codes are the columns that hold a 1. Which branch runs is settled when the
kernel is compiled, because the compiler drops a branch on what is None and on
dimensions: there is one kernel and no twin.
Dense rows that are mostly 0, as one-hot columns make them, are copied to CSR before a
run: a step then reads a quarter of the numbers.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg,misc"
# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917

import functools
from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from fferm._jit import IN_ORDER, INLINED, REORDERED, cached
from fferm._typing import IntArray, Table, is_sparse

CACHE_LINE = 64
# Copy X to CSR when no more than this share of it is not 0: the copy then takes less
# than half the room of X.
DENSEST_COPY = 0.25
# Pack CSR rows, ones by their place alone, where that takes no more of their room.
PACKED = 0.75


def kernel_matrix(X: Table) -> Any:
    """Return X as kernels take it."""
    if is_sparse(X):
        X = X.tocsr()
        # As the copy below, so that one compiled kernel serves both.
        return X.data, X.indices, X.indptr.astype(np.int64)
    X = np.ascontiguousarray(X)
    n_entries = np.count_nonzero(X)
    if n_entries > DENSEST_COPY * X.size:
        return X, None, None
    indices = np.empty(n_entries, np.int32)
    data, indptr = np.empty(n_entries, X.dtype), np.empty(len(X) + 1, np.int64)
    _compact(X, data, indices, indptr)
    return data, indices, indptr


def pack(matrix: Any, place: IntArray) -> tuple[Any, IntArray]:
    """Return CSR rows as a few columns of numbers and the places of all ones.

    Columns, of which the last is the intercept, move to other places; the one before
    the intercept's stands for nothing. Rows that would take hardly less room stay.
    """
    data, indices, indptr = matrix
    n_features = place.size - 1
    is_number = np.zeros(n_features, dtype=np.bool_)
    is_number[indices[data != 1]] = True
    n_numbers = int(is_number.sum())
    n_ones = np.diff(np.append(0, np.cumsum(~is_number[indices]))[indptr])
    n_bytes = 8 * n_numbers + 2 * int(n_ones.max(initial=0))
    if place.size >= 2**16 or n_bytes * n_ones.size > PACKED * 12 * data.size:
        return matrix, place
    place = np.empty_like(place)
    place[np.argsort(~is_number, kind="stable")] = np.arange(n_features)
    place[n_features] = n_features + 1
    numbers = np.zeros((n_ones.size, n_numbers))
    codes = np.full((n_ones.size, n_ones.max()), n_features, np.uint16)
    _pack(data, indices, indptr, place, numbers, codes)
    return (numbers, codes, None), place


@functools.partial(cached, nogil=True)
def _pack(data, indices, indptr, place, numbers, codes):
    for i in range(numbers.shape[0]):
        count = 0
        for p in range(indptr[i], indptr[i + 1]):
            at = place[indices[p]]
            if at < numbers.shape[1]:
                numbers[i, at] = data[p]
            else:
                codes[i, count] = at
                count += 1


@functools.partial(cached, nogil=True)
def _compact(X, data, indices, indptr):
    count = 0
    for i in range(X.shape[0]):
        indptr[i] = count
        for a in range(X.shape[1]):
            if X[i, a] != 0:
                data[count] = X[i, a]
                indices[count] = a
                count += 1
    indptr[X.shape[0]] = count


@intrinsic
def _prefetch(_context, address):
    """Ask for the cache line at an address, to be read soon."""

    def ask(context, builder, _signature, arguments):
        line, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        signature = ir.FunctionType(ir.VoidType(), [line, word, word, word])
        function = cgutils.get_or_insert_function(
            builder.module, signature, "llvm.prefetch.p0"
        )
        numbers = [word(0), word(3), word(1)]  # to read, to keep, data
        builder.call(function, [builder.inttoptr(arguments[0], line), *numbers])
        return context.get_dummy_value()

    return types.void(types.intp), ask


@numba.njit(**INLINED)
def fetch_row(data, indices, indptr, i):
    """Ask for row ``i`` of X, to be read soon."""
    if data.ndim == 2:
        width = data.shape[1] * data.itemsize
        for offset in range(0, width, CACHE_LINE):
            _prefetch(data.ctypes.data + i * width + offset)
    else:
        begin, end = indptr[i], indptr[i + 1]
        for p in range(begin, end, CACHE_LINE // data.itemsize):
            _prefetch(data.ctypes.data + p * data.itemsize)
        for p in range(begin, end, CACHE_LINE // indices.itemsize):
            _prefetch(indices.ctypes.data + p * indices.itemsize)


@numba.njit(**INLINED)
def fetch(values, i):
    """Ask for what row ``i`` has in an array, to be read soon."""
    if values.size > 1:
        _prefetch(values.ctypes.data + i * values.strides[0])


@numba.njit(**INLINED)
def entry_of(values, i):
    """Return the entry of row ``i``, which may be that of all rows."""
    return values[min(i, values.size - 1)]


@numba.njit(**INLINED)
def row_times(data, indices, indptr, i, theta, out):
    """Write row ``i`` of X, with a 1 at its end, times theta into ``out``."""
    if data.ndim == 2:
        if out.size == 1:
            out[0] = _dense_times_one(data, i, theta)
        else:
            _dense_times_lanes(data, i, theta, out)
    elif out.size == 1:
        out[0] = _sparse_times_one(data, indices, indptr[i], indptr[i + 1], theta)
    else:
        _sparse_times_lanes(data, indices, indptr[i], indptr[i + 1], theta, out)


@numba.njit(**INLINED)
def add_row(data, indices, indptr, i, factor, gradient):
    """Add the outer product of row ``i`` of X, with a 1 at its end, and ``factor``."""
    if data.ndim == 2:
        if factor.size == 1:
            _add_dense_one(data, i, factor[0], gradient)
        else:
            _add_dense_lanes(data, i, factor, gradient)
    elif factor.size == 1:
        begin, end = indptr[i], indptr[i + 1]
        _add_sparse_one(data, indices, begin, end, factor[0], gradient)
    else:
        _add_sparse_lanes(data, indices, indptr[i], indptr[i + 1], factor, gradient)


@numba.njit(**INLINED)
def block_times(data, indices, indptr, begin, end, theta, out):
    """Write the rows from ``begin`` to ``end`` times one column into ``out``.

    Dense rows are read by four, so ``out`` has room for up to three rows more.
    """
    if data.ndim == 2:
        for i in range(begin, end, 4):
            last = end - 1
            four = i, min(i + 1, last), min(i + 2, last), min(i + 3, last)
            _four_times_one(data, four, theta, out[i - begin : i - begin + 4])
        if indices is not None:
            for i in range(begin, end):
                for c in range(indices.shape[1]):
                    out[i - begin] += theta[indices[i, c]]
    else:
        for i in range(begin, end):
            total = theta[theta.size - 1]
            for p in range(indptr[i], indptr[i + 1]):
                total += data[p] * theta[np.uint32(indices[p])]
            out[i - begin] = total


@numba.njit(**INLINED)
def add_to_pair(data, indices, indptr, i, factors, cell, gradient, of_cell, waiting):
    """Add row ``i`` of X, times a factor each, to a gradient and to that of its cell.

    Both are of one column. Dense rows wait until their cell has four of them.
    """
    if data.ndim == 2:
        count, row, first, second = waiting
        n = count[cell]
        row[cell, n] = i
        first[cell, n], second[cell, n] = factors
        count[cell] = n + 1
        if n == 3:
            add_waiting(data, cell, gradient, of_cell, waiting)
        if indices is not None:
            for c in range(indices.shape[1]):
                gradient[indices[i, c]] += factors[0]
                of_cell[indices[i, c]] += factors[1]
    else:
        begin, end = indptr[i], indptr[i + 1]
        _add_sparse_pair(data, indices, begin, end, factors, gradient, of_cell)


@numba.njit(**INLINED)
def add_waiting(data, cell, gradient, of_cell, waiting):
    """Add the dense rows of a cell that wait."""
    if data.ndim == 2:
        count, row, first, second = waiting
        for n in range(count[cell], 4):
            row[cell, n], first[cell, n], second[cell, n] = row[cell, 0], 0.0, 0.0
        if count[cell] > 0:
            _add_four_pairs(
                data, row[cell], first[cell], second[cell], gradient, of_cell
            )
        count[cell] = 0


@numba.njit(**INLINED)
def note_columns(indices, indptr, i, batch, gradient, used, stamp, n_used):
    """Note the columns of row ``i`` that are new in a batch and return their number.

    A new column is stamped, listed in ``used``, and its gradient is set to 0.
    """
    if indices is None:
        if n_used == 0:
            for column in range(gradient.shape[0]):
                n_used = _note(column, gradient, used, n_used)
    else:
        if n_used == 0:  # the intercept is in every row
            n_used = _note(stamp.size - 1, gradient, used, n_used)
        for p in range(indptr[i], indptr[i + 1]):
            if stamp[indices[p]] != batch:
                stamp[indices[p]] = batch
                n_used = _note(indices[p], gradient, used, n_used)
    return n_used


# One lane and many are functions of their own: the first are small, and inlined.
@numba.njit(**REORDERED)
def _dense_times_one(X, i, theta):
    last = theta.shape[0] - 1
    total = theta[last, 0]
    for a in range(last):
        total += X[i, a] * theta[a, 0]
    return total


@numba.njit(**REORDERED)
def _four_times_one(X, rows, theta, out):
    i, j, k, n = rows
    last = theta.size - 1
    of_i = of_j = of_k = of_n = theta[last]
    for a in range(X.shape[1]):
        of_i += X[i, a] * theta[a]
        of_j += X[j, a] * theta[a]
        of_k += X[k, a] * theta[a]
        of_n += X[n, a] * theta[a]
    out[0], out[1], out[2], out[3] = of_i, of_j, of_k, of_n


@numba.njit(**IN_ORDER)
def _dense_times_lanes(X, i, theta, out):
    last = theta.shape[0] - 1
    for q in range(out.size):
        out[q] = theta[last, q]
    for a in range(last):
        x = X[i, a]
        for q in range(out.size):
            out[q] += x * theta[a, q]


@numba.njit(**IN_ORDER)  # a sum over few entries is slower when it is vectorised
def _sparse_times_one(data, indices, begin, end, theta):
    total = theta[theta.shape[0] - 1, 0]
    for p in range(begin, end):  # np.uint32: not to be counted from the end
        total += data[p] * theta[np.uint32(indices[p]), 0]
    return total


@numba.njit(**IN_ORDER)
def _sparse_times_lanes(data, indices, begin, end, theta, out):
    last = theta.shape[0] - 1
    for q in range(out.size):
        out[q] = theta[last, q]
    for p in range(begin, end):
        x, a = data[p], indices[p]
        for q in range(out.size):
            out[q] += x * theta[a, q]


@numba.njit(**IN_ORDER)
def _add_dense_one(X, i, factor, gradient):
    last = gradient.shape[0] - 1
    for a in range(last):
        gradient[a, 0] += X[i, a] * factor
    gradient[last, 0] += factor


@numba.njit(**REORDERED)
def _add_four_pairs(X, rows, first, second, gradient, of_cell):
    i, j, k, n = rows[0], rows[1], rows[2], rows[3]
    f, g, h, q = first[0], first[1], first[2], first[3]
    r, s, t, u = second[0], second[1], second[2], second[3]
    last = gradient.size - 1
    for a in range(X.shape[1]):
        x, y, z, v = X[i, a], X[j, a], X[k, a], X[n, a]
        gradient[a] += (x * f + y * g) + (z * h + v * q)
        of_cell[a] += (x * r + y * s) + (z * t + v * u)
    gradient[last] += (f + g) + (h + q)
    of_cell[last] += (r + s) + (t + u)


@numba.njit(**IN_ORDER)
def _add_dense_lanes(X, i, factor, gradient):
    last = gradient.shape[0] - 1
    for a in range(last):
        x = X[i, a]
        for q in range(factor.size):
            gradient[a, q] += x * factor[q]
    for q in range(factor.size):
        gradient[last, q] += factor[q]


@numba.njit(**IN_ORDER)
def _add_sparse_one(data, indices, begin, end, factor, gradient):
    for p in range(begin, end):
        gradient[indices[p], 0] += data[p] * factor
    gradient[gradient.shape[0] - 1, 0] += factor


@numba.njit(**IN_ORDER)
def _add_sparse_pair(data, indices, begin, end, factors, gradient, of_cell):
    first, second = factors
    for p in range(begin, end):
        a, x = np.uint32(indices[p]), data[p]
        gradient[a] += x * first
        of_cell[a] += x * second
    last = gradient.size - 1
    gradient[last] += first
    of_cell[last] += second


@numba.njit(**IN_ORDER)
def _add_sparse_lanes(data, indices, begin, end, factor, gradient):
    last = gradient.shape[0] - 1
    for p in range(begin, end):
        x, a = data[p], indices[p]
        for q in range(factor.size):
            gradient[a, q] += x * factor[q]
    for q in range(factor.size):
        gradient[last, q] += factor[q]


@numba.njit(**IN_ORDER)
def _note(column, gradient, used, n_used):
    used[n_used] = column
    for q in range(gradient.shape[1]):
        gradient[column, q] = 0.0
    return n_used + 1
