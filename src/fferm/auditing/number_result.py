"""The outcome of a regressor's audit, and how it is read."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from fferm.auditing.number_parts import AskedOfNumbers, ColumnAudit, Measured
from fferm.auditing.result import json_ready
from fferm.errors import InvalidParameterError, PersistenceError
from fferm.metrics.intervals import Interval
from fferm.metrics.tabulator import CONTROL, left_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What the plain values of an audit begin with, to tell it from that of a classifier.
KIND = "regression"


@dataclass(frozen=True, repr=False)
class RegressionAudit:
    """How predictions depend on sensitive columns.

    Attributes
    ----------
    n_rows, mse, explained
        Rows, mean squared error, and the share of the variance of y that is explained
        (NaN where y is one number).
    metric
        The measure that is called the violation.
    confidence
        The level of all intervals.
    columns
        By sensitive column; several that are compared jointly have one more.
    asked
        What the audit was asked, to repeat it.
    notion
        The name of the notion: who is compared with whom.
    n_uncontrolled
        Rows without a value of the control feature, which are compared with none.
    """

    n_rows: int
    mse: float
    explained: float
    metric: str
    confidence: float
    columns: dict[str, ColumnAudit]
    asked: AskedOfNumbers
    notion: str = "demographic_parity"
    n_uncontrolled: int = 0

    @property
    def frame(self) -> pd.DataFrame:
        """One row per column and measure."""
        return pd.DataFrame(
            {"column": name, "measure": measure, **found._asdict()}
            for name, column in self.columns.items()
            for measure, found in column.measures.items()
        ).astype(dict.fromkeys(Measured._fields, float))

    @property
    def group_frame(self) -> pd.DataFrame:
        """One row per group, or band of numbers."""
        return pd.DataFrame(
            {"column": name, "group": group, **row}
            for name, column in self.columns.items()
            for group, row in column.groups.items()
        )

    @property
    def violation(self) -> float:
        """The largest of all columns, by the audit's own measure."""
        return self.value(self.metric)

    @property
    def worst(self) -> str:
        """The column with the largest violation."""
        having = self._having(self.metric)
        return max(having, key=lambda name: having[name].value)

    @property
    def interval(self) -> Interval:
        """The interval of the violation; NaN for measures of numbers."""
        found = self._having(self.metric).values()
        if any(measured.high is None for measured in found):
            return np.nan, np.nan
        return (
            max(float(measured.low or 0.0) for measured in found),
            max(float(measured.high or 0.0) for measured in found),
        )

    def value(self, measure: str, column: str | None = None) -> float:
        """Return a measure: the largest of all columns, or that of one."""
        having = self._having(measure)
        if column is None:
            return max(measured.value for measured in having.values())
        if column not in having:
            raise InvalidParameterError(
                f"No {measure!r} was measured of {column!r}, but of "
                f"{', '.join(having)}."
            )
        return having[column].value

    def passes(
        self, bound: float, measure: str | None = None, *, confident: bool = False
    ) -> bool:
        """Return whether a measure keeps a bound for every column that has it.

        Parameters
        ----------
        bound
            The most that it may be.
        measure
            Its name; by default the audit's own.
        confident
            Whether the upper end of the interval has to keep it too; measures of
            numbers have none and are refused.
        """
        measure = measure or self.metric
        having = self._having(measure)
        if not confident:
            return self.value(measure) <= bound
        if any(measured.high is None for measured in having.values()):
            raise InvalidParameterError(
                f"{measure} has no interval here, so nothing can be confident of it. "
                "Ask for a measure of groups with n_bootstrap above 0, such as "
                "'kolmogorov_smirnov', or leave confident out."
            )
        return all(float(m.high or 0.0) <= bound for m in having.values())

    def plot(self, column: str, ax: "Axes | None" = None) -> "Axes":
        """Draw the densities of groups, or predictions against numbers.

        Parameters
        ----------
        column
            A sensitive column.
        ax
            Where to draw; a new figure by default.
        """
        from fferm.report.numbers import plot_densities, plot_fan

        if column not in self.columns:
            raise InvalidParameterError(
                f"{column!r} is no sensitive column. Columns: "
                f"{', '.join(self.columns)}."
            )
        found = self.columns[column]
        if found.fan is not None:
            return plot_fan(found.fan, column, ax)
        return plot_densities(found.densities, column, ax)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it for JSON: undefined is None, infinite is ``"inf"``."""
        plain = asdict(self)
        for name, column in self.columns.items():
            plain["columns"][name]["measures"] = {
                measure: found._asdict() for measure, found in column.measures.items()
            }
        return {"kind": KIND, **{k: json_ready(v) for k, v in plain.items()}}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Return the audit that `to_dict` turned into plain values."""
        from fferm.auditing.number_reading import read_regression_audit

        try:
            return cls(**read_regression_audit(plain))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PersistenceError(
                f"These values make no audit ({type(error).__name__}: {error}). "
                "Expected what RegressionAudit.to_dict() returns."
            ) from error

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        max_violation: float | None = None,
    ) -> None:
        """Write a report that needs nothing but a browser.

        Parameters
        ----------
        path
            Where to write; an existing file is replaced.
        title
            The heading of the page; name the model and the data here.
        max_violation
            The bound to hold the audit's own measure against.
        """
        from fferm.report import write_regression_audit

        write_regression_audit(self, path, title=title, max_violation=max_violation)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Sentences on what the measures do not speak of; empty if on everyone."""
        missing = {name: column.n_missing for name, column in self.columns.items()}
        missing[CONTROL] = self.n_uncontrolled
        return (
            *(left_out(name, n, self.n_rows) for name, n in missing.items() if n),
            *(
                f"{name}: not compared where {', '.join(column.absent)}, for there are "
                "no two groups in four rows at least"
                for name, column in self.columns.items()
                if column.absent
            ),
        )

    @property
    def compared(self) -> tuple[str, ...]:
        """Sentences on who is compared with whom; empty if everyone with everyone."""
        return tuple(
            f"{name} is compared within {len(column.strata)} values of the control "
            f"feature; {self.metric} is largest where {self._worst_stratum(column)}."
            for name, column in self.columns.items()
            if column.strata and self.metric in column.measures
        )

    @property
    def stratum_frame(self) -> pd.DataFrame:
        """Each measure by column and value of the control feature, if there is one."""
        return pd.DataFrame(
            {"column": name, "stratum": stratum, **row}
            for name, column in self.columns.items()
            for stratum, row in column.strata.items()
        )

    def _worst_stratum(self, column: ColumnAudit) -> str:
        return max(column.strata, key=lambda name: column.strata[name][self.metric])

    @property
    def banded(self) -> tuple[str, ...]:
        """Sentences on columns of numbers that are compared in bands."""
        return tuple(
            f"{name} holds numbers. Its groups are {len(column.groups)} bands of "
            f"{'training' if column.has_trained_bands else 'like many rows here'}; "
            "measures of numbers look at the numbers themselves."
            for name, column in self.columns.items()
            if column.is_number
        )

    def _having(self, measure: str) -> dict[str, Measured]:
        having = {
            name: column.measures[measure]
            for name, column in self.columns.items()
            if measure in column.measures
        }
        if not having:
            known = {m for column in self.columns.values() for m in column.measures}
            raise InvalidParameterError(
                f"No {measure!r} was measured. Measured: {', '.join(sorted(known))}, "
                f"of {', '.join(self.columns)}."
            )
        return having

    def __repr__(self) -> str:
        """Return one line."""
        return (
            f"RegressionAudit({self.n_rows} rows, {self.metric} "
            f"{self.violation:.4g} by {self.worst})"
        )

    def _repr_html_(self) -> str:
        """Return its two tables, for notebooks."""
        lines = [repr(self), *self.compared, *self.banded, *self.left_out]
        text = "".join(f"<p>{escape(line)}</p>" for line in lines)
        return text + "".join(
            frame.to_html(index=False, float_format=_short, na_rep="-", border=0)
            for frame in (self.frame, self.group_frame)
        )

    def __str__(self) -> str:
        measures = self.frame.set_index(["column", "measure"])
        groups = self.group_frame.set_index(["column", "group"])
        lines = [
            f"Audit of {self.n_rows} rows, a regression{self._given()}",
            f"  mean squared error  {self.mse:.6g}   explains {self.explained:.4f} of "
            "the variance",
            f"  violation           {self.violation:.4g}   {self.metric} by "
            f"{self.worst}{self._interval_words()}",
            "",
            _text(measures),
            "",
            _text(groups),
        ]
        notes = [*self.compared, *self.banded, *self.left_out]
        return "\n".join([*lines, *(["", *notes] if notes else [])])

    def _given(self) -> str:
        is_plain = self.notion == "demographic_parity"
        weighted = ", weighted" if self.asked.is_weighted else ""
        return ("" if is_plain else f", {self.notion}") + weighted

    def _interval_words(self) -> str:
        low, high = self.interval
        level = f"{100 * self.confidence:g} % interval"
        return "" if np.isnan(high) else f", {level} [{low:.4g}, {high:.4g}]"


def _text(frame: pd.DataFrame) -> str:
    shown = frame.dropna(axis="columns", how="all")
    return shown.to_string(float_format=_short, na_rep="-")


def _short(value: float) -> str:
    return f"{value:.4g}"
