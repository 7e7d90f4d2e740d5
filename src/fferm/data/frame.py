"""Tables of mixed columns as numbers.

Gaps are filled, text is one-hot encoded and, beside text, numbers are standardised, as
learned from the training rows. What is learned about a column is a plain dict, so that
it can be saved: ``name``, ``kind`` and, for numbers, ``fill``, ``mean``, ``scale``,
``has_gaps``; for levels, their names in ``levels``, the most frequent first.
"""

import datetime
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from operator import methodcaller
from typing import Any, Self

import narwhals as nw
import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.groups import column_kind, group_name
from fferm.data.validate import (
    LARGEST_FEATURE,
    are_alike,
    check_whole,
    encode_weight,
    keep_weighted,
    named_errors,
    read_frame,
    refused_dates,
    rescaled,
)
from fferm.errors import (
    ColumnHint,
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
    PersistenceError,
    warn_user,
)
from fferm.registry import Saved, unknown_name

# The level of missing values.
MISSING = "(missing)"
# A level of one row says nothing about any other row.
FEWEST_ROWS = 2
# Columns of these values are numbers, even if gaps make them columns of objects.
EXACT = (bool, np.bool_, Decimal)
# Values that are neither numbers nor categories.
DATES = (datetime.date, datetime.time, datetime.timedelta)
# How dates look as text: 2024-01-31, with a time or without, and 31.1.2024.
DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./-]\d\d?[./-]\d{4}")
UNUSABLE = (bytes, tuple, complex, *DATES)
# From this many rows on, text that differs in most rows and has more words than this
# on average is free text.
FREE_TEXT_FROM, MOST_WORDS = 20, 3
# Integers of so many distinct values, none of them 0, look like codes.
CODES = range(3, 31)
# Fewer rows than this show too little of a column to tell.
CODES_FROM = 100
# What columns of row numbers and keys are called; pandas writes the second.
IDENTIFIER = re.compile(r"(.*[ _-])?id|unnamed: 0", re.IGNORECASE)
# An encoding with no more than this share of it not 0 is a CSR matrix, as solvers would
# copy it to one; it is made by blocks of rows.
DENSEST = 0.25
ROWS_PER_BLOCK = 16_384


