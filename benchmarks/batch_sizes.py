"""How far minibatches end from the optimum of the full batch, at every batch size.

Adult by sex and race, four groups (Black and White) and ten (all races); one set of
defaults, the weights as lanes of one run. The optimum is that of L-BFGS. Three figures
each: the objective above the optimum's, and the differences of accuracy and violation
on test rows from the optimum's.
"""

import time
from typing import Any

import numpy as np

from fferm import FairLogisticRegression
from fferm.data.rows import FitInput
from fferm.datasets import FairDataset, load_adult
from fferm.metrics import violation
from fferm.penalty.objective import Problem
from fferm.solvers import LBFGS, Solution
from fferm.solvers.linear import linear_logits
from fferm.solvers.stochastic import SGDA

DIVERGENCES = (
    "kl",
    "chi2",
    "reverse_kl",
    "jensen_shannon",
    "squared_hellinger",
    "total_variation",
)
BATCH_SIZES = (1, 2, 8, 64, 1024, None)  # None is all rows
WEIGHTS = (1.0, 10.0, 100.0)
RACES = {"four groups": ("Black", "White"), "ten groups": None}
MEASURES = {
    "objective": "objective above the optimum's, %",
    "accuracy": "accuracy on test rows less the optimum's, points of 100",
    "violation": "violation on test rows less the optimum's, points of 100",
}


def run() -> dict[str, Any]:
    """Return the three figures of every run by weight, all in percent, and seconds."""
    found: dict[str, Any] = {"tables": {}}
    for name, races in RACES.items():
        data = load_adult(sensitive=("sex", "race"), races=races)
        print(f"{name}; figures in percent at weights 1, 10 and 100")
        given = FitInput(data.X, data.y, data.sensitive_features)
        found[name] = {}
        for divergence in DIVERGENCES:
            problem = FairLogisticRegression(divergence=divergence)._encode(given)[1]
            found[name][divergence] = _gaps(problem, data)
        slug = name.replace(" ", "_")
        found["tables"][f"batch_sizes_{slug}"] = _table(found[name])
    return found


def _gaps(problem: Problem, data: FairDataset) -> dict[str, Any]:
    best = [_reached(s, data) for s in LBFGS().solve_path(problem, WEIGHTS)]
    found = {}
    for batch_size in BATCH_SIZES:
        solver = SGDA(batch_size=batch_size or len(data.y))
        began = time.perf_counter()
        solutions = list(solver.solve_path(problem, WEIGHTS))
        seconds = time.perf_counter() - began
        ended = np.array([_reached(solution, data) for solution in solutions])
        gaps = 100 * (ended - best)
        gaps[:, 0] /= np.array(best)[:, 0]
        figures = {measure: gaps[:, at].tolist() for at, measure in enumerate(MEASURES)}
        print(
            f"{problem.objective.divergence!r:20} batch {batch_size or 'n':>5}: "
            + "; ".join(f"{name} {_cell(gap)}" for name, gap in figures.items())
            + f"; {seconds:.1f} s",
            flush=True,
        )
        found[str(batch_size or "n")] = {**figures, "seconds": seconds}
    return found


def _reached(solution: Solution, data: FairDataset) -> tuple[float, float, float]:
    decided = linear_logits(data.X_test, solution.value).argmax(axis=1)
    sensitive = data.sensitive_features_test
    return (
        solution.stats["objective"],
        float((decided == data.y_test).mean()),
        violation(data.y_test, decided, sensitive_features=sensitive),
    )


def _cell(gaps: list[float]) -> str:
    return " / ".join(f"{gap:.2f}" for gap in gaps)


def _table(found: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for measure, title in MEASURES.items():
        sizes = [str(size or "all rows") for size in BATCH_SIZES]
        lines += [f"| {title} | " + " | ".join(sizes) + " |"]
        lines += ["|---|" + "---|" * len(sizes)]
        for divergence, runs in found.items():
            cells = " | ".join(_cell(run[measure]) for run in runs.values())
            lines.append(f"| `{divergence}` | {cells} |")
        lines.append("")
    return lines[:-1]
