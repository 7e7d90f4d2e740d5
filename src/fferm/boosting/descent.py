"""Where boosting stands, and the steps that it takes from there.

A Newton step over leaves is tried before it is taken, and halved until the objective
falls; offsets then move as far as it does not rise above where the round began. So it
never rises from round to round. `boosting.rounds` lets LightGBM grow trees in between.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fferm._types import FloatArray
from fferm.boosting.decisions import follow
from fferm.boosting.leaves import SAME_OUTPUT, Bowl, LeafSums, Leaves, NewtonStep
from fferm.boosting.row_passes import Look, RowPasses
from fferm.boosting.scores import ScoreObjective
from fferm.boosting.table_slopes import TablePenalty, TableSlopes

# A step falls by this share of what its slope promises, or it is halved.
LEAST_DESCENT = 1e-4
N_HALVINGS = 40
# What is tried of a move of the offsets, before they stay where they are.
SHARES = [*(0.5**n for n in range(6)), 0.0]


class Descent:
    """Loss and penalty at the scores that boosting has reached.

    Parameters
    ----------
    objective
        Loss and penalty of raw scores.
    scores
        (n_scores, n) where to begin.
    is_calibrated
        Whether the penalty is taken at the tables of decisions.
    """

    def __init__(
        self, objective: ScoreObjective, scores: FloatArray, is_calibrated: bool
    ) -> None:
        self._rows = RowPasses(objective)
        self.is_calibrated = is_calibrated
        self._penalty = TablePenalty(objective.penalty, objective.placement)
        self._weight = objective.objective.fairness_weight
        self._total = objective.total
        self._ends = objective.placement.ends
        self._offsets: FloatArray | None = None
        self._look: Look
        self._cells: FloatArray
        self._slopes: TableSlopes
        self.restart(scores)

    def restart(self, scores: FloatArray) -> None:
        """Go on from other scores."""
        self._settle(self._rows.start(scores), np.inf)

    @property
    def scores(self) -> FloatArray:
        """(n_scores, n) scores."""
        return self._look.scores

    @property
    def loss(self) -> float:
        """The loss there."""
        return self._look.loss

    @property
    def penalty(self) -> float:
        """The penalty there, at the tables plus their offsets."""
        return self._slopes.value

    @property
    def value(self) -> float:
        """The objective there."""
        return self.loss + self._weight * self.penalty

    def aim(
        self, payoff: FloatArray | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the gradient that a tree is grown along, and the curvature.

        ``payoff`` stands for the slope of the penalty, which is the default.
        """
        return self._rows.aim(
            self._look, self._slopes.payoff if payoff is None else payoff
        )

    def gather(
        self, before: FloatArray, after: FloatArray, same: float = SAME_OUTPUT
    ) -> tuple[list[Leaves], LeafSums]:
        """Return the leaves of the last trees; see `RowPasses.gather`."""
        return self._rows.gather(self._look, before, after, same)

    def bowl(self) -> Bowl:
        """Return slope and curvature of the penalty."""
        root = self._penalty.root(self._cells)
        return Bowl(self._slopes.payoff, root, self._weight, self._total)

    def take(
        self, leaves: Sequence[Leaves], step: NewtonStep
    ) -> tuple[list[FloatArray], int]:
        """Take a step, halved until the objective falls; 0 where it never does.

        Returns
        -------
        tuple of list of FloatArray and int
            The values of the leaves of each tree, and how often they were halved.
        """
        sizes = [tree.size for tree in leaves]
        for n_halvings in range(N_HALVINGS):
            factor = 0.5**n_halvings
            values = _split(factor * step.values, sizes)
            look = self._rows.move(self._look, leaves, values, step.payoff)
            value = look.loss + self._weight * self._penalty_of(look)
            if value <= self.value + LEAST_DESCENT * factor * min(step.slope, 0.0):
                self._settle(look, self.value)
                return values, n_halvings
        values = _split(0.0 * step.values, sizes)
        self._settle(
            self._rows.move(self._look, leaves, values, step.payoff), self.value
        )
        return values, N_HALVINGS

    def _penalty_of(self, look: Look) -> float:
        cells = look.cells if self._offsets is None else look.cells + self._offsets
        return np.inf if cells.min() < 0 else self._penalty.at(cells).value

    def _settle(self, look: Look, most: float) -> None:
        # Offsets go on as far as the objective stays within the most it may be.
        if not self.is_calibrated:
            cells, slopes = look.cells, self._penalty.at(look.cells)
            self._look, self._cells, self._slopes = look, cells, slopes
            return
        last = np.zeros_like(look.cells) if self._offsets is None else self._offsets
        goal = follow(look.cells, look.decided, last, self._ends)
        for share in SHARES:
            offsets = goal if share == 1 else last + share * (goal - last)
            cells = look.cells + offsets
            slopes = self._penalty.at(cells)
            if look.loss + self._weight * slopes.value <= most:
                break
        self._look, self._offsets = look, offsets
        self._cells, self._slopes = cells, slopes


def _split(values: FloatArray, sizes: Sequence[int]) -> list[FloatArray]:
    found, begin = [], 0
    for size in sizes:
        found.append(values[begin : begin + size])
        begin += size
    return found
