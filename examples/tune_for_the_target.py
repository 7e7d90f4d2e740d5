"""A bound that holds where the model is used, not only where it was trained.

In the target domain the groups lie further apart than in the source. Weights that are
chosen on the source keep the bound there and break it in the target; a small labelled
sample of the target chooses better.

Run it with ``python examples/tune_for_the_target.py``; it writes
``tune_for_the_target.png``.
"""

import matplotlib.pyplot as plt

from fferm import FairLogisticRegression
from fferm.datasets import make_biased
from fferm.metrics import violation
from fferm.tuning import CrossValidation, EvenHoldout, TargetSample, tune

BOUND = 0.35


def main() -> None:
    """Tune in three ways and draw the violation in source and target."""
    source = make_biased(3000, bias=0.5, random_state=0)
    target = make_biased(6000, bias=0.65, random_state=1)
    few = slice(0, 400)
    sample = TargetSample(target.X[few], target.y[few], target.sensitive_features[few])
    ways = {
        "folds of\nthe source": CrossValidation(5),
        "even hold-out\nof the source": EvenHoldout(),
        "400 rows of\nthe target": sample,
    }
    gaps: dict[str, list[float]] = {"source": [], "target": []}
    for name, way in ways.items():
        found = tune(
            FairLogisticRegression(),
            source.X,
            source.y,
            sensitive_features=source.sensitive_features,
            validation=way,
            max_violation=BOUND,
            divergences=["kl"],
            fairness_weights=12,
        )
        for domain, data in (("source", source), ("target", target)):
            decided = found.estimator.predict(data.X_test)
            groups = data.sensitive_features_test
            gap = violation(data.y_test, decided, sensitive_features=groups)
            gaps[domain].append(gap)
        print(f"{name!r}: weight {found.best['fairness_weight']:.3g}")
    figure, axis = plt.subplots(figsize=(6.4, 3.6))
    for shift, (domain, values) in zip((-0.2, 0.2), gaps.items(), strict=True):
        axis.bar([i + shift for i in range(3)], values, 0.4, label=f"in the {domain}")
    axis.axhline(BOUND, color="k", ls="--", lw=1, label="the bound")
    axis.set(xticks=range(3), xticklabels=list(ways), ylabel="violation on test rows")
    axis.legend()
    figure.tight_layout()
    figure.savefig("tune_for_the_target.png", dpi=100)
    print("wrote tune_for_the_target.png")


if __name__ == "__main__":
    main()
