"""Audits of regressors: what is compared, how sure one can be, and what is drawn."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from fferm import FairRegressor, audit, tradeoff_curve
from fferm.auditing import (
    Audit,
    ClassificationAudit,
    RegressionAudit,
    audit_regression,
)
from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
    PersistenceError,
    UnknownNameError,
)
from fferm.metrics.dependence import GROUP_MEASURES, NUMBER_MEASURES, OrderedPredictions
from fferm.notions import ConditionalParity

HOSTILE = "<img src=x onerror=alert(1)> $x_1$"


@pytest.fixture(scope="module")
def rows():
    """Predictions, a group that they depend on, and a number that they do not."""
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=500)
    return rng.normal(size=500) + group, group, rng.normal(size=500)


@pytest.fixture(scope="module")
def found(rows):
    u, group, age = rows
    sensitive = {"sex": np.where(group, "f", "m"), "age": age}
    return audit_regression(
        None, u, u + 1, sensitive_features=sensitive, n_permutations=19, n_bootstrap=50
    )


def test_groups_are_compared_as_groups_and_numbers_as_numbers(found):
    assert list(found.columns) == ["sex", "age", "sex × age"]
    assert list(found.columns["sex"].measures) == list(GROUP_MEASURES)
    assert set(found.columns["age"].measures) == {*GROUP_MEASURES, *NUMBER_MEASURES}
    assert found.value("kolmogorov_smirnov", "sex") > 0.3
    assert not found.passes(0.1)
    by_sex = found.frame[found.frame["column"] == "sex"]
    assert (by_sex["p_value"] == 0.05).all()
    by_age = found.frame[found.frame["column"] == "age"].set_index("measure")
    assert by_age.loc["f_information", "p_value"] > 0.05
    assert found.columns["age"].information_bias == pytest.approx(81 / 1000)
    np.testing.assert_allclose(found.group_frame["mse"], 1)
    assert found.mse == pytest.approx(1)


def test_the_violation_is_the_largest_of_the_named_measure(rows):
    u, group, age = rows
    sensitive = {"sex": group, "age": age}
    options = {"n_permutations": 0, "n_bootstrap": 20, "groups": "marginal"}
    ks = audit_regression(None, u, u, sensitive_features=sensitive, **options)
    assert list(ks.columns) == ["sex", "age"]
    assert (ks.worst, ks.violation) == ("sex", ks.value("kolmogorov_smirnov", "sex"))
    low, high = ks.interval
    assert low < ks.violation < high
    far = audit_regression(
        None, u, u, sensitive_features=sensitive, metric="correlation", **options
    )
    assert far.worst == "age"
    assert np.isnan(far.interval).all()
    with pytest.raises(InvalidParameterError, match="this audit has none"):
        far.passes(0.5, confidence=0.95)
    with pytest.raises(InvalidParameterError, match=r"this audit has one at 0\.95"):
        ks.passes(0.5, confidence=0.9)
    assert ks.passes(high + 0.01, confidence=0.95)
    assert not ks.passes(high - 0.01, confidence=0.95)
    assert ks.verdict(high - 0.01) == "undecided"
    assert ks.verdict(low / 2) == "refuted"
    assert not ks.passes(1e-9, "mean_gap")
    assert "kolmogorov_smirnov by sex" in str(ks)


def test_a_trained_regressor_brings_its_metric_and_groups(rows):
    u, group, age = rows
    X = np.column_stack([u, age])
    model = FairRegressor(violation_metric="mean_gap", groups="marginal")
    sensitive = {"sex": group, "age": age}
    model.fit(X, u, sensitive_features=sensitive)
    found = audit_regression(
        model, X, u, sensitive_features=sensitive, n_permutations=0, n_bootstrap=0
    )
    assert (found.metric, list(found.columns)) == ("mean_gap", ["sex", "age"])
    assert found.columns["sex"].measures["mean_gap"].high is None


def test_rows_without_a_value_are_left_out_and_counted(rows):
    u, group, age = rows
    sex = pd.Series(np.where(group, "f", "m")).where(np.arange(500) >= 40)
    age = np.where(np.arange(500) < 30, np.nan, age)
    found = audit_regression(
        None,
        u,
        u,
        sensitive_features={"sex": sex, "age": age},
        n_permutations=0,
        n_bootstrap=0,
        groups="marginal",
    )
    assert [column.n_missing for column in found.columns.values()] == [40, 30]
    assert sum(row["rows"] for row in found.columns["sex"].groups.values()) == 460
    assert "40 of 500" in str(found)


def test_numbers_are_told_from_groups_by_their_values_unless_said(rows):
    u, group, _ = rows
    ages = np.arange(500) % 40
    options = {"n_permutations": 0, "n_bootstrap": 0}
    seen = audit_regression(None, u, u, sensitive_features={"age": ages}, **options)
    assert seen.columns["age"].is_number
    assert len(seen.columns["age"].groups) == 8
    assert "age holds numbers. Its groups are 8 bands" in str(seen)
    forced = audit_regression(
        None, u, u, sensitive_features={"age": ages}, continuous=[], **options
    )
    assert len(forced.columns["age"].groups) == 40
    coded = audit_regression(
        None, u, u, sensitive_features={"sex": group * 1.0}, **options
    )
    assert list(coded.columns["sex"].groups) == ["0", "1"]
    with pytest.raises(InvalidParameterError, match="continuous must be"):
        audit_regression(
            None, u, u, sensitive_features={"age": ages}, continuous=["size"], **options
        )


# Given a control feature


@pytest.fixture(scope="module")
def explained():
    """Predictions that depend on the group only by way of the job."""
    rng = np.random.default_rng(1)
    group = rng.integers(2, size=900)
    job = (rng.random(900) < 0.2 + 0.6 * group).astype(int)
    return rng.normal(size=900) + 3 * job, group, job


def test_rows_are_compared_within_the_control_feature(explained):
    u, group, job = explained
    rows = {"sensitive_features": {"sex": group, "age": u + 5 * job}}
    options = {"n_permutations": 9, "n_bootstrap": 20, "metric": "mean_gap"}
    found = audit_regression(
        None, u, u, notion=ConditionalParity(job), **rows, **options
    )
    plain = audit_regression(None, u, u, **rows, **options)
    assert found.notion == "conditional_parity"
    assert plain.value("mean_gap", "sex") > 1
    assert found.value("mean_gap", "sex") < 0.5
    # By hand: each job alone, and the largest of them.
    alone = [
        audit_regression(
            None,
            u[job == j],
            u[job == j],
            sensitive_features={"sex": group[job == j], "age": (u + 5 * job)[job == j]},
            continuous=["age"],
            **options,
        )
        for j in (0, 1)
    ]
    for measure in GROUP_MEASURES:
        values = [one.value(measure, "sex") for one in alone]
        assert found.value(measure, "sex") == pytest.approx(max(values))
        by_job = [row[measure] for row in found.columns["sex"].strata.values()]
        assert by_job == pytest.approx(values)
    for measure in NUMBER_MEASURES:
        values = [one.value(measure, "age") for one in alone]
        assert found.value(measure, "age") == pytest.approx(max(values))
    measured = found.columns["sex"].measures["mean_gap"]
    assert measured.low <= measured.value <= measured.high
    assert measured.p_value > 0.1
    assert plain.columns["sex"].measures["mean_gap"].p_value == 0.1
    assert "sex is compared within 2 values of the control feature" in str(found)
    assert len(found.stratum_frame) == 2 * len(found.columns)
    assert RegressionAudit.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_an_audit_takes_the_control_feature_of_the_model(explained, tmp_path):
    u, group, job = explained
    frame = pd.DataFrame({"u": u, "job": job})
    options = {"sensitive_features": group, "n_permutations": 0, "n_bootstrap": 0}
    model = FairRegressor(notion=ConditionalParity("job"))
    model.fit(frame, u, sensitive_features=group)
    own = audit_regression(model, frame, u, **options)
    named = audit_regression(
        model, frame, u, notion=ConditionalParity(list(job)), **options
    )
    assert own.columns == named.columns
    assert list(own.columns["group"].strata) == list(named.columns["group"].strata)
    all_rows = audit_regression(model, frame, u, notion="demographic_parity", **options)
    assert all_rows.columns["group"].strata == {}
    own.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "The same by value of the control feature" in page
    assert "notion=ConditionalParity(control=&#39;job&#39;" in page
    assert "from fferm.notions import ConditionalParity" in page
    piped = Pipeline([("same", FunctionTransformer()), ("model", model)])
    assert audit_regression(piped, frame, u, **options).columns == own.columns


def test_what_is_not_compared_given_a_control_feature_is_said(explained):
    u, group, job = explained
    control = np.where(job, "cook", "nurse").astype(object)
    control[:3], control[group == 0] = None, "nurse"
    control[3] = None
    found = audit_regression(
        None,
        u,
        u,
        sensitive_features=group,
        notion=ConditionalParity(control),
        n_permutations=0,
        n_bootstrap=0,
    )
    assert found.columns["group"].absent == ("cook",)
    assert found.n_uncontrolled == np.sum(pd.isna(control))
    said = " ".join(found.left_out)
    assert "rows have no value of the control feature" in said
    assert "group: not compared where cook" in said
    assert RegressionAudit.from_dict(found.to_dict()) == found
    for notion in ("equal_opportunity", "sufficiency"):
        with pytest.raises(InvalidParameterError, match="conditions on a label"):
            audit_regression(None, u, u, sensitive_features=group, notion=notion)
    names_rows = np.where(group == 0, "a", "b")
    with pytest.raises(InvalidInputError, match="in 4 rows of one control"):
        audit_regression(
            None,
            u,
            u,
            sensitive_features=group,
            notion=ConditionalParity(names_rows),
        )


# Weights


def test_weights_of_an_audit_are_so_many_copies(rows):
    u, group, age = rows
    count = np.random.default_rng(1).integers(0, 4, u.size)
    copies = np.repeat(np.arange(u.size), count)
    options = {"n_permutations": 0, "n_bootstrap": 0}
    sensitive = {"sex": group, "age": np.round(age, 1)}
    weighted = audit_regression(
        None, u, u + age, sensitive_features=sensitive, sample_weight=count, **options
    )
    copied = audit_regression(
        None,
        u[copies],
        (u + age)[copies],
        sensitive_features={name: values[copies] for name, values in sensitive.items()},
        **options,
    )
    assert weighted.mse == pytest.approx(copied.mse)
    assert weighted.explained == pytest.approx(copied.explained)
    for name in GROUP_MEASURES:
        value = weighted.value(name, "sex")
        assert value == pytest.approx(copied.value(name, "sex"))
    for name in ("correlation", "maximal_correlation", "f_information"):
        value = weighted.value(name, "age")
        assert value == pytest.approx(copied.value(name, "age"))
    for group_name in ("0", "1"):
        one = weighted.columns["sex"].groups[group_name]
        other = copied.columns["sex"].groups[group_name]
        for name in ("mean_prediction", "mean_target", "mse"):
            assert one[name] == pytest.approx(other[name])
        assert one["rows"] == np.sum((group == int(group_name)) & (count > 0))
        assert one["size"] < one["rows"]
    shapes = [found.columns["sex"].densities for found in (weighted, copied)]
    assert list(shapes[0].by_group) == list(shapes[1].by_group)


def test_weights_alike_change_nothing_and_bad_ones_are_refused(rows, tmp_path):
    u, group, age = rows
    options = {"sensitive_features": {"sex": group, "age": age}, "n_permutations": 5}
    plain = audit_regression(None, u, u, **options)
    alike = audit_regression(None, u, u, sample_weight=np.full(500, 0.2), **options)
    values = [
        found.frame.drop(columns=["column", "measure"]) for found in (plain, alike)
    ]
    # Shuffled distances move the other side, so chance is another draw.
    rest = plain.frame["measure"] != "distance_correlation"
    np.testing.assert_allclose(values[0][rest], values[1][rest], atol=1e-12)
    assert alike.spec.is_weighted
    assert RegressionAudit.from_dict(json.loads(json.dumps(alike.to_dict()))) == alike
    alike.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "sample_weight=sample_weight" in page
    assert "every figure is weighted" in page
    for bad in (-np.ones(500), np.zeros(500), np.ones(3), np.full(500, np.nan)):
        with pytest.raises(InvalidInputError, match="sample_weight"):
            audit_regression(None, u, u, sample_weight=bad, **options)


@pytest.mark.parametrize("metric", ["kolmogorov_smirnov", "distance_correlation"])
def test_curves_and_bounds_of_regressors_weigh_rows(rows, metric):
    u, _, age = rows
    X = np.column_stack([u, age])
    # Rows of next to no weight depend on the age, all others do not.
    is_light = np.arange(500) % 2 == 0
    y, weight = np.where(is_light, 9 * age, u), np.where(is_light, 1e-9, 1.0)
    model = FairRegressor(violation_metric=metric, n_bins=3)
    given = {"sensitive_features": {"age": age}, "sample_weight": weight}
    curve = tradeoff_curve(model, X, y, fairness_weights=[0, 1], **given)
    found = curve.records[curve.records["split"] == "test"]
    for key, audited in curve.audits.items():
        row = found[found["fairness_weight"] == key.fairness_weight].iloc[0]
        assert audited.violation == pytest.approx(row["violation"])
        assert audited.mse == pytest.approx(row["loss"])
        assert audited.spec.is_weighted


def test_a_notebook_shows_both_tables_and_no_markup_of_the_data(rows):
    u, group, _ = rows
    sensitive = {HOSTILE: np.where(group, HOSTILE, "m")}
    shown = audit_regression(
        None, u, u, sensitive_features=sensitive, n_permutations=0, n_bootstrap=0
    )._repr_html_()
    assert shown.count("<table") == 2
    assert "<img" not in shown


def test_an_audit_survives_json(found):
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    again = Audit.from_dict(plain)
    assert isinstance(again, RegressionAudit)
    assert again == found
    assert str(again) == str(found)
    with pytest.raises(PersistenceError, match="are not an audit"):
        RegressionAudit.from_dict({"kind": "regression", "n_rows": 3})
    with pytest.raises(PersistenceError, match="are not an audit"):
        ClassificationAudit.from_dict(plain)


@pytest.mark.parametrize("shift", [0.0, 0.8])
def test_intervals_hold_the_truth_where_there_is_a_gap_and_where_there_is_none(shift):
    truth = {
        "kolmogorov_smirnov": 2 * norm.cdf(shift / 2) - 1,
        "wasserstein": shift,
        "mean_gap": shift,
    }
    rng = np.random.default_rng(1)
    hits = dict.fromkeys(truth, 0)
    for _ in range(80):
        group = rng.choice(3, 300, p=[0.5, 0.3, 0.2])
        u = rng.normal(size=300) + shift * (group == 2)
        limits = OrderedPredictions(u).intervals(
            group, list(truth), n_bootstrap=100, random_state=rng
        )
        for name, value in truth.items():
            hits[name] += limits[name][0] <= value <= limits[name][1]
    # Of 80 intervals of 95 %, fewer than 70 hold with probability 0.0005.
    assert min(hits.values()) >= 70


@pytest.mark.parametrize("column", ["sex", "age"])
def test_an_audit_draws_densities_and_numbers(found, column):
    pytest.importorskip("matplotlib")
    texts = [text.get_text() for text in found.plot(column).get_legend().get_texts()]
    assert texts == (["f", "m"] if column == "sex" else ["middle 80 %", "mean"])
    with pytest.raises(InvalidParameterError, match="not a sensitive column"):
        found.plot("race")


def test_a_page_holds_every_table_and_no_markup_of_the_data(rows, tmp_path):
    pytest.importorskip("jinja2")
    u, group, age = rows
    sensitive = {HOSTILE: np.where(group, HOSTILE, "m"), "age": age}
    found = audit_regression(
        None, u, u, sensitive_features=sensitive, n_permutations=9, n_bootstrap=9
    )
    path = tmp_path / "page.html"
    found.to_html(path, title=HOSTILE, max_violation=0.1)
    text = path.read_text(encoding="utf-8")
    assert "<img" not in text
    assert "Does not keep the bound" in text
    assert text.count("<figure") == 4  # densities of three columns, and one fan
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    for used in re.findall(r'(?:url\(#|href="#|labelledby=")([^")]+)', text):
        assert used in ids
    for title in ("Kolmogorov-Smirnov", "Distance correlation", "below"):
        assert title in text
    assert "result = audit_regression(" in text


def test_a_page_says_when_only_the_largest_groups_are_drawn(rows, tmp_path):
    u, *_ = rows
    many = np.arange(500) % 12
    found = audit_regression(
        None, u, u, sensitive_features={"g": many}, n_permutations=0, n_bootstrap=0
    )
    found.to_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Of 12 groups, the 8 largest." in text


def test_what_cannot_be_audited_is_refused_by_name(rows):
    u, group, _ = rows
    words = {"sensitive_features": group}
    with pytest.raises(InvalidInputError, match="must have the same number of rows"):
        audit_regression(
            None, u[:, None][:, 0], np.zeros((500, 1))[:, 0][:499], **words
        )
    with pytest.raises(InvalidTypeError, match="has no predict"):
        audit_regression("model", u, u, **words)
    with pytest.raises(InvalidInputError, match="y contains non-numeric values"):
        audit_regression(None, u, ["a"] * 500, **words)
    with pytest.raises(UnknownNameError, match="Unknown measure 'size'"):
        audit_regression(None, u, u, metric="size", **words)
    with pytest.raises(InvalidParameterError, match="'correlation' was not measured"):
        audit_regression(None, u, u, metric="correlation", **words)
    with pytest.raises(InvalidInputError, match="got 1 in 500 rows"):
        audit_regression(None, u, u, sensitive_features=np.zeros(500, dtype=int))
    with pytest.raises(InvalidParameterError, match="n_permutations must be"):
        audit_regression(None, u, u, n_permutations=-1, **words)
    found = audit_regression(None, u, u, n_permutations=0, n_bootstrap=0, **words)
    with pytest.raises(InvalidParameterError, match="not measured for 'age'"):
        found.value("mean_gap", "age")


def test_one_audit_serves_regressors_and_predicted_numbers(rows):
    u, group, age = rows
    model = LinearRegression().fit(age[:, None], u)
    found = audit(model, age[:, None], u, sensitive_features=group)
    expected = audit_regression(model, age[:, None], u, sensitive_features=group)
    predicted = model.predict(age[:, None])
    made = audit(y_true=u, y_pred=predicted, sensitive_features=group)
    asked = audit(model.predict, age[:, None], u, sensitive_features=group)
    assert found.violation == made.violation == asked.violation == expected.violation
    assert max(map(len, str(found).splitlines())) <= 80
    with pytest.raises(InvalidParameterError, match="divergence is for audits of cla"):
        audit(model, age[:, None], u, sensitive_features=group, divergence="kl")
