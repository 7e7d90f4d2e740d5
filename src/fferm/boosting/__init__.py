"""Boosted trees: the objective as a function of raw scores, and its Newton steps."""

from fferm.boosting.custom import BoostingObjective, boosting_objective

__all__ = ["BoostingObjective", "boosting_objective"]
