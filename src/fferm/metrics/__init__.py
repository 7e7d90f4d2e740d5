"""Measures of fairness, for predictions from anywhere.

Predictions, labels and groups make one table of weights per sensitive attribute.
Most notions compare the rates of predictions given a stratum of the label;
sufficiency reads the table the other way and compares the rates of labels given a
prediction. The violation is the largest gap between two groups, over all strata and
outcomes.

Undefined is never fair: a group without rows in a stratum is left out by name, and
where fewer than two remain everywhere the violation is NaN.

The functions here are for users. `tabulator` makes the tables and reads gaps off them,
`intervals` says how sure a gap is and tests bounds on it, `certificates` what a
divergence promises about it, and `dependence` measures predictions that are numbers.
Nothing here knows a model or a solver.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fferm._lazy import lazy
from fferm._typing import Table
from fferm.data.groups import GroupMode
from fferm.data.rows import check_aligned
from fferm.data.validate import (
    encode_decisions,
    encode_labels,
    encode_prob,
    encode_weight,
    one_column,
    read_array,
    reason_of,
)
from fferm.errors import InvalidInputError
from fferm.metrics.intervals import Floor, floor_of_tables, rows_needed
from fferm.metrics.tabulator import Absence, Gap, Tabulator, Violations, make_tabulator
from fferm.notions import Labels, Notion
from fferm.notions import get as get_notion

__all__ = [
    "Absence",
    "Floor",
    "Gap",
    "GroupMetrics",
    "Violations",
    "by_group",
    "group_table",
    "rows_needed",
    "soft_violation",
    "violation",
    "violation_floor",
    "violations",
]

__getattr__, __dir__ = lazy(__name__)


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
    tabulator, decision = _encode(y_true, y_pred, notion, *rows)
    return tabulator.violations(decision, warn=True).worst


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
    tabulator, predicted = _encode(y_true, prob, notion, *rows, classes)
    return tabulator.violations(predicted, warn=True).worst


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
    >>> result = violations([1, 1, 0, 0] * 2, [1, 0, 0, 1, 1, 1, 0, 0],
    ...                    sensitive_features=["a"] * 4 + ["b"] * 4,
    ...                    notion="equalized_odds")
    >>> result.by_stratum
    {('group', 'y=0'): 0.5, ('group', 'y=1'): 0.5}
    >>> result.mean
    0.5
    """
    rows = sensitive_features, groups, sample_weight
    tabulator, decision = _encode(y_true, y_pred, notion, *rows)
    return tabulator.violations(decision, warn=True)


def violation_floor(
    y_true: Table,
    y_pred: Table,
    *,
    sensitive_features: Table,
    notion: str | Notion = "demographic_parity",
    groups: GroupMode = "intersection",
    sample_weight: Table = None,
    confidence: float = 0.95,
) -> Floor:
    """Return the violation that a perfectly fair model measures by chance.

    It has the groups of these rows, and in each stratum the rates of all groups
    together. A violation near this floor does not indicate unfairness, and a bound
    below it cannot be shown to be kept.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, notion, groups, sample_weight
        As in `violation`.
    confidence
        The probability that a fair model stays below ``high``.

    Returns
    -------
    Floor
        ``mean``, ``median`` and ``high``, by 20,000 draws with a fixed seed.

    Examples
    --------
    >>> y, s = [1, 0] * 100, ["a"] * 150 + ["b"] * 50
    >>> floor = violation_floor(y, y, sensitive_features=s)
    >>> round(floor.mean, 2), round(floor.high, 2)
    (0.07, 0.16)
    """
    rows = sensitive_features, groups, sample_weight
    tabulator, decision = _encode(y_true, y_pred, notion, *rows)
    return floor_of_tables(tabulator.tables(decision), confidence)


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
    tabulator, decision = _encode(y_true, y_pred, "demographic_parity", *rows)
    return tabulator.group_table(decision)


