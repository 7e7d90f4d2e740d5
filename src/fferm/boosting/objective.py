r"""The objective as a function of raw scores, evaluated in fused passes over the rows.

.. math::

    F(z) = \frac1W \sum_i w_i \ell(z_i, y_i)
      + \lambda R\big(P(\sigma z) + \Delta\big),
    \qquad P(z) = \sum_i \text{share}_i \, \text{softmax}(z_i) .

The loss is a sum over rows, and its curvature is the diagonal ``D``, as in LightGBM.
The penalty sees rows only through a small table, so its curvature has the rank of the
table: with ``J`` the derivative of the table by the scores and ``C'C`` the curvature of
``R``, the whole is ``D + lambda J' C'C J``; `fferm.boosting.newton` inverts it.
``Delta`` are the offsets of `Descent`, constant under derivatives.

Two classes have one score, that of the second; more have one each. A round makes two
passes: one finds the leaves of the rows and adds up what a Newton step over leaves
needs, the other adds the values of leaves to the scores and evaluates the rows there.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

import fferm.boosting._kernels as kernels
from fferm._typing import FloatArray, IntArray
from fferm.boosting._kernels import RowPass
from fferm.data.rows import Rows
from fferm.penalty.compiled import CompiledPenalty
from fferm.penalty.objective import Objective, Penalty

# Outputs of leaves nearer than this, relative to the scores, are one: a score plus an
# output less the score is the output up to rounding.
SAME_OUTPUT = 1e-12
# Memory for so many leaves to begin with; it grows with the trees.
N_KEYS = 256
# Probabilities nearer to 0 or 1 than this have scores that are only rounding.
LEAST_PROBABILITY = 1e-15
# Gradient and diagonal curvature, in the single precision that LightGBM takes.
Gradients = tuple[NDArray[np.float32], NDArray[np.float32]]


def mean_loss(scores: FloatArray, y: IntArray, weight: FloatArray) -> float:
    """Return the weighted mean cross-entropy of (n_scores, n) scores."""
    logits = scores if len(scores) > 1 else np.vstack([np.zeros_like(scores), scores])
    log_prob = log_softmax(logits, axis=0)
    return -float(np.average(log_prob[y, np.arange(y.size)], weights=weight))


def scores_of(prob: FloatArray) -> FloatArray:
    """Return the (n_scores, n) scores of the probabilities that LightGBM returns."""
    if len(prob) > 1:
        return np.log(np.maximum(prob, LEAST_PROBABILITY))
    safe = np.clip(prob, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    return np.asarray(np.log(safe / (1 - safe)))


def decide(scores: FloatArray) -> IntArray:
    """Return the (n,) class of highest score."""
    decided = scores.argmax(axis=0) if len(scores) > 1 else scores[0] > 0
    return np.asarray(decided, dtype=np.int64)


def join_cells(rows: Rows, n_samples: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the cells of all tables that a row is counted in, as one code.

    A view of the `CellIndex` of each attribute. Sums over rows are taken once, over
    these joint cells, and a small matrix adds them up to the cells of each table.

    Parameters
    ----------
    rows, n_samples
        The rows of a penalty, the last of ``n_samples``.

    Returns
    -------
    tuple of IntArray, FloatArray and FloatArray
        The (n_samples,) joint cells, the (n_samples,) weights in the tables, 0 for rows
        in no cell, and the (n_cells, n_joint) membership: what one unit of weight adds
        to a cell of stratum and group, over all tables.
    """
    begin = n_samples - rows.weight.size
    codes = np.full((len(rows.cells), n_samples), -1, dtype=np.int64)
    joint = np.zeros(n_samples, dtype=np.int64)
    for code, index in zip(codes, rows.cells, strict=True):
        code[begin:][index.rows] = index.cell
        pair = joint * (np.prod(index.shape) + 1) + code
        first, joint = np.unique(pair, return_index=True, return_inverse=True)[1:]
    blocks = []
    for code, index in zip(codes[:, first], rows.cells, strict=True):
        block = np.zeros((np.prod(index.shape), code.size))
        counted = np.flatnonzero(code >= 0)
        block[code[counted], counted] = 1 / index.total
        blocks.append(block)
    weight = np.concatenate([np.zeros(begin), rows.weight])
    weight[(codes < 0).all(axis=0)] = 0.0
    return joint.astype(np.int64), weight, np.vstack(blocks)


class Leaves(NamedTuple):
    """The leaves of one tree, told apart by their outputs, in any order."""

    code: IntArray | NDArray[np.unsignedinteger]  # (n,)
    output: FloatArray  # (n_leaves,)


