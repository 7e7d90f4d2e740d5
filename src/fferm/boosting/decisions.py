r"""Tables of decisions in place of tables of probabilities.

A tree can be fair in probability and unfair in decisions: scores a little above the
threshold in one group and a little below it in another have the same mean. So the
penalty is taken at the table of decisions, and only its *slope* is that of the
probabilities: the table that it sees is ``P(sigma z) + Delta`` with a constant
``Delta``, which follows the difference between decisions and probabilities a little
every round. Between two rounds the objective is one smooth function, which steps
decrease; at rest ``P + Delta`` is the table of decisions.
"""

import numpy as np

from fferm._types import FloatArray
from fferm.boosting.scores import Pass, ScoreObjective

# Share of the way that the offsets go in a round. Decisions jump where probabilities
# move, and a weight of 1000 would answer each jump.
RATE = 0.1
# Decisions are trusted in full where every class is decided at least this often, as a
# share of its probability.
LEAST_DECIDED = 0.5


def follow(
    objective: ScoreObjective, point: Pass, offsets: list[FloatArray] | None
) -> list[FloatArray]:
    """Return offsets a step nearer to those that lead to the table of decisions."""
    link = objective.link
    hard = objective.placement.decided(link.decide(point.scores), link.n_classes)
    found = []
    for number, (soft, aim) in enumerate(zip(point.tables, hard, strict=True)):
        last = np.zeros_like(soft) if offsets is None else offsets[number]
        goal = _trust(soft, aim) * (aim - soft)
        offset = last + RATE * (goal - last)
        found.append(offset * _room(soft, offset))
    return found


def _trust(soft: FloatArray, hard: FloatArray) -> float:
    # Decisions that hardly know a class, as those before the first tree, are equal for
    # all groups and say nothing; to follow them would make them stay as they are.
    mass, decided = soft.sum(axis=(0, 2)), hard.sum(axis=(0, 2))
    return float(min(1.0, (decided / (LEAST_DECIDED * mass)).min()))


def _room(table: FloatArray, offset: FloatArray) -> FloatArray:
    # By stratum and group, how much of an offset leaves every class a tenth of its own.
    falls = offset < 0
    most = 0.9 * table / np.where(falls, -offset, 1.0)
    least = np.where(falls, most, np.inf).min(axis=1, keepdims=True)
    return np.asarray(np.minimum(least, 1.0))
