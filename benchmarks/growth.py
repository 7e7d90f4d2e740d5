"""How time and memory grow with the rows: 10^4 to 10^7, dense, 20 features, 4 groups.

Each size runs in a fresh process, sizes in turn, several rounds. Time is of epochs of
the minibatch kernel and of fused full-batch passes. Memory is the peak while solving
or fitting over what was resident before; X and the labels are there before.
"""

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.children import ask, memory, reset_peak
from benchmarks.timing import clock, spread

SIZES = (10**4, 10**5, 10**6, 10**7)
N_FEATURES = 20
N_GROUPS = 4
ROUNDS = 3
# A side is repeated until it has touched this many rows.
LEAST_ROWS = 10**6
SIDES = ("sgda, batch 64", "sgda, batch 8", "fused pass")
FITS = ("sgda", "lbfgs")


def run() -> dict[str, Any]:
    """Return nanoseconds a row, and bytes a row beyond X, by size."""
    rounds = []
    for _ in range(ROUNDS):
        rounds.append({n: ask("benchmarks.growth", "time", n) for n in SIZES})
    found: dict[str, Any] = {"nanoseconds a row": {}, "bytes a row": {}}
    ratios = {}
    for side in SIDES:
        nano = {n: spread([taken[n][side] for taken in rounds]) for n in SIZES}
        found["nanoseconds a row"][side] = nano
        worst = [max(t[n][side] for n in SIZES) for t in rounds]
        best = [min(t[n][side] for n in SIZES) for t in rounds]
        ratios[side] = spread(np.divide(worst, best))
        print(
            f"{side}: "
            + ", ".join(f"{n:.0e} rows {v[0]:.0f} ns" for n, v in nano.items())
        )
        print(f"  dearest / cheapest {ratios[side][0]:.2f}, asked at most 1.25")
    for side in ("sgda", "fused pass", *(f"fit, {solver}" for solver in FITS)):
        used = {n: ask("benchmarks.growth", side, n) / n for n in SIZES}
        found["bytes a row"][side] = used
        print(
            f"{side}, beyond X: "
            + ", ".join(f"{n:.0e} rows {b:.0f} bytes a row" for n, b in used.items()),
            flush=True,
        )
    found["dearest / cheapest"] = ratios
    return {**found, "tables": {"growth": _table(found)}}


def _table(found: dict[str, Any]) -> list[str]:
    lines = [
        "| | " + " | ".join(f"10^{round(np.log10(n))}" for n in SIZES) + " |",
        "|---|" + "---|" * len(SIZES),
    ]
    for side, nano in found["nanoseconds a row"].items():
        cells = [f"{v[0]:.0f} ({v[1]:.0f} to {v[2]:.0f})" for v in nano.values()]
        lines.append(f"| {side}, ns a row | " + " | ".join(cells) + " |")
    for side, used in found["bytes a row"].items():
        cells = [f"{value:.0f}" for value in used.values()]
        lines.append(f"| {side}, bytes a row beyond X | " + " | ".join(cells) + " |")
    return lines


def make_rows(n: int) -> tuple[Any, Any, Any]:
    """Return features, labels and groups of synthetic rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, N_FEATURES))
    group = rng.integers(0, N_GROUPS, n, dtype=np.int8)
    X[:, 0] += group / N_GROUPS
    y = (X[:, 0] + X[:, 1] + rng.standard_normal(n) > 1).astype(np.int8)
    return X, y, group


def _problem(n: int) -> Any:
    from fferm import FairLogisticRegression
    from fferm.estimators.base import FitInput

    return FairLogisticRegression()._encode(FitInput(*make_rows(n)))[1]


def _times(n: int) -> dict[str, float]:
    from benchmarks.steps import kernel_steps
    from fferm.solvers.full_batch import FusedEvaluator

    problem = _problem(n)
    evaluator = FusedEvaluator(problem)
    theta = np.full((1, N_FEATURES + 1), 0.1)

    def full() -> float:
        began = clock()
        evaluator.value_and_gradient(problem, theta)
        return (clock() - began) / n

    found = {}
    for name, size in (("sgda, batch 64", 64), ("sgda, batch 8", 8)):
        epoch = kernel_steps(problem, size, n_lanes=1)
        found[name] = _median(lambda epoch=epoch, size=size: epoch() / size, n)
    return {**found, "fused pass": _median(full, n)}


def _median(side: Callable[[], float], n: int) -> float:
    side()  # loads the code and touches the rows
    return 1e9 * float(np.median([side() for _ in range(max(2, LEAST_ROWS // n))]))


def _peak(function: Callable[[], Any]) -> int:
    reset_peak()
    before = memory("VmRSS")
    function()
    return memory("VmHWM") - before


def _used(side: str, n: int) -> int:
    from fferm import FairLogisticRegression
    from fferm.solvers.full_batch import FusedEvaluator
    from fferm.solvers.linear_sgda import SGDA

    def fit(X: Any, y: Any, group: Any) -> Any:
        model = FairLogisticRegression(
            solver=side.removeprefix("fit, "), max_epochs=1, max_iter=3
        )
        return model.fit(X, y, sensitive_features=group)

    def solve(problem: Any) -> Any:
        if side == "sgda":
            return SGDA(max_epochs=1).solve(problem)
        theta = np.full((1, N_FEATURES + 1), 0.1)
        return FusedEvaluator(problem).value_and_gradient(problem, theta)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # three iterations do not converge
        if side.startswith("fit"):
            fit(*make_rows(30_000))  # loads the code
            rows = make_rows(n)
            return _peak(lambda: fit(*rows))
        solve(_problem(30_000))
        problem = _problem(n)
        return _peak(lambda: solve(problem))


if __name__ == "__main__":
    what, size = sys.argv[1], int(sys.argv[2])
    print(json.dumps(_times(size) if what == "time" else _used(what, size)))
