"""Losses of a number that was predicted, of the residual ``y - prediction``.

Formulas take NumPy arrays and torch tensors alike, as those of divergences do.
Residuals are in standard deviations of y, so that a width means the same whatever the
unit of y is.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from fferm._typing import Namespace, Operand
from fferm.data.validate import POSITIVE, Number, check_params
from fferm.registry import Registered

# Half of the width, in standard deviations of y, on which a corner is rounded: a
# gradient that jumps from row to row would stall the full batch.
ROUNDED = 0.01


@dataclass(frozen=True)
class Loss(Registered, abstract=True):
    """A convex loss of the residual with a continuous slope."""

    kind: ClassVar[str] = "loss"
    required: ClassVar[tuple[str, ...]] = ("value", "slope")

    @abstractmethod
    def value(self, residual: Operand, xp: Namespace) -> Operand:
        """Return the loss of each residual."""

    @abstractmethod
    def slope(self, residual: Operand, xp: Namespace) -> Operand:
        """Return the derivative of the loss by the residual."""


@dataclass(frozen=True)
class Squared(Loss):
    """Half the squared residual: predicts the mean."""

    name: ClassVar[str] = "squared"
    aliases: ClassVar[tuple[str, ...]] = ("squared_error",)

    def value(self, residual: Operand, xp: Namespace) -> Operand:
        """Return half the square."""
        return residual * residual / 2

    def slope(self, residual: Operand, xp: Namespace) -> Operand:
        """Return the residual."""
        return residual


@dataclass(frozen=True)
class Huber(Loss):
    """Half the square of small residuals, linear in large ones.

    Parameters
    ----------
    width
        Where it becomes linear, in standard deviations of y.
    """

    name: ClassVar[str] = "huber"

    width: float = 1.0

    def __post_init__(self) -> None:
        check_params(vars(self), {"width": POSITIVE})

    def value(self, residual: Operand, xp: Namespace) -> Operand:
        """Return the loss of each residual."""
        size = xp.abs(residual)
        linear = self.width * (size - self.width / 2)
        return xp.where(size <= self.width, residual * residual / 2, linear)

    def slope(self, residual: Operand, xp: Namespace) -> Operand:
        """Return the residual, clipped to the width."""
        sign = xp.where(residual > 0, 1.0, -1.0) * self.width
        return xp.where(xp.abs(residual) <= self.width, residual, sign)


@dataclass(frozen=True)
class Quantile(Loss):
    """The pinball loss: predicts a quantile.

    Its corner is rounded within 0.01 standard deviations of y.

    Parameters
    ----------
    level
        Which quantile, between 0 and 1; 0.5 is the median.
    """

    name: ClassVar[str] = "quantile"
    aliases: ClassVar[tuple[str, ...]] = ("pinball",)

    level: float = 0.5

    def __post_init__(self) -> None:
        level = Number(0, 1, open_low=True, open_high=True)
        check_params(vars(self), {"level": level})

    def value(self, residual: Operand, xp: Namespace) -> Operand:
        """Return the loss of each residual."""
        return (_rounded(residual, xp) + (2 * self.level - 1) * residual) / 2

    def slope(self, residual: Operand, xp: Namespace) -> Operand:
        """Return the level above the corner, the level minus 1 below it."""
        return (_rounded_slope(residual, xp) + (2 * self.level - 1)) / 2


@dataclass(frozen=True)
class Absolute(Loss):
    """The absolute residual: predicts the median.

    Its corner is rounded within 0.01 standard deviations of y.
    """

    name: ClassVar[str] = "absolute"
    aliases: ClassVar[tuple[str, ...]] = ("absolute_error",)

    def value(self, residual: Operand, xp: Namespace) -> Operand:
        """Return the size of each residual."""
        return _rounded(residual, xp)

    def slope(self, residual: Operand, xp: Namespace) -> Operand:
        """Return the sign of each residual."""
        return _rounded_slope(residual, xp)


def get(spec: str | Loss) -> Loss:
    """Return the loss that a name or an instance stands for.

    Examples
    --------
    >>> get("huber")
    Huber(width=1.0)
    """
    return Loss.resolve(spec)


# The absolute value is a Huber function of tiny width, divided by that width.
_CORNER = Huber(ROUNDED)


def _rounded(residual: Operand, xp: Namespace) -> Operand:
    return _CORNER.value(residual, xp) / ROUNDED + ROUNDED / 2


def _rounded_slope(residual: Operand, xp: Namespace) -> Operand:
    return _CORNER.slope(residual, xp) / ROUNDED
