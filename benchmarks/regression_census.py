"""Salaries of the government census: what half of the plain gap costs, by method.

The gap is the Kolmogorov-Smirnov distance of the predictions of two groups, the largest
of all pairs: by sex, by race, and between eight bands of age of like many rows. Each
seed draws its own training rows; every method is measured on the same test rows, where
its own curve comes to half of the plain model's gap.
"""

import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression

from fferm import FairRegressor
from fferm._typing import FloatArray, IntArray
from fferm.data.groups import N_BANDS, assign, find_edges
from fferm.data.rows import FitInput
from fferm.datasets import load_gov_census
from fferm.errors import DataUnavailableError
from fferm.metrics.dependence import kolmogorov_smirnov

N_ROWS = 40_000
N_SEEDS = 5
N_GRID, N_CHANCE = 20, 50
# 87 of the training rows: with so few, a gap is mostly chance.
MERGED = {"NHOPI": "asian"}
WEIGHTS = (0.0, *np.geomspace(0.3, 300, 9).tolist())
# From one of these weights to the next, in so many steps.
FINE = np.geomspace(1, 1000 ** (1 / 8), 9)


@dataclass(frozen=True)
class Census:
    """Training and test rows of one seed, with groups as codes."""

    X: FloatArray
    y: FloatArray
    group: IntArray
    number: FloatArray  # what a covariance is taken with; (n, 1) or one per group
    X_test: FloatArray
    y_test: FloatArray
    group_test: IntArray

    def with_group(self) -> "Census":
        """Return the same rows with the group among the features."""
        return replace(
            self,
            X=_with_group(self.X, self.group),
            X_test=_with_group(self.X_test, self.group_test),
        )

    def point(self, u: FloatArray) -> tuple[float, float]:
        """Return (gap, mean squared error) of predictions for the test rows."""
        error = float(np.mean((self.y_test - u) ** 2))
        return kolmogorov_smirnov(u, self.group_test), error


def run() -> dict[str, Any]:
    """Return what each method costs at half of the gap, and the tables of it."""
    try:
        found = {column: compare(column) for column in ("sex", "race", "age")}
    except DataUnavailableError as error:
        print(f"The census is left out: {error}")
        return {}
    return {"columns": found, "tables": tables(found)}


def compare(column: str) -> dict[str, Any]:
    """Return the costs of every seed, and the curve of the first."""
    seeds = []
    for seed in range(N_SEEDS):
        seeds.append(_seed(read(column, seed)))
        shown = {k: _percent(v) for k, v in seeds[-1]["costs"].items()}
        print(f"{column}, seed {seed}: gap {seeds[-1]['gap']:.3f}, {shown}", flush=True)
    return {"seeds": seeds}


def read(column: str, seed: int) -> Census:
    """Return the rows of a seed; the sensitive column is no feature."""
    data = load_gov_census(sensitive=(column,), drop_sensitive=True)
    rows = np.random.default_rng(seed).permutation(len(data.y))[:N_ROWS]
    raw, raw_test = (
        pd.Series(np.asarray(part[column])).replace(MERGED)
        for part in (data.sensitive_features, data.sensitive_features_test)
    )
    if column == "age":
        values, values_test = raw.to_numpy(float)[rows], raw_test.to_numpy(float)
        edges = find_edges(values, N_BANDS)
        code, code_test = assign(values, edges), assign(values_test, edges)
        number = values[:, None]
    else:
        names = np.unique(raw)
        code, code_test = (np.searchsorted(names, v) for v in (raw[rows], raw_test))
        number = np.eye(names.size)[code]
    return Census(
        data.X[rows], data.y[rows], code, number,
        data.X_test, data.y_test, code_test,
    )  # fmt: skip


def _seed(census: Census) -> dict[str, Any]:
    curve = list(ours(census, WEIGHTS))
    gap, error = curve[0]
    knowing = census.with_group()
    points = {
        "`FairRegressor`": [*curve, *near_half(census, curve, gap / 2)],
        "linear covariance penalty": linear_penalties(census),
        "fairlearn's GridSearch, bounded group loss": bounded_group_losses(census),
        "`FairRegressor`, has the group": near_half(
            knowing, list(ours(knowing, WEIGHTS)), gap / 2
        ),
        "quantile alignment, needs the group": aligned(census, census.X, census.X_test),
        "quantile alignment of a model that has the group": aligned(
            knowing, knowing.X, knowing.X_test
        ),
    }
    return {
        "gap": gap,
        "floor": by_chance(census),
        "error": error,
        "costs": {k: at_half(v, gap / 2, error) for k, v in points.items()},
        "least gaps": {k: min(v)[0] for k, v in points.items()},
        "curve": [
            {"weight": w, "gap": g, "cost": e / error - 1}
            for w, (g, e) in zip(WEIGHTS, curve, strict=True)
        ],
    }


def by_chance(census: Census) -> float:
    """Return the gap of predictions that say nothing of groups, on average."""
    rng, n_rows = np.random.default_rng(0), len(census.y_test)
    gaps = [
        kolmogorov_smirnov(rng.permutation(n_rows).astype(float), census.group_test)
        for _ in range(N_CHANCE)
    ]
    return float(np.mean(gaps))


def at_half(
    points: list[tuple[float, float]], half: float, error: float
) -> float | None:
    """Return the rise of the error at half the gap, None where it is out of reach.

    Between the two points next to it the error is taken as a line.
    """
    within = [point for point in points if point[0] <= half]
    if not within:
        return None
    above = min(point for point in points if point[0] > half)
    (low, below), (high, beyond) = max(within), above
    at = below + (beyond - below) * (half - low) / (high - low)
    return at / error - 1