class FrameEncoder(Saved, TransformerMixin, BaseEstimator):
    """Encodes a table of mixed columns as numbers, as learned in training.

    Gaps in numbers are filled with the median; a column with gaps in training is
    followed by an indicator of them. Text and categories have one 0/1 column per
    level, with missing values as a level; a level that training had in fewer than two
    rows, or beyond the most frequent ``max_levels``, is 0 everywhere. Numbers are
    standardised if some column is not numeric; a table of numbers keeps its units, as
    an array does. Columns without information (one value) are dropped from a mixed
    table.

    Parameters
    ----------
    categorical
        Names of columns of numbers that are categories, such as codes.
    max_levels
        The most levels of one column.

    Attributes
    ----------
    columns_ : tuple of dict, what was learned about each column that is used
    dropped_ : tuple of str, the columns without information
    feature_names_in_ : ndarray of the names of all columns
    n_features_in_ : int

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [30.0, None, 50.0], "city": ["A", "B", "A"]})
    >>> FrameEncoder().fit(frame).get_feature_names_out().tolist()
    ['age', 'age=(missing)', 'city=A']
    """

    columns_: tuple[dict[str, Any], ...]
    dropped_: tuple[str, ...]

    def __init__(
        self, *, categorical: Sequence[Any] | None = None, max_levels: int = 50
    ) -> None:
        self.categorical = categorical
        self.max_levels = max_levels

    def fit(self, X: Table, y: Table = None, sample_weight: Table = None) -> Self:
        """Learn from the training rows.

        Parameters
        ----------
        X
            Data frame of pandas, polars or pyarrow.
        y
            Not used.
        sample_weight
            (n_samples,) weights of the rows. One of weight 2 counts as two rows, one
            of weight 0 is left out.

        Returns
        -------
        Self
        """
        frame = as_pandas(X)
        if frame.empty:
            raise InvalidInputError(
                f"X must have rows and columns; got shape {frame.shape}."
            )
        max_levels = check_whole("max_levels", self.max_levels)
        categorical = check_categorical(self.categorical, list(frame.columns))
        weight = None
        if sample_weight is not None:
            weight = encode_weight(sample_weight, len(frame))
            frame, _, weight, _ = keep_weighted(frame, weight, weight)
        numbers = {
            name: None if name in categorical else as_numbers(frame[name])
            for name in frame.columns
        }
        is_mixed = any(column is None for column in numbers.values())
        learned = {}
        for name, column in numbers.items():
            if column is not None:
                learned[name] = _learn_numbers(name, column, is_mixed, weight)
            else:
                is_named = name in categorical
                counts = count_levels(name, frame[name], is_named, weight)
                learned[name] = _learn_levels(name, counts, max_levels)
        self.columns_ = tuple(column for column in learned.values() if column)
        self.dropped_ = tuple(name for name, column in learned.items() if not column)
        self.feature_names_in_ = np.array(frame.columns, dtype=object)
        self.n_features_in_ = len(frame.columns)
        if not self.columns_:
            alone = " There is only 1 sample." if len(frame) == 1 else ""
            raise InvalidInputError(
                f"No column to predict from: {', '.join(map(str, learned))} each have "
                f"one value, or a different text in every row.{alone} Pass other "
                "columns."
            )
        return self

    def transform(self, X: Table) -> FloatArray:
        """Return the (n_samples, n_numbers) encoding of some rows.

        Parameters
        ----------
        X
            A frame with the columns of training, in any order, and perhaps others.
        """
        frame = self._read(X)
        encoded = np.zeros((len(frame), len(self.get_feature_names_out())))
        for begin, at, values in self._entries(frame):
            np.put_along_axis(encoded[:, begin:], at, values, axis=1)
        return encoded

    def to_rows(self, X: Table) -> Table:
        """Return what `transform` does, as a CSR matrix where that is much smaller.

        Parameters
        ----------
        X
            A frame, as in `transform`.
        """
        frame = self._read(X)
        width = len(self.get_feature_names_out())
        most = sum(1 + c.get("has_gaps", False) for c in self.columns_)  # in one row
        if most > DENSEST * width:
            return self.transform(frame)
        # Memory that is never written to is never taken.
        data = np.empty(most * len(frame))
        indices = np.empty(data.size, dtype=np.int32)
        indptr, count = [np.zeros(1, dtype=np.int64)], 0
        for rows in gen_batches(len(frame), ROWS_PER_BLOCK):
            parts = list(self._entries(frame.iloc[rows]))
            values = np.hstack([values for *_, values in parts])
            is_set = values != 0
            indptr.append(count + is_set.sum(axis=1).cumsum())
            part = slice(count, count := int(indptr[-1][-1]))
            data[part] = values[is_set]
            indices[part] = np.hstack([begin + at for begin, at, _ in parts])[is_set]
        entries = data[:count], indices[:count], np.concatenate(indptr)
        return sp.csr_matrix(entries, shape=(len(frame), width))

    def to_sklearn(self) -> Any:
        """Return the same encoding made of scikit-learn's own transformers.

        They take a data frame of pandas whose columns have the types of training.
        """
        # Imported when needed, as they are slow to import.
        from sklearn.compose import ColumnTransformer
        from sklearn.impute import MissingIndicator, SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import (
            FunctionTransformer,
            OneHotEncoder,
            StandardScaler,
        )

        steps: list[tuple[str, Any, list[str]]] = []
        for n, column in enumerate(self.columns_):
            name = [column["name"]]
            if column["kind"] == "levels":
                levels = [np.array(column["levels"], dtype=object)]
                calls = [("astype", object), ("fillna", MISSING), ("astype", str)]
                made = [FunctionTransformer(methodcaller(*call)) for call in calls]
                # 1.0, of whole numbers with gaps, is the level 1.
                plain = {f"{each}.0": each for each in column["levels"]}
                made.append(FunctionTransformer(methodcaller("replace", plain)))
                encoder = OneHotEncoder(
                    categories=levels, handle_unknown="ignore", sparse_output=False
                )
                steps.append((f"{n}", make_pipeline(*made, encoder), name))
                continue
            number = FunctionTransformer(methodcaller("astype", float))
            filler = SimpleImputer(strategy="constant", fill_value=column["fill"])
            filled = make_pipeline(number, filler, StandardScaler())
            steps.append((f"{n}", filled, name))
            if column["has_gaps"]:
                gaps = make_pipeline(number, MissingIndicator(features="all"))
                steps.append((f"{n} gaps", gaps, name))
        row = {c["name"]: ["", "a"] if "levels" in c else [0, 1] for c in self.columns_}
        made_of = ColumnTransformer(steps).fit(pd.DataFrame(row))
        for n, column in enumerate(self.columns_):
            if column["kind"] == "number":
                scaler = made_of.named_transformers_[f"{n}"][-1]
                scaler.mean_ = np.array([column["mean"]])
                scaler.scale_ = np.array([column["scale"]])
                scaler.var_ = scaler.scale_**2
        return made_of

    def _read(self, X: Table) -> pd.DataFrame:
        with named_errors():
            check_is_fitted(self)
        frame = as_pandas(X)
        missing = [c["name"] for c in self.columns_ if c["name"] not in frame.columns]
        if missing:
            raise InvalidInputError(
                f"The data lack {', '.join(map(repr, missing))}, which the model needs "
                f"to predict. Columns: {', '.join(frame.columns)}."
            )
        return frame

    def _entries(
        self, frame: pd.DataFrame
    ) -> Iterator[tuple[int, IntArray, FloatArray]]:
        # Where the encoding of each column begins and, for each row, positions from
        # there on and what stands there: (n_samples, 1), or 2 for a column with gaps.
        begin = 0
        for column in self.columns_:
            yield begin, *_encode_column(column, frame[column["name"]])
            begin += len(_suffixes(column))

    def _from_saved(self, learned: dict[str, Any]) -> None:
        super()._from_saved(learned)
        row = pd.DataFrame({column["name"]: [None] for column in self.columns_})
        levels = [name for column in self.columns_ for name in column.get("levels", ())]
        with np.errstate(all="ignore"):
            encoded = self.transform(row)
        if not (all(isinstance(n, str) for n in levels) and np.isfinite(encoded).all()):
            raise PersistenceError(
                "columns_ must hold levels of text, and scales that are not 0."
            )

    def get_feature_names_out(self, input_features: Table = None) -> NDArray[Any]:
        """Return the names of the encoded columns.

        Parameters
        ----------
        input_features
            Not used.
        """
        with named_errors():
            check_is_fitted(self)
        names = [c["name"] + suffix for c in self.columns_ for suffix in _suffixes(c)]
        return np.array(names, dtype=object)


