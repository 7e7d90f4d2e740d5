"""ACSIncome: states, codes and published rates."""

import numpy as np
import pandas as pd
import pytest

from fferm.datasets import acs_income, load_acs_income
from fferm.errors import DataUnavailableError, InvalidParameterError, UnknownNameError


@pytest.fixture
def acs_file(data_file):
    return data_file(acs_income.FILE.name)


def test_there_are_fifty_states_and_puerto_rico_is_none_of_them():
    assert len(set(acs_income.STATES)) == 50
    assert "PR" not in acs_income.STATES
    assert acs_income._pick_states("all") == acs_income.STATES


@pytest.mark.parametrize(
    ("code", "group"),
    [
        (10, "MGR"),
        (440, "MGR"),
        (500, "BUS"),
        (2205, "EDU"),
        (3550, "MED"),
        (9830, "MIL"),
    ],
)
def test_occupations_fall_into_the_groups_of_the_data_dictionary(code, group):
    codes = pd.Series([code], dtype="int16")
    assert acs_income._band(codes, acs_income.OCCUPATION).tolist() == [group]


@pytest.mark.parametrize(
    ("code", "region"),
    [
        (6, "US state"),
        (72, "US territory"),
        (110, "Europe"),
        (254, "Asia"),
        (301, "Northern America"),
        (303, "Mexico, Central America, Caribbean"),
        (374, "South America"),
        (468, "Africa"),
        (554, "Oceania"),
    ],
)
def test_places_of_birth_fall_into_regions(code, region):
    codes = pd.Series([code], dtype="int16")
    assert acs_income._band(codes, acs_income.BIRTHPLACE).tolist() == [region]


def test_an_unknown_state_is_refused_before_any_file_is_read(empty_home):
    with pytest.raises(UnknownNameError, match=r"Unknown state 'ca'.*mean 'CA'"):
        load_acs_income("ca")


def test_an_unknown_test_state_is_refused(empty_home):
    with pytest.raises(UnknownNameError, match="Unknown state 'XX'"):
        load_acs_income(test_states=("XX",))


def test_an_unknown_sensitive_column_is_refused(empty_home):
    with pytest.raises(UnknownNameError, match="Known: sex, race"):
        load_acs_income(sensitive="SEX")


def test_a_bad_test_size_is_refused_even_where_no_state_is_split(empty_home):
    with pytest.raises(InvalidParameterError, match=r"test_size must be .*got 2"):
        load_acs_income("CA", test_states="TX", test_size=2)


def test_absent_the_error_says_what_to_put_where(empty_home):
    with pytest.raises(DataUnavailableError, match="dssg/aequitas") as caught:
        load_acs_income()
    assert str(empty_home / acs_income.FILE.name) in str(caught.value)


@pytest.mark.data
def test_california_has_the_published_rows_and_rates(acs_file):
    data = load_acs_income("CA")
    y = np.concatenate([data.y, data.y_test])
    parts = (data.sensitive_features, data.sensitive_features_test)
    sex = pd.concat(parts)["sex"].to_numpy()
    assert len(y) == 89958
    assert y.mean() == pytest.approx(0.4110, abs=5e-5)
    assert y[sex == "Male"].mean() == pytest.approx(0.4694, abs=5e-5)
    assert y[sex == "Female"].mean() == pytest.approx(0.3455, abs=5e-5)


@pytest.mark.data
def test_raw_codes_stay_in_the_frame_and_groups_enter_x(acs_file):
    data = load_acs_income("WY", sensitive=("sex", "race"))
    assert list(data.frame) == list(acs_income.COLUMNS)
    assert data.frame["OCCP"].nunique() > 100
    n_occupations = sum(name.startswith("OCCP_") for name in data.feature_names)
    assert 10 < n_occupations < len(acs_income.OCCUPATION)
    assert set(data.sensitive_features["race"]) <= set(acs_income.RACE.values())
    assert np.isfinite(data.X).all()


@pytest.mark.data
def test_rows_are_shuffled_across_states(acs_file):
    data = load_acs_income(("VT", "WY"))
    state = data.frame.index.get_level_values("STATE")
    # Sorted by state there would be one change; at random about every second row.
    assert np.sum(state[1:] != state[:-1]) > 500


@pytest.mark.data
def test_other_test_states_give_all_their_rows(acs_file):
    data = load_acs_income("VT", test_states="WY")
    assert set(data.frame.index.get_level_values("STATE")) == {"VT"}
    assert set(data.frame_test.index.get_level_values("STATE")) == {"WY"}
    assert len(data.y_test) == 1400


@pytest.mark.data
def test_a_state_in_both_lists_is_tested_on_its_held_out_rows_only(acs_file):
    data = load_acs_income("VT", test_states=("VT", "WY"), test_size=0.25)
    size = data.frame_test.groupby("STATE").size()
    assert size["WY"] == 1400
    assert abs(size["VT"] - 0.25 * (size["VT"] + len(data.y))) < 1
    assert data.frame.index.intersection(data.frame_test.index).empty


@pytest.mark.data
def test_puerto_rico_comes_when_named(acs_file):
    data = load_acs_income("PR", sensitive="sex", drop_sensitive=True)
    assert len(data.y) + len(data.y_test) == 765670 - 761525
    assert "SEX" not in data.frame
    assert not any(name.startswith("SEX") for name in data.feature_names)
