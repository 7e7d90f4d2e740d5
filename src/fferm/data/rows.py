"""Encoded rows: who is in which group and stratum, with which weight.

`Rows` is what penalties, metrics and audits share. Its `CellIndex` is the one place
that says in which cell (stratum, group) of a table a row is counted; NumPy, compiled
kernels, torch and trees take views of it.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fferm._typing import FloatArray, IntArray, Table, chunks, is_sparse
from fferm.data.groups import (
    DEFAULT_BINNING,
    Attribute,
    BandEdges,
    Binning,
    GroupMode,
    encode_column,
    encode_sensitive,
)
from fferm.errors import (
    EmptyStratumWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingGroupWarning,
    SmallGroupWarning,
    warn_user,
)
from fferm.notions import Labels, Notion, Strata

# With fewer rows in a cell of stratum and group, its rate is hardly more than noise.
SMALL_GROUP = 10


@dataclass(frozen=True)
class FitInput:
    """The arguments of `fit`, as passed."""

    X: Table
    y: Table
    sensitive_features: Table = None
    sample_weight: Table = None
    penalty_data: tuple[Table, ...] | None = None
    # Edges of the bands of continuous attributes, if they were learned before.
    edges: BandEdges = field(default_factory=dict)

    @property
    def tables(self) -> dict[str, Table]:
        """What holds one value, or one row, per training row, by name."""
        names = ("X", "y", "sensitive_features", "sample_weight")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class CellSums:
    """Totals of the cells of one attribute.

    Attributes
    ----------
    n_rows, weight
        (1 + n_strata, 1 + n_groups) number of rows and total weight. Row 0 counts rows
        outside every stratum, column 0 rows without a known group.
    present
        (n_strata, n_groups) number of rows with positive weight.
    """

    n_rows: IntArray
    weight: FloatArray
    present: IntArray

    @property
    def known_share(self) -> float:
        """The share of weight whose group is known."""
        return float(self.weight[:, 1:].sum() / self.weight.sum())


@dataclass(frozen=True)
class CellIndex:
    """The cell of one attribute's table that each row is counted in.

    Attributes
    ----------
    rows
        (n_kept,) positions of the rows that have a stratum and a group, or all rows.
    cell
        (n_kept,) ``stratum * n_groups + group``.
    weight
        (n_kept,) sample weights.
    shape
        (n_strata, n_groups).
    total
        The weight of all rows whose group is known, in a stratum or not.
    """

    rows: IntArray | slice
    cell: IntArray
    weight: FloatArray
    shape: tuple[int, int]
    total: float

    @functools.cached_property
    def share(self) -> FloatArray:
        """(n_kept,) weights over the weight of all rows whose group is known."""
        return np.asarray(self.weight / self.total)

    def table(
        self, predicted: NDArray[Any], weight: FloatArray, n_classes: int
    ) -> FloatArray:
        """Return the (n_strata, n_classes, n_groups) sums of weights of predictions.

        Parameters
        ----------
        predicted
            (n_samples,) codes of decisions, or (n_samples, n_classes) probabilities.
        weight
            (n_kept,) weights, or functions of them.
        n_classes
            Number of classes.
        """
        (n_strata, n_groups), part = self.shape, predicted[self.rows]
        size = n_strata * n_groups
        if predicted.ndim == 1:
            place = self.cell * n_classes + part
            sums = np.bincount(place, weight, size * n_classes).astype(np.float64)
            return sums.reshape(n_strata, n_groups, n_classes).transpose(0, 2, 1)
        table = np.empty((n_classes, size))
        for j, column in enumerate(part.T):
            table[j] = np.bincount(self.cell, weight * column, size)
        return table.reshape(n_classes, n_strata, n_groups).transpose(1, 0, 2)

    def by_row(self, n_samples: int) -> IntArray:
        """Return (n_samples,) the cell of each row, -1 if it is left out."""
        cell = np.full(n_samples, -1, dtype=np.int64)
        cell[self.rows] = self.cell
        return cell

    @functools.cached_property
    def squares(self) -> FloatArray:
        """(n_strata, n_groups) sums of squared weights."""
        sums = np.bincount(self.cell, self.weight**2, self.shape[0] * self.shape[1])
        return np.asarray(sums, dtype=np.float64).reshape(self.shape)


@dataclass(frozen=True)
class Rows:
    """The rows that a penalty or an audit looks at, encoded.

    Attributes
    ----------
    attributes
        One partition per sensitive column, or one for their intersection.
    strata
        The stratum of each row under the notion.
    weight
        (n_samples,) sample weights.
    """

    attributes: tuple[Attribute, ...]
    strata: Strata
    weight: FloatArray

    def take(self, kept: NDArray[np.bool_]) -> "Rows":
        """Return some of the rows, with the same groups."""
        return Rows(
            tuple(
                replace(attribute, code=attribute.code[kept])
                for attribute in self.attributes
            ),
            replace(self.strata, code=self.strata.code[kept]),
            self.weight[kept],
        )

    @functools.cached_property
    def cell_sums(self) -> tuple[CellSums, ...]:
        """The cell totals of each attribute."""
        return tuple(
            add_cells(attribute, self.strata, self.weight)
            for attribute in self.attributes
        )

    @functools.cached_property
    def cells(self) -> tuple[CellIndex, ...]:
        """The cell of each row, for each attribute."""
        return tuple(map(self._index, self.attributes))

    def _index(self, attribute: Attribute) -> CellIndex:
        code, stratum = attribute.code, self.strata.code
        shape = len(self.strata.names), len(attribute.groups)
        known = code >= 0
        kept = np.flatnonzero(known & (stratum >= 0) & (self.weight > 0))
        return CellIndex(
            slice(None) if kept.size == code.size else kept,
            stratum[kept] * shape[1] + code[kept],
            self.weight[kept],
            shape,
            float(self.weight[known].sum()),
        )

    @property
    def band_edges(self) -> dict[str, tuple[float, ...]]:
        """The band edges of continuous sensitive columns."""
        return {name: e for a in self.attributes for name, e in a.edges.items()}

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of all groups, with their column if there are several columns."""
        if len(self.attributes) == 1:
            return self.attributes[0].groups
        return tuple(
            f"{attribute.name}={group}"
            for attribute in self.attributes
            for group in attribute.groups
        )


