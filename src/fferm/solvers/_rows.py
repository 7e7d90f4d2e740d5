"""How kernels touch X: two helpers, for dense rows and for CSR rows.

``X`` is a 2-D array, or the tuple ``(data, indices, indptr)`` of a CSR matrix. Which
helper runs is settled when the kernel is compiled, so there is one kernel and no twin.
Parameters are stored (n_features + 1, n_outputs * n_lanes), intercept last; the last
axis is the one that vector instructions run along.
"""

# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN202, C901

from typing import Any

from numba.core import types
from numba.extending import overload

# Sums of products may be reordered: that is what makes them fast, and no more.
FAST: Any = {"fastmath": {"reassoc", "contract"}}


def row_times(X, i, theta, out):
    """Write row ``i`` of X, with a 1 at its end, times theta into ``out``."""
    raise NotImplementedError("compiled code only")


def add_row(X, i, factor, gradient):
    """Add the outer product of row ``i`` of X and ``factor`` to ``gradient``."""
    raise NotImplementedError("compiled code only")


@overload(row_times, jit_options=FAST)
def _row_times(X, i, theta, out):
    def dense(X, i, theta, out):
        n_features = X.shape[1]
        if out.size == 1:
            total = theta[n_features, 0]
            for a in range(n_features):
                total += X[i, a] * theta[a, 0]
            out[0] = total
            return
        for q in range(out.size):
            out[q] = theta[n_features, q]
        for a in range(n_features):
            x = X[i, a]
            if x != 0:  # one-hot columns are mostly 0
                for q in range(out.size):
                    out[q] += x * theta[a, q]

    def sparse(X, i, theta, out):
        data, indices, indptr = X
        for q in range(out.size):
            out[q] = theta[theta.shape[0] - 1, q]
        for p in range(indptr[i], indptr[i + 1]):
            x = data[p]
            for q in range(out.size):
                out[q] += x * theta[indices[p], q]

    return dense if isinstance(X, types.Array) else sparse


@overload(add_row, jit_options=FAST)
def _add_row(X, i, factor, gradient):
    def dense(X, i, factor, gradient):
        n_features = X.shape[1]
        if factor.size == 1:
            c = factor[0]
            for a in range(n_features):
                gradient[a, 0] += X[i, a] * c
            gradient[n_features, 0] += c
            return
        for a in range(n_features):
            x = X[i, a]
            if x != 0:
                for q in range(factor.size):
                    gradient[a, q] += x * factor[q]
        for q in range(factor.size):
            gradient[n_features, q] += factor[q]

    def sparse(X, i, factor, gradient):
        data, indices, indptr = X
        for p in range(indptr[i], indptr[i + 1]):
            x = data[p]
            for q in range(factor.size):
                gradient[indices[p], q] += x * factor[q]
        for q in range(factor.size):
            gradient[gradient.shape[0] - 1, q] += factor[q]

    return dense if isinstance(X, types.Array) else sparse
