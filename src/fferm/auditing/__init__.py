"""Audits: what a fitted model does to each group, and how sure one can be.

One `Audit`, in two kinds: that of a classifier puts decisions and probabilities side by
side, because fairness of one is not fairness of the other; that of a regressor measures
how its predictions depend on each sensitive column. Both give the violation with an
interval, name every group that they could not judge, and become JSON and pages in the
same way. An audit imports `fferm.metrics` and `fferm.data`, and no model.
"""

import importlib
from typing import TYPE_CHECKING

from fferm.auditing.base import Audit
from fferm.auditing.classification import ClassificationAudit, DivergenceValue, audit

if TYPE_CHECKING:
    from fferm.auditing.counts import AuditCounts
    from fferm.auditing.regression import RegressionAudit, audit_regression

__all__ = [
    "Audit",
    "AuditCounts",
    "ClassificationAudit",
    "DivergenceValue",
    "RegressionAudit",
    "audit",
    "audit_regression",
]


def __getattr__(name: str) -> object:
    """Import the audit of regressors, and that of counts, when it is first used."""
    home = "counts" if name == "AuditCounts" else "regression"
    if name not in ("AuditCounts", "RegressionAudit", "audit_regression"):
        raise AttributeError(f"module 'fferm.auditing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fferm.auditing.{home}"), name)
