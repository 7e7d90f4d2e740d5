"""Data frames of mixed columns as numbers.

Gaps are filled, text is one-hot encoded and numbers are standardised, as learned from
the training rows. What is learned about a column is a plain dict, so that it can be
saved: ``name``, ``kind`` and, for numbers, ``fill``, ``mean``, ``scale``, ``has_gaps``;
for levels, their names in ``levels``, the most frequent first.
"""

from decimal import Decimal
from typing import Any, Self

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fferm._typing import FloatArray, Table
from fferm.data.groups import column_kind, group_name
from fferm.data.validate import LARGEST_FEATURE, check_whole, read_frame
from fferm.errors import InvalidInputError, InvalidTypeError
from fferm.registry import Saved

# The level of missing values.
MISSING = "(missing)"
# A level of one row says nothing about any other row.
FEWEST_ROWS = 2
# Columns of these values are numbers, even if gaps make them columns of objects.
EXACT = (bool, np.bool_, Decimal)


class FrameEncoder(Saved, TransformerMixin, BaseEstimator):
    """Encodes a data frame of mixed columns as numbers, as learned in training.

    Numbers (and dates, as seconds) are standardised and gaps filled with the median; a
    column with gaps in training is followed by an indicator of them. Text has one 0/1
    column per level, with missing values as a level; a level that training had in
    fewer than two rows, or beyond the most frequent ``max_levels``, is 0 everywhere.
    Columns without information (one value, or a different text in every row) are
    dropped.

    Parameters
    ----------
    max_levels
        The most levels of one column.

    Attributes
    ----------
    columns_ : tuple of dict, what was learned about each column that is used
    dropped_ : tuple of str, the columns without information

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [30.0, None, 50.0], "city": ["A", "B", "A"]})
    >>> FrameEncoder().fit(frame).get_feature_names_out().tolist()
    ['age', 'age=(missing)', 'city=A']
    """

    columns_: tuple[dict[str, Any], ...]
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
            name: _learn_column(name, frame[name], max_levels) for name in frame.columns
        }
        self.columns_ = tuple(column for column in learned.values() if column)
        self.dropped_ = tuple(name for name, column in learned.items() if not column)
        if not self.columns_:
            raise InvalidInputError(
                f"No column to predict from: {', '.join(learned) or '(none)'} each "
                "have one value, or a different text in every row."
            )
        return self

    def transform(self, X: Table) -> FloatArray:
        """Return the (n_samples, n_numbers) encoding of some rows.

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
                f"The data lack {', '.join(map(repr, missing))}, which the model needs "
                f"to predict. Columns: {', '.join(frame.columns)}."
            )
        return np.column_stack(
            [_encode_column(column, frame[column["name"]]) for column in self.columns_]
        )

    def get_feature_names_out(self, input_features: Table = None) -> NDArray[Any]:
        """Return the names of the encoded columns.

        Parameters
        ----------
        input_features
            Not used.
        """
        check_is_fitted(self)
        names = []
        for column in self.columns_:
            suffixes = [f"={level}" for level in column.get("levels", ())]
            if column["kind"] == "number":
                suffixes = ["", f"={MISSING}"] if column["has_gaps"] else [""]
            names += [column["name"] + suffix for suffix in suffixes]
        return np.array(names, dtype=object)


def as_pandas(table: Table) -> pd.DataFrame:
    """Return a data frame of any library as pandas, with distinct names of type str."""
    frame = read_frame(table)
    if not isinstance(frame, nw.DataFrame):
        raise InvalidTypeError(
            f"The data must be a data frame with names; got {type(table).__name__}."
        )
    pandas = table if isinstance(table, pd.DataFrame) else frame.to_pandas()
    if not all(isinstance(name, str) for name in pandas.columns):
        pandas = pandas.set_axis([str(name) for name in pandas.columns], axis=1)
    if not pandas.columns.is_unique:
        twice = pandas.columns[pandas.columns.duplicated()][0]
        raise InvalidInputError(f"Two columns are named {twice!r}. Rename one.")
    return pandas


def as_numbers(column: "pd.Series[Any]") -> FloatArray | None:
    """Return a column of numbers, dates or booleans as floats; None for others."""
    dtype = column.dtype
    if isinstance(dtype, pd.DatetimeTZDtype) or dtype.kind in "mM":
        times = column.to_numpy(dtype="m8[s]" if dtype.kind == "m" else "M8[s]")
        seconds = times.astype(np.int64).astype(np.float64)
        return np.where(np.isnat(times), np.nan, seconds)
    if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_complex_dtype(dtype):
        return None
    if column_kind(column) != "label" or pd.api.types.is_bool_dtype(dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    known = column.dropna()
    if len(known) == 0 or known.map(lambda value: isinstance(value, EXACT)).all():
        values = [np.nan if pd.isna(value) else float(value) for value in column]
        return np.array(values, dtype=np.float64)
    return None


def _learn_column(
    name: str, column: "pd.Series[Any]", max_levels: int
) -> dict[str, Any] | None:
    # None for a column without information.
    numbers = as_numbers(column)
    if numbers is not None:
        return _learn_numbers(name, numbers)
    counts = pd.Series(_as_levels(name, column)).value_counts()
    # Sorted by name within a count, so that the order of rows does not matter.
    kept = (
        counts[counts >= FEWEST_ROWS]
        .sort_index()
        .sort_values(ascending=False, kind="stable")
    )
    levels = [str(level) for level in kept.index[:max_levels]]
    if len(counts) < 2 or not levels:
        return None
    return {"name": name, "kind": "levels", "levels": levels}


def _learn_numbers(name: str, numbers: FloatArray) -> dict[str, Any] | None:
    _refuse_infinite(name, numbers)
    is_gap = np.isnan(numbers)
    if is_gap.all():
        return None
    fill = float(np.median(numbers[~is_gap]))
    filled = np.where(is_gap, fill, numbers)
    # In units of the largest, whose squares neither vanish nor overflow; a power of two
    # rounds nothing.
    unit = float(np.ldexp(1.0, np.frexp(np.abs(filled).max())[1]))
    mean, scale = float(filled.mean()), unit * float((filled / unit).std())
    # Rounding alone gives a constant column some spread.
    if scale <= 1e-12 * max(abs(mean), 1e-300):
        if not is_gap.any():
            return None
        scale = 1.0
    learned = {"name": name, "kind": "number", "fill": fill, "mean": mean}
    return {**learned, "scale": scale, "has_gaps": bool(is_gap.any())}


def _encode_column(learned: dict[str, Any], column: "pd.Series[Any]") -> FloatArray:
    name = learned["name"]
    if learned["kind"] == "levels":
        level = _as_levels(name, column)
        parts = [level == known for known in learned["levels"]]
        return np.column_stack(parts).astype(np.float64)
    numbers = as_numbers(column)
    if numbers is None:
        numbers = _parse_numbers(name, column)
    _refuse_infinite(name, numbers)
    is_gap = np.isnan(numbers)
    filled = np.where(is_gap, learned["fill"], numbers)
    scaled = (filled - learned["mean"]) / learned["scale"]
    return np.column_stack([scaled, is_gap] if learned["has_gaps"] else [scaled])


def _as_levels(name: str, column: "pd.Series[Any]") -> NDArray[Any]:
    # One text per row.
    try:
        code, distinct = pd.factorize(column, use_na_sentinel=True)
        odd = next((v for v in distinct if isinstance(v, bytes | tuple)), None)
    except TypeError:  # lists and the like
        odd = column.dropna().iloc[0]
    if odd is not None:
        raise InvalidInputError(
            f"Column {name!r} contains values of type {type(odd).__name__}. Columns "
            "must hold numbers, text, booleans or dates; drop this one."
        )
    names = [*(group_name(value) for value in distinct), MISSING]
    return np.array(names, dtype=object)[code]


def _parse_numbers(name: str, column: "pd.Series[Any]") -> FloatArray:
    # The column was numeric in training; a file may still hold the numbers as text.
    known = column.dropna()
    parsed = pd.to_numeric(known.astype(str), errors="coerce")
    if parsed.isna().any():
        raise InvalidInputError(
            f"Column {name!r} contains {known[parsed.isna()].iloc[0]!r}. It must hold "
            "numbers, as in training; correct the data, or train again."
        )
    numbers = np.full(len(column), np.nan)
    numbers[column.notna().to_numpy()] = parsed.to_numpy(dtype=np.float64)
    return numbers


def _refuse_infinite(name: str, numbers: FloatArray) -> None:
    if np.any(np.abs(numbers[~np.isnan(numbers)]) > LARGEST_FEATURE):
        raise InvalidInputError(
            f"Column {name!r} contains infinity, or numbers above {LARGEST_FEATURE:g}."
        )
