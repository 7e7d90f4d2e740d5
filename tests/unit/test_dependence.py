"""Measures of dependence between a prediction and an attribute."""

import itertools

import numpy as np
import pytest
import scipy.stats

from fferm.errors import InvalidInputError, InvalidParameterError, UnknownNameError
from fferm.metrics import dependence
from fferm.metrics.dependence import (
    GROUP_MEASURES,
    MEASURES,
    distance_correlation,
    get_measure,
    independence_test,
)
from fferm.metrics.intervals import certify_curves, certify_means
from fferm.notions import Strata
from fferm.notions import get as get_notion


@pytest.fixture
def two_groups():
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=500)
    return rng.normal(size=500) + group, group


def test_measures_of_two_groups_are_those_of_scipy(two_groups):
    u, group = two_groups
    a, b = u[group == 0], u[group == 1]
    assert dependence.mean_gap(u, group) == pytest.approx(b.mean() - a.mean())
    exact = scipy.stats.ks_2samp(a, b).statistic
    assert dependence.kolmogorov_smirnov(u, group) == pytest.approx(exact)
    moved = scipy.stats.wasserstein_distance(a, b)
    assert dependence.wasserstein(u, group) == pytest.approx(moved)


def test_of_several_groups_the_worst_pair_counts():
    u = np.array([0.0, 1, 2, 10, 11, 12, 5, 6, 7])
    group = np.repeat([0, 1, 2], 3)
    assert dependence.mean_gap(u, group) == pytest.approx(10)
    assert dependence.wasserstein(u, group) == pytest.approx(10)
    assert dependence.kolmogorov_smirnov(u, group) == 1


def test_a_gaussian_pair_has_its_known_correlations():
    rng = np.random.default_rng(1)
    u = rng.normal(size=20000)
    s = 0.6 * u + 0.8 * rng.normal(size=20000)
    # The maximal correlation of Gaussians is their correlation; bins lower it a little.
    assert dependence.correlation(u, s) == pytest.approx(0.6, abs=0.02)
    found = dependence.maximal_correlation(u, s, n_bins=20)
    assert 0.56 < found < 0.62
    information = -0.5 * np.log(1 - 0.36)
    estimate = dependence.f_information(u, s, n_bins=20)
    assert estimate == pytest.approx(information, rel=0.1)


def test_what_linear_correlation_cannot_see_the_others_do():
    age = np.random.default_rng(2).normal(size=1000)
    assert dependence.correlation(age**2, age) < 0.1
    assert dependence.distance_correlation(age**2, age) > 0.4
    assert dependence.maximal_correlation(age**2, age) > 0.9
    assert dependence.f_information(age**2, age) > 0.5


def test_on_independent_numbers_the_information_is_about_its_bias():
    rng = np.random.default_rng(3)
    u, s = rng.normal(size=(2, 4000))
    expected = dependence.information_bias(u, s)
    assert expected == pytest.approx(81 / 8000)
    assert dependence.f_information(u, s) == pytest.approx(expected, rel=0.4)
    assert dependence.distance_correlation(u, s) < 0.1


def test_a_constant_prediction_depends_on_nothing():
    s = np.random.default_rng(4).normal(size=50)
    for name, measure in dependence.NUMBER_MEASURES.items():
        assert measure(np.zeros(50), s) == 0, name


def test_the_test_of_independence_holds_its_level():
    rng = np.random.default_rng(5)
    p_values = [
        independence_test(
            "correlation", *rng.normal(size=(2, 40)), n_permutations=39, random_state=k
        ).p_value
        for k in range(200)
    ]
    # Uniform on 1/40, ..., 1: about a tenth below 0.1, within five sigma.
    assert abs(np.mean(np.array(p_values) <= 0.1) - 0.1) < 5 * np.sqrt(0.09 / 200)


def test_the_test_of_independence_says_what_chance_gives():
    u, s = np.random.default_rng(7).normal(size=(2, 400))
    found = independence_test("correlation", u, s)
    assert found.value == dependence.correlation(u, s)
    # The mean of |z| / sqrt(n); 199 shuffles know it to 5 %, and this is five sigma.
    assert found.chance == pytest.approx(np.sqrt(2 / (np.pi * 400)), rel=0.27)


