"""What a fit on a raw table costs more than one on the rows encoded beforehand.

200,000 rows of 20 numbers, half of the columns with gaps, 15 columns of 3 to 30 texts,
some of them categorical, and 5 booleans. The encoded rows of a linear model are the
matrix of its own encoder; those of trees are numbers and categories.
"""

import json
import sys
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.children import ask, memory, reset_peak
from benchmarks.timing import Timed, in_words, interleaved, ratio

N_ROWS = 200_000
ROUNDS = 5
SIDES = ("raw", "encoded")
MODELS = {"linear": "FairLogisticRegression", "trees": "FairBoostingClassifier"}
OPTIONS: dict[str, dict[str, Any]] = {"linear": {}, "trees": {"n_jobs": 1}}


def run() -> dict[str, Any]:
    """Return ratios of seconds, and megabytes of each side."""
    ratios, lines = {}, ["| | raw, MB | encoded, MB | ratio | asked |"]
    lines.append("|---|---|---|---|---|")
    megabytes = {}
    for name in MODELS:
        tables = {side: make_rows(name, side, N_ROWS) for side in SIDES}
        sides = {side: Timed(partial(fit, name, *tables[side])) for side in SIDES}
        taken = interleaved(sides, rounds=ROUNDS)
        row = ratio(taken["raw"], taken["encoded"], "≤ 1.5")
        ratios[f"raw table / encoded rows, {name}"] = row
        used = [ask("benchmarks.raw_table", name, side) / 1e6 for side in SIDES]
        megabytes[name] = used
        cells = [f"{value:.0f}" for value in used]
        cells += [f"{used[0] / used[1]:.2f}", "≤ 2"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(name, in_words(row), "MB:", np.round(used).tolist(), flush=True)
    found = {"ratios": ratios, "megabytes": megabytes}
    return {**found, "tables": {"raw_table": lines}}


def make_table(n: int) -> tuple[pd.DataFrame, Any, Any]:
    """Return a table, labels and groups."""
    rng = np.random.default_rng(0)
    group = rng.choice(np.array(["a", "b", "c", "d"]), n)
    hidden = rng.standard_normal(n) + 0.7 * (group == "a")
    columns: dict[str, Any] = {}
    for number in range(20):
        column = rng.standard_normal(n) + (hidden if number < 4 else 0)
        column[rng.random(n) < 0.05 * (number % 2)] = np.nan
        columns[f"number {number}"] = column
    for number in range(15):
        levels = [f"level {level}" for level in range(3 + 27 * number // 14)]
        column = np.array(levels, dtype=object)[rng.integers(0, len(levels), n)]
        column[rng.random(n) < 0.02 * (number % 3 == 0)] = None
        kind = "category" if number % 5 == 4 else None
        columns[f"text {number}"] = pd.Series(column, dtype=kind)
    for number in range(5):
        columns[f"boolean {number}"] = rng.random(n) < 0.5
    y = np.where(hidden + rng.standard_normal(n) > 0.5, "yes", "no")
    return pd.DataFrame(columns), y, group


def make_rows(name: str, side: str, n: int) -> tuple[Any, Any, Any]:
    """Return features, labels and groups, raw or as a model would encode them."""
    from fferm.data.frame import FrameEncoder

    table, y, group = make_table(n)
    if side == "raw":
        return table, y, group
    if name == "linear":
        return FrameEncoder().fit_transform(table), y, group
    texts = {each: "category" for each in table if each.startswith("text")}
    others = {each: np.float64 for each in table if each not in texts}
    return table.astype({**texts, **others}), y, group


def fit(name: str, X: Any, y: Any, group: Any) -> None:
    """Train a model."""
    import fferm

    model = getattr(fferm, MODELS[name])(**OPTIONS[name])
    model.fit(X, y, sensitive_features=group)


def _peak_of_fit(name: str, side: str) -> int:
    fit(name, *make_rows(name, side, 20_000))  # loads the code
    rows = make_rows(name, side, N_ROWS)
    reset_peak()
    before = memory("VmRSS")
    fit(name, *rows)
    return memory("VmHWM") - before


if __name__ == "__main__":
    print(json.dumps(_peak_of_fit(*sys.argv[1:])))
