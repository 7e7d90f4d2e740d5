"""Notions: which rows are compared with which, and what is refused."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from fferm import FairBoostingClassifier, FairLogisticRegression, audit
from fferm.datasets import make_biased
from fferm.errors import InvalidInputError, InvalidParameterError, UnknownNameError
from fferm.notions import (
    Comparison,
    ConditionalParity,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    FalsePositiveRateParity,
    Labels,
    Notion,
    PredictiveParity,
    Strata,
    Sufficiency,
    get,
)
from fferm.registry import Registered

Y = np.array([0, 1, 1, 0, 1])
LABELS = Labels(n_samples=5, y=Y, classes=("no", "yes"))
THREE = Labels(n_samples=5, y=np.array([0, 1, 2, 0, 1]), classes=("a", "b", "c"))
UNLABELLED = Labels(n_samples=5, classes=("no", "yes"))
ON_LABELS = [
    EqualOpportunity(),
    FalsePositiveRateParity(),
    EqualizedOdds(),
    Sufficiency(),
    PredictiveParity(),
]


def assert_strata(strata, code, names):
    np.testing.assert_array_equal(strata.code, code)
    assert strata.code.dtype == np.int64
    assert strata.names == names


def test_demographic_parity_compares_everyone():
    assert_strata(DemographicParity().strata(UNLABELLED), [0] * 5, ("everyone",))


def test_equal_opportunity_keeps_the_positives():
    strata = EqualOpportunity().strata(LABELS)
    assert_strata(strata, [-1, 0, 0, -1, 0], ("y=yes",))


def test_equal_opportunity_keeps_the_label_that_it_names():
    strata = EqualOpportunity(positive="no").strata(LABELS)
    assert_strata(strata, [0, -1, -1, 0, -1], ("y=no",))


def test_false_positive_rate_parity_keeps_the_negatives():
    strata = FalsePositiveRateParity().strata(LABELS)
    assert_strata(strata, [0, -1, -1, 0, -1], ("y=no",))


def test_equalized_odds_compares_given_the_label():
    assert_strata(EqualizedOdds().strata(LABELS), Y, ("y=no", "y=yes"))
    assert_strata(EqualizedOdds().strata(THREE), THREE.y, ("y=a", "y=b", "y=c"))


@pytest.mark.parametrize("notion", [Sufficiency(), PredictiveParity()])
def test_sufficiency_reads_labels_as_strata(notion):
    assert not notion.compares_predictions
    assert_strata(notion.strata(LABELS), Y, ("y=no", "y=yes"))


def test_predictive_parity_keeps_one_prediction():
    two = PredictiveParity().comparison(("y=no", "y=yes"), ("no", "yes"))
    assert two.kept_conditions == ("prediction=yes",)
    assert two.outcomes == ("y=no", "y=yes")
    three = PredictiveParity("a").comparison(("u", "v"), ("a", "b", "c"))
    assert three.kept_conditions == ("prediction=a",)
    joint = np.arange(24.0).reshape(2, 3, 4)
    assert_array_equal(three.tables(joint), [joint[:, 0]])
    expected = np.where(np.arange(3)[:, None] == 0, joint, 0.0)
    assert_array_equal(three.pull_back(three.tables(joint)), expected)


def test_sufficiency_compares_labels_given_the_prediction():
    joint = np.arange(24.0).reshape(2, 3, 4)
    comparison = Sufficiency().comparison(("y=0", "y=1"), (0, 1, 2))
    assert not comparison.has_fixed_groups
    assert_array_equal(comparison.tables(joint), joint.transpose(1, 0, 2))
    assert_array_equal(comparison.tables(joint[None]), joint.transpose(1, 0, 2)[None])
    assert_array_equal(comparison.pull_back(comparison.tables(joint)), joint)


@pytest.mark.parametrize("notion", [DemographicParity(), EqualizedOdds()])
def test_other_notions_compare_predictions_within_strata(notion):
    joint = np.arange(12.0).reshape(2, 2, 3)
    comparison = notion.comparison(("r", "s"), ("no", "yes"))
    assert notion.compares_predictions
    assert comparison.has_fixed_groups
    assert comparison.conditions == ("r", "s")
    assert comparison.outcomes == ("prediction=no", "prediction=yes")
    assert comparison.tables(joint) is joint
    assert comparison.pull_back(joint) is joint


@dataclass(frozen=True)
class AccuracyParity(Notion):
    """Being right is independent of the group: a table of a shape of its own."""

    name: ClassVar[str] = "accuracy_parity_of_tests"

    def strata(self, labels):
        return Strata(labels.y, tuple(f"y={label}" for label in labels.classes))

    def comparison(self, strata, classes):
        place = np.eye(len(strata), len(classes), dtype=np.int64)
        return Comparison(("everyone",), ("wrong", "right"), place)


def test_rows_that_are_right_or_wrong_stay_in_their_condition():
    assert AccuracyParity().comparison(("y=0", "y=1"), (0, 1)).has_fixed_groups


# Other tests list the notions by name; this one is used as an instance alone.
del Registered._registry["notion", AccuracyParity.name]


def test_a_notion_with_tables_of_its_own_is_one_class():
    data = make_biased(1200, n_groups=2, random_state=0)
    group = np.asarray(data.sensitive_features).reshape(-1)
    # One group's labels are noise to a third, so nobody is right about it as often.
    is_noise = (group == group[0]) & (np.random.default_rng(0).random(group.size) < 0.3)
    y = np.where(is_noise, 1 - np.asarray(data.y), data.y)
    sides = {"sensitive_features": group}
    notion, gaps = AccuracyParity(), {}
    for solver in ("lbfgs", "semi_stochastic"):
        for weight in (0.0, 30.0):
            model = FairLogisticRegression(
                notion=notion, fairness_weight=weight, solver=solver
            ).fit(data.X, y, **sides)
            found = audit(model, data.X, y, notion=notion, **sides)
            gaps[solver, weight] = found.soft_violation
        assert gaps[solver, 30.0] < 0.5 * gaps[solver, 0.0]
    trees = {
        weight: FairBoostingClassifier(
            notion=notion, fairness_weight=weight, n_estimators=20
        ).fit(data.X, y, **sides)
        for weight in (0.0, 30.0)
    }
    plain, fair = (
        audit(tree, data.X, y, notion=notion, **sides).soft_violation
        for tree in trees.values()
    )
    assert fair < 0.5 * plain
    right = model.predict(data.X) == y
    by_group = pd.Series(right).groupby(group).mean()
    assert found.violation == pytest.approx(by_group.max() - by_group.min(), abs=1e-12)
    with pytest.raises(InvalidParameterError, match="AccuracyParity"):
        FairLogisticRegression(notion=notion, solver="sgda").fit(
            data.X, data.y, **sides
        )


def test_conditional_parity_compares_given_the_control():
    labels = Labels(
        n_samples=3,
        control=np.array([1, -1, 0]),
        control_names=("art", "law"),
    )
    notion = ConditionalParity("department")
    assert_strata(notion.strata(labels), [1, -1, 0], ("art", "law"))
    assert notion.control_feature() == "department"


def test_conditional_parity_without_its_control_is_refused():
    with pytest.raises(InvalidParameterError, match=r"control feature .* not found"):
        ConditionalParity("department").strata(LABELS)


def test_weights_are_as_asked_for():
    assert EqualizedOdds().weighting == "unit"
    assert EqualizedOdds(weights="frequency").weighting == "frequency"
    assert ConditionalParity("x").weighting == "frequency"
    assert ConditionalParity("x", weights="unit").weighting == "unit"
    assert EqualOpportunity().weighting == "unit"


@pytest.mark.parametrize("notion", [EqualizedOdds, lambda w: ConditionalParity("x", w)])
def test_unknown_weights_are_refused(notion):
    with pytest.raises(InvalidParameterError, match="weights must be 'unit'"):
        notion("equal")


@pytest.mark.parametrize("notion", ON_LABELS, ids=lambda notion: notion.name)
def test_notions_on_labels_refuse_rows_without_them(notion):
    assert notion.needs_labels
    with pytest.raises(InvalidInputError, match="conditions on the label"):
        notion.strata(UNLABELLED)


@pytest.mark.parametrize("notion", [DemographicParity(), ConditionalParity("x")])
def test_other_notions_need_no_labels(notion):
    assert not notion.needs_labels


@pytest.mark.parametrize("notion", [EqualOpportunity(), FalsePositiveRateParity()])
def test_three_classes_need_a_name(notion):
    with pytest.raises(InvalidParameterError, match=r"3 classes .* which one counts"):
        notion.strata(THREE)


def test_predictive_parity_of_three_classes_needs_a_name():
    with pytest.raises(InvalidParameterError, match=r"3 classes .* which one counts"):
        PredictiveParity().comparison(("y",), THREE.classes)


@pytest.mark.parametrize(
    "notion",
    [EqualOpportunity(positive="maybe"), FalsePositiveRateParity(negative="maybe")],
)
def test_a_label_that_is_not_there_is_refused_with_those_that_are(notion):
    with pytest.raises(InvalidParameterError, match=r"'maybe'.*Classes: 'no', 'yes'"):
        notion.strata(LABELS)


@pytest.mark.parametrize(
    ("spelling", "notion"),
    [
        ("demographic_parity", DemographicParity()),
        ("statistical_parity", DemographicParity()),
        ("independence", DemographicParity()),
        ("equal_opportunity", EqualOpportunity()),
        ("true_positive_rate_parity", EqualOpportunity()),
        ("false_positive_rate_parity", FalsePositiveRateParity()),
        ("predictive_equality", FalsePositiveRateParity()),
        ("equalized_odds", EqualizedOdds()),
        ("separation", EqualizedOdds()),
        ("Equalized Odds", EqualizedOdds()),
        ("sufficiency", Sufficiency()),
        ("predictive_parity", PredictiveParity()),
    ],
)
def test_the_spellings_of_the_literature_are_understood(spelling, notion):
    assert get(spelling) == notion


def test_a_notion_that_needs_a_parameter_says_so():
    with pytest.raises(
        InvalidParameterError, match=r"ConditionalParity\(control=\.\.\.\)"
    ):
        get("conditional_parity")


def test_a_misspelled_notion_gets_a_guess():
    with pytest.raises(UnknownNameError, match="Did you mean 'equalized_odds'"):
        get("equalised_odds")


@pytest.mark.parametrize("n_classes", [1, 2])
def test_of_labels_alone_the_last_is_positive_and_the_first_negative(n_classes):
    classes = ("no", "yes")[:n_classes]
    labels = Labels(3, np.array([0, 0, n_classes - 1]), classes)
    assert EqualOpportunity().strata(labels).names == (f"y={classes[-1]}",)
    assert FalsePositiveRateParity().strata(labels).names == ("y=no",)
    comparison = PredictiveParity().comparison(("y=no",), classes)
    assert comparison.kept_conditions == (f"prediction={classes[-1]}",)
