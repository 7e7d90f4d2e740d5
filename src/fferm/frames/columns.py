"""One column of a frame, and the numbers that it becomes.

What is learned of a column is a plain dictionary, so that it can be saved: ``name``,
``kind`` and, for numbers, ``fill``, ``mean``, ``scale``, ``has_gaps``; for levels,
their names in ``levels``, the most frequent first.
"""

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fferm._typing import FloatArray
from fferm.data.groups import group_name
from fferm.data.validate import LARGEST_FEATURE
from fferm.errors import InvalidInputError

# What a missing value is called among the levels of a column.
MISSING = "(missing)"
# A level of one row says nothing of any other row.
FEWEST_ROWS = 2

LearnedColumn = dict[str, Any]


def learn_column(
    name: str, column: "pd.Series[Any]", max_levels: int
) -> LearnedColumn | None:
    """Return what there is to know of a column; None where it says nothing."""
    numbers = as_numbers(column)
    if numbers is not None:
        return _learn_numbers(name, numbers)
    counts = pd.Series(as_levels(name, column)).value_counts()
    # Sorted by name within a count: the order of rows is no property of a column.
    kept = (
        counts[counts >= FEWEST_ROWS]
        .sort_index()
        .sort_values(ascending=False, kind="stable")
    )
    levels = [str(level) for level in kept.index[:max_levels]]
    if len(counts) < 2 or not levels:
        return None
    return {"name": name, "kind": "levels", "levels": levels}


def encode_column(learned: LearnedColumn, column: "pd.Series[Any]") -> FloatArray:
    """Return the (n_samples, n_numbers) numbers of a column."""
    if learned["kind"] == "levels":
        found = as_levels(learned["name"], column)
        return np.column_stack([found == level for level in learned["levels"]]).astype(
            np.float64
        )
    numbers = as_numbers(column)
    if numbers is None:
        numbers = _parsed(learned["name"], column)
    _refuse_infinite(learned["name"], numbers)
    is_gap = np.isnan(numbers)
    filled = np.where(is_gap, learned["fill"], numbers)
    parts = [(filled - learned["mean"]) / learned["scale"]]
    if learned["has_gaps"]:
        parts.append(is_gap.astype(np.float64))
    return np.column_stack(parts)


def encoded_names(learned: LearnedColumn) -> list[str]:
    """Return the names of the numbers that a column becomes."""
    name = learned["name"]
    if learned["kind"] == "levels":
        return [f"{name}={level}" for level in learned["levels"]]
    return [name, f"{name}={MISSING}"] if learned["has_gaps"] else [name]


def as_numbers(column: "pd.Series[Any]") -> FloatArray | None:
    """Return a column of numbers, dates or truth values as floats; None for others."""
    if isinstance(column.dtype, pd.DatetimeTZDtype) or column.dtype.kind in "mM":
        times = column.to_numpy(dtype=f"{_time_kind(column)}8[s]")
        gaps = np.isnat(times)
        return np.where(gaps, np.nan, times.astype(np.int64).astype(np.float64))
    if isinstance(column.dtype, pd.CategoricalDtype):
        return None
    if pd.api.types.is_complex_dtype(column.dtype):
        return None
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    known = column.dropna()
    if len(known) == 0 or known.map(lambda value: isinstance(value, _EXACT)).all():
        # Truth values and decimals come as objects where some are missing.
        values = [np.nan if pd.isna(value) else float(value) for value in column]
        return np.array(values, dtype=np.float64)
    return None


_EXACT = (bool, np.bool_, Decimal)


def as_levels(name: str, column: "pd.Series[Any]") -> NDArray[Any]:
    """Return a column as text, one level per row."""
    try:
        code, seen = pd.factorize(column, use_na_sentinel=True)
        odd = next((value for value in seen if isinstance(value, bytes | tuple)), None)
    except TypeError:  # of lists and the like
        odd = column.dropna().iloc[0]
    if odd is not None:
        raise InvalidInputError(
            f"Column {name!r} holds values of type {type(odd).__name__}. Expected "
            "numbers, text, truth values or dates; leave the column out."
        )
    names = [*(group_name(value) for value in seen), MISSING]
    return np.array(names, dtype=object)[code]


def _learn_numbers(name: str, numbers: FloatArray) -> LearnedColumn | None:
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
    return {
        "name": name,
        "kind": "number",
        "fill": fill,
        "mean": mean,
        "scale": scale,
        "has_gaps": bool(is_gap.any()),
    }


def _parsed(name: str, column: "pd.Series[Any]") -> FloatArray:
    # In training it held numbers; a file may still hold them as text.
    known = column.dropna()
    parsed = pd.to_numeric(known.astype(str), errors="coerce")
    if parsed.isna().any():
        raise InvalidInputError(
            f"Column {name!r} holds {known[parsed.isna()].iloc[0]!r}. Expected "
            "numbers, as in training; correct the file, or train again."
        )
    numbers = np.full(len(column), np.nan)
    numbers[column.notna().to_numpy()] = parsed.to_numpy(dtype=np.float64)
    return numbers


def _time_kind(column: "pd.Series[Any]") -> str:
    return "m" if column.dtype.kind == "m" else "M"


def _refuse_infinite(name: str, numbers: FloatArray) -> None:
    if np.any(np.abs(numbers[~np.isnan(numbers)]) > LARGEST_FEATURE):
        raise InvalidInputError(
            f"Column {name!r} holds infinity, or numbers above {LARGEST_FEATURE:g}. "
            "Expected finite numbers; correct them, or leave the column out."
        )
