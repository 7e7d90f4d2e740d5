"""The alpha family, continuous through the powers 0 and 1."""

import math
from dataclasses import dataclass
from typing import ClassVar

from fferm._typing import Namespace, Operand
from fferm.divergences._series import box_cox, exp_family, power_series
from fferm.divergences.base import Divergence
from fferm.errors import InvalidParameterError


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
            raise InvalidParameterError(
                f"Alpha got power={self.power!r}. Expected a finite real number."
            )

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
        return xp.where(is_near, power_series(xp.where(is_near, u, 0.0), a), far)

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
