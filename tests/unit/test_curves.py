"""Several curves of one sweep, the naive baseline, bands, knees and clusters."""

import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone

from fferm import (
    FairLogisticRegression,
    FairRegressor,
    TradeoffCurve,
    audit,
    tradeoff_curve,
)
from fferm.curve import Key
from fferm.curve.measures import RANDOM_SHARES
from fferm.datasets import make_biased
from fferm.divergences import Alpha
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.metrics import soft_violation, violation


@pytest.fixture(scope="module")
def data():
    return make_biased(400, random_state=0)


def sweep(data, model=None, **options):
    options = {"fairness_weights": [0, 3]} | options
    return tradeoff_curve(
        model or FairLogisticRegression(),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        **options,
    )


def without_time(curve):
    return curve.records.drop(columns="seconds")


@pytest.fixture(scope="module")
def several(data):
    models = {"usual": FairLogisticRegression(), "heavy": FairLogisticRegression(l2=1)}
    return sweep(data, models, divergences=["kl", Alpha(3.0)], seeds=2)


# Several curves


def test_each_estimator_has_a_curve_with_each_divergence(several):
    names = ["usual, kl", "usual, Alpha(power=3.0)"]
    names += [name.replace("usual", "heavy") for name in names]
    assert list(several.curves) == names
    assert len(several.records) == 4 * 2 * 2 * 2
    assert several.models["heavy, kl", 3.0, 1].l2 == 1
    assert several.models["heavy, kl", 3.0, 1].divergence.name == "kl"


def test_a_curve_of_several_is_the_curve_alone(several, data):
    alone = sweep(data, {"usual, kl": FairLogisticRegression()}, seeds=2)
    found = several.curves["usual, kl"]
    pd.testing.assert_frame_equal(without_time(found), without_time(alone))
    pd.testing.assert_frame_equal(found.baseline, alone.baseline)
    assert found.descriptions["usual, kl"]["divergence"] == "KL()"
    assert found.models[3.0, 0].coef_.tolist() == alone.models[3.0, 0].coef_.tolist()
    assert found.audits[3.0, 1].to_dict() == alone.audits[3.0, 1].to_dict()


def test_one_estimator_names_its_curves_by_divergence(data):
    curve = sweep(data, divergences=["kl", "chi2"])
    assert list(curve.curves) == ["kl", "chi2"]
    assert curve.description["divergence"] == "KL(); Chi2()"
    assert curve.description["notion"] == "DemographicParity()"


def test_curves_compete_for_the_front_and_for_the_choice(several):
    front = several.pareto()
    alone = pd.concat([curve.pareto() for curve in several.curves.values()])
    assert front["accuracy"].max() == alone["accuracy"].max()
    assert several.hypervolume() >= max(
        curve.hypervolume() for curve in several.curves.values()
    )
    key = several.choose(max_violation=1.0)
    assert key[:2] == tuple(front.iloc[-1][["curve", "fairness_weight"]])
    assert several.select(max_violation=1.0) is several.models[key]


def test_two_numbers_are_no_key_where_there_are_several_curves(several):
    with pytest.raises(KeyError):
        several.models[3.0, 0]
    assert (3.0, 0) not in several.models
    assert ("usual, kl", 3.0, 0) in several.models


def test_the_plain_model_is_always_there(data):
    curve = sweep(data, fairness_weights=[5.0])
    assert sorted(set(curve.records["fairness_weight"])) == [0.0, 5.0]


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        ({}, {}, r"or several by name; got \{\}"),
        ({"a": "model"}, {}, r"by name; got str"),
        (None, {"divergences": []}, r"at least one; got \[\]"),
        (
            None,
            {"divergences": "kl"},
            "a list of at least one; got 'kl'",
        ),
        (None, {"divergences": ["klx"]}, "klx"),
    ],
)
def test_what_cannot_be_swept_is_refused(data, given, options, words):
    model = FairLogisticRegression() if given is None else given
    with pytest.raises(InvalidParameterError, match=words):
        tradeoff_curve(
            model, data.X, data.y, sensitive_features=data.sensitive_features, **options
        )


def test_a_curve_can_be_pickled_with_models_and_audits(several):
    again = pickle.loads(pickle.dumps(several))
    key = next(iter(several.models))
    assert again.models[key].coef_.tolist() == several.models[key].coef_.tolist()
    assert again.audits[key].to_dict() == several.audits[key].to_dict()


def test_audits_are_those_of_the_test_rows(data):
    test = (data.X_test, data.y_test, data.sensitive_features_test)
    curve = sweep(data, test=test)
    model = curve.models[3.0, 0]
    found = audit(model, test[0], test[1], sensitive_features=test[2], n_bootstrap=0)
    assert curve.audits[3.0, 0].to_dict() == found.to_dict()
    assert curve.audits[3.0, 0] is curve.audits[3.0, 0]


