"""Figures of a regressor: densities of groups, predictions against numbers."""

from typing import TYPE_CHECKING

import numpy as np

from fferm._types import FloatArray
from fferm.columns import Attribute
from fferm.report.extra import report_extra
from fferm.report.figures import CURVES, PLAIN
from fferm.soft_bins import quantile_edges

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Bars of a density, and quantile bins of a mean line.
N_BARS = 40
N_MEANS = 20


def plot_densities(
    prediction: FloatArray, attribute: Attribute, ax: "Axes | None" = None
) -> "Axes":
    """Draw the density of the prediction in each group and return the axes."""
    ax = ax if ax is not None else _new_axes()
    low, high = np.quantile(prediction, [0.001, 0.999])
    edges = np.linspace(low, max(high, low + 1e-9), N_BARS + 1)
    for k, group in enumerate(attribute.groups):
        inside = np.clip(prediction[attribute.code == k], edges[0], edges[-1])
        density, _ = np.histogram(inside, edges, density=True)
        ax.stairs(density, edges, label=group, linewidth=1.5)
    ax.set_xlabel("prediction")
    ax.set_ylabel("density")
    ax.legend(title=attribute.name)
    return ax


def plot_numbers(
    prediction: FloatArray, values: FloatArray, name: str, ax: "Axes | None" = None
) -> "Axes":
    """Draw predictions against a number, with their mean by bins; return the axes."""
    ax = ax if ax is not None else _new_axes()
    ax.plot(values, prediction, ".", color=CURVES[0], alpha=0.2, markersize=3)
    edges = quantile_edges(values, N_MEANS, np.ones(values.size))
    place = np.searchsorted(edges, values, "right")
    x, u = (np.bincount(place, v) / np.bincount(place) for v in (values, prediction))
    ax.plot(x, u, color=PLAIN, linewidth=2, label="mean")
    ax.set_xlabel(name)
    ax.set_ylabel("prediction")
    ax.legend()
    return ax


def _new_axes() -> "Axes":
    with report_extra():
        from matplotlib.figure import Figure

        return Figure(layout="constrained").subplots()
