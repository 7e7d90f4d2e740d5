"""Two fused passes over rows a round, in place of many of NumPy.

One finds the leaves of the rows and adds up what a Newton step over leaves needs; the
other adds the values of leaves to the scores, looks at the rows from there and writes
what LightGBM asks for. `ScoreObjective` is their oracle.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fferm._typing import FloatArray
from fferm.boosting import _gather_kernels as gathering
from fferm.boosting import _row_kernels as kernels
from fferm.boosting._newton_kernels import leaf_sums_into
from fferm.boosting._table_kernels import complete_into
from fferm.boosting.leaves import SAME_OUTPUT, LeafSums, Leaves, merged
from fferm.boosting.scores import ScoreObjective

# Room for leaves to begin with; more is made where a tree has more.
N_KEYS = 256


@dataclass(frozen=True)
class Look:
    """What a look at the rows gives at given scores."""

    scores: FloatArray  # (n_scores, n)
    prob: FloatArray  # (n_scores, n), of two classes that of the second
    seen: FloatArray  # (n_scores, n), what the penalty sees
    loss: float
    cells: FloatArray  # (n_cells, n_classes), of the tables of what is seen
    decided: FloatArray  # the same, of the tables of decisions


class RowPasses:
    """Passes over the rows of an objective.

    The scores of a look, and of one that moves on from it, are kept; probabilities are
    those of the last look, so that they fit into cache.

    Parameters
    ----------
    objective
        Loss and penalty of raw scores.
    """

    def __init__(self, objective: ScoreObjective) -> None:
        self.objective = objective
        self.placement = objective.placement
        self._rows = _pack(objective)
        self._member = objective.objective.sharpness * self.placement.membership
        n_scores, n = objective.link.n_scores, objective.y.size
        self._shape = n_scores, n
        self._room = kernels.make_room(objective.link.n_classes, self.placement.n_kinds)
        self._scores = [np.empty(self._shape) for _ in range(2)]
        self._prob, self._seen = np.empty(self._shape), np.empty(self._shape)
        self._aim = [np.empty(self._shape, dtype=np.float32) for _ in range(2)]
        self._aimed: tuple[Look, FloatArray] | None = None
        self._code = np.zeros(self._shape, dtype=np.uint8)
        self._make_slots(N_KEYS)

    def start(self, scores: FloatArray) -> Look:
        """Return a look from (n_scores, n) scores."""
        self._code[:] = 0
        nothing = np.zeros((self._shape[0], 1))
        return self._look(scores, nothing, self._no_payoff())

    def move(
        self,
        look: Look,
        leaves: Sequence[Leaves],
        values: Sequence[FloatArray],
        payoff: FloatArray,
    ) -> Look:
        """Return a look from the scores of another, plus the values of leaves.

        Parameters
        ----------
        look, leaves, values
            From where, and the value that each leaf of each tree adds.
        payoff
            What the next trees will probably be aimed by; see `aim`.
        """
        padded = values[0][None]
        if len(leaves) > 1:
            padded = np.zeros((len(leaves), max(tree.size for tree in leaves)))
            for row, value in zip(padded, values, strict=True):
                row[: value.size] = value
        return self._look(look.scores, padded, payoff)

    def aim(
        self, look: Look, payoff: FloatArray
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return (n_scores, n) gradient and curvature, times ``W``.

        Parameters
        ----------
        look
            From where.
        payoff
            (n_cells, n_classes) slope of the penalty by its tables.
        """
        known = self._aimed
        if known is None or known[0] is not look or known[1] is not payoff:
            kernels.aim_into(self._rows, look.prob, look.seen, self._target(payoff))
            self._aimed = look, payoff
        return self._aim[0], self._aim[1]

    def gather(
        self,
        look: Look,
        before: FloatArray,
        after: FloatArray,
        same: float = SAME_OUTPUT,
    ) -> tuple[list[Leaves], LeafSums]:
        """Return the leaves of each tree, and what a Newton step needs of them.

        Parameters
        ----------
        look
            From where the step goes.
        before, after
            (n_scores, n) scores of the library that grows trees, around the last ones;
            the former become the latter.
        same
            Outputs of leaves nearer than this, relative to scores, are one.

        Notes
        -----
        Codes of leaves are good until the next call.
        """
        found = [
            self._gather(look, c, *pair, same)
            for c, pair in enumerate(zip(before, after, strict=True))
        ]
        leaves, parts = [tree for tree, _ in found], [sums for _, sums in found]
        if len(parts) == 1:
            return leaves, parts[0]
        gradient = np.concatenate([part.gradient for part in parts])
        diagonal = np.concatenate([part.diagonal for part in parts])
        moved = np.hstack([part.moved for part in parts])
        return leaves, LeafSums(gradient, diagonal, moved)

    def _gather(
        self, look: Look, c: int, before: FloatArray, after: FloatArray, same: float
    ) -> tuple[Leaves, LeafSums]:
        pass_ = self._rows, look.prob, look.seen, before, after, same
        while True:
            room = self._slots, self._code[c], c, self._sums
            n, unit = gathering.gather_into(*pass_, *room)
            if n >= 0:
                break
            self._make_slots(2 * self._slots.key.size)
        code = self._code[c]
        tree, sums = merged(code, self._slots.key[:n], unit, self._sums[:n])
        n_cells = len(self._member) * self.objective.link.n_classes
        found = np.empty(tree.size), np.empty(tree.size), np.empty((n_cells, tree.size))
        leaf_sums_into(sums, self._member, *found)
        return tree, LeafSums(*found)

    def _make_slots(self, n_keys: int) -> None:
        self._code = self._code.astype(np.min_scalar_type(n_keys - 1))
        self._slots = gathering.make_slots(n_keys)
        n_classes = self.objective.link.n_classes
        self._sums = np.empty((n_keys, self.placement.n_kinds, 2 + n_classes))

    def _look(self, before: FloatArray, values: FloatArray, payoff: FloatArray) -> Look:
        o, (one, other) = self.objective, self._scores
        scores = other if before is one else one
        loss = kernels.look_into(
            self._rows,
            o.objective.sharpness,
            before,
            values,
            self._code,
            scores,
            self._prob,
            self._seen,
            self._target(payoff),
            self._room,
        )
        cells, decided = self._cells(self._room.soft), self._cells(self._room.hard)
        look = Look(scores, self._prob, self._seen, loss / o.total, cells, decided)
        self._aimed = look, payoff
        return look

    def _target(self, payoff: FloatArray) -> kernels.Aim:
        o = self.objective
        factor = o.objective.fairness_weight * o.total
        worth = np.ascontiguousarray(o.worth(factor * payoff).T)
        return kernels.Aim(worth, *self._aim)

    def _cells(self, sums: FloatArray) -> FloatArray:
        place = self.placement
        cells = np.empty((len(place.membership), self.objective.link.n_classes))
        complete_into(sums, place.membership, place.mass, cells)
        return cells

    def _no_payoff(self) -> FloatArray:
        n_cells = len(self.placement.membership)
        return np.zeros((n_cells, self.objective.link.n_classes))


def _pack(objective: ScoreObjective) -> kernels.Rows:
    # Arrays that are equal are one, and numbers are as small as they can be: from main
    # memory they take longer to come than to be worked on.
    place, weight = objective.placement, objective.weight
    is_placed = (place.membership > 0).max(axis=0)[place.kind]
    own = np.where(is_placed, place.weight, weight)  # others count nowhere
    bend = objective.bend_weight
    short = _short(weight)
    return kernels.Rows(
        objective.y.astype(np.min_scalar_type(-objective.link.n_classes)),
        short,
        short if np.array_equal(bend, weight) else _short(bend),
        short if np.array_equal(own, weight) else _short(own),
        place.kind.astype(np.min_scalar_type(place.n_kinds)),
    )


def _short(weight: FloatArray) -> NDArray[np.floating]:
    rounded = weight.astype(np.float32)
    return rounded if np.array_equal(rounded, weight) else weight
