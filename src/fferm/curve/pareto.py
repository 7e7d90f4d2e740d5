"""Points in the plane of violation and accuracy: fronts, areas, knees, bands."""

import numpy as np
import pandas as pd
from scipy.stats import t as student

from fferm._typing import FloatArray
from fferm.errors import InvalidParameterError

# The level of every interval of a curve.
CONFIDENCE = 0.95
POINT = ["curve", "fairness_weight"]


def usable_points(records: pd.DataFrame, split: str) -> pd.DataFrame:
    """Return the means over seeds of a split, without collapsed or undefined points.

    Parameters
    ----------
    records
        The records of a curve.
    split
        ``"train"`` or ``"test"``.
    """
    if split not in ("train", "test"):
        raise InvalidParameterError(f"split must be 'train' or 'test'; got {split!r}.")
    rows = records[records["split"] == split]
    # One class for everyone is fair and useless, so it is never chosen.
    is_usable = ~rows["collapsed"] & rows["violation"].notna()
    by_point = is_usable.groupby([rows[name] for name in POINT]).transform("all")
    numbers = rows.select_dtypes("number").columns.difference([*POINT, "seed"])
    how = {
        name: "mean" if name in numbers else "first"
        for name in rows.columns.drop(POINT)
    }
    points = rows[by_point].groupby(POINT, as_index=False, sort=False).agg(how)
    return points[rows.columns]


def pareto_front(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points that no other beats, from the fairest to the most accurate."""
    rows = points.sort_values(
        ["violation", "accuracy"], ascending=[True, False], kind="stable"
    )
    best_before = rows["accuracy"].cummax().shift(fill_value=-np.inf)
    return rows[rows["accuracy"] > best_before].reset_index(drop=True)


def dominated_area(front: pd.DataFrame, reference: tuple[float, float]) -> float:
    """Return the area that a front dominates up to the worst values that count."""
    worst_accuracy, worst_violation = reference
    front = front[
        (front["accuracy"] > worst_accuracy) & (front["violation"] < worst_violation)
    ]
    edges = np.append(front["violation"].to_numpy(), worst_violation)
    heights = front["accuracy"].to_numpy() - worst_accuracy
    return float(np.sum(heights * np.diff(edges)))


def knee(front: pd.DataFrame) -> int:
    """Return the position of the point farthest above the line between the ends.

    Accuracy and violation are scaled to the range of the front. Beyond the knee, more
    fairness costs more than it gains. The fairest of equals is returned.
    """
    violation, accuracy = front["violation"].to_numpy(), front["accuracy"].to_numpy()
    return int(np.argmax(_scaled(accuracy) - _scaled(violation)))


def confidence_bands(records: pd.DataFrame) -> pd.DataFrame:
    """Return each point's accuracy and violation on test rows, with intervals.

    With several seeds, Student's interval of their mean, which shows the variation of
    training and of the held-out rows. With one seed, the interval of its measures,
    which shows the sampling error of the test rows.
    """
    rows = records[records["split"] == "test"]
    # The explained variance may be below 0, and a gap of means has the unit of y.
    is_rate = "mean_gap" not in records
    limits = {
        "accuracy": (0.0 if is_rate else -np.inf, 1.0),
        "violation": (0.0, 1.0 if is_rate else np.inf),
    }
    bands = [
        {**dict(zip(POINT, point, strict=True)), **_band(group, limits)}
        for point, group in rows.groupby(POINT, sort=False)
        if not group["collapsed"].any() and group["violation"].notna().all()
    ]
    names = ["accuracy", "violation"]
    ends = [f"{name}_{end}" for name in names for end in ("low", "high")]
    return pd.DataFrame(bands, columns=[*POINT, "n_seeds", *names, *ends])


def _band(
    rows: pd.DataFrame, limits: dict[str, tuple[float, float]]
) -> dict[str, float]:
    n_seeds = len(rows)
    band: dict[str, float] = {"n_seeds": n_seeds}
    for name in ("accuracy", "violation"):
        middle = float(rows[name].mean())
        low, high = rows[f"{name}_low"].iloc[0], rows[f"{name}_high"].iloc[0]
        if n_seeds > 1:
            quantile = student.ppf((1 + CONFIDENCE) / 2, n_seeds - 1)
            half = quantile * rows[name].std() / np.sqrt(n_seeds)
            least, most = limits[name]
            low, high = max(middle - half, least), min(middle + half, most)
        band |= {name: middle, f"{name}_low": low, f"{name}_high": high}
    return band


def _scaled(values: FloatArray) -> FloatArray:
    span = np.ptp(values)
    return (values - values.min()) / span if span > 0 else np.zeros_like(values)
