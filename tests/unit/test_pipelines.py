"""A pipeline that ends in a fair estimator works wherever an estimator does."""

import hashlib
import json
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    QuantileTransformer,
    StandardScaler,
)

import fferm
from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairNetClassifier,
    FairRegressor,
    TradeoffCurve,
    tradeoff_curve,
)
from fferm.errors import InvalidParameterError, PersistenceError
from fferm.tuning import CrossValidation, tune

N_ROWS = 200


def make_rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "age": rng.normal(40, 12, N_ROWS),
            "pay": rng.lognormal(size=N_ROWS),
            "city": rng.choice(["Rome", "Oslo"], N_ROWS),
        }
    )
    group = pd.Series(rng.choice(["f", "m"], N_ROWS), name="sex")
    y = (X["age"] > 38 + 4 * (group == "m") + rng.normal(0, 6, N_ROWS)).astype(int)
    X.loc[::8, "age"] = np.nan
    return {"X": X, "y": y, "sensitive_features": group}


ROWS = make_rows()
MIXED = make_column_transformer(
    (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "pay"]),
    (OneHotEncoder(handle_unknown="ignore"), ["city"]),
)


def test_a_curve_and_a_tuning_end_in_fitted_pipelines(tmp_path):
    pipeline = make_pipeline(MIXED, FairLogisticRegression())
    curve = tradeoff_curve(
        {"linear": pipeline, "trees": FairBoostingClassifier(n_estimators=5, n_jobs=1)},
        **ROWS,
        fairness_weights=[0.0, 1.0],
        records=tmp_path,
    )
    chosen = curve.models["linear", 1.0, 0]
    assert set(chosen.predict(ROWS["X"])) == {0, 1}
    again = TradeoffCurve.load(tmp_path).models["linear", 1.0, 0]
    np.testing.assert_array_equal(
        again.predict_proba(ROWS["X"]), chosen.predict_proba(ROWS["X"])
    )
    assert curve.audits["linear", 1.0, 0].n_rows == N_ROWS // 4
    assert "make_pipeline(ColumnTransformer(" in curve.descriptions["linear"]["code"]
    tuned = tune(
        pipeline,
        **ROWS,
        max_violation=0.5,
        divergences=["kl"],
        fairness_weights=2,
        validation=CrossValidation(2),
    )
    assert fferm.audit(tuned.estimator, **ROWS).n_rows == N_ROWS


def test_the_steps_of_a_pipeline_are_fitted_on_the_training_rows_of_a_split():
    X = ROWS["X"][["pay"]]
    held = X.index[::4]
    spoiled = X.copy()
    spoiled.loc[held] = 1e6
    scales = []
    for table in (X, spoiled):
        parts = [
            {name: rows.loc[kept] for name, rows in {**ROWS, "X": table}.items()}
            for kept in (X.index.difference(held), held)
        ]
        curve = tradeoff_curve(
            make_pipeline(StandardScaler(), FairLogisticRegression()),
            **parts[0],
            test=parts[1],
            fairness_weights=[1.0],
        )
        scales.append(curve.models[1.0, 0][0].scale_)
    np.testing.assert_array_equal(*scales)


STEPS = {
    "mixed columns": MIXED,
    "selected by type": make_column_transformer(
        (SimpleImputer(), make_column_selector(dtype_include="number")),
        ("drop", ["city"]),
    ),
    "left as they are": make_column_transformer(
        (OrdinalEncoder(), ["city"]),
        (SimpleImputer(), ["age"]),
        remainder="passthrough",
    ),
}
NUMERIC = {
    "quantiles": QuantileTransformer(n_quantiles=20),
    "bins": KBinsDiscretizer(4, quantile_method="averaged_inverted_cdf"),
    "components": PCA(2),
    "selected": SelectKBest(k=2),
    "no function": FunctionTransformer(),
}


@pytest.mark.parametrize("name", [*STEPS, *NUMERIC])
def test_a_pipeline_is_saved_without_pickle(name, tmp_path):
    X = ROWS["X"] if name in STEPS else ROWS["X"][["age", "pay"]].fillna(30.0)
    steps = {**STEPS, **NUMERIC}[name], FunctionTransformer()
    model = make_pipeline(*steps, FairLogisticRegression())
    model.fit(
        X,
        ROWS["y"],
        fairlogisticregression__sensitive_features=ROWS["sensitive_features"],
    )
    fferm.save(model, tmp_path / "model")
    loaded = fferm.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


