"""Salaries of the government census, where the file is at hand."""

import numpy as np
import pytest

from fferm import FairRegressor
from fferm.data.groups import quantile_bands
from fferm.data.rows import FitInput
from fferm.datasets import load_gov_census
from fferm.metrics.dependence import distance_correlation, kolmogorov_smirnov


def census(column):
    data = load_gov_census(sensitive=(column,), drop_sensitive=True)
    rows = np.random.default_rng(0).permutation(len(data.y))[:8000]
    s = np.asarray(data.sensitive_features[column])[rows]
    return data.X[rows], data.y[rows], s


@pytest.mark.parametrize(
    ("column", "weight", "most"), [("sex", 3.0, 1.05), ("age", 3.0, 1.25)]
)
def test_half_of_the_gap_in_salaries_costs_little(column, weight, most, data_file):
    data_file("acs_gov_census_2018.parquet")
    X, y, s = census(column)
    given = s if column == "sex" else quantile_bands(s)
    plain, fair = (
        model.predict(X)
        for model in FairRegressor().fit_path(FitInput(X, y, given), [0.0, weight])
    )
    if column == "sex":
        code = (s == "female").astype(int)
        gaps = [kolmogorov_smirnov(u, code) for u in (plain, fair)]
    else:
        gaps = [distance_correlation(u, s.astype(float)) for u in (plain, fair)]
    assert gaps[1] < 0.5 * gaps[0]
    errors = [np.mean((y - u) ** 2) for u in (plain, fair)]
    assert errors[1] < most * errors[0]
