"""The sizes of groups, counted in data that arrive in batches.

A *cell* is a label and one value for each sensitive column. Their weights are all that
a penalty has to know of the whole data, and there are few of them however many rows.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.groups import (
    Attribute,
    GroupMode,
    encode_column,
    group_name,
    number_cells,
    number_groups,
    partition,
    refuse_identifiers,
    split_columns,
)
from fferm.data.rows import Rows, check_aligned
from fferm.data.validate import Number, encode_weight, factorize, find_codes
from fferm.errors import (
    InvalidInputError,
    InvalidTypeError,
    MissingGroupWarning,
    warn_user,
)
from fferm.notions import Labels, Notion

# One value for each sensitive column, None where it is missing.
Values = tuple[str | None, ...]


@dataclass(frozen=True)
class CellRows:
    """The sensitive values of some rows.

    Attributes
    ----------
    columns
        Names of the sensitive columns.
    values
        The different rows there are.
    code
        (n_samples,) which of them each row is.
    """

    columns: tuple[str, ...]
    values: tuple[Values, ...]
    code: IntArray


def read_cells(sensitive_features: Table, n_samples: int | None = None) -> CellRows:
    """Return sensitive features, given as in `fit`, as codes of their cells."""
    parts = split_columns(sensitive_features)
    n_rows = len(parts[0][1]) if n_samples is None else n_samples
    columns = [
        encode_column(values, name, n_rows, is_batch=True) for name, values in parts
    ]
    shape = tuple(len(column.groups) + 1 for column in columns)
    flat = number_cells(np.stack([column.code + 1 for column in columns]), shape)
    present, code = np.unique(flat, return_inverse=True)
    values = tuple(
        tuple(
            column.groups[k - 1] if k else None
            for column, k in zip(columns, place, strict=True)
        )
        for place in zip(*np.unravel_index(present, shape), strict=True)
    )
    names = tuple(column.name for column in columns)
    return CellRows(names, values, code.reshape(-1).astype(np.int64))


class GroupCounts:
    """The groups of data in batches and their sizes, filled by a first pass.

    It holds one number for each label and group, whatever the number of rows. Any
    notion that conditions on labels or on nothing can be trained with it, on the
    intersection of the columns or on each.

    Attributes
    ----------
    n_rows : int
        Rows of positive weight so far.
    columns : tuple of str, or None
        Names of the sensitive columns, None before the first batch.

    Examples
    --------
    >>> from fferm import GroupCounts
    >>> counts = GroupCounts()
    >>> counts.update(sensitive_features=["a", "b", "b"], y=[0, 0, 1])
    >>> counts.update(sensitive_features=["a"], y=[1])
    >>> counts.shares()
    {(0, 'a'): 0.25, (0, 'b'): 0.25, (1, 'a'): 0.25, (1, 'b'): 0.25}
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self.columns: tuple[str, ...] | None = None
        self._mass: dict[tuple[object, Values], float] = defaultdict(float)

    def update(
        self, *, sensitive_features: Table, y: Table = None, sample_weight: Table = None
    ) -> None:
        """Count a batch of the data.

        Parameters
        ----------
        sensitive_features
            The group of each row, as in `fit`.
        y
            The label of each row, for notions that condition on it.
        sample_weight
            The weight of each row, where there are weights.
        """
        check_aligned(
            y=y, sensitive_features=sensitive_features, sample_weight=sample_weight
        )
        if y is None:
            cells = read_cells(sensitive_features)
            code, labels = np.zeros_like(cells.code), list[object]([None])
        else:
            code, labels = factorize(y, "y")
            cells = read_cells(sensitive_features, code.size)
        weight = encode_weight(sample_weight, cells.code.size)
        self.add(cells, labels, code, weight)

    def add(
        self,
        cells: CellRows,
        labels: Sequence[object],
        code: IntArray,
        weight: FloatArray,
    ) -> None:
        """Count rows that are encoded: ``code`` says which of ``labels`` each has."""
        check_columns(self.columns, cells.columns)
        if self._mass and self.has_labels != (None not in labels):
            raise InvalidInputError(
                "Some batches have labels. Pass update(y=...) for all or for none."
            )
        shape = len(labels), len(cells.values)
        flat = code * shape[1] + cells.code
        mass = np.bincount(flat, weight, shape[0] * shape[1]).reshape(shape)
        seen = np.bincount(flat, minlength=mass.size).reshape(shape)
        if not math.isfinite(float(mass.sum()) + self.total):
            raise InvalidInputError(
                "The sample weights sum to infinity. Scale them down in every batch."
            )
        for j, c in zip(*np.nonzero(seen), strict=True):
            self._mass[labels[j], cells.values[c]] += float(mass[j, c])
        self.columns = self.columns or cells.columns
        self.n_rows += int(np.sum(weight > 0))

    def merge(self, other: "GroupCounts") -> None:
        """Count the rows that other counts have counted."""
        check_columns(self.columns, other.columns or self.columns or ())
        self.columns = self.columns or other.columns
        self.n_rows += other.n_rows
        for cell, mass in other._mass.items():
            self._mass[cell] += mass

    def find(self, *, sensitive_features: Table, y: Table) -> IntArray:
        """Return (n_samples,) the position of each row's cell among `cells`."""
        code, labels = factorize(y, "y")
        cells = read_cells(sensitive_features, code.size)
        place = {cell: k for k, cell in enumerate(self._mass)}
        known = [[place.get((j, v), -1) for v in cells.values] for j in labels]
        position = np.array(known, dtype=np.int64)[code, cells.code]
        if np.any(position < 0):
            raise InvalidInputError(
                "Some rows have a label or group that the first pass did not see. The "
                "data must be the same each time they are read; fit again."
            )
        return position

    @property
    def cells(self) -> dict[tuple[object, Values], float]:
        """The weight of each label and values of the sensitive columns."""
        return dict(self._mass)

    @property
    def has_labels(self) -> bool:
        """Whether labels were counted too."""
        return bool(self._mass) and all(label is not None for label, _ in self._mass)

    @property
    def total(self) -> float:
        """The weight of all rows so far."""
        return sum(self._mass.values())

    @property
    def labels(self) -> list[object]:
        """The labels so far, sorted."""
        labels = {label for label, _ in self._mass if label is not None}
        return sorted(labels)  # type: ignore[type-var]

    def shares(self) -> dict[object, float]:
        """Return the share of each cell, in the form that ``partial_fit`` takes.

        Keys are values, or tuples ``(label, value, ...)`` where labels were counted or
        there are several columns. A missing value is None.
        """
        total = self.total or 1.0
        keys = {
            (label, *values) if label is not None else values: mass / total
            for (label, values), mass in self._mass.items()
        }
        ordered = sorted(keys, key=lambda key: tuple(map(_sort_key, key)))
        return {key if len(key) > 1 else key[0]: keys[key] for key in ordered}

    def copy(self) -> "GroupCounts":
        """Return counts that may go their own way."""
        other = GroupCounts()
        other.n_rows, other.columns = self.n_rows, self.columns
        other._mass = self._mass.copy()
        return other