LEVELS = np.array(["Oslo", "Rome", None, "Oslo"] * 4, dtype=object)[:, None]
ONE_HOT = {
    "plain": {"handle_unknown": "ignore"},
    "first left out": {"drop": "first"},
    "rare together": {"min_frequency": 5, "handle_unknown": "infrequent_if_exist"},
}
# Each would make the encoder write beyond its memory.
FORGED = {
    "a level twice": ("plain", {"categories_": [LEVELS[:4, 0]]}),
    "numbers in disorder": ("plain", {"categories_": [np.array([3.0, 1.0, 2.0])]}),
    "fewer columns": ("plain", {"_n_features_outs": [1]}),
    "levels by number": ("plain", {"categories_": {0: LEVELS[:9, 0]}}),
    "levels of another table": ("plain", {"categories_": [LEVELS[:3, 0]] * 2}),
    "none left out": (
        "first left out",
        {"_drop_idx_after_grouping": np.array([7], dtype=object)},
    ),
    "a place beyond the last": (
        "rare together",
        {"_default_to_infrequent_mappings": [np.array([7, 7, 7])]},
    ),
}


@pytest.mark.parametrize("name", [*ONE_HOT, *FORGED])
def test_an_encoder_whose_codes_lie_beyond_its_columns_is_refused(name, tmp_path):
    options, changes = FORGED.get(name, (name, {}))
    model = make_pipeline(
        OneHotEncoder(**ONE_HOT[options]), FairLogisticRegression(fairness_weight=0)
    ).fit(LEVELS, [0, 1, 1, 0] * 4)
    expected = model.predict_proba(LEVELS)
    vars(model[0]).update(changes)
    fferm.save(model, tmp_path / "model")
    if changes:
        with pytest.raises(PersistenceError):
            fferm.load(tmp_path / "model")
    else:
        loaded = fferm.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict_proba(LEVELS), expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda steps: steps.pop(),
        lambda steps: steps[-1]["@tuple"][1]["@estimator"].update(learned={}),
    ],
    ids=["no model", "not fitted"],
)
def test_a_file_of_a_pipeline_that_cannot_predict_is_refused(change, tmp_path):
    model = make_pipeline(StandardScaler(), FairRegressor(fairness_weight=0))
    model.fit(ROWS["X"][["pay"]], ROWS["y"])
    fferm.save(model, tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "model") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files["manifest.json"])
    change(manifest["parameters"]["steps"]["@list"])
    text = json.dumps(manifest).encode()
    files["manifest.json"] = text
    files["manifest.json.sha256"] = hashlib.sha256(text).hexdigest().encode()
    with zipfile.ZipFile(tmp_path / "model", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    with pytest.raises(PersistenceError, match="does not hold a fitted model"):
        fferm.load(tmp_path / "model")


def test_a_function_inside_a_pipeline_is_refused_by_name(tmp_path):
    model = make_pipeline(FunctionTransformer(np.log), FairRegressor(fairness_weight=0))
    model.fit(ROWS["X"][["pay"]], ROWS["y"])
    with pytest.raises(
        PersistenceError, match=r"steps.*func is a ufunc, which a saved"
    ):
        fferm.save(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_the_module_of_a_network_in_a_pipeline_is_passed_to_load(tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.Linear(2, 2)
    network = FairNetClassifier(
        module=module, max_epochs=1, fairness_weight=0, device="cpu"
    )
    X = ROWS["X"][["age", "pay"]].fillna(30.0)
    model = make_pipeline(StandardScaler(), network).fit(X, ROWS["y"])
    fferm.save(model, tmp_path / "model")
    loaded = fferm.load(tmp_path / "model", module=torch.nn.Linear(2, 2))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_a_pipeline_without_a_fair_end_is_refused():
    for ask in (tradeoff_curve, lambda *a, **k: tune(*a, **k, max_violation=0.1)):
        with pytest.raises(InvalidParameterError, match="got StandardScaler"):
            ask(make_pipeline(PCA(1), StandardScaler()), **ROWS)
