"""Seconds to import fferm, and what the first fit takes more than the second.

Each figure comes from a fresh process; compiled code is in numba's cache on disk. Adult
by sex and race (four groups) is large enough for the fused full batch.
"""

import sys
import time
from typing import Any

import numpy as np

from benchmarks.children import ask
from benchmarks.timing import spread

ROUNDS = 5
SOLVERS = ("lbfgs", "sgda")


def run() -> dict[str, Any]:
    """Return seconds of import, first fit and second fit."""
    for solver in SOLVERS:
        ask("benchmarks.latency", solver)  # fills the cache
    found: dict[str, Any] = {}
    taken = [[ask("benchmarks.latency", s) for s in SOLVERS] for _ in range(ROUNDS)]
    seconds = np.array(taken)  # (round, solver, import or first or second fit)
    found["import"] = spread(seconds[:, :, 0])
    print(f"import {_words(found['import'])}, asked less than 1 s")
    for at, solver in enumerate(SOLVERS):
        first, second = seconds[:, at, 1], seconds[:, at, 2]
        found[solver] = {
            "first": spread(first),
            "second": spread(second),
            "more": spread(first - second),
        }
        print(
            f"{solver}: first fit {_words(found[solver]['first'])}, second "
            f"{_words(found[solver]['second'])}, difference "
            f"{_words(found[solver]['more'])}, asked less than 2 s"
        )
    return found


def _words(values: list[float]) -> str:
    median, least, largest = values
    return f"{median:.2f} s ({least:.2f} to {largest:.2f})"


def child(solver: str) -> list[float]:
    """Return the seconds of import, first and second fit in this process."""
    began = time.perf_counter()
    from fferm import FairLogisticRegression

    seconds = [time.perf_counter() - began]
    from fferm.datasets import load_adult

    data = load_adult(sensitive=("sex", "race"), races=("Black", "White"))
    for _ in range(2):
        model = FairLogisticRegression(solver=solver, random_state=0)
        began = time.perf_counter()
        model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
        seconds.append(time.perf_counter() - began)
    return seconds


if __name__ == "__main__":
    print(child(sys.argv[1]))
