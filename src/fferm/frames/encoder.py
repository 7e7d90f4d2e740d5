"""Mixed columns as numbers: gaps filled, levels one-hot, numbers standardised."""

from typing import Any, Self

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fferm._typing import FloatArray, Table
from fferm.data.validate import check_whole, read_frame
from fferm.errors import InvalidInputError, InvalidTypeError
from fferm.frames.columns import (
    LearnedColumn,
    encode_column,
    encoded_names,
    learn_column,
)


class FrameEncoder(TransformerMixin, BaseEstimator):
    """Turns a frame of mixed columns into numbers, as it learned from training rows.

    Numbers (and dates, as seconds) get their median in gaps, mean 0 and deviation 1; a
    column with gaps in training is followed by one that says where they were. Text has
    one 0/1 column per level; gaps are a level of their own; a level that training had
    in fewer than two rows, or beyond the most frequent ``max_levels``, is 0 everywhere.
    Columns that say nothing (one value, or a different text in every row) are dropped.

    Parameters
    ----------
    max_levels
        The most levels of one column.

    Attributes
    ----------
    columns_ : tuple of dict, what was learned of each column that is used
    dropped_ : tuple of str, the columns that say nothing

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [30.0, None, 50.0], "city": ["A", "B", "A"]})
    >>> FrameEncoder().fit(frame).get_feature_names_out().tolist()
    ['age', 'age=(missing)', 'city=A']
    """

    columns_: tuple[LearnedColumn, ...]
    dropped_: tuple[str, ...]

    def __init__(self, *, max_levels: int = 50) -> None:
        self.max_levels = max_levels

    def fit(self, X: Table, y: Table = None) -> Self:
        """Learn from the training rows.

        Parameters
        ----------
        X
            Data frame of pandas, polars or pyarrow.
        y
            Not used.

        Returns
        -------
        Self
        """
        frame = as_pandas(X)
        max_levels = check_whole("max_levels", self.max_levels)
        learned = {
            str(name): learn_column(str(name), frame[name], max_levels)
            for name in frame.columns
        }
        self.columns_ = tuple(column for column in learned.values() if column)
        self.dropped_ = tuple(name for name, column in learned.items() if not column)
        if not self.columns_:
            raise InvalidInputError(
                f"None of the columns {', '.join(learned) or '(there are none)'} says "
                "anything: each has one value, or another text in every row. Expected "
                "at least one column to predict from."
            )
        return self

    def transform(self, X: Table) -> FloatArray:
        """Return the (n_samples, n_numbers) numbers of some rows.

        Parameters
        ----------
        X
            A frame with the columns of training, in any order, and perhaps others.
        """
        check_is_fitted(self)
        frame = as_pandas(X)
        missing = [c["name"] for c in self.columns_ if c["name"] not in frame.columns]
        if missing:
            raise InvalidInputError(
                f"The data lack {', '.join(map(repr, missing))}, from which the model "
                f"predicts. Columns: {', '.join(map(str, frame.columns))}."
            )
        return np.column_stack(
            [encode_column(c, frame.loc[:, c["name"]]) for c in self.columns_]
        )

    def get_feature_names_out(self, input_features: Table = None) -> NDArray[Any]:
        """Return the names of the numbers.

        Parameters
        ----------
        input_features
            Not used.
        """
        check_is_fitted(self)
        names = [name for column in self.columns_ for name in encoded_names(column)]
        return np.array(names, dtype=object)

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        learned = {"columns_": self.columns_, "dropped_": self.dropped_}
        return self.get_params(deep=False), learned

    def _from_saved(self, learned: dict[str, Any]) -> None:
        self.columns_ = learned["columns_"]
        self.dropped_ = learned["dropped_"]


def as_pandas(table: Table) -> pd.DataFrame:
    """Return a frame of any library as pandas, after checking that its names differ."""
    frame = read_frame(table)
    if not isinstance(frame, nw.DataFrame):
        raise InvalidTypeError(
            f"A {type(table).__name__} came. Expected a data frame with named columns."
        )
    found = table if isinstance(table, pd.DataFrame) else frame.to_pandas()
    if not all(isinstance(name, str) for name in found.columns):
        found = found.set_axis([str(name) for name in found.columns], axis=1)
    if not found.columns.is_unique:
        twice = found.columns[found.columns.duplicated()][0]
        raise InvalidInputError(
            f"Two columns are called {twice!r}. Expected different names; rename one."
        )
    return found
