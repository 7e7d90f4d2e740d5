"""Training on data that arrive in batches, behind ``partial_fit``.

The sizes of the groups are passed, or counted as the batches arrive; the steps are
those of `fferm.solvers.partial`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from fferm import solvers
from fferm._typing import FloatArray, IntArray, Table
from fferm.data.group_counts import (
    CellRows,
    GroupCounts,
    Values,
    check_columns,
    counts_from_shares,
    read_cells,
)
from fferm.data.groups import (
    Attribute,
    GroupMode,
    number_groups,
    partition,
    refuse_identifiers,
)
from fferm.data.rows import FitInput, Rows, check_aligned
from fferm.data.validate import (
    TrainingData,
    check_classes,
    check_params,
    validate_batch,
)
from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    MissingGroupWarning,
    MissingSensitiveError,
    warn_user,
)
from fferm.estimators.base import Choice
from fferm.notions import Labels, Notion, Strata
from fferm.penalty.dual import NO_GROUPS, GroupWeights, group_ends, group_weights
from fferm.penalty.objective import Objective, Problem
from fferm.solvers import Result
from fferm.solvers.partial import PartialRun, PartialTrainer

if TYPE_CHECKING:
    from fferm.estimators.linear import FairLogisticRegression

# Adagrad's step by default. Batches may be sorted: longer steps would follow each.
DEFAULT_RATE = 0.4


@dataclass(frozen=True)
class PartialState:
    """What is known after some batches.

    Attributes
    ----------
    objective
        The objective of the last of them.
    run
        The state of the solver.
    known
        The groups, None without a penalty.
    n_rows, weight
        Rows of positive weight so far, and their total weight.
    n_batches
        Batches so far.
    """

    objective: Objective
    run: PartialRun
    known: "KnownGroups | None"
    n_rows: int
    weight: float
    n_batches: int


def fit_batch(
    model: "FairLogisticRegression", batch: FitInput, classes: Table, groups: Table
) -> "FairLogisticRegression":
    """Return the model after one more batch."""
    _check_model(model)
    check_aligned(**batch.tables)
    before = model._partial
    objective = _objective(model, before)
    classes = check_classes(_known_classes(model, classes, groups), classes)
    data = validate_batch(model, batch.X, batch.y, batch.sample_weight, classes)
    placed = place_rows(
        data,
        objective,
        model.groups,
        (batch.sensitive_features, groups),
        before.known if before else None,
    )
    n_rows = int(data.kept.sum()) + (before.n_rows if before else 0)
    weight = float(data.weight.sum()) + (before.weight if before else 0.0)
    if not 0 < weight < np.inf:
        raise InvalidInputError(
            f"The sample weights so far must sum to a positive number; got {weight:g}."
        )
    kept = data.kept
    problem = Problem(
        objective,
        data.X if kept.all() else data.X[kept],
        data.y[kept],
        data.weight[kept] / (weight / n_rows) / max(1, kept.sum()),
        data.classes.size,
    )
    n_batches = before.n_batches + 1 if before else 1
    groups_of_rows = placed.weights, placed.stratum[kept], placed.group[kept]
    trainer = PartialTrainer(_solver(model), problem, *groups_of_rows)
    run = trainer.train(before.run if before else None, *_start(model, placed))
    model._partial = PartialState(
        objective, run, placed.known, n_rows, weight, n_batches
    )
    theta = trainer.parameters(run)
    model.classes_ = classes
    model.coef_, model.intercept_ = theta[:, :-1].copy(), theta[:, -1].copy()
    model._learn(None, Choice(objective.fairness_weight))
    if placed.known is not None:
        model.groups_ = np.array(placed.known.names, dtype=object)
    model.dual_ = trainer.dual(run)
    model.n_iter_, model.history_ = n_batches, ()
    model.result_ = Result.schedule_completed
    return model


def _check_model(model: "FairLogisticRegression") -> None:
    check_params(vars(model), model.constraints)
    if model.solver not in ("auto", "sgda"):
        raise InvalidParameterError(
            f"partial_fit needs solver='sgda' or 'auto'; got {model.solver!r}."
        )
    if model.max_violation is not None:
        raise InvalidParameterError(
            "partial_fit cannot keep max_violation, because it holds out no rows. Set "
            "max_violation=None and choose a fairness_weight."
        )


def _solver(model: "FairLogisticRegression") -> Any:
    options = {} if model.learning_rate else {"learning_rate": DEFAULT_RATE}
    settings = clone(model).set_params(**options)._solver_options("sgda")
    return solvers.make("sgda", settings)


def _objective(
    model: "FairLogisticRegression", before: PartialState | None
) -> Objective:
    objective = model._objective()
    is_fair = objective.fairness_weight > 0
    if is_fair:
        objective.check_linear_dual("sgda")
        if objective.notion.control_feature() is not None:
            raise InvalidParameterError(
                f"{objective.notion!r} has a control feature, which partial_fit does "
                "not count. Use fit, or a notion that conditions on the label."
            )
    if before is not None:
        old = before.objective
        _check_same("divergence", old.divergence, objective.divergence)
        _check_same("notion", old.notion, objective.notion)
        _check_same("fairness_weight > 0", old.fairness_weight > 0, is_fair)
    return objective


def _check_same(name: str, old: object, new: object) -> None:
    if old != new:
        raise InvalidParameterError(
            f"{name} must stay {old!r}, as in earlier batches; got {new!r}. Start over "
            "with a clone, because what was learned about the groups does not carry "
            "over."
        )


def _known_classes(
    model: "FairLogisticRegression", classes: Table, groups: Table
) -> NDArray[Any] | None:
    if hasattr(model, "classes_"):
        return model.classes_
    if classes is None and isinstance(groups, GroupCounts):
        labels = groups.labels
        return np.array(labels) if len(labels) > 1 else None
    return None


def _start(
    model: "FairLogisticRegression", placed: "PlacedRows"
) -> tuple[FloatArray | None, FloatArray | None]:
    if not hasattr(model, "coef_"):
        return None, None
    theta: FloatArray = model._parameters()
    if placed.known is None or tuple(model.groups_) != placed.known.names:
        return theta, None
    shape = len(placed.weights.share), model.classes_.size, len(placed.known.names)
    return theta, model.dual_ if model.dual_.shape == shape else None


@dataclass(frozen=True)
class KnownGroups:
    """What is known about the groups between two batches.

    Attributes
    ----------
    counts
        Sizes of the groups.
    is_passed
        Whether the user passed them; otherwise they are counted.
    columns, names
        Names of the sensitive columns and of the groups.
    """

    counts: GroupCounts
    is_passed: bool
    columns: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class PlacedRows:
    """The rows of a batch among the groups of all batches.

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


