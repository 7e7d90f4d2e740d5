"""The objective in one fused pass over X, by blocks of rows in threads.

Kernels release Python's lock, so plain threads run them on all cores. Their number is
numba's: ``NUMBA_NUM_THREADS`` sets it, and workers of joblib, which set that to their
share, do not crowd each other.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
import scipy.sparse
from scipy.special import expit

from fferm._typing import FloatArray, IntArray, Table, is_sparse
from fferm.data.validate import are_alike
from fferm.errors import NonFiniteError
from fferm.penalty.compiled import CompiledPenalty
from fferm.penalty.dual import group_ends, place_rows
from fferm.penalty.objective import Problem, check_finite
from fferm.solvers._kernels import RowArrays
from fferm.solvers._passes import (
    Sums,
    accumulate,
    add_curvature,
    add_penalty_gradient,
    workspace,
)
from fferm.solvers._rows import kernel_matrix, pack
from fferm.solvers.base import Result
from fferm.solvers.linear import Evaluator, parameter_shape

Part = TypeVar("Part")

# Blocks are as many on every machine, so that sums do not depend on its cores; a block
# of few rows would take less time than its call.
MOST_BLOCKS = 8
LEAST_ROWS = 8192
# A sample has every eighth row or fewer, about so many numbers, and enough rows to say
# how columns curve.
LEAST_STEP, SAMPLED, SAMPLED_PER_COLUMN = 8, 2**17, 20
# Above this width the Gram matrix costs more than it saves. Of dense rows, so many are
# read as cost this many passes, of sparse ones at least so many for each column.
WIDEST_GRAM, GRAM_PASSES, CURVED_PER_COLUMN = 1024, 10, 100
ROWS_PER_BLOCK = 8192


def make_rows(problem: Problem) -> RowArrays:
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
        are_sparse = is_sparse(X) or is_sparse(problem.penalty_X)
        stack: Any = scipy.sparse.vstack if are_sparse else np.vstack
        X = stack([X, problem.penalty_X])
        above, below = (n_loss, 0), (0, stratum.size)
        y = np.pad(y, below, constant_values=-1)
        loss, weight = np.pad(loss, below), np.pad(weight, above)
        stratum = np.pad(stratum, above, constant_values=-1)
        group = np.pad(group, (above, (0, 0)), constant_values=-1)
    return as_rows(X, y, stratum, group, loss, weight)


def as_rows(
    X: Table,
    y: IntArray,
    stratum: IntArray,
    group: IntArray,
    loss: FloatArray,
    penalty: FloatArray,
) -> RowArrays:
    """Return rows as the kernel takes them; ``loss`` and ``penalty`` are shares."""
    return RowArrays(
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
    # codes may be the user's, so all are read-only views.
    codes = np.ascontiguousarray(codes, dtype=np.int64).view()
    codes.flags.writeable = False
    return codes


def n_threads() -> int:
    """Return how many threads may run at once."""
    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


def in_threads(
    function: Callable[..., Part], arguments: Iterable[tuple[Any, ...]]
) -> list[Part]:
    """Return the function's values, in the order of the arguments."""
    calls = list(arguments)
    if n_threads() == 1 or len(calls) == 1:
        return [function(*call) for call in calls]
    with ThreadPoolExecutor(min(n_threads(), len(calls))) as pool:
        return list(pool.map(lambda call: function(*call), calls))


class Measured(NamedTuple):
    """The objective at some parameters, and the dual that is optimal for them."""

    objective: float
    dual: tuple[FloatArray, ...]


