"""The rows that a penalty or an audit looks at, encoded, and what they lack."""

import functools
import itertools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fferm._parts import parts_of
from fferm._types import FloatArray, IntArray, Table, is_sparse
from fferm.bands import OWN_QUANTILES, Cutting, merged_edges
from fferm.columns import Attribute, GroupMode, encode_column, encode_sensitive
from fferm.errors import (
    EmptyStratumWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingGroupWarning,
    SmallGroupWarning,
)
from fferm.notions import Labels, Notion, Strata

# Fewer rows than this in a cell of stratum and group: its rate says next to nothing.
SMALL_GROUP = 10
# Frames from a warning of `warn_of_gaps` up to the line that called `fit`.
FIT_DEPTH = 6


@dataclass(frozen=True)
class CellSums:
    """What the cells of stratum and group hold, (1 + n_strata, 1 + n_groups) each.

    First come the rows outside every stratum, and those of no known group.

    Attributes
    ----------
    n_rows
        All rows.
    n_weighted
        Rows of positive weight.
    weight
        Their weight.
    """

    n_rows: IntArray
    n_weighted: IntArray
    weight: FloatArray

    @property
    def present(self) -> IntArray:
        """The (n_strata, n_groups) numbers of rows that count."""
        return self.n_weighted[1:, 1:]

    @property
    def known_share(self) -> float:
        """The share of weight whose group is known."""
        return float(self.weight[:, 1:].sum() / self.weight.sum())


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

    @functools.cached_property
    def cell_sums(self) -> tuple[CellSums, ...]:
        """What the cells of each attribute hold."""
        return tuple(
            add_cells(attribute, self.strata, self.weight)
            for attribute in self.attributes
        )

    @property
    def band_edges(self) -> dict[str, tuple[float, ...]]:
        """Where bands meet, of the sensitive columns that were cut."""
        return merged_edges(attribute.edges for attribute in self.attributes)

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


def check_aligned(**tables: Table) -> None:
    """Refuse pandas objects that hold the same rows in another order.

    Rows are matched by position. Where indexes have the same labels in another order,
    positions match people with the groups of others, and nothing else would show it.
    """
    indexed = {
        name: table.index
        for name, table in _one_by_one(tables)
        if isinstance(table, pd.DataFrame | pd.Series)
    }
    for (first, index), (name, other) in itertools.combinations(indexed.items(), 2):
        is_same = len(index) == len(other) and not index.equals(other)
        if is_same and index.is_unique and set(index) == set(other):
            raise InvalidInputError(
                f"{first} and {name} have the same index in another order, and rows "
                f"are matched by position. Reorder one: {name}.loc[{first}.index]."
            )


def check_lengths(**tables: Table) -> None:
    """Refuse tables of different numbers of rows, or of none; None is left out."""
    sizes = {
        name: table.shape[0] if hasattr(table, "shape") else len(table)
        for name, table in _one_by_one(tables)
        if table is not None and (hasattr(table, "shape") or hasattr(table, "__len__"))
    }
    if len(set(sizes.values())) > 1 or 0 in sizes.values():
        said = ", ".join(f"{name} has {n}" for name, n in sizes.items())
        raise InvalidInputError(
            f"Rows: {said}. Expected as many in each, at least one: rows are matched "
            "by position."
        )


def _one_by_one(tables: Mapping[str, Table]) -> Iterator[tuple[str, Table]]:
    for name, table in tables.items():
        if isinstance(table, Mapping):
            yield from ((f"{name}[{key!r}]", column) for key, column in table.items())
        else:
            yield name, table


def encode_rows(
    sensitive_features: Table,
    notion: Notion,
    labels: Labels,
    *,
    how: GroupMode = "intersection",
    sample_weight: FloatArray | None = None,
    cutting: Cutting = OWN_QUANTILES,
) -> FairRows:
    """Return rows encoded for a notion, after warning of what they lack."""
    attributes = encode_sensitive(sensitive_features, labels.n_samples, how, cutting)
    weight = np.ones(labels.n_samples) if sample_weight is None else sample_weight
    rows = FairRows(attributes, notion.strata(labels), weight)
    warn_of_control(labels)
    warn_of_gaps(rows)
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


def warn_of_control(labels: Labels, depth: int = FIT_DEPTH) -> None:
    """Warn of rows without a value of the control feature."""
    n_missing = 0 if labels.control is None else int(np.sum(labels.control < 0))
    if n_missing:
        warnings.warn(
            f"{n_missing} of {labels.n_samples} rows have no value of the control "
            "feature. They are left out of the penalty.",
            MissingGroupWarning,
            stacklevel=depth,
        )


def warn_of_gaps(rows: FairRows, depth: int = FIT_DEPTH) -> None:
    """Warn of missing values, small groups and strata with one group."""
    for attribute, sums in zip(rows.attributes, rows.cell_sums, strict=True):
        _warn_of_attribute(attribute, rows.strata, sums, depth + 1)


def _warn_of_attribute(
    attribute: Attribute, strata: Strata, sums: CellSums, depth: int
) -> None:
    n_missing = int(sums.n_rows[:, 0].sum())
    if n_missing:
        warnings.warn(
            f"{n_missing} of {attribute.code.size} rows have no value of "
            f"{attribute.name}. They are left out of the penalty.",
            MissingGroupWarning,
            stacklevel=depth,
        )
    _warn_of_small(attribute, strata, sums.present, depth + 1)
    lonely = [
        name
        for name, present in zip(strata.names, sums.present > 0, strict=True)
        if present.sum() == 1 and len(strata.names) > 1
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


def add_cells(attribute: Attribute, strata: Strata, weight: FloatArray) -> CellSums:
    """Return what the cells of stratum and group hold."""
    shape = 1 + len(strata.names), 1 + len(attribute.groups)
    size = shape[0] * shape[1]
    n_rows, n_weighted = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    total = np.zeros(size)
    for part in parts_of(weight.size):
        # Codes are moved by one, as -1 is the first.
        cell = (strata.code[part] + 1) * shape[1] + attribute.code[part] + 1
        n_rows += np.bincount(cell, minlength=size)
        total += np.bincount(cell, weight[part], size)
        n_weighted += np.bincount(cell[weight[part] > 0], minlength=size)
    return CellSums(
        n_rows.reshape(shape), n_weighted.reshape(shape), total.reshape(shape)
    )
