import json
import math
import sys
import types

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from fferm import tables
from fferm.auditing import audit
from fferm.auditing.judgement import PLAIN_DIVERGENCES
from fferm.auditing.resampling import bootstrap_sample
from fferm.divergences import Alpha
from fferm.errors import (
    EmptyStratumWarning,
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
    MissingGroupWarning,
    SmallGroupWarning,
)
from fferm.metrics import (
    encode_decisions,
    group_table,
    make_setting,
    one_hot,
    soft_violation,
    violation,
)
from fferm.notions import ConditionalParity, EqualizedOdds, get

NOTIONS = [
    "demographic_parity",
    "equal_opportunity",
    "equalized_odds",
    "sufficiency",
    "predictive_parity",
]


class Given(ClassifierMixin, BaseEstimator):
    """A classifier whose decisions are the first column of X."""

    def __init__(self, notion=None, groups=None, divergence=None, classes=(0, 1)):
        self.notion = notion
        self.groups = groups
        self.divergence = divergence
        self.classes = classes

    @property
    def classes_(self):
        return np.array(self.classes)

    def fit(self, X, y):
        self.is_fitted_ = True
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0].astype(int)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], size=2000, p=[0.4, 0.6])
    race = rng.choice(["x", "y", "z"], size=2000)
    X = pd.DataFrame(
        {
            "skill": rng.normal(size=2000) + (sex == "m"),
            "noise": rng.normal(size=2000),
            "team": rng.integers(0, 2, size=2000),
        }
    )
    y = np.where(X["skill"] + rng.normal(size=2000) > 0.5, "yes", "no")
    return X, y, pd.DataFrame({"sex": sex, "race": race})


@pytest.fixture(scope="module")
def model(data):
    X, y, _ = data
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)


def quick(model, X, y, **options):
    return audit(model, X, y, **{"n_bootstrap": 50} | options)


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("groups", ["intersection", "marginal"])
def test_an_audit_measures_what_the_metrics_measure(data, model, notion, groups):
    X, y, sensitive = data
    weight = np.random.default_rng(1).exponential(size=len(y))
    rows = {
        "sensitive_features": sensitive,
        "notion": notion,
        "groups": groups,
        "sample_weight": weight,
    }

    found = quick(model, X, y, **rows)

    assert found.violation == violation(y, model.predict(X), **rows)
    prob, classes = model.predict_proba(X), model.classes_
    assert found.soft_violation == soft_violation(y, prob, classes=classes, **rows)
    assert found.accuracy == pytest.approx(model.score(X, y, sample_weight=weight))


@pytest.mark.parametrize("notion", NOTIONS)
def test_intervals_hold_the_violation(data, model, notion):
    X, y, sensitive = data

    found = quick(
        model, X, y, sensitive_features=sensitive["sex"], notion=notion, n_bootstrap=300
    )

    for low, high in (found.interval, found.bootstrap_interval):
        assert 0 <= low < found.violation < high <= 1
    assert found.soft_interval[0] < found.soft_violation < found.soft_interval[1]


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("column", ["sex", "race"])
def test_certificates_bound_the_violation_of_their_table(data, model, notion, column):
    X, y, sensitive = data

    found = quick(
        model,
        X,
        y,
        sensitive_features=sensitive[column],
        notion=notion,
        divergence=Alpha(power=3.0),
    )

    assert set(found.certificates) == {*PLAIN_DIVERGENCES, "Alpha(power=3.0)"}
    assert min(found.certificates.values()) >= found.violation - 1e-12
    assert min(found.soft_certificates.values()) >= found.soft_violation - 1e-12


@pytest.mark.parametrize(
    "notion",
    ["equalized_odds", EqualizedOdds(weights="frequency"), "equal_opportunity"],
)
def test_divergences_are_the_penalties_of_training(data, model, notion):
    X, y, sensitive = data
    labels, decision = encode_decisions(y, model.predict(X))
    strata = get(notion).strata(labels)
    group = pd.factorize(sensitive["race"])[0]

    found = quick(
        model, X, y, sensitive_features=sensitive["race"], notion=notion, n_bootstrap=0
    )

    for prob, which in ((one_hot(decision, 2), 0), (model.predict_proba(X), 1)):
        joint = tables.joint(prob, group, 3, stratum=strata.code)
        for name in PLAIN_DIVERGENCES:
            expected, _ = tables.penalty(joint, name, weighting=get(notion).weighting)
            assert found.divergences[name][which] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("notion", "predicted"), [("sufficiency", None), ("predictive_parity", 1)]
)
def test_divergences_of_sufficiency_are_the_penalties_of_training(
    data, model, notion, predicted
):
    X, y, sensitive = data
    labels, decision = encode_decisions(y, model.predict(X))
    group = pd.factorize(sensitive["race"])[0]
    joint = tables.joint(one_hot(decision, 2), group, 3, stratum=labels.y)

    found = quick(
        model, X, y, sensitive_features=sensitive["race"], notion=notion, n_bootstrap=0
    )

    for name in PLAIN_DIVERGENCES:
        expected, _ = tables.sufficiency(joint, name, predicted=predicted)
        assert found.divergences[name].hard == pytest.approx(expected, rel=1e-10)