class FusedEvaluator(Evaluator):
    """Evaluates models of one set of rows, several in one pass.

    Parameters
    ----------
    problem
        The problem whose rows are read; its fairness weight plays no part.
    rows
        These rows as kernels take them, when they are made already.
    """

    is_fused = True

    def __init__(self, problem: Problem, rows: RowArrays | None = None) -> None:
        self._n_features = problem.X.shape[1]
        self.rows = rows or make_rows(problem)
        n_rows = self.rows.size
        n_blocks = min(MOST_BLOCKS, max(1, n_rows // LEAST_ROWS))
        ends = np.linspace(0, n_rows, n_blocks + 1).astype(np.int64).tolist()
        self._blocks = list(itertools.pairwise(ends))
        n_strata = n_groups = 0
        self._on_table = None
        if problem.penalty is not None:
            fair = problem.penalty.rows
            n_strata, n_groups = len(fair.strata.names), int(group_ends(fair)[-1])
            self._on_table = CompiledPenalty(problem.penalty)
        self.table_shape = (n_strata, problem.n_classes, n_groups)

    @functools.cached_property
    def _packed(self) -> tuple[RowArrays, IntArray]:
        # The rows as a model of one output reads them fastest, and where its columns
        # are.
        matrix, place = self.rows.X, np.arange(self._n_features + 1)
        if matrix[1] is not None and self.rows.size >= LEAST_ROWS:
            matrix, place = pack(matrix, place)
        return self.rows._replace(X=matrix), place

    def sample(self, problem: Problem) -> "FusedEvaluator | None":
        """Return an evaluator of every so many rows, None where these are few."""
        n_rows, n_entries = self._sizes(problem)
        step = max(LEAST_STEP, n_entries // SAMPLED)
        if n_rows < step * SAMPLED_PER_COLUMN * self._n_features:
            return None
        return FusedEvaluator(problem, self._every(problem, step))

    def _sizes(self, problem: Problem) -> tuple[int, int]:
        return self.rows.size, self.rows.X[0].size

    def _every(self, problem: Problem, step: int) -> RowArrays:
        rows, (data, indices, indptr) = self.rows, self.rows.X
        if indices is None:
            X: Any = np.ascontiguousarray(data[::step]), None, None
        else:
            shape = rows.size, self._n_features
            few = scipy.sparse.csr_array((data, indices, indptr), shape)[::step]
            X = few.data, few.indices.astype(indices.dtype), few.indptr.astype(np.int64)
        each: Any = [v if v.size == 1 else v[::step] for v in rows[1:]]
        codes: Any = map(_as_kernels_read, each[:3])
        return RowArrays(X, *codes, *map(np.ascontiguousarray, each[3:]))

    def curvature(self, problem: Problem, theta: FloatArray) -> FloatArray | None:
        """Return the curvature at (n_outputs, d + 1), by Gauss and Newton.

        It is that of an output, without the ridge. With more than two classes it is
        that of the loss at even odds. None where rows are too wide.
        """
        n_outputs, n_columns = parameter_shape(problem)
        at = theta if n_outputs == 1 else np.zeros((1, n_columns))
        if n_columns > WIDEST_GRAM:
            return None
        curvature = self._loss_curvature(problem, at)
        weight = problem.objective.fairness_weight
        on_table = self.on_table(problem)
        if n_outputs == 1 and on_table is not None and weight > 0:
            sums = self._pass(problem, [theta])
            root = on_table.root_on_mass(sums.mass[..., 0])
            of_cells = sums.jacobian[:-1, 0, :, 0]
            of_mass = np.stack([-of_cells, of_cells], axis=1).reshape(-1, n_columns)
            by_theta = root @ of_mass
            curvature += weight * by_theta.T @ by_theta
        return curvature if np.all(np.isfinite(curvature)) else None

    def _loss_curvature(self, problem: Problem, theta: FloatArray) -> FloatArray:
        curvature, n_read = self.add_curvature(theta, 0, self.rows.size)
        return curvature / n_read

    def add_curvature(
        self, theta: FloatArray, first: int, n_rows: int
    ) -> tuple[FloatArray, int]:
        """Return the curvatures of the loss of rows, added up, and of how many rows.

        These rows begin at ``first`` of ``n_rows``.
        """
        if self.rows.X[1] is not None:
            return self._add_sparse_curvature(theta, first, n_rows)
        (X, *_), weight, d = self.rows.X, self.rows.loss_weight, theta.size
        curvature, n_read = np.zeros((d, d)), 0
        enough = np.clip(GRAM_PASSES * n_rows // d, 20 * d, 1000 * d)
        step = max(1, n_rows // int(enough))
        for begin in range(-first % step, self.rows.size, step * ROWS_PER_BLOCK):
            some = slice(begin, begin + step * ROWS_PER_BLOCK, step)
            block = np.column_stack([X[some], np.ones(len(X[some]))])
            prob = expit(block @ theta[0])
            each = (weight if weight.size == 1 else weight[some]) * prob * (1 - prob)
            curvature += block.T @ (each[:, None] * block)
            n_read += len(block)
        return curvature, n_read

    def _add_sparse_curvature(
        self, theta: FloatArray, first: int, n_rows: int
    ) -> tuple[FloatArray, int]:
        column = theta.T.copy()
        step = max(1, n_rows // (CURVED_PER_COLUMN * theta.size))

        def block(begin: int, end: int) -> FloatArray:
            curvature = np.zeros((theta.size, theta.size))
            begin += -(first + begin) % step
            add_curvature(self.rows, begin, end, step, column, np.empty(1), curvature)
            return curvature

        lower: Any = sum(in_threads(block, self._blocks))
        n_read = len(range(-first % step, self.rows.size, step))
        return np.asarray(lower + np.tril(lower, -1).T), n_read

    def on_table(self, problem: Problem) -> CompiledPenalty | None:
        """Return the penalty on tables; None for a problem that is asked without."""
        return None if problem.penalty is None else self._on_table

    def value_and_gradient(
        self, problem: Problem, theta: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the whole objective, and its gradient by (n_outputs, d + 1)."""
        sums = self._pass(problem, [theta])
        value, gradient = float(sums.loss[0]), sums.gradient
        objective, coef = problem.objective, theta[:, :-1]
        weight, on_table = objective.fairness_weight, self.on_table(problem)
        if on_table is not None and weight > 0:
            fairness, payoff = on_table.on_mass(sums.mass[..., 0])
            value += weight * fairness
            add_penalty_gradient(payoff, float(weight), sums.jacobian, gradient)
            check_finite(value, gradient)
        gradient[:-1] += objective.l2 * coef.T
        return value + objective.l2 / 2 * float(np.vdot(coef, coef)), gradient.T.copy()

    def duals(self, problem: Problem, theta: FloatArray) -> tuple[FloatArray, ...]:
        """Return the optimal dual of each attribute, none without a penalty."""
        on_table = self.on_table(problem)
        if on_table is None:
            return ()
        return on_table.duals(on_table.cells_of(self.mass(problem, [theta])[..., 0]))

    def tables(self, problem: Problem, theta: FloatArray) -> list[FloatArray]:
        """Return the (strata, classes, groups) table of each attribute."""
        on_table = self.on_table(problem)
        if on_table is None:
            return []
        return on_table.split(on_table.cells_of(self.mass(problem, [theta])[..., 0]))

    def measure(
        self, problem: Problem, thetas: Sequence[FloatArray], weights: Sequence[float]
    ) -> list[Measured]:
        """Return objective and dual of several models, each under its own weight."""
        sums = self._pass(problem, thetas, with_slopes=False)
        measured, on_table = [], self.on_table(problem)
        for lane, (theta, weight) in enumerate(zip(thetas, weights, strict=True)):
            coef = theta[:, :-1]
            value = float(sums.loss[lane])
            value += problem.objective.l2 / 2 * float(np.sum(coef * coef))
            dual: tuple[FloatArray, ...] = ()
            if on_table is not None:
                cells = on_table.cells_of(sums.mass[..., lane])
                if weight > 0:
                    value += weight * on_table.value_and_payoff(cells)[0]
                dual = on_table.duals(cells)
            measured.append(Measured(value, dual))
        return measured

    def mass(self, problem: Problem, thetas: Sequence[FloatArray]) -> FloatArray:
        """Return the (R, m, K, L) table of all models, a mean over all rows."""
        return self._pass(problem, thetas, with_loss=False, with_slopes=False).mass

    def _pass(
        self,
        problem: Problem,
        thetas: Sequence[FloatArray],
        *,
        with_loss: bool = True,
        with_slopes: bool = True,
    ) -> Sums:
        # The means over all rows, where the kernel adds up; slopes are of one model.
        n_lanes = len(thetas)
        n_outputs, n_columns = parameter_shape(problem)
        n_strata, n_classes, n_groups = self.table_shape
        n_cells = n_strata * n_groups
        rows, place = self.rows, np.arange(n_columns)
        if with_slopes and n_outputs == 1:
            rows, place = self._packed
        theta = np.zeros((place[-1] + 1, n_outputs, n_lanes))
        for lane, of_lane in enumerate(thetas):
            theta[place, :, lane] = of_lane.T
        theta = theta.reshape(-1, n_outputs * n_lanes)
        slopes = theta.shape if with_slopes else (0, 0)
        how = float(problem.objective.sharpness), with_loss, n_groups

        def block(begin: int, end: int) -> Sums:
            sums = Sums(
                np.zeros(n_lanes),
                np.zeros(slopes),
                np.zeros((n_cells + 1, n_classes, n_lanes)),
                np.zeros((n_cells + 1, n_outputs, *slopes)),
            )
            work = workspace(n_outputs, n_classes, n_lanes, n_cells)
            accumulate(rows, begin, end, theta, *how, work, sums)
            return sums

        sums, *others = in_threads(block, self._blocks)
        for total, *parts in zip(sums, *others, strict=True):
            total += sum(parts)
            total /= rows.size
        if not math.isfinite(sums.mass.sum() + sums.loss.sum()):
            raise NonFiniteError(Result.nonfinite.value)
        by_cell = sums.mass[:-1].reshape(n_strata, n_groups, n_classes, n_lanes)
        mass = np.ascontiguousarray(by_cell.swapaxes(1, 2))
        if not with_slopes:
            return sums._replace(mass=mass)
        jacobian = np.take(sums.jacobian, place, axis=2)
        return Sums(sums.loss, sums.gradient[place], mass, jacobian)
