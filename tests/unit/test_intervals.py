import itertools
import math
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.sparse import csr_array
from scipy.special import xlogy
from scipy.stats import binom, binomtest, norm

from fferm.data.validate import encode_labels
from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    MissingGroupWarning,
)
from fferm.metrics.intervals import (
    Sample,
    _largest_chance,
    _roots,
    auc_limits,
    bootstrap_interval,
    bootstrap_sample,
    bound_in_reach,
    certify,
    certify_curves,
    certify_means,
    compared_of,
    corrected_violation,
    exact_limits,
    expected_limit,
    floor_of_tables,
    gap_statistic,
    ratio_limits,
    refute,
    rows_needed,
    violation_interval,
    wilson_interval,
    wilson_limits,
)
from fferm.metrics.tabulator import RateTable, compared, make_tabulator, rates_of
from fferm.notions import get

QUANTILE_95 = 1.959963984540054
QUANTILE_95_ONE_SIDED = 1.6448536269514722


def table_of(mass, square=None):
    """Return a table of (strata, outcomes, groups) weights with names of no weight."""
    mass = np.asarray(mass, dtype=float)
    names = [tuple(map(str, range(size))) for size in mass.shape]
    return RateTable(
        "group",
        names[2],
        names[0],
        names[1],
        mass,
        lambda: (mass if square is None else np.asarray(square)).sum(axis=1),
        float(mass.sum()),
    )


def sample_of(count):
    """Return what to draw from for a (classes x groups) table of counts."""
    count = np.asarray(count)

    def rates(totals):
        return [compared(rates_of(totals.reshape(-1, 1, *count.shape)))]

    added = np.broadcast_to(1.0 * (count.sum(axis=0) > 0), count.shape).ravel()
    return Sample(count.ravel(), csr_array(np.eye(count.size)), added, rates)


@pytest.mark.parametrize(
    ("successes", "size"), [(0, 10), (3, 10), (10, 10), (7, 400), (1, 1)]
)
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_wilsons_interval_agrees_with_scipy(successes, size, confidence):
    theirs = binomtest(successes, size).proportion_ci(confidence, method="wilson")

    ours = wilson_interval(successes / size, size, confidence)

    assert ours == pytest.approx((theirs.low, theirs.high), rel=1e-12, abs=1e-15)


def test_a_rate_without_rows_has_no_interval():
    assert all(map(math.isnan, wilson_interval(math.nan, 0)))


def test_a_rate_outside_of_0_and_1_is_refused():
    with pytest.raises(InvalidInputError, match=r"rate must be between 0 and 1.* 1\.5"):
        wilson_interval(1.5, 10)


# Newcombe (1998), Statistics in Medicine 17, table II, method 10.
@pytest.mark.parametrize(
    ("first", "second", "limits"),
    [
        ((56, 70), (48, 80), (0.0524, 0.3339)),
        ((9, 10), (3, 10), (0.1705, 0.8090)),
        ((10, 10), (0, 20), (0.6791, 1.0)),
    ],
)
def test_two_groups_reproduce_newcombes_published_limits(first, second, limits):
    rates = np.array([[first[0] / first[1], second[0] / second[1]]])
    sizes = np.array([[first[1], second[1]]])

    assert violation_interval([rates], [sizes]) == pytest.approx(limits, abs=5e-5)


def test_an_interval_across_0_is_folded():
    low, high = violation_interval([np.array([[0.5, 0.52]])], [np.array([[90, 90]])])

    assert low == 0
    assert high > 0.1


def test_groups_in_either_order_have_the_same_interval():
    rates, sizes = np.array([[0.2, 0.6]]), np.array([[30, 50]])

    assert violation_interval([rates], [sizes]) == pytest.approx(
        violation_interval([rates[:, ::-1]], [sizes[:, ::-1]])
    )


def test_more_comparisons_widen_the_interval():
    rates, sizes = np.array([[0.2, 0.6]]), np.array([[30, 50]])
    one = violation_interval([rates], [sizes])

    three_groups = violation_interval(
        [np.array([[0.2, 0.6, 0.4]])], [np.array([[30, 50, 10**9]])]
    )
    two_attributes = violation_interval([rates, rates], [sizes, sizes])

    for low, high in (three_groups, two_attributes):
        assert low < one[0]
        assert high > one[1]


def test_a_group_is_not_compared_with_itself():
    rates, sizes = [np.array([[0.5, 0.5]])], [np.array([[10, 10**9]])]

    _, high = violation_interval(rates, sizes)

    assert high == pytest.approx(wilson_interval(0.5, 10)[1] - 0.5, abs=1e-4)


def test_several_pairs_share_the_error_and_no_more():
    rates, sizes = np.array([[0.2, 0.6, 0.4, 0.3]]), np.array([[30, 50, 40, 90]])

    of_pairs = [
        violation_interval([rates[:, pair]], [sizes[:, pair]], 1 - 0.05 / 6)
        for pair in map(list, itertools.combinations(range(4), 2))
    ]

    lows, highs = zip(*of_pairs, strict=True)
    assert violation_interval([rates], [sizes]) == pytest.approx(
        (max(lows), max(highs))
    )


