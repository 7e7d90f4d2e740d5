"""What the records of an experiment show: numbers over seeds, a table and a figure."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from fferm._files import replacing
from fferm.curve import TradeoffCurve
from fferm.errors import import_extra
from fferm.lab.experiments import published
from fferm.lab.experiments.specs import Spec

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Bounds = dict[str, float]
CONFIDENCE = 0.95
# What methods are compared by, against the first of the spec, seed by seed.
COMPARED = {
    "fronts": "hypervolume",
    "noise": "violation_at_higher_accuracy",
    "shift": "violation",
}
# The rows to choose on, and the accuracy at which violations are compared there.
CHOSEN_ON = {
    "noise": ("validation", "at_higher_accuracy"),
}
KEYS = ["panel", "method", "seed"]
# Of experiments with a shift: the rows that were trained on, and those to choose on.
NOT_JUDGED = ["train", "target"]

ADVICE = "Choose a folder that is writable and has room."
NOISE_INCHES = (9.0, 4.0)
# Methods of ours are drawn thick; their labels begin so.
OURS = "f-"
# What a table is headed; the file beside it has every column.
HEADINGS = {
    "hypervolume": "hypervolume",
    "violation_at_higher_accuracy": "violation at equal accuracy",
}
DIGITS = 4
# The columns of a forest, and what they are called.
FOREST = {
    "violation": "violation, mean of states",
    "worst": "violation, worst state",
    "accuracy": "accuracy",
}
FOREST_INCHES = 7.0


def summarize(spec: Spec, records: pd.DataFrame) -> pd.DataFrame:
    """Return one row per panel and method: means over seeds and half-widths.

    Columns that end in ``_pm`` are half-widths of 95 % intervals over seeds. For
    fronts: ``hypervolume``, ``accuracy`` (the best at a violation within the bound,
    over the seeds that have one: the share ``reached``), ``points`` (how many values
    gave a model that does not collapse) and, where a panel of the same data has no
    batches, ``drop``: how much of the accuracy is lost from there. For noise:
    ``violation`` at the accuracy of the spec. For shift: means of ``accuracy`` and
    ``violation`` over states, the violation of the ``worst``, ``floor``, what a
    perfectly fair model measures there by chance, and ``rms``, the root of the mean
    squared difference of two groups less the part of noise. ``choice`` is the mean of
    what was chosen, and ``difference`` says how far a method is from the first of the
    spec, seed by seed, in what they are compared by.
    """
    if spec.kind == "published":
        return published.summarize(spec, records)
    seeds = _by_seed(spec, records)
    columns = [name for name in seeds.columns if name not in KEYS]
    groups = seeds.groupby(["panel", "method"], sort=False)[columns]
    quantile = student.ppf((1 + CONFIDENCE) / 2, groups.count() - 1)
    summary = groups.mean().join(groups.sem().mul(quantile).add_suffix("_pm"))
    # Tasks end in any order; the spec says which comes first.
    order = [(p.name, m.label) for p in spec.panels for m in spec.methods]
    present = [key for key in order if key in summary.index]
    return summary.loc[present].reset_index()


def _by_seed(spec: Spec, records: pd.DataFrame) -> pd.DataFrame:
    """Return one row per panel, method and seed, with the numbers of its sweep."""
    numbers, rows = NUMBERS[spec.kind], []
    # A column of nothing but None has no numeric dtype.
    numbered = records.astype({"choice": np.float64})
    for key, sweep in numbered.groupby(KEYS, sort=False):
        bounds = _bounds(spec, sweep)
        if spec.kind in CHOSEN_ON:
            part, at = CHOSEN_ON[spec.kind]
            sweep = _chosen(sweep, part, bounds[at])
        rows.append(dict(zip(KEYS, key, strict=True)) | numbers(bounds, sweep))
    seeds = pd.DataFrame(rows)
    compared = COMPARED[spec.kind]
    first = seeds[seeds["method"] == spec.methods[0].label]
    base = seeds[["panel", "seed"]].merge(first[["panel", "seed", compared]], "left")
    seeds["difference"] = seeds[compared] - base[compared]
    # The panel with the same data and all rows at every step.
    whole = {
        panel.name: other.name
        for panel in spec.panels
        for other in spec.panels
        if (panel.data, panel.notion) == (other.data, other.notion)
        and panel.batch_size is not None
        and other.batch_size is None
    }
    if spec.kind == "fronts" and whole:
        keys = seeds[KEYS].assign(panel=seeds["panel"].map(whole))
        before = keys.merge(seeds[[*KEYS, "accuracy"]], "left")
        seeds["drop"] = before["accuracy"] - seeds["accuracy"]
    return seeds


def _bounds(spec: Spec, sweep: pd.DataFrame) -> Bounds:
    """Return the bounds of the panel of a sweep."""
    (limits,) = (p.bounds for p in spec.panels if p.name == sweep["panel"].iloc[0])
    return {**spec.bounds, **limits}


def _chosen(records: pd.DataFrame, part: str, accuracy: float) -> pd.DataFrame:
    """Return the sweep of the choice that does best on the rows to choose on."""
    sweeps = [sweep for _, sweep in records.groupby("choice", dropna=False)]
    costs = [_violation_at(_curve(sweep, part), accuracy) for sweep in sweeps]
    # A sweep that does not come to the accuracy has no violation there.
    return sweeps[int(np.argmin(np.nan_to_num(costs, nan=np.inf)))]


def _curve(records: pd.DataFrame, part: str = "test") -> TradeoffCurve:
    rows = records[records["part"] == part]
    rows = rows.assign(split="test", fairness_weight=rows["value"])
    return TradeoffCurve(rows, {}, {})


def _front_numbers(bounds: Bounds, records: pd.DataFrame) -> dict[str, float]:
    curve = _curve(records)
    points = curve.pareto()
    within = points[points["violation"] <= bounds["max_violation"]]
    corner = bounds["accuracy"], bounds["violation"]
    return {
        "hypervolume": curve.hypervolume("test", corner),
        "accuracy": float(within["accuracy"].max()) if len(within) else np.nan,
        "reached": float(len(within) > 0),
        "points": float((~records["collapsed"] & (records["part"] == "test")).sum()),
        "seconds": float(records.groupby("value")["seconds"].first().sum()),
    }


def _noise_numbers(bounds: Bounds, records: pd.DataFrame) -> dict[str, float]:
    curve, higher = _curve(records), bounds["at_higher_accuracy"]
    return {
        "violation": _violation_at(curve, bounds["at_accuracy"]),
        "violation_at_higher_accuracy": _violation_at(curve, higher),
        "choice": records["choice"].iloc[0],
    }


def _violation_at(curve: TradeoffCurve, accuracy: float) -> float:
    """Return the violation where the front crosses an accuracy, in between linearly.

    A front that stays above the accuracy has its fairest point there: whoever may lose
    more accuracy need not. One that stays below has none.
    """
    points = curve.pareto().sort_values("accuracy")
    crossed = np.interp(accuracy, points["accuracy"], points["violation"], right=np.nan)
    return float(crossed)


def _shift_numbers(bounds: Bounds, records: pd.DataFrame) -> dict[str, float]:
    """Return what the last model of a sweep does in the states."""
    value = records["value"].iloc[-1]
    is_state = ~records["part"].isin(NOT_JUDGED) & (records["value"] == value)
    states = records[is_state]
    means = states[["accuracy", "violation", "floor", "square"]].mean()
    return {
        **means[["accuracy", "violation"]].to_dict(),
        "worst": float(states["violation"].max()),
        "floor": float(means["floor"]),
        "rms": float(np.sqrt(max(means["square"], 0.0))),
    }


NUMBERS = {"fronts": _front_numbers, "noise": _noise_numbers, "shift": _shift_numbers}

# The table and the figure


def write_experiment(spec: Spec, records: pd.DataFrame, path: Path) -> None:
    """Write ``path`` with the endings ``.png``, ``.md`` and ``.csv``.

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
    with replacing(path.with_suffix(".md"), ADVICE) as temporary:
        temporary.write_text(_table(spec, summary), encoding="utf-8")
    with replacing(path.with_suffix(".csv"), ADVICE) as temporary:
        summary.round(DIGITS).to_csv(temporary, index=False)
    import_extra("matplotlib.figure", "report", "A figure")
    from matplotlib.figure import Figure

    if spec.kind == "shift":
        figure = Figure(layout="constrained")
        _draw_shift(figure, spec, summary)
        _write_figure(figure, path)
        return
    is_noise, draw = spec.kind == "noise", DRAWN[spec.kind]
    rows = records if spec.kind == "fronts" else summary
    parts = {p.name: rows[rows["panel"] == p.name] for p in spec.panels}
    parts = {"": rows} if is_noise else {n: p for n, p in parts.items() if len(p)}
    size = NOISE_INCHES if is_noise else (4.2 * len(parts) + 3, 3.6)
    figure = Figure(size, layout="constrained")
    axes = list(figure.subplots(1, len(parts), squeeze=False)[0])
    axes[0].set_ylabel("test accuracy")
    for ax, (panel, part) in zip(axes, parts.items(), strict=True):
        draw(ax, spec, part)
        ax.set_title(panel, fontsize=9)
        ax.grid(alpha=0.3)
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
    _write_figure(figure, path)


