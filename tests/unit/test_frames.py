"""Frames of mixed columns: learned from training rows, the same ever after."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from fferm import FairLogisticRegression
from fferm.data import frame as frames
from fferm.data.frame import FrameEncoder
from fferm.errors import InvalidInputError, InvalidTypeError

FRAME = pd.DataFrame(
    {
        "age": [20.0, None, 40.0, 60.0],
        "city": ["A", "B", "A", None],
        "is_new": [True, False, None, True],
        "id": list("wxyz"),
        "same": 1,
    }
)


def encoded(encoder, frame):
    return pd.DataFrame(
        encoder.transform(frame), columns=encoder.get_feature_names_out()
    )


def test_gaps_are_filled_with_the_median_marked_and_standardised():
    frame = FRAME.assign(age=[20.0, None, 30.0, 100.0])
    found = encoded(FrameEncoder().fit(frame), frame)
    assert found["age=(missing)"].tolist() == [0, 1, 0, 0]
    filled = np.array([20.0, 30.0, 30.0, 100.0])
    expected = (filled - filled.mean()) / filled.std()
    np.testing.assert_allclose(found["age"], expected)


def test_levels_of_one_row_and_columns_that_say_nothing_are_dropped():
    encoder = FrameEncoder().fit(FRAME)
    assert encoder.dropped_ == ("id", "same")
    names = encoder.get_feature_names_out().tolist()
    assert [name for name in names if name.startswith("city")] == ["city=A"]


def test_truth_values_are_numbers():
    found = encoded(FrameEncoder().fit(FRAME), FRAME)
    assert found["is_new"].iloc[0] == found["is_new"].iloc[3] > found["is_new"].iloc[1]
    assert found["is_new=(missing)"].tolist() == [0, 0, 1, 0]


def test_unknown_levels_are_zero_and_new_gaps_are_filled():
    encoder = FrameEncoder().fit(FRAME.assign(age=[1.0, 2.0, 3.0, 4.0]))
    found = encoded(encoder, FRAME.assign(city="C", age=np.nan))
    assert found["city=A"].tolist() == [0] * 4
    assert found["age"].abs().max() == 0  # the median is the mean here


def test_the_order_of_columns_and_further_ones_do_not_matter():
    encoder = FrameEncoder().fit(FRAME)
    shuffled = FRAME[FRAME.columns[::-1]].assign(extra=3)
    np.testing.assert_array_equal(encoder.transform(FRAME), encoder.transform(shuffled))


def test_polars_and_pandas_are_encoded_alike():
    encoder = FrameEncoder().fit(FRAME[["age", "city"]])
    found = encoder.transform(pl.DataFrame({"age": [1.0, None], "city": ["A", None]}))
    expected = encoder.transform(
        pd.DataFrame({"age": [1.0, None], "city": ["A", None]})
    )
    np.testing.assert_array_equal(found, expected)


def test_numbers_that_come_as_text_are_read_as_numbers():
    encoder = FrameEncoder().fit(FRAME[["age"]])
    text = pd.DataFrame({"age": ["20", None, "40", "60"]})
    np.testing.assert_array_equal(
        encoder.transform(text), encoder.transform(FRAME[["age"]])
    )


def test_only_the_most_frequent_levels_are_kept():
    column = [f"c{i % 7}" for i in range(98)] + ["c6"] * 5 + ["c3"] * 2
    encoder = FrameEncoder(max_levels=3).fit(pd.DataFrame({"c": column}))
    # The others are as frequent as each other: the first by name.
    assert encoder.get_feature_names_out().tolist() == ["c=c6", "c=c3", "c=c0"]


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (FRAME[["city"]], "The data lack 'age'"),
        (FRAME.assign(age="old"), "contains 'old'. It must hold numbers"),
        (FRAME.assign(age=np.inf), "contains infinity"),
    ],
)
def test_rows_that_cannot_be_encoded_are_refused(frame, words):
    encoder = FrameEncoder().fit(FRAME[["age", "city"]])
    with pytest.raises(InvalidInputError, match=words):
        encoder.transform(frame)


def test_an_array_is_no_frame():
    with pytest.raises(InvalidTypeError, match="must be a data frame"):
        FrameEncoder().fit(np.zeros((3, 2)))


def test_columns_whose_names_are_numbers_are_found_again():
    frame = FRAME.set_axis(range(FRAME.shape[1]), axis=1)
    np.testing.assert_array_equal(
        FrameEncoder().fit(frame).transform(frame),
        FrameEncoder().fit(FRAME).transform(FRAME),
    )


def test_numbers_that_come_as_text_are_read_where_the_index_repeats():
    encoder = FrameEncoder().fit(FRAME)
    twice = pd.concat([FRAME, FRAME])
    as_text = twice.assign(age=["20", None, "40", "60"] * 2)
    np.testing.assert_array_equal(encoder.transform(as_text), encoder.transform(twice))


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(InvalidInputError, match=r"share a name, .* Rename one"):
        FrameEncoder().fit(pd.concat([FRAME, FRAME], axis=1))
    with pytest.raises(InvalidInputError, match="Two columns are named '0'"):
        FrameEncoder().fit(pd.DataFrame({0: [1.0, 2.0], "0": [3.0, 4.0]}))


def test_numbers_of_any_size_are_standardised():
    frame = pd.DataFrame({"small": [1e-200, 2e-200, 3e-200], "large": [1e90, 2e90, 0]})
    frame = frame.assign(city=["A", "A", "A"])
    found = FrameEncoder().fit(frame).transform(frame)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(found.std(axis=0), 1, rtol=1e-12)


def test_a_table_of_numbers_keeps_its_units_and_its_gaps_are_filled():
    frame = pd.DataFrame({"age": [20.0, 30.0, 70.0], "same": [1, 1, 1]})
    encoder = FrameEncoder().fit(frame)
    np.testing.assert_array_equal(encoder.transform(frame), frame.to_numpy())
    assert encoder.transform(frame.assign(age=[np.nan, 1, 2]))[0, 0] == 30.0


def test_codes_are_categories_where_they_are_named():
    frame = pd.DataFrame({"code": [3, 1, 3, 1], "x": [1.0, 2.0, 3.0, 4.0]})
    encoder = FrameEncoder(categorical=["code"]).fit(frame)
    assert encoder.get_feature_names_out().tolist() == ["code=1", "code=3", "x"]
    # A gap elsewhere turns integers into floats, and a file may hold them as text.
    as_text = encoder.transform(frame.assign(code=["3", "1", "3", "1"]))
    np.testing.assert_array_equal(as_text, encoder.transform(frame.astype(float)))


def test_free_text_is_refused_by_name_and_identifiers_say_nothing():
    frame = pd.DataFrame(
        {"note": [f"a note on case {i}" for i in range(40)], "x": range(40)}
    )
    with pytest.raises(InvalidInputError, match="'note' has 40 distinct texts in 40"):
        FrameEncoder().fit(frame)
    named = frame.assign(note=[f"case {i}" for i in range(40)])
    for table in (named, frame.astype({"note": "category"})):
        assert FrameEncoder().fit(table).dropped_ == ("note",)


def test_encoded_columns_have_names_in_every_output():
    frame = FRAME[["age", "city"]]
    found = FrameEncoder().set_output(transform="pandas").fit(frame).transform(frame)
    assert found.columns.tolist() == ["age", "age=(missing)", "city=A"]


def make_wide(n_rows=70):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.normal(size=n_rows),
            "city": rng.choice([f"city {n}" for n in range(12)], n_rows),
            "member": rng.random(n_rows) < 0.5,
        }
    )
    table.loc[::7, ["age", "city"]] = None
    return table


def test_few_entries_are_a_csr_matrix_of_the_same_numbers(monkeypatch):
    monkeypatch.setattr(frames, "ROWS_PER_BLOCK", 16)
    table = make_wide()
    encoder = FrameEncoder().fit(table)
    rows = encoder.to_rows(table)
    assert sp.issparse(rows)
    assert rows.has_canonical_format
    assert np.count_nonzero(rows.data) == rows.nnz
    np.testing.assert_array_equal(rows.toarray(), encoder.transform(table))


def test_many_entries_stay_an_array():
    rows = FrameEncoder().fit(FRAME).to_rows(FRAME)
    np.testing.assert_array_equal(rows, FrameEncoder().fit_transform(FRAME))


def test_a_table_trains_the_model_of_its_encoded_matrix():
    table = make_wide(300)
    rows = {"y": table["age"].fillna(0) > 0.2, "sensitive_features": table["member"]}
    model = FairLogisticRegression().fit(table, **rows)
    matrix = model.encoder_.transform(table)
    expected = FairLogisticRegression().fit(matrix, **rows)
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-6, atol=1e-9)
    expected = expected.predict_proba(matrix)
    np.testing.assert_allclose(model.predict_proba(table), expected, atol=1e-9)


@pytest.mark.parametrize("largest", [1e308, 1e-308, 1.0])
def test_only_ratios_of_weights_count_in_medians_and_scales(largest):
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0, np.nan], "b": ["x", "y", "x", "y"]})
    weight = np.array([0.25, 0.5, 0.125, 1.0])
    (number, _) = FrameEncoder().fit(frame, sample_weight=largest * weight).columns_
    assert number["fill"] == 2.0
    mean = (0.25 + 2 * 1.5 + 4 * 0.125) / weight.sum()
    assert number["mean"] == pytest.approx(mean, rel=1e-12)