def test_absent_groups_cost_nothing():
    rates, sizes = np.array([[0.2, 0.6]]), np.array([[30, 50]])

    with_absent = violation_interval(
        [np.array([[0.2, math.nan, 0.6], [0.3, math.nan, math.nan]])],
        [np.array([[30, 0, 50], [9, 0, 0]])],
    )

    assert with_absent == pytest.approx(violation_interval([rates], [sizes]))


def test_one_group_has_no_interval():
    low, high = violation_interval([np.array([[0.2, math.nan]])], [np.array([[30, 0]])])

    assert math.isnan(low)
    assert math.isnan(high)


@pytest.mark.parametrize("confidence", [0, 1, -0.1, 95])
def test_a_level_that_is_none_is_refused(confidence):
    with pytest.raises(InvalidParameterError, match="confidence must be above 0"):
        violation_interval([np.array([[0.5, 0.5]])], [np.array([[9, 9]])], confidence)
    with pytest.raises(InvalidParameterError, match="confidence must be above 0"):
        bootstrap_interval(sample_of([[5, 5], [5, 5]]), confidence)


def test_limits_hold_the_observed_rate_at_the_ends():
    low, high = wilson_limits(np.array([0.0, 1.0]), np.array([7, 7]), QUANTILE_95)

    assert low[0] == 0
    assert high[1] == 1


def test_the_effective_size_under_weights_is_kishs():
    weight = np.array([1.0, 1.0, 2.0, 4.0])
    table = table_of(
        [[[weight[:2].sum()], [weight[2:].sum()]]],
        [[[np.sum(weight[:2] ** 2)], [np.sum(weight[2:] ** 2)]]],
    )

    assert table.size[0, 0] == pytest.approx(weight.sum() ** 2 / np.sum(weight**2))


def test_rates_of_an_absent_group_are_undefined():
    table = table_of([[[2, 0], [6, 0]]])

    assert table.rate[0, :, 0].tolist() == [0.25, 0.75]
    assert np.isnan(table.rate[0, :, 1]).all()
    assert table.is_judged.tolist() == [False]


def test_of_two_outcomes_one_is_compared_and_of_three_all():
    assert compared(np.zeros((4, 2, 5))).shape == (4, 5)
    assert compared(np.zeros((7, 4, 3, 5))).shape == (7, 12, 5)


@pytest.mark.parametrize(
    "count",
    [
        [[6000, 3000], [4000, 4000]],
        [[6000, 3000, 2000, 5000], [4000, 4000, 3000, 2000]],
    ],
    ids=["two groups", "four groups"],
)
def test_the_bootstrap_agrees_with_the_closed_form_on_many_rows(count):
    count = np.array(count)
    size = count.sum(axis=0)

    drawn = bootstrap_interval(sample_of(count), n_bootstrap=4000)

    closed = violation_interval([(count[1] / size)[None]], [size[None]])
    # The quantile of 4000 draws is known to about 0.03 standard errors.
    assert drawn == pytest.approx(closed, abs=0.1 * (closed[1] - closed[0]))


def test_rows_and_kinds_of_rows_are_drawn_from_the_same_law():
    count = np.array([[60, 30], [40, 40]])
    kinds = sample_of(count)
    code = np.repeat(np.arange(4), count.ravel())
    rows = Sample(
        np.ones(code.size, dtype=np.int64),
        csr_array(np.eye(4)[code]),
        kinds.added,
        kinds.rates,
    )

    of_kinds = bootstrap_interval(kinds, n_bootstrap=4000)
    of_rows = bootstrap_interval(rows, n_bootstrap=4000)

    assert of_rows == pytest.approx(of_kinds, abs=0.1 * (of_kinds[1] - of_kinds[0]))


def test_the_same_seed_draws_the_same_interval_and_another_a_different_one():
    sample = sample_of([[60, 30], [40, 40]])

    first, again = (bootstrap_interval(sample, random_state=7) for _ in range(2))

    assert first == again
    assert first != bootstrap_interval(sample, random_state=8)
    assert first == bootstrap_interval(sample, random_state=np.random.default_rng(7))


def test_draws_in_chunks_are_draws_all_the_same(monkeypatch):
    sample = sample_of([[60, 30], [40, 40]])
    at_once = bootstrap_interval(sample, n_bootstrap=50)

    monkeypatch.setattr("fferm.metrics.intervals.DRAWS_AT_A_TIME", 17)

    assert bootstrap_interval(sample, n_bootstrap=50) == pytest.approx(at_once)


def test_the_unit_of_the_weights_of_a_group_changes_nothing():
    # Its rates do not depend on it, so neither do gaps.
    rng = np.random.default_rng(0)
    group, prob = np.arange(60) % 3, rng.random(60)
    weight, labels = rng.uniform(1, 3, 60), encode_labels(None, 60, [0, 1])

    def interval(weight):
        rows = group, "intersection", weight
        tabulator = make_tabulator(labels, get("demographic_parity"), *rows)
        sample = bootstrap_sample(tabulator, np.stack([1 - prob, prob], axis=1))
        return bootstrap_interval(sample)

    unit = np.array([1.0, 1e-3, 0.1])[group]
    assert interval(weight * unit) == pytest.approx(interval(weight))