@dataclass(frozen=True)
class GroupMetrics:
    """Metrics of all rows and of each group, as `by_group` returns them.

    Groups whose metric is NaN are left out of minimum, maximum, difference and ratio.

    Attributes
    ----------
    overall
        The value of each metric on all rows.
    by_group
        One row per group, one column per metric.
    """

    overall: "pd.Series[Any]"
    by_group: pd.DataFrame

    @property
    def minimum(self) -> "pd.Series[Any]":
        """The lowest value of each metric among the groups."""
        return self.by_group.min()

    @property
    def maximum(self) -> "pd.Series[Any]":
        """The highest value of each metric among the groups."""
        return self.by_group.max()

    @property
    def difference(self) -> "pd.Series[Any]":
        """The highest value less the lowest."""
        return self.maximum - self.minimum

    @property
    def ratio(self) -> "pd.Series[Any]":
        """The lowest value over the highest; NaN where both are 0."""
        return self.minimum / self.maximum


def by_group(
    metrics: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    y_true: Table,
    y_pred: Table,
    *,
    sensitive_features: Table,
    sample_weight: Table = None,
) -> GroupMetrics:
    """Return any metric of scikit-learn on all rows and on each group.

    Parameters
    ----------
    metrics
        A function ``metric(y_true, y_pred)`` that returns a number, or several by
        name. With ``sample_weight`` it is passed on by that name.
    y_true
        (n_samples,) labels or numbers.
    y_pred
        (n_samples,) predictions, or whatever the metric takes, such as scores.
    sensitive_features
        As in `violation`; several columns are taken jointly.
    sample_weight
        (n_samples,) non-negative weights.

    Returns
    -------
    GroupMetrics
        Rows without a group count in ``overall`` only, with a warning.

    Examples
    --------
    >>> from sklearn.metrics import accuracy_score
    >>> scores = by_group(accuracy_score, [1, 1, 0, 0], [1, 0, 0, 0],
    ...                   sensitive_features=["a", "a", "b", "b"])
    >>> scores.by_group["accuracy_score"].to_dict()
    {'a': 0.5, 'b': 1.0}
    >>> float(scores.minimum["accuracy_score"]), float(scores.ratio["accuracy_score"])
    (0.5, 0.5)
    """
    if not isinstance(metrics, Mapping):
        metrics = {getattr(metrics, "__name__", "metric"): metrics}
    groups: dict[str, Table] = {"sensitive_features": sensitive_features}
    groups["sample_weight"] = sample_weight
    check_aligned(are_equal=True, y_true=y_true, y_pred=y_pred, **groups)
    columns = [
        read_array(one_column(values), name)
        for name, values in (("y_true", y_true), ("y_pred", y_pred))
    ]
    n = len(columns[0])
    notion = get_notion("demographic_parity")
    tabulator = make_tabulator(Labels(n), notion, groups="intersection", **groups)
    (attribute,) = tabulator.rows.attributes
    # Metrics may depend on the scale of the weights, so they get them as they are.
    weight = None if sample_weight is None else encode_weight(sample_weight, n)
    parts = {"": np.ones(n, dtype=bool)}
    names = dict(zip(attribute.groups, range(len(attribute.groups)), strict=True))
    parts |= {name: attribute.code == code for name, code in names.items()}
    values: dict[str, list[float]] = {name: [] for name in metrics}
    for group, kept in parts.items():
        options = {} if weight is None else {"sample_weight": weight[kept]}
        for name, metric in metrics.items():
            try:
                value = metric(*(column[kept] for column in columns), **options)
                values[name].append(float(value))
            except (TypeError, ValueError) as error:
                whom = f"group {group!r}" if group else "all rows"
                raise InvalidInputError(
                    f"The metric {name!r} failed on {whom} ({reason_of(error)}). It "
                    "must take these values and return a number."
                ) from error
    frame = pd.DataFrame(values, index=pd.Index(list(parts), name="group"))
    return GroupMetrics(frame.iloc[0].rename(None), frame.iloc[1:])


def _encode(
    y_true: Table,
    predictions: Table,
    notion: str | Notion,
    sensitive_features: Table,
    groups: GroupMode,
    sample_weight: Table,
    classes: Sequence[object] | None = None,
) -> tuple[Tabulator, NDArray[Any]]:
    """Return the tabulator of some rows, and codes of decisions, or probabilities."""
    rows = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
    check_aligned(y_true=y_true, predictions=predictions, **rows)
    predicted: NDArray[Any]
    if classes is None:
        labels, predicted = encode_decisions(y_true, predictions)
    else:
        predicted = encode_prob(predictions, len(classes))
        labels = encode_labels(y_true, len(predicted), classes)
    return make_tabulator(labels, get_notion(notion), groups=groups, **rows), predicted
