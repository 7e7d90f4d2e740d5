"""Fair trees on German, COMPAS and ACSIncome (California), as curves with ranges.

Five random splits each; a point is the median over splits on test rows, beside the
least and largest. COMPAS and ACSIncome are read from FFERM_DATA_HOME.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fferm import FairBoostingClassifier
from fferm.datasets import FairDataset, load_acs_income, load_compas, load_german
from fferm.errors import FfermWarning
from fferm.estimators.base import FitInput
from fferm.metrics import violation

SEEDS = range(5)
TREES = {"n_estimators": 100, "num_leaves": 7, "n_jobs": 1}
LARGE = {"n_estimators": 200, "num_leaves": 15, "n_jobs": 1}
WEIGHTS = (0, 1, 3, 10, 30, 100)
PARITY = "demographic_parity"
TASKS: tuple[tuple[str, Callable[..., FairDataset], str, dict[str, int]], ...] = (
    ("German", load_german, PARITY, TREES),
    ("COMPAS", load_compas, "equal_opportunity", TREES),
    ("COMPAS", load_compas, "equalized_odds", TREES),
    ("ACSIncome", load_acs_income, PARITY, LARGE),
)


def run() -> dict[str, Any]:
    """Return accuracy and violation, median, least and largest, by weight."""
    found: dict[str, Any] = {}
    lines = ["| data, notion | weight | accuracy | violation |", "|---|---|---|---|"]
    for name, load, notion, trees in TASKS:
        curves = [_curve(load(random_state=seed), notion, trees) for seed in SEEDS]
        for weight, *rows in zip(WEIGHTS, *curves, strict=True):
            key = f"{name}, {notion}, weight {weight}"
            accuracy, gap = np.array(rows).T
            found[key] = {"accuracy": accuracy.tolist(), "violation": gap.tolist()}
            words = f"{_words(accuracy)} | {_words(gap)}"
            lines.append(f"| {name}, {notion.replace('_', ' ')} | {weight} | {words} |")
            print(lines[-1], flush=True)
    return {**found, "tables": {"boosting-sets": lines}}


def _curve(
    data: FairDataset, notion: str, trees: dict[str, int]
) -> list[tuple[float, float]]:
    model = FairBoostingClassifier(notion=notion, random_state=0, **trees)
    given = FitInput(data.frame, data.y, data.sensitive_features)
    points = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FfermWarning)  # small groups are no news
        for fitted in model.fit_path(given, WEIGHTS):
            decided = fitted.predict(data.frame_test)
            gap = violation(
                data.y_test,
                decided,
                sensitive_features=data.sensitive_features_test,
                notion=notion,
            )
            points.append((float(np.mean(decided == data.y_test)), gap))
    return points


def _words(values: Sequence[float]) -> str:
    return f"{np.median(values):.4f} ({np.min(values):.4f} to {np.max(values):.4f})"
