"""Large shifts: the worst table in an l_inf ball (f-infinity, Section 3.2).

``phi(p, q) = q f(p / q)`` is convex, so its largest value over a polytope is at a
vertex. Without constraints between cells each cell moves in its own rectangle, and the
worst of four corners wins (`worst_corners`). With a fixed total, the vertices of a box
cut by a plane are enumerated (`worst_vertices`) or bounded by a Lagrangian
(`lagrangian_bound`); with fixed group weights, each column has its own vertices
(`worst_columns`).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from fferm._typing import FloatArray, IntArray
from fferm.divergences import Divergence
from fferm.errors import InvalidParameterError
from fferm.uncertainty import base

__all__ = ["LargeShift"]

# The ends of p and q at the four corners of a cell, 0 lower and 1 upper. The first is
# the paper's; of corners that tie it wins, so that a radius of 0 gives the slopes of
# the divergence itself.
END_P, END_Q = np.array([1, 0, 1, 0]), np.array([0, 1, 1, 0])

# x - radius is right to this share of x. An end this close to its floor is at the
# floor: where that is 0 and f(0) infinite, 1e-17 would stand for infinity.
ROUNDING = 1e-14
MODES = ("corners", "paper", "simplex", "coupled")


@dataclass(frozen=True)
class LargeShift(base.Uncertainty):
    r"""The worst case over tables whose cells move by at most the radius.

    .. math:: \max_{|P'-P| \le \delta, \, |Q'-Q| \le \delta} D_f(P' \| Q')

    **Choose** ``js``, ``hellinger`` **or** ``tv``. They are symmetric, ``f(t) = t
    f(1/t)``, and under ``"corners"`` and ``"simplex"`` keep the fair model as the
    minimiser of the worst case (``"coupled"`` moves it by .005 at radius .02); ``kl``
    and ``chi2`` do not (at radius .02 their minimisers leave gaps of -.014 and -.044),
    and they are infinite where a product reaches 0. ``reverse_kl`` and powers up to 0
    are infinite where a joint reaches 0, that is at every cell within the radius of
    0; continue them linearly (`fferm.divergences.LinearTail`).

    Parameters
    ----------
    radius
        Largest change of a cell, at most 1.
    mode
        - ``"corners"``: cells move on their own, ``max(p - d, 0) <= p' <= min(p + d,
          1)`` and ``max(q - d, floor q) <= q' <= min(q + d, 1)``. Exact for that set,
          which contains tables that do not sum to 1, so an upper bound otherwise.
        - ``"simplex"``: both tables also keep their totals. Exact up to 6 cells;
          beyond, the Lagrangian bound, an upper bound. On 1,000 random tables of 6
          cells, each under five divergences, it is above by 0.02, 0.6 and 2 % on
          average at radii .01, .05 and .1, and by 3, 9 and 11 % at most.
        - ``"coupled"``: only P moves, group weights stay, Q follows. Exact; refused
          where more than 65 536 tables would have to be looked at. ``floor`` is not
          used.
        - ``"paper"``: the one corner ``(min(p + d, 1), max(q - d, 0))``, to reproduce
          the paper. It is wrong at every cell with ``p < q`` and may fall *below* D:
          at [[.40, .05], [.20, .35]] and radius .01 it gives .0766 for hellinger
          (D = .0842), .0758 for js (.0828) and .1498 for kl (.1555). ``floor`` is not
          used.
    floor
        Least share of itself that a product may shrink to: products are often smaller
        than the radius, and kl or chi2 infinite at 0. From 0 (no floor) to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fferm.divergences import get
    >>> p = np.array([[0.4, 0.05], [0.2, 0.35]])
    >>> q = p.sum(axis=1, keepdims=True) * p.sum(axis=0)
    >>> value, by_p, by_q = LargeShift(0.01).penalty(p, q, get("hellinger"))
    >>> round(value, 6)
    0.114411
    """

    name: ClassVar[str] = "large_shift"

    radius: float
    mode: Literal["corners", "paper", "simplex", "coupled"] = "corners"
    floor: float = 0.1

    def __post_init__(self) -> None:
        self._check_number("radius", base.RADIUS, largest=1)
        self._check_choice("mode", MODES)
        hint = "0.1 lets a product shrink to a tenth of itself."
        self._check_number("floor", hint, largest=1)

    @property
    def reach(self) -> float:
        """The radius."""
        return float(self.radius)

    @property
    def is_coupled(self) -> bool:
        """Whether the mode is ``"coupled"``."""
        return self.mode == "coupled"

    def penalty(
        self, p: FloatArray, q: FloatArray, divergence: Divergence
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the worst case of the mode, and its slopes by both tables."""
        self._check_coupling(False)
        live = base.live_cells(p, q)
        p, q = p[live], q[live]
        floor = 0.0 if self.mode == "paper" else self.floor
        intervals = interval(p, self.radius), interval(q, self.radius, floor)
        if self.mode == "simplex":
            solve = worst_vertices if p.size <= MAX_EXACT_CELLS else lagrangian_bound
            value, by_p, by_q = solve(p, q, intervals, divergence)
        else:
            n_corners = 1 if self.mode == "paper" else 4
            value, by_p, by_q = worst_corners(intervals, divergence, n_corners)
        return value, base.spread(by_p, live), base.spread(by_q, live)

    def coupled_penalty(
        self, p: FloatArray, prior: FloatArray, divergence: Divergence
    ) -> tuple[float, FloatArray]:
        """Return the worst case at constant group weights, and its payoff."""
        self._check_coupling(True)
        return worst_columns(p, prior, self.radius, divergence)


