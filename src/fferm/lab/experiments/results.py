"""What the records of an experiment show: numbers over seeds, a table and a figure."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import norm
from scipy.stats import t as student

from fferm._files import replacing
from fferm._typing import FloatArray
from fferm.curve.curve import pareto_front
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
    "batches": "within",
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
# Pages are 700 pixels wide, so that text is drawn for 7 inches.
WIDTH, DPI = 7.0, 160
# Methods of ours are drawn thick; their labels begin so.
OURS = "f-"
# What a table is headed; the file beside it has every column.
HEADINGS = {
    "hypervolume": "hypervolume",
    "within": "best accuracy within the bound, %",
    "violation_at_higher_accuracy": "violation at equal accuracy",
}
DIGITS = 4
# The palette of Okabe and Ito without its yellow, then the same with dashes.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#333333")
LINES = ("-", "--", ":")
STYLE: Any = {
    "font.size": 8,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
NAIVE: dict[str, Any] = {
    "color": "#b0b0b6",
    "ls": "-.",
    "label": "plain model, decisions replaced at random",
}
ENDS: dict[str, Any] = {"capsize": 2, "elinewidth": 1}  # of intervals
FLOOR: dict[str, Any] = {"color": "black", "ls": ":", "lw": 1, "label": "chance alone"}
# A style is that of the whole process, so figures are drawn one after another.
STYLED = threading.Lock()
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
    over the seeds that have one: the share ``reached``), ``within`` (the same, that of
    one class for everybody where no model keeps the bound; of several step sizes the
    best, and ``within_lowest`` of the worst), ``naive`` (what the plain model has there
    whose decisions are replaced by one class at random), ``constant`` (one class for
    everybody), ``plain`` and ``floor`` (the violation of the plain model and what
    chance alone makes of it), ``points`` (how many values gave a model that does not
    collapse) and, where a panel of the same data has no batches, ``drop``: how much of
    ``within`` is lost from there. For noise:
    ``violation`` at the accuracy of the spec. For shift: means of ``accuracy`` and
    ``violation`` over states, the violation of the ``worst``, ``floor``, what a
    perfectly fair model measures there by chance, and ``rms``, the root of the mean
    squared difference of two groups less the part of noise. ``choice`` is the mean of
    what was chosen, and ``difference`` says how far a method is from the first of the
    spec, seed by seed, in what they are compared by; ``difference_rows_pm`` is what
    test rows leave open of it, by a bootstrap of pairs.
    """
    if spec.kind == "published":
        return published.summarize(spec, records)
    seeds = _by_seed(spec, records)
    columns = [name for name in seeds.columns if name not in (*KEYS, "drawn")]
    by_method = seeds.groupby(["panel", "method"], sort=False)
    groups = by_method[columns]
    quantile = student.ppf((1 + CONFIDENCE) / 2, groups.count() - 1)
    summary = groups.mean().join(groups.sem().mul(quantile).add_suffix("_pm"))
    if "drawn" in seeds:
        summary["difference_rows_pm"] = by_method["drawn"].agg(_half_width)
    # Tasks end in any order; the spec says which comes first.
    order = [(p.name, m.label) for p in spec.panels for m in spec.methods]
    present = [key for key in order if key in summary.index]
    return summary.loc[present].reset_index()


def _half_width(drawn: pd.Series) -> float:
    """Return half the width of an interval of a mean over seeds, from draws of rows."""
    mean = np.mean([*drawn], axis=0)
    return float(norm.ppf((1 + CONFIDENCE) / 2) * np.std(mean)) if mean.size else np.nan


