"""Dual norms and quotient norms, with a subgradient each.

The largest ``<u, g>`` over ``|u|_p <= 1`` is the dual norm ``|g|_q``, ``1/p + 1/q =
1``. Over directions that also keep the total, ``sum u = 0``, it is the quotient norm
``min_c |g - c|_q``, which no constant added to ``g`` can change.
"""

import math

import numpy as np

from fferm._typing import FloatArray

# The 2-norm has no slope at 0, which is where a fair model stands. N^2 / sqrt(N^2 +
# tau^2) has slope 0 there and equals N to double precision from N = 1e-4 on.
NORM_ROUNDING = 1e-12


def norm_and_slope(
    g: FloatArray, p: float, *, is_quotient: bool
) -> tuple[float, FloatArray]:
    """Return the norm dual to the p-norm of a vector, and a subgradient.

    Parameters
    ----------
    g
        (cells,) vector, possibly with infinite entries.
    p
        1, 2 or infinity.
    is_quotient
        Whether to take the quotient norm.
    """
    if not g.size:
        return 0.0, g
    is_infinite = np.isinf(g)
    if is_infinite.any():
        # The direction in which such a norm grows is that of its infinite entries.
        rest = np.where(is_infinite, np.sign(g), 0.0)
        return math.inf, _finite(rest, p, is_quotient)[1]
    return _finite(g, p, is_quotient)


def _finite(g: FloatArray, p: float, is_quotient: bool) -> tuple[float, FloatArray]:
    if p == 1:
        return _half_range(g) if is_quotient else _largest(g)
    if p == 2:
        return _euclidean(g - g.mean() if is_quotient else g)
    return _absolute(g - np.median(g) if is_quotient else g)


def _half_range(g: FloatArray) -> tuple[float, FloatArray]:
    slope = np.zeros_like(g)
    slope[np.argmax(g)] += 0.5
    slope[np.argmin(g)] -= 0.5
    return float(np.ptp(g)) / 2, slope


def _largest(g: FloatArray) -> tuple[float, FloatArray]:
    top = np.argmax(np.abs(g))
    slope = np.zeros_like(g)
    slope[top] = np.sign(g[top])
    return float(np.abs(g[top])), slope


def _euclidean(g: FloatArray) -> tuple[float, FloatArray]:
    tau = NORM_ROUNDING
    length = float(np.linalg.norm(g))
    rounded = math.hypot(length, tau)
    # Ratios before products: the squares of tiny numbers would underflow.
    share, rest = length / rounded, tau / rounded
    return length * share, g / rounded * (share * share + 2 * rest * rest)


def _absolute(g: FloatArray) -> tuple[float, FloatArray]:
    return float(np.abs(g).sum()), np.sign(g)
