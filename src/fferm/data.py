"""Encode labels and sensitive features as users hold them into integer codes.

Frames of pandas, polars and pyarrow, lists, dictionaries and arrays come in; one
integer per row goes on. Missing sensitive values become -1 and are counted aloud.
"""

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fferm._types import FloatArray, IntArray, Table, is_sparse
from fferm.errors import (
    EmptyStratumWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingGroupWarning,
    SmallGroupWarning,
)
from fferm.notions import Labels, Notion, Strata

GroupMode = Literal["intersection", "marginal"]

# Fewer rows than this in a cell of stratum and group: its rate says next to nothing.
SMALL_GROUP = 10
# A column of fractional numbers with more values than this is no set of groups, nor is
# one with more values than this that names every other row.
MOST_FRACTIONAL_VALUES = 20
# Frames from a warning of `warn_of_gaps` up to the line that called `fit`.
FIT_DEPTH = 6


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
    """

    name: str
    groups: tuple[str, ...]
    code: IntArray


@dataclass(frozen=True)
class FairRows:
    """The rows that a penalty or an audit looks at, encoded.

    Attributes
    ----------
    attributes
        One partition per sensitive column, or one for their intersection.
    strata
        What the notion makes of the labels.
    weight
        (n_samples,) sample weights.
    """

    attributes: tuple[Attribute, ...]
    strata: Strata
    weight: FloatArray

    def take(self, kept: NDArray[np.bool_]) -> "FairRows":
        """Return some of the rows, with every group still known by its name."""
        return FairRows(
            tuple(
                replace(attribute, code=attribute.code[kept])
                for attribute in self.attributes
            ),
            replace(self.strata, code=self.strata.code[kept]),
            self.weight[kept],
        )

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of all groups; with their column where there are several columns."""
        if len(self.attributes) == 1:
            return self.attributes[0].groups
        return tuple(
            f"{attribute.name}={group}"
            for attribute in self.attributes
            for group in attribute.groups
        )


