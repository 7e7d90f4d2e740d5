"""The vertices of a box cut by the plane of a fixed total.

All coordinates but at most one of a vertex are at an end of their interval; the free
one takes what is left of the total.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fferm._typing import FloatArray, IntArray
from fferm.uncertainty.base import times
from fferm.uncertainty.corners import Interval

# A sum of a dozen probabilities is right to 2e-15. A free coordinate this close to an
# end is at the end, which matters where the end is 0 and f(0) infinite.
ROUNDING = 1e-14


@dataclass(frozen=True)
class Vertices:
    """Vertices, and how they follow the table they were made around.

    Parameters
    ----------
    points
        (vertices x cells) tables of the same total.
    rates
        (vertices x cells) derivative of a coordinate by its cell; 1 where free.
    free
        (vertices,) the free coordinate.
    """

    points: FloatArray
    rates: FloatArray
    free: IntArray

    def pull_back(self, vertex: int, slopes: FloatArray) -> FloatArray:
        """Return slopes by the table, from slopes by one vertex.

        What a clipped coordinate does not follow goes to the free one, which keeps
        the total.
        """
        rates = self.rates[vertex]
        rest = times(1 - rates, slopes[self.free[vertex]])
        with np.errstate(invalid="ignore"):
            pulled = times(rates, slopes) + rest
        return np.where(np.isnan(pulled), 0.0, pulled)


def candidate_count(n_cells: int) -> int:
    """Return how many sign patterns `vertices` looks at."""
    return int(n_cells * 2 ** (n_cells - 1))


def vertices(cell: Interval, total: float) -> Vertices:
    """Return the vertices of the box of intervals at a total, without repeats."""
    is_high, free = _patterns(cell.low.size)
    points = np.where(is_high, cell.high, cell.low)
    rates = np.where(is_high, cell.high_rate, cell.low_rate)
    each = np.arange(free.size)
    points[each, free], rates[each, free] = 0.0, 1.0
    low, high = cell.low[free], cell.high[free]
    rest = total - points.sum(axis=1)
    is_inside = (rest >= low - ROUNDING) & (rest <= high + ROUNDING)
    rest = np.where(rest <= low + ROUNDING, low, rest)
    points[each, free] = np.where(rest >= high - ROUNDING, high, rest)
    kept = np.flatnonzero(is_inside)
    # One vertex appears once for every coordinate that may count as the free one.
    _, first = np.unique(points[kept].round(13), axis=0, return_index=True)
    kept = kept[first]
    return Vertices(points[kept], rates[kept], free[kept])


@lru_cache(maxsize=16)
def _patterns(n_cells: int) -> tuple[NDArray[np.bool_], IntArray]:
    """Return which coordinates are at their upper end, and the free coordinate."""
    codes = np.arange(2 ** (n_cells - 1))
    others = (codes[:, None] >> np.arange(n_cells - 1)) & 1 == 1
    is_high = np.concatenate(
        [np.insert(others, free, False, axis=1) for free in range(n_cells)]
    )
    return is_high, np.repeat(np.arange(n_cells), codes.size)
