"""What does fairness cost? A trade-off curve on census data, with a report.

Run it with ``make demo``, or ``python examples/demo.py`` where ``fferm[report]`` is
installed. It trains twenty models that predict who earned more than 50,000 dollars,
from one that ignores fairness to one that hardly cares for anything else, prints what
each of them costs, and writes ``report.html`` and the picture in it, ``report.png``,
to the current folder.
"""

import time
from pathlib import Path

from fferm import FairLogisticRegression, TradeoffCurve, audit, tradeoff_curve
from fferm.datasets import load_adult
from fferm.report import write_curve

MAX_VIOLATION = 0.05  # groups may differ by five percentage points


def main() -> None:
    """Train, print a table and write a report."""
    # The people of the US census of 1994, in four groups: sex x race.
    data = load_adult(sensitive=("sex", "race"), races=("Black", "White"))
    test = data.X_test, data.y_test, data.sensitive_features_test

    print(f"Training 20 models on {len(data.y):,} people ...", flush=True)
    began = time.perf_counter()
    curve = tradeoff_curve(
        FairLogisticRegression(),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        test=test,
    )
    print(f"... took {time.perf_counter() - began:.0f} s.\n")
    print_table(curve)

    # Look at the curve, then choose: here the most accurate model within a bound.
    chosen = curve.select(max_violation=MAX_VIOLATION)
    print_choice(curve, chosen.fairness_weight)

    found = audit(chosen, test[0], test[1], sensitive_features=test[2])
    path = Path("report.html").resolve()
    title = "Adult census income by sex and race"
    write_curve(curve, path, title=title, audit=found, max_violation=MAX_VIOLATION)
    curve.plot().figure.savefig(path.with_suffix(".png"), dpi=150)
    print(f"\nThe curve and an audit of that model by group are in {path},")
    print(f"the picture alone is in {path.with_suffix('.png')}")


def print_table(curve: TradeoffCurve) -> None:
    """Print one line per model; an asterisk marks the best trade-offs."""
    best = set(curve.pareto()["fairness_weight"])
    by_split = curve.records.set_index(["split", "fairness_weight"])
    train, test = by_split.loc["train"], by_split.loc["test"]
    print("  fairness   test     test       test            train")
    print("  weight     accuracy violation  soft violation  violation")
    for (weight, row), in_training in zip(
        test.iterrows(), train["violation"], strict=True
    ):
        print(
            f"{'*' if weight in best else ' '} {weight:<10.4g} {row['accuracy']:.4f}"
            f"   {row['violation']:.4f}     {row['soft_violation']:.4f}"
            f"          {in_training:.4f}"
        )
    print("* best trade-offs: no other model is both more accurate and fairer\n")


def print_choice(curve: TradeoffCurve, weight: float) -> None:
    """Print what the chosen model gains and costs beside the plain one."""
    records = curve.records[curve.records["split"] == "test"]
    rows = records.set_index("fairness_weight")
    plain, chosen = rows.loc[0.0], rows.loc[weight]
    print(
        f"The plain model is right for {plain['accuracy']:.1%} of people, and says "
        f"'> 50K' {100 * plain['violation']:.1f} points more often of one group than "
        "of another."
    )
    print(
        f"With fairness_weight={weight:.4g} that gap is "
        f"{100 * chosen['violation']:.1f} points; it costs "
        f"{100 * (plain['accuracy'] - chosen['accuracy']):.1f} points of accuracy."
    )


if __name__ == "__main__":
    main()
