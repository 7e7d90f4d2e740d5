"""How far minibatches end from the optimum of the full batch, at every batch size.

Adult by sex and race (ten groups), one set of defaults, the weights 1 and 10 as two
lanes of one run. The optimum is that of L-BFGS.
"""

import time
from typing import Any

from fferm import FairLogisticRegression
from fferm.datasets import load_adult
from fferm.estimators.base import FitInput
from fferm.solvers import LBFGS
from fferm.solvers.linear_sgda import SGDA

DIVERGENCES = (
    "kl",
    "chi2",
    "reverse_kl",
    "jensen_shannon",
    "squared_hellinger",
    "total_variation",
)
BATCH_SIZES = (1, 2, 8, 64, 1024, None)  # None is all rows
WEIGHTS = (1.0, 10.0)


def run() -> dict[str, Any]:
    """Return the excess over the optimum in percent, and the seconds of each run."""
    data = load_adult(sensitive=("sex", "race"))
    given = FitInput(data.X, data.y, data.sensitive_features)
    found = {}
    for divergence in DIVERGENCES:
        problem = FairLogisticRegression(divergence=divergence)._encode(given)[1]
        best = [s.stats["objective"] for s in LBFGS().solve_path(problem, WEIGHTS)]
        for batch_size in BATCH_SIZES:
            solver = SGDA(batch_size=batch_size or len(data.y))
            began = time.perf_counter()
            solutions = list(solver.solve_path(problem, WEIGHTS))
            seconds = time.perf_counter() - began
            excess = [
                100 * (solution.stats["objective"] / optimum - 1)
                for solution, optimum in zip(solutions, best, strict=True)
            ]
            print(
                f"{divergence:18} batch {batch_size or 'n':>5}: "
                + ", ".join(f"{percent:.2f} %" for percent in excess)
                + f" above the optimum at weights 1 and 10, {seconds:.1f} s",
                flush=True,
            )
            found[f"{divergence}, {batch_size or 'n'}"] = [*excess, seconds]
    return found
