"""The audit of a regressor: how its predictions depend on each sensitive column."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

from fferm._typing import FloatArray, IntArray, Table
from fferm.auditing.base import (
    LONGEST_NAME,
    MOST_GROUPS_SHOWN,
    WIDTH,
    Audit,
    AuditSpec,
    cut_name,
    parameter_of,
    resolve,
)
from fferm.data.groups import (
    Attribute,
    GroupMode,
    encode_columns,
    quantile_edges,
)
from fferm.data.rows import People, check_aligned, small_groups
from fferm.data.validate import COUNT, check_params, encode_weight, rescaled
from fferm.errors import InvalidInputError, InvalidParameterError, InvalidTypeError
from fferm.metrics import dependence
from fferm.metrics.intervals import DRAWS, LEVEL, Interval
from fferm.metrics.tabulator import CONTROL, left_out
from fferm.notions import Notion, Strata

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEFAULT_METRIC = "kolmogorov_smirnov"
# Places of a density, and cells that rows are counted in for it.
N_PLACES = 80
N_FINE = 400
# Bins of a fan, and the share below its lower and upper end.
N_BINS = 20
FAN = (0.1, 0.9)


class Measured(NamedTuple):
    """A measure of dependence on one column.

    Attributes
    ----------
    value
        On the rows.
    low, high
        Ends of its interval, None for measures of numbers: there a row that is drawn
        twice would itself be dependence.
    chance, p_value
        Its mean if the column is shuffled, which is not 0 for measures that cannot
        fall below 0, and how often shuffled rows reach the value; None without
        permutations.
    """

    value: float
    low: float | None = None
    high: float | None = None
    chance: float | None = None
    p_value: float | None = None


@dataclass(frozen=True)
class Densities:
    """The density of the prediction in each group, at common places."""

    at: tuple[float, ...]
    by_group: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Fan:
    """The prediction along a number: in bins of it, the mean and the middle 80 %."""

    at: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class ColumnAudit:
    """How predictions depend on one sensitive column, or on several jointly.

    Attributes
    ----------
    groups
        By group, or by band of numbers: ``rows``, ``mean_prediction`` with the ends of
        its interval ``mean_low`` and ``mean_high``, ``mean_target``, ``mse``; with
        weights also ``size``, the effective number of rows.
    measures
        By name.
    densities
        Of the groups or bands.
    fan
        For numbers, else None.
    dependence.information_bias
        For numbers: how much of ``f_information`` counts alone make; else None.
    n_missing
        Rows without a value, which are in no group.
    is_joint
        Whether these are the groups of several columns jointly.
    has_trained_bands
        Whether the bands of numbers are those of the model's training.
    strata
        By value of the control feature: ``rows``, and each measure there; the largest
        is that of the column. Empty if all rows are compared.
    absent
        Values of the control feature without two groups to compare, or with fewer than
        four rows.
    small
        Groups that are left out because they are small, with their rows.
    farthest
        By measure of groups, the two groups that it finds farthest apart.
    """

    groups: dict[str, dict[str, float]]
    measures: dict[str, Measured]
    densities: Densities
    fan: Fan | None
    information_bias: float | None
    n_missing: int
    is_joint: bool = False
    has_trained_bands: bool = False
    strata: dict[str, dict[str, float]] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    small: dict[str, int] = field(default_factory=dict)
    farthest: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def is_number(self) -> bool:
        """Whether the column holds numbers, whose groups are bands."""
        return self.fan is not None


@dataclass(frozen=True, repr=False)
class RegressionAudit(Audit):
    """How predictions depend on sensitive columns.

    Attributes
    ----------
    n_rows, mse, explained
        Rows, mean squared error, and the share of the variance of y that is explained
        (NaN if y is constant).
    metric
        The measure that is called the violation.
    confidence
        The level of all intervals.
    columns
        By sensitive column; several that are compared jointly have one more.
    spec
        What was compared and how, to repeat the audit.
    notion
        The name of the notion: who is compared with whom.
    n_uncontrolled
        Rows without a value of the control feature, which are compared with none.
    people
        The rows, for a dossier; None for an audit that was read from a file.
    """

    kind: ClassVar[str | None] = "regression"
    digits: ClassVar[str] = ".4g"
    no_value: ClassVar[str] = "-"

    n_rows: int
    mse: float
    explained: float
    metric: str
    confidence: float
    columns: dict[str, ColumnAudit]
    spec: AuditSpec
    notion: str = "demographic_parity"
    n_uncontrolled: int = 0
    people: People | None = field(default=None, compare=False)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per column and measure."""
        limits = dict.fromkeys(Measured._fields, np.dtype(np.float64))
        return self._rows("measure", "measures").astype(limits)

    @property
    def group_frame(self) -> pd.DataFrame:
        """One row per group, or band of numbers."""
        return self._rows("group", "groups")

    @property
    def stratum_frame(self) -> pd.DataFrame:
        """Each measure by column and value of the control feature, if there is one."""
        return self._rows("stratum", "strata")

    def _rows(self, what: str, field_name: str) -> pd.DataFrame:
        return pd.DataFrame(
            {"column": name, what: key}
            | (row if isinstance(row, dict) else row._asdict())
            for name, column in self.columns.items()
            for key, row in getattr(column, field_name).items()
        )

    @property
    def violation(self) -> float:  # type: ignore[override]
        """The largest of all columns, by the audit's own measure."""
        return self.value(self.metric)

    @property
    def worst(self) -> str:
        """The column with the largest violation."""
        measured = self._measured(self.metric)
        return max(measured, key=lambda name: measured[name].value)

    @property
    def interval(self) -> Interval:  # type: ignore[override]
        """The interval of the violation; NaN for measures of numbers."""
        return self._interval(self.metric)

    def value(self, measure: str, column: str | None = None) -> float:
        """Return a measure: the largest of all columns, or that of one."""
        measured = self._measured(measure)
        if column is None:
            return max(each.value for each in measured.values())
        if column not in measured:
            raise InvalidParameterError(
                f"{measure!r} was not measured for {column!r}. It was measured for "
                f"{', '.join(measured)}."
            )
        return measured[column].value

    def passes(
        self,
        bound: float,
        measure: str | None = None,
        *,
        confidence: float | None = None,
    ) -> bool:
        """Return whether a measure keeps a bound for every column that has it.

        Parameters
        ----------
        bound
            The most that it may be.
        measure
            Its name; by default the audit's own.
        confidence
            None: the value keeps the bound. Else the upper end of the interval does,
            which has the confidence of the audit; measures of numbers have none.
        """
        if measure is not None and measure != self.metric:
            return replace(self, metric=measure).passes(bound, confidence=confidence)
        return super().passes(bound, confidence=confidence)

    def _p_values(self, bound: float, confidence: float) -> tuple[float, float]:
        low, high = self.interval
        if np.isnan(high) or confidence != self.confidence:
            raise InvalidParameterError(
                f"A test of {self.metric} needs an interval at confidence="
                f"{confidence:g}; this audit has "
                + ("none" if np.isnan(high) else f"one at {self.confidence:g}")
                + ". Audit a measure of groups, such as 'kolmogorov_smirnov', with "
                "n_bootstrap and that confidence."
            )
        # Limits that hold at once stand for their level.
        risk = 1 - confidence
        return (risk if high <= bound else 1.0), (risk if low > bound else 1.0)

    def _interval(self, measure: str) -> Interval:
        # All limits hold at once, and so do the largest of them.
        limits = [(each.low, each.high) for each in self._measured(measure).values()]
        low, high = np.array(limits, dtype=np.float64).max(axis=0)  # None is NaN
        return float(low), float(high)

    def _measured(self, measure: str) -> dict[str, Measured]:
        measured = {
            name: column.measures[measure]
            for name, column in self.columns.items()
            if measure in column.measures
        }
        if not measured:
            known = {m for column in self.columns.values() for m in column.measures}
            raise InvalidParameterError(
                f"{measure!r} was not measured. Measured: {', '.join(sorted(known))}, "
                f"for {', '.join(self.columns)}."
            )
        return measured

    def plot(self, column: str, ax: "Axes | None" = None) -> "Axes":
        """Draw the densities of groups, or predictions against numbers.

        Parameters
        ----------
        column
            A sensitive column.
        ax
            Where to draw; a new figure by default.
        """
        from fferm.report.figures import plot_column

        if column not in self.columns:
            raise InvalidParameterError(
                f"{column!r} is not a sensitive column. Sensitive columns: "
                f"{', '.join(self.columns)}."
            )
        return plot_column(self.columns[column], column, ax)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Sentences on what the measures leave out; empty if they are on everyone."""
        missing = {name: column.n_missing for name, column in self.columns.items()}
        missing[CONTROL] = self.n_uncontrolled
        return (
            *(left_out(name, n, self.n_rows) for name, n in missing.items() if n),
            *(
                f"{name}: {small_groups(column.small)}, smaller than min_group_size"
                for name, column in self.columns.items()
                if column.small
            ),
            *(
                f"{name}: not compared where {', '.join(column.absent)}, because fewer "
                f"than two groups have {dependence.FEWEST_ROWS} rows"
                for name, column in self.columns.items()
                if column.absent
            ),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on who is compared with whom, and who is left out."""
        compared = (
            f"{name} is compared within {len(column.strata)} values of the control "
            f"feature; {self.metric} is largest where "
            f"{max(column.strata, key=lambda k: column.strata[k][self.metric])}."
            for name, column in self.columns.items()
            if column.strata and self.metric in column.measures
        )
        banded = (
            f"{name} holds numbers. Its groups are {len(column.groups)} bands "
            f"{'of training' if column.has_trained_bands else 'of equal size'}; "
            "measures of numbers look at the numbers themselves."
            for name, column in self.columns.items()
            if column.is_number
        )
        return (*compared, *banded, *self.left_out)

    def __repr__(self) -> str:
        """Return one line."""
        return (
            f"RegressionAudit({self.n_rows} rows, {self.metric} "
            f"{self.violation:.4g} by {self.worst})"
        )

    def _summary(self) -> tuple[str, list[pd.DataFrame]]:
        return repr(self), [self.frame, self.group_frame]

    def __str__(self) -> str:
        words = "" if self.notion == "demographic_parity" else f", {self.notion}"
        words += ", weighted" if self.spec.is_weighted else ""
        low, high = self.interval
        level = f"{100 * self.confidence:g} % interval [{low:.4g}, {high:.4g}]"
        lines = [
            f"Audit of {self.n_rows} rows, a regression{words}",
            f"  mean squared error  {self.mse:.6g}   explains {self.explained:.4f} of "
            "the variance",
            f"  violation           {self.violation:.4g}   {self.metric} by "
            f"{cut_name(self.worst, 22)}",
            *([] if np.isnan(high) else [f"                      {level}"]),
        ]
        column = self.columns[self.worst]
        measured = column.measures[self.metric]
        if measured.chance is not None:
            lines.append(
                f"  by chance           {measured.chance:.4g}   a fair model on these "
                "rows"
            )
        pair = column.farthest.get(self.metric, ())
        for words, group in zip(("  between", "      and"), pair, strict=False):
            n_rows = column.groups[group]["rows"]
            lines.append(f"{words:<22}{cut_name(group)} ({n_rows:.0f} rows)")
        groups = self.group_frame
        lines += ["", self._table(self.frame, 1), ""]
        lines.append(self._table(groups.head(MOST_GROUPS_SHOWN), 2))
        if len(groups) > MOST_GROUPS_SHOWN:
            n_more = len(groups) - MOST_GROUPS_SHOWN
            lines.append(f"... and {n_more} more groups in .group_frame")
        return "\n".join([*lines, *(["", *self.notes] if self.notes else [])])

    def _table(self, frame: pd.DataFrame, n_names: int) -> str:
        # Without intervals of means, and with shorter names, where it is too wide.
        text, means = "", ["mean_low", "mean_high"]
        for longest in (WIDTH, LONGEST_NAME, 14, 9):
            shown = frame.drop(
                columns=means if longest < WIDTH else [], errors="ignore"
            )
            for name in shown.columns[:n_names]:
                shown[name] = [cut_name(each, longest) for each in shown[name]]
            shown = shown.set_index(list(shown.columns[:2]))
            shown = shown[[name for name in shown if shown[name].notna().any()]]
            text = shown.to_string(float_format=self.format_number, na_rep="-")
            if max(map(len, text.splitlines())) <= WIDTH:
                break
        return text


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
    min_group_size: int = 1,
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
        Anything with ``predict``, or None if X holds the predictions themselves.
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
        rows with the same value of a control feature are, and the value with the
        strongest dependence counts. By default what the estimator was trained with, as
        in `fferm.audit`.
    groups
        ``"intersection"``: several columns are compared jointly too. ``"marginal"``:
        one by one. By default as the estimator was trained, else intersections.
    continuous
        Names of the columns that are numbers; ``"auto"``: those with more than 20
        distinct numbers, whole ones included. Columns that the estimator was fitted
        with as numbers are compared in the bands of training; others are cut here.
    min_group_size
        Groups with fewer rows are left out and named, as in `fferm.audit`.
    confidence, n_bootstrap
        Level and draws of the intervals of measures of groups; 0 draws for none.
    n_permutations
        Of the test of independence; 0 for none.
    random_state
        Seed of both.
    sample_weight
        (n_samples,) non-negative weights. Rows of weight 0 do not count. Shuffled
        values of a sensitive column keep their weights.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age = rng.normal(size=300)
    >>> result = audit_regression(None, age**2, age**2, sensitive_features={"age": age})
    >>> result.value("correlation") < 0.2 < result.value("distance_correlation")
    True
    """
    rows = {"X": X, "y": y, "sensitive_features": sensitive_features}
    check_aligned(**rows, sample_weight=sample_weight)
    drawn: Any = {"n_bootstrap": n_bootstrap, "n_permutations": n_permutations}
    limits = {"confidence": LEVEL, **dict.fromkeys(drawn, DRAWS)}
    check_params({"confidence": confidence, **drawn}, limits)
    check_params({"min_group_size": min_group_size}, {"min_group_size": COUNT})
    if estimator is not None and not hasattr(estimator, "predict"):
        raise InvalidTypeError(
            "estimator must be a fitted regressor, or None with predictions in place "
            f"of X; got {type(estimator).__name__}, which has no predict."
        )
    predicted = X if estimator is None else estimator.predict(X)
    prediction = dependence.read_finite(predicted, "The prediction")
    target = dependence.read_finite(y, "y")
    tables = {**rows, "prediction": prediction, "sample_weight": sample_weight}
    check_aligned(are_equal=True, **tables)
    n = prediction.size
    metric = metric or parameter_of(estimator, "violation_metric") or DEFAULT_METRIC
    dependence.get_measure(metric)
    if not isinstance(continuous, str):
        continuous = tuple(continuous)
    options = drawn | {"random_state": random_state, "continuous": continuous}
    options["min_group_size"] = min_group_size
    asked = X, n, sample_weight, notion, groups
    compared, table, binning, spec = resolve(estimator, *asked, **options)
    strata = dependence.control_strata(compared, table, n)
    weight = rescaled(encode_weight(sample_weight, n))
    auditor = _Auditor(prediction, target, weight, strata, confidence, spec)
    binning, how = replace(binning, continuous=continuous), cast(GroupMode, spec.groups)
    columns = encode_columns(sensitive_features, n, how, binning)
    error, variance = dependence.squared_error(target, prediction, weight)
    result = RegressionAudit(
        n_rows=n,
        mse=error,
        explained=1 - error / variance,
        metric=metric,
        confidence=confidence,
        columns={column[0].name: auditor.column(*column) for column in columns},
        spec=spec,
        notion=compared.name,
        n_uncontrolled=int(np.sum(strata.code < 0)),
        people=People(n, sensitive_features, binning.edges, scores=prediction[:, None]),
    )
    result.value(metric)  # raises if no column has it
    return result


@dataclass(frozen=True)
class _Auditor:
    prediction: FloatArray
    target: FloatArray
    weight: FloatArray
    strata: Strata
    confidence: float
    spec: AuditSpec

    def column(
        self,
        attribute: Attribute,
        numbers: FloatArray | None,
        described: dict[str, bool],
    ) -> ColumnAudit:
        code, names, groups = attribute.code, self.strata.names, attribute.groups
        known = (code >= 0) & (self.weight > 0)
        parts = dependence.comparable_rows(code, known, self.strata)
        if not parts:
            where = "" if len(names) == 1 else " of one control value"
            raise InvalidInputError(
                f"{attribute.name} needs at least two groups in "
                f"{dependence.FEWEST_ROWS} rows{where}; got "
                f"{np.unique(code[known]).size} in {known.sum()} rows."
            )
        by_part = list(self._measure(code, numbers, parts))
        inside = np.flatnonzero(known & (self.strata.code >= 0))
        u, weight = self.prediction[inside], self.weight[inside]
        fan = bias = None
        if numbers is not None:
            fan = _fan(u, numbers[inside], weight)
            weights = weight if self.spec.is_weighted else None
            bias = dependence.information_bias(u, numbers[inside], weight=weights)
        measures, strata = {}, dict[str, dict[str, float]]()
        farthest = dict[str, tuple[str, str]]()
        for name in by_part[0]:
            # The stratum with the largest value counts, for shuffled rows too.
            values, ends, shuffled, pairs = zip(
                *(part[name] for part in by_part), strict=True
            )
            pair = pairs[int(np.argmax(values))]
            if pair is not None:
                farthest[name] = groups[pair[0]], groups[pair[1]]
            low, high = (None, None) if None in ends else np.max(ends, axis=0).tolist()
            by_chance = np.max(shuffled, axis=0).tolist()
            test = dependence.chance_of(max(values), by_chance) if by_chance else ()
            measures[name] = Measured(max(values), low, high, *test)
        if len(names) > 1:
            for (r, rows), part in zip(parts.items(), by_part, strict=True):
                by_name = {name: measured[0] for name, measured in part.items()}
                strata[names[r]] = {"rows": rows.size, **by_name}
        members = {group: known & (code == k) for k, group in enumerate(groups)}
        return ColumnAudit(
            groups={g: self._group(m) for g, m in members.items() if np.any(m)},
            measures=measures,
            densities=_densities(u, code[inside], groups, weight),
            fan=fan,
            information_bias=bias,
            n_missing=int(np.sum(code < 0)) - sum(attribute.small.values()),
            small=dict(attribute.small),
            farthest=farthest,
            strata=strata,
            absent=tuple(names[r] for r in range(len(names)) if r not in parts),
            **described,
        )

    def _measure(
        self, code: IntArray, numbers: FloatArray | None, parts: dict[int, IntArray]
    ) -> Iterator[dict[str, tuple[float, Interval | None, list[float], Any]]]:
        # By stratum and measure: its value, interval, values by chance, and the codes
        # of the groups that are farthest apart.
        spec, n_permutations = self.spec, self.spec.n_permutations or 0
        seed = spec.random_state
        drawn: Any = {"n_bootstrap": spec.n_bootstrap, "random_state": seed or 0}
        # Without draws there are none.
        bounded = list(dependence.GROUP_MEASURES) if spec.n_bootstrap else []
        # All parts hold at once if each takes its share of the risk.
        level = 1 - (1 - self.confidence) / len(parts)
        seeded = ("groups", *dependence.NUMBER_MEASURES)
        rngs = {name: np.random.default_rng(seed) for name in seeded}
        for rows in parts.values():
            u, group = self.prediction[rows], code[rows]
            weight = self.weight[rows] if spec.is_weighted else None
            ordered = dependence.OrderedPredictions(u)
            limits = ordered.intervals(group, bounded, level, **drawn, weight=weight)
            observed, shuffled = ordered.below(group, weight), []
            for _ in range(n_permutations):
                order = rngs["groups"].permutation(group.size)
                shuffled.append(
                    ordered.below(group[order], dependence.take(weight, order))
                )
            measures: dict[str, Any] = {}
            for name in dependence.GROUP_MEASURES:
                value, *others = (
                    ordered.measure(name, each) for each in (observed, *shuffled)
                )
                pair = np.unique(group)[list(ordered.farthest(name, observed))]
                measures[name] = value, limits.get(name), others, pair
            for name, measure in dependence.NUMBER_MEASURES.items():
                if numbers is None:
                    break
                both = u, numbers[rows]
                others = dependence.shuffled_values(
                    measure, *both, n_permutations, rngs[name], weight
                )
                measures[name] = measure(*both, weight=weight), None, others, None
            yield measures

    def _group(self, inside: NDArray[np.bool_]) -> dict[str, float]:
        u, y, weight = self.prediction[inside], self.target[inside], self.weight[inside]
        share, size = weight / weight.sum(), dependence.effective_size(weight)
        mean, half = float(share @ u), np.nan  # one row has no interval
        if size > 1 + 1e-9:
            quantile = student.ppf((1 + self.confidence) / 2, size - 1)
            variance = share @ (u - mean) ** 2 * size / (size - 1)
            half = float(quantile * np.sqrt(variance / size))
        return {
            "rows": int(np.sum(inside)),
            **({"size": size} if self.spec.is_weighted else {}),
            "mean_prediction": mean,
            "mean_low": mean - half,
            "mean_high": mean + half,
            "mean_target": float(share @ y),
            "mse": float(share @ (u - y) ** 2),
        }


def _densities(
    u: FloatArray, code: IntArray, groups: tuple[str, ...], weight: FloatArray
) -> Densities:
    low, high = np.quantile(u, [0.001, 0.999])
    # If all predictions are equal there is still some width to draw.
    room = 0.1 * (high - low) or 1e-3 * max(abs(low), 1.0)
    at = np.linspace(low - room, high + room, N_PLACES)
    by_group, ends = {}, (at[0], at[-1])
    for k in np.unique(code):
        # Normal kernels, of the width that suits a normal density, on a fine histogram.
        v, w = u[code == k], weight[code == k]
        share = w / w.sum()
        mass, edges = np.histogram(np.clip(v, *ends), N_FINE, ends, weights=share)
        middle = (edges[1:] + edges[:-1]) / 2
        deviation = np.sqrt(share @ (v - share @ v) ** 2)
        width = max(
            1.06 * deviation * dependence.effective_size(w) ** -0.2, at[1] - at[0]
        )
        density = norm.pdf((at[:, None] - middle) / width) @ mass / width
        by_group[groups[k]] = tuple(density.tolist())
    return Densities(tuple(at.tolist()), by_group)


def _fan(u: FloatArray, values: FloatArray, weight: FloatArray) -> Fan:
    edges = quantile_edges(values, N_BINS, weight)
    bins = np.searchsorted(edges, values, "right")
    columns = []
    for part in (bins == b for b in np.unique(bins)):
        w, options = weight[part], {}
        if np.any(w != w[0]):
            options = {"method": "inverted_cdf", "weights": w}
        means = [np.average(each[part], weights=w) for each in (values, u)]
        columns.append([*means, *np.quantile(u[part], FAN, **options)])
    return Fan(*(tuple(map(float, each)) for each in zip(*columns, strict=True)))
