"""Figures and tables of experiments: PNG and Markdown."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fferm.lab.experiments.specs import Spec
from fferm.lab.experiments.summaries import front, summarize
from fferm.report.pages import report_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANEL_INCHES = (4.2, 3.6)
# Methods of ours are drawn thick; their labels begin so.
OURS = "f-"
MARKERS = "os^D"
# Columns that are printed without an interval, and their digits.
ROUGH_COLUMNS = {"reached": 1, "points": 1, "seconds": 1, "value": 2, "choice": 4}


def write_experiment(spec: Spec, records: pd.DataFrame, path: Path) -> None:
    """Write ``path`` with the endings ``.png`` and ``.md``.

    Parameters
    ----------
    spec
        The experiment.
    records
        What was measured.
    path
        The files' name without an ending.
    """
    summary = summarize(spec, records)
    path.with_suffix(".md").write_text(table(spec, summary), encoding="utf-8")
    with report_extra():
        from matplotlib.figure import Figure
    figure = Figure(layout="constrained")
    if spec.kind == "noise":
        figure.set_size_inches(9, 4)
        axes = [figure.subplots()]
        _draw_noise(axes[0], spec, summary)
    else:
        seen = set(records["panel"])
        panels = [panel.name for panel in spec.panels if panel.name in seen]
        figure.set_size_inches(PANEL_INCHES[0] * len(panels) + 3, PANEL_INCHES[1])
        axes = list(figure.subplots(1, len(panels), squeeze=False)[0])
        rows, draw = (
            (records, _draw_fronts) if spec.kind == "fronts" else (summary, _draw_shift)
        )
        for ax, panel in zip(axes, panels, strict=True):
            draw(ax, spec, rows[rows["panel"] == panel])
            ax.set_title(panel, fontsize=9)
        axes[0].set_ylabel("test accuracy")
    handles = {
        label: handle
        for ax in axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    if handles:
        figure.legend(
            handles.values(), handles.keys(), loc="outside right center", fontsize=7
        )
    figure.suptitle(spec.title, fontsize=10)
    figure.savefig(path.with_suffix(".png"), dpi=110)


def table(spec: Spec, summary: pd.DataFrame) -> str:
    """Return the summary as a Markdown table, intervals beside their means."""
    columns = [
        name
        for name in summary.columns
        if name not in ("panel", "method") and not name.endswith("_pm")
    ]
    lines = [
        f"| panel | method | {' | '.join(columns)} |",
        "|---|---|" + "---:|" * len(columns),
    ]
    for _, row in summary.iterrows():
        cells = [_cell(row[name], row[f"{name}_pm"], name) for name in columns]
        lines.append(f"| {row['panel']} | {row['method']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(mean: float, half_width: float, name: str) -> str:
    if np.isnan(mean):
        return "none"
    digits = ROUGH_COLUMNS.get(name, 4)
    text = f"{mean:.{digits}f}"
    is_shown = np.isfinite(half_width) and name not in ROUGH_COLUMNS
    return f"{text} ± {half_width:.{digits}f}" if is_shown else text


def _draw_fronts(ax: "Axes", spec: Spec, records: pd.DataFrame) -> None:
    """Draw the mean over seeds of the best accuracy at each violation."""
    grid = np.linspace(0, spec.bounds["violation"], 80)
    order = [method.label for method in spec.methods]
    for number, label in enumerate(order):
        sweeps = records[records["method"] == label]
        if sweeps.empty:
            continue
        heights = [_height(front(part), grid) for _, part in sweeps.groupby("seed")]
        seen = np.mean(np.isfinite(heights), axis=0) == 1
        if not seen.any():
            continue
        mean, spread = np.mean(heights, axis=0), np.std(heights, axis=0)
        color = f"C{number % 10}"
        is_ours = label.startswith(OURS)
        style = "-" if number < 10 else "--"
        width = 2.2 if is_ours else 1.0
        line = ax.plot(grid[seen], mean[seen], style, color=color, lw=width)[0]
        line.set(label=label, zorder=3 if is_ours else 2)
        low, high = (mean - spread)[seen], (mean + spread)[seen]
        ax.fill_between(grid[seen], low, high, color=color, alpha=0.12, lw=0)
    plain = records[(records["part"] == "test") & (records["method"] == order[0])]
    accuracy = plain.loc[plain["value"] == 0, "accuracy"].mean()
    ax.axhline(accuracy, ls=":", color="black", lw=1, label="plain model")
    ax.set_xlabel("test violation")
    ax.set_ylim(bottom=spec.bounds["accuracy"])
    ax.grid(alpha=0.3)


def _height(points: pd.DataFrame, grid: np.ndarray) -> np.ndarray:
    """Return the best accuracy within each violation; NaN where there is none."""
    violation, accuracy = points["violation"].to_numpy(), points["accuracy"].to_numpy()
    place = np.searchsorted(violation, grid, side="right") - 1
    if not len(points):
        return np.full(grid.size, np.nan)
    return np.where(place >= 0, accuracy[np.maximum(place, 0)], np.nan)


def _draw_noise(ax: "Axes", spec: Spec, summary: pd.DataFrame) -> None:
    shares = {panel.name: 100 * panel.data.get("flip", 0.0) for panel in spec.panels}
    ordered = summary.assign(share=summary["panel"].map(shares)).sort_values("share")
    for number, method in enumerate(spec.methods):
        label = method.label
        rows = ordered[ordered["method"] == label]
        ax.errorbar(
            rows["share"],
            rows["violation"],
            yerr=rows["violation_pm"],
            label=label,
            color=f"C{number % 10}",
            ls="-" if number < 10 else "--",
            lw=2.2 if label.startswith(OURS) else 1.0,
            capsize=2,
        )
    ax.set_xlabel("groups flipped in training, %")
    ax.set_ylabel(f"test violation at accuracy {spec.bounds['at_accuracy']:g}")
    ax.grid(alpha=0.3)


def _draw_shift(ax: "Axes", spec: Spec, summary: pd.DataFrame) -> None:
    methods = [method.label for method in spec.methods]
    for _, row in summary.iterrows():
        number = methods.index(row["method"])
        violation, accuracy = row["violation"], row["accuracy"]
        color = f"C{number % 10}"
        # A mean may lie outside the quartiles, so these are no error bars.
        ax.hlines(accuracy, row["violation_0.25"], row["violation_0.75"], color)
        ax.vlines(violation, row["accuracy_0.25"], row["accuracy_0.75"], color)
        marker = MARKERS[number // 10]
        ax.plot(violation, accuracy, marker, color=color, label=row["method"])
    ax.set_xlabel("violation, mean and quartiles over states")
    ax.grid(alpha=0.3)