def _write_figure(figure: Any, path: Path) -> None:
    with replacing(path.with_suffix(".png"), ADVICE) as temporary:
        figure.savefig(temporary, dpi=110, format="png")


def _table(spec: Spec, summary: pd.DataFrame) -> str:
    """Return what methods are compared by as a Markdown table, panel by panel."""
    if spec.kind == "published":
        return published.markdown(summary)
    if spec.kind == "shift":
        return _shift_table(spec, summary)
    panels, name = summary["panel"].unique(), COMPARED[spec.kind]
    lines = [
        f"| {HEADINGS[name]} | {' | '.join(panels)} |",
        "|---|" + "---:|" * len(panels),
    ]
    for method, rows in summary.groupby("method", sort=False):
        known = dict(zip(rows["panel"], rows[name], strict=True))
        spread = dict(zip(rows["panel"], rows[f"{name}_pm"], strict=True))
        # A dash: the method takes no part in the panel.
        cells = [_cell(known[p], spread[p]) if p in known else "–" for p in panels]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _shift_table(spec: Spec, summary: pd.DataFrame) -> str:
    regimes = {method.label: method.regime for method in spec.methods}
    lines = []
    for panel, rows in summary.groupby("panel", sort=False):
        names = ("accuracy", "violation", "worst", "rms")
        lines += [
            f"| {panel} | known of the target | accuracy | violation | worst state | "
            "rms gap without noise |",
            "|---|---|" + "---:|" * len(names),
        ]
        for _, row in rows.iterrows():
            cells = [_cell(row[name], row[f"{name}_pm"]) for name in names]
            method = row["method"]
            lines.append(f"| {method} | {regimes[method]} | {' | '.join(cells)} |")
        lines += ["", f"By chance: {rows['floor'].iloc[0]:.4f}.", ""]
    return "\n".join(lines)