class LeafSums(NamedTuple):
    """What a Newton step needs of the rows; leaves of all trees in a row."""

    gradient: FloatArray  # (n_leaves,) of the loss, times W
    diagonal: FloatArray  # (n_leaves,) curvature of the loss, times W
    moved: FloatArray  # (n_cells * n_classes, n_leaves), how the tables move


class ScoreObjective:
    """Loss plus penalty of raw scores.

    The scores of a pass, and of one that moves on from it, are kept; probabilities are
    those of the last pass, so that they fit into cache.

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
    kind
        (n,) which row of the penalty stands for a row, where each stands for many.
    """

    def __init__(
        self,
        objective: Objective,
        y: IntArray,
        weight: FloatArray,
        n_classes: int,
        penalty: Penalty,
        kind: IntArray | None = None,
    ) -> None:
        self.objective = objective
        every = weight if kind is None else penalty.rows.weight
        self.y, self.weight, self.total = y, weight, float(every.sum())
        self.n_classes, self.n_scores = n_classes, 1 if n_classes == 2 else n_classes
        self.penalty = CompiledPenalty(penalty)
        joined = join_cells(penalty.rows, every.size)
        self.cell, self.table_weight, self.membership = joined
        # Rows without a label have curvature as if they had one: a leaf of such rows
        # alone would have none, and no end to its step.
        share = self.table_weight * (self.total / self.table_weight.sum())
        if kind is not None:
            self.cell, is_counted = self.cell[kind], self.table_weight[kind] > 0
            share = self.table_weight = np.where(is_counted, weight, 0.0)
        self.hessian_weight = np.where(weight > 0, weight, share)
        sums = np.bincount(self.cell, self.table_weight, self.membership.shape[1])
        # Equal arrays are one, and numbers are as small as they can be: from main
        # memory they take longer to arrive than to be worked on.
        is_counted = (self.membership > 0).max(axis=0)[self.cell]
        table_weight = np.where(is_counted, self.table_weight, weight)  # no effect
        weights: list[NDArray[np.floating]] = []
        for long in (weight, self.hessian_weight, table_weight):
            short = long.astype(np.float32)
            is_known = weights and np.array_equal(long, weight)
            exact = short if np.array_equal(short, long) else long
            weights.append(weights[0] if is_known else exact)
        in_loss, in_hessian, in_tables = weights
        self._rows = kernels.Rows(
            y.astype(np.min_scalar_type(-n_classes)),
            in_loss,
            in_hessian,
            in_tables,
            self.cell.astype(np.min_scalar_type(self.membership.shape[1])),
            float(objective.sharpness),
            self.membership,
            self.membership @ sums[:, None],
        )
        self._member = objective.sharpness * self.membership
        shape = self.n_scores, y.size
        self._no_payoff = np.zeros((len(self.membership), n_classes))
        self._scores = [np.empty(shape) for _ in range(2)]
        self._prob, self._penalized = np.empty(shape), np.empty(shape)
        # The pass and the payoff that the gradients are of.
        self._gradients_of: tuple[RowPass, FloatArray] | None = None
        n_turns = kernels.N_TURNS if n_classes == 2 else n_classes
        self._workspace = kernels.Workspace(
            *np.empty((2, kernels.BLOCK)),
            *np.zeros((2, n_turns, sums.size)),
            *np.empty((2, *shape), dtype=np.float32),
        )
        self._code = np.zeros(shape, dtype=np.uint8)
        self._make_slots(N_KEYS)

    def _make_slots(self, n_keys: int) -> None:
        # Memory for so many leaves, a power of 2.
        n_joint = self.membership.shape[1]
        self._code = self._code.astype(np.min_scalar_type(n_keys - 1))
        self._slot = np.empty(4 * n_keys, dtype=np.int32)
        self._key = np.empty(n_keys, dtype=np.int64)
        self._sums = np.empty((n_keys, n_joint, 2 + self.n_classes))

    def value(self, scores: FloatArray) -> float:
        """Return loss plus penalty at (n_scores, n) scores, without offsets."""
        at = self.row_pass(scores)
        penalty = self.penalty.value_and_payoff(at.cells)[0]
        return at.loss + self.objective.fairness_weight * penalty

    def row_pass(
        self,
        scores: FloatArray,
        values: Sequence[FloatArray] = (),
        payoff: FloatArray | None = None,
    ) -> RowPass:
        """Return a pass at scores plus the values of leaves.

        Parameters
        ----------
        scores
            (n_scores, n).
        values
            The value that each leaf of each tree, as gathered last, adds.
        payoff
            The payoff that the next trees will probably be grown along.
        """
        n_leaves = max((value.size for value in values), default=1)
        padded = np.zeros((self.n_scores, n_leaves))
        for row, value in zip(padded, values, strict=False):
            row[: value.size] = value
        if not values:
            self._code[:] = 0
        payoff = self._no_payoff if payoff is None else payoff
        one, other = self._scores
        after, tables = other if scores is one else one, self._no_payoff.shape
        at = RowPass(after, self._prob, self._penalized, *np.empty((2, *tables)))
        leaves, by_cell = (scores, padded, self._code), self._by_cell(payoff)
        loss = kernels.row_pass_into(self._rows, *leaves, at, by_cell, self._workspace)
        at = at._replace(loss=loss / self.total)
        self._gradients_of = at, payoff
        return at

    def _by_cell(self, payoff: FloatArray) -> FloatArray:
        # Gradients by ``sharpness`` times the scores, for a row of weight 1.
        # Probabilities sum to 1: only differences to the first class matter.
        scaled = self.objective.fairness_weight * self.total * payoff
        return np.ascontiguousarray((self._member.T @ (scaled - scaled[:, :1])).T)

    def gradients(self, at: RowPass, payoff: FloatArray) -> Gradients:
        """Return (n_scores, n) gradient and curvature, times ``W``.

        Parameters
        ----------
        at
            Where.
        payoff
            (n_cells, n_classes) gradient of the penalty by its tables.
        """
        known = self._gradients_of
        if known is None or known[0] is not at or known[1] is not payoff:
            by_cell = self._by_cell(payoff)
            kernels.gradients_into(self._rows, at, by_cell, self._workspace)
            self._gradients_of = at, payoff
        return self._workspace.gradient, self._workspace.diagonal

    def gather(
        self,
        at: RowPass,
        before: FloatArray,
        after: FloatArray,
        tolerance: float = SAME_OUTPUT,
    ) -> tuple[list[Leaves], LeafSums]:
        """Return the leaves of each tree, and what a Newton step needs of them.

        Parameters
        ----------
        at
            Where the step starts.
        before, after
            (n_scores, n) scores of the library that grows trees, around the last ones;
            the former become the latter.
        tolerance
            Outputs of leaves nearer than this, relative to scores, are one.

        Notes
        -----
        Codes of leaves are valid until the next call.
        """
        leaves, parts = [], []
        n_moved = self._no_payoff.size
        for c, (old, new) in enumerate(zip(before, after, strict=True)):
            rows = self._rows, at, old, new, tolerance
            n, unit, are_apart = -1, 0.0, True
            while n < 0:
                memory = self._slot, self._key, self._code[c], c, self._sums
                n, unit, are_apart = kernels.gather_into(*rows, *memory)
                if n < 0:
                    self._make_slots(2 * self._key.size)
            output = np.asarray(self._key[:n] * unit, dtype=np.float64)
            tree, sums = Leaves(self._code[c], output), self._sums[:n]
            if not are_apart:
                tree, sums = merge_leaves(self._code[c], self._key[:n], unit, sums)
            n = tree.output.size
            part = LeafSums(np.empty(n), np.empty(n), np.empty((n_moved, n)))
            kernels.leaf_sums_into(sums, self._member, *part)
            leaves.append(tree)
            parts.append(part)
        if len(parts) == 1:
            return leaves, parts[0]
        joined = (np.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
        return leaves, LeafSums(*joined)


def merge_leaves(
    code: NDArray[np.unsignedinteger], keys: IntArray, unit: float, sums: FloatArray
) -> tuple[Leaves, FloatArray]:
    """Return leaves and their sums, with outputs one unit apart merged.

    They are one output, rounded up and down.

    Parameters
    ----------
    code
        (n,) leaves of rows, changed.
    keys
        Outputs as multiples of the unit, all different, in the order of codes.
    unit
        What outputs are rounded to.
    sums
        Any sums over rows, leaves first.
    """
    order = np.argsort(keys)
    ordered = keys[order]
    is_new = np.append(True, ordered[1:] - ordered[:-1] > 2)
    rank = np.empty(keys.size, dtype=code.dtype)
    rank[order] = np.cumsum(is_new) - 1
    np.take(rank, code, out=code)
    added = np.add.reduceat(sums[order], np.flatnonzero(is_new), axis=0)
    return Leaves(code, np.asarray(ordered[is_new] * unit)), added
