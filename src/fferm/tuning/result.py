"""The outcome of a search: the candidate that won, and how all of them did."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from fferm.estimators.base import FairClassifier


@dataclass(frozen=True)
class Tuning:
    """What a search found.

    Attributes
    ----------
    estimator
        Trained on all source rows with what was chosen.
    best
        ``divergence``, ``radius``, ``fairness_weight``, and the ``accuracy`` and
        ``violation`` that it was chosen by: flattering, as all that one chooses by.
    feasible
        Whether ``best`` keeps the bound on the rows that judged.
    records
        One row per candidate and weight.
    """

    estimator: FairClassifier
    best: dict[str, Any]
    feasible: bool
    records: pd.DataFrame

    def __repr__(self) -> str:
        """Return one line: what won, and how it did."""
        return (
            f"Tuning({self.best['divergence']}, radius {self.best['radius']:g}, "
            f"fairness_weight {self.best['fairness_weight']:.4g}: accuracy "
            f"{self.best['accuracy']:.4f} at violation {self.best['violation']:.4f})"
        )
