"""The sizes of groups, counted by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from fferm import GroupCounts
from fferm.data.group_counts import check_columns, read_cells, read_counts
from fferm.errors import InvalidInputError, InvalidTypeError

TWO = {"sex": ["f", "m", "f", None], "race": ["x", "x", "y", "y"]}


def counted(*batches):
    counts = GroupCounts()
    for batch in batches:
        counts.update(**batch)
    return counts


def test_cells_are_the_different_rows_in_order_with_none_for_what_is_missing():
    cells = read_cells({"sex": ["m", "f", None, "m"], "race": ["x", "y", "x", "x"]})
    assert cells.columns == ("sex", "race")
    assert [cells.values[k] for k in cells.code] == [
        ("m", "x"),
        ("f", "y"),
        (None, "x"),
        ("m", "x"),
    ]
    assert len(cells.values) == 3
    assert cells.code.dtype == np.int64
    assert cells.code.shape == (4,)


def test_before_any_batch_nothing_is_known():
    counts = GroupCounts()
    assert (counts.n_rows, counts.columns, counts.total) == (0, None, 0)
    assert (counts.has_labels, counts.labels, counts.cells) == (False, [], {})
    assert counts.shares() == {}


def test_weights_of_labels_and_groups_add_up_over_batches():
    counts = counted(
        {
            "sensitive_features": ["a", "b", "b"],
            "y": [1, 0, 1],
            "sample_weight": [2.0, 1.0, 0.5],
        },
        {"sensitive_features": ["b", "a"], "y": [1, 0], "sample_weight": [0.0, 4.5]},
    )
    assert counts.cells == {
        (1, ("a",)): 2.0,
        (0, ("b",)): 1.0,
        (1, ("b",)): 0.5,
        (0, ("a",)): 4.5,
    }
    assert counts.total == 8.0
    assert counts.n_rows == 4  # one has no weight
    assert counts.labels == [0, 1]
    assert counts.has_labels
    expected = {(0, "a"): 4.5, (0, "b"): 1.0, (1, "a"): 2.0, (1, "b"): 0.5}
    assert counts.shares() == {key: mass / 8 for key, mass in expected.items()}
    assert list(counts.shares()) == list(expected)


def test_groups_alone_have_shares_by_name():
    counts = counted({"sensitive_features": ["b", "a", "b", None]})
    assert counts.shares() == {"a": 0.25, "b": 0.5, None: 0.25}
    assert list(counts.shares()) == ["a", "b", None]
    assert not counts.has_labels
    assert counts.labels == []


def test_several_columns_have_shares_by_all_values():
    counts = counted({"sensitive_features": TWO})
    assert counts.columns == ("sex", "race")
    assert counts.shares() == {
        ("f", "x"): 0.25,
        ("f", "y"): 0.25,
        ("m", "x"): 0.25,
        (None, "y"): 0.25,
    }
    assert list(counts.shares())[-1] == (None, "y")


def test_labels_that_are_numbers_come_before_names_in_their_order():
    counts = counted({"sensitive_features": ["a"] * 3, "y": [10, 9, -2]})
    assert list(counts.shares()) == [(-2, "a"), (9, "a"), (10, "a")]
    assert counts.labels == [-2, 9, 10]


def test_cells_of_no_weight_are_known_all_the_same():
    counts = counted(
        {"sensitive_features": ["a", "b"], "sample_weight": [1.0, 0.0]},
    )
    assert counts.shares() == {"a": 1.0, "b": 0.0}


def test_a_copy_goes_its_own_way():
    counts = counted({"sensitive_features": ["a", "b"]})
    other = counts.copy()
    assert (other.n_rows, other.columns) == (counts.n_rows, counts.columns)
    other.update(sensitive_features=["b"])
    assert (counts.n_rows, counts.shares()) == (2, {"a": 0.5, "b": 0.5})
    assert other.shares() == {"a": 1 / 3, "b": 2 / 3}


@pytest.mark.parametrize(("first", "second"), [([0], None), (None, [0])])
def test_labels_are_passed_for_all_batches_or_for_none(first, second):
    counts = counted({"sensitive_features": ["a"], "y": first})
    with pytest.raises(InvalidInputError, match="for all or for none"):
        counts.update(sensitive_features=["a"], y=second)
    assert counts.n_rows == 1


def test_weights_that_overflow_over_batches_are_refused():
    huge = {"sensitive_features": ["a"], "sample_weight": [1.5e308]}
    counts = counted(huge)
    with pytest.raises(InvalidInputError, match="sum to infinity"):
        counts.update(**huge)
    assert math.isfinite(counts.total)


def test_columns_have_to_be_those_of_earlier_batches():
    counts = counted({"sensitive_features": TWO})
    swapped = {name: TWO[name] for name in ("race", "sex")}
    with pytest.raises(InvalidInputError, match="must be sex, race, in this order"):
        counts.update(sensitive_features=swapped)
    with pytest.raises(InvalidInputError, match="got sex"):
        counts.update(sensitive_features={"sex": ["f"]})


def test_a_lone_column_may_change_its_name():
    check_columns(["sex"], ["gender"])
    check_columns(None, ["sex", "race"])
    with pytest.raises(InvalidInputError, match="got sex, race"):
        check_columns(["sex"], ["sex", "race"])


@pytest.mark.parametrize("form", [dict, pd.Series])
def test_shares_that_are_passed_need_not_sum_to_one(form):
    counts = read_counts(form({"a": 30, "b": 10}), ["sex"], has_labels=False)
    assert counts.cells == {(None, ("a",)): 30.0, (None, ("b",)): 10.0}
    assert counts.shares() == {"a": 0.75, "b": 0.25}
    assert counts.columns == ("sex",)


def test_keys_begin_with_the_label_where_the_notion_conditions_on_it():
    counts = read_counts({(1, "a", "x"): 2.0}, ["sex", "race"], has_labels=True)
    assert counts.cells == {(1, ("a", "x")): 2.0}


def test_counts_that_are_passed_are_copied():
    counts = counted({"sensitive_features": ["a", "b"]})
    known = read_counts(counts, ["group"], has_labels=False)
    assert known.cells == counts.cells
    assert known is not counts


@pytest.mark.parametrize(
    ("groups", "has_labels", "words"),
    [
        ({("a", "b"): 1.0}, False, r"one value per sensitive column \(1 columns"),
        ({"a": 1.0}, True, "must be the label, on which the notion conditions"),
        ({"a": -0.5}, False, "The share of 'a' must be a number of at least 0"),
        ({"a": "half"}, False, "got 'half'"),
        ({"a": 0.0}, False, "shares that sum to 0"),
        ({}, False, "has counted nothing"),
    ],
)
def test_shares_that_make_no_sense_are_refused(groups, has_labels, words):
    with pytest.raises(InvalidInputError, match=words):
        read_counts(groups, ["sex"], has_labels)


def test_what_is_no_mapping_is_refused():
    with pytest.raises(InvalidTypeError, match="got list"):
        read_counts([0.4, 0.6], ["sex"], has_labels=False)