def read_counts(groups: Table, columns: Sequence[str], has_labels: bool) -> GroupCounts:
    """Return the sizes of groups that a user passed, as counts of their own.

    Parameters
    ----------
    groups
        A `GroupCounts`, or a mapping or pandas Series from cells to shares, which need
        not sum to 1.
    columns
        Names of the sensitive columns.
    has_labels
        Whether a key begins with the label.
    """
    if isinstance(groups, GroupCounts):
        check_columns(groups.columns, columns)
        counts = groups.copy()
    elif isinstance(groups, Mapping | pd.Series):
        counts = GroupCounts()
        counts.columns = tuple(columns)
        for key, share in groups.items():
            label, values = _read_cell(key, share, len(columns), has_labels)
            counts._mass[label, values] += float(share)
    else:
        raise InvalidTypeError(
            "groups must be shares of the groups, such as {'a': 0.4, 'b': 0.6}, or a "
            f"GroupCounts that a first pass has filled; got {type(groups).__name__}."
        )
    if not counts.total > 0:
        raise InvalidInputError(
            "groups has counted nothing, or has shares that sum to 0. Pass shares such "
            "as {'a': 0.4, 'b': 0.6}, or fill a GroupCounts with its update method."
        )
    return counts


def rows_of_cells(
    counts: GroupCounts, notion: Notion, classes: tuple[object, ...], how: GroupMode
) -> tuple[Rows, list[Values]]:
    """Return one row for each cell that was counted, of its weight, and its values."""
    cells = counts.cells
    values = [of_cell for _, of_cell in cells]
    columns = [
        Attribute(name, *number_groups([of_cell[a] for of_cell in values]))
        for a, name in enumerate(counts.columns or ())
    ]
    if counts.n_rows:
        for column in columns:
            refuse_identifiers(column.name, len(column.groups), counts.n_rows)
    code = None
    if notion.needs_labels:
        if not counts.has_labels:
            raise InvalidInputError(
                f"{notion!r} conditions on the label, and the GroupCounts has none. "
                "Fill it with update(sensitive_features=..., y=...)."
            )
        labels, advice = [label for label, _ in cells], " Name all of them in classes."
        code = find_codes(np.arange(len(cells)), labels, classes, "groups", advice)
    strata = notion.strata(Labels(len(cells), code, classes))
    return Rows(partition(columns, how), strata, np.array([*cells.values()])), values


def warn_of_unknown(rows: Rows) -> None:
    """Warn of rows without a group, of `rows_of_cells`."""
    for attribute, sums in zip(rows.attributes, rows.cell_sums, strict=True):
        unknown = 1 - sums.known_share
        if unknown > 0:
            warn_user(
                f"{unknown:.2%} of the weight of all rows has no value of "
                f"{attribute.name}. These rows are left out of the penalty.",
                MissingGroupWarning,
            )


def _read_cell(
    key: object, share: Any, n_columns: int, has_labels: bool
) -> tuple[object, Values]:
    parts = key if isinstance(key, tuple) else (key,)
    if len(parts) != n_columns + has_labels:
        label = "the label, on which the notion conditions, and " if has_labels else ""
        raise InvalidInputError(
            f"A key of groups must be {label}one value per sensitive column "
            f"({n_columns} columns; a tuple for several values); got {key!r}."
        )
    if not Number().accepts(share):
        raise InvalidInputError(
            f"The share of {key!r} must be a number of at least 0; got {share!r}."
        )
    values = [group_name(value) for value in parts[has_labels:]]
    return parts[0] if has_labels else None, tuple(values)


def check_columns(known: Sequence[str] | None, columns: Sequence[str]) -> None:
    """Raise if the sensitive columns are not those of earlier batches."""
    if known is None or (len(known) == len(columns) == 1):
        return
    if tuple(known) != tuple(columns):
        raise InvalidInputError(
            f"The sensitive columns must be {', '.join(known)}, in this order, as in "
            f"earlier batches; got {', '.join(columns)}."
        )


def _sort_key(part: Any) -> tuple[int, Any]:
    if part is None:
        return 2, ""
    return (0, part) if isinstance(part, Real) else (1, str(part))
