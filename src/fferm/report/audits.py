"""The report of an audit: verdict, groups, measures, meaning and limits on one page."""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from fferm.auditing import Audit, ClassificationAudit, RegressionAudit
from fferm.auditing.regression import ColumnAudit
from fferm.errors import InvalidParameterError
from fferm.report.figures import draw_svg, plot_densities, plot_fan
from fferm.report.pages import (
    MOST_LINES,
    check_provenance,
    percent,
    plain,
    points,
    write_page,
)
from fferm.report.snippets import audit_snippet
from fferm.report.wording import TITLES, explain

TITLE = "Fairness audit"
# Gaps closer than this are equal: two classes have the same gap, up to rounding.
SAME_GAP = 1e-12
# Rates closer than this are the same: less than one row in two thousand.
SAME_RATE = 5e-4
# Of the narrowing of a gap, the share that has to come from above to name it.
MOSTLY = 0.5


class Verdict(NamedTuple):
    """A judgement in a few words, the sentence behind it, and whether it is good."""

    words: str
    sentence: str
    is_good: bool | None


def write_audit(
    audit: Audit,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    max_violation: float | None = None,
    before: Audit | None = None,
    provenance: Mapping[str, object] | None = None,
) -> None:
    """Write an audit as one page that needs nothing but a browser.

    Parameters
    ----------
    audit
        What `fferm.audit` or `fferm.audit_regression` returned.
    path
        Where to write; an existing file is replaced.
    title
        The heading of the page; name the model and the data here.
    max_violation
        The bound to hold the violation against; without one the page states the
        violation and judges nothing.
    before
        The audit, on the same rows, of the classifier that this one replaces; the page
        then says what changed for whom.
    provenance
        Where the rows and the model come from, by what it is called, such as
        ``{"Data": "loans.csv", "Date": "2024-05-01"}``; shown as it is.

    Examples
    --------
    >>> write_audit(result, "audit.html", max_violation=0.05)  # doctest: +SKIP
    """
    if before is not None and not isinstance(before, type(audit)):
        raise InvalidParameterError(
            f"before must be an audit of the same kind as this one; got {before!r}."
        )
    page: dict[str, object] = {"title": title, "max_violation": max_violation}
    page |= {"before": before, "provenance": provenance}
    values = {
        "title": title or TITLE,
        "is_number": isinstance(audit, RegressionAudit),
        "notion": explain(audit.notion),
        "snippet": audit_snippet(audit, **page),
        "audited": describe_audit(audit, max_violation, before),
        "provenance": check_provenance(provenance),
        "digests": [],
    }
    write_page("audit.html", values, path)


def describe_audit(
    audit: Audit, max_violation: float | None, before: Audit | None = None
) -> dict[str, Any]:
    """Return what the audit's part of a page shows."""
    shown = {"audit": audit, "verdict": judge_audit(audit, max_violation)}
    if isinstance(audit, RegressionAudit):
        return shown | {
            "pictures": draw_columns(audit.columns, "figure"),
            "axes": mean_axes(audit, before),
        }
    assert isinstance(audit, ClassificationAudit)
    # The last of equals: with two classes the positive one.
    largest = [gap for gap in audit.gaps if gap.gap >= audit.violation - SAME_GAP]
    return shown | {
        "worst": largest[-1] if largest else None,
        "axis": rate_axis([audit, before]),
        "before": before,
        "notions": compare_notions(audit),
        "costs": compare(before, audit),
    }


def judge_audit(audit: Audit, max_violation: float | None) -> Verdict:
    """Return the verdict on an audit; without a bound it only states the violation."""
    if math.isnan(audit.violation):
        return Verdict(
            "Cannot be judged", "No two groups could be compared with each other.", None
        )
    measure = "The violation"
    show: Callable[[float], str] = percent
    stated = f"Largest gap: {points(audit.violation)}"
    if isinstance(audit, RegressionAudit):
        measure, show = f"{TITLES[audit.metric]} by {audit.worst}", plain
        stated = f"{measure}: {plain(audit.violation)}"
    if max_violation is None:
        return Verdict(stated, "", None)
    bound = f"the bound of {show(max_violation)}"
    value, high = show(audit.violation), audit.interval[1]
    if not audit.passes(max_violation):
        sentence = f"{measure} is {value}, above {bound}."
        return Verdict("Does not keep the bound", sentence, False)
    if high <= max_violation:
        sentence = f"{measure}: the whole interval is within {bound}."
        return Verdict("Keeps the bound", sentence, True)
    sentence = f"{measure} is {value}, within {bound}"
    if not math.isnan(high):
        sentence += (
            f", but its interval reaches {show(high)}: these rows leave room for a "
            "larger gap"
        )
    return Verdict("Keeps the bound on these rows", f"{sentence}.", None)


