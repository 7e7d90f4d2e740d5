"""Sensitive columns of numbers: what is cut into bands, and who is told."""

import numpy as np
import pandas as pd
import pytest

from fferm import FairLogisticRegression, FairRegressor, audit, tradeoff_curve
from fferm.auditing import Audit
from fferm.bands import band_start, quantile_bands
from fferm.errors import (
    DataFairnessWarning,
    InvalidInputError,
    InvalidParameterError,
)


@pytest.fixture
def ages():
    rng = np.random.default_rng(0)
    age = rng.integers(18, 80, 3000)
    X = np.column_stack([age / 20 + rng.normal(size=3000), rng.normal(size=3000)])
    return X, (X.sum(axis=1) > 2.5).astype(int), age


def test_an_audit_says_which_columns_were_cut_into_bands(ages, tmp_path):
    X, y, age = ages
    sensitive = {"age": age + 0.5 * (age % 2), "sex": age % 3 == 0}
    model = FairLogisticRegression().fit(X, y, sensitive_features=sensitive)
    found = audit(model, X, y, sensitive_features=sensitive, n_bootstrap=0)
    assert found.bands == {"age": 8}
    said = "age holds numbers and was cut into 8 bands of like many rows."
    assert said in str(found)
    assert said in found._repr_html_()
    assert Audit.from_dict(found.to_dict()) == found
    found.to_html(tmp_path / "page.html")
    assert said in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_whole_numbers_of_many_values_stay_groups_with_a_warning(ages):
    X, y, age = ages
    for values in (age, age.astype(float)):
        with pytest.warns(DataFairnessWarning, match="age makes 62 groups, one of"):
            FairLogisticRegression().fit(X, y, sensitive_features={"age": values})
    codes = {"code": age.astype(str)}  # as text they are groups for sure
    assert (
        len(FairLogisticRegression().fit(X, y, sensitive_features=codes).groups_) == 62
    )
    halves = {"half": (age > 40) * 1.0}
    model = FairLogisticRegression().fit(X, y, sensitive_features=halves)
    assert model.groups_.tolist() == ["0", "1"]
    bands = {"age": quantile_bands(age)}
    model = FairLogisticRegression().fit(X, y, sensitive_features=bands)
    # In their order, not in that of the alphabet.
    assert model.groups_[0].startswith("below")
    assert model.groups_[-1].endswith("above")


def test_numbers_that_name_rows_are_refused_with_advice(ages):
    X, y, _ = ages
    with pytest.raises(InvalidInputError, match="quantile_bands"):
        FairLogisticRegression().fit(X, y, sensitive_features=np.arange(3000))


def test_regressors_are_told_which_columns_are_numbers(ages):
    X, _, age = ages
    frame = pd.DataFrame({"age": age, "sex": age % 2})
    y = X.sum(axis=1)
    options = {"continuous": ["age"], "groups": "marginal", "max_violation": 0.9}
    model = FairRegressor(**options).fit(X, y, sensitive_features=frame)
    assert len(model.groups_) == 8 + 2
    curve = tradeoff_curve(
        FairRegressor(continuous=["age"]),
        X,
        y,
        sensitive_features=frame[["age"]],
        fairness_weights=[0, 5],
    )
    test = curve.records[curve.records["split"] == "test"]
    assert test["violation"].iloc[1] < 0.5 * test["violation"].iloc[0]
    for wrong in (["size"], "age"):
        with pytest.raises(InvalidParameterError, match="continuous"):
            FairRegressor(continuous=wrong).fit(X, y, sensitive_features=frame)


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("below 24", -np.inf),
        ("24 to 46.5", 24.0),
        ("-1e+03 and above", -1000.0),
        ("back to work", None),
        ("below", None),
        ("24", None),
    ],
)
def test_the_name_of_a_band_tells_where_it_begins(name, start):
    assert band_start(name) == start
