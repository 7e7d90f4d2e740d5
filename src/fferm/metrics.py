"""Violations of a notion of fairness, measured on predictions.

Predictions, labels and groups make one table of weights per sensitive attribute.
Most notions compare the rates of predictions given a stratum of the label;
sufficiency reads the table the other way and compares the rates of labels given a
prediction. The violation is the largest gap between two groups, over all strata and
outcomes.

Undefined is never fair: a group without rows in a stratum is left out by name, and
where fewer than two remain everywhere the violation is NaN.
"""

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.groups import Attribute, GroupMode
from fferm.data.rows import Rows, check_aligned
from fferm.data.validate import encode_decisions, encode_labels, encode_prob, one_hot
from fferm.errors import EmptyStratumWarning
from fferm.notions import Labels, Notion
from fferm.notions import get as get_notion
from fferm.rates import RateTable, gaps_of
from fferm.setting import Predicted, Setting, distinct, make_setting


@dataclass(frozen=True)
class Gap:
    """The largest difference of one outcome's rates between two groups."""

    attribute: str
    stratum: str
    outcome: str
    gap: float
    lowest_group: str
    highest_group: str


@dataclass(frozen=True)
class Absence:
    """Groups that could not be judged in a stratum, and why."""

    attribute: str
    stratum: str
    groups: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        names = ", ".join(self.groups) or "there is no other group"
        return f"{self.attribute}, {self.stratum}: {names} ({self.reason})"


@dataclass(frozen=True)
class Violations:
    """All gaps that a notion speaks of.

    Attributes
    ----------
    gaps
        One per attribute, stratum and outcome that could be judged.
    absent
        What could not be judged.
    """

    gaps: tuple[Gap, ...]
    absent: tuple[Absence, ...]

    @property
    def worst(self) -> float:
        """The largest gap: the violation. NaN where nothing could be judged."""
        return max((gap.gap for gap in self.gaps), default=math.nan)

    @property
    def by_stratum(self) -> dict[tuple[str, str], float]:
        """The largest gap of each attribute and stratum."""
        largest: dict[tuple[str, str], float] = {}
        for gap in self.gaps:
            key = gap.attribute, gap.stratum
            largest[key] = max(gap.gap, largest.get(key, 0.0))
        return largest

    @property
    def mean(self) -> float:
        """The mean over attributes and strata of their largest gaps."""
        largest = list(self.by_stratum.values())
        return float(np.mean(largest)) if largest else math.nan


def violation(
    y_true: Table,
    y_pred: Table,
    *,
    sensitive_features: Table,
    notion: str | Notion = "demographic_parity",
    groups: GroupMode = "intersection",
    sample_weight: Table = None,
) -> float:
    """Return the largest gap between groups in the rates of decisions.

    For demographic parity ``max_j (max_k P(j | k) - min_k P(j | k))``; for equalized
    odds and its kin the same within each label, the largest counting; for sufficiency
    the gap of ``P(y | decision, group)``.

    Parameters
    ----------
    y_true
        (n_samples,) labels; None is enough for demographic parity.
    y_pred
        (n_samples,) predicted labels.
    sensitive_features
        List, array, Series, DataFrame or dict of columns; several columns are taken
        jointly.
    notion
        Name or instance.
    groups
        ``"intersection"``, or ``"marginal"``: the worst of the columns one by one.
    sample_weight
        (n_samples,) non-negative weights.

    Returns
    -------
    float
        Between 0 and 1; NaN where no two groups can be compared.

    Examples
    --------
    >>> violation([1, 1, 0, 0], [1, 0, 1, 1], sensitive_features=["a", "a", "b", "b"])
    0.5
    """
    rows = sensitive_features, groups, sample_weight
    _check_order(y_true, y_pred, rows)
    labels, decision = encode_decisions(y_true, y_pred)
    setting = make_setting(labels, get_notion(notion), *rows)
    return judge(setting, decision).worst


