"""The report of a trade-off curve."""

import os
from functools import partial
from typing import Any

from fferm.auditing import Audit, RegressionAudit
from fferm.curve import TradeoffCurve
from fferm.errors import InvalidInputError
from fferm.report.audits import class_rows, describe_audit, scale_of
from fferm.report.costs import compare
from fferm.report.figures import draw_svg, plot_curve
from fferm.report.interactive import digest, page_source, plotly_source, traces
from fferm.report.pages import render, write_page
from fferm.report.points import Point, points
from fferm.report.recipes import curve_recipe
from fferm.report.regression_audits import describe_regression, pictures_of
from fferm.report.wording import MEASURES, curve_words, explain

TITLE = "What fairness costs: accuracy against violation"
NUMBER_TITLE = "What fairness costs: variance explained against violation"
# What a description calls a thing, and what a reader does. Code is in the recipe.
CARD = {
    "estimator": "Estimator",
    "code": "Its settings",
    "divergence": "Divergence",
    "notion": "Notion of fairness",
    "uncertainty": "Robust to",
    "groups": "Several sensitive columns",
    "metric": "Violation",
    "rows": "Rows given to train",
    "features": "Features",
    "test": "Test rows",
    "sample_weight": "Sample weights",
}
HIDDEN = ("imports", "notes")


def write_curve(
    curve: TradeoffCurve,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    audit: Audit | RegressionAudit | None = None,
    max_violation: float | None = None,
) -> None:
    """Write a curve as one page on which a click shows what a model does to groups.

    Parameters
    ----------
    curve
        What `fferm.tradeoff_curve` returned, or `TradeoffCurve.load`.
    path
        Where to write; an existing file is replaced.
    title
        The heading of the page; name the data here.
    audit
        The audit of the model that was chosen from the curve, to be shown beside it.
    max_violation
        The bound that the audit is held against, and that the page picks the most
        accurate model for; without one it picks the knee of the front.

    Examples
    --------
    >>> write_curve(curve, "report.html")  # doctest: +SKIP
    """
    models = points(curve)
    chosen = _chosen(curve, models, max_violation)
    picked = models.index(chosen or _fairest(models))
    plotly, script = plotly_source(), page_source()
    about = curve.description
    is_number = "metric" in about
    values = {
        "title": title or (NUMBER_TITLE if is_number else TITLE),
        "is_number": is_number,
        "say": curve_words(about.get("metric")),
        "words": MEASURES,
        "max_violation": max_violation,
        "description": about,
        "card": {CARD.get(k, k): v for k, v in about.items() if k not in HIDDEN},
        "notion": explain(about["notion"]),
        "picture": draw_svg(partial(plot_curve, curve)),
        "front": {**traces(curve, models), "picked": picked},
        "plotly": plotly,
        "script": script,
        "digests": [digest(plotly), digest(script)],
        "recipe": curve_recipe(curve, title=title, max_violation=max_violation),
        "audited": None if audit is None else _described(audit, max_violation),
        **_described_points(curve, models),
        "chosen": chosen,
        "picked": picked,
    }
    write_page(render("curve.html", values), path)


def _described_points(curve: TradeoffCurve, models: list[Point]) -> dict[str, Any]:
    plains = {point.curve: point for point in models if point.is_plain}
    details = [
        _detail(number, point, plains.get(point.curve))
        for number, point in enumerate(models)
    ]
    highs = [
        row.high
        for detail in details
        for rows in detail["classes"].values()
        for row in rows
    ]
    plain = next(iter(plains.values()), None)
    return {
        "points": models,
        "plains": plains,
        "plain": plain,
        "people": plain.audit if plain and isinstance(plain.audit, Audit) else None,
        "details": details,
        # One scale for all, so that bars of two models can be compared.
        "scale": scale_of(highs),
        "bands": {
            (row["curve"], row["fairness_weight"]): row
            for row in curve.bands().to_dict("records")
        },
        "volumes": {name: alone.hypervolume() for name, alone in curve.curves.items()},
        "weights": sorted({point.fairness_weight for point in models}),
        "n_seeds": curve.records["seed"].nunique(),
        "n_curves": len({point.curve for point in models}),
    }


def _detail(number: int, point: Point, plain: Point | None) -> dict[str, Any]:
    before = None if plain is None or point.is_plain else plain.audit
    if isinstance(point.audit, RegressionAudit):
        own = {n: c for n, c in point.audit.columns.items() if not c.is_joint}
        label = f"point{number}"
        pictures = {
            name: pictures_of(name, column, f"{label}column{k}")
            for k, (name, column) in enumerate(own.items())
        }
        return {"classes": {}, "costs": [], "before": before, "pictures": pictures}
    if point.audit is None:
        return {"classes": {}, "costs": []}
    is_compared = isinstance(before, Audit)
    return {
        "classes": class_rows(point.audit),
        "costs": compare(before, point.audit) if is_compared else [],  # type: ignore[arg-type]
    }


def _described(
    audit: Audit | RegressionAudit, max_violation: float | None
) -> dict[str, Any]:
    if isinstance(audit, RegressionAudit):
        return describe_regression(audit, max_violation)
    return describe_audit(audit, max_violation)


def _chosen(
    curve: TradeoffCurve, models: list[Point], max_violation: float | None
) -> Point | None:
    how = "knee" if max_violation is None else None
    try:
        key = curve.choose(how, max_violation=max_violation)  # type: ignore[arg-type]
    except InvalidInputError:  # no model is within the bound, or none can be judged
        return None
    return next(point for point in models if point.key[:2] == key[:2])


def _fairest(models: list[Point]) -> Point:
    best = [point for point in models if point.is_best]
    return min(best, key=lambda point: point.test["violation"].mean, default=models[0])
