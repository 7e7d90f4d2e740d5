"""Boosted trees: the objective as a function of raw scores, and its Newton steps.

LightGBM grows the trees; `objective` gives it gradients of loss and penalty, `newton`
sets the values of the leaves, `rounds` runs the two in turn, and `custom` is the same
for a training call of your own. The penalty of a table is that of `fferm.penalty`; no
estimator is imported.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fferm.boosting.custom import BoostingObjective, boosting_objective

__all__ = ["BoostingObjective", "boosting_objective"]


def __getattr__(name: str) -> Any:
    """Import `custom` when it is asked for: the estimator does without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fferm.boosting import custom

    return getattr(custom, name)
