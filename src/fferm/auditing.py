"""Audits: what a fitted classifier does to each group, and how sure one can be.

An audit puts decisions and probabilities side by side, for fairness of one is not
fairness of the other. It gives the violation with two intervals, the divergences of
the same tables and the bounds these imply, and names every group that it could not
judge.
"""

import math
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import pandas as pd
from scipy.sparse import csr_array, hstack

from fferm._types import FloatArray, IntArray, Table
from fferm.certificates import violation_bound
from fferm.components import Component
from fferm.data import SMALL_GROUP, GroupMode
from fferm.divergences import Divergence
from fferm.divergences import get as get_divergence
from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
    SmallGroupWarning,
)
from fferm.intervals import (
    Interval,
    RateTable,
    Sample,
    bootstrap_interval,
    compared,
    rates_of,
    violation_interval,
    wilson_interval,
)
from fferm.metrics import (
    Absence,
    Gap,
    Setting,
    encode_decisions,
    encode_prob,
    judge,
    make_setting,
    measure,
    one_hot,
    tabulate_groups,
)
from fferm.notions import Notion
from fferm.notions import get as get_notion

C = TypeVar("C", bound=Component)

PLAIN_DIVERGENCES = (
    "chi2",
    "kl",
    "reverse_kl",
    "total_variation",
    "jensen_shannon",
    "squared_hellinger",
)


class DivergenceValue(NamedTuple):
    """A divergence of decisions, of probabilities, and of the largest there can be."""

    hard: float
    soft: float | None
    share_of_largest: float


