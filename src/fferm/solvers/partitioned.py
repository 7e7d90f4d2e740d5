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
from fferm.solvers.full_batch import FusedEvaluator, as_rows
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

    def _sizes(self, problem: Problem) -> tuple[int, int]:
        return problem.X.shape[0], sum(problem.X.map(n_entries))

    def _every(self, problem: Problem, step: int) -> RowArrays:
        n_rows, n_features = problem.X.shape
        parts = problem.X.map_from(every, n_features, step)
        X, *columns = zip(*parts, strict=True)
        stack: Any = sp.vstack if any(map(is_sparse, X)) else np.vstack
        y, stratum, group, *shares = map(np.concatenate, columns)
        loss, penalty = (share * (n_rows / y.size) for share in shares)
        return as_rows(stack(X), y, stratum, group, loss, penalty)

    def _loss_curvature(self, problem: Problem, theta: FloatArray) -> FloatArray:
        n_rows = problem.X.shape[0]
        known = without_rows(problem), n_rows, theta
        means, n_read = zip(*problem.X.map_from(curvature_of, *known), strict=True)
        curvature: FloatArray = np.sum(means, axis=0) * (n_rows / sum(n_read))
        return curvature

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
    evaluator = FusedEvaluator(problem, as_kernels_read(rows))
    evaluator.table_shape = table_shape
    return evaluator._pass(problem, thetas, **options)


def as_kernels_read(rows: RowArrays) -> RowArrays:
    """Return rows that were sent, which may not be written to, as `as_rows` does."""
    for codes in (rows.y, rows.stratum, rows.group):
        codes.flags.writeable = False
    return rows


def curvature_of(
    rows: RowArrays, first: int, problem: Problem, n_rows: int, theta: FloatArray
) -> tuple[FloatArray, int]:
    """Return the curvature of a partition by its share, and of how many rows it is."""
    evaluator = FusedEvaluator(problem, as_kernels_read(rows))
    curvature, n_read = evaluator.add_curvature(theta, first, n_rows)
    return curvature / rows.size, n_read


def n_entries(rows: RowArrays) -> int:
    """Return how many numbers of X a partition holds."""
    return int(rows.X[0].size)


def every(rows: RowArrays, first: int, n_features: int, step: int) -> tuple[Any, ...]:
    """Return those of every so many of all rows that are in a partition.

    They are features, codes, and shares in loss and penalty.
    """
    some = slice(-first % step, None, step)
    stratum, loss, penalty = (
        np.broadcast_to(values, rows.size)[some]
        for values in (rows.stratum, rows.loss_weight, rows.penalty_weight)
    )
    X = features(rows, n_features)[some]
    shares = loss / rows.size, penalty / rows.size
    return X, rows.y[some], stratum, rows.group[some], *shares


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
