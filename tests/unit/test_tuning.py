"""Choosing weight, radius and divergence by rows that training does not see."""

import re
import sys
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    PredefinedSplit,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
)

import fferm
from fferm import FairLogisticRegression, SmallShift, tradeoff_curve
from fferm.data.rows import FitInput
from fferm.data.split import deal_folds
from fferm.datasets import make_biased
from fferm.divergences import STANDARD, get
from fferm.errors import (
    InfeasibleWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingDependencyError,
    MissingSensitiveError,
    install_line,
)
from fferm.estimators import weight_search as bounds
from fferm.fairness_grid import weight_range
from fferm.metrics import violation
from fferm.tuning import CrossValidation, EvenHoldout, TargetSample, tune
from fferm.tuning.search import goal_score

DATA = make_biased(1000, bias=0.5, random_state=0)
SOURCE = {"X": DATA.X, "y": DATA.y, "sensitive_features": DATA.sensitive_features}
TARGET = TargetSample(DATA.X_test, DATA.y_test, DATA.sensitive_features_test)
QUICK = {"divergences": ["kl", "chi2"], "fairness_weights": 5}
WAYS = [CrossValidation(3), EvenHoldout(), TARGET]


def name(way):
    return type(way).__name__ if not isinstance(way, float) else f"{way:g}"


# Bounds that the most accurate candidates break.
@pytest.mark.parametrize(
    ("way", "bound"), list(zip(WAYS, (0.25, 0.15, 0.19), strict=True)), ids=name
)
def test_the_most_accurate_candidate_within_the_bound_is_chosen(way, bound):
    found = tune(
        FairLogisticRegression(), **SOURCE, **QUICK, validation=way, max_violation=bound
    )
    assert found.feasible
    within = found.records[found.records["violation"] <= bound]
    assert found.best["accuracy"] == within["accuracy"].max()
    assert found.best["accuracy"] < found.records["accuracy"].max()
    assert found.best["violation"] <= bound
    assert len(found.records) == 2 * 5


@pytest.mark.parametrize("way", WAYS, ids=name)
def test_the_fairest_candidate_of_enough_accuracy_is_chosen(way):
    found = tune(
        FairLogisticRegression(), **SOURCE, **QUICK, validation=way, min_accuracy=0.7
    )
    within = found.records[found.records["accuracy"] >= 0.7]
    assert found.best["violation"] == within["violation"].min()


def test_the_winner_is_trained_on_all_source_rows():
    found = tune(
        FairLogisticRegression(),
        **SOURCE,
        **QUICK,
        validation=TARGET,
        max_violation=0.3,
    )
    again = FairLogisticRegression(
        divergence=found.best["divergence"],
        fairness_weight=found.best["fairness_weight"],
    ).fit(**SOURCE)
    np.testing.assert_allclose(found.estimator.coef_, again.coef_)


def test_a_target_sample_measures_what_the_metrics_measure():
    found = tune(
        FairLogisticRegression(),
        **SOURCE,
        divergences=["kl"],
        fairness_weights=[3.0],
        validation=TARGET,
        min_accuracy=0.0,
    )
    decided = found.estimator.predict(DATA.X_test)
    groups = DATA.sensitive_features_test
    expected = violation(DATA.y_test, decided, sensitive_features=groups)
    assert found.best["violation"] == pytest.approx(expected)
    assert found.best["accuracy"] == pytest.approx(np.mean(decided == DATA.y_test))


def test_a_bound_on_the_target_holds_there_where_one_on_the_source_does_not():
    # In the target the groups lie further apart than in the source.
    target = make_biased(3000, bias=0.8, random_state=1)
    sample = TargetSample(target.X, target.y, target.sensitive_features)
    gaps = {}
    for way in (CrossValidation(3), sample):
        found = tune(
            FairLogisticRegression(),
            **SOURCE,
            divergences=["kl"],
            fairness_weights=8,
            validation=way,
            max_violation=0.3,
        )
        gaps[name(way)] = violation(
            target.y_test,
            found.estimator.predict(target.X_test),
            sensitive_features=target.sensitive_features_test,
        )
    assert gaps["TargetSample"] <= gaps["CrossValidation"]
    assert gaps["TargetSample"] <= 0.3 + 0.04  # the sample and the test rows are noisy


