"""Fair trees of XGBoost on a cluster of Dask: the same as in one process."""

import os
import signal
import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

REASON = "xgboost or dask is not installed: pip install .[dev]"
xgb = pytest.importorskip("xgboost", reason=REASON)
dd = pytest.importorskip("dask.dataframe", reason=REASON)
distributed = pytest.importorskip("distributed", reason=REASON)

from fferm import boosting_objective  # noqa: E402 - after what it needs
from fferm.boosting.cluster import add_leaves  # noqa: E402
from fferm.data import partitions  # noqa: E402
from fferm.datasets import make_biased  # noqa: E402
from fferm.errors import (  # noqa: E402
    InvalidInputError,
    LostRankError,
    MissingGroupWarning,
)
from fferm.integrations import dask as cluster_trees  # noqa: E402

PARAMS = {"max_depth": 3, "learning_rate": 0.2, "nthread": 1}
FEATURES = ["x0", "x1", "x2"]
WEIGHT = 5.0


@pytest.fixture(scope="module")
def frame():
    data = make_biased(3000, random_state=0)
    # Few values, whose bins do not depend on who has which rows.
    frame = pd.DataFrame(np.asarray(data.X)[:, :3], columns=FEATURES).round(1)
    frame["weight"] = np.random.default_rng(0).choice([0.5, 1.0, 2.0], len(frame))
    frame["sex"] = data.sensitive_features.iloc[:, 0].to_numpy()
    return frame.assign(label=data.y)


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the cluster, on its way out
        with distributed.Client(silence_logs=50, **options) as client:
            yield client


def train(frame, n_rounds=8, weight=None, **options):
    rows = dd.from_pandas(frame, npartitions=4)
    return cluster_trees.train_xgboost(
        PARAMS,
        rows[FEATURES],
        rows["label"],
        sensitive_features=rows[["sex"]],
        sample_weight=None if weight is None else rows[weight],
        num_boost_round=n_rounds,
        **{"fairness_weight": WEIGHT, **options},
    )


def train_alone(frame, n_rounds=8, weight=None, **options):
    options = {"fairness_weight": WEIGHT, "learning_rate": 0.2, **options}
    objective = boosting_objective(frame["label"], frame["sex"], **options)
    rows = xgb.DMatrix(frame[FEATURES], frame["label"], weight=weight)
    classes = frame["label"].nunique()
    link = {} if classes == 2 else {"num_class": classes}
    params = {**PARAMS, "base_score": 0.0, **link}
    return xgb.train(params, rows, n_rounds, obj=objective)


def scores(booster, frame):
    return booster.predict(xgb.DMatrix(frame[FEATURES]), output_margin=True)


@pytest.mark.parametrize(
    "options", [{}, {"notion": "equalized_odds", "divergence": "chi2"}], ids=str
)
def test_two_workers_train_the_trees_of_one_process(client, frame, options):
    found = scores(train(frame, weight="weight", **options), frame)
    alone = train_alone(frame, weight=frame["weight"], **options)
    assert_allclose(found, scores(alone, frame), atol=1e-4)


def test_workers_share_three_classes(client, frame):
    three = frame.assign(label=(frame["x0"] > 0.5) + frame["label"])
    found = scores(train(three), three)
    assert_allclose(found, scores(train_alone(three), three), atol=1e-4)


def test_rows_of_unknown_group_have_no_part_in_the_penalty(client, frame):
    some = frame.assign(sex=frame["sex"].where(frame.index % 4 > 0))
    with pytest.warns(MissingGroupWarning, match="25.00% of the weight"):
        found = scores(train(some), some)
    with pytest.warns(MissingGroupWarning):
        alone = train_alone(some)
    assert_allclose(found, scores(alone, some), atol=1e-4)


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(
    client, frame, tmp_path
):
    path = tmp_path / "trees.json"
    whole = scores(train(frame), frame)
    train(frame, 4, checkpoint=path)
    resumed = train(frame, checkpoint=path, checkpoint_every=3)
    assert resumed.num_boosted_rounds() == 8
    assert_allclose(scores(resumed, frame), whole, atol=1e-4)
    assert_array_equal(
        scores(xgb.Booster(model_file=path), frame), scores(resumed, frame)
    )
    with pytest.raises(InvalidInputError, match="written with other settings"):
        train(frame, checkpoint=path, fairness_weight=1.0)