def soft_violation(
    y_true: Table,
    prob: Table,
    *,
    classes: Sequence[object],
    sensitive_features: Table,
    notion: str | Notion = "demographic_parity",
    groups: GroupMode = "intersection",
    sample_weight: Table = None,
) -> float:
    """Return the largest gap between groups in the mean predicted probabilities.

    This is the violation of the classifier that draws its decision from ``prob``. It
    says nothing of decisions by the largest probability; for those see `violation`.

    Parameters
    ----------
    y_true
        (n_samples,) labels; None is enough for demographic parity.
    prob
        (n_samples, n_classes) probabilities, as ``predict_proba`` gives them.
    classes
        The label of each column, as ``classes_`` gives them.
    sensitive_features, notion, groups, sample_weight
        As in `violation`.

    Examples
    --------
    >>> prob = [[0.2, 0.8], [0.6, 0.4], [0.5, 0.5], [0.7, 0.3]]
    >>> s = ["a", "a", "b", "b"]
    >>> round(soft_violation(None, prob, classes=[0, 1], sensitive_features=s), 12)
    0.2
    """
    rows = sensitive_features, groups, sample_weight
    _check_order(y_true, prob, rows)
    array = encode_prob(prob, len(classes))
    labels = encode_labels(y_true, len(array), classes)
    return judge(make_setting(labels, get_notion(notion), *rows), array).worst


def violations(
    y_true: Table,
    y_pred: Table,
    *,
    sensitive_features: Table,
    notion: str | Notion = "demographic_parity",
    groups: GroupMode = "intersection",
    sample_weight: Table = None,
) -> Violations:
    """Return the gap of every stratum and class, and what could not be judged.

    The parameters are those of `violation`.

    Examples
    --------
    >>> found = violations([1, 1, 0, 0] * 2, [1, 0, 0, 1, 1, 1, 0, 0],
    ...                    sensitive_features=["a"] * 4 + ["b"] * 4,
    ...                    notion="equalized_odds")
    >>> found.by_stratum
    {('group', 'y=0'): 0.5, ('group', 'y=1'): 0.5}
    >>> found.mean
    0.5
    """
    rows = sensitive_features, groups, sample_weight
    _check_order(y_true, y_pred, rows)
    labels, decision = encode_decisions(y_true, y_pred)
    setting = make_setting(labels, get_notion(notion), *rows)
    return judge(setting, decision)


def group_table(
    y_true: Table,
    y_pred: Table,
    *,
    sensitive_features: Table,
    groups: GroupMode = "intersection",
    sample_weight: Table = None,
) -> pd.DataFrame:
    """Return counts and rates of each group, one row per group.

    The columns are ``count`` (rows), ``share`` (of the weight of all rows with a
    group), ``size`` (the effective number of rows under weights), for each class
    ``base_rate_*`` (of labels) and ``selection_rate_*`` (of decisions), ``accuracy``,
    and for two classes, of which the larger is positive, ``true_positive_rate``,
    ``false_positive_rate`` and ``precision``. An undefined rate is NaN, never 0. The
    parameters are those of `violation`.

    Examples
    --------
    >>> table = group_table([1, 1, 0, 0], [1, 0, 1, 1],
    ...                     sensitive_features=["a", "a", "b", "b"])
    >>> table["selection_rate_1"].to_dict()
    {'a': 0.5, 'b': 1.0}
    """
    rows = sensitive_features, groups, sample_weight
    _check_order(y_true, y_pred, rows)
    labels, decision = encode_decisions(y_true, y_pred)
    notion = get_notion("demographic_parity")
    return tabulate_groups(make_setting(labels, notion, *rows), decision)


def _check_order(
    y_true: Table, predicted: Table, rows: tuple[Table, GroupMode, Table]
) -> None:
    groups, _, weight = rows
    check_aligned(
        y_true=y_true,
        predictions=predicted,
        sensitive_features=groups,
        sample_weight=weight,
    )


def judge(setting: Setting, predicted: Predicted) -> Violations:
    """Return the gaps of decisions or probabilities; warn of what is absent."""
    found = measure(setting, predicted)
    if found.absent:
        warnings.warn(
            f"Not judged under {setting.notion.name}: "
            f"{'; '.join(map(str, found.absent))}. The violation is that of the rest.",
            EmptyStratumWarning,
            stacklevel=3,
        )
    return found


def measure(setting: Setting, predicted: Predicted) -> Violations:
    """Return the gaps of decisions or probabilities, as in `Setting.tables`."""
    return measure_tables(setting.tables(predicted))


def measure_tables(tables: tuple[RateTable, ...]) -> Violations:
    """Return the gaps of tables, one per attribute."""
    gaps = (gap for table in tables for gap in _gaps(table))
    absent = (absence for table in tables for absence in _absences(table))
    return Violations(tuple(gaps), tuple(absent))


