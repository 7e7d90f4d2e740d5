"""Sensitive columns as users hold them, as groups with integer codes.

Frames of pandas, polars and pyarrow, lists, dicts and arrays go in; one integer per
row comes out, -1 where the value is missing. A column of continuous numbers is cut
into quantile bands. Cutting can only hide dependence, never create it: the divergence
between bands is a lower bound of the divergence between numbers (data processing).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.validate import (
    Number,
    check_params,
    encode_sorted,
    read_array,
    repeated_name,
)
from fferm.errors import (
    DataFairnessWarning,
    InvalidInputError,
    InvalidParameterError,
    warn_user,
)

GroupMode = Literal["intersection", "marginal"]
ColumnKind = Literal["continuous", "number", "label"]
# Edges between the bands of numeric columns, by column name.
BandEdges: TypeAlias = Mapping[str, tuple[float, ...]]
# Name of a single column that has none.
UNNAMED = "group"
# The group of rows without a value. None: they train the loss and are in no group.
MISSING_GROUP: str | None = None
# A column of fractional numbers with more distinct values than this is continuous.
MOST_FRACTIONAL_VALUES = 20
# Bands of a continuous column, unless the caller asks for another number.
N_BANDS = 8
# Values closer than this share of the range count as equal.
SAME = 1e-9


@dataclass(frozen=True)
class Attribute:
    """One partition of the rows into groups.

    Attributes
    ----------
    name
        The column, or columns, that it was read from.
    groups
        The name of each group.
    code
        (n_samples,) group codes, -1 where the value is missing.
    edges
        Edges of the bands of its continuous columns.
    small
        The groups that are left out because they are small, and their rows. These rows
        have code -1 too.
    """

    name: str
    groups: tuple[str, ...]
    code: IntArray
    edges: BandEdges = field(default_factory=dict)
    small: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Binning:
    """How sensitive columns become groups: bands of numbers, and which are too small.

    Attributes
    ----------
    continuous
        Names of numeric columns; ``"auto"`` names none. Columns of many fractional
        numbers are cut either way.
    edges
        Edges learned on training rows, so that a person is in the same band wherever
        the model is measured. Other columns are cut at their own quantiles.
    kept
        (n_samples,) the rows whose quantiles count, None for all.
    min_group_size
        Groups with fewer rows are left out.
    small
        By attribute, groups that were too small in training and are left out whatever
        their size.
    warns
        Whether missing values and numbers that make many groups are warned of; not if
        training has done so.
    count
        How many rows each stands for, where rows that are alike were counted together.
    """

    continuous: Sequence[str] | str = "auto"
    edges: BandEdges = field(default_factory=dict)
    kept: NDArray[np.bool_] | None = None
    min_group_size: int = 1
    small: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    warns: bool = True
    count: IntArray | int = 1

    def leave_out_small(self, attribute: Attribute) -> Attribute:
        """Return an attribute without its small groups, whose rows are in no group."""
        groups, known = attribute.groups, attribute.code >= 0
        n_rows = np.broadcast_to(self.count, known.shape)[known]
        count = np.bincount(attribute.code[known], n_rows, len(groups))
        before = self.small.get(attribute.name, {})
        is_small = (count < self.min_group_size) | [g in before for g in groups]
        position = np.append(np.where(is_small, -1, np.cumsum(~is_small) - 1), -1)
        return replace(
            attribute,
            groups=tuple(
                g for g, left in zip(groups, is_small, strict=True) if not left
            ),
            code=position[attribute.code],
            small={groups[k]: int(count[k]) for k in np.flatnonzero(is_small)},
        )

    def edges_for(
        self, series: "pd.Series[Any]", name: str, n_columns: int
    ) -> FloatArray | None:
        """Return the band edges of a column, None if its values are groups."""
        kind, known = column_kind(series), self.known(name, n_columns)
        if known is not None and (kind != "label" or not series.notna().any()):
            return np.array(known, dtype=np.float64)
        is_named = not isinstance(self.continuous, str) and name in self.continuous
        if is_named or kind == "continuous":
            numbers = read_numbers(series, name)
            if self.kept is not None:
                numbers = numbers[self.kept]
            return find_edges(numbers, count=self.count)
        return None

    def known(self, name: str, n_columns: int) -> tuple[float, ...] | None:
        """Return the edges learned before; a single column may have lost its name."""
        if name not in self.edges and n_columns == len(self.edges) == 1:
            (former,) = self.edges
            name = former if UNNAMED in (name, former) else name
        return self.edges.get(name)

    def check(self, names: Sequence[str]) -> None:
        """Raise if ``continuous`` names a column that does not exist."""
        if self.continuous == "auto":
            return
        is_text = isinstance(self.continuous, str)
        if is_text or any(name not in names for name in self.continuous):
            raise InvalidParameterError(
                "continuous must be 'auto' or a list of sensitive columns, "
                f"{', '.join(names)}; got {self.continuous!r}."
            )


# Continuous columns are cut at their own quantiles.
DEFAULT_BINNING = Binning()


def encode_sensitive(
    sensitive_features: Table,
    n_samples: int,
    how: GroupMode = "intersection",
    binning: Binning = DEFAULT_BINNING,
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
    binning
        Which columns are cut into bands, and at which edges.
    """
    parts = split_columns(sensitive_features)
    binning.check([name for name, _ in parts])
    columns = []
    for name, values in parts:
        series = read_series(values, name, n_samples)
        edges = binning.edges_for(series, name, len(parts))
        if edges is not None:
            columns.append(cut(read_numbers(series, name), edges, name))
            continue
        is_batch = not isinstance(binning.count, int)
        columns.append(encode_column(series, name, n_samples, is_batch=is_batch))
        n_groups = len(columns[-1].groups)
        # Codes and ages look alike, so whole numbers are cut only when asked to.
        is_many = n_groups > MOST_FRACTIONAL_VALUES
        if binning.warns and is_many and column_kind(series) != "label":
            warn_user(
                f"{name} makes {n_groups} groups, one per number. Cut quantities, such "
                "as ages, with fferm.data.groups.quantile_bands(values), or --bands on "
                "the command line. Pass codes as text.",
                DataFairnessWarning,
            )
    attributes = partition(columns, how)
    if binning.min_group_size > 1 or binning.small:
        attributes = tuple(map(binning.leave_out_small, attributes))
    return attributes