@pytest.mark.parametrize(
    "splitter",
    [
        4,
        StratifiedShuffleSplit(2, test_size=0.3, random_state=0),
        RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0),
    ],
    ids=lambda each: type(each).__name__,
)
def test_folds_hold_every_label_and_group(splitter):
    folds, _ = CrossValidation(splitter).folds(FitInput(**SOURCE))
    shares = np.zeros((len(folds), 4))
    for row, (_, judge) in zip(shares, folds, strict=True):
        group = np.asarray(judge.sensitive_features).reshape(-1)
        kind = 2 * (group == np.unique(group)[0]) + judge.y
        row[:] = np.bincount(kind.astype(int), minlength=4) / kind.size
    assert np.ptp(shares, axis=0).max() < 0.01


@pytest.mark.parametrize("n_folds", [2, 3, 7])
def test_folds_are_those_of_scikit_learn_without_its_warning(n_folds):
    kind = np.random.default_rng(0).choice(5, 100, p=[0.5, 0.3, 0.15, 0.03, 0.02])
    theirs = StratifiedKFold(n_folds, shuffle=True, random_state=4)
    is_small = np.bincount(kind).min() < n_folds
    with pytest.warns(UserWarning, match="least") if is_small else nullcontext():
        expected = [judge for _, judge in theirs.split(kind, kind)]
    fold = deal_folds(kind, n_folds, 4)
    for number, judge in enumerate(expected):
        assert np.array_equal(np.flatnonzero(fold == number), judge)


def test_more_folds_than_rows_of_any_kind_are_refused():
    with pytest.raises(InvalidInputError, match="the largest has 3"):
        deal_folds(np.array([0, 0, 0, 1, 1]), 4, 0)


def test_the_rows_that_judge_are_those_of_the_folds_in_order():
    given = FitInput(**SOURCE)
    for way in WAYS:
        folds, judges = way.folds(given)
        parts = [judge.y for _, judge in folds]
        np.testing.assert_array_equal(judges.y, np.concatenate(parts))


def test_an_even_holdout_has_as_many_rows_of_each_group():
    group = np.array(["large"] * 900 + ["small"] * 100)
    given = FitInput(np.zeros((1000, 1)), np.tile([0, 1], 500), group)
    ((train, judge),), _ = EvenHoldout(0.2).folds(given)
    counts = np.unique(judge.sensitive_features, return_counts=True)[1]
    assert counts.tolist() == [100, 50]  # half of the small group, and no more
    assert len(train.y) == 850


def test_radii_are_chosen_too_and_total_variation_goes_without():
    found = tune(
        FairLogisticRegression(uncertainty=SmallShift(0.01)),
        **SOURCE,
        divergences=None,
        radii=[0, 0.005],
        fairness_weights=[1.0, 10.0],
        validation=EvenHoldout(),
        max_violation=0.3,
    )
    tried = set(map(tuple, found.records[["divergence", "radius"]].to_numpy()))
    assert {radius for _, radius in tried} == {0.0, 0.005}
    assert ("total_variation", 0.005) not in tried
    assert ("total_variation", 0.0) in tried


def test_optuna_tries_as_many_points_as_asked(monkeypatch):
    optuna = pytest.importorskip("optuna")
    studies, create_study = [], optuna.create_study

    def noted(**options):
        studies.append(create_study(**options))
        return studies[-1]

    monkeypatch.setattr(optuna, "create_study", noted)
    call = {**SOURCE, **QUICK, "validation": EvenHoldout(), "max_violation": 0.3}
    found = tune(FairLogisticRegression(), **call, n_trials=12)
    assert len(found.records) == 12
    best = goal_score({**found.best, "collapsed": False}, "max_violation", 0.3)
    assert studies[0].best_value == best  # what optuna looks for
    again = tune(FairLogisticRegression(), **call, n_trials=12)
    assert again.best == found.best
    random = optuna.samplers.RandomSampler(seed=1)
    other = tune(FairLogisticRegression(), **call, n_trials=12, sampler=random)
    assert studies[-1].sampler is random
    assert set(other.records["fairness_weight"]) != set(
        found.records["fairness_weight"]
    )


