"""Fair models with the contract of scikit-learn: one template, four models.

`base` writes `fit` once: check, encode, choose the weight, train, store. `linear`,
`net`, `boosting` and `regression` train; `weight_search` finds the weight that keeps a
bound, `partial` trains batch by batch, `frame` puts an encoder of raw columns in front.
Curves, tuning, reports and commands use estimators and are never imported here; torch
and LightGBM are imported when a model that needs them is.
"""

from fferm._lazy import lazy
from fferm.estimators.linear import FairLogisticRegression
from fferm.estimators.regression import FairRegressor

__all__ = ["FairLogisticRegression", "FairRegressor"]

__getattr__, __dir__ = lazy(__name__)
