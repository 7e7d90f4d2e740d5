import json
import math
import sys
import types

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC

from fferm import tables
from fferm.auditing import Audit, audit
from fferm.data.validate import encode_decisions, one_hot
from fferm.divergences import STANDARD, Alpha
from fferm.divergences import get as get_divergence
from fferm.errors import (
    DataFairnessWarning,
    EmptyStratumWarning,
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
    MissingGroupWarning,
    SmallGroupWarning,
)
from fferm.metrics import group_table, intervals, soft_violation, violation
from fferm.metrics.intervals import bootstrap_sample
from fferm.metrics.tabulator import make_tabulator
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

    assert set(found.certificates) == {*STANDARD, "Alpha(power=3.0)"}
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
        for name in STANDARD:
            expected, _ = tables.penalty(joint, name, weighting=get(notion).weighting)
            assert found.divergences[name][which] == pytest.approx(expected, rel=1e-10)


@pytest.mark.filterwarnings("ignore::fferm.errors.MissingGroupWarning")
def test_rows_without_the_control_feature_take_no_weight_from_the_others(data, model):
    X, y, sensitive = data
    control = np.array(["low", "high", None], dtype=object)[np.arange(len(X)) % 3]
    has_one = control != None  # noqa: E711 - by entry
    found = [
        quick(
            model,
            X[rows],
            y[rows],
            sensitive_features=sensitive["race"][rows],
            notion=ConditionalParity(control[rows]),
            n_bootstrap=0,
        ).divergences
        for rows in (np.full(len(X), fill_value=True), has_one)
    ]
    for name in STANDARD:
        assert tuple(found[0][name]) == pytest.approx(
            tuple(found[1][name]), rel=1e-12, nan_ok=True
        )


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

    for name in STANDARD:
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


@pytest.mark.parametrize("name", STANDARD)
def test_a_fair_model_is_audited_in_the_normalisation_of_the_paper(name):
    rng = np.random.default_rng(0)
    divergence = get_divergence(name, normalisation="paper")
    for _ in range(20):
        y, group = rng.integers(0, 2, 200), rng.choice(["a", "b", "c"], 200)
        fair = DummyClassifier(strategy="prior").fit(y[:, None], y)
        options = {"sensitive_features": group, "divergence": divergence}
        found = quick(fair, y[:, None], y, **options, n_bootstrap=0)

        value = found.divergences[found.divergence]
        assert 0 <= value.hard < 1e-15
        assert 0 <= value.soft < 1e-15
        assert 0 <= found.certificates[found.divergence] < 1e-6


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
    with pytest.raises(InvalidParameterError, match="groups must be"):
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

    with pytest.warns(DataFairnessWarning, match="the model does not know"):
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
    assert not found.passes(between, confidence=0.999)
    assert found.passes(1, confidence=0.999)
    with pytest.raises(InvalidParameterError, match=r"at least 0\.5 and below 1; got"):
        found.passes(1, confidence=0.49)


def test_a_verdict_is_that_of_the_tests_on_the_rates(data, model):
    X, y, sensitive = data
    for notion in ("demographic_parity", "equalized_odds"):
        found = quick(model, X, y, sensitive_features=sensitive["sex"], notion=notion)
        again = type(found).from_dict(json.loads(json.dumps(found.to_dict())))
        rates = [np.array(part.rates) for part in found.rates]
        sizes = [np.array(part.sizes) for part in found.rates]
        assert len(rates[0]) == (2 if notion == "equalized_odds" else 1)
        for bound in (0.0, found.violation / 2, found.violation + 0.05, 0.8):
            kept = intervals.certify(rates, sizes, bound) <= 0.1
            broken = intervals.refute(rates, sizes, bound) <= 0.1
            expected = "passes" if kept else "refuted" if broken else "undecided"
            assert found.verdict(bound, 0.9) == again.verdict(bound, 0.9) == expected
            assert found.passes(bound, confidence=0.9) == kept


def test_a_verdict_takes_more_rows_the_nearer_the_bound_is(data, model):
    X, y, sensitive = data
    found = quick(model, X, y, sensitive_features=sensitive["sex"])

    near, far = (found.rows_to_decide(found.violation + d) for d in (0.001, 0.02))
    assert near > 100 * far > 0
    assert found.rows_to_decide(found.violation) is None


