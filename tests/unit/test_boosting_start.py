"""Trees that go on from those of the last fit."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("lightgbm")

from boosting_models import FAST, gap, objectives

import fferm
from fferm import FairBoostingClassifier
from fferm.boosting.rounds import read_booster, split_trees
from fferm.datasets import make_biased
from fferm.errors import InvalidInputError, InvalidParameterError

DATA = make_biased(600, random_state=0)


def rows(X=DATA.X, y=DATA.y):
    return {"X": X, "y": y, "sensitive_features": DATA.sensitive_features}


def gone_on(first=8, more=20, given=None, **options):
    """Return a model of some rounds, and what it was before the last of them."""
    given = rows() if given is None else given
    options = {**FAST, "fairness_weight": 3.0, **options}
    model = FairBoostingClassifier(**{**options, "n_estimators": first}).fit(**given)
    before = model.booster_.model_to_string()
    model.set_params(warm_start=True, n_estimators=more).fit(**given)
    return model, before


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weight", [0.0, 3.0])
def test_more_trees_follow_those_of_the_last_fit(n_classes, weight):
    y = np.digitize(DATA.X[:, 0], [-0.5, 0.5]) if n_classes == 3 else DATA.y
    model, before = gone_on(given=rows(y=y), fairness_weight=weight)
    n_trees = 1 if n_classes == 2 else 3
    text = model.booster_.model_to_string()
    assert model.booster_.num_trees() == 20 * n_trees
    assert model.n_iter_ == len(model.history_) == 20
    # The first are what they were, and sizes of blocks are as LightGBM counts them.
    own, others = split_trees(text)[1], split_trees(before)[1]
    assert own[: len(others)] == others
    again = read_booster(text, n_trees, DATA.X.shape[1]).predict(DATA.X, raw_score=True)
    assert_array_equal(again, model.decision_function(DATA.X))
    assert np.all(np.diff(objectives(model)[8:]) <= 1e-12)
    assert objectives(model)[-1] < objectives(model)[7]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_plain_trees_are_those_of_one_run(n_classes):
    y = np.digitize(DATA.X[:, 0], [-0.5, 0.5]) if n_classes == 3 else DATA.y
    model, _ = gone_on(given=rows(y=y), fairness_weight=0.0)
    options = {**FAST, "fairness_weight": 0.0}
    whole = FairBoostingClassifier(**options).fit(**rows(y=y))
    scores = [each.decision_function(DATA.X) for each in (model, whole)]
    assert_allclose(*scores, atol=1e-6)


def test_trees_that_go_on_are_as_fair_as_those_of_one_run():
    data = make_biased(3000, random_state=0)
    given = {"y": data.y, "sensitive_features": data.sensitive_features}
    model, _ = gone_on(given={"X": data.X, **given}, fairness_weight=30.0, more=40)
    plain = FairBoostingClassifier(**FAST, fairness_weight=0.0).fit(data.X, data.y)
    assert gap(model, data) < 0.05 < gap(plain, data)


@pytest.mark.parametrize("weight", [0.0, 3.0])
def test_early_stopping_judges_all_trees(weight):
    options = {"early_stopping": "loss", "fairness_weight": weight, "patience": 30}
    model, _ = gone_on(**options)
    assert 8 <= model.n_iter_ <= 20
    assert model.booster_.num_trees() == model.n_iter_
    held_out = [record["held_out"] for record in model.history_]
    assert held_out[8] < held_out[0]


def test_a_loaded_model_goes_on(tmp_path):
    model, _ = gone_on(more=8)
    fferm.save(model, tmp_path / "model")
    kept = fferm.load(tmp_path / "model").set_params(n_estimators=20).fit(**rows())
    model.set_params(n_estimators=20).fit(**rows())
    assert_array_equal(kept.predict_proba(DATA.X), model.predict_proba(DATA.X))


def test_no_more_rounds_leave_the_trees_as_they_are():
    for weight in (0.0, 3.0):
        model, before = gone_on(more=8, fairness_weight=weight)
        assert (
            split_trees(model.booster_.model_to_string())[1] == split_trees(before)[1]
        )
        assert model.n_iter_ == 8


def test_a_bound_starts_from_scratch():
    model, _ = gone_on(max_violation=0.9, fairness_weight=None, more=10)
    assert model.n_iter_ == len(model.history_) == 10


def test_what_the_trees_do_not_fit_is_refused():
    model, _ = gone_on()
    with pytest.raises(InvalidParameterError, match="at least 20, those of the last"):
        model.set_params(n_estimators=5).fit(**rows())
    model.set_params(n_estimators=30)
    with pytest.raises(InvalidInputError, match="classes of the last fit"):
        model.fit(**rows(y=DATA.y.astype(str)))
    model, _ = gone_on()
    with pytest.raises(InvalidInputError, match=r"last fit, 5 features and .*; got 3"):
        model.fit(**rows(DATA.X[:, :3]))


def test_categories_have_to_be_the_same():
    kind = np.where(DATA.X[:, 0] > 0, "a", "b")
    frame = pd.DataFrame(DATA.X[:, 1:]).add_prefix("x").assign(kind=kind)
    model, _ = gone_on(given=rows(frame))
    assert model.n_iter_ == 20
    score = model.booster_.predict(frame.astype({"kind": "category"}), raw_score=True)
    assert_array_equal(score, model.decision_function(frame))
    with pytest.raises(InvalidInputError, match="levels of categories"):
        model.fit(**rows(frame.assign(kind=np.where(kind == "a", "a", "c"))))
