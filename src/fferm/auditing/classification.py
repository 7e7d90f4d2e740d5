"""The audit of a classifier: rates of decisions and probabilities by group."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self, cast

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin, RegressorMixin, is_regressor

from fferm._typing import FloatArray, IntArray, Table
from fferm.auditing.base import (
    MOST_GROUPS_SHOWN,
    WIDTH,
    Audit,
    AuditSpec,
    cut_name,
    resolve,
    resolve_component,
)
from fferm.data.groups import GroupMode
from fferm.data.rows import SMALL_GROUP, People, check_aligned, small_groups
from fferm.data.validate import (
    COUNT,
    Number,
    check_params,
    encode_decisions,
    encode_prob,
)
from fferm.divergences import STANDARD, Divergence
from fferm.errors import (
    DataFairnessWarning,
    InvalidInputError,
    InvalidParameterError,
    SmallGroupWarning,
    warn_user,
)
from fferm.metrics import intervals
from fferm.metrics.certificates import violation_bound
from fferm.metrics.intervals import DRAWS, LEVEL, Interval
from fferm.metrics.tabulator import (
    CLASS_RATES,
    Absence,
    Gap,
    Predicted,
    RateTable,
    Tabulator,
    left_out,
    make_tabulator,
    worst_violation,
)
from fferm.notions import Labels, Notion
from fferm.registry import code_of

# The most classes that a short text shows.
MOST_CLASSES_SHOWN = 2
# The stratum of a notion that compares all rows.
EVERYONE = "everyone"
# What the table by group says of each class.
CLASS_COLUMNS = (*CLASS_RATES, "selection_low", "selection_high")


@dataclass(frozen=True)
class ComparedRates:
    """The rates of an attribute that are compared, and the rows behind them.

    Attributes
    ----------
    attribute, groups
        Who is compared.
    rates, sizes
        (comparisons, groups) rates and effective numbers of rows; NaN is undefined.
    """

    attribute: str
    groups: tuple[str, ...]
    rates: list[list[float]]
    sizes: list[list[float]]


class DivergenceValue(NamedTuple):
    """A divergence of decisions, of probabilities, and of the largest there can be."""

    hard: float
    soft: float | None
    share_of_largest: float


@dataclass(frozen=True, repr=False)
class ClassificationAudit(Audit):
    """What a classifier does to each group.

    Attributes
    ----------
    n_rows, accuracy
        Rows, and the (weighted) share of correct decisions; NaN without labels.
    classes
        The labels; of two the second is the positive one.
    notion, divergence
        The names of the notion and of the divergence that the audit is about.
    confidence
        The level of all intervals.
    violation, interval, bootstrap_interval
        The largest gap between groups in decisions; its closed-form interval and its
        bootstrap interval (None without draws).
    small_groups
        By attribute, the groups that are left out because they are small, with their
        rows.
    floor, floor_high
        What a perfectly fair model measures on these rows by chance: on average, and
        the value that it stays below with probability ``confidence``.
    rates
        By attribute, the rates that are compared, with their numbers of rows.
    people
        The rows, for a dossier; None for an audit that was read from a file.
    soft_violation, soft_interval
        The same for probabilities, by bootstrap; None without probabilities.
    gaps
        The gap of each stratum and class, for decisions.
    groups
        By group: count, share, effective size, rates of labels, decisions and
        probabilities, Wilson intervals of the decision rates, accuracy and, for two
        classes, error rates. NaN is undefined.
    absent
        Groups and strata that could not be judged, and why.
    unjudged
        By attribute, the number of rows without a value; these are in no group. Empty
        if every row has one.
    divergences
        By name: of decisions, of probabilities, and the former as a share of the
        largest that the group weights allow (NaN if that is infinite).
    certificates, soft_certificates
        By divergence: the largest violation that its value allows, whatever the
        table, for decisions and for probabilities.
    spec
        What was compared and how, to repeat the audit.
    bands
        The sensitive columns with many fractional numbers, and how many quantile bands
        these were cut into.
    trained_bands
        Those of them that are cut at the edges of the model's training.
    promises
        What the model itself proves, such as `fferm.deploy.ParityController`.
    source
        The counts that it was made from, with the options, if it was; not in
        `to_dict`.
    """

    n_rows: int
    accuracy: float
    classes: tuple[str, ...]
    notion: str
    divergence: str
    confidence: float
    violation: float
    interval: Interval
    bootstrap_interval: Interval | None
    soft_violation: float | None
    soft_interval: Interval | None
    gaps: tuple[Gap, ...]
    groups: dict[str, dict[str, float]]
    absent: tuple[Absence, ...]
    unjudged: dict[str, int]
    divergences: dict[str, DivergenceValue]
    certificates: dict[str, float]
    soft_certificates: dict[str, float]
    spec: AuditSpec
    bands: dict[str, int] = field(default_factory=dict)
    trained_bands: tuple[str, ...] = ()
    floor: float = math.nan
    floor_high: float = math.nan
    small_groups: dict[str, dict[str, int]] = field(default_factory=dict)
    rates: tuple[ComparedRates, ...] = ()
    promises: tuple[str, ...] = ()
    source: Any = field(default=None, compare=False)
    people: People | None = field(default=None, compare=False)

    @classmethod
    def _restore(cls, plain: Mapping[str, Any]) -> Self:
        audit = super()._restore(plain)
        # JSON has null for undefined as for not measured; the groups tell which.
        rows = audit.groups.values()
        if any(key.startswith("soft_rate_") for row in rows for key in row):
            if audit.soft_violation is None:
                audit = replace(audit, soft_violation=math.nan)
            for name, value in audit.divergences.items():
                if value.soft is None:
                    audit.divergences[name] = value._replace(soft=math.nan)
        return audit

    def merge(self, other: Any) -> "ClassificationAudit":
        """Return the audit of the rows of two audits of counts.

        Both were made by ``audit(frame=...)`` from columns with the same names; the
        options are those of this one.
        """
        if self.source is None or getattr(other, "source", None) is None:
            raise InvalidInputError(
                "merge adds up counts, which only audits made by audit(frame=...) in "
                "this process hold. Make both so, or merge their AuditCounts."
            )
        counts, options = self.source
        both = counts.merge(other.source[0])
        return cast(ClassificationAudit, audit(frame=both, **options))

    @property
    def shown_classes(self) -> tuple[str, ...]:
        """The classes whose rates are shown: with two classes only the positive one."""
        return self.classes[1:] if len(self.classes) == 2 else self.classes

    @property
    def frame(self) -> pd.DataFrame:
        """The groups as a data frame, one row each."""
        table = pd.DataFrame.from_dict(self.groups, orient="index")
        table.index.name = "group"
        return table.astype({"count": np.dtype(np.int64)})

    @property
    def worst_pair(self) -> Gap | None:
        """The gap that is the violation: between which groups, in which outcome."""
        return max(self._shown_gaps, key=lambda gap: gap.gap, default=None)

    @property
    def corrected(self) -> float:
        """The violation without the part that noise adds to it on average.

        Of more than two groups it is the typical difference of two.
        """
        return intervals.corrected_violation(*self._compared)

    @property
    def _compared(self) -> tuple[list[FloatArray], list[FloatArray]]:
        rates = [np.array(part.rates, dtype=np.float64) for part in self.rates]
        return rates, [np.array(part.sizes) for part in self.rates]

    @property
    def ratio(self) -> float:
        """The lowest rate over the highest, of the (positive) outcome with the least.

        The four-fifths rule asks for at least 0.8. NaN where no rate is above 0.
        """
        ratios = [gap.ratio for gap in self._shown_gaps]
        return float(np.fmin.reduce(ratios, initial=np.nan))

    @property
    def _shown_gaps(self) -> list[Gap]:
        # Of two outcomes, which have the same gap, the positive one.
        endings = tuple(f"={label}" for label in self.shown_classes)
        return [gap for gap in self.gaps if gap.outcome.endswith(endings)]

    def check_bound(self, max_violation: float) -> None:
        """Raise if a bound is not between 0 and 1."""
        bound = {"max_violation": max_violation}
        check_params(bound, {"max_violation": Number(high=1.0)})

    def _p_values(self, bound: float, confidence: float) -> tuple[float, float]:
        if not self.rates:
            raise InvalidInputError(
                "This audit was written without the rates that a test needs. Audit the "
                "model again, or compare the value: passes(bound, confidence=None)."
            )
        compared = self._compared
        return intervals.certify(*compared, bound), intervals.refute(*compared, bound)

    @property
    def banded(self) -> tuple[str, ...]:
        """Sentences on columns of numbers that were cut into bands."""
        return tuple(
            f"{name} holds numbers and is compared in the {count} bands of training."
            if name in self.trained_bands
            else f"{name} holds numbers and was cut into {count} bands "
            "with equal numbers of rows."
            for name, count in self.bands.items()
        )

    @property
    def left_out(self) -> tuple[str, ...]:
        """Sentences on what the violation leaves out; empty if it is on everyone."""
        rows = (left_out(*item, self.n_rows) for item in self.unjudged.items())
        small = (
            f"{name}: {small_groups(groups)}, smaller than min_group_size"
            for name, groups in self.small_groups.items()
        )
        return (*rows, *small, *map(str, self.absent))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on who is compared with whom, and who is left out."""
        return (*self.banded, *self.promises, *self.left_out)

    def _short_frame(self) -> pd.DataFrame:
        hidden = [
            f"{name}_{label}"
            for name in CLASS_COLUMNS
            for label in set(self.classes) - set(self.shown_classes)
        ]
        hidden += ["size", "precision"]
        return self.frame.drop(columns=hidden, errors="ignore")

    def __repr__(self) -> str:
        """Return one line."""
        return f"Audit({self.n_rows} rows, {self.notion}, {self._stated})"

    @property
    def _stated(self) -> str:
        return (
            f"violation {self.format_number(self.violation)}, "
            f"{100 * self.confidence:g} % interval {_interval(self.interval)}"
        )

    def _summary(self) -> tuple[str, list[pd.DataFrame]]:
        line = f"Audit of {self.n_rows} rows, {self.notion}: {self._stated}"
        table = self._short_frame().filter(regex="^(count|share|.*_rate_.*)$")
        return line, [table.rename_axis(None)]

    def __str__(self) -> str:
        return self.summary()

    def summary(self, *, full: bool = False) -> str:
        """Return the audit in words.

        Parameters
        ----------
        full
            Whether to add divergences, certificates, bootstrap intervals and all
            columns of ``frame``; otherwise the text fits into 80 columns.
        """
        number, worst = self.format_number, self.worst_pair
        level = f"{100 * self.confidence:g} %"
        lines = [
            f"Audit of {self.n_rows} rows, {self.notion}",
            f"  accuracy        {number(self.accuracy)}",
            f"  violation       {number(self.violation)}"
            f"   {level} interval {_interval(self.interval)}",
        ]
        if worst is not None:
            pair = worst.lowest_group, worst.highest_group
            rates = worst.lowest_rate, worst.highest_rate
            sides = [
                f"{cut_name(group)}{self._rows_of(worst, group)} {number(rate)}"
                for group, rate in zip(pair, rates, strict=True)
            ]
            where = "" if worst.stratum == EVERYONE else f", {worst.stratum}"
            lines += [
                f"  by chance       {number(self.floor)}   a fair model on these rows; "
                f"{level} below {number(self.floor_high)}",
                f"  without noise   {number(self.corrected)}",
                f"  ratio of rates  {number(self.ratio)}   (the four-fifths rule asks "
                "for 0.8)",
                f"  between         {sides[0]}",
                f"              and {sides[1]}",
                f"{'':18}in {cut_name(worst.outcome)}{cut_name(where)}"[:WIDTH],
            ]
        soft = f"  in probability  {number(self.soft_violation)}"
        if self.soft_interval is not None:
            soft += f"   {level} bootstrap interval {_interval(self.soft_interval)}"
        lines.append(soft)
        if full:
            bound = self.certificates.get(self.divergence)
            lines += [
                f"  bootstrap       {level} interval "
                f"{_interval(self.bootstrap_interval)}",
                f"  {self.divergence:<15} "
                f"{number(self.divergences[self.divergence].hard)}"
                f"   implies a violation of at most {number(bound)}",
            ]
        lines += ["", self._group_text(full)]
        if stated := (*self.banded, *self.promises):
            lines += ["", *stated]
        if self.left_out:
            lines += ["", "Not judged:", *(f"  {line}" for line in self.left_out)]
        return "\n".join(lines)

    def _rows_of(self, gap: Gap, group: str) -> str:
        # Groups of several attributes are called by attribute and group.
        for name in (group, f"{gap.attribute}={group}"):
            if name in self.groups:
                return f" ({self.groups[name]['count']:.0f} rows)"
        return ""

    def _group_text(self, full: bool) -> str:
        frame = self._short_frame()
        if not full:
            shown = [f"selection_rate_{label}" for label in self.shown_classes]
            names = ["count", *shown[:MOST_CLASSES_SHOWN], "accuracy"]
            longest = 10 if len(shown) == 1 else 7
            renamed = {
                name: f"rate of {cut_name(label, longest)}"
                for name, label in zip(shown, self.shown_classes, strict=True)
            }
            frame = frame[names].rename(columns=renamed).head(MOST_GROUPS_SHOWN)
            frame.index = pd.Index([cut_name(str(name)) for name in frame.index])
        text = frame.to_string(float_format=self.format_number, na_rep="undefined")
        n_more = len(self.groups) - len(frame)
        return text + (f"\n... and {n_more} more groups in .frame" if n_more else "")


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return f"[{', '.join(map(ClassificationAudit.format_number, interval))}]"