def test_an_audit_says_what_noise_alone_would_measure(data, model):
    X, y, sensitive = data
    found = quick(model, X, y, sensitive_features=sensitive["sex"])

    assert 0 < found.floor < found.floor_high
    assert 0 <= found.corrected < found.violation
    assert f"without noise   {found.corrected:.4f}" in str(found)


def test_an_audit_of_before_has_no_rates_to_test(data, model):
    X, y, sensitive = data
    plain = quick(model, X, y, sensitive_features=sensitive["sex"]).to_dict()
    del plain["rates"]

    with pytest.raises(InvalidInputError, match="without the rates that a test needs"):
        Audit.from_dict(plain).passes(0.5, confidence=0.95)


def test_a_bound_that_is_none_is_refused(data, model):
    X, y, sensitive = data
    found = quick(model, X, y, sensitive_features=sensitive["sex"])

    with pytest.raises(InvalidParameterError, match="between 0 and 1; got 5"):
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
    assert not undefined.passes(1, confidence=0.95)
    assert undefined.verdict(0.5) == "undecided"


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
    assert "undefined" in found.summary(full=True)


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
    assert "rate of yes" in text
    assert "rate of no" not in text
    assert "implies a violation" not in text
    whole = quick(model, X, y, sensitive_features=sensitive["sex"]).summary(full=True)
    assert "selection_rate_yes" in whole
    assert "implies a violation of at most" in whole


LONG = "a name of a group that is far too long for a terminal of eighty columns, or two"


@pytest.mark.parametrize("n_groups", [2, 30])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_a_printed_audit_fits_into_80_columns(n_groups, n_classes):
    rng = np.random.default_rng(0)
    y, predicted = (
        np.array([f"{LONG} {c}" for c in range(n_classes)])[code]
        for code in rng.integers(n_classes, size=(2, 9000))
    )
    group = [f"{LONG} {k}" for k in rng.integers(n_groups, size=9000)]
    found = audit(
        y_true=y,
        y_pred=predicted,
        sensitive_features={LONG: group},
        notion="equalized_odds",
        n_bootstrap=0,
    )
    assert max(map(len, str(found).splitlines())) <= 80


def test_an_audit_says_between_whom_with_how_many_rows_and_what_chance_gives():
    decided = np.array([1] * 60 + [0] * 40 + [1] * 30 + [0] * 170)
    group = np.repeat(["a", "b"], [100, 200])
    found = audit(
        y_true=decided, y_pred=decided, sensitive_features=group, n_bootstrap=0
    )
    assert (found.worst_pair.lowest_group, found.worst_pair.highest_group) == ("b", "a")
    assert found.ratio == pytest.approx(0.15 / 0.6)
    # Two groups: the expected distance of two means of common rate 0.3.
    expected = math.sqrt(2 / math.pi) * math.sqrt(0.3 * 0.7 * (1 / 100 + 1 / 200))
    assert found.floor == pytest.approx(expected, rel=0.02)
    assert found.floor < found.floor_high < found.violation
    text = str(found)
    assert "b (200 rows) 0.1500" in text
    assert "and a (100 rows) 0.6000" in text
    assert f"by chance       {found.floor:.4f}" in text


def predicted_everywhere(data, model):
    X, y, _ = data
    prob = model.predict_proba(X)
    booster = lgb.train(
        {"objective": "binary", "verbose": -1, "num_threads": 1},
        lgb.Dataset(X, y == "yes"),
        3,
    )
    again = lgb.Booster(model_str=booster.model_to_string())
    trees = (booster.predict(X) > 0.5).astype(int)
    other = xgb.train(
        {"objective": "binary:logistic", "nthread": 1}, xgb.DMatrix(X, y == "yes"), 3
    )
    boosted = (other.predict(xgb.DMatrix(X)) > 0.5).astype(int)
    number = (y == "yes").astype(int)
    return {
        "a model": ((model, X, y), {}, model.predict(X)),
        "a function": ((model.predict, X, y), {}, model.predict(X)),
        "probabilities of a function": (
            (lambda X: model.predict_proba(X)[:, 1], X, y),
            {},
            model.predict(X),
        ),
        "decisions": ((), {"y_true": y, "y_pred": model.predict(X)}, model.predict(X)),
        "probabilities": ((), {"y_true": y, "y_prob": prob}, model.predict(X)),
        "one column": ((), {"y_true": y, "y_prob": prob[:, 1]}, model.predict(X)),
        "a booster of LightGBM": ((booster, X, number), {}, trees),
        "the same from its text": ((again, X, number), {}, trees),
        "a booster of XGBoost": ((other, X, number), {}, boosted),
    }


