"""A whole trade-off curve against one fit of fairlearn's ExponentiatedGradient.

Adult by sex and race, the same 99 features for both, one thread for both. fairlearn's
fit is one operating point; the curve is twenty.
"""

import time
import warnings

from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from sklearn.linear_model import LogisticRegression

from fferm import FairLogisticRegression, tradeoff_curve
from fferm.datasets import load_adult
from fferm.metrics import violation

# fairlearn bounds each group's distance from the overall rate by this.
BOUND = 0.01


def run() -> dict[str, float]:
    """Return seconds of both, their ratio, and what each reached on test data."""
    data = load_adult(sensitive=("sex", "race"), races=("Black", "White"))
    test = (data.X_test, data.y_test, data.sensitive_features_test)

    began = time.perf_counter()
    curve = tradeoff_curve(
        FairLogisticRegression(),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        test=test,
    )
    ours = time.perf_counter() - began
    print(f"fferm, 20 points measured on train and test: {ours:.1f} s")

    rival = ExponentiatedGradient(
        LogisticRegression(max_iter=1000), DemographicParity(), eps=BOUND
    )
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their warnings are not our figures
        rival.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    theirs = time.perf_counter() - began
    print(f"fairlearn ExponentiatedGradient, 1 point: {theirs:.1f} s")
    print(f"ratio: one of theirs takes {theirs / ours:.1f} of our curves")

    decided = rival.predict(data.X_test, random_state=0)
    gap = violation(
        data.y_test, decided, sensitive_features=data.sensitive_features_test
    )
    accuracy = float((decided == data.y_test).mean())
    points = curve.pareto()
    level = points[points["violation"] <= gap]["accuracy"].max()
    print(f"fairlearn: accuracy {accuracy:.4f} at violation {gap:.4f}")
    print(f"fferm at no more violation: accuracy {level:.4f}")
    return {
        "curve_seconds": ours,
        "exponentiated_gradient_seconds": theirs,
        "ratio": theirs / ours,
        "exponentiated_gradient_accuracy": accuracy,
        "exponentiated_gradient_violation": gap,
        "curve_accuracy_at_that_violation": float(level),
    }