def _by_seed(spec: Spec, records: pd.DataFrame) -> pd.DataFrame:
    """Return one row per panel, method and seed, with the numbers of its sweep."""
    numbers, compared, rows = NUMBERS[spec.kind], COMPARED[spec.kind], []
    # A column of nothing but None has no numeric dtype.
    numbered = records.astype({"choice": np.float64})
    for key, sweep in numbered.groupby(KEYS, sort=False):
        bounds = _bounds(spec, sweep)
        if spec.kind in CHOSEN_ON:
            part, at = CHOSEN_ON[spec.kind]
            sweep = _chosen(sweep, part, bounds[at])
        row = dict(zip(KEYS, key, strict=True)) | numbers(bounds, sweep)
        if "drawn" in row:
            row["drawn"] = row["drawn"][compared]
        rows.append(row)
    seeds = pd.DataFrame(rows)
    first = seeds[seeds["method"] == spec.methods[0].label]
    keys = ["panel", "seed"]
    # The plain model is that of the first method, whose weights begin at 0.
    shared = [
        name for name in ("naive", "naive_violation", "plain", "floor") if name in first
    ]
    base = seeds[keys].merge(first[[*keys, compared, *shared]], "left")
    seeds["difference"] = seeds[compared] - base[compared]
    if "drawn" in seeds:
        paired = seeds[keys].merge(first[[*keys, "drawn"]], "left")
        seeds["drawn"] -= paired["drawn"]
    seeds[shared] = base[shared]
    # The panel with the same data and all rows at every step.
    whole = {
        panel.name: other.name
        for panel in spec.panels
        for other in spec.panels
        if (panel.data, panel.notion) == (other.data, other.notion)
        and panel.batch_size is not None
        and other.batch_size is None
    }
    if spec.kind in ("fronts", "batches") and whole:
        places = seeds[KEYS].assign(panel=seeds["panel"].map(whole))
        before = places.merge(seeds[[*KEYS, "within"]], "left")
        seeds["drop"] = before["within"] - seeds["within"]
    return seeds


def _bounds(spec: Spec, sweep: pd.DataFrame) -> Bounds:
    """Return the bounds of the panel of a sweep."""
    (limits,) = (p.bounds for p in spec.panels if p.name == sweep["panel"].iloc[0])
    return {**spec.bounds, **limits}


def _chosen(records: pd.DataFrame, part: str, accuracy: float) -> pd.DataFrame:
    """Return the sweep of the choice that does best on the rows to choose on."""
    sweeps = [sweep for _, sweep in records.groupby("choice", dropna=False)]
    costs = [
        _violations_at(*_measured(sweep[sweep["part"] == part]), accuracy)[0]
        for sweep in sweeps
    ]
    # A sweep that does not come to the accuracy has no violation there.
    return sweeps[int(np.argmin(np.nan_to_num(costs, nan=np.inf)))]


