"""How kernels touch X: three helpers, for dense rows and for CSR rows.

``X`` is a 2-D array, or the tuple ``(data, indices, indptr)`` of a CSR matrix. Which
helper runs is settled when the kernel is compiled, so there is one kernel and no twin.
Dense rows that are mostly 0, as one-hot columns make them, are copied to CSR before a
run: a step then reads a quarter of the numbers.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN202

from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import overload

from fferm._types import Table, is_sparse

# Sums of products may be reordered: that is what makes them fast, and no more. Division
# by 0 gives infinity as in NumPy; a check would keep loops from being vectorised.
IN_ORDER: Any = {"fastmath": {"contract"}, "error_model": "numpy"}
REORDERED: Any = {**IN_ORDER, "fastmath": {"contract", "reassoc"}}
FAST: Any = {**REORDERED, "nogil": True, "cache": True}


# Copy X to CSR when no more than this share of it is not 0: the copy then takes less
# than half the room of X.
DENSEST_COPY = 0.25


def kernel_matrix(X: Table) -> Any:
    """Return X as kernels take it: an array, or the arrays of a CSR matrix."""
    if is_sparse(X):
        X = X.tocsr()
        return X.data, X.indices, X.indptr
    X = np.ascontiguousarray(X)
    n_entries = np.count_nonzero(X)
    if n_entries > DENSEST_COPY * X.size:
        return X
    indices = np.empty(n_entries, np.int32)
    data, indptr = np.empty(n_entries, X.dtype), np.empty(len(X) + 1, np.int64)
    _compact(X, data, indices, indptr)
    return data, indices, indptr


@numba.njit(nogil=True, cache=True)
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


def row_times(X, i, theta, out):
    """Write row ``i`` of X, with a 1 at its end, times theta into ``out``."""
    raise NotImplementedError("compiled code only")


def add_row(X, i, factor, gradient):
    """Add the outer product of row ``i`` of X, with a 1 at its end, and ``factor``."""
    raise NotImplementedError("compiled code only")


def note_columns(X, i, batch, gradient, used, stamp, n_used):
    """Note the columns of row ``i`` that are new in a batch and return their number.

    A new column is stamped, listed in ``used``, and its gradient is set to 0.
    """
    raise NotImplementedError("compiled code only")


@overload(row_times, jit_options=REORDERED)
def _row_times_dense(X, i, theta, out):
    def dense(X, i, theta, out):
        last = theta.shape[0] - 1
        if out.size == 1:
            total = theta[last, 0]
            for a in range(last):
                total += X[i, a] * theta[a, 0]
            out[0] = total
            return
        for q in range(out.size):
            out[q] = theta[last, q]
        for a in range(last):
            x = X[i, a]
            for q in range(out.size):
                out[q] += x * theta[a, q]

    return dense if isinstance(X, types.Array) else None


# A sum over few entries is slower when it is vectorised, so nothing is reordered here.
@overload(row_times, jit_options=IN_ORDER)
def _row_times_sparse(X, i, theta, out):
    def sparse(X, i, theta, out):
        data, indices, indptr = X
        last = theta.shape[0] - 1
        begin, end = indptr[i], indptr[i + 1]
        if out.size == 1:
            total = theta[last, 0]
            for p in range(begin, end):
                total += data[p] * theta[indices[p], 0]
            out[0] = total
            return
        for q in range(out.size):
            out[q] = theta[last, q]
        for p in range(begin, end):
            x, a = data[p], indices[p]
            for q in range(out.size):
                out[q] += x * theta[a, q]

    return None if isinstance(X, types.Array) else sparse


@overload(add_row, jit_options=IN_ORDER)
def _add_row(X, i, factor, gradient):
    def dense(X, i, factor, gradient):
        last = gradient.shape[0] - 1
        if factor.size == 1:
            for a in range(last):
                gradient[a, 0] += X[i, a] * factor[0]
        else:
            for a in range(last):
                x = X[i, a]
                for q in range(factor.size):
                    gradient[a, q] += x * factor[q]
        for q in range(factor.size):
            gradient[last, q] += factor[q]

    def sparse(X, i, factor, gradient):
        data, indices, indptr = X
        last = gradient.shape[0] - 1
        begin, end = indptr[i], indptr[i + 1]
        if factor.size == 1:
            for p in range(begin, end):
                gradient[indices[p], 0] += data[p] * factor[0]
        else:
            for p in range(begin, end):
                x, a = data[p], indices[p]
                for q in range(factor.size):
                    gradient[a, q] += x * factor[q]
        for q in range(factor.size):
            gradient[last, q] += factor[q]

    return dense if isinstance(X, types.Array) else sparse


@overload(note_columns, jit_options=IN_ORDER)
def _note_columns(X, i, batch, gradient, used, stamp, n_used):
    def dense(X, i, batch, gradient, used, stamp, n_used):
        if n_used > 0:  # the first row has noted all
            return n_used
        gradient[:] = 0.0
        for a in range(stamp.size):
            used[a] = a
        return stamp.size

    def sparse(X, i, batch, gradient, used, stamp, n_used):
        _, indices, indptr = X
        if n_used == 0:  # the intercept is in every row
            used[0] = stamp.size - 1
            gradient[stamp.size - 1] = 0.0
            n_used = 1
        for p in range(indptr[i], indptr[i + 1]):
            a = indices[p]
            if stamp[a] != batch:
                stamp[a] = batch
                used[n_used] = a
                n_used += 1
                for q in range(gradient.shape[1]):
                    gradient[a, q] = 0.0
        return n_used

    return dense if isinstance(X, types.Array) else sparse
