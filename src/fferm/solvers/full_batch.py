"""The objective in one fused pass over X, by blocks of rows in threads."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
from fferm.solvers.threads import in_threads

# Blocks are as many on every machine, so that sums do not depend on its cores; a block
# of few rows would take less time than its call.
MOST_BLOCKS = 8
LEAST_ROWS = 8192


@dataclass(frozen=True)
class Pass:
    """What one pass over the rows found, for all lanes.

    Attributes
    ----------
    loss
        (L,).
    gradient
        (d + 1, C, L) of the loss, empty without slopes.
    tables
        (R, m, K_a, L) of each attribute.
    jacobians
        (R, K_a, P, d + 1, C, L) of each attribute; P is 0 without slopes.
    """

    loss: FloatArray
    gradient: FloatArray
    tables: list[FloatArray]
    jacobians: list[FloatArray]


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
        self._blocks = np.linspace(0, n_rows, n_blocks + 1).astype(np.int64)
        self._n_strata, self._ends = 0, np.zeros(1, dtype=np.int64)
        self.known = np.ones(0)
        if problem.penalty is not None:
            fair = problem.penalty.rows
            self._n_strata = len(fair.strata.names)
            self._ends = group_ends(fair)
            # A table counts the rows whose group is known.
            self.known = np.array([sums.known_share for sums in fair.cell_sums])

    def value_and_gradient(
        self, problem: Problem, theta: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the whole objective, and its gradient by (n_outputs, d + 1)."""
        found = self._pass(problem, [theta])
        objective = problem.objective
        value, gradient = float(found.loss[0]), found.gradient[..., 0].T.copy()
        weight = objective.fairness_weight
        if problem.penalty is not None and weight > 0:
            tables = [table[..., 0] for table in found.tables]
            fairness, payoffs = problem.penalty.on_tables(tables)
            value += weight * fairness
            for payoff, jacobian in zip(payoffs, found.jacobians, strict=True):
                gradient += weight * _pull_back(payoff, jacobian[..., 0])
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
            if problem.penalty is not None:
                tables = [table[..., lane] for table in found.tables]
                if weight > 0:
                    value += weight * problem.penalty.value(tables)
                dual = problem.penalty.duals(tables)
            measured.append(Measured(value, dual))
        return measured

    def tables(
        self, problem: Problem, thetas: Sequence[FloatArray]
    ) -> list[list[FloatArray]]:
        """Return the (R, m, K) tables of each model, one for every attribute."""
        found = self._pass(problem, thetas, with_loss=False, with_slopes=False)
        return [
            [table[..., lane] for table in found.tables] for lane in range(len(thetas))
        ]

    def _pass(
        self,
        problem: Problem,
        thetas: Sequence[FloatArray],
        *,
        with_loss: bool = True,
        with_slopes: bool = True,
    ) -> Pass:
        n_lanes = len(thetas)
        n_outputs, n_columns = parameter_shape(problem)
        lanes = np.empty((n_columns, n_outputs, n_lanes))
        for lane, own in enumerate(thetas):
            lanes[:, :, lane] = own.T
        theta = lanes.reshape(n_columns, n_outputs * n_lanes)
        shape = (self._n_strata, problem.n_classes, int(self._ends[-1]), n_lanes)
        n_kept = n_outputs if with_slopes else 0

        def block(begin: int, end: int) -> Sums:
            sums = Sums(
                np.zeros(n_lanes),
                np.zeros(theta.shape if with_slopes else (0, 0)),
                np.zeros(shape),
                np.zeros((shape[0], shape[2], n_kept, *theta.shape)),
            )
            room = make_room(n_outputs, problem.n_classes, n_lanes)
            sharpness = float(problem.objective.sharpness)
            accumulate(self.rows, begin, end, theta, sharpness, with_loss, room, sums)
            return sums

        parts = in_threads(block, zip(self._blocks[:-1], self._blocks[1:], strict=True))
        loss, gradient, mass, jacobian = sums = parts[0]
        for part in parts[1:]:
            for total, values in zip(sums, part, strict=True):
                total += values
        for total in sums:
            total /= self.rows.size
        if not math.isfinite(mass.sum() + loss.sum()):
            raise NonFiniteError(Result.nonfinite.value)
        wide = (n_columns, n_outputs, n_lanes)
        pieces = list(zip(self._ends[:-1], self._ends[1:], self.known, strict=True))
        return Pass(
            loss,
            gradient.reshape(wide) if with_slopes else gradient,
            [mass[:, :, begin:end] / known for begin, end, known in pieces],
            [
                jacobian[:, begin:end].reshape(shape[0], end - begin, n_kept, *wide)
                / known
                for begin, end, known in pieces
            ],
        )


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
