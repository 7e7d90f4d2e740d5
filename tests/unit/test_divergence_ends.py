"""Formulas at, near and beyond the ends of their domains, and near independence."""

import math

import mpmath
import numpy as np
import pytest

from fferm.divergences import Alpha, LinearTail, TotalVariation, classical, get

EPS = np.finfo(np.float64).eps
INF = math.inf
# Below, at and beyond every end of a domain, on each side of a seam of two pieces.
EVERYWHERE = {
    "ratio": [0.0, 1e-100, 1e-8, 0.3, 0.95, 1.0, 1.05, 2.5, 1e3, 1e9],
    "dual": [-1e3, -2.5, -1, -0.5, -0.3, 0, 0.3, 0.5, math.log(2), 0.9, 1, 1.5, 2, 40],
    "log_ratio": [-500.0, -30, -1.5, -0.7, -0.3, 0, 0.3, 0.7, 1.5, 30, 300],
}
OPERANDS = {
    **dict.fromkeys(("f", "f_prime", "f_second"), "ratio"),
    **dict.fromkeys(("conjugate", "conjugate_prime"), "dual"),
    **dict.fromkeys(("dual_at", "conjugate_at"), "log_ratio"),
}
FAMILY = {
    **{name: get(name) for name in ("chi2", "kl", "reverse_kl", "tv", "js")},
    "hellinger": get("hellinger"),
    "rounded tv": TotalVariation(smoothing=0.1),
    **{f"alpha {a:g}": Alpha(power=a) for a in (-2.0, 0.0, 0.3, 1.0, 1.5, 2.0, 3.0)},
}
WITH_TAIL = {**FAMILY, "tail": LinearTail(get("reverse_kl"))}
# f''(1) of those that have a curvature there.
CURVATURE = {
    **{"chi2": 2.0, "kl": 1.0, "reverse_kl": 1.0, "js": 0.5, "hellinger": 0.5},
    **{f"alpha {a:g}": 1.0 for a in (-2.0, 0.0, 0.3, 1.0, 1.5, 3.0)},
}

every = pytest.mark.parametrize("name", FAMILY)
every_formula = pytest.mark.parametrize("formula", OPERANDS)
with_tail = pytest.mark.parametrize("divergence", WITH_TAIL.values(), ids=WITH_TAIL)


@every_formula
@with_tail
def test_formulas_are_quiet_beyond_the_ends_of_their_domains(divergence, formula):
    points = np.array(EVERYWHERE[OPERANDS[formula]], dtype=np.float64)
    with np.errstate(divide="raise", invalid="raise", over="ignore"):
        values = getattr(divergence, formula)(points, np)
    assert not np.isnan(values).any()


@every_formula
@with_tail
def test_gradients_are_numbers_beyond_the_ends_of_their_domains(divergence, formula):
    torch = pytest.importorskip("torch")
    points = torch.tensor(EVERYWHERE[OPERANDS[formula]], dtype=torch.float64)
    values = getattr(divergence, formula)(points.requires_grad_(), torch)
    values.sum().backward()
    assert not points.grad.isnan().any()


@every
def test_the_generator_and_its_slope_have_the_limits_that_are_written_down(name):
    divergence = FAMILY[name]
    zero, far = np.array([0.0]), np.array([INF])
    assert divergence.f(zero, np)[0] == pytest.approx(divergence.value_at_zero)
    assert divergence.f_prime(zero, np)[0] == divergence.slope_at_zero
    with np.errstate(all="ignore"):
        assert divergence.f_prime(far, np)[0] == divergence.slope_at_infinity


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        *[(name, INF) for name in ("kl", "reverse_kl", "js", "hellinger")],
        *[("chi2", 2.0), ("tv", 0.0), ("rounded tv", 0.0)],
        *[(f"alpha {a:g}", INF) for a in (-2.0, 0.0, 0.3, 1.0, 1.5)],
        *[("alpha 2", 1.0), ("alpha 3", 0.0)],
    ],
)
def test_the_curvature_has_its_limit_at_an_empty_cell(name, limit):
    assert FAMILY[name].f_second(np.array([0.0]), np)[0] == limit


