"""What training labels look like, so that a batch is read as they were.

A batch holds one integer per sensitive column. Where the values of a column are whole
numbers these stand for themselves; other values are numbered, and `Column.encode` turns
them into their numbers. -1 and NaN mean that the group is unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fferm._typing import IntArray, Table
from fferm.data.groups import (
    Attribute,
    GroupMode,
    assign,
    encode_column,
    encode_sensitive,
    partition,
)
from fferm.data.rows import (
    Rows,
    check_aligned,
    control_labels,
    warn_of_control,
    warn_of_gaps,
)
from fferm.data.validate import encode_labels, encode_weight
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.notions import Labels, Notion

# What stands for an unknown group, in data and in batches.
UNKNOWN = "-1"
# Whole numbers are looked up in a table, which must not be longer than this.
MOST_WHOLE_NUMBERS = 100_000


@dataclass(frozen=True)
class Column:
    """The groups of one column, and the whole number that stands for each.

    The groups of a continuous column are bands, which meet at its edges.
    """

    name: str
    groups: tuple[str, ...]
    edges: tuple[float, ...] | None = None

    @property
    def values(self) -> IntArray:
        """(n_groups,) whole numbers: the groups' own, or their positions."""
        try:
            own = np.array([int(group) for group in self.groups], dtype=np.int64)
        except (ValueError, OverflowError):
            return np.arange(len(self.groups))
        if np.ptp(own) >= MOST_WHOLE_NUMBERS:
            raise InvalidInputError(
                f"{self.name} holds the numbers {own.min()} to {own.max()}. Expected "
                "groups 0, 1, 2...; number the groups first, or name them by strings."
            )
        return own

    def encode(self, values: Table) -> IntArray:
        """Return the whole number of each value, -1 where it is missing."""
        if self.edges is not None:
            return assign(np.asarray(values, dtype=np.float64), np.array(self.edges))
        # Few rows may hold many groups and are no identifiers for that.
        found = _known(encode_column(values, self.name, len(values), is_batch=True))
        unseen = [group for group in found.groups if group not in self.groups]
        if unseen:
            raise InvalidInputError(
                f"{self.name} holds {unseen[0]!r}, which training did not. Expected "
                f"one of {', '.join(self.groups)}, or -1 where it is unknown."
            )
        number = [int(self.values[self.groups.index(group)]) for group in found.groups]
        return np.array([*number, -1], dtype=np.int64)[found.code]


@dataclass(frozen=True)
class Encoding:
    """How labels are read.

    Attributes
    ----------
    columns
        The sensitive columns.
    attributes
        Name and groups of each partition: the columns, or their intersection.
    joint
        Positions in the columns, flattened -> group of their intersection; None where
        the columns are the partitions.
    classes
        The label of each class.
    strata
        Names of the strata.
    stratum_of
        (n_classes + 1, n_controls + 1) stratum by class and control, each moved by one
        so that -1 is the first.
    control
        The control feature of the notion, if it has one.
    """

    columns: tuple[Column, ...]
    attributes: tuple[Column, ...]
    joint: IntArray | None
    classes: tuple[object, ...]
    strata: tuple[str, ...]
    stratum_of: IntArray
    control: Column | None


def read_labels(
    y: Table,
    sensitive_features: Table,
    notion: Notion,
    how: GroupMode,
    classes: Sequence[object] | None,
    sample_weight: Table,
) -> tuple[Encoding, Rows]:
    """Return how training labels are read, and the rows that they make."""
    check_aligned(
        y=y, sensitive_features=sensitive_features, sample_weight=sample_weight
    )
    sensitive_features = plain(sensitive_features)
    labels = read_classes(plain(y), count_rows(sensitive_features), classes)
    labels = with_control(labels, notion)
    columns = _encode_columns(sensitive_features, labels.n_samples)
    attributes = partition(columns, how)
    is_joint = how == "intersection" and len(columns) > 1
    weight = encode_weight(plain(sample_weight), labels.n_samples)
    rows = Rows(attributes, notion.strata(labels), weight)
    warn_of_control(labels)
    warn_of_gaps(rows)
    encoding = Encoding(
        tuple(Column(c.name, c.groups, c.edges.get(c.name)) for c in columns),
        tuple(Column(a.name, a.groups, a.edges.get(a.name)) for a in attributes),
        _joint(columns, attributes[0]) if is_joint else None,
        labels.classes,
        rows.strata.names,
        stratum_table(labels, notion, rows.strata.code),
        None if labels.control is None else Column("control", labels.control_names),
    )
    return encoding, rows


