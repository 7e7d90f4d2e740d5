import itertools
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from fferm import FairLogisticRegression
from fferm.data.groups import Attribute, encode_column, encode_sensitive, natural_order
from fferm.data.rows import Rows, add_control, encode_rows
from fferm.data.validate import ROWS_AT_ONCE
from fferm.errors import (
    DataFairnessWarning,
    EmptyStratumWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingGroupWarning,
    SmallGroupWarning,
)
from fferm.notions import (
    ConditionalParity,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    Labels,
    Strata,
)

SEX = ["f", "m", "m", "f", "m"]
RACE = ["x", "y", "x", "x", "y"]

ONE_COLUMN = {
    "list": SEX,
    "tuple": tuple(SEX),
    "array of strings": np.array(SEX),
    "array of objects": np.array(SEX, dtype=object),
    "pandas series": pd.Series(SEX, name="group"),
    "pandas series without a name": pd.Series(SEX),
    "pandas series with an index of its own": pd.Series(
        SEX, index=[9, 3, 5, 1, 0], name="group"
    ),
    "pandas categories, one unused": pd.Series(
        SEX, dtype=pd.CategoricalDtype(["z", "m", "f"]), name="group"
    ),
    "polars series": pl.Series("group", SEX),
    "pyarrow array": pa.chunked_array([SEX]),
    "pandas frame": pd.DataFrame({"group": SEX}),
    "polars frame": pl.DataFrame({"group": SEX}),
    "lazy polars frame": pl.DataFrame({"group": SEX}).lazy(),
    "pyarrow table": pa.table({"group": SEX}),
    "dict": {"group": SEX},
}
TWO_COLUMNS = {
    "list of pairs": list(zip(SEX, RACE, strict=True)),
    "array": np.array([SEX, RACE]).T,
    "pandas frame": pd.DataFrame({"group_0": SEX, "group_1": RACE}),
    "polars frame": pl.DataFrame({"group_0": SEX, "group_1": RACE}),
    "dict of lists": {"group_0": SEX, "group_1": RACE},
    "dict of unlike columns": {
        "group_0": pd.Series(SEX, index=[5, 4, 3, 2, 1]),
        "group_1": pl.Series(RACE),
    },
}


def labels_for(n_samples, y=None, classes=(0, 1)):
    return Labels(n_samples, None if y is None else np.asarray(y), classes)


def encode_quietly(sensitive_features, notion, labels, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataFairnessWarning)
        return encode_rows(sensitive_features, notion, labels, **options)


@pytest.mark.parametrize("form", ONE_COLUMN)
def test_one_column_means_the_same_in_every_form(form):
    (attribute,) = encode_sensitive(ONE_COLUMN[form], 5)

    assert attribute.groups == ("f", "m")
    assert attribute.name == "group"
    assert attribute.code.tolist() == [0, 1, 1, 0, 1]


@pytest.mark.parametrize("form", TWO_COLUMNS)
def test_two_columns_mean_the_same_in_every_form(form):
    (joint,) = encode_sensitive(TWO_COLUMNS[form], 5)
    marginal = encode_sensitive(TWO_COLUMNS[form], 5, "marginal")

    assert joint.name == "group_0 × group_1"
    assert joint.groups == ("f × x", "m × x", "m × y")
    assert joint.code.tolist() == [0, 2, 1, 0, 2]
    assert [one.name for one in marginal] == ["group_0", "group_1"]
    assert [one.groups for one in marginal] == [("f", "m"), ("x", "y")]
    assert marginal[1].code.tolist() == [0, 1, 0, 0, 1]


def test_more_intersections_than_can_be_numbered_are_refused():
    columns = {f"column {n}": np.arange(60) % 10 for n in range(20)}
    with pytest.raises(
        InvalidInputError, match=r"20 sensitive columns of 10 .*'marginal'"
    ):
        encode_sensitive(columns, 60)
    assert len(encode_sensitive(columns, 60, "marginal")) == 20


def test_a_group_called_nan_has_one_place_whatever_the_order_of_rows():
    orders = itertools.permutations(["nan", "10", "2", "b"])

    found = {tuple(sorted(order, key=natural_order)) for order in orders}

    assert found == {("2", "10", "b", "nan")}