class Interval(NamedTuple):
    """Where the cells of one table may move, and how the ends follow their cell.

    Parameters
    ----------
    ends
        (2, cells) lower and upper ends.
    rates
        (2, cells) derivative of an end by its cell: 1, or 0 where it is clipped.
    """

    ends: FloatArray
    rates: FloatArray


Intervals = tuple[Interval, Interval]


def interval(centre: FloatArray, radius: float, floor: float = 0.0) -> Interval:
    """Return ``[max(x - radius, floor x), min(x + radius, 1)]`` by cell."""
    low, high = centre - radius, centre + radius
    is_free = low > (floor + ROUNDING) * centre
    low = np.where(is_free, low, floor * centre)
    low_rate = np.where(is_free, 1.0, floor)
    high_rate = np.where(high < 1, 1.0, 0.0)
    ends = np.stack([low, np.minimum(high, 1.0)])
    return Interval(ends, np.stack([low_rate, high_rate]))


def worst_corners(
    intervals: Intervals, divergence: Divergence, n_corners: int = 4
) -> tuple[float, FloatArray, FloatArray]:
    """Return the sum over cells of the largest corner, and its slopes.

    By Danskin's theorem the slope is that of the winning corner, through the ends
    that move with their cell.
    """
    joint, product = intervals
    end_p, end_q = END_P[:n_corners], END_Q[:n_corners]
    phi = divergence.perspective(joint.ends[end_p], product.ends[end_q])
    winner, cells = np.argmax(phi, axis=0), np.arange(phi.shape[1])
    at_p, at_q = (end_p[winner], cells), (end_q[winner], cells)
    by_p, by_q = divergence.slopes(joint.ends[at_p], product.ends[at_q])
    by_p = base.times(by_p, joint.rates[at_p])
    by_q = base.times(by_q, product.rates[at_q])
    return float(phi[winner, cells].sum()), by_p, by_q


class Vertices(NamedTuple):
    """Vertices, and how they follow the table they were made around.

    Parameters
    ----------
    points
        (vertices x cells) tables of the same total.
    rates
        (vertices x cells) derivative of a coordinate by its cell; 1 where free.
    free
        (vertices,) the free coordinate.
    """

    points: FloatArray
    rates: FloatArray
    free: IntArray

    def pull_back(self, vertex: int, slopes: FloatArray) -> FloatArray:
        """Return slopes by the table, from slopes by one vertex.

        What a clipped coordinate does not follow goes to the free one, which keeps
        the total.
        """
        rates = self.rates[vertex]
        rest = base.times(1 - rates, slopes[self.free[vertex]])
        with np.errstate(invalid="ignore"):
            pulled = base.times(rates, slopes) + rest
        return np.where(np.isnan(pulled), 0.0, pulled)


def vertices(cell: Interval, total: float) -> Vertices:
    """Return the vertices of the box of intervals at a total, without repeats."""
    is_high, free = _patterns(cell.ends.shape[1])
    points = np.where(is_high, cell.ends[1], cell.ends[0])
    rates = np.where(is_high, cell.rates[1], cell.rates[0])
    each = np.arange(free.size)
    points[each, free], rates[each, free] = 0.0, 1.0
    low, high = cell.ends[:, free]
    rest = total - points.sum(axis=1)
    is_inside = (rest >= low - ROUNDING) & (rest <= high + ROUNDING)
    rest = np.where(rest <= low + ROUNDING, low, rest)
    points[each, free] = np.where(rest >= high - ROUNDING, high, rest)
    kept = np.flatnonzero(is_inside)
    # One vertex appears once for every coordinate that may count as the free one.
    _, first = np.unique(points[kept].round(13), axis=0, return_index=True)
    kept = kept[first]
    return Vertices(points[kept], rates[kept], free[kept])