def plain(table: Table) -> Table:
    """Return a tensor as an array, anything else as it is."""
    if isinstance(table, dict):
        return {name: plain(values) for name, values in table.items()}
    if not isinstance(table, torch.Tensor):
        return table
    table = table.detach().cpu()
    return table.float().numpy() if table.dtype == torch.bfloat16 else table.numpy()


def count_rows(table: Table) -> int:
    """Return the number of rows of labels or of sensitive features."""
    if isinstance(table, dict):
        return len(next(iter(table.values()))) if table else 0
    return table.shape[0] if hasattr(table, "shape") else len(table)


def read_classes(y: Table, n_rows: int, classes: Sequence[object] | None) -> Labels:
    """Return labels as codes among the classes given, or those that they hold."""
    if y is None and classes is None:
        raise InvalidParameterError(
            "Neither y nor classes came. Give the training labels, or name the classes "
            "that the model predicts: classes=[0, 1]."
        )
    if classes is None:
        classes = np.unique(np.asarray(y)).tolist()
    n_samples = n_rows if y is None else count_rows(y)
    labels = encode_labels(y, n_samples, classes, "y")
    if len(labels.classes) < 2:
        raise InvalidInputError(
            f"The labels know one class, {labels.classes[0]!r}. Expected at least two; "
            "name all that the model predicts: classes=[0, 1]."
        )
    return labels


def _encode_columns(sensitive_features: Table, n_samples: int) -> list[Attribute]:
    columns = [
        _known(c) for c in encode_sensitive(sensitive_features, n_samples, "marginal")
    ]
    for column in columns:
        if not column.groups:
            raise InvalidInputError(
                f"No row has a value of {column.name}. Expected groups; -1 and NaN "
                "stand for the unknown."
            )
    return columns


def _known(attribute: Attribute) -> Attribute:
    # -1 is no group of its own: batches say so where they do not know.
    if UNKNOWN not in attribute.groups:
        return attribute
    k = attribute.groups.index(UNKNOWN)
    code = np.where(attribute.code == k, -1, attribute.code)
    groups = attribute.groups[:k] + attribute.groups[k + 1 :]
    return Attribute(attribute.name, groups, np.where(code > k, code - 1, code))


def with_control(labels: Labels, notion: Notion) -> Labels:
    """Return labels with the control feature of a notion, if it has one."""
    feature = notion.control_feature()
    if isinstance(feature, str | int | np.integer):
        raise InvalidParameterError(
            f"The notion names column {feature!r} of X, and a loss sees no X. Give one "
            "value per training row, ConditionalParity(frame['department']), and "
            "control= in each call."
        )
    if isinstance(feature, torch.Tensor):
        notion = replace(notion, control=plain(feature))  # type: ignore[call-arg]
    control, names = control_labels(notion, None, labels.n_samples)
    return replace(labels, control=control, control_names=names)


def _joint(columns: Sequence[Attribute], attribute: Attribute) -> IntArray:
    shape = tuple(len(column.groups) for column in columns)
    table = np.full(int(np.prod(shape)), -1, dtype=np.int64)
    known = attribute.code >= 0
    cell = np.ravel_multi_index(tuple(c.code[known] for c in columns), shape)
    table[cell] = attribute.code[known]
    return table


def stratum_table(labels: Labels, notion: Notion, own_strata: IntArray) -> IntArray:
    """Return the stratum by class and control, each moved by one as -1 is the first."""
    # A notion gives each row its stratum by class and control, so it can be asked about
    # each pair of them once.
    n_classes, n_controls = len(labels.classes), len(labels.control_names)
    y, control = np.mgrid[-1:n_classes, -1:n_controls].reshape(2, -1)
    asked = Labels(
        y.size,
        np.maximum(y, 0),
        labels.classes,
        None if labels.control is None else control,
        labels.control_names,
    )
    code = notion.strata(asked).code
    if notion.needs_labels:
        code = np.where(y < 0, -1, code)
    table = code.reshape(n_classes + 1, n_controls + 1)
    own_y = np.full(labels.n_samples, -1) if labels.y is None else labels.y
    own = np.full(labels.n_samples, -1) if labels.control is None else labels.control
    if not np.array_equal(table[own_y + 1, own + 1], own_strata):
        raise InvalidParameterError(
            f"{notion!r} gives rows of the same label different strata. Expected a "
            "notion that looks at one row at a time, for batches hold few."
        )
    return table
