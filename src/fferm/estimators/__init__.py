"""Estimators with the contract of scikit-learn."""

from fferm.estimators.linear import FairLogisticRegression

__all__ = ["FairLogisticRegression"]
