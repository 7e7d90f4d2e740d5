"""Tables of predictions by group: how rows become one, and what is refused."""

import math

import numpy as np
import pytest

from fferm import tables
from fferm.data.rows import CellIndex
from fferm.divergences import get
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.uncertainty import LargeShift, SmallShift

PROB = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.5, 0.5]])
GROUP = np.array([0, 1, 1, 0])
STRATUM = np.array([0, 0, 1, 1])


def test_the_joint_averages_probabilities_by_group():
    expected = np.array([[0.9 + 0.5, 0.4 + 0.2], [0.1 + 0.5, 0.6 + 0.8]]) / 4
    np.testing.assert_allclose(tables.joint(PROB, GROUP, 2), expected, rtol=1e-15)


def test_groups_that_nobody_belongs_to_keep_their_column():
    table = tables.joint(PROB, GROUP, 3)
    assert table.shape == (2, 3)
    np.testing.assert_array_equal(table[:, 2], 0.0)


def test_rows_of_unknown_group_are_left_out():
    group = np.array([0, 1, 1, -1])
    table = tables.joint(PROB, group, 2)
    np.testing.assert_allclose(table, tables.joint(PROB[:3], GROUP[:3], 2))
    assert table.sum() == pytest.approx(1.0)


def test_weights_count_like_repeated_rows():
    weighted = tables.joint(PROB, GROUP, 2, sample_weight=np.array([2.0, 1, 0, 3]))
    rows = [0, 0, 1, 3, 3, 3]
    repeated = tables.joint(PROB[rows], GROUP[rows], 2)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-15)


def test_the_scale_of_weights_does_not_matter():
    weight = np.array([2.0, 1, 0.5, 3])
    np.testing.assert_allclose(
        tables.joint(PROB, GROUP, 2, sample_weight=weight),
        tables.joint(PROB, GROUP, 2, sample_weight=1e6 * weight),
        rtol=1e-14,
    )


def test_strata_add_up_to_the_joint():
    table = tables.joint(PROB, GROUP, 2, stratum=STRATUM)
    assert table.shape == (2, 2, 2)
    np.testing.assert_allclose(table.sum(axis=0), tables.joint(PROB, GROUP, 2))


def test_rows_outside_of_strata_count_in_the_total_only():
    stratum = np.array([0, 0, -1, -1])
    table = tables.joint(PROB, GROUP, 2, stratum=stratum)
    assert table.shape == (1, 2, 2)
    assert table.sum() == pytest.approx(0.5)


def test_empty_strata_keep_their_table():
    table = tables.joint(PROB, GROUP, 2, stratum=STRATUM, n_strata=3)
    np.testing.assert_array_equal(table[2], 0.0)


def test_cells_make_the_same_table():
    cells = CellIndex(slice(None), STRATUM * 2 + GROUP, np.ones(4), (2, 2), 4.0)
    table = cells.table(PROB, cells.share, 2)
    np.testing.assert_allclose(table, tables.joint(PROB, GROUP, 2, stratum=STRATUM))


def test_decisions_make_the_table_of_their_one_hot_rows():
    rng = np.random.default_rng(3)
    code, cell = rng.integers(3, size=50), rng.integers(8, size=50)
    cells = CellIndex(slice(None), cell, rng.random(50), (2, 4), 1.0)
    np.testing.assert_array_equal(
        cells.table(code, cells.weight, 3),
        cells.table(np.eye(3)[code], cells.weight, 3),
    )


@pytest.mark.parametrize(
    ("prob", "group"),
    [
        (PROB[:, :1], GROUP),  # would broadcast to (n, n) and see nothing
        (PROB[:, 0], GROUP),
        (PROB, GROUP[:, None]),
        (PROB, GROUP[:3]),
    ],
)
def test_shapes_that_would_broadcast_are_refused(prob, group):
    with pytest.raises(InvalidInputError, match=r"would broadcast to \(n, n\)"):
        tables.joint(prob, group, 2)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (GROUP.astype(float), "integer codes"),
        (np.array([0, 1, 2, 0]), "got 0 to 2"),
        (np.array([0, 1, -2, 0]), "got -2 to 1"),
        (np.full(4, -1), "No row has a known group"),
    ],
)
def test_bad_groups_are_refused(group, message):
    with pytest.raises(InvalidInputError, match=message):
        tables.joint(PROB, group, 2)


@pytest.mark.parametrize(
    ("stratum", "message"),
    [
        (STRATUM[:3], "one integer per row"),
        (STRATUM.astype(float), "dtype float64"),
        (STRATUM + 1, "got 1 to 2"),
        (STRATUM - 2, "got -2 to -1"),
    ],
)
def test_bad_strata_are_refused(stratum, message):
    with pytest.raises(InvalidInputError, match=message):
        tables.joint(PROB, GROUP, 2, stratum=stratum, n_strata=2)


@pytest.mark.parametrize(
    "weight", [np.ones(3), np.ones((4, 1)), np.array([1, -1, 1, 1]), np.full(4, np.nan)]
)
def test_bad_weights_are_refused(weight):
    with pytest.raises(InvalidInputError, match="non-negative weight per row"):
        tables.joint(PROB, GROUP, 2, sample_weight=weight)


def test_weights_that_are_all_zero_are_refused():
    with pytest.raises(InvalidInputError, match="positive weight"):
        tables.joint(PROB, GROUP, 2, sample_weight=np.zeros(4))


TABLE = np.array([[0.30, 0.15], [0.25, 0.30]])


