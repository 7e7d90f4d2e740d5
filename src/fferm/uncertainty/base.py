"""The contract of an uncertainty set, and the arithmetic all sets share.

A cell where both the joint and the product are 0 belongs to nobody (an empty group):
it is left out of values, slopes, norms, means and medians.
"""

import math
import numbers
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fferm._typing import FloatArray
from fferm.divergences import Divergence
from fferm.errors import InvalidParameterError
from fferm.registry import Registered

# A product of summed marginals is right to a few units in the last place. Ratios this
# close to 1 are 1: the kink of total variation would turn 1e-16 into a whole slope.
RATIO_ROUNDING = 1e-14
RADIUS = "It is a distance between probabilities; 0.01 to 0.1 is common."


@dataclass(frozen=True)
class Uncertainty(Registered, abstract=True):
    """A set of tables around the one at hand."""

    kind: ClassVar[str] = "uncertainty"
    required: ClassVar[tuple[str, ...]] = ("penalty",)

    @property
    def is_coupled(self) -> bool:
        """Whether only P moves and Q follows, which takes the group weights."""
        return False

    @property
    def reach(self) -> float:
        """The absolute radius of a cell, to warn where it exceeds the cell; else 0."""
        return 0.0

    @abstractmethod
    def penalty(
        self, p: FloatArray, q: FloatArray, divergence: Divergence
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the penalty, and its slopes by a joint and a product that are free.

        Parameters
        ----------
        p, q
            (classes x groups) tables of equal total: the joint, and the product of
            its marginals.
        divergence
            What the penalty measures.

        Returns
        -------
        tuple of float, FloatArray and FloatArray
            Value, d value / dp, d value / dq. They may be infinite, never NaN.
        """

    def coupled_penalty(
        self, p: FloatArray, prior: FloatArray, divergence: Divergence
    ) -> tuple[float, FloatArray]:
        """Return the penalty with ``Q = rowsum(P) x prior``, and its payoff dR / dP.

        Parameters
        ----------
        p
            (classes x groups) joint.
        prior
            (groups,) weights, constants.
        divergence
            What the penalty measures.

        Returns
        -------
        tuple of float and FloatArray
            Value and payoff. They may be infinite, never NaN.

        Notes
        -----
        Sets that are never coupled need not define it.
        """
        self._check_coupling(True)
        raise NotImplementedError(f"{type(self).__name__} defines no coupled penalty.")

    def _check_number(self, field: str, hint: str, largest: float = math.inf) -> None:
        value = getattr(self, field)
        is_number = isinstance(value, numbers.Real) and math.isfinite(value)
        if not (is_number and 0 <= value <= largest):
            bound = "" if math.isinf(largest) else f" and at most {largest:g}"
            raise InvalidParameterError(
                f"{field} of {type(self).__name__} must be a finite number of at least "
                f"0{bound}; got {value!r}. {hint}"
            )

    def _check_choice(self, field: str, choices: Sequence[object]) -> None:
        if (value := getattr(self, field)) not in choices:
            raise InvalidParameterError(
                f"{field} of {type(self).__name__} must be one of "
                f"{', '.join(map(repr, choices))}; got {value!r}."
            )

    def _check_coupling(self, is_coupled: bool) -> None:
        if self.is_coupled != is_coupled:
            names = "penalty", "coupled_penalty"
            raise InvalidParameterError(
                f"`{names[is_coupled]}` needs is_coupled={is_coupled}, but is_coupled "
                f"is {self.is_coupled} in {self!r}. Call `{names[self.is_coupled]}`."
            )


def live_cells(p: FloatArray, q: FloatArray) -> NDArray[np.bool_]:
    """Return where a table has mass in the joint or in the product."""
    return (p > 0) | (q > 0)


def spread(values: FloatArray, live: NDArray[np.bool_]) -> FloatArray:
    """Return a table with values at its live cells and 0 elsewhere."""
    table = np.zeros(live.shape)
    table[live] = values
    return table


def times(x: FloatArray | float, y: FloatArray | float) -> FloatArray:
    """Return ``x y``, where 0 wins against infinity: what is held fixed is fixed."""
    x, y = np.asarray(x), np.asarray(y)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where((x == 0) | (y == 0), 0.0, x * y)


def settled(slopes: FloatArray, dual: FloatArray) -> FloatArray:
    """Return slopes without NaN.

    Where infinities of opposite sign met, the dual A decides: at ``p = 0`` it grows
    faster than C for every divergence. Where A is finite no direction is defined: 0.
    """
    return np.where(np.isnan(slopes), np.where(np.isinf(dual), dual, 0.0), slopes)


def dual_and_conjugate(
    p: FloatArray, q: FloatArray, divergence: Divergence
) -> tuple[FloatArray, FloatArray]:
    """Return A and C by cell, both 0 at cells that belong to nobody."""
    live = live_cells(p, q)
    is_even = np.abs(p - q) <= RATIO_ROUNDING * q
    dual, minus_conjugate = divergence.slopes(np.where(is_even, q, p), q)
    return np.where(live, dual, 0.0), np.where(live, -minus_conjugate, 0.0)
