"""Bands of a continuous sensitive attribute: quantiles make groups of numbers.

To cut a number into bands can only hide dependence, never make some: the divergence of
the bands is a lower bound of that of the numbers (data processing), and it grows with
the number of bands, as does the noise in each.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fferm._types import FloatArray, IntArray, Table
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.soft_bins import quantile_edges

# Where the bands of columns of numbers meet, by the name of the column.
BandEdges: TypeAlias = Mapping[str, tuple[float, ...]]
# What a single column without a name is called.
UNNAMED = "group"
# A column of fractional numbers with more values than this is no set of groups.
MOST_FRACTIONAL_VALUES = 20
# Bands of a column that is cut without being asked to.
N_BANDS = 8


def quantile_bands(values: Table, n_bands: int = N_BANDS) -> NDArray[Any]:
    """Return the band of each number, by name: as many rows in each as can be.

    Give the outcome as a sensitive feature where numbers are whole, such as ages, and
    each would otherwise be a group. Numbers with many fractional values are cut so by
    themselves.

    Parameters
    ----------
    values
        (n_samples,) numbers; missing ones get None.
    n_bands
        How many bands, at least 2; fewer where values are few.

    Examples
    --------
    >>> quantile_bands([17, 18, 30, 41, 52, 60], n_bands=3).tolist()
    ['below 24', 'below 24', '24 to 46.5', '24 to 46.5', '46.5 and above', \
'46.5 and above']
    """
    if not isinstance(n_bands, int | np.integer) or n_bands < 2:
        raise InvalidParameterError(
            f"n_bands={n_bands!r} came. Expected a whole number from 2 on."
        )
    numbers = read_band_numbers(pd.Series(np.asarray(values)), "values")
    edges = find_edges(numbers, int(n_bands))
    names = np.array([*band_names(edges), None], dtype=object)
    found: NDArray[Any] = names[place(numbers, edges)]
    return found


def known_values(series: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return the values of a column that could be numbers, without its gaps.

    A gap makes a column of objects; text and categories stay what they are.
    """
    if isinstance(series.dtype, pd.StringDtype | pd.CategoricalDtype):
        return series
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biu":
        return series  # has no gaps, and rows may be many
    return series.dropna().infer_objects()


def is_continuous(series: "pd.Series[Any]") -> bool:
    """Return whether a column holds numbers, not groups: many fractional values."""
    known = known_values(series)
    if not pd.api.types.is_float_dtype(known.dtype):
        return False
    values = known.to_numpy(dtype=np.float64)
    distinct = np.unique(values[np.isfinite(values)])
    return bool(distinct.size > MOST_FRACTIONAL_VALUES and np.any(distinct % 1))


@dataclass(frozen=True)
class Cutting:
    """Which sensitive columns are cut into bands, and where.

    Attributes
    ----------
    continuous
        Names of columns that are numbers; ``"auto"`` names none. Columns of many
        fractional numbers are cut either way.
    edges
        Where bands met on rows that came before, of training: the same person is in
        the same band wherever a model is measured. Columns that are not among them are
        cut at their own quantiles.
    """

    continuous: Sequence[str] | str = "auto"
    edges: BandEdges = field(default_factory=dict)

    def check(self, names: Sequence[str]) -> None:
        """Refuse names of no column."""
        if isinstance(self.continuous, str):
            if self.continuous == "auto":
                return
            raise InvalidParameterError(
                f"continuous={self.continuous!r} came. Expected 'auto', or a list of "
                "names of sensitive columns."
            )
        strange = [name for name in self.continuous if name not in names]
        if strange:
            raise InvalidParameterError(
                f"continuous names {strange[0]!r}, which is no sensitive column. "
                f"continuous={list(self.continuous)!r} came; columns: "
                f"{', '.join(names)}."
            )

    def of(
        self, series: "pd.Series[Any]", name: str, n_columns: int
    ) -> FloatArray | None:
        """Return where the bands of a column meet; None if its values are groups."""
        known = self.known(name, n_columns)
        if known is not None and _is_numeric(series):
            return np.array(known, dtype=np.float64)
        is_named = not isinstance(self.continuous, str) and name in self.continuous
        if is_named or is_continuous(series):
            return find_edges(read_band_numbers(series, name))
        return None

    def known(self, name: str, n_columns: int) -> tuple[float, ...] | None:
        """Return the edges that came before; one column may have lost its name."""
        if name not in self.edges and n_columns == len(self.edges) == 1:
            (former,) = self.edges
            name = former if UNNAMED in (name, former) else name
        return self.edges.get(name)


# Columns of many fractional numbers, at their own quantiles.
OWN_QUANTILES = Cutting()


def merged_edges(parts: Iterable[BandEdges]) -> dict[str, tuple[float, ...]]:
    """Return the edges of all columns."""
    return {name: edges for part in parts for name, edges in part.items()}


def _is_numeric(series: "pd.Series[Any]") -> bool:
    known = series.dropna().infer_objects()
    is_number = pd.api.types.is_numeric_dtype(known.dtype)
    return known.empty or (is_number and not pd.api.types.is_bool_dtype(known.dtype))


def find_edges(numbers: FloatArray, n_bands: int = N_BANDS) -> FloatArray:
    """Return where bands of like shares meet, each edge as short as it can be."""
    known = numbers[~np.isnan(numbers)]
    if known.size == 0:
        raise InvalidInputError(
            "Every number is missing, so there are no bands. Check the values."
        )
    return quantile_edges(known, n_bands, np.ones(known.size))


def place(numbers: FloatArray, edges: FloatArray) -> IntArray:
    """Return the band of each number, -1 where it is missing."""
    return np.where(np.isnan(numbers), -1, np.searchsorted(edges, numbers, "right"))


def band_names(edges: FloatArray) -> tuple[str, ...]:
    """Return what the bands between edges are called."""
    digits = 4
    shown = [f"{edge:.{digits}g}" for edge in edges]
    while len(set(shown)) < len(shown):
        digits += 1
        shown = [f"{edge:.{digits}g}" for edge in edges]
    if not shown:
        return ("everyone",)
    between = [f"{a} to {b}" for a, b in itertools.pairwise(shown)]
    return (f"below {shown[0]}", *between, f"{shown[-1]} and above")


def band_start(name: str) -> float | None:
    """Return where the band of a name begins; None for names of no band."""
    words = name.split(" ")
    if len(words) == 2 and words[0] == "below":
        return -math.inf
    is_band = len(words) == 3 and (words[1] == "to" or words[1:] == ["and", "above"])
    try:
        return float(words[0]) if is_band else None
    except ValueError:
        return None


def read_band_numbers(series: "pd.Series[Any]", name: str) -> FloatArray:
    """Return a column as numbers, NaN where missing."""
    try:
        numbers = np.asarray(pd.to_numeric(series), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{name} holds what is no number ({error}). Expected numbers to cut into "
            "bands."
        ) from error
    if np.isinf(numbers).any():
        raise InvalidInputError(f"{name} holds infinity. Expected finite numbers.")
    return numbers
