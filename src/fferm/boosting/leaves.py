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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fferm._types import FloatArray, IntArray
from fferm.boosting.scores import Pass, ScoreObjective, Slopes

# Outputs of leaves nearer than this, relative to the scores, are one: a score plus an
# output less the score is the output up to rounding.
SAME_OUTPUT = 1e-12
# A step falls by this share of what its slope promises, or it is halved.
LEAST_DESCENT = 1e-4
N_HALVINGS = 40


@dataclass(frozen=True)
class Leaves:
    """The leaves of one tree, told apart by their outputs."""

    code: IntArray  # (n,)
    output: FloatArray  # (n_leaves,)

    @property
    def size(self) -> int:
        """Number of leaves."""
        return self.output.size


def find_leaves(
    before: FloatArray, after: FloatArray, same: float = SAME_OUTPUT
) -> Leaves:
    """Return the leaves of a tree from the scores before and after it."""
    scale = same * max(1.0, float(np.abs(after).max()))
    moved = after - before
    code, rounded = pd.factorize(np.rint(moved / scale))
    order = np.argsort(rounded)
    # Two values one unit apart are one output, rounded up and down.
    is_new = np.diff(rounded[order], prepend=-np.inf) > 2
    merged = np.empty(order.size, dtype=np.int64)
    merged[order] = np.cumsum(is_new) - 1
    output = (rounded[order] * scale)[is_new]
    return Leaves(merged[code], output)


def assign(output: FloatArray, found: FloatArray) -> IntArray:
    """Return the position of the nearest output, among sorted ones, to those found."""
    middle = (output[1:] + output[:-1]) / 2
    return np.asarray(np.searchsorted(middle, found), dtype=np.int64)


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


@dataclass(frozen=True)
class Taken:
    """New values of the leaves of a round, and where they lead."""

    values: list[FloatArray]  # of each tree, (n_leaves,)
    point: Pass
    objective: float
    n_halvings: int


def newton_step(
    objective: ScoreObjective,
    point: Pass,
    slopes: Slopes,
    leaves: Sequence[Leaves],
    rate: float = 1.0,
    regularisation: Sequence[FloatArray] | None = None,
) -> NewtonStep:
    """Return the Newton step over all leaves.

    Parameters
    ----------
    objective, point, slopes
        What is minimised, where, and its derivatives there.
    leaves
        Of each tree.
    rate
        The share of a step that is taken where the table does not move.
    regularisation
        Of each tree, what is added to the curvature of its leaves.
    """
    lam, total = objective.objective.fairness_weight, objective.total
    codes, sizes = [tree.code for tree in leaves], [tree.size for tree in leaves]
    moved = objective.push(point, codes, sizes)
    by_loss = np.concatenate(leaf_sums(slopes.gradient, leaves)) / total
    gradient = by_loss + lam * slopes.payoff.ravel() @ moved
    diagonal = np.concatenate(leaf_sums(slopes.diagonal, leaves))
    if regularisation is not None:
        diagonal = diagonal + np.concatenate(list(regularisation))
    diagonal /= rate * total
    root = slopes.root @ moved
    system = np.eye(len(root)) + lam * (root / diagonal) @ root.T
    held = lam * np.linalg.solve(system, root @ (gradient / diagonal))
    values = np.asarray((held @ root - gradient) / diagonal)
    change = (slopes.root.T @ (root @ values)).reshape(slopes.payoff.shape)
    return NewtonStep(values, float(gradient @ values), slopes.payoff + change)


def search(
    objective: ScoreObjective,
    point: Pass,
    leaves: Sequence[Leaves],
    step: NewtonStep,
    start: float,
    offsets: Sequence[FloatArray] | None = None,
) -> Taken:
    """Return the step, halved until the objective falls; 0 where it never does.

    Parameters
    ----------
    objective, point, leaves, step
        What is minimised, from where, and along what.
    start
        The objective there.
    offsets
        Of the tables.
    """
    parts = np.split(step.values, np.cumsum([tree.size for tree in leaves])[:-1])
    move = np.stack([part[t.code] for part, t in zip(parts, leaves, strict=True)])
    for n_halvings in range(N_HALVINGS):
        factor = 0.5**n_halvings
        tried = objective.at(point.scores + factor * move)
        value = objective.value(tried, offsets)
        if value <= start + LEAST_DESCENT * factor * min(step.slope, 0.0):
            values = [factor * part for part in parts]
            return Taken(values, tried, value, n_halvings)
    return Taken([0.0 * part for part in parts], point, start, N_HALVINGS)


def leaf_sums(values: FloatArray, leaves: Sequence[Leaves]) -> list[FloatArray]:
    """Return the sums of (n_scores, n) values over the leaves of each tree."""
    return [
        np.asarray(
            np.bincount(tree.code, weights=values[score], minlength=tree.size),
            dtype=np.float64,
        )
        for score, tree in enumerate(leaves)
    ]