def test_a_small_group_with_a_rate_of_0_is_not_certain():
    _, high = bootstrap_interval(sample_of([[20, 5], [0, 0]]))

    assert high > 0.2


def test_no_limit_exceeds_a_gap_of_1_or_falls_below_0():
    _, high = bootstrap_interval(sample_of([[9, 0], [0, 9]]))
    low, _ = bootstrap_interval(sample_of([[50, 50], [50, 50]]))

    assert high == 1.0
    assert low == 0.0


def test_the_bootstrap_of_one_group_is_undefined():
    assert all(map(math.isnan, bootstrap_interval(sample_of([[20, 0], [5, 0]]))))


def test_the_bootstrap_leaves_an_absent_group_out():
    with_absent = bootstrap_interval(sample_of([[60, 0, 30], [40, 0, 40]]))

    # The draws differ, for the table has more cells: the law does not.
    assert with_absent == pytest.approx(
        bootstrap_interval(sample_of([[60, 30], [40, 40]])), abs=0.03
    )


@pytest.mark.parametrize("n_bootstrap", [0, -1, 1.5, True, "9"])
def test_a_number_of_draws_that_is_none_is_refused(n_bootstrap):
    message = f"n_bootstrap must be an integer of at least 1; got {n_bootstrap!r}"
    with pytest.raises(InvalidParameterError, match=re.escape(message)):
        bootstrap_interval(sample_of([[5, 5], [5, 5]]), n_bootstrap=n_bootstrap)


def test_the_level_is_95_percent_where_none_is_given():
    table = table_of([[[30, 10], [20, 40]]])
    compared = compared_of([table])
    assert violation_interval(*compared) == violation_interval(*compared, 0.95)
    assert wilson_interval(0.3, 50) == wilson_interval(0.3, 50, 0.95)
    rates, sizes = [np.array([[0.2, 0.6]])], [np.array([[30, 50]])]
    assert violation_interval(rates, sizes) == violation_interval(rates, sizes, 0.95)


def test_a_bootstrap_takes_a_thousand_draws_of_seed_0_where_nothing_is_said():
    sample = sample_of([[60, 30], [40, 40]])
    said = bootstrap_interval(sample, 0.95, n_bootstrap=1000, random_state=0)
    assert bootstrap_interval(sample) == said


# Tests of a bound


def likely_rates(counts, n_rows, bound):
    """Return the most likely rates that are a bound apart, found numerically."""

    def surprise(low):
        rates = np.array([low + bound, low])
        logs = xlogy(counts, rates) + xlogy(n_rows - counts, 1 - rates)
        return -logs.sum()

    found = minimize_scalar(
        surprise, bounds=(0, 1 - bound), method="bounded", options={"xatol": 1e-12}
    )
    return np.array([found.x + bound, found.x])


@pytest.mark.parametrize("bound", [0.0, 0.05, 0.3])
@pytest.mark.parametrize(
    ("counts", "n_rows"),
    [([30, 20], [100, 90]), ([3, 9], [40, 25]), ([61, 10], [70, 300])],
)
def test_the_statistic_has_the_variance_of_the_most_likely_rates(counts, n_rows, bound):
    counts, n_rows = np.array(counts, float), np.array(n_rows, float)
    rates, n = likely_rates(counts, n_rows, bound), n_rows.sum()
    variance = np.sum(rates * (1 - rates) / n_rows) * n / (n - 1)
    gap = counts[0] / n_rows[0] - counts[1] / n_rows[1]
    z = gap_statistic(counts[:, None], n_rows[:, None], bound)
    assert z == pytest.approx([(gap - bound) / np.sqrt(variance)], rel=1e-6)


@pytest.mark.parametrize("is_upper", [False, True])
@pytest.mark.parametrize(("n1", "n2", "bound"), [(3, 3, 0.5), (4, 9, 0.2), (9, 4, 0)])
def test_a_chance_is_that_of_all_outcomes_as_extreme_as_one(n1, n2, bound, is_upper):
    x = np.stack(np.meshgrid(np.arange(n1 + 1), np.arange(n2 + 1), indexing="ij"))
    sizes = np.array([n1, n2], float)[:, None, None]
    z, rates = gap_statistic(x.astype(float), sizes, bound), np.array([0.0, 0.3, 0.5])
    low = rates[:, None, None]
    first, second = binom.pmf(x[0], n1, low + bound), binom.pmf(x[1], n2, low)
    for one in np.unique(z):
        is_extreme = z >= one - 1e-9 if is_upper else z <= one + 1e-9
        expected = np.sum(first * second * is_extreme, axis=(1, 2))
        found = [
            _largest_chance(one, rates[[i]], n1, n2, bound, is_upper)
            for i in range(rates.size)
        ]
        np.testing.assert_allclose(found, expected, atol=1e-12)
        largest = _largest_chance(one, rates, n1, n2, bound, is_upper)
        assert largest >= expected.max() - 1e-12