def encode_columns(
    sensitive_features: Table, n_samples: int, how: GroupMode, binning: Binning
) -> list[tuple[Attribute, FloatArray | None, dict[str, bool]]]:
    """Return the sensitive columns, and several jointly, for an audit of numbers.

    The groups of each, the numbers behind bands, and whether the bands are those of
    training, or the groups those of several columns. Whole numbers are cut as well if
    they are many.
    """
    parts, columns = split_columns(sensitive_features), []
    binning.check([name for name, _ in parts])
    for name, values in parts:
        series = read_series(values, name, n_samples).infer_objects()
        is_numeric, numbers = pd.api.types.is_numeric_dtype(series.dtype), None
        known = binning.known(name, len(parts)) if is_numeric else None
        is_number = is_numeric and series.nunique() > MOST_FRACTIONAL_VALUES
        if not isinstance(binning.continuous, str):
            is_number = name in binning.continuous
        if is_number or known is not None:
            numbers = read_numbers(series, name)
            edges = find_edges(numbers) if known is None else np.array(known)
            attribute = cut(numbers, edges, name)
        else:
            attribute = encode_column(values, name, n_samples)
        attribute = binning.leave_out_small(attribute)
        columns.append((attribute, numbers, {"has_trained_bands": known is not None}))
    joint = partition([attribute for attribute, _, _ in columns], how)
    if len(columns) > 1 and len(joint) == 1:
        columns.append((binning.leave_out_small(joint[0]), None, {"is_joint": True}))
    return columns


def partition(columns: Sequence[Attribute], how: GroupMode) -> tuple[Attribute, ...]:
    """Return one partition per column, or one for their intersection."""
    if how not in ("intersection", "marginal"):
        raise InvalidParameterError(
            f"groups must be 'intersection' or 'marginal'; got {how!r}."
        )
    if how == "marginal" or len(columns) == 1:
        return tuple(columns)
    codes = np.stack([column.code for column in columns])  # (a, n)
    is_known = (codes >= 0).all(axis=0)
    shape = tuple(len(column.groups) for column in columns)
    flat = number_cells(codes[:, is_known], shape)
    present, inverse = np.unique(flat, return_inverse=True)
    names = [column.name for column in columns]
    cells = [
        [column.groups[k] for column, k in zip(columns, cell, strict=True)]
        for cell in zip(*np.unravel_index(present, shape), strict=True)
    ]
    groups = [" × ".join(cell) for cell in cells]
    if len(set(groups)) < len(groups):  # some values contain the sign themselves
        pairs = [zip(names, cell, strict=True) for cell in cells]
        groups = [", ".join(map("=".join, pair)) for pair in pairs]
    code = np.full(codes.shape[1], -1, dtype=np.int64)
    code[is_known] = inverse.reshape(-1)
    edges = {column: e for c in columns for column, e in c.edges.items()}
    return (Attribute(" × ".join(names), tuple(groups), code, edges),)