def encode_sensitive(
    sensitive_features: Table, n_samples: int, how: GroupMode = "intersection"
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
    """
    return partition(encode_columns(sensitive_features, n_samples), how)


def encode_columns(sensitive_features: Table, n_samples: int) -> list[Attribute]:
    """Return the groups that each sensitive column makes."""
    columns = [
        encode_column(values, name, n_samples)
        for name, values in split_columns(sensitive_features)
    ]
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


def check_aligned(**tables: Table) -> None:
    """Refuse pandas objects that hold the same rows in another order.

    Rows are matched by position. Where indexes have the same labels in another order,
    positions match people with the groups of others, and nothing else would show it.
    """
    indexed = {
        name: table.index
        for name, table in tables.items()
        if isinstance(table, pd.DataFrame | pd.Series)
    }
    for (first, index), (name, other) in itertools.pairwise(indexed.items()):
        is_same = len(index) == len(other) and not index.equals(other)
        if is_same and index.is_unique and set(index) == set(other):
            raise InvalidInputError(
                f"{first} and {name} have the same index in another order, and rows "
                f"are matched by position. Reorder one: {name}.loc[{first}.index]."
            )


def encode_column(values: Table, name: str, n_samples: int) -> Attribute:
    """Return the groups that the values of one column make."""
    attribute = read_column(values, name, n_samples)
    refuse_identifiers(name, len(attribute.groups), int(np.sum(attribute.code >= 0)))
    return attribute


def read_column(values: Table, name: str, n_samples: int) -> Attribute:
    """Return the groups of one column, which may be part of a longer one."""
    series = _series(values, name)
    if len(series) != n_samples:
        raise InvalidInputError(
            f"sensitive_features: {name} has {len(series)} values and there are "
            f"{n_samples} rows. Expected one value per row: values, not column names."
        )
    _refuse_continuous(series, name)
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


def encode_rows(
    sensitive_features: Table,
    notion: Notion,
    labels: Labels,
    *,
    how: GroupMode = "intersection",
    sample_weight: FloatArray | None = None,
) -> FairRows:
    """Return rows encoded for a notion, after warning of what they lack."""
    attributes = encode_sensitive(sensitive_features, labels.n_samples, how)
    weight = np.ones(labels.n_samples) if sample_weight is None else sample_weight
    rows = FairRows(attributes, notion.strata(labels), weight)
    for attribute in attributes:
        warn_of_gaps(attribute, rows)
    return rows


def control_labels(
    notion: Notion, X: Table, n_samples: int
) -> tuple[IntArray | None, tuple[str, ...]]:
    """Return the codes and names of a notion's control feature, if it has one."""
    control = notion.control_feature()
    if control is None:
        return None, ()
    if isinstance(control, str | int | np.integer):
        values = _column_of(X, control)
    else:
        values = control
        if len(control) != n_samples:
            raise InvalidInputError(
                f"The control feature has {len(control)} values and there are "
                f"{n_samples} rows. Name a column of X instead, which is found again "
                "wherever the notion is used: ConditionalParity('department')."
            )
    attribute = encode_column(values, "the control feature", n_samples)
    return attribute.code, attribute.groups


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
        return [(str(native.name or "group"), native)]
    return _array_columns(data)


def _array_columns(data: Table) -> list[tuple[str, Table]]:
    array = _as_array(data, "sensitive_features")
    if array.ndim == 1:
        return [("group", array)]
    if array.ndim == 2:
        return [(f"group_{a}", array[:, a]) for a in range(array.shape[1])]
    raise InvalidInputError(
        f"sensitive_features has shape {array.shape}. Expected (n_samples,) or "
        "(n_samples, n_columns)."
    )


def _as_array(values: Table, name: str) -> NDArray[Any]:
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
    return pd.Series(array)


def _refuse_continuous(series: "pd.Series[Any]", name: str) -> None:
    known = series.dropna().infer_objects()  # a gap makes a column of objects
    if not pd.api.types.is_float_dtype(known.dtype):
        return
    values = known.to_numpy(dtype=np.float64)
    if np.isinf(values).any():
        raise InvalidInputError(
            f"{name} holds infinity. Expected groups: strings, whole numbers, booleans."
        )
    distinct = np.unique(values)
    if distinct.size > MOST_FRACTIONAL_VALUES and np.any(distinct % 1):
        raise InvalidInputError(
            f"{name} holds {distinct.size} different fractional numbers, so it is no "
            "set of groups. Cut it into bands first, for example with pandas.qcut."
        )


def refuse_identifiers(name: str, n_groups: int, n_rows: int) -> None:
    """Refuse columns of so many groups that they name rows."""
    if n_groups > max(MOST_FRACTIONAL_VALUES, n_rows / 2):
        raise InvalidInputError(
            f"{name} makes {n_groups} groups of {n_rows} rows, so it names rows, not "
            "groups. Give a column whose values are shared by many rows."
        )


def group_name(value: object) -> str:
    """Return what a group of this value is called.

    1 and "1" read alike in every table that a person sees, so they are one group.
    """
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # a gap turns a column of integers into floats
    return str(value)


def natural_order(label: str) -> tuple[int, float, str]:
    """Return a key that puts numbers in their order, before words."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


def _intersection(columns: Sequence[Attribute]) -> Attribute:
    codes = np.stack([column.code for column in columns])  # (a, n)
    is_known = (codes >= 0).all(axis=0)
    shape = tuple(len(column.groups) for column in columns)
    flat = np.ravel_multi_index(tuple(codes[:, is_known]), shape)
    present, inverse = np.unique(flat, return_inverse=True)
    cells = list(zip(*np.unravel_index(present, shape), strict=True))
    groups = tuple(_join(columns, cell, " × ", "{1}") for cell in cells)
    if len(set(groups)) < len(groups):  # some values hold the sign themselves
        groups = tuple(_join(columns, cell, ", ", "{0}={1}") for cell in cells)
    code = np.full(codes.shape[1], -1, dtype=np.int64)
    code[is_known] = inverse.reshape(-1)
    return Attribute(" × ".join(column.name for column in columns), groups, code)


def _join(
    columns: Sequence[Attribute], cell: tuple[int, ...], sign: str, form: str
) -> str:
    return sign.join(
        form.format(column.name, column.groups[k])
        for column, k in zip(columns, cell, strict=True)
    )


def _column_of(X: Table, control: str | int | np.integer) -> Table:
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        names = frame.columns
        position = _position(names, control)
        if position is not None:
            return frame[:, position]
        raise InvalidParameterError(
            f"The control feature {control!r} is no column of X. Columns: "
            f"{', '.join(map(str, names))}."
        )
    if isinstance(control, str):
        raise InvalidParameterError(
            f"The control feature is named {control!r} but X has no column names. Pass "
            "a data frame, a column position, or one value per row."
        )
    return _array_column(X, int(control))


def _array_column(X: Table, position: int) -> NDArray[Any]:
    table = X.tocsr() if is_sparse(X) else np.asarray(X)
    try:
        column: Table = table[:, position]
    except IndexError as error:
        raise InvalidParameterError(
            f"The control feature is column {position}, which X lacks ({error})."
        ) from error
    dense = column.toarray() if is_sparse(column) else column
    return np.asarray(dense).reshape(-1)


def _position(names: list[str], control: str | int | np.integer) -> int | None:
    if isinstance(control, str):
        return names.index(control) if control in names else None
    return int(control) if -len(names) <= control < len(names) else None


def warn_of_gaps(attribute: Attribute, rows: FairRows, depth: int = FIT_DEPTH) -> None:
    """Warn of missing values, small groups and strata with one group."""
    n_missing = int(np.sum(attribute.code < 0))
    if n_missing:
        warnings.warn(
            f"{n_missing} of {attribute.code.size} rows have no value of "
            f"{attribute.name}. They are left out of the penalty.",
            MissingGroupWarning,
            stacklevel=depth,
        )
    count = count_cells(attribute, rows.strata)
    _warn_of_small(attribute, rows.strata, count, depth + 1)
    lonely = [
        name
        for name, present in zip(rows.strata.names, count > 0, strict=True)
        if present.sum() == 1 and len(rows.strata.names) > 1
    ]
    if lonely:
        warnings.warn(
            f"Only one group of {attribute.name} is present where "
            f"{', '.join(lonely)}; fairness cannot be asked for there.",
            EmptyStratumWarning,
            stacklevel=depth,
        )


def _warn_of_small(
    attribute: Attribute, strata: Strata, count: IntArray, depth: int
) -> None:
    small = [
        f"{attribute.groups[k]} ({count[r, k]} rows"
        + (f" where {strata.names[r]})" if len(strata.names) > 1 else ")")
        for r, k in zip(*np.nonzero(count < SMALL_GROUP), strict=True)
    ]
    if small:
        shown = ", ".join(small[:8])
        shown += f" and {len(small) - 8} more" if len(small) > 8 else ""
        warnings.warn(
            f"Groups of {attribute.name} with fewer than {SMALL_GROUP} rows: {shown}. "
            "Their rates are guesses; merge groups or gather more rows.",
            SmallGroupWarning,
            stacklevel=depth,
        )


def count_cells(attribute: Attribute, strata: Strata) -> IntArray:
    """Return the (n_strata, n_groups) numbers of rows."""
    n_groups, n_strata = len(attribute.groups), len(strata.names)
    kept = (attribute.code >= 0) & (strata.code >= 0)
    cell = strata.code[kept] * n_groups + attribute.code[kept]
    counts = np.bincount(cell, minlength=n_strata * n_groups)
    return counts.reshape(n_strata, n_groups)
