"""From records to the numbers that figures and pages show."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.stats import t as student

from fferm.experiments.specs import Spec
from fferm.tradeoff import TradeoffCurve

CONFIDENCE = 0.95
QUARTILES = (0.25, 0.75)
# Of experiments with noise: a column, and the accuracy at which it is read.
NOISE_COLUMNS = {
    "violation": "at_accuracy",
    "violation_at_higher_accuracy": "at_higher_accuracy",
}


def summarize(spec: Spec, records: pd.DataFrame) -> pd.DataFrame:
    """Return one row per panel and method: means over seeds and half-widths.

    Columns that end in ``_pm`` are half-widths of 95 % intervals over seeds. For
    fronts: ``hypervolume``, ``accuracy`` (the best at a violation within the bound,
    over the seeds that have one: the share ``reached``), ``points`` (how many values
    gave a model that does not collapse). For noise:
    ``violation`` at the accuracy of the spec. For shift: mean and quartiles of accuracy
    and violation over the parts that were not trained on.
    """
    by_seed: Callable[[Spec, pd.DataFrame], dict[str, float]] = {
        "fronts": _front_numbers,
        "noise": _noise_numbers,
        "shift": _shift_numbers,
    }[spec.kind]
    keys = ["panel", "method", "seed"]
    rows = [
        {**dict(zip(keys, key, strict=True)), **by_seed(spec, part)}
        for key, part in records.groupby(keys, sort=False)
    ]
    seeds = pd.DataFrame(rows)
    columns = [name for name in seeds.columns if name not in keys]
    groups = seeds.groupby(["panel", "method"], sort=False)[columns]
    spread = groups.agg(half_width).add_suffix("_pm")
    found = groups.mean().join(spread)
    # Tasks end in any order; the spec says which comes first.
    order = [(p.name, m.label) for p in spec.panels for m in spec.methods]
    return found.loc[[key for key in order if key in found.index]].reset_index()


def half_width(values: pd.Series) -> float:
    """Return the half-width of a 95 % interval for the mean."""
    found = values.dropna()
    if len(found) < 2:
        return float("nan")
    quantile = student.ppf((1 + CONFIDENCE) / 2, len(found) - 1)
    return float(quantile * found.std(ddof=1) / np.sqrt(len(found)))


def front(records: pd.DataFrame) -> pd.DataFrame:
    """Return the points of one sweep that no other beats in both respects."""
    return _curve(records).pareto("test")


def _curve(records: pd.DataFrame) -> TradeoffCurve:
    rows = records[records["part"] == "test"]
    rows = rows.assign(split="test", fairness_weight=rows["value"])
    return TradeoffCurve(rows, {}, {})


def _front_numbers(spec: Spec, records: pd.DataFrame) -> dict[str, float]:
    curve = _curve(records)
    points = curve.pareto("test")
    within = points[points["violation"] <= spec.bounds["max_violation"]]
    corner = spec.bounds["accuracy"], spec.bounds["violation"]
    return {
        "hypervolume": curve.hypervolume("test", corner),
        "accuracy": float(within["accuracy"].max()) if len(within) else np.nan,
        "reached": float(len(within) > 0),
        "points": float((~records["collapsed"] & (records["part"] == "test")).sum()),
        "seconds": float(records.groupby("value")["seconds"].first().sum()),
    }


def _noise_numbers(spec: Spec, records: pd.DataFrame) -> dict[str, float]:
    """Return the violation where the front crosses an accuracy, in between linearly.

    A front that stays above the accuracy has its fairest point there: whoever may lose
    more accuracy need not.
    """
    points = front(records).sort_values("accuracy")
    accuracy, violation = points["accuracy"], points["violation"]
    return {
        name: float(np.interp(spec.bounds[at], accuracy, violation))
        for name, at in NOISE_COLUMNS.items()
    }


def _shift_numbers(spec: Spec, records: pd.DataFrame) -> dict[str, float]:
    """Return what a model at the bound does in the parts that were not trained on.

    The bound is kept on the rows that the penalty was taken on; no label of another
    part is looked at. Between the last model of the sweep above the bound and the first
    within it, numbers are mixed so that the bound is met.
    """
    trained = records[(records["part"] == "train") & ~records["collapsed"]]
    value, violation = (trained[name].to_numpy() for name in ("value", "violation"))
    bound = spec.bounds["max_violation"]
    is_within = violation <= bound
    here = int(np.argmax(is_within)) if is_within.any() else int(np.argmin(violation))
    before, share = here, 1.0
    if here > 0 and is_within[here]:
        before = here - 1
        share = (violation[before] - bound) / (violation[before] - violation[here])
    judged = records[records["part"] != "train"].set_index("part")
    columns = ["accuracy", "violation"]
    last, first = (judged[judged["value"] == value[i]][columns] for i in (before, here))
    mixed = (1 - share) * last + share * first
    numbers = {"value": float(value[here])}
    for name in columns:
        numbers[name] = float(mixed[name].mean())
        for part in QUARTILES:
            numbers[f"{name}_{part:g}"] = float(mixed[name].quantile(part))
    return numbers
