"""Models predict the same outside of the library."""

import importlib
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairNetClassifier,
    FairRegressor,
    audit,
    export,
)
from fferm.errors import (
    InvalidInputError,
    InvalidTypeError,
    MissingDependencyError,
    install_line,
)
from fferm.integrations import mlflow

N_ROWS = 1200


@pytest.fixture(scope="module")
def data():
    """A raw table with text, gaps, codes, booleans and categories."""
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], N_ROWS)
    table = pd.DataFrame(
        {
            "age": rng.normal(40, 9, N_ROWS),
            "hours": rng.integers(10, 60, N_ROWS),
            "income": np.where(
                rng.random(N_ROWS) < 0.1, np.nan, rng.lognormal(3, 1, N_ROWS)
            ),
            "city": rng.choice(np.array(["A", "B b", "C", None]), N_ROWS),
            "code": rng.integers(1, 6, N_ROWS),
            "ok": rng.random(N_ROWS) < 0.5,
            "kind": pd.Categorical(rng.choice(["x", "y", "z"], N_ROWS)),
        }
    )
    score = 0.05 * (table["age"] - 40) + (table["city"] == "A") + (sex == "m")
    score = score.to_numpy() + 0.5 * (table["code"] == 3).to_numpy()
    score += rng.logistic(size=N_ROWS)
    return table, score, sex


@pytest.fixture(scope="module")
def unseen(data):
    """Other rows: a level that training did not have, and a gap where it had none."""
    table = data[0].sample(300, random_state=1).reset_index(drop=True)
    table.loc[0, "city"], table.loc[1, "age"] = "never seen", np.nan
    return table


def two(score):
    return np.where(score > 0.7, "yes", "no")


def three(score):
    return np.digitize(score, [0.0, 1.5])


OPTIONS = {"fairness_weight": 1.0, "categorical": ["code"], "random_state": 0}
MODELS = {
    "linear": (FairLogisticRegression(**OPTIONS), two),
    "linear, three classes": (FairLogisticRegression(**OPTIONS), three),
    "trees": (FairBoostingClassifier(**OPTIONS, n_estimators=25), two),
    "trees, three classes": (FairBoostingClassifier(**OPTIONS, n_estimators=15), three),
    "net": (FairNetClassifier(**OPTIONS, max_epochs=40), two),
    "net, three classes": (FairNetClassifier(**OPTIONS, max_epochs=40), three),
    "regressor": (FairRegressor(**OPTIONS), np.asarray),
    "regressor, a network": (
        FairRegressor(**OPTIONS, hidden=(8,), max_epochs=3),
        np.asarray,
    ),
}
pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.ConvergenceWarning")


@pytest.fixture(scope="module")
def fitted(data):
    made = {}

    def fit(name):
        if name not in made:
            model, target = MODELS[name]
            table, score, sex = data
            made[name] = model.fit(table, target(score), sensitive_features=sex)
        return made[name]

    return fit


def run_onnx(path, inputs):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = {each.name for each in session.get_inputs()}
    values = session.run(None, {k: v for k, v in inputs.items() if k in wanted})
    return dict(zip([o.name for o in session.get_outputs()], values, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_onnx_predicts_what_the_model_does_on_raw_tables(
    name, fitted, data, unseen, tmp_path
):
    pytest.importorskip("onnx")
    model, path = fitted(name), tmp_path / "model.onnx"
    export.onnx(model, path, data[0][:5])
    found = run_onnx(path, export.onnx_inputs(unseen))
    if hasattr(model, "classes_"):
        expected = model.predict_proba(unseen)
        assert np.ptp(expected[:, 0]) > 0.05
        np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)
        assert found["label"].tolist() == model.predict(unseen).tolist()
    else:
        np.testing.assert_allclose(
            found["prediction"], model.predict(unseen), rtol=1e-6
        )


@pytest.mark.parametrize("name", ["linear", "trees", "net", "regressor"])
def test_a_model_of_arrays_has_one_input(name, data, tmp_path):
    pytest.importorskip("onnx")
    table, score, sex = data
    X = table[["age", "hours"]].to_numpy()
    model, target = MODELS[name]
    model = type(model)(**{**model.get_params(), "categorical": None})
    model.fit(X, target(score), sensitive_features=sex)
    export.onnx(model, tmp_path / "model.onnx", X)
    found = run_onnx(tmp_path / "model.onnx", {"X": X})
    if name == "regressor":
        np.testing.assert_allclose(found["prediction"], model.predict(X), rtol=1e-6)
    else:
        expected = model.predict_proba(X)
        np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)


