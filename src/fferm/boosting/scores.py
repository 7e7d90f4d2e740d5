r"""The objective as a function of raw scores, and its derivatives.

.. math::

    F(z) = \frac1W \sum_i w_i \ell(z_i, y_i)
      + \lambda R\big(P(\sigma z) + \Delta\big),
    \qquad P(z) = \sum_i \text{share}_i \, \text{softmax}(z_i) .

The loss is a sum over rows, and its curvature is the diagonal ``D``. The penalty sees
rows only through a tiny table, so that its curvature has the rank of the table: with
``J`` the derivative of the table by the scores and ``C'C`` the curvature of ``R``, the
whole is ``D + lambda J' C'C J``; `fferm.boosting.leaves` inverts it. ``Delta`` is
constant under derivatives; see `fferm.boosting.decisions`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fferm._typing import FloatArray, IntArray
from fferm.boosting.leaves import LeafSums, Leaves
from fferm.boosting.links import Link, make_link
from fferm.boosting.placement import Placement, place
from fferm.penalty.objective import Objective, Penalty, check_finite

# Least curvature of a row, relative to its weight: what a saturated score leaves.
LEAST_CURVATURE = 1e-12


@dataclass(frozen=True)
class Pass:
    """What one pass over the rows gives at given scores."""

    scores: FloatArray  # (n_scores, n)
    prob: FloatArray  # (n_classes, n)
    seen: FloatArray  # (n_classes, n), what the penalty sees
    loss: float
    tables: list[FloatArray]


@dataclass(frozen=True)
class Slopes:
    """Derivatives of the two parts of the objective; those of the loss times ``W``."""

    gradient: FloatArray  # (n_scores, n), of the loss
    diagonal: FloatArray  # (n_scores, n), curvature of the loss
    payoff: FloatArray  # (n_cells, n_classes), slope of the penalty by its tables
    value: float  # of the objective itself


class ScoreObjective:
    """Loss plus penalty of raw scores.

    Parameters
    ----------
    objective
        Divergence, notion, uncertainty set, weight and sharpness.
    y
        (n_samples,) class codes.
    weight
        (n_samples,) weights in the loss, 0 for rows of the penalty alone.
    n_classes
        Number of classes.
    penalty
        The penalty; its rows are the last ones.
    """

    def __init__(
        self,
        objective: Objective,
        y: IntArray,
        weight: FloatArray,
        n_classes: int,
        penalty: Penalty,
    ) -> None:
        self.objective = objective
        self.y = y
        self.weight = weight
        self.total = float(weight.sum())
        self.link: Link = make_link(n_classes)
        self.penalty = penalty
        begin = y.size - penalty.rows.weight.size
        self.placement: Placement = place(penalty, y.size, begin)
        # Rows without a label bend the objective as if they had one: a leaf of such
        # rows alone would have no curvature, and no end to its step.
        own = self.placement.weight
        share = own * (self.total / own.sum())
        self.bend_weight = np.where(weight > 0, weight, share)

    def at(self, scores: FloatArray) -> Pass:
        """Return what a pass over the rows gives."""
        losses, prob = self.link.losses(scores, self.y)
        sharpness = self.objective.sharpness
        seen = prob if sharpness == 1 else self.link.prob(sharpness * scores)
        loss = float(self.weight @ losses) / self.total
        return Pass(scores, prob, seen, loss, self.placement.tables(seen))

    def value(self, point: Pass, offsets: Sequence[FloatArray] | None = None) -> float:
        """Return the objective; infinite where offsets leave a cell below 0."""
        tables = shifted(point.tables, offsets)
        if any(table.min() < 0 for table in tables):
            return np.inf
        weight = self.objective.fairness_weight
        return point.loss + weight * self.penalty.on_tables(tables)[0]

    def slopes(
        self, point: Pass, offsets: Sequence[FloatArray] | None = None
    ) -> Slopes:
        """Return gradient and curvature of the loss, and those of the table."""
        tables = shifted(point.tables, offsets)
        value, payoffs = self.penalty.on_tables(tables)
        payoff = self.placement.join(payoffs)
        check_finite(value, payoff)
        gradient = self.weight * self.link.gradient(point.prob, self.y)
        bent = np.maximum(self.link.curvature(point.prob), LEAST_CURVATURE)
        return Slopes(
            gradient,
            self.bend_weight * bent,
            payoff,
            point.loss + self.objective.fairness_weight * value,
        )

    def gradient(
        self, point: Pass, slopes: Slopes, payoff: FloatArray | None = None
    ) -> FloatArray:
        """Return the (n_scores, n) gradient, times ``W``, of loss and penalty.

        Parameters
        ----------
        point, slopes
            Where, and the derivatives there.
        payoff
            (n_cells, n_classes), by default the slope of the penalty.
        """
        factor = self.objective.fairness_weight * self.total
        pulled = self.pull(point, slopes.payoff if payoff is None else payoff)
        return slopes.gradient + factor * pulled

    def pull(self, point: Pass, cells: FloatArray) -> FloatArray:
        """Return the (n_scores, n) gradient of ``sum cells * table``.

        Parameters
        ----------
        point
            Where.
        cells
            (n_cells, n_classes).
        """
        by_kind, place = self.worth(cells), self.placement
        found = np.zeros_like(point.scores)
        for score in range(self.link.n_scores):
            for j in range(1, self.link.n_classes):
                worth = by_kind[:, j][place.kind]
                found[score] += self.link.slope(point.seen, j, score) * worth
        found *= place.weight
        return found

    def worth(self, cells: FloatArray) -> FloatArray:
        """Return the (n_kinds, n_classes) slopes of ``sum cells * table``.

        They are those by ``sharpness`` times the scores, of a row of weight 1.
        """
        # Probabilities sum to 1: only differences to the first class count.
        member = self.objective.sharpness * self.placement.membership.T
        return np.asarray(member @ (cells - cells[:, :1]))

    def leaf_sums(
        self, point: Pass, slopes: Slopes, leaves: Sequence[Leaves]
    ) -> LeafSums:
        """Return what a Newton step over leaves needs, added up over rows."""
        place, link = self.placement, self.link
        by_loss, parts = [], []
        for score, tree in enumerate(leaves):
            by_loss.append(
                [
                    np.bincount(tree.code, weights=rows[score], minlength=tree.size)
                    for rows in (slopes.gradient, slopes.diagonal)
                ]
            )
            moved = [
                place.sums(link.slope(point.seen, j, score), tree.code, tree.size)
                for j in range(1, link.n_classes)
            ]
            first = -np.sum(moved, axis=0)  # probabilities sum to 1
            stacked = np.stack([first, *moved], axis=1)  # (cells, classes, codes)
            parts.append(self.objective.sharpness * stacked.reshape(-1, tree.size))
        gradient, diagonal = np.hstack([np.array(part) for part in by_loss])
        return LeafSums(gradient, diagonal, np.hstack(parts))


def shifted(
    tables: Sequence[FloatArray], offsets: Sequence[FloatArray] | None
) -> list[FloatArray]:
    """Return tables plus offsets."""
    if offsets is None:
        return list(tables)
    return [table + offset for table, offset in zip(tables, offsets, strict=True)]
