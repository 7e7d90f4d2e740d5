"""Stochastic solvers that train several fairness weights as lanes of one run.

They share how a run begins, when it ends and what it gives back; they differ in their
steps.

A random order of many rows misses every cache at every row. So many rows are shuffled
in two stages: blocks of neighbours in random order, some hundreds of them at a time,
and the rows of these at random. A batch still draws from hundreds of places all over
the data, and what it reads lies close together.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, final

import numpy as np

from fferm._typing import FloatArray, IntArray
from fferm.errors import NonFiniteError
from fferm.penalty.objective import Objective, Problem
from fferm.solvers._kernels import Model, RowArrays, Scratch, Steps
from fferm.solvers.base import (
    Callback,
    EarlyStopping,
    Monitor,
    Result,
    Solution,
    Solver,
)
from fferm.solvers.full_batch import FusedEvaluator, Measured, in_threads, n_threads
from fferm.solvers.linear import parameter_shape

# Adagrad divides by the root of this at least: no gradient yet, no step of 0 / 0.
LEAST_SQUARES = 1e-12
# An epoch of few batches has few steps: go on until there are this many.
LEAST_STEPS = 600
MAX_EPOCHS = 20
# The penalty comes in over the first hundredth of the run.
WARM_UP = 100
# Fewer lanes than this are not worth a thread: they cost what one costs.
LANES_PER_THREAD = 8
# Early stopping looks at the objective after an epoch that makes so many steps, or more
# epochs of fewer; what lowers it by less than this share has gained nothing.
STEPS_TO_JUDGE = 100
LEAST_GAIN = 1e-4


# Up to so many rows, the order is one permutation.
FEW_ROWS = 32_768
# RowArrays of a block, and rows shuffled together: 256 blocks, 2.6 MB of 20 columns.
BLOCK = 64
WINDOW = 16_384


@dataclass(frozen=True, kw_only=True)
class StochasticState:
    """Where a run stands.

    Attributes
    ----------
    weights
        The fairness weight of each lane.
    rows, model, steps, scratch
        What the kernel takes; it changes the model.
    rng
        Draws the rows.
    n_epochs, n_steps
        Chunks and steps of the model so far.
    thetas, measured
        The parameters of each lane and what was measured at them, the best so far.
    measured_at
        The step of the last measurement.
    stopping
        What says when no lane improves any more.
    """

    weights: tuple[float, ...]
    rows: RowArrays
    model: Model
    steps: Steps
    scratch: Scratch
    rng: np.random.Generator
    n_epochs: int = 0
    n_steps: int = 0
    thetas: tuple[FloatArray, ...] = ()
    measured: tuple[Measured, ...] = ()
    measured_at: int = 0
    stopping: EarlyStopping


State = TypeVar("State", bound=StochasticState)


@dataclass(frozen=True)
class StochasticSolver(Solver[State]):
    """A solver whose model is an average over the later half of its steps.

    Parameters
    ----------
    max_epochs
        Passes over the data, more where they hold too few steps; None is 20.
    lr
        Step of Adagrad.
    fit_intercept
        Whether intercepts are free; otherwise they stay 0.
    seed
        Of the order of rows.
    patience
        Stop after so many epochs (of 100 steps at least) in which no lane gained a
        ten-thousandth, and return the best that each has met; None runs to the end of
        the schedule.
    judged_on
        The rows that gains are measured on; None takes those of training.
    """

    max_epochs: int | None = None
    lr: float = 0.2
    fit_intercept: bool = True
    seed: int = 0
    patience: int | None = None
    judged_on: Problem | None = None

    @abstractmethod
    def begin(
        self, problem: Problem, start: FloatArray | None, weights: Sequence[float]
    ) -> State:
        """Return the state to begin from, with one lane for each weight."""

    @abstractmethod
    def run_chunk(self, problem: Problem, state: State) -> int:
        """Run some steps, an epoch mostly, and return the number of steps so far."""

    @abstractmethod
    def n_chunks(self, n_rows: int) -> int:
        """Return how many chunks the schedule has."""

    @final
    def common_state(self, rows: RowArrays, weights: Sequence[float]) -> dict[str, Any]:
        """Return the fields of a state that are the same for every solver."""
        return {
            "weights": tuple(weights),
            "rows": rows,
            "rng": np.random.default_rng(self.seed),
            "stopping": EarlyStopping(self.patience, LEAST_GAIN),
        }

    @final
    def steps(
        self,
        objective: Objective,
        weights: Sequence[float],
        n_steps: int,
        *,
        scale: float = 1.0,
        dual_lr: float = 0.0,
        warm_up: int | None = None,
    ) -> Steps:
        """Return how far to go in each of so many steps.

        Parameters
        ----------
        objective
            Sharpness and ridge.
        weights
            The fairness weight of each lane, to be multiplied by ``scale``.
        n_steps
            Steps of the whole schedule; the later half is averaged.
        scale, dual_lr
            Of the dual, where there is one.
        warm_up
            The steps over which the penalty comes in; None is a hundredth of all.
        """
        return Steps(
            scale * np.asarray(weights, dtype=np.float64),
            float(objective.sharpness),
            float(objective.l2),
            float(self.lr),
            float(dual_lr),
            n_steps // 2 if self.patience is None else 0,
            max(1, n_steps // WARM_UP) if warm_up is None else warm_up,
            bool(self.fit_intercept),
        )

    @final
    def init(self, problem: Problem, start: FloatArray | None) -> State:
        """Begin at given parameters or at 0, with one lane."""
        return self.begin(problem, start, [problem.objective.fairness_weight])

    @final
    def advance(self, problem: Problem, state: State, monitor: Monitor) -> State:
        """Run a chunk; the last is measured, and all are under ``patience``."""
        n_steps = self.run_chunk(problem, state)
        if not np.all(np.isfinite(state.model.theta)):
            raise NonFiniteError(Result.nonfinite.value)
        after = replace(state, n_epochs=state.n_epochs + 1, n_steps=n_steps)
        is_due = self.patience and n_steps - state.measured_at >= STEPS_TO_JUDGE
        if is_due or self._is_over(after):
            after = self._measured(problem, after)
            monitor.record(objective=after.measured[0].objective)
        if self.patience and n_steps >= 2 * after.steps.average_from:
            # The end is unknown: the average starts over when steps have doubled.
            after.model.total[:] = 0.0
            after = replace(after, steps=after.steps._replace(average_from=n_steps))
        return after

    @final
    def is_done(self, state: State) -> Result | None:
        """Return the result once the schedule is run, or nothing is gained any more."""
        if state.stopping.is_over:
            return Result.nothing_gained
        return Result.schedule_completed if self._is_over(state) else None

    @final
    def finish(self, problem: Problem, state: State) -> dict[str, Any]:
        """Return the averaged parameters."""
        return _finish_lane(state, 0)

    @final
    def solve_path(
        self,
        problem: Problem,
        weights: Sequence[float],
        *,
        start: FloatArray | None = None,
        callbacks: tuple[Callback, ...] = (),
    ) -> Iterator[Solution]:
        """Yield the solutions of all weights, trained as lanes of one run.

        Many lanes are shared out between the cores; a lane does not depend on which.
        Under ``patience`` all stop together, and share one core.
        """
        count = max(1, min(n_threads(), len(weights) // LANES_PER_THREAD))
        count = 1 if self.patience else count
        shares = [list(part) for part in np.array_split(np.asarray(weights), count)]
        runs = in_threads(
            lambda part: self._run(problem, start, part, callbacks),
            [(part,) for part in shares],
        )
        for run in runs:
            yield from run

    def _run(
        self,
        problem: Problem,
        start: FloatArray | None,
        weights: Sequence[float],
        callbacks: tuple[Callback, ...],
    ) -> list[Solution]:
        monitor = Monitor(callbacks=callbacks)
        state = self.begin(problem, start, weights)
        while (result := self.is_done(state)) is None:
            state = self.advance(problem, state, monitor)
        history = tuple(monitor.history)
        return [
            Solution(result=result, history=history, **_finish_lane(state, lane))
            for lane in range(len(weights))
        ]

    def _is_over(self, state: State) -> bool:
        return state.n_epochs >= self.n_chunks(state.rows.size)

    def _measured(self, problem: Problem, state: State) -> State:
        average = mean_iterate(state)
        thetas = [
            lane_parameters(problem, average, lane)
            for lane in range(len(state.weights))
        ]
        if self.judged_on is None:
            evaluator = FusedEvaluator(problem, state.rows)
        else:
            problem = self.judged_on
            evaluator = FusedEvaluator(problem)
        measured = evaluator.measure(problem, thetas, state.weights)
        state = replace(state, measured_at=state.n_steps)
        is_lower = state.stopping.update([m.objective for m in measured])
        if not state.measured:
            return replace(state, thetas=tuple(thetas), measured=tuple(measured))
        return replace(
            state,
            thetas=_where(is_lower, thetas, state.thetas),
            measured=_where(is_lower, measured, state.measured),
        )


def _where(
    is_lower: Sequence[bool], new: Sequence[Any], old: Sequence[Any]
) -> tuple[Any, ...]:
    return tuple(n if low else o for low, n, o in zip(is_lower, new, old, strict=True))


def _finish_lane(state: StochasticState, lane: int) -> dict[str, Any]:
    return {
        "value": state.thetas[lane],
        "dual": state.measured[lane].dual,
        "stats": {
            "objective": state.measured[lane].objective,
            "n_iter": state.n_epochs,
            "n_evaluations": state.n_steps,
        },
    }


def make_model(
    problem: Problem, start: FloatArray | None, n_lanes: int, *, fit_intercept: bool
) -> Model:
    """Return parameters of all lanes, at a start or at 0."""
    n_outputs, n_columns = parameter_shape(problem)
    lanes = np.zeros((n_columns, n_outputs, n_lanes))
    if start is not None:
        lanes += start.T[:, :, None]
    if not fit_intercept:
        lanes[-1] = 0.0
    theta = lanes.reshape(n_columns, -1)
    squares = np.full_like(theta, LEAST_SQUARES)
    return Model(
        theta,
        squares,
        1 / np.sqrt(squares),
        np.zeros_like(theta),
        np.zeros(n_columns, dtype=np.int64),
    )


def mean_iterate(state: StochasticState) -> FloatArray:
    """Return the mean of the iterates since averaging began, or else the last one."""
    model, begin, n_steps = state.model, state.steps.average_from, state.n_steps
    if n_steps <= begin:
        return model.theta
    return summed_iterates(model, begin, n_steps) / (n_steps - begin)


def summed_iterates(model: Model, begin: int, n_steps: int) -> FloatArray:
    """Return the sum of the iterates after step ``begin``."""
    # What each column is still due since it last moved.
    due = np.maximum(0, n_steps + 1 - np.maximum(model.moved, begin + 1))
    total: FloatArray = model.total + due[:, None] * model.theta
    return total


def lane_parameters(problem: Problem, theta: FloatArray, lane: int) -> FloatArray:
    """Return (n_outputs, n_features + 1) parameters of one lane."""
    n_outputs, n_columns = parameter_shape(problem)
    of_lane = theta.reshape(n_columns, n_outputs, -1)[:, :, lane].T
    return of_lane - of_lane.mean(axis=0) if n_outputs > 1 else of_lane.copy()


def shuffled(
    rng: np.random.Generator, n_rows: int, batch_size: int
) -> Iterator[IntArray]:
    """Yield the positions of all rows in random order, in parts of whole batches.

    Only the last part may end with a batch that is smaller.
    """
    if n_rows <= FEW_ROWS:
        yield rng.permutation(n_rows)
        return
    waiting: IntArray = np.zeros(0, dtype=np.int64)
    for window in _windows(rng, n_rows):
        waiting = np.concatenate([waiting, window]) if waiting.size else window
        n_whole = waiting.size // batch_size * batch_size
        if n_whole:
            yield waiting[:n_whole]
            waiting = waiting[n_whole:]
    if waiting.size:
        yield waiting


def _windows(rng: np.random.Generator, n_rows: int) -> Iterator[IntArray]:
    blocks = rng.permutation(-(-n_rows // BLOCK))
    for begin in range(0, blocks.size, WINDOW // BLOCK):
        starts = blocks[begin : begin + WINDOW // BLOCK, None] * BLOCK
        window = (starts + np.arange(BLOCK)).reshape(-1)
        if starts.max() > n_rows - BLOCK:  # the last block may be smaller
            window = window[window < n_rows]
        rng.shuffle(window)
        yield window
