"""Encoded rows: who is in which group and stratum, with which weight.

`Rows` is what penalties, metrics and audits share. Its `CellIndex` is the one place
that says in which cell (stratum, group) of a table a row is counted; NumPy, compiled
kernels, torch and trees take views of it.
"""

import functools
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from fferm._typing import FloatArray, IntArray, Table, is_sparse
from fferm.data.groups import (
    DEFAULT_BINNING,
    Attribute,
    BandEdges,
    Binning,
    GroupMode,
    encode_column,
    encode_sensitive,
)
from fferm.data.validate import ROWS_AT_ONCE
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
    # Which rows of penalty_data count, None for all.
    penalty_kept: NDArray[np.bool_] | None = None
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
    square
        (n_kept,) sums of squared weights of rows that were counted together; None for
        single rows.
    """

    rows: IntArray | slice
    cell: IntArray
    weight: FloatArray
    shape: tuple[int, int]
    total: float
    square: FloatArray | None = None

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
        square = self.weight**2 if self.square is None else self.square
        sums = np.bincount(self.cell, square, self.shape[0] * self.shape[1])
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
    count
        How many rows each stands for, where rows that are alike were counted together.
    square, soft_square
        Then the (n_samples,) sums of squared weights, and the (n_samples, n_classes,
        n_classes) sums of squared weights times products of probabilities.
    """

    attributes: tuple[Attribute, ...]
    strata: Strata
    weight: FloatArray
    count: IntArray | int = 1
    square: FloatArray | None = None
    soft_square: FloatArray | None = None

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

    def group_factor(self, within_strata: bool) -> FloatArray:
        """Return (n_strata, n_groups) factors by which all groups count alike.

        The weight of a stratum, or of all strata together, stays as it is, and so do
        rates within a group.

        Parameters
        ----------
        within_strata
            Whether groups count alike within each stratum, or over all of them.
        """
        if len(self.attributes) > 1:
            raise InvalidParameterError(
                "group_weights='equal' needs one set of groups; got "
                f"{len(self.attributes)} columns with groups='marginal'. Use "
                "groups='intersection', or one sensitive column."
            )
        mass = self.cell_sums[0].weight[1:, 1:]
        if not within_strata:
            mass = np.broadcast_to(mass.sum(axis=0), mass.shape)
        n_groups = np.count_nonzero(mass, axis=1)[:, None]
        even = mass.sum(axis=1, keepdims=True) / np.maximum(n_groups, 1)
        return np.where(mass > 0, even / np.where(mass > 0, mass, 1.0), 1.0)

    def balanced(self, within_strata: bool) -> "Rows":
        """Return the same rows, weighted by `group_factor`.

        Rows without a group or stratum keep their weight.
        """
        factor = self.group_factor(within_strata)
        stratum, group = self.strata.code, self.attributes[0].code
        is_counted = (stratum >= 0) & (group >= 0)
        by_row = np.where(is_counted, factor[stratum, group], 1.0)
        return replace(self, weight=self.weight * by_row)

    @functools.cached_property
    def cell_sums(self) -> tuple[CellSums, ...]:
        """The cell totals of each attribute."""
        totals = []
        for attribute in self.attributes:
            shape = 1 + len(self.strata.names), 1 + len(attribute.groups)
            size = shape[0] * shape[1]
            n_rows, n_weighted = np.zeros((2, size), dtype=np.int64)
            total = np.zeros(size)
            for part in gen_batches(self.weight.size, ROWS_AT_ONCE):
                # Codes are shifted by one, because -1 comes first.
                stratum, weight = self.strata.code[part] + 1, self.weight[part]
                cell = stratum * shape[1] + attribute.code[part] + 1
                n_rows += np.bincount(cell, minlength=size)
                total += np.bincount(cell, weight, size)
                n_weighted += np.bincount(cell[weight > 0], minlength=size)
            present = n_weighted.reshape(shape)[1:, 1:]
            sums = CellSums(n_rows.reshape(shape), total.reshape(shape), present)
            totals.append(sums)
        return tuple(totals)

    @functools.cached_property
    def cells(self) -> tuple[CellIndex, ...]:
        """The cell of each row, for each attribute."""
        stratum, indexes = self.strata.code, []
        for attribute in self.attributes:
            code, n_groups = attribute.code, len(attribute.groups)
            known = code >= 0
            kept = np.flatnonzero(known & (stratum >= 0) & (self.weight > 0))
            index = CellIndex(
                slice(None) if kept.size == code.size else kept,
                stratum[kept] * n_groups + code[kept],
                self.weight[kept],
                (len(self.strata.names), n_groups),
                float(self.weight[known].sum()),
                None if self.square is None else self.square[kept],
            )
            indexes.append(index)
        return tuple(indexes)

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


@dataclass(frozen=True)
class People:
    """The rows behind an audit, which a dossier counts.

    Attributes
    ----------
    n_rows
        Their number.
    sensitive_features
        As passed.
    edges
        The edges of the bands that numbers were cut into.
    classes
        The outcomes; empty for numbers.
    decision, truth
        (n_samples,) codes of the decided and of the true class; None if unknown.
    scores
        (n_samples, n_classes) probabilities, or (n_samples, 1) numbers; None if there
        are none.
    """

    n_rows: int
    sensitive_features: Table
    edges: BandEdges
    classes: tuple[str, ...] = ()
    decision: IntArray | None = None
    truth: IntArray | None = None
    scores: FloatArray | None = None


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


