"""What accuracy each level of fairness leaves, beside fairlearn's reductions.

Adult by sex, the same 99 features for both. fferm draws its default curve once;
fairlearn fits a randomised ensemble per bound; its figures are expectations over it.
Differences have 95 % intervals of a bootstrap that draws the same test rows for both.
"""

from typing import Any

import numpy as np

from benchmarks.baselines import expected, exponentiated_gradient
from fferm import FairLogisticRegression, tradeoff_curve
from fferm._typing import FloatArray
from fferm.datasets import load_adult

LEVELS = (0.02, 0.05, 0.10)
BOUNDS = (0.005, 0.015, 0.035)  # of fairlearn, to each group's distance from the rate
N_DRAWS = 2000


def run() -> dict[str, Any]:
    """Return accuracy and violation on the test rows, of both."""
    data = load_adult(sensitive=("sex",))
    test = (data.X_test, data.y_test, data.sensitive_features_test)
    train = {"X": data.X, "y": data.y, "sensitive_features": data.sensitive_features}
    curve = tradeoff_curve(FairLogisticRegression(), **train, test=test)
    rows = curve.records[curve.records["split"] == "test"]
    found: dict[str, Any] = {}
    for level in LEVELS:
        best = rows[rows["violation"] <= level].nlargest(1, "accuracy").iloc[0]
        found[f"fferm, at most {level}"] = [best["accuracy"], best["violation"]]
        print(
            f"fferm at most {level}: {best['accuracy']:.4f} at {best['violation']:.4f}"
        )
    for bound in BOUNDS:
        ensemble = exponentiated_gradient(data, bound)
        accuracy, gap = expected(ensemble, data)
        nearest = rows.iloc[int((rows["violation"] - gap).abs().argmin())]
        near = [nearest["accuracy"], nearest["violation"]]
        model = curve.models[nearest["fairness_weight"], nearest["seed"]]
        chances = model.predict(data.X_test), ensemble._pmf_predict(data.X_test)[:, 1]
        drawn = _differences(data.y_test, data.sensitive_features_test, *chances)
        ends = np.quantile(drawn, [0.025, 0.975], axis=1)
        found[f"fairlearn, bound {bound}"] = [accuracy, gap, *near, ends.tolist()]
        print(
            f"fairlearn bound {bound}: {accuracy:.4f} at {gap:.4f}; nearest point of "
            f"fferm: {near[0]:.4f} at {near[1]:.4f}; differences "
            f"{near[0] - accuracy:+.4f} ({ends[0, 0]:+.4f} to {ends[1, 0]:+.4f}) and "
            f"{near[1] - gap:+.4f} ({ends[0, 1]:+.4f} to {ends[1, 1]:+.4f})",
            flush=True,
        )
    return found


def _differences(y: Any, sex: Any, ours: FloatArray, theirs: FloatArray) -> FloatArray:
    # (2, n_draws): of accuracy and violation between two models, on the same rows.
    chance, y, rng = np.stack([ours, theirs]), np.asarray(y), np.random.default_rng(0)
    right, group = np.where(y == 1, chance, 1 - chance), np.asarray(sex).ravel()
    is_first, drawn = group == group[0], np.empty((2, N_DRAWS))
    for i in range(N_DRAWS):
        times = rng.multinomial(y.size, np.full(y.size, 1 / y.size))
        rates = [
            (chance * times)[:, part].sum(axis=1) / times[part].sum()
            for part in (is_first, ~is_first)
        ]
        of_two = (right @ times) / y.size, np.abs(rates[0] - rates[1])
        drawn[:, i] = [ours - theirs for ours, theirs in of_two]
    return drawn