def test_onnx_refuses_what_it_cannot_say(fitted, data, tmp_path):
    pytest.importorskip("onnx")
    table, score, _ = data
    with pytest.raises(InvalidTypeError, match="must be a fitted estimator of fferm"):
        export.onnx("model", tmp_path / "m.onnx", table)
    params = {"zero_as_missing": True}
    trees = FairBoostingClassifier(
        fairness_weight=0, n_estimators=3, lightgbm_params=params
    )
    trees.fit(table[["age", "hours"]], two(score))
    with pytest.raises(InvalidInputError, match="zero_as_missing"):
        export.onnx(trees, tmp_path / "m.onnx", table[["age", "hours"]])


def doubled():
    """Return a module whose forward does what its layers do not say."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    return Doubled(2, 2)


def test_onnx_refuses_a_module_whose_forward_it_cannot_read(data, tmp_path):
    pytest.importorskip("onnx")
    table, score, sex = data
    X = table[["age", "hours"]].to_numpy() / 40 - 1
    net = FairNetClassifier(module=doubled(), fairness_weight=0.1, max_epochs=10)
    net.fit(X, two(score), sensitive_features=sex)
    with pytest.raises(InvalidInputError, match=r"Use torch\.onnx\.export"):
        export.onnx(net, tmp_path / "m.onnx", X)


@pytest.mark.parametrize(
    ("package", "extra", "job"),
    [
        ("onnx.helper", "onnx", lambda m, path: export.onnx(m, path, [[0.0]])),
        ("huggingface_hub", "huggingface", lambda m, p: export.model_card(m, m, p)),
        ("treelite.frontend", "treelite", lambda m, path: export.treelite(m)),
        ("mlflow.models", "mlflow", lambda m, path: mlflow.save_model(m, path)),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    package, extra, job, fitted, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    name = package.partition(".")[0]
    with pytest.raises(
        MissingDependencyError, match=f"needs the package {name}"
    ) as said:
        job(fitted("trees"), tmp_path / "out")
    assert install_line(extra) in str(said.value)


@pytest.mark.parametrize(
    ("name", "package"),
    [("huggingface", "transformers"), ("opacus", "opacus.accountants")],
)
def test_a_module_names_the_extra_that_it_needs(name, package, monkeypatch):
    pytest.importorskip("torch")
    module = f"fferm.integrations.{name}"
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(MissingDependencyError, match=f"{module} needs") as said:
        importlib.import_module(module)
    assert install_line(name) in str(said.value)


def test_trees_leave_as_text_of_lightgbm_and_as_treelite(data, tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    table, score, sex = data
    X = table[["age", "hours", "income"]].to_numpy()
    model = FairBoostingClassifier(fairness_weight=1.0, n_estimators=20)
    model.fit(X, two(score), sensitive_features=sex)
    export.lightgbm(model, tmp_path / "trees.txt")
    booster = lightgbm.Booster(model_file=tmp_path / "trees.txt")
    expected = model.predict_proba(X)[:, 1]
    np.testing.assert_allclose(booster.predict(X), expected, rtol=1e-12)
    treelite = pytest.importorskip("treelite")
    found = treelite.gtil.predict(export.treelite(model), X)
    np.testing.assert_allclose(found.reshape(-1), expected, atol=1e-6)


def test_only_trees_have_a_text_of_lightgbm(fitted, tmp_path):
    with pytest.raises(InvalidTypeError, match="must be a fitted FairBoosting"):
        export.lightgbm(fitted("linear"), tmp_path / "trees.txt")


LINEAR = ["linear", "linear, three classes", "regressor"]


def outputs(model, rows):
    return getattr(model, "predict_proba", model.predict)(rows)


@pytest.mark.parametrize("name", LINEAR)
def test_a_plain_model_of_scikit_learn_predicts_the_same(name, fitted, unseen):
    model = fitted(name)
    plain = model.to_sklearn()
    np.testing.assert_allclose(
        outputs(plain, unseen), outputs(model, unseen), rtol=1e-9
    )
    assert plain.predict(unseen).tolist() == pytest.approx(
        model.predict(unseen).tolist()
    )


def test_a_plain_model_of_arrays_is_a_logistic_regression(data):
    table, score, sex = data
    X = table[["age", "hours"]].to_numpy()
    model = FairLogisticRegression(fairness_weight=1.0)
    model.fit(X, two(score), sensitive_features=sex)
    plain = model.to_sklearn()
    assert type(plain).__name__ == "LogisticRegression"
    np.testing.assert_allclose(plain.predict_proba(X), model.predict_proba(X))


def test_whole_numbers_with_gaps_are_the_levels_of_training(data):
    table, score, sex = data
    codes = table[["age"]].assign(code=table["code"].where(table["code"] != 5))
    model = FairLogisticRegression(**OPTIONS)
    model.fit(codes, two(score), sensitive_features=sex)
    plain = model.to_sklearn()
    np.testing.assert_allclose(plain.predict_proba(codes), model.predict_proba(codes))


@pytest.mark.parametrize("name", LINEAR)
def test_a_plain_model_predicts_where_fferm_is_not_installed(
    name, fitted, unseen, tmp_path
):
    model = fitted(name)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model.to_sklearn()))
    unseen.to_pickle(tmp_path / "rows.pkl")
    code = """