def test_the_intervals_of_records_are_those_of_the_audit(data):
    curve = sweep(data)
    rows = curve.records.query("split == 'test'").set_index("fairness_weight")
    found = curve.audits[3.0, 0]
    interval = rows.loc[3.0, ["violation_low", "violation_high"]]
    np.testing.assert_allclose(interval.astype(float), found.interval, rtol=1e-12)
    assert rows.loc[3.0, "accuracy_low"] < found.accuracy
    assert found.accuracy < rows.loc[3.0, "accuracy_high"]


# The naive baseline


def test_thinning_goes_from_the_plain_model_to_one_class_for_everyone(data):
    curve = sweep(data, seeds=2)
    assert len(curve.baseline) == 2 * 2 * len(RANDOM_SHARES)
    for (seed, split), line in curve.baseline.groupby(["seed", "split"]):
        rows = curve.records[curve.records["fairness_weight"] == 0]
        plain = rows.set_index(["seed", "split"]).loc[(seed, split)]
        first, last = line.iloc[0], line.iloc[-1]
        assert first["accuracy"] == pytest.approx(plain["accuracy"], abs=1e-12)
        assert first["violation"] == pytest.approx(plain["violation"], abs=1e-12)
        assert last["violation"] == pytest.approx(0, abs=1e-12)
        # Gaps of decision rates shrink in proportion.
        np.testing.assert_allclose(
            line["violation"], plain["violation"] * (1 - line["thinning"]), atol=1e-12
        )


def test_thinning_is_what_random_replacement_gives_on_average(data):
    test = (data.X_test, data.y_test, data.sensitive_features_test)
    curve = sweep(data, test=test)
    decisions = curve.models[0.0, 0].predict(test[0])
    commonest = np.bincount(data.y).argmax()
    rng = np.random.default_rng(0)
    is_replaced = rng.random((4000, len(decisions))) < 0.3
    drawn = np.where(is_replaced, commonest, decisions)
    rates = np.column_stack([1 - drawn.mean(axis=0), drawn.mean(axis=0)])
    row = curve.baseline.query("split == 'test' and 0.25 < thinning < 0.35").iloc[0]
    # 4000 draws of 120 rows: the standard error is below 0.001.
    assert row["accuracy"] == pytest.approx((drawn == test[1]).mean(), abs=0.004)
    gap = soft_violation(test[1], rates, classes=[0, 1], sensitive_features=test[2])
    assert row["violation"] == pytest.approx(gap, abs=0.01)
    once = violation(test[1], drawn[0], sensitive_features=test[2])
    assert once != pytest.approx(gap, abs=1e-6)  # one draw is not the average


# Records made by hand


def test_records_of_one_curve_need_no_name():
    rows = rows_of([0.8, 0.9], [0.1, 0.2]).drop(columns="curve")
    curve = TradeoffCurve(rows.assign(fairness_weight=[0.0, 1.0], seed=0), {}, {})
    assert curve.choose(max_violation=0.15) == Key("", 0.0, 0)
    assert len(curve.pareto()) == len(curve.bands()) == 2


def test_records_without_a_description_are_shown_too():
    curve = TradeoffCurve(rows_of([0.8, 0.9], [0.1, 0.2]), {}, {})
    said = "TradeoffCurve(0 models, test violation 0.1000 to 0.2000, accuracy"
    assert repr(curve).startswith(said)
    (only,) = curve.curves.values()
    assert repr(only) == repr(curve)


# Bands


def rows_of(accuracies, violations, is_collapsed=False):
    return pd.DataFrame(
        {
            "curve": "c",
            "fairness_weight": 1.0,
            "seed": range(len(accuracies)),
            "split": "test",
            "accuracy": accuracies,
            "violation": violations,
            "collapsed": is_collapsed,
            "accuracy_low": 0.7,
            "accuracy_high": 0.9,
            "violation_low": 0.0,
            "violation_high": 0.3,
        }
    )


@pytest.mark.parametrize(("test", "share"), [("given", 1.0), ("held out", 0.25)])
def test_the_band_of_several_seeds_adds_their_spread_and_the_error_of_rows(test, share):
    accuracies, violations = [0.80, 0.82, 0.84], [0.20, 0.22, 0.24]
    rows = rows_of(accuracies, violations)
    band = TradeoffCurve(rows, {}, {"c": {"test": test}}).bands().iloc[0]
    # Of a t law with two degrees of freedom, times the standard error of the mean.
    between = stats.t.ppf(0.975, 2) * stats.sem(accuracies)
    assert band["accuracy"] == pytest.approx(0.82)
    # The widest intervals reach from 0.84 to 0.7 and from 0.8 to 0.9.
    assert band["accuracy_low"] == pytest.approx(
        0.82 - np.hypot(between, np.sqrt(share) * 0.14)
    )
    assert band["accuracy_high"] == pytest.approx(
        0.82 + np.hypot(between, np.sqrt(share) * 0.1)
    )
    assert band["violation_low"] == 0  # the interval is cut at what there can be
    assert band["violation_high"] == pytest.approx(
        0.22 + np.hypot(between, np.sqrt(share) * 0.1)
    )
    assert band["n_seeds"] == 3