def place_rows(
    data: TrainingData,
    objective: Objective,
    how: GroupMode,
    passed: tuple[Table, Table],
    before: KnownGroups | None,
) -> PlacedRows:
    """Return the rows of a batch among the groups of all batches.

    Parameters
    ----------
    data
        The batch.
    objective
        Says what the penalty conditions on.
    how
        Whether columns count jointly or one by one.
    passed
        ``sensitive_features`` and ``groups`` as passed.
    before
        What was known about the groups before.
    """
    sensitive_features, groups = passed
    if objective.fairness_weight == 0:
        nobody = np.full(data.y.size, -1, dtype=np.int64)
        return PlacedRows(None, NO_GROUPS, nobody, nobody[:, None])
    if sensitive_features is None:
        raise MissingSensitiveError(
            f"fairness_weight={objective.fairness_weight!r} needs sensitive_features. "
            "Pass partial_fit(X, y, sensitive_features=...), or set fairness_weight=0 "
            "to train without fairness."
        )
    cells = read_cells(sensitive_features, data.y.size)
    check_columns(before.columns if before else None, cells.columns)
    if groups is not None:
        counts, is_passed = _passed_counts(groups, cells, objective.notion), True
    elif before is not None and before.is_passed:
        counts, is_passed = before.counts, True
    else:
        counts = before.counts.copy() if before else GroupCounts()
        counts.add(cells, data.classes.tolist(), data.y, data.weight)
        is_passed = False
    if objective.notion.needs_labels and counts.has_labels:
        _check_labels(counts, data)
    classes = tuple(data.classes.tolist())
    rows, values = _as_rows(counts, objective.notion, classes, how)
    _check_groups(rows, before, is_passed)
    strata = objective.notion.strata(Labels(data.y.size, data.y, classes))
    group = _find_groups(rows, values, cells)
    weights = group_weights(rows, objective.notion.weighting)
    kept = data.kept
    _check_shares(weights, strata.code[kept], group[kept], rows)
    _warn_of_missing(group, rows)
    columns = before.columns if before else cells.columns
    known = KnownGroups(counts, is_passed, columns, rows.group_names)
    return PlacedRows(known, weights, strata.code, group)