def test_a_missing_optuna_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingDependencyError, match=re.escape(install_line("tune"))):
        tune(FairLogisticRegression(), **SOURCE, **QUICK, max_violation=0.3, n_trials=3)


def test_a_bound_that_nothing_keeps_warns_and_takes_the_closest():
    with pytest.warns(InfeasibleWarning, match="The closest has accuracy"):
        found = tune(
            FairLogisticRegression(),
            **SOURCE,
            divergences=["kl"],
            fairness_weights=[0.01, 0.02],
            validation=EvenHoldout(),
            max_violation=0.0,
        )
    assert not found.feasible
    assert found.best["violation"] == found.records["violation"].min()
    assert "fairness_weight" in repr(found)


def test_of_sparse_rows_and_dictionaries_weights_are_repetitions():
    times = np.random.default_rng(0).integers(1, 4, len(DATA.y))
    fold = np.arange(len(DATA.y)) % 2
    group = np.asarray(DATA.sensitive_features).reshape(-1)
    options = {"divergences": ["kl"], "fairness_weights": 3, "min_accuracy": 0.5}

    def search(times, sample_weight=None):
        found = tune(
            FairLogisticRegression(),
            scipy.sparse.coo_matrix(DATA.X.repeat(times, axis=0)),
            DATA.y.repeat(times),
            sensitive_features={"group": group.repeat(times)},
            sample_weight=sample_weight,
            validation=CrossValidation(PredefinedSplit(fold.repeat(times))),
            **options,
        )
        return found.records[["accuracy", "violation"]], found.estimator.coef_

    once = np.ones_like(times)
    weighted, repeated, plain = search(once, times), search(times), search(once)
    for found, expected, other in zip(weighted, repeated, plain, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert not np.allclose(found, other, rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "exactly one of max_violation, min_accuracy"),
        ({"max_violation": 0.1, "min_accuracy": 0.5}, "exactly one of"),
        ({"max_violation": 3}, "between 0 and 1"),
        ({"max_violation": 0.1, "radii": [0.1]}, "with an uncertainty set"),
        ({"max_violation": 0.1, "radii": []}, "at least one number"),
        ({"max_violation": 0.1, "divergences": []}, "divergences is empty"),
        ({"max_violation": 0.1, "divergences": ["klx"]}, "Unknown divergence"),
        ({"max_violation": 0.1, "fairness_weights": []}, "list of numbers"),
        ({"max_violation": 0.1, "fairness_weights": 0}, "at least 1"),
        ({"max_violation": 0.1, "n_trials": 0}, "at least 1"),
        ({"max_violation": 0.1, "validation": CrossValidation(1)}, "at least 2; got 1"),
        ({"max_violation": 0.1, "validation": EvenHoldout(1.0)}, "below 1"),
    ],
)
def test_what_makes_no_search_is_refused(options, words):
    with pytest.raises(InvalidParameterError, match=words):
        tune(FairLogisticRegression(), **SOURCE, **options)


def test_a_search_needs_a_fair_classifier_and_groups():
    with pytest.raises(InvalidParameterError, match="got LogisticRegression"):
        tune(LogisticRegression(), **SOURCE, max_violation=0.1)
    with pytest.raises(MissingSensitiveError, match="which needs sensitive_features"):
        tune(
            FairLogisticRegression(),
            DATA.X,
            DATA.y,
            sensitive_features=None,
            max_violation=0.3,
        )
    with pytest.raises(InvalidInputError, match="too few rows to hold any out"):
        tune(
            FairLogisticRegression(),
            DATA.X,
            DATA.y,
            sensitive_features=["only"] + ["rest"] * (len(DATA.y) - 1),
            validation=EvenHoldout(),
            max_violation=0.3,
        )


