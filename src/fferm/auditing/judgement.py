"""The audit itself: from a fitted classifier and data to an `Audit`."""

import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from fferm._types import FloatArray, IntArray, Table
from fferm.auditing.resampling import bootstrap_sample
from fferm.auditing.result import Audit, DivergenceValue
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
    bootstrap_interval,
    compared,
    violation_interval,
    wilson_interval,
)
from fferm.labels import encode_decisions, encode_prob, one_hot
from fferm.metrics import Setting, judge, make_setting, measure, tabulate_groups
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
