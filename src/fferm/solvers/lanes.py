"""Stochastic solvers that train several fairness weights as lanes of one run.

They share how a run begins and what it gives back; they differ in their steps.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar, final

import numpy as np

from fferm._types import FloatArray
from fferm.errors import NonFiniteError
from fferm.objective import Problem
from fferm.solvers._kernels import Model
from fferm.solvers.base import Callback, Monitor, Result, Solution, Solver
from fferm.solvers.lbfgs import optimal_dual, value_and_gradient
from fferm.solvers.linear_sgda import lane_parameters, make_model


class LaneState(Protocol):
    """Where a run stands: the parameters of all lanes, and how far it came."""

    @property
    def model(self) -> Model:
        """Return the parameters of all lanes."""

    @property
    def n_epochs(self) -> int:
        """Return the chunks that are done."""

    @property
    def n_steps(self) -> int:
        """Return the steps of the model that are done."""


State = TypeVar("State", bound=LaneState)


class LaneSolver(Solver[State]):
    """A solver whose model is the average over the second half of its steps."""

    @abstractmethod
    def begin(
        self, problem: Problem, start: FloatArray | None, weights: Sequence[float]
    ) -> State:
        """Return the state to begin from, with one lane for each weight."""

    @final
    def init(self, problem: Problem, start: FloatArray | None) -> State:
        """Begin at given parameters or at 0, with one lane."""
        return self.begin(problem, start, [problem.objective.fairness_weight])

    @final
    def finish(self, problem: Problem, state: State) -> dict[str, Any]:
        """Return the averaged parameters."""
        return _finish_lane(problem, state, 0)

    @final
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
        state = self.begin(problem, start, weights)
        while self.is_done(state) is None:
            state = self.advance(problem, state, monitor)
        for lane, weight in enumerate(weights):
            yield Solution(
                result=Result.schedule_completed,
                history=tuple(monitor.history),
                **_finish_lane(problem.with_weight(weight), state, lane),
            )

    @final
    def _record_last(self, problem: Problem, state: State, monitor: Monitor) -> None:
        """Measure the model of the first lane once the run is over."""
        if self.is_done(state):
            theta = lane_parameters(problem, state.model.average, 0)
            monitor.record(objective=value_and_gradient(problem, theta)[0])


def begin_model(
    problem: Problem, start: FloatArray | None, n_lanes: int, fit_intercept: bool
) -> Model:
    """Return parameters of all lanes, with intercepts of 0 where they are not free."""
    model = make_model(problem, start, n_lanes)
    if not fit_intercept:
        model.theta[-1] = 0.0
        model.average[-1] = 0.0
    return model


def check_finite(model: Model) -> None:
    """Raise where some parameter is no number any more."""
    if not np.all(np.isfinite(model.theta)):
        raise NonFiniteError(Result.nonfinite.value)


def _finish_lane(problem: Problem, state: LaneState, lane: int) -> dict[str, Any]:
    theta = lane_parameters(problem, state.model.average, lane)
    return {
        "value": theta,
        "dual": optimal_dual(problem, theta),
        "stats": {
            "objective": value_and_gradient(problem, theta)[0],
            "n_iter": state.n_epochs,
            "n_evaluations": state.n_steps,
        },
    }
