"""Frozen models, corrected where data have moved."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import fferm
from fferm.deploy import CorrectedClassifier
from fferm.deploy.base import classes_of, logits_of, read_prob
from fferm.errors import InvalidInputError, InvalidTypeError, MissingSensitiveError


@dataclass(kw_only=True, eq=False, repr=False)
class Swapped(CorrectedClassifier):
    """Swaps two classes for the second group, and everywhere in the domain "x"."""

    def learn(self, prob, sensitive_features):
        self.classes_ = classes_of(self.model, prob)
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