def audit(  # noqa: PLR0913 - one call states all that an audit depends on
    estimator: Any = None,
    X: Table = None,
    y: Table = None,
    *,
    sensitive_features: Table = None,
    y_true: Table = None,
    y_pred: Table = None,
    y_prob: Table = None,
    frame: Any = None,
    sensitive: Sequence[str] | str | None = None,
    control: str | None = None,
    weight: str | None = None,
    notion: str | Notion | None = None,
    groups: GroupMode | None = None,
    min_group_size: int = 1,
    confidence: float = 0.95,
    divergence: str | Divergence | None = None,
    n_bootstrap: int = 1000,
    random_state: int | np.random.Generator = 0,
    sample_weight: Table = None,
) -> Audit:
    """Return what a model, or predictions made elsewhere, do to each group.

    Parameters
    ----------
    estimator
        A fitted classifier or regressor with ``predict`` (a pipeline, a search), a
        booster of LightGBM or XGBoost, or a function of ``X`` that returns labels,
        probabilities or numbers. Probabilities are judged if there are any.
    X
        (n_samples, n_features) data to predict on; best held out.
    y
        (n_samples,) labels, or numbers for a regressor; None is enough for demographic
        parity.
    sensitive_features
        As in `fferm.metrics.violation`. Numbers are compared in the bands of training
        if the estimator is one of fferm's that was fitted with them; else they are cut
        here, and the audit says so.
    y_true, y_pred, y_prob
        In place of a model: labels (or numbers), predictions, and probabilities as
        (n_samples, n_classes), or (n_samples,) for the second of two classes. Without
        ``y_pred`` the most probable class is the decision.
    frame
        In place of arrays: a lazy frame (of DuckDB, Polars, Dask, PySpark, Ibis, or any
        that narwhals reads) whose engine counts the rows, so that they may be more than
        memory holds; or `AuditCounts`. ``y_true``, ``y_pred``, ``y_prob``,
        ``sensitive``, ``control`` (that of ``ConditionalParity``) and ``weight`` are
        then names of columns.
    sensitive, control, weight
        Names of columns of ``frame``.
    notion, groups, divergence
        By default what the estimator was trained with, else demographic parity,
        intersections and ``kl``. A control feature that is named here is a column of
        ``X``; the estimator's own is a column of what reached the estimator, behind
        the transformers of a pipeline.
    min_group_size
        Groups with fewer rows have no part in the verdict and are named; so are those
        that were too small in the estimator's training.
    confidence
        The level of the intervals.
    n_bootstrap
        The number of draws of the bootstrap intervals; 0 for none.
    random_state
        Seed or generator of the bootstrap.
    sample_weight
        (n_samples,) non-negative weights.

    Returns
    -------
    Audit
        A `ClassificationAudit`; of numbers a `RegressionAudit`, for which
        `audit_regression` has more options.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> X, y, s = np.zeros((40, 1)), [0, 1] * 20, ["a"] * 20 + ["b"] * 20
    >>> model = DummyClassifier(strategy="prior").fit(X, y)
    >>> audit(model, X, y, sensitive_features=s).passes(0.02)
    True
    >>> audit(y_true=y, y_pred=y, sensitive_features=s).accuracy
    1.0
    """
    options: dict[str, Any] = {
        "notion": notion,
        "groups": groups,
        "min_group_size": min_group_size,
        "confidence": confidence,
        "divergence": divergence,
        "n_bootstrap": n_bootstrap,
        "random_state": random_state,
    }
    limits = {"n_bootstrap": DRAWS, "min_group_size": COUNT, "confidence": LEVEL}
    check_params({name: options[name] for name in limits}, limits)
    passed = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
    if frame is not None:
        return _audit_frame(
            frame,
            (y_true, y_pred, y_prob, sensitive, control, weight),
            (estimator, X, y, *passed.values()),
            options,
        )
    is_alone = X is not None and (y_true is y_pred is y_prob is None)
    if not (is_alone and isinstance(estimator, ClassifierMixin | RegressorMixin)):
        from fferm.auditing.predictions import read_predictions

        estimator, X, y = read_predictions(estimator, X, y, y_true, y_pred, y_prob)
    if hasattr(estimator, "__sklearn_tags__") and is_regressor(estimator):
        return _audit_numbers(estimator, X, y, **passed, **options)
    check_aligned(are_equal=True, X=X, y=y)
    check_aligned(X=X, y=y, **passed)
    known = list(getattr(estimator, "classes_", ()))
    seen = (
        {"sensitive_features": sensitive_features}
        if getattr(estimator, "predicts_with_groups", False)
        else {}
    )
    labels, decision = encode_decisions(y, estimator.predict(X, **seen), known)
    _warn_of_unknown(labels, known)
    drawn: dict[str, Any] = {"n_bootstrap": n_bootstrap, "random_state": random_state}
    chosen_notion, table, binning, spec = resolve(
        *(estimator, X, labels.n_samples, sample_weight, notion, groups),
        **drawn,
        min_group_size=min_group_size,
    )
    chosen = resolve_component(estimator, Divergence, divergence, "kl")
    mode, edges = cast(GroupMode, spec.groups), binning.edges
    tabulator = make_tabulator(
        labels, chosen_notion, groups=mode, X=table, binning=binning, **passed
    )
    if (counts := getattr(estimator, "counts", None)) is not None:
        tabulator = counts.add_squares(tabulator)
    soft = None
    if hasattr(estimator, "predict_proba") and known:
        soft = np.zeros((labels.n_samples, len(labels.classes)))
        # A label that training did not have is never predicted: its column stays 0.
        places = [labels.classes.index(label) for label in known]
        soft[:, places] = encode_prob(estimator.predict_proba(X, **seen), len(known))
    violations = tabulator.violations(decision, warn=True)
    tables = tabulator.tables(decision)
    _warn_of_small(tabulator, tables, decision)
    drawn["random_state"] = np.random.default_rng(random_state)
    soft_tables = () if soft is None else tabulator.tables(soft)
    how, compared = (chosen, confidence, drawn), intervals.compared_of(tables)
    values, bounds, interval = _measure(tabulator, decision, tables, *how)
    soft_values, soft_bounds, soft_interval = _measure(
        tabulator, soft, soft_tables, *how
    )
    columns = tabulator.rows.attributes
    bands = {name: e for column in columns for name, e in column.edges.items()}
    floor = intervals.floor_of_tables(tables, confidence)
    return ClassificationAudit(
        n_rows=labels.n_samples,
        accuracy=math.nan
        if labels.y is None
        else float(np.average(labels.y == decision, weights=tabulator.rows.weight)),
        classes=tuple(map(str, labels.classes)),
        notion=chosen_notion.name,
        divergence=next(iter(values)),
        confidence=confidence,
        violation=worst_violation(table.mass for table in tables),
        interval=intervals.violation_interval(*compared, confidence),
        bootstrap_interval=interval,
        soft_violation=None
        if soft is None
        else worst_violation(table.mass for table in soft_tables),
        soft_interval=soft_interval,
        gaps=violations.gaps,
        groups=_groups(tabulator, decision, soft, confidence),
        absent=violations.absent,
        unjudged=tabulator.unjudged,
        divergences={
            name: DivergenceValue(
                value,
                None if soft is None else soft_values[name][0],
                value / largest if 0 < largest < math.inf else math.nan,
            )
            for name, (value, largest) in values.items()
        },
        certificates=bounds,
        soft_certificates=soft_bounds,
        spec=replace(spec, divergence=code_of(chosen, "divergence")),
        bands={name: len(cut) + 1 for name, cut in bands.items()},
        trained_bands=tuple(n for n in bands if bands[n] in edges.values()),
        small_groups={c.name: dict(c.small) for c in columns if c.small},
        floor=floor.mean,
        floor_high=floor.high,
        rates=tuple(
            ComparedRates(table.attribute, table.groups, rate.tolist(), size.tolist())
            for table, rate, size in zip(tables, *compared, strict=True)
        ),
        promises=getattr(estimator, "promises", ()),
        people=People(
            labels.n_samples,
            sensitive_features,
            bands,
            tuple(map(str, labels.classes)),
            decision,
            labels.y,
            soft,
        ),
    )


