"""Stochastic gradient descent-ascent for linear models, at any batch size.

Algorithm 1 of the paper in its unambiguous form, by one fused kernel for every
divergence and every notion that conditions on strata. Several fairness weights are
trained as lanes of one run, which reads the data once for all of them.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from fferm._types import FloatArray, Table, is_sparse
from fferm.divergences import strip
from fferm.duals import DualVariable, dual_variable, group_weights, place_rows
from fferm.errors import InvalidParameterError, NonFiniteError
from fferm.objective import Problem
from fferm.solvers._arrays import Dual, Model, Rows, Steps
from fferm.solvers._kernels import NumbaExperimentalFeatureWarning, sgda_epoch
from fferm.solvers._pointers import log_ratio_pointer, projected_pointer
from fferm.solvers._rows import kernel_matrix
from fferm.solvers.base import Callback, Monitor, Result, Solution, Solver
from fferm.solvers.lbfgs import optimal_dual, parameter_shape, value_and_gradient

# Adagrad divides by the root of this at least: no gradient yet, no step of 0 / 0.
LEAST_SQUARES = 1e-12
# An epoch of few batches has few steps: go on until there are this many.
LEAST_STEPS = 600
# The penalty comes in over the first hundredth of the run.
WARM_UP = 100


@dataclass(frozen=True)
class SgdaState:
    """Where a run stands: arrays that the kernel changes, and how far it came."""

    rows: Rows
    model: Model
    dual: Dual
    steps: Steps
    pointer: Any
    rng: np.random.Generator
    n_epochs: int = 0
    n_steps: int = 0


@dataclass(frozen=True)
class SGDA(Solver[SgdaState]):
    """Stochastic gradient descent-ascent.

    Parameters
    ----------
    batch_size
        Rows a step, from 1 to all.
    max_epochs
        Passes over the data; more where they hold fewer than 600 steps.
    lr
        Step of Adagrad.
    dual_lr
        The dual step is ``dual_lr / t``.
    fit_intercept
        Whether intercepts are free; otherwise they stay 0.
    seed
        Of the order of rows, drawn anew for every epoch.
    """

    batch_size: int = 64
    max_epochs: int = 20
    lr: float = 0.4
    dual_lr: float = 4.0
    dual: str = "auto"
    fit_intercept: bool = True
    seed: int = 0

    def init(self, problem: Problem, start: FloatArray | None) -> SgdaState:
        """Begin at given parameters or at 0, and at the dual of independence."""
        return self._begin(problem, start, [problem.objective.fairness_weight])

    def advance(
        self, problem: Problem, state: SgdaState, monitor: Monitor
    ) -> SgdaState:
        """Run one epoch; the last one is measured."""
        order = state.rng.permutation(state.rows.y.size)
        with warnings.catch_warnings():
            # numba calls functions as arguments experimental when it compiles them.
            warnings.simplefilter("ignore", NumbaExperimentalFeatureWarning)
            n_steps = sgda_epoch(
                state.rows,
                order,
                min(self.batch_size, order.size),
                state.model,
                state.dual,
                state.steps,
                state.pointer,
                state.n_steps,
            )
        if not np.all(np.isfinite(state.model.theta)):
            raise NonFiniteError(Result.nonfinite.value)
        after = replace(state, n_epochs=state.n_epochs + 1, n_steps=n_steps)
        if self.is_done(after):
            theta = lane_parameters(problem, mean_iterate(after), 0)
            monitor.record(objective=value_and_gradient(problem, theta)[0])
        return after

    def is_done(self, state: SgdaState) -> Result | None:
        """Return the result once all epochs are run."""
        is_over = state.n_epochs >= self._n_epochs(state.rows.y.size)
        return Result.schedule_completed if is_over else None

    def finish(self, problem: Problem, state: SgdaState) -> dict[str, Any]:
        """Return the averaged parameters."""
        return self._finish_lane(problem, state, 0)

    def solve_path(
        self,
        problem: Problem,
        weights: Sequence[float],
        *,
        start: FloatArray | None = None,
        callbacks: tuple[Callback, ...] = (),
    ) -> Iterator[Solution]:
        """Yield the solutions of all weights, trained as lanes of one run."""
        monitor = Monitor(callbacks=callbacks)
        state = self._begin(problem, start, weights)
        while self.is_done(state) is None:
            state = self.advance(problem, state, monitor)
        for lane, weight in enumerate(weights):
            yield Solution(
                result=Result.schedule_completed,
                history=tuple(monitor.history),
                **self._finish_lane(problem.with_weight(weight), state, lane),
            )

    def _begin(
        self, problem: Problem, start: FloatArray | None, weights: Sequence[float]
    ) -> SgdaState:
        check_linear_dual(problem)
        divergence, scale, _ = strip(problem.objective.divergence)
        variable = dual_variable(problem.objective.divergence, self.dual)
        pointer = projected_pointer if variable.is_projected else log_ratio_pointer
        n_rows = problem.y.size + (
            0 if problem.penalty_X is None else problem.penalty_X.shape[0]
        )
        n_steps = self._n_epochs(n_rows) * self._n_batches(n_rows)
        steps = Steps(
            scale * np.asarray(weights, dtype=np.float64),
            float(problem.objective.sharpness),
            float(problem.objective.l2),
            float(self.lr),
            float(self.dual_lr),
            n_steps // 2,
            max(1, n_steps // WARM_UP),
            bool(self.fit_intercept),
        )
        return SgdaState(
            make_rows(problem),
            make_model(problem, start, len(weights), self.lr),
            make_dual(problem, len(weights), variable),
            steps,
            pointer(divergence),
            np.random.default_rng(self.seed),
        )

    def _finish_lane(
        self, problem: Problem, state: SgdaState, lane: int
    ) -> dict[str, Any]:
        theta = lane_parameters(problem, mean_iterate(state), lane)
        return {
            "value": theta,
            "dual": optimal_dual(problem, theta),
            "stats": {
                "objective": value_and_gradient(problem, theta)[0],
                "n_iter": state.n_epochs,
                "n_evaluations": state.n_steps,
            },
        }

    def _n_batches(self, n_rows: int) -> int:
        return -(-n_rows // self.batch_size)

    def _n_epochs(self, n_rows: int) -> int:
        return max(self.max_epochs, -(-LEAST_STEPS // self._n_batches(n_rows)))


def check_linear_dual(problem: Problem) -> None:
    """Refuse penalties whose dual is not linear in the predictions."""
    objective = problem.objective
    if objective.uncertainty is not None or objective.notion.is_sufficiency:
        what = objective.uncertainty or objective.notion
        raise InvalidParameterError(
            "solver='sgda' needs a penalty whose dual is linear in the predictions, "
            f"and that of {what!r} is not. Use solver='lbfgs'."
        )


def make_rows(problem: Problem) -> Rows:
    """Return the rows of loss and penalty as the kernel takes them.

    Penalty rows of another domain are put below those of the loss. Each row counts in
    its own term, and both terms are means over all rows.
    """
    n_loss = problem.y.size
    if problem.penalty is None:
        nobody = np.full(n_loss, -1, dtype=np.int64)
        return Rows(
            kernel_matrix(problem.X),
            problem.y,
            n_loss * problem.share,
            np.zeros(n_loss),
            nobody,
            nobody[:, None],
        )
    X, y, loss = problem.X, problem.y, problem.share
    stratum, group, weight = place_rows(problem.penalty.rows)
    if problem.penalty_X is not None:
        X = _stack(X, problem.penalty_X)
        y, loss = _below(y, stratum.size, -1), _below(loss, stratum.size, 0.0)
        stratum, group = _above(stratum, n_loss, -1), _above(group, n_loss, -1)
        weight = _above(weight, n_loss, 0.0)
    return Rows(kernel_matrix(X), y, y.size * loss, y.size * weight, stratum, group)


def make_model(
    problem: Problem, start: FloatArray | None, n_lanes: int, lr: float
) -> Model:
    """Return parameters of all lanes, at a start or at 0."""
    n_outputs, n_columns = parameter_shape(problem)
    lanes = np.zeros((n_columns, n_outputs, n_lanes))
    if start is not None:
        lanes += start.T[:, :, None]
    theta = lanes.reshape(n_columns, -1)
    squares = np.full_like(theta, LEAST_SQUARES)
    return Model(
        theta,
        squares,
        lr / np.sqrt(squares),
        np.zeros_like(theta),
        np.zeros(n_columns, dtype=np.int64),
    )


def mean_iterate(state: SgdaState) -> FloatArray:
    """Return the mean of the iterates since averaging began, or else the last one."""
    model, begin, n_steps = state.model, state.steps.average_from, state.n_steps
    if n_steps <= begin:
        return model.theta
    # What each column is still due since it last moved.
    due = np.maximum(0, n_steps + 1 - np.maximum(model.moved, begin + 1))
    return (model.total + due[:, None] * model.theta) / (n_steps - begin)


def make_dual(problem: Problem, n_lanes: int, variable: DualVariable) -> Dual:
    """Return the dual of independence, and the constants of the data."""
    if problem.penalty is None:
        empty = np.zeros((0, 0))
        z = np.zeros((0, problem.n_classes, 0, n_lanes))
        ends = np.zeros(1, dtype=np.int64)
        return Dual(z, z, empty, empty, empty, ends, 0.0, empty, 1.0)
    weights = group_weights(problem.penalty.rows, problem.objective.notion.weighting)
    n_strata, n_attributes = weights.share.shape
    n_classes = problem.n_classes
    return Dual(
        np.zeros((n_strata, n_classes, weights.prior.shape[1], n_lanes)),
        np.full((n_strata, n_classes, n_attributes, n_lanes), 1 / n_classes),
        weights.prior,
        weights.factor,
        weights.share,
        weights.ends,
        variable.lower,
        variable.upper(weights.prior),
        variable.speed,
    )


def lane_parameters(problem: Problem, theta: FloatArray, lane: int) -> FloatArray:
    """Return (n_outputs, n_features + 1) parameters of one lane."""
    n_outputs, n_columns = parameter_shape(problem)
    found = theta.reshape(n_columns, n_outputs, -1)[:, :, lane].T
    return found - found.mean(axis=0) if n_outputs > 1 else found.copy()


def _stack(above: Table, below: Table) -> Table:
    if is_sparse(above) or is_sparse(below):
        return scipy.sparse.vstack([above, below], format="csr")
    return np.vstack([above, below])


def _below(values: Any, count: int, filler: float) -> Any:
    return np.concatenate([values, np.full(count, filler, dtype=values.dtype)])


def _above(values: Any, count: int, filler: float) -> Any:
    shape = (count, *values.shape[1:])
    return np.concatenate([np.full(shape, filler, dtype=values.dtype), values])
