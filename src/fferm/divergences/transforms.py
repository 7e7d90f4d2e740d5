"""Divergences made from a divergence: tilted, scaled, continued linearly."""

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fferm._typing import FloatArray, Namespace, Operand
from fferm.divergences.base import FEW, RATIO_FLOOR, SCALARS, Divergence
from fferm.errors import InvalidParameterError


@dataclass(frozen=True)
class Affine(Divergence):
    """A scaled and tilted divergence, ``scale f(t) + slope (t - 1)``.

    The tilt changes neither D nor any gradient of a model, but it shifts the dual
    and **changes every decoupled robust penalty with** ``norm="dual"``: with the
    paper's tilts a fair model does not minimise it. Use it to reproduce the paper.

    Parameters
    ----------
    base
        The divergence in canonical form.
    scale, slope
        Factor and tilt.
    """

    name: ClassVar[str] = "affine"

    base: Divergence
    scale: float = 1.0
    slope: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.scale < math.inf and math.isfinite(self.slope)):
            raise InvalidParameterError(
                "Affine needs a positive scale, which keeps f convex, and a finite "
                f"slope; got scale={self.scale!r}, slope={self.slope!r}."
            )

    def f(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``scale f(t) + slope (t - 1)``."""
        return self.scale * self.base.f(t, xp) + self.slope * (t - 1)

    def f_prime(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``scale f'(t) + slope``."""
        return self.scale * self.base.f_prime(t, xp) + self.slope

    def f_second(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``scale f''(t)``."""
        return self.scale * self.base.f_second(t, xp)

    def conjugate(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``scale f*((a - slope) / scale) + slope``."""
        inner = (a - self.slope) / self.scale
        return self.scale * self.base.conjugate(inner, xp) + self.slope

    def conjugate_prime(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``f*'((a - slope) / scale)``."""
        return self.base.conjugate_prime((a - self.slope) / self.scale, xp)

    def dual_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return the base's dual, scaled and shifted."""
        return self.scale * self.base.dual_at(z, xp) + self.slope

    def conjugate_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return the base's conjugate, scaled and shifted."""
        return self.scale * self.base.conjugate_at(z, xp) + self.slope

    def total(self, p: FloatArray, q: FloatArray) -> float:
        """Return the base's total, scaled, plus the tilt times the excess of ``p``.

        Cell by cell the tilt would swamp a small ``f`` and then cancel.
        """
        return self.scale * self.base.total(p, q) + self.slope * float(np.sum(p - q))

    @property
    def value_at_zero(self) -> float:
        """The base's limit, scaled, less the tilt."""
        return self.scale * self.base.value_at_zero - self.slope

    @property
    def slope_at_zero(self) -> float:
        """The base's limit, scaled and shifted."""
        return self.scale * self.base.slope_at_zero + self.slope

    @property
    def slope_at_infinity(self) -> float:
        """The base's limit, scaled and shifted."""
        return self.scale * self.base.slope_at_infinity + self.slope

    @property
    def dual_domain(self) -> tuple[float, float]:
        """The base's interval, scaled and shifted."""
        low, high = self.base.dual_domain
        return self.scale * low + self.slope, self.scale * high + self.slope

    @property
    def is_smooth(self) -> bool:
        """As the base."""
        return self.base.is_smooth

    @property
    def log_ratio_is_concave(self) -> bool:
        """As the base."""
        return self.base.log_ratio_is_concave

    def smoothed(self) -> Divergence:
        """Return the same transformation of the smoothed base."""
        return Affine(self.base.smoothed(), self.scale, self.slope)


@dataclass(frozen=True)
class LinearTail(Divergence):
    """A divergence continued linearly below a small ratio.

    This is exactly what bounding the dual from below by ``f'(floor)`` does. It keeps
    D finite where a group never gets a class, and D still vanishes only at
    independence.

    Parameters
    ----------
    base
        The divergence to continue.
    floor
        The ratio below which it is linear.
    """

    name: ClassVar[str] = "linear_tail"

    base: Divergence
    floor: float = RATIO_FLOOR

    def __post_init__(self) -> None:
        if not 0 < self.floor < 1:
            raise InvalidParameterError(
                "floor must be between 0 and 1, because above 1 the divergence would "
                f"vanish away from independence too; got {self.floor!r}."
            )

    @functools.cached_property
    def _at_floor(self) -> float:
        return float(self.base.f(np.float64(self.floor), np))

    def f(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``f`` above the floor and its tangent at the floor below it."""
        safe = xp.where(t > self.floor, t, self.floor)
        tangent = self._at_floor + self.slope_at_zero * (t - self.floor)
        return xp.where(t > self.floor, self.base.f(safe, xp), tangent)

    def f_prime(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``f'``, constant below the floor."""
        return self.base.f_prime(xp.where(t > self.floor, t, self.floor), xp)

    def f_second(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``f''``, 0 below the floor."""
        safe = xp.where(t > self.floor, t, 1.0)
        return xp.where(t > self.floor, self.base.f_second(safe, xp), 0.0)

    def conjugate(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``f*``; below ``f'(floor)`` it stays at its value there."""
        return self.base.conjugate(self._clipped(a, xp), xp)

    def conjugate_prime(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``f*'``; 0 below ``f'(floor)``."""
        inside = self.base.conjugate_prime(self._clipped(a, xp), xp)
        return xp.where(a >= self.slope_at_zero, inside, 0.0)

    def dual_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return the base's dual, constant below the floor."""
        low = math.log(self.floor)
        return self.base.dual_at(xp.where(z > low, z, low), xp)

    def conjugate_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return the base's conjugate, constant below the floor."""
        low = math.log(self.floor)
        return self.base.conjugate_at(xp.where(z > low, z, low), xp)

    def value_and_slopes(
        self, p: FloatArray, q: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return `total` and both `slopes`, of few cells one by one.

        Solvers ask for little else, so this is written out, not built on `evaluate`.
        """
        if q.size > FEW or q.min(initial=1.0) <= 0:
            return super().value_and_slopes(p, q)
        base, value = self.base, 0.0
        slopes: list[tuple[Operand, Operand]] = []
        try:
            for mass, product in zip(
                p.ravel().tolist(), q.ravel().tolist(), strict=True
            ):
                ratio = mass / product
                safe = max(ratio, self.floor)
                slope = base.f_prime(safe, SCALARS)
                slopes.append((slope, -base.conjugate_at(math.log(safe), SCALARS)))
                value += product * (base.f(safe, SCALARS) + slope * (ratio - safe))
        except (ArithmeticError, AttributeError, TypeError, ValueError):
            return super().value_and_slopes(p, q)  # formulas that need arrays
        by_p, by_q = np.array(slopes, dtype=np.float64).reshape(-1, 2).T
        return value, by_p.reshape(q.shape), by_q.reshape(q.shape)

    def _clipped(self, a: Operand, xp: Namespace) -> Operand:
        low = self.slope_at_zero
        return xp.where(a > low, a, low)

    @property
    def value_at_zero(self) -> float:
        """Where the tangent meets the axis: ``-f*(f'(floor))``."""
        return -float(self.base.conjugate(np.float64(self.slope_at_zero), np))

    @functools.cached_property
    def slope_at_zero(self) -> float:
        """The slope at the floor."""
        return float(self.base.f_prime(np.float64(self.floor), np))

    @property
    def slope_at_infinity(self) -> float:
        """As the base."""
        return self.base.slope_at_infinity

    @property
    def is_smooth(self) -> bool:
        """As the base."""
        return self.base.is_smooth

    @property
    def log_ratio_is_concave(self) -> bool:
        """As the base."""
        return self.base.log_ratio_is_concave

    def smoothed(self) -> Divergence:
        """Return the smoothed base, continued from the same ratio."""
        return LinearTail(self.base.smoothed(), self.floor)


def trainable(divergence: Divergence) -> Divergence:
    """Return the form that a gradient method can follow everywhere."""
    return LinearTail(divergence.smoothed())


def strip(divergence: Divergence) -> tuple[Divergence, float, float]:
    """Return the divergence under its transformations, their factor and their floor.

    A tilt changes no gradient of a model and is left out. A factor goes into the weight
    of the penalty, and a linear tail is what a box of the dual from its floor on does.
    """
    scale, floor = 1.0, RATIO_FLOOR
    while isinstance(divergence, Affine | LinearTail):
        if isinstance(divergence, Affine):
            scale *= divergence.scale
        else:
            floor = max(floor, divergence.floor)
        divergence = divergence.base
    return divergence.smoothed(), scale, floor


def curvature_scaled(divergence: Divergence) -> Divergence:
    """Return a divergence over ``f''(1) / 2``, so that weights compare."""
    if not divergence.is_smooth:
        raise InvalidParameterError(
            f"{divergence.name} has a kink at 1 and so no curvature there. Use it "
            "unscaled, or choose a smooth divergence."
        )
    return Affine(divergence, scale=2 / float(divergence.f_second(np.float64(1), np)))
