"""Turn sensitive columns as users hold them into groups with integer codes.

Frames of pandas, polars and pyarrow, lists, dictionaries and arrays come in; one
integer per row goes on. Missing values become -1.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fferm._types import IntArray, Table, unmasked
from fferm.bands import (
    MOST_FRACTIONAL_VALUES,
    OWN_QUANTILES,
    UNNAMED,
    BandEdges,
    Cutting,
    band_names,
    band_start,
    is_continuous,
    known_values,
    merged_edges,
    place,
    read_band_numbers,
)
from fferm.errors import DataFairnessWarning, InvalidInputError, InvalidParameterError
from fferm.labels import encode_sorted

GroupMode = Literal["intersection", "marginal"]


@dataclass(frozen=True)
class Attribute:
    """One partition of the rows into groups.

    Attributes
    ----------
    name
        The column, or columns, that it came from.
    groups
        The name of each group.
    code
        (n_samples,) group codes, -1 where the value is missing.
    edges
        Where bands meet, of those of its columns that were cut.
    """

    name: str
    groups: tuple[str, ...]
    code: IntArray
    edges: BandEdges = field(default_factory=dict)


def encode_sensitive(
    sensitive_features: Table,
    n_samples: int,
    how: GroupMode = "intersection",
    cutting: Cutting = OWN_QUANTILES,
) -> tuple[Attribute, ...]:
    """Return the groups that sensitive features make.

    Parameters
    ----------
    sensitive_features
        List, array (n,) or (n, a), Series, DataFrame or dict of arrays.
    n_samples
        How many rows there must be.
    how
        ``"intersection"``: one partition by all columns jointly. ``"marginal"``: one
        partition per column.
    cutting
        Which columns are cut into bands, and where.
    """
    return partition(encode_columns(sensitive_features, n_samples, cutting), how)


def encode_columns(
    sensitive_features: Table, n_samples: int, cutting: Cutting = OWN_QUANTILES
) -> list[Attribute]:
    """Return the groups that each sensitive column makes.

    Columns of many fractional numbers are cut into bands, by default at quantiles.
    """
    parts = split_columns(sensitive_features)
    cutting.check([name for name, _ in parts])
    columns = []
    for name, values in parts:
        series = _series(values, name)
        edges = cutting.of(series, name, len(parts))
        if edges is None:
            columns.append(encode_column(series, name, n_samples))
            _warn_of_quantities(series, columns[-1])
        else:
            _check_length(series, name, n_samples)
            code = place(read_band_numbers(series, name), edges)
            bands = {name: tuple(edges.tolist())}
            columns.append(Attribute(name, band_names(edges), code, bands))
    if not columns:
        raise InvalidInputError(
            "sensitive_features has no column. Expected at least one, with one value "
            "per row."
        )
    return columns


def partition(columns: Sequence[Attribute], how: GroupMode) -> tuple[Attribute, ...]:
    """Return one partition per column, or one for their intersection."""
    if how not in ("intersection", "marginal"):
        raise InvalidParameterError(
            f"groups={how!r} came. Expected 'intersection' or 'marginal'."
        )
    if how == "marginal" or len(columns) == 1:
        return tuple(columns)
    return (_intersection(columns),)


def _warn_of_quantities(series: "pd.Series[Any]", attribute: Attribute) -> None:
    # Codes and ages look alike, so that nothing is cut without being asked to.
    known = known_values(series)
    is_number = pd.api.types.is_numeric_dtype(known.dtype)
    n_groups = len(attribute.groups)
    if is_number and n_groups > MOST_FRACTIONAL_VALUES:
        warnings.warn(
            f"{attribute.name} makes {n_groups} groups, one of each whole number. If "
            "these are quantities, such as ages, cut them into bands: "
            "fferm.bands.quantile_bands(values), or --bands on the command line. If "
            "they are codes, give them as text.",
            DataFairnessWarning,
            stacklevel=4,
        )


def encode_column(values: Table, name: str, n_samples: int) -> Attribute:
    """Return the groups that the values of one column make."""
    attribute = read_column(values, name, n_samples)
    n_groups = len(attribute.groups)
    if n_groups > MOST_FRACTIONAL_VALUES:
        refuse_identifiers(name, n_groups, int(np.sum(attribute.code >= 0)))
    return attribute


def read_column(values: Table, name: str, n_samples: int) -> Attribute:
    """Return the groups of one column, which may be part of a longer one."""
    series = _series(values, name)
    _check_length(series, name, n_samples)
    refuse_continuous(series, name)
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iu":
        # Whole numbers are never missing, and groups are in the order of the numbers.
        numbers, place = encode_sorted(series.to_numpy())
        return Attribute(name, tuple(map(str, numbers.tolist())), place)
    try:
        code, values_seen = pd.factorize(series, use_na_sentinel=True)
    except TypeError as error:
        raise InvalidInputError(
            f"{name} holds values that cannot be compared ({error}). Expected strings,"
            " numbers or booleans."
        ) from error
    labels = [group_name(value) for value in values_seen]
    groups, position = number_groups(labels)
    return Attribute(name, groups, np.append(position, -1)[np.asarray(code)])


def number_groups(names: Sequence[str | None]) -> tuple[tuple[str, ...], IntArray]:
    """Return the groups among names in their order, and the code of each name.

    None is no group and gets -1.
    """
    groups = sorted({name for name in names if name is not None}, key=natural_order)
    position: dict[str | None, int] = {group: k for k, group in enumerate(groups)}
    codes = [position.get(name, -1) for name in names]
    return tuple(groups), np.array(codes, dtype=np.int64)


def split_columns(sensitive_features: Table) -> list[tuple[str, Table]]:
    """Return name and values of each sensitive column."""
    data = sensitive_features
    if isinstance(data, str | bytes) or np.isscalar(data):
        raise InvalidInputError(
            f"sensitive_features is {data!r}. Expected the values themselves, one per "
            "row: a list, an array, a column of a data frame, or a dict of these."
        )
    if isinstance(data, Mapping):
        return [(str(name), values) for name, values in data.items()]
    try:
        native = nw.from_native(data, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise InvalidInputError(
            f"Two columns of sensitive_features share a name ({error}). Rename one."
        ) from error
    if isinstance(native, nw.LazyFrame):
        native = native.collect()
    if isinstance(native, nw.DataFrame):
        return [(str(column.name), column) for column in native.iter_columns()]
    if isinstance(native, nw.Series):
        return [(str(native.name or UNNAMED), native)]
    return _array_columns(data)


def collected(sensitive_features: Table) -> Table:
    """Return a lazy frame as one whose rows can be taken, others as they are."""
    native = nw.from_native(sensitive_features, pass_through=True)
    if isinstance(native, nw.LazyFrame):
        return native.collect().to_native()
    return sensitive_features


def take_rows(sensitive_features: Table, rows: IntArray) -> dict[str, Table]:
    """Return some rows of sensitive columns, by name."""
    return {
        name: _series(values, name).iloc[rows].reset_index(drop=True)
        for name, values in split_columns(sensitive_features)
    }


def _array_columns(data: Table) -> list[tuple[str, Table]]:
    array = _as_array(data, "sensitive_features")
    if array.ndim == 1:
        return [(UNNAMED, array)]
    if array.ndim == 2:
        return [(f"{UNNAMED}_{a}", array[:, a]) for a in range(array.shape[1])]
    raise InvalidInputError(
        f"sensitive_features has shape {array.shape}. Expected (n_samples,) or "
        "(n_samples, n_columns)."
    )


def _as_array(values: Table, name: str) -> NDArray[Any]:
    values = unmasked(values)
    try:
        array = np.asarray(values)
        if array.dtype.kind in "US":  # a list with None in it must keep its None
            array = np.asarray(values, dtype=object)
    except ValueError as error:
        raise InvalidInputError(
            f"{name} is ragged ({error}). Expected one value per row, or the same "
            "number of values in each row."
        ) from error
    return array


def _series(values: Table, name: str) -> "pd.Series[Any]":
    native = nw.from_native(values, series_only=True, pass_through=True)
    if isinstance(native, nw.Series):
        return native.to_pandas()
    array = _as_array(values, name)
    if array.ndim != 1:
        raise InvalidInputError(
            f"{name} has shape {array.shape}. Expected one value per row."
        )
    return pd.Series(array, copy=False)


def _check_length(series: "pd.Series[Any]", name: str, n_samples: int) -> None:
    if len(series) != n_samples:
        raise InvalidInputError(
            f"sensitive_features: {name} has {len(series)} values and there are "
            f"{n_samples} rows. Expected one value per row: values, not column names."
        )


def refuse_continuous(series: "pd.Series[Any]", name: str) -> None:
    """Refuse a column of numbers where only groups can be taken."""
    known = known_values(series)
    if not pd.api.types.is_float_dtype(known.dtype):
        return
    values = known.to_numpy(dtype=np.float64)
    if np.isinf(values).any():
        raise InvalidInputError(
            f"{name} holds infinity. Expected groups: strings, whole numbers, booleans."
        )
    if is_continuous(known):
        raise InvalidInputError(
            f"{name} holds {np.unique(values).size} different fractional numbers, so "
            "it is no set of groups. Cut it into bands first: "
            "fferm.bands.quantile_bands(values); where rows come in parts, of which "
            "none knows the bands of all, with edges of your own: pandas.cut."
        )


# More values than a column of fractional numbers may have, and one for every other row:
# these name rows.
def refuse_identifiers(name: str, n_groups: int, n_rows: int) -> None:
    """Refuse columns of so many groups that they name rows."""
    if n_groups > max(MOST_FRACTIONAL_VALUES, n_rows / 2):
        raise InvalidInputError(
            f"{name} makes {n_groups} groups of {n_rows} rows, so it names rows, not "
            "groups. Give a column whose values are shared by many rows; cut numbers "
            "into bands: fferm.bands.quantile_bands(values)."
        )


def group_name(value: object) -> str:
    """Return what a group of this value is called.

    1 and "1" read alike in every table that a person sees, so they are one group.
    """
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # a gap turns a column of integers into floats
    return str(value)


def natural_order(label: str) -> tuple[int, float, str]:
    """Return a key that puts numbers, and bands of them, in order before words."""
    start = band_start(label)
    if start is not None:
        return 0, start, label
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    # "nan" is a word too: nothing is below or above it, so it would sort anyhow.
    return (1, 0.0, label) if math.isnan(number) else (0, number, label)


def _intersection(columns: Sequence[Attribute]) -> Attribute:
    codes = np.stack([column.code for column in columns])  # (a, n)
    is_known = (codes >= 0).all(axis=0)
    shape = tuple(len(column.groups) for column in columns)
    flat = number_cells(codes[:, is_known], shape)
    present, inverse = np.unique(flat, return_inverse=True)
    cells = list(zip(*np.unravel_index(present, shape), strict=True))
    groups = tuple(_join(columns, cell, " × ", "{1}") for cell in cells)
    if len(set(groups)) < len(groups):  # some values hold the sign themselves
        groups = tuple(_join(columns, cell, ", ", "{0}={1}") for cell in cells)
    code = np.full(codes.shape[1], -1, dtype=np.int64)
    code[is_known] = inverse.reshape(-1)
    name = " × ".join(column.name for column in columns)
    return Attribute(name, groups, code, merged_edges(c.edges for c in columns))


def number_cells(codes: IntArray, shape: tuple[int, ...]) -> IntArray:
    """Return (n_samples,) numbers of the cells that (n_columns, n_samples) codes are.

    ``shape`` says how many codes each column has.
    """
    if math.prod(shape) > np.iinfo(np.int64).max:
        raise InvalidInputError(
            f"{len(shape)} sensitive columns of {min(shape)} to {max(shape)} values "
            "have more intersections than can be numbered. Compare fewer columns, or "
            "one by one: groups='marginal'."
        )
    return np.asarray(np.ravel_multi_index(tuple(codes), shape), dtype=np.int64)


def _join(
    columns: Sequence[Attribute], cell: tuple[int, ...], sign: str, form: str
) -> str:
    return sign.join(
        form.format(column.name, column.groups[k])
        for column, k in zip(columns, cell, strict=True)
    )