def test_rows_without_any_group_cannot_be_held_out_evenly():
    with pytest.raises(InvalidInputError, match="No row has a value of every"):
        tune(
            FairLogisticRegression(),
            DATA.X,
            DATA.y,
            sensitive_features=[None] * len(DATA.y),
            validation=EvenHoldout(),
            max_violation=0.3,
        )


def test_one_divergence_is_given_as_a_list_of_one():
    with pytest.raises(InvalidParameterError, match=r"Pass \['kl'\]"):
        tune(FairLogisticRegression(), **SOURCE, divergences="kl", max_violation=0.3)


def test_a_goal_prefers_what_keeps_it_to_what_does_not():
    def score(accuracy, violation):
        record = {"accuracy": accuracy, "violation": violation, "collapsed": False}
        return goal_score(record, "max_violation", 0.05)

    assert score(0.5, 0.05) > score(0.99, 0.06)
    assert score(0.9, 0.01) > score(0.8, 0.0)
    assert score(0.9, 0.06) > score(0.95, 0.2)


def held_out_scores(model, sample_weight=None, names=STANDARD):
    """Return accuracy and violation on held-out rows with each divergence alone."""
    given, found = FitInput(**SOURCE, sample_weight=sample_weight), {}
    kl = weight_range(get("kl"))[1]
    for each in names:
        named = clone(model).set_params(divergence=each)
        if model.fairness_weight is not None:
            weight = model.fairness_weight * weight_range(get(each))[1] / kl
            named.set_params(fairness_weight=weight)
        if model.max_violation is not None:
            named.fit(**SOURCE, sample_weight=sample_weight)
            named.fairness_weight = named.fairness_weight_
        encoded = named._encode(given)
        held = bounds.HeldOutDecisions(named, given, encoded, bound=1.0).position
        kept = np.ones(len(DATA.y)) if sample_weight is None else sample_weight.copy()
        weights = kept[held]
        kept[held] = 0
        plain = clone(named).set_params(max_violation=None)
        decided = plain.fit(**SOURCE, sample_weight=kept).predict(DATA.X[held])
        gap = violation(
            DATA.y[held],
            decided,
            sensitive_features=DATA.sensitive_features.iloc[held],
            sample_weight=weights,
        )
        found[each] = np.average(decided == DATA.y[held], weights=weights), gap
    return found


def test_auto_takes_the_most_accurate_divergence_that_keeps_the_bound(monkeypatch):
    names = ("kl", "reverse_kl")  # a bound takes a search each
    monkeypatch.setattr("fferm.estimators.weight_search.STANDARD", names)
    bound = {"max_violation": 0.2, "confidence": None, "refit": True}
    model = FairLogisticRegression(divergence="auto", random_state=5, **bound)
    scores = held_out_scores(model, names=names)
    assert max(gap for _, gap in scores.values()) <= 0.2  # each keeps it

    model.fit(**SOURCE)

    accuracies = {name: accuracy for name, (accuracy, _) in scores.items()}
    assert model.divergence_.name == max(accuracies, key=accuracies.get) != "kl"
    assert model.feasible_
    assert model.violation_ == pytest.approx(scores[model.divergence_.name][1])
    assert model.divergence == "auto"
    named = clone(model).set_params(divergence=model.divergence_).fit(**SOURCE)
    np.testing.assert_array_equal(named.coef_, model.coef_)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_auto_with_a_weight_takes_the_largest_accuracy_minus_violation(is_weighted):
    weight = np.random.default_rng(0).uniform(0.1, 5, len(DATA.y))
    weight = weight if is_weighted else None
    model = FairLogisticRegression(divergence="auto", random_state=5 * is_weighted)
    scores = held_out_scores(model, weight)

    model.fit(**SOURCE, sample_weight=weight)

    gains = {name: accuracy - gap for name, (accuracy, gap) in scores.items()}
    assert model.divergence_.name == max(gains, key=gains.get) != "kl"
    named = clone(model).set_params(
        divergence=model.divergence_, fairness_weight=model.fairness_weight_
    )
    named.fit(**SOURCE, sample_weight=weight)
    np.testing.assert_array_equal(named.coef_, model.coef_)
    assert not hasattr(model, "violation_")