def rate_axis(audits: Iterable[Audit | None]) -> tuple[float, float]:
    """Return the ends of the axis of decision rates."""
    return axis_around(
        row[f"selection_{end}_{label}"]
        for audit in audits
        if isinstance(audit, ClassificationAudit)
        for label in audit.shown_classes
        for row in audit.groups.values()
        for end in ("low", "rate", "high")
    )


def axis_around(shares: Iterable[float]) -> tuple[float, float]:
    """Return the ends of an axis: whole twentieths around all that is defined."""
    known = [value for value in shares if not math.isnan(value)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    left, right = math.floor(20 * low) / 20, math.ceil(20 * high) / 20
    return left, right if right > left else left + 0.05


class Comparison(NamedTuple):
    """A measure by group: the notion that asks it to be equal, and how unequal it is.

    Attributes
    ----------
    notion, measure
        In words.
    lowest, highest
        Who has the lowest and the highest rate, and that rate.
    """

    notion: str
    measure: str
    lowest: tuple[str, float]
    highest: tuple[str, float]

    @property
    def gap(self) -> float:
        """The difference of the two rates."""
        return self.highest[1] - self.lowest[1]

    @property
    def ratio(self) -> float:
        """The lowest rate over the highest; NaN where both are 0."""
        return self.lowest[1] / self.highest[1] if self.highest[1] > 0 else math.nan


# Notions by the column of an audit's groups that they ask to be equal.
COMPARED = {
    "true_positive_rate": ("Equal opportunity", "True positive rate"),
    "false_positive_rate": ("False positive rate parity", "False positive rate"),
    "precision": ("Predictive parity", "Precision"),
    "accuracy": ("Equal accuracy", "Accuracy"),
}


def compare_notions(audit: ClassificationAudit) -> list[Comparison]:
    """Return how unequal groups are by other notions, on the same decisions.

    Groups of several attributes are compared attribute by attribute; the widest gap of
    each notion is kept. Equalized odds is the larger of its two parts.
    """
    named = {
        f"selection_rate_{label}": ("Demographic parity", f"Decision {label}")
        for label in audit.shown_classes
    }
    is_marginal = audit.spec.groups == "marginal"
    listed = []
    for column, words in (named | COMPARED).items():
        by_attribute: dict[str, list[tuple[str, float]]] = {}
        for group, row in audit.groups.items():
            rate = row.get(column, math.nan)
            if not math.isnan(rate):
                attribute = group.partition("=")[0] if is_marginal else ""
                by_attribute.setdefault(attribute, []).append((group, rate))
        gaps = [
            Comparison(
                *words,
                min(rates, key=lambda pair: pair[1]),
                max(rates, key=lambda pair: pair[1]),
            )
            for rates in by_attribute.values()
            if len(rates) > 1
        ]
        if gaps:
            listed.append(max(gaps, key=lambda each: each.gap))
    return listed


def mean_axes(*audits: Audit | None) -> dict[str, tuple[float, float]]:
    """Return the ends of the axis of mean predictions of each column."""
    shown: dict[str, list[float]] = {}
    for audit in audits:
        for name, column in getattr(audit, "columns", {}).items():
            for row in column.groups.values():
                ends = (
                    row[key] for key in ("mean_low", "mean_prediction", "mean_high")
                )
                shown.setdefault(name, []).extend(v for v in ends if math.isfinite(v))
    axes = {}
    for name, values in shown.items():
        low, high = min(values, default=0.0), max(values, default=1.0)
        room = 0.05 * (high - low) or 0.05 * (abs(high) or 1.0)
        axes[name] = low - room, high + room
    return axes


def draw_columns(
    columns: Mapping[str, ColumnAudit], label: str
) -> dict[str, list[str]]:
    """Return the figures of each column; their ids begin with a label."""
    pictures = {}
    for k, (name, column) in enumerate(columns.items()):
        by_size = sorted(column.groups, key=lambda group: -column.groups[group]["rows"])
        lines = column.densities.by_group
        shown = {g: line for g, line in lines.items() if g in by_size[:MOST_LINES]}
        densities = replace(column.densities, by_group=shown)
        draw = partial(plot_densities, densities, name)
        pictures[name] = [draw_svg(draw, f"{label}{k}a")]
        if column.fan is not None:
            draw = partial(plot_fan, column.fan, name)
            pictures[name].append(draw_svg(draw, f"{label}{k}b"))
    return pictures


class Change(NamedTuple):
    """A rate of one group, with the model before and with the model in question."""

    group: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        """By how much it rose; negative where it fell."""
        return self.after - self.before


class Levelling(NamedTuple):
    """How a gap between groups closed.

    Attributes
    ----------
    words
        In a few words, ``"Levelling down"`` among them where it applies.
    is_down
        Whether the gap closed mostly, or only, because higher groups fell.
    highest, lowest
        The group with the highest and the lowest rate before.
    gap_before, gap_after
        Between the highest and the lowest rate.
    """

    words: str
    is_down: bool
    highest: Change
    lowest: Change
    gap_before: float
    gap_after: float


class Cost(NamedTuple):
    """One measure of every group, before and after.

    Attributes
    ----------
    name
        What the measure is called.
    is_better_if_high
        Whether a higher rate is better for whoever is judged, whatever the decision
        means to them.
    changes
        Of each group.
    levelling
        How the gap closed; None where it did not, or where nothing can be compared.
    """

    name: str
    is_better_if_high: bool
    changes: tuple[Change, ...]
    levelling: Levelling | None


def compare(before: Audit | None, after: Audit | None) -> list[Cost]:
    """Return what changed for each group, measure by measure.

    A gap between two groups can close because the lower one rises or because the higher
    one falls. The second is levelling down: the groups are more equal and nobody is
    better off. A violation cannot tell the two apart, so the page names which it was.

    Parameters
    ----------
    before, after
        Audits of two models on the same rows; only of classifiers.
    """
    if not (
        isinstance(before, ClassificationAudit)
        and isinstance(after, ClassificationAudit)
    ):
        return []
    measures = {
        f"Decision {label}": f"selection_rate_{label}" for label in after.shown_classes
    }
    if len(after.classes) == 2:
        measures["True positive rate"] = "true_positive_rate"
    measures["Accuracy"] = "accuracy"
    compared = set(before.groups)
    if before.spec.groups == "marginal" and before.gaps:
        # Attributes one by one: only groups of the same attribute make a gap.
        worst = max(before.gaps, key=lambda gap: gap.gap)
        prefix = f"{worst.attribute}="  # not there if there is one attribute
        compared = {name for name in compared if name.startswith(prefix)} or compared
    costs = []
    for name, column in measures.items():
        if not all(column in row for row in after.groups.values()):
            continue
        changes = tuple(
            Change(group, before.groups[group][column], row[column])
            for group, row in after.groups.items()
            if group in before.groups
        )
        among = [change for change in changes if change.group in compared]
        known = [change for change in among if not math.isnan(change.difference)]
        levelling = _levelling(known) if len(known) > 1 else None
        is_better_if_high = not column.startswith("selection")
        costs.append(Cost(name, is_better_if_high, changes, levelling))
    return costs


def _levelling(changes: list[Change]) -> Levelling | None:
    highest = max(changes, key=lambda change: change.before)
    lowest = min(changes, key=lambda change: change.before)
    gap_before = highest.before - lowest.before
    after = [change.after for change in changes]
    gap_after = max(after) - min(after)
    if gap_before - gap_after <= SAME_RATE:
        return None
    is_nobody_better = all(c.difference <= SAME_RATE for c in changes)
    fall, rise = -highest.difference, lowest.difference
    if is_nobody_better:
        words, is_down = "Levelling down: no group's rate rose", True
    elif rise <= SAME_RATE:
        words, is_down = "Levelling down: the lowest rate did not rise", True
    elif fall > 0 and fall / (fall + rise) > MOSTLY:
        share = 100 * fall / (fall + rise)
        words = f"Mostly levelling down: {share:.0f} % because the highest rate fell"
        is_down = True
    else:
        words, is_down = "Levelling up: the lowest rate rose most", False
    return Levelling(words, is_down, highest, lowest, gap_before, gap_after)
