"""Training on data that arrive in batches, behind ``partial_fit``.

The sizes of the groups are passed, or counted as the batches arrive; the steps are
those of `fferm.solvers.partial`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from fferm import solvers
from fferm._typing import FloatArray, IntArray, Table
from fferm.data.group_counts import (
    CellRows,
    GroupCounts,
    Values,
    check_columns,
    read_cells,
    read_counts,
    rows_of_cells,
)
from fferm.data.groups import GroupMode
from fferm.data.rows import FitInput, Rows, check_aligned
from fferm.data.validate import (
    TrainingData,
    check_classes,
    check_params,
    validate_batch,
)
from fferm.errors import (
    ConvergenceWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingGroupWarning,
    MissingSensitiveError,
    warn_user,
)
from fferm.estimators.base import Choice
from fferm.notions import Labels
from fferm.penalty.dual import NO_GROUPS, GroupWeights, group_ends, group_weights
from fferm.penalty.objective import Objective, Problem
from fferm.solvers import Result
from fferm.solvers.partial import PartialRun, PartialTrainer

if TYPE_CHECKING:
    from fferm.estimators.linear import FairLogisticRegression

# Adagrad's step by default. Batches may be sorted: longer steps would follow each.
DEFAULT_RATE = 0.4
# A group of which a batch should hold so many rows is missing by chance in one of
# e^20 = 5e8 batches.
ROWS_TO_MISS = 20


@dataclass(frozen=True)
class KnownGroups:
    """What is known about the groups between two batches.

    Attributes
    ----------
    counts
        Sizes of the groups.
    is_passed
        Whether the user passed them; otherwise they are counted.
    names
        Names of the groups.
    is_sorted
        Whether some batch lacked a group, of which the user was warned.
    """

    counts: GroupCounts
    is_passed: bool
    names: tuple[str, ...]
    is_sorted: bool = False


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
    known: KnownGroups | None
    n_rows: int
    weight: float
    n_batches: int


def fit_batch(
    model: "FairLogisticRegression", batch: FitInput, classes: Table, groups: Table
) -> "FairLogisticRegression":
    """Return the model after one more batch."""
    check_params(vars(model), model.constraints)
    check_aligned(**batch.tables)
    before = model._partial
    objective = _objective(model, before)
    known_classes = getattr(model, "classes_", None)
    if known_classes is None and classes is None and isinstance(groups, GroupCounts):
        classes = groups.labels if len(groups.labels) > 1 else None
    classes = check_classes(known_classes, classes)
    data = validate_batch(model, batch.X, batch.y, batch.sample_weight, classes)
    kept = data.kept
    n_rows, weight, n_batches = int(kept.sum()), float(data.weight.sum()), 1
    if before is not None:
        n_rows, weight = n_rows + before.n_rows, weight + before.weight
        n_batches += before.n_batches
    if not 0 < weight < np.inf:
        raise InvalidInputError(
            f"The sample weights so far must sum to a positive number; got {weight:g}."
        )
    known, weights = None, NO_GROUPS
    stratum = np.full(data.y.size, -1, dtype=np.int64)
    group = stratum[:, None]
    if objective.fairness_weight > 0:
        passed = batch.sensitive_features, groups
        known, weights, stratum, group = _place_rows(
            data, objective, passed, model.groups, before.known if before else None
        )
    problem = Problem(
        objective,
        data.X if kept.all() else data.X[kept],
        data.y[kept],
        data.weight[kept] / (weight / n_rows) / max(1, kept.sum()),
        classes.size,
    )
    options = {} if model.learning_rate else {"learning_rate": DEFAULT_RATE}
    settings = clone(model).set_params(**options)._solver_options("sgda")
    solver: Any = solvers.make("sgda", settings)
    trainer = PartialTrainer(solver, problem, weights, stratum[kept], group[kept])
    start = _start(model, known, weights)
    run = trainer.train(before.run if before else None, *start)
    model._partial = PartialState(objective, run, known, n_rows, weight, n_batches)
    theta = trainer.parameters(run)
    model.classes_ = classes
    model.coef_, model.intercept_ = theta[:, :-1].copy(), theta[:, -1].copy()
    model._learn(None, Choice(objective.fairness_weight))
    model.groups_ = np.array(known.names if known else (), dtype=object)
    model.dual_ = trainer.dual(run)
    model.n_iter_, model.history_ = n_batches, ()
    model.result_ = Result.schedule_completed
    return model


def _objective(
    model: "FairLogisticRegression", before: PartialState | None
) -> Objective:
    if model.solver not in ("auto", "sgda"):
        raise InvalidParameterError(
            f"partial_fit needs solver='sgda' or 'auto'; got {model.solver!r}."
        )
    if model._bound():
        raise InvalidParameterError(
            "partial_fit holds out no rows and searches for no weight. Set "
            "max_violation=None and max_divergence=None."
        )
    if model.group_weights != "share":
        raise InvalidParameterError(
            "partial_fit counts groups as they come. Set group_weights='share'."
        )
    objective = model._objective()
    if objective.fairness_weight > 0:
        objective.check_linear_dual("sgda")
        if objective.notion.control_feature() is not None:
            raise InvalidParameterError(
                f"{objective.notion!r} has a control feature, which partial_fit does "
                "not count. Use fit, or a notion that conditions on the label."
            )
    old, new = (
        {
            "divergence": o.divergence,
            "notion": o.notion,
            "fairness_weight > 0": o.fairness_weight > 0,
        }
        for o in (before.objective if before else objective, objective)
    )
    for name, value in old.items():
        if new[name] != value:
            raise InvalidParameterError(
                f"{name} must stay {value!r}; got {new[name]!r}. Fit a clone."
            )
    return objective


def _start(
    model: "FairLogisticRegression", known: KnownGroups | None, weights: GroupWeights
) -> tuple[FloatArray | None, FloatArray | None]:
    if not hasattr(model, "coef_"):
        return None, None
    theta: FloatArray = model._parameters()
    if known is None or tuple(model.groups_) != known.names:
        return theta, None
    shape = len(weights.share), model.classes_.size, len(known.names)
    return theta, model.dual_ if model.dual_.shape == shape else None


def _place_rows(
    data: TrainingData,
    objective: Objective,
    passed: tuple[Table, Table],
    how: GroupMode,
    before: KnownGroups | None,
) -> tuple[KnownGroups, GroupWeights, IntArray, IntArray]:
    """Return the groups of all batches, their weights, and where these rows are.

    That is (n_samples,) strata and (n_samples, n_attributes) groups, as the kernel
    takes them. ``passed`` are ``sensitive_features`` and ``groups``.
    """
    sensitive_features, groups = passed
    if sensitive_features is None:
        raise MissingSensitiveError(
            f"fairness_weight={objective.fairness_weight!r} needs sensitive_features. "
            "Pass partial_fit(X, y, sensitive_features=...), or set fairness_weight=0."
        )
    notion, classes = objective.notion, tuple(data.classes.tolist())
    cells = read_cells(sensitive_features, data.y.size)
    check_columns(before.counts.columns if before else None, cells.columns)
    is_passed = groups is not None or (before is not None and before.is_passed)
    counts = before.counts.copy() if before else GroupCounts()
    if groups is not None:
        counts = read_counts(groups, cells.columns, notion.needs_labels)
    if not is_passed:
        counts.add(cells, classes, data.y, data.weight)
    if notion.needs_labels and counts.has_labels:
        _check_labels(counts, data)
    rows, values = rows_of_cells(counts, notion, classes, how)
    _check_groups(rows, before, is_passed)
    stratum = notion.strata(Labels(data.y.size, data.y, classes)).code
    group = _find_groups(rows, values, cells)
    weights = group_weights(rows, notion.weighting)
    _check_shares(weights, stratum[data.kept], group[data.kept], rows)
    is_sorted = (before is not None and before.is_sorted) or _warn_of_sorted_batches(
        rows, group[data.kept]
    )
    known = KnownGroups(counts, is_passed, rows.group_names, is_sorted)
    return known, weights, stratum, group


def _find_groups(rows: Rows, values: Sequence[Values], cells: CellRows) -> IntArray:
    """Return (n_samples, n_attributes) groups, numbered through all attributes."""
    columns = []
    is_whole = len(rows.attributes) == 1
    for a, begin in enumerate(group_ends(rows)[:-1]):
        attribute = rows.attributes[a]
        known = {
            of_cell if is_whole else (of_cell[a],): code + begin
            for of_cell, code in zip(values, attribute.code, strict=True)
        }
        parts = [of_cell if is_whole else (of_cell[a],) for of_cell in cells.values]
        new = [part for part in parts if None not in part and part not in known]
        _refuse_new([" × ".join(map(str, part)) for part in new])
        codes = [-1 if None in part else known[part] for part in parts]
        column = np.array(codes, dtype=np.int64)[cells.code]
        n_missing = int(np.sum(column < 0))
        if n_missing:
            warn_user(
                f"{n_missing} of {column.size} rows have no value of {attribute.name}. "
                "They are left out of the penalty.",
                MissingGroupWarning,
            )
        columns.append(column)
    return np.stack(columns, axis=1)


def _check_groups(rows: Rows, before: KnownGroups | None, is_passed: bool) -> None:
    names = rows.group_names
    if before is not None and before.names != names:
        _refuse_new([name for name in names if name not in before.names])
        gone = ", ".join(name for name in before.names if name not in names)
        raise InvalidInputError(
            f"groups lacks {gone}, known from earlier batches. Give its share."
        )
    for attribute in rows.attributes:
        if len(attribute.groups) < 2:
            where = "groups has" if is_passed else "The first batch has"
            raise InvalidInputError(
                f"{where} only one group in {attribute.name}, so nothing is compared. "
                "Name all groups: groups={group: share}, or a filled GroupCounts."
            )


def _warn_of_sorted_batches(rows: Rows, group: IntArray) -> bool:
    """Warn, and say so, of a batch that lacks a group which it should hold."""
    share = np.concatenate(
        [
            np.bincount(a.code[a.code >= 0], rows.weight[a.code >= 0], len(a.groups))
            for a in rows.attributes
        ]
    )
    expected = len(group) * share / rows.weight.sum()
    lost = (expected >= ROWS_TO_MISS) & ~np.isin(np.arange(share.size), group)
    if not lost.any():
        return False
    k = int(np.argmax(expected * lost))
    warn_user(
        f"This batch of {len(group)} rows has none of the group {rows.group_names[k]}, "
        f"where about {expected[k]:.0f} are expected. Sorted by group, the model may "
        "end 10 % or more above the optimum: shuffle the rows, or make several passes.",
        ConvergenceWarning,
    )
    return True


def _refuse_new(names: Sequence[str]) -> None:
    if names:
        raise InvalidInputError(
            f"Unknown groups: {', '.join(dict.fromkeys(names))}. Name all groups in "
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
                "have. Give every group its share, by label if the notion needs labels."
            )