def _passed_counts(groups: Table, cells: CellRows, notion: Notion) -> GroupCounts:
    if not isinstance(groups, GroupCounts):
        return counts_from_shares(groups, cells.columns, notion.needs_labels)
    if not groups.total > 0:
        raise InvalidInputError(
            "groups is a GroupCounts that has counted nothing. Fill it with "
            "update(sensitive_features=..., y=...), batch by batch."
        )
    check_columns(groups.columns, cells.columns)
    return groups.copy()


def _as_rows(
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
    strata = _strata(counts, [label for label, _ in cells], notion, classes)
    mass = np.array(list(cells.values()))
    return Rows(partition(columns, how), strata, mass), values


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
            f"{notion!r} conditions on the label, and the GroupCounts has none. "
            "Fill it with update(sensitive_features=..., y=...)."
        )
    codes = [classes.index(label) if label in classes else -1 for label in labels]
    if -1 in codes:
        raise InvalidInputError(
            f"groups has the label {labels[codes.index(-1)]!r}, which is not among the "
            f"classes {', '.join(map(repr, classes))}. Name all of them in classes."
        )
    return notion.strata(Labels(len(labels), np.array(codes, dtype=np.int64), classes))


def _find_groups(rows: Rows, values: Sequence[Values], cells: CellRows) -> IntArray:
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


def _check_groups(rows: Rows, before: KnownGroups | None, is_passed: bool) -> None:
    names = rows.group_names
    if before is not None and before.names != names:
        _refuse_new([name for name in names if name not in before.names])
        gone = ", ".join(name for name in before.names if name not in names)
        raise InvalidInputError(
            f"groups lacks {gone}, known from earlier batches. Give every group its "
            "share."
        )
    for attribute in rows.attributes:
        if len(attribute.groups) < 2:
            where = "groups has" if is_passed else "The first batch has"
            raise InvalidInputError(
                f"{where} only one group in {attribute.name}, so there is nothing "
                "to compare. Say which groups there will be: groups={group: share}, or "
                "a GroupCounts of a first pass."
            )


def _refuse_new(names: Sequence[str]) -> None:
    if names:
        raise InvalidInputError(
            f"Unknown groups: {', '.join(dict.fromkeys(names))}. Groups must be those "
            "of the first batch, or of groups= if it was passed. Name all of them in "
            "the first call: groups={group: share}, or a GroupCounts of a first pass."
        )


def _check_labels(counts: GroupCounts, data: TrainingData) -> None:
    counted = {label for (label, _), mass in counts.cells.items() if mass > 0}
    present = data.classes[np.unique(data.y[data.kept])].tolist()
    lost = [label for label in present if label not in counted]
    if lost:
        raise InvalidInputError(
            f"groups has no share of the label {lost[0]!r}, which some rows have. Give "
            "shares of all labels, also of those that the notion leaves out."
        )


def _check_shares(
    weights: GroupWeights, stratum: IntArray, group: IntArray, rows: Rows
) -> None:
    for column in group.T:
        known = np.flatnonzero((stratum >= 0) & (column >= 0))
        empty = known[weights.prior[stratum[known], column[known]] <= 0]
        if empty.size:
            name = rows.group_names[column[empty[0]]]
            where = rows.strata.names[stratum[empty[0]]]
            raise InvalidInputError(
                f"groups has no share of the group {name} ({where}), which some rows "
                "have. Give every group its share of the whole data, with each label "
                "if the notion conditions on it."
            )


def _warn_of_missing(group: IntArray, rows: Rows) -> None:
    for attribute, column in zip(rows.attributes, group.T, strict=True):
        n_missing = int(np.sum(column < 0))
        if n_missing:
            warn_user(
                f"{n_missing} of {column.size} rows have no value of {attribute.name}. "
                "They are left out of the penalty.",
                MissingGroupWarning,
            )
