"""Six divergences on one picture: nearly one front, and one that jumps.

Run it with ``python examples/six_divergences.py``; it writes ``six_divergences.png``.
"""

import matplotlib.pyplot as plt
import numpy as np

from fferm import FairLogisticRegression, tradeoff_curve
from fferm.datasets import load_adult

NAMES = (
    "kl",
    "reverse_kl",
    "chi2",
    "jensen_shannon",
    "squared_hellinger",
    "total_variation",
)


def main() -> None:
    """Train a curve per divergence on part of Adult and draw all of them."""
    data = load_adult(sensitive=("sex",))
    rows = np.arange(len(data.y)) % 6 == 0
    test = data.X_test, data.y_test, data.sensitive_features_test
    figure, axis = plt.subplots(figsize=(6.4, 4))
    for name, marker in zip(NAMES, "osD^v*", strict=True):
        curve = tradeoff_curve(
            FairLogisticRegression(divergence=name, solver="lbfgs"),
            data.X[rows],
            data.y[rows],
            sensitive_features=data.sensitive_features[rows],
            test=test,
            fairness_weights=8,
        )
        points = curve.records[curve.records["split"] == "test"]
        axis.plot(
            points["violation"],
            points["accuracy"],
            marker=marker,
            label=name,
            alpha=0.8,
        )
        print(f"{name}: hypervolume {curve.hypervolume():.4f}")
    axis.set(xlabel="violation on test rows", ylabel="accuracy")
    axis.legend()
    figure.tight_layout()
    figure.savefig("six_divergences.png", dpi=100)
    print("wrote six_divergences.png")


if __name__ == "__main__":
    main()
