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