def test_a_divergence_is_a_share_of_the_largest_possible():
    group = ["a"] * 30 + ["b"] * 20
    X = np.repeat([[0.0], [1.0]], [30, 20], axis=0)

    found = quick(Given(), X, X[:, 0], sensitive_features=group)

    assert found.divergences["kl"].share_of_largest == pytest.approx(1)
    assert found.divergences["reverse_kl"].hard == math.inf
    assert math.isnan(found.divergences["reverse_kl"].share_of_largest)
    assert found.certificates["reverse_kl"] == 1


def test_groups_hold_the_rates_of_decisions_labels_and_probabilities(data, model):
    X, y, sensitive = data
    sex = sensitive["sex"]

    frame = quick(model, X, y, sensitive_features=sex).frame

    expected = group_table(y, model.predict(X), sensitive_features=sex)
    pd.testing.assert_frame_equal(frame[expected.columns], expected)
    soft = pd.Series(model.predict_proba(X)[:, 1]).groupby(sex).mean()
    np.testing.assert_allclose(frame["soft_rate_yes"], soft)
    assert (frame["selection_low_yes"] < frame["selection_rate_yes"]).all()
    assert (frame["selection_high_yes"] > frame["selection_rate_yes"]).all()


def test_a_model_without_probabilities_is_judged_by_its_decisions(data):
    X, y, sensitive = data
    model = LinearSVC().fit(X, y)

    found = quick(model, X, y, sensitive_features=sensitive["sex"])

    assert found.soft_violation is None
    assert found.soft_interval is None
    assert found.soft_certificates == {}
    assert found.divergences["kl"].soft is None
    assert "soft_rate_yes" not in found.frame.columns


def test_the_estimators_own_settings_are_the_defaults(data):
    X, y, sensitive = data
    own = Given("separation", "marginal", "chi2")
    decisions = (X[["skill"]] > 0).to_numpy()

    found = quick(own, decisions, y == "yes", sensitive_features=sensitive)

    assert found.notion == "equalized_odds"
    assert found.divergence == "chi2"
    assert next(iter(found.groups)) == "sex=f"


def test_settings_are_found_inside_of_pipelines_and_searches(data):
    X, y, sensitive = data
    decisions = (X[["skill"]] > 0).to_numpy()
    y = (y == "yes").astype(int)
    inside = make_pipeline(Given(notion="equal_opportunity")).fit(decisions, y)
    search = GridSearchCV(Given(), {"notion": ["equal_opportunity"]}, cv=2)

    for estimator in (inside, search.fit(decisions, y)):
        found = quick(estimator, decisions, y, sensitive_features=sensitive["sex"])
        assert found.notion == "equal_opportunity"


def test_what_the_caller_says_comes_before_the_estimators_settings(data):
    X, y, sensitive = data
    own = Given("equalized_odds", "marginal", "chi2")

    found = quick(
        own,
        (X[["skill"]] > 0).to_numpy(),
        y == "yes",
        sensitive_features=sensitive,
        notion="demographic_parity",
        groups="intersection",
        divergence="js",
    )

    assert found.notion == "demographic_parity"
    assert found.divergence == "jensen_shannon"
    assert "f × x" in found.groups


@pytest.mark.parametrize(
    "estimator", [Given("of another library", "whatever", 7), types.SimpleNamespace()]
)
def test_foreign_parameters_of_the_same_name_are_ignored(data, estimator):
    X, y, sensitive = data
    estimator.predict = lambda X: np.asarray(X)[:, 0].astype(int)

    found = quick(
        estimator,
        (X[["skill"]] > 0).to_numpy(),
        y == "yes",
        sensitive_features=sensitive["sex"],
    )

    assert found.notion == "demographic_parity"
    assert found.divergence == "kl"


