r"""Certificates: what a divergence promises about the violation, and the reverse.

Let ``c`` be the overall rate of a class and ``r_k`` its rate in group ``k``. Merging
all other classes never raises a divergence, so

.. math:: D_f \ge \sum_k \pi_k \, d_f(r_k \| c), \qquad
          d_f(r \| c) \ge \kappa \, (r - c)^2,

and the gap between two groups is at most ``sqrt(D I / kappa)``, where ``I`` adds the
inverses of the two smallest group weights. Total variation is linear instead: the gap
is at most ``D I / 2``. Both hold for any table of two variables: for soft predictions
if D is soft, for decisions if D is that of the decisions, and per stratum.

This file knows divergences and nothing else of the library.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from fferm import divergences
from fferm._typing import FloatArray
from fferm.divergences import Divergence
from fferm.errors import InvalidInputError, InvalidParameterError

# Closer than this, relative to the rate, d_f / (r - c)^2 is integrated from f'':
# the quotient itself loses eps / distance^2 where f is not written stably.
NEAR = 1e-2
# A search shrinks its window tenfold a round: 1e-9 in place, far less in value.
SHRINKING_ROUNDS = 9
# Rounds of the search for the best split of D; secants bound what it leaves out.
SPLIT_ROUNDS = 3
# Halvings of [0, 1]: an inverse is found to 1e-12 and rounded outwards.
HALVINGS = 40


def violation_bound(
    value: float,
    prior: ArrayLike,
    divergence: str | Divergence,
    class_rate: float | None = None,
    *,
    capped: bool = True,
) -> float:
    """Return the largest violation that a divergence and group weights allow.

    Parameters
    ----------
    value
        The divergence D of a (classes x groups) table, as it comes from
        ``Divergence.between``.
    prior
        (n_groups,) group weights of the table; weights 0 are left out.
    divergence
        Name or instance.
    class_rate
        The overall rate of the class in question, where it is known: the bound is
        then the tighter one for this class. None holds for all classes.
    capped
        Whether to say 1 where the formula exceeds it.

    Returns
    -------
    float
        ``sqrt(D I / kappa)``, for total variation ``D I / 2``; and a little more,
        because D is rounded and ``I`` multiplies what rounding hides.

    Examples
    --------
    >>> round(violation_bound(0.02, [0.6, 0.4], "kl"), 4)
    0.2041
    """
    constant, power, hidden, growth = _modulus(prior, divergence, class_rate)
    if not value >= 0:
        raise InvalidInputError(f"value must be non-negative; got {value!r}.")
    if constant == math.inf:
        return 0.0
    # A generator that is flat at 1 bounds nothing.
    bound = (float(value) / constant) ** (1 / power) if constant > 0 else math.inf
    bound = bound * growth + hidden
    return min(bound, 1.0) if capped else bound


def divergence_for(
    violation: float,
    prior: ArrayLike,
    divergence: str | Divergence,
    class_rate: float | None = None,
) -> float:
    """Return the largest divergence that guarantees a violation.

    It is the inverse of `violation_bound`: ``kappa v^2 / I``, for total variation
    ``2 v / I``. Training to this divergence or less on a table certifies that table.

    Parameters
    ----------
    violation
        The violation ``v`` that must not be exceeded, between 0 and 1.
    prior, divergence, class_rate
        As in `violation_bound`.

    Examples
    --------
    >>> round(divergence_for(0.05, [0.6, 0.4], "kl"), 6)
    0.0012
    """
    if not 0 <= violation <= 1:
        raise InvalidParameterError(
            f"violation must be between 0 and 1; got {violation!r}."
        )
    constant, power, hidden, growth = _modulus(prior, divergence, class_rate)
    if constant == math.inf:
        return constant
    return constant * (max(violation - hidden, 0.0) / growth) ** power


def _modulus(
    prior: ArrayLike, divergence: str | Divergence, class_rate: float | None
) -> tuple[float, int, float, float]:
    # The constant and the power of the violation that D is at least, the violation that
    # rounding may hide in D, and the factor by which it may shrink a bound.
    base, scale, is_certain = _untransformed(divergence, class_rate)
    spread = float(np.sum(1 / _smallest_weights(prior)))
    # The sums of a table are rounded, and so all ratios, by u. That changes the root of
    # D by at most sqrt(kappa) u / 2, and total variation itself by u / 2. A class rate
    # near 1 is known to an ulp of 1, which counts in 1 - c.
    rounding = (np.count_nonzero(prior) + 2) * divergences.base.EPS
    growth = 1 + rounding / (1 - (class_rate or 0.0)) if not is_certain else 1.0
    is_linear = isinstance(base, divergences.TotalVariation) and base.smoothing == 0
    if is_linear and not is_certain:
        return scale * 2 / spread, 1, rounding * spread / 4, growth
    kappa = curvature_constant(divergence, class_rate)
    return kappa / spread, 2, rounding * math.sqrt(spread / 4), growth


def curvature_constant(
    divergence: str | Divergence, class_rate: float | None = None
) -> float:
    """Return kappa, the largest number with ``d_f(r || c) >= kappa (r - c)^2``.

    Closed forms where they are known, else the smallest quotient over ``r`` (and over
    ``c``, where no class rate is given), found on grids that shrink about it.

    Parameters
    ----------
    divergence
        Name or instance, a user's own included.
    class_rate
        The rate ``c`` of the class; None takes the worst.

    Examples
    --------
    >>> curvature_constant("chi2"), curvature_constant("kl", class_rate=0.5)
    (4.0, 2.0)
    """
    base, scale, is_certain = _untransformed(divergence, class_rate)
    if is_certain:
        return math.inf
    kappa = _closed_constant(base, class_rate)
    return scale * (_smallest_quotient(base, class_rate) if kappa is None else kappa)


def tight_violation_bound(
    value: float, prior: ArrayLike, divergence: str | Divergence, class_rate: float
) -> float:
    r"""Return a tighter bound for a class of known rate, found numerically.

    .. math:: \max_x \; R_+(x D / \pi_a) - R_-((1 - x) D / \pi_b)

    over both orders of the two smallest weights, where ``R`` inverts ``d_f(. || c)``
    upwards and downwards. For either order the objective is concave in ``x``, so the
    secants of a grid bound what lies between its points: the result is never below the
    maximum. It is never above `violation_bound` either.

    Parameters
    ----------
    value, prior, divergence
        As in `violation_bound`.
    class_rate
        The overall rate ``c`` of the class.

    Examples
    --------
    >>> round(violation_bound(0.2, [0.7, 0.3], "kl", class_rate=0.1), 4)
    0.5889
    >>> round(tight_violation_bound(0.2, [0.7, 0.3], "kl", class_rate=0.1), 4)
    0.5024
    """
    closed = violation_bound(value, prior, divergence, class_rate, capped=False)
    base, scale, is_certain = _untransformed(divergence, class_rate)
    if is_certain or not math.isfinite(closed):
        return min(closed, 1.0)
    constant, power, *_ = _modulus(prior, divergence, class_rate)
    # The budget of either group, in both orders, of a D that is rounded up as in the
    # closed form; the upper one spends a share of it.
    budget = constant * closed**power / scale / _smallest_weights(prior)[:, None]
    window = np.tile(np.linspace(0, 1, 33), (2, 1))
    for _ in range(SPLIT_ROUNDS):
        split = np.stack([budget * window, budget[::-1] * (1 - window)])
        gap = _reach(base, class_rate, split).sum(axis=0)
        best = gap.argmax(axis=1)
        window = np.stack([*map(_neighbourhood, window, best)])
    first = np.clip(best - 1, 0, gap.shape[1] - 3)
    around = np.take_along_axis(gap, first[:, None] + np.arange(3), axis=1)
    return min(closed, 1.0, float(np.max(gap.max(axis=1) + np.ptp(around, axis=1))))


def _reach(divergence: Divergence, c: float, budget: FloatArray) -> FloatArray:
    # How far above c (first) and below it (second) a rate can be while d_f stays
    # within its budget; rounded outwards.
    side = np.array([1.0, -1.0])[:, None, None]
    limit = np.broadcast_to(np.array([1 - c, c])[:, None, None], budget.shape)
    is_free = _binary(divergence, c + side * limit, c) <= budget
    near, far = np.zeros_like(budget), limit
    for _ in range(HALVINGS):
        middle = (near + far) / 2
        is_within = _binary(divergence, c + side * middle, c) <= budget
        near, far = np.where(is_within, middle, near), np.where(is_within, far, middle)
    return np.where(is_free, limit, far)


def _binary(divergence: Divergence, r: FloatArray, c: FloatArray | float) -> FloatArray:
    # d_f(r || c) of two classes; rounding may carry r a hair outside of [0, 1].
    r, c = np.broadcast_arrays(np.clip(r, 0, 1), np.asarray(c, dtype=np.float64))
    cells = divergence.perspective(np.stack([r, 1 - r]), np.stack([c, 1 - c]))
    return np.asarray(cells.sum(axis=0))


def _closed_constant(divergence: Divergence, c: float | None) -> float | None:
    match divergence:
        case divergences.Chi2():
            return 4.0 if c is None else 1 / (c * (1 - c))
        case divergences.KL() if c is not None:
            x = 1 - 2 * c  # ln((1 - c) / c) is 2 artanh(x), exact near c = 1/2
            return 2 * math.atanh(x) / x if x else 2.0
        case divergences.KL() | divergences.ReverseKL() if c is None:
            return 2.0
        case divergences.JensenShannon() | divergences.SquaredHellinger() if c is None:
            return 1.0
        case divergences.Alpha(power=power) if c is None and -1 <= power <= 2:
            return 2.0
    return None


@lru_cache(maxsize=256)
def _smallest_quotient(divergence: Divergence, c: float | None) -> float:
    tail = np.geomspace(1e-6, 4e-3, 16)
    grid = np.concatenate([[0.0], tail, np.linspace(5e-3, 1 - 5e-3, 199)])
    rates = np.concatenate([grid, 1 - tail[::-1], [1.0]])
    classes = rates if c is None else np.array([c])
    for _ in range(SHRINKING_ROUNDS):
        quotient = _quotient(divergence, rates[:, None], classes)
        row, column = np.unravel_index(np.argmin(quotient), quotient.shape)
        smallest = float(quotient[row, column])
        rates = _neighbourhood(rates, int(row))
        if c is None:
            classes = _neighbourhood(classes, int(column))
    return smallest


def _quotient(divergence: Divergence, r: FloatArray, c: FloatArray) -> FloatArray:
    # d_f(r || c) / (r - c)^2, at every pair of (n, 1) and (m,).
    distance = r - c
    is_near = np.abs(distance) < NEAR * np.minimum(c, 1 - c)
    # Near c, Taylor's remainder: the integral of (1 - s) times the curvature of d_f at
    # s of the way from c to r. A kink at r = c makes the quotient infinite there.
    near = np.full(distance.shape, 0.0 if divergence.is_smooth else np.inf)
    nodes, weights = np.polynomial.legendre.leggauss(5)
    with np.errstate(all="ignore"):
        far = _binary(divergence, r, c) / np.where(is_near, 1.0, distance**2)
        for s, weight in zip((1 + nodes) / 2, weights / 2, strict=True):
            if divergence.is_smooth:
                x = s * distance
                above = divergence.f_second(1 + x / c, np) / c
                below = divergence.f_second(1 - x / (1 - c), np) / (1 - c)
                near += weight * (1 - s) * (above + below)
    quotient = np.where(is_near, near, far)
    return np.where(np.isnan(quotient), np.inf, quotient)


def _neighbourhood(grid: FloatArray, best: int) -> FloatArray:
    low, high = grid[max(best - 2, 0)], grid[min(best + 2, grid.size - 1)]
    return np.linspace(low, high, 41)


def _untransformed(
    divergence: str | Divergence, class_rate: float | None
) -> tuple[Divergence, float, bool]:
    # A tilt leaves D as it is and a scale multiplies it. A class that nobody or
    # everybody gets is certain and has no gap.
    if class_rate is not None and not 0 <= class_rate <= 1:
        raise InvalidParameterError(
            f"class_rate must be between 0 and 1, or None; got {class_rate!r}."
        )
    base, scale = Divergence.resolve(divergence), 1.0
    while isinstance(base, divergences.Affine):
        scale *= base.scale
        base = base.base
    return base, scale, class_rate in (0, 1)


def _smallest_weights(prior: ArrayLike) -> FloatArray:
    weights = np.asarray(prior, dtype=np.float64)
    is_valid = weights.ndim == 1 and np.all(np.isfinite(weights) & (weights >= 0))
    if not is_valid or np.sum(weights > 0) < 2:
        raise InvalidInputError(
            "prior must hold one non-negative weight per group, and at least two that "
            f"are positive, because a violation compares groups; got {prior!r}."
        )
    return np.asarray(np.sort(weights[weights > 0] / weights.sum())[:2])
