"""Where boosting stands, and the steps that it takes from there.

A Newton step over leaves is tried before it is taken, and halved until the objective
falls; offsets then move as far as it does not rise above where the round began. So it
never rises from round to round. `boosting.rounds` lets LightGBM grow trees in between.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fferm._typing import FloatArray
from fferm.boosting.decisions import follow
from fferm.boosting.leaves import SAME_OUTPUT, Bowl, LeafSums, Leaves, NewtonStep
from fferm.boosting.row_passes import Look, RowPasses
from fferm.boosting.scores import ScoreObjective
from fferm.boosting.table_slopes import TablePenalty, TableSlopes

# A step falls by this share of what its slope promises, or it is halved.
LEAST_DESCENT = 1e-4
N_HALVINGS = 40
# What is tried of a move of the offsets, before they stay where they are.
SHARES = tuple(0.5**n for n in range(6))


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
        self._penalty = TablePenalty(objective.penalty, objective.placement)
        self._weight = objective.objective.fairness_weight
        self._total = objective.total
        self._ends = objective.placement.ends
        shape = len(objective.placement.membership), objective.link.n_classes
        # None where the tables are those of probabilities.
        self._offsets = np.zeros(shape) if is_calibrated else None
        self._look: Look
        self._cells: FloatArray
        self._slopes: TableSlopes
        self.restart(scores)

    def restart(self, scores: FloatArray) -> None:
        """Go on from other scores."""
        self._stand(self._rows.start(scores), self._offsets, np.inf)
        self._follow(np.inf)

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
            most = self.value + LEAST_DESCENT * factor * min(step.slope, 0.0)
            if self._goes(look, most):
                return values, n_halvings
        values = _split(0.0 * step.values, sizes)
        look, start = (
            self._rows.move(self._look, leaves, values, step.payoff),
            self.value,
        )
        self._stand(look, self._offsets, np.inf)
        self._follow(start)
        return values, N_HALVINGS

    def _goes(self, look: Look, most: float) -> bool:
        # Offsets mostly can go all the way with the step, and one look at the tables
        # is enough.
        if self._stand(look, self._goal(look), most):
            return True
        start = self.value
        is_taken = self._stand(look, self._offsets, most)
        if is_taken:
            self._follow(start)
        return is_taken

    def _follow(self, most: float) -> None:
        # Offsets go on as far as the objective stays within the most it may be.
        look, last = self._look, self._offsets
        goal = self._goal(look)
        if goal is None or last is None:
            return
        for share in SHARES:
            if self._stand(look, last + share * (goal - last), most):
                return

    def _goal(self, look: Look) -> FloatArray | None:
        if self._offsets is None:
            return None
        return follow(look.cells, look.decided, self._offsets, self._ends)

    def _stand(self, look: Look, offsets: FloatArray | None, most: float) -> bool:
        # Whether the objective is within the most it may be; then this is where we are.
        cells = look.cells if offsets is None else look.cells + offsets
        if cells.min() < 0:
            return False
        slopes = self._penalty.at(cells)
        if look.loss + self._weight * slopes.value > most:
            return False
        self._look, self._offsets = look, offsets
        self._cells, self._slopes = cells, slopes
        return True


def _split(values: FloatArray, sizes: Sequence[int]) -> list[FloatArray]:
    found, begin = [], 0
    for size in sizes:
        found.append(values[begin : begin + size])
        begin += size
    return found