def test_a_violation_of_few_rows_is_not_far_from_0_because_seeds_agree():
    # Each measured 0.2 where its rows cannot tell 0.2 from 0.
    rows = rows_of([0.8] * 20, np.linspace(0.19, 0.21, 20))
    band = TradeoffCurve(rows, {}, {"c": {"test": "held out"}}).bands().iloc[0]
    assert band["violation_low"] == 0


@pytest.mark.parametrize("is_regressor", [False, True])
def test_seeds_of_a_model_that_needs_none_have_the_band_of_one(data, is_regressor):
    model = FairRegressor() if is_regressor else FairLogisticRegression()
    test = data.X[:200], data.y[:200], data.sensitive_features[:200]
    options = {"test": test, "fairness_weights": [0, 3]}
    one, several = (sweep(data, model, seeds=n, **options).bands() for n in (1, 4))
    assert (one["accuracy_low"] < one["accuracy_high"]).all()
    assert (one["violation_low"] < one["violation_high"]).all()
    columns = one.columns.drop("n_seeds")
    pd.testing.assert_frame_equal(several[columns], one[columns], rtol=1e-9)


def test_the_band_of_one_seed_is_that_of_its_rows():
    band = TradeoffCurve(rows_of([0.8], [0.1]), {}, {}).bands().iloc[0]
    assert (band["accuracy_low"], band["accuracy_high"]) == (0.7, 0.9)
    assert (band["violation_low"], band["violation_high"]) == (0.0, 0.3)


@pytest.mark.parametrize(
    "rows", [rows_of([0.8], [0.1], True), rows_of([0.8, 0.8], [0.1, np.nan])]
)
def test_a_point_that_cannot_be_used_has_no_band(rows):
    assert TradeoffCurve(rows, {}, {}).bands().empty


# The knee


def curve_of(points):
    records = pd.DataFrame(points, columns=["accuracy", "violation"])
    records = records.assign(
        curve="c",
        fairness_weight=np.arange(float(len(points))),
        seed=0,
        split="test",
        collapsed=False,
    )
    return TradeoffCurve(records, {}, {})


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        # Up to the second point fairness is cheap, beyond it dear.
        ([(0.90, 0.40), (0.89, 0.10), (0.60, 0.00)], 1),
        ([(0.90, 0.40), (0.61, 0.30), (0.60, 0.00)], 2),  # a front without a bulge
        ([(0.90, 0.40)], 0),
        ([(0.90, 0.40), (0.80, 0.10)], 1),  # of equals the fairest
        ([(0.90, 0.40), (0.89, 0.10), (0.60, 0.00), (0.5, 0.2)], 1),  # not on the front
    ],
)
def test_the_knee_bulges_most_above_the_line_of_the_ends(points, expected):
    assert curve_of(points).choose("knee") == Key("c", float(expected), 0)


def test_a_choice_takes_one_of_three_ways():
    curve = curve_of([(0.9, 0.4)])
    for asked in (("elbow",), (), ("knee", 0.1)):
        bounds = {"max_violation": asked[1]} if len(asked) > 1 else {}
        with pytest.raises(InvalidParameterError, match="exactly one of"):
            curve.choose(*asked[:1], **bounds)


def test_a_curve_without_usable_points_has_no_knee():
    curve = TradeoffCurve(rows_of([0.8], [0.1], True), {}, {})
    with pytest.raises(InvalidInputError, match="predicts one class for everyone"):
        curve.choose("knee")


# Clusters


def test_a_dask_cluster_finds_what_one_process_finds(data, tmp_path):
    distributed = pytest.importorskip(
        "distributed", reason="dask's distributed is not installed: pip install .[dev]"
    )
    alone = sweep(data, seeds=3, divergences=["kl", "chi2"])
    options = {"processes": False, "n_workers": 2, "threads_per_worker": 1}
    with (
        distributed.Client(dashboard_address=None, **options),
        joblib.parallel_config(backend="dask"),
    ):
        spread = sweep(data, seeds=3, divergences=["kl", "chi2"], records=tmp_path)
    pd.testing.assert_frame_equal(without_time(alone), without_time(spread))
    assert len(list(tmp_path.glob("*.jsonl"))) == 6


def test_an_estimator_that_was_given_is_left_as_it_was(data):
    model = FairLogisticRegression(fairness_weight=7, random_state=3)
    before = clone(model).get_params()
    sweep(data, model, divergences=["chi2"])
    assert model.get_params() == before
    assert not hasattr(model, "coef_")
