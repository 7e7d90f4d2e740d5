"""Fair models on a cluster of Dask beside those of one process, on Adult by sex.

Trees of XGBoost at each weight, over seeds that draw rows and columns, and the largest
difference of linear coefficients. Workers are processes of this machine.
"""

import warnings
from collections.abc import Callable
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import xgboost as xgb
from distributed import Client

from fferm import FairLogisticRegression, boosting_objective
from fferm.datasets import load_adult
from fferm.integrations.dask import train_xgboost
from fferm.metrics import violation

WEIGHTS, SEEDS, ROUNDS = (0.0, 1.0, 3.0, 10.0), (0, 1, 2), 60
PARAMS = {"max_depth": 5, "learning_rate": 0.1, "nthread": 1}
DRAWN = {"subsample": 0.8, "colsample_bytree": 0.8}


def run() -> dict[str, Any]:
    """Return the front of each number of workers, and the linear differences."""
    warnings.simplefilter("ignore")  # of graphs that hold their data
    data = load_adult(sensitive=("sex",))
    sex = data.sensitive_features["sex"].to_numpy()
    frame = pd.DataFrame(data.X).add_prefix("x")
    names, whole = list(frame), xgb.DMatrix(frame, data.y)
    unseen = xgb.DMatrix(pd.DataFrame(data.X_test, columns=names))
    rows = dd.from_pandas(frame.assign(sex=sex, y=data.y), npartitions=8)
    features, y, groups = rows[names], rows["y"], rows[["sex"]]
    alone = FairLogisticRegression().fit(data.X, data.y, sensitive_features=sex)

    def in_one(params: dict[str, Any], weight: float) -> xgb.Booster:
        rate = params["learning_rate"]
        fair = boosting_objective(
            data.y, sex, fairness_weight=weight, learning_rate=rate
        )
        return xgb.train({**params, "base_score": 0.0}, whole, ROUNDS, obj=fair)

    def on_workers(params: dict[str, Any], weight: float) -> xgb.Booster:
        options = {"num_boost_round": ROUNDS, "fairness_weight": weight}
        return train_xgboost(params, features, y, sensitive_features=groups, **options)

    def measure(booster: xgb.Booster) -> tuple[float, float]:
        decided = booster.predict(unseen, output_margin=True) > 0
        sex_there = data.sensitive_features_test
        gap = violation(data.y_test, decided * 1, sensitive_features=sex_there)
        return float(np.mean(decided == data.y_test)), gap

    figures: dict[str, Any] = {"one process": front(in_one, measure)}
    for n in (1, 2, 4):
        with Client(
            n_workers=n, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ):
            print(f"{n} workers:")
            figures[f"{n} workers"] = front(on_workers, measure)
            model = FairLogisticRegression()
            model.fit(features, y, sensitive_features=groups)
            apart = float(np.abs(model.coef_ - alone.coef_).max())
            figures[f"{n} workers, linear"] = apart
            print(f"  linear coefficients within {apart:.0e}", flush=True)
    return figures


def front(
    train: Callable[[dict[str, Any], float], xgb.Booster],
    measure: Callable[[xgb.Booster], tuple[float, float]],
) -> list[list[tuple[float, float]]]:
    """Return accuracy and violation at every weight, of every seed."""
    found = []
    for weight in WEIGHTS:
        seeds = [{**PARAMS, **DRAWN, "seed": seed} for seed in SEEDS]
        found.append([measure(train(params, weight)) for params in seeds])
        mean, spread = np.mean(found[-1], axis=0), np.std(found[-1], axis=0, ddof=1)
        print(
            f"  weight {weight:g}: accuracy {mean[0]:.4f} ± {spread[0]:.4f}, "
            f"violation {mean[1]:.4f} ± {spread[1]:.4f}",
            flush=True,
        )
    return found
