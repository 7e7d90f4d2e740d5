"""Fair models of whole data frames, which know their columns by name.

A model holds an encoder of mixed columns, a fair estimator, and the names of the
columns that are predicted and compared, so that a saved model is all that is needed to
audit another file.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from fferm._typing import FloatArray, Table
from fferm.data.frame import FrameEncoder, as_numbers, as_pandas
from fferm.data.groups import (
    MOST_FRACTIONAL_VALUES,
    BandEdges,
    column_kind,
    find_edges,
    group_name,
    name_bands,
    read_numbers,
)
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.estimators.base import FairClassifier, FairEstimator
from fferm.estimators.regression import FairRegressor
from fferm.registry import Saved

__all__ = ["FrameClassifier", "FrameModel", "FrameRegressor"]

# A target with more distinct values than this is a quantity or a name, not a class.
MOST_CLASSES = 100


@dataclass(eq=False, repr=False)
class FrameModel(Saved, BaseEstimator):
    """A fair estimator with the encoding of its columns; base of the two below."""

    estimator: FairEstimator
    _: KW_ONLY
    target: str
    sensitive: Sequence[str]
    drop: Sequence[str] = ()
    bands: Sequence[str] = ()

    @abstractmethod
    def labels(self, frame: Table) -> NDArray[Any]:
        """Return the target of each row: labels as text, or numbers.

        Parameters
        ----------
        frame
            Data frame with the target.
        """

    def fit(self, frame: Table, y: Table = None) -> Self:
        """Learn encoding and model from the training rows.

        Parameters
        ----------
        frame
            Data frame with the target, the sensitive and all other columns.
        y
            Not used: the target is a column of the frame.

        Returns
        -------
        Self
        """
        # An earlier fit may have had other labels.
        self.__dict__.pop("estimator_", None)
        frame = as_pandas(frame)
        labels = self.labels(frame)
        self.edges_ = self._find_edges(frame)
        self.encoder_ = self.learn_encoding(frame)
        self.estimator_ = clone(self.estimator).fit(
            self.encoder_.transform(frame),
            labels,
            sensitive_features=self.groups(frame),
        )
        return self

    def learn_encoding(self, frame: Table) -> FrameEncoder:
        """Return the fitted encoder of the columns that the model predicts from.

        Parameters
        ----------
        frame
            The training rows.
        """
        frame = as_pandas(frame)
        _refuse_text("drop", self.drop)
        for name in self.drop:  # a misspelled column would stay among the features
            column_of(frame, name, "column to drop")
        dropped = [self.target, *self.drop]
        return FrameEncoder().fit(frame.drop(columns=dropped, errors="ignore"))

    def sensitive_values(self, frame: Table) -> pd.DataFrame:
        """Return the sensitive columns as they are.

        Parameters
        ----------
        frame
            Data frame with the sensitive columns.
        """
        frame = as_pandas(frame)
        _refuse_text("sensitive", self.sensitive)
        _refuse_text("bands", self.bands)
        if not len(self.sensitive) or self.target in self.sensitive:
            raise InvalidParameterError(
                "sensitive must name at least one column, and not the target "
                f"{self.target!r}; got {list(self.sensitive)}."
            )
        strange = [name for name in self.bands if name not in self.sensitive]
        if strange:
            raise InvalidParameterError(
                f"bands names {strange[0]!r}, which is not a sensitive column. "
                f"Sensitive columns: {', '.join(self.sensitive)}."
            )
        columns = {n: column_of(frame, n, "sensitive column") for n in self.sensitive}
        return pd.DataFrame(columns, index=frame.index)

    def groups(self, frame: Table, train: Table = None) -> pd.DataFrame:
        """Return the sensitive columns, those of ``bands`` cut as in training.

        Parameters
        ----------
        frame
            Data frame with the sensitive columns.
        train
            For a model that is not fitted: the rows whose quantiles are the edges, by
            default those of ``frame``.
        """
        groups = self.sensitive_values(frame)
        edges = getattr(self, "edges_", None)
        if edges is None:
            edges = self._find_edges(frame if train is None else train)
        for name, limits in edges.items():
            groups[name] = name_bands(read_numbers(groups[name], name), limits)
        return groups

    @property
    def band_edges_(self) -> BandEdges:
        """The edges of the bands of sensitive columns in training, by column."""
        edges = {name: tuple(map(float, cut)) for name, cut in self.edges_.items()}
        return {**edges, **getattr(self.estimator_, "band_edges_", {})}

    def predict(self, frame: Table) -> NDArray[Any]:
        """Return the prediction for each row; groups are not needed.

        Parameters
        ----------
        frame
            Data frame with the columns that the model predicts from.
        """
        check_is_fitted(self, "estimator_")
        return np.asarray(self.estimator_.predict(self.encoder_.transform(frame)))

    def _find_edges(self, frame: Table) -> dict[str, FloatArray]:
        values = self.sensitive_values(frame)
        return {
            name: find_edges(read_numbers(values[name], name)) for name in self.bands
        }

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        params, learned = super()._to_saved()
        for name in ("sensitive", "drop", "bands"):
            params[name] = list(params[name])
        return params, learned


class FrameClassifier(ClassifierMixin, FrameModel):
    """A fair classifier of rows of a data frame.

    Labels are text: 1, 1.0 and "1" in different files are one label.

    Parameters
    ----------
    estimator
        The fair classifier to train on the encoded rows.
    target
        The column to predict.
    sensitive
        The columns whose groups are compared.
    drop
        Columns not to predict from; name sensitive ones here to predict without them.
    bands
        Sensitive columns of numbers, such as ages, to cut into quantile bands; columns
        of many fractional numbers are cut automatically.

    Attributes
    ----------
    classes_ : ndarray of str
    encoder_ : FrameEncoder, fitted on the training rows
    estimator_ : the fitted estimator

    Examples
    --------
    >>> from fferm import FairLogisticRegression
    >>> from fferm.datasets import load_german
    >>> data = load_german("age_over_25")
    >>> frame = data.frame.assign(good=data.y, **data.sensitive_features)
    >>> model = FrameClassifier(
    ...     FairLogisticRegression(), target="good", sensitive=["age_over_25"]
    ... )
    >>> model.fit(frame).predict(frame).shape
    (700,)
    """

    estimator_: FairClassifier

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, as text."""
        return self.estimator_.classes_

    def labels(self, frame: Table) -> NDArray[Any]:
        """Return the label of each row as text.

        Parameters
        ----------
        frame
            Data frame with the target.
        """
        labels = label_text(column_of(as_pandas(frame), self.target, "target"))
        if hasattr(self, "estimator_"):
            known = self.classes_.tolist()
            unknown = sorted(set(labels.tolist()) - set(known))
            if unknown:
                raise InvalidInputError(
                    f"The target {self.target!r} contains {unknown[0]!r}, which is not "
                    f"a label of training: {', '.join(map(repr, known))}."
                )
        return labels

    def predict_proba(self, frame: Table) -> FloatArray:
        """Return the (n_samples, n_classes) probabilities.

        Parameters
        ----------
        frame
            Data frame with the columns that the model predicts from.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict_proba(self.encoder_.transform(frame))


class FrameRegressor(RegressorMixin, FrameModel):
    """A fair regressor of rows of a data frame.

    Parameters
    ----------
    estimator
        The `FairRegressor` to train on the encoded rows.
    target
        The column of numbers to predict.
    sensitive, drop, bands
        As in `FrameClassifier`.

    Attributes
    ----------
    encoder_ : FrameEncoder, fitted on the training rows
    estimator_ : the fitted estimator

    Examples
    --------
    >>> import pandas as pd
    >>> from fferm import FairRegressor
    >>> rng = np.random.default_rng(0)
    >>> frame = pd.DataFrame({"x": rng.normal(size=90), "sex": ["f", "m", "m"] * 30})
    >>> frame["pay"] = frame["x"] + (frame["sex"] == "m")
    >>> model = FrameRegressor(FairRegressor(), target="pay", sensitive=["sex"])
    >>> model.fit(frame).predict(frame).shape
    (90,)
    """

    estimator_: FairRegressor

    @property
    def violation_metric(self) -> str:
        """The measure that is called the violation."""
        return str(self.estimator.violation_metric)

    def labels(self, frame: Table) -> FloatArray:
        """Return the number to predict in each row.

        Parameters
        ----------
        frame
            Data frame with the target.
        """
        return target_numbers(column_of(as_pandas(frame), self.target, "target"))


def label_text(column: "pd.Series[Any]") -> NDArray[Any]:
    """Return a target as labels of text; raise if its values are not classes."""
    n_missing = int(column.isna().sum())
    if n_missing:
        raise InvalidInputError(
            f"The target {column.name!r} has {n_missing} gaps. Drop those rows first."
        )
    values = column.tolist()
    fractions = [v for v in values if isinstance(v, float) and not v.is_integer()]
    if fractions:
        raise InvalidInputError(
            f"The target {column.name!r} contains fractional numbers such as "
            f"{fractions[0]!r}, not classes. Cut it into bands, or predict a number."
        )
    labels = np.array([group_name(value) for value in values], dtype=str)
    n_classes = np.unique(labels).size
    if n_classes > MOST_CLASSES:
        raise InvalidInputError(
            f"The target {column.name!r} must have at most {MOST_CLASSES} classes; got "
            f"{n_classes} distinct values. Name another column, or cut it into bands."
        )
    return labels


def target_numbers(column: "pd.Series[Any]") -> FloatArray:
    """Return a target as finite numbers; raise if it has other values."""
    numbers = as_numbers(column)
    if numbers is None:
        raise InvalidInputError(
            f"Target {column.name!r} must be numbers; got {column.dropna().iloc[0]!r}."
        )
    n_bad = int((~np.isfinite(numbers)).sum())
    if n_bad:
        raise InvalidInputError(
            f"The target {column.name!r} is missing or infinite in {n_bad} of "
            f"{len(numbers)} rows. Every row needs a finite number; drop those rows."
        )
    return numbers


def is_quantity(column: "pd.Series[Any]") -> bool:
    """Return whether a target is a quantity: numbers, too many for classes."""
    if column_kind(column) == "label":
        return False
    values = column.dropna().to_numpy(dtype=np.float64)
    distinct = np.unique(values[np.isfinite(values)])
    has_fractions = bool(np.any(distinct % 1))
    return distinct.size > (MOST_FRACTIONAL_VALUES if has_fractions else MOST_CLASSES)


def column_of(frame: pd.DataFrame, name: str, role: str) -> "pd.Series[Any]":
    """Return a column; raise if there is none of this name."""
    if name in frame.columns:
        return frame[name]
    raise InvalidInputError(
        f"The data have no column {name!r}, the {role}. Columns: "
        f"{', '.join(frame.columns)}."
    )


def _refuse_text(parameter: str, names: Sequence[str]) -> None:
    if isinstance(names, str):
        raise InvalidParameterError(
            f"{parameter} must be a list of columns; got {names!r}. Pass [{names!r}]."
        )
