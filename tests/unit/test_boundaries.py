"""Mistakes that people make, met by a clear error or warning instead of nonsense."""

import os
import stat

import numpy as np
import pandas as pd
import pytest

import fferm
from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairRegressor,
    LargeShift,
    audit_regression,
    boosting_objective,
    tradeoff_curve,
)
from fferm.data.groups import encode_sensitive
from fferm.datasets import load_german, make_biased
from fferm.divergences import KL
from fferm.errors import (
    CollapseWarning,
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
    SmallGroupWarning,
    WideShiftWarning,
)
from fferm.metrics import group_table, soft_violation, violation, violations
from fferm.testing import check_divergence
from fferm.tuning import TargetSample, tune


@pytest.fixture(scope="module")
def data():
    return make_biased(600, random_state=0)


@pytest.fixture
def frames(data):
    X = pd.DataFrame(data.X, columns=[f"x{j}" for j in range(data.X.shape[1])])
    y = pd.Series(data.y, index=X.index)
    s = data.sensitive_features.set_axis(X.index)
    return X, y, s


def backwards(table):
    return table.iloc[::-1]


@pytest.mark.parametrize("late", ["y", "sensitive_features", "sample_weight"])
def test_the_same_index_in_another_order_is_refused(late, frames):
    X, y, s = frames
    given = {"y": y, "sensitive_features": s, "sample_weight": pd.Series(1.0, X.index)}
    given[late] = backwards(given[late])
    with pytest.raises(InvalidInputError, match="the same index in another order"):
        FairLogisticRegression().fit(X, given.pop("y"), **given)


def test_the_same_index_in_another_order_is_refused_in_a_test_split(frames):
    X, y, s = frames
    with pytest.raises(InvalidInputError, match="the same index in another order"):
        tradeoff_curve(
            FairLogisticRegression(),
            X,
            y,
            sensitive_features=s,
            test=(X, y, backwards(s)),
            fairness_weights=[0],
        )


def test_an_index_of_its_own_between_two_others_hides_no_other_order(frames):
    X, y, s = frames
    named = y.set_axis([f"row {i}" for i in y.index])
    with pytest.raises(InvalidInputError, match="X and sensitive_features have the"):
        FairLogisticRegression().fit(X, named, sensitive_features=backwards(s))


def test_another_order_is_refused_inside_of_a_dict(frames):
    X, y, s = frames
    columns = {"group": backwards(s)}
    with pytest.raises(InvalidInputError, match=r"sensitive_features\['group'\] have"):
        FairLogisticRegression().fit(X, y, sensitive_features=columns)


def test_another_order_is_refused_in_penalty_data(frames):
    X, y, s = frames
    with pytest.raises(InvalidInputError, match="penalty_data's X and penalty_data's"):
        FairLogisticRegression().fit(X, y, penalty_data=(X, backwards(s)))


@pytest.mark.parametrize("metric", [violation, violations, group_table])
def test_another_order_is_refused_by_metrics(metric, frames):
    _, y, s = frames
    with pytest.raises(InvalidInputError, match="y_true and sensitive_features have"):
        metric(y, y.to_numpy(), sensitive_features=backwards(s))


def test_another_order_is_refused_by_the_metric_of_probabilities(frames):
    _, y, s = frames
    prob = pd.DataFrame({0: 1.0 - y, 1: y})
    with pytest.raises(InvalidInputError, match="predictions and sensitive_features"):
        soft_violation(None, prob, classes=[0, 1], sensitive_features=backwards(s))


def test_another_order_is_refused_in_the_rows_that_judge(frames):
    X, y, s = frames
    with pytest.raises(InvalidInputError, match="the same index in another order"):
        tune(
            FairLogisticRegression(),
            X,
            y,
            sensitive_features=s,
            validation=TargetSample(X, y, backwards(s)),
            max_violation=0.1,
            divergences=["kl"],
            fairness_weights=[1.0],
        )


def test_another_order_is_refused_by_the_torch_loss(frames):
    torch_losses = pytest.importorskip("fferm.torch")
    _, y, s = frames
    with pytest.raises(InvalidInputError, match="the same index in another order"):
        torch_losses.FairnessLoss.from_labels(y, backwards(s))