def test_bad_input_is_refused_by_name():
    u = np.zeros(10)
    with pytest.raises(UnknownNameError, match="Unknown measure 'ks'"):
        independence_test("ks", u, u)
    with pytest.raises(InvalidInputError, match="at least two different codes"):
        dependence.mean_gap(u, np.zeros(10, dtype=int))
    with pytest.raises(InvalidInputError, match="at least 4 rows"):
        dependence.f_information(u, np.zeros(9))
    with pytest.raises(InvalidParameterError, match="n_bins must be"):
        dependence.f_information(u, u, n_bins=1)
    with pytest.raises(InvalidInputError, match="attribute must hold"):
        independence_test("correlation", u, np.full(10, np.nan))


# Weights


def weighted_rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=n)
    return u, u**2 + rng.normal(size=n), rng.integers(1, 4, n)


@pytest.mark.parametrize("name", MEASURES)
def test_weights_that_are_all_alike_change_nothing(name):
    u, s, _ = weighted_rows()
    s = (s > 1).astype(int) if name in GROUP_MEASURES else s
    measure = get_measure(name)
    alike = measure(u, s, weight=np.full(u.size, 0.3))
    assert alike == pytest.approx(measure(u, s), abs=1e-12)


@pytest.mark.parametrize(
    "name", [name for name in MEASURES if name != "distance_correlation"]
)
def test_whole_weights_are_so_many_copies(name):
    u, s, count = weighted_rows()
    s = (s > 1).astype(int) if name in GROUP_MEASURES else s
    measure, copies = get_measure(name), np.repeat(np.arange(u.size), count)
    weighted = measure(u, s, weight=count.astype(float))
    assert weighted == pytest.approx(measure(u[copies], s[copies]), abs=1e-12)
    assert weighted != pytest.approx(measure(u, s), abs=1e-6)


def test_a_weighted_distance_covariance_is_the_mean_over_tuples_of_rows():
    u, s, count = weighted_rows(7)
    s = u + 0.1 * s
    w = count / count.sum()
    a, b = (np.abs(v[:, None] - v) for v in (u, s))

    def mean(size, term):
        tuples = list(itertools.permutations(range(7), size))
        mass = [np.prod(w[list(rows)]) for rows in tuples]
        return np.average([term(*rows) for rows in tuples], weights=mass)

    def covariance(a, b):
        return (
            mean(2, lambda i, j: a[i, j] * b[i, j])
            + mean(4, lambda i, j, k, m: a[i, j] * b[k, m])
            - 2 * mean(3, lambda i, j, k: a[i, j] * b[i, k])
        )

    expected = covariance(a, b) / np.sqrt(covariance(a, a) * covariance(b, b))
    found = distance_correlation(u, s, weight=count.astype(float))
    assert found**2 == pytest.approx(max(expected, 0.0), abs=1e-12)
    assert found > 0


@pytest.mark.parametrize("name", ["distance_correlation", "f_information"])
def test_a_weighted_test_of_independence_sees_dependence_and_no_other(name):
    rng = np.random.default_rng(0)
    weight = rng.integers(1, 5, 200) * 1.0
    u = rng.normal(size=200)
    options = {"n_permutations": 39, "weight": weight}
    assert independence_test(name, u, u**2, **options).p_value == 1 / 40
    found = [
        independence_test(name, rng.normal(size=200), u, **options).p_value
        for _ in range(20)
    ]
    assert np.mean(np.array(found) <= 0.1) <= 0.25
    with pytest.raises(InvalidInputError, match="one positive number per row"):
        independence_test(name, u, u, weight=np.zeros(200))


# Limits of what is read


