"""Small shifts: the slope of the divergence at the table (f-DRO, Section 3.1)."""

import math
import numbers
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.optimize import brentq

from fferm._typing import FloatArray
from fferm.divergences import Divergence
from fferm.errors import InvalidParameterError
from fferm.uncertainty import base

__all__ = ["SmallShift"]


@dataclass(frozen=True)
class SmallShift(base.Uncertainty):
    r"""The first-order worst case in an l_p ball.

    With the optimal dual ``A = f'(P/Q)``, its conjugate ``C = f*(A)`` and N the norm
    dual to the p-norm, the penalty is

    .. math:: D + \delta \, (N(A) + N(C)),

    or, coupled, ``D + radius N(G)`` with
    ``G_jk = A_jk - sum_k' pi_k' C_jk' - sum_j' P_j' C_j'k``.

    D is convex, so this is a **lower bound** of the worst case, not a certificate. It
    catches about ``d / (d + radius)`` of the excess, ``d`` the size of ``|P - Q|`` by
    cell (98 % at a fiftieth of d, 50 % at d), and none of it at independence: use it
    for a radius well below ``|P - Q|``, and `LargeShift` beyond. For total variation
    the norms are constant almost everywhere, so only D has a slope.

    Parameters
    ----------
    radius
        Distance between probability tables, at most ``2 ** (1 / p)``: 2, sqrt(2) and 1
        for p = 1, 2 and infinity. More is accepted, because published grids reach 10;
        it is then the weight of a slope penalty, not the radius of a ball.
    p
        The norm of the ball: a number of at least 1, or infinity (also written
        ``"inf"``).
    norm
        ``"quotient"``: shifts keep the total, ``N(g) = min_c |g - c|``: half the range
        (p = 1), distance to the mean (2), to the median (infinity), to a number between
        them. It does not depend
        on the normalisation of f. ``"dual"``: ``N(g) = |g|`` as in the paper, over
        shifts that need not keep the total. It goes wrong under any normalisation
        but the canonical: with the paper's ``t ln t`` and group weights (.8, .2) the
        penalty is smallest where the second group, at p = 2, gets .172 less of the
        positive class than the first, whose rate is .3. A fair model does not
        minimise it, and adding D does not cure that.
    coupled
        Whether only P moves and Q follows. The decoupled ball neither contains the
        coupled set nor lies in it; its excess is usually about twice as large.
    power
        1: the worst case in a ball. 2: ``D + radius (N(A)^2 + N(C)^2)``, the worst
        case over all shifts at the price ``|U|^2 / (4 radius)`` (Algorithm 3).

    Examples
    --------
    >>> import numpy as np
    >>> from fferm.divergences import get
    >>> p = np.array([[0.3, 0.15], [0.25, 0.3]])
    >>> q = p.sum(axis=1, keepdims=True) * p.sum(axis=0)
    >>> value, by_p, by_q = SmallShift(0.01).penalty(p, q, get("chi2"))
    >>> round(value, 6), by_p.shape
    (0.062238, (2, 2))
    """

    name: ClassVar[str] = "small_shift"

    radius: float
    p: float | Literal["inf"] = 2
    norm: Literal["quotient", "dual"] = "quotient"
    coupled: bool = False
    power: Literal[1, 2] = 1

    def __post_init__(self) -> None:
        self._check_number("radius", base.RADIUS)
        is_number = isinstance(self.p, numbers.Real) and not isinstance(self.p, bool)
        if self.p != "inf" and not (is_number and self.p >= 1):
            raise InvalidParameterError(
                "p of SmallShift must be a number of at least 1, or 'inf'; got "
                f"{self.p!r}."
            )
        self._check_choice("norm", ("quotient", "dual"))
        self._check_choice("coupled", (False, True))
        self._check_choice("power", (1, 2))

    @property
    def is_coupled(self) -> bool:
        """As asked for."""
        return self.coupled

    def penalty(
        self, p: FloatArray, q: FloatArray, divergence: Divergence
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return ``D + radius (N(A) + N(C))`` and its slopes.

        With ``s`` the subgradients of N, ``dA = f'' dt`` and ``dC = t f'' dt``:
        ``W = f'' (s_A + t s_C)``, slopes ``A + radius W / q`` and
        ``-C - radius W t / q``.
        """
        self._check_coupling(False)
        live = base.live_cells(p, q)
        dual, conjugate = base.dual_and_conjugate(p, q, divergence)
        by_dual, s_dual = self._excess(dual[live])
        by_conjugate, s_conjugate = self._excess(conjugate[live])
        value = divergence.total(p, q) + by_dual + by_conjugate
        t, curvature = _curvature(p, q, divergence)
        push = base.spread(s_dual, live) + base.times(t, base.spread(s_conjugate, live))
        with np.errstate(invalid="ignore", over="ignore"):
            W = base.times(curvature, push) / _safe(q)
            by_p, by_q = dual + W, -conjugate - base.times(W, t)
        return value, base.settled(by_p, dual), base.settled(by_q, -conjugate)

    def coupled_penalty(
        self, p: FloatArray, prior: FloatArray, divergence: Divergence
    ) -> tuple[float, FloatArray]:
        """Return ``D + radius N(G)`` and its payoff at constant group weights.

        With ``s`` the subgradient of N and ``S_j, S^k`` its row and column sums,
        ``W = f'' (s_jk - pi_k t_jk S_j - P_j t_jk S^k)`` is the slope by t, and the
        payoff ``A - sum_k pi_k C_jk + radius (W / q - sum_k W t / P_j - sum_k C S^k)``.
        """
        self._check_coupling(True)
        rows = p.sum(axis=1, keepdims=True)  # (m, 1)
        q = rows * prior  # (m, K)
        live = base.live_cells(p, q)
        dual, conjugate = base.dual_and_conjugate(p, q, divergence)
        with np.errstate(invalid="ignore"):
            payoff = dual - base.times(conjugate, prior).sum(axis=1, keepdims=True)
            G = payoff - base.times(rows, conjugate).sum(axis=0)
        payoff, G = base.settled(payoff, dual), base.settled(G, dual)
        excess, slope = self._excess(G[live])
        value = divergence.total(p, q) + excess
        s = base.spread(slope, live)
        by_column = s.sum(axis=0)
        t, curvature = _curvature(p, q, divergence)
        with np.errstate(invalid="ignore", over="ignore"):
            pull = prior * s.sum(axis=1, keepdims=True) + rows * by_column
            W = base.times(curvature, s - base.times(t, pull))
            along_rows = base.times(W, t).sum(axis=1, keepdims=True) / _safe(rows)
            marginal = base.times(conjugate, by_column).sum(axis=1, keepdims=True)
            payoff = payoff + W / _safe(q) - along_rows - marginal
        return value, np.where(live, base.settled(payoff, dual), 0.0)

    def _excess(self, g: FloatArray) -> tuple[float, FloatArray]:
        is_quotient = self.norm == "quotient"
        size, slope = norm_and_slope(g, float(self.p), is_quotient=is_quotient)
        if self.power == 1:
            return float(base.times(self.radius, size)), self.radius * slope
        by_size = 2 * self.radius * size if self.radius else 0.0
        return float(base.times(self.radius, size * size)), base.times(by_size, slope)


def _curvature(
    p: FloatArray, q: FloatArray, divergence: Divergence
) -> tuple[FloatArray, FloatArray]:
    # t and f''(t); t = 1 stands in at cells without a product.
    with np.errstate(all="ignore"):
        t = np.where(q > 0, p, 1.0) / _safe(q)
        return t, np.asarray(divergence.f_second(t, np), dtype=np.float64)


def _safe(q: FloatArray) -> FloatArray:
    return np.where(q > 0, q, 1.0)


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
        At least 1; infinity included.
    is_quotient
        Whether to take the quotient norm.
    """
    if not g.size:
        return 0.0, g
    if np.isinf(g).any():
        # The direction in which such a norm grows is that of its infinite entries.
        signs = np.where(np.isinf(g), np.sign(g), 0.0)
        return math.inf, norm_and_slope(signs, p, is_quotient=is_quotient)[1]
    if p == 1:
        slope = np.zeros_like(g)
        if is_quotient:  # half the range
            slope[np.argmax(g)] += 0.5
            slope[np.argmin(g)] -= 0.5
        else:
            top = np.argmax(np.abs(g))
            slope[top] = np.sign(g[top])
        return float(np.ptp(g) / 2 if is_quotient else np.abs(g).max()), slope
    if p == 2:
        g = g - g.mean() if is_quotient else g
        length = float(np.linalg.norm(g))
        rounded = math.hypot(length, NORM_ROUNDING)
        # Ratios before products: the squares of tiny numbers would underflow.
        share, rest = length / rounded, NORM_ROUNDING / rounded
        return length * share, g / rounded * (share * share + 2 * rest * rest)
    if math.isinf(p):
        g = g - np.median(g) if is_quotient else g
        return float(np.abs(g).sum()), np.sign(g)
    return _general_norm(g, p, is_quotient=is_quotient)


def _general_norm(
    g: FloatArray, p: float, *, is_quotient: bool
) -> tuple[float, FloatArray]:
    # For the orders that have no closed form. Numbers are divided by the largest
    # before they are raised to a power.
    exponent = 1 / (p - 1)  # q - 1 of the dual order q

    def pull(rest: FloatArray) -> FloatArray:
        # The slope of |rest|_q^q / q, of which the largest number has 1 or -1.
        top = np.abs(rest).max()
        return np.sign(rest) * (np.abs(rest) / (top or 1.0)) ** exponent

    low, span = float(g.min()), float(np.ptp(g))
    if is_quotient and span == 0:
        return 0.0, np.zeros_like(g)
    if is_quotient:
        share = (g - low) / span
        centre = brentq(lambda c: float(pull(share - c).sum()), 0.0, 1.0, xtol=1e-14)
        g = span * (share - centre)
    top, slope = float(np.abs(g).max()), pull(g)
    if is_quotient:  # a power near 0 is not known so close to its kink
        slope[np.argmin(np.abs(g))] -= slope.sum()
    size = float(np.sum((np.abs(g) / (top or 1.0)) ** (1 + exponent)))
    length = top * size ** (1 - 1 / p)
    rounded = math.hypot(length, NORM_ROUNDING)
    portion, rest = length / rounded, NORM_ROUNDING / rounded
    # As for the 2-norm above.
    growth = portion * (portion * portion + 2 * rest * rest)
    return length * portion, slope * (growth / max(size, 1.0) ** (1 / p))
