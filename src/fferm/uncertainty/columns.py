"""The worst joint whose group weights stay what they are; its product follows."""

import numpy as np

from fferm._typing import FloatArray, IntArray
from fferm.divergences import Divergence
from fferm.errors import InvalidParameterError
from fferm.uncertainty.base import dual_and_conjugate, settled, times
from fferm.uncertainty.corners import interval
from fferm.uncertainty.vertices import Vertices, candidate_count, vertices

# Tables to look at: seconds of work, tens of megabytes. 16 groups of binary classes.
MAX_TABLES = 2**16


def worst_columns(
    p: FloatArray, prior: FloatArray, radius: float, divergence: Divergence
) -> tuple[float, FloatArray]:
    """Return the exact worst case over products of column vertices, and its payoff.

    Group k moves in ``{P'_.k >= 0 : |P' - P| <= radius, sum_j P'_jk = sum_j P_jk}``.
    With ``Q = rowsum(P) x prior`` D is convex in P, so its largest value is where
    every column is at a vertex. The payoff is ``A - sum_k prior_k C_jk`` there.
    """
    columns = np.flatnonzero((p.sum(axis=0) > 0) | (prior > 0))
    _check_classes(p)
    found = [vertices(interval(p[:, k], radius), float(p[:, k].sum())) for k in columns]
    choices = _combinations([column.free.size for column in found])
    tables = np.stack(
        [column.points[choice] for column, choice in zip(found, choices, strict=True)],
        axis=2,
    )  # (tables, m, columns)
    products = tables.sum(axis=2, keepdims=True) * prior[columns]
    values = divergence.perspective(tables, products).sum(axis=(1, 2))
    best = int(np.argmax(values))
    slopes = _payoff(tables[best], products[best], prior[columns], divergence)
    payoff = np.zeros_like(p)
    payoff[:, columns] = _pulled_back(found, choices[:, best], slopes)
    return float(values[best]), payoff


def _check_classes(p: FloatArray) -> None:
    if candidate_count(p.shape[0]) > MAX_TABLES:
        raise InvalidParameterError(
            f"LargeShift(mode='coupled') got a table of {p.shape[0]} classes, more "
            "than it can enumerate. Expected at most 13; use mode='corners'."
        )


def _combinations(sizes: list[int]) -> IntArray:
    """Return all choices of one vertex a column, (columns x tables)."""
    total = int(np.prod(sizes, dtype=object))
    if total > MAX_TABLES:
        raise InvalidParameterError(
            f"LargeShift(mode='coupled') would look at {total} tables. Expected at "
            f"most {MAX_TABLES}, 16 groups of two classes; use mode='corners', or "
            "merge groups."
        )
    strides = np.cumprod([1, *sizes[:-1]])[:, None]
    digits = np.arange(total) // strides % np.array(sizes)[:, None]
    return np.asarray(digits, dtype=np.int64)


def _payoff(
    p: FloatArray, q: FloatArray, prior: FloatArray, divergence: Divergence
) -> FloatArray:
    dual, conjugate = dual_and_conjugate(p, q, divergence)
    with np.errstate(invalid="ignore"):
        payoff = dual - times(conjugate, prior).sum(axis=1, keepdims=True)
    return settled(payoff, dual)


def _pulled_back(
    found: list[Vertices], choice: IntArray, slopes: FloatArray
) -> FloatArray:
    return np.stack(
        [
            column.pull_back(int(vertex), slopes[:, k])
            for k, (column, vertex) in enumerate(zip(found, choice, strict=True))
        ],
        axis=1,
    )
