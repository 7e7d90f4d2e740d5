"""Sensitive columns of numbers: what is cut into bands, and who is told."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairNetClassifier,
    FairRegressor,
    audit,
    load,
    save,
    tradeoff_curve,
)
from fferm.auditing import Audit, RegressionAudit, audit_regression
from fferm.data.groups import assign, band_names, band_start, find_edges, quantile_bands
from fferm.errors import (
    DataFairnessWarning,
    InvalidInputError,
    InvalidParameterError,
)
from fferm.estimators import regression
from fferm.metrics.dependence import make_regression_tabulator
from fferm.tuning import CrossValidation, tune


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
    said = "age holds numbers and is compared in the 8 bands of training."
    assert said in str(found)
    assert said in found._repr_html_()
    assert Audit.from_dict(found.to_dict()) == found
    found.to_html(tmp_path / "page.html")
    assert said in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_an_audit_of_numbers_that_training_did_not_see_says_that_it_cut(ages):
    X, y, age = ages
    model = FairLogisticRegression(fairness_weight=0).fit(X, y)
    sensitive = {"age": age + 0.5}
    found = audit(model, X, y, sensitive_features=sensitive, n_bootstrap=0)
    assert "was cut into 8 bands with equal numbers of rows" in str(found)
    assert found.trained_bands == ()


# Some bands of training have no test rows, and all say so.
no_old_rows = pytest.mark.filterwarnings("ignore::fferm.errors.EmptyStratumWarning")


@pytest.fixture
def younger_test(ages):
    """Test rows that are younger than those of training, on the same features."""
    X, y, age = ages
    train, test = np.flatnonzero(age >= 30), np.flatnonzero(age < 50)
    return X, y, age + 0.25 * (np.arange(age.size) % 4), train, test


@no_old_rows
@pytest.mark.parametrize(
    "model",
    [
        FairLogisticRegression(fairness_weight=0.01),
        FairBoostingClassifier(fairness_weight=0.01, n_estimators=9, n_jobs=1),
        FairNetClassifier(fairness_weight=0.01, max_epochs=9, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_person_is_in_one_band_in_training_and_in_audits(model, younger_test):
    X, y, age, train, test = younger_test
    own = pd.Series(age, name="age")
    model = clone(model).fit(X[train], y[train], sensitive_features=own[train])
    (edges,) = model.band_edges_.values()
    for sensitive in (own[test], age[test], {"age": age[test]}):
        rows = {"sensitive_features": sensitive, "n_bootstrap": 0}
        found = audit(model, X[test], y[test], **rows)
        first = float(np.sum(age[test] < edges[0]))
        assert found.trained_bands
        assert found.groups[model.groups_[0]]["count"] == first
        # Nobody among them is old: the band is there and named, and not judged.
        assert any(model.groups_[-1] in str(absence) for absence in found.absent)
    piped = Pipeline([("scale", FunctionTransformer()), ("model", model)])
    assert audit(piped, X[test], y[test], **rows).frame.equals(found.frame)


def test_bands_are_saved_with_the_model(younger_test, tmp_path):
    X, y, age, train, test = younger_test
    frame = pd.DataFrame({"age": age, "sex": np.arange(age.size) % 2})
    model = FairLogisticRegression().fit(
        X[train], y[train], sensitive_features=frame.iloc[train]
    )
    save(model, tmp_path / "model")
    kept = load(tmp_path / "model")
    assert kept.band_edges_ == model.band_edges_
    one, other = (
        audit(m, X[test], y[test], sensitive_features=frame.iloc[test], n_bootstrap=0)
        for m in (model, kept)
    )
    assert one == other
    assert one.trained_bands == ("age",)


@no_old_rows
@pytest.mark.parametrize(
    "model",
    [
        FairLogisticRegression(),
        FairRegressor(continuous=["age"]),
        FairRegressor(violation_metric="mean_gap"),
    ],
)
@pytest.mark.parametrize("weights", [[0, 3], [0]])
def test_curves_measure_test_rows_in_the_bands_of_training(
    model, weights, younger_test
):
    X, y, age, train, test = younger_test
    y = y if isinstance(model, FairLogisticRegression) else X.sum(axis=1)
    curve = tradeoff_curve(
        model,
        X[train],
        y[train],
        sensitive_features={"age": age[train]},
        test=(X[test], y[test], {"age": age[test]}),
        fairness_weights=weights,
    )
    edges = find_edges(age[train])
    banded = {"age": np.array(band_names(edges))[assign(age[test], edges)]}
    again = tradeoff_curve(
        clone(model).set_params(**_without_numbers(model)),
        X[train],
        y[train],
        sensitive_features={"age": quantile_bands(age[train])},
        test=(X[test], y[test], banded),
        fairness_weights=weights,
    )
    measured = [found.records["violation"] for found in (curve, again)]
    np.testing.assert_allclose(*measured)


def _without_numbers(model):
    return {"continuous": "auto"} if isinstance(model, FairRegressor) else {}


def test_a_regressor_is_held_to_its_bound_in_the_bands_of_training(ages, monkeypatch):
    X, _, age = ages
    y = X.sum(axis=1)
    found = []

    def watched(*arguments):
        found.append(arguments[5].edges)
        return make_regression_tabulator(*arguments)

    monkeypatch.setattr(regression, "make_regression_tabulator", watched)
    options = {"continuous": ["age"], "max_violation": 0.2, "confidence": None}
    model = FairRegressor(random_state=0, **options)
    model.fit(X, y, sensitive_features={"age": age})
    assert found == [model.band_edges_] * 2


def test_an_audit_of_a_regressor_takes_its_bands(younger_test):
    X, _, age, train, test = younger_test
    y, whole = X.sum(axis=1), age.astype(int)
    model = FairRegressor(continuous=["age"])
    model.fit(X[train], y[train], sensitive_features={"age": whole[train]})
    rows = {"sensitive_features": {"age": whole[test]}, "n_permutations": 0}
    found = audit_regression(model, X[test], y[test], n_bootstrap=0, **rows)
    groups = found.columns["age"].groups
    assert set(groups) < set(model.groups_)
    assert groups[model.groups_[0]]["rows"] == np.sum(
        whole[test] < model.band_edges_["age"][0]
    )
    assert "bands of training" in str(found)
    assert RegressionAudit.from_dict(found.to_dict()) == found
    alone = audit_regression(None, y[test], y[test], n_bootstrap=0, **rows)
    assert "bands of equal size" in str(alone)


@no_old_rows
def test_models_of_frames_are_audited_in_the_bands_of_training(younger_test):
    X, y, age, train, test = younger_test
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "age": age, "place": "here"})
    for continuous in ("auto", ["age"]):
        model = FairLogisticRegression(continuous=continuous)
        rows = frame.iloc[train]
        model.fit(rows, y[train], sensitive_features=rows[["age"]])
        rows = frame.iloc[test]
        found = audit(model, rows, y[test], sensitive_features=rows[["age"]])
        assert found.trained_bands == ("age",)


def test_each_fold_of_a_search_cuts_bands_of_its_own(younger_test, monkeypatch):
    X, y, age, train, _ = younger_test
    edges, expected = [], []
    fit_path = FairLogisticRegression.fit_path

    def watched(self, given, *rest):
        expected.append({"age": tuple(find_edges(given.sensitive_features["age"]))})
        for model in fit_path(self, given, *rest):
            edges.append(model.band_edges_)
            yield model

    monkeypatch.setattr(FairLogisticRegression, "fit_path", watched)
    tune(
        FairLogisticRegression(),
        X[train],
        y[train],
        sensitive_features={"age": age[train]},
        validation=CrossValidation(2),
        max_violation=0.9,
        divergences=["kl"],
        fairness_weights=[1.0],
    )
    assert edges == expected
    assert edges[0] != edges[1]


def test_whole_numbers_of_many_values_stay_groups_with_a_warning(ages):
    X, y, age = ages
    for values in (age, age.astype(float)):
        with pytest.warns(DataFairnessWarning, match="age makes 62 groups, one per"):
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
