"""Figures: accuracy against violation, and predictions that are numbers.

Colours come from the palette of Okabe and Ito, which colour-blind readers can tell
apart; marks differ in shape as well.
"""

import io
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fferm._typing import FloatArray
from fferm.auditing.regression import ColumnAudit, Densities, Fan
from fferm.curve import TradeoffCurve
from fferm.errors import import_extra
from fferm.report.wording import curve_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, PLAIN, FAINT, GRID = "#1d1d21", "#d55e00", "#85858a", "#e2e2e6"
PAPER = "#fefefe"
# One of each per curve; after the last they begin again, and since there is one mark
# less than colours, twenty curves look different.
CURVES = ("#0072b2", "#00805d", "#a8548a", "#8f6c00", "#5b3fa3")
MARKS = ("o", "s", "^", "v")
BAND = "band"
# On a page the same colours are the page's own, which follow light and dark.
PAGE_COLORS = {
    INK: "var(--ink)",
    PLAIN: "var(--plain)",
    FAINT: "var(--faint)",
    GRID: "var(--line)",
    PAPER: "var(--paper)",
    **{color: f"var(--curve{k})" for k, color in enumerate(CURVES)},
}
# Inches; narrow, so that the text is still readable where a phone shrinks it.
PAGE_SIZE = (4.9, 3.7)
# The picture of a curve, beside a panel and on a phone, with columns of its legend.
CURVE_SIZES = {"wide": ((7.6, 4.9), 3), "narrow": ((4.3, 4.8), 1)}
# Half of the points within this share of the axis are a cluster: they get a close-up.
CROWDED = 0.25
# A bound up to this multiple of the largest violation is drawn; others are far away.
FAR = 2.0
# Intervals of the violation are shown up to this multiple of the largest violation.
FAR_INTERVAL = 1.3
INKS = ("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color")
PAGE_STYLE = {
    **dict.fromkeys(INKS, INK),
    **dict.fromkeys(("axes.facecolor", "figure.facecolor"), "none"),
    "font.size": 9,
    "legend.facecolor": PAPER,
    "svg.fonttype": "none",  # text stays text, to be searched and copied
    "svg.hashsalt": "fferm",  # the same curve gives the same bytes
}
# Letters of a name that fits half of a figure, or all of it.
NARROW, WIDE = 22, 40
# One of each per round of colours.
LINES = ("-", "--", ":", "-.")
# The naive baseline goes down to one class for everyone. So much of it is shown below
# the models, in units of what they span, that these still fill the picture.
ROOM_BELOW = 0.6
LEAST_SPAN = 0.01
MEASURES = ("accuracy", "violation", "soft_violation", "divergence", "loss")
# A style is that of the whole process, so pages are drawn one after another.
STYLED = threading.Lock()


def plot_curve(
    curve: TradeoffCurve, ax: "Axes | None" = None, *, split: str = "test"
) -> "Axes":
    """Draw accuracy against violation and return the axes.

    Every curve of the sweep has a colour and a mark. Shaded is the 95 % interval of
    the accuracy on test rows, thin lines are those of the violation
    (`TradeoffCurve.bands`).

    Parameters
    ----------
    curve
        What `fferm.tradeoff_curve` returned.
    ax
        Where to draw; a new figure by default, ``ax.figure``, that pyplot does not
        know of.
    split
        ``"train"`` or ``"test"``; of a single curve the other one is drawn faintly.

    Examples
    --------
    >>> plot_curve(curve).figure.savefig("curve.png")  # doctest: +SKIP
    """
    drawn: Any = _new_axes() if ax is None else ax
    words = curve_words(curve.description.get("metric"))
    if len(curve.descriptions) == 1:
        rows = average(curve).records
        rows = rows[(rows["split"] != split) & ~rows["collapsed"]]
        label = f"models, {'train' if split == 'test' else 'test'} rows"
        faint = {"color": FAINT, "alpha": 0.5, "s": 18, "marker": MARKS[0]}
        drawn.scatter("violation", "accuracy", data=rows, label=label, **faint)
    _draw_layers(drawn, curve, split)
    drawn.set_ylabel(f"{words.accuracy} (up is better)")
    # From zero, the fair end, with room for the marks on it.
    drawn.set_xlim(left=-0.02 * drawn.get_xlim()[1])
    drawn.set_ylim(accuracy_range(curve))
    # The baseline may pass behind it.
    drawn.legend(loc="lower right", edgecolor="none", framealpha=0.9)
    return _finished(drawn, f"{words.violation_axis} (left is fairer)")


