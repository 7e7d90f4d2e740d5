"""fferm inside scikit-learn: pipelines, searches, routing, frames of all kinds."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fferm import FairLogisticRegression
from fferm.datasets import load_german, make_biased
from fferm.metrics import violation


@pytest.fixture(scope="module")
def data():
    return make_biased(600, bias=1.0, random_state=0)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def fitted(data, **parameters):
    model = FairLogisticRegression(**parameters)
    return model.fit(data.X, data.y, sensitive_features=data.sensitive_features)


def test_sensitive_features_are_routed_through_a_pipeline(data, routing):
    fair = FairLogisticRegression(fairness_weight=30.0)
    pipeline = make_pipeline(
        StandardScaler(), fair.set_fit_request(sensitive_features=True)
    )
    pipeline.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(data.X, data.y)
    gap = [
        violation(
            data.y_test,
            model.predict(data.X_test),
            sensitive_features=data.sensitive_features_test,
        )
        for model in (pipeline, plain)
    ]
    assert gap[0] < gap[1] / 2


def test_a_grid_search_routes_sensitive_features_to_fit_and_score(data, routing):
    fairness = make_scorer(violation, greater_is_better=False)
    fairness.set_score_request(sensitive_features=True)
    search = GridSearchCV(
        FairLogisticRegression().set_fit_request(sensitive_features=True),
        {"fairness_weight": [0.0, 1.0, 100.0], "divergence": ["kl", "chi2"]},
        scoring={"violation": fairness, "accuracy": "accuracy"},
        refit="violation",
        cv=3,
    )
    search.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    assert search.best_params_["fairness_weight"] == 100.0
    scores = pd.DataFrame(search.cv_results_)
    by_weight = scores.groupby("param_fairness_weight")["mean_test_violation"].mean()
    assert by_weight[100.0] > by_weight[0.0]  # scores are negated violations


def test_cross_validation_routes_sample_weight_too(data, routing):
    model = FairLogisticRegression()
    model.set_fit_request(sensitive_features=True, sample_weight=True)
    model.set_score_request(sample_weight=True)
    scores = cross_validate(
        model,
        data.X,
        data.y,
        params={
            "sensitive_features": data.sensitive_features,
            "sample_weight": np.ones(len(data.y)),
        },
        cv=3,
    )
    assert np.all(scores["test_score"] > 0.5)


def test_everything_that_partial_fit_takes_can_be_routed(data, routing):
    model = FairLogisticRegression(fairness_weight=1.0, random_state=0)
    taken = ("classes", "groups", "sensitive_features", "sample_weight")
    model.set_partial_fit_request(**dict.fromkeys(taken, True))
    requests = model.get_metadata_routing().partial_fit.requests
    assert requests == dict.fromkeys(taken, True)
    # Who hands classes on by itself wants them not requested.
    model.set_partial_fit_request(classes=None, sample_weight=None)
    y, given = (
        np.column_stack([data.y, 1 - data.y]),
        {"sensitive_features": data.sensitive_features, "groups": {"0": 1, "1": 1}},
    )
    both = MultiOutputClassifier(model)
    both.partial_fit(data.X, y, classes=[[0, 1], [0, 1]], **given)
    alone = clone(model).partial_fit(data.X, data.y, classes=[0, 1], **given)
    np.testing.assert_array_equal(both.estimators_[0].coef_, alone.coef_)


def test_raw_columns_of_a_frame_go_through_a_column_transformer():
    german = load_german()
    words = german.frame.select_dtypes(exclude="number").columns.tolist()
    numbers = german.frame.select_dtypes("number").columns.tolist()
    pipeline = make_pipeline(
        make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), words), (StandardScaler(), numbers)
        ),
        FairLogisticRegression(),
    )
    pipeline.fit(
        german.frame,
        german.y,
        fairlogisticregression__sensitive_features=german.sensitive_features,
    )
    assert pipeline.score(german.frame_test, german.y_test) > 0.7


FRAMES = {
    "numpy": lambda X: X,
    "pandas": lambda X: pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]),
    "polars": lambda X: pl.DataFrame(X, schema=[f"x{j}" for j in range(X.shape[1])]),
    "csr array": scipy.sparse.csr_array,
    "csr matrix": scipy.sparse.csr_matrix,
    "csc": scipy.sparse.csc_array,
    "list": lambda X: X.tolist(),
    "single precision": lambda X: X.astype(np.float32).astype(np.float64),
    "fortran order": np.asfortranarray,
}


@pytest.mark.parametrize("kind", FRAMES)
def test_the_same_features_in_any_form_give_the_same_model(kind, data):
    X = data.X.astype(np.float32).astype(np.float64)
    reference = FairLogisticRegression().fit(
        X, data.y, sensitive_features=data.sensitive_features
    )
    model = FairLogisticRegression().fit(
        FRAMES[kind](X), data.y, sensitive_features=data.sensitive_features
    )
    # Sums run in another order in sparse products, so not to the last bit.
    np.testing.assert_allclose(model.coef_, reference.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(
        model.predict(FRAMES[kind](data.X_test)), reference.predict(data.X_test)
    )


def test_column_names_are_kept_and_checked(data):
    frame = pd.DataFrame(data.X, columns=[f"x{j}" for j in range(data.X.shape[1])])
    model = FairLogisticRegression().fit(
        frame, data.y, sensitive_features=data.sensitive_features
    )
    assert list(model.feature_names_in_) == list(frame.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"x0": "z"}))


GROUPS = {
    "frame": lambda s: s,
    "series": lambda s: s.iloc[:, 0],
    "list": lambda s: s.iloc[:, 0].tolist(),
    "array": lambda s: s.iloc[:, 0].to_numpy(),
    "column": lambda s: s.to_numpy(),
    "dict": lambda s: {"g": s.iloc[:, 0].to_numpy()},
    "polars": lambda s: pl.DataFrame(s.to_dict("list")),
    "polars series": lambda s: pl.Series("g", s.iloc[:, 0].tolist()),
    "arrow": lambda s: pa.table(s.to_dict("list")),
    "category": lambda s: s.iloc[:, 0].astype("category"),
}


@pytest.mark.parametrize("kind", GROUPS)
def test_the_same_groups_in_any_form_give_the_same_model(kind, data):
    reference = fitted(data)
    model = FairLogisticRegression().fit(
        data.X, data.y, sensitive_features=GROUPS[kind](data.sensitive_features)
    )
    np.testing.assert_array_equal(model.coef_, reference.coef_)
    assert model.groups_.tolist() == reference.groups_.tolist()


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [-1, 1], [5.0, 7.0]])
def test_labels_of_any_kind_come_out_as_they_went_in(labels, data):
    y = np.array(labels)[data.y]
    model = FairLogisticRegression().fit(
        data.X, y, sensitive_features=data.sensitive_features
    )
    assert model.classes_.tolist() == labels
    assert set(model.predict(data.X).tolist()) <= set(labels)
    np.testing.assert_array_equal(model.coef_, fitted(data).coef_)


def test_cloning_and_pickling_keep_everything(data):
    model = fitted(data, divergence="chi2", fairness_weight=3.0)
    again = clone(model)
    assert again.get_params() == model.get_params()
    assert not hasattr(again, "coef_")
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        back.predict_proba(data.X), model.predict_proba(data.X)
    )


def test_fit_changes_no_parameter(data):
    model = FairLogisticRegression(divergence="chi2")
    before = dict(model.get_params())
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    assert model.get_params() == before
