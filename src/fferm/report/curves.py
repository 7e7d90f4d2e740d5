"""The report of a trade-off curve, on which a click shows what a model does to groups.

The figure is drawn twice: by matplotlib, for readers without scripts, and by plotly
from the traces made here. Colours of traces are names of the page's own, such as
``--ink``; the script of the page puts in what they stand for in light or dark. plotly
reads text as HTML, so names are escaped.
"""

import base64
import hashlib
import os
from functools import partial
from html import escape
from importlib.resources import files
from typing import Any

from fferm.auditing import Audit, ClassificationAudit, RegressionAudit
from fferm.curve import TradeoffCurve
from fferm.errors import InvalidInputError
from fferm.report.audits import describe_audit, pictures_of, scale_of
from fferm.report.costs import compare
from fferm.report.figures import CURVES, accuracy_range, baselines, draw_svg, plot_curve
from fferm.report.pages import brief, render, report_extra, write_page
from fferm.report.points import Point, points
from fferm.report.snippets import curve_snippet
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
    "rows": "Training rows",
    "features": "Features",
    "test": "Test rows",
    "sample_weight": "Sample weights",
}
MARKS = ("circle", "square", "triangle-up", "triangle-down")
HOVER = (
    "%{text}<br>ACCURACY %{y:.2%}<br>violation %{x:.4~g}<br><i>click to look at it</i>"
    "<extra></extra>"
)


