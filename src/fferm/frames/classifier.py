"""A fair classifier that takes whole frames and knows its columns by name."""

from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from fferm._typing import FloatArray, Table
from fferm.data.groups import group_name
from fferm.errors import InvalidInputError
from fferm.estimators.base import FairClassifier
from fferm.frames.encoder import as_pandas
from fferm.frames.model import FrameModel

# More labels than this are a quantity, or names, and no classes.
MOST_CLASSES = 100


class FrameClassifier(ClassifierMixin, FrameModel):
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
    bands
        Sensitive columns of numbers, such as ages, to cut into bands of like many
        training rows; columns of many fractional numbers are cut by themselves.

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
    estimator_: FairClassifier

    def fit(self, frame: Table, y: Table = None) -> Self:
        """Learn encoding and classifier from the training rows.

        Parameters
        ----------
        frame, y
            As in `FrameModel.fit`.

        Returns
        -------
        Self
        """
        if hasattr(self, "classes_"):
            del self.classes_  # of an earlier fit, whose labels may have been others
        super().fit(frame, y)
        self.classes_ = self.estimator_.classes_
        return self

    def labels(self, frame: Table) -> NDArray[Any]:
        """Return the label of each row as text.

        Parameters
        ----------
        frame
            Data frame with the target.
        """
        column = self._column(as_pandas(frame), self.target, "target")
        labels = label_text(column, self.target)
        if hasattr(self, "classes_"):
            known = self.classes_.tolist()
            unknown = sorted(set(labels.tolist()) - set(known))
            if unknown:
                raise InvalidInputError(
                    f"The target {self.target!r} holds {unknown[0]!r}. Expected one of "
                    f"the labels of training: {', '.join(map(repr, known))}."
                )
        return labels

    def predict_proba(self, frame: Table) -> FloatArray:
        """Return the (n_samples, n_classes) probabilities.

        Parameters
        ----------
        frame
            Data frame with the columns that the model predicts from.
        """
        check_is_fitted(self)
        return self.estimator_.predict_proba(self.encoder_.transform(frame))

    def _from_saved(self, learned: dict[str, Any]) -> None:
        super()._from_saved(learned)
        self.classes_ = self.estimator_.classes_


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
            "Expected classes; cut it into bands first, or predict it as a number."
        )
    labels = np.array([group_name(value) for value in values], dtype=str)
    n_classes = np.unique(labels).size
    if n_classes > MOST_CLASSES:
        raise InvalidInputError(
            f"The target {name!r} has {n_classes} different values. Expected at most "
            f"{MOST_CLASSES} classes; name another column, or cut it into bands first."
        )
    return labels
