"""The penalty on the table that a pass over the rows adds up.

One table holds the groups of all attributes, and is a mean over all rows, where the
table of an attribute is a mean over the rows whose group is known.
"""

import numpy as np

from fferm._typing import FloatArray
from fferm.divergences import strip
from fferm.penalty.dual import group_ends
from fferm.penalty.objective import Penalty, Problem
from fferm.solvers._arrays import make_scratch
from fferm.solvers._best_dual import best_payoff_into
from fferm.solvers._pointers import is_kept
from fferm.solvers.dual import has_linear_dual, make_dual


class TablePenalty:
    """A penalty on summed tables, whichever it is.

    Parameters
    ----------
    penalty
        Its formulas are NumPy's.
    """

    def __init__(self, penalty: Penalty) -> None:
        self._penalty = penalty
        ends = group_ends(penalty.rows)
        self._pieces = [
            (slice(begin, end), sums.known_share)
            for begin, end, sums in zip(
                ends[:-1], ends[1:], penalty.rows.cell_sums, strict=True
            )
        ]

    def duals(self, mass: FloatArray) -> tuple[FloatArray, ...]:
        """Return the optimal dual on the table of each attribute."""
        return self._penalty.duals(self._tables(mass))

    def value_and_payoff(self, mass: FloatArray) -> tuple[float, FloatArray]:
        """Return the penalty on a (R, m, K) table, and its slope by the table."""
        value, payoffs = self._penalty.on_tables(self._tables(mass))
        parts = [
            payoff / known
            for payoff, (_, known) in zip(payoffs, self._pieces, strict=True)
        ]
        return value, np.concatenate(parts, axis=2)

    def _tables(self, mass: FloatArray) -> list[FloatArray]:
        # The (R, m, K_a) table of each attribute.
        return [mass[:, :, groups] / known for groups, known in self._pieces]


class BestDualPenalty(TablePenalty):
    """A penalty whose dual is linear in the table, compiled.

    It has one dual and one room for payoffs, so it serves one thread.

    Parameters
    ----------
    problem, penalty
        The problem, whose penalty has such a dual, and that penalty.
    """

    def __init__(self, problem: Problem, penalty: Penalty) -> None:
        super().__init__(penalty)
        self._chosen = make_dual(problem, 1, solver="lbfgs", variable="log_ratio")
        self._scratch = make_scratch(np.empty((0, 0)), self._chosen.dual.z)

    def value_and_payoff(self, mass: FloatArray) -> tuple[float, FloatArray]:
        """Return the penalty on a (R, m, K) table, and its slope by the table."""
        chosen, scratch = self._chosen, self._scratch
        table = np.ascontiguousarray(mass)[..., None]
        best_payoff_into(chosen.dual, table, chosen.pointer, scratch)
        payoff = chosen.scale * scratch.payoff[..., 0]
        return float(np.vdot(payoff, mass)), payoff


def make_table_penalty(problem: Problem, penalty: Penalty) -> TablePenalty:
    """Return the penalty of a problem on summed tables, compiled where that is quick.

    Formulas that are not on disk take a second to compile, which no run makes up for.
    """
    objective = problem.objective
    if has_linear_dual(objective) and is_kept(strip(objective.divergence)[0]):
        return BestDualPenalty(problem, penalty)
    return TablePenalty(penalty)
