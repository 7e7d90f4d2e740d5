"""The audit of a regressor: how its predictions depend on each sensitive column."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from fferm._typing import FloatArray, IntArray, Table
from fferm.auditing.number_columns import (
    Compared,
    read_columns,
    read_finite,
    read_predictions,
)
from fferm.auditing.number_parts import AskedOfNumbers, ColumnAudit, Measured
from fferm.auditing.number_result import RegressionAudit
from fferm.auditing.number_shapes import densities_of, fan_of
from fferm.auditing.question import (
    TRANSFORMED,
    Question,
    make_question,
    own_parameter,
    trained_edges,
)
from fferm.auditing.spelling import spell
from fferm.data.groups import Binning, GroupMode
from fferm.data.rows import check_aligned, check_lengths, control_labels
from fferm.data.validate import encode_weight, rescaled
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.metrics.dependence import (
    GROUP_MEASURES,
    NUMBER_MEASURES,
    OrderedPredictions,
    effective_size,
    get_measure,
    information_bias,
    shuffled_values,
)
from fferm.metrics.intervals import check_draws, two_sided
from fferm.notions import Labels, Notion, Strata

# Rows that a measure is taken on at least.
FEWEST_ROWS = 4
DEFAULT_METRIC = "kolmogorov_smirnov"


def audit_regression(  # noqa: PLR0913 - one call states all that an audit depends on
    estimator: Any,
    X: Table,
    y: Table,
    *,
    sensitive_features: Table,
    metric: str | None = None,
    notion: str | Notion | None = None,
    groups: GroupMode | None = None,
    continuous: Sequence[str] | str = "auto",
    confidence: float = 0.95,
    n_permutations: int = 99,
    n_bootstrap: int = 200,
    random_state: int = 0,
    sample_weight: Table = None,
) -> RegressionAudit:
    """Return how the predictions of a regressor depend on each sensitive column.

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
        The measure of `fferm.metrics.dependence` that is called the violation; by
        default the estimator's ``violation_metric``, else ``"kolmogorov_smirnov"``.
    notion
        ``"demographic_parity"``: all rows are compared. ``ConditionalParity(control)``:
        rows of the same value of a control feature are, and the value that depends most
        counts. By default what the estimator was trained with, as in `fferm.audit`.
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
    sample_weight
        (n_samples,) non-negative weights. Rows of weight 0 are no rows. Shuffled values
        of a sensitive column keep their weights.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age = rng.normal(size=300)
    >>> found = audit_regression(None, age**2, age**2, sensitive_features={"age": age})
    >>> found.value("correlation") < 0.2 < found.value("distance_correlation")
    True
    """
    rows = {"X": X, "y": y, "sensitive_features": sensitive_features}
    check_aligned(**rows, sample_weight=sample_weight)
    check_draws("n_bootstrap", n_bootstrap, fewest=0)
    check_draws("n_permutations", n_permutations, fewest=0)
    two_sided(confidence)  # refuses what is no level
    prediction, target = read_predictions(estimator, X), read_finite(y, "y")
    if target.shape != prediction.shape:
        raise InvalidInputError(
            f"y has shape {target.shape} and the prediction {prediction.shape}. "
            "Expected one number a row."
        )
    check_lengths(**rows, sample_weight=sample_weight)
    n = prediction.size
    metric = metric or str(own_parameter(estimator, "violation_metric", DEFAULT_METRIC))
    get_measure(metric)
    question = make_question(estimator, X, n, notion, groups, None)
    strata, n_uncontrolled = _strata(question, n)
    weight = rescaled(encode_weight(sample_weight, n))
    auditor = _Auditor(
        prediction,
        target,
        weight,
        sample_weight is not None,
        strata,
        confidence,
        n_permutations,
        n_bootstrap,
        random_state,
    )
    cutting = Binning(continuous, trained_edges(estimator))
    columns = read_columns(sensitive_features, n, question.groups, cutting)
    error = float(np.average((target - prediction) ** 2, weights=weight))
    centre = np.average(target, weights=weight)
    spread = float(np.average((target - centre) ** 2, weights=weight))
    found = RegressionAudit(
        n_rows=n,
        mse=error,
        explained=1 - error / spread if spread > 0 else np.nan,
        metric=metric,
        confidence=confidence,
        columns={name: auditor.column(column) for name, column in columns.items()},
        asked=_asked(auditor, question, continuous),
        notion=question.notion.name,
        n_uncontrolled=n_uncontrolled,
    )
    found.value(metric)  # refused where no column has it
    return found


@dataclass(frozen=True)
class _Auditor:
    prediction: FloatArray
    target: FloatArray
    weight: FloatArray
    is_weighted: bool
    strata: Strata
    confidence: float
    n_permutations: int
    n_bootstrap: int
    random_state: int

    def column(self, compared: Compared) -> ColumnAudit:
        attribute, numbers = compared.attribute, compared.numbers
        known = (attribute.code >= 0) & (self.weight > 0)
        parts, absent = self._parts(compared, known)
        measures, by_part = self._of_groups(attribute.code, parts)
        inside = np.flatnonzero(known & (self.strata.code >= 0))
        u, weight = self.prediction[inside], self.weight[inside]
        fan = bias = None
        if numbers is not None:
            found, more = self._of_numbers(numbers, parts)
            measures |= found
            by_part = [
                {**one, **other} for one, other in zip(by_part, more, strict=True)
            ]
            fan = fan_of(u, numbers[inside], weight)
            given = weight if self.is_weighted else None
            bias = information_bias(u, numbers[inside], weight=given)
        names = attribute.groups
        return ColumnAudit(
            groups={
                group: self._group(known & (attribute.code == k))
                for k, group in enumerate(names)
                if np.any(known & (attribute.code == k))
            },
            measures=measures,
            densities=densities_of(u, attribute.code[inside], names, weight),
            fan=fan,
            information_bias=bias,
            n_missing=int(np.sum(attribute.code < 0)),
            is_joint=compared.is_joint,
            has_trained_bands=compared.has_trained_bands,
            strata={}
            if len(self.strata.names) == 1
            else {
                self.strata.names[r]: {"rows": rows.size, **found}
                for (r, rows), found in zip(parts.items(), by_part, strict=True)
            },
            absent=absent,
        )

    def _parts(
        self, compared: Compared, known: NDArray[np.bool_]
    ) -> tuple[dict[int, IntArray], tuple[str, ...]]:
        # The rows of each stratum that can be compared, and the names of the others.
        code, parts = compared.attribute.code, {}
        for r in range(len(self.strata.names)):
            rows = np.flatnonzero(known & (self.strata.code == r))
            if rows.size >= FEWEST_ROWS and np.unique(code[rows]).size > 1:
                parts[r] = rows
        if not parts:
            n_groups = np.unique(code[known]).size
            where = "" if len(self.strata.names) == 1 else " of one control value"
            raise InvalidInputError(
                f"{compared.attribute.name} has {n_groups} group(s) in {known.sum()} "
                "rows. Expected at least two to compare, in four rows at least"
                f"{where}."
            )
        names = self.strata.names
        return parts, tuple(names[r] for r in range(len(names)) if r not in parts)

    def _weights(self, rows: IntArray) -> FloatArray | None:
        return self.weight[rows] if self.is_weighted else None

    def _of_groups(
        self, code: IntArray, parts: dict[int, IntArray]
    ) -> tuple[dict[str, Measured], list[dict[str, float]]]:
        names = list(GROUP_MEASURES)
        rng = np.random.default_rng(self.random_state)
        values, limits, chances = [], [], []
        for rows in parts.values():
            ordered = OrderedPredictions.of(self.prediction[rows])
            own, weight = code[rows], self._weights(rows)
            found = ordered.compare(own, weight)
            values.append({name: found.measure(name) for name in names})
            if self.n_bootstrap:
                limits.append(
                    ordered.intervals(
                        own,
                        names,
                        # All parts hold at once where each takes its share of the risk.
                        1 - (1 - self.confidence) / len(parts),
                        n_bootstrap=self.n_bootstrap,
                        random_state=self.random_state,
                        weight=weight,
                    )
                )
            orders = (
                rng.permutation(np.arange(own.size)) for _ in range(self.n_permutations)
            )
            shuffled = [
                ordered.compare(own[o], None if weight is None else weight[o])
                for o in orders
            ]
            chances.append({n: [s.measure(n) for s in shuffled] for n in names})
        measured = {}
        for name in names:
            value = max(found[name] for found in values)
            ends: tuple[float | None, float | None] = None, None
            if limits:
                low = max(found[name][0] for found in limits)
                ends = low, max(found[name][1] for found in limits)
            by_chance = _by_chance(value, [found[name] for found in chances])
            measured[name] = Measured(value, *ends, *by_chance)
        return measured, values

    def _of_numbers(
        self, numbers: FloatArray, parts: dict[int, IntArray]
    ) -> tuple[dict[str, Measured], list[dict[str, float]]]:
        measured: dict[str, Measured] = {}
        by_part: list[dict[str, float]] = [{} for _ in parts]
        for name, measure in NUMBER_MEASURES.items():
            rng = np.random.default_rng(self.random_state)
            chances = []
            for found, rows in zip(by_part, parts.values(), strict=True):
                u, s, weight = self.prediction[rows], numbers[rows], self._weights(rows)
                found[name] = measure(u, s, weight=weight)
                draws = u, s, self.n_permutations, rng, weight
                chances.append(shuffled_values(measure, *draws))
            value = max(found[name] for found in by_part)
            chance, p_value = _by_chance(value, chances)
            measured[name] = Measured(value, chance=chance, p_value=p_value)
        return measured, by_part

    def _group(self, inside: NDArray[np.bool_]) -> dict[str, float]:
        u, y, weight = self.prediction[inside], self.target[inside], self.weight[inside]
        share, size = weight / weight.sum(), effective_size(weight)
        mean, half = float(share @ u), np.nan  # of one row nothing can be said
        if size > 1 + 1e-9:
            quantile = student.ppf((1 + self.confidence) / 2, size - 1)
            variance = share @ (u - mean) ** 2 * size / (size - 1)
            half = float(quantile * np.sqrt(variance / size))
        return {
            "rows": int(np.sum(inside)),
            **({"size": size} if self.is_weighted else {}),
            "mean_prediction": mean,
            "mean_low": mean - half,
            "mean_high": mean + half,
            "mean_target": float(share @ y),
            "mse": float(share @ (u - y) ** 2),
        }


def _by_chance(
    value: float, chances: list[list[float]]
) -> tuple[float, float] | tuple[None, None]:
    # Rows are shuffled within each stratum, and the largest counts there too.
    largest = [max(drawn) for drawn in zip(*chances, strict=True)]
    if not largest:
        return None, None
    reached = sum(chance >= value - 1e-12 for chance in largest)
    return float(np.mean(largest)), (1 + reached) / (1 + len(largest))


def _strata(question: Question, n_samples: int) -> tuple[Strata, int]:
    # Who is compared with whom, and how many rows have no control value.
    notion = question.notion
    if notion.needs_labels:
        raise InvalidParameterError(
            f"notion={notion.name!r} conditions on a label, and y holds numbers. Use "
            "'demographic_parity', or ConditionalParity(control)."
        )
    control, names = control_labels(notion, question.table, n_samples)
    n_missing = 0 if control is None else int(np.sum(control < 0))
    return notion.strata(Labels(n_samples, None, (), control, names)), n_missing


def _asked(
    auditor: _Auditor, question: Question, continuous: Sequence[str] | str
) -> AskedOfNumbers:
    notion = spell(question.notion, "notion")
    return AskedOfNumbers(
        groups=question.groups,
        n_permutations=auditor.n_permutations,
        n_bootstrap=auditor.n_bootstrap,
        random_state=auditor.random_state,
        continuous=continuous if isinstance(continuous, str) else tuple(continuous),
        notion=notion.code,
        is_behind_pipeline=question.looked_in == TRANSFORMED,
        is_weighted=auditor.is_weighted,
        imports=notion.imports,
        notes=notion.notes,
    )
