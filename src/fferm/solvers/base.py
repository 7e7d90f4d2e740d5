"""The one outer loop of fferm, what every solver gives back, and the choice of one.

A solver says how to start, how to advance by a chunk and how to read the outcome.
`Solver.solve` owns everything else: history, stopping, time budget, callbacks, checks
for finite numbers and the result code.
"""

import dataclasses
import enum
import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, final

import numpy as np

from fferm._typing import FloatArray
from fferm.errors import NonFiniteError, UnknownNameError
from fferm.fairness_grid import weight_range
from fferm.penalty.objective import Objective, Problem
from fferm.registry import unknown_name

State = TypeVar("State")
Record = dict[str, float]
Callback = Callable[[Record], object]


class Result(enum.Enum):
    """How training ended; the value of a member is the advice to the user."""

    converged = "The gradient is below the tolerance, or below what rounding shows."
    kink_reached = (
        "The penalty has a kink here and no step descends from it, as happens at the "
        "optimum of a penalty that is not smooth."
    )
    schedule_completed = "The schedule ran to its end, as stochastic training does."
    nothing_gained = "Early stopping: the objective gained nothing more."
    max_epochs_reached = (
        "The iterations ran out before the tolerance was met. Raise max_iter, loosen "
        "tol, or scale the features."
    )
    stalled = (
        "No step decreased the objective although its gradient is above the tolerance."
        " Lower fairness_weight, scale the features, or raise l2."
    )
    above_optimum = (
        "The schedule ended more than 1 % above the optimum: a few steps on all rows "
        "gain more. Scale the features, lower fairness_weight, or use solver='lbfgs'."
    )
    several_optima = (
        "Two starts ended in different optima, since a robust penalty is not convex. "
        "The better one is kept; others may be better still. Lower radius or "
        "fairness_weight."
    )
    time_budget_spent = (
        "The time budget was spent before the tolerance was met. Raise it, or loosen "
        "tol."
    )
    worse_than_constant = (
        "The model fits the training rows worse than a constant would. Lower "
        "fairness_weight or learning_rate, or use method='bins' with hidden=None."
    )
    dependence_kept = (
        "Predictions depend on the group as much as without a penalty. Raise "
        "max_epochs, or use method='bins' with hidden=None."
    )
    stopped_by_callback = "A callback asked to stop."
    nonfinite = (
        "The objective is not a finite number. Scale the features, raise l2, or lower "
        "fairness_weight or sharpness."
    )

    @property
    def is_success(self) -> bool:
        """Whether there is nothing to warn of."""
        return self in (
            Result.converged,
            Result.kink_reached,
            Result.schedule_completed,
            Result.nothing_gained,
        )


@dataclass(frozen=True)
class Solution:
    """What a solver returns.

    Attributes
    ----------
    value
        The parameters of the model, (n_outputs, n_features + 1), intercept last.
    dual
        The dual table of each attribute, (strata, classes, groups).
    result
        How training ended.
    stats
        Numbers about the run: iterations, evaluations, seconds, objective.
    history
        One record per iteration.
    """

    value: FloatArray
    dual: tuple[FloatArray, ...]
    result: Result
    stats: dict[str, float]
    history: tuple[Record, ...]


@dataclass
class Monitor:
    """The driver's eye on a run: records, checks and says when to stop."""

    time_budget: float | None = None
    callbacks: tuple[Callback, ...] = ()
    history: list[Record] = field(default_factory=list)
    stopped: Result | None = None
    began: float = field(default_factory=time.perf_counter)

    def record(self, **numbers: float) -> bool:
        """Keep one record and return whether the run shall stop."""
        record = {"iteration": float(len(self.history)), **numbers}
        record["seconds"] = time.perf_counter() - self.began
        if not np.isfinite(record["objective"]):
            raise NonFiniteError(Result.nonfinite.value)
        self.history.append(record)
        wishes = [callback(record) for callback in self.callbacks]
        if any(wish is True for wish in wishes):
            self.stopped = Result.stopped_by_callback
        elif self.time_budget is not None and record["seconds"] > self.time_budget:
            self.stopped = Result.time_budget_spent
        return self.stopped is not None


