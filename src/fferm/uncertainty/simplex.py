"""The worst pair of tables whose totals stay what they are."""

import numpy as np
import scipy.optimize

from fferm._typing import FloatArray
from fferm.divergences import Divergence
from fferm.uncertainty.base import times
from fferm.uncertainty.corners import Corners, Interval, worst_corners
from fferm.uncertainty.vertices import vertices

# Six cells have at most 192 vertices, so 37 000 pairs; eight would have a million.
MAX_EXACT_CELLS = 6


def worst_vertices(
    p: FloatArray,
    q: FloatArray,
    intervals: tuple[Interval, Interval],
    divergence: Divergence,
) -> tuple[float, FloatArray, FloatArray]:
    """Return the exact worst case over pairs of vertices, and its slopes.

    D is convex in the pair, so its largest value over the two polytopes is at a pair
    of vertices.
    """
    joint = vertices(intervals[0], float(p.sum()))
    product = vertices(intervals[1], float(q.sum()))
    cells = divergence.perspective(joint.points[:, None], product.points[None])
    values = cells.sum(axis=2)  # (vertices of p, vertices of q)
    a, b = divmod(int(np.argmax(values)), values.shape[1])
    by_p, by_q = divergence.slopes(joint.points[a], product.points[b])
    return (
        float(values[a, b]),
        joint.pull_back(a, by_p),
        product.pull_back(b, by_q),
    )


def lagrangian_bound(
    p: FloatArray,
    q: FloatArray,
    intervals: tuple[Interval, Interval],
    divergence: Divergence,
) -> tuple[float, FloatArray, FloatArray]:
    r"""Return an upper bound of the worst case for any number of cells.

    .. math:: \min_{\mu, \nu} \sum_i \max_c \big[ \phi_{ic} - \mu (p_{ic} - p_i)
              - \nu (q_{ic} - q_i) \big]

    over cells i and their corners c. Any two prices bound the worst case from above;
    a linear program finds the best, and its multipliers weigh the corners in the
    slopes (envelope theorem). With prices of 0 this is the sum of worst corners.
    """
    corners = Corners.of(*intervals)
    phi = divergence.perspective(corners.p, corners.q)  # (4, cells)
    step_p, step_q = corners.p - p, corners.q - q
    size = max(float(np.abs(step_p).max()), float(np.abs(step_q).max()))
    if size == 0 or not np.isfinite(phi).all():
        return worst_corners(corners, divergence)
    best = _best_prices(phi, step_p / size, step_q / size)
    if best is None:
        return worst_corners(corners, divergence)
    prices, weights = best
    mu, nu = prices / size
    value = float((phi - mu * step_p - nu * step_q).max(axis=0).sum())
    by_p, by_q = divergence.slopes(corners.p, corners.q)
    return (
        value,
        _enveloped(weights, corners.p_rate, by_p, mu),
        _enveloped(weights, corners.q_rate, by_q, nu),
    )


def _enveloped(
    weights: FloatArray, rate: FloatArray, slopes: FloatArray, price: float
) -> FloatArray:
    # The step p_ic - p_i, which costs the price, moves by rate - 1 with its cell.
    by_corner = times(weights, times(rate, slopes - price) + price)
    return np.asarray(by_corner.sum(axis=0), dtype=np.float64)


def _best_prices(
    phi: FloatArray, step_p: FloatArray, step_q: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Return the two prices, and the (corners x cells) weights of the corners.

    None where the solver gives up; prices of 0 are then still a bound.
    """
    n_corners, n_cells = phi.shape
    # The solver's tolerances are absolute: differences of phi are brought to size 1.
    excess = phi - phi.min(axis=0)
    scale = float(excess.max()) or 1.0
    of_cell = np.tile(np.eye(n_cells), (n_corners, 1))
    steps = np.stack([step_p.ravel(), step_q.ravel()], axis=1)
    found = scipy.optimize.linprog(
        np.r_[0.0, 0.0, np.ones(n_cells)],
        A_ub=-np.hstack([steps, of_cell]),
        b_ub=-excess.ravel() / scale,
        bounds=(None, None),
        method="highs",
    )
    if found.x is None:
        return None
    weights = -np.asarray(found.ineqlin.marginals, dtype=np.float64)
    return scale * np.asarray(found.x[:2]), weights.reshape(phi.shape)
