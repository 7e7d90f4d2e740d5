"""Rows that judge a model had no part in its training, wherever rows are held out.

Each test finds out by name which rows judged. It then trains a second model by hand on
the other rows alone, and asks for the same model; and it computes by hand, on the rows
that judged, the numbers that were reported.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import sklearn
from leakage import (
    CLASSIFIERS,
    MODELS,
    OTHER,
    ROWS,
    SOURCE,
    Spy,
    accuracy,
    assert_same,
    edges_of,
    gap,
    loss_and_penalty,
    rows_of,
    scores,
    take,
)
from numpy.testing import assert_allclose
from scipy.special import expit
from sklearn.base import clone
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from fferm import FairLogisticRegression, tradeoff_curve
from fferm.data.split import hold_out_evenly
from fferm.deploy import FeatureRepair, GroupRepair, repairing
from fferm.deploy.base import logits_of
from fferm.estimators import weight_search
from fferm.metrics import violation
from fferm.tuning import CrossValidation, EvenHoldout, TargetSample, tune

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.FfermWarning")
WEIGHTS = [0.0, 0.5, 4.0]
# Of a frozen model, of which all rows are new.
SCORES = ROWS.X[:, 1] - 2 + ROWS.X[:, 2] / 2


@pytest.fixture
def spy(monkeypatch):
    return Spy(monkeypatch)


def check_curve(curve, models, spy, seeds, has_test):
    """Check a curve of each model against models trained and measured by hand."""
    parts = []
    for name, model in models.items():
        for seed in seeds:
            path = [curve.models[name, weight, seed] for weight in WEIGHTS]
            trained, judged = spy.asked_of(path)
            parts.append(frozenset(judged))
            assert not set(trained) & set(judged)
            if has_test:
                assert set(trained) == set(SOURCE)
                assert set(judged) == set(OTHER)
            else:
                assert set(trained) | set(judged) == set(SOURCE)
                assert len(judged) == len(SOURCE) / 4
            expected = clone(model).set_params(random_state=seed)
            again = expected.fit_path(take(model, trained), WEIGHTS)
            of_path = curve.records.query("curve == @name and seed == @seed")
            for fitted, byhand in zip(path, again, strict=True):
                assert_same(fitted, byhand)
                records = of_path.query("fairness_weight == @fitted.fairness_weight")
                for split, rows in (("train", trained), ("test", judged)):
                    record = records.set_index("split").loc[split]
                    predicted = byhand.predict(ROWS.X[rows])
                    right = accuracy(model, predicted, rows)
                    assert record["accuracy"] == pytest.approx(right)
                    worst = gap(edges_of(trained), predicted, rows)
                    assert record["violation"] == pytest.approx(worst)
                audit = curve.audits[name, fitted.fairness_weight, seed]
                found = getattr(audit, "explained", None) or audit.accuracy
                assert found == pytest.approx(right)
    return parts


@pytest.mark.parametrize("has_test", [False, True], ids=["held out", "passed"])
@pytest.mark.parametrize("name", MODELS)
def test_a_curve_is_measured_on_rows_that_do_not_train(name, has_test, spy):
    model = MODELS[name]
    curve = tradeoff_curve(
        {name: model},
        **take(model, SOURCE).tables,
        test=take(model, OTHER).tables if has_test else None,
        fairness_weights=WEIGHTS,
        seeds=[3, 4],
    )
    parts = check_curve(curve, {name: model}, spy, [3, 4], has_test)
    assert len(set(parts)) == (1 if has_test else 2)


def test_curves_of_several_models_are_measured_on_the_same_rows(spy, tmp_path):
    models = {name: MODELS[name] for name in ("linear", "trees")}
    curve = tradeoff_curve(
        models,
        **take(MODELS["linear"], SOURCE).tables,
        fairness_weights=WEIGHTS,
        seeds=[3, 4],
    )
    parts = check_curve(curve, models, spy, [3, 4], has_test=False)
    assert parts[:2] == parts[2:]


def test_weights_that_a_bound_adds_train_and_judge_on_the_same_rows(spy):
    model = MODELS["linear"]
    curve = tradeoff_curve(
        model,
        **take(model, SOURCE).tables,
        fairness_weights=[0.0, 30.0],
        seeds=[3],
        max_violation=0.5,
    )
    trained, judged = spy.asked_of([curve.models[0.0, 3]])
    tests = curve.records.query("split == 'test'").set_index("fairness_weight")
    added = sorted(set(tests.index) - {0.0, 30.0})
    assert added
    for weight in added:
        fitted = curve.models[weight, 3]
        seen = spy.asked_of([fitted])
        assert [set(rows) for rows in seen] == [set(trained), set(judged)]
        byhand = clone(model).set_params(random_state=3, fairness_weight=weight)
        assert_same(fitted, byhand.fit(**take(model, trained).tables))
        predicted = fitted.predict(ROWS.X[judged])
        worst = gap(edges_of(trained), predicted, judged)
        assert tests["violation"][weight] == pytest.approx(worst)


SCHEMES = {
    "folds": CrossValidation(3, random_state=1),
    "a splitter": CrossValidation(ShuffleSplit(2, test_size=0.3, random_state=1)),
    "even groups": EvenHoldout(0.3, random_state=1),
    "a target": TargetSample(
        ROWS.X[OTHER], ROWS.y[OTHER], ROWS.sensitive_features.iloc[OTHER]
    ),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["linear", "trees"])
def test_candidates_are_judged_by_rows_that_do_not_train_them(name, scheme, spy):
    is_target, model = scheme == "a target", MODELS[name]
    tuned = tune(
        model,
        **take(model, SOURCE).tables,
        validation=SCHEMES[scheme],
        divergences=["kl", "chi2"],
        fairness_weights=WEIGHTS,
        min_accuracy=0.0,
    )
    assert len(spy.paths) == 2 * {"folds": 3, "a splitter": 2}.get(scheme, 1)
    paths = {"kl": [], "chi2": []}
    for candidate, _, weights, _, fitted in list(spy.paths):
        (judged,) = spy.asked_of(fitted)
        trained = SOURCE if is_target else np.setdiff1d(SOURCE, judged)
        again = clone(candidate).fit_path(take(model, trained), weights)
        for one, byhand in zip(fitted, again, strict=True):
            assert_same(one, byhand)
        paths[candidate.divergence].append((fitted, judged))
    for divergence, folds in paths.items():  # noqa: B007 - pandas reads it
        judged = np.concatenate([rows for _, rows in folds])
        if scheme == "folds":
            assert sorted(judged) == SOURCE.tolist()
        elif is_target:
            assert judged.tolist() == OTHER.tolist()
        else:
            assert set(judged) < set(SOURCE)
        records = tuned.records.query("divergence == @divergence")
        for n, record in enumerate(records.to_dict("records")):
            decided = np.concatenate([m[n].predict(ROWS.X[rows]) for m, rows in folds])
            right = accuracy(model, decided, judged, not is_target)
            assert record["accuracy"] == pytest.approx(right)
            worst = gap(edges_of(SOURCE), decided, judged, not is_target)
            assert record["violation"] == pytest.approx(worst)
    is_useful = ~tuned.records["collapsed"]
    best = tuned.records[is_useful].sort_values("violation").iloc[0]
    assert tuned.best["violation"] == best["violation"]
    chosen = clone(model).set_params(**best[["divergence", "fairness_weight"]])
    assert_same(tuned.estimator, chosen.fit(**take(model, SOURCE).tables))


def test_even_groups_are_judged_by_equally_many_rows_of_each():
    source = take(MODELS["linear"], SOURCE)
    by_sex = replace(source, sensitive_features=source.sensitive_features["sex"])
    ((_, judged),), _ = EvenHoldout(0.3).folds(by_sex)
    counts = np.unique(judged.sensitive_features, return_counts=True)[1]
    assert counts.tolist() == [31, 31]


@pytest.mark.filterwarnings("ignore::fferm.errors.InfeasibleWarning")
def test_the_order_of_tests_is_that_of_training_rows(spy):
    model, sex = MODELS["linear"], ROWS.sensitive_features[["sex"]]
    tuned = tune(
        model,
        **replace(take(model, SOURCE), sensitive_features=sex.iloc[SOURCE]).tables,
        validation=EvenHoldout(0.3, random_state=1),
        divergences=["kl"],
        fairness_weights=WEIGHTS,
        max_violation=0.5,
        confidence=0.6,
    )
    ((*_, fitted),) = spy.paths
    trained, _ = spy.asked_of(fitted)
    rows = {"sensitive_features": sex.iloc[trained]}
    rows["sample_weight"] = ROWS.sample_weight[trained]
    for one, found in zip(fitted, tuned.records["train_violation"], strict=True):
        predicted = one.predict(ROWS.X[trained])
        assert found == pytest.approx(violation(ROWS.y[trained], predicted, **rows))


def check_search(spy, passed, whole):
    """Check each path of a search against one trained by hand.

    Return the models that were judged, and the rows that judged them.
    """
    paths, asked = list(spy.paths), list(spy.asked)
    fitted = [model for *_, models in paths for model in models]
    # What noise alone may do, and what a test will show, is seen on training rows; a
    # classifier then decides on all rows.
    judged = min((rows for _, rows in asked), key=len)
    sides = set(judged), set(whole), set(whole) - set(judged), set(SOURCE)
    assert all(set(rows) in sides for _, rows in asked)
    assert set(judged) < set(whole)
    assert len(judged) == pytest.approx(0.2 * len(whole), abs=5)
    rest = passed(np.setdiff1d(whole, judged))
    for model, _, weights, start, models in paths:
        again = clone(model).fit_path(rest, weights, start)
        for found, byhand in zip(models, again, strict=False):
            assert_same(found, byhand)
    return fitted, judged


@pytest.mark.parametrize("name", [*MODELS, "critic"])
@pytest.mark.parametrize("confidence", [None, 0.6])
@pytest.mark.filterwarnings("ignore::fferm.errors.InfeasibleWarning")
def test_a_bound_is_judged_by_rows_that_do_not_train(name, confidence, spy):
    bound = 0.9 if name == "regressor" else 0.35
    model = clone(MODELS["network" if name == "critic" else name])
    model.set_params(max_violation=bound, confidence=confidence)
    if name == "critic":
        model.set_params(method="critic", max_epochs=1, batch_size=128)
    model.fit(**take(model, SOURCE).tables)
    fitted, judged = check_search(spy, partial(take, model), SOURCE)
    (chosen,) = (m for m in fitted if m.fairness_weight == model.fairness_weight_)
    predicted = chosen.predict(ROWS.X[judged])
    worst = gap(edges_of(np.setdiff1d(SOURCE, judged)), predicted, judged)
    assert model.violation_ == pytest.approx(worst)
    # One class for everyone never counts, and a test asks for more than a value.
    is_kept = bool(worst <= bound and np.ptp(predicted) > 0)
    assert model.feasible_ in ((is_kept,) if confidence is None else (False, is_kept))
    # The model is the one that was judged.
    assert_same(model, chosen)


def penalized_on(index):
    """Return arguments of `fit` with a penalty on other rows than those of the loss."""
    source, other = (take(MODELS["linear"], rows) for rows in (SOURCE, index))
    penalty = other.X, other.sensitive_features
    return replace(source, sensitive_features=None, penalty_data=penalty)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_bound_on_other_rows_is_judged_by_those_without_a_penalty(name, spy):
    model, passed = clone(MODELS[name]), penalized_on(OTHER)
    model.set_params(max_violation=0.5, confidence=None)
    model.fit(**passed.tables, penalty_data=passed.penalty_data)
    fitted, judged = check_search(spy, penalized_on, OTHER)
    (chosen,) = (m for m in fitted if m.fairness_weight == model.fairness_weight_)
    decided = chosen.predict(ROWS.X[judged])
    edges = edges_of(np.setdiff1d(OTHER, judged))
    worst = gap(edges, decided, judged, has_weight=False)
    assert model.violation_ == pytest.approx(worst)


@pytest.mark.parametrize("is_other", [False, True], ids=["own rows", "other rows"])
def test_a_bound_within_labels_is_judged_by_rows_with_labels_of_their_own(
    is_other, spy
):
    options = {"notion": "equalized_odds", "max_violation": 0.2, "confidence": None}
    model = clone(MODELS["linear"]).set_params(**options)
    whole = OTHER if is_other else SOURCE

    def passed(index):
        rows = take(model, index)
        rows = replace(rows, sensitive_features=rows.sensitive_features["sex"])
        if not is_other:
            return rows
        penalty = rows.X, rows.sensitive_features, rows.y
        return replace(penalized_on(index), penalty_data=penalty)

    model.fit(**passed(whole).tables, penalty_data=passed(whole).penalty_data)
    fitted, judged = check_search(spy, passed, whole)
    (chosen,) = (m for m in fitted if m.fairness_weight == model.fairness_weight_)
    worst = violation(
        ROWS.y[judged],
        chosen.predict(ROWS.X[judged]),
        sensitive_features=ROWS.sensitive_features["sex"].iloc[judged],
        sample_weight=None if is_other else ROWS.sample_weight[judged],
        notion="equalized_odds",
    )
    assert model.violation_ == pytest.approx(worst)


@pytest.mark.parametrize("bound", [None, 0.4], ids=["at a weight", "under a bound"])
def test_a_divergence_is_chosen_by_rows_that_do_not_train(bound, spy, monkeypatch):
    scores, score = {}, weight_search._held_out_score

    def noted(candidate, passed):
        scores[candidate.divergence] = score(candidate, passed)
        return scores[candidate.divergence]

    monkeypatch.setattr(weight_search, "_held_out_score", noted)
    monkeypatch.setattr(weight_search, "STANDARD", ("kl", "chi2"))
    options = {"divergence": "auto", "fairness_weight": 4.0, "max_violation": bound}
    options["confidence"] = None
    model = clone(MODELS["linear"]).set_params(**options)
    model.fit(**take(model, SOURCE).tables)
    fitted, judged = check_search(spy, partial(take, model), SOURCE)
    assert len(scores) == 2
    assert model.divergence_.name == max(scores, key=scores.get)
    for divergence, found in scores.items():
        tried = [m for m in fitted if m.divergence == divergence]
        decided = [m.predict(ROWS.X[judged]) for m in tried]
        edges = edges_of(np.setdiff1d(SOURCE, judged))
        gaps = [gap(edges, each, judged) for each in decided]
        rights = [accuracy(model, each, judged) for each in decided]
        by_weight = zip((m.fairness_weight for m in tried), gaps, rights, strict=True)
        if bound is None:
            assert found == pytest.approx(rights[0] - gaps[0])
        else:
            within = [(w, right) for w, worst, right in by_weight if worst <= bound]
            assert found == pytest.approx(1 + min(within)[1])


def test_rows_that_test_a_bound_have_no_say_in_the_divergence(spy, monkeypatch):
    tested = []

    def noted(*args):
        tested.append(hold_out_evenly(*args))
        return tested[-1]

    monkeypatch.setattr(weight_search, "hold_out_evenly", noted)
    monkeypatch.setattr(weight_search, "STANDARD", ("kl", "chi2"))
    model = clone(MODELS["linear"]).set_params(divergence="auto", max_violation=0.35)
    model.set_params(confidence=0.6).fit(**take(model, SOURCE).tables)
    assert len({held.tobytes() for held in tested}) == 1
    assert len(spy.paths) > 2
    for _, passed, *_ in spy.paths:
        assert not np.any(passed.sample_weight[tested[0]])


# Slow steps, so that the last model is the best, whatever the last digits say.
SLOW = {"patience": 999, "learning_rate": 0.01, "fairness_weight": 2.0}
STOPPED = {
    "sgda": ("minibatches", {}),
    "semi_stochastic": ("minibatches", {"solver": "semi_stochastic"}),
    "sreda": ("minibatches", {"solver": "sreda"}),
    "trees": ("trees", {}),
    "trees by loss": ("trees", {"early_stopping": "loss"}),
    "trees by violation": (
        "trees",
        {"early_stopping": "violation", "learning_rate": 0.3},
    ),
    "network": ("network", {"class_weight": "balanced"}),
    "critic": ("network", {"method": "critic"}),
}


def nudged(passed, index):
    """Return rows of which some have other features, weights and, slightly, ages."""
    X, weight = passed.X.copy(), passed.sample_weight.copy()
    sensitive, rng = passed.sensitive_features.copy(), np.random.default_rng(0)
    X[index, 1:] += rng.normal(0, 0.2, (len(index), 2))
    weight[index] *= rng.uniform(0.5, 2.0, len(index))
    sensitive.loc[index, "age"] += rng.uniform(0, 1e-6, len(index))
    return replace(passed, X=X, sample_weight=weight, sensitive_features=sensitive)


def trained_and_watched(model):
    """Return numbers that tell how a model was trained, and what was watched."""
    history = pd.DataFrame(model.history_)
    if isinstance(model, FairLogisticRegression):
        return scores(model), history["objective"]
    watched = history.filter(["held_out", "validation_objective"]).iloc[:, 0]
    return history["objective"], watched


def watched_by_hand(model, edges, index):
    """Return what early stopping watches, on some rows."""
    if model.early_stopping == "violation":
        return gap(edges, model.predict(ROWS.X[index]), index)
    loss, penalty = loss_and_penalty(model, edges, index)
    if model.early_stopping == "loss":
        return loss
    ridge = 0.5 * model.l2 * np.sum(getattr(model, "coef_", 0.0) ** 2)
    return loss + model.fairness_weight * penalty + ridge


@pytest.mark.parametrize("name", STOPPED)
def test_rows_that_early_stopping_watches_do_not_train(name):
    kind, options = STOPPED[name]
    model = clone(MODELS[kind]).set_params(
        **{"early_stopping": "validation", **SLOW, **options}
    )
    passed = take(model, SOURCE)
    encoded = clone(model)._prepare(passed)
    trained, watched = (rows_of(e.data.X) for e in (encoded, encoded.watched))
    assert sorted([*trained, *watched]) == SOURCE.tolist()
    assert len(watched) == pytest.approx(0.2 * len(SOURCE), abs=5)

    plain, other_watched, other_trained = (
        clone(model).fit(**rows.tables)
        for rows in (passed, nudged(passed, watched), nudged(passed, trained))
    )
    before, judged = trained_and_watched(plain)
    expected = watched_by_hand(plain, edges_of(trained), watched)
    kept = min(judged) if kind != "trees" else judged[plain.n_iter_ - 1]
    assert kept == pytest.approx(expected)
    after, judged_after = trained_and_watched(other_watched)
    assert_allclose(after, before, rtol=1e-9)
    assert other_watched.band_edges_ == plain.band_edges_
    assert np.abs(judged_after - judged).max() > 1e-6
    assert np.abs(trained_and_watched(other_trained)[0] - before).max() > 1e-6
    assert other_trained.band_edges_ != plain.band_edges_


def test_other_rows_either_train_or_are_watched_too():
    model = clone(MODELS["minibatches"]).set_params(early_stopping="validation")
    encoded = model._prepare(penalized_on(OTHER))
    problems = encoded.problem, encoded.watched.problem
    for name, whole in (("X", SOURCE), ("penalty_X", OTHER)):
        trained, watched = (rows_of(getattr(problem, name)) for problem in problems)
        assert sorted([*trained, *watched]) == whole.tolist()
        assert len(watched) == pytest.approx(0.2 * len(whole), abs=5)
    edges = [part.rows.band_edges for part in (encoded, encoded.watched)]
    assert edges == [{"age": tuple(edges_of(rows_of(encoded.problem.penalty_X)))}] * 2


@pytest.mark.parametrize("name", ["minibatches", "trees", "network"])
def test_rows_watched_in_the_end_had_no_part_in_the_search_for_a_bound(name, spy):
    # The last fit starts at the model that was judged, and so must that one not know
    # the rows that the last fit watches.
    options = {"early_stopping": "validation", "max_violation": 0.5}
    options |= {"confidence": None, "refit": True}
    model = clone(MODELS[name]).set_params(**options)
    passed = take(model, SOURCE)
    model.fit(**passed.tables)
    watched = rows_of(clone(model)._prepare(passed).watched.data.X)
    for _, searched, *_ in spy.paths:
        assert not np.any(searched.sample_weight[watched])


def far(scores):
    """Return scores that are neither probabilities nor logits."""
    return 500 + 90 * scores


REPAIRED = {
    "probabilities": lambda index: expit(SCORES[index]),
    "scores": lambda index: far(SCORES[index]),
}


@pytest.mark.parametrize("kind", REPAIRED)
@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
def test_rules_by_group_are_those_of_rows_that_do_not_judge(kind, notion, monkeypatch):
    bound, held = 0.7, []

    def noted(*args):
        held.append(hold_out_evenly(*args))
        return held[-1]

    monkeypatch.setattr(repairing, "hold_out_evenly", noted)
    source = take(MODELS["linear"], SOURCE)
    ages = {"sensitive_features": source.sensitive_features[["age"]]}
    rows = {"y": source.y, "sample_weight": source.sample_weight, **ages}
    how = {"notion": notion, "random_state": 2}
    found = GroupRepair(max_violation=bound, confidence=0.6, **how)
    found.fit(None, **rows, scores=REPAIRED[kind](SOURCE))
    judged, trained = SOURCE[held[0]], SOURCE[~held[0]]
    assert len(judged) == pytest.approx(0.2 * len(SOURCE), abs=5)
    # Those of a bound that was fixed before: a share of the one that is tested.
    byhand = [GroupRepair(max_violation=s * bound, **how) for s in repairing.BOUNDS]
    mine = take(MODELS["linear"], trained)
    rows = {"y": mine.y, "sample_weight": mine.sample_weight}
    rows["sensitive_features"] = mine.sensitive_features[["age"]]
    for model in byhand:
        model.set_params(confidence=None)
        model.fit(None, **rows, scores=REPAIRED[kind](trained))
        assert model.band_edges_ == found.band_edges_
        assert model.score_unit_ == found.score_unit_
    assert any(
        model.rules_.shape == found.rules_.shape
        and np.allclose(model.rules_, found.rules_)
        and np.allclose(model.chances_, found.chances_)
        for model in byhand
    )
    theirs = take(MODELS["linear"], judged)
    ages = theirs.sensitive_features[["age"]]
    decided = found.predict(sensitive_features=ages, scores=REPAIRED[kind](judged))
    bands = np.searchsorted(found.band_edges_["age"], ages["age"], "right")
    rows = {"sensitive_features": bands, "sample_weight": theirs.sample_weight}
    worst = violation(theirs.y, decided, **rows, notion=notion)
    assert found.violation_ == pytest.approx(worst)


def test_rules_are_tested_until_one_fails(monkeypatch):
    # Later ones that pass have been chosen by the rows that test them.
    p_values = iter([0.0, 1.0, 0.0, 0.0])
    monkeypatch.setattr(repairing, "certify", lambda *_: next(p_values))
    source = take(MODELS["linear"], SOURCE)
    ages = {"sensitive_features": source.sensitive_features[["age"]]}
    found = GroupRepair(max_violation=0.7, confidence=0.6)
    found.fit(None, source.y, **ages, scores=expit(SCORES[SOURCE]))
    assert found.feasible_
    assert list(p_values) == [0.0, 0.0]


@pytest.mark.parametrize("kind", REPAIRED)
def test_a_correction_is_that_of_rows_that_do_not_judge(kind, spy):
    source, all_scores = take(MODELS["linear"], SOURCE), REPAIRED[kind](SOURCE)
    how = {"max_violation": 0.35, "confidence": 0.6, "random_state": 2}
    how["groups"] = "marginal"
    found = FeatureRepair(correction=clone(MODELS["linear"]), **how)
    found.fit(**source.tables, scores=all_scores)
    judged = min((rows for _, rows in spy.asked), key=len)
    trained = np.setdiff1d(SOURCE, judged)
    assert len(judged) == pytest.approx(0.2 * len(SOURCE), abs=5)
    if kind == "scores":
        mine = REPAIRED[kind](trained)
        assert found.score_unit_ == pytest.approx((mine.mean(), mine.std()))
    prob = found._to_prob(all_scores)[np.isin(SOURCE, trained)]
    byhand = clone(found.correction_).set_params(
        max_violation=None, fairness_weight=found.correction_.fairness_weight_
    )
    mine = take(MODELS["linear"], trained)
    byhand.fit(**{**mine.tables, "X": np.column_stack([mine.X, logits_of(prob)[:, 1]])})
    assert_allclose(found.correction_.coef_, byhand.coef_, rtol=1e-3, atol=1e-4)
    predicted = found.predict(ROWS.X[judged], scores=REPAIRED[kind](judged))
    assert found.violation_ == pytest.approx(gap(edges_of(trained), predicted, judged))


def test_a_grid_search_scales_trains_and_scores_on_rows_of_its_own():
    source, weights = take(MODELS["linear"], SOURCE), [0.5, 4.0]
    with sklearn.config_context(enable_metadata_routing=True):
        right, worst = make_scorer(accuracy_score), make_scorer(violation)
        right.set_score_request(sample_weight=True)
        worst.set_score_request(sample_weight=True, sensitive_features=True)
        model = clone(MODELS["linear"]).set_fit_request(
            sensitive_features=True, sample_weight=True
        )
        scaler = StandardScaler().set_fit_request(sample_weight=True)
        folds = KFold(3, shuffle=True, random_state=0)
        search = GridSearchCV(
            Pipeline([("scale", scaler), ("model", model)]),
            {"model__fairness_weight": weights},
            scoring={"right": right, "worst": worst},
            refit=False,
            cv=folds,
        )
        search.fit(**source.tables)
    for fold, (trained, judged) in enumerate(folds.split(SOURCE)):
        mine, theirs = take(model, SOURCE[trained]), take(model, SOURCE[judged])
        scale = StandardScaler().fit(mine.X, sample_weight=mine.sample_weight)
        for n, weight in enumerate(weights):
            byhand = clone(MODELS["linear"]).set_params(fairness_weight=weight)
            byhand.fit(**{**mine.tables, "X": scale.transform(mine.X)})
            decided = byhand.predict(scale.transform(theirs.X))
            groups = {"sensitive_features": theirs.sensitive_features}
            weighted = {"sample_weight": theirs.sample_weight}
            expected = {
                "right": np.average(decided == theirs.y, weights=theirs.sample_weight),
                "worst": violation(theirs.y, decided, **groups, **weighted),
            }
            for name, value in expected.items():
                found = search.cv_results_[f"split{fold}_test_{name}"][n]
                assert found == pytest.approx(value)
