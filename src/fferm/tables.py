r"""Tables of predictions by group, the value of a penalty on them and its payoff.

Training needs nothing of a penalty but its gradient on a tiny table
``joint[r, j, k]`` (stratum, predicted class, group). This gradient is the *payoff*:
the fairness term of sample ``i`` is ``sum_j prob[i, j] payoff[r_i, j, k_i]``, a
look-up. Group weights are constants of the data and are not differentiated.
"""

import numpy as np

from fferm._typing import FloatArray, IntArray
from fferm.data.rows import CellIndex
from fferm.divergences import Divergence
from fferm.divergences import get as get_divergence
from fferm.errors import InvalidInputError
from fferm.notions import WITHIN_STRATA, Weighting
from fferm.penalty.objective import compared_penalty, moving_penalty
from fferm.uncertainty import Uncertainty


def joint(
    prob: FloatArray,
    group: IntArray,
    n_groups: int,
    *,
    stratum: IntArray | None = None,
    n_strata: int | None = None,
    sample_weight: FloatArray | None = None,
) -> FloatArray:
    """Return the joint table of prediction and group.

    Parameters
    ----------
    prob
        (n_samples, n_classes) probabilities, or one-hot decisions.
    group
        (n_samples,) group codes; rows with -1 are left out.
    n_groups
        Number of groups, present or not.
    stratum
        (n_samples,) stratum codes; rows with -1 count in the total only.
    n_strata
        Number of strata; by default the largest code plus one.
    sample_weight
        (n_samples,) non-negative weights.

    Returns
    -------
    FloatArray
        (n_classes, n_groups), or (n_strata, n_classes, n_groups) where strata are
        given. It sums to the share of rows that are in a stratum.

    Examples
    --------
    >>> joint(np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([0, 1]), 2)
    array([[0.45, 0.2 ],
           [0.05, 0.3 ]])
    """
    prob, group = np.asarray(prob, dtype=np.float64), np.asarray(group)
    if prob.ndim != 2 or prob.shape[1] < 2 or group.shape != prob.shape[:1]:
        raise InvalidInputError(
            "prob must be (n_samples, n_classes >= 2) and group (n_samples,); got "
            f"{prob.shape} and {group.shape}. A column would broadcast to (n, n)."
        )
    code = np.zeros_like(group) if stratum is None else np.asarray(stratum)
    weight = np.ones(len(prob)) if sample_weight is None else sample_weight
    weight = np.asarray(weight, dtype=np.float64)
    _check_codes("group", group, group.shape, n_groups)
    if n_strata is None or stratum is None:
        n_strata = 1 if stratum is None else int(code.max(initial=0)) + 1
    _check_codes("stratum", code, group.shape, n_strata)
    if not np.all(np.isfinite(prob)):
        raise InvalidInputError(
            "prob must hold finite probabilities, or decisions of 0 and 1; got missing "
            "or infinite numbers. Look at the model that made them."
        )
    if weight.shape != group.shape or not np.all((weight >= 0) & (weight < np.inf)):
        raise InvalidInputError(
            "sample_weight must hold one finite, non-negative weight per row, shape "
            f"{group.shape}; got shape {weight.shape}, or other numbers."
        )
    known = group >= 0
    total = float(weight[known].sum())
    if total <= 0:
        raise InvalidInputError(
            "No row has a known group and a positive weight, so there is no table. "
            "Check sensitive_features and sample_weight."
        )
    kept = np.flatnonzero(known & (code >= 0))
    cell = code[kept] * n_groups + group[kept]
    cells = CellIndex(kept, cell, weight[kept], (n_strata, n_groups), total)
    table = cells.table(prob, cells.share, prob.shape[1])
    return table[0] if stratum is None else table


def penalty(
    joint: FloatArray,
    divergence: str | Divergence,
    uncertainty: Uncertainty | None = None,
    *,
    weighting: Weighting = "unit",
) -> tuple[float, FloatArray]:
    r"""Return the value of a penalty on a table, and its payoff.

    .. math:: R = \sum_r w_r D_f\big(P(\hat y, s | r) \,\|\, P(\hat y|r) P(s|r)\big)

    or its robust form, with the payoff ``dR / d joint`` at fixed group weights.

    Parameters
    ----------
    joint
        (classes x groups) or (strata x classes x groups) table.
    divergence
        Name or instance.
    uncertainty
        None, `SmallShift` or `LargeShift`.
    weighting
        ``"unit"``: every stratum counts one; ``"frequency"``: as its share of the
        table, so that rows in no stratum take no weight away.

    Returns
    -------
    tuple of float and FloatArray
        The value, and the payoff in the shape of the table.

    Examples
    --------
    >>> value, payoff = penalty(np.array([[0.3, 0.15], [0.25, 0.3]]), "chi2")
    >>> round(value, 6)
    0.044995
    """
    table = _checked_table(joint)
    strata = table if table.ndim == 3 else table[None]
    value, payoff = compared_penalty(
        strata, WITHIN_STRATA, get_divergence(divergence), uncertainty, weighting
    )
    return value, payoff.reshape(table.shape)


def sufficiency(
    joint: FloatArray,
    divergence: str | Divergence,
    uncertainty: Uncertainty | None = None,
    *,
    predicted: int | None = None,
) -> tuple[float, FloatArray]:
    r"""Return the penalty for labels that depend on the group given the prediction.

    .. math:: R = \sum_j P_j \, D_f\big(P(y, s | j) \,\|\, P(y | j) P(s | j)\big)

    Parameters
    ----------
    joint
        (labels x classes x groups) table, as `joint` makes it with labels as strata.
    divergence, uncertainty
        As in `penalty`; the set must not be coupled.
    predicted
        Count this predicted class only: predictive parity.

    Returns
    -------
    tuple of float and FloatArray
        The value, and ``dR / d joint``.
    """
    table = _checked_table(joint)
    if table.ndim != 3:
        raise InvalidInputError(
            "A table for sufficiency must be labels x classes x groups; got shape "
            f"{table.shape}. Pass the labels as strata to fferm.tables.joint."
        )
    kept = slice(None) if predicted is None else slice(predicted, predicted + 1)
    by_class = np.swapaxes(table, 0, 1)[kept]
    value, slope = moving_penalty(
        by_class, get_divergence(divergence), uncertainty, "probability"
    )
    payoff = np.zeros_like(table)
    payoff[:, kept] = np.swapaxes(slope, 0, 1)
    return value, payoff


def _check_codes(
    name: str, code: IntArray, shape: tuple[int, ...], n_codes: int
) -> None:
    if code.shape != shape or code.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{name} must hold integer codes, one integer per row, shape {shape}; got "
            f"shape {code.shape}, dtype {code.dtype}."
        )
    if code.size and (code.max() >= n_codes or code.min() < -1):
        raise InvalidInputError(
            f"{name} must hold codes from -1 (left out) to n - 1 = {n_codes - 1}; got "
            f"{code.min()} to {code.max()}."
        )


def _checked_table(joint: FloatArray) -> FloatArray:
    table = np.asarray(joint, dtype=np.float64)
    is_positive = np.all(table >= 0) and 0 < table.sum() < np.inf
    if table.ndim not in (2, 3) or not is_positive:
        raise InvalidInputError(
            "A table must hold non-negative probabilities, classes x groups or strata "
            f"x classes x groups; got shape {table.shape}, entries "
            f"{table.min(initial=np.inf)} to {table.max(initial=-np.inf)}."
        )
    return table