import pickle, sys
sys.modules["fferm"] = None  # as if it were not installed
import numpy as np, pandas as pd
model = pickle.load(open(sys.argv[1] + "/model.pkl", "rb"))
rows = pd.read_pickle(sys.argv[1] + "/rows.pkl")
np.save(sys.argv[1] + "/out.npy", getattr(model, "predict_proba", model.predict)(rows))
assert not [name for name in sys.modules if name.startswith("fferm.")]
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    found = np.load(tmp_path / "out.npy")
    np.testing.assert_allclose(found, outputs(model, unseen), rtol=1e-9)


def test_skops_holds_the_plain_model(fitted, unseen, tmp_path):
    skops = pytest.importorskip("skops.io")
    plain = fitted("linear").to_sklearn()
    skops.dump(plain, tmp_path / "model.skops")
    kinds = skops.get_untrusted_types(file=tmp_path / "model.skops")
    assert all(not kind.startswith("fferm") for kind in kinds)
    loaded = skops.load(tmp_path / "model.skops", trusted=kinds)
    np.testing.assert_allclose(
        loaded.predict_proba(unseen), fitted("linear").predict_proba(unseen), rtol=1e-9
    )


def test_a_network_for_numbers_has_no_plain_model(fitted):
    with pytest.raises(InvalidInputError, match=r"fferm\.export\.onnx"):
        fitted("regressor, a network").to_sklearn()


@pytest.mark.parametrize("name", ["linear", "regressor"])
def test_a_model_card_has_the_audit_in_it(name, fitted, data, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    table, score, sex = data
    model, target = fitted(name), MODELS[name][1]
    found = audit(model, table, target(score), sensitive_features=sex)
    export.model_card(model, found, tmp_path / "README.md", limitations="Only a test.")
    card = hub.ModelCard.load(tmp_path / "README.md")
    assert card.data.eval_results[0].metric_value == pytest.approx(found.violation)
    assert str(found) in card.text
    assert "Only a test." in card.text
