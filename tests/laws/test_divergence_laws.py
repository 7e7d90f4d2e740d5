"""Laws of every registered divergence at ratios that hypothesis chooses.

`fferm.testing.check_divergence` tries the laws on a grid with room for plain formulas;
here our own stable ones are held to a few units in the last place at any point.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import REGISTERED
from ulps import assert_same_up_to_ulps

from fferm.divergences import (
    Alpha,
    LinearTail,
    TotalVariation,
)

EPS = np.finfo(np.float64).eps
# Sums of a few terms, each right to a few units in the last place.
ROUNDING = 100 * EPS

LAW = settings(max_examples=30)

FAMILY = {
    **REGISTERED,
    "rounded_total_variation": TotalVariation(smoothing=0.01),
    **{f"alpha={a}": Alpha(power=a) for a in (-1.0, 1e-9, 1 - 1e-9, 3.0)},
}
SMOOTH = {name: d for name, d in FAMILY.items() if d.is_smooth}

# Far ratios, and ratios within any distance of 1.
ratios = st.one_of(
    st.floats(-7, 7).map(math.exp),
    st.tuples(st.floats(-15, -0.1), st.sampled_from([-1, 1])).map(
        lambda pair: 1 + pair[1] * 10 ** pair[0]
    ),
).map(np.float64)


def every(family):
    return pytest.mark.parametrize("divergence", family.values(), ids=family.keys())


@every(FAMILY)
@given(t=ratios)
@LAW
def test_the_generator_is_never_negative(divergence, t):
    assert divergence.f(t, np) >= 0


@every(FAMILY)
@given(s=ratios, t=ratios)
@LAW
def test_the_slope_never_decreases(divergence, s, t):
    low, high = divergence.f_prime(np.array([min(s, t), max(s, t)]), np)
    assert low <= high + ROUNDING * (1 + abs(high))


@every(FAMILY)
@given(t=ratios)
@LAW
def test_fenchel_young_is_an_equality_at_the_slope(divergence, t):
    slope = divergence.f_prime(t, np)
    value, charge = divergence.f(t, np), divergence.conjugate(slope, np)
    assert value + charge == pytest.approx(
        t * slope, rel=0, abs=ROUNDING * (value + abs(charge) + abs(t * slope))
    )


@every(FAMILY)
@given(s=ratios, t=ratios)
@LAW
def test_fenchel_young_is_an_inequality_elsewhere(divergence, s, t):
    dual = divergence.f_prime(s, np)
    value, charge = divergence.f(t, np), divergence.conjugate(dual, np)
    assert t * dual <= value + charge + ROUNDING * (
        value + abs(charge) + abs(t * dual) + EPS
    )


@every(SMOOTH)
@given(t=ratios)
@LAW
def test_the_slope_of_the_conjugate_is_the_ratio(divergence, t):
    curvature = divergence.f_second(t, np)
    if curvature == 0:  # linear there: one dual, many ratios
        return
    dual = divergence.f_prime(t, np)
    # The dual is known to EPS (1 + |dual|), and f*'' = 1 / f'' magnifies that.
    conditioning = 10 * EPS * (1 + abs(dual)) / curvature
    assert divergence.conjugate_prime(dual, np) == pytest.approx(
        t, rel=ROUNDING, abs=conditioning
    )


@every(FAMILY)
@given(z=st.floats(-30, 30))
@LAW
def test_log_ratio_forms_are_the_slope_and_the_conjugate(divergence, z):
    t = np.exp(np.float64(z))
    dual = divergence.f_prime(t, np)
    charge = divergence.conjugate(dual, np)
    # e^z is right to EPS |z|, which moves A by t f'' and C by t^2 f'' times that.
    shift = 4 * EPS * (1 + abs(z)) * t * divergence.f_second(t, np)
    assert divergence.dual_at(z, np) == pytest.approx(
        dual, rel=ROUNDING, abs=shift + ROUNDING
    )
    assert divergence.conjugate_at(z, np) == pytest.approx(
        charge, rel=ROUNDING, abs=t * shift + ROUNDING * (1 + t * abs(dual))
    )


@every(FAMILY)
@given(p=st.floats(1e-6, 1), q=st.floats(1e-3, 1), z=st.floats(-6, 6))
@LAW
def test_no_dual_exceeds_the_divergence_of_a_cell(divergence, p, q, z):
    gain, charge = p * divergence.dual_at(z, np), q * divergence.conjugate_at(z, np)
    best = divergence.perspective(np.float64(p), np.float64(q))
    assert gain - charge <= best + ROUNDING * (abs(gain) + abs(charge) + 1)


@every(FAMILY)
@given(prior=st.floats(1e-3, 1), share=st.floats(1e-9, 1))
@LAW
def test_no_ratio_leaves_the_dual_box_from_above(divergence, prior, share):
    _, upper = divergence.dual_box(np.array([prior]))
    dual = divergence.f_prime(np.float64(share / prior), np)
    assert dual <= upper[0] + ROUNDING * (1 + abs(upper[0]))


@pytest.mark.parametrize("power", [-2.0, -0.5, 0.0, 0.3, 0.5, 1.0, 2.5])
@given(t=ratios)
@LAW
def test_alpha_mirrors_its_power_when_the_arguments_swap(power, t):
    mirrored = t * Alpha(power=1 - power).f(1 / t, np)
    # 1 / t is right to EPS, which moves the mirrored value by t f'(1/t) / t.
    moved = abs(Alpha(power=1 - power).f_prime(1 / t, np))
    assert Alpha(power=power).f(t, np) == pytest.approx(
        mirrored, rel=ROUNDING, abs=4 * EPS * moved
    )


@every(REGISTERED)
@given(t=st.floats(0, 5), s=st.floats(0, 5), floor=st.floats(0.01, 0.9))
@LAW
def test_a_linear_tail_is_the_best_dual_above_the_slope_at_its_floor(
    divergence, t, s, floor
):
    tail = LinearTail(divergence, floor=floor)
    value = tail.f(np.float64(t), np)

    def dual_value(ratio):
        dual = divergence.f_prime(np.float64(ratio), np)
        charge = divergence.conjugate(dual, np)
        return t * dual - charge, ROUNDING * (1 + abs(t * dual) + abs(charge))

    best, slack = dual_value(max(t, floor))
    assert value == pytest.approx(best, rel=0, abs=slack)
    other, slack = dual_value(max(s, floor))
    assert other <= value + slack


@every(REGISTERED)
@given(t=st.floats(0.011, 50))
@LAW
def test_a_linear_tail_is_the_base_above_its_floor(divergence, t):
    tail, t = LinearTail(divergence, floor=0.01), np.float64(t)
    for formula in ("f", "f_prime", "f_second"):
        found, base = getattr(tail, formula), getattr(divergence, formula)
        assert_same_up_to_ulps(found(t, np), base(t, np), ulps=2)


@every(REGISTERED)
@given(t=st.floats(0, 0.3))
@LAW
def test_a_linear_tail_lies_below_the_base(divergence, t):
    tail, t = LinearTail(divergence, floor=0.3), np.float64(t)
    assert tail.f(t, np) <= divergence.f(t, np) + ROUNDING
    assert tail.f_second(t, np) == 0
    assert tail.f_prime(t, np) == pytest.approx(tail.slope_at_zero, rel=ROUNDING)
