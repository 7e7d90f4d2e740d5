"""Measures of dependence between a prediction and an attribute."""

import numpy as np
import pytest
import scipy.stats

from fferm import dependence
from fferm.dependence import independence_test
from fferm.errors import InvalidInputError, InvalidParameterError, UnknownNameError


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
    with pytest.raises(InvalidInputError, match="Expected at least two"):
        dependence.mean_gap(u, np.zeros(10, dtype=int))
    with pytest.raises(InvalidInputError, match="four rows at least"):
        dependence.f_information(u, np.zeros(9))
    with pytest.raises(InvalidParameterError, match="n_bins=1"):
        dependence.f_information(u, u, n_bins=1)
    with pytest.raises(InvalidInputError, match="attribute has shape"):
        independence_test("correlation", u, np.full(10, np.nan))
