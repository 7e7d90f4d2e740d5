"""How far the kernels are from the machine: bytes and flops a second, as shares.

The machine is what NumPy reaches in the same rounds, one thread: a copy between arrays
far larger than the caches (bytes read and bytes written), and dot products of vectors
within them and far beyond (flops).

Counted are the entries of X: 8 bytes each where rows are dense, 12 in CSR, once a pass;
and the flops of its products, for an entry and lane 4 of a minibatch step (logit,
gradient) and 6 of a full-batch pass (logit, gradient of the loss, gradient of the
table). Not counted: exponentials, labels, weights and groups, the order of rows, the
steps of Adagrad, averaging, and the dual.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.steps import InOrder, kernel_steps
from benchmarks.timing import clock, interleaved, spread
from fferm import FairLogisticRegression
from fferm.data.rows import FitInput
from fferm.datasets import load_adult
from fferm.penalty.objective import Problem
from fferm.solvers.full_batch import FusedEvaluator, make_rows

ROUNDS = 7
LARGE = 2**25  # numbers: 256 MB
CACHED = 2**10  # two vectors of 8 kB
TIMES = 10_000
BATCH_SIZE = 64
LANES = (1, 16)


def run() -> dict[str, Any]:
    """Return gigabytes and gigaflops a second, of machine and kernels, and shares."""
    data = load_adult(sensitive=("sex", "race"), races=("Black", "White"))
    given = FitInput(data.X, data.y, data.sensitive_features)
    problem = FairLogisticRegression()._encode(given)[1]
    kernels = _kernels(problem)
    sides = {**_machine(), **{k: _second(side) for k, (side, *_) in kernels.items()}}
    seconds = {k: np.array(v) for k, v in interleaved(sides, rounds=ROUNDS).items()}
    machine = {
        "copy, GB/s": 16 * LARGE / seconds["copy"] / 1e9,
        "large dot, GB/s": 16 * LARGE / seconds["large dot"] / 1e9,
        "large dot, Gflop/s": 2 * LARGE / seconds["large dot"] / 1e9,
        "cached dot, Gflop/s": 2 * CACHED / seconds["cached dot"] / 1e9,
    }
    for name, values in machine.items():
        print(f"{name}: {_words(values)}")
    found: dict[str, Any] = {name: spread(v) for name, v in machine.items()}
    for name, (_, n_bytes, n_flops) in kernels.items():
        rate = n_bytes / seconds[name] / 1e9
        flops = n_flops / seconds[name] / 1e9
        shares = {
            "of the copy": rate / machine["copy, GB/s"],
            "of the cached dot": flops / machine["cached dot, Gflop/s"],
        }
        found[name] = {
            "ns a row": spread(1e9 * seconds[name] / problem.y.size),
            "GB/s": spread(rate),
            "Gflop/s": spread(flops),
            **{share: spread(values) for share, values in shares.items()},
        }
        print(_line(name, found[name]), flush=True)
    return {**found, "tables": {"machine": _table(found, list(kernels))}}


def _table(found: dict[str, Any], kernels: list[str]) -> list[str]:
    lines = [
        "| | ns a row | GB/s | of the copy | Gflop/s | of the dot |",
        "|---|---|---|---|---|---|",
    ]
    copy, dot = found["copy, GB/s"][0], found["cached dot, Gflop/s"][0]
    lines.append(f"| copy of 256 MB | | {copy:.1f} | | | |")
    lines.append(f"| dot product in cache | | | | {dot:.1f} | |")
    rate, flops = found["large dot, GB/s"][0], found["large dot, Gflop/s"][0]
    lines.append(f"| dot product of 256 MB vectors | | {rate:.1f} | | {flops:.1f} | |")
    return [*lines, *(_line(name, found[name]) for name in kernels)]


def _line(name: str, row: dict[str, Any]) -> str:
    copy, dot = 100 * row["of the copy"][0], 100 * row["of the cached dot"][0]
    return (
        f"| {name} | {row['ns a row'][0]:.0f} | {row['GB/s'][0]:.2f} | {copy:.1f} % | "
        f"{row['Gflop/s'][0]:.2f} | {dot:.1f} % |"
    )


def _words(values: Any) -> str:
    median, least, largest = spread(values)
    return f"{median:.2f} ({least:.2f}–{largest:.2f})"


def _machine() -> dict[str, Callable[[], float]]:
    rng = np.random.default_rng(0)
    a, b = rng.random(LARGE), rng.random(LARGE)
    # Many products in one call, for a call takes longer than a product.
    many = np.broadcast_to(a[:CACHED].copy(), (TIMES, CACHED)), b[:CACHED].copy()
    return {
        "copy": lambda: _seconds(lambda: np.copyto(a, b)),
        "large dot": lambda: _seconds(lambda: a @ b),
        "cached dot": lambda: _seconds(lambda: np.vecdot(*many)) / TIMES,
    }


def _second(side: Callable[[], float]) -> Callable[[], float]:
    # The copy before has emptied the caches; what counts is a pass after a pass.
    return lambda: (side(), side())[1]


def _seconds(function: Callable[[], Any]) -> float:
    began = clock()
    function()
    return clock() - began


def _kernels(problem: Problem) -> dict[str, tuple[Callable[[], float], float, float]]:
    # The seconds of a pass, its bytes and its flops.
    rows = make_rows(problem)
    dense = problem.X.size
    stored = rows.X[0].size
    n_batches = -(-problem.y.size // BATCH_SIZE)
    found = {}
    for n_lanes, rng in ((1, None), (1, InOrder()), (16, None), (16, InOrder())):
        epoch = kernel_steps(problem, BATCH_SIZE, n_lanes=n_lanes, rng=rng)
        order = ", rows in order" if rng else ""
        found[f"epoch, batch 64, CSR, {n_lanes} lanes{order}"] = (
            lambda epoch=epoch: n_batches * epoch(),
            12 * stored,
            4 * stored * n_lanes,
        )
    for kind, kept, size, entries in (
        ("CSR", rows.X, 12, stored),
        ("dense", (problem.X, None, None), 8, dense),
    ):
        evaluator = FusedEvaluator(problem, rows._replace(X=kept))
        for n_lanes in LANES:
            found[f"full-batch pass, {kind}, {n_lanes} lanes"] = (
                _full_pass(problem, evaluator, n_lanes),
                size * entries,
                6 * entries * n_lanes,
            )
    return found


def _full_pass(
    problem: Problem, evaluator: FusedEvaluator, n_lanes: int
) -> Callable[[], float]:
    theta = np.full((1, problem.X.shape[1] + 1), 0.1)
    return lambda: _seconds(lambda: evaluator._pass(problem, [theta] * n_lanes))
