"""Fair empirical risk minimisation with f-divergences.

Heavy parts are imported when they are first asked for; importing fferm loads neither
torch, lightgbm, plotly nor matplotlib.
"""

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

# Where each public name lives.
_HOMES = {
    "FairBoostingClassifier": "fferm.estimators.boosting",
    "FairLogisticRegression": "fferm.estimators",
    "FairNetClassifier": "fferm.estimators.net",
    "FairRegressor": "fferm.estimators.regression",
    "GroupCounts": "fferm.data.group_counts",
    "LargeShift": "fferm.uncertainty",
    "SmallShift": "fferm.uncertainty",
    "TradeoffCurve": "fferm.curve",
    "audit": "fferm.auditing",
    "audit_regression": "fferm.auditing",
    "boosting_objective": "fferm.boosting",
    "load": "fferm.persistence",
    "save": "fferm.persistence",
    "tradeoff_curve": "fferm.curve",
}

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


def __getattr__(name: str) -> object:
    """Import a public name from its home when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fferm' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*globals(), *_HOMES])