def encode_column(
    values: Table, name: str, n_samples: int, *, is_batch: bool = False
) -> Attribute:
    """Return the groups of one column; raise if its values identify rows.

    A batch of a longer column may have few rows of each group.
    """
    series = read_series(values, name, n_samples)
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iu":
        # Integers are never missing, and groups follow their order.
        numbers, code = encode_sorted(series.to_numpy())
        groups = tuple(map(str, numbers.tolist()))
    else:
        try:
            code, distinct = pd.factorize(series, use_na_sentinel=True)
        except TypeError as error:
            raise InvalidInputError(
                f"{name} must hold strings, numbers or booleans ({error})."
            ) from error
        if any(isinstance(value, float) for value in distinct):
            refuse_continuous(series, name)
        values = [*distinct, None] if np.any(code < 0) else distinct
        groups, position = number_groups([group_name(value) for value in values])
        code = position[code]  # -1 is the last
    if len(groups) > MOST_FRACTIONAL_VALUES and not is_batch:
        refuse_identifiers(name, len(groups), int(np.sum(code >= 0)))
    return Attribute(name, groups, code)


def number_groups(names: Sequence[str | None]) -> tuple[tuple[str, ...], IntArray]:
    """Return the distinct names in natural order, and the code of each name.

    None is not a group and gets -1.
    """
    groups = sorted({name for name in names if name is not None}, key=natural_order)
    position: dict[str | None, int] = {group: k for k, group in enumerate(groups)}
    codes = [position.get(name, -1) for name in names]
    return tuple(groups), np.array(codes, dtype=np.int64)


