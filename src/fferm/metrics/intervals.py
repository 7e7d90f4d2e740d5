r"""Intervals and tests for violations: what the rows at hand can show.

A violation is the largest of many gaps between rates. Its plug-in estimate is biased
upwards, most of all where the truth is 0, so the quantiles of its resampled values
are not a confidence interval. Both intervals here are built the other way round: first
all gaps between groups at once, each with its own limits, then

.. math:: \max_i \text{low}_i \;\le\; \max_i |\text{gap}_i| \;\le\;
          \max_i \text{high}_i,

which holds whenever all limits hold, wherever the truth lies.

`certify` and `refute` test a bound. That a violation is at most a bound says the same
of every pair of groups, in every comparison. So it is shown if it is shown for each of
them, all at the same level and without a correction for their number (an
intersection-union test). That a violation is above a bound is shown by any one pair,
so there the pairs share the level.

Rates are (comparisons x groups) arrays, one per sensitive attribute, NaN where a group
is absent.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.sparse import csr_array, diags_array, hstack, vstack
from scipy.special import betainc, betaincinv, gammaln, ndtr, ndtri

from fferm._typing import FloatArray, IntArray
from fferm.data.rows import Rows, combine
from fferm.data.validate import COUNT, Number, check_params, one_hot
from fferm.errors import InvalidInputError
from fferm.metrics.tabulator import (
    RateTable,
    Tabulator,
    compared,
    distances_of,
    rates_of,
)
from fferm.notions import Measure

Interval: TypeAlias = tuple[float, float]
# From (n_draws, n_cells) totals to the (n_draws, comparisons, groups) rates of each
# attribute.
RatesOf: TypeAlias = Callable[[FloatArray], Sequence[FloatArray]]

# What a number of draws may be, 0 for none, and a confidence level.
DRAWS = Number(low=0, is_whole=True)
LEVEL = Number(high=1.0, open_low=True, open_high=True)
# The confidence of a test.
CONFIDENCE = Number(0.5, 1.0, open_high=True)
UNDEFINED: Interval = (math.nan, math.nan)
# Fair models that are drawn for a noise floor: its mean is then right to one percent.
FLOOR_DRAWS = 20_000
# The part of the level that a test spends on what it leaves out: on pairs that a simple
# bound settles, and on rates far from those observed.
SETTLED, UNLIKELY = 1e-4, 4e-4
# Rates at which an exact test looks for its largest level, and then once more about it.
N_RATES, N_NEAR = 25, 9
# How far an exact test adds up counts, in standard deviations, and what stands for a
# rate of 0 in a logarithm.
REACH, TINY = 7.5, 1e-300
# Rows of the smaller group up to which thresholds have an exact test, and the lower
# half of the rates that it looks at: they lie closer where a rate is nearly 0.
MOST_EXACT = 5000
EDGE_RATES = np.concatenate([[0.0], np.geomspace(1e-5, 0.5, 40)])
# Numbers drawn at a time: bounds the memory of a bootstrap to some tens of megabytes.
DRAWS_AT_A_TIME = 4_000_000


def wilson_interval(rate: float, size: float, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval for a rate.

    Parameters
    ----------
    rate
        The observed rate.
    size
        The number of rows it was observed on; with weights, the effective number
        ``(sum w)^2 / sum w^2``.
    confidence
        The level.

    Returns
    -------
    tuple of float and float
        NaN where there are no rows.

    Examples
    --------
    >>> low, high = wilson_interval(0.1, 50)
    >>> round(low, 4), round(high, 4)
    (0.0435, 0.2136)
    """
    if not 0 <= rate <= 1 and not math.isnan(rate):
        raise InvalidInputError(f"rate must be between 0 and 1, or NaN; got {rate!r}.")
    quantile = two_sided(confidence)
    low, high = wilson_limits(np.array([rate]), np.array([size]), quantile)
    return float(low[0]), float(high[0])


def wilson_limits(
    rate: FloatArray, size: FloatArray, quantile: float
) -> tuple[FloatArray, FloatArray]:
    """Return Wilson's limits at a quantile of the normal law; NaN without rows."""
    n = np.where(size > 0, size, np.nan)
    square = quantile**2 / n
    centre = (rate + square / 2) / (1 + square)
    variance = rate * (1 - rate) + square / 4
    half = quantile / np.sqrt(n) * np.sqrt(variance) / (1 + square)
    # Rounding must not leave an observed rate of 0 or 1 outside of its own interval.
    low, high = np.maximum(centre - half, 0), np.minimum(centre + half, 1)
    return np.minimum(low, rate), np.maximum(high, rate)


