"""Choose weight, radius and divergence by rows that training does not see.

`validation` says which rows judge: a sample of the target domain, folds of the source,
or held-out rows with as many of each group. `goals` says what is asked of them,
`trials` measures candidates on them, `search` goes through a grid or asks optuna.
"""

from fferm.tuning.result import Tuning
from fferm.tuning.search import tune
from fferm.tuning.validation import CrossValidation, EvenHoldout, TargetSample

__all__ = ["CrossValidation", "EvenHoldout", "TargetSample", "Tuning", "tune"]