def check_aligned(*, are_equal: bool = False, **tables: Table) -> None:
    """Raise if pandas objects hold the same rows in another order.

    Rows are matched by position. If two indexes have the same labels in another order,
    positions would match people with the groups of others, and nothing would show it.
    With ``are_equal``, tables must have equally many rows too, and some.
    """
    parts: dict[str, Table] = {}
    for name, table in tables.items():
        if isinstance(table, Mapping):
            parts |= {f"{name}[{key!r}]": column for key, column in table.items()}
        else:
            parts[name] = table
    sizes = {
        name: table.shape[0] if hasattr(table, "shape") else len(table)
        for name, table in parts.items()
        if are_equal and (hasattr(table, "shape") or hasattr(table, "__len__"))
    }
    if len(set(sizes.values())) > 1 or 0 in sizes.values():
        counts = ", ".join(f"{name} has {n}" for name, n in sizes.items())
        raise InvalidInputError(
            f"All tables must have the same number of rows, at least one; {counts}."
        )
    indexed = [
        (name, table.index)
        for name, table in parts.items()
        if isinstance(table, pd.DataFrame | pd.Series)
    ]
    for (first, index), (name, other) in itertools.combinations(indexed, 2):
        is_same = len(index) == len(other) and not index.equals(other)
        if is_same and index.is_unique and set(index) == set(other):
            raise InvalidInputError(
                f"{first} and {name} have the same index in another order, and rows "
                f"are matched by position. Reorder one: {name}.loc[{first}.index]."
            )


def encode_rows(
    sensitive_features: Table,
    notion: Notion,
    labels: Labels,
    X: Table = None,
    *,
    how: GroupMode = "intersection",
    sample_weight: FloatArray | None = None,
    binning: Binning = DEFAULT_BINNING,
) -> Rows:
    """Return rows encoded for a notion, after warning about missing or small groups.

    ``X`` holds the control feature, where the notion names one.
    """
    labels = add_control(labels, notion, X)
    attributes = encode_sensitive(sensitive_features, labels.n_samples, how, binning)
    weight = np.ones(labels.n_samples) if sample_weight is None else sample_weight
    rows = Rows(attributes, notion.strata(labels), weight)
    for attribute in attributes:
        if attribute.small:
            warn_user(
                f"{small_groups(attribute.small)} of {attribute.name} are smaller than "
                "min_group_size. They train the loss and have no part in the penalty.",
                SmallGroupWarning,
            )
    warn_of_gaps(rows, labels)
    return rows


def small_groups(small: Mapping[str, int]) -> str:
    """Return the names and rows of groups that are left out, in words."""
    return ", ".join(f"{group} ({n_rows} rows)" for group, n_rows in small.items())


def add_control(
    labels: Labels, notion: Notion, X: Table, *, is_batch: bool = False
) -> Labels:
    """Return labels with the codes of the notion's control feature, if it has one."""
    control = notion.control_feature()
    if control is None:
        return labels
    n_samples = labels.n_samples
    if isinstance(control, str | int | np.integer):
        control = _column_of(X, control)
    elif len(control) != n_samples:
        raise InvalidInputError(
            f"The control feature has {len(control)} values for {n_samples} rows. Name "
            "a column of X instead: ConditionalParity('department')."
        )
    name = "the control feature"
    attribute = encode_column(control, name, n_samples, is_batch=is_batch)
    return replace(labels, control=attribute.code, control_names=attribute.groups)


def _column_of(X: Table, control: str | int | np.integer) -> Table:
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    is_frame, is_name = isinstance(frame, nw.DataFrame), isinstance(control, str)
    if is_name and not is_frame:
        raise InvalidParameterError(
            f"The control feature is named {control!r} but X has no column names. Pass "
            "a data frame, a column position, or one value per row."
        )
    table = frame if is_frame else X.tocsr() if is_sparse(X) else np.asarray(X)
    names = list(frame.columns if is_frame else range(table.shape[1]))
    if is_name and control in names:
        control = names.index(control)
    if isinstance(control, str) or not -len(names) <= control < len(names):
        raise InvalidParameterError(
            f"The control feature {control!r} is not a column of X. Columns: "
            f"{', '.join(map(str, names))}."
        )
    column: Table = table[:, int(control)]
    return column.toarray().reshape(-1) if is_sparse(column) else column


def warn_of_gaps(rows: Rows, labels: Labels) -> None:
    """Warn about missing values, small groups and strata with a single group."""
    missing = {}
    if labels.control is not None:
        missing["the control feature"] = int(np.sum(labels.control < 0))
    for attribute, sums in zip(rows.attributes, rows.cell_sums, strict=True):
        n_small = sum(attribute.small.values())
        missing[attribute.name] = int(sums.n_rows[:, 0].sum()) - n_small
    for name, n_missing in missing.items():
        if n_missing:
            warn_user(
                f"{n_missing} of {rows.weight.size} rows have no value of {name}. They "
                "are left out of the penalty.",
                MissingGroupWarning,
            )
    names = rows.strata.names
    for attribute, sums in zip(rows.attributes, rows.cell_sums, strict=True):
        small = [
            f"{attribute.groups[k]} ({sums.present[r, k]} rows"
            + (f" where {names[r]})" if len(names) > 1 else ")")
            for r, k in zip(*np.nonzero(sums.present < SMALL_GROUP), strict=True)
        ]
        if small:
            more = f" and {len(small) - 8} more" if len(small) > 8 else ""
            warn_user(
                f"Groups of {attribute.name} with fewer than {SMALL_GROUP} rows: "
                f"{', '.join(small[:8])}{more}. Their rates are unreliable; merge "
                "groups or collect more rows.",
                SmallGroupWarning,
            )
        is_lonely = (sums.present > 0).sum(axis=1) == 1
        lonely = [names[r] for r in np.flatnonzero(is_lonely)]
        if lonely and len(names) > 1:
            warn_user(
                f"Only one group of {attribute.name} is present where "
                f"{', '.join(lonely)}; there is nobody to compare it with.",
                EmptyStratumWarning,
            )
