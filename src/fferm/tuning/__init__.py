"""Choose weight, radius and divergence by rows that training does not see.

`validation` says which rows judge: a sample of the target domain, folds of the source,
or held-out rows with equally many of each group. `search` tries a grid, or the points
that optuna proposes.
"""

from fferm.tuning.search import Tuning, tune
from fferm.tuning.validation import CrossValidation, EvenHoldout, TargetSample

__all__ = ["CrossValidation", "EvenHoldout", "TargetSample", "Tuning", "tune"]
