"""Government employees: both targets and the published means."""

import numpy as np
import pandas as pd
import pytest

from fferm.datasets import gov_census, load_gov_census
from fferm.errors import DataUnavailableError, UnknownNameError


@pytest.fixture
def gov_file(data_file):
    return data_file(gov_census.FILE.name)


def joined(data):
    parts = (data.sensitive_features, data.sensitive_features_test)
    return pd.concat(parts).assign(y=np.concatenate([data.y, data.y_test]))


@pytest.mark.data
def test_salaries_are_dollars_with_the_published_means(gov_file):
    data = load_gov_census()
    assert data.y.dtype == np.float64
    rows = joined(data)
    assert rows["sex"].value_counts().to_dict() == {"female": 110856, "male": 93453}
    mean = rows.groupby("sex")["y"].mean().round()
    assert mean.to_dict() == {"female": 49366, "male": 63377}


@pytest.mark.data
def test_over_50k_is_a_label_with_the_published_rates(gov_file):
    data = load_gov_census(("sex", "race"), target="over_50k")
    assert data.y.dtype == np.int64
    rate = joined(data).groupby("sex")["y"].mean()
    assert (rate["female"], rate["male"]) == pytest.approx((0.3971, 0.5429), abs=5e-5)
    assert data.sensitive_features["race"].nunique() == 7


@pytest.mark.data
def test_occupation_and_industry_enter_x_by_group_and_the_salary_does_not(gov_file):
    data = load_gov_census(("age",))
    occupations = [name for name in data.feature_names if name.startswith("occupation")]
    assert all(len(name) == len("occupation_11") for name in occupations)
    assert len(data.frame["occupation"].cat.categories) == 518
    assert "salary" not in {*data.feature_names, *data.frame}


@pytest.mark.data
def test_dropping_nativity_drops_citizenship_which_tells_it(gov_file):
    data = load_gov_census(("nativity",), target="over_50k", drop_sensitive=True)
    assert not {"nativity", "citizenship"} & set(data.frame)
    assert not any(
        name.startswith(("nativity", "citizenship")) for name in data.feature_names
    )
    assert set(data.sensitive_features["nativity"]) == {"native", "foreign-born"}


def test_an_unknown_target_is_refused(empty_home):
    with pytest.raises(UnknownNameError, match="Known: salary, over_50k"):
        load_gov_census(target="wage")


def test_an_unknown_sensitive_column_is_refused(empty_home):
    with pytest.raises(UnknownNameError, match="Did you mean 'race'"):
        load_gov_census("races")


def test_absent_the_error_says_what_to_put_where(empty_home):
    with pytest.raises(DataUnavailableError, match="fairadapt") as caught:
        load_gov_census()
    assert str(empty_home / gov_census.FILE.name) in str(caught.value)
