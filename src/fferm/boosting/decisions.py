r"""Tables of decisions in place of tables of probabilities.

A tree can be fair in probability and unfair in decisions: scores a little above the
threshold in one group and a little below it in another have the same mean. So the
penalty is taken at the table of decisions, and only its *slope* is that of the
probabilities: the table that it sees is ``P(sigma z) + Delta`` with a constant
``Delta``, which follows the difference between decisions and probabilities a little
every round, as long as the objective does not rise by it. Between two moves the
objective is one smooth function, which steps decrease; at rest ``P + Delta`` is the
table of decisions.
"""

from collections.abc import Sequence

import numpy as np

from fferm._types import FloatArray

# Share of the way that the offsets go in a round. Decisions jump where probabilities
# move, and a weight of 1000 would answer each jump.
RATE = 0.1
# Decisions are trusted in full where every class is decided at least this often, as a
# share of its probability.
LEAST_DECIDED = 0.5


def follow(
    cells: FloatArray,
    decided: FloatArray,
    offsets: FloatArray,
    parts: Sequence[slice],
) -> FloatArray:
    """Return offsets a step nearer to those that lead to the tables of decisions.

    Parameters
    ----------
    cells, decided
        (n_cells, n_classes) cells of the tables of probabilities and of decisions.
    offsets
        The last ones.
    parts
        Which cells each table has.
    """
    goal = decided - cells
    for part in parts:
        goal[part] *= _trust(cells[part], decided[part])
    found = offsets + RATE * (goal - offsets)
    return np.asarray(found * _room(cells, found))


def _trust(soft: FloatArray, hard: FloatArray) -> float:
    # Decisions that hardly know a class, as those before the first tree, are equal for
    # all groups and say nothing; to follow them would make them stay as they are.
    mass, decided = soft.sum(axis=0), hard.sum(axis=0)
    return float(min(1.0, (decided / (LEAST_DECIDED * mass)).min()))


def _room(cells: FloatArray, offset: FloatArray) -> FloatArray:
    # By stratum and group, how much of an offset leaves every class a tenth of its own.
    falls = offset < 0
    most = np.divide(0.9 * cells, -offset, out=np.full_like(cells, np.inf), where=falls)
    return np.asarray(np.minimum(most.min(axis=1, keepdims=True), 1.0))