def test_two_columns_of_one_name_are_refused(frames):
    X, y, s = frames
    twice = pd.concat([X, X.iloc[:, :1]], axis=1)
    with pytest.raises(InvalidInputError, match=r"X share a name, 'x0'. Rename one"):
        FairLogisticRegression().fit(twice, y, sensitive_features=s)


def test_what_a_mask_hides_is_a_missing_group():
    masked = np.ma.array([1, 2] * 3, mask=[0, 0, 0, 0, 0, 1])
    (attribute,) = encode_sensitive(masked, 6)
    assert attribute.code.tolist() == [0, 1, 0, 1, 0, -1]
    with pytest.raises(InvalidInputError, match="y_true has 1 missing labels"):
        violation(masked, [1, 2] * 3, sensitive_features=["a", "b"] * 3)


@pytest.mark.parametrize("model", [FairLogisticRegression, FairBoostingClassifier])
@pytest.mark.parametrize("name", ["X", "y", "sample_weight"])
def test_what_a_mask_hides_is_not_trained_on(name, model, frames):
    X, y, s = frames
    given = {"X": X.to_numpy(), "y": y.to_numpy(), "sample_weight": np.ones(len(y))}
    given[name] = np.ma.array(given[name], mask=given[name] == given[name].max())
    with pytest.raises(InvalidInputError, match=f"{name} has .* masked values"):
        model().fit(**given, sensitive_features=s)


def test_a_class_that_nobody_is_predicted_is_warned_of_by_name(frames):
    X, y, s = frames
    some_rare = np.where(np.arange(len(y)) % 20 == 0, "rare", np.where(y, "yes", "no"))
    words = r"predicts 'rare' for no training row, .*give them more sample_weight"
    with pytest.warns(CollapseWarning, match=words):
        FairLogisticRegression(fairness_weight=0).fit(X, some_rare)
    with pytest.warns(CollapseWarning, match=r"'rare' for no .* without a penalty\. "):
        FairLogisticRegression().fit(X, some_rare, sensitive_features=s)


def test_warnings_of_a_model_point_to_the_line_that_called_fit(frames):
    X, y, s = frames
    wide = FairLogisticRegression(
        divergence="jensen_shannon", uncertainty=LargeShift(0.4), fairness_weight=1
    )
    with pytest.warns(WideShiftWarning, match="The radius 0.4 reaches") as caught:
        wide.fit(X, y, sensitive_features=s)
    rare = np.arange(len(y)) % 50 == 0
    with pytest.warns(CollapseWarning, match="for every training row") as also:
        FairLogisticRegression(fairness_weight=0).fit(X[["x0"]], rare)
    assert {one.filename for one in [*caught, *also]} == {__file__}


def test_different_labels_in_the_index_are_nobodys_business(frames):
    X, y, s = frames
    shifted = s.set_axis(s.index + 1000)
    model = FairLogisticRegression().fit(X, y, sensitive_features=shifted)
    reference = FairLogisticRegression().fit(X, y, sensitive_features=s)
    np.testing.assert_array_equal(model.coef_, reference.coef_)


@pytest.mark.parametrize("names", [np.arange(100), [f"p{i}" for i in range(100)]])
def test_a_column_that_names_rows_is_no_set_of_groups(names):
    with pytest.raises(InvalidInputError, match="100 groups of 100 rows"):
        encode_sensitive(names, 100)


def test_column_names_in_place_of_values_are_refused(data):
    with pytest.raises(InvalidInputError, match="the values, not the names of columns"):
        FairLogisticRegression().fit(data.X, data.y, sensitive_features=["sex"])


def test_intersections_that_would_read_alike_get_longer_names():
    columns = {"a": ["p × q", "p"] * 5, "b": ["r", "q × r"] * 5}
    (attribute,) = encode_sensitive(columns, 10)
    assert attribute.groups == ("a=p, b=q × r", "a=p × q, b=r")


