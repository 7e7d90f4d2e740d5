"""Boosted trees: the objective as a function of raw scores, and its Newton steps.

LightGBM grows the trees; `objective` gives it gradients of loss and penalty, `newton`
sets the values of the leaves, `rounds` runs the two in turn, and `custom` is the same
for a training call of your own. The penalty of a table is that of `fferm.penalty`; no
estimator is imported.
"""

from fferm.boosting.custom import BoostingObjective, boosting_objective

__all__ = ["BoostingObjective", "boosting_objective"]