def _draw_layers(drawn: Any, curve: TradeoffCurve, split: str) -> None:
    for rows, label, color, mark in layers(curve, split):
        look = {"data": rows, "color": color, "label": as_text(label)}
        if mark == BAND:
            ends = "violation", "accuracy_low", "accuracy_high"
            drawn.fill_between(*ends, **look, linewidth=0, alpha=0.15)
            ends = "accuracy", "violation_low", "violation_high"
            thin = {"color": color, "linewidth": 1.2, "alpha": 0.5, "label": ""}
            drawn.hlines(*ends, data=rows, **thin)
        elif mark in LINES:
            look |= {"linestyle": mark, "linewidth": 1.5 if color in CURVES else 1}
            drawn.plot("violation", "accuracy", **look)
        elif mark in MARKS:
            look["label"] = as_text(f"{label}, {split} rows")
            drawn.scatter("violation", "accuracy", **look, s=18, marker=mark)
        else:
            drawn.scatter("violation", "accuracy", **look, s=46, marker=mark, zorder=3)


def draw_points(
    curve: TradeoffCurve,
    places: list[tuple[float, float]],
    max_violation: float | None = None,
    taken: int | None = None,
) -> dict[str, dict[str, str]]:
    """Return pictures for a page whose points can be picked, as ``<svg>`` elements.

    Parameters
    ----------
    curve
        What is drawn.
    places
        Violation and accuracy of each point. Over the k-th lies a mark that nobody
        sees; its id ends in ``pick`` and k.
    max_violation
        Where to draw the bound.
    taken
        The point to draw a ring around.

    Returns
    -------
    dict
        By name, ``"whole"`` and, where points cluster, ``"close"``: by width the
        picture.
    """
    known = np.array(places)[~np.isnan(places).any(axis=1)]
    views: dict[str, Any] = {"whole": None}
    if (close := crowd(known)) is not None:
        views["close"] = close
    drawn: dict[str, dict[str, str]] = {view: {} for view in views}
    for view, limits in views.items():
        for width, (size, columns) in CURVE_SIZES.items():
            draw = partial(
                _draw_page, curve, places, max_violation, taken, limits, columns
            )
            drawn[view][width] = draw_svg(draw, f"{view}-{width}", size)
    return drawn


def _draw_page(
    curve: TradeoffCurve,
    places: list[tuple[float, float]],
    max_violation: float | None,
    taken: int | None,
    limits: tuple[tuple[float, float], tuple[float, float]] | None,
    columns: int,
    ax: Any,
) -> None:
    words = curve_words(curve.description.get("metric"))
    _draw_layers(ax, curve, "test")
    highest = max((x for x, _ in places if x == x), default=1.0) or 1.0
    ends = curve.bands()["violation_high"].max()
    right = max(1.06 * highest, np.fmin(1.02 * ends, FAR_INTERVAL * highest))
    if max_violation is not None and max_violation <= FAR * highest:
        right = max(right, 1.06 * max_violation)
        is_share = "metric" not in curve.description
        text = _in_percent(max_violation, 0) if is_share else f"{max_violation:.3g}"
        text = f"bound {text}"
        ax.axvline(max_violation, color=PLAIN, linestyle=":", label=text, gid="bound")
    (left, right), (low, high) = limits or (
        (-0.03 * right, right),
        accuracy_range(curve),
    )
    for k, (x, y) in enumerate(places):
        if left <= x <= right and low <= y <= high:
            ax.plot([x], [y], "o", markersize=12, alpha=0.0, gid=f"pick{k}", zorder=9)
    if taken is not None:
        ring = {"markersize": 12, "markerfacecolor": "none", "markeredgecolor": INK}
        x, y = places[taken]
        ax.plot([x], [y], "o", **ring, zorder=4, label="taken", linestyle="none")
    ax.set_ylabel(f"{words.accuracy} (up is better)")
    ax.set_xlim((left, right))
    ax.set_ylim((low, high))
    if "metric" not in curve.description:  # shares; those of the page are in percent
        ax.xaxis.set_major_formatter(_in_percent)
    ax.yaxis.set_major_formatter(_in_percent)
    ax.tick_params(length=3)
    ax.locator_params(axis="x", nbins=3 + 2 * columns)
    if limits is None:  # a close-up has the legend of the picture above it
        ax.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.14),
            ncols=columns,
            edgecolor="none",
            columnspacing=1.2,
        )
    _finished(ax, f"{words.violation_axis} (left is fairer)")