@pytest.mark.parametrize("name", [
    "a model", "a function", "probabilities of a function", "decisions",
    "probabilities", "one column", "a booster of LightGBM",
    "the same from its text", "a booster of XGBoost",
])  # fmt: skip
def test_whatever_predicts_is_audited_by_its_decisions(data, model, name):
    sensitive = data[2]["sex"]
    passed, made, decided = predicted_everywhere(data, model)[name]
    found = audit(*passed, **made, sensitive_features=sensitive, n_bootstrap=0)
    assert found.violation == pytest.approx(
        violation(None, decided, sensitive_features=sensitive)
    )
    assert (found.soft_violation is not None) == (
        name not in ("a function", "decisions")
    )


def test_an_audit_without_predictions_or_with_two_kinds_is_refused(data, model):
    X, y, sensitive = data
    rows = {"sensitive_features": sensitive["sex"]}
    for wrong in ({}, {"y_true": y}, {"y": y, "y_pred": y}):
        with pytest.raises(InvalidInputError, match="audit needs a fitted model with"):
            audit(**wrong, **rows)
    with pytest.raises(InvalidParameterError, match="got both"):
        audit(model, X, y, y_pred=y, **rows)
    with pytest.raises(
        InvalidInputError, match=r"one column per class, \['no', 'yes'\]"
    ):
        audit(y_true=y, y_prob=np.ones((len(y), 3)) / 3, **rows)
    raw = lgb.train(
        {"objective": lambda p, d: (p, np.ones_like(p)), "verbose": -1},
        lgb.Dataset(X, y == "yes"),
        2,
    )
    with pytest.raises(InvalidInputError, match="scores are neither probabilities"):
        audit(raw, X, (y == "yes").astype(int), **rows)


def test_a_page_is_written_by_the_report(data, model, monkeypatch, tmp_path):
    X, y, sensitive = data
    found = quick(model, X, y, sensitive_features=sensitive["sex"])
    written = []
    report = types.ModuleType("fferm.report")
    report.write_audit = lambda *given, **told: written.append((given, told))
    monkeypatch.setitem(sys.modules, "fferm.report", report)

    told = {"title": "Loans", "max_violation": 0.1, "before": found}
    told["provenance"] = {"data": "loans.csv"}
    found.to_html(tmp_path / "audit.html", **told)

    assert written == [((found, tmp_path / "audit.html"), told)]


def test_decisions_are_drawn_by_kind_and_add_up_to_their_table(data, model):
    X, y, sensitive = data
    labels, decision = encode_decisions(y, model.predict(X))
    weight = np.where(np.arange(len(y)) % 2, 1.0, 3.0)
    setting = make_tabulator(
        labels, get("equalized_odds"), sensitive, "marginal", weight
    )
    hard = one_hot(decision, 2)

    sample = bootstrap_sample(setting, decision)

    assert sample.count.sum() == len(y)
    assert sample.count.size <= 2 * 2 * 2 * 6  # weight, label, decision, groups
    mass = [table.mass.ravel() for table in setting.tables(hard)]
    np.testing.assert_allclose(
        sample.count @ sample.totals, np.concatenate(mass), rtol=1e-12
    )


def test_decisions_are_drawn_by_kind_however_many_columns_there_are():
    group, y = np.repeat(np.arange(7), 20), np.tile([0, 1], 70)
    labels, decision = encode_decisions(y, y)
    columns = {f"column {n}": group for n in range(22)}  # of 8 ** 22 codes
    setting = make_tabulator(
        labels, get("demographic_parity"), columns, "marginal", None
    )

    sample = bootstrap_sample(setting, decision)

    assert sample.count.tolist() == [10] * 14


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0] * 19, "X has 20, y has 19"),
        ([0] * 19 + [None], "1 missing labels"),
        ([0] * 19 + [0.5], "fractional numbers"),
    ],
)
def test_labels_that_cannot_be_judged_are_refused(y, message):
    X = np.tile([[0.0], [1.0]], (10, 1))

    with pytest.raises(InvalidInputError, match=message):
        quick(Given(), X, y, sensitive_features=["a", "b"] * 10)


