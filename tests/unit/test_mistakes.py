"""A hundred mistakes that people make in Python, and the exact line that answers each.

A line says what must hold, what was passed and how to mend it. `MISTAKES` is made for
reading: what is wrong, the call, the class of the error, the line.
"""

import datetime
import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fferm
from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairNetClassifier,
    FairRegressor,
    GroupCounts,
    LargeShift,
    SmallShift,
    TradeoffCurve,
    audit,
    audit_regression,
    boosting_objective,
    datasets,
    errors,
    metrics,
    tables,
    tradeoff_curve,
)
from fferm.data.groups import quantile_bands
from fferm.notions import ConditionalParity, EqualOpportunity
from fferm.torch import DualSteps, FairnessLoss, SemiStochasticFairnessLoss
from fferm.tuning import CrossValidation, TargetSample, tune

N = 120
RNG = np.random.default_rng(0)
SEX = np.array(["f", "m"] * (N // 2))
X = pd.DataFrame(
    {
        "age": RNG.normal(40, 10, N).round(1),
        "income": RNG.normal(0, 1, N) + (SEX == "m"),
        "city": RNG.choice(["Bergen", "Oslo"], N),
    }
)
Y = np.where(X["income"] + RNG.normal(0, 1, N) > 0.5, "yes", "no")
NUMBERS = X["income"].to_numpy() * 3 + RNG.normal(0, 1, N)
ARRAY = X[["age", "income"]].to_numpy()
CODE = (Y == "yes").astype(int)
DAYS = pd.date_range("2020-01-01", periods=N)
NO_VALUE = np.full(N, None)
LINEAR = FairLogisticRegression()


def fit(kind=FairLogisticRegression, **changed):
    """Fit a model; what is changed is a parameter or a part of the data."""
    data = {"X": X, "y": NUMBERS if kind is FairRegressor else Y}
    data |= {"sensitive_features": SEX, "sample_weight": None, "penalty_data": None}
    data |= {name: changed.pop(name) for name in data.keys() & changed.keys()}
    return kind(**changed).fit(**data)


def partial(model=None, **changed):
    """Train on one batch; what is changed is an argument."""
    data = {"X": ARRAY, "y": Y, "classes": ["no", "yes"], "sensitive_features": SEX}
    return (model or FairLogisticRegression()).partial_fit(**{**data, **changed})


def judge(**changed):
    """Audit decisions; what is changed is an argument."""
    data = {"y_true": Y, "y_pred": Y, "sensitive_features": SEX, "n_bootstrap": 0}
    return audit(**{**data, **changed})


def sweep(estimator=LINEAR, **changed):
    """Draw a curve; what is changed is an argument."""
    data = {"X": X, "y": Y, "sensitive_features": SEX, "fairness_weights": [0, 1]}
    return tradeoff_curve(estimator, **{**data, **changed})


def search(estimator=LINEAR, **changed):
    """Tune a model; what is changed is an argument."""
    data = {"X": X, "y": Y, "sensitive_features": SEX, "fairness_weights": [1.0]}
    data |= {"divergences": ["kl"], "max_violation": 0.5}
    return tune(estimator, **{**data, **changed})


@cache
def fitted():
    return fit()


@cache
def fitted_on_arrays():
    return fit(X=ARRAY)


@cache
def swept():
    return sweep()


@cache
def loss():
    return FairnessLoss.from_labels(CODE, SEX)


def written(name, content=b"none of ours"):
    """Write a file of the user's and return its name."""
    Path(name).write_bytes(content)
    return name


def changed_model():
    fferm.save(fitted(), "users.fferm")
    content = Path("users.fferm").read_bytes()
    return written("users.fferm", content.replace(b"Fair", b"Fear", 1))


# What is wrong, the call, and the answer: the class of the error and its line.
MISTAKES = [
    # Raw tables
    (
        "a column of dates",
        lambda: fit(X=X.assign(born=DAYS)),
        errors.InvalidTypeError,
        "born contains dates. Turn them into numbers that mean something, such as "
        "an age in years, or drop the column.",
    ),
    (
        "a column of date objects",
        lambda: fit(X=X.assign(born=[datetime.date(2020, 1, 1)] * N)),
        errors.InvalidTypeError,
        "born contains dates. Turn them into numbers that mean something, such as "
        "an age in years, or drop the column.",
    ),
    (
        "a polars column of dates",
        lambda: fit(X=pl.DataFrame(X.assign(born=DAYS))),
        errors.InvalidTypeError,
        "born contains dates. Turn them into numbers that mean something, such as "
        "an age in years, or drop the column.",
    ),
    (
        "a pyarrow column of lists",
        lambda: fit(X=pa.table({"n": [[1], [2]] * (N // 2), "age": X["age"]})),
        errors.InvalidInputError,
        "Column 'n' contains values of type ndarray. Columns must hold numbers, "
        "text, categories or booleans; drop this one.",
    ),
    (
        "a column of lists",
        lambda: fit(X=X.assign(tags=[["a"], ["b"]] * (N // 2))),
        errors.InvalidInputError,
        "Column 'tags' contains values of type list. Columns must hold numbers, "
        "text, categories or booleans; drop this one.",
    ),
    (
        "free text",
        lambda: fit(
            X=X.assign(note=[f"a letter of person {i} to us" for i in range(N)])
        ),
        errors.InvalidInputError,
        "Column 'note' has 120 distinct texts in 120 rows, so it is free text and "
        "not a category. Drop the column, or turn it into categories or numbers.",
    ),
    (
        "complex numbers",
        lambda: fit(X=X.assign(wave=1j * NUMBERS)),
        errors.InvalidInputError,
        "Complex data not supported: column 'wave'. Pass its real and imaginary parts "
        "as two columns.",
    ),
    (
        "an unknown name in categorical",
        lambda: fit(categorical=["town"]),
        errors.InvalidParameterError,
        "categorical: Unknown column 'town'. Known: age, income, city.",
    ),
    (
        "a misspelled name in categorical",
        lambda: fit(categorical=["citty"]),
        errors.InvalidParameterError,
        "categorical: Unknown column 'citty'. Did you mean 'city'? Known: age, "
        "income, city.",
    ),
    (
        "a text as categorical",
        lambda: fit(categorical="city"),
        errors.InvalidParameterError,
        "categorical must be a list of columns; got 'city'. Pass ['city'].",
    ),
    (
        "categorical names of an array",
        lambda: fit(X=ARRAY, categorical=["city"]),
        errors.InvalidParameterError,
        "categorical names columns of a data frame; X is a ndarray. Pass a data frame.",
    ),
    (
        "a number as categorical",
        lambda: fit(categorical=3),
        errors.InvalidParameterError,
        "categorical must be a list of columns; got 3. Pass [3].",
    ),
    (
        "two columns of one name",
        lambda: fit(X=pd.concat([X, X[["age"]]], axis=1)),
        errors.InvalidInputError,
        "Two columns of X share a name, 'age'. Rename one, or leave it out.",
    ),
    (
        "a table without columns",
        lambda: fit(X=X[[]]),
        errors.InvalidInputError,
        "X must have rows and columns; got shape (120, 0).",
    ),
    (
        "a table without rows",
        lambda: fit(X=X[:0], y=Y[:0], sensitive_features=SEX[:0]),
        errors.InvalidInputError,
        "X must have rows and columns; got shape (0, 3).",
    ),
    (
        "only constant columns",
        lambda: fit(X=pd.DataFrame({"a": [1] * N, "b": ["x"] * N})),
        errors.InvalidInputError,
        "No column to predict from: a, b each have one value, or a different text "
        "in every row. Pass other columns.",
    ),
    (
        "infinity in a table",
        lambda: fit(X=X.assign(age=np.inf)),
        errors.InvalidInputError,
        "Column 'age' contains infinity, or numbers above 1e+100. Correct them, or "
        "leave them empty.",
    ),
    (
        "infinity in an array",
        lambda: fit(X=np.abs(ARRAY) * np.inf),
        errors.InvalidInputError,
        "Input X contains infinity or a value too large for dtype('float64'). Pass "
        "finite numbers.",
    ),
    (
        "a gap in an array",
        lambda: fit(X=np.where(ARRAY > 50, np.nan, ARRAY)),
        errors.InvalidInputError,
        "X has missing values (Input X contains NaN). Fill them in, or pass a data "
        "frame, whose gaps are filled.",
    ),
    (
        "text in an array",
        lambda: fit(X=X.to_numpy()),
        errors.InvalidInputError,
        "could not convert string to float: 'Bergen'. An array must be numeric; "
        "pass a data frame, whose text is read as categories.",
    ),
    (
        "one feature as a flat array",
        lambda: fit(X=ARRAY[:, 0]),
        errors.InvalidInputError,
        "X must be a data frame, or an array of shape (n_samples, n_features); got "
        "one axis. Reshape your data: X.reshape(-1, 1) if it is one feature, "
        "X.reshape(1, -1) if it is one row.",
    ),
    (
        "no X",
        lambda: fit(X=None),
        errors.InvalidInputError,
        "X must be a data frame, or an array of shape (n_samples, n_features); got "
        "a single value.",
    ),
    (
        "the name of a file as X",
        lambda: fit(X="loans.csv"),
        errors.InvalidInputError,
        "could not convert string to float: 'loans.csv'. An array must be numeric; "
        "pass a data frame, whose text is read as categories.",
    ),
    (
        "a lazy frame",
        lambda: fit(X=pl.LazyFrame(X)),
        errors.InvalidTypeError,
        "X must be a table in memory; got a lazy one. Pass X.collect().",
    ),
    (
        "text for numbers at predict",
        lambda: fitted().predict(X.assign(age="old")),
        errors.InvalidInputError,
        "Column 'age' contains 'old'. It must hold numbers, as in training; correct"
        " the data, or train again.",
    ),
    (
        "dates for numbers at predict",
        lambda: fitted().predict(X.assign(age=DAYS)),
        errors.InvalidTypeError,
        "age contains dates. Turn them into numbers that mean something, such as an"
        " age in years, or drop the column.",
    ),
    (
        "an array of other width at predict",
        lambda: fitted_on_arrays().predict(ARRAY[:, :1]),
        errors.InvalidInputError,
        "X has 1 features, but FairLogisticRegression is expecting 2 features as "
        "input. Pass the columns of training.",
    ),
    (
        "predict before fit",
        lambda: FairLogisticRegression().predict(X),
        errors.NotFittedError,
        "This FairLogisticRegression instance is not fitted yet. Call 'fit' with "
        "appropriate arguments before using this estimator.",
    ),
    (
        "probabilities before fit of trees",
        lambda: FairBoostingClassifier().predict_proba(X),
        errors.NotFittedError,
        "This FairBoostingClassifier instance is not fitted yet. Call 'fit' with "
        "appropriate arguments before using this estimator.",
    ),
    (
        "predict before fit of a network",
        lambda: FairNetClassifier().predict(X),
        errors.NotFittedError,
        "This FairNetClassifier instance is not fitted yet. Call 'fit' with "
        "appropriate arguments before using this estimator.",
    ),
    (
        "predict before fit of a regressor",
        lambda: FairRegressor().predict(X),
        errors.NotFittedError,
        "This FairRegressor instance is not fitted yet. Call 'fit' with appropriate"
        " arguments before using this estimator.",
    ),
    (
        "nothing to predict",
        lambda: fitted_on_arrays().predict(None),
        errors.InvalidInputError,
        "X must be a data frame, or an array of shape (n_samples, n_features); got "
        "a single value.",
    ),
    (
        "codes of categories below 0 for trees",
        lambda: fit(FairBoostingClassifier, X=ARRAY, categorical=[0]),
        errors.InvalidInputError,
        "Column 0 of categorical must hold integers of at least 0, or NaN. Pass a "
        "data frame for categories of text.",
    ),
    (
        "a column beyond the array for trees",
        lambda: fit(FairBoostingClassifier, X=ARRAY, categorical=[7]),
        errors.InvalidParameterError,
        "categorical must be columns of X, positions below 2; got 7.",
    ),
    (
        "an intercept in words",
        lambda: fit(fit_intercept="no"),
        errors.InvalidParameterError,
        "fit_intercept must be True or False; got 'no'.",
    ),
    # Labels
    (
        "labels of one class",
        lambda: fit(y=["yes"] * N),
        errors.InvalidInputError,
        "y has only one class, 'yes' (1 class). A classifier needs at least two; "
        "check the labels and the weights.",
    ),
    (
        "no labels",
        lambda: fit(y=None),
        errors.InvalidInputError,
        "y should be a 1d array, got an array of shape () instead. Pass one label, "
        "or one number, per row.",
    ),
    (
        "a missing label",
        lambda: fit(y=[None, *Y[1:]]),
        errors.InvalidInputError,
        "Unknown label type: y has missing labels, or mixes numbers and strings. "
        "Labels must be all numbers or all strings, one in every row.",
    ),
    (
        "a missing number as label",
        lambda: fit(y=np.where(CODE, 1, np.nan)),
        errors.InvalidInputError,
        "y has missing values (Input y contains NaN). Every row needs one; drop the"
        " rows without it.",
    ),
    (
        "labels of numbers and text",
        lambda: fit(y=[1, "a"] * (N // 2)),
        errors.InvalidInputError,
        "Unknown label type: y has missing labels, or mixes numbers and strings. "
        "Labels must be all numbers or all strings, one in every row.",
    ),
    (
        "numbers for a classifier",
        lambda: fit(y=NUMBERS),
        errors.InvalidInputError,
        "Unknown label type: y holds 120 numbers such as -10.4628. To predict "
        "numbers use FairRegressor.",
    ),
    (
        "identifiers as labels",
        lambda: fit(y=np.arange(N)),
        errors.InvalidInputError,
        "y has 120 classes in 120 rows. To predict numbers use FairRegressor; drop "
        "identifiers, and merge rare classes.",
    ),
    (
        "text for a regressor",
        lambda: fit(FairRegressor, y=Y),
        errors.InvalidInputError,
        "y contains non-numeric values (could not convert string to float: 'yes'). "
        "FairRegressor needs a numeric target; for labels use a classifier, such as"
        " FairLogisticRegression.",
    ),
    (
        "a gap in numbers for a regressor",
        lambda: fit(FairRegressor, y=np.where(CODE, NUMBERS, np.nan)),
        errors.InvalidInputError,
        "y has missing values (Input y contains NaN). Every row needs one; drop the"
        " rows without it.",
    ),
    (
        "dates for a regressor",
        lambda: fit(FairRegressor, y=DAYS),
        errors.InvalidTypeError,
        "y contains dates. Turn them into numbers that mean something, such as an "
        "age in years, or drop the column.",
    ),
    (
        "labels of fewer rows",
        lambda: fit(y=Y[:100]),
        errors.InvalidInputError,
        "Found input variables with inconsistent numbers of samples: [120, 100]. X "
        "and y must have as many rows: pass one label, or one number, per row of X.",
    ),
    (
        "labels of fewer rows than an array",
        lambda: fit(X=ARRAY, y=Y[:100]),
        errors.InvalidInputError,
        "Found input variables with inconsistent numbers of samples: [120, 100]. X "
        "and y must have as many rows: pass one label, or one number, per row of X.",
    ),
    (
        "labels in two columns",
        lambda: fit(y=np.column_stack([CODE, CODE])),
        errors.InvalidInputError,
        "y should be a 1d array, got an array of shape (120, 2) instead. Pass one "
        "label, or one number, per row.",
    ),
    (
        "labels as the name of a column",
        lambda: fit(y="granted"),
        errors.InvalidInputError,
        "y should be a 1d array, got an array of shape () instead. Pass one label, "
        "or one number, per row.",
    ),
    (
        "numbers for trees",
        lambda: fit(FairBoostingClassifier, y=NUMBERS),
        errors.InvalidInputError,
        "Unknown label type: y holds 120 numbers such as -10.4628. To predict "
        "numbers use FairRegressor.",
    ),
    (
        "numbers for a network",
        lambda: fit(FairNetClassifier, y=NUMBERS),
        errors.InvalidInputError,
        "Unknown label type: y holds 120 numbers such as -10.4628. To predict "
        "numbers use FairRegressor.",
    ),
    # Sensitive features
    (
        "no sensitive features",
        lambda: fit(sensitive_features=None),
        errors.MissingSensitiveError,
        "fairness_weight=10.0 needs sensitive_features. Pass them to fit, or set "
        "fairness_weight=0 and max_violation=None.",
    ),
    (
        "no sensitive features under a bound",
        lambda: fit(sensitive_features=None, max_violation=0.1),
        errors.MissingSensitiveError,
        "max_violation=0.1 needs sensitive_features. Pass them to fit, or set "
        "fairness_weight=0 and max_violation=None.",
    ),
    (
        "sensitive features of fewer rows",
        lambda: fit(sensitive_features=SEX[:100]),
        errors.InvalidInputError,
        "sensitive_features: group has 100 values for 120 rows. Pass one value per "
        "row: the values, not the names of columns.",
    ),
    (
        "a column's name instead of values",
        lambda: fit(sensitive_features="sex"),
        errors.InvalidInputError,
        "sensitive_features must hold one value per row (a list, an array, a column"
        " of a data frame, or a dict of these); got 'sex'.",
    ),
    (
        "columns' names instead of values",
        lambda: fit(sensitive_features=["sex", "race"]),
        errors.InvalidInputError,
        "sensitive_features: group has 2 values for 120 rows. Pass one value per "
        "row: the values, not the names of columns.",
    ),
    (
        "one group",
        lambda: fit(sensitive_features=["f"] * N),
        errors.InvalidInputError,
        "No part of the data holds two groups, so there is nothing to be fair "
        "between. Check sensitive_features, or set fairness_weight=0.",
    ),
    (
        "every group missing",
        lambda: fit(sensitive_features=NO_VALUE),
        errors.InvalidInputError,
        "No part of the data holds two groups, so there is nothing to be fair "
        "between. Check sensitive_features, or set fairness_weight=0.",
    ),
    (
        "numbers that identify rows",
        lambda: fit(sensitive_features=np.arange(N)),
        errors.InvalidInputError,
        "group makes 120 groups of 120 rows, so it identifies rows. Use a column of"
        " fewer values, or fferm.data.groups.quantile_bands(values).",
    ),
    (
        "names that identify rows",
        lambda: fit(sensitive_features=[f"p{i}" for i in range(N)]),
        errors.InvalidInputError,
        "group makes 120 groups of 120 rows, so it identifies rows. Use a column of"
        " fewer values, or fferm.data.groups.quantile_bands(values).",
    ),
    (
        "a dict of columns of other lengths",
        lambda: fit(sensitive_features={"sex": SEX, "race": SEX[:3]}),
        errors.InvalidInputError,
        "sensitive_features: race has 3 values for 120 rows. Pass one value per "
        "row: the values, not the names of columns.",
    ),
    (
        "an empty dict of columns",
        lambda: fit(sensitive_features={}),
        errors.InvalidInputError,
        "sensitive_features has no columns. Pass at least one.",
    ),
    (
        "groups of infinity",
        lambda: fit(sensitive_features=np.where(CODE, np.inf, 0.5)),
        errors.InvalidInputError,
        "group contains infinity. Groups must be strings, integers or booleans.",
    ),
    (
        "groups of lists",
        lambda: fit(sensitive_features=pd.Series([["f"], ["m"]] * (N // 2))),
        errors.InvalidInputError,
        "group must hold strings, numbers or booleans (unhashable type: 'list').",
    ),
    (
        "groups of three axes",
        lambda: fit(sensitive_features=np.zeros((N, 1, 1))),
        errors.InvalidInputError,
        "sensitive_features must have shape (n,) or (n, a); got (120, 1, 1).",
    ),
    (
        "groups in another order of the index",
        lambda: fit(sensitive_features=pd.Series(SEX)[::-1]),
        errors.InvalidInputError,
        "X and sensitive_features have the same index in another order, and rows "
        "are matched by position. Reorder one: sensitive_features.loc[X.index].",
    ),
    (
        "groups that are all smaller than asked for",
        lambda: fit(min_group_size=100),
        errors.InvalidInputError,
        "No part of the data holds two groups, so there is nothing to be fair "
        "between. Check sensitive_features, or set fairness_weight=0.",
    ),
    (
        "bands of a column that is not there",
        lambda: fit(continuous=["age"]),
        errors.InvalidParameterError,
        "continuous must be 'auto' or a list of sensitive columns, group; got ['age'].",
    ),
    (
        "bands of words",
        lambda: fit(sensitive_features=pd.DataFrame({"sex": SEX}), continuous=["sex"]),
        errors.InvalidInputError,
        "sex contains non-numeric values, which have no bands (Unable to parse "
        "string 'f' at position 0).",
    ),
    (
        "an unknown mode of groups",
        lambda: fit(groups="joint"),
        errors.InvalidParameterError,
        "groups must be 'intersection' or 'marginal'; got 'joint'.",
    ),
    # Weights
    (
        "a negative weight",
        lambda: fit(sample_weight=-np.ones(N)),
        errors.InvalidInputError,
        "sample_weight must hold one non-negative weight per row, (120,), finite "
        "and not only zeros; got -1.",
    ),
    (
        "a missing weight",
        lambda: fit(sample_weight=np.where(CODE, np.nan, 1)),
        errors.InvalidInputError,
        "sample_weight must hold one non-negative weight per row, (120,), finite "
        "and not only zeros; got nan.",
    ),
    (
        "weights of fewer rows",
        lambda: fit(sample_weight=np.ones(3)),
        errors.InvalidInputError,
        "sample_weight must hold one non-negative weight per row, (120,), finite "
        "and not only zeros; got shape (3,).",
    ),
    (
        "weights of words",
        lambda: fit(sample_weight=["a"] * N),
        errors.InvalidInputError,
        "sample_weight must be non-negative numbers, one per row (could not convert"
        " string to float: 'a').",
    ),
    (
        "weights of zero",
        lambda: fit(sample_weight=np.zeros(N)),
        errors.InvalidInputError,
        "sample_weight must hold one non-negative weight per row, (120,), finite "
        "and not only zeros; got only zeros.",
    ),
    (
        "weights of zero of an array",
        lambda: fit(X=ARRAY, sample_weight=np.zeros(N)),
        errors.InvalidInputError,
        "sample_weight must hold one non-negative weight per row, (120,), finite "
        "and not only zeros; got only zeros.",
    ),
    (
        "a negative weight beside an array",
        lambda: fit(X=ARRAY, sample_weight=-np.ones(N)),
        errors.InvalidInputError,
        "sample_weight must hold one non-negative weight per row, (120,), finite "
        "and not only zeros; got -1.",
    ),
    (
        "a missing weight beside an array",
        lambda: fit(X=ARRAY, sample_weight=np.where(CODE, np.nan, 1)),
        errors.InvalidInputError,
        "sample_weight must hold one non-negative weight per row, (120,), finite "
        "and not only zeros; got nan.",
    ),
    (
        "a name as weights",
        lambda: fit(sample_weight="balanced"),
        errors.InvalidInputError,
        "sample_weight must be non-negative numbers, one per row (could not convert"
        " string to float: 'balanced').",
    ),
    (
        "weights of two columns",
        lambda: fit(sample_weight=np.ones((N, 2))),
        errors.InvalidInputError,
        "sample_weight must hold one non-negative weight per row, (120,), finite "
        "and not only zeros; got shape (120, 2).",
    ),
    # Parameters
    (
        "an unknown divergence",
        lambda: fit(divergence="klx"),
        errors.UnknownNameError,
        "Unknown divergence 'klx'. Did you mean 'kl'? Known: affine, alpha, chi2, "
        "jensen_shannon, kl, linear_tail, reverse_kl, squared_hellinger, "
        "total_variation.",
    ),
    (
        "another unknown divergence",
        lambda: fit(divergence="wasserstein"),
        errors.UnknownNameError,
        "Unknown divergence 'wasserstein'. Known: affine, alpha, chi2, "
        "jensen_shannon, kl, linear_tail, reverse_kl, squared_hellinger, "
        "total_variation.",
    ),
    (
        "a divergence that is no name",
        lambda: fit(divergence=2),
        errors.InvalidParameterError,
        "divergence must be a name or an instance; got 2. Known names: affine, "
        "alpha, chi2, jensen_shannon, kl, linear_tail, reverse_kl, "
        "squared_hellinger, total_variation.",
    ),
    (
        "an unknown notion",
        lambda: fit(notion="demographic_party"),
        errors.UnknownNameError,
        "Unknown notion 'demographic_party'. Did you mean 'demographic_parity'? "
        "Known: conditional_parity, demographic_parity, equal_opportunity, "
        "equalized_odds, false_positive_rate_parity, predictive_parity, "
        "sufficiency.",
    ),
    (
        "a notion that is a class",
        lambda: fit(notion=EqualOpportunity),
        errors.InvalidParameterError,
        "notion must be a name or an instance; got <class "
        "'fferm.notions.EqualOpportunity'>. Known names: conditional_parity, "
        "demographic_parity, equal_opportunity, equalized_odds, "
        "false_positive_rate_parity, predictive_parity, sufficiency.",
    ),
    (
        "a notion without its control",
        lambda: fit(notion="conditional_parity"),
        errors.InvalidParameterError,
        "'conditional_parity' needs parameters. In Python pass "
        "ConditionalParity(control=...).",
    ),
    (
        "a control that is no column",
        lambda: fit(notion=ConditionalParity("shoe")),
        errors.InvalidParameterError,
        "The control feature 'shoe' is not a column of X. Columns: age, income, city.",
    ),
    (
        "a control of fewer rows",
        lambda: fit(notion=ConditionalParity([1, 2])),
        errors.InvalidInputError,
        "The control feature has 2 values for 120 rows. Name a column of X instead:"
        " ConditionalParity('department').",
    ),
    (
        "a positive label that is none",
        lambda: fit(notion=EqualOpportunity(positive="maybe")),
        errors.InvalidParameterError,
        "The notion names the class 'maybe', which the labels do not have. Classes:"
        " 'no', 'yes'.",
    ),
    (
        "a notion of labels for a regressor",
        lambda: fit(FairRegressor, notion="equalized_odds"),
        errors.InvalidParameterError,
        "notion='equalized_odds' conditions on a label; y is numeric. Use "
        "ConditionalParity(pandas.qcut(y, 5, labels=False)).",
    ),
    (
        "an unknown solver",
        lambda: fit(solver="adam"),
        errors.UnknownNameError,
        "Unknown solver 'adam'. Did you mean 'sgda'? Known: auto, lbfgs, "
        "semi_stochastic, sgda, sreda.",
    ),
    (
        "a solver of others for a regressor",
        lambda: fit(FairRegressor, solver="sreda"),
        errors.InvalidParameterError,
        "solver must be 'auto', 'lbfgs' or 'sgda'; got 'sreda'.",
    ),
    (
        "an unknown solver for a network",
        lambda: fit(FairNetClassifier, solver="lbfgs"),
        errors.InvalidParameterError,
        "solver must be 'auto', 'sgda' or 'semi_stochastic'; got 'lbfgs'.",
    ),
    (
        "a negative fairness weight",
        lambda: fit(fairness_weight=-1),
        errors.InvalidParameterError,
        "fairness_weight must be a finite number of at least 0, or None; got -1.",
    ),
    (
        "a fairness weight in words",
        lambda: fit(fairness_weight="high"),
        errors.InvalidParameterError,
        "fairness_weight must be a finite number of at least 0, or None; got 'high'.",
    ),
    (
        "a fairness weight that is none",
        lambda: fit(fairness_weight=np.nan),
        errors.InvalidParameterError,
        "fairness_weight must be a finite number of at least 0, or None; got nan.",
    ),
    (
        "a bound above 1",
        lambda: fit(max_violation=5),
        errors.InvalidParameterError,
        "max_violation must be between 0 and 1, or None; got 5.",
    ),
    (
        "a bound in percent as text",
        lambda: fit(max_violation="5%"),
        errors.InvalidParameterError,
        "max_violation must be between 0 and 1, or None; got '5%'.",
    ),
    (
        "a negative bound for a regressor",
        lambda: fit(FairRegressor, max_violation=-0.1),
        errors.InvalidParameterError,
        "max_violation must be a finite number of at least 0, or None; got -0.1.",
    ),
    (
        "a validation fraction of 1",
        lambda: fit(validation_fraction=1.0),
        errors.InvalidParameterError,
        "validation_fraction must be above 0 and below 1; got 1.0.",
    ),
    (
        "a validation fraction in percent",
        lambda: fit(validation_fraction=20),
        errors.InvalidParameterError,
        "validation_fraction must be above 0 and below 1; got 20.",
    ),
    (
        "a negative l2",
        lambda: fit(l2=-1.0),
        errors.InvalidParameterError,
        "l2 must be a finite number of at least 0; got -1.0.",
    ),
    (
        "a sharpness of 0",
        lambda: fit(sharpness=0),
        errors.InvalidParameterError,
        "sharpness must be a finite number above 0; got 0.",
    ),
    (
        "a tolerance of 0",
        lambda: fit(tol=0),
        errors.InvalidParameterError,
        "tol must be a finite number above 0; got 0.",
    ),
    (
        "no iterations",
        lambda: fit(max_iter=0),
        errors.InvalidParameterError,
        "max_iter must be an integer of at least 1; got 0.",
    ),
    (
        "half an iteration",
        lambda: fit(max_iter=0.5),
        errors.InvalidParameterError,
        "max_iter must be an integer of at least 1; got 0.5.",
    ),
    (
        "a seed in words",
        lambda: fit(random_state="seed"),
        errors.InvalidParameterError,
        "random_state must be an integer between 0 and 4294967295, a RandomState, "
        "or None; got 'seed'.",
    ),
    (
        "a negative seed",
        lambda: fit(random_state=-1),
        errors.InvalidParameterError,
        "random_state must be an integer between 0 and 4294967295, a RandomState, "
        "or None; got -1.",
    ),
    (
        "a radius as uncertainty",
        lambda: fit(uncertainty=0.1),
        errors.InvalidParameterError,
        "uncertainty must be None or a set such as LargeShift(radius) of "
        "fferm.uncertainty; got 0.1.",
    ),
    (
        "a negative radius",
        lambda: SmallShift(-0.1),
        errors.InvalidParameterError,
        "radius of SmallShift must be a finite number of at least 0; got -0.1. It "
        "is a distance between probabilities; 0.01 to 0.1 is common.",
    ),
    (
        "a radius in words",
        lambda: LargeShift("big"),
        errors.InvalidParameterError,
        "radius of LargeShift must be a finite number of at least 0 and at most 1; "
        "got 'big'. It is a distance between probabilities; 0.01 to 0.1 is common.",
    ),
    (
        "an unknown mode of a shift",
        lambda: LargeShift(0.1, mode="worst"),
        errors.InvalidParameterError,
        "mode of LargeShift must be one of 'corners', 'paper', 'simplex', "
        "'coupled'; got 'worst'.",
    ),
    (
        "a small shift of total variation",
        lambda: fit(divergence="total_variation", uncertainty=SmallShift(0.1)),
        errors.InvalidParameterError,
        "SmallShift differentiates the dual, and total_variation has none but a "
        "sign. Use LargeShift, or a smooth divergence.",
    ),
    (
        "a group size of 0",
        lambda: fit(min_group_size=0),
        errors.InvalidParameterError,
        "min_group_size must be an integer of at least 1; got 0.",
    ),
    (
        "early stopping of lbfgs",
        lambda: fit(solver="lbfgs", early_stopping="training"),
        errors.InvalidParameterError,
        "solver='lbfgs' has no early_stopping. Use solver='sgda'.",
    ),
    (
        "early stopping as a flag",
        lambda: fit(early_stopping=True),
        errors.InvalidParameterError,
        "early_stopping must be None, 'training' or 'validation'; got True.",
    ),
    (
        "an unknown dual",
        lambda: fit(dual="none"),
        errors.InvalidParameterError,
        "dual must be 'auto', 'log_ratio', 'plain' or 'projected'; got 'none'.",
    ),
    (
        "confidence in words",
        lambda: fit(max_violation=0.1, confidence="high"),
        errors.InvalidParameterError,
        "confidence must be at least 0.5 and below 1, or None; got 'high'.",
    ),
    (
        "confidence in percent",
        lambda: fit(max_violation=0.1, confidence=95),
        errors.InvalidParameterError,
        "confidence must be at least 0.5 and below 1, or None; got 95.",
    ),
    (
        "refit in words",
        lambda: fit(refit="yes"),
        errors.InvalidParameterError,
        "refit must be True or False; got 'yes'.",
    ),
    (
        "automatic divergence for trees",
        lambda: fit(FairBoostingClassifier, divergence="auto"),
        errors.InvalidParameterError,
        "divergence='auto' is supported by FairLogisticRegression.fit only. Name a "
        "divergence, or choose one with fferm.tuning.tune.",
    ),
    (
        "other features at a warm start",
        lambda: (
            fit(X=ARRAY, warm_start=True)
            .set_params()
            .fit(ARRAY[:, :1], Y, sensitive_features=SEX)
        ),
        errors.InvalidInputError,
        "warm_start needs the features and classes of the last fit, 2 and ['no', "
        "'yes']; got 1 and ['no', 'yes']. Set warm_start=False.",
    ),
    (
        "penalty data that are no tuple",
        lambda: fit(penalty_data=X),
        errors.InvalidParameterError,
        "penalty_data must be (X, sensitive_features) or (X, sensitive_features, "
        "y); got DataFrame.",
    ),
    (
        "penalty data of four parts",
        lambda: fit(sensitive_features=None, penalty_data=(X, SEX, Y, Y)),
        errors.InvalidParameterError,
        "penalty_data must be (X, sensitive_features) or (X, sensitive_features, "
        "y); got tuple of 4.",
    ),
    (
        "penalty data with other labels",
        lambda: fit(sensitive_features=None, penalty_data=(X, SEX, ["maybe"] * N)),
        errors.InvalidInputError,
        "penalty_data's y contains the label 'maybe', which is not among the "
        "classes 'no', 'yes'.",
    ),
    (
        "penalty data without labels",
        lambda: fit(
            sensitive_features=None, notion="equalized_odds", penalty_data=(X, SEX)
        ),
        errors.InvalidInputError,
        "This notion of fairness conditions on the label, and the penalty rows have"
        " none. Give penalty_data=(X, s, y), or use demographic parity.",
    ),
    # Nets, trees, regressors
    (
        "widths as a number",
        lambda: fit(FairNetClassifier, hidden=64),
        errors.InvalidParameterError,
        "hidden must be a list of widths, such as (64, 64); got 64.",
    ),
    (
        "a width of 0",
        lambda: fit(FairNetClassifier, hidden=[64, 0]),
        errors.InvalidParameterError,
        "hidden must be an integer of at least 1; got 0.",
    ),
    (
        "an unknown optimizer",
        lambda: fit(FairNetClassifier, optimizer="adan"),
        errors.InvalidParameterError,
        "optimizer must be 'adam', 'adamw', 'sgd', or a function of the parameters;"
        " got 'adan'.",
    ),
    (
        "an unknown schedule",
        lambda: fit(FairNetClassifier, schedule="step"),
        errors.InvalidParameterError,
        "schedule must be 'constant', 'cosine', 'linear', or a function of the "
        "share of the run that is over; got 'step'.",
    ),
    (
        "an unknown device",
        lambda: fit(FairNetClassifier, device="gpu"),
        errors.InvalidParameterError,
        "device must be 'auto', 'cpu' or 'cuda', because the dual needs double "
        "precision; got 'gpu'.",
    ),
    (
        "an unknown dtype",
        lambda: fit(FairNetClassifier, dtype="float16"),
        errors.InvalidParameterError,
        "dtype must be 'auto', 'float32' or 'float64'; got 'float16'.",
    ),
    (
        "a class weight for no class",
        lambda: fit(FairNetClassifier, class_weight={"maybe": 2}),
        errors.InvalidParameterError,
        "class_weight must be None, 'balanced' or a dict from labels of y, ['no', "
        "'yes'], to weights, one of them positive; got {'maybe': 2}.",
    ),
    (
        "class weights in words",
        lambda: fit(FairNetClassifier, class_weight="balance"),
        errors.InvalidParameterError,
        "class_weight must be None, 'balanced' or a dict from labels of y, ['no', "
        "'yes'], to weights, one of them positive; got 'balance'.",
    ),
    (
        "one callback",
        lambda: fit(FairNetClassifier, callbacks=print),
        errors.InvalidTypeError,
        "callbacks must be a list of functions of a record; got <built-in function "
        "print>.",
    ),
    (
        "a module that is none",
        lambda: fit(FairNetClassifier, module="mlp"),
        errors.InvalidTypeError,
        "module must be None, a torch.nn.Module, or a function that makes one from "
        "(n_features, n_classes); got str.",
    ),
    (
        "a module with other outputs",
        lambda: fit(FairNetClassifier, X=ARRAY, module=torch.nn.Linear(2, 5)),
        errors.InvalidInputError,
        "Outputs must have shape (n, 2) or (n,): there are 2 classes; got (2, 5).",
    ),
    (
        "a frozen module",
        lambda: fit(FairNetClassifier, X=ARRAY, module=torch.nn.Flatten()),
        errors.InvalidParameterError,
        "Flatten has nothing to train: unfreeze some parameters.",
    ),
    (
        "a batch of 0 rows",
        lambda: fit(FairNetClassifier, batch_size=0),
        errors.InvalidParameterError,
        "batch_size must be an integer of at least 1; got 0.",
    ),
    (
        "a critic of sufficiency",
        lambda: fit(FairNetClassifier, method="critic", notion="sufficiency"),
        errors.InvalidParameterError,
        "method='critic' does not support uncertainty, sufficiency or "
        "solver='semi_stochastic'. Use method='bins' with these.",
    ),
    (
        "LightGBM's own name of a parameter",
        lambda: fit(FairBoostingClassifier, lightgbm_params={"num_leaves": 4}),
        errors.InvalidParameterError,
        "lightgbm_params must not contain 'num_leaves': use num_leaves of the "
        "estimator.",
    ),
    (
        "a parameter that LightGBM does not know",
        lambda: fit(FairBoostingClassifier, lightgbm_params={"max_bun": 3}),
        errors.UnknownNameError,
        "lightgbm_params has 'max_bun', which LightGBM does not know. Did you mean "
        "'max_bin'? Correct it, or leave it out.",
    ),
    (
        "an objective for trees",
        lambda: fit(FairBoostingClassifier, lightgbm_params={"objective": "binary"}),
        errors.InvalidParameterError,
        "lightgbm_params must not contain 'objective': the objective is that of fferm.",
    ),
    (
        "LightGBM's parameters as a list",
        lambda: fit(FairBoostingClassifier, lightgbm_params=[("max_bin", 3)]),
        errors.InvalidParameterError,
        "lightgbm_params must be a dict of parameters of LightGBM by name, such as "
        "{'max_bin': 63}, or None; got [('max_bin', 3)].",
    ),
    (
        "one leaf",
        lambda: fit(FairBoostingClassifier, num_leaves=1),
        errors.InvalidParameterError,
        "num_leaves must be an integer of at least 2; got 1.",
    ),
    (
        "a share of rows of 0",
        lambda: fit(FairBoostingClassifier, subsample=0),
        errors.InvalidParameterError,
        "subsample must be above 0 and at most 1; got 0.",
    ),
    (
        "all processors as -1",
        lambda: fit(FairBoostingClassifier, n_jobs=-1),
        errors.InvalidParameterError,
        "n_jobs must be an integer of at least 1, or None; got -1.",
    ),
    (
        "an unknown loss",
        lambda: fit(FairRegressor, loss="absolut"),
        errors.UnknownNameError,
        "Unknown loss 'absolut'. Did you mean 'absolute'? Known: absolute, huber, "
        "quantile, squared.",
    ),
    (
        "an unknown measure",
        lambda: fit(FairRegressor, violation_metric="ks", max_violation=0.1),
        errors.UnknownNameError,
        "Unknown measure 'ks'. Known: correlation, distance_correlation, "
        "f_information, kolmogorov_smirnov, maximal_correlation, mean_gap, "
        "wasserstein.",
    ),
    (
        "a measure of numbers by groups",
        lambda: fit(
            FairRegressor,
            violation_metric="correlation",
            max_violation=0.1,
            confidence=None,
        ),
        errors.InvalidInputError,
        "correlation needs a numeric sensitive column; there is none. Use one of "
        "kolmogorov_smirnov, wasserstein, mean_gap.",
    ),
    (
        "a measure without a test",
        lambda: fit(FairRegressor, violation_metric="correlation", max_violation=0.1),
        errors.InvalidParameterError,
        "confidence must be None with 'correlation', which has no test that keeps its "
        "level; got 0.95. Or use one of kolmogorov_smirnov, wasserstein, mean_gap.",
    ),
    (
        "one bin",
        lambda: fit(FairRegressor, n_bins=1),
        errors.InvalidParameterError,
        "n_bins must be an integer of at least 2; got 1.",
    ),
    (
        "trees and groups of fewer rows",
        lambda: boosting_objective(CODE, SEX[:5]),
        errors.InvalidInputError,
        "sensitive_features: group has 5 values for 120 rows. Pass one value per "
        "row: the values, not the names of columns.",
    ),
    (
        "one group for trees' objective",
        lambda: boosting_objective(CODE, ["f"] * N),
        errors.InvalidInputError,
        "No part of the data holds two groups, so there is nothing to be fair "
        "between. Check sensitive_features, or set fairness_weight=0.",
    ),
    # Audit
    (
        "an audit of nothing",
        lambda: audit(sensitive_features=SEX),
        errors.InvalidInputError,
        "audit needs a fitted model with X and y, or y_true with y_pred or y_prob.",
    ),
    (
        "an audit of labels alone",
        lambda: audit(y_true=Y, sensitive_features=SEX),
        errors.InvalidInputError,
        "audit needs a fitted model with X and y, or y_true with y_pred or y_prob.",
    ),
    (
        "an audit of a model and of predictions",
        lambda: audit(fitted(), X, Y, y_pred=Y, sensitive_features=SEX),
        errors.InvalidParameterError,
        "Pass a model with X and y, or y_true with y_pred or y_prob; got both.",
    ),
    (
        "an audit without groups",
        lambda: judge(sensitive_features=None),
        errors.InvalidInputError,
        "sensitive_features must hold one value per row (a list, an array, a column"
        " of a data frame, or a dict of these); got None.",
    ),
    (
        "an audit with groups of fewer rows",
        lambda: judge(sensitive_features=SEX[:9]),
        errors.InvalidInputError,
        "sensitive_features: group has 9 values for 120 rows. Pass one value per "
        "row: the values, not the names of columns.",
    ),
    (
        "an audit with predictions of fewer rows",
        lambda: judge(y_pred=Y[:9]),
        errors.InvalidInputError,
        "All tables must have the same number of rows, at least one; y_true has "
        "120, y_pred has 9.",
    ),
    (
        "an audit of an unknown notion",
        lambda: judge(notion="parity"),
        errors.UnknownNameError,
        "Unknown notion 'parity'. Did you mean 'predictive_parity'? Known: "
        "conditional_parity, demographic_parity, equal_opportunity, equalized_odds,"
        " false_positive_rate_parity, predictive_parity, sufficiency.",
    ),
    (
        "an audit of an unknown divergence",
        lambda: judge(divergence="kll"),
        errors.UnknownNameError,
        "Unknown divergence 'kll'. Did you mean 'kl'? Known: affine, alpha, chi2, "
        "jensen_shannon, kl, linear_tail, reverse_kl, squared_hellinger, "
        "total_variation.",
    ),
    (
        "an audit of probabilities above 1",
        lambda: judge(y_pred=None, y_prob=2.0 * np.ones(N)),
        errors.InvalidInputError,
        "prob has rows that are negative, missing or do not sum to 1. Pass "
        "probabilities; turn scores into them with a softmax first.",
    ),
    (
        "an audit of negative probabilities",
        lambda: judge(y_pred=None, y_prob=-np.ones(N)),
        errors.InvalidInputError,
        "prob has rows that are negative, missing or do not sum to 1. Pass "
        "probabilities; turn scores into them with a softmax first.",
    ),
    (
        "an audit of probabilities in words",
        lambda: judge(y_pred=None, y_prob=Y),
        errors.InvalidInputError,
        "y_prob must hold numbers between 0 and 1 (could not convert string to "
        "float: 'yes'). Pass labels as y_pred.",
    ),
    (
        "an audit of three columns of two classes",
        lambda: judge(y_pred=None, y_prob=np.ones((N, 3)) / 3),
        errors.InvalidInputError,
        "y_prob must have one column per class, ['no', 'yes'], in this order; got "
        "shape (120, 3).",
    ),
    (
        "an audit with other labels than predictions",
        lambda: judge(y_true=CODE),
        errors.InvalidInputError,
        "y_pred must hold labels of y_true, such as 1; got 'yes' and no label that "
        "both have. Pass other predictions.",
    ),
    (
        "an audit without labels where it needs them",
        lambda: judge(y_true=None, notion="equalized_odds"),
        errors.InvalidInputError,
        "equalized_odds conditions on the label, and there are no labels. Pass "
        "y_true, or use demographic_parity.",
    ),
    (
        "an audit of missing predictions",
        lambda: judge(y_pred=NO_VALUE),
        errors.InvalidInputError,
        "y has 120 missing labels. Drop those rows first.",
    ),
    (
        "an audit of confidence in percent",
        lambda: judge(confidence=95),
        errors.InvalidParameterError,
        "confidence must be above 0 and below 1; got 95.",
    ),
    (
        "an audit with half a draw",
        lambda: judge(n_bootstrap=0.5),
        errors.InvalidParameterError,
        "n_bootstrap must be an integer of at least 0; got 0.5.",
    ),
    (
        "an audit of an unfitted model",
        lambda: audit(FairLogisticRegression(), X, Y, sensitive_features=SEX),
        errors.NotFittedError,
        "This FairLogisticRegression instance is not fitted yet. Call 'fit' with "
        "appropriate arguments before using this estimator.",
    ),
    (
        "an audit of a text",
        lambda: audit("model.fferm", X, Y, sensitive_features=SEX),
        errors.InvalidTypeError,
        "estimator must be a fitted model with predict, a booster or a function; "
        "got str.",
    ),
    (
        "an audit of a class",
        lambda: audit(FairLogisticRegression, X, Y, sensitive_features=SEX),
        errors.InvalidTypeError,
        "estimator must be a fitted model with predict, a booster or a function; "
        "got the class itself, not FairLogisticRegression(...).",
    ),
    (
        "an audit of a model without X",
        lambda: audit(fitted(), sensitive_features=SEX),
        errors.InvalidInputError,
        "audit needs a fitted model with X and y, or y_true with y_pred or y_prob.",
    ),
    (
        "an audit of a model without y",
        lambda: audit(fitted(), X, sensitive_features=SEX, notion="equalized_odds"),
        errors.InvalidInputError,
        "equalized_odds conditions on the label, and there are no labels. Pass "
        "y_true, or use demographic_parity.",
    ),
    (
        "an audit by a bound above 1",
        lambda: judge().passes(2),
        errors.InvalidParameterError,
        "max_violation must be between 0 and 1; got 2.",
    ),
    (
        "an audit of no group",
        lambda: judge(sensitive_features=NO_VALUE),
        errors.InvalidInputError,
        "No row has a value of group, or every group is smaller than "
        "min_group_size, so there are no groups to compare. Check how "
        "sensitive_features was read, or leave that column out.",
    ),
    (
        "an audit of a classifier as a regressor",
        lambda: audit_regression(fitted(), X, Y, sensitive_features=SEX),
        errors.InvalidInputError,
        "The prediction contains non-numeric values (could not convert string to "
        "float: 'yes'). Pass one number per row.",
    ),
    (
        "an audit by an unknown measure",
        lambda: audit_regression(
            None, NUMBERS, NUMBERS, sensitive_features=SEX, metric="ks"
        ),
        errors.UnknownNameError,
        "Unknown measure 'ks'. Known: correlation, distance_correlation, "
        "f_information, kolmogorov_smirnov, maximal_correlation, mean_gap, "
        "wasserstein.",
    ),
    (
        "an audit of numbers of fewer rows",
        lambda: audit_regression(None, NUMBERS[:9], NUMBERS, sensitive_features=SEX),
        errors.InvalidInputError,
        "All tables must have the same number of rows, at least one; X has 9, y has"
        " 120, sensitive_features has 120, prediction has 9.",
    ),
    (
        "an audit of infinite numbers",
        lambda: audit_regression(
            None, NUMBERS * np.inf, NUMBERS, sensitive_features=SEX
        ),
        errors.InvalidInputError,
        "The prediction must hold one finite number per row; got shape (120,), or "
        "missing or infinite numbers.",
    ),
    (
        "an audit page in no folder",
        lambda: judge().to_html("nowhere/page.html"),
        errors.PersistenceError,
        "Cannot write nowhere/page.html (No such file or directory). Choose a file "
        "name in a folder that exists and is writable.",
    ),
    (
        "an audit of predictions of other labels",
        lambda: judge(y_pred=X["city"]),
        errors.InvalidInputError,
        "y_pred must hold labels of y_true, such as 'yes'; got 'Bergen' and no "
        "label that both have. Pass other predictions.",
    ),
    # Metrics
    (
        "decisions of fewer rows",
        lambda: metrics.violation(Y, Y[:9], sensitive_features=SEX),
        errors.InvalidInputError,
        "y_true has 120 labels for 9 rows. Pass one per row.",
    ),
    (
        "probabilities as decisions",
        lambda: metrics.violation(CODE, CODE * 0.3, sensitive_features=SEX),
        errors.InvalidInputError,
        "y_pred contains fractional numbers such as 0.3 instead of labels. Pass "
        "probabilities to soft_violation.",
    ),
    (
        "decisions of an unknown notion",
        lambda: metrics.violation(Y, Y, sensitive_features=SEX, notion="equal_odds"),
        errors.UnknownNameError,
        "Unknown notion 'equal_odds'. Did you mean 'equalized_odds'? Known: "
        "conditional_parity, demographic_parity, equal_opportunity, equalized_odds,"
        " false_positive_rate_parity, predictive_parity, sufficiency.",
    ),
    (
        "decisions in two columns",
        lambda: metrics.violation(Y, np.column_stack([Y, Y]), sensitive_features=SEX),
        errors.InvalidInputError,
        "y_pred must be one-dimensional, not empty; got shape (120, 2).",
    ),
    (
        "decisions of no row",
        lambda: metrics.violation([], [], sensitive_features=[]),
        errors.InvalidInputError,
        "y_pred must be one-dimensional, not empty; got shape (0,).",
    ),
    (
        "labels of text and decisions of numbers",
        lambda: metrics.violation(Y, CODE, sensitive_features=SEX),
        errors.InvalidInputError,
        "Labels must be all numbers or all strings, in y_true and y_pred alike; got"
        " 'no', 'yes', 0, 1.",
    ),
    (
        "probabilities that are scores",
        lambda: metrics.soft_violation(
            Y, ARRAY, sensitive_features=SEX, classes=["no", "yes"]
        ),
        errors.InvalidInputError,
        "prob has rows that are negative, missing or do not sum to 1. Pass "
        "probabilities; turn scores into them with a softmax first.",
    ),
    (
        "probabilities of another shape",
        lambda: metrics.soft_violation(
            Y, NUMBERS, sensitive_features=SEX, classes=["no", "yes"]
        ),
        errors.InvalidInputError,
        "prob must have shape (n_samples, 2); got (120,).",
    ),
    (
        "a weight for one row",
        lambda: metrics.violation(Y, Y, sensitive_features=SEX, sample_weight=[1]),
        errors.InvalidInputError,
        "sample_weight must hold one non-negative weight per row, (120,), finite "
        "and not only zeros; got shape (1,).",
    ),
    (
        "a table by group of words as weights",
        lambda: metrics.group_table(
            Y, Y, sensitive_features=SEX, sample_weight=["a"] * N
        ),
        errors.InvalidInputError,
        "sample_weight must be non-negative numbers, one per row (could not convert"
        " string to float: 'a').",
    ),
    (
        "a number of bands in words",
        lambda: quantile_bands(NUMBERS, "many"),
        errors.InvalidParameterError,
        "n_bands must be an integer of at least 2; got 'many'.",
    ),
    (
        "bands of words by hand",
        lambda: quantile_bands(SEX),
        errors.InvalidInputError,
        "values contains non-numeric values, which have no bands (Unable to parse "
        "string 'f' at position 0).",
    ),
    (
        "a table of one axis",
        lambda: tables.penalty([0.5, 0.5], "kl"),
        errors.InvalidInputError,
        "A table must hold non-negative probabilities, classes x groups or strata x"
        " classes x groups; got shape (2,), entries 0.5 to 0.5.",
    ),
    # Curves
    (
        "a curve of a plain model",
        lambda: sweep(LogisticRegression()),
        errors.InvalidParameterError,
        "tradeoff_curve needs a fair estimator such as FairRegressor(), a pipeline "
        "that ends in one, or several by name; got LogisticRegression.",
    ),
    (
        "a curve of a pipeline without a fair end",
        lambda: sweep(make_pipeline(StandardScaler(), LogisticRegression())),
        errors.InvalidParameterError,
        "tradeoff_curve needs a fair estimator such as FairRegressor(), a pipeline "
        "that ends in one, or several by name; got LogisticRegression.",
    ),
    (
        "a curve of no models",
        lambda: sweep({}),
        errors.InvalidParameterError,
        "tradeoff_curve needs a fair estimator such as FairRegressor(), a pipeline "
        "that ends in one, or several by name; got {}.",
    ),
    (
        "a curve of a class",
        lambda: sweep(FairLogisticRegression),
        errors.InvalidParameterError,
        "tradeoff_curve needs a fair estimator such as FairRegressor(), a pipeline "
        "that ends in one, or several by name; got the class itself, not "
        "FairLogisticRegression(...).",
    ),
    (
        "a curve of no weights",
        lambda: sweep(fairness_weights=[]),
        errors.InvalidParameterError,
        "fairness_weights must be a list of numbers, or how many; got [].",
    ),
    (
        "a curve of negative weights",
        lambda: sweep(fairness_weights=[-1, 1]),
        errors.InvalidParameterError,
        "fairness_weights must be a finite number of at least 0; got -1.",
    ),
    (
        "a curve of a weight in words",
        lambda: sweep(fairness_weights=["a"]),
        errors.InvalidParameterError,
        "fairness_weights must be a finite number of at least 0; got 'a'.",
    ),
    (
        "a curve of half a weight",
        lambda: sweep(fairness_weights=0.5),
        errors.InvalidParameterError,
        "fairness_weights must be a list of numbers, or how many; got 0.5.",
    ),
    (
        "a curve of no seeds",
        lambda: sweep(seeds=0),
        errors.InvalidParameterError,
        "seeds must be a list of integers of at least 0, or how many, at least one;"
        " got 0.",
    ),
    (
        "a curve of seeds in words",
        lambda: sweep(seeds="12"),
        errors.InvalidParameterError,
        "seeds must be a list of integers of at least 0, or how many, at least one;"
        " got '12'.",
    ),
    (
        "a curve of one divergence as text",
        lambda: sweep(divergences="kl"),
        errors.InvalidParameterError,
        "divergences must be a list of at least one; got 'kl'.",
    ),
    (
        "a curve of an unknown divergence",
        lambda: sweep(divergences=["kl", "chi"]),
        errors.UnknownNameError,
        "Unknown divergence 'chi'. Did you mean 'chi2'? Known: affine, alpha, chi2,"
        " jensen_shannon, kl, linear_tail, reverse_kl, squared_hellinger, "
        "total_variation.",
    ),
    (
        "a curve with test rows of two parts",
        lambda: sweep(test=(X, Y)),
        errors.InvalidParameterError,
        "test must be None, or X, y, sensitive_features and perhaps sample_weight "
        "as a tuple or by name in a dict; got a tuple with X, y.",
    ),
    (
        "a curve with test rows by other names",
        lambda: sweep(test={"X": X, "y": Y, "s": SEX}),
        errors.InvalidParameterError,
        "test must be None, or X, y, sensitive_features and perhaps sample_weight "
        "as a tuple or by name in a dict; got a dict with X, y, s.",
    ),
    (
        "a curve without labels",
        lambda: sweep(y=None),
        errors.InvalidInputError,
        "y is None. Accuracy is measured, so every row needs a label or a number.",
    ),
    (
        "a curve without groups",
        lambda: sweep(sensitive_features=None),
        errors.MissingSensitiveError,
        "Fairness is measured, which needs sensitive_features. Pass the groups.",
    ),
    (
        "a curve of fewer labels",
        lambda: sweep(y=Y[:20]),
        errors.InvalidInputError,
        "All tables must have the same number of rows, at least one; X has 120, y "
        "has 20, sensitive_features has 120.",
    ),
    (
        "a curve whose test rows have an unknown label",
        lambda: sweep(test=(X, ["maybe"] * N, SEX)),
        errors.InvalidInputError,
        "y contains the label 'maybe', which is not among the classes 'no', 'yes'.",
    ),
    (
        "a curve recorded in a file",
        lambda: sweep(records=written("users.csv")),
        errors.PersistenceError,
        "records must be a folder, which may be missing; users.csv is a file.",
    ),
    (
        "no curve to load",
        lambda: TradeoffCurve.load("nowhere"),
        errors.PersistenceError,
        "nowhere does not contain records of a sweep. Pass the folder that "
        "tradeoff_curve(..., records=...) wrote to.",
    ),
    (
        "a curve to load from a file",
        lambda: TradeoffCurve.load(written("users.csv")),
        errors.PersistenceError,
        "users.csv does not contain records of a sweep. Pass the folder that "
        "tradeoff_curve(..., records=...) wrote to.",
    ),
    (
        "a model of a curve by nothing",
        lambda: swept().select(),
        errors.InvalidParameterError,
        "select needs exactly one of 'knee', max_violation, min_accuracy, min_rate, "
        "min_group_accuracy; got None, None, None, None, None.",
    ),
    (
        "a model of a curve by two bounds",
        lambda: swept().select(max_violation=0.1, min_accuracy=0.1),
        errors.InvalidParameterError,
        "select needs exactly one of 'knee', max_violation, min_accuracy, min_rate, "
        "min_group_accuracy; got None, 0.1, 0.1, None, None.",
    ),
    (
        "a model of a curve that there is none of",
        lambda: sweep(
            X=1.0 * (SEX == "m")[:, None], y=SEX, fairness_weights=[0]
        ).select(max_violation=0.1),
        errors.InvalidInputError,
        "No model of the curve reaches violation 0.1; the closest has 1.0000 at "
        "fairness_weight=0. Add weights, or loosen the bound.",
    ),
    (
        "a model of a curve of another kind",
        lambda: swept().select("elbow"),
        errors.InvalidParameterError,
        "select needs exactly one of 'knee', max_violation, min_accuracy, min_rate, "
        "min_group_accuracy; got 'elbow', None, None, None, None.",
    ),
    (
        "a model of a curve by the groups of training rows",
        lambda: swept().select(min_rate=0.1, split="train"),
        errors.InvalidParameterError,
        "min_rate needs split='test' and the audits of classifiers on a curve that "
        "was computed or loaded.",
    ),
    (
        "a model of a curve of an unknown split",
        lambda: swept().select(max_violation=1, split="valid"),
        errors.InvalidParameterError,
        "split must be 'train' or 'test'; got 'valid'.",
    ),
    (
        "a model of a curve by a bound in words",
        lambda: swept().select(max_violation="low"),
        errors.InvalidParameterError,
        "max_violation must be a finite number of at least 0; got 'low'.",
    ),
    (
        "a curve's area without a reference",
        lambda: swept().hypervolume(reference=1),
        errors.InvalidParameterError,
        "reference must be the worst accuracy and the worst violation that count, "
        "such as (0.0, 1.0); got 1.",
    ),
    (
        "a curve's page in no folder",
        lambda: swept().to_html("nowhere/page.html"),
        errors.PersistenceError,
        "Cannot write nowhere/page.html (No such file or directory). Choose a file "
        "name in a folder that exists and is writable.",
    ),
    # Tune
    (
        "a search of a regressor",
        lambda: search(FairRegressor()),
        errors.InvalidParameterError,
        "tune needs a fair classifier such as FairLogisticRegression(), or a "
        "pipeline that ends in one; got FairRegressor.",
    ),
    (
        "a search of a plain pipeline",
        lambda: search(make_pipeline(LinearRegression())),
        errors.InvalidParameterError,
        "tune needs a fair classifier such as FairLogisticRegression(), or a "
        "pipeline that ends in one; got LinearRegression.",
    ),
    (
        "a search without a bound",
        lambda: search(max_violation=None),
        errors.InvalidParameterError,
        "tune needs exactly one of max_violation, min_accuracy, min_rate, "
        "min_group_accuracy; got None, None, None, None.",
    ),
    (
        "a search by two bounds",
        lambda: search(min_accuracy=0.9),
        errors.InvalidParameterError,
        "tune needs exactly one of max_violation, min_accuracy, min_rate, "
        "min_group_accuracy; got 0.5, 0.9, None, None.",
    ),
    (
        "a search by a bound above 1",
        lambda: search(max_violation=10),
        errors.InvalidParameterError,
        "max_violation must be between 0 and 1, or None; got 10.",
    ),
    (
        "a search of one divergence as text",
        lambda: search(divergences="kl"),
        errors.InvalidParameterError,
        "divergences must be a list; got 'kl'. Pass ['kl'].",
    ),
    (
        "a search of no divergence",
        lambda: search(divergences=[]),
        errors.InvalidParameterError,
        "divergences is empty. Name at least one.",
    ),
    (
        "a search of radii without a shift",
        lambda: search(radii=[0.1]),
        errors.InvalidParameterError,
        "radii must hold at least one number; one above 0 needs an estimator with "
        "an uncertainty set such as SmallShift(radius=0.01); got [0.1].",
    ),
    (
        "a search judged by one fold",
        lambda: search(validation=CrossValidation(1)),
        errors.InvalidParameterError,
        "splitter must be an integer of at least 2; got 1.",
    ),
    (
        "a search judged by a number",
        lambda: search(validation=5),
        errors.InvalidParameterError,
        "validation must be None, CrossValidation(), TargetSample(...) or "
        "EvenHoldout(...); got 5.",
    ),
    (
        "a search judged by too few rows",
        lambda: search(validation=TargetSample(X[:3], Y[:3], SEX[:2])),
        errors.InvalidInputError,
        "sensitive_features: group has 2 values for 3 rows. Pass one value per row:"
        " the values, not the names of columns.",
    ),
    (
        "a search of no trials",
        lambda: search(n_trials=0),
        errors.InvalidParameterError,
        "n_trials must be an integer of at least 1; got 0.",
    ),
    (
        "a search without groups",
        lambda: search(sensitive_features=None),
        errors.MissingSensitiveError,
        "Fairness is measured, which needs sensitive_features. Pass the groups.",
    ),
    # Files
    (
        "an unfitted model to save",
        lambda: fferm.save(FairLogisticRegression(), "m"),
        errors.PersistenceError,
        "This FairLogisticRegression is not fitted. Call fit before save.",
    ),
    (
        "a plain model to save",
        lambda: fferm.save(LogisticRegression(), "m"),
        errors.PersistenceError,
        "save needs one of FairBoostingClassifier, FairLogisticRegression, "
        "FairNetClassifier, FairRegressor, FeatureRepair, FrameEncoder, "
        "GroupRepair, OffsetClassifier, ParityController, Pipeline; got "
        "LogisticRegression.",
    ),
    (
        "a pipeline to save that does not end in a fair model",
        lambda: fferm.save(make_pipeline(StandardScaler()), "m"),
        errors.PersistenceError,
        "save needs one of FairBoostingClassifier, FairLogisticRegression, "
        "FairNetClassifier, FairRegressor, FeatureRepair, FrameEncoder, "
        "GroupRepair, OffsetClassifier, ParityController, Pipeline; got "
        "StandardScaler.",
    ),
    (
        "a class to save",
        lambda: fferm.save(FairLogisticRegression, "m"),
        errors.PersistenceError,
        "save needs one of FairBoostingClassifier, FairLogisticRegression, "
        "FairNetClassifier, FairRegressor, FeatureRepair, FrameEncoder, "
        "GroupRepair, OffsetClassifier, ParityController, Pipeline; got the class "
        "itself, not FairLogisticRegression(...).",
    ),
    (
        "arguments of save the other way round",
        lambda: fferm.save("m", fitted()),
        errors.PersistenceError,
        "save needs one of FairBoostingClassifier, FairLogisticRegression, "
        "FairNetClassifier, FairRegressor, FeatureRepair, FrameEncoder, "
        "GroupRepair, OffsetClassifier, ParityController, Pipeline; got str.",
    ),
    (
        "a model to save in no folder",
        lambda: fferm.save(fitted(), "nowhere/m"),
        errors.PersistenceError,
        "Cannot write nowhere/m (No such file or directory). Name a file, in a "
        "folder that exists and is writable.",
    ),
    (
        "a model to save as a folder",
        lambda: fferm.save(fitted(), "."),
        errors.PersistenceError,
        "Cannot write . (Is a directory). Name a file, in a folder that exists and "
        "is writable.",
    ),
    (
        "a model to save that holds a generator",
        lambda: fferm.save(fit(random_state=np.random.RandomState(0)), "m"),
        errors.PersistenceError,
        "random_state is a RandomState, which a saved model cannot hold. Use "
        "numbers, text or a component instead, for example random_state=0.",
    ),
    (
        "no file to load",
        lambda: fferm.load("nowhere.fferm"),
        errors.PersistenceError,
        "Cannot read nowhere.fferm (No such file or directory). Name a file that "
        "fferm.save or `fferm fit` wrote.",
    ),
    (
        "a folder to load",
        lambda: fferm.load("."),
        errors.PersistenceError,
        "Cannot read . (Is a directory). Name a file that fferm.save or `fferm fit`"
        " wrote.",
    ),
    (
        "a foreign file to load",
        lambda: fferm.load(written("users.pkl")),
        errors.PersistenceError,
        "users.pkl is not a saved fferm model (File is not a zip file). Name a file"
        " that fferm.save or `fferm fit` wrote.",
    ),
    (
        "an empty file to load",
        lambda: fferm.load(written("users.fferm", b"")),
        errors.PersistenceError,
        "users.fferm is not a saved fferm model (File is not a zip file). Name a "
        "file that fferm.save or `fferm fit` wrote.",
    ),
    (
        "a changed file to load",
        lambda: fferm.load(changed_model()),
        errors.UnsafeFileError,
        "users.fferm was changed: Bad CRC-32 for file 'manifest.json'. Get it from "
        "its source again.",
    ),
    # Torch
    (
        "a loss of an unknown divergence",
        lambda: FairnessLoss.from_labels(CODE, SEX, divergence="kl2"),
        errors.UnknownNameError,
        "Unknown divergence 'kl2'. Did you mean 'kl'? Known: affine, alpha, chi2, "
        "jensen_shannon, kl, linear_tail, reverse_kl, squared_hellinger, "
        "total_variation.",
    ),
    (
        "a loss of groups of fewer rows",
        lambda: FairnessLoss.from_labels(CODE, SEX[:5]),
        errors.InvalidInputError,
        "sensitive_features: group has 5 values for 120 rows. Pass one value per "
        "row: the values, not the names of columns.",
    ),
    (
        "a loss of one group",
        lambda: FairnessLoss.from_labels(CODE, ["f"] * N),
        errors.InvalidInputError,
        "No part of the data holds two groups, so there is nothing to be fair "
        "between. Check sensitive_features, or set fairness_weight=0.",
    ),
    (
        "a loss of sufficiency by batches",
        lambda: FairnessLoss.from_labels(CODE, SEX, notion="sufficiency"),
        errors.InvalidParameterError,
        "The dual of sufficiency is not linear in the predictions, so no batch is "
        "right alone. Use SemiStochasticFairnessLoss.",
    ),
    (
        "a loss without labels or classes",
        lambda: FairnessLoss.from_labels(None, SEX),
        errors.InvalidParameterError,
        "Either y or classes is needed: the training labels, or classes=[0, 1].",
    ),
    (
        "a loss of unknown outputs",
        lambda: FairnessLoss.from_labels(CODE, SEX, outputs="logit"),
        errors.InvalidParameterError,
        "outputs must be 'logits' or 'probabilities'; got 'logit'.",
    ),
    (
        "a loss of unknown group weights",
        lambda: FairnessLoss.from_labels(CODE, SEX, group_weights="even"),
        errors.InvalidParameterError,
        "group_weights must be 'share' or 'equal'; got 'even'.",
    ),
    (
        "a loss given groups of other length",
        lambda: loss()(torch.zeros(4, 2), torch.zeros(3, dtype=torch.long)),
        errors.InvalidInputError,
        "sensitive must have shape (4, 1), or (4, 2) one-hot; the output has 4 "
        "rows; got (3,).",
    ),
    (
        "a loss given an unknown group",
        lambda: loss()(torch.zeros(4, 2), torch.full((4,), 7)),
        errors.InvalidInputError,
        "group contains 7, which is not in the training data. Pass one of 0 (f), 1 "
        "(m), or -1 where it is unknown.",
    ),
    (
        "a loss given three outputs",
        lambda: loss()(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)),
        errors.InvalidInputError,
        "Outputs must have shape (n, 2) or (n,): there are 2 classes; got (4, 3).",
    ),
    (
        "a loss given outputs of words",
        lambda: loss()(["a"], torch.zeros(1, dtype=torch.long)),
        errors.InvalidTypeError,
        "The output must be a floating tensor, such as logits; got a list.",
    ),
    (
        "a loss given fractional groups",
        lambda: loss()(torch.zeros(4, 2), torch.full((4,), 0.5)),
        errors.InvalidInputError,
        "group contains 0.5, which is not a whole number. Pass what fair.encode "
        "returns for the values.",
    ),
    (
        "a loss of labels that is not given them",
        lambda: FairnessLoss.from_labels(CODE, SEX, notion="equalized_odds")(
            torch.zeros(2, 2), torch.tensor([0, 1])
        ),
        errors.InvalidInputError,
        "The notion conditions on y. Pass y= in each call.",
    ),
    (
        "steps of the dual of 0",
        lambda: DualSteps(lr=0),
        errors.InvalidParameterError,
        "lr and window must be positive, accumulate at least 1; got DualSteps(lr=0,"
        " window=30.0, accumulate=1).",
    ),
    (
        "a semi-stochastic loss that was not refreshed",
        lambda: SemiStochasticFairnessLoss.from_labels(CODE, SEX)(
            torch.zeros(2, 2), torch.tensor([0, 1])
        ),
        errors.InvalidInputError,
        "There is no payoff yet. Call fair.refresh(model, loader) first.",
    ),
    (
        "a loss to encode an unknown group",
        lambda: loss().encode(["x"]),
        errors.InvalidInputError,
        "group contains 'x', which is not in the training data. Pass one of f, m, "
        "or -1 if unknown.",
    ),
    # Partial_fit
    (
        "a first batch without classes",
        lambda: partial(classes=None),
        errors.InvalidInputError,
        "classes must be passed on the first call to partial_fit, because a batch "
        "need not hold all of them: partial_fit(X, y, classes=[...]).",
    ),
    (
        "one class in all batches",
        lambda: partial(classes=["yes"], y=["yes"] * N),
        errors.InvalidInputError,
        "classes has only ['yes']. A classifier needs at least two.",
    ),
    (
        "a label that is not among the classes",
        lambda: partial(classes=["no", "maybe"]),
        errors.InvalidInputError,
        "y contains the label 'yes', which is not among the classes 'maybe', 'no'. "
        "Name all classes in the first call: partial_fit(X, y, classes=[...]).",
    ),
    (
        "other classes in the second batch",
        lambda: partial(partial(), classes=["a", "b"]),
        errors.InvalidInputError,
        "classes must stay those of the first call, ['no', 'yes']; got ['a', 'b']. "
        "Leave classes out, or start over with a clone.",
    ),
    (
        "a batch without groups",
        lambda: partial(sensitive_features=None),
        errors.MissingSensitiveError,
        "fairness_weight=10.0 needs sensitive_features. Pass partial_fit(X, y, "
        "sensitive_features=...), or set fairness_weight=0.",
    ),
    (
        "a batch of one group",
        lambda: partial(sensitive_features=["f"] * N),
        errors.InvalidInputError,
        "The first batch has only one group in group, so nothing is compared. Name "
        "all groups: groups={group: share}, or a filled GroupCounts.",
    ),
    (
        "a batch with a new group",
        lambda: partial(partial(), sensitive_features=["x"] * N),
        errors.InvalidInputError,
        "Unknown groups: x. Name all groups in the first call: groups={group: "
        "share}, or a GroupCounts of a first pass.",
    ),
    (
        "a batch of other width",
        lambda: partial(partial(), X=ARRAY[:, :1]),
        errors.InvalidInputError,
        "X has 1 features, but FairLogisticRegression is expecting 2 features as "
        "input. Pass the columns of training.",
    ),
    (
        "a batch under a bound",
        lambda: partial(FairLogisticRegression(max_violation=0.1)),
        errors.InvalidParameterError,
        "partial_fit holds out no rows and searches for no weight. Set "
        "max_violation=None and max_divergence=None.",
    ),
    (
        "a batch of another solver",
        lambda: partial(FairLogisticRegression(solver="lbfgs")),
        errors.InvalidParameterError,
        "partial_fit needs solver='sgda' or 'auto'; got 'lbfgs'.",
    ),
    (
        "a batch with another divergence",
        lambda: partial(partial().set_params(divergence="chi2")),
        errors.InvalidParameterError,
        "divergence must stay KL(); got Chi2(). Fit a clone.",
    ),
    (
        "shares of groups below 0",
        lambda: partial(groups={"f": -1, "m": 2}),
        errors.InvalidInputError,
        "The share of 'f' must be a number of at least 0; got -1.",
    ),
    (
        "shares without one group",
        lambda: partial(groups={"f": 0.5, "x": 0.5}),
        errors.InvalidInputError,
        "Unknown groups: m. Name all groups in the first call: groups={group: "
        "share}, or a GroupCounts of a first pass.",
    ),
    (
        "counts of no rows",
        lambda: partial(groups=GroupCounts()),
        errors.InvalidInputError,
        "groups has counted nothing, or has shares that sum to 0. Pass shares such "
        "as {'a': 0.4, 'b': 0.6}, or fill a GroupCounts with its update method.",
    ),
    (
        "shares of groups in words",
        lambda: partial(groups="f"),
        errors.InvalidTypeError,
        "groups must be shares of the groups, such as {'a': 0.4, 'b': 0.6}, or a "
        "GroupCounts that a first pass has filled; got str.",
    ),
    (
        "text in the first batch",
        lambda: partial(X=X),
        errors.InvalidInputError,
        "partial_fit needs numbers, and city holds none. Call fit on the first piece: "
        "it learns how to read the table.",
    ),
    (
        "dates in batches",
        lambda: partial(X=X.assign(born=DAYS)),
        errors.InvalidTypeError,
        "born contains dates. Turn them into numbers that mean something, such as "
        "an age in years, or drop the column.",
    ),
    # Datasets
    (
        "an unknown sensitive column of Adult",
        lambda: datasets.load_adult(sensitive=("gender",)),
        errors.UnknownNameError,
        "Unknown sensitive column 'gender'. Known: sex, race, age.",
    ),
    (
        "a sensitive column twice",
        lambda: datasets.load_adult(sensitive=("sex", "sex")),
        errors.InvalidParameterError,
        "sensitive columns must be at least one name and none twice; got ('sex', "
        "'sex'). Known: sex, race, age.",
    ),
    (
        "no sensitive column",
        lambda: datasets.load_german(sensitive=()),
        errors.InvalidParameterError,
        "sensitive columns must be at least one name and none twice; got (). Known:"
        " sex, age_over_25, foreign_worker.",
    ),
    (
        "an unknown state",
        lambda: datasets.load_acs_income(states=("XX",)),
        errors.UnknownNameError,
        "Unknown state 'XX'. Did you mean 'TX'? Known: AL, AK, AZ, AR, CA, CO, CT, "
        "DE, FL, GA, HI, ID, IL, IN, IA, KS, KY, LA, ME, MD, MA, MI, MN, MS, MO, "
        "MT, NE, NV, NH, NJ, NM, NY, NC, ND, OH, OK, OR, PA, RI, SC, SD, TN, TX, "
        "UT, VT, VA, WA, WV, WI, WY, PR.",
    ),
    (
        "an unknown target",
        lambda: datasets.load_gov_census(target="height"),
        errors.UnknownNameError,
        "Unknown target 'height'. Known: salary, over_50k.",
    ),
    (
        "a sample of no rows",
        lambda: datasets.make_biased(0),
        errors.InvalidParameterError,
        "n_samples must be an integer of at least 2; got 0.",
    ),
    (
        "a sample of half a row",
        lambda: datasets.make_biased(10.5),
        errors.InvalidParameterError,
        "n_samples must be an integer of at least 2; got 10.5.",
    ),
    (
        "group weights of another number",
        lambda: datasets.make_biased(100, group_weights=[1]),
        errors.InvalidParameterError,
        "group_weights must be 2 positive numbers, one per group; got [1].",
    ),
    (
        "a sample of a seed in words",
        lambda: datasets.make_biased(100, random_state="a"),
        errors.InvalidParameterError,
        "random_state must be an integer of at least 0, a numpy Generator or None; "
        "got 'a'.",
    ),
]


@pytest.mark.filterwarnings("ignore::fferm.errors.FfermWarning")
@pytest.mark.usefixtures("only_ours")
@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [mistake[1:] for mistake in MISTAKES],
    ids=[mistake[0] for mistake in MISTAKES],
)
def test_a_mistake_is_answered_by_one_line(call, kind, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.FfermError) as caught:
        call()
    assert (type(caught.value), str(caught.value)) == (kind, message)
    assert "\n" not in message
    assert message.endswith(".")
    left = [path.name for path in tmp_path.rglob("*")]
    assert all(name.startswith("users") for name in left), "something was half written"


def test_there_are_a_hundred_different_mistakes():
    assert len({mistake[0] for mistake in MISTAKES}) == len(MISTAKES) >= 100


def test_other_columns_are_answered_by_the_lines_of_scikit_learn():
    # Its checks of estimators ask for these lines, so they stay.
    message = "Feature names seen at fit time, yet now missing:\n- income\n"
    with pytest.raises(errors.InvalidInputError, match=message):
        fitted().predict(X[["age", "city"]])


def test_a_weight_beside_a_bound_is_warned_of():
    message = (
        "fairness_weight=2.0 is not used, because max_violation=0.9 finds its own. "
        "Leave one out."
    )
    with pytest.warns(errors.FfermWarning, match=re.escape(message)):
        fit(fairness_weight=2.0, max_violation=0.9)