@pytest.mark.parametrize(
    ("name", "charge", "ratio"),
    [
        *[(name, INF, INF) for name in ("reverse_kl", "js", "hellinger")],
        *[("alpha 0", INF, INF), ("alpha 0.3", INF, INF), ("alpha -2", 0.5, INF)],
        ("tv", 0.5, 1.0),
        ("rounded tv", 0.5 + 0.1 / 8, 1.05),
    ],
)
def test_a_dual_at_the_slope_at_infinity_takes_the_limit(name, charge, ratio):
    divergence = FAMILY[name]
    end = np.array([divergence.slope_at_infinity])
    assert divergence.conjugate(end, np)[0] == pytest.approx(charge)
    assert divergence.conjugate_prime(end, np)[0] == pytest.approx(ratio)


@pytest.mark.parametrize("distance", [1e-9, 0.3, 1.0, 30.0])
@pytest.mark.parametrize(
    "name", ["reverse_kl", "js", "hellinger", "tv", "alpha 0", "alpha 0.3", "alpha -2"]
)
def test_a_dual_above_the_slope_at_infinity_costs_infinity(name, distance):
    divergence = FAMILY[name]
    beyond = np.array([divergence.slope_at_infinity + distance])
    assert divergence.conjugate(beyond, np)[0] == INF
    assert divergence.conjugate_prime(beyond, np)[0] == INF


@pytest.mark.parametrize("distance", [0.0, 1e-9, 0.3, 1.0, 30.0])
@pytest.mark.parametrize(
    "name", ["tv", "rounded tv", "alpha 1.5", "alpha 2", "alpha 3", "tail"]
)
def test_a_dual_below_the_slope_at_zero_belongs_to_an_empty_cell(name, distance):
    divergence = WITH_TAIL[name]
    below = np.array([divergence.slope_at_zero - distance])
    charge = divergence.conjugate(below, np)[0]
    assert charge == pytest.approx(-divergence.value_at_zero, rel=1e-12)
    if distance:  # at the end itself, the ratio of total variation is any up to 1
        assert divergence.conjugate_prime(below, np)[0] == 0


@pytest.mark.parametrize("name", ["kl", "js", "hellinger", "alpha 0.3"])
def test_the_lowest_dual_charges_what_an_empty_cell_costs(name):
    divergence, lowest = FAMILY[name], np.array([-INF])
    with np.errstate(invalid="ignore"):
        charge = divergence.conjugate(lowest, np)[0]
        ratio = divergence.conjugate_prime(lowest, np)[0]
    assert charge == pytest.approx(-divergence.value_at_zero)
    assert ratio == 0


@pytest.mark.parametrize("u", [3e-16, -2e-15, 1e-12, -1e-9, 1e-6, -1e-4])
@pytest.mark.parametrize("name", CURVATURE)
def test_slopes_and_charges_keep_their_digits_near_independence(name, u):
    divergence, curvature = FAMILY[name], CURVATURE[name]
    t = np.array([1 + u])
    held = t[0] - 1  # u as the ratio holds it
    # Next terms are smaller by a factor of u times at most 4.
    near = {"rel": 4 * abs(u) + 100 * EPS, "abs": 0}
    assert divergence.f_prime(t, np)[0] == pytest.approx(curvature * held, **near)
    assert divergence.conjugate(np.array([u]), np)[0] == pytest.approx(u, **near)
    at = np.array([u])
    assert divergence.dual_at(at, np)[0] == pytest.approx(curvature * u, **near)
    assert divergence.conjugate_at(at, np)[0] == pytest.approx(curvature * u, **near)


