"""Divergences: known relations, limits, boxes and refusals."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from fferm.divergences import (
    KL,
    RATIO_FLOOR,
    STANDARD,
    Affine,
    Alpha,
    Divergence,
    LinearTail,
    TotalVariation,
    curvature_scaled,
    get,
    trainable,
)
from fferm.divergences.base import FEW, is_kept, strip
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.metrics.certificates import violation_bound

T = np.exp(np.linspace(-6, 6, 49))
JOINT = np.array([[0.30, 0.15], [0.25, 0.30]])
EPS = np.finfo(np.float64).eps


def neyman(t):
    return (t - 1) ** 2 / t


@pytest.mark.parametrize(
    ("power", "factor", "other"),
    [
        (2.0, 0.5, get("chi2")),
        (1.0, 1.0, get("kl")),
        (0.5, 2.0, get("squared_hellinger")),
        (0.0, 1.0, get("reverse_kl")),
    ],
)
def test_alpha_passes_through_its_famous_members(power, factor, other):
    alpha = Alpha(power=power)
    for formula in ("f", "f_prime", "f_second"):
        np.testing.assert_allclose(
            getattr(alpha, formula)(T, np),
            factor * getattr(other, formula)(T, np),
            rtol=1e-12,
            atol=1e-14,
        )


def test_alpha_of_minus_one_is_half_of_neyman():
    np.testing.assert_allclose(
        Alpha(power=-1.0).f(T, np), neyman(T) / 2, rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_alpha_is_continuous_where_its_formula_divides_by_zero(power):
    exact, near = Alpha(power=power), Alpha(power=power + 1e-10)
    for formula in ("f", "f_prime", "f_second"):
        # The derivative by the power is bounded by squared logarithms times f.
        np.testing.assert_allclose(
            getattr(near, formula)(T, np),
            getattr(exact, formula)(T, np),
            rtol=1e-8,
        )


def test_jensen_shannon_is_twice_the_divergence_to_the_midpoint():
    q = JOINT.sum(axis=1, keepdims=True) * JOINT.sum(axis=0)
    middle = (JOINT + q) / 2
    twice = np.sum(JOINT * np.log(JOINT / middle)) + np.sum(q * np.log(q / middle))
    assert get("js").between(JOINT) == pytest.approx(twice, rel=1e-12)


def test_kl_is_the_mutual_information():
    q = JOINT.sum(axis=1, keepdims=True) * JOINT.sum(axis=0)
    expected = np.sum(JOINT * np.log(JOINT / q))
    assert get("kl").between(JOINT) == pytest.approx(expected, rel=1e-12)


def test_chi2_of_perfect_prediction_counts_groups():
    assert get("chi2").between(np.eye(4) / 4) == pytest.approx(3.0)


@pytest.mark.parametrize("u", [1e-12, -1e-12, 1e-8, -1e-6, 1e-3])
@pytest.mark.parametrize(
    ("name", "curvature"),
    [("chi2", 2), ("kl", 1), ("reverse_kl", 1), ("js", 0.5), ("hellinger", 0.5)],
)
def test_the_generator_keeps_its_digits_near_one(name, curvature, u):
    t = np.float64(1 + u)
    rounded = t - 1  # u as the ratio holds it
    expected = curvature / 2 * rounded**2
    # The next term of the series is smaller by a factor of u.
    near = {"rel": abs(u) + 100 * EPS, "abs": 0}
    assert get(name).f(t, np) == pytest.approx(expected, **near)


@pytest.mark.parametrize("t", [1e-20, 1e-100, 1e-300])
def test_the_slope_of_jensen_shannon_survives_tiny_ratios(t):
    expected = math.log(2) + math.log(t)
    assert get("js").f_prime(np.float64(t), np) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("z", [1e-12, -1e-9, 1e-6, -1e-3])
def test_the_log_ratio_form_of_jensen_shannon_keeps_its_digits(z):
    # ln((1 + e^z) / 2) = z/2 + z^2/8 - z^4/192 + ...
    expected = z / 2 + z * z / 8 - z**4 / 192
    js = get("js")
    charge, dual = js.conjugate_at(np.float64(z), np), js.dual_at(np.float64(-z), np)
    assert charge == pytest.approx(expected, rel=1e-14, abs=0)
    assert dual == pytest.approx(-expected, rel=1e-14, abs=0)


def test_total_variation_has_slope_zero_at_its_kink():
    assert get("tv").f_prime(np.float64(1.0), np) == 0


def test_the_rounding_of_total_variation_costs_at_most_an_eighth_of_its_width():
    gap = TotalVariation().f(T, np) - TotalVariation(smoothing=0.4).f(T, np)
    assert gap.min() >= 0
    assert gap.max() == pytest.approx(0.05)


def test_training_rounds_the_kink_and_keeps_a_wider_rounding():
    assert get("tv").smoothed().smoothing > 0
    assert TotalVariation(smoothing=0.1).smoothed() == TotalVariation(smoothing=0.1)


@pytest.mark.parametrize("wrap", [lambda d: Affine(d, 2.0, 1.0), LinearTail])
def test_smoothing_reaches_through_transformations(wrap):
    assert not wrap(TotalVariation()).is_smooth
    assert wrap(TotalVariation()).smoothed().is_smooth


def test_what_is_smooth_already_is_left_as_it_is():
    assert KL().smoothed() == KL()


def test_trainable_bounds_the_dual_and_keeps_an_empty_cell_finite():
    table = np.array([[0.5, 0.0], [0.2, 0.3]])
    assert get("reverse_kl").between(table) == math.inf
    bounded = trainable(get("reverse_kl"))
    assert math.isfinite(bounded.between(table))
    assert bounded.slope_at_zero == get("reverse_kl").f_prime(RATIO_FLOOR, np)


def test_the_dual_box_is_reached_at_the_floor_and_by_perfect_prediction():
    low, high = get("kl").dual_box(np.array([0.25, 0.75]), floor=0.01)
    assert low == pytest.approx(math.log(0.01))
    np.testing.assert_allclose(high, np.log([4, 4 / 3]))


def test_the_dual_box_of_an_absent_group_is_open():
    _, high = get("kl").dual_box(np.array([0.0, 1.0]))
    assert high[0] == math.inf


@pytest.mark.parametrize(
    ("name", "value"),
    [("chi2", 1.0), ("kl", math.log(2)), ("tv", 0.5), ("reverse_kl", math.inf)],
)
def test_the_largest_value_of_two_even_groups(name, value):
    assert get(name).largest(np.array([0.5, 0.5])) == pytest.approx(value)


@pytest.mark.parametrize("name", ["chi2", "kl", "reverse_kl"])
def test_one_group_allows_no_divergence(name):
    assert get(name).largest(np.array([1.0, 0.0])) == pytest.approx(0.0)


def test_the_largest_value_beside_one_overwhelming_group_is_no_nan():
    assert get("reverse_kl").largest(np.array([1.0, 1e-20])) == math.inf
    assert get("kl").largest(np.array([1.0, 1e-200])) >= 0


def test_the_perspective_takes_its_limits_where_the_product_is_empty():
    p, q = np.array([0.0, 0.2, 0.0]), np.array([0.0, 0.0, 0.3])
    np.testing.assert_allclose(get("tv").perspective(p, q), [0.0, 0.1, 0.15])
    np.testing.assert_allclose(get("kl").perspective(p, q), [0.0, math.inf, 0.3])


def test_slopes_are_infinite_not_nan_where_the_joint_is_empty():
    by_p, by_q = get("reverse_kl").slopes(np.array([0.0, 0.0]), np.array([0.3, 0.0]))
    np.testing.assert_array_equal(by_p, [-math.inf, 0.0])
    np.testing.assert_array_equal(by_q, [math.inf, 0.0])


def test_a_tilt_gives_no_slope_to_a_cell_that_belongs_to_nobody():
    tilted, nobody = Affine(get("kl"), slope=3.0), np.array([0.0, 0.2])
    by_p, by_q = tilted.slopes(nobody, np.zeros(2))
    np.testing.assert_array_equal(by_p, [0.0, math.inf])
    np.testing.assert_array_equal(by_q, [0.0, -math.inf])


def test_under_its_transformations_a_divergence_has_a_factor_and_a_floor():
    tilted = Affine(LinearTail(Affine(KL(), 3.0), floor=0.2), 2.0, slope=1.0)
    assert strip(tilted) == (KL(), 6.0, 0.2)
    assert strip(LinearTail(KL(), floor=1e-9)) == (KL(), 1.0, RATIO_FLOOR)


def test_only_our_divergences_as_they_are_by_name_stay_in_the_cache():
    assert is_kept(KL())
    assert is_kept(get("tv").smoothed())
    assert not is_kept(Alpha(power=3.0))
    assert not is_kept(Unnormalised())


def test_tables_need_not_be_normalised():
    assert get("kl").between(100 * JOINT) == pytest.approx(get("kl").between(JOINT))


@pytest.mark.parametrize(
    "table",
    [np.ones(3), np.zeros((2, 2)), np.array([[1.0, -0.1], [0.1, 0.1]]), [[np.nan, 1]]],
)
def test_what_is_no_table_is_refused(table):
    with pytest.raises(InvalidInputError, match="must hold non-negative"):
        get("kl").between(table)


@pytest.mark.parametrize("name", ["kl", "reverse_kl", "squared_hellinger"])
def test_the_paper_tilts_three_divergences_and_changes_no_value(name):
    paper = get(name, normalisation="paper")
    assert paper.f_prime(np.float64(1.0), np) in (-1.0, 1.0)
    assert paper.between(JOINT) == pytest.approx(get(name).between(JOINT), rel=1e-12)


@dataclass(frozen=True)
class Unnormalised(Divergence, abstract=True):  # abstract: other tests need not know it
    """A user's own ``1000 t ln t - shift``, a tilted kl if nothing is taken away."""

    shift: float = 0.0

    def f(self, t, xp):
        return 1000 * t * xp.log(t) - self.shift

    def f_prime(self, t, xp):
        return 1000 * (xp.log(t) + 1)

    def conjugate(self, a, xp):
        return 1000 * xp.exp(a / 1000 - 1) + self.shift

    def conjugate_prime(self, a, xp):
        return xp.exp(a / 1000 - 1)