def _audit_frame(*asked: Any) -> Audit:
    # Late, because an audit of counts is made by the one of rows.
    from fferm.auditing.counts import audit_frame

    return audit_frame(*asked)


def _audit_numbers(
    *rows: Any, divergence: Any, n_bootstrap: int, random_state: Any, **options: Any
) -> Audit:
    from fferm.auditing.regression import audit_regression

    if divergence is not None:
        raise InvalidParameterError(
            "divergence is for audits of classes; these predictions are numbers."
        )
    options["random_state"] = random_state if isinstance(random_state, int) else 0
    return audit_regression(*rows, n_bootstrap=min(n_bootstrap, 200), **options)


def _warn_of_unknown(labels: Labels, known: list[object]) -> None:
    seen = np.array(labels.classes, dtype=object)
    present = seen[:0] if labels.y is None else seen[np.unique(labels.y)]
    unknown = set(present.tolist()) - set(known)
    if unknown and known:
        expected = [label for label in labels.classes if label in known]
        warn_user(
            f"y contains {', '.join(sorted(map(repr, unknown)))}, which the model does "
            "not know and cannot predict; its classes are "
            f"{', '.join(map(repr, expected))}. Check the spelling, or "
            "drop these rows: here each of them counts as a wrong decision.",
            DataFairnessWarning,
        )