def test_auto_gives_a_divergence_its_share_of_the_weight():
    model = FairLogisticRegression(
        divergence="auto", fairness_weight=3.0, random_state=0
    )
    assert model.fit(**SOURCE).divergence_.name == "total_variation"
    share = weight_range(get("tv"))[1] / weight_range(get("kl"))[1]
    assert model.fairness_weight_ == pytest.approx(3 * share)


def test_auto_judges_labels_in_a_column_as_it_judges_a_list_of_them():
    data = make_biased(150, random_state=1)
    auto = FairLogisticRegression(
        divergence="auto", fairness_weight=5.0, max_iter=60, random_state=0
    )
    given = {"X": data.X, "sensitive_features": data.sensitive_features}
    listed = clone(auto).fit(y=data.y, **given)
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        stacked = clone(auto).fit(y=np.asarray(data.y)[:, None], **given)
    assert stacked.divergence_ == listed.divergence_


@pytest.mark.parametrize("way", [*WAYS, "frame"], ids=name)
def test_labels_may_be_a_frame_of_one_column(way):
    def found(form):
        sample = TargetSample(DATA.X_test, form(TARGET.y), TARGET.sensitive_features)
        return tune(
            FairLogisticRegression(),
            DATA.X,
            form(DATA.y),
            sensitive_features=DATA.sensitive_features,
            validation=sample if way == "frame" else way,
            max_violation=0.3,
            **QUICK,
        )

    pd.testing.assert_frame_equal(
        found(np.asarray).records, found(pd.DataFrame).records
    )


def test_auto_weighs_the_rows_that_it_counts_right_decisions_of():
    # Labels of every other row are wrong, and these rows weigh next to nothing.
    is_wrong = np.arange(len(DATA.y)) % 2 == 1
    given = FitInput(
        DATA.X,
        np.where(is_wrong, 1 - DATA.y, DATA.y),
        DATA.sensitive_features,
        np.where(is_wrong, 1e-6, 1.0),
    )
    model = FairLogisticRegression(max_violation=1.0, random_state=0)
    weighted = bounds._held_out_score(model, given)
    plain = bounds._held_out_score(model, replace(given, sample_weight=None))
    # Within the bound the score is 1 and the accuracy.
    assert weighted - 1 > 0.75
    assert plain - 1 < 0.6


def test_auto_forgets_the_columns_of_an_earlier_fit():
    frame = pd.DataFrame(DATA.X).add_prefix("x")
    auto = FairLogisticRegression(divergence="auto", fairness_weight=0.0)
    auto.fit(frame, DATA.y).fit(DATA.X, DATA.y)
    assert not hasattr(auto, "feature_names_in_")
    assert auto.predict(DATA.X).shape == DATA.y.shape


def test_auto_without_a_penalty_is_plain_training():
    model = FairLogisticRegression(divergence="auto", fairness_weight=0.0)
    plain = FairLogisticRegression(fairness_weight=0.0).fit(DATA.X, DATA.y)
    np.testing.assert_array_equal(model.fit(DATA.X, DATA.y).coef_, plain.coef_)


def test_auto_is_saved_and_audited_with_what_it_chose(tmp_path):
    model = FairLogisticRegression(
        divergence="auto", fairness_weight=5.0, random_state=0
    ).fit(**SOURCE)
    fferm.save(model, tmp_path / "model.fferm")
    loaded = fferm.load(tmp_path / "model.fferm")
    assert loaded.divergence_ == model.divergence_
    found = fferm.audit(loaded, **SOURCE)
    assert found.divergence == model.divergence_.name


def test_auto_is_refused_where_it_has_no_meaning():
    auto = FairLogisticRegression(divergence="auto")
    with pytest.raises(InvalidParameterError, match="'auto' is supported by"):
        tradeoff_curve(auto, **SOURCE)
    with pytest.raises(InvalidParameterError, match="rows of penalty_data"):
        auto.fit(DATA.X, DATA.y, penalty_data=(DATA.X, DATA.sensitive_features))


