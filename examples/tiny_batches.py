"""Batches of one row: the penalty still knows where it is going.

A divergence of a batch of one row is always 0. The dual of fferm makes the penalty a
sum over rows, so a batch of any size follows the divergence of all rows, unbiased.

Run it with ``python examples/tiny_batches.py``; it writes ``tiny_batches.png``.
"""

import matplotlib.pyplot as plt
import numpy as np

from fferm import FairLogisticRegression, tradeoff_curve
from fferm.datasets import load_adult

SIZES = (1, 8, 64)


def main() -> None:
    """Train a curve per batch size beside the full batch, and draw them."""
    data = load_adult(sensitive=("sex",))
    rows = np.arange(len(data.y)) % 3 == 0
    test = data.X_test, data.y_test, data.sensitive_features_test
    figure, axis = plt.subplots(figsize=(6.4, 4))
    models = {
        f"batches of {size}": FairLogisticRegression(solver="sgda", batch_size=size)
        for size in SIZES
    }
    models["all rows"] = FairLogisticRegression(solver="lbfgs")
    for (name, model), marker in zip(models.items(), "os^D", strict=True):
        curve = tradeoff_curve(
            model,
            data.X[rows],
            data.y[rows],
            sensitive_features=data.sensitive_features[rows],
            test=test,
            fairness_weights=8,
        )
        points = curve.records[curve.records["split"] == "test"]
        axis.plot(points["violation"], points["accuracy"], marker=marker, label=name)
        best = points[points["violation"] <= 0.05]["accuracy"].max()
        print(f"{name}: accuracy {best:.4f} within a violation of 0.05")
    axis.set(xlabel="violation on test rows", ylabel="accuracy")
    axis.legend()
    figure.tight_layout()
    figure.savefig("tiny_batches.png", dpi=100)
    print("wrote tiny_batches.png")


if __name__ == "__main__":
    main()
