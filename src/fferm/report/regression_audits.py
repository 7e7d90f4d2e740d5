"""The report of a regressor's audit."""

import os
from dataclasses import dataclass
from functools import partial
from typing import Any

from fferm.auditing.number_parts import ColumnAudit, Densities
from fferm.auditing.number_result import RegressionAudit
from fferm.metrics.dependence import GROUP_MEASURES
from fferm.report.audits import TITLE, Verdict
from fferm.report.figures import draw_svg
from fferm.report.numbers import plot_densities, plot_fan
from fferm.report.pages import plain, render, write_page
from fferm.report.recipes import regression_recipe
from fferm.report.wording import MEASURES, explain

MOST_LINES = 8


@dataclass(frozen=True)
class Picture:
    """A figure of a page, and what it shows."""

    svg: str
    caption: str


def write_regression_audit(
    audit: RegressionAudit,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    max_violation: float | None = None,
) -> None:
    """Write a regressor's audit as one page: verdict, groups, measures and plots.

    Parameters
    ----------
    audit
        What `fferm.auditing.audit_regression` returned.
    path
        Where to write; an existing file is replaced.
    title
        The heading of the page; name the model and the data here.
    max_violation
        The bound to hold the audit's own measure against; without one the page states
        the measure and judges nothing.

    Examples
    --------
    >>> write_regression_audit(found, "audit.html")  # doctest: +SKIP
    """
    values = {
        "title": title or TITLE,
        "recipe": regression_recipe(audit, title=title, max_violation=max_violation),
        "audited": describe_regression(audit, max_violation),
        "words": MEASURES,
        "explained": explain(audit.notion),
        "digests": [],
    }
    write_page(render("number_audit.html", values), path)


def describe_regression(
    audit: RegressionAudit, max_violation: float | None
) -> dict[str, Any]:
    """Return what the audit's part of a page speaks of."""
    return {
        "audit": audit,
        "verdict": judge_regression(audit, max_violation),
        "pictures": {
            name: pictures_of(name, column, f"figure{k}")
            for k, (name, column) in enumerate(audit.columns.items())
        },
    }


def judge_regression(audit: RegressionAudit, max_violation: float | None) -> Verdict:
    """Return the verdict on an audit; without a bound it only states the measure."""
    named = f"{MEASURES[audit.metric].title} by {audit.worst}"
    if max_violation is None:
        return Verdict(f"{named}: {plain(audit.violation)}", "", None)
    bound = f"the bound of {plain(max_violation)}"
    if not audit.passes(max_violation):
        sentence = f"{named} is {plain(audit.violation)}, above {bound}."
        return Verdict("Does not keep the bound", sentence, False)
    has_interval = audit.metric in GROUP_MEASURES and audit.asked.n_bootstrap > 0
    if has_interval and audit.passes(max_violation, confident=True):
        sentence = f"{named}: the whole interval is within {bound}."
        return Verdict("Keeps the bound", sentence, True)
    sentence = f"{named} is {plain(audit.violation)}, within {bound}"
    if has_interval:
        sentence += (
            f", but its interval reaches {plain(audit.interval[1])}: these rows leave "
            "room for a larger gap"
        )
    return Verdict("Keeps the bound on these rows", f"{sentence}.", None)


def pictures_of(name: str, column: ColumnAudit, label: str) -> list[Picture]:
    """Return the figures of a column, their ids beginning with a label."""
    kind = "band" if column.is_number else "group"
    caption = (
        f"How often each prediction is made in each {kind}. Where {kind}s are treated "
        "alike, the lines lie on each other."
    )
    if len(column.groups) > MOST_LINES:
        caption += f" Of {len(column.groups)} {kind}s, the {MOST_LINES} largest."
    drawn = partial(plot_densities, _largest(column), name)
    shown = [Picture(draw_svg(drawn, f"{label}a"), caption)]
    if column.fan is not None:
        fan = draw_svg(partial(plot_fan, column.fan, name), f"{label}b")
        caption = (
            "The prediction along the number, in bins of like many rows: the mean, and "
            "between which values the middle 80 % lie. Where the prediction does not "
            "depend on the number, all of it is level."
        )
        shown.append(Picture(fan, caption))
    return shown


def _largest(column: ColumnAudit) -> Densities:
    # More lines than this nobody can tell apart.
    by_size = sorted(column.groups, key=lambda group: -column.groups[group]["rows"])
    kept = set(by_size[:MOST_LINES])
    lines = column.densities.by_group.items()
    return Densities(
        column.densities.at, {group: line for group, line in lines if group in kept}
    )
