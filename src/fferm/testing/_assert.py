"""What a law may claim, and how a broken one is reported."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fferm._typing import FloatArray
from fferm.errors import ComponentError


class BrokenLawError(Exception):
    """A law does not hold; the driver adds its name."""


def hold(component: Any, laws: Mapping[str, Callable[..., None]], *args: Any) -> None:
    """Hold a component to laws; raise `ComponentError` at the first it breaks."""
    for name, law in laws.items():
        with (
            reported(component, component.kind, repr(name)),
            np.errstate(over="ignore", divide="raise", invalid="raise"),
        ):
            law(component, *args)


@contextmanager
def reported(component: object, kind: str, law: str) -> Iterator[None]:
    """Raise `ComponentError`, naming the law, where one is broken or fails."""
    advice = f"Correct the {kind}; fferm.testing states the laws."
    try:
        yield
    except BrokenLawError as broken:
        raise ComponentError(
            f"{component!r} breaks the law {law}: {broken}. {advice}"
        ) from None
    except Exception as error:  # a user's method may fail in any way
        problem = f"{type(error).__name__}: {error}"
        raise ComponentError(
            f"{component!r} fails under the law {law}: {problem}. {advice}"
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


@contextmanager
def refused(error: type[Exception], complaint: str) -> Iterator[None]:
    """Claim that what is inside raises an error."""
    with suppress(error):
        yield
        raise BrokenLawError(complaint)


def claim(holds: bool, complaint: str) -> None:
    """Claim a plain fact."""
    if not holds:
        raise BrokenLawError(complaint)
