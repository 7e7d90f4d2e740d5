"""Tests of a bound keep their level, and intervals of a violation cover it."""

import itertools

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from fferm.metrics import violation_floor
from fferm.metrics.dependence import RegressionTabulator
from fferm.metrics.intervals import (
    bound_in_reach,
    certify,
    certify_ratio,
    corrected_violation,
    floor_of_tables,
    gap_statistic,
    refute,
    rows_needed,
    violation_interval,
)
from fferm.metrics.tabulator import RateTable

LEVEL = 0.05
# True rates and sizes of (strata, groups), the largest gap being the bound.
TABLES = {
    "two small groups": (0.1, [[0.4, 0.3]], [[12, 15]]),
    "rare outcomes": (0.05, [[0.06, 0.01]], [[40, 400]]),
    "rare outcomes, the other way round": (0.05, [[0.01, 0.06]], [[40, 400]]),
    "one tiny group": (0.2, [[0.3, 0.5]], [[10, 2000]]),
    "two large groups": (0.05, [[0.25, 0.20]], [[1500, 700]]),
    "frequent outcomes": (0.05, [[0.99, 0.94]], [[150, 300]]),
    "three groups": (0.1, [[0.3, 0.35, 0.4]], [[60, 30, 200]]),
    "ten groups": (
        0.15,
        [[0.2, *[0.27] * 8, 0.35]],
        [[25, 30, 40, 50, 60, 80, 100, 150, 200, 300]],
    ),
    "two strata": (0.1, [[0.3, 0.2], [0.6, 0.6]], [[80, 50], [40, 30]]),
    "three strata": (
        0.1,
        [[0.3, 0.2, 0.25], [0.6, 0.6, 0.6], [0.05, 0.05, 0.15]],
        [[80, 50, 30], [40, 30, 60], [100, 120, 60]],
    ),
}
# The same for one minus the lowest rate over the highest.
RATIOS = {
    "four fifths of small groups": (0.2, [[0.5, 0.4]], [[40, 60]]),
    "rates near 0": (0.2, [[0.01, 0.008]], [[4000, 3000]]),
    "rates near 0 in small groups": (0.9, [[0.03, 0.003]], [[200, 300]]),
    "one tiny group": (0.5, [[0.6, 0.3]], [[2000, 12]]),
    "the other way round": (0.5, [[0.3, 0.6]], [[2000, 12]]),
    "everybody of one group": (0.2, [[1.0, 0.8]], [[30, 80]]),
    "two large groups": (0.1, [[0.30, 0.27]], [[3000, 2000]]),
    "four groups": (0.4, [[0.5, 0.4, 0.35, 0.3]], [[60, 150, 90, 200]]),
    "two strata": (0.3, [[0.5, 0.35], [0.2, 0.2]], [[120, 90], [80, 70]]),
}


def scaled_ratio(counts, n_rows, bound):
    """Return how far a rate is below its share of another one, in standard errors."""
    (x1, x2), (n1, n2), ratio = counts, n_rows, 1 - bound
    p1, p2 = (x1 + 0.5) / (n1 + 1), (x2 + 0.5) / (n2 + 1)
    variance = p2 * (1 - p2) / n2 + ratio**2 * p1 * (1 - p1) / n1
    return (ratio * x1 / n1 - x2 / n2) / np.sqrt(variance)


def share_below(test, name, n_tables, seed=0):
    """Return how often the p-value of random tables is at most the level."""
    is_ratio = test is certify_ratio
    bound, rates, sizes = (RATIOS if is_ratio else TABLES)[name]
    sizes, rng = np.array(sizes), np.random.default_rng(seed)
    counts = rng.binomial(sizes, rates, (n_tables, *sizes.shape))
    flat = counts.reshape(n_tables, -1)
    distinct, times = np.unique(flat, axis=0, return_counts=True)
    drawn = distinct.reshape(-1, *sizes.shape)
    # Only tables whose largest statistic is near its limit need their exact p-value.
    pairs = list(itertools.permutations(range(sizes.shape[1]), 2))
    a, b = np.array(pairs).T
    z = (scaled_ratio if is_ratio else gap_statistic)(
        np.stack([drawn[..., a], drawn[..., b]]).astype(float),
        np.stack([sizes[:, a], sizes[:, b]])[:, None].astype(float),
        bound,
    ).max(axis=(1, 2))
    # One pair refutes, so all pairs share the level.
    sign, n_tests = (-1, len(pairs) * len(sizes)) if test is refute else (1, 1)
    near = ndtr(sign * z)
    is_below = near < LEVEL / 20 / n_tests
    for i in np.flatnonzero(~is_below & (near < 4 * LEVEL)):
        is_below[i] = test([drawn[i] / sizes], [sizes], bound) <= LEVEL
    return float(times[is_below].sum() / n_tables)