def test_a_frame_whose_columns_are_numbers_is_read_by_column():
    frame = pd.DataFrame(np.array([SEX, RACE]).T)

    first, second = encode_sensitive(frame, 5, "marginal")

    assert (first.name, second.name) == ("0", "1")
    assert second.code.tolist() == [0, 1, 0, 0, 1]


def test_one_column_of_a_frame_is_no_intersection():
    (attribute,) = encode_sensitive(pd.DataFrame({"sex": SEX}), 5, "intersection")

    assert attribute.name == "sex"
    assert attribute.groups == ("f", "m")


def test_an_intersection_is_ordered_by_its_columns_and_drops_empty_cells():
    frame = {"a": [2, 10, 2, 1], "b": ["v", "u", "u", "v"]}

    (joint,) = encode_sensitive(frame, 4)

    # (1, u) and (10, v) hold nobody; numbers sort as numbers.
    assert joint.groups == ("1 × v", "2 × u", "2 × v", "10 × u")
    assert joint.code.tolist() == [2, 3, 1, 0]


def test_numbers_sort_as_numbers_and_before_words():
    groups = encode_column(["b", "10", "9", "-1.5", "a"], "s", 5).groups

    assert groups == ("-1.5", "9", "10", "a", "b")


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, 0, 1]),
        np.array([1.0, 0.0, 1.0]),
        np.array([1.0, 0.0, 1.0], dtype=np.float32),
        ["1", "0", "1"],
        [1, "0", "1"],
        pd.Series([1, 0, 1], dtype="Int64"),
    ],
)
def test_a_whole_number_has_one_name_whatever_its_type(values):
    attribute = encode_column(values, "s", 3)

    assert attribute.groups == ("0", "1")
    assert attribute.code.tolist() == [1, 0, 1]


def test_booleans_are_two_groups():
    assert encode_column([True, False, True], "s", 3).groups == ("False", "True")


@pytest.mark.parametrize(
    "values",
    [
        ["a", None, "b", None],
        ["a", np.nan, "b", np.nan],
        ["a", pd.NA, "b", pd.NA],
        pd.Series(["a", None, "b", None], dtype="string"),
        pd.Series(["a", None, "b", None], dtype="category"),
        pl.Series(["a", None, "b", None]),
        pa.chunked_array([["a", None, "b", None]]),
        np.array(["a", None, "b", np.nan], dtype=object),
    ],
)
def test_a_missing_value_has_no_group(values):
    attribute = encode_column(values, "s", 4)

    assert attribute.groups == ("a", "b")
    assert attribute.code.tolist() == [0, -1, 1, -1]


@pytest.mark.parametrize(
    "values",
    [
        [1, None, 2],
        np.array([1, np.nan, 2]),
        pd.Series([1, None, 2], dtype="Int64"),
        pd.Series([1.0, None, 2.0], dtype="Float64"),
        pl.Series([1, None, 2]),
    ],
)
def test_a_gap_among_whole_numbers_leaves_their_names_alone(values):
    attribute = encode_column(values, "s", 3)

    assert attribute.groups == ("1", "2")
    assert attribute.code.tolist() == [0, -1, 1]


def test_a_row_with_one_missing_column_is_in_no_intersection():
    columns = {"a": ["u", None, "v"], "b": [1, 1, None]}

    (joint,) = encode_sensitive(columns, 3)
    first, second = encode_sensitive(columns, 3, "marginal")

    assert joint.code.tolist() == [0, -1, -1]
    assert joint.groups == ("u × 1",)
    assert first.code.tolist() == [0, -1, 1]
    assert second.code.tolist() == [0, 0, -1]


def test_columns_that_are_never_known_together_make_no_group():
    (joint,) = encode_sensitive({"a": ["u", None], "b": [None, "v"]}, 2)

    assert joint.groups == ()
    assert joint.code.tolist() == [-1, -1]


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(0, 1, 30),
        [None, *np.linspace(0, 1, 29)],
        pl.Series([None, *np.linspace(0, 1, 29)]),
        pd.Series([pd.NA, *np.linspace(0, 1, 29)], dtype=object),
    ],
)
def test_a_continuous_column_is_refused(values):
    with pytest.raises(
        InvalidInputError,
        match=r"income has (29|30) distinct fractional.*quantile_bands",
    ):
        encode_column(values, "income", 30)


