"""A fair classifier that takes whole frames and knows its columns by name."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from fferm._types import FloatArray, Table
from fferm.columns import group_name
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.estimators.base import FairClassifier
from fferm.frames.encoder import FrameEncoder, as_pandas

# More labels than this are a quantity, or names, and no classes.
MOST_CLASSES = 100


class FrameClassifier(ClassifierMixin, BaseEstimator):
    """A fair classifier of rows of a data frame.

    Labels are text: 1, 1.0 and "1" in different files are one label.

    Parameters
    ----------
    estimator
        What is trained on the encoded rows.
    target
        The column to predict.
    sensitive
        The columns whose groups are compared.
    left_out
        Columns not to predict from; put sensitive ones here to predict without them.

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

    classes_: NDArray[Any]
    encoder_: FrameEncoder
    estimator_: FairClassifier

    def __init__(
        self,
        estimator: FairClassifier,
        *,
        target: str,
        sensitive: Sequence[str],
        left_out: Sequence[str] = (),
    ) -> None:
        self.estimator = estimator
        self.target = target
        self.sensitive = sensitive
        self.left_out = left_out

    def fit(self, frame: Table, y: Table = None) -> Self:
        """Learn encoding and classifier from the training rows.

        Parameters
        ----------
        frame
            Data frame with the target, the sensitive and all other columns.
        y
            Not used: the labels are a column of the frame.

        Returns
        -------
        Self
        """
        frame = as_pandas(frame)
        labels, groups = self._read_labels(frame), self.groups(frame)
        self.encoder_ = self.learn_encoding(frame)
        self.estimator_ = clone(self.estimator).fit(
            self.encoder_.transform(frame), labels, sensitive_features=groups
        )
        self.classes_ = self.estimator_.classes_
        return self

    def learn_encoding(self, frame: Table) -> FrameEncoder:
        """Return how the columns that the model predicts from become numbers.

        Parameters
        ----------
        frame
            The training rows.
        """
        frame = as_pandas(frame)
        _refuse_text("left_out", self.left_out)
        for name in self.left_out:  # a slip of the pen would let the column in
            self._column(frame, name, "column to leave out")
        gone = [self.target, *self.left_out]
        return FrameEncoder().fit(frame.drop(columns=gone, errors="ignore"))

    def labels(self, frame: Table) -> NDArray[Any]:
        """Return the label of each row as text.

        Parameters
        ----------
        frame
            Data frame with the target.
        """
        labels = self._read_labels(as_pandas(frame))
        if hasattr(self, "classes_"):
            known = self.classes_.tolist()
            unknown = sorted(set(labels.tolist()) - set(known))
            if unknown:
                raise InvalidInputError(
                    f"The target {self.target!r} holds {unknown[0]!r}. Expected one of "
                    f"the labels of training: {', '.join(map(repr, known))}."
                )
        return labels

    def groups(self, frame: Table) -> pd.DataFrame:
        """Return the sensitive columns.

        Parameters
        ----------
        frame
            Data frame with the sensitive columns.
        """
        frame = as_pandas(frame)
        _refuse_text("sensitive", self.sensitive)
        if not len(self.sensitive) or self.target in self.sensitive:
            raise InvalidParameterError(
                f"sensitive={list(self.sensitive)} came. Expected one column at least, "
                f"and none that is the target {self.target!r}."
            )
        return pd.DataFrame(
            {
                name: self._column(frame, name, "sensitive column")
                for name in self.sensitive
            },
            index=frame.index,
        )

    def predict(self, frame: Table) -> NDArray[Any]:
        """Return the most probable label of each row; groups are not needed.

        Parameters
        ----------
        frame
            Data frame with the columns that the model predicts from.
        """
        return self._fitted().predict(self.encoder_.transform(frame))

    def predict_proba(self, frame: Table) -> FloatArray:
        """Return the (n_samples, n_classes) probabilities.

        Parameters
        ----------
        frame
            Data frame with the columns that the model predicts from.
        """
        return self._fitted().predict_proba(self.encoder_.transform(frame))

    def _fitted(self) -> FairClassifier:
        check_is_fitted(self)
        return self.estimator_

    def _read_labels(self, frame: pd.DataFrame) -> NDArray[Any]:
        return label_text(self._column(frame, self.target, "target"), self.target)

    def _column(self, frame: pd.DataFrame, name: str, kind: str) -> "pd.Series[Any]":
        if name in frame.columns:
            return frame[name]
        raise InvalidInputError(
            f"The data have no column {name!r}, the {kind}. Columns: "
            f"{', '.join(map(str, frame.columns))}."
        )

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        parameters = self.get_params(deep=False)
        for name in ("sensitive", "left_out"):
            parameters[name] = list(parameters[name])
        learned = {"classes_": self.classes_, "encoder_": self.encoder_}
        return parameters, {**learned, "estimator_": self.estimator_}

    def _from_saved(self, learned: dict[str, Any]) -> None:
        self.classes_ = learned["classes_"]
        self.encoder_ = learned["encoder_"]
        self.estimator_ = learned["estimator_"]


def _refuse_text(parameter: str, names: Sequence[str]) -> None:
    if isinstance(names, str):
        raise InvalidParameterError(
            f"{parameter}={names!r} came. Expected a list of columns: [{names!r}]."
        )


def label_text(column: "pd.Series[Any]", name: str) -> NDArray[Any]:
    """Return labels as text, after refusing what are no labels."""
    n_missing = int(column.isna().sum())
    if n_missing:
        raise InvalidInputError(
            f"The target {name!r} is missing in {n_missing} of {len(column)} rows. "
            "Expected a label in every row; drop those rows first."
        )
    values = column.tolist()
    fractions = [v for v in values if isinstance(v, float) and not v.is_integer()]
    if fractions:
        raise InvalidInputError(
            f"The target {name!r} holds fractional numbers such as {fractions[0]!r}. "
            "Expected classes; cut it into bands first."
        )
    labels = np.array([group_name(value) for value in values], dtype=str)
    n_classes = np.unique(labels).size
    if n_classes > MOST_CLASSES:
        raise InvalidInputError(
            f"The target {name!r} has {n_classes} different values. Expected at most "
            f"{MOST_CLASSES} classes; name another column, or cut it into bands first."
        )
    return labels
