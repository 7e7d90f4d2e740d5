"""What changed for whom: gaps that close from above are named, from below too."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier

from fferm import audit
from fferm.report.audits import compare


class Fixed(DummyClassifier):
    """A classifier whose decisions are its input."""

    def __init__(self):
        super().__init__()

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0].astype(int)

    def predict_proba(self, X):
        return np.eye(len(self.classes_))[self.predict(X)]


def audit_of(rates, n=1000):
    """Return the audit of decisions that are positive at given rates by group."""
    decision = np.concatenate([np.arange(n) < round(rate * n) for rate in rates])
    group = np.repeat([f"group {k}" for k in range(len(rates))], n)
    y = np.tile(np.arange(n) % 2, len(rates))
    X = decision.astype(float)[:, None]
    model = Fixed().fit(X, [0, 1])
    return audit(model, X, y, sensitive_features=group, n_bootstrap=0)


def levelling(before, after):
    costs = compare(audit_of(before), audit_of(after))
    (cost,) = [cost for cost in costs if cost.name == "Decision 1"]
    return cost.levelling


@pytest.mark.parametrize(
    ("before", "after", "words", "is_down"),
    [
        ((0.6, 0.2), (0.2, 0.2), "no group's rate rose", True),
        ((0.6, 0.2), (0.1, 0.1), "no group's rate rose", True),
        ((0.6, 0.3, 0.2), (0.4, 0.4, 0.2), "the lowest rate did not rise", True),
        ((0.6, 0.2), (0.3, 0.3), "Mostly levelling down: 75 %", True),
        ((0.6, 0.2), (0.5, 0.5), "Levelling up", False),
        ((0.6, 0.2), (0.6, 0.6), "Levelling up", False),
        ((0.6, 0.2), (0.7, 0.5), "Levelling up", False),
    ],
)
def test_a_gap_that_closes_from_above_is_levelling_down(before, after, words, is_down):
    found = levelling(before, after)
    assert words in found.words
    assert found.is_down == is_down
    assert (found.highest.group, found.lowest.group)[0] == "group 0"
    assert found.gap_before == pytest.approx(max(before) - min(before))
    assert found.gap_after == pytest.approx(max(after) - min(after))


@pytest.mark.parametrize("after", [(0.6, 0.2), (0.7, 0.2), (0.5, 0.0)])
def test_a_gap_that_does_not_close_is_not_levelled(after):
    assert levelling((0.6, 0.2), after) is None


def test_a_group_that_fell_has_a_negative_difference():
    cost = compare(audit_of((0.6, 0.4, 0.2)), audit_of((0.5, 0.45, 0.3)))[0]
    assert [c.group for c in cost.changes if c.difference < 0] == ["group 0"]


def test_every_measure_has_the_rates_of_both_audits():
    before, after = audit_of((0.6, 0.2)), audit_of((0.4, 0.3))
    costs = {cost.name: cost for cost in compare(before, after)}
    assert list(costs) == ["Decision 1", "True positive rate", "Accuracy"]
    for change in costs["Accuracy"].changes:
        assert change.before == before.groups[change.group]["accuracy"]
        assert change.after == after.groups[change.group]["accuracy"]
    assert not costs["Decision 1"].is_better_if_high
    assert costs["Accuracy"].is_better_if_high


def test_groups_of_two_attributes_make_no_gap_with_each_other():
    n = 400
    sex, age = np.arange(n) % 2, np.arange(n) // 200
    y = np.arange(n) // 2 % 2
    about = {"sex": np.array(["f", "m"])[sex], "age": np.array(["old", "new"])[age]}

    def found(decision):
        X = np.asarray(decision, float)[:, None]
        model = Fixed().fit(X, [0, 1])
        return audit(
            model, X, y, sensitive_features=about, groups="marginal", n_bootstrap=0
        )

    before, after = found(sex == 1), found(np.arange(n) % 4 == 1)
    how = compare(before, after)[0].levelling
    assert {how.highest.group, how.lowest.group} == {"sex=m", "sex=f"}


def test_a_group_that_one_audit_lacks_is_left_out():
    before, after = audit_of((0.6, 0.2)), audit_of((0.4, 0.3, 0.1))
    names = [change.group for change in compare(before, after)[0].changes]
    assert names == ["group 0", "group 1"]
    alone = replace(after, groups={"group 2": after.groups["group 2"]})
    assert compare(before, alone)[0].changes == ()
