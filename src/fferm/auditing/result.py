"""The outcome of an audit, and how it is read."""

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from fferm.errors import InvalidParameterError
from fferm.metrics import Absence, Gap
from fferm.metrics.intervals import Interval
from fferm.metrics.tabulator import left_out

# What the table by group says of each class.
CLASS_COLUMNS = (
    "base_rate",
    "selection_rate",
    "soft_rate",
    "selection_low",
    "selection_high",
)


class DivergenceValue(NamedTuple):
    """A divergence of decisions, of probabilities, and of the largest there can be."""

    hard: float
    soft: float | None
    share_of_largest: float


@dataclass(frozen=True)
class Asked:
    """What an audit was asked, as code: enough to ask it again.

    Attributes
    ----------
    notion, divergence
        The instances that were used, as Python.
    is_behind_pipeline
        Whether the control feature is a column of what a pipeline's transformers
        return; then only the model's own notion finds it.
    groups, n_bootstrap
        As given, or found in the estimator.
    random_state
        The seed; None where a generator was given.
    is_weighted
        Whether there were sample weights.
    imports, notes
        The lines that the code needs, and comments on the names in it that only the
        caller can fill in.
    """

    notion: str
    is_behind_pipeline: bool
    divergence: str
    groups: str
    n_bootstrap: int
    random_state: int | None
    is_weighted: bool
    imports: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, repr=False)
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
    unjudged
        By attribute, the number of rows without a value; these are in no group. Empty
        where every row has one.
    divergences
        By name: of decisions, of probabilities, and the former as a share of the
        largest that the group weights allow (NaN where that is infinite).
    certificates, soft_certificates
        By divergence: the violation that its value implies at most, whatever the
        table, for decisions and for probabilities.
    asked
        What the audit was asked, to repeat it.
    bands
        The sensitive columns that hold many fractional numbers, and into how many
        bands of like many rows these were cut.
    trained_bands
        Those of them whose bands are those of the model's training.
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
    asked: Asked
    bands: dict[str, int] = field(default_factory=dict)
    trained_bands: tuple[str, ...] = ()

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
        is_number = isinstance(max_violation, Real)
        if (
            not is_number
            or isinstance(max_violation, bool | np.bool_)
            or not (0 <= max_violation <= 1)
        ):
            raise InvalidParameterError(
                f"max_violation={max_violation!r} came. Expected a difference of "
                "rates, a number between 0 and 1. Give for example 0.05."
            )
        measured = self.interval[1] if confident else self.violation
        return bool(measured <= max_violation)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it for JSON: undefined is None, infinite is ``"inf"``."""
        plain = asdict(self)
        plain["divergences"] = {
            name: value._asdict() for name, value in self.divergences.items()
        }
        return {name: json_ready(value) for name, value in plain.items()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Return the audit that `to_dict` turned into plain values.

        Parameters
        ----------
        plain
            What `to_dict` returned, as it is or back from JSON.
        """
        from fferm.auditing.reading import read_audit

        return cls(**read_audit(plain))

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        max_violation: float | None = None,
        before: "Audit | None" = None,
    ) -> None:
        """Write a report that needs nothing but a browser.

        Parameters
        ----------
        path
            Where to write; an existing file is replaced.
        title
            The heading of the page; name the model and the data here.
        max_violation
            The bound to hold the audit against.
        before
            The audit, on the same rows, of the model that this one takes the place
            of; the page then says what changed for whom.
        """
        # Late, for the report stands above audits and needs an extra.
        from fferm.report import write_audit

        write_audit(self, path, title=title, max_violation=max_violation, before=before)

    @property
    def banded(self) -> tuple[str, ...]:
        """Sentences on columns of numbers that were cut into bands."""
        return tuple(
            f"{name} holds numbers and is compared in the {count} bands of training."
            if name in self.trained_bands
            else f"{name} holds numbers and was cut into {count} bands of like many "
            "rows of this audit."
            for name, count in self.bands.items()
        )

    @property
    def left_out(self) -> tuple[str, ...]:
        """Sentences on what the violation does not speak of; empty if on everyone."""
        rows = (left_out(*item, self.n_rows) for item in self.unjudged.items())
        return (*rows, *map(str, self.absent))

    def _short_frame(self) -> pd.DataFrame:
        # Of two classes the rates of one say all.
        hidden = ["size", "precision"]
        if len(self.classes) == 2:
            hidden += [f"{name}_{self.classes[0]}" for name in CLASS_COLUMNS]
        return self.frame.drop(columns=hidden, errors="ignore")

    def __repr__(self) -> str:
        """Return one line."""
        return (
            f"Audit({self.n_rows} rows, {self.notion}, violation "
            f"{_number(self.violation)}, {100 * self.confidence:g} % interval "
            f"{_interval(self.interval)})"
        )

    def _repr_html_(self) -> str:
        """Return a compact table, for notebooks."""
        summary = (
            f"Audit of {self.n_rows} rows, {self.notion}: violation "
            f"{_number(self.violation)}, {100 * self.confidence:g} % interval "
            f"{_interval(self.interval)}"
        )
        shown = self._short_frame().filter(regex="^(count|share|.*_rate_.*)$")
        table = shown.rename_axis(None).to_html(
            float_format=_number, na_rep="undefined", border=0
        )
        lines = [summary, *self.banded, *self.left_out]
        return "".join(f"<p>{escape(line)}</p>" for line in lines) + table

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
        if self.banded:
            lines += ["", *self.banded]
        if self.left_out:
            lines += ["", "Not judged:", *(f"  {line}" for line in self.left_out)]
        return "\n".join(lines)


def json_ready(value: Any) -> Any:
    """Return a value for JSON: undefined is None, infinite is ``"inf"``."""
    if isinstance(value, dict):
        return {str(key): json_ready(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [json_ready(part) for part in value]
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
