"""The worst corner of the rectangle that each cell may move in.

``phi(p, q) = q f(p / q)`` is convex, so its largest value over a rectangle is at one
of the four corners; without constraints between cells each cell has its own.
"""

from dataclasses import dataclass

import numpy as np

from fferm._typing import FloatArray
from fferm.divergences import Divergence
from fferm.uncertainty.base import times

# Corners as (upper p?, upper q?). The first is the paper's; of corners that tie it
# wins, so that a radius of 0 gives the slopes of the divergence itself.
CORNERS = ((True, False), (False, True), (True, True), (False, False))

# x - radius is right to this share of x. An end this close to its floor is at the
# floor: where that is 0 and f(0) infinite, 1e-17 would stand for infinity.
ROUNDING = 1e-14


@dataclass(frozen=True)
class Interval:
    """Where the cells of one table may move, and how the ends follow their cell.

    Parameters
    ----------
    low, high
        (cells,) ends.
    low_rate, high_rate
        (cells,) derivative of an end by its cell: 1, or 0 where it is clipped.
    """

    low: FloatArray
    high: FloatArray
    low_rate: FloatArray
    high_rate: FloatArray


def interval(centre: FloatArray, radius: float, floor: float = 0.0) -> Interval:
    """Return ``[max(x - radius, floor x), min(x + radius, 1)]`` by cell."""
    low, high = centre - radius, centre + radius
    is_free = low > (floor + ROUNDING) * centre
    return Interval(
        low=np.where(is_free, low, floor * centre),
        high=np.minimum(high, 1.0),
        low_rate=np.where(is_free, 1.0, floor),
        high_rate=np.where(high < 1, 1.0, 0.0),
    )


@dataclass(frozen=True)
class Corners:
    """The corners of all rectangles: (corners x cells) points and rates."""

    p: FloatArray
    q: FloatArray
    p_rate: FloatArray
    q_rate: FloatArray

    @classmethod
    def of(
        cls,
        joint: Interval,
        product: Interval,
        corners: tuple[tuple[bool, bool], ...] = CORNERS,
    ) -> "Corners":
        """Return the chosen corners of two intervals."""
        return cls(
            p=np.stack([joint.high if up else joint.low for up, _ in corners]),
            q=np.stack([product.high if up else product.low for _, up in corners]),
            p_rate=np.stack(
                [joint.high_rate if up else joint.low_rate for up, _ in corners]
            ),
            q_rate=np.stack(
                [product.high_rate if up else product.low_rate for _, up in corners]
            ),
        )


def worst_corners(
    corners: Corners, divergence: Divergence
) -> tuple[float, FloatArray, FloatArray]:
    """Return the sum over cells of the largest corner, and its slopes.

    By Danskin's theorem the slope is that of the winning corner, through the ends
    that move with their cell.
    """
    phi = divergence.perspective(corners.p, corners.q)  # (corners, cells)
    winner = np.argmax(phi, axis=0), np.arange(phi.shape[1])
    by_p, by_q = divergence.slopes(corners.p[winner], corners.q[winner])
    return (
        float(phi[winner].sum()),
        times(by_p, corners.p_rate[winner]),
        times(by_q, corners.q_rate[winner]),
    )
