"""The audit of a regressor: how its predictions depend on each sensitive column."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fferm._types import FloatArray, Table
from fferm.columns import Attribute, encode_column, split_columns
from fferm.data import check_aligned
from fferm.dependence import (
    GROUP_MEASURES,
    MEASURES,
    NUMBER_MEASURES,
    independence_test,
    information_bias,
)
from fferm.errors import InvalidInputError, InvalidParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A column of numbers with more different values than this is compared as numbers.
MOST_GROUPS = 20


@dataclass(frozen=True)
class RegressionAudit:
    """How predictions depend on sensitive columns.

    Attributes
    ----------
    frame
        One row per column and measure: ``value``, ``chance`` (its mean where the column
        is shuffled, which for measures that cannot fall below 0 is not 0) and
        ``p_value`` of a permutation test of independence.
    group_frame
        One row per group: ``rows``, ``mean_prediction``, ``mean_target``, ``mse``.
    information_bias
        By column of numbers, how much of ``f_information`` counts alone make.
    prediction
        What was judged.
    columns
        The sensitive columns: groups, or numbers.
    """

    frame: pd.DataFrame
    group_frame: pd.DataFrame
    information_bias: dict[str, float]
    prediction: FloatArray
    columns: dict[str, "Attribute | FloatArray"]

    def value(self, measure: str, column: str | None = None) -> float:
        """Return a measure: the largest of all columns, or that of one."""
        rows = self.frame[self.frame["measure"] == measure]
        if column is not None:
            rows = rows[rows["column"] == column]
        if rows.empty:
            raise InvalidParameterError(
                f"No {measure!r} was measured. Measured: "
                f"{', '.join(sorted(set(self.frame['measure'])))}, of "
                f"{', '.join(self.columns)}."
            )
        return float(rows["value"].max())

    def passes(self, bound: float, measure: str = "kolmogorov_smirnov") -> bool:
        """Return whether a measure keeps a bound for every column that has it."""
        return self.value(measure) <= bound

    def plot(self, column: str, ax: "Axes | None" = None) -> "Axes":
        """Draw the densities of groups, or predictions against numbers.

        Parameters
        ----------
        column
            A sensitive column.
        ax
            Where to draw; a new figure by default.
        """
        from fferm.report.numbers import plot_densities, plot_numbers

        if column not in self.columns:
            raise InvalidParameterError(
                f"{column!r} is no sensitive column. Columns: "
                f"{', '.join(self.columns)}."
            )
        values = self.columns[column]
        if isinstance(values, Attribute):
            return plot_densities(self.prediction, values, ax)
        return plot_numbers(self.prediction, values, column, ax)


def audit_regression(
    estimator: Any,
    X: Table,
    y: Table,
    *,
    sensitive_features: Table,
    n_permutations: int = 99,
    random_state: int = 0,
) -> RegressionAudit:
    """Return how the predictions of a regressor depend on each sensitive column.

    Parameters
    ----------
    estimator
        Anything with ``predict``, or None where X holds the predictions themselves.
    X, y
        Rows to judge by, and the truth.
    sensitive_features
        As in `FairRegressor.fit`. Numeric columns of more than 20 different values are
        compared as numbers, others by groups. Missing values are refused.
    n_permutations, random_state
        Of the test of independence.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age = rng.normal(size=300)
    >>> found = audit_regression(None, age**2, age**2, sensitive_features={"age": age})
    >>> found.value("correlation") < 0.2 < found.value("distance_correlation")
    True
    """
    check_aligned(X=X, y=y, sensitive_features=sensitive_features)
    predicted = X if estimator is None else estimator.predict(X)
    prediction = _finite(predicted, "The prediction")
    target = _finite(y, "y")
    if target.shape != prediction.shape:
        raise InvalidInputError(
            f"y has shape {target.shape} and the prediction {prediction.shape}. "
            "Expected one number a row."
        )
    columns = {
        name: _read(name, values, prediction.size)
        for name, values in split_columns(sensitive_features)
    }
    records, by_group, bias = [], [], {}
    for name, values in columns.items():
        is_groups = isinstance(values, Attribute)
        numbers = values.code if isinstance(values, Attribute) else values
        for measure in GROUP_MEASURES if is_groups else NUMBER_MEASURES:
            found = independence_test(
                MEASURES[measure],
                prediction,
                numbers,
                n_permutations=n_permutations,
                random_state=random_state,
            )
            records.append({"column": name, "measure": measure, **vars(found)})
        if isinstance(values, Attribute):
            by_group += _by_group(name, values, prediction, target)
        else:
            bias[name] = information_bias(prediction, values)
    frames = pd.DataFrame(records), pd.DataFrame(by_group)
    return RegressionAudit(*frames, bias, prediction, columns)


def _by_group(
    name: str, attribute: Attribute, prediction: FloatArray, target: FloatArray
) -> list[dict[str, Any]]:
    rows = []
    for k, group in enumerate(attribute.groups):
        inside = attribute.code == k
        rows.append(
            {
                "column": name,
                "group": group,
                "rows": int(inside.sum()),
                "mean_prediction": float(prediction[inside].mean()),
                "mean_target": float(target[inside].mean()),
                "mse": float(np.mean((prediction[inside] - target[inside]) ** 2)),
            }
        )
    return rows


def _read(name: str, values: Table, n_samples: int) -> "Attribute | FloatArray":
    series = pd.Series(np.asarray(values)).infer_objects()
    is_number = pd.api.types.is_numeric_dtype(series.dtype)
    if is_number and series.nunique() > MOST_GROUPS:
        if len(series) != n_samples:
            raise InvalidInputError(
                f"{name} has {len(series)} values and there are {n_samples} rows. "
                "Expected one value per row."
            )
        return _finite(series, name)
    attribute = encode_column(values, name, n_samples)
    if np.any(attribute.code < 0):
        raise InvalidInputError(
            f"{name} has missing values. Leave those rows out of the audit, and say "
            "how many they are."
        )
    return attribute


def _finite(values: Table, name: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.all(np.isfinite(array)):
        raise InvalidInputError(
            f"{name} has shape {array.shape}, or holds missing numbers. Expected one "
            "finite number a row."
        )
    return array
