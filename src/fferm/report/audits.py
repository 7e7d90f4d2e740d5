"""The report of an audit: verdict, groups, measures, meaning and limits on one page."""

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fferm.auditing import Audit, ClassificationAudit, RegressionAudit
from fferm.auditing.regression import ColumnAudit
from fferm.errors import InvalidParameterError
from fferm.metrics.tabulator import left_out
from fferm.report.costs import compare
from fferm.report.figures import draw_svg, plot_densities, plot_fan
from fferm.report.pages import brief, number, plain, points, render, write_page
from fferm.report.snippets import audit_snippet
from fferm.report.wording import MEASURES, explain

TITLE = "Fairness audit"
# Gaps closer than this are equal: two classes have the same gap, up to rounding.
SAME_GAP = 1e-12
ERROR_RATES = {
    "accuracy": "Accuracy",
    "true_positive_rate": "True positive rate",
    "false_positive_rate": "False positive rate",
    "precision": "Precision",
}
# More lines than this nobody can tell apart.
MOST_LINES = 8


@dataclass(frozen=True)
class Verdict:
    """A judgement in a few words, the sentence behind it, and whether it is good."""

    words: str
    sentence: str
    is_good: bool | None


@dataclass(frozen=True)
class Picture:
    """A figure of a page, and what it shows."""

    svg: str
    caption: str


def write_audit(
    audit: Audit,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    max_violation: float | None = None,
    before: Audit | None = None,
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

    Examples
    --------
    >>> write_audit(result, "audit.html", max_violation=0.05)  # doctest: +SKIP
    """
    if before is not None and not isinstance(before, type(audit)):
        raise InvalidParameterError(
            f"before must be an audit of the same kind as this one; got {before!r}."
        )
    page = {"title": title, "max_violation": max_violation, "before": before}
    values = {
        "title": title or TITLE,
        "is_number": isinstance(audit, RegressionAudit),
        "notion": explain(audit.notion),
        "words": MEASURES,
        "snippet": audit_snippet(audit, page),
        "audited": describe_audit(audit, max_violation, before),
        "digests": [],
    }
    write_page(render("audit.html", values), path)


def describe_audit(
    audit: Audit, max_violation: float | None, before: Audit | None = None
) -> dict[str, Any]:
    """Return what the audit's part of a page shows."""
    shown: dict[str, Any] = {
        "audit": audit,
        "verdict": judge_audit(audit, max_violation),
    }
    if isinstance(audit, RegressionAudit):
        shown["pictures"] = {
            name: pictures_of(name, column, f"figure{k}")
            for k, (name, column) in enumerate(audit.columns.items())
        }
    if isinstance(audit, ClassificationAudit):
        # The last of equals: with two classes the positive one.
        largest = [gap for gap in audit.gaps if gap.gap >= audit.violation - SAME_GAP]
        missing = audit.unjudged.items()
        measured = {name for row in audit.groups.values() for name in row}
        shown |= {
            "worst": largest[-1] if largest else None,
            "left_out": [left_out(*item, audit.n_rows) for item in missing],
            "scale": scale_of([audit]),
            "errors": {k: ERROR_RATES[k] for k in ERROR_RATES if k in measured},
            "costs": compare(before, audit)
            if isinstance(before, ClassificationAudit)
            else [],
        }
    return shown


def judge_audit(audit: Audit, max_violation: float | None) -> Verdict:
    """Return the verdict on an audit; without a bound it only states the violation."""
    if math.isnan(audit.violation):
        return Verdict(
            "Cannot be judged", "No two groups could be compared with each other.", None
        )
    measure = "The violation"
    show: Callable[[float], str] = number
    stated = f"Largest gap: {points(audit.violation)}"
    if isinstance(audit, RegressionAudit):
        measure, show = f"{MEASURES[audit.metric].title} by {audit.worst}", plain
        stated = f"{measure}: {plain(audit.violation)}"
    if max_violation is None:
        return Verdict(stated, "", None)
    bound = f"the bound of {brief(max_violation)}"
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


def scale_of(audits: Iterable[ClassificationAudit]) -> float:
    """Return the right end of bars: the next tenth above every interval."""
    highs = [
        row[f"selection_high_{label}"]
        for audit in audits
        for label in audit.shown_classes
        for row in audit.groups.values()
    ]
    highest = max((high for high in highs if not math.isnan(high)), default=1.0)
    return min(1.0, math.ceil(10 * highest) / 10) or 1.0


def pictures_of(name: str, column: ColumnAudit, label: str) -> list[Picture]:
    """Return the figures of a column, their ids beginning with a label."""
    unit = "band" if column.is_number else "group"
    caption = (
        f"How often each prediction is made in each {unit}. If {unit}s are treated "
        "alike, the lines coincide."
    )
    if len(column.groups) > MOST_LINES:
        caption += f" Of {len(column.groups)} {unit}s, the {MOST_LINES} largest."
    by_size = sorted(column.groups, key=lambda group: -column.groups[group]["rows"])
    lines = {
        group: line
        for group, line in column.densities.by_group.items()
        if group in by_size[:MOST_LINES]
    }
    densities = replace(column.densities, by_group=lines)
    drawn = partial(plot_densities, densities, name)
    pictures = [Picture(draw_svg(drawn, f"{label}a"), caption)]
    if column.fan is not None:
        fan = draw_svg(partial(plot_fan, column.fan, name), f"{label}b")
        caption = (
            "The prediction along the number, in bins with equal numbers of rows: the "
            "mean, and the range of the middle 80 %. If the prediction does not depend "
            "on the number, everything is level."
        )
        pictures.append(Picture(fan, caption))
    return pictures
