"""The report of a trade-off curve."""

import os

from fferm.auditing import Audit
from fferm.report.audits import describe_audit
from fferm.report.figures import draw_svg
from fferm.report.pages import render, write_page
from fferm.report.points import choose, points
from fferm.report.recipes import curve_recipe
from fferm.report.wording import explain
from fferm.tradeoff import TradeoffCurve

TITLE = "What fairness costs: accuracy against violation"


def write_curve(
    curve: TradeoffCurve,
    path: str | os.PathLike[str],
    *,
    title: str = TITLE,
    audit: Audit | None = None,
    max_violation: float | None = None,
) -> None:
    """Write a curve as one page: picture, table, meaning and limits.

    Parameters
    ----------
    curve
        What `fferm.tradeoff_curve` returned.
    path
        Where to write; an existing file is replaced.
    title
        The heading of the page; name the data here.
    audit
        The audit of the model that was chosen from the curve, to be shown beside it.
    max_violation
        The bound that the audit is held against, and that the page names the most
        accurate model for; without one it names the fairest of the best trade-offs.

    Examples
    --------
    >>> write_curve(curve, "report.html")  # doctest: +SKIP
    """
    models = points(curve)
    values = {
        "title": title,
        "points": models,
        "plain": next((point for point in models if point.is_plain), None),
        "chosen": choose(models, max_violation),
        "max_violation": max_violation,
        "n_seeds": curve.records["seed"].nunique(),
        "description": curve.description,
        "notion": explain(curve.description["notion"]),
        "picture": draw_svg(curve),
        "recipe": curve_recipe(
            curve,
            title=None if title == TITLE else title,
            max_violation=max_violation,
        ),
        "audited": None if audit is None else describe_audit(audit, max_violation),
    }
    write_page(render("curve.html", values), path)
