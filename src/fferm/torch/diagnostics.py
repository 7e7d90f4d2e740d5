"""How a loss fares: what its dual says, and what the table of the epoch says."""

import math
from dataclasses import dataclass

import numpy as np

from fferm._typing import FloatArray
from fferm.metrics.tabulator import compared, rates_of
from fferm.penalty.dual import DualVariable
from fferm.penalty.objective import Objective, table_penalty


@dataclass(frozen=True)
class Diagnostics:
    """The state of a loss, over the batches since it was last asked.

    Attributes
    ----------
    dual_value
        Mean of the loss at the dual as it is now: a lower bound of the divergence, up
        to the noise of a part of an epoch.
    divergence
        The penalty of the table of those batches.
    violation
        Its largest gap between the rates of two groups, of probabilities; NaN where
        the batches held no two groups to compare.
    dual_distance
        How far the dual's variable (log-ratios, as a rule) is from its optimum on that
        table: root of the mean square, cells weighted by their probability.
    n_samples
        Rows that were seen, NaN figures where there were none.
    """

    dual_value: float
    divergence: float
    violation: float
    dual_distance: float
    n_samples: int

    @property
    def gap(self) -> float:
        """What the dual still misses of the divergence."""
        return self.divergence - self.dual_value


def penalty_of(tables: list[FloatArray], objective: Objective) -> float:
    """Return the penalty of one table of mass per attribute."""
    return sum(
        table_penalty(objective, table / table.sum())[0]
        for table in tables
        if table.sum() > 0
    )


def violation_of(tables: list[FloatArray]) -> float:
    """Return the largest gap between two groups' rates in any stratum and class.

    NaN where no two groups can be compared: undefined is never fair.
    """
    gaps = []
    for table in tables:
        rate = compared(rates_of(table))
        rate = rate[np.sum(~np.isnan(rate), axis=1) > 1]
        if rate.size:
            gaps.append(
                float(np.max(np.nanmax(rate, axis=1) - np.nanmin(rate, axis=1)))
            )
    return max(gaps, default=math.nan)


def distance_of(
    tables: list[FloatArray], variable: FloatArray, kind: DualVariable
) -> float:
    """Return the distance of an (R, m, K) dual from the best one for tables."""
    begin, square, weight = 0, 0.0, 0.0
    for table in tables:
        end = begin + table.shape[2]
        mass = table.sum(axis=(1, 2), keepdims=True)
        p = table / np.where(mass > 0, mass, 1.0)
        q = p.sum(axis=1, keepdims=True) * p.sum(axis=2, keepdims=True)
        best = kind.best(np.where(q > 0, p, 1.0) / np.where(q > 0, q, 1.0))
        square += float(np.sum(q * (variable[:, :, begin:end] - best) ** 2))
        weight += float(q.sum())
        begin = end
    return float(np.sqrt(square / weight)) if weight > 0 else float("nan")
