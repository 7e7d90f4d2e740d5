"""Twenty points times five seeds against one fit of fairlearn's for each point.

Adult by sex, the same 99 features for both, one thread for each. fferm sweeps five
seeds, kept in memory and, as a user would who expects to be interrupted, recorded with
every model and an audit of it. fairlearn fits ExponentiatedGradient once at each of
twenty bounds: twenty models where fferm has a hundred.
"""

import tempfile
from typing import Any

import numpy as np

from benchmarks.baselines import exponentiated_gradient
from benchmarks.timing import Timed, ratio
from fferm import FairLogisticRegression, TradeoffCurve, tradeoff_curve
from fferm.datasets import FairDataset, load_adult

N_POINTS, N_SEEDS = 20, 5
# Of fairlearn, to each group's distance from the overall rate.
BOUNDS = np.geomspace(0.001, 0.1, N_POINTS)


def run() -> dict[str, Any]:
    """Return seconds of both sides and their ratios, of one run."""
    data = load_adult(sensitive=("sex",))
    _sweep(data, None, 1)  # compiled code is loaded once
    sides = {
        "in memory": Timed(lambda: _sweep(data, None)),
        "recorded": _recorded(data),
    }
    seconds = {f"{N_POINTS} x {N_SEEDS}, {name}": t() for name, t in sides.items()}
    fits = [
        Timed(lambda bound=bound: exponentiated_gradient(data, bound))()
        for bound in BOUNDS.tolist()
    ]
    baseline = f"{N_POINTS} fits of ExponentiatedGradient"
    ratios = {
        f"{baseline} / {name}": ratio([sum(fits)], [taken], "> 1")
        for name, taken in seconds.items()
    }
    for name, taken in {**seconds, baseline: sum(fits)}.items():
        print(f"{name}: {taken:.2f} s")
    for name, found in ratios.items():
        print(f"{name}: {found['median']:.1f}")
    return {"seconds": {**seconds, baseline: sum(fits)}, "fits": fits, "ratios": ratios}


def _recorded(data: FairDataset) -> Timed:
    def record() -> TradeoffCurve:
        with tempfile.TemporaryDirectory() as folder:
            return _sweep(data, folder)

    return Timed(record)


def _sweep(
    data: FairDataset, records: str | None, n_seeds: int = N_SEEDS
) -> TradeoffCurve:
    return tradeoff_curve(
        FairLogisticRegression(),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        test=(data.X_test, data.y_test, data.sensitive_features_test),
        fairness_weights=N_POINTS,
        seeds=n_seeds,
        records=records,
    )
