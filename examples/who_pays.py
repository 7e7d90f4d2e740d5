"""Who pays for fairness? The rates of each group before and after a penalty.

A gap closes in two ways: one group gets more, or another gets less. The picture shows
which, for four groups of the Adult data, and what it does to those who do earn more.

Run it with ``python examples/who_pays.py``; it writes ``who_pays.png``.
"""

import matplotlib.pyplot as plt
import numpy as np

from fferm import FairLogisticRegression, audit
from fferm.datasets import load_adult


def main() -> None:
    """Train two models, draw their rates by group and print them."""
    data = load_adult(sensitive=("sex", "race"), races=("Black", "White"))
    rows = np.arange(len(data.y)) % 3 == 0  # a third is enough for a picture
    frames = {}
    for name, weight in {"plain": 0.0, "fair": 20.0}.items():
        model = FairLogisticRegression(fairness_weight=weight)
        groups = data.sensitive_features[rows]
        model.fit(data.X[rows], data.y[rows], sensitive_features=groups)
        found = audit(
            model,
            data.X_test,
            data.y_test,
            sensitive_features=data.sensitive_features_test,
            n_bootstrap=0,
        )
        frames[name] = found.frame
        print(f"{name}: accuracy {found.accuracy:.3f}, gap {found.violation:.3f}")
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    shown = {
        "selection_rate_1": "share called '> 50K'",
        "true_positive_rate": "the same, of those who earn it",
    }
    for axis, (column, title) in zip(axes, shown.items(), strict=True):
        before, after = (frames[name][column] for name in ("plain", "fair"))
        place = np.arange(len(before))
        axis.hlines(place, before, after, color="0.7", lw=3, zorder=0)
        axis.scatter(before, place, marker="o", label="plain model")
        axis.scatter(after, place, marker="D", label="with the penalty")
        axis.set(title=title, yticks=place, yticklabels=before.index, xlim=(0, 1))
    axes[0].legend(loc="lower right")
    figure.tight_layout()
    figure.savefig("who_pays.png", dpi=100)
    print("wrote who_pays.png")


if __name__ == "__main__":
    main()
