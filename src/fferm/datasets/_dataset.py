"""What every loader returns, and the three steps that lead there.

A loader reads a :class:`Table`, the data set as published. :func:`split_rows` says
which rows train and which test. :func:`assemble` turns both into a
:class:`FairDataset`; whatever it learns (means, scales, levels), it learns from the
training rows alone.
"""

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fferm._typing import FloatArray, IntArray
from fferm.data.split import split_strata
from fferm.data.validate import Number, check_params
from fferm.errors import InvalidParameterError, UnknownNameError
from fferm.registry import unknown_name


@dataclass(frozen=True, eq=False, repr=False)
class FairDataset:
    """A data set in a training and a test part, ready for a linear model.

    Attributes
    ----------
    name : str
        Name of the data set.
    X, X_test : ndarray of float64, shape (n_samples, n_features)
        Numeric columns first, standardised by the mean and deviation of the training
        part; then 0/1 columns, one per level but the first of each text column. A
        level that only the test part has is all zeros.
    y, y_test : ndarray of int64 or float64, shape (n_samples,)
        Labels 0 and 1 (the loader says what 1 means), or a continuous target.
    sensitive_features, sensitive_features_test : DataFrame
        The sensitive columns, also when there is only one.
    feature_names : tuple of str
        Names of the columns of `X`.
    frame, frame_test : DataFrame
        The raw columns without the target, for pipelines and trees. Text columns are
        categorical; the index is the row's place in the published table.
    description : str
        Source, licence, and who may be harmed by careless use.

    Examples
    --------
    >>> from fferm.datasets import load_german
    >>> data = load_german()
    >>> data
    FairDataset('german': 700 train + 300 test rows, 48 features, sensitive: sex)
    """

    name: str
    X: FloatArray
    y: IntArray | FloatArray
    sensitive_features: pd.DataFrame
    X_test: FloatArray
    y_test: IntArray | FloatArray
    sensitive_features_test: pd.DataFrame
    feature_names: tuple[str, ...]
    frame: pd.DataFrame
    frame_test: pd.DataFrame
    description: str

    def __repr__(self) -> str:
        # Sizes only: a table printed by accident may hold people.
        return (
            f"{type(self).__name__}({self.name!r}: {len(self.y)} train + "
            f"{len(self.y_test)} test rows, {len(self.feature_names)} features, "
            f"sensitive: {', '.join(self.sensitive_features.columns)})"
        )


@dataclass(frozen=True)
class Table:
    """A data set before it is split.

    `frame` holds the raw columns, `model` those that X is made of: numbers are
    standardised, everything else is one-hot. They differ where a raw code has too
    many levels for a linear model.
    """

    name: str
    description: str
    frame: pd.DataFrame
    model: pd.DataFrame
    y: IntArray | FloatArray
    sensitive: pd.DataFrame

    def without(self, columns: Collection[str]) -> "Table":
        """Return the table with these columns in neither `frame` nor `model`."""
        frame, model = (t.drop(columns=list(columns)) for t in (self.frame, self.model))
        return replace(self, frame=frame, model=model)


def pick_names(
    kind: str, chosen: str | Sequence[str], known: Collection[str]
) -> tuple[str, ...]:
    """Return the chosen names as a tuple, after checking them against the known ones.

    Parameters
    ----------
    kind : str
        What the names are, for messages: ``"sensitive column"``.
    chosen : str or sequence of str
        One name or several; a single string is one name.
    known : collection of str
        All names there are.
    """
    names = (chosen,) if isinstance(chosen, str) else tuple(chosen)
    if not names or len(set(names)) < len(names):
        raise InvalidParameterError(
            f"{kind}s must be at least one name and none twice; got {names}. Known: "
            f"{', '.join(known)}."
        )
    for name in names:
        if name not in known:
            raise UnknownNameError(unknown_name(kind, name, known))
    return names


def groups(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns with text as plain strings: no level without a member."""
    text = frame.select_dtypes(exclude="number").columns
    return frame.astype(dict.fromkeys(text, str))


def categorical(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns with text as categories, each level with a member."""
    text = frame.select_dtypes(exclude="number").columns
    return groups(frame).astype(dict.fromkeys(text, "category"))


def random_generator(
    random_state: int | np.random.Generator | None,
) -> np.random.Generator:
    """Return the generator that a seed stands for."""
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(
            "random_state must be an integer of at least 0, a numpy Generator or None; "
            f"got {random_state!r}."
        ) from error


def check_test_size(test_size: float) -> None:
    """Raise unless the share of test rows lies strictly between 0 and 1."""
    share = Number(0, 1, open_low=True, open_high=True)
    check_params({"test_size": test_size}, {"test_size": share})


def strata(table: Table) -> IntArray:
    """Return one integer per row: its label and its sensitive groups together.

    Continuous columns have no groups and do not count.
    """
    parts = table.sensitive.select_dtypes(exclude="number")
    if np.issubdtype(table.y.dtype, np.integer):
        parts = parts.assign(_y=table.y)
    if parts.columns.empty:
        return np.zeros(len(table.y), dtype=np.int64)
    number = parts.groupby(list(parts.columns), observed=True).ngroup()
    return number.to_numpy().astype(np.int64)


def assemble(table: Table, train: IntArray, test: IntArray) -> FairDataset:
    """Return the data set of these training and test rows."""
    X, X_test, names = _encode(table.model.iloc[train], table.model.iloc[test])
    return FairDataset(
        name=table.name,
        X=X,
        y=table.y[train],
        sensitive_features=table.sensitive.iloc[train],
        X_test=X_test,
        y_test=table.y[test],
        sensitive_features_test=table.sensitive.iloc[test],
        feature_names=names,
        frame=table.frame.iloc[train],
        frame_test=table.frame.iloc[test],
        description=table.description,
    )


def split(
    table: Table,
    test_size: float,
    random_state: int | np.random.Generator | None,
    dropped: Collection[str] = (),
) -> FairDataset:
    """Return the data set with a random test part, stratified by label and group.

    Columns that are dropped are in neither `X` nor `frame`.
    """
    check_test_size(test_size)
    rng = random_generator(random_state)
    parts = split_strata(strata(table), test_size, rng)
    return assemble(table.without(dropped), *parts)


def _encode(
    train: pd.DataFrame, test: pd.DataFrame
) -> tuple[FloatArray, FloatArray, tuple[str, ...]]:
    numeric = list(train.select_dtypes("number").columns)
    nominal = [column for column in train.columns if column not in numeric]
    one_hot = OneHotEncoder(drop="first", handle_unknown="ignore", sparse_output=False)
    encoder = ColumnTransformer(
        [("numeric", StandardScaler(), numeric), ("nominal", one_hot, nominal)],
        verbose_feature_names_out=False,
    )
    X = encoder.fit_transform(train)
    with warnings.catch_warnings():
        # That unknown levels become zeros is what this function promises.
        warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
        X_test = encoder.transform(test)
    names = tuple(str(name) for name in encoder.get_feature_names_out())
    return (
        np.ascontiguousarray(X, dtype=np.float64),
        np.ascontiguousarray(X_test, dtype=np.float64),
        names,
    )