def _in_percent(value: float, _: int) -> str:
    return f"{100 * value:.4g} %"


def crowd(
    places: FloatArray,
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Return the limits of both axes around a cluster of points, None without one.

    Parameters
    ----------
    places
        (points, 2) violations and accuracies.
    """
    x, half = np.sort(places[:, 0]), (len(places) + 1) // 2
    widths = x[half:] - x[: len(x) - half]
    if half < 3 or not len(widths) or not widths.min() < CROWDED * (x[-1] or 1.0):
        return None
    k = int(widths.argmin())
    low, high = x[k], x[k + half]
    inside = places[(places[:, 0] >= low) & (places[:, 0] <= high)]
    ends = []
    for column in inside.T:
        least, most = float(column.min()), float(column.max())
        room = 0.15 * (most - least) or 0.05 * (abs(most) or 1.0)
        ends.append((least - room, most + room))
    return ends[0], ends[1]


def layers(
    curve: TradeoffCurve, split: str
) -> Iterator[tuple[pd.DataFrame, str, str, str]]:
    """Yield what a figure of a curve shows: rows, label, colour, mark.

    The mark is that of points, the dashes of a line, or `BAND`; a label may be empty.
    """
    means, is_alone = average(curve), len(curve.descriptions) == 1
    front, rows = means.pareto(split), means.records[means.records["split"] == split]
    for k, line in enumerate(baselines(curve, split)):
        yield line, "" if k else "naive: decisions thinned at random", FAINT, "--"
    for k, (name, alone) in enumerate(curve.curves.items()):
        color, label = CURVES[k % len(CURVES)], "models" if is_alone else name
        is_shown = (rows["curve"] == name) & ~rows["collapsed"]
        yield rows[is_shown], label, color, MARKS[k % len(MARKS)]
        bands = alone.bands().sort_values("violation")
        if split == "test" and not bands.empty:
            yield bands, "" if k else "95 % intervals", color, BAND
    yield front, "best trade-offs", CURVES[0] if is_alone else INK, "-"
    plain, collapsed = rows[rows["fairness_weight"] == 0], rows[rows["collapsed"]]
    if not plain.empty:
        yield plain, "plain model (weight 0)", PLAIN, "D"
    if not collapsed.empty:
        words = curve_words(curve.description.get("metric"))
        yield collapsed, words.collapsed, INK, "x"


def average(curve: TradeoffCurve) -> TradeoffCurve:
    """Return the curve of means over seeds: one record per point and split.

    A measure that is undefined for one seed stays undefined: the mean of the others
    would compare other models.
    """
    by_point = ["curve", "fairness_weight", "split"]
    grouped = curve.records.groupby(by_point, sort=False)
    means = grouped[list(MEASURES)].agg(mean)
    means["seed"] = grouped["seed"].first()
    means["collapsed"] = grouped["collapsed"].any()
    return replace(curve, records=means.reset_index())


def mean(values: "pd.Series[float]") -> float:
    """Return the mean, undefined where a value is."""
    return float(values.mean(skipna=False))


def draw_svg(
    draw: Callable[["Axes"], object],
    name: str = "",
    size: tuple[float, float] = PAGE_SIZE,
) -> str:
    """Return a figure as an ``<svg>`` element for a page.

    Parameters
    ----------
    draw
        Draws on the axes that are passed to it.
    name
        What its ids begin with, where a page has several.
    size
        Width and height in inches.
    """
    import_extra("matplotlib.figure", "report", "A figure")
    from matplotlib import style
    from matplotlib.figure import Figure

    with STYLED, style.context(["default", PAGE_STYLE]):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        letters, stream = _replace_letters(figure), io.StringIO()
        silent = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(stream, format="svg", metadata=silent)
    text = stream.getvalue()
    element = text[text.index("<svg") :].translate(letters)
    for color, variable in PAGE_COLORS.items():
        element = element.replace(color, variable)
    if name:  # ids are of the whole page
        element = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", element)
    # Inside a page the rule would hold for all of it.
    return element.replace("*{", "figure svg *{")


def _replace_letters(figure: "Figure") -> dict[int, str]:
    # The name of a curve stays text, and a browser has letters for it that matplotlib's
    # font lacks and would warn of. So others stand for them until the figure is drawn.
    from matplotlib.font_manager import findfont, get_font
    from matplotlib.text import Text

    texts: list[Any] = figure.findobj(Text)
    known = get_font(findfont("DejaVu Sans")).get_charmap()
    used = {ord(letter) for text in texts for letter in text.get_text()}
    free = [code for code in sorted(known, reverse=True) if code not in used]
    missing = sorted(used - {*known, ord("\n")})
    stand_in = dict(zip(missing, free, strict=False))
    for text in texts:
        text.set_text(text.get_text().translate(stand_in))
    return {code: chr(letter) for letter, code in stand_in.items()}


def accuracy_range(curve: TradeoffCurve) -> tuple[float, float]:
    """Return the accuracies to show: all models, and some room for the baseline."""
    low, high = curve.records["accuracy"].min(), curve.records["accuracy"].max()
    span = max(high - low, LEAST_SPAN)
    band = min(curve.bands()["accuracy_high"].max(), high + ROOM_BELOW * span)
    return float(low - ROOM_BELOW * span), float(np.fmax(band, high) + 0.1 * span)


def _new_axes() -> "Axes":
    import_extra("matplotlib.figure", "report", "A figure")
    from matplotlib.figure import Figure

    return Figure(layout="constrained").subplots()


def baselines(curve: TradeoffCurve, split: str) -> list[pd.DataFrame]:
    """Return the naive baseline of each curve, averaged over seeds."""
    if curve.baseline.empty:
        return []
    rows = curve.baseline[curve.baseline["split"] == split]
    means = rows.groupby(["curve", "thinning"], sort=False)[["violation", "accuracy"]]
    return [line for _, line in means.mean().groupby(level=0, sort=False)]


def as_text(text: str) -> str:
    """Return text as matplotlib writes it out: no mathematics, nothing hidden."""
    # A dollar begins mathematics in matplotlib, an underscore hides from a legend.
    return text.replace("$", r"\$").removeprefix("_")


def plot_column(column: ColumnAudit, name: str, ax: "Axes | None" = None) -> "Axes":
    """Draw what a regressor predicts by group, or along a number."""
    if column.fan is not None:
        return plot_fan(column.fan, name, ax)
    return plot_densities(column.densities, name, ax)


def plot_densities(densities: Densities, name: str, ax: "Axes | None" = None) -> "Axes":
    """Draw the density of the prediction in each group and return the axes."""
    ax = _new_axes() if ax is None else ax
    for k, (group, density) in enumerate(densities.by_group.items()):
        color, dashes = CURVES[k % len(CURVES)], LINES[k // len(CURVES) % len(LINES)]
        (line,) = ax.plot(densities.at, density, linewidth=1.5, label=_short(group))
        line.set(color=color, linestyle=dashes)
    ax.set_ylabel("density")
    # Below: lines of many groups leave no room that is free for sure.
    ax.legend(
        title=_short(name),
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        ncols=1 if max(map(len, densities.by_group), default=0) > NARROW else 2,
        edgecolor="none",
    )
    return _finished(ax, "prediction")


def plot_fan(fan: Fan, name: str, ax: "Axes | None" = None) -> "Axes":
    """Draw predictions against a number: mean and middle 80 %; return the axes."""
    ax = _new_axes() if ax is None else ax
    at = np.array(fan.at)
    band = ax.fill_between(at, fan.low, fan.high, alpha=0.25, label="middle 80 %")
    band.set(color=CURVES[0], linewidth=0)
    ax.plot(at, fan.mean, color=PLAIN, linewidth=2, label="mean")
    ax.set_ylabel("prediction")
    ax.legend(edgecolor="none", framealpha=0.9)
    return _finished(ax, _short(name))


def _short(text: str) -> str:
    return as_text(text if len(text) <= WIDE else f"{text[: WIDE - 1]}…")


def _finished(ax: "Axes", label: str) -> "Axes":
    ax.set_xlabel(label)
    ax.grid(color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
