"""The fairness weights that a search or a sweep tries by default."""

from collections.abc import Sequence

import numpy as np

from fferm._typing import FloatArray
from fferm.data.validate import Number, check_number, check_params
from fferm.divergences import Divergence
from fferm.errors import InvalidParameterError

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


def weight_grid(
    fairness_weights: int | Sequence[float],
    divergence: Divergence,
    *,
    has_zero: bool = False,
) -> list[float]:
    """Return the weights to try, ascending: those passed, or that many default ones.

    With ``has_zero``, weight 0 is one of them.
    """
    if isinstance(fairness_weights, int | np.integer):
        limits = Number(1 + has_zero, is_whole=True)
        check_params(
            {"fairness_weights": fairness_weights}, {"fairness_weights": limits}
        )
        count = int(fairness_weights) + (not has_zero)
        grid: list[float] = default_weights(divergence, count).tolist()
        return grid if has_zero else grid[1:]
    if np.ndim(fairness_weights) != 1 or len(fairness_weights) == 0:
        raise InvalidParameterError(
            "fairness_weights must be a list of numbers, or how many; got "
            f"{fairness_weights!r}."
        )
    numbers = {check_number("fairness_weights", weight) for weight in fairness_weights}
    return sorted(numbers | {0.0} if has_zero else numbers)
