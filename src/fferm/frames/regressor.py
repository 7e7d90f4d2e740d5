"""A fair regressor that takes whole frames and knows its columns by name."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import RegressorMixin

from fferm._typing import FloatArray, Table
from fferm.data.groups import MOST_FRACTIONAL_VALUES
from fferm.errors import InvalidInputError
from fferm.estimators.regression import FairRegressor
from fferm.frames.classifier import MOST_CLASSES
from fferm.frames.columns import as_numbers
from fferm.frames.encoder import as_pandas
from fferm.frames.model import FrameModel


class FrameRegressor(RegressorMixin, FrameModel):
    """A fair regressor of rows of a data frame.

    Parameters
    ----------
    estimator
        What is trained on the encoded rows: a `FairRegressor`.
    target
        The column of numbers to predict.
    sensitive, left_out, bands
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
        column = self._column(as_pandas(frame), self.target, "target")
        return target_numbers(column, self.target)


def target_numbers(column: "pd.Series[Any]", name: str) -> FloatArray:
    """Return a column as finite numbers, after refusing what holds others."""
    numbers = as_numbers(column)
    if numbers is None:
        raise InvalidInputError(
            f"The target {name!r} holds {column.dropna().iloc[0]!r}, which is no "
            "number. Expected numbers for a regression."
        )
    n_missing = int(np.isnan(numbers).sum())
    if n_missing or not np.isfinite(numbers).all():
        raise InvalidInputError(
            f"The target {name!r} is missing or infinite in "
            f"{int((~np.isfinite(numbers)).sum())} of {len(numbers)} rows. Expected a "
            "finite number in every row; drop those rows first."
        )
    return numbers


def is_quantity(column: "pd.Series[Any]") -> bool:
    """Return whether a target is a quantity: numbers, too many for classes."""
    is_time = column.dtype.kind in "mM"
    if not pd.api.types.is_numeric_dtype(column.dtype) or is_time:
        return False
    values = column.dropna().to_numpy(dtype=np.float64)
    distinct = np.unique(values[np.isfinite(values)])
    has_fractions = bool(np.any(distinct % 1))
    return distinct.size > (MOST_FRACTIONAL_VALUES if has_fractions else MOST_CLASSES)
