"""The contract of a divergence, what follows from its formulas, and transformations.

Those are divergences made from a divergence: tilted, scaled, continued linearly.
"""

import functools
import itertools
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from fferm._typing import FloatArray, Namespace, Operand
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.registry import Registered

# Ratios below this are continued linearly in training. The dual of such a cell is
# then bounded, as the convergence theorem assumes, and D stays an f-divergence that
# vanishes exactly at independence.
RATIO_FLOOR = 1e-3

# Below this ratio, differences of a bounded f' are nothing but rounding.
LEAST_DIFFERENCED = 1e-8

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Divergence(Registered, abstract=True):
    """An f-divergence in canonical form."""

    kind: ClassVar[str] = "divergence"
    required = ("f", "f_prime", "conjugate", "conjugate_prime")

    @abstractmethod
    def f(self, t: Operand, xp: Namespace) -> Operand:
        """Return the generator at ratios ``t >= 0``."""

    @abstractmethod
    def f_prime(self, t: Operand, xp: Namespace) -> Operand:
        """Return the slope of the generator: the optimal dual of a cell."""

    @abstractmethod
    def conjugate(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``sup_t a t - f(t)``."""

    @abstractmethod
    def conjugate_prime(self, a: Operand, xp: Namespace) -> Operand:
        """Return the slope of the conjugate: the ratio whose dual is ``a``."""

    def f_second(self, t: Operand, xp: Namespace) -> Operand:
        """Return the curvature of the generator.

        The default takes fourth-order differences of ``f_prime`` in ``log t`` and is
        right to about ten digits at ratios near 1, to five at 1e-8, and constant
        below; robust penalties use it.
        """
        h = 2e-3
        t = xp.where(t > LEAST_DIFFERENCED, t, LEAST_DIFFERENCED)
        points = (t * math.exp(n * h) for n in (-2, -1, 1, 2))
        lowest, low, high, highest = (self.f_prime(point, xp) for point in points)
        return (8 * (high - low) - (highest - lowest)) / (12 * h * t)

    def dual_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return the dual ``A = f'(e^z)`` at a free log-ratio ``z``."""
        return self.f_prime(xp.exp(z), xp)

    def conjugate_at(self, z: Operand, xp: Namespace) -> Operand:
        """Return ``C = f*(f'(e^z))`` at a free log-ratio ``z``."""
        return self.conjugate(self.dual_at(z, xp), xp)

    @property
    def value_at_zero(self) -> float:
        """The limit of ``f`` at 0, possibly infinite."""
        return _limit(self.f, (1e-150, 1e-300))

    @property
    def slope_at_zero(self) -> float:
        """The limit of ``f'`` at 0, possibly minus infinity."""
        return _limit(self.f_prime, (1e-150, 1e-300))

    @property
    def slope_at_infinity(self) -> float:
        """The limit of ``f'`` at infinity, possibly infinite."""
        return _limit(self.f_prime, (1e150, 1e300))

    @property
    def dual_domain(self) -> tuple[float, float]:
        """The interval on which the formula of the conjugate is one piece."""
        return self.slope_at_zero, self.slope_at_infinity

    @property
    def is_smooth(self) -> bool:
        """Whether ``f`` has no kink; then D is near ``f''(1) / 2`` times chi2."""
        return True

    @property
    def log_ratio_is_concave(self) -> bool:
        """Whether the dual objective of a cell is concave in the log-ratio.

        Meant for log-ratios whose dual lies inside `dual_domain`; where a linear tail
        holds the dual, the objective is flat.
        """
        return False

    def dual_box(
        self, prior: FloatArray, floor: float = RATIO_FLOOR
    ) -> tuple[float, FloatArray]:
        """Return the bounds of the dual: ``f'(floor)`` and ``f'(1 / prior_k)``.

        A ratio never exceeds ``1 / prior_k``, so the upper bound loses nothing; the
        lower one continues ``f`` linearly below ``floor``.
        """
        with np.errstate(divide="ignore", over="ignore"):
            upper = self.f_prime(1 / np.asarray(prior, dtype=np.float64), np)
        return float(self.f_prime(np.float64(floor), np)), upper

    def perspective(self, p: FloatArray, q: FloatArray) -> FloatArray:
        """Return ``q f(p / q)`` by cell, with its limits where ``q`` is 0."""
        with np.errstate(over="ignore", invalid="ignore"):
            safe = np.where(q > 0, q, 1.0)
            inside = q * self.f(np.where(q > 0, p, 1.0) / safe, np)
            edge = np.where(p > 0, p, 1.0) * self.slope_at_infinity
        return np.where(q > 0, inside, np.where(p > 0, edge, 0.0))

    def total(self, p: FloatArray, q: FloatArray) -> float:
        """Return ``sum q f(p / q)`` over all cells of two tables."""
        if q.min(initial=1.0) > 0:  # no limits to take
            with np.errstate(over="ignore", invalid="ignore"):
                return float((q * evaluate(self.f, p / q)).sum())
        return float(self.perspective(p, q).sum())

    def slopes(self, p: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the derivatives of the perspective by ``p`` and by ``q``.

        They are ``A = f'(t)`` and ``-f*(A)`` at ``t = p / q``; 0 where both are 0.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            if p.min(initial=1.0) > 0 and q.min(initial=1.0) > 0:  # no limits to take
                t = p / q
                dual = evaluate(self.f_prime, t)
                return dual, -evaluate(self.conjugate_at, np.log(t))
            t = np.where(q > 0, p, 1.0) / np.where(q > 0, q, 1.0)
            t = np.where((q <= 0) & (p > 0), np.inf, t)
            dual = np.asarray(self.f_prime(t, np), dtype=np.float64)
            # By the log-ratio: at large t the dual rounds to the end of its domain,
            # where the conjugate is infinite although f*(f'(t)) is not.
            z = np.where(t > 0, np.log(np.where(t > 0, t, 1.0)), -np.inf)
            conjugate = np.asarray(self.conjugate_at(z, np), dtype=np.float64)
        is_empty = (p <= 0) & (q <= 0)
        return np.where(is_empty, 0.0, dual), np.where(is_empty, 0.0, -conjugate)

    def value_and_slopes(
        self, p: FloatArray, q: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return `total` and both `slopes`."""
        return self.total(p, q), *self.slopes(p, q)

    def between(self, joint: FloatArray) -> float:
        """Return ``D_f`` between a (classes x groups) table and independence."""
        table = np.asarray(joint, dtype=np.float64)
        if table.ndim != 2 or not np.all(table >= 0) or table.sum() <= 0:
            raise InvalidInputError(
                "A joint table must hold non-negative numbers, classes x groups; got "
                f"shape {table.shape}. Build one with fferm.tables.joint."
            )
        table = table / table.sum()
        product = table.sum(axis=1, keepdims=True) * table.sum(axis=0)
        value = self.total(table, product)
        if value < 0:
            # Only rounding makes D negative, in each cell by an ulp of the terms of f,
            # which near 1 are as large as its slope (of a tilt) and its curvature.
            one = np.float64(1)
            terms = abs(self.f_prime(one, np)) + abs(self.f_second(one, np))
            return 0.0 if value >= -table.size * EPS * terms else value
        return value

    def largest(self, prior: FloatArray) -> float:
        """Return the largest ``D_f`` that group weights allow (prediction = group)."""
        prior = np.asarray(prior, dtype=np.float64)
        prior = prior[prior > 0]
        # Not 1 - sum of squares: that rounds to 0 beside one overwhelming group.
        off_diagonal = np.sum(prior * (prior.sum() - prior))
        worst = np.sum(self.perspective(prior, prior**2))
        empty = off_diagonal * self.value_at_zero if off_diagonal > 0 else 0.0
        return float(worst + empty)

    def smoothed(self) -> "Divergence":
        """Return this divergence with its kinks rounded; itself where it has none."""
        return self


def _limit(formula: "Formula", points: tuple[float, float]) -> float:
    # A limit exists where two distant points agree to 10 %; powers and logarithms
    # that diverge differ by far more between them.
    with np.errstate(all="ignore"):
        near, far = (float(formula(np.float64(t), np)) for t in points)
    if math.isfinite(far) and abs(far - near) <= 0.1 * abs(far) + 1e-12:
        return far
    return math.inf if far > 0 else -math.inf


Formula: TypeAlias = Callable[[Operand, Namespace], Operand]

# With more cells, arrays are faster.
FEW = 24


def _where(condition: bool, x: float, y: float) -> float:
    return x if condition else y


# The five functions of a formula, on one Python number.
SCALARS: Any = SimpleNamespace(
    exp=math.exp, log=math.log, sqrt=math.sqrt, abs=abs, where=_where
)


def evaluate(formula: Formula, t: FloatArray) -> FloatArray:
    """Return a formula at every number of an array.

    A call of NumPy takes as long for four numbers as for four hundred, so a few cells
    are cheaper one by one, as plain Python numbers.

    Examples
    --------
    >>> evaluate(lambda t, xp: xp.where(t > 1, xp.log(t), 0.0), np.array([0.5, np.e]))
    array([0., 1.])
    """
    if t.size <= FEW:
        try:
            values = map(formula, t.ravel().tolist(), itertools.repeat(SCALARS))
            return np.array(list(values), dtype=np.float64).reshape(t.shape)
        except (ArithmeticError, AttributeError, TypeError, ValueError):
            # Python raises where NumPy returns infinity, and a user's own formula may
            # be written for arrays only.
            pass
    with np.errstate(all="ignore"):
        return np.asarray(formula(t, np), dtype=np.float64)


@dataclass(frozen=True)
class Transformed(Divergence, abstract=True):
    """A divergence made from a divergence, as smooth and as concave as that is.

    Parameters
    ----------
    base
        The divergence that is transformed.
    """

    base: Divergence

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
        return replace(self, base=self.base.smoothed())


@dataclass(frozen=True)
class Affine(Transformed):
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

    def between(self, joint: FloatArray) -> float:
        """Return the base's value, scaled.

        Table and product have the same sum, so a tilt adds nothing but its rounding.
        """
        return self.scale * self.base.between(joint)

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


@dataclass(frozen=True)
class LinearTail(Transformed):
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

    floor: float = RATIO_FLOOR

    def __post_init__(self) -> None:
        if not 0 < self.floor < 1:
            raise InvalidParameterError(
                "floor must be between 0 and 1, because above 1 the divergence would "
                f"vanish away from independence too; got {self.floor!r}."
            )

    def f(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``f`` above the floor and its tangent at the floor below it."""
        above = xp.where(t > self.floor, t, self.floor)
        below = xp.where(t > self.floor, self.floor, t)
        return self.base.f(above, xp) + self.slope_at_zero * (below - self.floor)

    def f_prime(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``f'``, constant below the floor."""
        return self.base.f_prime(xp.where(t > self.floor, t, self.floor), xp)

    def f_second(self, t: Operand, xp: Namespace) -> Operand:
        """Return ``f''``, 0 below the floor."""
        safe = xp.where(t > self.floor, t, 1.0)
        return xp.where(t > self.floor, self.base.f_second(safe, xp), 0.0)

    def conjugate(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``f*``; below ``f'(floor)`` it stays at its value there."""
        low = self.slope_at_zero
        return self.base.conjugate(xp.where(a > low, a, low), xp)

    def conjugate_prime(self, a: Operand, xp: Namespace) -> Operand:
        """Return ``f*'``; 0 below ``f'(floor)``."""
        low = self.slope_at_zero
        inside = self.base.conjugate_prime(xp.where(a > low, a, low), xp)
        return xp.where(a >= low, inside, 0.0)

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
        if q.size > FEW:
            return super().value_and_slopes(p, q)
        base, value = self.base, 0.0
        slopes: list[tuple[Operand, Operand]] = []
        try:
            cells = zip(p.ravel().tolist(), q.ravel().tolist(), strict=True)
            for mass, product in cells:
                ratio = mass / product
                safe = max(ratio, self.floor)
                slope = base.f_prime(safe, SCALARS)
                slopes.append((slope, -base.conjugate_at(math.log(safe), SCALARS)))
                value += product * (base.f(safe, SCALARS) + slope * (ratio - safe))
        except (ArithmeticError, AttributeError, TypeError, ValueError):
            # A product of 0, or formulas that need arrays.
            return super().value_and_slopes(p, q)
        by_p, by_q = np.array(slopes, dtype=np.float64).reshape(-1, 2).T
        return value, by_p.reshape(q.shape), by_q.reshape(q.shape)

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


def trainable(divergence: Divergence) -> Divergence:
    """Return the form that a gradient method can follow everywhere."""
    return LinearTail(divergence.smoothed())


def is_kept(divergence: Divergence) -> bool:
    """Return whether compiled formulas stay in the cache on disk.

    Those of this library do, as it gives them by name. A sweep of parameters would
    fill the cache, and somebody's own formulas may change under the same name.
    """
    cls = type(divergence)
    is_ours = cls.__module__.startswith(f"{__package__}.")
    return is_ours and divergence == cls().smoothed()


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