@dataclass
class EarlyStopping:
    """Watches models that train together, and says when none of them improves.

    Parameters
    ----------
    patience
        Stop after so many looks in a row at which no model improved; None never stops.
    min_gain
        A smaller decrease, as a share of the best value, is not an improvement.
    best
        The lowest value of each model so far.
    n_idle
        Looks since a model last improved.
    """

    patience: int | None
    min_gain: float = 0.0
    best: list[float] = field(default_factory=list)
    n_idle: int = 0

    def update(self, values: Sequence[float]) -> list[bool]:
        """Look at one value per model; return which of them are lower than ever."""
        best = self.best or [np.inf] * len(values)
        is_lower = [new < old for new, old in zip(values, best, strict=True)]
        has_improved = any(
            new < old and (old == np.inf or old - new > self.min_gain * abs(old))
            for new, old in zip(values, best, strict=True)
        )
        self.best = [min(new, old) for new, old in zip(values, best, strict=True)]
        self.n_idle = 0 if has_improved else self.n_idle + 1
        return is_lower

    @property
    def is_over(self) -> bool:
        """Whether there was no improvement for too long."""
        return self.patience is not None and self.n_idle >= self.patience


class Solver(ABC, Generic[State]):
    """A way to minimise a `Problem` over linear models."""

    @abstractmethod
    def init(self, problem: Problem, start: FloatArray | None) -> State:
        """Return the state to begin from: the start, or where the solver begins."""

    @abstractmethod
    def advance(self, problem: Problem, state: State, monitor: Monitor) -> State:
        """Return the state after a chunk of steps, recording as it goes."""

    @abstractmethod
    def is_done(self, state: State) -> Result | None:
        """Return how the run ended, or None if it shall go on."""

    @abstractmethod
    def finish(self, problem: Problem, state: State) -> dict[str, Any]:
        """Return value, dual and stats of the `Solution`."""

    @abstractmethod
    def solve_path(
        self,
        problem: Problem,
        weights: Sequence[float],
        *,
        start: FloatArray | None = None,
        callbacks: tuple[Callback, ...] = (),
    ) -> Iterator[Solution]:
        """Yield the solution of each fairness weight, in the order given."""

    @final
    def solve(
        self,
        problem: Problem,
        *,
        start: FloatArray | None = None,
        time_budget: float | None = None,
        callbacks: tuple[Callback, ...] = (),
    ) -> Solution:
        """Return the solution of a problem."""
        monitor = Monitor(time_budget, callbacks)
        state = self.init(problem, start)
        result = self.is_done(state)
        while result is None:
            state = self.advance(problem, state, monitor)
            result = monitor.stopped or self.is_done(state)
        fitted = self.finish(problem, state)
        if not np.all(np.isfinite(fitted["value"])):
            raise NonFiniteError(Result.nonfinite.value)
        fitted["stats"]["seconds"] = time.perf_counter() - monitor.began
        return Solution(result=result, history=tuple(monitor.history), **fitted)


# Where the solver of linear models lives that a name stands for. Kernels are imported
# when they are asked for: compiling is not free.
LINEAR = {
    "lbfgs": ("fferm.solvers.lbfgs", "LBFGS"),
    "semi_stochastic": ("fferm.solvers.stochastic", "SemiStochastic"),
    "sgda": ("fferm.solvers.stochastic", "SGDA"),
    "sreda": ("fferm.solvers.stochastic", "SREDA"),
}


# From so many models and numbers in X on, `auto` trains the models of a path as lanes:
# the full batch would take ten times as long. A single model is worth its exact optimum
# until that takes minutes.
LANES_FROM = 4
PATH_FROM = 500_000
SINGLE_FROM = 200_000_000
# Minibatches take steps of one size for all features: larger ones than this are for the
# full batch, which scales them.
LARGE_NUMBER = 100.0
# How far beyond the default range a weight counts as rounding.
ROUNDING = 1e-9


def choose(
    name: str, objective: Objective, n_numbers: int, weights: Sequence[float]
) -> str:
    """Return the name of the solver to use.

    Parameters
    ----------
    name
        A solver, or ``"auto"``.
    objective
        What is minimised.
    n_numbers
        Rows times columns of X.
    weights
        The fairness weights that are trained for.
    """
    if name in LINEAR:
        return name
    if name != "auto":
        known = tuple(sorted(("auto", *LINEAR)))
        raise UnknownNameError(unknown_name("solver", str(name), known))
    enough = PATH_FROM if len(weights) >= LANES_FROM else SINGLE_FROM
    if n_numbers < enough or not objective.has_linear_dual:
        return "lbfgs"
    # Minibatches are noisy where the penalty is all that counts.
    largest = weight_range(objective.divergence)[1] * (1 + ROUNDING)
    return "lbfgs" if max(weights, default=0.0) > largest else "sgda"


def make(name: str, options: dict[str, Any]) -> Solver[Any]:
    """Return a solver of linear models, which takes the options that it knows."""
    module, class_name = LINEAR[name]
    solver = getattr(importlib.import_module(module), class_name)
    known = {field.name for field in dataclasses.fields(solver)}
    return solver(**{k: v for k, v in options.items() if k in known})  # type: ignore[no-any-return]
