"""What a dual table holds, what it needs of the data, and how far it may step.

The fused kernel and the torch module move their duals by the same rule; what it takes
is made here for both. Groups are numbered through all attributes, so that one table
(strata, classes, groups) serves several sensitive columns.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fferm._typing import FloatArray, IntArray, Namespace, Operand
from fferm.data.rows import Rows
from fferm.data.validate import shares
from fferm.divergences import Divergence, strip
from fferm.notions import Weighting

# The first steps of the dual, before 1 / t is small.
FIRST_DUAL_STEP = 0.5
# How far one member of a group may move its log-ratio, and the rate below which a class
# counts as this frequent: both keep a rare cell from being thrown about by noise.
LARGEST_STEP = 0.2
SMALLEST_RATE = 1e-3
# Where the dual is steeper than this at independence, it is the variable itself: as a
# function of the log-ratio it would be little more than a sign.
STEEPEST_DUAL = 5.0


@dataclass(frozen=True)
class DualVariable:
    """What a dual table holds: log-ratios, or the dual A itself.

    Attributes
    ----------
    divergence
        Without transformations, see `fferm.divergences.strip`.
    floor
        The smallest ratio.
    is_projected
        Whether the table holds A.
    """

    divergence: Divergence
    floor: float
    is_projected: bool

    def dual_and_conjugate(self, v: Operand, xp: Namespace) -> tuple[Operand, Operand]:
        """Return the dual A and its conjugate ``f*(A)`` at a variable."""
        if self.is_projected:
            return v, self.divergence.conjugate(v, xp)
        return self.divergence.dual_at(v, xp), self.divergence.conjugate_at(v, xp)

    def ratio(self, v: Operand, xp: Namespace) -> Operand:
        """Return the ratio ``P / Q`` at which a variable is the best."""
        if self.is_projected:
            return self.divergence.conjugate_prime(v, xp)
        return xp.exp(v)

    def best(self, ratio: FloatArray) -> FloatArray:
        """Return the best variable for ratios, of which none is below the floor."""
        ratio = np.maximum(ratio, self.floor)
        if self.is_projected:
            return np.asarray(self.divergence.f_prime(ratio, np))
        return np.log(ratio)

    @property
    def lower(self) -> float:
        """The lower end of the variable."""
        return float(self.best(np.array(self.floor)))

    def upper(self, prior: FloatArray) -> FloatArray:
        """Return (R, K) upper ends: a ratio never exceeds ``1 / prior_k``."""
        return self.best(1 / np.where(prior > 0, prior, 1.0))

    @property
    def speed(self) -> float:
        """How far the variable moves where the ratio moves by 1."""
        if not self.is_projected:
            return 1.0
        return min(float(self.divergence.f_second(1.0, np)), STEEPEST_DUAL)


def dual_variable(divergence: Divergence, how: str = "auto") -> DualVariable:
    """Return the variable for a divergence: ``"log_ratio"`` or ``"projected"``.

    Plain gradients ascend the latter.
    """
    base, _, floor = strip(divergence)
    is_projected = how in ("projected", "plain")
    if how == "auto":
        is_projected = bool(base.f_second(1.0, np) > STEEPEST_DUAL)
    return DualVariable(base, floor, is_projected)


class GroupWeights(NamedTuple):
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


NO_GROUPS = GroupWeights(
    np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(1, dtype=np.int64)
)


def group_weights(rows: Rows, weighting: Weighting) -> GroupWeights:
    """Return the weights of groups and strata among all rows."""
    ends = group_ends(rows)
    mass = np.concatenate(  # of stratum and group
        [sums.weight[1:, 1:] / sums.weight.sum() for sums in rows.cell_sums], axis=1
    )
    totals = np.add.reduceat(mass, ends[:-1], axis=1)  # of stratum and attribute
    safe = np.where(totals > 0, totals, 1.0)
    prior = mass / np.repeat(safe, np.diff(ends), axis=1)
    share = np.where(totals > 0, 1 / safe, 0.0)
    if weighting == "unit":
        return GroupWeights(prior, share, share, ends)
    return GroupWeights(prior, share * totals / totals.sum(axis=0), share, ends)


def place_rows(rows: Rows) -> tuple[IntArray, IntArray, FloatArray]:
    """Return stratum, groups numbered through all attributes, and share of each row."""
    codes = [attribute.code for attribute in rows.attributes]
    group = codes[0][:, None]  # a copy would be one of the largest arrays there are
    if len(codes) > 1:
        group = np.stack(codes, axis=1)
        group = np.where(group >= 0, group + group_ends(rows)[:-1], -1)
    return rows.strata.code, group, shares(rows.weight)


def group_ends(rows: Rows) -> IntArray:
    """Return where the groups of each attribute begin and end."""
    sizes = [len(attribute.groups) for attribute in rows.attributes]
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
