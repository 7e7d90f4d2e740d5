import itertools
import math
import re

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import binomtest

from fferm.data.validate import encode_labels
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.metrics.intervals import (
    Sample,
    bootstrap_interval,
    bootstrap_sample,
    compared_of,
    violation_interval,
    wilson_interval,
    wilson_limits,
)
from fferm.metrics.tabulator import RateTable, compared, make_tabulator, rates_of
from fferm.notions import get

QUANTILE_95 = 1.959963984540054


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


def test_no_limit_exceeds_a_gap_of_1():
    _, high = bootstrap_interval(sample_of([[9, 0], [0, 9]]))

    assert high == 1.0


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
