"""Tables of weights, and what they say: the rates of outcomes and their gaps.

Rates are (..., strata, outcomes, groups) arrays, NaN where a group is absent. This file
knows nothing of notions, models or data frames.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fferm._typing import FloatArray

BoolArray: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class RateTable:
    """Weights of one attribute by stratum, outcome and group.

    Attributes
    ----------
    attribute, groups, strata, outcomes
        What the table and its axes are called.
    mass
        (n_strata, n_outcomes, n_groups) sums of weights.
    squares
        Gives the (n_strata, n_groups) sums of squared weights, which only intervals
        ask for.
    total
        The weight of all rows whose group is known.
    """

    attribute: str
    groups: tuple[str, ...]
    strata: tuple[str, ...]
    outcomes: tuple[str, ...]
    mass: FloatArray
    squares: Callable[[], FloatArray]
    total: float

    @functools.cached_property
    def rate(self) -> FloatArray:
        """(n_strata, n_outcomes, n_groups) rates, NaN where a group is absent."""
        return rates_of(self.mass)

    @property
    def size(self) -> FloatArray:
        """(n_strata, n_groups) effective numbers of rows, ``(sum w)^2 / sum w^2``."""
        square = self.squares()
        return np.asarray(self.mass.sum(axis=1) ** 2 / np.where(square > 0, square, 1))

    @functools.cached_property
    def is_judged(self) -> BoolArray:
        """(n_strata,) whether at least two groups are present."""
        return np.asarray((self.mass.sum(axis=1) > 0).sum(axis=1) >= 2)


def rates_of(mass: FloatArray) -> FloatArray:
    """Return the shares of outcomes within (..., outcomes, groups) weights."""
    total = mass.sum(axis=-2, keepdims=True)
    return np.where(total > 0, mass / np.where(total > 0, total, 1.0), np.nan)


def gaps_of(rate: FloatArray) -> FloatArray:
    """Return the (strata, outcomes) largest differences of rates between groups.

    NaN where fewer than two groups are present.
    """
    gap = np.fmax.reduce(rate, axis=-1) - np.fmin.reduce(rate, axis=-1)
    return np.where(np.sum(~np.isnan(rate), axis=-1) >= 2, gap, np.nan)


def worst_gap(rates: Sequence[FloatArray]) -> float:
    """Return the violation that (strata, outcomes, groups) rates of attributes have.

    That of `Violations.worst`, without the names.
    """
    worst = math.nan
    for rate in rates:
        worst = np.fmax(worst, np.fmax.reduce(gaps_of(rate), axis=None))
    return float(worst)


def compared(rate: FloatArray) -> FloatArray:
    """Return (..., strata, outcomes, groups) rates as (..., comparisons, groups).

    Of two outcomes one says all, for their gaps are the same.
    """
    told = rate[..., 1:, :] if rate.shape[-2] == 2 else rate
    return told.reshape(*rate.shape[:-3], -1, rate.shape[-1])