def _warn_of_small(
    tabulator: Tabulator, tables: Sequence[RateTable], decision: IntArray
) -> None:
    # The same tables with weight 1 everywhere hold the numbers of rows.
    is_counted = (tabulator.rows.weight > 0) * np.float64(tabulator.rows.count)
    counting = replace(tabulator, rows=replace(tabulator.rows, weight=is_counted))
    small, is_worth_less = [], False
    for table, counts in zip(tables, counting.tables(decision), strict=True):
        size, count = table.size, counts.mass.sum(axis=1)
        for r, k in np.argwhere((size > 0) & (size < SMALL_GROUP)):
            rows = f"{count[r, k]:.0f} rows"
            if not math.isclose(count[r, k], size[r, k], rel_tol=1e-9):
                rows += f", as good as {size[r, k]:.3g} without weights"
                is_worth_less = True
            small.append(f"{table.groups[k]} ({rows}, {table.strata[r]})")
    if small:
        shown = ", ".join(small[:8])
        shown += f" and {len(small) - 8} more" if len(small) > 8 else ""
        few = "whose rows are worth fewer than" if is_worth_less else "with fewer than"
        warn_user(
            f"Groups {few} {SMALL_GROUP} rows: {shown}. Their rates are unreliable; "
            "read the intervals, merge groups or collect more rows.",
            SmallGroupWarning,
        )