def _cell(mean: float, spread: float) -> str:
    """Return a mean and the half-width of its interval, as far as they exist."""
    if np.isnan(mean):
        return "none"
    known = f"±{spread:.{DIGITS}f}" if np.isfinite(spread) else ""
    return f"{mean:.{DIGITS}f}{known}"


def _draw_fronts(ax: "Axes", spec: Spec, records: pd.DataFrame) -> None:
    """Draw the mean over seeds of the best accuracy at each violation."""
    grid = np.linspace(0, spec.bounds["violation"], 80)
    order = [method.label for method in spec.methods]
    for number, label in enumerate(order):
        sweeps = records[records["method"] == label]
        if sweeps.empty:
            continue
        heights = []
        for _, part in sweeps.groupby("seed"):
            points = _curve(part).pareto()
            # The best accuracy within each violation; NaN where there is none.
            place = np.searchsorted(points["violation"], grid, side="right")
            heights.append(np.append(np.nan, points["accuracy"])[place])
        seen = np.mean(np.isfinite(heights), axis=0) == 1
        if not seen.any():
            continue
        mean, spread = np.mean(heights, axis=0), np.std(heights, axis=0)
        style = _style(number, label)
        zorder = 3 if label.startswith(OURS) else 2
        ax.plot(grid[seen], mean[seen], zorder=zorder, **style)
        low, high = (mean - spread)[seen], (mean + spread)[seen]
        ax.fill_between(grid[seen], low, high, color=style["color"], alpha=0.12, lw=0)
    plain = records[(records["part"] == "test") & (records["method"] == order[0])]
    accuracy = plain.loc[plain["value"] == 0, "accuracy"].mean()
    ax.axhline(accuracy, ls=":", color="black", lw=1, label="plain model")
    ax.set(xlabel="test violation", ylim=(spec.bounds["accuracy"], None))


