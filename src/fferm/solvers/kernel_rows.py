"""The rows of a problem as the kernels take them."""

from typing import Any

import numpy as np
import scipy.sparse

from fferm._types import Table, is_sparse
from fferm.duals import place_rows
from fferm.objective import Problem
from fferm.solvers._arrays import Rows, pack_codes, pack_weights
from fferm.solvers._rows import kernel_matrix


def make_rows(problem: Problem) -> Rows:
    """Return the rows of loss and penalty as the kernel takes them.

    Penalty rows of another domain are put below those of the loss. Each row counts in
    its own term, and both terms are means over all rows.
    """
    n_loss = problem.y.size
    X, y, loss = problem.X, problem.y, problem.share
    if problem.penalty is None:
        nobody = np.broadcast_to(np.int64(-1), n_loss)
        code = pack_codes(y, nobody, nobody[:, None])
        return Rows(kernel_matrix(X), code, pack_weights(loss), np.zeros(1))
    stratum, group, weight = place_rows(problem.penalty.rows)
    if problem.penalty_X is not None:
        X = _stack(X, problem.penalty_X)
        y, loss = _below(y, stratum.size, -1), _below(loss, stratum.size, 0.0)
        stratum, group = _above(stratum, n_loss, -1), _above(group, n_loss, -1)
        weight = _above(weight, n_loss, 0.0)
    weights = (pack_weights(share) for share in (loss, weight))
    return Rows(kernel_matrix(X), pack_codes(y, stratum, group), *weights)


def _stack(above: Table, below: Table) -> Table:
    if is_sparse(above) or is_sparse(below):
        return scipy.sparse.vstack([above, below], format="csr")
    return np.vstack([above, below])


def _below(values: Any, count: int, filler: float) -> Any:
    return np.concatenate([values, np.full(count, filler, dtype=values.dtype)])


def _above(values: Any, count: int, filler: float) -> Any:
    shape = (count, *values.shape[1:])
    return np.concatenate([np.full(shape, filler, dtype=values.dtype), values])
