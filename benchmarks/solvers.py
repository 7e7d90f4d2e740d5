"""How far each minibatch solver ends from the optimum of the full batch.

Adult by sex and race (ten groups), the defaults of every solver, the weights 1, 10 and
100 as lanes of one run. The optimum is that of L-BFGS; a robust penalty has kinks, at
which L-BFGS may stop above it.
"""

import time
from typing import Any

from benchmarks.batch_sizes import DIVERGENCES
from fferm import FairLogisticRegression, LargeShift, SmallShift
from fferm.data.rows import FitInput
from fferm.datasets import load_adult
from fferm.solvers import LBFGS
from fferm.solvers.stochastic import SGDA, SREDA, SemiStochastic

LINEAR = {"sgda": SGDA(), "sreda": SREDA(), "semi_stochastic": SemiStochastic()}
TABLE_ONLY = {"semi_stochastic": SemiStochastic()}
PENALTIES: dict[str, dict[str, Any]] = {
    **{name: {"divergence": name} for name in DIVERGENCES},
    "small shift": {"uncertainty": SmallShift(0.01)},
    "large shift": {
        "divergence": "jensen_shannon",
        "uncertainty": LargeShift(0.005),
    },
    "sufficiency": {"notion": "sufficiency"},
    "predictive parity": {"notion": "predictive_parity"},
}
WEIGHTS = (1.0, 10.0, 100.0)


def run() -> dict[str, Any]:
    """Return the excess over the optimum in percent, and the seconds of each run."""
    data = load_adult(sensitive=("sex", "race"))
    given = FitInput(data.X, data.y, data.sensitive_features)
    found = {}
    for name, options in PENALTIES.items():
        problem = FairLogisticRegression(**options)._encode(given)[1]
        best = [s.stats["objective"] for s in LBFGS().solve_path(problem, WEIGHTS)]
        solvers = LINEAR if name in DIVERGENCES else TABLE_ONLY
        for label, solver in solvers.items():
            began = time.perf_counter()
            solutions = list(solver.solve_path(problem, WEIGHTS))
            seconds = time.perf_counter() - began
            excess = [
                100 * (solution.stats["objective"] / optimum - 1)
                for solution, optimum in zip(solutions, best, strict=True)
            ]
            print(
                f"{name:18} {label:16}: "
                + ", ".join(f"{percent:.2f} %" for percent in excess)
                + f" above the optimum at weights 1, 10 and 100, {seconds:.1f} s",
                flush=True,
            )
            found[f"{name}, {label}"] = [*excess, seconds]
    return found
