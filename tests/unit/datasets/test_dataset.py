"""Splitting and preprocessing, on small made-up tables."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fferm.data.split import split_strata
from fferm.datasets import FairDataset
from fferm.datasets._dataset import Table, as_text, make_rng, pick_names
from fferm.errors import InvalidParameterError, UnknownNameError


def make_table(n_samples=200, seed=0):
    rng = np.random.default_rng(seed)
    frame = as_text(
        pd.DataFrame(
            {
                "size": rng.normal(50.0, 9.0, n_samples),
                "colour": rng.choice(["blue", "green", "red"], n_samples),
                "sex": rng.choice(["f", "m"], n_samples),
            }
        )
    )
    y = rng.integers(0, 2, n_samples)
    return Table("toy", "made up", frame, y, as_text(frame[["sex"]], str))


def test_numeric_columns_are_standardised_by_the_training_part_alone():
    table = make_table()
    data = table.assemble(np.arange(150), np.arange(150, 200))
    size = table.frame["size"].to_numpy()
    mean, scale = size[:150].mean(), size[:150].std()
    np.testing.assert_allclose(data.X[:, 0].mean(), 0.0, atol=1e-12)
    np.testing.assert_allclose(data.X[:, 0].std(), 1.0, rtol=1e-12)
    np.testing.assert_allclose(data.X_test[:, 0], (size[150:] - mean) / scale)


def test_one_hot_columns_are_zero_or_one_without_the_first_level():
    data = make_table().assemble(np.arange(150), np.arange(150, 200))
    assert data.feature_names == ("size", "colour_green", "colour_red", "sex_m")
    assert set(np.unique(data.X[:, 1:])) == {0.0, 1.0}


def test_a_level_that_only_the_test_part_has_is_all_zeros():
    table = make_table()
    colour = table.frame["colour"]
    train, test = np.flatnonzero(colour != "red"), np.flatnonzero(colour == "red")
    data = table.assemble(train, test)
    assert data.feature_names == ("size", "colour_green", "sex_m")
    assert not data.X_test[:, 1].any()


def test_x_is_float64_in_row_order_and_frames_stay_raw():
    table = make_table()
    data = table.assemble(np.arange(150), np.arange(150, 200))
    assert data.X.dtype == data.X_test.dtype == np.float64
    assert data.X.flags.c_contiguous
    pd.testing.assert_frame_equal(data.frame_test, table.frame.iloc[150:])
    pd.testing.assert_frame_equal(data.sensitive_features, table.sensitive.iloc[:150])


def test_dropped_columns_are_in_neither_x_nor_frame_but_still_sensitive():
    data = make_table().split(0.3, 0, ["sex"])
    assert "sex_m" not in data.feature_names
    assert "sex" not in data.frame
    assert list(data.sensitive_features) == ["sex"]


def test_the_repr_shows_sizes_and_no_row():
    data = make_table().split(0.25, 0)
    assert repr(data) == (
        "FairDataset('toy': 150 train + 50 test rows, 4 features, sensitive: sex)"
    )


def test_a_data_set_cannot_be_changed():
    data = make_table().split(0.25, 0)
    assert isinstance(data, FairDataset)
    with pytest.raises(AttributeError, match="cannot assign to field 'y'"):
        data.y = data.y_test


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    test_size=st.floats(0.05, 0.95),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_stratum_gives_its_share_to_within_one_row(sizes, test_size, seed):
    stratum = np.repeat(np.arange(len(sizes)), sizes)
    assume(1 <= len(stratum) * test_size <= len(stratum) - 1)
    train, test = split_strata(stratum, test_size, np.random.default_rng(seed))
    assert sorted([*train, *test]) == list(range(len(stratum)))
    for k, size in enumerate(sizes):
        assert abs(np.sum(stratum[test] == k) - test_size * size) < 1


def test_every_row_is_tested_about_equally_often():
    # 400 draws with probability 0.3: a deviation of 0.115 is 5 standard errors.
    stratum = np.array([0, 1, 1, 2, 2, 2, 2, 2, 2, 2])
    count = np.zeros(10)
    for seed in range(400):
        count[split_strata(stratum, 0.3, np.random.default_rng(seed))[1]] += 1
    assert np.all(np.abs(count / 400 - 0.3) < 0.115)


def test_the_same_seed_gives_the_same_rows_and_another_seed_others():
    table = make_table()
    first, again, other = (table.split(0.3, seed) for seed in (1, 1, 2))
    assert first.frame.index.equals(again.frame.index)
    assert not first.frame.index.equals(other.frame.index)


def test_strata_are_label_and_group_together():
    assert len(np.unique(make_table().strata())) == 4


def test_continuous_labels_and_groups_make_no_strata():
    table = make_table()
    age = pd.DataFrame({"age": np.linspace(20, 60, 200)})
    table = Table("toy", "", table.frame, np.linspace(0, 1, 200), age)
    assert not table.strata().any()


@pytest.mark.parametrize("test_size", [0.0, 1.0, -0.1, 1.5, 30, "0.3", float("nan")])
def test_a_test_size_outside_of_zero_and_one_is_refused(test_size):
    with pytest.raises(InvalidParameterError, match="above 0 and below 1; got"):
        make_table().split(test_size, 0)


def test_a_split_that_leaves_a_part_empty_is_refused():
    with pytest.raises(InvalidParameterError, match="Both need some"):
        split_strata(np.zeros(1, dtype=int), 0.5, np.random.default_rng(0))


@pytest.mark.parametrize("seed", [-1, "zero", 0.5])
def test_a_random_state_that_is_no_seed_is_refused(seed):
    with pytest.raises(InvalidParameterError, match="random_state must be"):
        make_rng(seed)


def test_an_unknown_name_is_answered_with_the_known_ones_and_a_guess():
    message = "Unknown colour 'Grene'. Did you mean 'green'? Known: blue, green."
    with pytest.raises(UnknownNameError, match=f"^{message.replace('?', '[?]')}$"):
        pick_names("colour", ("Grene",), ("blue", "green"))


def test_one_string_is_one_name():
    assert pick_names("colour", "blue", ("blue", "green")) == ("blue",)


@pytest.mark.parametrize("names", [(), ("blue", "blue")])
def test_no_name_and_a_name_given_twice_are_refused(names):
    with pytest.raises(InvalidParameterError, match="at least one name and none twice"):
        pick_names("colour", names, ("blue", "green"))