@pytest.mark.parametrize("odd", [0.5, np.zeros((10, 2)), np.full(10, np.inf)])
def test_what_is_not_one_finite_number_per_row_is_refused(odd):
    with pytest.raises(InvalidInputError, match="prediction must hold one finite"):
        dependence.read_finite(odd, "prediction")
    column = np.array([[1], [2]])
    np.testing.assert_array_equal(dependence.read_finite(column, "x"), [1.0, 2.0])
    with pytest.raises(InvalidInputError, match="x contains non-numeric values"):
        dependence.read_finite(["a"], "x")


@pytest.mark.parametrize("weight", [np.ones(9), np.ones(11), np.arange(10.0)])
def test_weights_are_one_positive_number_per_row(weight):
    u = np.arange(10.0)
    with pytest.raises(InvalidInputError, match=r"one positive number per row, \(10,"):
        independence_test("correlation", u, u, weight=weight, n_permutations=1)


def test_four_rows_and_two_bins_are_enough():
    u, s = np.arange(4.0), np.array([1.0, 0.0, 2.0, 3.0])
    # Two halves that agree: a table of 1/2 on its diagonal.
    found = dependence.f_information(u, s, n_bins=2)
    assert found == pytest.approx(np.log(2))
    assert dependence.maximal_correlation(u, s, n_bins=2) == pytest.approx(1)
    with pytest.raises(InvalidInputError, match=r"at least 4 rows; got shapes \(3,\)"):
        dependence.f_information(u[:3], s[:3], n_bins=2)


def test_numbers_fall_into_ten_bins_where_none_are_given():
    u, s, _ = weighted_rows(200)
    for measure in (dependence.maximal_correlation, dependence.f_information):
        assert measure(u, s) == measure(u, s, n_bins=10)
    # Nine degrees of freedom on either side; of kl, half the curvature of 1.
    assert dependence.information_bias(u, s) == pytest.approx(81 / 200 / 2)
    chi2 = dependence.information_bias(u, s, divergence="chi2", n_bins=4)
    assert chi2 == pytest.approx(9 / 200)
    weight = np.where(np.arange(200) < 100, 3.0, 1.0)
    worth = 400**2 / (100 * 9 + 100)
    weighted = dependence.information_bias(u, s, weight=weight)
    assert weighted == pytest.approx(81 / worth / 2)


def test_unknown_groups_count_as_no_group():
    u = np.array([0.0, 1, 5, 6, 100])
    group = np.array([0, 0, 1, 1, -1])
    for name in GROUP_MEASURES:
        known = get_measure(name)(u[:4], group[:4])
        assert get_measure(name)(u, group) == pytest.approx(known)
        with pytest.raises(InvalidInputError, match="two different codes; got 1"):
            get_measure(name)(u, np.array([0, 0, 0, 0, -1]))


def test_equal_predictions_are_one_step_of_a_distribution_function():
    u, group = np.array([1.0, 1, 1, 1, 2, 2]), np.array([0, 0, 1, 1, 0, 1])
    assert dependence.kolmogorov_smirnov(u, group) == 0
    group = np.array([0, 0, 0, 1, 1, 1])
    # At 1, all of the first group and a third of the second.
    assert dependence.kolmogorov_smirnov(u, group) == pytest.approx(2 / 3)
    assert dependence.wasserstein(u, group) == pytest.approx(2 / 3)
    assert dependence.mean_gap(u, group) == pytest.approx(2 / 3)
    assert dependence.wasserstein(np.ones(6), group) == 0


# Distances


def unbiased(u, s):
    """Return the squared distance correlation by its definition, in loops."""

    def centred(v):
        n, a = v.size, np.abs(v[:, None] - v)
        out = np.zeros((n, n))
        for i, j in itertools.permutations(range(n), 2):
            out[i, j] = (
                a[i, j]
                - a[i].sum() / (n - 2)
                - a[:, j].sum() / (n - 2)
                + a.sum() / ((n - 1) * (n - 2))
            )
        return out

    a, b = centred(u), centred(s)
    return np.sum(a * b) / np.sqrt(np.sum(a * a) * np.sum(b * b))


def test_the_distance_correlation_is_that_of_its_definition():
    u, s, _ = weighted_rows(12)
    s = s + u
    assert unbiased(u, s) > 0
    assert distance_correlation(u, s) == pytest.approx(np.sqrt(unbiased(u, s)))