def split_columns(sensitive_features: Table) -> list[tuple[str, Table]]:
    """Return name and values of each sensitive column, at least one."""
    data = sensitive_features
    if data is None or isinstance(data, str | bytes) or np.isscalar(data):
        raise InvalidInputError(
            "sensitive_features must hold one value per row (a list, an array, a "
            f"column of a data frame, or a dict of these); got {data!r}."
        )
    try:
        native = nw.from_native(data, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise repeated_name("sensitive_features", data) from error
    if isinstance(native, nw.LazyFrame):
        native = native.collect()
    if isinstance(native, nw.Series):
        return [(str(native.name or UNNAMED), native)]
    if isinstance(native, nw.DataFrame):
        columns = [(str(column.name), column) for column in native.iter_columns()]
    elif isinstance(data, Mapping):
        columns = [(str(name), values) for name, values in data.items()]
    else:
        columns = _array_columns(read_array(data, "sensitive_features"))
    if not columns:
        raise InvalidInputError("sensitive_features has no columns. Pass at least one.")
    return columns


def _array_columns(array: NDArray[Any]) -> list[tuple[str, Table]]:
    if array.ndim == 1:
        return [(UNNAMED, array)]
    if array.ndim == 2:
        return [(f"{UNNAMED}_{a}", column) for a, column in enumerate(array.T)]
    raise InvalidInputError(
        f"sensitive_features must have shape (n,) or (n, a); got {array.shape}."
    )


def take_rows(sensitive_features: Table, rows: IntArray) -> dict[str, Table]:
    """Return some rows of the sensitive columns, by name."""
    return {
        name: read_series(values, name).iloc[rows].reset_index(drop=True)
        for name, values in split_columns(sensitive_features)
    }


def read_series(
    values: Table, name: str, n_samples: int | None = None
) -> "pd.Series[Any]":
    """Return one column as a pandas Series, after checking its length."""
    native = nw.from_native(values, series_only=True, pass_through=True)
    if isinstance(native, nw.Series):
        series = native.to_pandas()
    else:
        array = read_array(values, name)
        if array.ndim != 1:
            raise InvalidInputError(
                f"{name} must have one value per row; got shape {array.shape}."
            )
        series = pd.Series(array, copy=False)
    if n_samples is not None and len(series) != n_samples:
        raise InvalidInputError(
            f"sensitive_features: {name} has {len(series)} values for {n_samples} "
            "rows. Pass one value per row: the values, not the names of columns."
        )
    return series


def column_kind(series: "pd.Series[Any]") -> ColumnKind:
    """Return whether a column is continuous, whole or few numbers, or labels."""
    values = series
    if isinstance(series.dtype, pd.CategoricalDtype | pd.StringDtype):
        return "label"
    if not (isinstance(series.dtype, np.dtype) and series.dtype.kind in "biu"):
        # A missing value makes a column of objects out of numbers.
        values = series.dropna().infer_objects()
    is_number = pd.api.types.is_numeric_dtype(values.dtype)
    if not is_number or pd.api.types.is_bool_dtype(values.dtype):
        return "label"
    if not pd.api.types.is_float_dtype(values.dtype):
        return "number"
    numbers = values.to_numpy(dtype=np.float64)
    distinct = np.unique(numbers[np.isfinite(numbers)])
    is_fractional = distinct.size > MOST_FRACTIONAL_VALUES and np.any(distinct % 1)
    return "continuous" if is_fractional else "number"


def refuse_continuous(series: "pd.Series[Any]", name: str) -> None:
    """Raise if a column is continuous and only groups can be used."""
    values = series.dropna().infer_objects()
    if not pd.api.types.is_float_dtype(values.dtype):
        return
    if np.isinf(values.to_numpy(dtype=np.float64)).any():
        raise InvalidInputError(
            f"{name} contains infinity. Groups must be strings, integers or booleans."
        )
    if column_kind(values) == "continuous":
        raise InvalidInputError(
            f"{name} has {values.nunique()} distinct fractional numbers, which are not "
            "groups. Cut them with fferm.data.groups.quantile_bands(values) or, for "
            "data in batches, at fixed edges with pandas.cut."
        )


def refuse_identifiers(name: str, n_groups: int, n_rows: int) -> None:
    """Raise if a column has so many groups that it identifies rows."""
    if n_groups > max(MOST_FRACTIONAL_VALUES, n_rows / 2):
        raise InvalidInputError(
            f"{name} makes {n_groups} groups of {n_rows} rows, so it identifies rows. "
            "Use a column of fewer values, or fferm.data.groups.quantile_bands(values)."
        )


def group_name(value: object) -> str | None:
    """Return the name of the group that has a value, `MISSING_GROUP` if it has none.

    1 and "1" look the same in every table that a person sees, so they are one group.
    """
    if value is None or value is pd.NA or value != value:
        return MISSING_GROUP
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # a missing value turns integers into floats
    return str(value)


def natural_order(label: str) -> tuple[int, float, str]:
    """Return a sort key that puts numbers, and bands of numbers, before words."""
    start = band_start(label) if " " in label else None
    if start is not None:
        return 0, start, label
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    # "nan" is a word here: it compares with nothing.
    return (1, 0.0, label) if math.isnan(number) else (0, number, label)


def number_cells(codes: IntArray, shape: tuple[int, ...]) -> IntArray:
    """Return (n_samples,) cell numbers of (n_columns, n_samples) codes.

    ``shape`` is the number of codes of each column.
    """
    if math.prod(shape) > np.iinfo(np.int64).max:
        raise InvalidInputError(
            f"{len(shape)} sensitive columns of {min(shape)} to {max(shape)} values "
            "have too many intersections. Use fewer, or groups='marginal'."
        )
    return np.asarray(np.ravel_multi_index(tuple(codes), shape), dtype=np.int64)


def quantile_bands(values: Table, n_bands: int = N_BANDS) -> NDArray[Any]:
    """Return the quantile band of each number, by name.

    Pass the result as a sensitive feature where numbers are whole, such as ages, and
    each would otherwise be a group. Columns of many fractional numbers are cut this
    way automatically.

    Parameters
    ----------
    values
        (n_samples,) numbers; missing ones get None.
    n_bands
        How many bands, at least 2; fewer if there are few distinct values.

    Examples
    --------
    >>> quantile_bands([17, 18, 30, 41, 52, 60], n_bands=3).tolist()
    ['below 24', 'below 24', '24 to 46.5', '24 to 46.5', '46.5 and above', \
'46.5 and above']
    """
    check_params({"n_bands": n_bands}, {"n_bands": Number(low=2, is_whole=True)})
    numbers = read_numbers(pd.Series(np.asarray(values)), "values")
    return name_bands(numbers, find_edges(numbers, int(n_bands)))


def find_edges(
    numbers: FloatArray, n_bands: int = N_BANDS, count: IntArray | int = 1
) -> FloatArray:
    """Return the edges of bands that hold equal shares of the numbers.

    ``count`` says how often each number counts.
    """
    is_known = ~np.isnan(numbers)
    known = numbers[is_known]
    if known.size == 0:
        raise InvalidInputError(
            "All numbers are missing, so there are no bands. Check the values."
        )
    mass = np.broadcast_to(np.float64(count), numbers.shape)[is_known]
    return quantile_edges(known, n_bands, mass)


def quantile_edges(values: FloatArray, n_bins: int, weight: FloatArray) -> FloatArray:
    """Return the distinct edges of bins that hold equal shares of the values.

    Edges lie midway between two values, so that equal values share a bin; few distinct
    values get one bin each.
    """
    order = np.argsort(values, kind="stable")
    ordered, mass = values[order], np.cumsum(weight[order])
    gaps = np.diff(ordered)
    ends = np.flatnonzero(gaps > SAME * (ordered[-1] - ordered[0]))
    below = mass[ends] / mass[-1]
    between = ordered[ends] + gaps[ends] / 2
    if ends.size < n_bins:
        return np.asarray(between)
    wanted = np.arange(1, n_bins) / n_bins - SAME
    position = np.minimum(np.searchsorted(below, wanted), below.size - 1)
    return np.asarray(between[np.unique(position)])


def assign(numbers: FloatArray, edges: FloatArray) -> IntArray:
    """Return the band of each number, -1 where it is missing."""
    return np.where(np.isnan(numbers), -1, np.searchsorted(edges, numbers, "right"))


def cut(numbers: FloatArray, edges: FloatArray, name: str) -> Attribute:
    """Return the groups that the bands between edges make of a column's numbers."""
    code, groups = assign(numbers, edges), band_names(edges)
    if np.any(code < 0) and MISSING_GROUP is not None:
        code, groups = np.where(code < 0, len(groups), code), (*groups, MISSING_GROUP)
    return Attribute(name, groups, code, {name: tuple(edges.tolist())})


def missing_code(groups: Sequence[str]) -> int:
    """Return the code of rows without a value, -1 if they are in no group."""
    return groups.index(MISSING_GROUP) if MISSING_GROUP in groups else -1


def name_bands(numbers: FloatArray, edges: FloatArray) -> NDArray[Any]:
    """Return the name of the band of each number, None where it is missing."""
    names = np.array([*band_names(edges), None], dtype=object)
    return np.asarray(names[assign(numbers, edges)])


def band_names(edges: FloatArray) -> tuple[str, ...]:
    """Return the names of the bands between edges."""
    if not len(edges):
        return ("everyone",)
    for digits in range(4, 18):
        shown = [f"{edge:.{digits}g}" for edge in edges]
        if len(set(shown)) == len(shown):
            break
    between = [f"{a} to {b}" for a, b in itertools.pairwise(shown)]
    return (f"below {shown[0]}", *between, f"{shown[-1]} and above")


def band_start(name: str) -> float | None:
    """Return the lower end of the band of a name, None if it names no band."""
    words = name.split(" ")
    if len(words) == 2 and words[0] == "below":
        return -math.inf
    is_band = len(words) == 3 and (words[1] == "to" or words[1:] == ["and", "above"])
    try:
        return float(words[0]) if is_band else None
    except ValueError:
        return None


def read_numbers(series: "pd.Series[Any]", name: str) -> FloatArray:
    """Return a column as finite numbers, NaN where missing."""
    try:
        numbers = np.asarray(pd.to_numeric(series), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{name} contains non-numeric values, which have no bands ({error})."
        ) from error
    if np.isinf(numbers).any():
        raise InvalidInputError(f"{name} contains infinity. Numbers must be finite.")
    return numbers