def _gaps(table: RateTable) -> Iterator[Gap]:
    # A group that is absent has the rate NaN, and is neither lowest nor highest.
    is_absent = np.isnan(table.rate)
    lowest = np.where(is_absent, np.inf, table.rate).argmin(axis=2)
    highest = np.where(is_absent, -np.inf, table.rate).argmax(axis=2)
    gap = gaps_of(table.rate)
    for r in map(int, np.flatnonzero(table.is_judged)):
        for j, outcome in enumerate(table.outcomes):
            low, high = int(lowest[r, j]), int(highest[r, j])
            yield Gap(
                table.attribute,
                table.strata[r],
                outcome,
                float(gap[r, j]),
                table.groups[low],
                table.groups[high],
            )


def _absences(table: RateTable) -> list[Absence]:
    found = []
    for stratum, weights in zip(table.strata, table.mass.sum(axis=1), strict=True):
        absent = tuple(table.groups[k] for k in np.flatnonzero(weights <= 0))
        if len(table.groups) - len(absent) < 2:
            reason = "fewer than two groups have rows; the stratum is left out"
            found.append(Absence(table.attribute, stratum, absent, reason))
        elif absent:
            reason = "no rows with a positive weight"
            found.append(Absence(table.attribute, stratum, absent, reason))
    return found


def tabulate_groups(
    setting: Setting, decision: IntArray, prob: FloatArray | None = None
) -> pd.DataFrame:
    """Return the table of `group_table`, with ``soft_rate_*`` of probabilities."""
    rates = _group_rates(setting.labels, decision, prob)
    frames = [
        _tabulate(attribute, setting.rows.weight, rates)
        for attribute in setting.rows.attributes
    ]
    table = pd.concat(frames)
    table.index = pd.Index(_group_names(setting.rows), name="group")
    return table


def _group_names(rows: Rows) -> list[str]:
    names = rows.group_names
    repeats = Counter(names)
    quoted = (
        f"{attribute.name!r}={group!r}"
        for attribute in rows.attributes
        for group in attribute.groups
    )
    # "a=b=c" may be b=c of a, or c of a=b.
    return distinct(
        [
            clear if repeats[name] > 1 else name
            for name, clear in zip(names, quoted, strict=True)
        ]
    )


def _tabulate(
    attribute: Attribute,
    weight: FloatArray,
    rates: dict[str, tuple[FloatArray, FloatArray]],
) -> pd.DataFrame:
    known = attribute.code >= 0
    code, weight = attribute.code[known], weight[known]

    def add(values: FloatArray) -> FloatArray:
        sums = np.bincount(code, weights=values, minlength=len(attribute.groups))
        return sums.astype(np.float64)

    total, square = add(weight), add(weight**2)
    columns = {
        "count": np.bincount(code, minlength=len(attribute.groups)),
        "share": total / total.sum(),
        "size": total**2 / np.where(square > 0, square, 1.0),
    }
    with np.errstate(invalid="ignore"):  # 0 / 0 is a rate that is not defined
        for name, (values, given) in rates.items():
            part = weight * given[known]
            columns[name] = add(part * values[known]) / add(part)
    return pd.DataFrame(columns)


def _group_rates(
    labels: Labels, decision: IntArray, prob: FloatArray | None
) -> dict[str, tuple[FloatArray, FloatArray]]:
    # Of each rate, what is averaged and over which rows (1) or not (0).
    everyone = np.ones(decision.size)
    chosen = one_hot(decision, len(labels.classes))
    y = np.full_like(chosen, np.nan)
    if labels.y is not None:
        y = one_hot(labels.y, len(labels.classes))
    parts = {"base_rate": y, "selection_rate": chosen, "soft_rate": prob}
    rates = {
        f"{name}_{label}": (values[:, j], everyone)
        for name, values in parts.items()
        if values is not None
        for j, label in enumerate(labels.classes)
    }
    rates["accuracy"] = np.sum(y * chosen, axis=1), everyone
    if len(labels.classes) == 2 and labels.y is not None:
        rates["true_positive_rate"] = chosen[:, 1], y[:, 1]
        rates["false_positive_rate"] = chosen[:, 1], y[:, 0]
        rates["precision"] = y[:, 1], chosen[:, 1]
    return rates