def test_a_wrong_name_from_the_caller_is_an_error(data, model):
    X, y, sensitive = data

    with pytest.raises(InvalidParameterError, match="Unknown notion 'odds'"):
        quick(model, X, y, sensitive_features=sensitive, notion="odds")
    with pytest.raises(InvalidParameterError, match="groups='some' came"):
        quick(model, X, y, sensitive_features=sensitive, groups="some")


def test_a_control_feature_is_found_in_the_data(data, model):
    X, y, sensitive = data
    notion = ConditionalParity(control="team")

    found = quick(model, X, y, sensitive_features=sensitive["sex"], notion=notion)

    by_hand = ConditionalParity(control=list(X["team"]))
    assert found.violation == violation(
        y, model.predict(X), sensitive_features=sensitive["sex"], notion=by_hand
    )
    assert {gap.stratum for gap in found.gaps} == {"0", "1"}


def test_a_label_that_training_did_not_have_is_a_class_of_probability_0(data, model):
    X, y, sensitive = data
    relabelled = np.where(np.arange(len(y)) % 50 == 0, "maybe", y)

    found = quick(model, X, relabelled, sensitive_features=sensitive["sex"])

    assert found.classes == ("maybe", "no", "yes")
    assert (found.frame["soft_rate_maybe"] == 0).all()
    assert (found.frame["base_rate_maybe"] > 0).all()


def test_labels_are_not_needed_for_demographic_parity(data, model):
    X, _, sensitive = data

    found = quick(model, X, None, sensitive_features=sensitive["sex"])

    assert found.violation > 0
    assert math.isnan(found.accuracy)
    assert found.frame["base_rate_yes"].isna().all()


def test_no_draws_leave_no_bootstrap_interval(data, model):
    X, y, sensitive = data

    found = quick(model, X, y, sensitive_features=sensitive["sex"], n_bootstrap=0)

    assert found.bootstrap_interval is None
    assert found.soft_interval is None
    assert found.interval[1] > 0


def test_the_same_seed_gives_the_same_audit(data, model):
    X, y, sensitive = data
    first, again = (
        quick(model, X, y, sensitive_features=sensitive, random_state=3)
        for _ in range(2)
    )

    assert first == again


def test_a_bound_is_passed_by_the_estimate_or_with_confidence(data, model):
    X, y, sensitive = data
    found = quick(model, X, y, sensitive_features=sensitive["sex"])
    between = (found.violation + found.interval[1]) / 2

    assert not found.passes(found.violation - 1e-9)
    assert found.passes(between)
    assert not found.passes(between, confident=True)
    assert found.passes(1, confident=True)


def test_a_bound_that_is_none_is_refused(data, model):
    X, y, sensitive = data
    found = quick(model, X, y, sensitive_features=sensitive["sex"])

    with pytest.raises(InvalidParameterError, match="max_violation=5 came"):
        found.passes(5)


@pytest.fixture
def undefined():
    """Return the audit of a single group."""
    X = np.tile([[0.0], [1.0]], (10, 1))
    with pytest.warns(EmptyStratumWarning, match="fewer than two groups"):
        return quick(Given(), X, X[:, 0], sensitive_features=["a"] * 20)


def test_an_audit_of_one_group_is_undefined_and_never_passes(undefined):
    assert math.isnan(undefined.violation)
    assert all(map(math.isnan, undefined.interval))
    assert all(map(math.isnan, undefined.bootstrap_interval))
    assert math.isnan(undefined.divergences["kl"].hard)
    assert undefined.certificates == {}
    assert not undefined.passes(1)
    assert not undefined.passes(1, confident=True)


def test_undefined_numbers_are_null_in_json_and_infinite_ones_are_named(undefined):
    plain = json.loads(json.dumps(undefined.to_dict(), allow_nan=False))
    assert plain["violation"] is None
    assert plain["interval"] == [None, None]

    X = np.repeat([[0.0], [1.0]], 10, axis=0)
    perfect = quick(Given(), X, X[:, 0], sensitive_features=X[:, 0])
    plain = json.loads(json.dumps(perfect.to_dict(), allow_nan=False))
    assert plain["divergences"]["reverse_kl"]["hard"] == "inf"
    assert plain["divergences"]["reverse_kl"]["share_of_largest"] is None


def test_an_audit_survives_json(data, model):
    X, y, sensitive = data
    found = quick(
        model, X, y, sensitive_features=sensitive["sex"], notion="equalized_odds"
    )

    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))

    assert plain["violation"] == found.violation
    assert plain["groups"]["f"]["count"] == found.groups["f"]["count"]
    assert plain["gaps"][0]["stratum"] == "y=no"
    assert plain["divergences"]["kl"]["soft"] == found.divergences["kl"].soft