def violation_interval(
    rates: Sequence[FloatArray], sizes: Sequence[FloatArray], confidence: float = 0.95
) -> Interval:
    """Return a closed-form interval for the largest gap between groups.

    Each pair of groups gets Newcombe's hybrid score interval for the difference of
    two rates. With one pair and one comparison this is that interval, folded at 0.
    With more, Bonferroni divides the error among them, so the interval is
    conservative: it covers at least as often as it says, and is wider than needed.

    Parameters
    ----------
    rates
        Per attribute, (comparisons x groups) observed rates, NaN where undefined.
    sizes
        The numbers of rows behind them, in the same shapes. With weights, Kish's
        effective numbers; the interval is then an approximation.
    confidence
        The level, for all gaps at once.

    Returns
    -------
    tuple of float and float
        NaN where no two groups can be compared.

    Examples
    --------
    >>> low, high = violation_interval([np.array([[0.5, 0.4]])],
    ...                                [np.array([[200, 100]])])
    >>> round(low, 4), round(high, 4)
    (0.0, 0.2137)
    """
    two_sided(confidence)
    present = [np.sum(~np.isnan(rate), axis=1) for rate in rates]
    counts = [int(np.sum(n * (n - 1) // 2)) for n in present]
    if not any(counts):
        return UNDEFINED
    quantile = two_sided(1 - (1 - confidence) / sum(counts))
    ends = []
    for rate, size, count in zip(rates, sizes, counts, strict=True):
        if count:
            low, high = wilson_limits(rate, size, quantile)
            a, b = np.triu_indices(rate.shape[1], 1)
            gap = rate[:, a] - rate[:, b]
            below = np.hypot(rate[:, a] - low[:, a], high[:, b] - rate[:, b])
            above = np.hypot(high[:, a] - rate[:, a], rate[:, b] - low[:, b])
            # From limits of each signed gap to limits of the largest absolute one.
            low, high = gap - below, gap + above
            nearest = np.fmax.reduce(np.maximum(low, -high), axis=None)
            farthest = np.fmax.reduce(np.maximum(-low, high), axis=None)
            ends.append((max(float(nearest), 0.0), min(float(farthest), 1.0)))
    return max(low for low, _ in ends), max(high for _, high in ends)


def certify(
    rates: Sequence[FloatArray], sizes: Sequence[FloatArray], bound: float
) -> float:
    r"""Return the p-value of "some gap is above the bound": small ones certify it.

    Each ordered pair of groups gets the score test of a difference of two rates, with
    the variance at the most likely rates that are ``bound`` apart (Farrington and
    Manning; Miettinen and Nurminen). Its p-value is exact: the largest chance of a
    statistic that small, over all rates that differ by the bound and that the larger
    group does not contradict (Berger and Boos). The largest p-value counts, so the
    level holds for any number of groups, comparisons and rows.

    Parameters
    ----------
    rates, sizes
        As in `violation_interval`. With weights, sizes are effective numbers, rounded
        down, and the test is an approximation.
    bound
        The largest violation allowed.

    Returns
    -------
    float
        1 where no two groups can be compared. If a gap is above the bound, the value
        is that of the normal law, above one half.

    Examples
    --------
    >>> rates, sizes = [np.array([[0.31, 0.30]])], [np.array([[3000, 2000]])]
    >>> certify(rates, sizes, 0.05) < 0.05 < certify(rates, sizes, 0.03)
    True
    """
    check_params({"bound": bound}, {"bound": Number()})
    counts, n_rows = _ordered_pairs(rates, sizes, is_cautious=True)
    if counts.shape[1] == 0:
        return 1.0
    if bound >= 1:  # no gap is larger
        return 0.0
    z = gap_statistic(counts, n_rows, bound)
    if np.max(z) > 0:
        return float(ndtr(np.max(z)))
    # Hoeffding's inequality settles pairs that are far from the bound.
    distance = bound - (counts[0] / n_rows[0] - counts[1] / n_rows[1])
    chance = np.exp(-2 * distance**2 / (1 / n_rows).sum(axis=0))
    unsettled = np.flatnonzero(chance > SETTLED)
    parts = [_exact(z[i], counts[:, i], n_rows[:, i], bound) for i in unsettled]
    return min(SETTLED + max(parts, default=0.0), 1.0)


def refute(
    rates: Sequence[FloatArray], sizes: Sequence[FloatArray], bound: float
) -> float:
    """Return the p-value of "no gap is above the bound": small ones refute it.

    The tests are those of `certify` the other way round. One pair is enough: the one
    with the largest statistic counts, its p-value times the number of pairs.

    Examples
    --------
    >>> rates, sizes = [np.array([[0.40, 0.30]])], [np.array([[3000, 2000]])]
    >>> refute(rates, sizes, 0.05) < 0.05 < refute(rates, sizes, 0.09)
    True
    """
    check_params({"bound": bound}, {"bound": Number()})
    counts, n_rows = _ordered_pairs(rates, sizes, is_cautious=False)
    if counts.shape[1] == 0 or bound >= 1:
        return 1.0
    z = gap_statistic(counts, n_rows, bound)
    best = int(np.argmax(z))
    p = _exact(z[best], counts[:, best], n_rows[:, best], bound, is_upper=True)
    return float(min(p * z.size, 1.0))


def certify_ratio(
    rates: Sequence[FloatArray], sizes: Sequence[FloatArray], bound: float
) -> float:
    """Return the p-value of "some lowest rate is below 1 - bound of the highest".

    Each ordered pair of groups is tested by how far its lower rate is above ``1 -
    bound`` of the higher one. The p-value is exact: the largest chance of a distance
    that large, over all rates at the bound that the higher rate does not contradict
    (Berger and Boos). The largest p-value counts, as in `certify`.

    Parameters
    ----------
    rates, sizes
        As in `certify`.
    bound
        The largest value of one minus the ratio.

    Examples
    --------
    >>> rates, sizes = [np.array([[0.31, 0.28]])], [np.array([[3000, 2000]])]
    >>> certify_ratio(rates, sizes, 0.2) < 0.05 < certify_ratio(rates, sizes, 0.12)
    True
    """
    check_params({"bound": bound}, {"bound": Number(0, 1)})
    counts, n_rows = _ordered_pairs(rates, sizes, is_cautious=True)
    if counts.shape[1] == 0:
        return 1.0
    pairs = zip(counts.T, n_rows.T, strict=True)
    return min(max(_exact_ratio(*pair, 1 - bound) for pair in pairs), 1.0)


def _exact_ratio(counts: FloatArray, n_rows: FloatArray, ratio: float) -> float:
    # The chance that the second rate is as far above the ratio times the first.
    (high, low), (n_high, n_low) = counts, n_rows
    distance = low / n_low - ratio * high / n_high
    if distance <= 0:
        return 1.0
    begin, end = map(float, exact_limits(high, n_high, UNLIKELY))
    rates = np.linspace(begin, end, N_RATES)
    x = _likely(n_high, rates)
    first = _binomial(n_high, x, rates)
    least = np.clip(np.ceil(n_low * (ratio * x / n_high + distance) - 1e-6), 0, None)
    # The chance of at least so many of the second group.
    inside = np.clip(least, 1, n_low)
    chance = betainc(inside, n_low - inside + 1, ratio * rates[:, None])
    chance = np.where(least > n_low, 0.0, np.where(least < 1, 1.0, chance))
    return float(np.max(np.sum(first * chance, axis=1))) + UNLIKELY


def certify_tables(
    tables: Sequence[RateTable], bound: float, measure: Measure = "difference"
) -> float:
    """Return the p-value of "the violation is above the bound", by any measure.

    Every rate is within a share ``bound`` of the overall rate where the highest rate is
    at most ``1 + bound`` times the lowest, which is what is tested of a deviation.
    """
    compared = compared_of(tables)
    if measure == "difference":
        return certify(*compared, bound)
    return certify_ratio(
        *compared, bound if measure == "ratio" else bound / (1 + bound)
    )


def certify_curves(below: FloatArray, sizes: FloatArray, bound: float) -> float:
    """Return the p-value of "two distribution functions are farther apart somewhere".

    Their distance is the largest gap that any threshold makes, so the test is that of
    `certify` at every threshold. The largest statistic of two groups counts, with its
    p-value at any rates; in large groups that of Hoeffding's inequality.

    Parameters
    ----------
    below
        (n_groups, n_points) share of each group at or below each point.
    sizes
        (n_groups,) numbers of rows; with weights, effective numbers.
    bound
        The largest distance allowed.
    """
    if bound >= 1:
        return 0.0
    worst, n = 0.0, np.maximum(np.floor(sizes + 1e-6), 1.0)
    for a, b in itertools.permutations(range(len(n)), 2):
        pair = n[[a, b]]
        high, low = np.ceil(below[a] * n[a] - 1e-6), np.floor(below[b] * n[b] + 1e-6)
        z = float(gap_statistic(np.stack([high, low]), pair[:, None], bound).max())
        if z > 0:
            return float(ndtr(z))
        if pair.min() > MOST_EXACT:
            distance = bound - float(np.max(below[a] - below[b]))
            p = float(np.exp(-2 * distance**2 / np.sum(1 / pair)))
        else:
            n1, n2 = np.sort(pair)
            rates = np.unique(np.concatenate([EDGE_RATES, 1 - EDGE_RATES])) * (
                1 - bound
            )
            p = _largest_chance(z, rates, n1, n2, bound, False)
        worst = max(worst, p)
    return worst


def certify_means(
    gap: float,
    bound: float,
    sizes: FloatArray,
    variances: FloatArray,
    width: float,
) -> float:
    """Return the p-value of "two means differ by more than the bound".

    Valid for any values in an interval: twice the smaller one of the p-values of
    Hoeffding's inequality and of the empirical Bernstein inequality (Maurer, Pontil).
    The same holds for the largest difference of the means of any function that moves
    no two values apart, which is the Wasserstein distance.

    Parameters
    ----------
    gap
        The difference that was measured.
    bound
        The largest difference allowed.
    sizes, variances
        (2,) numbers of rows, and sample variances of the values.
    width
        How wide the interval of possible values is.

    Examples
    --------
    >>> sizes, variances = np.array([4000.0, 5000.0]), np.array([0.04, 0.05])
    >>> certify_means(0.02, 0.05, sizes, variances, 1.0) < 0.05
    True
    """
    distance = bound - gap
    if distance <= 0 or np.min(sizes) < 2:
        return 1.0
    if width == 0:
        return 0.0
    hoeffding = math.exp(-2 * (distance / width) ** 2 / float(np.sum(1 / sizes)))
    # Both groups err by at most a s + b s^2 together, but with chance 4 exp(-s^2).
    a = float(np.sum(np.sqrt(2 * variances / sizes)))
    b = 7 * width / 3 * float(np.sum(1 / (sizes - 1)))
    s = (math.sqrt(a**2 + 4 * b * distance) - a) / (2 * b)
    return min(2 * min(hoeffding, 4 * math.exp(-(s**2))), 1.0)


def expected_limit(
    rates: Sequence[FloatArray],
    sizes: Sequence[FloatArray],
    share: float,
    confidence: float,
    measure: Measure = "difference",
) -> tuple[float, float]:
    """Return the violation that other rows would certify if they had these rates.

    Parameters
    ----------
    rates, sizes
        As in `violation_interval`.
    share
        The number of other rows, as a share of these.
    confidence
        The level.
    measure
        How rates are compared; all but a difference by one minus their ratio.

    Returns
    -------
    tuple of float and float
        The limit, and the standard error of its difference from what the other rows
        will certify; NaN where no two groups can be compared.
    """
    limit, noise, is_ratio = math.nan, math.nan, measure != "difference"
    for rate, size in zip(rates, sizes, strict=True):
        a, b = np.triu_indices(rate.shape[1], 1)
        n = np.where(size > 0, size, np.nan)
        likely = (rate * n + 1) / (n + 2)
        # Of a rate, or of its logarithm.
        variance = likely * (1 - likely) / n / (likely**2 if is_ratio else 1)
        error = np.sqrt(variance[:, a] + variance[:, b])
        value = np.log(likely) if is_ratio else rate
        upper = np.abs(value[:, a] - value[:, b])
        upper -= ndtri(1 - confidence) * error / math.sqrt(share)
        if not np.all(np.isnan(upper)):
            worst = np.unravel_index(np.nanargmax(upper), upper.shape)
            if not limit >= upper[worst]:
                limit = float(upper[worst])
                noise = float(error[worst]) * math.sqrt(1 / share + 1)
    if is_ratio:
        return 1 - math.exp(-limit), math.exp(-limit) * noise
    return limit, noise


def _ordered_pairs(
    rates: Sequence[FloatArray], sizes: Sequence[FloatArray], is_cautious: bool
) -> tuple[FloatArray, FloatArray]:
    # (2, n_pairs) counts and numbers of rows of every ordered pair of groups. Effective
    # numbers are rounded down, and counts of a cautious test to the larger gap.
    counts, n_rows = [np.zeros((2, 0))], [np.ones((2, 0))]
    for rate, size in zip(rates, sizes, strict=True):
        is_known = ~np.isnan(rate[:, :, None] - rate[:, None])
        row, a, b = np.nonzero(is_known & ~np.eye(rate.shape[1], dtype=bool))
        pair_rate = np.stack([rate[row, a], rate[row, b]])
        n = np.maximum(np.floor(np.stack([size[row, a], size[row, b]]) + 1e-6), 1.0)
        exact = pair_rate * n
        up, down = np.ceil(exact - 1e-6), np.floor(exact + 1e-6)
        high, low = (up, down) if is_cautious else (down, up)
        counts.append(np.stack([high[0], low[1]]))
        n_rows.append(n)
    return np.concatenate(counts, axis=1), np.concatenate(n_rows, axis=1)


def gap_statistic(
    counts: FloatArray, n_rows: FloatArray, bound: float | FloatArray
) -> FloatArray:
    """Return the score statistic of ``rate_1 - rate_2 = bound``.

    Parameters
    ----------
    counts, n_rows
        (2, ...) successes and rows of two groups.
    bound
        The difference under test, at least 0 and below 1.

    Returns
    -------
    FloatArray
        Small where the difference is below the bound; 0 where there is no variance.
    """
    (x1, x2), (n1, n2) = counts, n_rows
    n, x = n1 + n2, x1 + x2
    # The most likely rate of the second group solves a cubic (Miettinen, Nurminen).
    a = ((n1 + 2 * n2) * bound - n - x) / (3 * n)
    b = ((n2 * bound - n - 2 * x2) * bound + x) / n
    c = x2 * bound * (1 - bound) / n
    q = a**3 - a * b / 2 + c / 2
    size = np.sqrt(np.maximum(a**2 - b / 3, 0.0))
    cube = np.where(size == 0, 1.0, size**3)
    angle = (np.pi + np.arccos(np.clip(q / cube, -1.0, 1.0))) / 3
    low = np.clip(2 * size * np.cos(angle) - a, 0.0, 1 - bound)
    high = low + bound
    variance = (high * (1 - high) / n1 + low * (1 - low) / n2) * n / (n - 1)
    return _standardized(x1 / n1 - x2 / n2 - bound, variance)


def _exact(
    z: float,
    counts: FloatArray,
    n_rows: FloatArray,
    bound: float,
    is_upper: bool = False,
) -> float:
    # The largest chance of a statistic of at most z (or at least, if upper) over rates
    # that are the bound apart.
    (x1, x2), (n1, n2) = counts, n_rows
    if n1 > n2:  # the same question of the other outcome, to add up fewer counts
        x1, x2, n1, n2 = n2 - x2, n1 - x1, n2, n1
    # An interval of the rate that misses it with chance UNLIKELY.
    low, high = map(float, exact_limits(x2, n2, UNLIKELY))
    high = min(high, 1 - bound)
    if low >= high:
        return UNLIKELY
    rates = np.linspace(low, high, N_RATES)
    return _largest_chance(z, rates, n1, n2, bound, is_upper) + UNLIKELY


def exact_limits(
    counts: ArrayLike, n_rows: ArrayLike, risk: float
) -> tuple[FloatArray, FloatArray]:
    """Return Clopper and Pearson's limits of rates, which miss with at most a risk."""
    x, n = np.asarray(counts, dtype=np.float64), np.asarray(n_rows, dtype=np.float64)
    # The parameters of a beta law must be positive; where they are not, it is not used.
    low = betaincinv(np.maximum(x, 1), n - x + 1, risk / 2)
    high = betaincinv(x + 1, np.maximum(n - x, 1), 1 - risk / 2)
    return np.where(x > 0, low, 0.0), np.where(x < n, high, 1.0)


def ratio_limits(
    counts: FloatArray, n_rows: FloatArray, quantile: float, *, is_odds: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Return score limits for the ratio of two rates, or of their odds.

    Those values are inside that the score test does not reject, with the variance at
    the most likely rates that have this ratio (Koopman; Miettinen and Nurminen).

    Parameters
    ----------
    counts, n_rows
        (2, ...) successes and rows of two groups.
    quantile
        Of the normal law, see `two_sided`.
    is_odds
        Whether odds are compared.

    Returns
    -------
    tuple of FloatArray and FloatArray
        0 and infinity where the rows bound nothing.

    Examples
    --------
    >>> low, high = ratio_limits(np.array([30.0, 40.0]), np.array([100.0, 100.0]), 1.96)
    >>> round(float(low), 4), round(float(high), 4)
    (0.5089, 1.0968)
    """
    statistic = _odds_statistic if is_odds else _ratio_statistic
    (x1, x2), (n1, n2) = counts, n_rows
    is_low, is_high = (x1 == 0, x2 == 0)
    if is_odds:
        is_low, is_high = is_low | (x2 == n2), is_high | (x1 == n1)
    ends = []
    for level, is_unbounded, limit in (
        (quantile, is_low, 0.0),
        (-quantile, is_high, np.inf),
    ):
        # The statistic falls as the ratio under test grows.
        low, high = np.full(np.shape(x1), -80.0), np.full(np.shape(x1), 80.0)
        for _ in range(56):
            middle = (low + high) / 2
            is_above = statistic(counts, n_rows, np.exp(middle)) > level
            low, high = (
                np.where(is_above, middle, low),
                np.where(is_above, high, middle),
            )
        ends.append(np.where(is_unbounded, limit, np.exp((low + high) / 2)))
    return ends[0], ends[1]


def _ratio_statistic(
    counts: FloatArray, n_rows: FloatArray, ratio: FloatArray
) -> FloatArray:
    # The score statistic of "the first rate is so many times the second".
    (x1, x2), (n1, n2) = counts, n_rows
    n, x = n1 + n2, x1 + x2
    # The most likely second rate solves a quadratic equation.
    b = x1 + n2 + ratio * (x2 + n1)
    root = np.sqrt(np.maximum(b**2 - 4 * ratio * n * x, 0.0))
    second = np.clip(2 * x / (b + root), 0.0, np.minimum(1 / ratio, 1.0))
    first = np.minimum(ratio * second, 1.0)
    variance = first * (1 - first) / n1 + ratio**2 * second * (1 - second) / n2
    return _standardized(x1 / n1 - ratio * x2 / n2, variance * n / (n - 1))


def _odds_statistic(
    counts: FloatArray, n_rows: FloatArray, ratio: FloatArray
) -> FloatArray:
    # The score statistic of "the first odds are so many times the second".
    (x1, x2), (n1, n2) = counts, n_rows
    n, x = n1 + n2, x1 + x2
    a, b = n2 * (ratio - 1), n1 * ratio + n2 - x * (ratio - 1)
    root = np.sqrt(np.maximum(b**2 + 4 * a * x, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        second = np.where(b > 0, 2 * x / (b + root), (root - b) / (2 * a))
        second = np.clip(second, 0.0, 1.0)
        # Together they expect as many successes as there are.
        first = np.clip((x - n2 * second) / n1, 0.0, 1.0)
        information = 1 / (n1 * first * (1 - first)) + 1 / (n2 * second * (1 - second))
    return _standardized(x1 - n1 * first, n / (n - 1) / information)


def _standardized(distance: FloatArray, variance: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        z = distance / np.sqrt(variance)
    return np.asarray(np.where(distance == 0, 0.0, z))


def auc_limits(
    area: float, n_positive: float, n_negative: float, quantile: float
) -> Interval:
    """Return score limits for the area under a ROC curve (Newcombe, method 5).

    Those areas are inside that differ from the observed one by at most a quantile
    times the standard error that they would have. So there is an interval where
    positives and negatives are apart, too.

    Examples
    --------
    >>> [round(limit, 4) for limit in auc_limits(1.0, 10, 12, 1.96)]
    [0.8159, 1.0]
    """
    if not min(n_positive, n_negative) > 0:
        return UNDEFINED
    middle = (n_positive + n_negative) / 2 - 1

    def excess(value: float) -> float:
        spread = (1 - value) / (2 - value) + value / (1 + value)
        variance = value * (1 - value) * (1 + middle * spread)
        return abs(area - value) - quantile * math.sqrt(
            variance / (n_positive * n_negative)
        )

    # At 0 and 1 there is no variance, so the search begins beside the area.
    low = brentq(excess, 0.0, area - 1e-12 * area) if area > 0 else 0.0
    high = brentq(excess, area + 1e-12 * (1 - area), 1.0) if area < 1 else 1.0
    return float(low), float(high)


def _largest_chance(
    z: float, rates: FloatArray, n1: float, n2: float, bound: float, is_upper: bool
) -> float:
    # The largest chance of such a statistic over the rates of the second group, and
    # over more of them about the worst one.
    x1, x2 = _likely(n1, np.minimum(rates + bound, 1.0)), _likely(n2, rates)
    # The statistic falls as the second count grows. From which one is it at most z?
    level = z - 1e-9 if is_upper else z + 1e-9
    sizes = np.array([[n1], [n2]])
    # Its variance is at most that of rates of one half.
    line = n2 * (x1 / n1 - bound)
    reach = n2 * level * math.sqrt((1 / n1 + 1 / n2) / 4 * (n1 + n2) / (n1 + n2 - 1))
    below = np.clip(np.floor(line - max(reach, 0.0)) - 1, x2[0] - 1, x2[-1])
    above = np.clip(np.ceil(line - min(reach, 0.0)) + 1, x2[0], x2[-1] + 1)
    while np.any(above - below > 1):
        middle = np.floor((below + above) / 2)
        is_low = gap_statistic(np.stack([x1, middle]), sizes, bound) <= level
        below, above = np.where(is_low, below, middle), np.where(is_low, middle, above)
    place = np.maximum(above - x2[0], 0).astype(np.int64)

    def chance(low: FloatArray) -> FloatArray:
        first = _binomial(n1, x1, np.minimum(low + bound, 1.0))
        # That of at least each second count.
        from_on = np.zeros((low.size, x2.size + 1))
        from_on[:, :-1] = np.cumsum(_binomial(n2, x2, low)[:, ::-1], axis=1)[:, ::-1]
        part = from_on[:, place]
        return np.asarray(np.sum(first * (1 - part if is_upper else part), axis=1))

    chances = chance(rates)
    i = int(np.argmax(chances))
    near = np.linspace(rates[max(i - 1, 0)], rates[min(i + 1, rates.size - 1)], N_NEAR)
    return float(max(chances[i], chance(near).max()))


def _likely(n: float, rates: FloatArray) -> FloatArray:
    # Counts that some of these rates make likely.
    reach = REACH * (np.sqrt(n * rates * (1 - rates)) + 1)
    start = max(float(np.floor(np.min(n * rates - reach))), 0.0)
    return np.arange(start, min(float(np.ceil(np.max(n * rates + reach))), n) + 1)


def _binomial(n: float, x: FloatArray, rates: FloatArray) -> FloatArray:
    # The (rates, counts) chances.
    log_ways = gammaln(n + 1) - gammaln(x + 1) - gammaln(n - x + 1)
    log_rate, log_rest = np.log(np.maximum([rates, 1 - rates], TINY))
    return np.asarray(
        np.exp(log_ways + np.outer(log_rate, x) + np.outer(log_rest, n - x))
    )


class Floor(NamedTuple):
    """What a perfectly fair model measures by chance.

    Attributes
    ----------
    mean, median
        The violation on average, and the one that it stays below half of the time.
    high
        The violation that it stays below with the probability asked for.
    """

    mean: float
    median: float
    high: float


def floor_of_tables(
    tables: Sequence[RateTable],
    confidence: float = 0.95,
    random_state: int = 0,
    n_draws: int = FLOOR_DRAWS,
    measure: Measure = "difference",
) -> Floor:
    """Return what a perfectly fair model measures on tables like these by chance.

    Every group gets the outcomes of its stratum with the same probabilities, those of
    all groups together, in as many rows as it has (under weights, the effective
    number). Attributes are drawn one by one. NaN where no two groups can be compared.
    """
    rng, worst = np.random.default_rng(random_state), np.full(n_draws, np.nan)
    for table in tables:
        sizes = np.maximum(np.rint(table.size), 1).astype(np.int64)
        for r in np.flatnonzero(table.is_judged):
            mass = table.mass[r]
            common = mass.sum(axis=1) / mass.sum()
            # Draws side by side, which are read fastest.
            drawn, total = np.zeros((*mass.T.shape, n_draws)), mass.sum(axis=0)
            for k in np.flatnonzero(total > 0):
                counts = rng.multinomial(sizes[r, k], common, n_draws)
                drawn[k] = counts.T * (total[k] / sizes[r, k])
            gaps = distances_of(drawn.T, measure)
            if common.size == 2:  # of two outcomes one is enough
                gaps = gaps[:, 1:]
            worst = np.fmax(worst, gaps.max(axis=1))
    median, high = np.quantile(worst, [0.5, confidence])
    return Floor(float(worst.mean()), float(median), float(high))


def corrected_violation(
    rates: Sequence[FloatArray], sizes: Sequence[FloatArray]
) -> float:
    r"""Return the violation without the part that noise adds to it on average.

    Of one comparison it is the root mean square difference of two groups,
    :math:`\sqrt{2 \max(0, \operatorname{var}_k r_k - \operatorname{mean}_k
    r_k (1 - r_k) / n_k)}`, for two groups their gap. The largest comparison counts.

    Parameters
    ----------
    rates, sizes
        As in `violation_interval`.

    Examples
    --------
    >>> rates, sizes = [np.array([[0.5, 0.4]])], [np.array([[200, 100]])]
    >>> round(corrected_violation(rates, sizes), 4)
    0.0795
    """
    largest = math.nan
    for rate, size in zip(rates, sizes, strict=True):
        known = ~np.isnan(rate)
        count = known.sum(axis=1)
        if not np.any(count > 1):
            continue
        r, n = rate[count > 1], np.where(size > 1, size, np.nan)[count > 1]
        # The unbiased variances of rates and of a rate.
        noise = np.nanmean(r * (1 - r) / (n - 1), axis=1)
        spread = np.nanvar(r, axis=1, ddof=1) - noise
        largest = np.fmax(largest, np.sqrt(2 * max(float(np.fmax.reduce(spread)), 0.0)))
    return float(largest)


def rows_needed(
    bound: float,
    rates: ArrayLike,
    shares: ArrayLike,
    confidence: float = 0.95,
    power: float = 0.8,
) -> int:
    """Return how many rows a test of a bound needs to pass a model.

    Parameters
    ----------
    bound
        The largest violation allowed.
    rates
        (n_groups,), or (n_comparisons, n_groups): the true rates of the model.
    shares
        In the same shape, the share of all rows that each rate is measured on.
    confidence
        The level of the test, as in ``max_violation`` with a ``confidence``.
    power
        How probable it shall be that the model passes.

    Returns
    -------
    int
        About so many rows, of all groups together, by the normal law.

    Examples
    --------
    >>> rows_needed(0.05, [0.25, 0.25], [0.6, 0.4])
    2672
    """
    r, share = (np.atleast_2d(np.asarray(v, dtype=np.float64)) for v in (rates, shares))
    levels = {"bound": bound, "confidence": confidence, "power": power}
    check_params(levels, dict.fromkeys(levels, LEVEL))
    if r.shape != share.shape or r.shape[1] < 2 or not np.all(share > 0):
        raise InvalidInputError(
            "rates and shares must have the same shape, at least two groups, and "
            f"positive shares; got {r.shape}, {share.shape} and {share.min():g}."
        )
    a, b = np.nonzero(~np.eye(r.shape[1], dtype=bool))
    distance = bound - (r[:, a] - r[:, b])
    if not np.all((r >= 0) & (r <= 1)) or np.any(distance < 1e-9):  # of rounding
        raise InvalidInputError(
            f"rates must be between 0 and 1 and less than bound={bound:g} apart, "
            f"because no number of rows certifies others; got {r.tolist()}."
        )

    def variance(high: FloatArray, low: FloatArray) -> FloatArray:
        return np.asarray(
            high * (1 - high) / share[:, a] + low * (1 - low) / share[:, b]
        )

    # The statistic has the variance of rates that are the bound apart.
    high, low = r[:, a] + distance / 2, r[:, b] - distance / 2
    tested = np.sqrt(variance(np.clip(high, 0, 1), np.clip(low, 0, 1)))
    true = np.sqrt(np.maximum(variance(r[:, a], r[:, b]), 1e-12))
    least, most = 1.0, 2.0

    def fails(n: float) -> bool:
        z = (-ndtri(1 - confidence) * tested - distance * math.sqrt(n)) / true
        return bool(np.sum(ndtr(z)) > 1 - power)

    while fails(most):
        least, most = most, 2 * most
    while most - least > max(0.5, 1e-12 * most):
        middle = (least + most) / 2
        least, most = (middle, most) if fails(middle) else (least, middle)
    return math.ceil(most)


def bound_in_reach(
    rates: ArrayLike,
    shares: ArrayLike,
    n_rows: float,
    confidence: float = 0.95,
    power: float = 0.8,
) -> float:
    """Return the smallest bound for which `rows_needed` is at most a number of rows.

    1 where none is.

    Examples
    --------
    >>> round(bound_in_reach([0.25, 0.25], [0.6, 0.4], 2672), 3)
    0.05
    """
    gap = float(np.max(np.ptp(np.atleast_2d(np.asarray(rates)), axis=1)))
    low, high = gap, 1.0
    while high - low > 1e-5:
        middle = (low + high) / 2
        needed = rows_needed(middle, rates, shares, confidence, power)
        low, high = (low, middle) if needed <= n_rows else (middle, high)
    return high


def compared_of(
    tables: Sequence[RateTable],
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Return the (comparisons x groups) rates and sizes of each table."""
    rates = [compared(table.rate) for table in tables]
    sizes = [
        compared(np.broadcast_to(table.size[:, None], table.rate.shape))
        for table in tables
    ]
    return rates, sizes


@dataclass(frozen=True)
class Sample:
    """What a bootstrap draws from: rows, or kinds of rows with their numbers.

    Rows that are alike in all that matters (stratum, groups, decision, weight) are
    one kind; drawing how often each kind comes up is exactly drawing rows.

    Attributes
    ----------
    count
        (n_kinds,) number of rows of each kind.
    totals
        (n_kinds, n_cells) what one row of a kind adds to each cell.
    added
        (n_cells,) the weight of a row that is added to each cell before drawing: that
        of one of the rows that the group is worth, ``sum w^2 / sum w``; 0 where the
        group has no rows in the stratum.
    rates
        How cells become rates.
    noise
        (n_kinds, n_cells) each: what single rows of a kind add beyond that, per unit of
        independent normal noise, if the kind's rows were counted together and differ.
    """

    count: IntArray
    totals: csr_array
    added: FloatArray
    rates: RatesOf
    noise: tuple[csr_array, ...] = ()


def bootstrap_sample(tabulator: Tabulator, predicted: NDArray[Any]) -> Sample:
    """Return what to draw from: kinds of rows for decisions, else single rows."""
    rows, comparison = tabulator.rows, tabulator.comparison
    n, n_classes = len(predicted), len(tabulator.labels.classes)
    cells = [cell.by_row(n) for cell in rows.cells]
    first, count = np.arange(n), np.broadcast_to(rows.count, n)
    weight, prob, heavy = rows.weight, predicted, rows.weight
    alike, roots = [weight], np.zeros((n, 0, 0))
    if rows.square is not None:
        # Rows that differ in weight are worth fewer, each as heavy as this.
        heavy = np.divide(rows.square, weight, where=weight > 0, out=weight * 0)
        weight = weight / rows.count
        roots = _roots(rows, weight, predicted, n_classes)
        alike = [weight, *(roots**2).sum(axis=2).T]
    if predicted.ndim == 1:
        codes = [np.unique(each, return_inverse=True)[1] for each in alike]
        code = combine([*codes, predicted, *cells])
        _, first, kind = np.unique(code, return_index=True, return_inverse=True)
        count = np.bincount(kind, count).astype(np.int64)
        prob = one_hot(predicted, n_classes)
    # What a row of each kind adds per class, and the noise of kinds that were counted.
    parts = [weight[first, None] * prob[first], *np.moveaxis(roots[first], 2, 0)]
    blocks: list[list[csr_array]] = [[] for _ in parts]
    shapes = []
    for cell, index in zip(cells, rows.cells, strict=True):
        n_strata, n_groups = index.shape
        shapes.append((n_strata, n_classes, n_groups))
        for part, block in zip(parts, blocks, strict=True):
            row, j = np.nonzero((part != 0) & (cell[first] >= 0)[:, None])
            stratum, group = np.divmod(cell[first][row], n_groups)
            place = row, (stratum * n_classes + j) * n_groups + group
            size = len(part), math.prod(shapes[-1])
            block.append(csr_array((part[row, j], place), shape=size))
    totals, *noise = (csr_array(hstack(block)) for block in blocks)
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]

    def oriented(table: FloatArray) -> list[FloatArray]:
        parts = zip(np.split(table, ends, axis=1), shapes, strict=True)
        return [comparison.tables(part.reshape(-1, *shape)) for part, shape in parts]

    added = []
    sums = np.stack([count, count * heavy[first]]) @ totals  # of w and of w^2
    for mass, square in oriented(sums):
        total, squares = (m.sum(axis=1, keepdims=True) for m in (mass, square))
        one_row = np.broadcast_to(squares / np.where(total > 0, total, 1), mass.shape)
        added.append(comparison.pull_back(one_row).ravel())
    return Sample(
        count,
        totals,
        np.concatenate(added),
        lambda table: [compared(rates_of(each)) for each in oriented(table)],
        tuple(noise),
    )


def _roots(
    rows: Rows, weight: FloatArray, predicted: NDArray[Any], n_classes: int
) -> FloatArray:
    # (n_kinds, classes, up to classes) roots of the variance of what the rows of each
    # kind add, whose moments alone were counted; none where all of them are alike.
    mean = weight[:, None] * (
        one_hot(predicted, n_classes) if predicted.ndim == 1 else predicted
    )
    square = rows.soft_square
    if predicted.ndim == 1:
        square = np.zeros((*mean.shape, n_classes))
        square[np.arange(len(mean)), predicted, predicted] = rows.square
    variance = square / np.reshape(rows.count, (-1, 1, 1))
    variance -= mean[:, :, None] * mean[:, None]
    # Differences of rounded squares are 0 if they are as small as rounding.
    is_rounding = np.abs(variance) <= 1e-12 * weight[:, None, None] ** 2
    level, axis = np.linalg.eigh(np.where(is_rounding, 0.0, variance))
    roots = axis * np.sqrt(np.maximum(level, 0.0))[:, None]
    return np.asarray(roots[:, :, np.any(roots, axis=(0, 1))])


def bootstrap_interval(
    sample: Sample,
    confidence: float = 0.95,
    *,
    n_bootstrap: int = 1000,
    random_state: int | np.random.Generator = 0,
) -> Interval:
    """Return a bootstrap interval for the largest gap between groups.

    Rows are drawn with replacement. For each pair of groups the deviation of the
    drawn gap from the observed one is measured in its standard error; the quantile of
    the largest deviation gives all pairs their limits at once (a max-t interval).
    Before drawing, each group is given one row of each outcome, as Agresti and Caffo
    do: a rate of 0 in a small group would else look certain. Uneven weights make a
    group worth fewer rows, and the added one is as heavy as one of these.

    Measured coverage at 95 %, audits of 1000 rows, 500 draws, true gaps 0, 0.05 and
    0.2: for decisions (2000 audits) 0.954, 0.968, 0.952 with two groups of 70 and
    30 %, and 0.950, 0.991, 0.994 with four of 40 to 10 %; for probabilities (400
    audits) 0.948, 0.950, 0.960 and 0.965, 0.998, 0.995. Plain percentiles of the
    resampled violation, which this is not, covered a gap of 0 never.

    Parameters
    ----------
    sample
        What is drawn.
    confidence
        The level.
    n_bootstrap
        The number of draws.
    random_state
        A seed or a generator.

    Returns
    -------
    tuple of float and float
        NaN where no two groups can be compared.

    Examples
    --------
    >>> totals = csr_array(np.eye(4))  # classes x groups
    >>> def rates(table):
    ...     classes, groups = table.reshape(-1, 2, 2), table.reshape(-1, 2, 2).sum(1)
    ...     return [classes[:, 1:] / groups[:, None]]
    >>> sample = Sample(np.array([70, 40, 30, 60]), totals, np.ones(4), rates)
    >>> low, high = bootstrap_interval(sample)
    >>> 0.1 < low < 0.3 < high < 0.5
    True
    """
    two_sided(confidence)
    check_params({"n_bootstrap": n_bootstrap}, {"n_bootstrap": COUNT})
    observed = sample.rates((sample.count @ sample.totals)[None])
    if not any(np.any(np.sum(~np.isnan(rate), axis=-1) > 1) for rate in observed):
        return UNDEFINED
    cells = np.flatnonzero(sample.added)
    extra = diags_array(sample.added).tocsr()[cells]
    count = np.append(sample.count, np.ones(cells.size, dtype=np.int64))
    totals = csr_array(vstack([sample.totals, extra]))
    blank = csr_array(extra.shape)
    noise = tuple(csr_array(vstack([part, blank])) for part in sample.noise)
    sample = replace(sample, count=count, totals=totals, noise=noise)
    observed = sample.rates((sample.count @ sample.totals)[None])
    gaps, errors, largest = [], [], np.zeros(n_bootstrap)
    drawn = _drawn_rates(sample, n_bootstrap, np.random.default_rng(random_state))
    for (rate,), draws in zip(observed, drawn, strict=True):
        a, b = np.triu_indices(rate.shape[-1], 1)
        gap = rate[:, a] - rate[:, b]
        row, pair = np.nonzero(~np.isnan(gap))  # the pairs that can be compared
        # In blocks, which bound the memory.
        step = max(1, DRAWS_AT_A_TIME // n_bootstrap)
        for start in range(0, row.size, step):
            i, p = row[start : start + step], pair[start : start + step]
            deviation = draws[:, i, a[p]] - draws[:, i, b[p]] - gap[i, p]
            # A draw without any row of a group says nothing of its gaps.
            deviation[np.isnan(deviation)] = 0.0
            error = deviation.std(axis=0)
            scaled = np.abs(deviation) / np.where(error > 0, error, np.inf)
            largest = np.maximum(largest, scaled.max(axis=1))
            gaps.append(gap[i, p])
            errors.append(error)
    half = np.quantile(largest, confidence, method="higher") * np.concatenate(errors)
    gap = np.concatenate(gaps)
    nearest, farthest = np.max(np.abs(gap) - half), np.max(np.abs(gap) + half)
    return max(float(nearest), 0.0), min(float(farthest), 1.0)


def _drawn_rates(
    sample: Sample, n_bootstrap: int, rng: np.random.Generator
) -> list[FloatArray]:
    count, n_rows = sample.count, int(sample.count.sum())
    at_a_time = max(1, DRAWS_AT_A_TIME // count.size)
    chunks = []
    for start in range(0, n_bootstrap, at_a_time):
        n_draws = min(at_a_time, n_bootstrap - start)
        # How often each kind comes up. Both branches draw from the same law; the first
        # is faster for few kinds, the second for many.
        if 4 * count.size < n_rows:
            times = rng.multinomial(n_rows, count / n_rows, n_draws).astype(np.float64)
        else:
            kinds = np.repeat(np.arange(count.size), count)
            times = np.empty((n_draws, count.size))
            for draw in times:
                rows = kinds[rng.integers(n_rows, size=n_rows)]
                draw[:] = np.bincount(rows, minlength=count.size)
        totals = np.asarray(times @ sample.totals)
        for part in sample.noise:
            totals += (np.sqrt(times) * rng.standard_normal(times.shape)) @ part
        chunks.append(sample.rates(totals))
    return [np.concatenate(parts) for parts in zip(*chunks, strict=True)]


@functools.lru_cache
def two_sided(confidence: float) -> float:
    """Return the quantile of a two-sided interval, after checking its level."""
    check_params({"confidence": confidence}, {"confidence": LEVEL})
    return float(-ndtri((1 - confidence) / 2))
