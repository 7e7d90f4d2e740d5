"""The groups of a piece of data, placed among those of all pieces."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fferm._types import IntArray, Table
from fferm.columns import (
    Attribute,
    GroupMode,
    number_groups,
    partition,
    refuse_identifiers,
)
from fferm.counts import (
    CellRows,
    GroupCounts,
    Values,
    check_columns,
    counts_from_shares,
    read_cells,
)
from fferm.data import FairRows
from fferm.duals import NO_GROUPS, GroupWeights, group_ends, group_weights
from fferm.errors import InvalidInputError, MissingGroupWarning, MissingSensitiveError
from fferm.estimators.validation import TrainingData
from fferm.notions import Labels, Notion, Strata
from fferm.objective import Objective

# Frames from a warning up to the line that called `partial_fit`.
CALL_DEPTH = 6


@dataclass(frozen=True)
class KnownGroups:
    """What is known of the groups between two pieces.

    Attributes
    ----------
    counts
        Sizes of the groups.
    is_given
        Whether these were given, and are not counted as pieces come.
    columns, names
        Names of the sensitive columns and of the groups.
    """

    counts: GroupCounts
    is_given: bool
    columns: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class PlacedRows:
    """The rows of a piece among the groups of all pieces.

    Attributes
    ----------
    known
        The groups, None without a penalty.
    weights
        Of groups and strata in the whole data.
    stratum, group
        (n_samples,) and (n_samples, n_attributes), as the kernel takes them.
    """

    known: KnownGroups | None
    weights: GroupWeights
    stratum: IntArray
    group: IntArray


def place_rows_of_piece(
    data: TrainingData,
    objective: Objective,
    how: GroupMode,
    given: tuple[Table, Table],
    before: KnownGroups | None,
) -> PlacedRows:
    """Return the rows of a piece among the groups of all pieces.

    Parameters
    ----------
    data
        The piece.
    objective
        Says what the penalty conditions on.
    how
        Whether columns count jointly or one by one.
    given
        ``sensitive_features`` and ``groups`` as they came.
    before
        What was known of the groups before.
    """
    sensitive_features, groups = given
    if objective.fairness_weight == 0:
        nobody = np.full(data.y.size, -1, dtype=np.int64)
        return PlacedRows(None, NO_GROUPS, nobody, nobody[:, None])
    if sensitive_features is None:
        raise MissingSensitiveError(
            f"fairness_weight={objective.fairness_weight!r} asks for fairness and no "
            "sensitive_features came. Pass partial_fit(X, y, sensitive_features=...), "
            "or set fairness_weight=0 to train without fairness."
        )
    cells = read_cells(sensitive_features, data.y.size)
    check_columns(before.columns if before else None, cells.columns)
    if groups is not None:
        counts, is_given = _given_counts(groups, cells, objective.notion), True
    elif before is not None and before.is_given:
        counts, is_given = before.counts, True
    else:
        counts = before.counts.copy() if before else GroupCounts()
        counts.add(cells, data.classes.tolist(), data.y, data.weight)
        is_given = False
    if objective.notion.needs_labels and counts.has_labels:
        _check_labels(counts, data)
    classes = tuple(data.classes.tolist())
    rows, values = _as_rows(counts, objective.notion, classes, how)
    _check_groups(rows, before, is_given)
    strata = objective.notion.strata(Labels(data.y.size, data.y, classes))
    group = _find_groups(rows, values, cells)
    weights = group_weights(rows, objective.notion.weighting)
    kept = data.kept
    _check_shares(weights, strata.code[kept], group[kept], rows)
    _warn_of_missing(group, rows)
    columns = before.columns if before else cells.columns
    known = KnownGroups(counts, is_given, columns, rows.group_names)
    return PlacedRows(known, weights, strata.code, group)


def _given_counts(groups: Table, cells: CellRows, notion: Notion) -> GroupCounts:
    if not isinstance(groups, GroupCounts):
        return counts_from_shares(groups, cells.columns, notion.needs_labels)
    if not groups.total > 0:
        raise InvalidInputError(
            "groups is a GroupCounts that has counted nothing. Fill it with "
            "update(sensitive_features=..., y=...), piece by piece."
        )
    check_columns(groups.columns, cells.columns)
    return groups.copy()


def _as_rows(
    counts: GroupCounts, notion: Notion, classes: tuple[object, ...], how: GroupMode
) -> tuple[FairRows, list[Values]]:
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
    strata = _strata(counts, [label for label, _ in cells], notion, classes)
    mass = np.array(list(cells.values()))
    return FairRows(partition(columns, how), strata, mass), values


def _strata(
    counts: GroupCounts,
    labels: Sequence[object],
    notion: Notion,
    classes: tuple[object, ...],
) -> Strata:
    if not notion.needs_labels:
        return notion.strata(Labels(len(labels), None, classes))
    if not counts.has_labels:
        raise InvalidInputError(
            f"{notion!r} conditions on the label, and the GroupCounts has seen none. "
            "Fill it with update(sensitive_features=..., y=...)."
        )
    codes = [classes.index(label) if label in classes else -1 for label in labels]
    if -1 in codes:
        raise InvalidInputError(
            f"groups knows the label {labels[codes.index(-1)]!r}, which is none of the "
            f"classes {', '.join(map(repr, classes))}. Name all of them in classes."
        )
    return notion.strata(Labels(len(labels), np.array(codes, dtype=np.int64), classes))


def _find_groups(rows: FairRows, values: Sequence[Values], cells: CellRows) -> IntArray:
    """Return (n_samples, n_attributes) groups, numbered through all attributes."""
    columns = []
    for a, begin in enumerate(group_ends(rows)[:-1]):
        whole = len(rows.attributes) == 1
        known = {
            of_cell if whole else (of_cell[a],): code + begin
            for of_cell, code in zip(values, rows.attributes[a].code, strict=True)
        }
        parts = [of_cell if whole else (of_cell[a],) for of_cell in cells.values]
        new = [part for part in parts if None not in part and part not in known]
        _refuse_new([" × ".join(map(str, part)) for part in new])
        codes = [-1 if None in part else known[part] for part in parts]
        columns.append(np.array(codes, dtype=np.int64)[cells.code])
    return np.stack(columns, axis=1)


def _check_groups(rows: FairRows, before: KnownGroups | None, is_given: bool) -> None:
    names = rows.group_names
    if before is not None and before.names != names:
        _refuse_new([name for name in names if name not in before.names])
        gone = ", ".join(name for name in before.names if name not in names)
        raise InvalidInputError(
            f"groups lacks {gone}, known from the pieces before. Give every group its "
            "share."
        )
    for attribute in rows.attributes:
        if len(attribute.groups) < 2:
            whose = "groups holds" if is_given else "The first piece holds"
            raise InvalidInputError(
                f"{whose} one group of {attribute.name} at most, so there is nothing "
                "to be fair between. Say which groups there will be: "
                "groups={group: share}, or a GroupCounts of a first pass."
            )


def _refuse_new(names: Sequence[str]) -> None:
    if names:
        raise InvalidInputError(
            f"New groups came: {', '.join(dict.fromkeys(names))}. The groups are those "
            "of the first piece, or of groups= where it was given. Name all of them in "
            "the first call: groups={group: share}, or a GroupCounts of a first pass."
        )


def _check_labels(counts: GroupCounts, data: TrainingData) -> None:
    counted = {label for (label, _), mass in counts.cells.items() if mass > 0}
    present = data.classes[np.unique(data.y[data.kept])].tolist()
    lost = [label for label in present if label not in counted]
    if lost:
        raise InvalidInputError(
            f"Rows of the label {lost[0]!r} came, to which groups gives no share. Give "
            "shares of all labels, also of those that the notion leaves out."
        )


def _check_shares(
    weights: GroupWeights, stratum: IntArray, group: IntArray, rows: FairRows
) -> None:
    for column in group.T:
        known = np.flatnonzero((stratum >= 0) & (column >= 0))
        empty = known[weights.prior[stratum[known], column[known]] <= 0]
        if empty.size:
            name = rows.group_names[column[empty[0]]]
            where = rows.strata.names[stratum[empty[0]]]
            raise InvalidInputError(
                f"Rows of the group {name} came ({where}), to which groups gives no "
                "share. Give every group its share of the whole data, with each label "
                "where the notion conditions on it."
            )


def _warn_of_missing(group: IntArray, rows: FairRows) -> None:
    for attribute, column in zip(rows.attributes, group.T, strict=True):
        n_missing = int(np.sum(column < 0))
        if n_missing:
            warnings.warn(
                f"{n_missing} of {column.size} rows have no value of {attribute.name}. "
                "They are left out of the penalty.",
                MissingGroupWarning,
                stacklevel=CALL_DEPTH,
            )