@contextmanager
def cluster_of_processes(folder, *options):
    """Start a scheduler and two workers, each in a process that may end by itself."""
    file, module = str(folder / "scheduler.json"), "distributed.cli.dask_"
    scheduler = [f"{module}scheduler", "--host", "tcp://127.0.0.1", "--port", "0"]
    worker = [f"{module}worker", "--nthreads", "1", *options]
    shared = ["--no-dashboard", "--scheduler-file", file]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", *command, *shared], stderr=subprocess.DEVNULL
        )
        for command in (scheduler, worker, worker)
    ]
    try:
        with distributed.Client(scheduler_file=file, timeout=20) as client:
            client.wait_for_workers(2, timeout=60)
            yield client, *processes
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


@pytest.mark.filterwarnings("ignore")  # of two clusters, and of one on its way out
def test_a_killed_worker_ends_in_the_same_trees_or_an_error_by_name(
    frame, tmp_path, monkeypatch
):
    # XGBoost now and then takes the scheduler with it, which then cannot go on.
    monkeypatch.setattr(cluster_trees, "JOIN", 20)
    monkeypatch.setattr(partitions, "PATIENCE", 5.0)
    calls, once = [], cluster_trees._train
    with cluster_of_processes(tmp_path) as (client, scheduler, *_):
        whole = scores(train(frame), frame)
        process = next(iter(client.run(os.getpid).values()))

        def train_and_kill(*args):
            calls.append(args)
            if len(calls) == 2:
                threading.Timer(0.1, os.kill, (process, signal.SIGKILL)).start()
            return once(*args)

        monkeypatch.setattr(cluster_trees, "_train", train_and_kill)
        try:
            found = train(frame, checkpoint_every=4)
        except LostRankError:
            assert scheduler.poll() is not None
            return
        assert len(calls) >= 2
        assert found.num_boosted_rounds() == 8
        assert_allclose(scores(found, frame), whole, atol=1e-4)


@pytest.mark.filterwarnings("ignore")  # of two clusters, and of one on its way out
def test_a_scheduler_that_is_gone_is_an_error_and_no_hang(frame, tmp_path, monkeypatch):
    once = cluster_trees._train
    monkeypatch.setattr(partitions, "PATIENCE", 1.0)
    monkeypatch.setattr(partitions, "PERIOD", 0.1)
    with cluster_of_processes(tmp_path) as (_, scheduler, *_):

        def train_and_kill(*args):
            threading.Timer(0.1, scheduler.kill).start()
            return once(*args)

        monkeypatch.setattr(cluster_trees, "_train", train_and_kill)
        with pytest.raises(LostRankError, match="its scheduler is gone"):
            train(frame, 2000)


@pytest.mark.filterwarnings("ignore")  # of two clusters, and of one on its way out
@pytest.mark.timeout(240)
def test_others_wait_so_long_for_a_worker_that_is_killed_before_it_joins(
    frame, tmp_path, monkeypatch
):
    monkeypatch.setattr(cluster_trees, "JOIN", 4)
    # Nobody starts a killed one again.
    with cluster_of_processes(tmp_path, "--no-nanny") as (client, _, worker, _):
        once = client.run_on_scheduler  # which starts what they meet at

        async def start_and_kill(*args):
            found = await once(*args)
            worker.kill()
            return found

        monkeypatch.setattr(client, "run_on_scheduler", start_and_kill)
        found = train(frame)
    assert_allclose(scores(found, frame), scores(train_alone(frame), frame), atol=1e-4)


@pytest.mark.filterwarnings("ignore")  # of two clusters, and of one on its way out
def test_a_cluster_that_is_gone_is_an_error_and_no_hang(frame, monkeypatch):
    once = cluster_trees._train
    monkeypatch.setattr(partitions, "PATIENCE", 1.0)
    monkeypatch.setattr(partitions, "PERIOD", 0.1)

    def train_and_close(*args):
        threading.Timer(0.1, one.cluster.scale, (0,)).start()
        return once(*args)

    monkeypatch.setattr(cluster_trees, "_train", train_and_close)
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.Client(silence_logs=50, **options) as one,
        pytest.raises(LostRankError, match="has had no worker"),
    ):
        train(frame, 2000)


def test_without_a_cluster_an_error_says_how_to_start_one(frame, monkeypatch):
    monkeypatch.setattr(cluster_trees, "find_client", lambda: None)
    with pytest.raises(InvalidInputError, match="needs a cluster"):
        train(frame)


def test_leaves_of_workers_that_differ_by_rounding_are_one():
    one, two = np.array([0.1, 0.5]), np.array([0.5 + 1e-7, 0.2])
    trees = np.zeros(2, dtype=int)
    sums = [(v, v, np.stack([v, v])) for v in (np.array([1.0, 2.0]),) * 2]
    found = add_leaves(1e-6, [trees] * 2, [one, two], *zip(*sums, strict=True))
    assert_array_equal(found.gradient, [1.0, 2.0, 3.0])
    assert_array_equal(found.moved, [[1.0, 2.0, 3.0]] * 2)
