"""Fair networks on a GPU: captured steps train as plain ones do."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch")

from fferm import FairNetClassifier  # noqa: E402 - after torch
from fferm.data.rows import FitInput  # noqa: E402
from fferm.datasets import make_biased  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]

OPTIONS = {
    "hidden": (16,),
    "batch_size": 64,
    "max_epochs": 4,
    "dtype": "float64",
    "random_state": 0,
}


@pytest.fixture(scope="module")
def data():
    return make_biased(1000, random_state=0)


@pytest.mark.parametrize("weight", [0.0, 5.0])
def test_a_captured_run_ends_where_the_cpu_does(weight, data):
    models = [
        FairNetClassifier(**OPTIONS, fairness_weight=weight, device=device).fit(
            data.X, data.y, sensitive_features=data.sensitive_features
        )
        for device in ("cpu", "cuda")
    ]
    scores = [model.decision_function(data.X) for model in models]
    assert_allclose(scores[1], scores[0], atol=1e-6)


def test_a_captured_stack_ends_where_single_networks_do(data):
    given = FitInput(data.X, data.y, data.sensitive_features)
    weights = [0.0, 1.0, 10.0]
    path = list(FairNetClassifier(**OPTIONS, device="cuda").fit_path(given, weights))
    for weight, model in zip(weights, path, strict=True):
        alone = FairNetClassifier(**OPTIONS, fairness_weight=weight, device="cpu")
        alone.fit(data.X, data.y, sensitive_features=data.sensitive_features)
        assert_allclose(
            model.decision_function(data.X), alone.decision_function(data.X), atol=1e-6
        )


def test_a_checkpoint_of_a_gpu_resumes(data, tmp_path):
    def stop(record):
        return record["iteration"] >= 1

    options = {**OPTIONS, "device": "cuda", "checkpoint": tmp_path}
    train = {"sensitive_features": data.sensitive_features}
    with pytest.warns(UserWarning, match="A callback asked"):
        FairNetClassifier(**options, callbacks=[stop]).fit(data.X, data.y, **train)
    (path,) = tmp_path.glob("*.pt")
    content = torch.load(path, weights_only=True)
    content["result"] = None  # as if it had been killed there
    torch.save(content, path)
    resumed = FairNetClassifier(**options).fit(data.X, data.y, **train)
    whole = FairNetClassifier(**{**options, "checkpoint": None})
    whole.fit(data.X, data.y, **train)
    assert resumed.n_iter_ == 4
    assert np.abs(
        resumed.decision_function(data.X) - whole.decision_function(data.X)
    ).max() == pytest.approx(0, abs=1e-6)
