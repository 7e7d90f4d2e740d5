"""Fair trees of XGBoost on a cluster of Dask.

Rows are counted by label and groups where they are. Every row then travels with the
number of its kind, and the workers of XGBoost add up their tables.
"""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fferm._typing import Table
from fferm.data.group_counts import GroupCounts
from fferm.data.partitions import (
    Partitions,
    find_client,
    join,
    split,
    wait_for,
    workers_of,
)
from fferm.data.validate import check_whole, one_column
from fferm.errors import FfermError, InvalidInputError, LostRankError, import_extra

# How often a call goes on after it has lost a worker.
MOST_LOSSES = 3
# Seconds within which a cluster notices that a worker is gone.
NOTICE = 5.0
# Seconds that workers wait at first for all to join. After a loss they wait longer,
# because those that still wait for the lost one join late.
JOIN = 300
TABLES = ("X", "y", "sensitive_features", "sample_weight")


def train_xgboost(
    params: dict[str, Any],
    X: Table,
    y: Table,
    *,
    sensitive_features: Table,
    sample_weight: Table = None,
    num_boost_round: int = 100,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 25,
    **options: Any,
) -> Any:
    """Return a fair booster of XGBoost that the workers of a cluster train together.

    If a worker is lost, the others go on from the last checkpoint: at once if it has
    joined them, else after the five minutes that they wait for it.

    Parameters
    ----------
    params
        Of ``xgboost.train``.
    X, y, sensitive_features, sample_weight
        Data frames and columns of Dask; ``y`` holds codes of classes, 0, 1, ...
    num_boost_round
        The number of rounds, with those of the checkpoint.
    checkpoint
        A file, ``*.json`` or ``*.ubj``, to write to and to go on from.
    checkpoint_every
        Rounds between two checkpoints, which are kept in memory without a file.
    **options
        ``divergence``, ``notion``, ``fairness_weight``, ``sharpness``, ``calibrated``,
        ``groups`` and ``uncertainty`` of `fferm.boosting_objective`.

    Returns
    -------
    xgboost.Booster
        It predicts probabilities.
    """
    client, every = find_client(), check_whole("checkpoint_every", checkpoint_every)
    if client is None:
        raise InvalidInputError(
            "train_xgboost needs a cluster. Start one: distributed.Client()."
        )
    collective = import_extra("xgboost.collective", "xgboost", "train_xgboost")
    from fferm.boosting.cluster import STATE, cluster_objective  # XGBoost's classes

    given = dict(zip(TABLES, (X, y, sensitive_features, sample_weight), strict=True))
    names, whole = join(given, [name for name in TABLES if given[name] is not None])
    whole, counts = client.persist(whole), GroupCounts()
    for part in Partitions.of(X=whole).map(_count, names):
        counts.merge(part)
    options["learning_rate"] = params.get("learning_rate", params.get("eta", 0.3))
    settings = repr((sorted(params.items()), sorted(options.items())))
    objective = cluster_objective(counts, settings, **options)
    columns = {name: f"{name}: {k}" for k, (name, _) in enumerate(names)}
    rows = {"data": whole[list(X.columns)], "label": whole[columns["y"]]}
    if sample_weight is not None:
        rows["weight"] = whole[columns["sample_weight"]]
    kinds = whole.map_partitions(_kinds, names, counts, meta=("kind", "f4"))
    rows["label_lower_bound"] = kinds  # travels with the row; XGBoost does not read it
    call = {"obj": objective, "callbacks": [objective]}
    call["params"] = {**_link(len(counts.labels)), **params}
    booster, losses = _read(checkpoint, STATE, settings), 0
    while (n_left := num_boost_round - _rounds(booster)) > 0:
        call |= {"xgb_model": booster, "num_boost_round": min(every, n_left)}
        call["coll_cfg"] = collective.Config(tracker_timeout=JOIN * (1 + losses))
        try:
            booster = _train(client, rows, call)
        except LostRankError as error:
            losses += 1
            if losses > MOST_LOSSES or not isinstance(error, _LostWorkerError):
                raise
        else:
            _write(booster, checkpoint)
    return booster


class _LostWorkerError(LostRankError):
    # After which the others may go on.
    pass


def _count(part: dict[str, Table], names: list[tuple[str, Any]]) -> GroupCounts:
    # The kinds of rows of a partition.
    counted, columns = GroupCounts(), split(TABLES, names, part["X"])
    if len(columns["X"]):
        counted.update(
            sensitive_features=columns["sensitive_features"],
            y=one_column(columns["y"]),
            sample_weight=columns["sample_weight"],
        )
    return counted


def _kinds(whole: Table, names: list[tuple[str, Any]], counts: GroupCounts) -> Table:
    # The number of each row's kind. Dask asks for that of no rows, too.
    columns = split(TABLES, names, whole)
    y, sensitive = one_column(columns["y"]), columns["sensitive_features"]
    kind: Any = np.zeros(0)
    if len(whole):
        kind = counts.find(sensitive_features=sensitive, y=y)
    return pd.Series(kind, whole.index, "f4", "kind")


def _link(n_classes: int) -> dict[str, Any]:
    # What makes probabilities of scores that begin at 0.
    if n_classes == 2:
        return {"objective": "binary:logistic", "base_score": 0.5}
    return {"objective": "multi:softprob", "num_class": n_classes, "base_score": 0.0}


def _train(client: Any, rows: dict[str, Any], call: dict[str, Any]) -> Any:
    # In the loop of the client, so that it can be given up.
    dxgb = import_extra("xgboost.dask", "xgboost", "train_xgboost")

    async def train() -> Any:
        data = await dxgb.DaskDMatrix(client, **rows)
        return (await dxgb.train(client, dtrain=data, **call))["booster"]

    wait_for(client, lambda: bool(workers_of(client)))
    workers = workers_of(client)
    future = asyncio.run_coroutine_threadsafe(train(), client.loop.asyncio_loop)
    try:
        wait_for(client, future.done)
        return future.result()
    except FfermError:
        raise
    except Exception as error:
        end = time.monotonic() + NOTICE
        while not workers - workers_of(client):
            if time.monotonic() > end:
                raise
            time.sleep(NOTICE / 20)
        raise _LostWorkerError(
            f"The cluster lost a worker in round {_rounds(call['xgb_model'])} or after "
            "it. Look at its log: mostly it had too little memory. Call again; with "
            "checkpoint= training goes on."
        ) from error
    finally:
        future.cancel()


def _rounds(booster: Any) -> int:
    return 0 if booster is None else int(booster.num_boosted_rounds())


def _read(path: str | Path | None, state: str, settings: str) -> Any:
    if path is None or not Path(path).exists():
        return None
    booster = import_extra("xgboost", "xgboost").Booster(model_file=path)
    if settings not in json.loads(booster.attr(state) or "{}").get("for", ""):
        raise InvalidInputError(
            f"{path} was written with other settings. Pass those of the first call, "
            "or remove the file to start from scratch."
        )
    return booster


def _write(booster: Any, path: str | Path | None) -> None:
    if path is not None:
        whole = Path(path)
        part = whole.with_name(f".{whole.name}")
        booster.save_model(part)
        os.replace(part, whole)
