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

from fferm._typing import FloatArray, IntArray
from fferm.boosting._newton_kernels import follow_into

# Share of the way that the offsets go in a round. Decisions jump where probabilities
# move, and a weight of 1000 would answer each jump.
RATE = 0.1
# Decisions are trusted in full where every class is decided at least this often, as a
# share of its probability.
LEAST_DECIDED = 0.5


def follow(
    cells: FloatArray, decided: FloatArray, offsets: FloatArray, ends: IntArray
) -> FloatArray:
    """Return offsets a step nearer to those that lead to the tables of decisions.

    Decisions that hardly know a class, as those before the first tree, are equal for
    all groups and say nothing; to follow them would make them stay as they are.

    Parameters
    ----------
    cells, decided
        (n_cells, n_classes) cells of the tables of probabilities and of decisions.
    offsets
        The last ones.
    ends
        Where the cells of each table end.
    """
    found = offsets.copy()
    follow_into(cells, decided, ends, RATE, LEAST_DECIDED, found)
    return found
