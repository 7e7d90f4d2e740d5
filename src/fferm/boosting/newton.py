r"""The values of leaves: a Newton step over all leaves of a round, tried before taken.

A library divides the gradient of a leaf by its curvature, one leaf at a time. But the
table couples leaves: with a large fairness weight every leaf responds to the same gap,
and all of them together overshoot it. Given the leaves of a round,

.. math:: F(z + L u) \approx F(z) + (L'g)'u
          + \tfrac12 u' \big(L'DL + \lambda L'J'C'C J L\big) u ,

with ``L`` the incidence of rows and leaves. A learning rate divides ``D`` and leaves
the table's part whole: a step is short for the loss and exact for the table. The matrix
is positive definite, so the minimiser is a direction of descent, and halving it until
the objective falls ends.

A tree can be fair in probability and unfair in decisions: scores a little above the
threshold in one group and a little below it in another have the same mean. So the
penalty is taken at the table of decisions, and only its *slope* is that of the
probabilities: the table is ``P(sigma z) + Delta`` with constant offsets ``Delta``,
which move a little every round towards the difference between decisions and
probabilities, as long as the objective does not rise above where the round began.
Between two moves the objective is one smooth function; at rest ``P + Delta`` is the
table of decisions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import fferm.boosting._kernels as kernels
from fferm._typing import FloatArray
from fferm.boosting._kernels import RowPass
from fferm.boosting.objective import LeafSums, Leaves, ScoreObjective
from fferm.penalty.objective import check_finite

# A step decreases the objective by this share of what its slope promises, or is halved.
LEAST_DESCENT = 1e-4
N_HALVINGS = 40
# The shares of a move of the offsets that are tried before they stay where they are.
SHARES = tuple(0.5**n for n in range(6))
# The share of the way that offsets move in a round. Decisions jump where probabilities
# move, and a weight of 1000 would respond to each jump.
OFFSET_RATE = 0.1
# Decisions are trusted in full if every class is decided at least this often, as a
# share of its probability.
LEAST_DECIDED = 0.5


class NewtonStep(NamedTuple):
    """A Newton step over the leaves of a round.

    ``payoff`` is that at the table to which the step leads in its linear model: the
    multiplier of the problem over these leaves.
    """

    values: FloatArray  # (n_leaves of all trees,)
    slope: float  # how fast the objective falls along it, below 0
    payoff: FloatArray  # (n_cells, n_classes)


class Descent:
    """Loss and penalty at the current scores, and the steps taken from there.

    Parameters
    ----------
    objective
        Loss and penalty of raw scores.
    scores
        (n_scores, n) first scores.
    is_calibrated
        Whether the penalty is taken at the tables of decisions.
    """

    def __init__(
        self, objective: ScoreObjective, scores: FloatArray, is_calibrated: bool
    ) -> None:
        self.objective = objective
        self._weight = objective.objective.fairness_weight
        shape = len(objective.membership), objective.n_classes
        # They stay 0 if the tables are those of probabilities.
        self.offsets = np.zeros(shape)
        self._rate = OFFSET_RATE if is_calibrated else 0.0
        self._cells: FloatArray  # of the tables plus their offsets
        self.at: RowPass  # the last pass, at the current scores
        self.penalty: float
        self.payoff: FloatArray  # gradient of the penalty by its tables
        self.value: float  # of the objective
        self.restart(scores)

    def restart(self, scores: FloatArray) -> None:
        """Continue from other scores."""
        self._accept(self.objective.row_pass(scores), self.offsets, np.inf)
        self._move_offsets(np.inf)

    def newton_step(
        self, sums: LeafSums, rate: float = 1.0, added: FloatArray | float = 0.0
    ) -> NewtonStep:
        """Return the Newton step over all leaves.

        Parameters
        ----------
        sums
            Derivatives by the values of leaves.
        rate
            The share of a step that is taken where the table does not move.
        added
            (n_leaves,) what is added to the curvature of the loss.
        """
        n, n_leaves = sums.moved.shape
        payoff, values = np.empty_like(self.payoff), np.empty(n_leaves)
        root = self.objective.penalty.root(self._cells)
        added = np.zeros(n_leaves) + added
        weights = self._weight, self.objective.total, rate
        memory = np.empty((n, n_leaves)), np.empty((n, n)), values, payoff.ravel()
        pull = self.payoff.ravel()
        slope = kernels.newton_into(sums, added, pull, root, *weights, *memory)
        return NewtonStep(values, slope, payoff)

    def take(
        self, leaves: Sequence[Leaves], step: NewtonStep
    ) -> tuple[list[FloatArray], int]:
        """Take a step, halved until the objective falls; 0 if it never does.

        Returns
        -------
        tuple of list of FloatArray and int
            The values of the leaves of each tree, and how often they were halved.
        """
        ends = np.cumsum([tree.output.size for tree in leaves])[:-1]
        start, last = self.value, self.at.scores
        for n_halvings in range(N_HALVINGS + 1):
            factor = 0.5**n_halvings if n_halvings < N_HALVINGS else 0.0
            values = np.split(factor * step.values, ends)
            at = self.objective.row_pass(last, values, step.payoff)
            most = start + LEAST_DESCENT * factor * min(step.slope, 0.0)
            # Offsets mostly can go all the way with the step, and one look at the
            # tables is enough.
            if factor > 0 and self._accept(at, self._goal(at), most):
                return values, n_halvings
            if self._accept(at, self.offsets, most if factor > 0 else np.inf):
                self._move_offsets(start)
                return values, n_halvings
        raise AssertionError("A step of 0 is always accepted.")

    def _move_offsets(self, most: float) -> None:
        # As far as the objective stays within ``most``.
        last, goal = self.offsets, self._goal(self.at)
        for share in SHARES:
            if self._accept(self.at, last + share * (goal - last), most):
                return

    def _goal(self, at: RowPass) -> FloatArray:
        # Offsets a step nearer to those that lead to the tables of decisions. Decisions
        # that hardly contain a class, as those before the first tree, are equal for all
        # groups and carry no information; following them would keep them so.
        goal = self.offsets.copy()
        tables = at.cells, at.decided, self.objective.penalty.ends
        kernels.update_offsets_into(*tables, self._rate, LEAST_DECIDED, goal)
        return goal

    def _accept(self, at: RowPass, offsets: FloatArray, most: float) -> bool:
        # Move there if the objective is within ``most``; return whether it is.
        cells = at.cells + offsets
        if cells.min() < 0:
            return False
        penalty, payoff = self.objective.penalty.value_and_payoff(cells)
        check_finite(penalty, payoff)
        value = at.loss + self._weight * penalty
        if value > most:
            return False
        self.at, self.offsets, self._cells = at, offsets, cells
        self.penalty, self.payoff, self.value = penalty, payoff, value
        return True
