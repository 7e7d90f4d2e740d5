"""Fair empirical risk minimisation with f-divergences.

Heavy parts are imported when they are first asked for; importing fferm loads neither
torch, lightgbm nor matplotlib.
"""

from importlib.metadata import version
from typing import TYPE_CHECKING

from fferm._lazy import lazy

if TYPE_CHECKING:
    from fferm import datasets as datasets
    from fferm import deploy as deploy
    from fferm import distributed as distributed
    from fferm import divergences as divergences
    from fferm import errors as errors
    from fferm import export as export
    from fferm import integrations as integrations
    from fferm import lab as lab
    from fferm import metrics as metrics
    from fferm import notions as notions
    from fferm import tables as tables
    from fferm import testing as testing
    from fferm import torch as torch
    from fferm import tuning as tuning
    from fferm import uncertainty as uncertainty
    from fferm.auditing import audit, audit_regression
    from fferm.boosting import boosting_objective
    from fferm.curve import TradeoffCurve, tradeoff_curve
    from fferm.data.group_counts import GroupCounts
    from fferm.estimators import FairLogisticRegression
    from fferm.estimators.boosting import FairBoostingClassifier
    from fferm.estimators.net import FairNetClassifier
    from fferm.estimators.regression import FairRegressor
    from fferm.persistence import load, save
    from fferm.uncertainty import LargeShift, SmallShift

__version__ = version("fferm")

__all__ = [
    "FairBoostingClassifier",
    "FairLogisticRegression",
    "FairNetClassifier",
    "FairRegressor",
    "GroupCounts",
    "LargeShift",
    "SmallShift",
    "TradeoffCurve",
    "audit",
    "audit_regression",
    "boosting_objective",
    "load",
    "save",
    "tradeoff_curve",
]

# Where each public name lives. All other submodules are attributes too.
_HOMES = {
    "fferm.auditing": ("audit", "audit_regression"),
    "fferm.boosting": ("boosting_objective",),
    "fferm.curve": ("TradeoffCurve", "tradeoff_curve"),
    "fferm.data.group_counts": ("GroupCounts",),
    "fferm.estimators": ("FairLogisticRegression", "FairRegressor"),
    "fferm.estimators.boosting": ("FairBoostingClassifier",),
    "fferm.estimators.net": ("FairNetClassifier",),
    "fferm.persistence": ("load", "save"),
    "fferm.uncertainty": ("LargeShift", "SmallShift"),
}
__getattr__, __dir__ = lazy(__name__, _HOMES)