@dataclass(frozen=True)
class Audit:
    """What a classifier does to each group.

    Attributes
    ----------
    n_rows, accuracy
        Rows, and the (weighted) share of right decisions; NaN without labels.
    classes
        The labels; of two the second is the positive one.
    notion, divergence
        The names of the notion and of the divergence in question.
    confidence
        The level of all intervals.
    violation, interval, bootstrap_interval
        The largest gap between groups in decisions; its closed-form interval and its
        bootstrap interval (None where none was asked for).
    soft_violation, soft_interval
        The same for probabilities, by bootstrap; None without probabilities.
    gaps
        The gap of each stratum and class, of decisions.
    groups
        By group: count, share, effective size, rates of labels, decisions and
        probabilities, Wilson intervals of the decision rates, accuracy and, for two
        classes, error rates. NaN is undefined.
    absent
        Groups and strata that could not be judged, and why.
    divergences
        By name: of decisions, of probabilities, and the former as a share of the
        largest that the group weights allow (NaN where that is infinite).
    certificates, soft_certificates
        By divergence: the violation that its value implies at most, whatever the
        table, for decisions and for probabilities.
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
    divergences: dict[str, DivergenceValue]
    certificates: dict[str, float]
    soft_certificates: dict[str, float]

    @property
    def frame(self) -> pd.DataFrame:
        """The groups as a data frame, one row each."""
        table = pd.DataFrame.from_dict(self.groups, orient="index")
        table.index.name = "group"
        return table.astype({"count": np.int64})

    def passes(self, max_violation: float, *, confident: bool = False) -> bool:
        """Return whether decisions keep a bound.

        Parameters
        ----------
        max_violation
            The bound, between 0 and 1.
        confident
            Whether the upper end of the interval has to keep it too: only then are
            few rows no excuse.

        Returns
        -------
        bool
            False where the violation is undefined.
        """
        if not 0 <= max_violation <= 1:
            raise InvalidParameterError(
                f"max_violation={max_violation!r} came. Expected a difference of "
                "rates, between 0 and 1."
            )
        measured = self.interval[1] if confident else self.violation
        return bool(measured <= max_violation)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it for JSON: undefined is None, infinite is ``"inf"``."""
        plain = asdict(self)
        plain["divergences"] = {
            name: value._asdict() for name, value in self.divergences.items()
        }
        return {name: _json_ready(value) for name, value in plain.items()}

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a report that needs nothing but a browser."""
        # Late, for the report stands above audits and needs an extra.
        from fferm.report import write_audit  # type: ignore[attr-defined,unused-ignore]

        write_audit(self, path)

    def _short_frame(self) -> pd.DataFrame:
        # Of two classes the rates of one say all.
        table = self.frame.drop(columns=["size", "precision"], errors="ignore")
        if len(self.classes) != 2:
            return table
        redundant = [
            name for name in table.columns if name.endswith(f"_{self.classes[0]}")
        ]
        return table.drop(columns=redundant)

    def __str__(self) -> str:
        level = f"{100 * self.confidence:g} %"
        lines = [
            f"Audit of {self.n_rows} rows, {self.notion}",
            f"  accuracy        {_number(self.accuracy)}",
            f"  violation       {_number(self.violation)}"
            f"   {level} interval {_interval(self.interval)}, "
            f"bootstrap {_interval(self.bootstrap_interval)}",
            f"  in probability  {_number(self.soft_violation)}"
            f"   {level} bootstrap interval {_interval(self.soft_interval)}",
            f"  {self.divergence:<15} {_number(self.divergences[self.divergence].hard)}"
            f"   implies a violation of at most "
            f"{_number(self.certificates.get(self.divergence))}",
            "",
            self._short_frame().to_string(float_format=_number, na_rep="undefined"),
        ]
        if self.absent:
            lines += ["", "Not judged:", *(f"  {absence}" for absence in self.absent)]
        return "\n".join(lines)


def audit(  # noqa: PLR0913 - one call states all that an audit depends on
    estimator: Any,
    X: Table,
    y: Table,
    *,
    sensitive_features: Table,
    notion: str | Notion | None = None,
    groups: GroupMode | None = None,
    confidence: float = 0.95,
    divergence: str | Divergence | None = None,
    n_bootstrap: int = 1000,
    random_state: int | np.random.Generator = 0,
    sample_weight: Table = None,
) -> Audit:
    """Return what a fitted classifier does to each group.

    Parameters
    ----------
    estimator
        Any fitted scikit-learn classifier or pipeline. Probabilities are judged where
        it has ``predict_proba``.
    X
        (n_samples, n_features) data to predict on; best held out.
    y
        (n_samples,) labels; None is enough for demographic parity.
    sensitive_features
        As in `fferm.metrics.violation`.
    notion, groups, divergence
        By default what the estimator was trained with, else demographic parity,
        intersections and ``kl``.
    confidence
        The level of the intervals.
    n_bootstrap
        The number of draws of the bootstrap intervals; 0 for none.
    random_state
        Seed or generator of the bootstrap.
    sample_weight
        (n_samples,) non-negative weights.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> X, y, s = np.zeros((40, 1)), [0, 1] * 20, ["a"] * 20 + ["b"] * 20
    >>> model = DummyClassifier(strategy="prior").fit(X, y)
    >>> audit(model, X, y, sensitive_features=s).passes(0.02)
    True
    """
    _check_rows(estimator, X, y)
    known = list(getattr(estimator, "classes_", ()))
    labels, decision = encode_decisions(y, estimator.predict(X), known)
    kind = _resolved(estimator, "notion", notion, get_notion, "demographic_parity")
    mode = _mode(estimator, groups)
    setting = make_setting(labels, kind, sensitive_features, mode, sample_weight, X)
    hard = one_hot(decision, len(labels.classes))
    soft = _probabilities(estimator, X, known, labels.classes)
    found, tables = judge(setting, hard), setting.tables(hard)
    soft_tables = () if soft is None else setting.tables(soft)
    _warn_of_small(tables)
    draws = _Draws(n_bootstrap, np.random.default_rng(random_state), confidence)
    chosen = _resolved(estimator, "divergence", divergence, get_divergence, "kl")
    divergences = _named(chosen)
    return Audit(
        n_rows=labels.n_samples,
        accuracy=_accuracy(setting, decision),
        classes=tuple(map(str, labels.classes)),
        notion=kind.name,
        divergence=next(iter(divergences)),
        confidence=confidence,
        violation=found.worst,
        interval=_closed_interval(tables, confidence),
        bootstrap_interval=draws.interval(setting, hard, decision),
        soft_violation=None if soft is None else measure(setting, soft).worst,
        soft_interval=None if soft is None else draws.interval(setting, soft),
        gaps=found.gaps,
        groups=_groups(setting, decision, soft, confidence),
        absent=found.absent,
        divergences=_divergences(setting, tables, soft_tables, divergences),
        certificates=_certificates(tables, divergences),
        soft_certificates=_certificates(soft_tables, divergences),
    )


@dataclass(frozen=True)
class _Draws:
    # How to bootstrap.
    n: int
    rng: np.random.Generator
    confidence: float

    def interval(
        self, setting: Setting, prob: FloatArray, decision: IntArray | None = None
    ) -> Interval | None:
        if self.n == 0:
            return None
        return bootstrap_interval(
            bootstrap_sample(setting, prob, decision),
            self.confidence,
            n_bootstrap=self.n,
            random_state=self.rng,
        )


def _check_rows(estimator: Any, X: Table, y: Table) -> None:
    if not hasattr(estimator, "predict"):
        raise InvalidTypeError(
            f"{type(estimator).__name__} has no predict. Expected a fitted classifier "
            "or a pipeline that ends in one."
        )
    n_samples = X.shape[0] if hasattr(X, "shape") else len(X)
    n_labels = n_samples if y is None else len(y)
    if n_samples == 0 or n_samples != n_labels:
        raise InvalidInputError(
            f"X has {n_samples} rows, y has {n_labels}. Expected the same number, at "
            "least one: an audit needs rows to judge by."
        )


def _probabilities(
    estimator: Any, X: Table, known: list[object], classes: tuple[object, ...]
) -> FloatArray | None:
    if not hasattr(estimator, "predict_proba") or not known:
        return None
    prob = encode_prob(estimator.predict_proba(X), len(known))
    wide = np.zeros((len(prob), len(classes)))
    # A label that training did not have is never predicted: its column stays 0.
    wide[:, [classes.index(label) for label in known]] = prob
    return wide


def _resolved(
    estimator: Any, name: str, given: object, get: Callable[[Any], C], default: str
) -> C:
    if given is not None:
        return get(given)
    with suppress(InvalidParameterError):  # another library's parameter of that name
        return get(_own_parameter(estimator, name))
    return get(default)


def _mode(estimator: Any, groups: GroupMode | None) -> GroupMode:
    mode = _own_parameter(estimator, "groups") if groups is None else groups
    if groups is None and mode not in ("intersection", "marginal"):
        return "intersection"
    return cast(GroupMode, mode)


def _own_parameter(estimator: Any, name: str) -> Any:
    # A search holds its winner, a pipeline its steps; of several the outermost counts.
    fitted = getattr(estimator, "best_estimator_", estimator)
    parameters: Mapping[str, Any] = {}
    with suppress(AttributeError, RuntimeError, TypeError):
        parameters = fitted.get_params()
    keys = [key for key in parameters if f"__{key}".endswith(f"__{name}")]
    return parameters[min(keys, key=len)] if keys else None


def _accuracy(setting: Setting, decision: IntArray) -> float:
    if setting.labels.y is None:
        return math.nan
    weight = setting.rows.weight
    return float(weight @ (setting.labels.y == decision) / weight.sum())


def _warn_of_small(tables: tuple[RateTable, ...]) -> None:
    small = [
        f"{table.groups[k]} ({table.size[r, k]:.3g} rows, {table.strata[r]})"
        for table in tables
        for r, k in np.argwhere((table.size > 0) & (table.size < SMALL_GROUP))
    ]
    if small:
        shown = ", ".join(small[:8]) + (", ..." if len(small) > 8 else "")
        warnings.warn(
            f"Groups with fewer than {SMALL_GROUP} rows: {shown}. Their rates are "
            "guesses; read the intervals, merge groups or gather more rows.",
            SmallGroupWarning,
            stacklevel=3,
        )


def _closed_interval(tables: tuple[RateTable, ...], confidence: float) -> Interval:
    rates = [table.rate for table in tables]
    sizes = [
        np.broadcast_to(table.size[:, None], rate.shape)
        for table, rate in zip(tables, rates, strict=True)
    ]
    return violation_interval(
        [compared(rate) for rate in rates],
        [compared(size) for size in sizes],
        confidence,
    )


def bootstrap_sample(
    setting: Setting, prob: FloatArray, decision: IntArray | None = None
) -> Sample:
    """Return what to draw from; kinds of rows where decisions are given, else rows."""
    weight, attributes = setting.rows.weight, setting.rows.attributes
    cells = [setting.cells(attribute) for attribute in attributes]
    first, count = np.arange(len(prob)), np.ones(len(prob), dtype=np.int64)
    if decision is not None:
        code = np.unique(weight, return_inverse=True)[1]
        for column in (decision, *cells):
            code = code * (column.max() + 2) + column + 1
        _, first, count = np.unique(code, return_index=True, return_counts=True)
    n_strata, n_classes = len(setting.rows.strata.names), prob.shape[1]
    shapes = [(n_strata, n_classes, len(a.groups)) for a in attributes]
    part = weight[first, None] * prob[first]
    totals = csr_array(
        hstack(
            [
                _cell_totals(part, cell[first], shape)
                for cell, shape in zip(cells, shapes, strict=True)
            ]
        )
    )
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]

    def split(table: FloatArray) -> list[FloatArray]:
        return [
            block.reshape(-1, *shape)
            for block, shape in zip(np.split(table, ends, axis=1), shapes, strict=True)
        ]

    def rates(table: FloatArray) -> list[FloatArray]:
        return [compared(rates_of(setting.orient(block))) for block in split(table)]

    outcome = -3 if setting.notion.is_sufficiency else -2
    is_present = [
        np.broadcast_to(block.sum(axis=outcome, keepdims=True) > 0, block.shape).ravel()
        for block in split((count @ totals)[None])
    ]
    return Sample(count, totals, np.concatenate(is_present), rates, weight.mean())


def _cell_totals(
    part: FloatArray, cell: IntArray, shape: tuple[int, int, int]
) -> csr_array:
    n_classes, n_groups = shape[1:]
    row, j = np.nonzero((part > 0) & (cell >= 0)[:, None])
    column = (cell[row] // n_groups * n_classes + j) * n_groups + cell[row] % n_groups
    return csr_array((part[row, j], (row, column)), shape=(len(part), math.prod(shape)))


def _groups(
    setting: Setting, decision: IntArray, prob: FloatArray | None, confidence: float
) -> dict[str, dict[str, float]]:
    table = tabulate_groups(setting, decision, prob)
    for label in setting.labels.classes:
        limits = [
            wilson_interval(rate, size, confidence)
            for rate, size in zip(
                table[f"selection_rate_{label}"], table["size"], strict=True
            )
        ]
        table[f"selection_low_{label}"] = [low for low, _ in limits]
        table[f"selection_high_{label}"] = [high for _, high in limits]
    rows = cast(dict[str, dict[str, float]], table.to_dict("index"))
    return {str(group): row for group, row in rows.items()}


def _named(chosen: Divergence) -> dict[str, Divergence]:
    # The divergence in question first, by its name if that says all of it.
    plain = {name: get_divergence(name) for name in PLAIN_DIVERGENCES}
    name = chosen.name if plain.get(chosen.name) == chosen else repr(chosen)
    return {name: chosen} | plain


def _divergences(
    setting: Setting,
    hard: tuple[RateTable, ...],
    soft: tuple[RateTable, ...],
    divergences: dict[str, Divergence],
) -> dict[str, DivergenceValue]:
    values = {}
    for name, divergence in divergences.items():
        value, largest = _total(setting, hard, divergence)
        share = value / largest if 0 < largest < math.inf else math.nan
        in_soft = _total(setting, soft, divergence)[0] if soft else None
        values[name] = DivergenceValue(value, in_soft, share)
    return values


def _total(
    setting: Setting, tables: tuple[RateTable, ...], divergence: Divergence
) -> tuple[float, float]:
    # The penalty of these tables as training adds it up, and the largest possible.
    is_unit = setting.notion.weighting == "unit" and not setting.notion.is_sufficiency
    parts = [
        (1.0 if is_unit else float(mass.sum() / table.total), mass)
        for table in tables
        for mass in table.mass[table.is_judged]
    ]
    if not parts:
        return math.nan, math.nan
    value = sum(weight * divergence.between(mass) for weight, mass in parts)
    largest = sum(
        weight * divergence.largest(mass.sum(axis=0) / mass.sum())
        for weight, mass in parts
    )
    return value, largest


def _certificates(
    tables: tuple[RateTable, ...], divergences: dict[str, Divergence]
) -> dict[str, float]:
    # The bound speaks of any table of two variables, so also of labels by group
    # given a prediction.
    masses = [mass for table in tables for mass in table.mass[table.is_judged]]
    return {
        name: max(
            violation_bound(divergence.between(mass), mass.sum(axis=0), divergence)
            for mass in masses
        )
        for name, divergence in divergences.items()
        if masses
    }


def _json_ready(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _json_ready(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_json_ready(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return "undefined" if math.isnan(value) else f"{value:.4f}"


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return f"[{_number(interval[0])}, {_number(interval[1])}]"