def _measured(records: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
    """Return (1 + draws, models) accuracies and violations: measured, then drawn.

    Models that give one class to everybody are left out.
    """
    found = []
    for name in ("accuracy", "violation"):
        drawn = records.get(f"{name}_drawn", [()] * len(records))
        pairs = zip(records[name], drawn, strict=True)
        found.append(np.array([[number, *numbers] for number, numbers in pairs]).T)
    is_kept = ~records["collapsed"].to_numpy(bool) & records["violation"].notna()
    accuracy, violation = (numbers[:, is_kept] for numbers in found)
    return accuracy, np.nan_to_num(violation, nan=np.inf)


def _front_numbers(bounds: Bounds, records: pd.DataFrame) -> dict[str, Any]:
    test = records[records["part"] == "test"]
    accuracy, violation = _measured(test)
    constant = float(test["constant"].iloc[0])
    plain = test.sort_values("value").iloc[0]
    share = min(1.0, bounds["max_violation"] / plain["violation"])
    best = [
        _accuracy_within(sweep, bounds["max_violation"])
        for _, sweep in test.groupby("choice", dropna=False)
    ]
    reached = float(np.nanmax(best)) if np.isfinite(best).any() else np.nan
    kept = np.where(violation <= bounds["max_violation"], accuracy, constant)
    compared = {
        "hypervolume": _areas(accuracy, violation, bounds),
        "within": np.max(kept, axis=1, initial=constant),
    }
    return {
        **{name: float(numbers[0]) for name, numbers in compared.items()},
        "accuracy": reached,
        "reached": float(np.isfinite(reached)),
        "within_lowest": float(np.fmax(best, constant).min()),
        "naive": constant + share * (plain["accuracy"] - constant),
        "constant": constant,
        "plain": float(plain["violation"]),
        "floor": float(plain["floor"]),
        "points": float((~test["collapsed"]).sum()),
        "seconds": float(records.groupby("value")["seconds"].first().sum()),
        "drawn": {name: numbers[1:] for name, numbers in compared.items()},
    }


def _areas(
    accuracy: FloatArray, violation: FloatArray, corner: Mapping[str, float]
) -> FloatArray:
    """Return what each row's front dominates, above and left of the corner."""
    order, most = np.argsort(violation, axis=1), corner["violation"]
    gain = np.take_along_axis(accuracy - corner["accuracy"], order, axis=1)
    best = np.maximum.accumulate(np.maximum(gain, 0), axis=1)
    edges = np.minimum(np.take_along_axis(violation, order, axis=1), most)
    width = np.diff(edges, axis=1, append=most)
    return np.asarray(np.sum(best * width, axis=1))


def _accuracy_within(test: pd.DataFrame, bound: float) -> float:
    kept = test[(test["violation"] <= bound) & ~test["collapsed"]]
    return float(kept["accuracy"].max())


def _noise_numbers(bounds: Bounds, records: pd.DataFrame) -> dict[str, Any]:
    test = records[records["part"] == "test"]
    higher = _violations_at(*_measured(test), bounds["at_higher_accuracy"])
    return {
        "violation": _violations_at(*_measured(test), bounds["at_accuracy"])[0],
        "violation_at_higher_accuracy": higher[0],
        "choice": records["choice"].iloc[0],
        "naive_violation": _naive_violation(test, bounds["at_higher_accuracy"]),
        "floor": float(test["floor"].iloc[0]),
        "drawn": {"violation_at_higher_accuracy": higher[1:]},
    }


def _naive_violation(test: pd.DataFrame, accuracy: float) -> float:
    """Return the violation of the plain model, its decisions replaced at random."""
    plain = test.sort_values("value").iloc[0]
    share = (accuracy - plain["constant"]) / (plain["accuracy"] - plain["constant"])
    return float(plain["violation"] * share)


def _violations_at(
    accuracy: FloatArray, violation: FloatArray, at: float
) -> FloatArray:
    """Return the violation where each row's front crosses an accuracy, linearly.

    A front that stays above the accuracy has its fairest point there: whoever may lose
    more accuracy need not. One that stays below has none.
    """
    found = np.full(len(accuracy), np.nan)
    for number, points in enumerate(zip(accuracy, violation, strict=True)):
        order = np.lexsort((-points[0], points[1]))
        best = np.maximum.accumulate(points[0][order])
        is_front = np.diff(best, prepend=-np.inf) > 0
        if is_front.any():
            ends = best[is_front], points[1][order][is_front]
            found[number] = np.interp(at, *ends, right=np.nan)
    return found


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


NUMBERS = {
    "fronts": _front_numbers,
    "batches": _front_numbers,
    "noise": _noise_numbers,
    "shift": _shift_numbers,
}

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
    import matplotlib as mpl

    # A style is that of the whole process.
    with STYLED, mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(layout="constrained")
        if spec.kind == "shift":
            _draw_shift(figure, spec, summary)
        else:
            _draw_panels(figure, spec, records, summary)
        with replacing(path.with_suffix(".png"), ADVICE) as temporary:
            figure.savefig(temporary, dpi=DPI, format="png")


def _draw_panels(
    figure: Any, spec: Spec, records: pd.DataFrame, summary: pd.DataFrame
) -> None:
    """Draw what methods are compared by, two axes beside each other where many are."""
    if spec.kind in ("noise", "batches"):
        panels = [""]
    else:
        panels = [p.name for p in spec.panels if (summary["panel"] == p.name).any()]
    n_rows, n_columns = -(-len(panels) // 2), min(2, len(panels))
    n_labels = summary["method"].nunique() + 3
    height = (2.8 if n_columns == 2 else 3.8) * n_rows + 0.16 * -(-n_labels // 2)
    figure.set_size_inches(WIDTH, height)
    grid = figure.subplots(n_rows, n_columns, squeeze=False)
    for ax, panel in zip(grid.flat, panels, strict=False):
        parts = [
            table[table["panel"] == panel] if panel else table
            for table in (records, summary)
        ]
        DRAWN[spec.kind](ax, spec, *parts)
        if panel:
            ax.set_title(panel)
    for ax in grid.flat[len(panels) :]:
        ax.set_axis_off()
    handles = {
        label: handle
        for ax in grid.flat
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    if handles:
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=2
        )


def _table(spec: Spec, summary: pd.DataFrame) -> str:
    """Return what methods are compared by as a Markdown table, panel by panel."""
    if spec.kind == "published":
        return published.markdown(summary)
    if spec.kind == "shift":
        return _shift_table(spec, summary)
    panels, name = summary["panel"].unique(), COMPARED[spec.kind]
    # Five columns of accuracies fit a page in percent only.
    unit, digits = (100, DIGITS - 2) if spec.kind == "batches" else (1, DIGITS)
    lines = [
        f"| {HEADINGS[name]} | {' | '.join(panels)} |",
        "|---|" + "---:|" * len(panels),
    ]
    for method, rows in summary.groupby("method", sort=False):
        known = dict(zip(rows["panel"], rows[name], strict=True))
        spread = dict(zip(rows["panel"], rows[f"{name}_pm"], strict=True))
        # A dash: the method takes no part in the panel.
        numbers = {p: (unit * known[p], unit * spread[p], digits) for p in known}
        cells = [_cell(*numbers[p]) if p in known else "–" for p in panels]
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


def _cell(mean: float, spread: float, digits: int = DIGITS) -> str:
    """Return a mean and the half-width of its interval, as far as they exist."""
    if np.isnan(mean):
        return "none"
    known = f"±{spread:.{digits}f}" if np.isfinite(spread) else ""
    return f"{mean:.{digits}f}{known}"


def _draw_fronts(
    ax: "Axes", spec: Spec, records: pd.DataFrame, summary: pd.DataFrame
) -> None:
    """Draw the front of the means over seeds, a point for each value.

    Between two points lies what drawing one of the two models gives.
    """
    plain, naive, floor = summary[["plain", "naive", "floor"]].mean()
    constant = summary["constant"].mean()
    reach = np.nan_to_num(1.05 * plain, nan=spec.bounds["violation"])
    lowest, highest = 1.0, spec.bounds["accuracy"]
    for number, method in enumerate(spec.methods):
        is_shown = (records["method"] == method.label) & (records["part"] == "test")
        sweeps = records[is_shown]
        if sweeps.empty:
            continue
        numbers = ["accuracy", "violation"]
        front = pareto_front(sweeps.groupby("value")[numbers].mean())
        style = _style(number, method.label) | {"marker": "."}
        ax.plot(front["violation"], front["accuracy"], **style)
        lowest = min(lowest, front["accuracy"].min())
        highest = max(highest, front["accuracy"].max())
    slope = (naive - constant) / min(spec.bounds["max_violation"], plain)
    grid = np.array([0, plain, reach])
    ax.plot(grid, constant + slope * np.minimum(grid, plain), **NAIVE)
    ax.axvline(floor, **FLOOR)
    lowest = min(highest, max(lowest, spec.bounds["accuracy"]))
    room = 0.05 * (highest - lowest) + 1e-3
    ax.set_ylim(lowest - room, highest + room)
    ax.set(xlabel="test violation", ylabel="test accuracy", xlim=(0, reach))


def _draw_batches(
    ax: "Axes", spec: Spec, records: pd.DataFrame, summary: pd.DataFrame
) -> None:
    """Draw the best accuracy within the bound against the batch size."""
    panels = sorted(spec.panels, key=lambda panel: panel.batch_size or np.inf)
    names = [p.name for p in panels if (summary["panel"] == p.name).any()]
    for number, method in enumerate(spec.methods):
        rows = summary[summary["method"] == method.label].set_index("panel")
        known = [name for name in names if name in rows.index]
        if not known:
            continue
        style = _style(number, method.label)
        if len(known) == 1:  # it knows no batches
            style |= {"ls": "none", "marker": "x", "ms": 5}
        # Side by side, so that intervals do not hide each other.
        place = [names.index(name) + 0.03 * (number - 4) for name in known]
        at = rows.loc[known]
        ax.errorbar(place, at["within"], at["within_pm"], **ENDS, **style)
    constant, naive = summary["constant"].mean(), summary["naive"].mean()
    ax.axhspan(constant, naive, alpha=0.5, color=NAIVE["color"], label=NAIVE["label"])
    ax.set_ylim(bottom=constant - 0.003)
    ax.set_xticks(range(len(names)), names)
    bound = spec.bounds["max_violation"]
    ax.set_ylabel(f"test accuracy at a violation of at most {bound:g}")


def _style(number: int, label: str) -> dict[str, Any]:
    """Return how a line of a method is drawn: ours thick, with a mark."""
    is_ours = label.startswith(OURS)
    return {
        "label": label,
        "color": COLORS[number % len(COLORS)],
        "ls": LINES[number // len(COLORS) % len(LINES)],
        "marker": "o" if is_ours else None,
        "ms": 3,
        "lw": 2.2 if is_ours else 1.2,
        "zorder": 3 if is_ours else 2,
    }


def _draw_noise(
    ax: "Axes", spec: Spec, records: pd.DataFrame, summary: pd.DataFrame
) -> None:
    """Draw the violation at one accuracy; name the methods beyond the axis."""
    shares = {panel.name: 100 * panel.data.get("flip", 0.0) for panel in spec.panels}
    ordered = summary.assign(share=summary["panel"].map(shares)).sort_values("share")
    name, top, beyond = COMPARED["noise"], spec.bounds["violation"], []
    for number, method in enumerate(spec.methods):
        rows = ordered[ordered["method"] == method.label]
        if rows[name].min() > top:
            ends = rows[name].min(), rows[name].max()
            beyond.append(f"{method.label} {ends[0]:.3f} to {ends[1]:.3f}")
            continue
        style = _style(number, method.label)
        place = rows["share"] + 0.12 * (number - len(spec.methods) / 2)
        ax.errorbar(place, rows[name], rows[f"{name}_pm"], **ENDS, **style)
    if "floor" in ordered:
        ax.axhline(ordered["floor"].mean(), **FLOOR)
        naive = ordered["naive_violation"].mean()
        beyond.append(f"{NAIVE['label']} {naive:.3f}")
    if beyond:
        ax.set_title("beyond the axis: " + "; ".join(beyond), fontsize=7, wrap=True)
    ax.set_ylim(0, top)
    ax.set_xlabel("groups flipped in training, %")
    ax.set_ylabel(f"test violation at accuracy {spec.bounds['at_higher_accuracy']:g}")


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


def _draw_published(
    ax: "Axes", spec: Spec, records: pd.DataFrame, summary: pd.DataFrame
) -> None:
    names = [entry["method"] for entry in spec.published]
    order = list(dict.fromkeys([m.label for m in spec.methods] + names))
    for label, rows in summary.groupby("method", sort=False):
        style = _style(order.index(str(label)), str(label))
        is_ours = str(label).startswith(OURS)
        style |= {"ls": "-" if is_ours else ":", "marker": "o" if is_ours else "x"}
        ax.plot(rows["violation"], rows["accuracy"], **style)
    ax.set(xlabel="test violation", ylabel="test accuracy")


DRAWN = {
    "fronts": _draw_fronts,
    "batches": _draw_batches,
    "noise": _draw_noise,
    "published": _draw_published,
}
