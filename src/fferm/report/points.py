"""The points of a curve: one per fairness weight, averaged over seeds."""

from dataclasses import dataclass, replace

import pandas as pd

from fferm.tradeoff import TradeoffCurve

MEASURES = ("accuracy", "violation", "soft_violation", "divergence")


@dataclass(frozen=True)
class Spread:
    """The mean of a measure over seeds, with the lowest and the highest."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Point:
    """The models of one fairness weight.

    Attributes
    ----------
    train, test
        Each measure of that split, by name.
    seconds
        Training time of one model.
    is_best
        Whether no other point has a higher accuracy and a lower violation on test.
    is_collapsed
        Whether some model decides the same for everyone.
    is_converged
        Whether every model reached its tolerance.
    """

    fairness_weight: float
    train: dict[str, Spread]
    test: dict[str, Spread]
    seconds: float
    is_best: bool
    is_collapsed: bool
    is_converged: bool

    @property
    def is_plain(self) -> bool:
        """Whether this is training without a fairness term."""
        return self.fairness_weight == 0


def average(curve: TradeoffCurve) -> TradeoffCurve:
    """Return the curve of means over seeds: one record per weight and split.

    A measure that is undefined for one seed stays undefined: the mean of the others
    would compare other models.
    """
    grouped = curve.records.groupby(["fairness_weight", "split"], sort=True)
    means = grouped[[*MEASURES, "loss", "seconds"]].agg(_mean)
    means["seed"] = grouped["seed"].first()
    means["collapsed"] = grouped["collapsed"].any()
    means["result"] = grouped["result"].agg(_worst_result)
    return replace(curve, records=means.reset_index())


def points(curve: TradeoffCurve) -> list[Point]:
    """Return one point per fairness weight, in ascending order."""
    means = average(curve)
    best = set(means.pareto()["fairness_weight"])
    return [
        Point(
            fairness_weight=weight,
            train=_spreads(curve.records, weight, "train"),
            test=_spreads(curve.records, weight, "test"),
            seconds=float(rows["seconds"].iloc[0]),
            is_best=weight in best,
            is_collapsed=bool(rows["collapsed"].any()),
            is_converged=bool((rows["result"] == "converged").all()),
        )
        for weight in means.records["fairness_weight"].unique().tolist()
        for rows in [means.records[means.records["fairness_weight"] == weight]]
    ]


def choose(points: list[Point], max_violation: float | None) -> Point | None:
    """Return the most accurate point within a bound; without one the fairest."""
    best = [point for point in points if point.is_best]
    if max_violation is None:
        return min(best, key=lambda point: point.test["violation"].mean, default=None)
    within = [point for point in best if point.test["violation"].mean <= max_violation]
    return max(within, key=lambda point: point.test["accuracy"].mean, default=None)


def _spreads(records: pd.DataFrame, weight: float, split: str) -> dict[str, Spread]:
    is_here = (records["fairness_weight"] == weight) & (records["split"] == split)
    rows = records[is_here]
    return {
        name: Spread(_mean(rows[name]), rows[name].min(), rows[name].max())
        for name in MEASURES
    }


def _mean(values: "pd.Series[float]") -> float:
    return float(values.mean(skipna=False))


def _worst_result(values: "pd.Series[str]") -> str:
    # The first that is not "converged", if any: trouble must not average away.
    trouble = values[values != "converged"]
    return str(trouble.iloc[0]) if len(trouble) else "converged"