@pytest.mark.parametrize(("n1", "n2"), [(12, 9), (9, 12), (10, 10)])
def test_a_p_value_is_the_largest_chance_of_a_statistic_that_small(n1, n2):
    bound, x1, x2 = 0.5, 4, 3
    x = np.stack(np.meshgrid(np.arange(n1 + 1), np.arange(n2 + 1), indexing="ij"))
    sizes = np.array([n1, n2], float)[:, None, None]
    z = gap_statistic(x.astype(float), sizes, bound)
    # Rates that the larger group contradicts are left out, and their chance added.
    x_most, n_most, shift = (x1, n1, bound) if n1 > n2 else (x2, n2, 0.0)
    ends = binomtest(x_most, n_most).proportion_ci(1 - 4e-4, "exact")
    rates = np.linspace(*np.clip(np.array(ends) - shift, 0, 1 - bound), 400)
    chances = [
        np.outer(binom.pmf(range(n1 + 1), n1, p + bound), binom.pmf(x[1, 0], n2, p))
        for p in rates
    ]
    largest = max(chance[z <= z[x1, x2] + 1e-9].sum() for chance in chances)
    rate, size = [np.array([[x1 / n1, x2 / n2]])], [np.array([[n1, n2]])]
    assert largest <= certify(rate, size, bound) <= largest + 1e-3
    # Sizes that weights make fractions are rounded down, and change nothing here.
    assert certify(rate, [size[0] + 1e-7], bound) == certify(rate, size, bound)


def test_no_gap_is_above_1_and_none_needs_rows():
    rates, sizes = [np.array([[1.0, 0.0]])], [np.array([[5, 5]])]
    assert certify(rates, sizes, 1.0) == 0
    assert refute(rates, sizes, 1.0) == 1
    assert (
        certify([np.array([[0.0, 0.0, np.nan]])], [np.array([[9, 9, 0]])], 0.9) < 0.01
    )


def test_means_are_tested_by_two_inequalities():
    gap, bound, width = 0.02, 0.07, 2.0
    sizes, variances = np.array([4000.0, 900.0]), np.array([0.5, 0.2])
    hoeffding = np.exp(-2 * ((bound - gap) / width) ** 2 / np.sum(1 / sizes))
    p = certify_means(gap, bound, sizes, variances, width)
    assert p == pytest.approx(2 * hoeffding)
    # Values that vary little: how far both groups together err with chance 4 exp(-s^2).
    sharp = np.array([1e-4, 2e-4])
    s = brentq(
        lambda s: (
            np.sum(s * np.sqrt(2 * sharp / sizes))
            + np.sum(7 * width * s**2 / 3 / (sizes - 1))
            - (bound - gap)
        ),
        0,
        100,
    )
    p = certify_means(gap, bound, sizes, sharp, width)
    assert p == pytest.approx(8 * np.exp(-(s**2)))
    assert p < hoeffding
    few = np.array([40.0, 9.0])
    wide = np.exp(-2 * (0.9 / width) ** 2 / np.sum(1 / few))
    found = certify_means(0.0, 0.9, few, np.array([0.9, 0.9]), width)
    assert found == pytest.approx(2 * wide)


def test_what_other_rows_will_certify_is_the_largest_limit_of_a_pair():
    rates, sizes = np.array([[0.3, 0.2, 0.6]]), np.array([[50.0, 4000.0, 400.0]])
    likely = (rates * sizes + 1) / (sizes + 2)
    variance = (likely * (1 - likely) / sizes)[0]
    pairs = {(0, 1): 0.1, (0, 2): 0.3, (1, 2): 0.4}
    limits = {
        pair: gap + QUANTILE_95_ONE_SIDED * np.sqrt(sum(variance[list(pair)]) / 0.25)
        for pair, gap in pairs.items()
    }
    worst = max(limits, key=limits.get)
    limit, noise = expected_limit([rates], [sizes], 0.25, 0.95)
    assert limit == pytest.approx(limits[worst])
    assert noise == pytest.approx(np.sqrt(sum(variance[list(worst)]) * 5))
    # The worst of several attributes counts, whichever comes first.
    other = np.array([[0.5, 0.5]]), np.array([[900.0, 900.0]])
    for order in (1, -1):
        both = zip(*[(rates, sizes), other][::order], strict=True)
        assert expected_limit(*both, 0.25, 0.95) == (limit, noise)


def test_rates_that_no_rows_certify_are_refused():
    with pytest.raises(InvalidInputError, match=r"less than bound=0\.1 apart"):
        rows_needed(0.1, [0.2, 0.3], [0.5, 0.5])
    with pytest.raises(InvalidInputError, match="rates must be between 0 and 1"):
        rows_needed(0.1, [1.05, 1.0], [0.5, 0.5])
    assert rows_needed(0.1, [0.2, 0.29], [0.5, 0.5]) > 10_000
    assert rows_needed(0.1, [0.2, 0.3 - 1e-8], [0.5, 0.5]) > 1e15


