"""The contract of a divergence, and all that follows from its four formulas."""

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from fferm._typing import FloatArray, Namespace, Operand
from fferm.errors import InvalidInputError
from fferm.registry import Registered

# Ratios below this are continued linearly in training. The dual of such a cell is
# then bounded, as the convergence theorem assumes, and D stays an f-divergence that
# vanishes exactly at independence.
RATIO_FLOOR = 1e-3

# Below this ratio, differences of a bounded f' are nothing but rounding.
LEAST_DIFFERENCED = 1e-8


@dataclass(frozen=True)
class Divergence(Registered, abstract=True):
    """An f-divergence in canonical form."""

    kind: ClassVar[str] = "divergence"
    required: ClassVar[tuple[str, ...]] = (
        "f",
        "f_prime",
        "conjugate",
        "conjugate_prime",
    )

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
        near = self.f_prime(t * math.exp(h), xp) - self.f_prime(t * math.exp(-h), xp)
        far = self.f_prime(t * math.exp(2 * h), xp) - self.f_prime(
            t * math.exp(-2 * h), xp
        )
        return (8 * near - far) / (12 * h * t)

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
                return evaluate(self.f_prime, t), -evaluate(
                    self.conjugate_at, np.log(t)
                )
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
        return self.total(table, product)

    def largest(self, prior: FloatArray) -> float:
        """Return the largest ``D_f`` that group weights allow (prediction = group)."""
        prior = np.asarray(prior, dtype=np.float64)
        prior = prior[prior > 0]
        # Not 1 - sum of squares: that rounds to 0 beside one overwhelming group.
        off_diagonal = np.sum(prior * (prior.sum() - prior))
        worst = np.sum(self.perspective(prior, prior**2))
        return float(
            worst + (off_diagonal * self.value_at_zero if off_diagonal > 0 else 0.0)
        )

    def smoothed(self) -> "Divergence":
        """Return this divergence with its kinks rounded; itself where it has none."""
        return self


def _limit(
    formula: Callable[[Operand, Namespace], Operand], points: tuple[float, float]
) -> float:
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


class Scalars:
    """The five functions of a formula, on one Python number."""

    exp = staticmethod(math.exp)
    log = staticmethod(math.log)
    sqrt = staticmethod(math.sqrt)
    abs = staticmethod(abs)

    @staticmethod
    def where(condition: bool, x: float, y: float) -> float:
        """Return x where the condition holds, else y."""
        return x if condition else y


SCALARS = Scalars()


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
        except (ArithmeticError, ValueError):
            pass  # Python raises where NumPy returns infinity
        except (AttributeError, TypeError):
            pass  # a user's own formula, written for arrays only
    with np.errstate(all="ignore"):
        return np.asarray(formula(t, np), dtype=np.float64)