def test_a_square_below_0_is_cut_there():
    rng = np.random.default_rng(2)
    pairs = [rng.normal(size=(2, 12)) for _ in range(20)]
    below = [pair for pair in pairs if unbiased(*pair) < 0]
    assert below
    assert all(distance_correlation(*pair) == 0 for pair in below)


def test_of_many_rows_some_are_drawn_by_the_seed(monkeypatch):
    u, s, count = weighted_rows(80)
    weight = count.astype(float)
    monkeypatch.setattr(dependence, "MOST_DISTANCES", 30)
    rows = np.random.default_rng(5).choice(80, 30, replace=False)
    drawn = distance_correlation(u, s, random_state=5)
    assert drawn == pytest.approx(distance_correlation(u[rows], s[rows]))
    weighted = distance_correlation(u, s, weight=weight, random_state=5)
    chosen = distance_correlation(u[rows], s[rows], weight=weight[rows])
    assert weighted == pytest.approx(chosen)
    assert distance_correlation(u, s) == distance_correlation(u, s, random_state=0)


def test_as_many_rows_as_fit_are_all_taken(monkeypatch):
    u, s, _ = weighted_rows(30)
    every = distance_correlation(u, s)
    monkeypatch.setattr(dependence, "MOST_DISTANCES", 30)
    assert distance_correlation(u, s) == every


@pytest.mark.parametrize("weight", [None, np.arange(1.0, 13.0)])
def test_shuffled_distances_are_those_of_shuffled_rows(weight):
    u, s, _ = weighted_rows(12)
    values = dependence.shuffled_values(
        distance_correlation, u, s, 6, np.random.default_rng(3), weight
    )
    rng = np.random.default_rng(3)
    for value in values:
        order = rng.permutation(12)
        if weight is None:
            assert value == pytest.approx(distance_correlation(u, s[order]))
        assert 0 <= value <= 1
    assert len(values) == 6


# Chance


def test_the_p_value_counts_shuffles_that_reach_the_value_and_the_rows_themselves():
    chance, p_value = dependence.chance_of(0.5, [0.1, 0.5, 0.7, 0.3])
    assert chance == pytest.approx(0.4)
    assert p_value == 3 / 5
    # A value that differs by rounding alone is reached.
    assert dependence.chance_of(0.5, [0.5 - 1e-13])[1] == 1
    assert dependence.chance_of(0.5, [0.5 - 1e-11])[1] == 0.5


def test_a_test_of_independence_shuffles_199_times_from_seed_0():
    u, s, _ = weighted_rows(40)
    found = independence_test("correlation", u, s)
    assert found == independence_test(
        "correlation", u, s, n_permutations=199, random_state=0
    )
    assert round(found.p_value * 200, 9).is_integer()


# Intervals


def test_intervals_of_groups_are_built_from_their_own_errors():
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1, -1], [60, 40, 5])
    u, weight = rng.normal(size=105) + group, rng.uniform(0.5, 2, 105)
    ordered = dependence.OrderedPredictions(u)
    names = list(GROUP_MEASURES)
    found = ordered.intervals(
        group, names, 0.9, n_bootstrap=50, random_state=3, weight=weight
    )
    # Student's quantile of Welch's difference from the larger group.
    parts = weight[:60], weight[60:100]
    size = np.array([part.sum() ** 2 / np.sum(part**2) for part in parts])
    stretch = np.sqrt(size / (size - 1)) / scipy.stats.norm.ppf(0.95)
    free = (size - 1) * (1 + size / size.max())
    stretch *= scipy.stats.t.ppf(0.95, free)
    rng = np.random.default_rng(3)
    errors = {name: [] for name in names}
    for _ in range(50):
        times = np.zeros(105)
        for rows in (np.arange(60), np.arange(60, 100)):
            drawn = rng.integers(rows.size, size=rows.size)
            times[rows] = np.bincount(drawn, minlength=rows.size)
        moved = ordered.below(group, times * weight) - ordered.below(group, weight)
        moved *= stretch[:, None]
        for name in names:
            errors[name].append(ordered.measure(name, moved))
    for name in names:
        value = get_measure(name)(u, group, weight=weight)
        reach = np.quantile(errors[name], 0.9)
        assert found[name][0] == pytest.approx(max(value - reach, 0))
        highest = 1 if name == "kolmogorov_smirnov" else np.inf
        assert found[name][1] == pytest.approx(min(value + reach, highest))