@pytest.mark.parametrize(("n1", "n2"), [(12, 9), (9, 12)])
def test_a_bound_is_refuted_by_the_chance_of_a_statistic_that_large(n1, n2):
    bound, x1, x2 = 0.1, n1 - 1, 1
    x = np.stack(np.meshgrid(np.arange(n1 + 1), np.arange(n2 + 1), indexing="ij"))
    sizes = np.array([n1, n2], float)[:, None, None]
    z = gap_statistic(x.astype(float), sizes, bound)
    chances = [
        np.outer(binom.pmf(range(n1 + 1), n1, p + bound), binom.pmf(x[1, 0], n2, p))
        for p in np.linspace(0, 1 - bound, 400)
    ]
    largest = max(chance[z >= z[x1, x2] - 1e-9].sum() for chance in chances)
    p = refute([np.array([[x1 / n1, x2 / n2]])], [np.array([[n1, n2]])], bound)
    # Two ordered pairs share the level; a little is spent on rates left out.
    assert 0 < p <= 2 * (largest + 1e-3)
    assert p < 0.02


def outcomes_of(n1, n2, bound):
    """Return the statistic of all outcomes of two groups."""
    x = np.stack(np.meshgrid(np.arange(n1 + 1), np.arange(n2 + 1), indexing="ij"))
    sizes = np.array([n1, n2], float)[:, None, None]
    return gap_statistic(x.astype(float), sizes, bound)


def largest_chance(counts, n_rows, bound):
    """Return the largest chance of a statistic that small, of both ordered pairs."""
    chances = []
    for (x1, x2), (n1, n2) in [(counts, n_rows), (counts[::-1], n_rows[::-1])]:
        is_low = outcomes_of(n1, n2, bound)
        is_low = is_low <= is_low[x1, x2] + 1e-9
        for low in np.linspace(0, 1 - bound, 400):
            first = binom.pmf(range(n1 + 1), n1, low + bound)
            chances.append(first @ is_low @ binom.pmf(range(n2 + 1), n2, low))
    return max(chances)


@pytest.mark.parametrize(("n1", "n2", "bound"), [(700, 500, 0.1), (90, 2000, 0.0)])
def test_counts_that_hardly_occur_are_left_out_of_a_chance_and_no_others(n1, n2, bound):
    z = outcomes_of(n1, n2, bound)
    rates = np.array([0.0, 1e-3, 0.4, 0.85, 1 - bound])
    for one in (-2.0, -0.3, 0.5):
        expected = [
            np.sum(
                np.outer(
                    binom.pmf(range(n1 + 1), n1, min(low + bound, 1.0)),
                    binom.pmf(range(n2 + 1), n2, low),
                )[z <= one]
            )
            for low in rates
        ]
        question = n1, n2, bound, False
        alone = [_largest_chance(one, rates[[i]], *question) for i in range(5)]
        np.testing.assert_allclose(alone, expected, atol=1e-9)
        assert _largest_chance(one, rates, *question) >= max(expected) - 1e-9


@pytest.mark.parametrize("n", [1, 7, 40])
def test_exact_limits_are_clopper_and_pearsons(n):
    found = np.array(exact_limits(np.arange(n + 1), n, 4e-4))
    for count in range(n + 1):
        theirs = binomtest(count, n).proportion_ci(1 - 4e-4, "exact")
        assert found[:, count] == pytest.approx((theirs.low, theirs.high), abs=1e-9)


# Of statsmodels.stats.proportion.confint_proportions_2indep, method="score", with the
# correction, at the level whose quantile is 1.96.
SCORE_LIMITS = [
    ((30, 100, 40, 100), False, (0.5089401809131718, 1.0968493552346705)),
    ((10, 10, 2, 10), False, (1.931421060986189, 18.178052623224342)),
    ((30, 100, 40, 100), True, (0.35837523807122923, 1.1533189149545684)),
]


@pytest.mark.parametrize(("table", "is_odds", "limits"), SCORE_LIMITS)
def test_limits_of_ratios_are_those_of_another_library(table, is_odds, limits):
    x1, n1, x2, n2 = map(float, table)
    rows = np.array([x1, x2]), np.array([n1, n2])
    assert ratio_limits(*rows, 1.96, is_odds=is_odds) == pytest.approx(limits, rel=1e-6)


@pytest.mark.parametrize("is_odds", [False, True])
def test_limits_of_ratios_turn_over_with_their_groups(is_odds):
    counts, n_rows = (np.arange(1.0, 9.0), np.arange(8.0, 0.0, -1)), (9.0, 9.0)
    n_rows = np.full((2, 8), 9.0)
    low, high = ratio_limits(np.stack(counts), n_rows, 2.5, is_odds=is_odds)
    other = ratio_limits(np.stack(counts[::-1]), n_rows, 2.5, is_odds=is_odds)
    np.testing.assert_allclose(low, 1 / other[1], rtol=1e-9)
    np.testing.assert_allclose(high, 1 / other[0], rtol=1e-9)


