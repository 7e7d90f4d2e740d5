"""The figure of a page that can be clicked: traces for plotly, and plotly itself.

Colours are names of the page's own, such as ``--ink``; the script of the page puts in
what they stand for in light or dark. plotly reads text as HTML, so names are escaped.
"""

import base64
import hashlib
from html import escape
from importlib.resources import files
from typing import Any

import pandas as pd

from fferm.curve import TradeoffCurve
from fferm.report.extra import report_extra
from fferm.report.figures import CURVES, accuracy_range, baselines
from fferm.report.pages import brief
from fferm.report.points import Point
from fferm.report.wording import curve_words

MARKS = ("circle", "square", "triangle-up", "triangle-down")
HOVER = (
    "%{text}<br>ACCURACY %{y:.2%}<br>violation %{x:.4~g}<br><i>click to look at it</i>"
    "<extra></extra>"
)


def traces(curve: TradeoffCurve, points: list[Point]) -> dict[str, Any]:
    """Return what the script of a page needs to draw points that can be picked."""
    names = list(dict.fromkeys(point.curve for point in points))
    words = curve_words(curve.description.get("metric"))
    drawn = [_baseline(line, k == 0) for k, line in enumerate(_baselines(curve))]
    for number, name in enumerate(names):
        color = f"--curve{number % len(CURVES)}"
        drawn.append(_band(curve.curves[name].bands(), color))
        drawn.append(_marks(points, name, number, len(names) == 1))
    plain = [point for point in points if point.is_plain]
    collapsed = [point for point in points if point.is_collapsed]
    drawn += [
        _front(points),
        _special(points, plain, "plain model (weight 0)", ("diamond", "--plain")),
        _special(points, collapsed, words.collapsed, ("x", "--ink")),
    ]
    for trace in drawn:
        if "hovertemplate" in trace:
            trace["hovertemplate"] = HOVER.replace("ACCURACY", words.accuracy.lower())
    return {
        "titles": {
            "violation": f"{words.violation_axis} (left is fairer)",
            "accuracy": f"{words.accuracy} (up is better)",
        },
        "traces": [trace for trace in drawn if trace["x"]],
        "accuracy": accuracy_range(curve),
        "violation": _violation_range(points),
        "points": [_place(point) for point in points],
        "front": _order(points),
    }


def plotly_source() -> str:
    """Return plotly's own script, which ships with its package."""
    with report_extra():
        from plotly.offline import get_plotlyjs
    # Nothing that a page holds may end the element that it stands in.
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def page_source() -> str:
    """Return the script of a page: it draws, and shows the point that is picked."""
    return files("fferm.report").joinpath("templates/front.js").read_text("utf-8")


def digest(script: str) -> str:
    """Return what a page's security policy knows a script by."""
    value = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(value).decode()}"


def _place(point: Point) -> dict[str, Any]:
    is_drawn = _is_drawn(point)
    return {
        "violation": point.test["violation"].mean if is_drawn else None,
        "accuracy": point.test["accuracy"].mean,
    }


def _is_drawn(point: Point) -> bool:
    violation = point.test["violation"].mean
    return violation == violation  # undefined where no two groups can be compared


def _order(points: list[Point]) -> list[int]:
    # From the fairest to the most accurate of the best trade-offs.
    best = [k for k, point in enumerate(points) if point.is_best]
    return sorted(best, key=lambda k: points[k].test["violation"].mean)


def _violation_range(points: list[Point]) -> tuple[float, float]:
    shown = [point.test["violation"].mean for point in points if _is_drawn(point)]
    highest = max(shown, default=1.0) or 1.0
    return -0.03 * highest, 1.06 * highest


def _named(point: Point, is_alone: bool) -> str:
    weight = f"fairness weight {brief(point.fairness_weight)}"
    return weight if is_alone else f"{escape(point.curve)}, {weight}"


def _at(points: list[Point], chosen: list[Point]) -> dict[str, Any]:
    chosen = [point for point in chosen if _is_drawn(point)]
    is_alone = len({point.curve for point in points}) == 1
    return {
        "x": [point.test["violation"].mean for point in chosen],
        "y": [point.test["accuracy"].mean for point in chosen],
        "customdata": [points.index(point) for point in chosen],
        "text": [_named(point, is_alone) for point in chosen],
        "mode": "markers",
        "hovertemplate": HOVER,  # completed by `traces`
    }


def _marks(
    points: list[Point], name: str, number: int, is_alone: bool
) -> dict[str, Any]:
    shown = [
        point
        for point in points
        if point.curve == name and not (point.is_plain or point.is_collapsed)
    ]
    color = f"--curve{number % len(CURVES)}"
    return {
        **_at(points, shown),
        "name": "models" if is_alone else escape(name),
        "marker": {"color": color, "size": 9, "symbol": MARKS[number % len(MARKS)]},
    }


def _special(
    points: list[Point], chosen: list[Point], name: str, look: tuple[str, str]
) -> dict[str, Any]:
    symbol, color = look
    return {
        **_at(points, chosen),
        "name": name,
        "marker": {"color": color, "size": 12, "symbol": symbol},
    }


def _front(points: list[Point]) -> dict[str, Any]:
    best = [points[k] for k in _order(points)]
    return {
        "x": [point.test["violation"].mean for point in best],
        "y": [point.test["accuracy"].mean for point in best],
        "mode": "lines",
        "name": "best trade-offs",
        "hoverinfo": "skip",
        "line": {"color": "--ink", "width": 1.5},
    }


def _baselines(curve: TradeoffCurve) -> list[pd.DataFrame]:
    return list(baselines(curve, "test").values())


def _baseline(line: pd.DataFrame, is_first: bool) -> dict[str, Any]:
    return {
        "x": line["violation"].tolist(),
        "y": line["accuracy"].tolist(),
        "mode": "lines",
        "name": "naive: thinned at random",
        "showlegend": is_first,
        "hoverinfo": "skip",
        "line": {"color": "--faint", "width": 1.5, "dash": "dash"},
    }


def _band(bands: pd.DataFrame, color: str) -> dict[str, Any]:
    rows = bands.sort_values("violation")
    there, back = rows["violation"].tolist(), rows["violation"].tolist()[::-1]
    return {
        "x": there + back,
        "y": rows["accuracy_high"].tolist() + rows["accuracy_low"].tolist()[::-1],
        "fill": "toself",
        "mode": "lines",
        "opacity": 0.15,
        "hoverinfo": "skip",
        "showlegend": False,
        "line": {"width": 0, "color": color},
        "fillcolor": color,
    }
