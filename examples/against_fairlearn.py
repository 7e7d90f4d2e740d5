"""Our curve on Adult by sex, with fairlearn's models in the same picture.

Needs ``fferm[report,baselines]``. fferm trains twenty models in one sweep; fairlearn's
``ExponentiatedGradient`` fits an ensemble for each of three bounds, on the same
features. All are measured on the published test rows. It takes about a minute, nearly
all of it for fairlearn, and writes ``against_fairlearn.png``.
"""

import numpy as np
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from matplotlib import pyplot as plt
from sklearn.linear_model import LogisticRegression

from fferm import FairLogisticRegression, tradeoff_curve
from fferm.datasets import load_adult

BOUNDS = (0.005, 0.015, 0.035)  # on each group's distance from the overall rate


def main() -> None:
    """Train both, print their figures and draw them."""
    data = load_adult(sensitive=("sex",))
    train = {"X": data.X, "y": data.y, "sensitive_features": data.sensitive_features}
    test = (data.X_test, data.y_test, data.sensitive_features_test)
    records = tradeoff_curve(FairLogisticRegression(), **train, test=test).records
    ours = records[records["split"] == "test"].sort_values("violation")
    print("fferm: accuracy, violation")
    print(ours[["accuracy", "violation"]].round(4).to_string(index=False))

    is_rich = np.asarray(data.y_test) == np.unique(data.y)[1]
    sex = np.asarray(data.sensitive_features_test).ravel()
    print("fairlearn: accuracy, violation")
    theirs = []
    for bound in BOUNDS:
        ensemble = ExponentiatedGradient(
            LogisticRegression(max_iter=1000), DemographicParity(difference_bound=bound)
        )
        labels = (np.asarray(data.y) == np.unique(data.y)[1]).astype(int)
        ensemble.fit(data.X, labels, sensitive_features=data.sensitive_features)
        # The ensemble predicts at random; these are expectations over its choice.
        chance = ensemble._pmf_predict(data.X_test)[:, 1]
        accuracy = np.where(is_rich, chance, 1 - chance).mean()
        rates = [chance[sex == group].mean() for group in np.unique(sex)]
        theirs.append((max(rates) - min(rates), accuracy))
        print(f"  {accuracy:.4f}    {max(rates) - min(rates):.4f}", flush=True)

    axes = plt.subplots(figsize=(7, 4.2), layout="constrained")[1]
    axes.plot(ours["violation"], ours["accuracy"], "o-", label="fferm, one sweep")
    axes.plot(*np.transpose(theirs), "s", ms=9, color="C1", label="fairlearn, 3 fits")
    axes.set_xlabel("violation of demographic parity by sex, test rows")
    axes.set_ylabel("accuracy, test rows")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    axes.figure.savefig("against_fairlearn.png", dpi=100)
    print("wrote against_fairlearn.png")


if __name__ == "__main__":
    main()
