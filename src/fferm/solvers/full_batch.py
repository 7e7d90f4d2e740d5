"""The objective in one fused pass over X, by blocks of rows in threads."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from fferm._typing import FloatArray
from fferm.errors import NonFiniteError
from fferm.penalty.dual import group_ends
from fferm.penalty.objective import Problem, check_finite
from fferm.solvers._arrays import Rows
from fferm.solvers._full_batch import Sums, accumulate, add_pull, make_room
from fferm.solvers.base import Result
from fferm.solvers.evaluation import Evaluator, Measured
from fferm.solvers.kernel_rows import make_rows
from fferm.solvers.linear import parameter_shape
from fferm.solvers.table_penalty import TablePenalty, make_table_penalty
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
        self._on_table = None
        if problem.penalty is not None:
            fair = problem.penalty.rows
            n_strata, n_groups = len(fair.strata.names), int(group_ends(fair)[-1])
            self._on_table = make_table_penalty(problem, problem.penalty)
        self._table_shape = (n_strata, problem.n_classes, n_groups)

    def on_table(self, problem: Problem) -> TablePenalty | None:
        """Return the penalty on tables; None for a problem that is asked without."""
        return None if problem.penalty is None else self._on_table

    def value_and_gradient(
        self, problem: Problem, theta: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the whole objective, and its gradient by (n_outputs, d + 1)."""
        found = self._pass(problem, [theta])
        value, gradient = float(found.loss[0]), found.gradient
        objective, coef = problem.objective, theta[:, :-1]
        weight, on_table = objective.fairness_weight, self.on_table(problem)
        if on_table is not None and weight > 0:
            fairness, payoff = on_table.value_and_payoff(found.mass[..., 0])
            value += weight * fairness
            add_pull(payoff, float(weight), found.jacobian, gradient)
            check_finite(value, gradient)
        gradient[:-1] += objective.l2 * coef.T
        return value + objective.l2 / 2 * float(np.vdot(coef, coef)), gradient.T.copy()

    def measure(
        self, problem: Problem, thetas: Sequence[FloatArray], weights: Sequence[float]
    ) -> list[Measured]:
        """Return objective and dual of several models, each under its own weight."""
        found = self._pass(problem, thetas, with_slopes=False)
        measured, on_table = [], self.on_table(problem)
        for lane, (theta, weight) in enumerate(zip(thetas, weights, strict=True)):
            coef = theta[:, :-1]
            value = float(found.loss[lane])
            value += problem.objective.l2 / 2 * float(np.sum(coef * coef))
            dual: tuple[FloatArray, ...] = ()
            if on_table is not None:
                mass = found.mass[..., lane]
                if weight > 0:
                    value += weight * on_table.value_and_payoff(mass)[0]
                dual = on_table.duals(mass)
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
        lanes = np.empty((n_columns, n_outputs, n_lanes))
        for lane, own in enumerate(thetas):
            lanes[:, :, lane] = own.T
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
