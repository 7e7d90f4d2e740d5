"""COMPAS: ProPublica's filter, its counts, and what is never read."""

import hashlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fferm.datasets import compas, load_compas
from fferm.errors import DataUnavailableError, UnknownNameError

# Made up, in the form of the published file: names, and two columns that occur twice.
HEADER = (
    "id,name,sex,dob,age,race,juv_fel_count,decile_score,juv_misd_count,"
    "juv_other_count,priors_count,days_b_screening_arrest,c_case_number,"
    "c_charge_degree,is_recid,decile_score,score_text,priors_count,two_year_recid"
)
KEPT = "{i},Nobody,{sex},1990-01-01,30,{race},0,1,0,0,{i},-1,X1,F,1,1,Low,99,{y}"
REFUSED = (
    "90,Nobody,Male,1990-01-01,30,Caucasian,0,1,0,0,0,31,X1,F,1,1,Low,0,1",
    "91,Nobody,Male,1990-01-01,30,Caucasian,0,1,0,0,0,,X1,F,1,1,Low,0,1",
    "92,Nobody,Male,1990-01-01,30,Caucasian,0,1,0,0,0,0,X1,F,-1,1,Low,0,1",
    "93,Nobody,Male,1990-01-01,30,Caucasian,0,1,0,0,0,0,X1,O,1,1,Low,0,1",
    "94,Nobody,Male,1990-01-01,30,Caucasian,0,1,0,0,0,0,X1,F,1,1,N/A,0,1",
)


@pytest.fixture
def published_form(empty_home, monkeypatch):
    """Put a made-up file in the published form where the loader looks."""
    rows = [
        KEPT.format(i=i, sex=sex, race=race, y=i % 2)
        for i in range(10)
        for sex in ("Male", "Female")
        for race in ("African-American", "Caucasian")
    ]
    content = "\n".join([HEADER, *rows, *REFUSED, ""]).encode()
    empty_home.mkdir()
    (empty_home / compas.FILE.name).write_bytes(content)
    sha256 = (hashlib.sha256(content).hexdigest(),)
    monkeypatch.setattr(compas, "FILE", replace(compas.FILE, sha256=sha256))


@pytest.mark.usefixtures("published_form")
def test_the_published_form_is_read_and_filtered():
    data = load_compas()
    assert len(data.y) + len(data.y_test) == 40
    assert data.frame["priors_count"].max() <= 9  # the first column of that name


@pytest.mark.usefixtures("published_form")
def test_names_dates_and_case_numbers_are_not_read():
    data = load_compas()
    assert list(data.frame) == list(compas.COLUMNS)
    assert set(compas._read()) == {
        *compas.COLUMNS,
        *compas.FILTER_COLUMNS,
        compas.TARGET,
    }


def test_absent_and_offline_the_error_says_what_to_put_where(empty_home, monkeypatch):
    offline = replace(compas.FILE, url="http://127.0.0.1:1/nowhere")
    monkeypatch.setattr(compas, "FILE", offline)
    with pytest.raises(DataUnavailableError, match="compas-scores-two-years") as caught:
        load_compas()
    assert str(empty_home) in str(caught.value)


def test_an_unknown_race_is_refused_before_any_file_is_read(empty_home):
    with pytest.raises(UnknownNameError, match="Did you mean 'Caucasian'"):
        load_compas(races=("caucasian",))


def test_an_unknown_sensitive_column_is_refused_before_any_file_is_read(empty_home):
    with pytest.raises(UnknownNameError, match="Known: race, sex, age"):
        load_compas("name")


@pytest.fixture
def everyone(data_file):
    data_file(compas.FILE.name)
    data = load_compas(("race", "sex"), races=None)
    parts = (data.sensitive_features, data.sensitive_features_test)
    return pd.concat(parts).assign(y=np.concatenate([data.y, data.y_test]))


@pytest.mark.data
def test_propublicas_filter_keeps_the_published_counts(everyone):
    assert len(everyone) == 6172
    assert everyone["race"].value_counts().to_dict() == {
        "African-American": 3175,
        "Caucasian": 2103,
        "Hispanic": 509,
        "Other": 343,
        "Asian": 31,
        "Native American": 11,
    }


@pytest.mark.data
def test_recidivism_rates_are_as_published(everyone):
    assert everyone["y"].mean() == pytest.approx(0.4551, abs=5e-5)
    by_race = everyone.groupby("race")["y"].mean()
    assert by_race["African-American"] == pytest.approx(0.5231, abs=5e-5)
    assert by_race["Caucasian"] == pytest.approx(0.3909, abs=5e-5)
    by_sex = everyone.groupby("sex")["y"].mean()
    assert (by_sex["Male"], by_sex["Female"]) == pytest.approx(
        (0.4795, 0.3515), abs=5e-5
    )


@pytest.mark.data
def test_the_two_largest_groups_come_unless_asked_otherwise(data_file):
    data_file(compas.FILE.name)
    data = load_compas(drop_sensitive=True)
    assert len(data.y) + len(data.y_test) == 5278
    assert set(data.sensitive_features["race"]) == {"African-American", "Caucasian"}
    assert "race" not in data.frame
    assert not any(name.startswith("race") for name in data.feature_names)