def test_a_few_fractional_values_may_be_groups():
    values = np.tile([0.5, 1.5, 2.0], 20)

    assert encode_column(values, "s", 60).groups == ("0.5", "1.5", "2")


def test_infinity_is_no_group():
    with pytest.raises(InvalidInputError, match="s contains infinity"):
        encode_column([1.0, np.inf], "s", 2)


@pytest.mark.parametrize("given", ["sex", b"sex", 3, 2.5, True, None])
def test_a_scalar_is_no_column(given):
    with pytest.raises(
        InvalidInputError, match=r"sensitive_features must hold one value per row"
    ):
        encode_sensitive(given, 5)


@pytest.mark.parametrize("given", [np.array(3), np.zeros((5, 1, 1)), {"a", "b"}])
def test_other_shapes_are_refused(given):
    with pytest.raises(InvalidInputError, match=r"must have shape \(n,\) .*got "):
        encode_sensitive(given, 5)


def test_ragged_rows_are_refused():
    with pytest.raises(InvalidInputError, match="sensitive_features is ragged"):
        encode_sensitive([["a"], ["a", "b"]], 2)
    with pytest.raises(InvalidInputError, match="sex is ragged"):
        encode_sensitive({"sex": [["a"], ["a", "b"]]}, 2)


def test_a_column_of_columns_is_refused_by_name():
    with pytest.raises(
        InvalidInputError, match=r"sex must have one value per row; got shape \(2, 1\)"
    ):
        encode_sensitive({"sex": [["a"], ["b"]]}, 2)


def test_two_columns_of_one_name_are_refused():
    frame = pd.DataFrame([["a", "b"]], columns=["sex", "sex"])

    with pytest.raises(InvalidInputError, match=r"(?s)share a name.*Rename"):
        encode_sensitive(frame, 1)


def test_values_that_cannot_be_told_apart_are_refused():
    with pytest.raises(InvalidInputError, match="must hold strings"):
        encode_sensitive([{}, {}], 2)


def test_a_column_of_another_length_is_refused_by_name():
    with pytest.raises(InvalidInputError, match="race has 4 values for 5 rows"):
        encode_sensitive({"sex": SEX, "race": RACE[:4]}, 5)


@pytest.mark.parametrize("given", [{}, pd.DataFrame(index=range(3)), np.zeros((3, 0))])
def test_no_column_at_all_is_refused(given):
    with pytest.raises(InvalidInputError, match="no columns"):
        encode_sensitive(given, 3)


def test_an_unknown_way_to_group_is_refused():
    with pytest.raises(InvalidParameterError, match=r"groups must be .*got 'both'"):
        encode_sensitive(SEX, 5, "both")


def test_a_warning_counts_the_rows_without_a_group():
    groups = ["a", "b"] * 20 + [None, np.nan]

    with pytest.warns(MissingGroupWarning, match="2 of 42 rows have no value of group"):
        encode_rows(groups, DemographicParity(), labels_for(42))


def test_a_warning_counts_the_rows_without_a_control_value():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 2)), np.tile([0, 1], 40)
    control = ["x"] * 78 + [None, None]
    model = FairLogisticRegression(notion=ConditionalParity(control))

    words = "2 of 80 rows have no value of the control feature"
    with pytest.warns(MissingGroupWarning, match=words) as caught:
        model.fit(X, y, sensitive_features=["a", "a", "b", "b"] * 20)

    assert caught[0].filename == __file__


def test_each_marginal_column_warns_of_its_own_gaps():
    columns = {
        "sex": [None] + ["f", "m"] * 20,
        "race": [None, None, None] + ["x", "y"] * 19,
    }

    with (
        pytest.warns(MissingGroupWarning, match="1 of 41 rows have no value of sex"),
        pytest.warns(MissingGroupWarning, match="3 of 41 rows have no value of race"),
    ):
        encode_rows(columns, DemographicParity(), labels_for(41), how="marginal")