def _groups(
    tabulator: Tabulator, decision: IntArray, prob: FloatArray | None, confidence: float
) -> dict[str, dict[str, float]]:
    table: Any = tabulator.group_table(decision, prob)
    size, quantile = table["size"].to_numpy(), intervals.two_sided(confidence)
    for label in tabulator.labels.classes:
        rate = table[f"selection_rate_{label}"].to_numpy()
        limits = intervals.wilson_limits(rate, size, quantile)
        table[f"selection_low_{label}"], table[f"selection_high_{label}"] = limits
    return {str(group): dict(row) for group, row in table.to_dict("index").items()}


def _measure(
    tabulator: Tabulator,
    predicted: Predicted | None,
    tables: Sequence[RateTable],
    chosen: Divergence,
    confidence: float,
    drawn: dict[str, Any],
) -> tuple[dict[str, tuple[float, float]], dict[str, float], Interval | None]:
    # By divergence: its value as training adds it up, the largest that there can be;
    # and the largest violation that it allows in any stratum. The chosen divergence
    # comes first, by its name if that says all of it. Then the bootstrap interval.
    interval = None
    if drawn["n_bootstrap"] and predicted is not None:
        sample = intervals.bootstrap_sample(tabulator, predicted)
        interval = intervals.bootstrap_interval(sample, confidence, **drawn)
    standard = {name: Divergence.resolve(name) for name in STANDARD}
    is_named = standard.get(chosen.name) == chosen
    divergences = {chosen.name if is_named else repr(chosen): chosen} | standard
    if not any(table.is_judged.any() for table in tables):
        return dict.fromkeys(divergences, (math.nan, math.nan)), {}, interval
    weighting = tabulator.notion.weighting
    values, bounds = {}, {}
    for name, divergence in divergences.items():
        value = largest = bound = 0.0
        for table in tables:
            whole = table.total if weighting == "probability" else table.mass.sum()
            for mass in table.mass[table.is_judged]:
                weight = 1.0 if weighting == "unit" else float(mass.sum() / whole)
                between, prior = divergence.between(mass), mass.sum(axis=0)
                value += weight * between
                largest += weight * divergence.largest(prior / mass.sum())
                # It holds for any table of two variables, so also for labels by group
                # given a prediction.
                bound = max(bound, violation_bound(between, prior, divergence))
        values[name], bounds[name] = (value, largest), bound
    return values, bounds, interval
