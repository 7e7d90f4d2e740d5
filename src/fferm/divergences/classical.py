"""The divergences of the paper and the alpha family, one class each.

The formulas may use ``exp, log, sqrt, abs, where`` only, because these are spelled
alike in numpy and torch. What they need beyond is built from these first, without
cancellation.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from fferm._typing import Namespace, Operand
from fferm.divergences.base import Divergence
from fferm.errors import InvalidParameterError

__all__ = [
    "KL",
    "Alpha",
    "Chi2",
    "JensenShannon",
    "ReverseKL",
    "SquaredHellinger",
    "TotalVariation",
]
# Width of the quadratic that replaces the kink of total variation in training.
KINK_WIDTH = 1e-3

# Enough terms for full double precision on |u| < 0.1.
SERIES_TERMS = 18
# (artanh(s) / s - 1) / s^2 likewise, in powers of s^2, highest first.
ARTANH_SERIES = tuple(1 / n for n in range(17, 2, -2))
# (e^x - 1) / x to full double precision on |x| < 0.5, highest power first.
EXP_SERIES = tuple(1 / math.factorial(n) for n in range(14, 0, -1))


def log1p(u: Operand, xp: Namespace) -> Operand:
    """Return ``ln(1 + u)`` to full precision.

    ``ln(w) u / (w - 1)`` with ``w = 1 + u`` rounded: the rounding error of ``w``
    cancels between numerator and denominator (a classical device of W. Kahan).
    """
    w = 1 + u
    is_small = xp.abs(u) < 0.5
    inexact = xp.where(is_small & (w != 1), w, 2.0)
    corrected = xp.log(inexact) * (u / (inexact - 1))
    far = xp.log(xp.where(is_small | (w <= 0), 1.0, w))
    far = xp.where(w > 0, far, -float("inf"))
    return xp.where(is_small, xp.where(w == 1, u, corrected), far)


def expm1(x: Operand, xp: Namespace) -> Operand:
    """Return ``e^x - 1`` to full precision."""
    is_small = xp.abs(x) < 0.5
    near = xp.where(is_small, x, 0.0)
    total = 0 * near
    for n in range(len(EXP_SERIES)):
        total = EXP_SERIES[n] + near * total
    return xp.where(is_small, near * total, xp.exp(x) - 1)


def log1p_minus(u: Operand, xp: Namespace) -> Operand:
    """Return ``ln(1 + u) - u`` for ``|u| < 0.1`` (elsewhere any finite number).

    ``ln(1 + u) = 2 artanh(s)`` with ``s = u / (2 + u)``, whose series takes a third of
    the terms; and ``2 s - u = -s u``.
    """
    v = xp.where(xp.abs(u) < 0.1, u, 0.0)
    s = v / (2 + v)
    square = s * s
    total = 0 * v
    for n in range(len(ARTANH_SERIES)):
        total = ARTANH_SERIES[n] + square * total
    return s * (2 * square * total - v)


def exp_family(z: Operand, b: float, xp: Namespace) -> Operand:
    """Return ``(e^(b z) - 1) / b``, which is ``z`` at ``b = 0``."""
    return z if b == 0 else expm1(b * z, xp) / b


def box_cox(y: Operand, b: float, xp: Namespace) -> Operand:
    """Return the inverse of `exp_family` in ``z``: ``ln(1 + b y) / b``."""
    return y if b == 0 else log1p(b * y, xp) / b


def log_mean_exp(z: Operand, xp: Namespace) -> Operand:
    """Return ``ln((1 + e^z) / 2)`` without overflow, and without cancellation at 0."""
    is_near = xp.abs(z) < 1
    near = log1p(expm1(xp.where(is_near, z, 0.0), xp) / 2, xp)
    far = xp.where(z > 0, z, 0.0) + log1p(xp.exp(-xp.abs(z)), xp) - math.log(2)
    return xp.where(is_near, near, far)


@dataclass(frozen=True)
class Chi2(Divergence):
    """Pearson's chi-square, ``(t - 1)^2``: the penalty known as ERMI."""

    name: ClassVar[str] = "chi2"

    def f(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``(t - 1)^2``."""
        return (t - 1) * (t - 1)

    def f_prime(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``2 (t - 1)``."""
        return 2 * (t - 1)

    def f_second(self, t: Operand, xp: Namespace) -> Operand:
        """Return 2."""
        return 2 + 0 * t

    def conjugate(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``a + a^2 / 4``: taken over all real t, smooth and never flat."""
        return a + a * a / 4

    def conjugate_prime(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``1 + a / 2``."""
        return 1 + a / 2

    def dual_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return ``2 expm1(z)``."""
        return 2 * expm1(z, xp)

    def conjugate_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return ``expm1(2 z)``."""
        return expm1(2 * z, xp)

    value_at_zero = 1.0
    slope_at_zero = -2.0
    slope_at_infinity = math.inf
    dual_domain = (-math.inf, math.inf)


@dataclass(frozen=True)
class KL(Divergence):
    """Kullback-Leibler, ``t ln t - t + 1``: the mutual information."""

    name: ClassVar[str] = "kl"

    def f(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``t ln t - t + 1``."""
        u = t - 1
        near = t * log1p_minus(u, xp) + u * u
        far = t * xp.log(xp.where(t > 0, t, 1.0)) - u
        return xp.where(xp.abs(u) < 0.1, near, far)

    def f_prime(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``ln t``."""
        return xp.where(t > 0, xp.log(xp.where(t > 0, t, 1.0)), -math.inf)

    def f_second(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``1 / t``."""
        return xp.where(t > 0, 1 / xp.where(t > 0, t, 1.0), math.inf)

    def conjugate(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``e^a - 1``."""
        return expm1(a, xp)

    def conjugate_prime(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``e^a``."""
        return xp.exp(a)

    def dual_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return ``z``."""
        return z

    def conjugate_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return ``e^z - 1``."""
        return expm1(z, xp)

    value_at_zero = 1.0
    slope_at_zero = -math.inf
    slope_at_infinity = math.inf
    log_ratio_is_concave = True


@dataclass(frozen=True)
class ReverseKL(Divergence):
    """Kullback-Leibler with its arguments swapped, ``-ln t + t - 1``."""

    name: ClassVar[str] = "reverse_kl"

    def f(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``t - 1 - ln t``."""
        u = t - 1
        far = xp.where(t > 0, u - xp.log(xp.where(t > 0, t, 1.0)), math.inf)
        return xp.where(xp.abs(u) < 0.1, -log1p_minus(u, xp), far)

    def f_prime(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``1 - 1 / t``."""
        ratio = xp.where(t > 0, t, 1.0)
        # (t - 1) / t keeps its digits near 1; it is inf / inf at t = inf.
        slope = xp.where(t > 2, 1 - 1 / ratio, (t - 1) / ratio)
        return xp.where(t > 0, slope, -math.inf)

    def f_second(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``1 / t^2``."""
        inverse = 1 / xp.where(t > 0, t, 1.0)
        return xp.where(t > 0, inverse * inverse, math.inf)

    def conjugate(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``-ln(1 - a)``, infinite from 1 on."""
        return -log1p(-a, xp)

    def conjugate_prime(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``1 / (1 - a)`` for ``a < 1``."""
        return xp.where(a < 1, 1 / (1 - xp.where(a < 1, a, 0.0)), math.inf)

    def dual_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return ``-expm1(-z)``."""
        return -expm1(-z, xp)

    def conjugate_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return ``z``."""
        return z

    value_at_zero = math.inf
    slope_at_zero = -math.inf
    slope_at_infinity = 1.0
    log_ratio_is_concave = True


@dataclass(frozen=True)
class TotalVariation(Divergence):
    """Total variation, ``|t - 1| / 2``, with an optional rounded kink.

    Parameters
    ----------
    smoothing
        Width ``e`` of the rounding: ``sup_{|a| <= 1/2} a (t - 1) - e a^2 / 2``, the
        Huber function. It lowers the value by at most ``e / 8``.
    """

    name: ClassVar[str] = "total_variation"
    aliases: ClassVar[tuple[str, ...]] = ("tv",)

    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing <= 2:
            raise InvalidParameterError(
                "smoothing must be between 0 and 2, because beyond 2 it would reach "
                f"negative ratios; got {self.smoothing!r}."
            )

    def f(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``|t - 1| / 2``, rounded within ``smoothing / 2`` of 1."""
        distance = xp.abs(t - 1)
        if self.smoothing == 0:
            return distance / 2
        e = self.smoothing
        rounded = distance * distance / (2 * e)
        return xp.where(distance < e / 2, rounded, distance / 2 - e / 8)

    def f_prime(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``sign(t - 1) / 2``; 0 at 1, where any value within is a slope."""
        u = t - 1
        half = 0.5 + 0 * xp.where(xp.abs(u) < math.inf, u, 0.0)
        sign = xp.where(u > 0, half, xp.where(u < 0, -half, 0 * half))
        if self.smoothing == 0:
            return sign
        inside = xp.abs(u) < self.smoothing / 2
        return xp.where(inside, xp.where(inside, u, 0.0) / self.smoothing, sign)

    def f_second(self, t: Operand, xp: Namespace) -> Operand:
        """Return 0 away from the kink."""
        flat = 0 * xp.where(xp.abs(t) < math.inf, t, 0.0)
        if self.smoothing == 0:
            return flat
        inside = xp.abs(t - 1) < self.smoothing / 2
        return xp.where(inside, flat + 1 / self.smoothing, flat)

    def conjugate(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``a`` on [-1/2, 1/2], -1/2 below and infinity above."""
        e = self.smoothing
        inside = a + e * a * a / 2
        outside = xp.where(a > 0, math.inf + 0 * inside, -0.5 + e / 8 + 0 * inside)
        return xp.where(xp.abs(a) <= 0.5, inside, outside)

    def conjugate_prime(self, a: Operand, xp: Namespace) -> Operand:
        """Return 1 on [-1/2, 1/2]: the slope says nothing about the ratio."""
        inside = 1 + self.smoothing * a
        outside = xp.where(a > 0, math.inf + 0 * inside, 0 * inside)
        return xp.where(xp.abs(a) <= 0.5, inside, outside)

    @property
    def value_at_zero(self) -> float:
        """One half, less the rounding."""
        return 0.5 - self.smoothing / 8

    @property
    def is_smooth(self) -> bool:
        """Only where the kink is rounded."""
        return self.smoothing > 0

    slope_at_zero = -0.5
    slope_at_infinity = 0.5

    def smoothed(self) -> Divergence:
        """Return the rounded form: a gradient method cannot rest on a kink."""
        return TotalVariation(smoothing=max(self.smoothing, KINK_WIDTH))


@dataclass(frozen=True)
class JensenShannon(Divergence):
    """Twice the Jensen-Shannon divergence, ``t ln t - (t + 1) ln((t + 1) / 2)``."""

    name: ClassVar[str] = "jensen_shannon"
    aliases: ClassVar[tuple[str, ...]] = ("js",)

    def f(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``t ln t - (t + 1) ln((t + 1) / 2)``."""
        u = t - 1
        near = t * log1p_minus(u, xp) - (t + 1) * log1p_minus(u / 2, xp) + u * u / 2
        far = t * xp.log(xp.where(t > 0, t, 1.0)) - (t + 1) * xp.log((t + 1) / 2)
        return xp.where(xp.abs(u) < 0.1, near, far)

    def f_prime(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``ln(2 t / (1 + t))``."""
        ratio = xp.where(t > 0, t, 1.0)
        large = math.log(2) - log1p(1 / ratio, xp)
        near = log1p((t - 1) / (t + 1), xp)
        # Below 1/2 the argument of log1p nears -1 and would lose the ratio.
        small = xp.log(2 * ratio / (1 + ratio))
        slope = xp.where(t > 2, large, xp.where(t < 0.5, small, near))
        return xp.where(t > 0, slope, -math.inf)

    def f_second(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``1 / (t (1 + t))``."""
        return xp.where(t > 0, 1 / (xp.where(t > 0, t, 1.0) * (1 + t)), math.inf)

    def conjugate(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``-ln(2 - e^a)`` for ``a < ln 2``."""
        inside = a < math.log(2)
        safe = xp.where(inside, a, 0.0)
        return xp.where(inside, -log1p(-expm1(safe, xp), xp), math.inf)

    def conjugate_prime(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``e^a / (2 - e^a)`` for ``a < ln 2``."""
        inside = a < math.log(2)
        grown = xp.exp(xp.where(inside, a, 0.0))
        return xp.where(inside, grown / (2 - grown), math.inf)

    def dual_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return ``ln 2 - softplus(-z)``."""
        return -log_mean_exp(-z, xp)

    def conjugate_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return ``softplus(z) - ln 2``."""
        return log_mean_exp(z, xp)

    value_at_zero = math.log(2)
    slope_at_zero = -math.inf
    slope_at_infinity = math.log(2)
    log_ratio_is_concave = True


@dataclass(frozen=True)
class SquaredHellinger(Divergence):
    """Squared Hellinger distance, ``(sqrt t - 1)^2``."""

    name: ClassVar[str] = "squared_hellinger"
    aliases: ClassVar[tuple[str, ...]] = ("hellinger",)

    def f(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``(sqrt t - 1)^2``."""
        # (t - 1) / (sqrt t + 1) is sqrt t - 1 without its cancellation.
        root = (t - 1) / (xp.sqrt(t) + 1)
        return root * root

    def f_prime(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``1 - 1 / sqrt t``."""
        root = xp.sqrt(xp.where(t > 0, t, 1.0))
        near = (t - 1) / (root * (root + 1))
        return xp.where(t > 0, xp.where(t > 2, 1 - 1 / root, near), -math.inf)

    def f_second(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``t^(-3/2) / 2``."""
        ratio = xp.where(t > 0, t, 1.0)
        return xp.where(t > 0, 0.5 / ratio / xp.sqrt(ratio), math.inf)

    def conjugate(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``a / (1 - a)`` for ``a < 1``."""
        safe = xp.where(a < 1, a, 0.0)
        inside = xp.where(safe < -1, 1 / (1 - safe) - 1, safe / (1 - safe))
        return xp.where(a < 1, inside, math.inf)

    def conjugate_prime(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``1 / (1 - a)^2`` for ``a < 1``."""
        inverse = 1 / (1 - xp.where(a < 1, a, 0.0))
        return xp.where(a < 1, inverse * inverse, math.inf)

    def dual_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return ``-expm1(-z / 2)``."""
        return -expm1(-z / 2, xp)

    def conjugate_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return ``expm1(z / 2)``."""
        return expm1(z / 2, xp)

    value_at_zero = 1.0
    slope_at_zero = -math.inf
    slope_at_infinity = 1.0
    log_ratio_is_concave = True


@dataclass(frozen=True)
class Alpha(Divergence):
    """The alpha family, ``(t^a - a t - (1 - a)) / (a (a - 1))``.

    Continuous in its power: 1 is ``kl``, 0 is ``reverse_kl``, 2 is half of ``chi2``,
    1/2 is twice ``squared_hellinger``, -1 is half of Neyman's chi-square.

    Parameters
    ----------
    power
        Any real number ``a``.
    """

    name: ClassVar[str] = "alpha"

    power: float = 0.5

    def __post_init__(self) -> None:
        if not math.isfinite(self.power):
            raise InvalidParameterError(f"power must be finite; got {self.power!r}.")

    def f(self, t: Operand, xp: Namespace) -> Operand:
        """Return the generator; a series near 1 keeps all its digits."""
        a = self.power
        u = t - 1
        log = xp.log(xp.where(t > 0, t, 1.0))
        if a >= 0.5:
            far = (t * exp_family(log, a - 1, xp) - u) / a
        else:
            far = (u - exp_family(log, a, xp)) / (1 - a)
        far = xp.where(t > 0, far, 1 / a if a > 0 else math.inf)
        is_near = xp.abs(u) * max(1.0, abs(a)) < 0.1
        u = xp.where(is_near, u, 0.0)
        # sum_n u^n / n! prod_i (a - i)
        total = 1 + 0 * u
        for n in range(SERIES_TERMS, 2, -1):
            total = 1 + u * (a - (n - 1)) / n * total
        return xp.where(is_near, u * u / 2 * total, far)

    def f_prime(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``(t^(a-1) - 1) / (a - 1)``."""
        b = self.power - 1
        slope = exp_family(xp.log(xp.where(t > 0, t, 1.0)), b, xp)
        return xp.where(t > 0, slope, -1 / b if b > 0 else -math.inf)

    def f_second(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``t^(a-2)``."""
        b = self.power - 2
        at_zero = math.inf if b < 0 else (1.0 if b == 0 else 0.0)
        return xp.where(t > 0, xp.exp(b * xp.log(xp.where(t > 0, t, 1.0))), at_zero)

    def conjugate(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``(((alpha-1) a + 1)^(alpha/(alpha-1)) - 1) / alpha``."""
        b = self.power - 1
        base = 1 + b * a
        log = box_cox(xp.where(base > 0, a, 0.0), b, xp)
        beyond = -1 / self.power if b > 0 else math.inf
        at_edge = -1 / self.power if self.power < 0 else beyond
        outside = xp.where(base < 0, beyond + 0 * log, at_edge + 0 * log)
        return xp.where(base > 0, exp_family(log, self.power, xp), outside)

    def conjugate_prime(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``((alpha-1) a + 1)^(1/(alpha-1))``."""
        b = self.power - 1
        base = 1 + b * a
        log = box_cox(xp.where(base > 0, a, 0.0), b, xp)
        return xp.where(base > 0, xp.exp(log), 0.0 if b > 0 else math.inf)

    def dual_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return ``expm1((alpha-1) z) / (alpha-1)``."""
        return exp_family(z, self.power - 1, xp)

    def conjugate_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return ``expm1(alpha z) / alpha``."""
        return exp_family(z, self.power, xp)

    @property
    def value_at_zero(self) -> float:
        """``1 / alpha`` for positive powers, else infinite."""
        return 1 / self.power if self.power > 0 else math.inf

    @property
    def slope_at_zero(self) -> float:
        """``-1 / (alpha - 1)`` for powers above 1, else minus infinity."""
        return -1 / (self.power - 1) if self.power > 1 else -math.inf

    @property
    def slope_at_infinity(self) -> float:
        """``1 / (1 - alpha)`` for powers below 1, else infinite."""
        return 1 / (1 - self.power) if self.power < 1 else math.inf

    @property
    def log_ratio_is_concave(self) -> bool:
        """Holds exactly for powers between 0 and 1."""
        return 0 <= self.power <= 1