def test_an_interval_is_one_of_95_percent_from_200_draws_of_seed_0():
    u, s, _ = weighted_rows(40)
    group = (s > 1).astype(int)
    ordered = dependence.OrderedPredictions(u)
    assert ordered.intervals(group, ["mean_gap"]) == ordered.intervals(
        group, ["mean_gap"], 0.95, n_bootstrap=200, random_state=0
    )


def test_the_error_of_a_target_is_beside_its_variance():
    target, weight = np.array([0.0, 1, 4]), np.array([1.0, 2, 1])
    error, variance = dependence.squared_error(target, np.array([0.0, 2, 2]), weight)
    assert error == pytest.approx((0 + 2 * 1 + 4) / 4)
    assert variance == pytest.approx((1.5**2 + 2 * 0.5**2 + 2.5**2) / 4)
    constant = dependence.squared_error(np.ones(3), np.zeros(3), weight)
    assert constant[0] == 1
    assert np.isnan(constant[1])


# Parts


def tabulator_of(measure, sensitive, X=None, notion="demographic_parity", **options):
    X = np.zeros((len(next(iter(sensitive.values()))), 1)) if X is None else X
    return dependence.make_regression_tabulator(
        measure, sensitive, get_notion(notion), "marginal", X, **options
    )


def test_rows_are_compared_in_strata_of_four_with_two_values():
    values = np.array([0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0])
    known = np.arange(12) < 11
    strata = Strata(np.repeat([0, 1, 2], 4), ("a", "b", "c"))
    parts = dependence.comparable_rows(values, known, strata)
    # The second has one value, the third three known rows.
    assert list(parts) == [0]
    np.testing.assert_array_equal(parts[0], [0, 1, 2, 3])


def test_the_violation_is_the_largest_of_all_columns():
    u = np.arange(8.0)
    sensitive = {"near": [0, 1] * 4, "far": [0] * 4 + [1] * 4}
    tabulator = tabulator_of("mean_gap", sensitive)
    assert tabulator.violation(u) == 4
    assert len(tabulator.parts) == 2
    assert tabulator.violation(u, dependence.kolmogorov_smirnov) == 1


def test_parts_share_the_risk_of_an_interval():
    u = np.random.default_rng(0).normal(size=60)
    sensitive = {"a": [0, 1] * 30, "b": [0] * 30 + [1] * 30}
    found = tabulator_of("mean_gap", sensitive).interval(u, 0.9, 60)
    single = [
        tabulator_of("mean_gap", {name: column}).interval(u, 0.95, 60)
        for name, column in sensitive.items()
    ]
    assert found == tuple(max(ends) for ends in zip(*single, strict=True))
    numbers = tabulator_of("correlation", {"age": u.tolist()})
    assert np.isnan(numbers.interval(u, 0.9, 60)).all()


def test_measures_of_numbers_see_numeric_columns_where_they_are_known():
    age = [1.0, 2.0, np.nan, 4.0, 5.0]
    tabulator = tabulator_of("correlation", {"age": age, "name": list("abcde")})
    ((values, rows),) = tabulator.parts
    np.testing.assert_array_equal(rows, [0, 1, 3, 4])
    np.testing.assert_array_equal(values, [1, 2, 4, 5])
    with pytest.raises(InvalidInputError, match="needs a numeric sensitive column"):
        tabulator_of("correlation", {"name": list("abcde")})


