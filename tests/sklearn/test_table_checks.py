"""scikit-learn's own checks on tables, with no expected failures."""

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks
from test_estimator_checks import (
    FEW_TREES,
    SMALL_NET,
    GroupsFromFeatures,
    TreesWithGroupsFromFeatures,
)
from test_regressor_checks import GroupsFromFeatures as NumbersWithGroupsFromFeatures

from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairNetClassifier,
    FairRegressor,
)


def as_table(X):
    """Return a matrix as a table whose last column is text; all else unchanged.

    Each row's text depends on that row alone, as its numbers do.
    """
    matrix = X
    if not isinstance(X, pd.DataFrame):
        matrix = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        if matrix.ndim != 2 or 0 in matrix.shape:
            return X
    table = pd.DataFrame(matrix).infer_objects()
    last = table.columns[-1]
    if len(table.columns) > 1 and table[last].dtype.kind == "f":
        table[last] = table[last].round().map("about {:g}".format, na_action="ignore")
    return table


class OnTables:
    """A model that turns the arrays of the checks into tables."""

    def fit(self, X, y, *, sensitive_features=None, sample_weight=None):
        return super().fit(
            as_table(X),
            y,
            sensitive_features=sensitive_features,
            sample_weight=sample_weight,
        )

    def predict(self, X):
        return super().predict(self.read(X))

    def read(self, X):
        """Return rows in the form of training: partial_fit may start at an array."""
        is_table = hasattr(self, "encoder_") or hasattr(self, "categorical_")
        return as_table(X) if is_table else X

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = True
        return tags


class ClassesOnTables:
    """A classifier on tables."""

    def decision_function(self, X):
        return super().decision_function(self.read(X))


class PiecesOnTables:
    """A model that goes on with pieces of a table where it began with a table."""

    def partial_fit(self, X, y, **rows):
        return super().partial_fit(self.read(X), y, **rows)


class Linear(
    GroupsFromFeatures,
    PiecesOnTables,
    ClassesOnTables,
    OnTables,
    FairLogisticRegression,
):
    """The linear model on tables."""


class Network(ClassesOnTables, OnTables, FairNetClassifier):
    """A network on tables."""


class Trees(
    TreesWithGroupsFromFeatures, ClassesOnTables, OnTables, FairBoostingClassifier
):
    """Trees on tables."""


class Regressor(NumbersWithGroupsFromFeatures, OnTables, FairRegressor):
    """The regressor on tables."""


@pytest.mark.filterwarnings(
    # The checks fit on a handful of rows; that their groups are tiny is no news.
    "ignore::fferm.errors.DataFairnessWarning",
    "ignore::fferm.errors.CollapseWarning",
)
@parametrize_with_checks(
    [
        Linear(fairness_weight=0.1),
        Trees(fairness_weight=0.1, **FEW_TREES),
        Regressor(fairness_weight=0.1),
        Network(**SMALL_NET.get_params()),
    ]
)
def test_every_scikit_learn_check_passes_on_tables(estimator, check):
    check(estimator)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_the_encoder_gives_tables_of_the_library_that_is_asked_for(library):
    table = pd.DataFrame({"age": [30.0, None, 50.0], "city": ["A", "B", "A"]})
    model = FairLogisticRegression(fairness_weight=0).fit(table, [0, 1, 1])
    encoded = model.encoder_.set_output(transform=library).transform(table)
    assert type(encoded).__module__.split(".")[0] == library
    assert list(encoded.columns) == model.encoder_.get_feature_names_out().tolist()
    assert model.n_features_in_ == len(model.feature_names_in_) == 2
    assert model.predict(table).shape == (3,)
