"""The points of a sweep: one per curve and fairness weight, averaged over seeds."""

from dataclasses import dataclass, replace

import pandas as pd

from fferm.auditing import Audit
from fferm.curve import Key, TradeoffCurve
from fferm.solvers import Result

MEASURES = ("accuracy", "violation", "soft_violation", "divergence", "loss")
POINT = ["curve", "fairness_weight"]


@dataclass(frozen=True)
class Spread:
    """The mean of a measure over seeds, with the lowest and the highest."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Point:
    """The models of one curve and fairness weight.

    Attributes
    ----------
    key
        Which model stands for them: that of the first seed.
    train, test
        Each measure of that split, by name.
    seconds
        Training time of one model.
    is_best
        Whether no other point has a higher accuracy and a lower violation on test.
    is_collapsed
        Whether some model decides the same for everyone.
    is_converged
        Whether every model reached its tolerance, or the end of its schedule.
    audit
        Of the model that stands for them, on the test rows; None if there is none.
    """

    key: Key
    train: dict[str, Spread]
    test: dict[str, Spread]
    seconds: float
    is_best: bool
    is_collapsed: bool
    is_converged: bool
    audit: Audit | None = None

    @property
    def curve(self) -> str:
        """The name of its curve."""
        return self.key.curve

    @property
    def fairness_weight(self) -> float:
        """The weight of its models."""
        return self.key.fairness_weight

    @property
    def is_plain(self) -> bool:
        """Whether this is training without a fairness term."""
        return self.fairness_weight == 0


def average(curve: TradeoffCurve) -> TradeoffCurve:
    """Return the curve of means over seeds: one record per point and split.

    A measure that is undefined for one seed stays undefined: the mean of the others
    would compare other models.
    """
    grouped = curve.records.groupby([*POINT, "split"], sort=False)
    means = grouped[[*MEASURES, "seconds"]].agg(_mean)
    means["seed"] = grouped["seed"].first()
    means["collapsed"] = grouped["collapsed"].any()
    # The first failure, if any: trouble must not average away.
    means["result"] = grouped["result"].agg(lambda each: min(each, key=_is_success))
    return replace(curve, records=means.reset_index())


def points(curve: TradeoffCurve) -> list[Point]:
    """Return the points of each curve, in ascending order of their weights."""
    means = average(curve)
    front = means.pareto()
    best = set(zip(front["curve"], front["fairness_weight"], strict=True))
    listed = []
    for _, rows in means.records.groupby(POINT, sort=False):
        first = rows.iloc[0]
        key = Key(first["curve"], float(first["fairness_weight"]), int(first["seed"]))
        listed.append(
            Point(
                key,
                train=_spreads(curve.records, key, "train"),
                test=_spreads(curve.records, key, "test"),
                seconds=float(first["seconds"]),
                is_best=key[:2] in best,
                is_collapsed=bool(rows["collapsed"].any()),
                is_converged=all(map(_is_success, rows["result"])),
                audit=curve.audits.get(key),
            )
        )
    order = list(dict.fromkeys(point.curve for point in listed))
    return sorted(listed, key=lambda p: (order.index(p.curve), p.fairness_weight))


def _spreads(records: pd.DataFrame, key: Key, split: str) -> dict[str, Spread]:
    is_here = (records["curve"] == key.curve) & (records["split"] == split)
    rows = records[is_here & (records["fairness_weight"] == key.fairness_weight)]
    return {
        name: Spread(_mean(rows[name]), rows[name].min(), rows[name].max())
        for name in MEASURES
    }


def _mean(values: "pd.Series[float]") -> float:
    return float(values.mean(skipna=False))


def _is_success(result: str) -> bool:
    return Result[result].is_success
