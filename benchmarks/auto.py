"""What `solver="auto"` chooses between: the full batch and minibatches, by size.

One model and a path of twenty, KL, the defaults of both solvers, one thread each. The
excess is that of minibatches over the full batch, the largest of the path.
"""

import time
from typing import Any

from fferm import FairLogisticRegression
from fferm.data.rows import FitInput
from fferm.datasets import load_adult, load_german, make_biased
from fferm.fairness_grid import default_weights
from fferm.penalty.objective import Problem
from fferm.solvers import LBFGS, Solver, choose
from fferm.solvers.stochastic import SGDA


def run() -> dict[str, Any]:
    """Return processor seconds of both solvers, for one model and for twenty."""
    found = {}
    for name, data in _data_sets():
        given = FitInput(data.X, data.y, data.sensitive_features)
        model = FairLogisticRegression(fairness_weight=10.0)
        problem = model._encode(given)[1]
        weights = default_weights(problem.objective.divergence, 20)
        size = problem.X.shape[0] * problem.X.shape[1]
        for n_models, asked in ((1, [10.0]), (20, [float(w) for w in weights])):
            full, best = _timed(LBFGS(), problem, asked)
            small, ends = _timed(SGDA(), problem, asked)
            excess = max(100 * (e / b - 1) for e, b in zip(ends, best, strict=True))
            chosen = choose("auto", problem.objective, size, asked)
            found[f"{name}, {n_models} models"] = [full, small, excess, chosen]
            print(
                f"{name:12} {size:>11,} numbers, {n_models:>2} models: full batch "
                f"{full:.2f} s, minibatches {small:.2f} s (at most {excess:.2f} % "
                f"above); auto takes {chosen}",
                flush=True,
            )
    return found


def _data_sets() -> Any:
    yield "german", load_german(sensitive=("sex",))
    yield "adult", load_adult(sensitive=("sex",))
    for n_rows in (100_000, 1_000_000):
        yield f"{n_rows:,} rows", make_biased(n_rows, n_features=20, random_state=0)


def _timed(
    solver: Solver[Any], problem: Problem, weights: list[float]
) -> tuple[float, list[float]]:
    next(iter(solver.solve_path(problem, weights[:1])))  # compiled and warm
    began = time.process_time()
    ends = [s.stats["objective"] for s in solver.solve_path(problem, weights)]
    return time.process_time() - began, ends
