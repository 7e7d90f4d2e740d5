"""Every estimator takes a table as it is, and gives the labels back."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest

import fferm
from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairNetClassifier,
    FairRegressor,
    tradeoff_curve,
)
from fferm.data.frame import FrameEncoder
from fferm.errors import (
    ColumnHint,
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
)

N_ROWS = 240


def make_table(seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 80, N_ROWS).astype(float),
            "city": rng.choice(["Rome", "Oslo", "Bonn"], N_ROWS),
            "member": rng.random(N_ROWS) < 0.5,
            "grade": pd.Categorical(rng.choice(["a", "b"], N_ROWS)),
            "group": rng.choice(["f", "m"], N_ROWS),
        }
    )
    score = table["age"] / 30 + (table["group"] == "m") + rng.normal(size=N_ROWS)
    table.loc[::9, "age"] = np.nan
    table.loc[::11, "city"] = None
    return table, score


TABLE, SCORE = make_table()
LABELS = pd.Series(np.where(SCORE > 2.2, "yes", "no"), name="granted")
MODELS = {
    "linear": FairLogisticRegression(),
    "linear in minibatches": FairLogisticRegression(solver="sgda", random_state=0),
    "net": FairNetClassifier(hidden=(8,), max_epochs=20, random_state=0),
    "trees": FairBoostingClassifier(n_estimators=10, n_jobs=1),
}
LIBRARIES = {
    "pandas": lambda table: table,
    "polars": pl.from_pandas,
    "pyarrow": lambda table: pl.from_pandas(table).to_arrow(),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", MODELS)
def test_a_raw_table_goes_in_and_its_labels_come_out(name, library, tmp_path):
    model, table = MODELS[name], LIBRARIES[library](TABLE)
    model.fit(table, LABELS, sensitive_features=TABLE[["group"]])
    predicted = model.predict(table)
    assert set(predicted) == {"yes", "no"}
    assert model.feature_names_in_.tolist() == list(TABLE.columns)
    assert (model.target_name_, model.sensitive_names_) == ("granted", ("group",))
    fferm.save(model, tmp_path / "model")
    loaded = fferm.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(table), predicted)
    np.testing.assert_array_equal(loaded.predict(TABLE), predicted)


@pytest.mark.parametrize(
    "labels",
    [
        LABELS,
        LABELS == "yes",
        (LABELS == "yes").astype(int),
        (LABELS == "yes").astype(float),
        (LABELS == "yes").astype("Int64"),
        LABELS.astype("category"),
        pl.Series(LABELS),
        LABELS.tolist(),
        (LABELS == "yes").astype(object),
        (LABELS == "yes").astype(int).to_numpy(dtype=object),
    ],
    ids=[
        *("text", "bool", "int", "float", "Int64", "category", "polars", "list"),
        *("objects", "array of objects"),
    ],
)
def test_labels_of_every_kind_come_back_as_they_were(labels):
    model = FairLogisticRegression()
    model.fit(TABLE, labels, sensitive_features=TABLE["group"])
    predicted = model.predict(TABLE)
    assert set(predicted.tolist()) == set(labels)
    assert {type(label) for label in predicted.tolist()} == {
        type(getattr(label, "item", lambda label=label: label)()) for label in labels
    }


def test_a_regressor_takes_a_raw_table():
    model = FairRegressor(fairness_weight=1)
    model.fit(TABLE, SCORE, sensitive_features=TABLE["group"])
    assert model.score(TABLE, SCORE) > 0.3
    assert model.predict(pl.from_pandas(TABLE)) == pytest.approx(model.predict(TABLE))


@pytest.mark.parametrize("name", MODELS)
def test_a_table_whose_columns_are_numbered_is_saved_and_predicted(name, tmp_path):
    table = TABLE.set_axis([5, 3, 1, 2, 0], axis=1)
    model = MODELS[name].fit(table, LABELS, sensitive_features=TABLE["group"])
    assert model.n_features_in_ == 5
    fferm.save(model, tmp_path / "model")
    predicted = fferm.load(tmp_path / "model").predict(table)
    np.testing.assert_array_equal(predicted, model.predict(table))
    if name != "trees":  # which read text in data frames only
        np.testing.assert_array_equal(model.predict(table.to_numpy()), predicted)


def test_pieces_of_a_table_follow_a_fit_that_learned_its_columns():
    rows = {"y": LABELS, "sensitive_features": TABLE["group"]}
    model = FairLogisticRegression(random_state=0)
    with pytest.raises(InvalidInputError, match="city, grade, group holds none"):
        model.partial_fit(TABLE, **rows, classes=["no", "yes"])
    model.fit(TABLE, **rows).partial_fit(TABLE, **rows)
    assert model.score(TABLE, LABELS) > 0.6


def test_a_row_of_weight_two_teaches_the_encoding_as_two_rows_do():
    times = np.arange(N_ROWS) % 4
    twice = TABLE.loc[TABLE.index.repeat(times)]
    expected = FrameEncoder().fit(twice).columns_
    for found, column in zip(
        FrameEncoder().fit(TABLE, sample_weight=times).columns_, expected, strict=True
    ):
        for key, value in column.items():
            is_number = isinstance(value, float)
            assert found[key] == (pytest.approx(value) if is_number else value)


def test_coefficients_are_named_by_the_encoder():
    model = FairLogisticRegression()
    model.fit(TABLE, LABELS, sensitive_features=TABLE["group"])
    names = model.encoder_.get_feature_names_out()
    assert model.coef_.shape == (1, len(names))
    assert "city=Oslo" in names


def test_an_array_after_a_table_forgets_the_encoding():
    model = FairLogisticRegression()
    model.fit(TABLE, LABELS, sensitive_features=TABLE["group"])
    ages = TABLE[["age"]].fillna(0).to_numpy()
    model.fit(ages, LABELS, sensitive_features=TABLE["group"])
    assert not hasattr(model, "encoder_")


def test_columns_that_look_like_codes_are_named_once():
    table = TABLE.assign(state=np.arange(N_ROWS) % 9 + 1)
    rows = {"y": LABELS, "sensitive_features": TABLE["group"]}
    for model in (FairLogisticRegression(max_violation=0.5), MODELS["trees"]):
        with pytest.warns(ColumnHint, match=r"read as numbers: state\. .*'state'") as w:
            model.fit(table, **rows)
        assert sum(issubclass(each.category, ColumnHint) for each in w) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnHint)
        FairLogisticRegression(categorical=[]).fit(table, **rows)
        model = FairLogisticRegression(categorical=["state"]).fit(table, **rows)
    assert "state=9" in model.encoder_.get_feature_names_out()


@pytest.mark.parametrize("name", ["id", "Person_ID", "Unnamed: 0"])
def test_numbers_of_rows_are_told_to_be_dropped(name):
    table = TABLE.assign(**{name: np.arange(N_ROWS), "fluid": np.arange(N_ROWS)})
    with pytest.warns(ColumnHint, match=rf"as numbers: {name}\. Drop them\."):
        MODELS["linear"].fit(table, LABELS, sensitive_features=TABLE["group"])


@pytest.mark.parametrize("name", ["linear", "trees"])
@pytest.mark.parametrize(
    ("column", "words", "error"),
    [
        (
            pd.date_range("2020", periods=N_ROWS),
            "contains dates.*age in",
            InvalidTypeError,
        ),
        (
            [f"a note on case {i}" for i in range(N_ROWS)],
            "'new' has 240 distinct",
            InvalidInputError,
        ),
        ([[1]] * N_ROWS, "values of type list", InvalidInputError),
        (
            [f"2024-01-{i % 28 + 1}" for i in range(N_ROWS)],
            "new contains dates",
            InvalidTypeError,
        ),
        (np.full(N_ROWS, 1j), "not supported: column 'new'", InvalidInputError),
    ],
    ids=["dates", "free text", "lists", "dates as text", "complex numbers"],
)
def test_columns_that_cannot_be_read_are_refused_by_name(name, column, words, error):
    table = TABLE.assign(new=column)
    with pytest.raises(error, match=words):
        MODELS[name].fit(table, LABELS, sensitive_features=TABLE["group"])


def test_rows_that_are_not_there_yet_or_have_gaps_are_refused_with_advice():
    rows = {"y": LABELS, "sensitive_features": TABLE["group"]}
    for fit in (FairLogisticRegression().fit, partial(tradeoff_curve, MODELS["trees"])):
        with pytest.raises(InvalidTypeError, match=r"Pass X.collect\(\)"):
            fit(pl.from_pandas(TABLE).lazy(), **rows)
    with pytest.raises(InvalidInputError, match="pass a data frame, whose gaps are f"):
        FairLogisticRegression().fit(TABLE[["age"]].to_numpy(), **rows)


@pytest.mark.parametrize(
    ("X", "categorical", "words"),
    [
        (TABLE, ["City"], "Unknown column 'City'.*Did you mean 'city'"),
        (TABLE, "city", r"must be a list of columns; got 'city'. Pass \['city'\]"),
        (np.ones((N_ROWS, 2)), ["city"], "names columns of a data frame; X is a ndarr"),
    ],
)
def test_categorical_must_name_columns(X, categorical, words):
    model = FairLogisticRegression(categorical=categorical)
    with pytest.raises(InvalidParameterError, match=words):
        model.fit(X, LABELS, sensitive_features=TABLE["group"])