@pytest.mark.parametrize("is_odds", [False, True])
def test_limits_of_ratios_are_unbounded_where_nobody_is_selected(is_odds):
    counts, n_rows = np.array([[3.0, 0.0, 0.0], [0.0, 3.0, 0.0]]), np.full((2, 3), 8.0)
    low, high = ratio_limits(counts, n_rows, 1.96, is_odds=is_odds)
    assert low[0] > 0
    assert np.isinf(high[0])
    assert low[1] == 0
    assert np.isfinite(high[1])
    assert (low[2], high[2]) == (0, np.inf)


def test_areas_under_the_curve_have_limits_at_their_ends():
    low, high = auc_limits(1.0, 10, 12, 1.96)
    assert 0.7 < low < 0.9
    assert high == 1
    turned = auc_limits(0.0, 10, 12, 1.96)
    assert turned == pytest.approx((0.0, 1 - low))
    assert np.isnan(auc_limits(math.nan, 0, 12, 1.96)).all()


@pytest.mark.parametrize(("n1", "n2"), [(400, 100), (100, 300)])
def test_hoeffdings_inequality_settles_pairs_that_are_far_from_the_bound(n1, n2):
    # Rates far apart the other way round are settled too.
    settled = []
    for x1 in range(n1 // 20, n1 // 2, 2):
        rate = np.array([[x1 / n1, 0.5]])
        distance = 0.3 - abs(rate[0, 0] - 0.5)
        chance = np.exp(-2 * distance**2 / (1 / n1 + 1 / n2))
        p = certify([rate], [np.array([[n1, n2]])], 0.3)
        assert (p == 1e-4) == (distance > 0 and chance <= 1e-4)
        # What is not settled spends what rates left out may cost.
        assert p == 1e-4 or p > 5e-4
        settled.append(p == 1e-4)
    assert any(settled)
    assert not all(settled)


def test_where_a_gap_is_above_the_bound_the_normal_law_says_how_little():
    sizes = [np.array([[4, 4]])]
    above = certify([np.array([[0.75, 0.25]])], sizes, 0.25)
    z = gap_statistic(np.array([[3.0], [1.0]]), np.full((2, 1), 4.0), 0.25)
    assert above == pytest.approx(norm.cdf(z[0]))
    assert above > 0.5


def test_rates_that_contradict_the_bound_leave_only_what_is_set_aside():
    # All twelve of a group, and yet another one 0.6 above it: not even plausible.
    p = certify([np.array([[1.0, 1.0]])], [np.array([[12, 12]])], 0.6)
    assert p == pytest.approx(1e-4 + 4e-4)


def test_one_group_certifies_nothing_and_refutes_nothing():
    alone = [np.array([[0.3, np.nan]])], [np.array([[50, 0]])]
    assert certify(*alone, 0.1) == 1
    assert refute(*alone, 0.1) == 1


def test_a_bound_of_one_and_more_is_kept_by_all():
    rates, sizes = [np.array([[1.0, 0.0]])], [np.array([[5, 5]])]
    for bound in (1.0, 1.5):
        assert certify(rates, sizes, bound) == 0
        assert refute(rates, sizes, bound) == 1
        assert certify_curves(np.array([[1.0], [0.0]]), np.array([9, 9]), bound) == 0


def test_what_is_far_below_a_bound_is_not_refuted_at_all():
    alike = [np.array([[0.5, 0.5]])], [np.array([[20, 20]])]
    assert refute(*alike, 0.5) == 1


def test_counts_that_weights_make_fractions_are_rounded_against_the_answer():
    sizes = [np.array([[10.0, 10.0]])]
    between = [np.array([[0.45, 0.25]])]
    wider, closer = [np.array([[0.5, 0.2]])], [np.array([[0.4, 0.3]])]
    assert certify(between, sizes, 0.6) == certify(wider, sizes, 0.6)
    assert refute(between, sizes, 0.05) == refute(closer, sizes, 0.05)
    # A group is worth one row at least, and no more than its whole rows.
    one = [np.array([[1.0, 0.25]])]
    few = certify(one, [np.array([[1, 10]])], 0.9)
    assert certify(one, [np.array([[0.3, 10.9]])], 0.9) == few
    one = [np.array([[1.0, 0.2]])]
    few = certify(one, [np.array([[1, 10]])], 0.9)
    assert few == pytest.approx(largest_chance([1, 2], [1, 10], 0.9), abs=1e-3)


@pytest.mark.parametrize(("n1", "n2"), [(12, 9), (9, 12)])
def test_curves_are_tested_at_the_threshold_where_they_are_farthest_apart(n1, n2):
    # Of two steps the second has the larger gap; rates need not be whole counts.
    bound, x1, x2 = 0.6, (2 * n1) // 3, n2 // 3
    below = np.array([[0.0, x1 / n1, 1.0], [0.0, x2 / n2, 1.0]])
    largest = largest_chance([x1, x2], [n1, n2], bound)
    for order in ([0, 1], [1, 0]):
        sizes = np.array([n1, n2])[order]
        p = certify_curves(below[order], sizes, bound)
        assert p == pytest.approx(largest, rel=0.03)
        assert p == certify_curves(below[order], sizes + 0.4, bound)
    # Above the bound, the normal law says how little.
    at_bound = abs(x1 / n1 - x2 / n2)
    p = certify_curves(below, np.array([n1, n2]), at_bound - 1e-6)
    assert p == pytest.approx(0.5, abs=1e-4)


def test_curves_of_large_groups_are_tested_by_hoeffdings_inequality():
    below = np.array([[0.2, 0.5, 1.0], [0.25, 0.6, 1.0], [0.22, 0.52, 1.0]])
    sizes = np.array([6000.0, 9000.0, 7000.0])
    gaps = {(1, 0): 0.1, (1, 2): 0.08, (2, 0): 0.02, (0, 1): 0, (0, 2): 0, (2, 1): 0}
    expected = max(
        np.exp(-2 * (0.13 - gap) ** 2 / np.sum(1 / sizes[list(pair)]))
        for pair, gap in gaps.items()
    )
    assert certify_curves(below, sizes, 0.13) == pytest.approx(expected)
    # Up to 5000 rows the chance is added up, which certifies more.
    pair, n = below[:2, 1:2], np.array([5000.0, 9000.0])
    hoeffding = np.exp(-2 * 0.03**2 / np.sum(1 / n))
    assert certify_curves(pair, n, 0.13) < 0.5 * hoeffding
    n[0] = 5001
    hoeffding = np.exp(-2 * 0.03**2 / np.sum(1 / n))
    assert certify_curves(pair, n, 0.13) == pytest.approx(hoeffding)


def test_means_that_are_not_below_the_bound_or_of_one_row_certify_nothing():
    sizes, variances = np.array([40.0, 50.0]), np.array([0.01, 0.02])
    assert certify_means(0.2, 0.1, sizes, variances, 1.0) == 1
    assert certify_means(0.0999, 0.1, sizes, variances, 1.0) == 1
    assert certify_means(0.0, 0.9, np.array([1.9, 5000.0]), variances, 1.0) == 1
    assert certify_means(0.0, 0.9, np.array([2.0, 2.0]), variances, 0.1) < 1
    # Values of one kind differ by nothing.
    assert certify_means(0.0, 0.1, sizes, np.zeros(2), 0.0) == 0


def test_groups_that_cannot_be_compared_have_no_expected_limit():
    alone = np.array([[0.3, np.nan]]), np.array([[50.0, 0.0]])
    both = np.array([[1.0, 0.4]]), np.array([[1.0, 80.0]])
    assert all(map(math.isnan, expected_limit([alone[0]], [alone[1]], 0.5, 0.95)))
    expected = expected_limit([both[0]], [both[1]], 0.5, 0.95)
    likely = np.array([2 / 3, 33 / 82])
    error = np.sqrt(np.sum(likely * (1 - likely) / both[1]))
    assert expected[0] == pytest.approx(
        0.6 + QUANTILE_95_ONE_SIDED * error / np.sqrt(0.5)
    )
    for order in (1, -1):
        parts = zip(*[alone, both][::order], strict=True)
        assert expected_limit(*parts, 0.5, 0.95) == expected


def test_a_floor_leaves_absent_groups_out_and_gives_each_other_one_row():
    mass = np.array([[[7e5, 0.28], [3e5, 0.12]]])
    # The second group is worth 0.4 rows: it has a rate of 0 or 1.
    one_row = table_of(mass, [[[7e5, 0.4], [3e5, 0.0]]])
    floor = floor_of_tables([one_row])
    assert floor.mean == pytest.approx(0.3 * 0.7 + 0.7 * 0.3, abs=0.01)
    assert floor.high == pytest.approx(0.7, abs=0.01)
    padded = np.insert(mass, 1, 0.0, axis=2)
    squares = [[[7e5, 0.0, 0.4], [3e5, 0.0, 0.0]]]
    assert floor_of_tables([table_of(padded, squares)]) == floor
    assert floor == floor_of_tables([one_row], 0.95, 0, 20_000)


def test_the_largest_floor_of_several_tables_counts():
    small, large = table_of([[[6, 5], [6, 5]]]), table_of([[[600, 500], [600, 500]]])
    alone = floor_of_tables([small])
    for tables in ([small, large], [small, table_of([[[5, 0], [3, 0]]])]):
        assert floor_of_tables(tables).mean == pytest.approx(alone.mean, rel=0.01)
    assert math.isnan(floor_of_tables([table_of([[[5, 0], [3, 0]]])]).mean)


def test_noise_is_taken_from_the_spread_of_the_groups_that_are_there():
    rates, sizes = np.array([0.5, 0.4, 0.7]), np.array([20.0, 50.0, 30.0])
    noise = np.mean(rates * (1 - rates) / (sizes - 1))
    expected = np.sqrt(2 * (np.var(rates, ddof=1) - noise))
    padded = np.array([[0.5, np.nan, 0.4, 0.7]]), np.array([[20.0, 0.0, 50.0, 30.0]])
    assert corrected_violation([padded[0]], [padded[1]]) == pytest.approx(expected)
    alone = np.array([[0.5, np.nan]]), np.array([[20.0, 0.0]])
    alike = np.array([[0.5, 0.5], [0.5, 0.6]]), np.array([[20.0, 20.0], [9.0, 9.0]])
    assert math.isnan(corrected_violation([alone[0]], [alone[1]]))
    assert corrected_violation([alike[0]], [alike[1]]) == 0
    for order in (1, -1):
        parts = zip(*[alone, alike, padded][::order], strict=True)
        assert corrected_violation(*parts) == pytest.approx(expected)
    # Nothing is known of the noise of one row, and the other group's stands for both.
    found = corrected_violation([np.array([[1.0, 0.2]])], [np.array([[1.0, 41.0]])])
    assert found == pytest.approx(np.sqrt(2 * (0.32 - 0.16 / 40)))


@pytest.mark.parametrize(
    ("rates", "bound"), [((0.35, 0.25), 0.12), ((1.0, 0.9), 0.13), ((0.1, 0.0), 0.13)]
)
def test_rows_needed_are_those_of_the_normal_law(rates, bound):
    share, rates = np.array([0.6, 0.3]), np.array(rates)
    distance = bound - (rates[0] - rates[1])

    def deviation(rates):
        return np.sqrt(np.sum(rates * (1 - rates) / share))

    apart = np.clip(rates + np.array([1, -1]) * distance / 2, 0, 1)
    # Of 95 % confidence and a power of 80 %.
    reach = QUANTILE_95_ONE_SIDED * deviation(apart) + 0.8416212 * deviation(rates)
    found = rows_needed(bound, rates, share)
    assert found == pytest.approx((reach / distance) ** 2, abs=1.1)
    assert rows_needed(bound, rates[::-1], share[::-1]) == found
    assert rows_needed(bound, [rates, rates[::-1]], [share, share[::-1]]) > found


@pytest.mark.parametrize(
    ("rates", "shares"),
    [([0.2], [1.0]), ([0.2, 0.3], [0.5, 0.0]), ([0.2, 0.3], [[0.5, 0.5]] * 2)],
)
def test_rows_needed_are_those_of_two_groups_with_rows(rates, shares):
    with pytest.raises(InvalidInputError, match="at least two groups, and positive"):
        rows_needed(0.3, rates, shares)


def test_few_rows_bring_no_bound_in_reach():
    assert bound_in_reach([0.25, 0.25], [0.6, 0.4], 1) == 1
    few = bound_in_reach([[0.2, 0.5], [0.4, 0.4]], [[0.6, 0.4]] * 2, 10**7)
    assert few == pytest.approx(0.3, abs=2e-3)
    assert few > 0.3


@pytest.mark.parametrize("is_soft", [False, True])
@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
def test_what_is_drawn_once_each_are_the_rows_themselves(notion, is_soft):
    rng = np.random.default_rng(0)
    n = 300
    y, decision, group = rng.integers(3, size=(3, n))
    weight = rng.choice([0.0, 1.0, 2.5], n)
    predicted = rng.dirichlet(np.ones(3), n) if is_soft else decision
    names = np.where(group == 2, None, group.astype(str))
    sensitive = pd.DataFrame({"a": names, "b": rng.choice(["x", "y", "z"], n)})
    labels = encode_labels(y, n, [0, 1, 2])
    with pytest.warns(MissingGroupWarning):
        tabulator = make_tabulator(labels, get(notion), sensitive, "marginal", weight)

    sample = bootstrap_sample(tabulator, predicted)

    assert sample.count.sum() == n
    assert len(sample.count) == n if is_soft else len(sample.count) < n
    found = sample.rates((sample.count @ sample.totals)[None])
    expected, _ = compared_of(tabulator.tables(predicted))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one[0], other)


