"""The laws of solvers of linear models."""

from functools import partial
from typing import Any

import numpy as np

from fferm._typing import FloatArray
from fferm.data.rows import FitInput
from fferm.datasets import make_biased
from fferm.estimators import FairLogisticRegression
from fferm.penalty.objective import Problem
from fferm.solvers import LBFGS, Result, Solver
from fferm.solvers.linear import parameter_shape, value_and_gradient
from fferm.testing._assert import claim, law_of

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
        data = make_biased(300, n_classes=n_classes, bias=0.5, random_state=0)
        model = FairLogisticRegression(fairness_weight=2.0, l2=1e-2, **options)
        rows = FitInput(data.X, data.y, data.sensitive_features)
        _hold(solver, model._encode(rows)[1], slack, setting)


def _hold(solver: Solver[Any], problem: Problem, slack: float, setting: str) -> None:
    law = partial(law_of, solver, "solver", setting=setting)
    with law("data are left alone"):
        before = problem.X.copy(), problem.y.copy(), problem.share.copy()
        solution = solver.solve(problem)
        after = problem.X, problem.y, problem.share
        claim(all(map(np.array_equal, before, after)), "solve() wrote into the data")
    with law("a whole solution"):
        shape, expected = solution.value.shape, parameter_shape(problem)
        claim(shape == expected, f"value has shape {shape}, not {expected}")
        claim(isinstance(solution.result, Result), f"result is {solution.result!r}")
        stats = sorted(solution.stats)
        claim("n_iter" in stats, f"stats are {stats}, without n_iter")
        claim(len(solution.history) > 0, "the monitor was never called")
        tables = LBFGS().solve(problem).dual, solution.dual
        duals, shapes = ([dual.shape for dual in table] for table in tables)
        claim(shapes == duals, f"dual tables have shapes {shapes}, not {duals}")
    with law("near the optimum"):
        _is_near_optimum(problem, solution.value, slack)
    with law("a path in the order of its weights"):
        weights = [0.5, 2.0]
        path = list(solver.solve_path(problem, weights))
        claim(len(path) == 2, f"2 weights gave {len(path)} solutions")
        for weight, step in zip(weights, path, strict=True):
            _is_near_optimum(problem.with_weight(weight), step.value, slack)
    with law("two runs agree"):
        is_same = np.array_equal(solution.value, solver.solve(problem).value)
        claim(is_same, "two runs with the same seed differ")


def _is_near_optimum(problem: Problem, theta: FloatArray, slack: float) -> None:
    exact = LBFGS(tol=1e-7).solve(problem).value
    best, start, reached = (
        value_and_gradient(problem, at)[0] for at in (exact, 0 * exact, theta)
    )
    left = (reached - best) / (start - best)
    claim(
        left <= slack,
        f"at fairness_weight={problem.objective.fairness_weight:g}, {left:.3g} of "
        f"the way to the optimum is left, {slack:g} is allowed",
    )
