"""Seconds of several sides, taken in turn, and their ratios.

Seconds are those of the processor: on one thread they are what a clock shows on an idle
machine, and other programs count for less. A machine that is busy for a while slows all
sides of a round, and the ratio of a round stays what it is. The figure is the median
over rounds, the spread its range.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

clock = time.process_time


def interleaved(
    sides: dict[str, Callable[[], float]], *, rounds: int, warm_up: bool = True
) -> dict[str, list[float]]:
    """Return what each side returns, taken in turn, perhaps after one warm-up."""
    if warm_up:
        for side in sides.values():
            side()
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            found[name].append(side())
    return found


class Timed:
    """A function whose call returns its seconds; ``value`` is what it last returned."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.value: Any = None

    def __call__(self) -> float:
        """Return the seconds of one call."""
        began = clock()
        self.value = self.function()
        return clock() - began


def spread(values: Any) -> list[float]:
    """Return median, least and largest value."""
    return [float(np.median(values)), float(np.min(values)), float(np.max(values))]


def ratio(above: Any, below: Any, asked: str = "") -> dict[str, Any]:
    """Return the ratio of paired rounds as a row of the table of ratios.

    ``asked`` says what it should be, such as "≥ 20".
    """
    median, least, largest = spread(np.asarray(above) / np.asarray(below))
    return {"median": median, "least": least, "largest": largest, "asked": asked}


def in_words(found: dict[str, Any]) -> str:
    """Return a ratio as text."""
    words = f"{found['median']:.2f} ({found['least']:.2f} to {found['largest']:.2f})"
    return words + (f", asked {found['asked']}" if found["asked"] else "")
