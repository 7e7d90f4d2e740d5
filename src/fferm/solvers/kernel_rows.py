"""The rows of a problem as the kernels take them."""

from typing import Any

import numpy as np
import scipy.sparse

from fferm._typing import FloatArray, IntArray, Table, is_sparse
from fferm.data.validate import are_alike
from fferm.penalty.dual import place_rows
from fferm.penalty.objective import Problem
from fferm.solvers._arrays import Rows
from fferm.solvers._rows import kernel_matrix


def make_rows(problem: Problem) -> Rows:
    """Return the rows of loss and penalty as the kernel takes them.

    Penalty rows of another domain are put below those of the loss. Each row counts in
    its own term, and both terms are means over all rows.
    """
    n_loss = problem.y.size
    X, y, loss = problem.X, problem.y, problem.share
    if problem.penalty is None:
        outside = np.broadcast_to(np.int64(-1), n_loss)
        nobody = np.empty((0, 1), dtype=np.int64)
        return as_rows(X, y, outside, nobody, loss, np.broadcast_to(0.0, n_loss))
    stratum, group, weight = place_rows(problem.penalty.rows)
    if problem.penalty_X is not None:
        X = _stack(X, problem.penalty_X)
        y, loss = _below(y, stratum.size, -1), _below(loss, stratum.size, 0.0)
        stratum, group = _above(stratum, n_loss, -1), _above(group, n_loss, -1)
        weight = _above(weight, n_loss, 0.0)
    return as_rows(X, y, stratum, group, loss, weight)


def as_rows(
    X: Table,
    y: IntArray,
    stratum: IntArray,
    group: IntArray,
    loss: FloatArray,
    penalty: FloatArray,
) -> Rows:
    """Return rows as the kernel takes them; ``loss`` and ``penalty`` are shares."""
    return Rows(
        kernel_matrix(X),
        _as_kernels_read(y),
        _as_kernels_read(_once(stratum)),
        _as_kernels_read(group),
        y.size * _once(loss),
        y.size * _once(penalty),
    )


def _once(values: Any) -> Any:
    return values[:1] if are_alike(values) else values


def _as_kernels_read(codes: IntArray) -> IntArray:
    # Kernels are compiled once for arrays that they may write to and once for others;
    # codes may be the user's own, so all come as the latter.
    codes = np.ascontiguousarray(codes, dtype=np.int64).view()
    codes.flags.writeable = False
    return codes


def _stack(above: Table, below: Table) -> Table:
    if is_sparse(above) or is_sparse(below):
        return scipy.sparse.vstack([above, below], format="csr")
    return np.vstack([above, below])


def _below(values: Any, count: int, filler: float) -> Any:
    return np.concatenate([values, np.full(count, filler, dtype=values.dtype)])


def _above(values: Any, count: int, filler: float) -> Any:
    shape = (count, *values.shape[1:])
    return np.concatenate([np.full(shape, filler, dtype=values.dtype), values])
