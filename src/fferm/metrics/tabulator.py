"""From predictions to tables of rates by group, and from tables to violations.

A `Tabulator` holds all that a comparison needs but the predictions: groups, strata,
labels and weights. Given predictions it makes one `RateTable` per sensitive attribute,
and reads the gaps between groups off it.

Undefined is never fair: a group without rows in a stratum is left out by name, and
where fewer than two remain everywhere the violation is NaN.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.groups import DEFAULT_BINNING, Binning, GroupMode, encode_sensitive
from fferm.data.rows import CellIndex, Rows, add_control, small_groups
from fferm.data.validate import encode_weight, one_hot, rescaled
from fferm.errors import (
    EmptyStratumWarning,
    InvalidInputError,
    MissingGroupWarning,
    warn_user,
)
from fferm.notions import Comparison, Labels, Measure, Notion

BoolArray: TypeAlias = NDArray[np.bool_]
# What the table by group says of the labels, decisions and probabilities of a class.
CLASS_RATES = ("base_rate", "selection_rate", "soft_rate")
# What messages call the feature that a notion conditions on.
CONTROL = "the control feature"
# Codes of decisions, or probabilities of the classes.
Predicted: TypeAlias = IntArray | FloatArray


@dataclass(frozen=True)
class Gap:
    """The largest difference of one outcome's rates between two groups."""

    attribute: str
    stratum: str
    outcome: str
    gap: float
    lowest_group: str
    highest_group: str
    lowest_rate: float = math.nan
    highest_rate: float = math.nan

    @property
    def ratio(self) -> float:
        """The lowest rate over the highest; NaN if both are 0."""
        return self.lowest_rate / self.highest_rate if self.highest_rate else math.nan


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
    """The gaps of all strata and outcomes of a notion.

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


@dataclass(frozen=True)
class RateTable:
    """Weights of one attribute by stratum, outcome and group.

    Attributes
    ----------
    attribute, groups, strata, outcomes
        What the table and its axes are called.
    mass
        (n_strata, n_outcomes, n_groups) sums of weights.
    squares
        Returns the (n_strata, n_groups) sums of squared weights, which only intervals
        need.
    total
        The weight of all rows whose group is known.
    """

    attribute: str
    groups: tuple[str, ...]
    strata: tuple[str, ...]
    outcomes: tuple[str, ...]
    mass: FloatArray
    squares: Callable[[], FloatArray]
    total: float

    @functools.cached_property
    def rate(self) -> FloatArray:
        """(n_strata, n_outcomes, n_groups) rates, NaN where a group is absent."""
        return rates_of(self.mass)

    @property
    def size(self) -> FloatArray:
        """(n_strata, n_groups) effective numbers of rows, ``(sum w)^2 / sum w^2``."""
        square = self.squares()
        return np.asarray(self.mass.sum(axis=1) ** 2 / np.where(square > 0, square, 1))

    @functools.cached_property
    def is_judged(self) -> BoolArray:
        """(n_strata,) whether at least two groups are present."""
        return np.asarray((self.mass.sum(axis=1) > 0).sum(axis=1) >= 2)

    def absences(self) -> Iterator[Absence]:
        """Yield the groups that have no rows in a stratum."""
        for stratum, weights in zip(self.strata, self.mass.sum(axis=1), strict=True):
            absent = tuple(self.groups[k] for k in np.flatnonzero(weights <= 0))
            is_judged = len(self.groups) - len(absent) >= 2
            if absent or not is_judged:
                reason = "fewer than two groups have rows; the stratum is left out"
                if is_judged:
                    reason = "no rows with a positive weight"
                yield Absence(self.attribute, stratum, absent, reason)


def rates_of(mass: FloatArray) -> FloatArray:
    """Return the shares of outcomes within (..., outcomes, groups) weights."""
    total = mass.sum(axis=-2, keepdims=True)
    return np.where(total > 0, mass / np.where(total > 0, total, 1.0), np.nan)


def distances_of(mass: FloatArray, measure: Measure = "difference") -> FloatArray:
    """Return how far rates of groups are apart, from (..., outcomes, groups) weights.

    NaN where fewer than two groups are present. A rate of 0 everywhere has no ratio
    and counts as equal.
    """
    rate = rates_of(mass)
    lowest, highest = np.fmin.reduce(rate, axis=-1), np.fmax.reduce(rate, axis=-1)
    gap, whole = highest - lowest, np.ones_like(highest)
    if measure == "ratio":
        whole = highest
    elif measure == "deviation":
        whole = rates_of(mass.sum(axis=-1, keepdims=True))[..., 0]
        gap = np.maximum(highest - whole, whole - lowest)
    gap = np.where(highest > 0, gap, 0.0) / np.where(highest > 0, whole, 1.0)
    return np.where(np.sum(~np.isnan(rate), axis=-1) >= 2, gap, np.nan)


def worst_violation(
    masses: Iterable[FloatArray], measure: Measure = "difference"
) -> float:
    """Return the violation of (strata, outcomes, groups) weights, one per attribute.

    The same as `Violations.worst`, without names; NaN if nothing can be judged. Ratios
    and deviations are those of the larger of two classes, or of every class.
    """
    worst = math.nan
    for mass in masses:
        gap = distances_of(mass, measure)
        if measure != "difference" and gap.shape[-1] == 2:
            gap = gap[..., 1:]
        worst = np.fmax(worst, np.fmax.reduce(gap, axis=None))
    return float(worst)


def compared(rate: FloatArray) -> FloatArray:
    """Return (..., strata, outcomes, groups) rates as (..., comparisons, groups).

    With two outcomes only one is kept: both have the same gap.
    """
    kept = rate[..., 1:, :] if rate.shape[-2] == 2 else rate
    return kept.reshape(*rate.shape[:-3], -1, rate.shape[-1])


@dataclass(frozen=True)
class Tabulator:
    """Groups, strata, labels and weights: all of a comparison but the predictions."""

    rows: Rows
    notion: Notion
    labels: Labels

    @property
    def unjudged(self) -> dict[str, int]:
        """The number of rows without a value, by attribute, where there are any."""
        names, missing = [], []
        for attribute in self.rows.attributes:
            names.append(attribute.name)
            n_small = sum(attribute.small.values())
            n_missing = int(np.sum((attribute.code < 0) * self.rows.count))
            missing.append(n_missing - n_small)
        if self.labels.control is not None:
            names.append(CONTROL)
            missing.append(int(np.sum((self.labels.control < 0) * self.rows.count)))
        pairs = zip(distinct(names), missing, strict=True)
        return {name: n for name, n in pairs if n > 0}

    def violations(self, predicted: Predicted, *, warn: bool = False) -> Violations:
        """Return the gaps of decisions or probabilities, as in `tables`.

        With ``warn``, warn of groups and strata that are left out.
        """
        tables, gaps = self.tables(predicted), []
        for table in tables:
            # An absent group has the rate NaN, and is neither lowest nor highest.
            is_absent, gap = np.isnan(table.rate), distances_of(table.mass)
            lowest = np.where(is_absent, np.inf, table.rate).argmin(axis=2)
            highest = np.where(is_absent, -np.inf, table.rate).argmax(axis=2)
            for r in map(int, np.flatnonzero(table.is_judged)):
                for j, outcome in enumerate(table.outcomes):
                    low, high = int(lowest[r, j]), int(highest[r, j])
                    names = table.attribute, table.strata[r], outcome
                    groups = table.groups[low], table.groups[high]
                    rates = table.rate[r, j, [low, high]].tolist()
                    gaps.append(Gap(*names, float(gap[r, j]), *groups, *rates))
        absent = tuple(absence for table in tables for absence in table.absences())
        if warn and absent:
            warn_user(
                f"Not judged under {self.notion.name}: {'; '.join(map(str, absent))}. "
                "The violation is that of the rest.",
                EmptyStratumWarning,
            )
        return Violations(tuple(gaps), absent)

    def tables(
        self, predicted: Predicted, masses: list[FloatArray] | None = None
    ) -> tuple[RateTable, ...]:
        """Return the table of each attribute.

        Parameters
        ----------
        predicted
            (n_samples,) codes of decisions, or (n_samples, n_classes) probabilities.
        masses
            What `masses` returns for them, if it is known already.
        """
        compared, tables = self.comparison, []
        axes = compared.kept_conditions, compared.outcomes
        sums = self.masses(predicted) if masses is None else masses
        columns = zip(self.rows.attributes, self.rows.cells, sums, strict=True)
        for attribute, index, mass in columns:
            names = attribute.name, attribute.groups, *axes
            squares = functools.partial(self._squares, predicted, index)
            table = RateTable(*names, compared.tables(mass), squares, index.total)
            tables.append(table)
        return tuple(tables)

    def masses(self, predicted: Predicted) -> list[FloatArray]:
        """Return the (strata, classes, groups) weights of each attribute."""
        n = len(self.labels.classes)
        return [cell.table(predicted, cell.weight, n) for cell in self.rows.cells]

    @functools.cached_property
    def comparison(self) -> Comparison:
        """What the notion compares."""
        return self.notion.comparison(self.rows.strata.names, self.labels.classes)

    def _squares(self, predicted: Predicted, index: CellIndex) -> FloatArray:
        # The square of a decision, 0 or 1 for each class, is the decision itself.
        is_hard = predicted.ndim == 1
        if is_hard and self.notion.compares_predictions:
            return index.squares
        squared = predicted if is_hard else predicted**2
        square = index.weight**2 if index.square is None else index.square
        table = index.table(squared, square, len(self.labels.classes))
        return np.asarray(self.comparison.tables(table).sum(axis=1))

    def group_table(
        self, decision: IntArray, prob: FloatArray | None = None
    ) -> pd.DataFrame:
        """Return counts and rates of each group, as `fferm.metrics.group_table` does.

        Probabilities add ``soft_rate_*``.
        """
        labels, everyone, frames = self.labels, np.ones(decision.size), []
        count = np.broadcast_to(self.rows.count, decision.size)
        squares = self.rows.square
        chosen = one_hot(decision, len(labels.classes))
        y = np.full_like(chosen, np.nan)
        if labels.y is not None:
            y = one_hot(labels.y, len(labels.classes))
        # For each rate, what is averaged, and which rows count (1) or not (0).
        rates = {
            f"{name}_{label}": (values[:, j], everyone)
            for name, values in zip(CLASS_RATES, (y, chosen, prob), strict=True)
            if values is not None
            for j, label in enumerate(labels.classes)
        }
        rates["accuracy"] = np.sum(y * chosen, axis=1), everyone
        if len(labels.classes) == 2 and labels.y is not None:
            rates["true_positive_rate"] = chosen[:, 1], y[:, 1]
            rates["false_positive_rate"] = chosen[:, 1], y[:, 0]
            rates["precision"] = y[:, 1], chosen[:, 1]
        for attribute in self.rows.attributes:
            known, n_groups = attribute.code >= 0, len(attribute.groups)
            code, weight = attribute.code[known], self.rows.weight[known]
            add = functools.partial(np.bincount, code, minlength=n_groups)
            total = add(weight)
            square = add(weight**2 if squares is None else squares[known])
            columns = {
                "count": add(count[known]).astype(np.int64),
                "share": total / total.sum(),
                "size": total**2 / np.where(square > 0, square, 1.0),
            }
            with np.errstate(invalid="ignore"):  # 0 / 0 is an undefined rate
                for name, (values, is_counted) in rates.items():
                    part = weight * is_counted[known]
                    columns[name] = add(part * values[known]) / add(part)
            frames.append(pd.DataFrame(columns))
        names = list(self.rows.group_names)
        quoted = (f"{a.name!r}={g!r}" for a in self.rows.attributes for g in a.groups)
        # "a=b=c" may be b=c of a, or c of a=b.
        clear = [
            long if names.count(name) > 1 else name
            for name, long in zip(names, quoted, strict=True)
        ]
        return pd.concat(frames).set_axis(pd.Index(distinct(clear), name="group"))


def make_tabulator(
    labels: Labels,
    notion: Notion,
    sensitive_features: Table,
    groups: GroupMode,
    sample_weight: Table,
    X: Table = None,
    binning: Binning = DEFAULT_BINNING,
) -> Tabulator:
    """Return labels, groups and weights encoded for a notion."""
    if labels.y is None and notion.needs_labels:
        raise InvalidInputError(
            f"{notion.name} conditions on the label, and there are no labels. Pass "
            "y_true, or use demographic_parity."
        )
    needs_two = None in (getattr(notion, name, 0) for name in ("positive", "negative"))
    if needs_two and len(labels.classes) == 1:
        raise InvalidInputError(
            f"Every label and prediction is {labels.classes[0]!r}, so it is unknown "
            f"which class is positive. {notion.name} needs rows of two classes."
        )
    n, is_batch = labels.n_samples, not isinstance(binning.count, int)
    labels = add_control(labels, notion, X, is_batch=is_batch)
    attributes = encode_sensitive(sensitive_features, n, groups, binning)
    weight = rescaled(encode_weight(sample_weight, n))
    tabulator = Tabulator(
        Rows(attributes, notion.strata(labels), weight, binning.count), notion, labels
    )
    n_rows = int(np.sum(np.broadcast_to(binning.count, n)))
    for name, n_missing in tabulator.unjudged.items() if binning.warns else ():
        warn_user(
            f"{left_out(name, n_missing, n_rows)}. They are not judged; fill in the "
            "values, or say how many rows the result leaves out.",
            MissingGroupWarning,
        )
    empty = [attribute.name for attribute in attributes if not attribute.groups]
    small = [small_groups(a.small) for a in attributes if a.small and not a.groups]
    if small:
        raise InvalidInputError(
            f"Every group is smaller than min_group_size: {'; '.join(small)}. Lower it."
        )
    if empty:
        raise InvalidInputError(
            f"No row has a value of {', '.join(empty)}, or every group is smaller than "
            "min_group_size, so there are no groups to compare. Check how "
            "sensitive_features was read, or leave that column out."
        )
    return tabulator


def left_out(name: str, n_missing: int, n_samples: int) -> str:
    """Return how many rows have no value of an attribute, in words."""
    # A row without a control value still counts in the table of its group.
    what = "compared with none" if name == CONTROL else "in no group"
    return f"{n_missing} of {n_samples} rows have no value of {name} and are {what}"


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names with repeated ones numbered."""
    seen: dict[str, None] = {}
    for name in names:
        n, free = 1, name
        while free in seen:
            n, free = n + 1, f"{name} ({n + 1})"
        seen[free] = None
    return list(seen)