PAPER_FORMS = [get(name, normalisation="paper") for name in STANDARD]


def independent_tables():
    """Yield tables of few and many cells that differ from independence by rounding."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        shape = rng.integers(2, 6), rng.integers(2, 30)
        yield np.outer(*(rng.dirichlet(np.full(n, 0.9)) for n in shape))


@pytest.mark.parametrize(
    "divergence",
    [
        *PAPER_FORMS,
        *map(trainable, PAPER_FORMS),
        *(Affine(d, scale=3.0, slope=1e6) for d in PAPER_FORMS),
        get("kl", normalisation="paper", scale="curvature"),
        Alpha(power=3.0),
        Unnormalised(),
    ],
    ids=repr,
)
def test_rounding_never_makes_a_divergence_negative(divergence):
    for table in independent_tables():
        assert divergence.between(table) >= 0


def test_a_tilt_adds_none_of_its_rounding_to_a_divergence():
    tilted = Affine(get("kl"), slope=1e9)
    for table in [JOINT, *independent_tables()]:
        assert tilted.between(table) == get("kl").between(table)


@pytest.mark.parametrize("shift", [1.0, 1e-9])
def test_a_generator_that_is_negative_at_1_is_not_taken_for_rounding(shift):
    value = Unnormalised(shift=shift).between(np.full((2, 2), 0.25))
    assert value == pytest.approx(-shift, rel=1e-3)
    with pytest.raises(InvalidInputError, match="non-negative"):
        violation_bound(value, [0.5, 0.5], Unnormalised(shift=shift))


@pytest.mark.parametrize("name", ["chi2", "tv", "js", "alpha"])
def test_the_paper_leaves_the_others_canonical(name):
    assert get(name, normalisation="paper") == get(name)


def test_the_paper_forms_are_those_it_prints():
    np.testing.assert_allclose(
        get("kl", normalisation="paper").f(T, np), T * np.log(T), atol=1e-12
    )
    np.testing.assert_allclose(
        get("reverse_kl", normalisation="paper").f(T, np), -np.log(T), atol=1e-12
    )
    np.testing.assert_allclose(
        get("hellinger", normalisation="paper").f(T, np),
        2 * (1 - np.sqrt(T)),
        atol=1e-12,
    )


@pytest.mark.parametrize("name", ["chi2", "kl", "reverse_kl", "js", "hellinger"])
def test_curvature_scaling_makes_every_divergence_chi2_near_independence(name):
    scaled = get(name, scale="curvature")
    assert scaled.f_second(np.float64(1.0), np) == pytest.approx(2.0)


def test_scaling_by_curvature_keeps_the_normalisation_of_the_paper():
    both = get("kl", normalisation="paper", scale="curvature")
    assert both.f_prime(np.float64(1.0), np) == pytest.approx(2.0)
    np.testing.assert_allclose(both.f(T, np), 2 * T * np.log(T), atol=1e-12)


def test_a_kink_has_no_curvature_to_scale_by():
    with pytest.raises(InvalidParameterError, match="total_variation has a kink"):
        curvature_scaled(get("tv"))


@pytest.mark.parametrize("options", [{"normalisation": "old"}, {"scale": "unit"}])
def test_unknown_options_are_refused(options):
    with pytest.raises(InvalidParameterError, match="normalisation must be 'canon"):
        get("kl", **options)


@pytest.mark.parametrize("power", [math.inf, math.nan])
def test_alpha_refuses_a_power_that_is_no_number(power):
    with pytest.raises(InvalidParameterError, match="power must be finite"):
        Alpha(power=power)


@pytest.mark.parametrize("smoothing", [-0.1, 3.0, math.nan])
def test_total_variation_refuses_a_width_out_of_range(smoothing):
    with pytest.raises(
        InvalidParameterError, match="smoothing must be between 0 and 2"
    ):
        TotalVariation(smoothing=smoothing)


@pytest.mark.parametrize("floor", [0.0, 1.0, -1.0, math.nan])
def test_a_linear_tail_refuses_a_floor_out_of_range(floor):
    with pytest.raises(InvalidParameterError, match="between 0 and 1"):
        LinearTail(KL(), floor=floor)


@pytest.mark.parametrize(
    "change", [{"scale": 0.0}, {"scale": -1.0}, {"scale": np.inf}, {"slope": np.inf}]
)
def test_an_affine_change_must_keep_the_divergence_convex(change):
    with pytest.raises(InvalidParameterError, match="positive scale"):
        Affine(KL(), **change)


@pytest.mark.parametrize("name", ["chi2", "kl", "reverse_kl", "js", "hellinger"])
def test_the_default_curvature_agrees_with_the_written_one(name):
    divergence = get(name)
    default = Divergence.f_second(divergence, T, np)
    np.testing.assert_allclose(default, divergence.f_second(T, np), rtol=1e-8)


def test_the_default_curvature_is_finite_at_an_empty_cell():
    default = Divergence.f_second(get("chi2"), np.array([0.0, 1e-300]), np)
    np.testing.assert_allclose(default, 2.0, rtol=1e-4)


@pytest.mark.parametrize("name", ["chi2", "kl", "reverse_kl", "tv", "js", "hellinger"])
def test_default_limits_agree_with_the_written_ones(name):
    divergence = get(name)
    for limit in ("value_at_zero", "slope_at_zero", "slope_at_infinity"):
        default = getattr(Divergence, limit).fget(divergence)
        assert default == pytest.approx(getattr(divergence, limit), rel=1e-12)


TRANSFORMED = Affine(get("js"), scale=2.0, slope=0.5)


def test_a_scale_and_a_tilt_reach_every_formula():
    base, log_t = get("js"), np.log(T)
    slope = base.f_prime(T, np)
    for found, expected in [
        (TRANSFORMED.f(T, np), 2 * base.f(T, np) + 0.5 * (T - 1)),
        (TRANSFORMED.f_prime(T, np), 2 * slope + 0.5),
        (TRANSFORMED.f_second(T, np), 2 * base.f_second(T, np)),
        (
            TRANSFORMED.conjugate(2 * slope + 0.5, np),
            2 * base.conjugate(slope, np) + 0.5,
        ),
        (TRANSFORMED.conjugate_prime(2 * slope + 0.5, np), T),
        (TRANSFORMED.dual_at(log_t, np), 2 * slope + 0.5),
        (TRANSFORMED.conjugate_at(log_t, np), 2 * base.conjugate(slope, np) + 0.5),
    ]:
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_a_scale_and_a_tilt_reach_every_limit():
    assert TRANSFORMED.value_at_zero == pytest.approx(2 * math.log(2) - 0.5)
    assert TRANSFORMED.slope_at_zero == -math.inf
    assert TRANSFORMED.slope_at_infinity == pytest.approx(2 * math.log(2) + 0.5)
    assert TRANSFORMED.dual_domain == (-math.inf, TRANSFORMED.slope_at_infinity)
    tilted = Affine(get("hellinger"), scale=3.0, slope=-0.25)
    assert tilted.dual_domain == (tilted.slope_at_zero, tilted.slope_at_infinity)
    total = Affine(get("tv"), scale=2.0, slope=0.5)
    assert total.dual_domain == pytest.approx((-0.5, 1.5))


@pytest.mark.parametrize("name", STANDARD)
@pytest.mark.parametrize("n_groups", [3, FEW])
@pytest.mark.parametrize("has_empty", [False, True])
def test_few_cells_and_many_have_the_value_and_slopes_of_their_sum(
    name, n_groups, has_empty
):
    divergence = LinearTail(get(name).smoothed(), floor=0.2)
    joint = np.random.default_rng(0).dirichlet(np.ones(4 * n_groups)).reshape(4, -1)
    if has_empty:
        joint[:, 1] = 0.0
    product = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    value, by_p, by_q = divergence.value_and_slopes(joint, product)
    cells = divergence.perspective(joint, product)
    assert value == pytest.approx(cells.sum(), rel=1e-13)
    ratio = joint / np.where(product > 0, product, 1.0)
    dual = np.where(product > 0, divergence.f_prime(ratio, np), 0.0)
    np.testing.assert_allclose(by_p, dual, rtol=1e-12, atol=1e-14)
    # A perspective is the sum of its slopes, each times its own cell.
    np.testing.assert_allclose(
        joint * by_p + product * by_q, cells, rtol=1e-9, atol=1e-14
    )