def _style(number: int, label: str) -> dict[str, Any]:
    """Return how a line of a method is drawn: ours thick, the first ten solid."""
    return {
        "label": label,
        "color": f"C{number % 10}",
        "ls": "-" if number < 10 else "--",
        "lw": 2.2 if label.startswith(OURS) else 1.0,
    }


def _draw_noise(ax: "Axes", spec: Spec, summary: pd.DataFrame) -> None:
    shares = {panel.name: 100 * panel.data.get("flip", 0.0) for panel in spec.panels}
    ordered = summary.assign(share=summary["panel"].map(shares)).sort_values("share")
    for number, method in enumerate(spec.methods):
        rows = ordered[ordered["method"] == method.label]
        share, violation = rows["share"], rows["violation"]
        style = {"capsize": 2, **_style(number, method.label)}
        ax.errorbar(share, violation, rows["violation_pm"], **style)
    ax.set_xlabel("groups flipped in training, %")
    ax.set_ylabel(f"test violation at accuracy {spec.bounds['at_accuracy']:g}")


def _draw_shift(figure: Any, spec: Spec, summary: pd.DataFrame) -> None:
    """Draw a forest: a line per method under what it knows, a column per number."""
    blocks = []
    for panel in spec.panels:
        rows = summary[summary["panel"] == panel.name].set_index("method")
        by_regime: dict[str, list[str]] = {}
        for method in spec.methods:
            if method.label in rows.index:
                by_regime.setdefault(method.regime, []).append(method.label)
        if by_regime:
            blocks.append((panel.name, rows, by_regime))
    heights = [len(rows) + len(by_regime) + 2 for _, rows, by_regime in blocks]
    figure.set_size_inches(FOREST_INCHES, 0.19 * sum(heights) + 0.5)
    shape = len(blocks), len(FOREST)
    grid = figure.subplots(*shape, squeeze=False, height_ratios=heights)
    for axes, (title, rows, by_regime) in zip(grid, blocks, strict=True):
        for ax, (name, words) in zip(axes, FOREST.items(), strict=True):
            _draw_forest(ax, rows, by_regime, name)
            ax.set_xlabel(words, fontsize=8)
            ax.tick_params(labelsize=7, left=False, labelleft=ax is axes[0])
        axes[0].set_title(title, fontsize=8, loc="left")
        axes[0].legend(fontsize=6, loc="upper right")


def _draw_forest(
    ax: "Axes", rows: pd.DataFrame, by_regime: dict[str, list[str]], name: str
) -> None:
    ticks: list[str] = []
    for number, (regime, methods) in enumerate(by_regime.items()):
        ticks.append(f"{regime}:")
        for method in methods:
            row, place = rows.loc[method], len(ticks)
            half = float(np.nan_to_num(row[f"{name}_pm"]))
            ax.errorbar(row[name], place, xerr=half, fmt="o", color=f"C{number}", ms=4)
            ticks.append(method)
    if name == "violation":
        floor = rows["floor"].iloc[0]
        ax.axvline(floor, color="black", ls=":", lw=1, label="chance alone")
    if name != "accuracy":
        ax.set_xlim(left=0)
    ax.set_ylim(len(ticks) - 0.5, -0.5)
    ax.set_yticks(range(len(ticks)), ticks)
    for text in ax.get_yticklabels():
        text.set_fontweight("bold" if text.get_text().endswith(":") else "normal")
    ax.locator_params(axis="x", nbins=4)
    ax.grid(axis="x", alpha=0.3)


def _draw_published(ax: "Axes", spec: Spec, summary: pd.DataFrame) -> None:
    for number, (label, rows) in enumerate(summary.groupby("method", sort=False)):
        style, is_ours = _style(number, str(label)), str(label).startswith(OURS)
        style["ls"] = "-" if is_ours else ":"
        marker = "o" if is_ours else "x"
        ax.plot(rows["violation"], rows["accuracy"], marker=marker, **style)
    ax.set_xlabel("test violation")


DRAWN = {
    "fronts": _draw_fronts,
    "noise": _draw_noise,
    "published": _draw_published,
}
