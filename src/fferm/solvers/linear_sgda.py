"""Stochastic gradient descent-ascent for linear models, at any batch size.

Algorithm 1 of the paper in its unambiguous form, by one fused kernel for every
divergence and every notion that conditions on strata. Several fairness weights are
trained as lanes of one run, which reads the data once for all of them.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fferm._types import FloatArray
from fferm.divergences import Divergence
from fferm.errors import InvalidParameterError, NonFiniteError
from fferm.objective import Problem
from fferm.solvers._arrays import Dual, Model, Rows, Scratch, Steps, make_scratch
from fferm.solvers._kernels import NumbaExperimentalFeatureWarning, sgda_epoch
from fferm.solvers._pointers import log_ratio_pointer, projected_pointer, strip
from fferm.solvers.base import Callback, Monitor, Result, Solution, Solver
from fferm.solvers.evaluation import Measured
from fferm.solvers.full_batch import FusedEvaluator
from fferm.solvers.kernel_rows import group_ends, make_rows, place_rows
from fferm.solvers.linear import parameter_shape

# Adagrad divides by the root of this at least: no gradient yet, no step of 0 / 0.
LEAST_SQUARES = 1e-12
# An epoch of few batches has few steps: go on until there are this many.
LEAST_STEPS = 600
# Where the dual is steeper than this at independence, it is the variable itself: as a
# function of the log-ratio it would be little more than a sign.
STEEPEST_DUAL = 5.0
# The penalty comes in over the first hundredth of the run.
WARM_UP = 100


@dataclass(frozen=True)
class SgdaState:
    """Where a run stands.

    Attributes
    ----------
    weights
        The fairness weight of each lane.
    rows, model, dual, steps, pointer, scratch
        What the kernel takes; it changes model and dual.
    rng
        Draws the order of rows.
    n_epochs, n_steps
        How far it came.
    thetas, measured
        At the end, the parameters of each lane and what was measured at them.
    """

    weights: tuple[float, ...]
    rows: Rows
    model: Model
    dual: Dual
    steps: Steps
    pointer: Any
    scratch: Scratch
    rng: np.random.Generator
    n_epochs: int = 0
    n_steps: int = 0
    thetas: tuple[FloatArray, ...] = ()
    measured: tuple[Measured, ...] = ()


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
                state.scratch,
                state.n_steps,
            )
        if not np.all(np.isfinite(state.model.theta)):
            raise NonFiniteError(Result.nonfinite.value)
        after = replace(state, n_epochs=state.n_epochs + 1, n_steps=n_steps)
        if self.is_done(after):
            after = self._measured(problem, after)
            monitor.record(objective=after.measured[0].objective)
        return after

    def is_done(self, state: SgdaState) -> Result | None:
        """Return the result once all epochs are run."""
        is_over = state.n_epochs >= self._n_epochs(state.rows.y.size)
        return Result.schedule_completed if is_over else None

    def finish(self, problem: Problem, state: SgdaState) -> dict[str, Any]:
        """Return the averaged parameters."""
        return self._finish_lane(state, 0)

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
        for lane in range(len(weights)):
            yield Solution(
                result=Result.schedule_completed,
                history=tuple(monitor.history),
                **self._finish_lane(state, lane),
            )

    def _begin(
        self, problem: Problem, start: FloatArray | None, weights: Sequence[float]
    ) -> SgdaState:
        check_linear_dual(problem)
        divergence, scale, _ = strip(problem.objective.divergence)
        is_projected = self._is_projected(divergence)
        pointer = projected_pointer if is_projected else log_ratio_pointer
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
        model = make_model(problem, start, len(weights), self.lr)
        dual = make_dual(problem, len(weights), is_projected=is_projected)
        return SgdaState(
            tuple(weights),
            make_rows(problem),
            model,
            dual,
            steps,
            pointer(divergence),
            make_scratch(model.theta, dual.z),
            np.random.default_rng(self.seed),
        )

    def _measured(self, problem: Problem, state: SgdaState) -> SgdaState:
        lanes = mean_iterate(state)
        n_lanes = len(state.weights)
        thetas = tuple(lane_parameters(problem, lanes, n) for n in range(n_lanes))
        evaluator = FusedEvaluator(problem, state.rows)
        measured = evaluator.measure(problem, thetas, state.weights)
        return replace(state, thetas=thetas, measured=tuple(measured))

    def _finish_lane(self, state: SgdaState, lane: int) -> dict[str, Any]:
        return {
            "value": state.thetas[lane],
            "dual": state.measured[lane].dual,
            "stats": {
                "objective": state.measured[lane].objective,
                "n_iter": state.n_epochs,
                "n_evaluations": state.n_steps,
            },
        }

    def _is_projected(self, divergence: Divergence) -> bool:
        if self.dual != "auto":
            return self.dual == "projected"
        return bool(divergence.f_second(1.0, np) > STEEPEST_DUAL)

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
    average: FloatArray = model.total + due[:, None] * model.theta
    return average / (n_steps - begin)


def make_dual(problem: Problem, n_lanes: int, *, is_projected: bool) -> Dual:
    """Return the dual of independence, and the constants of the data."""
    if problem.penalty is None:
        empty = np.zeros((0, 0))
        z = np.zeros((0, problem.n_classes, 0, n_lanes))
        ends = np.zeros(1, dtype=np.int64)
        return Dual(z, z, empty, empty, empty, ends, 0.0, empty, 1.0)
    stratum, group, weight = place_rows(problem.penalty)
    ends = group_ends(problem.penalty)
    n_strata, n_attributes = len(problem.penalty.rows.strata.names), ends.size - 1
    mass = np.zeros((n_strata, int(ends[-1])))  # of stratum and group
    for column in group.T:
        kept = (stratum >= 0) & (column >= 0)
        np.add.at(mass, (stratum[kept], column[kept]), weight[kept])
    totals = np.add.reduceat(mass, ends[:-1], axis=1)  # of stratum and attribute
    safe = np.where(totals > 0, totals, 1.0)
    prior = mass / np.repeat(safe, np.diff(ends), axis=1)
    share = np.where(totals > 0, 1 / safe, 0.0)
    is_unit = problem.objective.notion.weighting == "unit"
    known = totals.sum(axis=0) if not is_unit else 1.0
    factor = share if is_unit else share * totals / known
    n_classes = problem.n_classes
    return Dual(
        np.zeros((n_strata, n_classes, mass.shape[1], n_lanes)),
        np.full((n_strata, n_classes, n_attributes, n_lanes), 1 / n_classes),
        prior,
        factor,
        share,
        ends,
        *_box(problem, 1 / np.where(prior > 0, prior, 1.0), is_projected=is_projected),
    )


def _box(
    problem: Problem, largest: FloatArray, *, is_projected: bool
) -> tuple[float, FloatArray, float]:
    """Return lower and upper ends of the dual's variable, and its speed."""
    divergence, _, floor = strip(problem.objective.divergence)
    if not is_projected:
        return math.log(floor), np.log(largest), 1.0
    lower = float(divergence.f_prime(floor, np))
    speed = min(float(divergence.f_second(1.0, np)), STEEPEST_DUAL)
    return lower, np.asarray(divergence.f_prime(largest, np)), speed


def lane_parameters(problem: Problem, theta: FloatArray, lane: int) -> FloatArray:
    """Return (n_outputs, n_features + 1) parameters of one lane."""
    n_outputs, n_columns = parameter_shape(problem)
    found = theta.reshape(n_columns, n_outputs, -1)[:, :, lane].T
    return found - found.mean(axis=0) if n_outputs > 1 else found.copy()
