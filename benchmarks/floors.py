"""What a perfectly fair model measures on the test rows of a data set, by chance.

Rates are those of a linear model with a fairness weight of 10. COMPAS is read from
``FFERM_DATA_HOME``.
"""

import warnings
from collections.abc import Callable
from typing import Any

from fferm import FairLogisticRegression
from fferm.datasets import FairDataset, load_adult, load_compas, load_german
from fferm.errors import DataUnavailableError, FfermWarning
from fferm.metrics import violation_floor

DATA: dict[str, Callable[[], FairDataset]] = {
    "Adult by sex": lambda: load_adult("sex"),
    "Adult, four groups": lambda: load_adult(("sex", "race"), races=("Black", "White")),
    "Adult, ten groups": lambda: load_adult(("sex", "race")),
    "German by sex": lambda: load_german("sex"),
    "COMPAS by race": lambda: load_compas("race"),
}
NOTIONS = ("demographic_parity", "equal_opportunity", "equalized_odds")
HEADER = (
    "| data | test rows | demographic parity | equal opportunity | equalized odds |",
    "|---|---|---|---|---|",
)


def run() -> dict[str, Any]:
    """Return the expected violation and what 95 % stay below, and their table."""
    found, lines = {}, list(HEADER)
    for name, load in DATA.items():
        try:
            data = load()
        except DataUnavailableError as error:
            print(f"{name} is left out: {error}")
            continue
        floors = found[name] = _floors(data)
        cells = [f"{mean:.3f}, {high:.3f}" for mean, high in floors]
        lines.append(f"| {name} | {len(data.y_test)} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return {"floors": found, "tables": {"floors": lines}}


def _floors(data: FairDataset) -> list[tuple[float, float]]:
    model, floors = FairLogisticRegression(fairness_weight=10.0), []
    groups = data.sensitive_features_test
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FfermWarning)  # small groups
        model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
        decision = model.predict(data.X_test)
        for notion in NOTIONS:
            options: Any = {"sensitive_features": groups, "notion": notion}
            floor = violation_floor(data.y_test, decision, **options)
            floors.append((float(floor.mean), float(floor.high)))
    return floors
