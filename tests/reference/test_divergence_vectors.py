"""Formulas, limits and domains against values computed with 50 digits."""

import numpy as np
import pytest
from instances import REFERENCE as DIVERGENCES

EPS = np.finfo(np.float64).eps
RTOL = 1e-12

every = pytest.mark.parametrize("name", DIVERGENCES)


@pytest.fixture
def scalars(reference, name):
    """Return the columns of the scalar table of one divergence."""
    rows = reference["scalar"][name]
    return {
        key: np.array([float(row[key]) for row in rows]) for row in rows for key in row
    }


def assert_close(came, expected, moved=0.0):
    """Hold each value to RTOL, or to what one rounding of its input does to it."""
    allowed = RTOL * np.abs(expected) + 2 * EPS * np.abs(moved)
    np.testing.assert_array_less(np.abs(came - expected), allowed + 1e-300)


def test_every_divergence_of_the_reference_is_compared(reference):
    assert set(reference["scalar"]) == set(DIVERGENCES)
    assert set(reference["divergences"]) == set(DIVERGENCES)


@every
def test_generator(name, scalars):
    t = scalars["t"]
    # Ratios such as 0.999999 are decimals: their last bit moves f by t f'.
    came = DIVERGENCES[name].f(t, np)
    assert_close(came, scalars["f"], moved=t * scalars["f_prime"])


@every
def test_slope(name, scalars):
    t = scalars["t"]
    came = DIVERGENCES[name].f_prime(t, np)
    assert_close(came, scalars["f_prime"], moved=t * scalars["f_second"])


@every
def test_curvature(name, scalars):
    assert_close(DIVERGENCES[name].f_second(scalars["t"], np), scalars["f_second"])


@every
def test_conjugate_at_the_slope(name, scalars):
    a, t = scalars["f_prime"], scalars["t"]
    came = DIVERGENCES[name].conjugate(a, np)
    # The condition number of f* at a: one rounding of a moves it by |a| f*'(a) = |a| t.
    assert_close(came, scalars["f_conj_at_f_prime"], moved=a * t)


@every
def test_slope_of_the_conjugate(name, scalars):
    a = scalars["f_prime"]
    came = DIVERGENCES[name].conjugate_prime(a, np)
    # The condition number of f*' at a is |a| f*''(a): 500 for alpha=3 at t=0.001,
    # where a = -0.4999995 says next to nothing about t.
    assert_close(came, scalars["f_conj_prime"], moved=a * scalars["f_conj_second"])


@every
def test_curvature_of_the_conjugate_is_the_inverse_curvature(name, scalars):
    if name == "tv":
        pytest.skip("total variation has no curvature to invert")
    came = 1 / DIVERGENCES[name].f_second(scalars["t"], np)
    assert_close(came, scalars["f_conj_second"])


@every
def test_limits_and_domains(reference, name):
    expected, divergence = reference["divergences"][name], DIVERGENCES[name]
    came = {
        "f_prime_at_1": divergence.f_prime(np.float64(1.0), np),
        "f_at_0": divergence.value_at_zero,
        "f_prime_at_0": divergence.slope_at_zero,
        "f_prime_at_inf": divergence.slope_at_infinity,
    }
    for key, value in came.items():
        assert value == pytest.approx(float(expected[key]), rel=RTOL, abs=EPS), key
    domain = tuple(float(end) for end in expected["A_domain"])
    assert divergence.dual_domain == pytest.approx(domain, rel=RTOL, abs=EPS)