def _suffixes(column: dict[str, Any]) -> list[str]:
    # What the encoded columns are called after the column that they encode.
    if column["kind"] == "levels":
        return [f"={level}" for level in column["levels"]]
    return ["", f"={MISSING}"] if column["has_gaps"] else [""]


def check_categorical(
    categorical: Sequence[Any] | None, names: Sequence[str]
) -> tuple[str, ...]:
    """Return the columns that ``categorical`` names, after checking that they exist."""
    if categorical is None:
        return ()
    if isinstance(categorical, str) or not isinstance(categorical, Iterable):
        raise InvalidParameterError(
            "categorical must be a list of columns; got "
            f"{categorical!r}. Pass [{categorical!r}]."
        )
    for name in categorical:
        if str(name) not in names:
            message = unknown_name("column", str(name), names)
            raise InvalidParameterError(f"categorical: {message}")
    return tuple(map(str, categorical))


def hint_at_codes(frame: pd.DataFrame, categorical: Sequence[Any] | None) -> None:
    """Warn of integers that look like codes or identifiers, unless some are named."""
    if categorical is not None or len(frame) < CODES_FROM:
        return
    codes, identifiers = [], []
    for name in map(str, frame.columns):
        if not pd.api.types.is_integer_dtype(frame[name].dtype):
            continue
        distinct = pd.unique(frame[name].dropna())
        if len(distinct) in CODES and min(distinct) > 0:
            codes.append(name)
        elif len(distinct) == len(frame) and IDENTIFIER.fullmatch(name):
            identifiers.append(name)
    if identifiers:
        warn_user(
            "Columns that look like identifiers are read as numbers: "
            f"{', '.join(identifiers)}. Drop them.",
            ColumnHint,
        )
    if codes:
        warn_user(
            f"Columns that look like codes are read as numbers: {', '.join(codes)}. "
            f"If they are categories, pass categorical={codes!r}; if all are "
            "quantities, pass categorical=[].",
            ColumnHint,
        )


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
    """Return a column of numbers or booleans as floats; None for others."""
    dtype = column.dtype
    if pd.api.types.is_complex_dtype(dtype):
        raise InvalidInputError(
            f"Complex data not supported: column {column.name!r}. Pass its real and "
            "imaginary parts as two columns."
        )
    if isinstance(dtype, pd.CategoricalDtype):
        return None
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return column.to_numpy(dtype=np.float64)
    if column_kind(column) != "label" or pd.api.types.is_bool_dtype(dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    # The first text of a column ends the search.
    if all(isinstance(value, EXACT) for value in column.dropna()):
        values = [np.nan if pd.isna(value) else float(value) for value in column]
        return np.array(values, dtype=np.float64)
    return None


def count_levels(
    name: str,
    column: "pd.Series[Any]",
    is_named: bool,
    weight: FloatArray | None = None,
) -> Any:
    """Return the number of rows of each level; raise if the text is free text.

    Columns of a categorical type, or that are named as categorical, are not asked.
    Names and identifiers, a word or two in every row, merely have no levels to learn.
    A row of weight 2 counts as two rows; small weights, as of shares, take none away.
    """
    code, names = _as_levels(name, column)
    size = len(names)
    n_rows = np.bincount(code, minlength=size)
    total = n_rows if weight is None else np.bincount(code, weight, size)
    both = pd.DataFrame({"rows": n_rows, "weight": total}, index=names)
    both = both.groupby(level=0).sum()
    counts = both["rows"][both["rows"] > 0]
    known = counts.drop(MISSING, errors="ignore")
    is_declared = is_named or isinstance(column.dtype, pd.CategoricalDtype)
    if not is_declared and len(known) and all(map(DATE.fullmatch, known.index)):
        raise InvalidTypeError(refused_dates([name]))
    is_varied = FREE_TEXT_FROM <= known.sum() < 2 * len(known)
    n_words = sum(len(str(level).split()) for level in known.index) if is_varied else 0
    if not is_declared and n_words > MOST_WORDS * len(known):
        raise InvalidInputError(
            f"Column {name!r} has {len(known)} distinct texts in {known.sum()} rows, "
            "so it is free text and not a category. Drop the column, or turn it into "
            "categories or numbers."
        )
    return both.loc[counts.index].max(axis=1)


def _learn_levels(name: str, counts: Any, max_levels: int) -> dict[str, Any] | None:
    # None for a column without information.
    # Sorted by name within a count, so that the order of rows does not matter.
    kept = counts[counts >= FEWEST_ROWS].sort_values(ascending=False, kind="stable")
    levels = [str(level) for level in kept.index[:max_levels]]
    if len(counts) < 2 or not levels:
        return None
    return {"name": name, "kind": "levels", "levels": levels}


def _learn_numbers(
    name: str, numbers: FloatArray, is_scaled: bool, weight: FloatArray | None
) -> dict[str, Any] | None:
    _refuse_infinite(name, numbers)
    weight = None if weight is None or are_alike(weight) else rescaled(weight)
    is_gap = np.isnan(numbers)
    if is_gap.all():
        return None
    has_gaps = bool(is_gap.any())
    known = numbers[~is_gap] if has_gaps else numbers
    fill = _median(known, None if weight is None else weight[~is_gap])
    learned = {"name": name, "kind": "number", "fill": fill, "has_gaps": has_gaps}
    if not is_scaled:
        return {**learned, "mean": 0.0, "scale": 1.0}
    filled = np.where(is_gap, fill, numbers)
    # In units of the largest, whose squares neither vanish nor overflow; a power of two
    # rounds nothing.
    unit = float(np.ldexp(1.0, np.frexp(np.abs(filled).max())[1]))
    mean = float(np.average(filled, weights=weight))
    spread = np.average((filled / unit - mean / unit) ** 2, weights=weight)
    scale = unit * float(np.sqrt(spread))
    # Rounding alone gives a constant column some spread.
    if scale <= 1e-12 * max(abs(mean), 1e-300):
        if not has_gaps:
            return None
        scale = 1.0
    return {**learned, "mean": mean, "scale": scale}


def _median(values: FloatArray, weight: FloatArray | None) -> float:
    # A row of weight 2 counts as two rows.
    if weight is None:
        return float(np.median(values))
    order = np.argsort(values)
    below = np.cumsum(weight[order])
    half = below[-1] / 2
    middle = [np.searchsorted(below, half, side) for side in ("left", "right")]
    # All weights may be 0 beside those of other rows.
    return float(values[order[np.minimum(middle, values.size - 1)]].mean())


def _encode_column(
    learned: dict[str, Any], column: "pd.Series[Any]"
) -> tuple[IntArray, FloatArray]:
    # For each row, positions among the column's features and what stands there.
    name = learned["name"]
    if learned["kind"] == "levels":
        code, names = _as_levels(name, column)
        position = {level: j for j, level in enumerate(learned["levels"])}
        level = np.array([position.get(each, -1) for each in names])[code, None]
        return np.maximum(level, 0), (level >= 0).astype(np.float64)
    numbers = as_numbers(column)
    if numbers is None:
        numbers = _parse_numbers(name, column)
    _refuse_infinite(name, numbers)
    is_gap = np.isnan(numbers)
    if is_gap.any():
        numbers = np.where(is_gap, learned["fill"], numbers)
    values = [(numbers - learned["mean"]) / learned["scale"]]
    if learned["has_gaps"]:
        values.append(is_gap)
    at = np.broadcast_to(np.arange(len(values)), (len(numbers), len(values)))
    return at, np.column_stack(values)


def _as_levels(name: str, column: "pd.Series[Any]") -> tuple[IntArray, list[str]]:
    # The level of each row as a code, and the text of each code.
    try:
        code, distinct = pd.factorize(column, use_na_sentinel=True)
        odd = next((v for v in distinct if isinstance(v, UNUSABLE)), None)
    except TypeError:  # lists and the like
        odd = column.dropna().iloc[0]
    if isinstance(odd, DATES):
        raise InvalidTypeError(refused_dates([name]))
    if odd is not None:
        raise InvalidInputError(
            f"Column {name!r} contains values of type {type(odd).__name__}. Columns "
            "must hold numbers, text, categories or booleans; drop this one."
        )
    names = [*(str(group_name(value)) for value in distinct), MISSING]
    return np.where(code < 0, len(names) - 1, code), names


def _parse_numbers(name: str, column: "pd.Series[Any]") -> FloatArray:
    # The column was numeric in training; a file may still hold the numbers as text.
    known = column.dropna()
    texts = pd.Series([str(value) for value in known], known.index, dtype=object)
    parsed = pd.to_numeric(texts, errors="coerce")
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
            f"Column {name!r} contains infinity, or numbers above {LARGEST_FEATURE:g}. "
            "Correct them, or leave them empty."
        )