def test_the_penalty_of_one_table_is_its_divergence():
    value, payoff = tables.penalty(TABLE, "kl")
    assert value == pytest.approx(get("kl").between(TABLE), rel=1e-14)
    assert payoff.shape == TABLE.shape


def test_strata_count_one_each_or_as_their_share():
    strata = np.stack([0.2 * TABLE, 0.8 * TABLE[::-1]])
    one = get("kl").between(TABLE)
    assert tables.penalty(strata, "kl")[0] == pytest.approx(2 * one)
    frequency, _ = tables.penalty(strata, "kl", weighting="frequency")
    assert frequency == pytest.approx(one)


def test_an_empty_stratum_costs_nothing_and_pays_nothing():
    strata = np.stack([TABLE, np.zeros((2, 2))])
    value, payoff = tables.penalty(strata, "kl")
    assert value == pytest.approx(tables.penalty(TABLE, "kl")[0], rel=1e-14)
    np.testing.assert_array_equal(payoff[1], 0.0)


def test_a_group_that_nobody_belongs_to_changes_no_value():
    with_empty = np.insert(TABLE, 1, 0.0, axis=1)
    value, payoff = tables.penalty(with_empty, "reverse_kl")
    expected, slopes = tables.penalty(TABLE, "reverse_kl")
    assert value == pytest.approx(expected, rel=1e-15)
    np.testing.assert_allclose(payoff[:, [0, 2]], slopes, rtol=1e-14)
    assert np.isfinite(payoff).all()


@pytest.mark.parametrize("name", ["kl", "reverse_kl", "js", "hellinger"])
def test_an_empty_cell_pulls_without_bound_and_makes_no_nan(name):
    table = np.array([[0.4, 0.0], [0.25, 0.35]])
    _, payoff = tables.penalty(table, name)
    assert payoff[0, 1] == -math.inf
    assert not np.isnan(payoff).any()
    _, payoff = tables.sufficiency(np.stack([table, table], axis=1) / 2, name)
    assert payoff[0, 0, 1] == -math.inf
    assert not np.isnan(payoff).any()


@pytest.mark.parametrize(
    "table",
    [
        np.ones(3),
        np.ones((2, 2, 2, 2)),
        -TABLE,
        np.zeros((2, 2)),
        np.array([[np.nan, 0.5], [0.2, 0.3]]),
    ],
)
def test_what_is_no_table_is_refused(table):
    with pytest.raises(InvalidInputError, match="must hold non-negative prob"):
        tables.penalty(table, "kl")


def labels_by_class_by_group():
    rng = np.random.default_rng(3)
    return rng.dirichlet(np.ones(12)).reshape(2, 3, 2)


def test_sufficiency_averages_the_divergence_given_each_prediction():
    table = labels_by_class_by_group()
    expected = sum(table[:, j].sum() * get("kl").between(table[:, j]) for j in range(3))
    assert tables.sufficiency(table, "kl")[0] == pytest.approx(expected, rel=1e-14)


def test_sufficiency_holds_where_labels_ignore_the_group_given_the_prediction():
    by_label = np.array([[0.2, 0.5, 0.9], [0.8, 0.5, 0.1]])  # P(y | yhat)
    by_group = np.array([[0.3, 0.1], [0.1, 0.2], [0.2, 0.1]])  # P(yhat, s)
    value, payoff = tables.sufficiency(by_label[:, :, None] * by_group, "kl")
    assert value == pytest.approx(0.0, abs=1e-15)
    np.testing.assert_allclose(payoff, 0.0, atol=1e-14)


def test_predictive_parity_counts_one_prediction():
    table = labels_by_class_by_group()
    value, payoff = tables.sufficiency(table, "kl", predicted=2)
    expected = table[:, 2].sum() * get("kl").between(table[:, 2])
    assert value == pytest.approx(expected, rel=1e-14)
    np.testing.assert_array_equal(payoff[:, :2], 0.0)


def test_a_prediction_that_nobody_gets_costs_nothing():
    table = labels_by_class_by_group()
    table[:, 1] = 0.0
    value, payoff = tables.sufficiency(table, "kl")
    assert math.isfinite(value)
    np.testing.assert_array_equal(payoff[:, 1], 0.0)


def test_sufficiency_needs_labels_as_strata():
    with pytest.raises(InvalidInputError, match="labels x classes x groups"):
        tables.sufficiency(TABLE, "kl")


@pytest.mark.parametrize(
    "shift", [SmallShift(0.01, coupled=True), LargeShift(0.01, mode="coupled")]
)
def test_sufficiency_refuses_coupled_uncertainty(shift):
    with pytest.raises(InvalidParameterError, match="not coupled"):
        tables.sufficiency(labels_by_class_by_group(), "kl", shift)


@pytest.mark.parametrize("shift", [SmallShift(0.01), LargeShift(0.01)])
def test_uncertainty_raises_the_penalty(shift):
    plain, _ = tables.penalty(TABLE, "kl")
    robust, payoff = tables.penalty(TABLE, "kl", shift)
    assert robust > plain
    assert np.isfinite(payoff).all()


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_numbers_that_are_not_finite_make_no_table(odd):
    prob, group = np.array([[odd, 1.0], [0.5, 0.5]]), np.array([0, 1])
    with pytest.raises(InvalidInputError, match="prob must hold finite prob"):
        tables.joint(prob, group, 2)
    with pytest.raises(InvalidInputError, match="finite, non-negative weight"):
        tables.joint(np.full((2, 2), 0.5), group, 2, sample_weight=np.array([1.0, odd]))
    with pytest.raises(InvalidInputError, match=r"table must.*got shape \(2, 2\)"):
        tables.penalty(prob, "kl")
