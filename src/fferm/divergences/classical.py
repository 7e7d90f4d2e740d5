"""The divergences of the paper, one class each."""

import math
from dataclasses import dataclass
from typing import ClassVar

from fferm._typing import Namespace, Operand
from fferm.divergences._series import expm1, log1p, log1p_minus, log_mean_exp
from fferm.divergences.base import Divergence
from fferm.errors import InvalidParameterError

# Width of the quadratic that replaces the kink of total variation in training.
KINK_WIDTH = 1e-3


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
        return xp.where(
            t > 0, xp.where(t > 2, 1 - 1 / ratio, (t - 1) / ratio), -math.inf
        )

    def f_second(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``1 / t^2``."""
        inverse = 1 / xp.where(t > 0, t, 1.0)
        return xp.where(t > 0, inverse * inverse, math.inf)

    def conjugate(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``-ln(1 - a)`` for ``a < 1``."""
        return xp.where(a < 1, -log1p(xp.where(a < 1, -a, 0.0), xp), math.inf)

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
                f"TotalVariation got smoothing={self.smoothing!r}. Expected a width "
                "from 0 to 2; beyond, the rounding would reach ratios below 0."
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
