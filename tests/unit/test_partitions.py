"""Linear models of rows in partitions of Dask: the same as of rows in memory."""

import os
import signal
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fferm import FairLogisticRegression, FairRegressor, SmallShift
from fferm.data import partitions
from fferm.datasets import make_biased
from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    LostRankError,
    MissingGroupWarning,
    MissingSensitiveError,
)
from fferm.notions import ConditionalParity

dask = pytest.importorskip("dask", reason="dask is not installed: pip install .[dev]")
dd = pytest.importorskip("dask.dataframe")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed", reason="pip install .[dev]")

FEATURES = ["x0", "x1", "x2", "x3"]


@pytest.fixture(scope="module")
def frame():
    data = make_biased(4000, n_classes=3, random_state=0)
    frame = pd.DataFrame(np.asarray(data.X)[:, :4], columns=FEATURES)
    frame["sex"] = data.sensitive_features.iloc[:, 0].to_numpy()
    frame["age"] = np.random.default_rng(0).choice(["old", "young"], len(frame))
    frame["weight"] = np.random.default_rng(1).uniform(0.5, 2.0, len(frame))
    return frame.assign(label=np.array(["a", "b", "c"])[data.y])


def fit(rows, sensitive=("sex",), weight=None, **options):
    options = {"fairness_weight": 5.0, **options}
    model = FairLogisticRegression(**options)
    return model.fit(
        rows[FEATURES],
        rows["label"],
        sensitive_features=rows[list(sensitive)],
        sample_weight=None if weight is None else rows[weight],
    )


def in_parts(frame, n=3):
    return dd.from_pandas(frame, npartitions=n)


def assert_same(model, expected):
    assert_allclose(model.coef_, expected.coef_, atol=1e-8)
    assert_allclose(model.intercept_, expected.intercept_, atol=1e-8)
    assert_allclose(model.dual_, expected.dual_, atol=1e-8)
    for name in ("classes_", "groups_", "sensitive_names_", "target_name_"):
        assert list(getattr(model, name)) == list(getattr(expected, name))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight": "weight"},
        {"sensitive": ("sex", "age"), "groups": "marginal", "notion": "sufficiency"},
        {"uncertainty": SmallShift(0.05), "fairness_weight": 0.5},
        {"sensitive": ("sex", "age"), "group_weights": "equal", "weight": "weight"},
        {"measure": "ratio", "notion": "equalized_odds", "fit_intercept": False},
    ],
    ids=str,
)
def test_partitions_give_the_coefficients_of_rows_in_memory(frame, options):
    assert_same(fit(in_parts(frame), **options), fit(frame, **options))


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("n_samples", [40_000, 190_000])
def test_rows_in_partitions_take_the_steps_of_rows_in_memory(n_samples, is_sparse):
    data = make_biased(n_samples, random_state=0)
    X = np.asarray(data.X)[:, :4]
    X = np.where(X > 1, X, 0.0) if is_sparse else X  # such rows are kept as CSR
    frame = pd.DataFrame(X, columns=FEATURES).assign(label=data.y)
    frame["sex"] = data.sensitive_features.iloc[:, 0].to_numpy()
    model, expected = fit(in_parts(frame)), fit(frame)
    # From another start, or in other coordinates, they differ by 1e-5 and more.
    assert_allclose(model.coef_, expected.coef_, atol=1e-8)
    assert model.n_iter_ == expected.n_iter_


def test_a_folder_of_parquet_gives_the_coefficients_of_rows_in_memory(frame, tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    for k in range(3):
        frame[k * 1000 : (k + 1) * 1000].to_parquet(tmp_path / f"{k}.parquet")
    model = fit(dd.read_parquet(tmp_path))
    assert_same(model, fit(frame))
    assert_array_equal(
        model.predict(frame[FEATURES]), fit(frame).predict(frame[FEATURES])
    )


def test_arrays_empty_partitions_and_sparse_rows_are_read(frame):
    dense = np.where(frame[FEATURES] > 1, frame[FEATURES], 0.0)  # kept as CSR
    y, s = (frame["label"] == "a").to_numpy(), frame["sex"].to_numpy()
    expected = FairLogisticRegression(fairness_weight=0.1)
    expected.fit(dense, y, sensitive_features=s)
    chunks = (1500, 0, 1300)
    model = FairLogisticRegression(fairness_weight=0.1)
    model.fit(
        da.from_array(dense, chunks=(chunks, (2, 2))),
        da.from_array(y, chunks=(chunks,)),
        sensitive_features=da.from_array(s, chunks=(chunks,)),
    )
    assert_allclose(model.coef_, expected.coef_, atol=1e-8)
    assert model.sensitive_names_ == expected.sensitive_names_


def test_unknown_groups_train_the_loss_alone(frame):
    some = frame.assign(sex=frame["sex"].where(frame.index % 5 > 0))
    with pytest.warns(MissingGroupWarning, match="20.00% of the weight"):
        model = fit(in_parts(some))
    with pytest.warns(MissingGroupWarning):
        expected = fit(some)
    assert_same(model, expected)


def test_what_needs_rows_in_memory_is_refused(frame):
    rows = in_parts(frame)
    for options in (
        {"max_violation": 0.1, "fairness_weight": None},
        {"divergence": "auto"},
        {"solver": "sgda"},
        {"notion": ConditionalParity("x0")},
    ):
        with pytest.raises(InvalidParameterError, match="does not support"):
            fit(rows, **options)
    plain = FairLogisticRegression(fairness_weight=0)
    with pytest.raises(InvalidInputError, match="trains on rows in memory"):
        FairRegressor().fit(rows[FEATURES], rows["weight"])
    unknown = in_parts(frame, 5).clear_divisions()
    with pytest.raises(InvalidInputError, match="rows cannot be matched"):
        plain.fit(rows[FEATURES].clear_divisions(), unknown["label"])
    with pytest.raises(InvalidInputError, match="must be a collection of Dask"):
        plain.fit(rows[FEATURES], frame["label"])
    with pytest.raises(MissingSensitiveError, match="needs sensitive_features"):
        FairLogisticRegression().fit(rows[FEATURES], rows["label"])
    with pytest.raises(InvalidInputError, match=r"age holds none\. Encode text first"):
        plain.fit(rows[["x0", "age"]], rows["label"])


@pytest.fixture
def cluster():
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the cluster, on its way out
        with distributed.Client(silence_logs=50, **options) as client:
            yield client


def test_a_worker_killed_in_the_middle_changes_nothing(frame, cluster, monkeypatch):
    process = next(iter(cluster.run(os.getpid).values()))
    expected, passes, whole = fit(frame), [], partitions.Partitions.map

    def map_and_kill(parts, *args):
        passes.append(args)
        if len(passes) == 6:
            os.kill(process, signal.SIGKILL)
        return whole(parts, *args)

    monkeypatch.setattr(partitions.Partitions, "map", map_and_kill)
    assert_same(fit(in_parts(frame, 4)), expected)
    assert len(passes) > 10


def test_a_cluster_without_workers_is_an_error_and_no_hang(frame, cluster, monkeypatch):
    monkeypatch.setattr(partitions, "PATIENCE", 1.0)
    monkeypatch.setattr(partitions, "PERIOD", 0.1)
    cluster.retire_workers(list(cluster.nthreads()), close_workers=True)
    with pytest.raises(LostRankError, match="has had no worker"):
        fit(in_parts(frame))