@pytest.mark.parametrize("width", [0.01, 0.4, 1.0, 2.0])
def test_rounded_total_variation_is_the_function_of_huber(width):
    divergence = TotalVariation(smoothing=width)
    t = np.array([0.0, 0.3, 0.9, 0.999, 1.0, 1.001, 1.1, 1.4, 2.1, 7.0])
    u = t - 1
    slope = np.clip(u / width, -0.5, 0.5)
    is_inside = np.abs(u) < width / 2
    value = np.where(is_inside, u**2 / (2 * width), np.abs(u) / 2 - width / 8)
    np.testing.assert_allclose(divergence.f(t, np), value, rtol=1e-13, atol=1e-18)
    np.testing.assert_allclose(divergence.f_prime(t, np), slope, rtol=1e-12)
    np.testing.assert_array_equal(divergence.f_second(t, np), is_inside / width)
    # Its conjugate by definition, over a fine grid of ratios.
    grid = np.linspace(0, 4, 400_001)
    for a in (-0.7, -0.5, -0.2, 0.0, 0.3, 0.5):
        best = np.max(a * grid - divergence.f(grid, np))
        assert divergence.conjugate(np.array([a]), np)[0] == pytest.approx(
            best, abs=1e-9
        )
        expected = 1 + width * a if abs(a) <= 0.5 else 0.0
        assert divergence.conjugate_prime(np.array([a]), np)[0] == expected
    assert divergence.value_at_zero == 0.5 - width / 8
    assert divergence.is_smooth


def test_training_rounds_total_variation_within_a_thousandth():
    assert get("tv").smoothed() == TotalVariation(smoothing=1e-3)
    assert not get("tv").is_smooth
    assert TotalVariation(smoothing=2.0).smoothed().smoothing == 2.0


def test_total_variation_takes_no_side_at_its_kink():
    divergence = get("tv")
    slope = divergence.f_prime(np.array([1 - 1e-9, 1.0, 1 + 1e-9, INF]), np)
    np.testing.assert_array_equal(slope, [-0.5, 0.0, 0.5, 0.5])
    np.testing.assert_array_equal(divergence.f_second(np.array([1.0, INF]), np), 0)


def test_the_power_of_the_alpha_family_is_one_half_by_default():
    assert get("alpha") == Alpha(power=0.5)


@pytest.mark.parametrize(
    ("power", "is_concave"),
    [(-0.5, False), (0.0, True), (0.4, True), (1.0, True), (1.5, False), (2.0, False)],
)
def test_the_alpha_family_is_concave_in_the_log_ratio_from_0_to_1(power, is_concave):
    assert Alpha(power=power).log_ratio_is_concave is is_concave


@pytest.mark.parametrize("name", ["kl", "reverse_kl", "js", "hellinger"])
def test_these_are_concave_in_the_log_ratio(name):
    assert get(name).log_ratio_is_concave
    assert not get("chi2").log_ratio_is_concave


def exact(function, points):
    with mpmath.workdps(40):
        return np.array([float(function(mpmath.mpf(x))) for x in points])


FINE = np.concatenate([10.0 ** np.arange(-17, 0), np.linspace(0.05, 0.95, 37)])


def test_the_logarithm_of_one_plus_is_right_to_the_last_digits():
    u = np.concatenate([-FINE, [0.0], FINE, [1.5, 3.0, 1e9]])
    came = classical.log1p(u, np)
    np.testing.assert_allclose(came, exact(mpmath.log1p, u), rtol=4 * EPS)
    ends = classical.log1p(np.array([-1.0, -1.5, -3.0, INF]), np)
    np.testing.assert_array_equal(ends, [-INF, -INF, -INF, INF])


def test_the_exponential_minus_one_is_right_to_the_last_digits():
    x = np.concatenate([-FINE, [0.0], FINE, [-40.0, -3.0, 1.5, 20.0]])
    came = classical.expm1(x, np)
    np.testing.assert_allclose(came, exact(mpmath.expm1, x), rtol=4 * EPS)


def test_the_logarithm_less_its_tangent_is_right_to_the_last_digits():
    u = np.concatenate([-FINE[FINE < 0.1], [0.0], FINE[FINE < 0.1], [0.099, -0.099]])
    came = classical.log1p_minus(u, np)
    expected = exact(lambda x: mpmath.log1p(x) - x, u)
    np.testing.assert_allclose(came, expected, rtol=6 * EPS)
    assert np.isfinite(classical.log1p_minus(np.array([-1.0, 5.0, INF]), np)).all()


def test_the_logarithm_of_a_mean_of_exponentials_is_right_to_the_last_digits():
    z = np.concatenate([-FINE, [0.0], FINE, [-700.0, -30, -1, 1, 1.5, 30, 700]])
    came = classical.log_mean_exp(z, np)
    expected = exact(lambda x: mpmath.log((1 + mpmath.exp(x)) / 2), z)
    np.testing.assert_allclose(came, expected, rtol=8 * EPS)
