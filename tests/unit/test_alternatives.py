"""A curve as a documented search for less discriminatory alternatives."""

import json

import numpy as np
import pytest

from fferm import FairLogisticRegression, tradeoff_curve
from fferm.curve import TradeoffCurve
from fferm.curve.alternatives import DISCLAIMER
from fferm.datasets import make_biased
from fferm.errors import InvalidParameterError

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def curve(tmp_path_factory):
    data = make_biased(600, random_state=0)
    return tradeoff_curve(
        {HOSTILE: FairLogisticRegression()},
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        fairness_weights=[0, 1, 5, 20],
        records=tmp_path_factory.mktemp("search") / "records",
    )


def test_the_fairest_model_within_a_loss_of_accuracy_is_taken(curve):
    search = curve.alternatives(max_loss=0.05)
    models = search.models.set_index("fairness_weight")
    plain = models.loc[0]
    assert search.compared_with.fairness_weight == 0
    inside = models[models["accuracy"] >= plain["accuracy"] - 0.05]
    assert search.taken.fairness_weight == inside["violation"].idxmin()
    taken = models.loc[search.taken.fairness_weight]
    assert taken["standing"].endswith("taken")
    assert taken["accuracy_lost"] == pytest.approx(
        plain["accuracy"] - taken["accuracy"]
    )
    assert f"{taken['violation']:.4g}" in search.reason


def test_every_model_has_its_costs_and_a_standing(curve):
    models = curve.alternatives(max_violation=0.3).models
    assert len(models) == 4
    judged = curve.records.query("split == 'test'")[["accuracy", "violation"]]
    np.testing.assert_array_equal(models[["accuracy", "violation"]], judged)
    assert models["standing"].str.len().min() > 0
    assert sum(text.endswith("taken") for text in models["standing"]) == 1
    beyond = models[models["standing"].str.contains("beyond the goal")]
    assert (beyond["violation"] > 0.3).all()
    for column in ("accuracy_low", "violation_high", "ratio"):
        assert models[column].notna().any()


def test_a_goal_of_every_group_is_held_against_every_model(curve):
    lowest = {
        key.fairness_weight: audit.frame["accuracy"].min()
        for key, audit in curve.audits.items()
    }
    bound = np.median([*lowest.values()])
    search = curve.alternatives(min_group_accuracy=bound)
    assert lowest[search.taken.fairness_weight] >= bound
    standing = search.models.set_index("fairness_weight")["standing"]
    is_beyond = standing.str.contains("beyond the goal")
    assert is_beyond.to_dict() == {k: value < bound for k, value in lowest.items()}
    assert is_beyond.any()


def test_models_that_no_test_chose_are_not_called_worse(curve):
    search = curve.alternatives(max_violation=0.9, confidence=0.9)
    kept = [text for text in search.models["standing"] if text.startswith("keeps")]
    assert kept
    assert all(text.endswith("not the one that passed the test") for text in kept)


def test_a_search_in_vain_is_documented_too(curve):
    search = curve.alternatives(max_violation=0.0)
    assert search.taken is None
    assert search.reason.startswith("None was taken. No model of the curve reaches")
    assert np.all(search.models["standing"] != "taken")


def test_records_alone_give_the_same_search(curve, tmp_path):
    data = make_biased(200, random_state=0)
    made = tradeoff_curve(
        FairLogisticRegression(),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        fairness_weights=[0, 5],
        records=tmp_path / "records",
    )
    read = TradeoffCurve.load(tmp_path / "records")
    both = [each.alternatives(max_loss=0.1).to_dict() for each in (made, read)]
    assert both[0] == both[1]


def test_a_search_is_plain_json(curve):
    search = curve.alternatives(max_loss=0.05, provenance={"Records": "folder"})
    plain = json.loads(json.dumps(search.to_dict(), allow_nan=False))
    assert plain["disclaimer"] == DISCLAIMER
    assert plain["provenance"] == {"Records": "folder"}
    assert len(plain["models"]) == 4
    assert plain["goal"]["max_loss"] == 0.05


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "select needs exactly one of"),
        ({"max_loss": 0.1, "min_accuracy": 0.5}, "Ask for max_loss or for min_acc"),
        ({"max_loss": -1}, "max_loss must be"),
    ],
)
def test_a_goal_that_is_none_is_refused(curve, options, words):
    with pytest.raises(InvalidParameterError, match=words):
        curve.alternatives(**options)


def test_the_page_has_names_as_text_and_a_place_to_sign(curve, tmp_path):
    search = curve.alternatives(max_loss=0.05)
    search.to_html(tmp_path / "page.html", title=HOSTILE)
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "<img" not in page
    assert "&lt;img src=x" in page
    assert DISCLAIMER in page
    assert ">taken</text>" in page
    assert "<dt>Signature</dt>" in page
