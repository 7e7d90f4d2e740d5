"""Fair trees on German, COMPAS and ACSIncome (California), as curves with ranges.

Five random splits each; a point is the median over splits on test rows, beside the
least and largest. LightGBM under fairlearn's methods gets the same splits and trees:
ExponentiatedGradient predicts at random from an ensemble, and its figures are
expectations over it; ThresholdOptimizer needs the group of whoever it decides about.
COMPAS and ACSIncome are read from FFERM_DATA_HOME.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import (
    DemographicParity,
    EqualizedOdds,
    ExponentiatedGradient,
    TruePositiveRateParity,
)
from lightgbm import LGBMClassifier

from fferm import FairBoostingClassifier
from fferm._typing import FloatArray
from fferm.data.rows import FitInput
from fferm.datasets import FairDataset, load_acs_income, load_compas, load_german

SEEDS = range(5)
SMALL = {"n_estimators": 100, "num_leaves": 7, "n_jobs": 1}
LARGE = {"n_estimators": 200, "num_leaves": 15, "n_jobs": 1}
WEIGHTS = (0, 1, 3, 10, 30, 100)
BOUNDS = (0.005, 0.02)  # of fairlearn, to each group's distance from the rate of all


@dataclass(frozen=True)
class Task:
    """A data set, what is asked of its groups, and how baselines call that."""

    name: str
    load: Callable[..., FairDataset]
    notion: str
    trees: dict[str, int]
    constraint: Any
    threshold_constraint: str


PARITY = ("demographic_parity", DemographicParity, "demographic_parity")
TASKS = (
    Task("German", load_german, PARITY[0], SMALL, *PARITY[1:]),
    Task(
        "COMPAS",
        load_compas,
        "equal_opportunity",
        SMALL,
        TruePositiveRateParity,
        "true_positive_rate_parity",
    ),
    Task(
        "COMPAS", load_compas, "equalized_odds", SMALL, EqualizedOdds, "equalized_odds"
    ),
    Task("ACSIncome", load_acs_income, PARITY[0], LARGE, *PARITY[1:]),
)


def run() -> dict[str, Any]:
    """Return accuracy and violation, median, least and largest, by model."""
    found: dict[str, Any] = {}
    lines = ["| data, notion | model | accuracy | violation |", "|---|---|---|---|"]
    for task in TASKS:
        points: dict[str, list[tuple[float, float]]] = {}
        for seed in SEEDS:
            data = task.load(random_state=seed)
            for model, chance in _chances(task, data):
                points.setdefault(model, []).append(_measured(task, data, chance))
        asked = f"{task.name}, {task.notion.replace('_', ' ')}"
        for model, rows in points.items():
            accuracy, gap = np.array(rows).T
            figures = {"accuracy": accuracy.tolist(), "violation": gap.tolist()}
            found[f"{asked}, {model}"] = figures
            words = f"{_words(accuracy)} | {_words(gap)}"
            lines.append(f"| {asked} | {model} | {words} |")
            print(lines[-1], flush=True)
    return {**found, "tables": {"boosting-sets": lines}}


def _chances(task: Task, data: FairDataset) -> Iterator[tuple[str, FloatArray]]:
    # The name of each model, and its chance of the second class for test rows.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small groups are no news
        yield from _ours(task, data)
        group = _joined(data.sensitive_features)
        for bound in BOUNDS:
            baseline = ExponentiatedGradient(
                _lightgbm(task), task.constraint(difference_bound=bound)
            )
            baseline.fit(data.frame, data.y, sensitive_features=group)
            chance = baseline._pmf_predict(data.frame_test)[:, 1]
            yield f"ExponentiatedGradient, bound {bound}", chance
        baseline = ThresholdOptimizer(
            estimator=_lightgbm(task),
            constraints=task.threshold_constraint,
            predict_method="predict_proba",
        )
        baseline.fit(data.frame, data.y, sensitive_features=group)
        others = _joined(data.sensitive_features_test)
        chance = baseline._pmf_predict(data.frame_test, sensitive_features=others)[:, 1]
        yield "ThresholdOptimizer, group needed", chance


def _ours(task: Task, data: FairDataset) -> Iterator[tuple[str, FloatArray]]:
    model = FairBoostingClassifier(notion=task.notion, random_state=0, **task.trees)
    given = FitInput(data.frame, data.y, data.sensitive_features)
    path = model.fit_path(given, WEIGHTS)
    for weight, fitted in zip(WEIGHTS, path, strict=True):
        yield f"fferm, weight {weight}", fitted.predict(data.frame_test).astype(float)


def _lightgbm(task: Task) -> LGBMClassifier:
    return LGBMClassifier(**task.trees, random_state=0, verbose=-1, deterministic=True)


def _joined(sensitive_features: Any) -> Any:
    return sensitive_features.astype(str).agg(" ".join, axis=1).to_numpy()


def _measured(task: Task, data: FairDataset, chance: FloatArray) -> tuple[float, float]:
    # A decision is a chance of 0 or 1.
    y, groups = data.y_test, _joined(data.sensitive_features_test)
    labels = {"demographic_parity": [(0, 1)], "equal_opportunity": [(1,)]}
    gaps = []
    for kept in labels.get(task.notion, [(0,), (1,)]):
        inside = np.isin(y, kept)
        rates = [chance[inside & (groups == g)].mean() for g in np.unique(groups)]
        gaps.append(max(rates) - min(rates))
    return float(np.where(y == 1, chance, 1 - chance).mean()), float(max(gaps))


def _words(values: Sequence[float]) -> str:
    return f"{np.median(values):.4f} ({np.min(values):.4f}–{np.max(values):.4f})"