def test_an_empty_audit_is_refused():
    with pytest.raises(InvalidInputError, match="X has 0, y has 0"):
        quick(Given(), np.empty((0, 1)), [], sensitive_features=[])


def test_groups_of_another_length_are_refused():
    X = np.tile([[0.0], [1.0]], (10, 1))

    with pytest.raises(InvalidInputError, match="group has 3 values"):
        quick(Given(), X, X[:, 0], sensitive_features=["a", "b", "a"])


def test_something_that_cannot_predict_is_refused():
    with pytest.raises(InvalidTypeError, match=r"with predict.*got StandardScaler"):
        quick(StandardScaler(), [[0.0]], [0], sensitive_features=["a"])


def test_an_undefined_level_is_refused(data, model):
    X, y, sensitive = data

    with pytest.raises(InvalidParameterError, match="confidence must be above 0"):
        quick(model, X, y, sensitive_features=sensitive["sex"], confidence=95)


# Rows that are left out


@pytest.fixture
def partial():
    """Return the audit of 40 rows, 4 of them without a group."""
    X = np.tile([[0.0], [1.0]], (20, 1))
    rows = {"sex": [None] * 3 + ["f", "m"] * 18 + ["m"], "age": [None] + ["old"] * 39}
    with pytest.warns(MissingGroupWarning, match="3 of 40 rows"):
        return quick(Given(), X, X[:, 0], sensitive_features=rows)


def test_rows_without_a_group_are_counted_in_every_output(partial):
    sentence = "3 of 40 rows have no value of sex × age and are in no group"

    assert partial.unjudged == {"sex × age": 3}
    assert sentence in str(partial)
    assert sentence in partial._repr_html_()
    assert partial.to_dict()["unjudged"] == {"sex × age": 3}


def test_rows_are_counted_by_attribute_where_columns_stand_alone():
    X = np.tile([[0.0], [1.0]], (20, 1))
    rows = {"sex": [None] * 3 + ["f", "m"] * 18 + ["m"], "age": ["old", "young"] * 20}

    with pytest.warns(MissingGroupWarning, match="3 of 40 rows"):
        found = quick(Given(), X, X[:, 0], sensitive_features=rows, groups="marginal")

    assert found.unjudged == {"sex": 3}


def test_an_audit_of_complete_rows_leaves_none_out(data, model):
    X, y, sensitive = data

    found = quick(model, X, y, sensitive_features=sensitive)

    assert found.unjudged == {}
    assert "Not judged" not in str(found)


def test_rows_without_a_control_value_are_counted_too():
    X = np.tile([[0.0], [1.0]], (40, 1))
    notion = ConditionalParity([None] * 4 + ["p", "p", "q", "q"] * 19)

    with pytest.warns(MissingGroupWarning, match="4 of 80 rows have no value of the c"):
        found = quick(
            Given(),
            X,
            X[:, 0],
            sensitive_features=["a", "b", "b", "a"] * 20,
            notion=notion,
        )

    assert found.unjudged == {"the control feature": 4}
    assert "4 of 80 rows have no value of the control feature" in str(found)


@pytest.mark.parametrize("groups", ["marginal", "intersection"])
def test_an_audit_without_any_group_is_refused(groups):
    X = np.tile([[0.0], [1.0]], (20, 1))
    rows = {"sex": [None] * 40, "age": ["old", "young"] * 20}

    with (
        pytest.warns(MissingGroupWarning, match="40 of 40 rows"),
        pytest.raises(InvalidInputError, match="No row has a value of sex"),
    ):
        quick(Given(), X, X[:, 0], sensitive_features=rows, groups=groups)


# Control features behind a pipeline


class Swap(TransformerMixin, BaseEstimator):
    """Reverses the columns."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return np.asarray(X)[:, ::-1]

    def get_feature_names_out(self, names=None):
        return np.array(["region", "team", "decision"])


@pytest.fixture
def raw():
    """Return X whose first column is another one behind the transformer."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "decision": rng.integers(0, 2, 300),
            "team": rng.integers(0, 2, 300),
            "region": rng.integers(0, 3, 300),
        }
    )
    return X, rng.integers(0, 2, 300), rng.choice(["a", "b"], 300)


