"""The audit itself: from a fitted classifier and data to an `Audit`."""

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from sklearn.base import is_regressor

from fferm._typing import FloatArray, IntArray, Table
from fferm.auditing.question import (
    TRANSFORMED,
    Question,
    make_question,
    trained_edges,
)
from fferm.auditing.resampling import bootstrap_sample
from fferm.auditing.result import Asked, Audit, DivergenceValue
from fferm.auditing.spelling import spell, unique
from fferm.data.groups import Binning, GroupMode
from fferm.data.rows import SMALL_GROUP, check_aligned
from fferm.data.validate import encode_decisions, encode_prob, one_hot
from fferm.divergences import Divergence
from fferm.divergences import get as get_divergence
from fferm.errors import (
    DataFairnessWarning,
    InvalidInputError,
    InvalidTypeError,
    SmallGroupWarning,
)
from fferm.metrics.certificates import violation_bound
from fferm.metrics.classification import tabulate_groups
from fferm.metrics.intervals import (
    Interval,
    bootstrap_interval,
    check_draws,
    interval_of_tables,
    wilson_interval,
)
from fferm.metrics.tabulator import RateTable, Tabulator, make_tabulator
from fferm.notions import Labels, Notion

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
        As in `fferm.metrics.violation`. Numbers are compared in the bands that they
        were cut into in training, where the estimator is one of fferm's that was
        fitted with them; else they are cut here, and the audit says so.
    notion, groups, divergence
        By default what the estimator was trained with, else demographic parity,
        intersections and ``kl``. A control feature that is named here is a column of
        ``X``; the estimator's own is a column of what reached the estimator, behind
        the transformers of a pipeline.
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
    check_aligned(
        X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight
    )
    check_draws("n_bootstrap", n_bootstrap, fewest=0)
    known = list(getattr(estimator, "classes_", ()))
    labels, decision = encode_decisions(y, estimator.predict(X), known)
    _warn_of_unknown(labels, known)
    question = make_question(estimator, X, labels.n_samples, notion, groups, divergence)
    edges = trained_edges(estimator)
    setting = make_tabulator(
        labels,
        question.notion,
        sensitive_features,
        question.groups,
        sample_weight,
        question.table,
        Binning(edges=edges),
    )
    hard = one_hot(decision, len(labels.classes))
    soft = _probabilities(estimator, X, known, labels.classes)
    found, tables = setting.violations(decision, warn=True), setting.tables(decision)
    soft_tables = () if soft is None else setting.tables(soft)
    _warn_of_small(setting, decision)
    bands = setting.rows.band_edges
    draws = _Draws(n_bootstrap, np.random.default_rng(random_state), confidence)
    divergences = _named(question.divergence)
    return Audit(
        n_rows=labels.n_samples,
        accuracy=_accuracy(setting, decision),
        classes=tuple(map(str, labels.classes)),
        notion=question.notion.name,
        divergence=next(iter(divergences)),
        confidence=confidence,
        violation=found.worst,
        interval=interval_of_tables(tables, confidence),
        bootstrap_interval=draws.interval(setting, hard, decision),
        soft_violation=None if soft is None else setting.violations(soft).worst,
        soft_interval=None if soft is None else draws.interval(setting, soft),
        gaps=found.gaps,
        groups=_groups(setting, decision, soft, confidence),
        absent=found.absent,
        unjudged=setting.unjudged,
        divergences=_divergences(setting, tables, soft_tables, divergences),
        certificates=_certificates(tables, divergences),
        soft_certificates=_certificates(soft_tables, divergences),
        asked=_asked(question, n_bootstrap, random_state, sample_weight is not None),
        bands={name: len(cut) + 1 for name, cut in bands.items()},
        trained_bands=tuple(name for name in bands if bands[name] in edges.values()),
    )