@pytest.mark.parametrize("way", ["even", "target"])
def test_a_tuned_model_with_a_confidence_is_the_one_that_passed(way):
    data = make_biased(8000, random_state=0)
    rows = data.X, data.y
    test = data.X_test, data.y_test, data.sensitive_features_test
    validation = EvenHoldout(0.3) if way == "even" else TargetSample(*test)
    tuned = tune(
        FairLogisticRegression(),
        *rows,
        sensitive_features=data.sensitive_features,
        validation=validation,
        max_violation=0.25,
        confidence=0.9,
        divergences=["kl", "chi2"],
        fairness_weights=[1, 30, 100, 300, 1000],
    )
    assert tuned.feasible
    records = tuned.records
    chosen = records[records["passes"]].sort_values("accuracy").iloc[-1]
    assert tuned.best["fairness_weight"] == chosen["fairness_weight"]
    assert tuned.estimator.fairness_weight_ == chosen["fairness_weight"]
    for _, path in records.groupby("divergence"):
        ordered = path.sort_values("fairness_weight", ascending=False)
        ordered = ordered.iloc[ordered["train_violation"].argmin() :]
        # Two paths share the risk, and a path ends at the first that fails.
        is_below = (ordered["p_value"] <= 0.05).to_list()
        expected = [all(is_below[: i + 1]) for i in range(len(is_below))]
        assert ordered["passes"].to_list() == expected
    if way == "target":
        X, y, s = test
        found = violation(y, tuned.estimator.predict(X), sensitive_features=s)
        assert found == pytest.approx(tuned.best["violation"])


def test_tuning_says_where_no_candidate_is_shown_to_keep_the_bound():
    data = make_biased(1000, random_state=0)
    with pytest.warns(InfeasibleWarning, match="No candidate is shown to keep"):
        tuned = tune(
            FairLogisticRegression(),
            data.X,
            data.y,
            sensitive_features=data.sensitive_features,
            validation=EvenHoldout(0.3),
            max_violation=0.02,
            confidence=0.95,
            divergences=["kl"],
            fairness_weights=4,
        )
    assert not tuned.feasible


@pytest.mark.parametrize(
    "options",
    [
        {"max_violation": 0.1},
        {"min_accuracy": 0.1, "validation": EvenHoldout()},
        {"max_violation": 0.1, "validation": EvenHoldout(), "n_trials": 3},
    ],
)
def test_a_confidence_needs_rows_that_judge_the_returned_model(options):
    data = make_biased(500, random_state=0)
    groups = {"sensitive_features": data.sensitive_features}
    with pytest.raises(InvalidParameterError, match="confidence needs max_violation"):
        tune(
            FairLogisticRegression(),
            data.X,
            data.y,
            **groups,
            confidence=0.9,
            **options,
        )


def test_even_groups_do_not_test_columns_one_by_one():
    data = make_biased(500, random_state=0)
    groups = data.sensitive_features.iloc[:, 0]
    columns = {"s": groups, "t": np.arange(len(groups)) % 3}
    with pytest.raises(InvalidParameterError, match="test 2 columns one by one on the"):
        tune(
            FairLogisticRegression(groups="marginal"),
            data.X,
            data.y,
            sensitive_features=columns,
            validation=EvenHoldout(),
            max_violation=0.1,
            confidence=0.9,
        )


@pytest.mark.parametrize(
    ("goal", "measure"),
    [("min_rate", "lowest_rate"), ("min_group_accuracy", "lowest_accuracy")],
)
def test_a_goal_of_the_worst_group_is_kept_on_the_rows_that_judge(goal, measure):
    call = {**SOURCE, **QUICK, "validation": EvenHoldout()}
    loose = tune(FairLogisticRegression(), **call, **{goal: 0.0}).records
    bound = float(loose[measure].median())

    found = tune(FairLogisticRegression(), **call, **{goal: bound})

    kept = found.records[
        (found.records[measure] >= bound) & ~found.records["collapsed"]
    ]
    assert found.feasible
    if goal == "min_rate":
        assert found.best["accuracy"] == kept["accuracy"].max()
    else:
        assert found.best["violation"] == kept["violation"].min()
