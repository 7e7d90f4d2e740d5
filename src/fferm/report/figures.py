"""Figures: accuracy against violation.

Colours come from the palette of Okabe and Ito, which colour-blind readers can tell
apart; marks differ in shape as well.
"""

import io
from typing import TYPE_CHECKING

import pandas as pd

from fferm.report.extra import report_extra
from fferm.report.points import average
from fferm.tradeoff import TradeoffCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FRONT, PLAIN, FAINT, GRID = "#1d1d21", "#0072b2", "#d55e00", "#85858a", "#e2e2e6"
# On a page the same colours are the page's own, which follow light and dark.
PAGE_COLORS = {
    INK: "var(--ink)",
    FRONT: "var(--front)",
    PLAIN: "var(--plain)",
    FAINT: "var(--faint)",
    GRID: "var(--line)",
}
# Inches; narrow, so that the text is still readable where a phone shrinks it.
PAGE_SIZE = (4.9, 3.7)
PAGE_STYLE = {
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "figure.facecolor": "none",
    "font.size": 9,
    "svg.fonttype": "none",  # text stays text, to be searched and copied
    "svg.hashsalt": "fferm",  # the same curve gives the same bytes
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def plot_curve(
    curve: TradeoffCurve, ax: "Axes | None" = None, *, split: str = "test"
) -> "Axes":
    """Draw accuracy against violation and return the axes.

    Several seeds are drawn as their mean, with bars from the lowest to the highest.

    Parameters
    ----------
    curve
        What `fferm.tradeoff_curve` returned.
    ax
        Where to draw; a new figure by default, ``ax.figure``, that pyplot does not
        know of.
    split
        ``"train"`` or ``"test"``; the other one is drawn faintly.

    Examples
    --------
    >>> plot_curve(curve).figure.savefig("curve.png")  # doctest: +SKIP
    """
    means = average(curve)
    front = means.pareto(split)
    drawn = _new_axes() if ax is None else ax
    other = "train" if split == "test" else "test"
    _draw_points(drawn, means.records, other, FAINT, alpha=0.6)
    drawn.plot(
        front["violation"], front["accuracy"], color=FRONT, label="best trade-offs"
    )
    _draw_points(drawn, means.records, split, FRONT)
    _draw_spread(drawn, curve.records, split)
    _draw_special(drawn, means.records[means.records["split"] == split])
    _annotate(drawn)
    return drawn


def draw_svg(curve: TradeoffCurve) -> str:
    """Return the figure of a curve as an ``<svg>`` element for a page."""
    with report_extra():
        from matplotlib import style
        from matplotlib.figure import Figure
    with style.context(["default", PAGE_STYLE]):
        figure = Figure(figsize=PAGE_SIZE, layout="constrained")
        plot_curve(curve, figure.subplots())
        return _as_element(figure)


def _as_element(figure: "Figure") -> str:
    stream = io.StringIO()
    silent = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(stream, format="svg", metadata=silent)
    text = stream.getvalue()
    element = text[text.index("<svg") :]
    for color, variable in PAGE_COLORS.items():
        element = element.replace(color, variable)
    # Inside a page the rule would hold for all of it.
    return element.replace("*{", "figure svg *{")


def _new_axes() -> "Axes":
    with report_extra():
        from matplotlib.figure import Figure
    return Figure(layout="constrained").subplots()


def _draw_points(
    ax: "Axes", records: pd.DataFrame, split: str, color: str, alpha: float = 1.0
) -> None:
    rows = records[(records["split"] == split) & ~records["collapsed"]]
    ax.scatter(
        rows["violation"],
        rows["accuracy"],
        s=18,
        color=color,
        alpha=alpha,
        label=f"models, {split} rows",
    )


def _draw_spread(ax: "Axes", records: pd.DataFrame, split: str) -> None:
    if records["seed"].nunique() < 2:
        return
    rows = records[records["split"] == split]
    # A point that one seed spoils is not drawn, so neither are its bars.
    is_usable = ~rows["collapsed"] & rows["violation"].notna()
    rows = rows[is_usable.groupby(rows["fairness_weight"]).transform("all")]
    by_weight = rows.groupby("fairness_weight")[["violation", "accuracy"]]
    low, mean, high = by_weight.min(), by_weight.mean(), by_weight.max()
    below, above = mean - low, high - mean
    ax.errorbar(
        mean["violation"],
        mean["accuracy"],
        xerr=[below["violation"], above["violation"]],
        yerr=[below["accuracy"], above["accuracy"]],
        fmt="none",
        ecolor=FRONT,
        elinewidth=0.8,
        alpha=0.5,
        label="range over seeds",
    )


def _draw_special(ax: "Axes", rows: pd.DataFrame) -> None:
    plain = rows[rows["fairness_weight"] == 0]
    collapsed = rows[rows["collapsed"]]
    for marked, marker, color, label in (
        (plain, "D", PLAIN, "plain model (weight 0)"),
        (collapsed, "x", INK, "one decision for everyone"),
    ):
        if len(marked):
            ax.scatter(
                marked["violation"],
                marked["accuracy"],
                s=46,
                marker=marker,
                color=color,
                label=label,
                zorder=3,
            )


def _annotate(ax: "Axes") -> None:
    ax.set_xlabel("Violation: largest gap between groups (left is fairer)")
    ax.set_ylabel("Accuracy (up is better)")
    # From zero, the fair end, with room for the marks on it.
    ax.set_xlim(left=-0.02 * ax.get_xlim()[1])
    ax.grid(color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="lower right", frameon=False)
