"""Seconds to import fferm, and what the first fit takes more than the second.

Each figure comes from a fresh process; compiled code is in numba's cache on disk. Adult
by sex and race (four groups) is large enough for the fused full batch. ``import fferm``
is lazy, so the estimator is timed too, beside scikit-learn's logistic regression.
"""

from typing import Any

import numpy as np

from benchmarks.children import ask
from benchmarks.first_fit import ESTIMATORS
from benchmarks.timing import spread

ROUNDS = 5


def run() -> dict[str, Any]:
    """Return seconds of imports, first fit and second fit."""
    for what in (*ESTIMATORS, "sklearn"):
        _ask(what)  # fills the caches
    baseline, taken = [], []
    for _ in range(ROUNDS):
        baseline.append(_ask("sklearn"))
        taken.append([_ask(solver) for solver in ESTIMATORS])
    seconds = np.array(taken)  # (round, solver, import, estimator, first, second)
    found: dict[str, Any] = {
        "import fferm": spread(seconds[:, :, 0]),
        "with FairLogisticRegression": spread(seconds[:, :2, :2].sum(axis=2)),
        "import sklearn.linear_model": spread(baseline),
    }
    for at, solver in enumerate(ESTIMATORS):
        first, second = seconds[:, at, 2], seconds[:, at, 3]
        found[f"{solver}, first fit"] = spread(first)
        found[f"{solver}, second fit"] = spread(second)
        found[f"{solver}, first less second"] = spread(first - second)
    for name, values in found.items():
        print(f"{name}: {_words(values)}")
    print("asked: import below 1 s, first less second below 1 s")
    return {**found, "tables": {"latency": _table(found)}}


def _ask(what: str) -> Any:
    return ask("benchmarks.first_fit", what)


def _words(values: list[float]) -> str:
    median, least, largest = values
    return f"{median:.2f} s ({least:.2f}–{largest:.2f})"


def _table(found: dict[str, Any]) -> list[str]:
    rows = [
        f"| {name} | {_words(values)} |"
        for name, values in found.items()
        if "less" not in name
    ]
    return ["| | median (range) |", "|---|---|", *rows]
