"""What a dual table needs of the data, and how far it may step.

The fused kernel and the torch module move their duals by the same rule; the constants
of both are made here. Groups are numbered through all attributes, so that one table
(strata, classes, groups) serves several sensitive columns.
"""

from dataclasses import dataclass

import numpy as np

from fferm._types import FloatArray, IntArray
from fferm.data import FairRows
from fferm.notions import Weighting

# The first steps of the dual, before 1 / t is small.
FIRST_DUAL_STEP = 0.5
# How far one member of a group may move its log-ratio, and the rate below which a class
# counts as this frequent: both keep a rare cell from being thrown about by noise.
LARGEST_PUSH = 0.2
SMALLEST_RATE = 1e-3


@dataclass(frozen=True)
class GroupWeights:
    """Constants of the data, for R strata, K groups and A attributes.

    Attributes
    ----------
    prior
        (R, K) group weights within stratum and attribute.
    factor
        (R, A) ``w_r / rho_r``, the weight of a stratum over its share.
    share
        (R, A) ``1 / rho_r``, 0 where nobody is in the stratum.
    ends
        (A + 1,) where the groups of each attribute begin and end.
    """

    prior: FloatArray
    factor: FloatArray
    share: FloatArray
    ends: IntArray

    @property
    def upper(self) -> FloatArray:
        """(R, K) largest log-ratios: a ratio never exceeds ``1 / prior_k``."""
        return -np.log(np.where(self.prior > 0, self.prior, 1.0))


def group_weights(rows: FairRows, weighting: Weighting) -> GroupWeights:
    """Return the weights of groups and strata among all rows."""
    stratum, group, weight = place_rows(rows)
    ends = group_ends(rows)
    mass = np.zeros((len(rows.strata.names), int(ends[-1])))  # of stratum and group
    for column in group.T:
        kept = (stratum >= 0) & (column >= 0)
        np.add.at(mass, (stratum[kept], column[kept]), weight[kept])
    totals = np.add.reduceat(mass, ends[:-1], axis=1)  # of stratum and attribute
    safe = np.where(totals > 0, totals, 1.0)
    prior = mass / np.repeat(safe, np.diff(ends), axis=1)
    share = np.where(totals > 0, 1 / safe, 0.0)
    if weighting == "unit":
        return GroupWeights(prior, share, share, ends)
    return GroupWeights(prior, share * totals / totals.sum(axis=0), share, ends)


def place_rows(rows: FairRows) -> tuple[IntArray, IntArray, FloatArray]:
    """Return stratum, groups numbered through all attributes, and share of each row."""
    group = np.stack(
        [
            np.where(attribute.code >= 0, attribute.code + begin, -1)
            for attribute, begin in zip(
                rows.attributes, group_ends(rows)[:-1], strict=True
            )
        ],
        axis=1,
    )
    return rows.strata.code, group, rows.weight / rows.weight.sum()


def group_ends(rows: FairRows) -> IntArray:
    """Return where the groups of each attribute begin and end."""
    sizes = [len(attribute.groups) for attribute in rows.attributes]
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
