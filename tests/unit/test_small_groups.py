"""Small groups train the loss, have no part in penalty and verdict, and are named."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest

from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairNetClassifier,
    FairRegressor,
    audit,
    tradeoff_curve,
)
from fferm.auditing import Audit
from fferm.errors import (
    EmptyStratumWarning,
    InfeasibleWarning,
    InvalidInputError,
    InvalidParameterError,
    SmallGroupWarning,
)
from fferm.tuning import CrossValidation, tune


def make_rows(n_small=12):
    rng = np.random.default_rng(0)
    group = np.repeat(["a", "b", "rare"], [200, 150, n_small])
    x = rng.normal(size=group.size) + (group == "a")
    x[group == "rare"] += 4  # nothing keeps a bound with these
    X = np.column_stack([x, rng.normal(size=group.size)])
    y = (x + rng.normal(size=group.size) > 0.5).astype(int)
    return {"X": X, "y": y, "sensitive_features": pd.Series(group, name="race")}


ROWS = make_rows()
MODELS = [
    FairLogisticRegression(fairness_weight=5.0),
    FairNetClassifier(hidden=(4,), max_epochs=2, random_state=0),
    FairBoostingClassifier(n_estimators=5, n_jobs=1),
    FairRegressor(),
]


def name(model):
    return type(model).__name__


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_a_small_group_is_named_and_not_compared(model):
    model.set_params(min_group_size=30)
    with pytest.warns(SmallGroupWarning, match=r"rare \(12 rows\) of race are smaller"):
        model.fit(**ROWS)
    assert model.groups_.tolist() == ["a", "b"]
    assert model.small_groups_ == {"race": {"rare": 12}}
    found = audit(model, **ROWS)
    assert "race: rare (12 rows), smaller than min_group_size" in str(found)
    assert "have no value" not in str(found)
    assert Audit.from_dict(found.to_dict()).notes == found.notes


def test_the_loss_still_sees_the_rows_of_small_groups():
    with pytest.warns(SmallGroupWarning):
        left_out = FairLogisticRegression(min_group_size=30).fit(**ROWS)
    groups = ROWS["sensitive_features"].where(ROWS["sensitive_features"] != "rare")
    with pytest.warns(match="12 of 362 rows have no value"):
        missing = FairLogisticRegression().fit(
            ROWS["X"], ROWS["y"], sensitive_features=groups
        )
    np.testing.assert_array_equal(left_out.coef_, missing.coef_)


def infeasible(**params):
    """Return the warning of a bound that these rows cannot show."""
    model = FairLogisticRegression(
        max_violation=0.001, confidence=None, random_state=0, **params
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(**ROWS)
    (text,) = [str(w.message) for w in caught if w.category is InfeasibleWarning]
    return text


def test_a_bound_that_fails_names_the_worst_pair_its_rows_and_the_noise():
    text = infeasible()
    assert re.search(r"between \w+ \(\d+ held-out rows\) and \w+ \(\d+ held-out", text)
    assert re.search(
        r"a fair model measures 0\.\d{4} on these rows, so they cann", text
    )
    assert "cannot show a violation of 0.001. Collect more rows" in text


@pytest.mark.parametrize("metric", ["kolmogorov_smirnov", "mean_gap", "wasserstein"])
def test_a_bound_of_a_regressor_names_the_same(metric):
    model = FairRegressor(max_violation=1e-6, random_state=0, violation_metric=metric)
    rows = {**ROWS, "y": ROWS["X"][:, 0]}
    with pytest.warns(InfeasibleWarning) as caught:
        model.fit(**rows)
    text = str(caught[-1].message)
    assert re.search(r", between \w \(\d+ held-out rows\) and rare \(2 held-", text)
    assert re.search(r"a fair model measures \d\.\d+ on these rows, so they cann", text)


def test_a_bound_is_judged_without_the_small_groups():
    text = infeasible(min_group_size=30)
    assert "rare" not in text
    assert "a (40 held-out rows)" in text


def test_an_audit_leaves_out_the_groups_that_are_small_on_its_rows():
    decided = ROWS["y"]
    rows = {"y_true": ROWS["y"], "y_pred": decided, "n_bootstrap": 0}
    with pytest.warns(EmptyStratumWarning, match="there is no other group"):
        found = audit(
            **rows, sensitive_features=ROWS["sensitive_features"], min_group_size=160
        )
    assert found.small_groups == {"race": {"b": 150, "rare": 12}}
    assert np.isnan(found.violation)  # one group has nobody to be compared with
    found = audit(
        **rows, sensitive_features=ROWS["sensitive_features"], min_group_size=13
    )
    assert list(found.groups) == ["a", "b"]
    words = "smaller than min_group_size: a .200 rows., b .150 rows.*Lower it"
    with pytest.raises(InvalidInputError, match=words):
        audit(**rows, sensitive_features=ROWS["sensitive_features"], min_group_size=900)
    with pytest.raises(InvalidParameterError, match="min_group_size must be"):
        audit(**rows, sensitive_features=ROWS["sensitive_features"], min_group_size=0)


def test_an_audit_of_numbers_says_between_whom_and_what_chance_would_give():
    found = audit(
        y_true=ROWS["X"][:, 0],
        y_pred=ROWS["X"][:, 0],
        sensitive_features=ROWS["sensitive_features"],
        n_bootstrap=10,
    )
    text = str(Audit.from_dict(found.to_dict()))
    assert re.search(r"between +b \(150 rows\)\n +and +rare \(12 rows\)\n", text)
    assert re.search(r"by chance +0\.\d+   a fair model on these rows\n", text)
    assert max(map(len, text.splitlines())) <= 80


def test_an_audit_of_numbers_fits_the_terminal_whatever_groups_are_called():
    rng, n = np.random.default_rng(0), 900
    groups = {
        "a rather long name of a column": rng.integers(0, 25, n).astype(str),
        "another": rng.choice(["a rather long name of a group of people", "b"], n),
    }
    groups = pd.DataFrame(groups).add_prefix("column ")
    y = 1e5 * rng.normal(size=n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        found = audit(y_true=y, y_pred=y, sensitive_features=groups, n_bootstrap=5)
    assert max(map(len, str(found).splitlines())) <= 80
    assert "more groups in .group_frame" in str(found)


def test_curves_and_searches_measure_the_groups_that_are_trained_on():
    model = FairLogisticRegression(min_group_size=30)
    with pytest.warns(SmallGroupWarning):
        curve = tradeoff_curve(model, **ROWS, fairness_weights=[10.0])
    assert curve.audits[10.0, 0].small_groups["race"].keys() == {"rare"}
    record = curve.records.query("split == 'test' and fairness_weight == 10").iloc[0]
    assert record["violation"] == pytest.approx(curve.audits[10.0, 0].violation)
    with pytest.warns(SmallGroupWarning):
        tuned = tune(
            model,
            **ROWS,
            max_violation=0.5,
            divergences=["kl"],
            fairness_weights=[10.0],
            validation=CrossValidation(2),
        )
    assert tuned.estimator.groups_.tolist() == ["a", "b"]
