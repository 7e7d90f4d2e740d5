"""Frozen models, corrected where data have moved."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

import fferm
from fferm.datasets import make_biased
from fferm.deploy import CorrectedClassifier, OffsetClassifier, adapt, recalibrate
from fferm.deploy.base import classes_of, logits_of, read_prob
from fferm.errors import (
    InvalidInputError,
    InvalidTypeError,
    MissingSensitiveError,
    NotFittedError,
    PersistenceError,
)


@dataclass(kw_only=True, eq=False, repr=False)
class Swapped(CorrectedClassifier):
    """Swaps two classes for the second group, and everywhere in the domain "x"."""

    def learn(self, prob, sensitive_features):
        self.classes_ = classes_of(self.model, prob.shape[1])
        self._learn_groups(sensitive_features, len(prob))
        self.domains_ = ("x",)
        return self

    def _correct(self, prob, X, group, domain):
        return np.where(((group == 1) ^ (domain == 0))[:, None], prob[:, ::-1], prob)


PROB = np.array([0.9, 0.2, 0.6, 0.3])
GROUPS = ["a", "a", "b", "b"]


def swapped(model=None):
    return Swapped(model=model).learn(read_prob(None, PROB), GROUPS)


def test_a_correction_decides_by_group_and_domain():
    model = swapped()
    assert model.predict(PROB, sensitive_features=GROUPS).tolist() == [1, 0, 0, 1]
    there = model.predict(PROB, sensitive_features=GROUPS, domain="x")
    assert there.tolist() == [0, 1, 1, 0]
    assert model.at("x").predict(PROB, sensitive_features=GROUPS).tolist() == [*there]
    by_row = ["x", "never seen", "x", None]
    mixed = model.predict(PROB, sensitive_features=GROUPS, domain=by_row)
    assert mixed.tolist() == [0, 0, 1, 1]


def test_a_correction_that_decides_by_group_asks_for_groups():
    with pytest.raises(MissingSensitiveError, match="decides by group"):
        swapped().predict(PROB)
    with pytest.raises(InvalidInputError, match=r"never seen the groups \['c'\]"):
        swapped().predict(PROB, sensitive_features=["a", "a", "b", "c"])


def test_an_audit_passes_groups_on_to_a_model_that_decides_by_them():
    audit = fferm.audit(
        swapped(), np.tile(PROB, 10), [0, 1] * 20, sensitive_features=GROUPS * 10
    )
    assert audit.frame["selection_rate_1"].to_dict() == {"a": 0.5, "b": 0.5}


def test_any_scorer_is_read():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    model = LogisticRegression().fit(X, [0, 0, 1, 1])
    prob = model.predict_proba(X)
    for scorer in (model, model.predict_proba, lambda X: model.predict_proba(X)[:, 1]):
        np.testing.assert_allclose(read_prob(scorer, X), prob, rtol=1e-15)
    np.testing.assert_allclose(read_prob(None, prob), prob)
    np.testing.assert_allclose(read_prob(None, prob[:, 1]), prob, rtol=1e-15)
    np.testing.assert_allclose(
        logits_of(prob)[:, 1], model.decision_function(X), rtol=1e-12
    )
    with pytest.raises(InvalidTypeError, match="model must be a fitted classifier"):
        read_prob(LogisticRegression, X)
    with pytest.raises(InvalidInputError, match="negative, missing"):
        read_prob(None, [0.1, np.nan])


def test_a_column_that_names_the_domain_is_not_shown_to_a_model_without_it():
    X = pd.DataFrame({"f": [0.0, 1.0, 2.0, 3.0]})
    scorer = LogisticRegression().fit(X, [0, 0, 1, 1])
    model = swapped(scorer)
    model.domain_name_ = "where"
    placed = X.assign(where=["x", "y", "x", "y"])
    assert model.feature_names_in_.tolist() == ["f", "where"]
    decided = model.predict(placed, sensitive_features=GROUPS)
    assert decided.tolist() == [1, 0, 1, 0]
    with pytest.raises(InvalidInputError, match="column 'where'"):
        model.predict(X, sensitive_features=GROUPS)


def places(rng, sizes, n_classes=2):
    """Return probabilities, groups, domains and labels, shifted by group and place."""
    parts = []
    for number, size in enumerate(sizes):
        group = rng.choice(["a", "b", "c"], size, p=[0.6, 0.3, 0.1])
        place = np.full(size, f"p{number}")
        shift = 0.8 * (group == "b") - 0.5 * (group == "c") + 0.5 * (number % 3)
        shift += 0.4 * (number % 2) * (group == "b")
        logits = rng.normal(size=(size, n_classes))
        logits[:, 1] += shift
        prob = softmax(logits, axis=1)
        u = rng.random((size, 1))
        label = (u > np.cumsum(softmax(logits[:, ::-1], axis=1)[:, ::-1], 1)).sum(1)
        parts.append((prob, group, place, np.minimum(label, n_classes - 1)))
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def gaps(decided, groups, domains):
    table = pd.crosstab([domains, groups], decided, normalize="index")
    by_place = table.groupby(level=0)
    return (by_place.max() - by_place.min()).max(axis=1)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_adapting_levels_the_rates_of_every_place_and_keeps_them(n_classes):
    prob, groups, domains, _ = places(
        np.random.default_rng(0), [3000, 5000, 4000], n_classes
    )
    passed = {"sensitive_features": groups, "domain": domains}
    adapted = adapt(None, prob, **passed)
    decided = adapted.predict(prob, **passed)
    plain = gaps(prob.argmax(axis=1), groups, domains)
    assert plain.min() > 0.1
    # What is left is of the size of the noise, which is not followed.
    assert gaps(decided, groups, domains).max() < 0.04
    for place in np.unique(domains):  # the rates of a place stay those of the model
        here = domains == place
        before = np.bincount(prob[here].argmax(axis=1), minlength=n_classes)
        after = np.bincount(decided[here], minlength=n_classes)
        assert np.abs(before - after).max() / here.sum() < 0.02


@pytest.mark.parametrize("n_classes", [2, 5])
def test_rates_of_one_place_are_level_to_the_row(n_classes):
    prob, groups, _, _ = places(np.random.default_rng(1), [4000], n_classes)
    adapted = adapt(None, prob, sensitive_features=groups)
    decided = adapted.predict(prob, sensitive_features=groups)
    target = np.bincount(prob.argmax(axis=1), minlength=n_classes) / 4000
    for group in np.unique(groups):
        rows = groups == group
        rates = np.bincount(decided[rows], minlength=n_classes) / rows.sum()
        assert np.abs(rates - target).max() <= 1 / rows.sum() + 1e-12


def test_a_small_place_borrows_from_all():
    rng = np.random.default_rng(2)
    prob, groups, domains, _ = places(rng, [4000] * 6 + [30])
    adapted = adapt(None, prob, sensitive_features=groups, domain=domains)
    pooled, small = adapted.offsets_[-1, :3, 1], adapted.offsets_[6, :3, 1]
    others = np.abs(adapted.offsets_[:6, :3, 1] - pooled).mean()
    assert np.abs(small - pooled).mean() < 0.7 * others
    new = adapted.predict_proba(prob, sensitive_features=groups, domain="elsewhere")
    given = adapted.predict_proba(prob, sensitive_features=groups)
    np.testing.assert_array_equal(new, given)
    logits = logits_of(given)[:, 1] - logits_of(prob)[:, 1]
    codes = np.searchsorted(adapted.groups_, groups)
    np.testing.assert_allclose(logits, -pooled[codes], rtol=1e-9)


def test_rows_without_a_group_keep_their_scores():
    prob, groups, _, _ = places(np.random.default_rng(3), [500])
    groups = groups.astype(object)
    groups[:50] = None
    adapted = adapt(None, prob, sensitive_features=groups)
    assert adapted.groups_ == ("a", "b", "c")
    np.testing.assert_allclose(
        adapted.predict_proba(prob, sensitive_features=groups)[:50], prob[:50]
    )


def test_an_intercept_is_that_of_least_loss():
    rng = np.random.default_rng(4)
    prob, _, _, label = places(rng, [6000])
    mended = recalibrate(None, prob, label)
    logits = logits_of(prob)[:, 1]
    grid = np.linspace(-3, 3, 6001)
    loss = [np.mean(np.logaddexp(0, logits + b) - label * (logits + b)) for b in grid]
    assert -mended.offsets_[-1, 0, 1] == pytest.approx(grid[np.argmin(loss)], abs=2e-3)
    assert mended.groups_ == ()


def test_intercepts_of_places_are_shrunk_as_far_as_they_are_noise():
    rng = np.random.default_rng(5)
    n_places, size = 40, 100
    true = rng.normal(scale=0.7, size=n_places)
    place = np.repeat(np.arange(n_places), size)
    logits = rng.normal(size=place.size)
    label = rng.random(place.size) < 1 / (1 + np.exp(-logits - true[place]))
    prob, names = 1 / (1 + np.exp(-logits)), np.array([f"p{k:02d}" for k in place])

    def error(model):
        return np.mean((-model.offsets_[:-1, 0, 1] - true) ** 2)

    mended = recalibrate(None, prob, label.astype(int), domain=names)
    alone = [
        -recalibrate(None, prob[place == k], label[place == k].astype(int)).offsets_[
            -1, 0, 1
        ]
        for k in range(n_places)
    ]
    assert error(mended) < np.mean((np.array(alone) - true) ** 2)
    assert error(mended) < np.mean((true - true.mean()) ** 2) / 4


def test_a_place_where_a_class_is_missing_gets_a_finite_intercept():
    prob = np.full(60, 0.5)
    label = np.array([0, 1] * 20 + [1] * 20)
    where = ["x"] * 40 + ["y"] * 20
    mended = recalibrate(None, prob, label, domain=where)
    assert np.all(np.abs(mended.offsets_) < 10)
    assert mended.offsets_[1, 0, 1] < mended.offsets_[0, 0, 1]


def test_adapting_keeps_the_rates_of_a_recalibrated_model():
    rng = np.random.default_rng(6)
    prob, groups, domains, label = places(rng, [4000, 4000])
    frame = pd.DataFrame({"f": logits_of(prob)[:, 1], "where": domains})
    scorer = LogisticRegression().fit(frame[["f"]][:200], label[:200])
    mended = recalibrate(scorer, frame, label, domain="where")
    adapted = adapt(mended, frame, sensitive_features=groups, domain="where")
    decided = adapted.predict(frame, sensitive_features=groups)
    assert abs(decided.mean() - mended.predict(frame).mean()) < 0.01
    assert gaps(decided, groups, domains).max() < 0.03
    audit = fferm.audit(adapted, frame, label, sensitive_features=groups)
    assert audit.violation < 0.03


@pytest.mark.parametrize("kind", ["fferm", "sklearn"])
def test_a_correction_is_saved_with_its_model_or_without(kind, tmp_path):
    data = make_biased(random_state=0)
    groups = {"sensitive_features": data.sensitive_features}
    scorer = LogisticRegression().fit(data.X, data.y)
    if kind == "fferm":
        scorer = fferm.FairLogisticRegression(fairness_weight=1.0)
        scorer.fit(data.X, data.y, **groups)
    mended = recalibrate(scorer, data.X, data.y)
    adapted = adapt(mended, data.X, **groups)
    fferm.save(adapted, tmp_path / "adapted.fferm")
    given = {} if kind == "fferm" else {"model": scorer}
    loaded = fferm.load(tmp_path / "adapted.fferm", **given)
    np.testing.assert_array_equal(
        loaded.predict_proba(data.X, **groups), adapted.predict_proba(data.X, **groups)
    )
    assert loaded.groups_ == adapted.groups_
    if kind == "sklearn":
        lacking = fferm.load(tmp_path / "adapted.fferm")
        with pytest.raises(PersistenceError, match="does not hold the model"):
            lacking.predict(data.X, **groups)


def test_scores_stand_in_for_the_model_of_a_correction():
    data = make_biased(random_state=0)
    groups = {"sensitive_features": data.sensitive_features}
    scorer = LogisticRegression().fit(data.X, data.y)
    adapted = adapt(scorer, data.X, **groups)
    scores = scorer.predict_proba(data.X)
    expected = adapted.predict_proba(data.X, **groups)
    np.testing.assert_array_equal(
        adapted.predict_proba(scores=scores, **groups), expected
    )
    with pytest.raises(InvalidInputError, match="Pass the rows, or their scores"):
        adapted.predict(**groups)


def test_a_changed_table_of_offsets_is_refused():
    adapted = adapt(None, PROB, sensitive_features=GROUPS)
    _, learned = adapted._to_saved()
    learned["offsets_"] = learned["offsets_"][:, :1]
    with pytest.raises(PersistenceError, match="offsets_ must have shape"):
        adapted._from_saved(learned)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("groups_", ("a", 1, "c")),
        ("domain_name_", None),
        ("sensitive_names_", (3,)),
        ("band_edges_", {"age": ("old",)}),
        ("band_edges_", ""),
        ("classes_", np.eye(2)),
        ("classes_", [0, 1]),
        ("offsets_", np.full((1, 4, 2), "0")),
    ],
)
def test_a_changed_file_of_a_correction_is_refused(name, value):
    adapted = adapt(None, PROB, sensitive_features=GROUPS)
    _, learned = adapted._to_saved()
    adapted._from_saved(learned)
    with pytest.raises(PersistenceError, match="must have"):
        adapted._from_saved({**learned, name: value})


def test_bad_rows_are_refused_by_name():
    with pytest.raises(InvalidInputError, match="two groups; got 1"):
        adapt(None, PROB, sensitive_features=["a"] * 4)
    with pytest.raises(InvalidInputError, match="needs y"):
        recalibrate(None, PROB, None)
    with pytest.raises(InvalidInputError, match="which is not among the classes"):
        recalibrate(None, PROB, [0, 1, 2, 0])
    with pytest.raises(InvalidInputError, match="column 'where'"):
        adapt(None, PROB, sensitive_features=GROUPS, domain="where")
    turned = pd.Series(GROUPS)[::-1]
    rows = pd.DataFrame(PROB)
    for asked in (
        lambda: adapt(None, rows, sensitive_features=turned),
        lambda: recalibrate(None, rows, pd.Series([0, 1, 0, 1])[::-1]),
        lambda: swapped().predict(rows, sensitive_features=turned),
    ):
        with pytest.raises(InvalidInputError, match="same index in another order"):
            asked()
    with pytest.raises(NotFittedError, match="OffsetClassifier is not fitted"):
        OffsetClassifier().predict(PROB)


def test_a_correction_is_a_point_on_a_curve(tmp_path):
    data = make_biased(random_state=0)
    groups = {"sensitive_features": data.sensitive_features}
    test = data.X_test, data.y_test, data.sensitive_features_test
    curve = fferm.tradeoff_curve(
        fferm.FairLogisticRegression(),
        *(data.X, data.y),
        **groups,
        test=test,
        fairness_weights=[0, 1],
    )
    plain = curve.models[0.0, 0]
    adapted = adapt(plain, data.X, **groups)
    passed = {"sensitive_features": data.sensitive_features_test}
    wider = curve.with_models({"adapted": adapted}, *test[:2], **passed)
    assert len(wider.records) > len(curve.records)
    (point,) = wider.curves["adapted"].pareto().to_dict("records")
    decided = adapted.predict(data.X_test, **passed)
    level = fferm.metrics.violation(data.y_test, decided, **passed)
    assert point["violation"] == pytest.approx(level)
    assert level < 0.1
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    assert wider.plot() is not None
    wider.to_html(tmp_path / "curve.html")
    assert "adapted" in (tmp_path / "curve.html").read_text(encoding="utf-8")
