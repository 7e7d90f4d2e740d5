"""Linear models of rows in partitions of Dask, behind ``fit``.

A first pass finds labels, groups and their weights; a second encodes every partition
where it is. The penalty then has one row for all rows that are alike in label and
groups, and partitions stand in the place of X.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.group_counts import GroupCounts, rows_of_cells, warn_of_unknown
from fferm.data.partitions import PartitionedRows, Partitions, column_names
from fferm.data.rows import FitInput
from fferm.data.validate import (
    TrainingData,
    check_numeric,
    encode_classes,
    find_codes,
    one_column,
    validate_rows,
)
from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    MissingSensitiveError,
)
from fferm.estimators.base import Encoded
from fferm.notions import Notion
from fferm.penalty.dual import place_rows
from fferm.penalty.objective import Objective, Penalty, Problem
from fferm.solvers._kernels import RowArrays
from fferm.solvers.full_batch import as_rows

if TYPE_CHECKING:
    from fferm.estimators.linear import FairLogisticRegression

# Parameters that need rows in memory.
UNSUPPORTED = (
    *("max_violation", "max_divergence", "early_stopping"),
    *("continuous", "min_group_size", "categorical"),
)


class Scan(NamedTuple):
    """What the first pass finds in a partition.

    Attributes
    ----------
    names
        Names of the features; positions in an array.
    n_rows, weight
        How many rows, and their weight.
    labels
        The labels there are.
    counts
        The weight of each label and groups; empty without sensitive features.
    """

    names: tuple[Any, ...]
    n_rows: int
    weight: float
    labels: NDArray[Any]
    counts: GroupCounts


class Places(NamedTuple):
    """Where the rows of each cell belong.

    Attributes
    ----------
    classes, weight
        The labels and the weight of all rows.
    counts
        The cells; empty without a penalty.
    stratum, group, factor
        (n_cells,) strata, (n_cells, n_attributes) groups, and what a unit of weight
        adds to the tables.
    """

    classes: NDArray[Any]
    weight: float
    counts: GroupCounts
    stratum: IntArray
    group: IntArray
    factor: FloatArray


def encode_partitions(model: "FairLogisticRegression", passed: FitInput) -> Encoded:
    """Return the problem of rows in partitions."""
    refuse_unsupported(model, passed)
    objective = model._objective()
    if objective.fairness_weight > 0 and passed.sensitive_features is None:
        raise MissingSensitiveError(
            f"fairness_weight={objective.fairness_weight!r} needs sensitive_features. "
            "Pass them to fit, or set fairness_weight=0."
        )
    parts, named = passed.X, passed.sensitive_features
    if not isinstance(parts, Partitions):  # of an earlier call
        parts = Partitions.of(**passed.tables)
        if named is not None:
            named = dict.fromkeys(column_names(named), ())
    passed = dataclasses.replace(passed, X=parts, sensitive_features=named)
    scanned = parts.map(scan)
    scans = [part for part in scanned if part is not None]
    if not scans:
        raise InvalidInputError("All partitions are empty. Training needs rows.")
    parts = parts.select([part is not None for part in scanned])
    classes = np.unique(np.concatenate([part.labels for part in scans]))
    if classes.size < 2:
        encode_classes(classes)  # which refuses them
    counts = GroupCounts()
    for part in scans:
        counts.merge(part.counts)
    penalty = None
    if objective.fairness_weight > 0:
        penalty = make_penalty(model, objective, counts, tuple(classes.tolist()))
    weight = sum(part.weight for part in scans)
    encoded = parts.convert(encode, make_places(classes, weight, counts, penalty))
    n_features = learn_features(model, scans[0].names)
    X = PartitionedRows(encoded, tuple(part.n_rows for part in scans), n_features)
    nothing = np.zeros(0)
    data = TrainingData(X, nothing, classes, nothing, nothing > 0)
    problem = Problem(objective, X, nothing, nothing, classes.size, penalty)
    rows = None if penalty is None else penalty.rows
    return Encoded(data, problem, rows, passed, data.kept)


def make_penalty(
    model: "FairLogisticRegression",
    objective: Objective,
    counts: GroupCounts,
    classes: tuple[object, ...],
) -> Penalty:
    """Return the penalty on one row for each cell of the counts."""
    rows, _ = rows_of_cells(counts, objective.notion, classes, model.groups)
    warn_of_unknown(rows)
    if model.group_weights == "equal" and objective.uncertainty is None:
        rows = rows.balanced(objective.notion.compares_predictions)
    penalty = Penalty(objective, rows, classes)
    penalty.check_comparable()
    return penalty


def make_places(
    classes: NDArray[Any], weight: float, counts: GroupCounts, penalty: Penalty | None
) -> Places:
    """Return what a partition needs to know of all others."""
    if penalty is None:
        nothing = np.zeros(0, dtype=np.int64)
        return Places(classes, weight, GroupCounts(), nothing, nothing, np.zeros(0))
    stratum, group, share = place_rows(penalty.rows)
    mass = np.array([*counts.cells.values()])
    factor = np.divide(share, mass, out=np.zeros_like(mass), where=mass > 0)
    return Places(classes, weight, counts, stratum, group, factor)


def refuse_unsupported(model: "FairLogisticRegression", passed: FitInput) -> None:
    """Raise for parameters that need rows in memory."""
    default = {each.name: each.default for each in dataclasses.fields(model)}
    asked = [n for n in UNSUPPORTED if getattr(model, n) not in (default[n], [], ())]
    asked += [] if model.divergence != "auto" else ["divergence='auto'"]
    asked += [] if model.solver in ("auto", "lbfgs") else [f"solver={model.solver!r}"]
    asked += [] if passed.penalty_data is None else ["penalty_data"]
    if Notion.resolve(model.notion).control_feature() is not None:
        asked.append(f"notion={model.notion!r}")
    if asked:
        raise InvalidParameterError(
            f"Training on partitions of Dask does not support {', '.join(asked)}. "
            "Leave it out, or fit rows in memory: X.compute()."
        )


def learn_features(model: "FairLogisticRegression", names: tuple[Any, ...]) -> int:
    """Tell a model its features; return their number."""
    for name in ("encoder_", "feature_names_in_"):
        model.__dict__.pop(name, None)
    model.n_features_in_ = len(names)
    if all(isinstance(name, str) for name in names):
        model.feature_names_in_ = np.array(names, dtype=object)
    return len(names)


def read(
    X: Table, y: Table, sample_weight: Table
) -> tuple[Table, NDArray[Any], FloatArray]:
    """Return checked features, labels and weights of a partition."""
    advice = "Encode text first, for example by dask.dataframe.get_dummies."
    check_numeric(X, "fit on partitions", advice)
    return validate_rows(BaseEstimator(), X, one_column(y), sample_weight, reset=True)


def scan(part: dict[str, Table]) -> Scan | None:
    """Return what a partition holds, None if it has no rows."""
    if not part["X"].shape[0]:
        return None
    X, y, weight = read(part["X"], part["y"], part["sample_weight"])
    labels, _ = encode_classes(y[weight > 0], fewest=1)
    counts = GroupCounts()
    if part["sensitive_features"] is not None:
        counts.update(
            sensitive_features=part["sensitive_features"], y=y, sample_weight=weight
        )
    names = tuple(getattr(part["X"], "columns", range(X.shape[1])))
    return Scan(names, y.size, float(weight.sum()), labels, counts)


def encode(part: dict[str, Table], places: Places) -> RowArrays:
    """Return the rows of a partition as kernels take them."""
    X, y, weight = read(part["X"], part["y"], part["sample_weight"])
    labels, code = encode_classes(y, fewest=1)
    classes = places.classes.tolist()
    code = find_codes(code, labels.tolist(), classes, "y", " The data changed.")
    share = weight / places.weight
    if not places.factor.size:
        outside, nobody = np.full(y.size, -1), np.empty((0, 1), dtype=np.int64)
        return as_rows(X, code, outside, nobody, share, np.zeros(y.size))
    cell = places.counts.find(sensitive_features=part["sensitive_features"], y=y)
    stratum, group = places.stratum[cell], places.group[cell]
    return as_rows(X, code, stratum, group, share, weight * places.factor[cell])