class Last(Given):
    """A classifier whose decisions are the last column of X."""

    def predict(self, X):
        return np.asarray(X)[:, -1].astype(int)


@pytest.mark.parametrize("is_searched", [False, True])
def test_a_position_means_the_column_that_training_saw(raw, is_searched):
    X, y, group = raw
    pipeline = make_pipeline(Swap(), Last(notion=ConditionalParity(0)))
    if is_searched:
        pipeline = GridSearchCV(pipeline, {"last__groups": [None]}, cv=2)
    pipeline.fit(X, y)

    found = quick(pipeline, X, y, sensitive_features=group)

    expected = quick(
        pipeline,
        X,
        y,
        sensitive_features=group,
        notion=ConditionalParity(X["region"].to_list()),
    )
    assert found.gaps == expected.gaps
    assert {gap.stratum for gap in found.gaps} == {"0", "1", "2"}


def test_a_position_is_found_behind_nested_pipelines(raw):
    X, y, group = raw
    inner = make_pipeline(FunctionTransformer(), Last(notion=ConditionalParity(0)))
    pipeline = make_pipeline(Swap(), inner).fit(X, y)

    found = quick(pipeline, X, y, sensitive_features=group)

    assert {gap.stratum for gap in found.gaps} == {"0", "1", "2"}


def test_a_name_means_the_column_that_training_saw(raw):
    X, y, group = raw
    named = Swap().set_output(transform="pandas")
    # The names stay where they were and the values move.
    named.get_feature_names_out = lambda names=None: np.array(list(X.columns))
    pipeline = make_pipeline(named, Last(notion=ConditionalParity("decision")))
    pipeline.fit(X, y)

    found = quick(pipeline, X, y, sensitive_features=group)

    assert {gap.stratum for gap in found.gaps} == {"0", "1", "2"}


def test_a_notion_of_the_caller_means_the_columns_of_the_caller(raw):
    X, y, group = raw
    pipeline = make_pipeline(Swap(), Last(notion=ConditionalParity(0))).fit(X, y)

    found = quick(
        pipeline, X, y, sensitive_features=group, notion=ConditionalParity("team")
    )

    assert {gap.stratum for gap in found.gaps} == {"0", "1"}


@pytest.mark.parametrize("control", ["decision", 7])
def test_a_column_that_the_transformers_lose_is_looked_for_aloud(raw, control):
    X, y, group = raw
    pipeline = make_pipeline(Swap(), Last(notion=ConditionalParity(control)))

    with pytest.raises(
        InvalidParameterError,
        match=r"in X after the pipeline's transformers.*notion=ConditionalParity\(val",
    ):
        quick(pipeline.fit(X, y), X, y, sensitive_features=group)


def test_a_control_feature_inside_of_another_wrapper_is_not_guessed(raw):
    X, y, group = raw
    inner = make_pipeline(Swap(), Last(notion=ConditionalParity(0)))
    wrapped = BaggingClassifier(inner, n_estimators=2, random_state=0).fit(X, y)

    with pytest.raises(
        InvalidParameterError, match=r"BaggingClassifier.*ConditionalParity\(values"
    ):
        quick(wrapped, X, y, sensitive_features=group)


# Names, weights, labels and parameters that need care


def test_groups_whose_names_collide_are_told_apart():
    X = np.tile([[0.0], [1.0]], (20, 1))
    rows = {"a": ["b=c", "b=d"] * 20, "a=b": ["c", "d", "d", "c"] * 10}

    found = quick(Given(), X, X[:, 0], sensitive_features=rows, groups="marginal")

    assert list(found.groups) == ["'a'='b=c'", "'a'='b=d'", "'a=b'='c'", "'a=b'='d'"]
    assert len(found.frame) == 4
    assert str(found)


@pytest.mark.parametrize("groups", ["marginal", "intersection"])
def test_columns_that_share_a_name_and_values_do_not_crash(groups):
    X = np.tile([[0.0], [1.0]], (40, 1))
    rows = {1: ["p", "q"] * 40, "1": ["p", "q", "q", "p"] * 20}

    found = quick(Given(), X, X[:, 0], sensitive_features=rows, groups=groups)

    assert len(found.groups) == 4


