"""Small problems of trees: loss and penalty of raw scores, on random rows."""

import numpy as np

from fferm.boosting.scores import ScoreObjective
from fferm.data.rows import encode_rows
from fferm.notions import ConditionalParity, EqualizedOdds, Labels
from fferm.penalty.objective import Penalty, make_objective

NOTIONS = {
    "demographic_parity": "demographic_parity",
    "equal_opportunity": "equal_opportunity",
    "equalized_odds": "equalized_odds",
    "equalized_odds by frequency": EqualizedOdds("frequency"),
    "false_positive_rate_parity": "false_positive_rate_parity",
    "conditional_parity": ConditionalParity("area"),
    "conditional_parity of equal strata": ConditionalParity("area", "unit"),
    "sufficiency": "sufficiency",
    "predictive_parity": "predictive_parity",
}
TWO_CLASSES = ("equal_opportunity", "false_positive_rate_parity", "predictive_parity")


def classes_of(notion):
    """Return how many classes to look at a notion with."""
    return (2,) if notion in TWO_CLASSES else (2, 3)


def make(
    divergence="kl",
    notion="demographic_parity",
    n_classes=2,
    how="intersection",
    seed=0,
    uncertainty=None,
    fairness_weight=3.0,
    n=40,
):
    """Return an objective on random rows, and scores to look at it from."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    weight = rng.uniform(0.5, 2, n)
    groups = {"a": rng.integers(0, 2, n), "b": rng.integers(0, 3, n)}
    objective = make_objective(
        divergence,
        NOTIONS[notion],
        uncertainty,
        fairness_weight=fairness_weight,
        sharpness=1.7,
    )
    control = np.arange(n) // 2 % 4 - 1  # in some rows it is missing
    labels = Labels(n, y, tuple(range(n_classes)), control, ("x", "y", "z"))
    rows = encode_rows(
        groups if how == "marginal" else groups["a"],
        objective.notion,
        labels,
        how=how,
        sample_weight=weight,
    )
    penalty = Penalty(objective, rows, labels.classes)
    found = ScoreObjective(objective, y, weight, n_classes, penalty)
    return found, rng.normal(size=(found.link.n_scores, n))
