"""Rows held out: who, how many, at random, and nobody on both sides."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

from fferm.data.groups import Attribute
from fferm.data.rows import FitInput, Rows
from fferm.data.split import (
    hold_out,
    hold_out_evenly,
    keep_rows,
    kinds,
    read_rows,
    split_by_label,
    split_strata,
    take_rows,
)
from fferm.errors import InvalidInputError, InvalidParameterError, MissingSensitiveError
from fferm.notions import Strata

KIND = np.repeat([0, 1, 2, 3], [40, 10, 3, 1])
ROWS = np.array([3, 0, 3])


def test_a_kind_is_a_label_a_stratum_and_a_group_of_each_column():
    rows = Rows(
        (
            Attribute("s", ("a", "b"), np.array([0, 0, 0, 1, 0])),
            Attribute("t", ("a", "b"), np.array([0, -1, 0, 0, 0])),
        ),
        Strata(np.array([0, 0, 1, 1, 1]), ("u", "v")),
        np.ones(5),
    )
    kind = kinds(rows, np.array([1, 1, 1, 1, 0]))
    assert len(set(kind.tolist())) == 5
    again = kinds(rows.take(np.array([0, 0, 1, 1, 2])), np.array([1, 1, 1, 1, 1]))
    assert again[0] == again[1] != again[2] == again[3]


@pytest.mark.parametrize(
    ("fraction", "counts"),
    [(0.25, [10, 2, 1, 0]), (0.3, [12, 3, 1, 0]), (0.001, [1, 1, 1, 0])],
)
def test_each_kind_gives_its_share_rounded_and_at_least_one_row(fraction, counts):
    held = hold_out(KIND, fraction, 0)
    assert held.dtype == bool
    np.testing.assert_array_equal(np.bincount(KIND[held], minlength=4), counts)


def test_each_kind_keeps_at_least_one_row_to_train_on():
    kept = ~hold_out(KIND, 0.999, 0)
    np.testing.assert_array_equal(np.bincount(KIND[kept]), [1, 1, 1, 1])


def test_the_rows_held_out_are_drawn_at_random_by_the_seed():
    shuffled = np.random.default_rng(0).permutation(KIND)
    draws = [hold_out(shuffled, 0.25, seed) for seed in range(400)]
    np.testing.assert_array_equal(draws[0], hold_out(shuffled, 0.25, 0))
    # Each row of a kind is held out as often as any other: 100 of 400 times, say, with
    # a standard deviation of 9.
    often = np.mean(draws, axis=0)
    for kind, share in enumerate((10 / 40, 2 / 10, 1 / 3, 0)):
        assert np.abs(often[shuffled == kind] - share).max() < 0.12


def test_rows_that_test_a_bound_are_drawn_evenly_from_kinds_of_any_size():
    # Of two attributes most combinations are rare: singles, pairs and so on.
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 300), rng.geometric(0.15, 300) - 1
    columns = [rows_of(code) for code in codes]
    rows = replace(columns[0], attributes=tuple(c.attributes[0] for c in columns))
    label = rng.integers(0, 2, 300)

    draws = np.array([hold_out_evenly(rows, label, 0.2, seed) for seed in range(1000)])

    # A share of 1000 draws has a standard deviation of 0.013.
    assert np.abs(draws.mean(axis=0) - 0.2).max() < 0.06
    size = np.bincount(kinds(rows, label))[kinds(rows, label)]
    for n in np.unique(size[size < 5 / 0.2]):
        assert draws[:, size == n].mean() == pytest.approx(0.2, abs=0.02)
    # Each group of the first attribute gives its share, whatever the seed.
    for group in range(2):
        count = draws[:, codes[0] == group].sum(axis=1)
        assert np.ptp(count) <= 4
    np.testing.assert_array_equal(draws[0], hold_out_evenly(rows, label, 0.2, 0))


def rows_of(group):
    everyone = Strata(np.zeros(group.size, int), ("everyone",))
    attribute = Attribute("s", tuple(np.unique(group).astype(str)), group)
    return Rows((attribute,), everyone, np.ones(group.size))


def test_an_even_split_of_common_kinds_and_whole_groups_is_the_stratified_one():
    # Groups of 75, 12 and 3 rows; of the first a third has a label of its own.
    group, label = np.repeat([0, 1, 2], [75, 12, 3]), np.repeat([0, 1, 0], [50, 25, 15])
    for seed in range(20):
        held = hold_out(kinds(rows_of(group), label), 0.2, seed)
        even = hold_out_evenly(rows_of(group), label, 0.2, seed)
        np.testing.assert_array_equal(even, held)


def test_of_rare_parts_of_a_group_the_group_gives_its_share():
    group, label = (
        np.repeat([0, 1], [60, 48]),
        np.repeat([0, 1, 0, 1], [36, 24, 24, 24]),
    )
    rows = rows_of(group)
    draws = np.array([hold_out_evenly(rows, label, 0.2, seed) for seed in range(50)])
    assert set(draws[:, :36].sum(axis=1)) == {7}  # a common part
    assert set(draws[:, 60:].sum(axis=1)) == {9, 10}
    assert len(set(draws[:, 60:84].sum(axis=1))) > 3  # a rare one


def test_rows_that_are_not_kept_have_weight_0_and_are_not_removed():
    data = SimpleNamespace(
        kept=np.array([True, False, True, True]), weight=np.array([1.0, 2.0, 3.0])
    )
    passed = FitInput(np.eye(4), np.arange(4), list("abab"), np.array([1, 0, 2, 3]))
    part = keep_rows(passed, data, np.array([True, False, True]))
    np.testing.assert_array_equal(part.sample_weight, [1.0, 0.0, 0.0, 3.0])
    assert part.X is passed.X
    assert part.y is passed.y


def test_rows_are_taken_from_tables_of_every_kind():
    X = np.arange(8.0).reshape(4, 2)
    passed = FitInput(scipy.sparse.coo_array(X), list("wxyz"), {"s": list("abab")})
    part = take_rows(passed, ROWS)
    np.testing.assert_array_equal(part.X.toarray(), X[ROWS])
    assert list(part.y) == ["z", "w", "z"]
    assert {name: list(each) for name, each in part.sensitive_features.items()} == {
        "s": ["b", "a", "b"]
    }
    assert part.sample_weight is None
    frame = take_rows(FitInput(pd.DataFrame(X), pl.Series([1, 2, 3, 4])), ROWS)
    np.testing.assert_array_equal(frame.X, X[ROWS])
    assert frame.y.to_list() == [4, 1, 4]


def test_what_measures_fairness_needs_labels_and_groups():
    with pytest.raises(InvalidInputError, match="y is None"):
        read_rows(np.eye(2), None, ["a", "b"])
    with pytest.raises(MissingSensitiveError, match="needs sensitive_features"):
        read_rows(np.eye(2), [0, 1], None)
    with pytest.raises(InvalidInputError, match="3"):
        read_rows(np.eye(2), [0, 1, 1], ["a", "b"])


def test_a_column_of_labels_and_a_lazy_frame_of_groups_are_read_as_fit_does():
    groups = pl.LazyFrame({"s": ["a", "b"]})
    rows = read_rows(np.eye(2), np.array([[0], [1]]), groups, [1.0, 2.0])
    np.testing.assert_array_equal(rows.y, [0, 1])
    assert rows.sensitive_features["s"].to_list() == ["a", "b"]
    assert rows.sample_weight == [1.0, 2.0]


def numbered(y):
    return FitInput(np.arange(len(y))[:, None], np.asarray(y), np.arange(len(y)))


def test_a_split_by_label_shares_out_each_label_and_no_row_twice():
    passed = numbered([0] * 60 + [1] * 20)
    train, test = split_by_label(passed, 0.25, seed=3)
    np.testing.assert_array_equal(np.bincount(test.y), [15, 5])
    every = np.concatenate([train.X[:, 0], test.X[:, 0]])
    np.testing.assert_array_equal(np.sort(every), np.arange(80))
    np.testing.assert_array_equal(train.X[:, 0], train.sensitive_features)
    again, other = (split_by_label(passed, 0.25, seed)[1] for seed in (3, 4))
    np.testing.assert_array_equal(again.X, test.X)
    assert not np.array_equal(other.X, test.X)


@pytest.mark.parametrize("y", [[0, 0, 0, 0, 0, 1], np.arange(8) / 7])
def test_labels_that_occur_once_are_split_without_them(y):
    train, test = split_by_label(numbered(y), 0.5, seed=0)
    assert len(train.y) == len(test.y) == len(y) // 2


def test_two_rows_of_a_label_are_enough_to_part_them():
    _, test = split_by_label(numbered([0, 0, 1, 1]), 0.5, seed=0)
    assert sorted(test.y) == [0, 1]


@pytest.mark.parametrize("test_size", [0.2, 0.5])
def test_strata_give_their_share_to_within_one_row_and_nobody_is_lost(test_size):
    rng = np.random.default_rng(1)
    stratum = rng.permutation(KIND)
    train, test = split_strata(stratum, test_size, rng)
    np.testing.assert_array_equal(np.sort(np.append(train, test)), np.arange(54))
    given = np.bincount(stratum[test], minlength=4)
    assert np.all(np.abs(given - test_size * np.bincount(stratum)) < 1)


def test_each_row_is_tested_as_often_as_the_test_share_says():
    tested = np.zeros(54)
    for seed in range(600):
        tested[split_strata(KIND, 0.3, np.random.default_rng(seed))[1]] += 1
    # A standard deviation of 0.019.
    assert np.abs(tested / 600 - 0.3).max() < 0.09


def test_both_parts_of_a_split_are_in_random_order():
    train, test = split_strata(np.arange(300) // 100, 0.4, np.random.default_rng(0))
    for part in (train, test):
        assert np.any(np.diff(part) < 0)
        assert np.any(np.diff(part // 100) < 0)


@pytest.mark.parametrize(("n_rows", "test_size"), [(1, 0.5), (3, 0.999), (3, 1e-6)])
def test_a_split_that_leaves_a_part_empty_is_refused(n_rows, test_size):
    with pytest.raises(InvalidParameterError, match=f"test rows of {n_rows}"):
        split_strata(np.zeros(n_rows, int), test_size, np.random.default_rng(0))
