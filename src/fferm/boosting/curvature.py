r"""The curvature of a penalty on its table, as a sum of squares.

With ``Q`` the product of marginals, ``t = P / Q`` and group weights fixed, the second
derivative of the divergence along a direction ``dP`` of the table is

.. math:: d^2 R = \sum_{rjk} \frac{w_r}{\rho_r^2} \frac{f''(t)}{Q}
          \big(dP - t \, dQ\big)^2 ,

a sum of squares, so that a root of it is at hand and nothing has to be decomposed.
Robust penalties are given the curvature of the plain one at the same table: a step is
tried before it is taken, and all it needs is a scale.
"""

import numpy as np

from fferm._types import FloatArray
from fferm.divergences import Divergence, trainable
from fferm.objective import Objective

# Nearer to 1 than this, the slope of f over the distance is nothing but rounding.
SECANT_WIDTH = 1e-6


def curvature_root(
    objective: Objective, table: FloatArray, kept_class: int | None = None
) -> FloatArray:
    """Return a matrix whose Gram matrix is the curvature of a penalty on a table.

    Parameters
    ----------
    objective
        Divergence and notion.
    table
        (n_strata, n_classes, n_groups).
    kept_class
        The predicted class that counts under predictive parity, else None.

    Returns
    -------
    FloatArray
        Square, over cells in the order (stratum, group, class).
    """
    divergence = trainable(objective.divergence)
    if objective.notion.is_sufficiency:
        return _sufficiency(divergence, table, kept_class)
    return _independence(divergence, table, objective.notion.weighting == "unit")


def bending(divergence: Divergence, t: FloatArray) -> FloatArray:
    """Return the curvature of the parabola that stands for ``f`` at a ratio.

    It is the larger of ``f''(t)`` and ``f'(t) / (t - 1)``. The second is that of the
    parabola which touches ``f`` at ``t`` and is lowest at 1; it lies above the total
    variation everywhere, whose own curvature is 0 off its kink.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        own = np.asarray(divergence.f_second(t, np), dtype=np.float64)
        distance = np.where(np.abs(t - 1) > SECANT_WIDTH, t - 1, np.inf)
        found = np.maximum(own, divergence.f_prime(t, np) / distance)
    return np.where(np.isfinite(found), found, 0.0)


def _independence(
    divergence: Divergence, table: FloatArray, counts_one: bool
) -> FloatArray:
    n_strata, n_classes, n_groups = table.shape
    rows = table.transpose(0, 2, 1)  # (r, k, j)
    share = table.sum(axis=(1, 2))[:, None, None]
    safe = np.where(share > 0, share, 1.0)
    prior = rows.sum(axis=2, keepdims=True) / safe  # (r, k, 1)
    product = rows.sum(axis=1, keepdims=True) * prior
    t, scale = _ratio_and_scale(divergence, rows, product)
    # R weighs D of P / share: unit weights leave one factor of 1 / share behind.
    scale = scale / safe if counts_one else scale
    root = np.zeros((n_strata, n_groups, n_classes) * 2)
    for r in range(n_strata):
        for j in range(n_classes):
            moved = np.eye(n_groups) - (t * prior)[r, :, j, None]
            root[r, :, j, r, :, j] = np.sqrt(scale[r, :, j, None]) * moved
    return root.reshape(table.size, table.size)


def _sufficiency(
    divergence: Divergence, table: FloatArray, kept_class: int | None
) -> FloatArray:
    n_labels, n_classes, n_groups = table.shape
    root = np.zeros((n_labels, n_groups, n_classes) * 2)
    # Shapes below are (l, k, l', k'): how a cell answers to another.
    same_label = np.eye(n_labels)[:, None, :, None]
    same_group = np.eye(n_groups)[None, :, None, :]
    for j in range(n_classes) if kept_class is None else (kept_class,):
        mass = table[:, j].sum()
        if mass <= 0:
            continue
        part = table[:, j, :, None, None] / mass
        by_label = part.sum(axis=1, keepdims=True)
        by_group = part.sum(axis=0, keepdims=True)
        product = by_label * by_group
        t, scale = _ratio_and_scale(divergence, part, product)
        # dQ = dT_l. T_.k / P + T_l. dT_.k / P - Q dP / P
        moved = same_label * by_group + by_label * same_group - product
        block = np.sqrt(scale / mass) * (same_label * same_group - t * moved)
        root[:, :, j, :, :, j] = block
    return root.reshape(table.size, table.size)


def _ratio_and_scale(
    divergence: Divergence, p: FloatArray, q: FloatArray
) -> tuple[FloatArray, FloatArray]:
    # t = p / q and f''(t) / q, of empty cells 1 and 0.
    is_empty = q <= 0
    safe = np.where(is_empty, 1.0, q)
    t = np.where(is_empty, 1.0, p / safe)
    return t, np.where(is_empty, 0.0, bending(divergence, t) / safe)
