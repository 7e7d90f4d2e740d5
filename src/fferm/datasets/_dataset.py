"""What every loader returns, and the steps that lead there.

A loader reads a :class:`Table`, the data set as published, and :meth:`Table.split` or
:meth:`Table.assemble` turns it into a :class:`FairDataset`; whatever is learned (means,
scales, levels), is learned from the training rows alone.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fferm._typing import FloatArray, IntArray
from fferm.data.split import split_strata
from fferm.data.validate import Number, check_params
from fferm.errors import InvalidParameterError, UnknownNameError
from fferm.registry import unknown_name

# Of rows to test on.
SHARE = Number(0, 1, open_low=True, open_high=True)


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

    `frame` holds the raw columns, `model` those that X is made of, by default the
    same: numbers are standardised, everything else is one-hot. They differ where a raw
    code has too many levels for a linear model.
    """

    name: str
    description: str
    frame: pd.DataFrame
    y: IntArray | FloatArray
    sensitive: pd.DataFrame
    model: pd.DataFrame | None = None

    def strata(self) -> IntArray:
        """Return one integer per row: its label and its sensitive groups together.

        Continuous columns have no groups and do not count.
        """
        parts = self.sensitive.select_dtypes(exclude="number")
        if np.issubdtype(self.y.dtype, np.integer):
            parts = parts.assign(_y=self.y)
        if parts.columns.empty:
            return np.zeros(len(self.y), dtype=np.int64)
        number = parts.groupby(list(parts.columns), observed=True).ngroup()
        return number.to_numpy().astype(np.int64)

    def split(
        self,
        test_size: float,
        random_state: int | np.random.Generator | None,
        drop: Collection[str] = (),
    ) -> FairDataset:
        """Return the data set with a random test part, stratified by label and group.

        Columns that are dropped are in neither `X` nor `frame`.
        """
        check_params({"test_size": test_size}, {"test_size": SHARE})
        rng = make_rng(random_state)
        return self.assemble(*split_strata(self.strata(), test_size, rng), drop)

    def assemble(
        self, train: IntArray, test: IntArray, drop: Collection[str] = ()
    ) -> FairDataset:
        """Return the data set of these training and test rows."""
        frame = self.frame.drop(columns=list(drop))
        model = frame if self.model is None else self.model.drop(columns=list(drop))
        numeric = list(model.select_dtypes("number").columns)
        nominal = [column for column in model.columns if column not in numeric]
        sides, names = [model.iloc[train], model.iloc[test]], [*numeric]
        parts: list[list[FloatArray]] = [[], []]
        if numeric:
            scaler = StandardScaler().fit(sides[0][numeric])
            parts = [[scaler.transform(side[numeric])] for side in sides]
        if nominal:
            texts = [np.array(side[nominal], dtype=object) for side in sides]
            one_hot = OneHotEncoder(drop="first", sparse_output=False).fit(texts[0])
            # Levels that training lacks become zeros, like the first.
            for column, levels in zip(texts[1].T, one_hot.categories_, strict=True):
                column[~np.isin(column, levels)] = levels[0]
            for part, text in zip(parts, texts, strict=True):
                part.append(one_hot.transform(text))
            names += one_hot.get_feature_names_out(nominal).tolist()
        X, X_test = (np.hstack(part, dtype=np.float64) for part in parts)
        return FairDataset(
            name=self.name,
            X=X,
            y=self.y[train],
            sensitive_features=self.sensitive.iloc[train],
            X_test=X_test,
            y_test=self.y[test],
            sensitive_features_test=self.sensitive.iloc[test],
            feature_names=tuple(map(str, names)),
            frame=frame.iloc[train],
            frame_test=frame.iloc[test],
            description=self.description,
        )


def as_text(frame: pd.DataFrame, dtype: str | type = "category") -> pd.DataFrame:
    """Return the columns with text as categories, each with a member, or as strings."""
    columns = frame.select_dtypes(exclude="number").items()
    texts = {str(k): pd.Series([*map(str, c)], frame.index) for k, c in columns}
    text = frame.assign(**texts)
    # Of a type, not its name, which pandas looks up without the process's warnings.
    of = pd.CategoricalDtype()
    return text.astype(dict.fromkeys(texts, of)) if dtype == "category" else text


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


def make_rng(random_state: int | np.random.Generator | None) -> np.random.Generator:
    """Return the generator that a seed stands for."""
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(
            "random_state must be an integer of at least 0, a numpy Generator or None; "
            f"got {random_state!r}."
        ) from error
