"""The default curve on Adult by sex, against scikit-learn and against our own bar."""

import re
from pathlib import Path

import pytest
from sklearn.linear_model import LogisticRegression

from fferm import FairLogisticRegression, tradeoff_curve
from fferm.datasets import load_adult

PAGE = Path(__file__).parents[2] / "docs" / "compare.md"


@pytest.fixture(scope="module")
def adult():
    return load_adult(("sex",))


@pytest.fixture(scope="module")
def curve(adult):
    return tradeoff_curve(
        FairLogisticRegression(),
        adult.X,
        adult.y,
        sensitive_features=adult.sensitive_features,
        test=(adult.X_test, adult.y_test, adult.sensitive_features_test),
    )


@pytest.mark.parametrize(
    ("max_violation", "least_accuracy"), [(0.02, 0.834), (0.05, 0.840), (0.10, 0.846)]
)
def test_the_default_curve_is_accurate_at_each_level_of_fairness(
    curve, adult, max_violation, least_accuracy
):
    model = curve.select(max_violation=max_violation)

    assert model.score(adult.X_test, adult.y_test) >= least_accuracy


def test_the_comparison_has_points_of_the_default_curve(curve):
    if not PAGE.exists():
        pytest.skip("docs/ is not beside the tests")
    text = PAGE.read_text(encoding="utf-8")
    said = re.findall(r"^\| (0\.\d{4}) at (0\.\d{3}) \|", text, re.M)
    assert len(said) == 3
    test = curve.records.query("split == 'test'")
    for accuracy, violation in said:
        nearest = (test["violation"] - float(violation)).abs().idxmin()
        # The last digits differ between machines.
        assert test["violation"][nearest] == pytest.approx(float(violation), abs=2e-3)
        assert test["accuracy"][nearest] == pytest.approx(float(accuracy), abs=5e-4)


def test_every_point_of_the_default_curve_is_trained_as_a_lane(curve):
    assert set(curve.records["result"]) == {"schedule_completed"}
    assert not curve.records["collapsed"].any()
    assert len(curve.models) == 20


def test_weight_zero_is_as_accurate_as_scikit_learn(curve, adult):
    plain = LogisticRegression(max_iter=2000).fit(adult.X, adult.y)

    ours = curve.models[0.0, 0].score(adult.X_test, adult.y_test)

    assert ours == pytest.approx(plain.score(adult.X_test, adult.y_test), abs=0.002)


def test_training_violations_fall_along_the_default_curve(curve):
    train = curve.records.query("split == 'train'")

    assert train["soft_violation"].is_monotonic_decreasing
    assert train["divergence"].is_monotonic_decreasing
    assert train["violation"].iloc[0] > 0.15
    assert train["violation"].iloc[-1] < 0.02
