"""Dual tables against arithmetic by hand: ends, speed, weights and places of rows."""

import math

import numpy as np
import pytest

from fferm.data.groups import Attribute
from fferm.data.rows import Rows
from fferm.divergences import RATIO_FLOOR, Affine, LinearTail, TotalVariation, get
from fferm.notions import Strata
from fferm.penalty.dual import (
    NO_GROUPS,
    STEEPEST_DUAL,
    DualVariable,
    dual_variable,
    group_ends,
    group_weights,
    place_rows,
)

RATIO = np.array([1e-3, 0.2, 1.0, 7.0])
SMOOTH = ("chi2", "kl", "reverse_kl", "jensen_shannon", "squared_hellinger")
# Six rows in two strata, one outside both; groups of two attributes, one unknown.
WEIGHT = np.array([1.0, 2.0, 1.0, 3.0, 1.0, 2.0])
STRATUM = np.array([0, 0, 1, 1, 1, -1])
FIRST = np.array([0, 1, 0, 0, 1, 1])
SECOND = np.array([2, 0, -1, 2, 2, 0])


def rows_of(*codes, strata=("y=0", "y=1")):
    attributes = tuple(
        Attribute(f"s{n}", tuple("abc"[: code.max() + 1]), code)
        for n, code in enumerate(codes)
    )
    return Rows(attributes, Strata(STRATUM, strata), WEIGHT)


@pytest.mark.parametrize("how", ["log_ratio", "projected"])
@pytest.mark.parametrize("name", SMOOTH)
def test_the_best_variable_of_a_ratio_stands_for_that_ratio(name, how):
    variable = dual_variable(get(name), how)
    best = variable.best(RATIO)
    dual, conjugate = variable.dual_and_conjugate(best, np)
    np.testing.assert_allclose(variable.ratio(best, np), RATIO, rtol=1e-12)
    np.testing.assert_allclose(dual, get(name).f_prime(RATIO, np), rtol=1e-12)
    # Fenchel: the conjugate is A t - f(t) at the best dual.
    np.testing.assert_allclose(
        conjugate, dual * RATIO - get(name).f(RATIO, np), rtol=1e-11, atol=1e-13
    )


@pytest.mark.parametrize("how", ["log_ratio", "projected"])
def test_the_variable_ends_at_its_floor_and_at_one_over_the_share_of_a_group(how):
    variable = dual_variable(LinearTail(get("kl"), floor=0.02), how)
    assert variable.floor == 0.02
    assert variable.lower == pytest.approx(math.log(0.02))
    assert variable.best(np.array([1e-9]))[0] == pytest.approx(math.log(0.02))
    upper = variable.upper(np.array([[0.25, 0.75], [1.0, 0.0]]))
    np.testing.assert_allclose(upper, np.log([[4, 4 / 3], [1, 1]]), atol=1e-15)


def test_the_floor_of_training_is_taken_where_none_is_given():
    assert dual_variable(get("kl")).floor == RATIO_FLOOR
    assert dual_variable(LinearTail(get("kl"), floor=1e-6)).floor == RATIO_FLOOR


def test_a_factor_and_a_tilt_leave_the_dual_to_the_divergence_below():
    variable = dual_variable(Affine(get("chi2"), scale=3.0, slope=1.0))
    assert variable == DualVariable(get("chi2"), RATIO_FLOOR, is_projected=False)


@pytest.mark.parametrize(("name", "curvature"), [("chi2", 2.0), ("js", 0.5)])
def test_a_projected_dual_moves_as_fast_as_the_generator_is_curved(name, curvature):
    assert dual_variable(get(name), "projected").speed == pytest.approx(curvature)
    assert dual_variable(get(name), "log_ratio").speed == 1.0


def test_only_a_dual_that_is_little_more_than_a_sign_is_projected_by_itself():
    assert not dual_variable(get("chi2")).is_projected
    assert dual_variable(get("tv")).is_projected
    assert dual_variable(get("tv")).speed == STEEPEST_DUAL
    # One over the width of the kink is its curvature.
    assert not dual_variable(TotalVariation(smoothing=1 / STEEPEST_DUAL)).is_projected
    assert dual_variable(TotalVariation(smoothing=0.9 / STEEPEST_DUAL)).is_projected


def test_groups_are_numbered_through_all_attributes():
    rows = rows_of(FIRST, SECOND)
    np.testing.assert_array_equal(group_ends(rows), [0, 2, 5])
    stratum, group, share = place_rows(rows)
    np.testing.assert_array_equal(stratum, STRATUM)
    np.testing.assert_array_equal(group[:, 0], FIRST)
    np.testing.assert_array_equal(group[:, 1], [4, 2, -1, 4, 4, 2])
    np.testing.assert_allclose(share, WEIGHT / 10)


def test_one_attribute_keeps_the_codes_of_its_rows():
    _, group, _ = place_rows(rows_of(SECOND))
    np.testing.assert_array_equal(group, SECOND[:, None])


def test_the_weights_of_groups_and_strata_are_those_counted_by_hand():
    weights = group_weights(rows_of(FIRST, SECOND), "unit")
    np.testing.assert_array_equal(weights.ends, [0, 2, 5])
    np.testing.assert_allclose(
        weights.prior, [[1 / 3, 2 / 3, 2 / 3, 0, 1 / 3], [4 / 5, 1 / 5, 0, 0, 1]]
    )
    # One over the weight of a stratum among all ten, for either attribute.
    np.testing.assert_allclose(weights.share, [[10 / 3, 10 / 3], [10 / 5, 10 / 4]])
    np.testing.assert_allclose(weights.factor, weights.share)


def test_strata_by_frequency_count_as_their_share_of_the_rows_in_one():
    weights = group_weights(rows_of(FIRST, SECOND), "frequency")
    np.testing.assert_allclose(
        weights.factor * [[0.3, 0.3], [0.5, 0.4]],
        [[3 / 8, 3 / 7], [5 / 8, 4 / 7]],
    )


def test_a_stratum_of_nobody_has_no_weight():
    weights = group_weights(rows_of(FIRST, strata=("y=0", "y=1", "y=2")), "unit")
    np.testing.assert_array_equal(weights.prior[2], [0, 0])
    assert weights.share[2] == weights.factor[2] == 0


def test_without_groups_there_is_nothing_to_weigh():
    assert [part.size for part in NO_GROUPS] == [0, 0, 0, 1]
    assert NO_GROUPS.ends[0] == 0
