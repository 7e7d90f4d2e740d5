"""The bands of a curve cover what its models do on all rows there could be."""

import numpy as np
import pandas as pd
import pytest

from fferm import TradeoffCurve
from fferm.curve.curve import TEST_SHARE
from fferm.metrics.intervals import violation_interval, wilson_interval

N_CURVES = 300
N_TEST = 200
LEVEL = 0.95
# Three standard errors of a share of 300 curves below the level.
LEAST = LEVEL - 3 * np.sqrt(LEVEL * (1 - LEVEL) / N_CURVES)


def draw_rows(n, shift, rng):
    group = (rng.random(n) < 0.4).astype(int)
    x = rng.normal(size=(n, 2)) + np.outer(shift * group, [1, 0])
    return x, x.sum(axis=1) + rng.normal(size=n) > 0.2, group


def draw_model(spread, rng):
    """Return the coefficients of a seed: training is noise about the best model."""
    return 1 + spread * rng.normal(size=2)


def measures(model, x, y, group):
    """Return accuracy and violation, the rates of both groups and their sizes."""
    decision = x @ model > 0.2
    size = np.bincount(group, minlength=2)
    rate = np.bincount(group, weights=decision, minlength=2) / size
    return np.mean(decision == y), abs(rate[1] - rate[0]), rate, size


def record(curve, seed, model, rows):
    accuracy, violation, rate, size = measures(model, *rows)
    accuracy_low, accuracy_high = wilson_interval(accuracy, size.sum())
    low, high = violation_interval([rate[None]], [size[None].astype(float)])
    return {
        "curve": curve,
        "fairness_weight": 1.0,
        "seed": seed,
        "split": "test",
        "accuracy": accuracy,
        "violation": violation,
        "collapsed": False,
        "accuracy_low": accuracy_low,
        "accuracy_high": accuracy_high,
        "violation_low": low,
        "violation_high": high,
    }


def draw_bands(shift, spread, n_seeds, test, rng):
    """Return the bands of many curves, each of a data set of its own."""
    share, records = TEST_SHARE if test == "held out" else 1.0, []
    names = [f"curve {i}" for i in range(N_CURVES)]
    for name in names:
        whole = draw_rows(round(N_TEST / share), shift, rng)
        for seed in range(n_seeds):
            kept = rng.permutation(len(whole[1]))[:N_TEST]
            rows = [column[kept] for column in whole]
            records.append(record(name, seed, draw_model(spread, rng), rows))
    about = {name: {"test": test} for name in names}
    return TradeoffCurve(pd.DataFrame(records), {}, about).bands()


@pytest.mark.parametrize("test", ["given", "held out"])
@pytest.mark.parametrize("shift", [0.0, 0.2, 1.0])
@pytest.mark.parametrize(("spread", "n_seeds"), [(0.0, 4), (0.2, 4), (0.2, 15)])
def test_bands_cover_the_mean_of_the_seeds(spread, n_seeds, shift, test):
    rng = np.random.default_rng(5)
    everyone = draw_rows(100_000, shift, rng)
    models = [draw_model(spread, rng) for _ in range(60 if spread else 1)]
    truth = np.mean([measures(model, *everyone)[:2] for model in models], axis=0)

    bands = draw_bands(shift, spread, n_seeds, test, rng)

    for name, value in zip(("accuracy", "violation"), truth, strict=True):
        low, high = bands[f"{name}_low"], bands[f"{name}_high"]
        assert ((low <= value) & (value <= high)).mean() >= LEAST
