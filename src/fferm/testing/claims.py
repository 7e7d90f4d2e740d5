"""What a law may claim, and how a broken one is told."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fferm._typing import FloatArray
from fferm.errors import ComponentError


class Checked(Protocol):
    """What laws can be held to: it knows what kind of thing it is."""

    @property
    def kind(self) -> str:
        """What messages call it."""


C = TypeVar("C", bound=Checked)


class BrokenLawError(Exception):
    """A law does not hold; the driver adds its name."""


def hold(component: C, laws: Mapping[str, Callable[[C], None]]) -> None:
    """Hold something to laws; raise `ComponentError` at the first it breaks."""
    for name, law in laws.items():
        try:
            with np.errstate(over="ignore", divide="raise", invalid="raise"):
                law(component)
        except BrokenLawError as broken:
            raise ComponentError(
                f"{component!r} breaks the law {name!r}: {broken}. Correct the "
                f"{component.kind}; fferm.testing states the laws."
            ) from None
        except Exception as error:  # a user's method may fail in any way
            raise ComponentError(
                f"{component!r} fails under the law {name!r}: "
                f"{type(error).__name__}: {error}. Correct the {component.kind}; "
                "fferm.testing states the laws."
            ) from error


def at_most(
    low: ArrayLike, high: ArrayLike, slack: ArrayLike, at: ArrayLike, of: str = "t"
) -> None:
    """Claim ``low <= high + slack`` at each point."""
    low, high, slack, at = np.broadcast_arrays(low, high, slack, at)
    with np.errstate(invalid="ignore"):
        broken = ~((low == high) | (low <= high + slack))  # NaN breaks any law
    _report(broken, low, "is above", high, at, of)


def equal(
    left: ArrayLike, right: ArrayLike, slack: ArrayLike, at: ArrayLike, of: str = "t"
) -> None:
    """Claim ``left = right`` up to the slack at each point."""
    left, right, slack, at = np.broadcast_arrays(left, right, slack, at)
    with np.errstate(invalid="ignore"):
        broken = ~((left == right) | (np.abs(left - right) <= slack))
    _report(broken, left, "is not", right, at, of)


def _report(
    broken: NDArray[np.bool_],
    left: NDArray[Any],
    relation: str,
    right: NDArray[Any],
    at: NDArray[Any],
    of: str,
) -> None:
    if broken.any():
        i = int(np.argmax(broken))
        raise BrokenLawError(
            f"at {of}={at.flat[i]:.6g}, {left.flat[i]:.12g} {relation} "
            f"{right.flat[i]:.12g}"
        )


def is_a_number(value: ArrayLike, at: FloatArray, formula: str) -> None:
    """Claim that a formula made no NaN."""
    broken = np.broadcast_to(np.isnan(value), at.shape)
    claim(not broken.any(), f"{formula} is NaN at t={at[np.argmax(broken)]:.6g}")


def claim(holds: bool, complaint: str) -> None:
    """Claim a plain fact."""
    if not holds:
        raise BrokenLawError(complaint)
