"""Figures of a regressor: densities of groups, predictions against numbers."""

from typing import TYPE_CHECKING

import numpy as np

from fferm.auditing.number_parts import Densities, Fan
from fferm.report.extra import report_extra
from fferm.report.figures import CURVES, GRID, PLAIN, as_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Letters of a name that fits half of a figure, or all of it.
NARROW, WIDE = 22, 40
# One of each per round of colours.
LINES = ("-", "--", ":", "-.")


def plot_densities(densities: Densities, name: str, ax: "Axes | None" = None) -> "Axes":
    """Draw the density of the prediction in each group and return the axes."""
    ax = ax if ax is not None else _new_axes()
    for k, (group, density) in enumerate(densities.by_group.items()):
        ax.plot(
            densities.at,
            density,
            label=as_text(_short(group)),
            linewidth=1.5,
            color=CURVES[k % len(CURVES)],
            linestyle=LINES[k // len(CURVES) % len(LINES)],
        )
    ax.set_ylabel("density")
    # Below: lines of many groups leave no room that is free for sure.
    ax.legend(
        title=as_text(_short(name)),
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        ncols=1 if max(map(len, densities.by_group), default=0) > NARROW else 2,
        edgecolor="none",
    )
    return _finished(ax, "prediction")


def plot_fan(fan: Fan, name: str, ax: "Axes | None" = None) -> "Axes":
    """Draw predictions against a number: mean and middle 80 %; return the axes."""
    ax = ax if ax is not None else _new_axes()
    at = np.array(fan.at)
    ax.fill_between(
        at,
        fan.low,
        fan.high,
        color=CURVES[0],
        alpha=0.25,
        linewidth=0,
        label="middle 80 %",
    )
    ax.plot(at, fan.mean, color=PLAIN, linewidth=2, label="mean")
    ax.set_ylabel("prediction")
    ax.legend(edgecolor="none", framealpha=0.9)
    return _finished(ax, as_text(_short(name)))


def _short(text: str) -> str:
    return text if len(text) <= WIDE else f"{text[: WIDE - 1]}…"


def _finished(ax: "Axes", label: str) -> "Axes":
    ax.set_xlabel(label)
    ax.grid(color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _new_axes() -> "Axes":
    with report_extra():
        from matplotlib.figure import Figure

        return Figure(layout="constrained").subplots()