def test_rows_of_weight_0_are_no_rows_of_a_part():
    weight = np.array([1.0, 0, 1, 1, 1, 1])
    tabulator = tabulator_of("mean_gap", {"s": [0, 1, 0, 1, 0, 1]}, weight=weight)
    ((_, rows),) = tabulator.parts
    np.testing.assert_array_equal(rows, [0, 2, 3, 4, 5])
    u = np.array([0.0, 100, 0, 1, 0, 1])
    assert tabulator.violation(u) == 1


def test_rows_that_allow_no_comparison_are_refused():
    with pytest.raises(InvalidInputError, match="needs two groups, or two different"):
        tabulator_of("correlation", {"age": [3.0] * 6})


def test_a_notion_of_labels_has_none_to_condition_on():
    with pytest.raises(InvalidParameterError, match="conditions on a label"):
        tabulator_of("mean_gap", {"s": [0, 1] * 3}, notion="equalized_odds")


# Tests of a bound


@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_pair_that_shows_a_bound_least_has_its_p_value(is_weighted):
    rng = np.random.default_rng(0)
    sensitive = {"a": np.repeat([0, 1, 2], [300, 400, 500]), "b": np.arange(1200) % 2}
    u = rng.uniform(-0.5, 1.5, 1200) + 0.1 * sensitive["a"]
    weight = rng.uniform(0.5, 2, 1200) if is_weighted else None
    w, cut = np.ones(1200) if weight is None else weight, np.clip(u, 0, 1)
    columns = {name: column.tolist() for name, column in sensitive.items()}
    tabulator = tabulator_of("mean_gap", columns, weight=weight)

    expected = []
    for column in sensitive.values():
        for pair in itertools.combinations(np.unique(column), 2):
            parts = [(cut[column == k], w[column == k]) for k in pair]
            means = [np.average(values, weights=part) for values, part in parts]
            sizes = [part.sum() ** 2 / np.sum(part**2) for _, part in parts]
            variances = [np.cov(values, aweights=part) for values, part in parts]
            gap = abs(means[0] - means[1])
            statistics = gap, 0.25, np.array(sizes), np.array(variances), 1.0
            expected.append(certify_means(*statistics))
    assert tabulator.certify(u, 0.25, (0.0, 1.0)) == pytest.approx(max(expected))
    assert 0 < max(expected) < 1

    tabulator = tabulator_of("kolmogorov_smirnov", columns, weight=weight)
    expected = []
    for column in sensitive.values():
        groups = [column == k for k in np.unique(column)]
        below = [
            [np.sum(w[group & (u <= point)]) / w[group].sum() for point in np.sort(u)]
            for group in groups
        ]
        sizes = [w[group].sum() ** 2 / np.sum(w[group] ** 2) for group in groups]
        expected.append(certify_curves(np.array(below), np.array(sizes), 0.3))
    assert tabulator.certify(u, 0.3, (0.0, 1.0)) == pytest.approx(max(expected))


def test_the_groups_farthest_apart_are_named_with_their_rows():
    u = np.array([0.0, 1, 0, 1, 5, 6, 9, 9, 9, 2])
    sensitive = {"half": ["x", "y"] * 5, "third": [*"aaaabbccc", None]}
    tabulator = tabulator_of("mean_gap", sensitive)
    assert tabulator.worst_pair(u) == {"a": 4, "c": 3}
    assert tabulator.worst_pair(-u) == {"a": 4, "c": 3}
    numbers = tabulator_of("correlation", {"age": u.tolist()})
    assert numbers.worst_pair(u) == {}


def test_what_chance_makes_is_the_largest_of_the_columns_in_each_shuffle():
    u = np.random.default_rng(0).normal(size=40)
    sensitive = {"a": [0, 1] * 20, "b": [0] * 30 + [1] * 10}
    tabulator = tabulator_of("mean_gap", sensitive)
    rng = np.random.default_rng(0)
    gaps = [
        [
            dependence.mean_gap(u, np.array(column)[rng.permutation(40)])
            for _ in range(99)
        ]
        for column in sensitive.values()
    ]
    assert tabulator.by_chance(u) == pytest.approx(np.mean(np.max(gaps, axis=0)))