def test_a_small_group_is_warned_of_by_name_and_count():
    groups = ["many"] * 30 + ["few"] * 9

    with pytest.warns(SmallGroupWarning, match=r"fewer than 10 rows: few \(9 rows\)"):
        encode_rows(groups, DemographicParity(), labels_for(39))


def test_a_group_without_weight_is_warned_of_by_name():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.tile([0, 1], 30)
    groups = ["a", "b"] * 20 + ["c"] * 20
    weight = np.repeat([1.0, 0.0], [40, 20])

    with pytest.warns(SmallGroupWarning, match=r"fewer than 10 rows: c \(0 rows\)"):
        FairLogisticRegression().fit(
            X, y, sensitive_features=groups, sample_weight=weight
        )


def test_ten_rows_are_enough_for_a_group():
    groups = ["many"] * 30 + ["few"] * 10

    rows = encode_rows(groups, DemographicParity(), labels_for(40))

    assert rows.group_names == ("few", "many")


def test_a_group_that_is_small_in_a_stratum_is_warned_of_with_the_stratum():
    y = [0, 1] * 15 + [0] * 12 + [1] * 3
    groups = ["a"] * 30 + ["b"] * 15

    with pytest.warns(SmallGroupWarning, match=r"b \(3 rows where y=1\)\."):
        encode_rows(groups, EqualizedOdds(), labels_for(45, y))


def test_a_long_list_of_small_groups_is_cut():
    groups = [str(k) for k in range(12)]

    words = r"0 \(1 rows\), .*7 \(1 rows\) and 4 more\."
    with pytest.warns(SmallGroupWarning, match=words):
        encode_rows(groups, DemographicParity(), labels_for(12))


def test_a_stratum_with_one_group_is_warned_of_by_name():
    y = [0] * 40 + [1] * 20
    groups = ["a", "b"] * 20 + ["a"] * 20

    with (
        pytest.warns(
            EmptyStratumWarning, match="Only one group of group .* y=1; there"
        ),
        pytest.warns(SmallGroupWarning, match=r"b \(0 rows where y=1\)"),
    ):
        encode_rows(groups, EqualizedOdds(), labels_for(60, y))


def test_warnings_of_data_point_to_the_line_that_called_fit():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.tile([0, 1], 30)
    groups = ["a", "b"] * 24 + ["c"] * 8 + [None] * 4

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FairLogisticRegression().fit(X, y, sensitive_features=groups)

    places = {warning.category: warning.filename for warning in caught}
    assert places == {MissingGroupWarning: __file__, SmallGroupWarning: __file__}


def test_cells_hold_rows_and_weights_apart_from_those_without_group_or_stratum():
    attribute = Attribute("s", ("a", "b"), np.array([0, 1, -1, 1, 1]))
    strata = EqualOpportunity().strata(labels_for(5, [1, 1, 1, 0, 1]))
    weight = np.array([1.0, 2.0, 4.0, 8.0, 0.0])

    (sums,) = Rows((attribute,), strata, weight).cell_sums

    assert sums.n_rows.tolist() == [[0, 0, 1], [1, 1, 2]]
    assert sums.weight.tolist() == [[0, 0, 8], [4, 1, 2]]
    assert sums.present.tolist() == [[1, 1]]
    assert sums.known_share == 11 / 15


def test_cells_of_many_rows_are_added_part_by_part():
    rng = np.random.default_rng(0)
    n = 2 * ROWS_AT_ONCE + 7
    attribute = Attribute("s", ("a", "b", "c"), rng.integers(-1, 3, n))
    strata = Strata(rng.integers(-1, 2, n), ("y=0", "y=1"))
    weight = rng.integers(0, 3, n).astype(float)

    (sums,) = Rows((attribute,), strata, weight).cell_sums

    for r, k in np.ndindex(3, 4):
        inside = (strata.code == r - 1) & (attribute.code == k - 1)
        assert sums.n_rows[r, k] == inside.sum()
        if r and k:
            assert sums.present[r - 1, k - 1] == (inside & (weight > 0)).sum()
        assert sums.weight[r, k] == weight[inside].sum()


