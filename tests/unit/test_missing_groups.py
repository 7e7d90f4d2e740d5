"""How rows without a group are treated is decided in one place, `data.groups`.

The tests give these rows a group there and ask every model and audit to follow.
"""

import numpy as np
import pandas as pd
import pytest

import fferm.data.groups
from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairNetClassifier,
    FairRegressor,
    audit,
    audit_regression,
)
from fferm.data.groups import quantile_bands
from fferm.datasets import make_biased

DATA = make_biased(1200, n_groups=2, random_state=0)
NAMES = np.ravel(DATA.sensitive_features)
IS_FIRST = np.equal(NAMES, NAMES[0])
# Half of one group and nobody of the other: these rows are not a fair sample.
IS_MISSING = IS_FIRST & (np.random.default_rng(0).random(NAMES.size) < 0.5)
SENSITIVE = pd.Series(np.where(IS_FIRST, "a", "b"), name="s").mask(IS_MISSING, None)
FILLED = SENSITIVE.fillna("missing")
GROUPS = ["a", "b", "missing"]
CLASSIFIERS = {
    **{
        solver: FairLogisticRegression(solver=solver, random_state=0)
        for solver in ("lbfgs", "sgda", "semi_stochastic", "sreda")
    },
    "trees": FairBoostingClassifier(n_estimators=20),
    "net": FairNetClassifier(random_state=0, max_epochs=5),
}


@pytest.fixture
def missing_is_a_group(monkeypatch):
    """Make a group of the rows without a value."""
    monkeypatch.setattr(fferm.data.groups, "MISSING_GROUP", "missing")


def test_rows_without_a_value_are_in_no_group_today():
    with pytest.warns(fferm.errors.MissingGroupWarning):
        model = FairLogisticRegression().fit(
            DATA.X, DATA.y, sensitive_features=SENSITIVE
        )
    assert list(model.groups_) == ["a", "b"]


@pytest.mark.usefixtures("missing_is_a_group")
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_and_its_audit_follow(name):
    predicted = []
    for sensitive in (SENSITIVE, FILLED):
        model = CLASSIFIERS[name].fit(DATA.X, DATA.y, sensitive_features=sensitive)
        result = audit(
            model, DATA.X, DATA.y, sensitive_features=sensitive, n_bootstrap=0
        )
        assert list(result.groups) == list(model.groups_) == GROUPS
        predicted.append(model.predict_proba(DATA.X))
    np.testing.assert_allclose(*predicted, rtol=1e-10)


@pytest.mark.usefixtures("missing_is_a_group")
def test_batches_follow():
    models = []
    for sensitive in (SENSITIVE, FILLED):
        model = FairLogisticRegression(fairness_weight=30.0, random_state=0)
        for rows in np.array_split(np.arange(len(DATA.y)), 6):
            model.partial_fit(
                DATA.X[rows],
                DATA.y[rows],
                classes=[0, 1],
                sensitive_features=sensitive.iloc[rows],
            )
        assert list(model.groups_) == GROUPS
        models.append(model)
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-10)


@pytest.mark.usefixtures("missing_is_a_group")
@pytest.mark.parametrize("method", ["bins", "critic"])
def test_a_regressor_and_its_audit_follow(method):
    y = DATA.X[:, 0] + 0.5 * IS_FIRST
    predicted = []
    for sensitive in (SENSITIVE, FILLED):
        model = FairRegressor(method=method, fairness_weight=10.0, random_state=0)
        model.fit(DATA.X, y, sensitive_features=sensitive)
        result = audit_regression(
            model, DATA.X, y, sensitive_features=sensitive, n_permutations=0
        )
        assert list(result.columns["s"].groups) == list(model.groups_) == GROUPS
        predicted.append(model.predict(DATA.X))
    np.testing.assert_allclose(*predicted, rtol=1e-10)


@pytest.mark.usefixtures("missing_is_a_group")
def test_bands_of_numbers_follow():
    age = DATA.X[:, 0].copy()
    age[IS_MISSING] = np.nan
    model = FairLogisticRegression().fit(DATA.X, DATA.y, sensitive_features=age)
    bands = [band for band in set(quantile_bands(age)) if band is not None]
    assert set(model.groups_) == {*bands, "missing"}


@pytest.mark.usefixtures("missing_is_a_group")
@pytest.mark.parametrize("column", ["names", "whole numbers", "fractional numbers"])
def test_a_loss_follows(column):
    torch = pytest.importorskip("torch")
    from fferm.torch import FairnessLoss

    numbers = np.where(IS_MISSING, np.nan, DATA.X[:, 1])
    code = torch.from_numpy(np.where(IS_MISSING, -1, IS_FIRST.astype(int)))
    sensitive = {
        "names": SENSITIVE,
        "whole numbers": code,
        "fractional numbers": torch.from_numpy(numbers),
    }[column]
    fair = FairnessLoss.from_labels(DATA.y, sensitive)
    assert fair.groups[-1] == "missing"
    batch = fair.encode(sensitive) if column == "names" else sensitive
    logits = torch.from_numpy(DATA.X[:, :2].copy())
    group = fair.reader(logits, batch).cell[:, 0].numpy()
    assert np.all((group == len(fair.groups) - 1) == IS_MISSING)


@pytest.mark.usefixtures("missing_is_a_group")
def test_shards_follow(tmp_path):
    pytest.importorskip("torch")
    parquet = pytest.importorskip("pyarrow.parquet")
    from fferm.distributed import summarize

    table = pd.DataFrame({"x": DATA.X[:, 0], "y": DATA.y, "s": SENSITIVE})
    table.to_parquet(tmp_path / "rows.parquet")
    summary = summarize(tmp_path, target="y", sensitive="s", drop_sensitive=True)
    assert summary.groups == (tuple(GROUPS),)
    assert list(summary.fairness_loss().groups) == GROUPS
    rows = summary.encode(parquet.read_table(tmp_path / "rows.parquet"), np.float64)
    assert np.all((rows.group == 2) == IS_MISSING)