def test_intersections_whose_names_collide_do_not_crash():
    X = np.tile([[0.0], [1.0]], (20, 1))
    rows = {"a": ["p × q", "p"] * 20, "b": ["r", "q × r"] * 20}

    found = quick(Given(), X, X[:, 0], sensitive_features=rows)

    assert [row["count"] for row in found.groups.values()] == [20, 20]


def test_rows_that_weights_make_few_are_not_called_few():
    X = np.tile([[0.0], [1.0]], (15, 1))
    group = ["a"] * 20 + ["b"] * 10
    weight = [1.0] * 29 + [3.0]

    with pytest.warns(
        SmallGroupWarning,
        match=r"worth fewer than 10.*b \(10 rows, as good as 8 without weights, every",
    ) as caught:
        quick(Given(), X, X[:, 0], sensitive_features=group, sample_weight=weight)

    assert "with fewer than 10 rows" not in str(caught[0].message)


def test_labels_that_the_model_never_knew_are_named(data, model):
    X, y, sensitive = data
    relabelled = np.where(np.arange(len(y)) % 50 == 0, "maybe", y)

    with pytest.warns(DataFairnessWarning, match="'maybe'.*'no', 'yes'"):
        quick(model, X, relabelled, sensitive_features=sensitive["sex"])


def test_an_audit_is_one_line_in_a_notebook(data, model):
    X, y, sensitive = data
    found = quick(model, X, y, sensitive_features=sensitive["sex"])

    low, high = found.interval
    assert repr(found) == (
        f"Audit(2000 rows, demographic_parity, violation {found.violation:.4f}, "
        f"95 % interval [{low:.4f}, {high:.4f}])"
    )


def test_an_audit_is_a_compact_table_in_a_notebook():
    X = np.tile([[0.0], [1.0]], (20, 1))
    group = ["<b>bold</b>", "<b>bold</b>", "plain", "plain"] * 10

    html = quick(Given(), X, X[:, 0], sensitive_features=group)._repr_html_()

    assert html.count("<tr") == 3
    assert "Audit of 40 rows" in html
    assert "&lt;b&gt;bold" in html
    assert "<b>bold" not in html


def test_a_label_that_ends_like_another_does_not_hide_it():
    X = np.tile([[0.0], [1.0]], (20, 1))
    model = Given(classes=("no", "surely_no"))
    model.predict = lambda X: np.where(np.asarray(X)[:, 0] > 0, "surely_no", "no")

    found = quick(model, X, model.predict(X), sensitive_features=["a", "b"] * 20)

    assert "selection_rate_surely_no" in found.summary(full=True)


@pytest.mark.parametrize("bound", ["0.1", None, True, math.nan, -0.1])
def test_a_bound_that_is_no_number_is_refused(data, model, bound):
    X, y, sensitive = data
    found = quick(model, X, y, sensitive_features=sensitive["sex"], n_bootstrap=0)

    with pytest.raises(InvalidParameterError, match="max_violation must be between"):
        found.passes(bound)


@pytest.mark.parametrize("n_bootstrap", [1.5, -1, True, "100", None])
def test_a_number_of_draws_that_is_none_is_refused(data, model, n_bootstrap):
    X, y, sensitive = data

    with pytest.raises(
        InvalidParameterError, match=r"n_bootstrap must be an integer of at least 0"
    ):
        quick(model, X, y, sensitive_features=sensitive, n_bootstrap=n_bootstrap)


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e160, 1e308])
def test_the_scale_of_weights_changes_nothing_of_an_audit(scale):
    rng = np.random.default_rng(0)
    X, group = rng.integers(0, 2, (200, 1)), rng.choice(["a", "b"], 200)
    weight = rng.integers(1, 4, 200) / 4
    found, plain = (
        audit(
            Given(),
            X,
            X[:, 0],
            sensitive_features=group,
            sample_weight=weight * factor,
            n_bootstrap=10,
        )
        for factor in (scale, 1.0)
    )
    assert found.interval == pytest.approx(plain.interval, rel=1e-12)
    assert found.bootstrap_interval == pytest.approx(plain.bootstrap_interval)
    pd.testing.assert_frame_equal(found.frame, plain.frame, rtol=1e-12)