@dataclass(frozen=True)
class _Draws:
    # How to bootstrap.
    n: int
    rng: np.random.Generator
    confidence: float

    def interval(
        self, setting: Tabulator, prob: FloatArray, decision: IntArray | None = None
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
    if hasattr(estimator, "__sklearn_tags__") and is_regressor(estimator):
        raise InvalidTypeError(
            f"{type(estimator).__name__} predicts numbers. Expected a classifier; "
            "audit a regressor with fferm.audit_regression."
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


def _accuracy(setting: Tabulator, decision: IntArray) -> float:
    if setting.labels.y is None:
        return math.nan
    weight = setting.rows.weight
    return float(weight @ (setting.labels.y == decision) / weight.sum())


def _asked(
    question: Question,
    n_bootstrap: int,
    random_state: int | np.random.Generator,
    is_weighted: bool,
) -> Asked:
    notion = spell(question.notion, "notion")
    divergence = spell(question.divergence, "divergence")
    is_seed = isinstance(random_state, int | np.integer)
    return Asked(
        notion=notion.code,
        is_behind_pipeline=question.looked_in == TRANSFORMED,
        divergence=divergence.code,
        groups=question.groups,
        n_bootstrap=int(n_bootstrap),
        random_state=int(cast(int, random_state)) if is_seed else None,
        is_weighted=is_weighted,
        imports=unique([*notion.imports, *divergence.imports]),
        notes=unique([*notion.notes, *divergence.notes]),
    )


def _warn_of_unknown(labels: Labels, known: list[object]) -> None:
    if labels.y is None or not known:
        return
    present = [labels.classes[j] for j in np.unique(labels.y)]
    unknown = [label for label in present if label not in known]
    if unknown:
        expected = [label for label in labels.classes if label in known]
        warnings.warn(
            f"y holds {_listed(unknown)}, which the model never knew and cannot "
            f"predict. Expected labels among {_listed(expected)}. Check the spelling, "
            "or drop these rows: here every one of them is a wrong decision.",
            DataFairnessWarning,
            stacklevel=3,
        )


def _listed(labels: list[object]) -> str:
    return ", ".join(map(repr, labels))


def _warn_of_small(setting: Tabulator, decision: IntArray) -> None:
    # The same tables with weight 1 everywhere hold the numbers of rows.
    is_counted = (setting.rows.weight > 0).astype(np.float64)
    counting = replace(setting, rows=replace(setting.rows, weight=is_counted))
    small = [
        _Small(table.groups[k], table.strata[r], counts.size[r, k], table.size[r, k])
        for table, counts in zip(
            setting.tables(decision), counting.tables(decision), strict=True
        )
        for r, k in np.argwhere((table.size > 0) & (table.size < SMALL_GROUP))
    ]
    if small:
        shown = ", ".join(map(str, small[:8]))
        shown += f" and {len(small) - 8} more" if len(small) > 8 else ""
        is_worth = any(group.is_weighted for group in small)
        few = "whose rows are worth fewer than" if is_worth else "with fewer than"
        warnings.warn(
            f"Groups {few} {SMALL_GROUP} rows: {shown}. Their rates are guesses; read "
            "the intervals, merge groups or gather more rows.",
            SmallGroupWarning,
            stacklevel=3,
        )


@dataclass(frozen=True)
class _Small:
    # A group of few rows, or of rows that weights make worth few.
    group: str
    stratum: str
    count: float
    size: float

    @property
    def is_weighted(self) -> bool:
        return not math.isclose(self.count, self.size, rel_tol=1e-9)

    def __str__(self) -> str:
        worth = f", as good as {self.size:.3g} without weights"
        rows = f"{self.count:.0f} rows{worth if self.is_weighted else ''}"
        return f"{self.group} ({rows}, {self.stratum})"


def _groups(
    setting: Tabulator, decision: IntArray, prob: FloatArray | None, confidence: float
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
    setting: Tabulator,
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
    setting: Tabulator, tables: tuple[RateTable, ...], divergence: Divergence
) -> tuple[float, float]:
    # The penalty of these tables as training adds it up, and the largest possible.
    weighting = setting.notion.weighting
    parts = []
    for table in tables:
        whole = table.total if weighting == "probability" else table.mass.sum()
        for mass in table.mass[table.is_judged]:
            weight = 1.0 if weighting == "unit" else float(mass.sum() / whole)
            parts.append((weight, mass))
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
