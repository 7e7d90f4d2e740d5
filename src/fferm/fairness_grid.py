"""The fairness weights that a search or a sweep tries by default."""

import numpy as np

from fferm._typing import FloatArray
from fferm.divergences import Divergence

# Default weights, in units of the curvature at independence, in which divergences
# compare: below the first the penalty is hardly felt, above the last little is left.
SMOOTH_WEIGHTS = (0.05, 50.0)
# Total variation has no curvature; a finite weight already makes a table independent.
KINKED_WEIGHTS = (0.005, 5.0)


def weight_range(
    divergence: Divergence,
    low: float = SMOOTH_WEIGHTS[0],
    high: float = SMOOTH_WEIGHTS[1],
) -> tuple[float, float]:
    """Return the weights between which a divergence acts.

    ``low`` and ``high`` are what they would be for chi-square, whose curvature is 1.
    """
    if not divergence.is_smooth:
        return KINKED_WEIGHTS
    curvature = float(divergence.f_second(np.float64(1), np)) / 2
    return low / curvature, high / curvature


def default_weights(divergence: Divergence, count: int) -> FloatArray:
    """Return 0 and ``count - 1`` weights over the range in which a divergence acts."""
    low, high = weight_range(divergence)
    # A lone weight stands in the middle of the range.
    if count == 2:
        low = high = float(np.sqrt(low * high))
    return np.concatenate([[0.0], np.geomspace(low, high, count - 1)])
