"""How kernels touch X: three helpers, for dense rows and for CSR rows.

X is given by three arrays, ``(data, indices, indptr)`` of a CSR matrix, or by a 2-D
``data`` and None twice. Which branch runs is settled when the kernel is compiled,
because the compiler drops a branch on what is None and on dimensions: there is one
kernel and no twin.
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
from fferm._typing import Table, is_sparse

CACHE_LINE = 64
# Copy X to CSR when no more than this share of it is not 0: the copy then takes less
# than half the room of X.
DENSEST_COPY = 0.25


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
    for p in range(begin, end):
        total += data[p] * theta[indices[p], 0]
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