def test_many_small_groups_are_counted(data):
    s = (np.arange(len(data.y)) // 3).astype(str)
    with pytest.warns(SmallGroupWarning, match=r"and \d+ more"):
        FairLogisticRegression().fit(data.X, data.y, sensitive_features=s)


def test_a_shift_wider_than_the_smallest_cell_is_warned_of():
    german = load_german(("age_over_25",))
    model = FairLogisticRegression(fairness_weight=10, uncertainty=LargeShift(0.3))
    with pytest.warns(WideShiftWarning, match=r"radius 0\.3 reaches the smallest cell"):
        model.fit(german.X, german.y, sensitive_features=german.sensitive_features)


def test_a_shift_within_the_smallest_cell_is_not_warned_of():
    german = load_german(("sex",))
    model = FairLogisticRegression(
        divergence="js", fairness_weight=1, uncertainty=LargeShift(0.01)
    )
    model.fit(german.X, german.y, sensitive_features=german.sensitive_features)


def test_a_plain_model_that_collapses_is_not_told_to_be_less_fair(data):
    y = np.zeros(len(data.y), dtype=int)
    y[:5] = 1
    with pytest.warns(CollapseWarning, match="give them more sample_weight"):
        FairLogisticRegression(fairness_weight=0, l2=10.0).fit(data.X, y)


@pytest.mark.parametrize("kind", ["frame", "array"])
def test_dates_are_no_numbers(kind, data):
    days = pd.date_range("2020-01-01", periods=len(data.y))
    X = pd.DataFrame({"day": days, "x": 1.0})
    X = X if kind == "frame" else X[["day"]].to_numpy()
    with pytest.raises(InvalidTypeError, match="contains dates"):
        FairLogisticRegression(fairness_weight=0).fit(X, data.y)


def test_missing_labels_are_named(data):
    y = data.y.astype(object)
    y[3] = None
    with pytest.raises(InvalidInputError, match="y has missing labels"):
        FairLogisticRegression(fairness_weight=0).fit(data.X, y)


@pytest.mark.parametrize(
    ("weight", "words"),
    [(-1.0, r"non-negative weight .*; got -1\."), (np.ones(3), r"got shape \(3,\)")],
)
def test_bad_weights_are_named(weight, words, data):
    weight = np.full(len(data.y), weight) if np.isscalar(weight) else weight
    with pytest.raises(InvalidInputError, match=words):
        FairLogisticRegression(fairness_weight=0).fit(
            data.X, data.y, sample_weight=weight
        )


def test_a_saved_model_can_be_read_by_whoever_may_read_new_files(data, tmp_path):
    model = FairLogisticRegression(fairness_weight=0).fit(data.X, data.y)
    (tmp_path / "other").write_text("")
    fferm.save(model, tmp_path / "model")
    modes = [
        stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("model", "other")
    ]
    assert modes[0] == modes[1]


def test_a_divergence_can_be_checked_by_name():
    check_divergence("kl")


def test_a_class_in_place_of_an_instance_is_refused():
    with pytest.raises(InvalidParameterError, match="must be a name or an instance"):
        check_divergence(KL)


# Rows of curves, audits of numbers and trees


ROWS = np.random.default_rng(0).normal(size=(60, 3))
LABELS, GROUPS = np.arange(60) % 2, np.arange(60) // 2 % 2
NUMBERS = ROWS[:, 0] + GROUPS


def curve_of(model, **changed):
    given = {"X": ROWS, "y": LABELS, "sensitive_features": GROUPS, **changed}
    return tradeoff_curve(model, fairness_weights=[0, 1], **given)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y": LABELS[:20]}, "X has 60, y has 20"),
        ({"X": ROWS[:20]}, "X has 20, y has 60"),
        ({"sensitive_features": GROUPS[:20]}, "sensitive_features has 20"),
        (
            {"sensitive_features": {"a": GROUPS[:20]}},
            r"sensitive_features\['a'\] has 20",
        ),
        ({"sample_weight": np.ones(3)}, "sample_weight has 3"),
        ({"y": None}, "y is None"),
        ({"test": (ROWS, LABELS[:9], GROUPS)}, "X has 60, y has 9"),
        (
            {"X": ROWS[:0], "y": LABELS[:0], "sensitive_features": GROUPS[:0]},
            "at least one",
        ),
    ],
)
def test_curves_refuse_rows_that_do_not_match(changed, message):
    for model in (FairLogisticRegression(), FairRegressor()):
        with pytest.raises(InvalidInputError, match=message):
            curve_of(model, **changed)


def test_searches_refuse_rows_that_do_not_match():
    with pytest.raises(InvalidInputError, match="X has 60, y has 20"):
        tune(
            FairLogisticRegression(),
            ROWS,
            LABELS[:20],
            sensitive_features=GROUPS[:20],
            max_violation=0.5,
        )


