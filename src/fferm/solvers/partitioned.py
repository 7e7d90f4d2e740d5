"""Linear models on rows in partitions: a pass is a sum over the passes of each.

The solver does not know: it asks an `Evaluator`, and the partitions make the passes of
`FusedEvaluator` where they are.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import gen_batches

from fferm._typing import FloatArray, IntArray, Table, is_sparse
from fferm.errors import NonFiniteError
from fferm.penalty.objective import Problem
from fferm.solvers._kernels import RowArrays
from fferm.solvers._passes import Sums
from fferm.solvers.base import Result
from fferm.solvers.full_batch import FusedEvaluator
from fferm.solvers.lbfgs import ROWS_PER_BLOCK
from fferm.solvers.linear import predicted_codes

NO_ROWS = RowArrays(*np.zeros((6, 0)))


class PartitionedEvaluator(FusedEvaluator):
    """Evaluates models of rows in partitions.

    Parameters
    ----------
    problem
        A problem whose ``X`` are `PartitionedRows`, and whose penalty has one row for
        all rows that are alike in label and groups.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, NO_ROWS)

    def sample(self, problem: Problem) -> None:
        """Return None: the rows are elsewhere."""

    def curvature(self, problem: Problem, theta: FloatArray) -> None:
        """Return None: the rows are elsewhere."""

    def _pass(
        self, problem: Problem, thetas: Sequence[FloatArray], **options: bool
    ) -> Sums:
        parts = problem.X.map(
            pass_over, without_rows(problem), self.table_shape, thetas, options
        )
        sums: Sums = functools.reduce(add, parts)
        if not math.isfinite(sums.mass.sum() + sums.loss.sum()):
            raise NonFiniteError(Result.nonfinite.value)
        return sums


def add(one: Sums, other: Sums) -> Sums:
    """Return the sums over both."""
    return Sums(*(a + b for a, b in zip(one, other, strict=True)))


def without_rows(problem: Problem) -> Problem:
    """Return what a partition has to know of a problem."""
    nothing: Any = np.zeros(0)
    X = np.zeros((0, problem.X.shape[1]))
    return replace(problem, X=X, y=nothing, share=nothing, penalty=None)


def pass_over(
    rows: RowArrays,
    problem: Problem,
    table_shape: tuple[int, int, int],
    thetas: Sequence[FloatArray],
    options: dict[str, bool],
) -> Sums:
    """Return the sums over the rows of one partition."""
    # Arrays that were sent may not be written to, and codes must not be: see `as_rows`.
    for codes in (rows.y, rows.stratum, rows.group):
        codes.flags.writeable = False
    evaluator = FusedEvaluator(problem, rows)
    evaluator.table_shape = table_shape
    return evaluator._pass(problem, thetas, **options)


def features(rows: RowArrays, n_features: int) -> Table:
    """Return the features that kernels read, as a matrix."""
    data, indices, indptr = rows.X
    if indices is None:
        return data
    return sp.csr_matrix((data, indices, indptr), shape=(rows.size, n_features))


def largest_of(rows: RowArrays, n_features: int) -> FloatArray:
    """Return the largest absolute entry of each column of a partition."""
    largest = abs(features(rows, n_features)).max(axis=0)
    return np.asarray(largest.toarray()[0] if is_sparse(largest) else largest)


def gram_of(rows: RowArrays, scale: FloatArray) -> FloatArray:
    """Return the weighted Gram matrix of scaled features with a column of ones."""
    X, gram = features(rows, scale.size - 1), np.zeros((scale.size, scale.size))
    share = np.broadcast_to(rows.loss_weight / rows.size, rows.size)
    for part in gen_batches(rows.size, ROWS_PER_BLOCK):
        block = X[part].toarray() if is_sparse(X) else X[part]
        block = np.column_stack([block, np.ones(len(block))]) * scale
        gram += block.T @ (share[part, None] * block)
    return gram


def codes_of(rows: RowArrays, theta: FloatArray) -> IntArray:
    """Return the codes of the classes that are predicted for some row."""
    return predicted_codes(features(rows, theta.shape[1] - 1), theta)