def combine(codes: Iterable[IntArray]) -> IntArray:
    """Return (n_samples,) codes, one for each combination of codes that occurs.

    Codes are at least -1, and combinations are numbered in their order.
    """
    first, *others = codes
    code: IntArray = np.asarray(first, dtype=np.int64)
    for other in others:
        # Codes of pairs sort ten times as fast as the pairs themselves.
        pair = code * (other.max() + 2) + other + 1
        code = np.unique(pair, return_inverse=True)[1]
    return code


def check_aligned(**tables: Table) -> None:
    """Raise if pandas objects hold the same rows in another order.

    Rows are matched by position. If two indexes have the same labels in another order,
    positions would match people with the groups of others, and nothing would show it.
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
    """Raise if tables have different numbers of rows, or none; None is ignored."""
    sizes = {
        name: table.shape[0] if hasattr(table, "shape") else len(table)
        for name, table in _one_by_one(tables)
        if table is not None and (hasattr(table, "shape") or hasattr(table, "__len__"))
    }
    if len(set(sizes.values())) > 1 or 0 in sizes.values():
        counts = ", ".join(f"{name} has {n}" for name, n in sizes.items())
        raise InvalidInputError(
            f"All tables must have the same number of rows, at least one; {counts}. "
            "Rows are matched by position."
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
    binning: Binning = DEFAULT_BINNING,
) -> Rows:
    """Return rows encoded for a notion, after warning about missing or small groups."""
    attributes = encode_sensitive(sensitive_features, labels.n_samples, how, binning)
    weight = np.ones(labels.n_samples) if sample_weight is None else sample_weight
    rows = Rows(attributes, notion.strata(labels), weight)
    if labels.control is not None:
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
                f"The control feature has {len(control)} values for {n_samples} rows. "
                "Name a column of X instead, which is found wherever the notion is "
                "used: ConditionalParity('department')."
            )
    attribute = encode_column(values, "the control feature", n_samples)
    return attribute.code, attribute.groups


def _column_of(X: Table, control: str | int | np.integer) -> Table:
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        names = frame.columns
        if isinstance(control, str) and control in names:
            return frame[:, names.index(control)]
        if not isinstance(control, str) and -len(names) <= control < len(names):
            return frame[:, int(control)]
        raise InvalidParameterError(
            f"The control feature {control!r} is not a column of X. Columns: "
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


def warn_of_control(labels: Labels) -> None:
    """Warn about rows without a value of the control feature."""
    n_missing = 0 if labels.control is None else int(np.sum(labels.control < 0))
    if n_missing:
        warn_user(
            f"{n_missing} of {labels.n_samples} rows have no value of the control "
            "feature. They are left out of the penalty.",
            MissingGroupWarning,
        )


def warn_of_gaps(rows: Rows) -> None:
    """Warn about missing values, small groups and strata with a single group."""
    names = rows.strata.names
    for attribute, sums in zip(rows.attributes, rows.cell_sums, strict=True):
        n_missing = int(sums.n_rows[:, 0].sum())
        if n_missing:
            warn_user(
                f"{n_missing} of {attribute.code.size} rows have no value of "
                f"{attribute.name}. They are left out of the penalty.",
                MissingGroupWarning,
            )
        if np.any(sums.present < SMALL_GROUP):
            _warn_of_small(attribute, names, sums.present)
        lonely = [
            name
            for name, present in zip(names, sums.present > 0, strict=True)
            if present.sum() == 1 and len(names) > 1
        ]
        if lonely:
            warn_user(
                f"Only one group of {attribute.name} is present where "
                f"{', '.join(lonely)}; there is nobody to compare it with.",
                EmptyStratumWarning,
            )


def _warn_of_small(
    attribute: Attribute, strata: tuple[str, ...], count: IntArray
) -> None:
    small = [
        f"{attribute.groups[k]} ({count[r, k]} rows"
        + (f" where {strata[r]})" if len(strata) > 1 else ")")
        for r, k in zip(*np.nonzero(count < SMALL_GROUP), strict=True)
    ]
    shown = ", ".join(small[:8])
    shown += f" and {len(small) - 8} more" if len(small) > 8 else ""
    warn_user(
        f"Groups of {attribute.name} with fewer than {SMALL_GROUP} rows: {shown}. "
        "Their rates are unreliable; merge groups or collect more rows.",
        SmallGroupWarning,
    )


def add_cells(attribute: Attribute, strata: Strata, weight: FloatArray) -> CellSums:
    """Return the totals of the cells of stratum and group."""
    shape = 1 + len(strata.names), 1 + len(attribute.groups)
    size = shape[0] * shape[1]
    n_rows, n_weighted = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    total = np.zeros(size)
    for part in chunks(weight.size):
        # Codes are shifted by one, because -1 comes first.
        cell = (strata.code[part] + 1) * shape[1] + attribute.code[part] + 1
        n_rows += np.bincount(cell, minlength=size)
        total += np.bincount(cell, weight[part], size)
        n_weighted += np.bincount(cell[weight[part] > 0], minlength=size)
    present = n_weighted.reshape(shape)[1:, 1:]
    return CellSums(n_rows.reshape(shape), total.reshape(shape), present)
