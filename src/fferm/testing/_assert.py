"""What a law may claim, and how a broken one is reported."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fferm._typing import FloatArray
from fferm.errors import ComponentError


class BrokenLawError(Exception):
    """A law does not hold; the driver adds its name."""


# Opens the block of a law by its name.
Law = Callable[[str], AbstractContextManager[None]]
# Only overflow is silent: 0/0 and the like break the law that meets them.
strictly = np.errstate(over="ignore", divide="raise", invalid="raise")


@contextmanager
def law_of(component: object, kind: str, law: str, setting: str = "") -> Iterator[None]:
    """Raise `ComponentError`, naming the law, where what is inside breaks it or fails.

    Parameters
    ----------
    component
        What is held to the law.
    kind
        What it is, such as ``"divergence"``.
    law
        The law in a few words.
    setting
        What it is tried on, if there are several.
    """
    law = f"{law!r} ({setting})" if setting else repr(law)
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
        is_kept = (low == high) | (low <= high + slack)  # NaN breaks any law
    _everywhere(is_kept, low, "is above", high, at, of)


def equal(
    left: ArrayLike, right: ArrayLike, slack: ArrayLike, at: ArrayLike, of: str = "t"
) -> None:
    """Claim ``left = right`` up to the slack at each point."""
    left, right, slack, at = np.broadcast_arrays(left, right, slack, at)
    with np.errstate(invalid="ignore"):
        is_kept = (left == right) | (np.abs(left - right) <= slack)
    _everywhere(is_kept, left, "is not", right, at, of)


def _everywhere(is_kept: Any, left: Any, is_what: str, right: Any, *at: Any) -> None:
    if not is_kept.all():
        points, name = at
        first = int(np.argmin(is_kept))
        values = f"{left.flat[first]:.12g} {is_what} {right.flat[first]:.12g}"
        raise BrokenLawError(f"at {name}={points.flat[first]:.6g}, {values}")


def not_nan(value: ArrayLike, at: FloatArray, formula: str) -> None:
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
