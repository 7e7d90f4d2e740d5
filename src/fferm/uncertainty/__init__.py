r"""Uncertainty sets: the penalty of the worst table near the one that was seen.

Groups, rates and records differ between the data at hand and the people a model
meets. An uncertainty set asks what the divergence would be on the worst table within
``radius`` of the table at hand, and returns that value with its slopes, so that any
solver that follows a table's payoff becomes robust by following this one.

`SmallShift` takes the slope of the divergence at the table (f-DRO): smooth, cheap,
any number of cells, but a *lower* bound of the worst case. `LargeShift` looks for the
worst table itself in an l_inf ball (f-infinity). A set is *decoupled* where the joint
P and the product Q move on their own, and *coupled* where only P moves and Q follows.

The package stands between the divergences, whose formulas it uses, and the tables,
which turn its slopes into a payoff.
"""

from fferm.uncertainty import large, small
from fferm.uncertainty.base import Uncertainty
from fferm.uncertainty.large import *  # noqa: F403
from fferm.uncertainty.small import *  # noqa: F403

__all__ = ["Uncertainty"]
__all__ += large.__all__
__all__ += small.__all__