def test_curves_of_regressors_refuse_missing_numbers_of_test_rows():
    gap = np.where(np.arange(60) == 3, np.nan, NUMBERS)
    with pytest.raises(InvalidInputError, match=r"y must hold one finite number"):
        curve_of(FairRegressor(), y=NUMBERS, test=(ROWS, gap, GROUPS))


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({"n_bins": 1}, NUMBERS, "n_bins must be an integer of at least 2; got 1"),
        (
            {"steepness": "a"},
            NUMBERS,
            "steepness must be a finite number above 0; got 'a'",
        ),
        ({"hidden": 5}, NUMBERS, "hidden must be a list of widths.*got 5"),
        ({}, ["a", "b"] * 30, "y contains non-numeric values"),
    ],
)
def test_regressors_refuse_what_is_none(options, y, message):
    with pytest.raises((InvalidInputError, InvalidParameterError), match=message):
        FairRegressor(**options).fit(ROWS, y, sensitive_features=GROUPS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 2}, "confidence must be"),
        ({"n_permutations": 1.5}, "n_permutations must be .* 1.5"),
        ({"n_permutations": None}, "n_permutations must be .* None"),
        ({"sample_weight": ["a"] * 60}, "sample_weight must be non-negative numbers"),
        ({"sample_weight": (GROUPS == 0) * 1.0}, r"got 1 in 30 rows"),
        ({"sensitive_features": GROUPS[:5]}, "sensitive_features has 5"),
    ],
)
def test_audits_of_numbers_refuse_what_is_none(options, message):
    given = {"sensitive_features": GROUPS, **options}
    with pytest.raises((InvalidInputError, InvalidParameterError), match=message):
        audit_regression(None, NUMBERS, NUMBERS, **given)


def test_trees_refuse_settings_and_groups_that_are_none():
    with pytest.raises(InvalidParameterError, match="lightgbm_params must be a dict"):
        FairBoostingClassifier(lightgbm_params="ab").fit(
            ROWS, LABELS, sensitive_features=GROUPS
        )
    with pytest.raises(InvalidInputError, match="No part of the data holds two groups"):
        boosting_objective(LABELS, np.zeros(60))


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "x", [1]])
@pytest.mark.parametrize("kind", [FairLogisticRegression, FairRegressor])
def test_a_seed_that_cannot_be_one_is_refused(frames, kind, seed):
    X, y, s = frames
    words = (
        "random_state must be an integer between 0 and 4294967295, a RandomState, or"
    )
    with pytest.raises(InvalidParameterError, match=words):
        kind(random_state=seed).fit(X, y, sensitive_features=s)


def test_a_target_of_the_other_kind_names_the_right_estimator(frames):
    X, y, s = frames
    numbers, names = X["x0"], pd.Series(np.where(y, "a", "b"))
    ids = pd.Series(np.arange(len(y)))
    for kind in (FairLogisticRegression, FairBoostingClassifier):
        with pytest.raises(InvalidInputError, match="numbers use FairRegressor"):
            kind().fit(X, numbers, sensitive_features=s)
        with pytest.raises(InvalidInputError, match=r"y has \d+ classes in .* FairReg"):
            kind().fit(X, ids, sensitive_features=s)
    for labels in (names, names.astype("category"), names.to_numpy()):
        with pytest.raises(InvalidInputError, match="such as FairLogisticRegression"):
            FairRegressor().fit(X, labels, sensitive_features=s)
    with pytest.raises(InvalidTypeError, match="y contains dates"):
        FairRegressor().fit(X, pd.to_datetime(ids), sensitive_features=s)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"max_bin": "a"}, r"'max_bin': 'a'} is refused by LightGBM \(Parameter max_b"),
        (
            {"max_bin": -1},
            r"is refused by LightGBM \(Check failed: \(max_bin\) >",
        ),
        ({"tree_learner": "foo"}, "refused by LightGBM .Unknown tree learner"),
        ({"max_bun": 3}, "'max_bun', which LightGBM does not know. .* 'max_bin'"),
    ],
)
def test_parameters_that_lightgbm_refuses_or_ignores_are_refused(frames, params, words):
    X, y, s = frames
    with pytest.raises(InvalidParameterError, match=words):
        FairBoostingClassifier(lightgbm_params=params).fit(X, y, sensitive_features=s)