def test_absent_groups_are_listed_and_named():
    X = np.tile([[0.0], [1.0]], (30, 1))
    y = X[:, 0].copy()
    y[40:] = 0
    group = np.repeat(["a", "b", "c"], 20)

    with pytest.warns(EmptyStratumWarning, match=r"y=1: c \(no rows"):
        found = quick(
            Given(), X, y, sensitive_features=group, notion="equal_opportunity"
        )

    assert [absence.groups for absence in found.absent] == [("c",)]
    assert "group, y=1: c (no rows with a positive weight)" in str(found)
    assert math.isnan(found.groups["c"]["true_positive_rate"])
    assert "undefined" in str(found)


def test_small_groups_are_named():
    X = np.tile([[0.0], [1.0]], (12, 1))
    group = ["a"] * 20 + ["b"] * 4

    with pytest.warns(SmallGroupWarning, match=r"b \(4 rows, everyone\)"):
        quick(Given(), X, X[:, 0], sensitive_features=group)


def test_rows_without_a_group_count_for_accuracy_alone():
    X = np.tile([[0.0], [1.0]], (20, 1))
    y = X[:, 0].copy()
    y[:4] = 1 - y[:4]
    group = [None] * 4 + ["a", "a", "b", "b"] * 9

    with pytest.warns(MissingGroupWarning, match="4 of 40 rows"):
        found = quick(Given(), X, y, sensitive_features=group)

    assert found.accuracy == 0.9
    assert found.frame["accuracy"].tolist() == [1, 1]
    assert found.frame["count"].sum() == 36


def test_an_audit_prints_as_a_table(data, model):
    X, y, sensitive = data

    text = str(quick(model, X, y, sensitive_features=sensitive["sex"]))

    assert text.startswith("Audit of 2000 rows, demographic_parity")
    assert "95 % interval [" in text
    assert "selection_rate_yes" in text
    assert "selection_rate_no" not in text


def test_a_page_is_written_by_the_report(data, model, monkeypatch, tmp_path):
    X, y, sensitive = data
    found = quick(model, X, y, sensitive_features=sensitive["sex"])
    written = []
    report = types.ModuleType("fferm.report")
    report.write_audit = lambda audit, path: written.append((audit, path))
    monkeypatch.setitem(sys.modules, "fferm.report", report)

    found.to_html(tmp_path / "audit.html")

    assert written == [(found, tmp_path / "audit.html")]


def test_decisions_are_drawn_by_kind_and_add_up_to_their_table(data, model):
    X, y, sensitive = data
    labels, decision = encode_decisions(y, model.predict(X))
    weight = np.where(np.arange(len(y)) % 2, 1.0, 3.0)
    setting = make_setting(labels, get("equalized_odds"), sensitive, "marginal", weight)
    hard = one_hot(decision, 2)

    sample = bootstrap_sample(setting, hard, decision)

    assert sample.count.sum() == len(y)
    assert sample.count.size <= 2 * 2 * 2 * 6  # weight, label, decision, groups
    mass = [table.mass.ravel() for table in setting.tables(hard)]
    np.testing.assert_allclose(
        sample.count @ sample.totals, np.concatenate(mass), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0] * 19, "X has 20 rows, y has 19"),
        ([0] * 19 + [None], "1 missing labels"),
        ([0] * 19 + [0.5], "fractional numbers"),
    ],
)
def test_labels_that_cannot_be_judged_are_refused(y, message):
    X = np.tile([[0.0], [1.0]], (10, 1))

    with pytest.raises(InvalidInputError, match=message):
        quick(Given(), X, y, sensitive_features=["a", "b"] * 10)


def test_an_empty_audit_is_refused():
    with pytest.raises(InvalidInputError, match="X has 0 rows"):
        quick(Given(), np.empty((0, 1)), [], sensitive_features=[])


def test_groups_of_another_length_are_refused():
    X = np.tile([[0.0], [1.0]], (10, 1))

    with pytest.raises(InvalidInputError, match="group has 3 values"):
        quick(Given(), X, X[:, 0], sensitive_features=["a", "b", "a"])


def test_something_that_cannot_predict_is_refused():
    with pytest.raises(InvalidTypeError, match="StandardScaler has no predict"):
        quick(StandardScaler(), [[0.0]], [0], sensitive_features=["a"])


def test_an_undefined_level_is_refused(data, model):
    X, y, sensitive = data

    with pytest.raises(InvalidParameterError, match="confidence=95 came"):
        quick(model, X, y, sensitive_features=sensitive["sex"], confidence=95)