def near_half(
    census: Census, curve: list[tuple[float, float]], half: float
) -> list[tuple[float, float]]:
    """Return points between the last weight above half of the gap and the next."""
    above = [w for w, (g, _) in zip(WEIGHTS, curve, strict=True) if g > half]
    return list(ours(census, max(above[-1], WEIGHTS[1] / FINE[-1]) * FINE))


def ours(
    census: Census, weights: FloatArray | tuple[float, ...]
) -> Iterator[tuple[float, float]]:
    """Yield the points of a path of fair regressors."""
    given = FitInput(census.X, census.y, census.group)
    for model in FairRegressor().fit_path(given, list(weights)):
        yield census.point(model.predict(census.X_test))


def linear_penalties(census: Census) -> list[tuple[float, float]]:
    """Return the points of least squares plus squared covariances with the group."""
    design, test = (_with_one(X) for X in (census.X, census.X_test))
    centred = (census.number - census.number.mean(axis=0)) / census.number.std(axis=0)
    covariance = centred.T @ design / len(design)
    gram, right = design.T @ design / len(design), design.T @ census.y / len(design)
    gram += 1e-9 * np.trace(gram) / len(gram) * np.eye(len(gram))
    return [
        census.point(
            test @ np.linalg.solve(gram + w * covariance.T @ covariance, right)
        )
        for w in np.geomspace(0.01, 1e4, 60)
    ]


def aligned(
    census: Census, X: FloatArray, X_test: FloatArray
) -> list[tuple[float, float]]:
    """Return the points between predictions and their barycentre over groups.

    Each prediction moves to the mean, over groups, of the quantiles at its rank within
    its own group, which has to be known. No other way to equal distributions moves
    predictions less; a part of the way is as good for a part of the gap.
    """
    plain = LinearRegression().fit(X, census.y)
    train, test = plain.predict(X), plain.predict(X_test)
    own = [np.sort(train[census.group == k]) for k in range(census.group.max() + 1)]
    share = np.bincount(census.group) / census.group.size
    moved = np.empty_like(test)
    for k, sample in enumerate(own):
        inside = census.group_test == k
        rank = np.searchsorted(sample, test[inside], "right") / sample.size
        quantiles = [np.quantile(s, rank) for s in own]
        moved[inside] = np.tensordot(share, quantiles, 1)
    return [census.point((1 - a) * test + a * moved) for a in np.linspace(0, 1, 41)]


def bounded_group_losses(census: Census) -> list[tuple[float, float]]:
    """Return the points of fairlearn's grid search with bounded group loss."""
    from fairlearn.reductions import BoundedGroupLoss, GridSearch, SquareLoss

    loss = SquareLoss(float(census.y.min()), float(census.y.max()))
    search = GridSearch(
        LinearRegression(),
        BoundedGroupLoss(loss, upper_bound=0.1),
        grid_size=N_GRID,
    )
    # It logs that a grid of many groups is coarse.
    logging.getLogger("fairlearn").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(census.X, census.y, sensitive_features=census.group)
    return [census.point(m.predict(census.X_test)) for m in search.predictors_]


def tables(found: dict[str, Any]) -> dict[str, list[str]]:
    """Return the costs at half of the gap, and the curves of the first seed."""
    columns = list(found)
    costs = [
        f"| half of the gap | {' | '.join(f'by {name}' for name in columns)} |",
        "|---|" + "---|" * len(columns),
    ]
    for method in found[columns[0]]["seeds"][0]["costs"]:
        cells = [_cell(found[name]["seeds"], method) for name in columns]
        costs.append(f"| {method} | {' | '.join(cells)} |")
    gaps = [_range([s["gap"] for s in found[name]["seeds"]]) for name in columns]
    costs.append(f"| gap of the plain model | {' | '.join(gaps)} |")
    floors = [f"{found[name]['seeds'][0]['floor']:.3f}" for name in columns]
    costs.append(f"| gap by chance | {' | '.join(floors)} |")
    curve = [
        f"| weight | {' | '.join(f'gap by {n} | error' for n in columns)} |",
        "|---|" + "---|---|" * len(columns),
    ]
    paths = [found[name]["seeds"][0]["curve"] for name in columns]
    for points in zip(*paths, strict=True):
        cells = [f"{p['gap']:.3f} | {_percent(p['cost'])}" for p in points]
        curve.append(f"| {points[0]['weight']:.3g} | {' | '.join(cells)} |")
    return {"regression_census": costs, "regression_census_curve": curve}


def _cell(seeds: list[dict[str, Any]], method: str) -> str:
    costs = [seed["costs"][method] for seed in seeds]
    reached = [cost for cost in costs if cost is not None]
    if len(reached) < len(costs):
        least = min(seed["least gaps"][method] for seed in seeds)
        share = f"{len(reached)} of {len(costs)} seeds" if reached else "never"
        return f"{share}, at least {least:.3f}"
    middle = _percent(float(np.mean(reached)))
    return f"{middle} ({100 * min(reached):.2f}–{100 * max(reached):.2f})"


def _range(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ({min(values):.3f}–{max(values):.3f})"


def _percent(cost: float | None) -> str:
    return "never" if cost is None else f"{100 * cost:+.2f} %"


def _with_one(X: FloatArray) -> FloatArray:
    return np.column_stack([X, np.ones(len(X))])


def _with_group(X: FloatArray, group: IntArray) -> FloatArray:
    # One column less than groups: the intercept stands for the first.
    return np.column_stack([X, np.eye(group.max() + 1)[group][:, 1:]])