def allowed(n_tables):
    """Return the level and three standard errors."""
    return LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / n_tables)


TESTS = [
    *itertools.product([certify, refute], TABLES),
    *((certify_ratio, name) for name in RATIOS),
]


@pytest.mark.parametrize(("test", "name"), TESTS)
def test_a_test_errs_at_most_as_often_as_it_says(test, name):
    assert share_below(test, name, 2000) <= allowed(2000)


@pytest.mark.slow
@pytest.mark.parametrize(("test", "name"), TESTS)
def test_a_test_errs_at_most_as_often_as_it_says_on_many_tables(test, name):
    assert share_below(test, name, 100_000, seed=1) <= allowed(100_000)


@pytest.mark.parametrize(("n1", "n2"), [(4, 4), (5, 20), (20, 7), (12, 30)])
@pytest.mark.parametrize("bound", [0.05, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("test", [certify, refute, certify_ratio])
def test_the_level_holds_at_every_rate_of_two_small_groups(test, n1, n2, bound):
    # Every outcome of two binomials, at every pair of rates that are the bound apart.
    outcomes = itertools.product(range(n1 + 1), range(n2 + 1))
    sizes = [np.array([[n1, n2]])]
    p = [test([np.array([[x1 / n1, x2 / n2]])], sizes, bound) for x1, x2 in outcomes]
    p = np.reshape(p, (n1 + 1, n2 + 1))
    high = np.linspace(0 if test is certify_ratio else bound, 1, 301)[:, None]
    low = high * (1 - bound) if test is certify_ratio else high - bound
    first = binom.pmf(np.arange(n1 + 1), n1, high)
    second = binom.pmf(np.arange(n2 + 1), n2, low)
    for level in (0.01, LEVEL, 0.2, 0.5):
        errs = np.einsum("ri,ij,rj->r", first, p <= level, second)
        assert errs.max() <= level


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    "n_tables", [2000, pytest.param(10**5, marks=pytest.mark.slow)]
)
def test_the_interval_of_all_gaps_covers_the_violation(name, n_tables):
    bound, rates, sizes = TABLES[name]
    sizes, rng = np.array(sizes), np.random.default_rng(2)
    counts = rng.binomial(sizes, rates, (n_tables, *sizes.shape))
    covered = 0
    for rate in counts / sizes:
        low, high = violation_interval([rate], [sizes])
        covered += low <= bound + 1e-12 and bound <= high + 1e-12
    assert covered / n_tables >= 0.95 - 3 * np.sqrt(0.0475 / n_tables)


def regression_p_values(measure, sizes, bound, n_samples):
    """Return p-values of samples of two groups that are the bound apart."""
    rng, p = np.random.default_rng(3), []
    group = np.repeat([0, 1], sizes)
    parts = ((group, np.arange(group.size)),)
    tabulator = RegressionTabulator(measure, parts)
    for _ in range(n_samples):
        # Of the numbers 0 and 1 every measure is the difference of their shares.
        prediction = (rng.random(group.size) < 0.3 + bound * group).astype(float)
        p.append(tabulator.certify(prediction, bound, (0.0, 1.0)))
    return np.array(p)


@pytest.mark.parametrize("measure", ["kolmogorov_smirnov", "mean_gap", "wasserstein"])
@pytest.mark.parametrize("sizes", [(10, 15), (12, 400), (300, 200)])
@pytest.mark.parametrize(
    "n_samples", [400, pytest.param(10**4, marks=pytest.mark.slow)]
)
def test_distances_of_predictions_keep_the_level(measure, sizes, n_samples):
    p = regression_p_values(measure, sizes, 0.2, n_samples)
    assert np.mean(p <= LEVEL) <= allowed(n_samples)


@pytest.mark.parametrize("measure", ["kolmogorov_smirnov", "mean_gap", "wasserstein"])
def test_distances_of_predictions_that_are_small_are_certified(measure):
    group = np.repeat([0, 1], [6000, 3000])
    prediction = np.random.default_rng(0).random(group.size)
    tabulator = RegressionTabulator(measure, ((group, np.arange(group.size)),))
    assert tabulator.certify(prediction, 0.1, (0.0, 1.0)) <= LEVEL
    assert tabulator.certify(prediction + 0.2 * group, 0.1, (0.0, 1.2)) > 0.5


@pytest.mark.parametrize(
    ("rates", "shares", "bound"),
    [
        ([0.25, 0.25], [0.7, 0.3], 0.1),
        ([0.3, 0.32], [0.5, 0.5], 0.1),
        ([[0.6, 0.6], [0.1, 0.1]], [[0.2, 0.1], [0.4, 0.3]], 0.15),
    ],
)
def test_as_many_rows_as_needed_pass_as_often_as_asked(rates, shares, bound):
    n_rows = rows_needed(bound, rates, shares, confidence=0.9, power=0.8)
    sizes = np.atleast_2d(np.rint(n_rows * np.array(shares))).astype(int)
    rng = np.random.default_rng(4)
    p = [
        certify([rng.binomial(sizes, rates) / sizes], [sizes], bound)
        for _ in range(500)
    ]
    # Pairs add up their risks, so it is at least that often, by 3 standard errors.
    assert 0.8 - 3 * np.sqrt(0.16 / 500) <= np.mean(np.array(p) <= 0.1) <= 0.9
    fewer = bound_in_reach(rates, shares, n_rows / 4, confidence=0.9, power=0.8)
    assert fewer > bound
    found = bound_in_reach(rates, shares, n_rows, confidence=0.9, power=0.8)
    assert found == pytest.approx(bound, abs=1e-3)


@pytest.mark.parametrize("name", TABLES)
def test_the_floor_is_what_fair_models_measure(name):
    _, rates, sizes = TABLES[name]
    sizes = np.array(sizes)
    counts = np.rint(np.array(rates) * sizes)
    mass = np.stack([sizes - counts, counts], axis=1)
    names = [tuple(map(str, range(size))) for size in mass.shape]
    table = RateTable("g", names[2], names[0], names[1], mass, lambda: sizes, 1.0)
    common = mass[:, 1].sum(axis=1) / sizes.sum(axis=1)
    drawn = np.random.default_rng(5).binomial(
        sizes, common[:, None], (100_000, *sizes.shape)
    )
    violations = np.ptp(drawn / sizes, axis=2).max(axis=1)
    floor = floor_of_tables([table], 0.9)
    assert floor.mean == pytest.approx(violations.mean(), rel=0.02)
    assert np.mean(violations < floor.high) <= 0.91
    assert np.mean(violations <= floor.high) >= 0.89
    assert floor.median < floor.mean < floor.high


def test_two_groups_have_the_floor_of_a_normal_gap():
    n, rate = np.array([4000, 1500]), 0.3
    y = np.repeat([1, 0, 1, 0], [1200, 2800, 450, 1050])
    group = np.repeat(["a", "b"], n)
    floor = violation_floor(y, y, sensitive_features=group)
    error = np.sqrt(rate * (1 - rate) * np.sum(1 / n))
    assert floor.mean == pytest.approx(np.sqrt(2 / np.pi) * error, rel=0.02)


def test_the_violation_without_noise_has_the_right_square_on_average():
    rng, rates, sizes = np.random.default_rng(6), [0.30, 0.36], np.array([[300, 150]])
    found = [
        corrected_violation([rng.binomial(sizes, rates) / sizes], [sizes])
        for _ in range(4000)
    ]
    # Cut at 0, its square is a little larger than that of the gap.
    plain = [np.ptp(rng.binomial(sizes, rates) / sizes) for _ in range(4000)]
    true = 0.06**2
    assert abs(np.mean(np.square(found)) - true) < abs(np.mean(np.square(plain)) - true)
