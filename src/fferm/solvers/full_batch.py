"""The objective in one fused pass over X, by blocks of rows in threads."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from fferm._types import FloatArray
from fferm.duals import group_ends
from fferm.errors import NonFiniteError
from fferm.objective import Problem, check_finite
from fferm.solvers._arrays import Rows
from fferm.solvers._full_batch import Sums, accumulate, make_room
from fferm.solvers.base import Result
from fferm.solvers.evaluation import Evaluator, Measured
from fferm.solvers.kernel_rows import make_rows
from fferm.solvers.linear import parameter_shape
from fferm.solvers.table_penalty import make_table_penalty
from fferm.solvers.threads import in_threads

# Blocks are as many on every machine, so that sums do not depend on its cores; a block
# of few rows would take less time than its call.
MOST_BLOCKS = 8
LEAST_ROWS = 8192


class FusedEvaluator(Evaluator):
    """Evaluates models of one set of rows, several in one pass.

    Parameters
    ----------
    problem
        The problem whose rows are read; its fairness weight plays no part.
    rows
        These rows as kernels take them, when they are made already.
    """

    def __init__(self, problem: Problem, rows: Rows | None = None) -> None:
        self.rows = rows or make_rows(problem)
        n_rows = self.rows.size
        n_blocks = min(MOST_BLOCKS, max(1, n_rows // LEAST_ROWS))
        ends = np.linspace(0, n_rows, n_blocks + 1).astype(np.int64).tolist()
        self._blocks = list(itertools.pairwise(ends))
        n_strata = n_groups = 0
        self.on_table = None
        if problem.penalty is not None:
            fair = problem.penalty.rows
            n_strata, n_groups = len(fair.strata.names), int(group_ends(fair)[-1])
            self.on_table = make_table_penalty(problem, problem.penalty)
        self._table_shape = (n_strata, problem.n_classes, n_groups)

    def value_and_gradient(
        self, problem: Problem, theta: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the whole objective, and its gradient by (n_outputs, d + 1)."""
        found = self._pass(problem, [theta])
        objective = problem.objective
        value, gradient = float(found.loss[0]), found.gradient.T.copy()
        weight = objective.fairness_weight
        if self.on_table is not None and weight > 0:
            fairness, payoff = self.on_table.value_and_payoff(found.mass[..., 0])
            value += weight * fairness
            gradient += weight * _pull_back(payoff, found.jacobian)
            check_finite(value, gradient)
        coef = theta[:, :-1]
        gradient[:, :-1] += objective.l2 * coef
        return value + objective.l2 / 2 * float(np.vdot(coef, coef)), gradient

    def measure(
        self, problem: Problem, thetas: Sequence[FloatArray], weights: Sequence[float]
    ) -> list[Measured]:
        """Return objective and dual of several models, each under its own weight."""
        found = self._pass(problem, thetas, with_slopes=False)
        measured = []
        for lane, (theta, weight) in enumerate(zip(thetas, weights, strict=True)):
            coef = theta[:, :-1]
            value = float(found.loss[lane])
            value += problem.objective.l2 / 2 * float(np.sum(coef * coef))
            dual: tuple[FloatArray, ...] = ()
            if self.on_table is not None:
                tables = self.on_table.tables(found.mass[..., lane])
                if weight > 0:
                    value += weight * self.on_table.penalty.value(tables)
                dual = self.on_table.penalty.duals(tables)
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
        # The means over all rows, where the kernel adds up.
        n_lanes = len(thetas)
        n_outputs, n_columns = parameter_shape(problem)
        n_kept = n_outputs if with_slopes else 0
        n_strata, n_classes, n_groups = self._table_shape
        lanes = np.stack([own.T for own in thetas], axis=2)
        theta = lanes.reshape(n_columns, n_outputs * n_lanes)
        sharpness = float(problem.objective.sharpness)

        def block(begin: int, end: int) -> Sums:
            sums = Sums(
                np.zeros(n_lanes),
                np.zeros(theta.shape if with_slopes else (0, 0)),
                np.zeros((n_strata, n_classes, n_groups, n_lanes)),
                np.zeros((n_strata, n_groups, n_kept, *theta.shape)),
            )
            room = make_room(n_outputs, n_classes, n_lanes)
            accumulate(self.rows, begin, end, theta, sharpness, with_loss, room, sums)
            return sums

        sums, *others = in_threads(block, self._blocks)
        for other in others:
            for total, values in zip(sums, other, strict=True):
                total += values
        for total in sums:
            total /= self.rows.size
        if not math.isfinite(sums.mass.sum() + sums.loss.sum()):
            raise NonFiniteError(Result.nonfinite.value)
        return sums


def _pull_back(payoff: FloatArray, jacobian: FloatArray) -> FloatArray:
    # (R, m, K) payoff and (R, K, P, d + 1, C) jacobian to (C, d + 1).
    if jacobian.shape[2] == 1:  # of two classes the second is kept
        payoff = payoff[:, 1:] - payoff[:, :1]
    n_cells = math.prod(jacobian.shape[:3])
    of_cell = jacobian.reshape(n_cells, -1)
    factor = payoff.transpose(0, 2, 1).reshape(n_cells)
    # A payoff of nobody may be infinite; its gradient is 0 and it does not count.
    factor = np.where(of_cell.any(axis=1), factor, 0.0)
    return np.asarray(factor @ of_cell).reshape(jacobian.shape[3:]).T
