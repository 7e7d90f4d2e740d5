"""The audit of a regressor: how its predictions depend on each sensitive column."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
from scipy.stats import norm
from scipy.stats import t as student

from fferm._types import FloatArray, IntArray, Table
from fferm.auditing.number_result import (
    AskedOfNumbers,
    ColumnAudit,
    Densities,
    Fan,
    Measured,
    RegressionAudit,
)
from fferm.auditing.question import trained_edges
from fferm.bands import Cutting, band_names, find_edges, place, read_band_numbers
from fferm.columns import Attribute, GroupMode, encode_column, partition, split_columns
from fferm.data import check_aligned
from fferm.dependence import (
    GROUP_MEASURES,
    NUMBER_MEASURES,
    get_measure,
    independence_test,
    information_bias,
)
from fferm.distributions import OrderedPredictions
from fferm.errors import (
    DataFairnessWarning,
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
)
from fferm.intervals import check_draws
from fferm.labels import one_column
from fferm.notions import Notion
from fferm.soft_bins import quantile_edges

# A column of numbers with more different values than this is compared as numbers.
MOST_GROUPS = 20
# Rows that a measure is taken on at least.
FEWEST_ROWS = 4
# Places of a density, and cells that rows are counted in for it.
N_PLACES = 80
N_FINE = 400
# Bins of a fan, and the share below its lower and upper end.
N_BINS = 20
FAN = (0.1, 0.9)
DEFAULT_METRIC = "kolmogorov_smirnov"


def audit_regression(  # noqa: PLR0913 - one call states all that an audit depends on
    estimator: Any,
    X: Table,
    y: Table,
    *,
    sensitive_features: Table,
    metric: str | None = None,
    groups: GroupMode | None = None,
    continuous: Sequence[str] | str = "auto",
    confidence: float = 0.95,
    n_permutations: int = 99,
    n_bootstrap: int = 200,
    random_state: int = 0,
) -> RegressionAudit:
    """Return how the predictions of a regressor depend on each sensitive column.

    All rows are compared. Given a control feature, audit the rows of each of its values
    alone.

    Parameters
    ----------
    estimator
        Anything with ``predict``, or None where X holds the predictions themselves.
    X, y
        Rows to judge by, and the truth.
    sensitive_features
        As in `FairRegressor.fit`. Rows without a value are left out of that column and
        counted.
    metric
        The measure of `fferm.dependence` that is called the violation; by default the
        estimator's ``violation_metric``, else ``"kolmogorov_smirnov"``.
    groups
        ``"intersection"``: several columns are compared jointly too. ``"marginal"``:
        one by one. By default as the estimator was trained, else intersections.
    continuous
        Names of the columns that are numbers; ``"auto"``: those of more than 20
        different numbers, whole ones included. Columns that the estimator was fitted
        with as numbers are compared in the bands of training; others are cut here.
    confidence, n_bootstrap
        Level and draws of the intervals of measures of groups; 0 draws for none.
    n_permutations
        Of the test of independence; 0 for none.
    random_state
        Seed of both.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age = rng.normal(size=300)
    >>> found = audit_regression(None, age**2, age**2, sensitive_features={"age": age})
    >>> found.value("correlation") < 0.2 < found.value("distance_correlation")
    True
    """
    check_aligned(X=X, y=y, sensitive_features=sensitive_features)
    check_draws(n_bootstrap, fewest=0)
    _warn_of_control(estimator)
    if n_permutations < 0:
        raise InvalidParameterError(
            f"n_permutations={n_permutations} came. Expected 0 or more."
        )
    prediction, target = _predictions(estimator, X), _finite(one_column(y), "y")
    if target.shape != prediction.shape:
        raise InvalidInputError(
            f"y has shape {target.shape} and the prediction {prediction.shape}. "
            "Expected one number a row."
        )
    metric = metric or str(getattr(estimator, "violation_metric", DEFAULT_METRIC))
    get_measure(metric)
    own = getattr(estimator, "groups", None)
    how = groups or cast(GroupMode, own if isinstance(own, str) else "intersection")
    auditor = _Auditor(
        prediction, target, confidence, n_permutations, n_bootstrap, random_state
    )
    cutting = Cutting(continuous, trained_edges(estimator))
    columns = _read_columns(sensitive_features, prediction.size, how, cutting)
    spread = float(np.var(target))
    error = float(np.mean((target - prediction) ** 2))
    named = continuous if isinstance(continuous, str) else tuple(continuous)
    found = RegressionAudit(
        n_rows=prediction.size,
        mse=error,
        explained=1 - error / spread if spread > 0 else np.nan,
        metric=metric,
        confidence=confidence,
        columns={name: auditor.column(column) for name, column in columns.items()},
        asked=AskedOfNumbers(how, n_permutations, n_bootstrap, random_state, named),
    )
    found.value(metric)  # refused where no column has it
    return found


@dataclass(frozen=True)
class Compared:
    """A sensitive column as it is compared: groups, and the numbers behind bands."""

    attribute: Attribute
    numbers: FloatArray | None
    is_joint: bool = False
    has_trained_bands: bool = False


@dataclass(frozen=True)
class _Auditor:
    prediction: FloatArray
    target: FloatArray
    confidence: float
    n_permutations: int
    n_bootstrap: int
    random_state: int

    def column(self, compared: Compared) -> ColumnAudit:
        attribute, numbers = compared.attribute, compared.numbers
        known = attribute.code >= 0
        u, code = self.prediction[known], attribute.code[known]
        _check_comparable(attribute, code)
        measures = self._of_groups(u, code)
        fan = bias = None
        if numbers is not None:
            measures |= self._of_numbers(u, numbers[known])
            fan = _fan(u, numbers[known])
            bias = information_bias(u, numbers[known])
        return ColumnAudit(
            groups={
                group: self._group(attribute.code == k)
                for k, group in enumerate(attribute.groups)
                if np.any(attribute.code == k)
            },
            measures=measures,
            densities=_densities(u, code, attribute.groups),
            fan=fan,
            information_bias=bias,
            n_missing=int(np.sum(~known)),
            is_joint=compared.is_joint,
            has_trained_bands=compared.has_trained_bands,
        )

    def _of_groups(self, u: FloatArray, code: IntArray) -> dict[str, Measured]:
        ordered = OrderedPredictions.of(u)
        names = list(GROUP_MEASURES)
        found = ordered.compare(code)
        limits: dict[str, tuple[float | None, float | None]]
        limits = dict.fromkeys(names, (None, None))
        if self.n_bootstrap:
            limits |= ordered.intervals(
                code,
                names,
                self.confidence,
                n_bootstrap=self.n_bootstrap,
                random_state=self.random_state,
            )
        rng = np.random.default_rng(self.random_state)
        shuffled = [
            ordered.compare(rng.permutation(code)) for _ in range(self.n_permutations)
        ]
        measured = {}
        for name in names:
            value = found.measure(name)
            chances = [other.measure(name) for other in shuffled]
            measured[name] = Measured(value, *limits[name], *_by_chance(value, chances))
        return measured

    def _of_numbers(self, u: FloatArray, values: FloatArray) -> dict[str, Measured]:
        measured = {}
        for name, measure in NUMBER_MEASURES.items():
            if self.n_permutations == 0:
                measured[name] = Measured(measure(u, values))
                continue
            found = independence_test(
                measure,
                u,
                values,
                n_permutations=self.n_permutations,
                random_state=self.random_state,
            )
            measured[name] = Measured(
                found.value, chance=found.chance, p_value=found.p_value
            )
        return measured

    def _group(self, inside: Any) -> dict[str, float]:
        u, y = self.prediction[inside], self.target[inside]
        n, mean = u.size, float(u.mean())
        half = np.nan  # of one row nothing can be said
        if n > 1:
            quantile = student.ppf((1 + self.confidence) / 2, n - 1)
            half = float(quantile * u.std(ddof=1) / np.sqrt(n))
        return {
            "rows": n,
            "mean_prediction": mean,
            "mean_low": mean - half,
            "mean_high": mean + half,
            "mean_target": float(y.mean()),
            "mse": float(np.mean((u - y) ** 2)),
        }


def _by_chance(
    value: float, chances: list[float]
) -> tuple[float, float] | tuple[None, None]:
    if not chances:
        return None, None
    reached = sum(chance >= value - 1e-12 for chance in chances)
    return float(np.mean(chances)), (1 + reached) / (1 + len(chances))


def _densities(u: FloatArray, code: IntArray, groups: tuple[str, ...]) -> Densities:
    low, high = np.quantile(u, [0.001, 0.999])
    # Of predictions that are all alike some width is left to draw.
    room = 0.1 * (high - low) or 1e-3 * max(abs(low), 1.0)
    at = np.linspace(low - room, high + room, N_PLACES)
    by_group = {
        groups[k]: tuple(_density(u[code == k], at).tolist()) for k in np.unique(code)
    }
    return Densities(tuple(at.tolist()), by_group)


def _density(u: FloatArray, at: FloatArray) -> FloatArray:
    # Normal kernels, of the width that suits a normal density, on a fine histogram.
    count, edges = np.histogram(np.clip(u, at[0], at[-1]), N_FINE, (at[0], at[-1]))
    middle = (edges[1:] + edges[:-1]) / 2
    width = max(1.06 * u.std() * u.size**-0.2, at[1] - at[0])
    return np.asarray(norm.pdf((at[:, None] - middle) / width) @ count / u.size / width)


def _fan(u: FloatArray, values: FloatArray) -> Fan:
    edges = quantile_edges(values, N_BINS, np.ones(values.size))
    bins = np.searchsorted(edges, values, "right")
    parts = [bins == b for b in np.unique(bins)]
    return Fan(
        at=tuple(float(values[part].mean()) for part in parts),
        mean=tuple(float(u[part].mean()) for part in parts),
        low=tuple(float(np.quantile(u[part], FAN[0])) for part in parts),
        high=tuple(float(np.quantile(u[part], FAN[1])) for part in parts),
    )


def _read_columns(
    sensitive_features: Table,
    n_samples: int,
    how: GroupMode,
    cutting: Cutting,
) -> dict[str, Compared]:
    parts = dict(split_columns(sensitive_features))
    cutting.check(list(parts))
    columns = {
        name: _read(name, values, n_samples, cutting, len(parts))
        for name, values in parts.items()
    }
    if not columns:
        raise InvalidInputError(
            "sensitive_features has no column. Expected at least one."
        )
    alone = [column.attribute for column in columns.values()]
    joint = partition(alone, how)
    if len(alone) > 1 and len(joint) == 1:
        columns[joint[0].name] = Compared(joint[0], None, is_joint=True)
    return columns


def _read(
    name: str, values: Table, n_samples: int, cutting: Cutting, n_columns: int
) -> Compared:
    series = pd.Series(np.asarray(values)).infer_objects()
    is_numeric = pd.api.types.is_numeric_dtype(series.dtype)
    known = cutting.known(name, n_columns) if is_numeric else None
    is_number = is_numeric and series.nunique() > MOST_GROUPS
    if not isinstance(cutting.continuous, str):
        is_number = name in cutting.continuous
    if not is_number and known is None:
        return Compared(encode_column(values, name, n_samples), None)
    if len(series) != n_samples:
        raise InvalidInputError(
            f"{name} has {len(series)} values and there are {n_samples} rows. Expected "
            "one value per row."
        )
    numbers = read_band_numbers(series, name)
    edges = find_edges(numbers) if known is None else np.array(known)
    code = place(numbers, edges)
    attribute = Attribute(name, band_names(edges), code, {name: tuple(edges.tolist())})
    return Compared(attribute, numbers, has_trained_bands=known is not None)


def _check_comparable(attribute: Attribute, code: IntArray) -> None:
    if code.size < FEWEST_ROWS or np.unique(code).size < 2:
        raise InvalidInputError(
            f"{attribute.name} has {np.unique(code).size} group(s) in {code.size} "
            "rows. Expected at least two to compare, in four rows at least."
        )


def _warn_of_control(estimator: Any) -> None:
    notion = getattr(estimator, "notion", None)
    if isinstance(notion, Notion) and notion.control_feature() is not None:
        warnings.warn(
            "The model was trained to be fair given a control feature, and this audit "
            "compares all rows. Audit the rows of each value of that feature alone.",
            DataFairnessWarning,
            stacklevel=3,
        )


def _predictions(estimator: Any, X: Table) -> FloatArray:
    if estimator is None:
        return _finite(one_column(X), "The prediction")
    if not hasattr(estimator, "predict"):
        raise InvalidTypeError(
            f"{type(estimator).__name__} has no predict. Expected a fitted regressor, "
            "or None with predictions in place of X."
        )
    return _finite(estimator.predict(X), "The prediction")


def _finite(values: Table, name: str) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{name} holds what is no number ({error}). Expected numbers."
        ) from error
    if array.ndim != 1 or not np.all(np.isfinite(array)):
        raise InvalidInputError(
            f"{name} has shape {array.shape}, or holds missing numbers. Expected one "
            "finite number a row."
        )
    return array