def write_curve(
    curve: TradeoffCurve,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    audit: Audit | None = None,
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
    with report_extra():
        from plotly.offline import get_plotlyjs
    # Nothing that a page holds may end the element that it stands in.
    plotly = str(get_plotlyjs()).replace("</script", "<\\/script")
    script = files("fferm.report").joinpath("templates/front.js").read_text("utf-8")
    models = points(curve)
    chosen = _chosen(curve, models, max_violation)
    best = chosen or min(
        (point for point in models if point.is_best),
        key=lambda point: point.test["violation"].mean,
        default=models[0],
    )
    picked = models.index(best)
    about = curve.description
    is_number = "metric" in about
    values = {
        "title": title or (NUMBER_TITLE if is_number else TITLE),
        "is_number": is_number,
        "say": curve_words(about.get("metric")),
        "words": MEASURES,
        "max_violation": max_violation,
        "description": about,
        "card": {CARD.get(k, k): v for k, v in about.items()},
        "notion": explain(about["notion"]),
        "picture": draw_svg(partial(plot_curve, curve)),
        "front": {**traces(curve, models), "picked": picked},
        "plotly": plotly,
        "script": script,
        "digests": [digest(plotly), digest(script)],
        "snippet": curve_snippet(
            curve, {"title": title, "max_violation": max_violation}
        ),
        "audited": None if audit is None else describe_audit(audit, max_violation),
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
    audits = [p.audit for p in models if isinstance(p.audit, ClassificationAudit)]
    plain = next(iter(plains.values()), None)
    return {
        "points": models,
        "plains": plains,
        "plain": plain,
        "people": plain.audit
        if plain and isinstance(plain.audit, ClassificationAudit)
        else None,
        "details": details,
        # One scale for all, so that bars of two models can be compared.
        "scale": scale_of(audits),
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
    pictures, costs = {}, []
    if isinstance(point.audit, RegressionAudit):
        columns = {n: c for n, c in point.audit.columns.items() if not c.is_joint}
        pictures = {
            name: pictures_of(name, column, f"point{number}column{k}")
            for k, (name, column) in enumerate(columns.items())
        }
    after = point.audit
    if isinstance(before, ClassificationAudit) and isinstance(after, type(before)):
        costs = compare(before, after)
    return {"before": before, "pictures": pictures, "costs": costs}


def _chosen(
    curve: TradeoffCurve, models: list[Point], max_violation: float | None
) -> Point | None:
    how = "knee" if max_violation is None else None
    try:
        key = curve.choose(how, max_violation=max_violation)  # type: ignore[arg-type]
    except InvalidInputError:  # no model is within the bound, or none can be judged
        return None
    return next(point for point in models if point.key[:2] == key[:2])


def traces(curve: TradeoffCurve, points: list[Point]) -> dict[str, Any]:
    """Return what the script of a page needs to draw points that can be picked."""
    names = list(dict.fromkeys(point.curve for point in points))
    words = curve_words(curve.description.get("metric"))
    marks = partial(_marks, points, HOVER.replace("ACCURACY", words.accuracy.lower()))
    dashes = {"color": "--faint", "width": 1.5, "dash": "dash"}
    drawn = [
        _line(line["violation"].tolist(), line["accuracy"].tolist(), dashes)
        | {"name": "naive: thinned at random", "showlegend": k == 0}
        for k, line in enumerate(baselines(curve, "test").values())
    ]
    plain = [point for point in points if point.is_plain]
    collapsed = [point for point in points if point.is_collapsed]
    for number, name in enumerate(names):
        color = f"--curve{number % len(CURVES)}"
        others = [
            point
            for point in points
            if point.curve == name and not (point.is_plain or point.is_collapsed)
        ]
        label = "models" if len(names) == 1 else escape(name)
        rows = curve.curves[name].bands().sort_values("violation")
        there, back = rows["violation"].tolist(), rows["violation"].tolist()[::-1]
        ends = rows["accuracy_high"].tolist() + rows["accuracy_low"].tolist()[::-1]
        band = _line(there + back, ends, {"width": 0, "color": color})
        filled = {"fill": "toself", "opacity": 0.15, "fillcolor": color}
        drawn.append(band | filled | {"showlegend": False})
        drawn.append(marks(others, label, MARKS[number % len(MARKS)], color, 9))
    # From the fairest to the most accurate of the best trade-offs.
    front = [k for k, point in enumerate(points) if point.is_best]
    front.sort(key=lambda k: points[k].test["violation"].mean)
    best = [points[k].test for k in front]
    x, y = ([test[name].mean for test in best] for name in ("violation", "accuracy"))
    drawn += [
        _line(x, y, {"color": "--ink", "width": 1.5}) | {"name": "best trade-offs"},
        marks(plain, "plain model (weight 0)", "diamond", "--plain"),
        marks(collapsed, words.collapsed, "x", "--ink"),
    ]
    shown = [point.test["violation"].mean for point in points if _is_drawn(point)]
    highest = max(shown, default=1.0) or 1.0
    return {
        "titles": {
            "violation": f"{words.violation_axis} (left is fairer)",
            "accuracy": f"{words.accuracy} (up is better)",
        },
        "traces": [trace for trace in drawn if trace["x"]],
        "accuracy": accuracy_range(curve),
        "violation": (-0.03 * highest, 1.06 * highest),
        "points": [
            {
                "violation": point.test["violation"].mean if _is_drawn(point) else None,
                "accuracy": point.test["accuracy"].mean,
            }
            for point in points
        ],
        "front": front,
    }


def digest(script: str) -> str:
    """Return what a page's security policy knows a script by."""
    value = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(value).decode()}"


def _is_drawn(point: Point) -> bool:
    violation = point.test["violation"].mean
    return violation == violation  # undefined where no two groups can be compared


def _marks(
    points: list[Point],
    hover: str,
    shown: list[Point],
    name: str,
    symbol: str,
    color: str,
    size: int = 12,
) -> dict[str, Any]:
    shown = [point for point in shown if _is_drawn(point)]
    is_alone = len({point.curve for point in points}) == 1
    weights = [f"fairness weight {brief(point.fairness_weight)}" for point in shown]
    curves = ["" if is_alone else f"{escape(point.curve)}, " for point in shown]
    return {
        "x": [point.test["violation"].mean for point in shown],
        "y": [point.test["accuracy"].mean for point in shown],
        "customdata": [points.index(point) for point in shown],
        "text": [curve + weight for curve, weight in zip(curves, weights, strict=True)],
        "mode": "markers",
        "hovertemplate": hover,
        "name": name,
        "marker": {"color": color, "size": size, "symbol": symbol},
    }


def _line(x: list[float], y: list[float], line: dict[str, Any]) -> dict[str, Any]:
    return {"x": x, "y": y, "mode": "lines", "hoverinfo": "skip", "line": line}
