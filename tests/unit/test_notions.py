"""Notions: which rows are compared with which, and what is refused."""

import numpy as np
import pytest

from fferm.errors import InvalidInputError, InvalidParameterError, UnknownNameError
from fferm.notions import (
    ConditionalParity,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    FalsePositiveRateParity,
    Labels,
    PredictiveParity,
    Sufficiency,
    get,
)

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
    assert notion.is_sufficiency
    assert_strata(notion.strata(LABELS), Y, ("y=no", "y=yes"))


def test_predictive_parity_keeps_one_prediction():
    assert PredictiveParity().kept_class(("no", "yes")) == 1
    assert PredictiveParity(positive="a").kept_class(("a", "b", "c")) == 0


@pytest.mark.parametrize(
    "notion", [DemographicParity(), EqualizedOdds(), Sufficiency()]
)
def test_other_notions_keep_every_prediction(notion):
    assert notion.kept_class(("no", "yes")) is None


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
        PredictiveParity().kept_class(THREE.classes)


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
    with pytest.raises(InvalidParameterError, match=r"ConditionalParity\(\.\.\.\)"):
        get("conditional_parity")


def test_a_misspelled_notion_gets_a_guess():
    with pytest.raises(UnknownNameError, match="Did you mean 'equalized_odds'"):
        get("equalised_odds")
