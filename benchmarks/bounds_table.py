"""What ``max_violation`` asks, and what comes on held-out and on test rows.

Adult and German by sex, COMPAS by race; three notions, four bounds, the default
estimator with ``random_state=0``. COMPAS is read from ``FFERM_DATA_HOME``.
"""

import warnings
from collections.abc import Callable
from typing import Any

from fferm import FairLogisticRegression, audit
from fferm.datasets import FairDataset, load_adult, load_compas, load_german
from fferm.errors import DataUnavailableError, FfermWarning

LOADERS: dict[str, Callable[..., FairDataset]] = {
    "Adult": load_adult,
    "German": load_german,
    "COMPAS": load_compas,
}
SENSITIVE = {"Adult": ("sex",), "German": ("sex",), "COMPAS": ("race",)}
NOTIONS = ("demographic_parity", "equal_opportunity", "equalized_odds")
BOUNDS = (0.01, 0.02, 0.05, 0.1)
HEADER = (
    "| data | notion | asked | held out | kept | test | 95 % | accuracy | weight |",
    "|---|---|---|---|---|---|---|---|---|",
)


def run() -> dict[str, Any]:
    """Return a row per data set, notion and bound, and the table of them."""
    rows = []
    for name, load in LOADERS.items():
        try:
            data = load(sensitive=SENSITIVE[name])
        except DataUnavailableError as error:
            print(f"{name} is left out: {error}")
            continue
        for notion in NOTIONS:
            for asked in BOUNDS:
                rows.append({"data": name, **_row(data, notion, asked)})
                print(_line(rows[-1]), flush=True)
    return {"rows": rows, "tables": {"bounds": [*HEADER, *map(_line, rows)]}}


def _row(data: FairDataset, notion: str, asked: float) -> dict[str, Any]:
    model = FairLogisticRegression(notion=notion, max_violation=asked, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FfermWarning)  # feasible_ says the same
        model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
        found = audit(
            model,
            data.X_test,
            data.y_test,
            sensitive_features=data.sensitive_features_test,
        )
    return {
        "notion": notion,
        "asked": asked,
        "held out": float(model.violation_),
        "feasible": bool(model.feasible_),
        "test": float(found.violation),
        "interval": [float(end) for end in found.interval],
        "accuracy": float(found.accuracy),
        "weight": float(model.fairness_weight_),
    }


def _line(row: dict[str, Any]) -> str:
    low, high = row["interval"]
    cells = (
        row["data"],
        row["notion"].replace("_", " "),
        f"{row['asked']:g}",
        f"{row['held out']:.3f}",
        "yes" if row["feasible"] else "no",
        f"{row['test']:.3f}",
        f"{low:.3f} to {high:.3f}",
        f"{row['accuracy']:.3f}",
        f"{row['weight']:.3g}",
    )
    return f"| {' | '.join(cells)} |"
