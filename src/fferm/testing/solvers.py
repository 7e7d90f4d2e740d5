"""The laws of solvers of linear models."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fferm._typing import FloatArray
from fferm.data.rows import FitInput
from fferm.datasets import make_biased
from fferm.estimators import FairLogisticRegression
from fferm.penalty.objective import Problem
from fferm.solvers import LBFGS, Result, Solution, Solver
from fferm.solvers.linear import parameter_shape, value_and_gradient
from fferm.testing._assert import claim, reported

# Data and settings that a solver is tried on: two classes, many, conditional.
SETTINGS: dict[str, tuple[int, dict[str, Any]]] = {
    "two classes": (2, {"divergence": "kl"}),
    "three classes": (3, {"divergence": "chi2"}),
    "equalized odds": (2, {"divergence": "kl", "notion": "equalized_odds"}),
}


def check_solver(solver: Solver[Any], *, slack: float = 0.01) -> None:
    """Hold a solver of linear models to its contract.

    Parameters
    ----------
    solver
        An instance.
    slack
        How much of the way from the start to the optimum may be left at the end: close
        to 0 for exact methods, some percent for stochastic ones.

    Raises
    ------
    ComponentError
        If a law is broken. The message names the law, the problem and the numbers.

    Examples
    --------
    >>> from fferm.solvers import LBFGS
    >>> check_solver(LBFGS(), slack=1e-6)
    """
    for setting, (n_classes, options) in SETTINGS.items():
        trial = _Trial(solver, _problem(n_classes, options), slack)
        for name, law in SOLVER_LAWS.items():
            with reported(solver, "solver", f"{name!r} ({setting})"):
                law(trial)


def _problem(n_classes: int, options: dict[str, Any]) -> Problem:
    data = make_biased(300, n_classes=n_classes, bias=0.5, random_state=0)
    model = FairLogisticRegression(fairness_weight=2.0, l2=1e-2, **options)
    problem: Problem = model._encode(FitInput(data.X, data.y, data.sensitive_features))[
        1
    ]
    return problem


@dataclass(frozen=True)
class _Trial:
    # A solver on a problem; what several laws look at is solved once.
    solver: Solver[Any]
    problem: Problem
    slack: float

    @functools.cached_property
    def solution(self) -> Solution:
        return self.solver.solve(self.problem)

    def check_near(self, problem: Problem, theta: FloatArray) -> None:
        exact = LBFGS(tol=1e-7).solve(problem).value
        best, start = _objective(problem, exact), _objective(problem, 0 * exact)
        left = (_objective(problem, theta) - best) / (start - best)
        claim(
            left <= self.slack,
            f"at fairness_weight={problem.objective.fairness_weight:g}, {left:.3g} of "
            f"the way to the optimum is left, {self.slack:g} is allowed",
        )


def _objective(problem: Problem, theta: FloatArray) -> float:
    return value_and_gradient(problem, theta)[0]


def _data_are_left_alone(trial: _Trial) -> None:
    problem = trial.problem
    before = problem.X.copy(), problem.y.copy(), problem.share.copy()
    _ = trial.solution
    after = problem.X, problem.y, problem.share
    claim(all(map(np.array_equal, before, after)), "solve() wrote into the data")


def _gives_all_of_a_solution(trial: _Trial) -> None:
    solution, shape = trial.solution, parameter_shape(trial.problem)
    claim(
        solution.value.shape == shape,
        f"value has shape {solution.value.shape}, not {shape}",
    )
    claim(isinstance(solution.result, Result), f"result is {solution.result!r}")
    stats = sorted(solution.stats)
    claim("n_iter" in stats, f"stats are {stats}, without n_iter")
    claim(len(solution.history) > 0, "the monitor was never called")
    expected = [dual.shape for dual in LBFGS().solve(trial.problem).dual]
    shapes = [dual.shape for dual in solution.dual]
    claim(shapes == expected, f"dual tables have shapes {shapes}, not {expected}")


def _path_is_in_order(trial: _Trial) -> None:
    weights = [0.5, 2.0]
    path = list(trial.solver.solve_path(trial.problem, weights))
    claim(len(path) == 2, f"2 weights gave {len(path)} solutions")
    for weight, solution in zip(weights, path, strict=True):
        trial.check_near(trial.problem.with_weight(weight), solution.value)


def _two_runs_agree(trial: _Trial) -> None:
    second = trial.solver.solve(trial.problem).value
    is_same = np.array_equal(trial.solution.value, second)
    claim(is_same, "two runs with the same seed differ")


SOLVER_LAWS: dict[str, Callable[[_Trial], None]] = {
    "data are left alone": _data_are_left_alone,
    "a whole solution": _gives_all_of_a_solution,
    "near the optimum": lambda trial: trial.check_near(
        trial.problem, trial.solution.value
    ),
    "a path in the order of its weights": _path_is_in_order,
    "two runs agree": _two_runs_agree,
}
