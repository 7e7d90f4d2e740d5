r"""The values of leaves: a Newton step over all leaves of a round, tried before taken.

A library divides the gradient of a leaf by its curvature, as if leaves did not know of
each other. Through the table they do: one large fairness weight makes every leaf answer
to the same gap, and all of them together overshoot it. Given the leaves of a round,

.. math:: F(z + L u) \approx F(z) + (L'g)'u
          + \tfrac12 u' \big(L'DL + \lambda L'J'C'C J L\big) u ,

with ``L`` the incidence of rows and leaves. A learning rate divides ``D`` and leaves
the table's part whole: a step is short for the loss and exact for the table. The matrix
is positive definite, so the minimiser is a direction of descent, and halving it until
the objective falls ends.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fferm._typing import FloatArray, IntArray
from fferm.boosting._newton_kernels import are_apart, newton_into

# Outputs of leaves nearer than this, relative to the scores, are one: a score plus an
# output less the score is the output up to rounding.
SAME_OUTPUT = 1e-12


@dataclass(frozen=True)
class Leaves:
    """The leaves of one tree, told apart by their outputs, in any order."""

    code: IntArray | NDArray[np.unsignedinteger]  # (n,)
    output: FloatArray  # (n_leaves,)

    @property
    def size(self) -> int:
        """Number of leaves."""
        return self.output.size


def merged(
    code: NDArray[np.unsignedinteger], keys: IntArray, unit: float, sums: FloatArray
) -> tuple[Leaves, FloatArray]:
    """Return leaves and their sums, where outputs one unit apart are one.

    They are one output, rounded up and down.

    Parameters
    ----------
    code
        (n,) leaves of rows; it is changed where there is something to merge.
    keys
        Outputs as multiples of the unit, all different, in the order of codes.
    unit
        What outputs are rounded to.
    sums
        Any sums over rows, leaves first.
    """
    if are_apart(keys):
        return Leaves(code, np.asarray(keys * unit)), sums
    order = np.argsort(keys)
    ordered = keys[order]
    is_new = np.append(True, ordered[1:] - ordered[:-1] > 2)
    rank = np.empty(keys.size, dtype=code.dtype)
    rank[order] = np.cumsum(is_new) - 1
    np.take(rank, code, out=code)
    added = np.add.reduceat(sums[order], np.flatnonzero(is_new), axis=0)
    return Leaves(code, np.asarray(ordered[is_new] * unit)), added


def assign(output: FloatArray, found: FloatArray) -> IntArray:
    """Return the position of the nearest output to those found."""
    order = np.argsort(output)
    middle = (output[order][1:] + output[order][:-1]) / 2
    return np.asarray(order[np.searchsorted(middle, found)], dtype=np.int64)


class LeafSums(NamedTuple):
    """What a Newton step needs of the rows, leaves of all trees after each other."""

    gradient: FloatArray  # (n_leaves,) of the loss, times W
    diagonal: FloatArray  # (n_leaves,) curvature of the loss, times W
    moved: FloatArray  # (n_cells * n_classes, n_leaves), how the tables move


class Bowl(NamedTuple):
    """The penalty near its tables, and what it weighs beside the loss."""

    payoff: FloatArray  # (n_cells, n_classes), slope by the tables
    root: FloatArray  # (n_cells * n_classes, the same), of the curvature
    weight: float  # of the penalty, lambda
    total: float  # W, by which the sums of the loss are divided


@dataclass(frozen=True)
class NewtonStep:
    """A Newton step over the leaves of a round.

    Attributes
    ----------
    values
        (n_leaves of all trees,).
    slope
        How fast the objective falls along it, below 0.
    payoff
        (n_cells, n_classes) payoff at the table to which the step leads, by its
        linear model: the multiplier of the problem over these leaves.
    """

    values: FloatArray
    slope: float
    payoff: FloatArray


def newton_step(
    sums: LeafSums,
    bowl: Bowl,
    rate: float = 1.0,
    regularisation: FloatArray | float = 0.0,
) -> NewtonStep:
    """Return the Newton step over all leaves.

    Parameters
    ----------
    sums
        Derivatives by the values of leaves.
    bowl
        Derivatives by the tables.
    rate
        The share of a step that is taken where the table does not move.
    regularisation
        (n_leaves,) what is added to the curvature of the loss.
    """
    n, n_leaves = sums.moved.shape
    values, payoff = np.empty(n_leaves), np.empty_like(bowl.payoff)
    room = np.empty((n, n_leaves)), np.empty((n, n))
    slope = newton_into(
        sums.gradient,
        sums.diagonal + regularisation,
        sums.moved,
        bowl,
        rate,
        *room,
        values,
        payoff,
    )
    return NewtonStep(values, slope, payoff)
