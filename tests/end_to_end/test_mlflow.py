"""A fair model in MLflow: logged, loaded, served over HTTP, compared by group."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fferm import FairLogisticRegression, FairRegressor, audit

mlflow = pytest.importorskip("mlflow", reason='pip install "fferm[mlflow]"')
from fferm.integrations import mlflow as flavor  # noqa: E402 - needs mlflow

pytestmark = pytest.mark.filterwarnings("ignore")  # those of mlflow
SECONDS_TO_START = 180
# Python's own opener keeps the proxies that were set when it was first used.
ask = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


@pytest.fixture(scope="module")
def rows():
    rng, n = np.random.default_rng(0), 600
    table = pd.DataFrame(
        {"age": rng.normal(40, 9, n), "city": rng.choice(["A", "B"], n)}
    )
    sex = rng.choice(["f", "m"], n)
    pay = table["age"].to_numpy() + 5 * (sex == "m") + 9 * rng.normal(size=n)
    return table, pay, sex


@pytest.fixture
def tracking(tmp_path):
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.sqlite")
    location = (tmp_path / "artifacts").as_uri()
    mlflow.set_experiment(
        experiment_id=mlflow.create_experiment("fair", artifact_location=location)
    )


def log(model, rows, target):
    table, pay, sex = rows
    model.fit(table, target(pay), sensitive_features=sex)
    found = audit(model, table, target(pay), sensitive_features=sex)
    with mlflow.start_run() as run:
        info = flavor.log_model(model, example=table.head(5), audit=found)
    return info.model_uri, mlflow.get_run(run.info.run_id), found


def labels(pay):
    return np.where(pay > 42, "yes", "no")


@contextlib.contextmanager
def served(path):
    """Serve a model on loopback, and yield the address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", path]
    command += ["--env-manager", "local", "--host", "127.0.0.1", "--workers", "1"]
    # The server is found where this interpreter is.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    server = subprocess.Popen(
        [*command, "--port", str(port)],
        env={**os.environ, "PATH": path},
        start_new_session=True,
    )
    address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + SECONDS_TO_START
    try:
        while True:
            assert server.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server did not start"
            with contextlib.suppress(OSError):
                ask(f"{address}/ping", timeout=2).close()
                break
            time.sleep(0.3)
        yield address
    finally:
        # The command starts a server of its own, which would go on without it.
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def test_a_model_is_logged_loaded_served_and_asked_over_http(rows, tracking):
    model = FairLogisticRegression(fairness_weight=1)
    uri, _, _ = log(model, rows, labels)
    table = rows[0]
    expected = model.predict_proba(table)
    np.testing.assert_array_equal(flavor.load_model(uri).predict_proba(table), expected)
    asked = mlflow.pyfunc.load_model(uri).predict(table)
    np.testing.assert_array_equal(asked["probability_yes"], expected[:, 1])
    with served(mlflow.artifacts.download_artifacts(uri)) as address:
        body = json.dumps({"dataframe_split": table.head(20).to_dict("split")})
        kind = {"Content-Type": "application/json"}
        question = urllib.request.Request(f"{address}/invocations", body.encode(), kind)
        with ask(question) as answer:
            told = pd.DataFrame(json.load(answer)["predictions"])
    np.testing.assert_allclose(told["probability_yes"], expected[:20, 1], rtol=1e-12)
    assert told["prediction"].tolist() == model.predict(table.head(20)).tolist()


def test_the_run_shows_metrics_by_group_and_keeps_the_audit(rows, tracking):
    uri, run, found = log(FairLogisticRegression(fairness_weight=1), rows, labels)
    metrics = run.data.metrics
    assert metrics["violation"] == found.violation
    for group in ("f", "m"):
        expected = found.groups[group]["selection_rate_yes"]
        assert metrics[f"selection_rate_yes/{group}"] == expected
    assert run.data.params["fairness_weight"] == "1"
    kept = mlflow.artifacts.load_dict(f"{run.info.artifact_uri}/audit.json")
    assert type(found).from_dict(kept) == found
    signature = mlflow.models.get_model_info(uri).signature
    assert [column.name for column in signature.inputs] == ["age", "city"]


def test_a_regressor_is_logged_too(rows, tracking):
    uri, run, found = log(FairRegressor(fairness_weight=1), rows, np.asarray)
    assert run.data.metrics["violation"] == found.violation
    assert "mean_prediction/group_f" in run.data.metrics
    told = mlflow.pyfunc.load_model(uri).predict(rows[0])
    expected = flavor.load_model(uri).predict(rows[0])
    np.testing.assert_array_equal(told["prediction"], expected)