@lru_cache(maxsize=16)
def _patterns(n_cells: int) -> tuple[NDArray[np.bool_], IntArray]:
    """Return which coordinates are at their upper end, and the free coordinate."""
    codes = np.arange(2 ** (n_cells - 1))
    others = (codes[:, None] >> np.arange(n_cells - 1)) & 1 == 1
    parts = [np.insert(others, free, False, axis=1) for free in range(n_cells)]
    return np.concatenate(parts), np.repeat(np.arange(n_cells), codes.size)


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
    if p.shape[0] * 2 ** (p.shape[0] - 1) > MAX_TABLES:
        raise InvalidParameterError(
            "LargeShift(mode='coupled') can enumerate tables of at most 13 classes; "
            f"got {p.shape[0]}. Merge classes, or use mode='corners'."
        )
    columns = np.flatnonzero((p.sum(axis=0) > 0) | (prior > 0))
    ends = [vertices(interval(p[:, k], radius), float(p[:, k].sum())) for k in columns]
    sizes = [column.free.size for column in ends]
    total = int(np.prod(sizes, dtype=object))
    if total > MAX_TABLES:
        raise InvalidParameterError(
            f"LargeShift(mode='coupled') can look at {MAX_TABLES} tables at most, 16 "
            f"groups of two classes; got {total}. Merge groups, or use mode='corners'."
        )
    # All choices of one vertex a column, (columns x tables).
    strides = np.cumprod([1, *sizes[:-1]])[:, None]
    choices = np.arange(total) // strides % np.array(sizes)[:, None]
    chosen = zip(ends, choices, strict=True)
    # Their shape is (tables, m, columns).
    tables = np.stack([column.points[choice] for column, choice in chosen], axis=2)
    weights = prior[columns]
    products = tables.sum(axis=2, keepdims=True) * weights
    values = divergence.perspective(tables, products).sum(axis=(1, 2))
    best = int(np.argmax(values))
    dual, conjugate = base.dual_and_conjugate(tables[best], products[best], divergence)
    with np.errstate(invalid="ignore"):
        slopes = dual - base.times(conjugate, weights).sum(axis=1, keepdims=True)
    slopes, payoff = base.settled(slopes, dual), np.zeros_like(p)
    for n, (k, column) in enumerate(zip(columns, ends, strict=True)):
        payoff[:, k] = column.pull_back(int(choices[n, best]), slopes[:, n])
    return float(values[best]), payoff


# Six cells have at most 192 vertices, so 37 000 pairs; eight would have a million.
MAX_EXACT_CELLS = 6


def worst_vertices(
    p: FloatArray, q: FloatArray, intervals: Intervals, divergence: Divergence
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
    return (float(values[a, b]), joint.pull_back(a, by_p), product.pull_back(b, by_q))


def lagrangian_bound(
    p: FloatArray, q: FloatArray, intervals: Intervals, divergence: Divergence
) -> tuple[float, FloatArray, FloatArray]:
    r"""Return an upper bound of the worst case for any number of cells.

    .. math:: \min_{\mu, \nu} \sum_i \max_c \big[ \phi_{ic} - \mu (p_{ic} - p_i)
              - \nu (q_{ic} - q_i) \big]

    over cells i and their corners c. Any two prices bound the worst case from above;
    a linear program finds the best, and its multipliers weigh the corners in the
    slopes (envelope theorem). With prices of 0 this is the sum of worst corners.
    """
    joint, product = intervals
    ends_p, ends_q = joint.ends[END_P], product.ends[END_Q]
    phi = divergence.perspective(ends_p, ends_q)  # (4, cells)
    step_p, step_q = ends_p - p, ends_q - q
    size = max(float(np.abs(step_p).max()), float(np.abs(step_q).max()))
    best = None
    if size > 0 and np.isfinite(phi).all():
        best = _best_prices(phi, step_p / size, step_q / size)
    if best is None:
        return worst_corners(intervals, divergence)
    prices, weights = best
    mu, nu = prices / size
    value = float((phi - mu * step_p - nu * step_q).max(axis=0).sum())
    by_p, by_q = divergence.slopes(ends_p, ends_q)
    # The step p_ic - p_i, which costs the price, moves by rate - 1 with its cell.
    by_p = base.times(weights, base.times(joint.rates[END_P], by_p - mu) + mu)
    by_q = base.times(weights, base.times(product.rates[END_Q], by_q - nu) + nu)
    return value, by_p.sum(axis=0), by_q.sum(axis=0)


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
    optimum = scipy.optimize.linprog(
        np.r_[0.0, 0.0, np.ones(n_cells)],
        A_ub=-np.hstack([steps, of_cell]),
        b_ub=-excess.ravel() / scale,
        bounds=(None, None),
        method="highs",
    )
    if optimum.x is None:
        return None
    weights = -np.asarray(optimum.ineqlin.marginals, dtype=np.float64)
    return scale * np.asarray(optimum.x[:2]), weights.reshape(phi.shape)