def test_one_row_of_a_group_weighs_what_one_of_those_it_is_worth_does():
    weight = np.array([1.0, 3.0, 2.0, 2.0, 5.0])
    group, decision = np.array(["a", "a", "b", "b", "b"]), np.array([0, 1, 1, 1, 0])
    labels = encode_labels(None, 5, [0, 1])
    parity = get("demographic_parity")
    tabulator = make_tabulator(labels, parity, group, "intersection", weight)

    added = bootstrap_sample(tabulator, decision).added

    # Of both outcomes, in units of the mean weight.
    expected = np.array([(1 + 9) / 4, (4 + 4 + 25) / 9]) / weight.mean()
    scale = tabulator.rows.weight.sum() / weight.sum()
    np.testing.assert_allclose(added, np.tile(expected * weight.mean() * scale, 2))


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_the_spread_of_counted_weights_is_in_their_unit(unit):
    # Two rows of weights 1 and 3, and two of weight 2, which have no spread.
    rows = SimpleNamespace(
        square=unit**2 * np.array([10.0, 8.0]), soft_square=None, count=np.array([2, 2])
    )
    weight = unit * np.array([2.0, 2.0])
    roots = _roots(rows, weight, np.array([0, 0]), 2)
    np.testing.assert_allclose(
        np.abs(roots), unit * np.array([[[1.0], [0]], [[0], [0]]])
    )