def test_rows_keep_their_group_names_when_some_are_taken():
    labels = labels_for(5, [0, 1, 0, 1, 1])
    rows = encode_quietly(
        pd.DataFrame({"sex": SEX, "race": RACE}),
        EqualizedOdds(),
        labels,
        how="marginal",
        sample_weight=np.arange(5.0),
    )

    taken = rows.take(np.array([True, False, False, True, False]))

    assert isinstance(taken, Rows)
    assert taken.group_names == ("sex=f", "sex=m", "race=x", "race=y")
    assert [one.code.tolist() for one in taken.attributes] == [[0, 0], [0, 0]]
    assert taken.strata.code.tolist() == [0, 1]
    assert taken.weight.tolist() == [0.0, 3.0]


def test_group_names_of_one_partition_are_bare():
    rows = encode_quietly({"sex": SEX}, DemographicParity(), labels_for(5))

    assert rows.group_names == ("f", "m")
    assert rows.weight.tolist() == [1.0] * 5


FRAMES = {
    "pandas": pd.DataFrame({"x": [0.1, 0.2, 0.3], "dept": ["b", "a", "b"]}),
    "polars": pl.DataFrame({"x": [0.1, 0.2, 0.3], "dept": ["b", "a", "b"]}),
    "pyarrow": pa.table({"x": [0.1, 0.2, 0.3], "dept": ["b", "a", "b"]}),
}


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("control", ["dept", 1, -1, np.int64(1)])
def test_a_control_feature_is_found_by_name_or_position(library, control):
    labels = add_control(Labels(3), ConditionalParity(control), FRAMES[library])

    assert labels.control.tolist() == [1, 0, 1]
    assert labels.control_names == ("a", "b")


@pytest.mark.parametrize(
    "X",
    [
        np.array([[5.0, 1.0], [6.0, 0.0]]),
        [[5.0, 1.0], [6.0, 0.0]],
        scipy.sparse.csr_array([[5.0, 1.0], [6.0, 0.0]]),
        scipy.sparse.csr_matrix([[5.0, 1.0], [6.0, 0.0]]),
        pd.DataFrame([[5.0, 1.0], [6.0, 0.0]]),
    ],
)
@pytest.mark.parametrize("control", [1, -1])
def test_a_control_feature_is_found_by_position_where_columns_have_no_names(X, control):
    labels = add_control(Labels(2), ConditionalParity(control), X)

    assert labels.control.tolist() == [1, 0]
    assert labels.control_names == ("0", "1")


def test_a_control_feature_may_be_values_with_gaps():
    labels = add_control(Labels(3), ConditionalParity(["u", None, "v"]), None)

    assert labels.control.tolist() == [0, -1, 1]
    assert labels.control_names == ("u", "v")


def test_a_notion_without_a_control_feature_leaves_labels_as_they_are():
    labels = Labels(3)

    assert add_control(labels, DemographicParity(), FRAMES["pandas"]) is labels


def test_control_values_of_another_length_are_refused():
    with pytest.raises(
        InvalidInputError, match="control feature has 2 values for 3 rows"
    ):
        add_control(Labels(3), ConditionalParity(["u", "v"]), None)


@pytest.mark.parametrize(
    ("control", "X", "match"),
    [
        ("dpt", FRAMES["pandas"], r"'dpt' is not a column of X\. Columns: x, dept"),
        (2, FRAMES["polars"], r"2 is not a column of X\. Columns: x, dept"),
        (-3, FRAMES["polars"], r"-3 is not a column of X"),
        ("dept", np.zeros((3, 2)), "named 'dept' but X has no column names"),
        (2, np.zeros((3, 2)), "2 is not a column of X"),
        (2, scipy.sparse.csr_array((3, 2)), "2 is not a column of X"),
    ],
)
def test_a_control_feature_that_X_lacks_is_refused(control, X, match):
    with pytest.raises(InvalidParameterError, match=match):
        add_control(Labels(3), ConditionalParity(control), X)


def test_rows_without_a_control_value_are_left_out_of_the_strata():
    notion = ConditionalParity(["u", None, "v", "u"])

    rows = encode_quietly(["a", "b", "a", "b"], notion, Labels(4))

    assert rows.strata.code.tolist() == [0, -1, 1, 0]
    assert rows.strata.names == ("u", "v")
