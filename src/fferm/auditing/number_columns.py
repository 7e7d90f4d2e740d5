"""Sensitive columns, predictions and targets as the audit of a regressor reads them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fferm._typing import FloatArray, Table
from fferm.data.groups import (
    Attribute,
    Binning,
    GroupMode,
    assign,
    band_names,
    encode_column,
    find_edges,
    partition,
    read_numbers,
    split_columns,
)
from fferm.data.validate import one_column
from fferm.errors import InvalidInputError, InvalidTypeError

# A column of numbers with more different values than this is compared as numbers.
MOST_GROUPS = 20


@dataclass(frozen=True)
class Compared:
    """A sensitive column as it is compared: groups, and the numbers behind bands."""

    attribute: Attribute
    numbers: FloatArray | None
    is_joint: bool = False
    has_trained_bands: bool = False


def read_columns(
    sensitive_features: Table,
    n_samples: int,
    how: GroupMode,
    cutting: Binning,
) -> dict[str, Compared]:
    """Return the sensitive columns, and several of them jointly, by name."""
    parts = dict(split_columns(sensitive_features))
    cutting.check(list(parts))
    columns = {
        name: _read(name, values, n_samples, cutting, len(parts))
        for name, values in parts.items()
    }
    if not columns:
        raise InvalidInputError(
            "sensitive_features has no column. Expected at least one."
        )
    alone = [column.attribute for column in columns.values()]
    joint = partition(alone, how)
    if len(alone) > 1 and len(joint) == 1:
        columns[joint[0].name] = Compared(joint[0], None, is_joint=True)
    return columns


def _read(
    name: str, values: Table, n_samples: int, cutting: Binning, n_columns: int
) -> Compared:
    series = pd.Series(np.asarray(values)).infer_objects()
    is_numeric = pd.api.types.is_numeric_dtype(series.dtype)
    known = cutting.known(name, n_columns) if is_numeric else None
    is_number = is_numeric and series.nunique() > MOST_GROUPS
    if not isinstance(cutting.continuous, str):
        is_number = name in cutting.continuous
    if not is_number and known is None:
        return Compared(encode_column(values, name, n_samples), None)
    if len(series) != n_samples:
        raise InvalidInputError(
            f"{name} has {len(series)} values and there are {n_samples} rows. Expected "
            "one value per row."
        )
    numbers = read_numbers(series, name)
    edges = find_edges(numbers) if known is None else np.array(known)
    code = assign(numbers, edges)
    attribute = Attribute(name, band_names(edges), code, {name: tuple(edges.tolist())})
    return Compared(attribute, numbers, has_trained_bands=known is not None)


def read_predictions(estimator: Any, X: Table) -> FloatArray:
    """Return what is predicted: by an estimator, or X itself where there is none."""
    if estimator is None:
        return read_finite(X, "The prediction")
    if not hasattr(estimator, "predict"):
        raise InvalidTypeError(
            f"{type(estimator).__name__} has no predict. Expected a fitted regressor, "
            "or None with predictions in assign of X."
        )
    return read_finite(estimator.predict(X), "The prediction")


def read_finite(values: Table, name: str) -> FloatArray:
    """Return one finite number a row."""
    try:
        array = np.asarray(one_column(values), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{name} holds what is no number ({error}). Expected numbers."
        ) from error
    if array.ndim != 1 or not np.all(np.isfinite(array)):
        raise InvalidInputError(
            f"{name} has shape {array.shape}, or holds missing numbers. Expected one "
            "finite number a row."
        )
    return array
