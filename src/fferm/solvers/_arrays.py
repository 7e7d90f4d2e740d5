"""What the fused kernels read and change: named tuples of arrays.

Parameters are stored (n_features + 1, n_outputs * n_lanes), intercept last, and tables
(strata, classes, groups, lanes): the last axis is the one that vector instructions run
along.
"""

from typing import Any, NamedTuple

import numpy as np

from fferm._typing import FloatArray, IntArray


class Rows(NamedTuple):
    """What is known of the rows.

    What all rows have in common is given once, in an array of one entry: a stratum, a
    weight. Nothing is copied that is there already, for rows may be many.

    Attributes
    ----------
    X
        (data, indices, indptr) of a CSR matrix, or ((n, d) array, None, None).
    y
        (n,) classes.
    stratum
        (n,) or (1,) strata, -1 outside.
    group
        (n, n_attributes) groups, numbered through all attributes, -1 where unknown; of
        no row where all are outside.
    loss_weight, penalty_weight
        (n,) or (1,) weights in loss and penalty; each term is a mean over all rows.
    """

    X: Any
    y: IntArray
    stratum: IntArray
    group: IntArray
    loss_weight: FloatArray
    penalty_weight: FloatArray

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.y.size


class Model(NamedTuple):
    """Parameters of all lanes: (d + 1, n_outputs * n_lanes) each.

    A step moves the columns of X that its batch uses, and the intercept. What all
    others are due, their part in the average and their ridge, waits until they move.

    Attributes
    ----------
    theta
        The iterate.
    squares
        Sums of squared gradients.
    rate
        Adagrad's ``1 / sqrt(squares)``, renewed as the squares grow.
    total
        Sum of the iterates since averaging began, up to the last move of each column.
    moved
        (d + 1,) the step at which each column last moved.
    """

    theta: FloatArray
    squares: FloatArray
    rate: FloatArray
    total: FloatArray
    moved: IntArray


class Dual(NamedTuple):
    """The dual table of all lanes, and the constants of the data it needs.

    Attributes
    ----------
    z
        (R, m, K, L) the dual variable: log-ratios, or the dual itself.
    rate
        (R, m, A, L) running rates of the classes.
    prior
        (R, K) group weights within stratum and attribute.
    factor
        (R, A) ``w_r / rho_r``, the weight of a stratum over its share.
    share
        (R, A) ``1 / rho_r``.
    ends
        (A + 1,) where the groups of each attribute begin and end.
    lower
        The lower end of the box.
    upper
        (R, K) its upper ends.
    speed
        How far the variable moves where the ratio moves by 1.
    """

    z: FloatArray
    rate: FloatArray
    prior: FloatArray
    factor: FloatArray
    share: FloatArray
    ends: IntArray
    lower: float
    upper: FloatArray
    speed: float


class Steps(NamedTuple):
    """How far to go.

    Attributes
    ----------
    weights
        (L,) fairness weights.
    sharpness, l2
        Of the objective.
    lr
        Adagrad's step.
    dual_lr
        The dual step is ``dual_lr / t``: the dual averages over the last steps, a share
        ``1 / dual_lr`` of all.
    average_from
        The step after which iterates are averaged.
    warm_up
        The steps over which the penalty comes in: before, its dual is a guess.
    fit_intercept
        Whether the last row of the parameters is free.
    """

    weights: FloatArray
    sharpness: float
    l2: float
    lr: float
    dual_lr: float
    average_from: int
    warm_up: int
    fit_intercept: bool


class Scratch(NamedTuple):
    """Room for one step.

    Attributes
    ----------
    logits, factor
        (C L,) of one row, and the gradient of its terms by them.
    prob, seen
        (m, L) its probabilities, and those that the penalty sees.
    gradient
        (d + 1, C L) of the batch, valid where ``used`` says so.
    used
        (d + 1,) columns that the batch uses, as many as the first of ``counts``.
    stamp
        (d + 1,) the last batch that used each column.
    counts
        (2,) the number of used columns, and the number of the batch.
    dual, charge, ratio
        (R, m, K, L) ``A``, ``f*(A)`` and ``(f*)'(A)`` of the dual table.
    payoff, mass, slope
        (R, m, K, L) ``G``, mass of the batch by cell, gradient by the dual.
    sums
        (L,) a sum of each lane.
    """

    logits: FloatArray
    factor: FloatArray
    prob: FloatArray
    seen: FloatArray
    gradient: FloatArray
    used: IntArray
    stamp: IntArray
    counts: IntArray
    dual: FloatArray
    charge: FloatArray
    ratio: FloatArray
    payoff: FloatArray
    mass: FloatArray
    slope: FloatArray
    sums: FloatArray


def make_scratch(theta: FloatArray, z: FloatArray) -> Scratch:
    """Return room for steps of a model and a dual table."""
    n_columns, n_factors = theta.shape
    _, n_classes, _, n_lanes = z.shape
    return Scratch(
        np.empty(n_factors),
        np.empty(n_factors),
        np.empty((n_classes, n_lanes)),
        np.empty((n_classes, n_lanes)),
        np.zeros(theta.shape),
        np.empty(n_columns, np.int64),
        np.zeros(n_columns, np.int64),
        np.zeros(2, np.int64),
        np.empty(z.shape),
        np.empty(z.shape),
        np.empty(z.shape),
        np.empty(z.shape),
        np.empty(z.shape),
        np.empty(z.shape),
        np.empty(n_lanes),
    )
