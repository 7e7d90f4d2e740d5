"""How time and memory grow with the rows: 10^4 to 10^7, dense, 20 features, 4 groups.

Time is of epochs of the minibatch kernel and of fused full-batch passes. Sizes take
turns in one process, slice by slice, and a size is compared with the mean of its round:
the machine is faster at one moment than at the next, and the dearest of four noisy
numbers is above the cheapest even where all are the same.
Memory is the peak of a fit in a process of its own, over what was resident before: X,
labels and groups, as whole numbers of eight bytes, of one byte, or as text.
"""

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.children import ask, memory, reset_peak
from benchmarks.timing import clock, interleaved, spread

SIZES = (10**4, 10**5, 10**6, 10**7)
N_FEATURES = 20
N_GROUPS = 4
ROUNDS = 20
# A slice ends when it has touched this many rows.
SLICE = 1_000_000
SIDES = ("sgda, batch 64", "sgda, batch 8", "fused pass")
FITS = ("sgda", "lbfgs")
KINDS = {"int64": np.int64, "int8": np.int8, "text": np.array(["a", "b", "c", "d"])}


def run() -> dict[str, Any]:
    """Return nanoseconds a row, and megabytes beyond X, labels and groups."""
    found: dict[str, Any] = {"nanoseconds a row": {}, "megabytes": {}}
    ratios = {}
    for side, rounds in ask("benchmarks.growth", "time").items():
        taken = np.array(rounds)  # (rounds, sizes)
        found["nanoseconds a row"][side] = [spread(times) for times in taken.T]
        relative = np.median(taken / taken.mean(axis=1, keepdims=True), axis=0)
        least = taken.min(axis=0)
        ratios[side] = [float(each.max() / each.min()) for each in (relative, least)]
        print(side, "ns a row:", np.median(taken, axis=0).round().tolist())
        print("  over the mean of the round:", relative.round(3).tolist())
        print("  least:", least.round().tolist())
        print(
            "  dearest / cheapest {:.2f}, of least times {:.2f}".format(*ratios[side])
        )
    for solver in FITS:
        for kind in KINDS:
            used = [ask("benchmarks.growth", solver, kind, n) / 1e6 for n in SIZES]
            side = f"{solver}, {kind}"
            found["megabytes"][side] = used
            print(side, "MB:", np.round(used, 1).tolist(), flush=True)
    found["dearest / cheapest"] = ratios
    return {**found, "tables": {"growth": _table(found)}}


def _table(found: dict[str, Any]) -> list[str]:
    powers = [f"10^{round(np.log10(n))}" for n in SIZES]
    lines = [
        "| | " + " | ".join(powers) + " | dearest / cheapest |",
        "|---|" + "---|" * (len(SIZES) + 1),
    ]
    for side, nano in found["nanoseconds a row"].items():
        cells = [f"{median:.0f} ({a:.0f}–{b:.0f})" for median, a, b in nano]
        cells.append(f"{found['dearest / cheapest'][side][0]:.2f}")
        lines.append(f"| {side}, ns a row | " + " | ".join(cells) + " |")
    for kind in KINDS:
        used = found["megabytes"][f"sgda, {kind}"]
        cells = [f"{value:.1f}" for value in used]
        lines.append(f"| {kind}, MB | " + " | ".join(cells) + " | |")
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
    from fferm.data.rows import FitInput

    return FairLogisticRegression()._encode(FitInput(*make_rows(n)))[1]


def _times() -> dict[str, list[list[float]]]:
    problems = {n: _problem(n) for n in SIZES}
    sides = {
        (side, n): _side(side, problem)
        for side in SIDES
        for n, problem in problems.items()
    }
    taken = interleaved(sides, rounds=ROUNDS)
    return {
        side: np.transpose([taken[side, n] for n in SIZES]).tolist() for side in SIDES
    }


def _side(side: str, problem: Any) -> Callable[[], float]:
    """Return a function that runs a slice and returns its nanoseconds a row."""
    from fferm.solvers.full_batch import FusedEvaluator
    from fferm.solvers.stochastic import SGDA

    n_rows = problem.y.size

    def passes() -> Any:
        evaluator = FusedEvaluator(problem)
        theta = np.full((1, N_FEATURES + 1), 0.1)
        while True:
            evaluator.value_and_gradient(problem, theta)
            yield n_rows

    def epochs(solver: SGDA) -> Any:
        state = solver.begin(problem, None, [1.0])
        while True:
            before = 0
            for n_steps in solver.run_chunk(problem, state):
                yield (n_steps - before) * solver.batch_size
                before = n_steps

    size = side.rpartition("batch ")[2]
    parts = passes() if side == "fused pass" else epochs(SGDA(batch_size=int(size)))

    def slice_of_rows() -> float:
        n_touched, began = 0, clock()
        while n_touched < SLICE:
            n_touched += next(parts)
        return 1e9 * (clock() - began) / n_touched

    return slice_of_rows


def _peak_of_fit(solver: str, kind: str, n: int) -> int:
    from fferm import FairLogisticRegression

    def fit(X: Any, y: Any, group: Any) -> None:
        model = FairLogisticRegression(solver=solver, max_epochs=1, max_iter=3)
        model.fit(X, y, sensitive_features=group)

    def rows_of(n: int) -> tuple[Any, Any, Any]:
        X, y, group = make_rows(n)
        known = KINDS[kind]
        if isinstance(known, np.ndarray):
            return X, known[y], known[group]
        return X, y.astype(known), group.astype(known)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # three iterations do not converge
        fit(*rows_of(50_000))  # loads the code
        rows = rows_of(n)
        reset_peak()
        before = memory("VmRSS")
        fit(*rows)
        return memory("VmHWM") - before


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    found = _times() if what == "time" else _peak_of_fit(what, rest[0], int(rest[1]))
    print(json.dumps(found))
