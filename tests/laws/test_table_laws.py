"""Laws of divergences, penalties and payoffs on tables that hypothesis chooses."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from instances import REGISTERED
from numpy.testing import assert_allclose
from ulps import assert_same_up_to_ulps

from fferm import tables
from fferm.divergences import KL, Affine, LinearTail, TotalVariation, get
from fferm.metrics.certificates import curvature_constant

EPS = np.finfo(np.float64).eps
# Sums of at most 48 cells, each right to a few units in the last place.
ROUNDING = 1e-13
STEP = 1e-6

LAW = settings(max_examples=20)

FAMILY = {**REGISTERED, "high_tail": LinearTail(KL(), floor=0.5)}
SMOOTH = {
    **{name: d for name, d in FAMILY.items() if d.is_smooth},
    "rounded_total_variation": TotalVariation(smoothing=0.5),
}


def every(family):
    return pytest.mark.parametrize("divergence", family.values(), ids=family.keys())


@st.composite
def joints(draw, *, n_strata=None, with_empty=False):
    """Draw a joint of 2 to 4 classes and groups, whose entries sum to 1."""
    shape = draw(st.tuples(st.integers(2, 4), st.integers(2, 4)))
    shape = shape if n_strata is None else (n_strata, *shape)
    table = draw(hnp.arrays(float, shape, elements=st.floats(0.02, 1)))
    if with_empty:
        table *= draw(hnp.arrays(bool, shape))
        assume(table.sum() > 0)
    return table / table.sum()


def directions(draw, table, axis):
    """Draw a move of mass that keeps sums over an axis, no entry above 1."""
    move = draw(hnp.arrays(float, table.shape, elements=st.floats(-1, 1)))
    return move - move.mean(axis=axis, keepdims=True)


def difference(function, table, move):
    return (function(table + STEP * move) - function(table - STEP * move)) / (2 * STEP)


def product_of(table):
    return np.outer(table.sum(axis=1), table.sum(axis=0))


@every(FAMILY)
@given(table=joints(with_empty=True))
@LAW
def test_the_divergence_is_not_negative(divergence, table):
    assert divergence.between(table) >= -EPS


@every({**FAMILY, "tilted": Affine(KL(), 2.0, -3.0)})
@given(table=joints())
@LAW
def test_an_empty_cell_beside_a_table_changes_none_of_its_cells(divergence, table):
    product = product_of(table)
    beside = [np.pad(part, ((0, 1), (0, 0))) for part in (table, product)]
    value, slopes = divergence.perspective(*beside), divergence.slopes(*beside)
    # Here and there f, which is a difference of terms of the size of 1.
    alone = divergence.perspective(table, product) / product
    assert_same_up_to_ulps(value[:-1] / product, alone, size=1)
    for found, alone in zip(slopes, divergence.slopes(table, product), strict=True):
        assert_same_up_to_ulps(found[:-1], alone, size=1)


@every(FAMILY)
@given(table=joints())
@LAW
def test_the_divergence_vanishes_on_products(divergence, table):
    assert divergence.between(product_of(table)) <= 1e-15


@every(FAMILY)
@given(table=joints(with_empty=True), data=st.data())
@LAW
def test_no_channel_on_classes_or_groups_increases_the_divergence(
    divergence, table, data
):
    whole = divergence.between(table)
    for side in (table, table.T):
        n = len(side)
        channel = data.draw(hnp.arrays(float, (n, n), elements=st.floats(0.01, 1)))
        channel /= channel.sum(axis=0)
        seen = divergence.between(channel @ side)
        assert seen <= whole + ROUNDING * (1 + whole)


@every(FAMILY)
@given(table=joints(with_empty=True), data=st.data())
@LAW
def test_merging_classes_or_groups_never_increases_the_divergence(
    divergence, table, data
):
    whole = divergence.between(table)
    for side in (table, table.T):
        label = data.draw(hnp.arrays(int, len(side), elements=st.integers(0, 1)))
        merged = np.stack([side[label == 0].sum(axis=0), side[label == 1].sum(axis=0)])
        assert divergence.between(merged) <= whole + ROUNDING * (1 + whole)


@every(FAMILY)
@given(table=joints(with_empty=True), data=st.data())
@LAW
def test_renaming_classes_and_groups_changes_nothing(divergence, table, data):
    m, k = table.shape
    rows, columns = (
        data.draw(st.permutations(range(m))),
        data.draw(st.permutations(range(k))),
    )
    renamed = divergence.between(table[rows][:, columns])
    assert renamed == pytest.approx(divergence.between(table), rel=1e-12, abs=1e-15)


@every(FAMILY)
@given(table=joints(with_empty=True))
@LAW
def test_the_largest_value_for_these_group_weights_is_an_upper_bound(divergence, table):
    largest = divergence.largest(table.sum(axis=0))
    assert divergence.between(table) <= largest + ROUNDING * (1 + largest)


@every(FAMILY)
@given(prior=hnp.arrays(float, 3, elements=st.floats(0.05, 1)))
@LAW
def test_the_largest_value_is_attained_by_predicting_the_group(divergence, prior):
    prior = prior / prior.sum()
    perfect = divergence.between(np.diag(prior))
    assert perfect == pytest.approx(divergence.largest(prior), rel=1e-12)


@every(SMOOTH)
@pytest.mark.parametrize("weighting", ["unit", "frequency"])
@given(data=st.data())
@LAW
def test_the_payoff_is_the_slope_of_the_penalty_at_fixed_group_weights(
    divergence, weighting, data
):
    table = data.draw(joints(n_strata=2))
    move = directions(data.draw, table, axis=1) * table.min() * 0.5
    value, payoff = tables.penalty(table, divergence, weighting=weighting)
    expected = difference(
        lambda shifted: tables.penalty(shifted, divergence, weighting=weighting)[0],
        table,
        move,
    )
    # Central differences are off by EPS value / STEP, and by STEP^2 f'''.
    assert np.sum(payoff * move) == pytest.approx(
        expected, rel=1e-6, abs=1e-9 * (1 + value)
    )


@given(data=st.data())
@LAW
def test_the_payoff_of_total_variation_is_its_slope_away_from_the_kink(data):
    table = data.draw(joints())
    move = directions(data.draw, table, axis=0) * table.min() * 0.5
    assume(np.min(np.abs(table - product_of(table))) > 1e-5)
    _, payoff = tables.penalty(table, "tv")
    expected = difference(lambda shifted: tables.penalty(shifted, "tv")[0], table, move)
    assert np.sum(payoff * move) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@every(SMOOTH)
@pytest.mark.parametrize("predicted", [None, 1])
@given(data=st.data())
@LAW
def test_the_payoff_of_sufficiency_is_its_slope_in_any_direction(
    divergence, predicted, data
):
    table = data.draw(joints(n_strata=2))
    move = data.draw(hnp.arrays(float, table.shape, elements=st.floats(-1, 1)))
    move = move * table.min() * 0.5
    value, payoff = tables.sufficiency(table, divergence, predicted=predicted)
    expected = difference(
        lambda shifted: tables.sufficiency(shifted, divergence, predicted=predicted)[0],
        table,
        move,
    )
    assert np.sum(payoff * move) == pytest.approx(
        expected, rel=1e-6, abs=1e-9 * (1 + value)
    )


@every(FAMILY)
@given(table=joints(), slope=st.floats(-5, 5))
@LAW
def test_a_tilt_changes_neither_the_divergence_nor_the_payoff(divergence, table, slope):
    value, payoff = tables.penalty(table, divergence)
    tilted, shifted = tables.penalty(table, Affine(divergence, slope=slope))
    size = ROUNDING * (1 + abs(slope)) * (1 + np.abs(payoff).max())
    assert tilted == pytest.approx(value, rel=0, abs=size)
    np.testing.assert_allclose(shifted, payoff, rtol=0, atol=size)


@every(FAMILY)
@given(table=joints(), data=st.data())
@LAW
def test_a_constant_dual_gives_no_gradient_to_the_model(divergence, table, data):
    dual = divergence.f_prime(np.float64(data.draw(st.floats(0.1, 5))), np)
    prior = table.sum(axis=0)
    payoff = dual - np.sum(prior * divergence.conjugate(dual, np)) + 0 * table
    prob = data.draw(hnp.arrays(float, len(table), elements=st.floats(0.01, 1)))
    prob /= prob.sum()
    by_logits = prob[:, None] * (payoff - prob @ payoff)
    assert np.abs(by_logits).max() <= ROUNDING * (1 + np.abs(payoff).max())


@every(SMOOTH)
@given(table=joints())
@LAW
def test_the_payoff_keeps_the_model_where_it_is_at_independence(divergence, table):
    _, payoff = tables.penalty(product_of(table), divergence)
    # A ratio of 1 is right to a few EPS, and the dual to f''(1) times that.
    assert np.abs(payoff).max() <= 100 * EPS


@every(FAMILY)
@given(table=joints(n_strata=3))
@LAW
def test_strata_add_up(divergence, table):
    share = table.sum(axis=(1, 2))
    parts = np.array([divergence.between(stratum) for stratum in table])
    unit, _ = tables.penalty(table, divergence, weighting="unit")
    frequency, _ = tables.penalty(table, divergence, weighting="frequency")
    assert unit == pytest.approx(parts.sum(), rel=1e-12, abs=1e-15)
    assert frequency == pytest.approx(share @ parts, rel=1e-12, abs=1e-15)


@every(FAMILY)
@given(table=joints(n_strata=3), kept=st.floats(0.01, 1))
@LAW
def test_rows_in_no_stratum_change_neither_penalty_nor_pull(divergence, table, kept):
    for weighting in ("unit", "frequency"):
        whole, pull = tables.penalty(table, divergence, weighting=weighting)
        part, stronger = tables.penalty(kept * table, divergence, weighting=weighting)
        assert part == pytest.approx(whole, rel=1e-9, abs=1e-14)
        # A cell of the smaller table moves by less.
        assert_allclose(kept * stronger, pull, rtol=1e-9, atol=1e-12)


@given(table=joints())
@LAW
def test_chi2_is_the_sum_of_all_squared_correlations_and_the_formula_of_ermi(table):
    product = product_of(table)
    chi2 = get("chi2").between(table)
    correlations = np.linalg.svd(table / np.sqrt(product), compute_uv=False)[1:]
    # The largest is Renyi's maximal correlation; with two classes there is no other.
    assert correlations[0] ** 2 <= chi2 + ROUNDING
    assert np.sum(correlations**2) == pytest.approx(chi2, rel=1e-9, abs=ROUNDING)
    # Exponential Renyi mutual information, as FERMI defines it.
    assert np.sum(table**2 / product) - 1 == pytest.approx(chi2, rel=1e-9, abs=ROUNDING)


@every({name: d for name, d in FAMILY.items() if d.is_smooth})
@given(table=joints(with_empty=True), p=st.floats(1, 10))
@LAW
def test_the_root_of_a_divergence_bounds_every_lp_distance(divergence, table, p):
    distance = np.sum(np.abs(table - product_of(table)) ** p) ** (1 / p)
    value, kappa = divergence.between(table), curvature_constant(divergence)
    if kappa > 0:
        assert distance <= 2 ** (1 / p) * np.sqrt(value / kappa) * (1 + 1e-9) + 1e-9
    twice = 2 * get("total_variation").between(table)
    assert distance <= 2 ** (1 / p - 1) * twice + ROUNDING
