"""Distributions of a prediction in groups, and how far they lie apart.

Rows are put into order once; groups that are shuffled, or rows that are drawn again,
are then compared without sorting anew.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fferm._typing import FloatArray, IntArray


def effective_size(weight: FloatArray) -> float:
    """Return how many rows without weights are worth as much."""
    return float(weight.sum() ** 2 / np.sum(weight**2))


@dataclass(frozen=True)
class OrderedPredictions:
    """Predictions in ascending order.

    Attributes
    ----------
    order
        (n,) row numbers, by prediction.
    points
        (m,) the different values.
    is_last
        (n,) whether a place in the order is the last of its value.
    """

    order: IntArray
    points: FloatArray
    is_last: NDArray[np.bool_]

    @classmethod
    def of(cls, prediction: FloatArray) -> "OrderedPredictions":
        """Return predictions in order."""
        order = np.argsort(prediction, kind="stable")
        ordered = prediction[order]
        is_last = np.append(ordered[1:] != ordered[:-1], True)
        return cls(order, ordered[is_last], is_last)

    def compare(self, group: IntArray, weight: FloatArray | None = None) -> "Apart":
        """Return the distribution functions of groups 0, 1, ...; below 0 is no group.

        Parameters
        ----------
        group
            (n,) codes of at least two groups.
        weight
            (n,) how much each row counts; once by default.
        """
        code = group[self.order]
        count = np.ones(code.size) if weight is None else weight[self.order]
        below = []
        for k in np.unique(code[code >= 0]):
            sums = np.cumsum(np.where(code == k, count, 0.0))
            below.append(sums[self.is_last] / sums[-1])
        return Apart(self.points, np.stack(below))

    def intervals(
        self,
        group: IntArray,
        measures: Sequence[str],
        confidence: float = 0.95,
        *,
        n_bootstrap: int = 200,
        random_state: int | np.random.Generator = 0,
        weight: FloatArray | None = None,
    ) -> dict[str, tuple[float, float]]:
        """Return a bootstrap interval of each measure of groups.

        Rows are drawn again within each group. Every measure is a norm of differences
        of distribution functions, so that it errs by no more than that norm of their
        errors; the quantile of the latter, over draws, is how far the limits lie from
        the value. They hold for all pairs of groups at once, and cover 0 where there is
        no gap, which percentiles of drawn gaps never do.

        Parameters
        ----------
        group
            (n,) codes of at least two groups; below 0 is no group.
        measures
            Names of measures of groups.
        confidence, n_bootstrap, random_state
            Level, number of draws, and seed or generator.
        weight
            (n,) positive weights, which rows keep when they are drawn.
        """
        rng = np.random.default_rng(random_state)
        found, own = self.compare(group, weight), 1.0 if weight is None else weight
        errors: dict[str, list[float]] = {name: [] for name in measures}
        for _ in range(n_bootstrap):
            drawn = self.compare(group, _drawn(group, rng) * own)
            error = Apart(self.points, drawn.below - found.below)
            for name in measures:
                errors[name].append(error.measure(name))
        limits = {}
        for name in measures:
            value, reach = found.measure(name), np.quantile(errors[name], confidence)
            most = 1.0 if name == "kolmogorov_smirnov" else np.inf
            limits[name] = max(value - reach, 0.0), float(min(value + reach, most))
        return limits


@dataclass(frozen=True)
class Apart:
    """Distribution functions of groups at the same points.

    Attributes
    ----------
    points
        (m,) ascending.
    below
        (K, m) share of each group at or below each point.
    """

    points: FloatArray
    below: FloatArray

    def measure(self, name: str) -> float:
        """Return a measure of groups by its name in `fferm.dependence`."""
        value: float = getattr(self, name)()
        return value

    def kolmogorov_smirnov(self) -> float:
        """Return the largest distance of two distribution functions."""
        return float(np.max(self.below.max(axis=0) - self.below.min(axis=0)))

    def wasserstein(self) -> float:
        """Return the largest area between two distribution functions."""
        widths = np.diff(self.points)
        pairs = itertools.combinations(self.below[:, :-1], 2)
        return max((float(np.abs(a - b) @ widths) for a, b in pairs), default=0.0)

    def mean_gap(self) -> float:
        """Return the largest difference of two means."""
        means = np.diff(self.below, axis=1, prepend=0.0) @ self.points
        return float(np.ptp(means))


def _drawn(group: IntArray, rng: np.random.Generator) -> FloatArray:
    # How often each row comes where as many as there are are drawn from each group.
    count = np.zeros(group.size)
    for k in np.unique(group[group >= 0]):
        rows = np.flatnonzero(group == k)
        count[rows] = np.bincount(
            rng.integers(rows.size, size=rows.size), None, rows.size
        )
    return count
