"""A step of the fused kernel beside the PyTorch loop that a user would write.

Adult by sex and race (Black and White, four groups), KL, one thread each. Both take
the same step: the gradient of loss and penalty at the dual, and the ascent of the dual.
Each side is timed in turn, several times; the figure is the median, the spread its
range.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.timing import clock, in_words, interleaved, ratio
from fferm import FairLogisticRegression
from fferm.data.rows import FitInput
from fferm.datasets import load_adult
from fferm.penalty.objective import Problem
from fferm.solvers.base import Monitor
from fferm.solvers.stochastic import SGDA

# How many times faster than PyTorch a step should be.
BATCH_SIZES = {1: 200, 2: 200, 8: 80, 64: 20}
LANES = (1, 16)
# From this batch size on, sixteen lanes should cost no more than two.
LANES_FROM = 8
ROUNDS = 7
TORCH_STEPS = 300


def run() -> dict[str, Any]:
    """Return microseconds a step of kernel, lanes and PyTorch, and their ratios."""
    torch.set_num_threads(1)
    data = load_adult(sensitive=("sex", "race"), races=("Black", "White"))
    given = FitInput(data.X, data.y, data.sensitive_features)
    problem = FairLogisticRegression()._encode(given)[1]
    found: dict[str, Any] = {"ratios": {}}
    for batch_size, asked in BATCH_SIZES.items():
        sides = {
            f"{n} lanes": kernel_steps(problem, batch_size, n_lanes=n) for n in LANES
        }
        sides["torch"] = torch_steps(problem, batch_size)
        seconds = interleaved(sides, rounds=ROUNDS)
        micro = {name: 1e6 * float(np.median(s)) for name, s in seconds.items()}
        steps = ratio(seconds["torch"], seconds["1 lanes"], f"≥ {asked}")
        most = "≤ 2" if batch_size >= LANES_FROM else ""
        lanes = ratio(seconds["16 lanes"], seconds["1 lanes"], most)
        found[f"batch {batch_size}"] = micro
        found["ratios"][f"PyTorch / kernel, batch {batch_size}"] = steps
        if most:
            found["ratios"][f"16 lanes / 1 lane, batch {batch_size}"] = lanes
        print(
            f"batch {batch_size:>3}: kernel {micro['1 lanes']:.2f} us, 16 lanes "
            f"{micro['16 lanes']:.2f} us, PyTorch {micro['torch']:.0f} us; "
            f"PyTorch / kernel {in_words(steps)}; 16 / 1 lanes {in_words(lanes)}",
            flush=True,
        )
    return found


def kernel_steps(
    problem: Problem, batch_size: int, *, n_lanes: int
) -> Callable[[], float]:
    """Return a function that runs an epoch and returns its seconds a step."""
    solver = SGDA(batch_size=batch_size, max_epochs=1_000_000)
    weights = list(np.geomspace(0.1, 100, n_lanes))
    state = solver.begin(problem, None, weights)
    monitor = Monitor()

    def epoch() -> float:
        nonlocal state
        before = state.n_steps
        began = clock()
        state = solver.advance(problem, state, monitor)
        return (clock() - began) / (state.n_steps - before)

    return epoch


def torch_steps(problem: Problem, batch_size: int) -> Callable[[], float]:
    """Return a function that runs a plain training loop; its seconds a step."""
    assert problem.penalty is not None
    X = torch.tensor(problem.X)
    y = torch.tensor(problem.y)
    group = torch.tensor(problem.penalty.rows.attributes[0].code)
    prior = torch.bincount(group) / len(group)
    n_groups = len(prior)
    model = torch.nn.Linear(X.shape[1], 1, dtype=X.dtype)
    dual = torch.zeros(2, n_groups, dtype=X.dtype, requires_grad=True)
    descent = torch.optim.Adagrad(model.parameters(), lr=0.4, weight_decay=1e-4)
    ascent = torch.optim.SGD([dual], lr=0.01, maximize=True)

    def loop() -> float:
        began = clock()
        for _ in range(TORCH_STEPS):
            batch = torch.randint(len(y), (batch_size,))
            logits = model(X[batch])[:, 0]
            p = torch.sigmoid(logits)
            prob = torch.stack([1 - p, p], dim=1)
            members = torch.nn.functional.one_hot(group[batch], n_groups).to(X.dtype)
            joint = prob.T @ members / batch_size
            charge = (prior * (torch.exp(dual) - 1)).sum(dim=1)
            penalty = (joint * dual).sum() - (prob.mean(dim=0) * charge).sum()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                logits, y[batch].to(X.dtype)
            )
            descent.zero_grad()
            ascent.zero_grad()
            (loss + penalty).backward()
            descent.step()
            ascent.step()
        return (clock() - began) / TORCH_STEPS

    return loop
