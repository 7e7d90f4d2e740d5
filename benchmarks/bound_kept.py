"""How often ``max_violation`` is kept on rows that nobody has seen.

Random splits of a population into rows to fit and judge on, and the rest. Three rules:
the tests of ``confidence=0.95``; the value on the judging rows, trained again on all
rows (``confidence=None, refit=True``); and the same with the upper end of the 95 %
interval in place of the value, which was fferm's rule before there were tests. The true
violation is that of the rest of ACSIncome and Adult. COMPAS and German are small, so
their rows are drawn with replacement, with labels from a fitted model, and the truth is
computed.

One cell: ``python -m benchmarks.bound_kept --data adult --model trees --splits 200``.
With ``--records FILE`` each split is added to a file of JSON lines and never measured
twice, so that a long cell may be run in pieces (``--first``); all are summed up.
"""

import argparse
import itertools
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import beta
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from fferm import FairBoostingClassifier, FairLogisticRegression
from fferm.data.rows import FitInput
from fferm.datasets import (
    FairDataset,
    load_acs_income,
    load_adult,
    load_compas,
    load_german,
)
from fferm.errors import DataUnavailableError, FfermWarning
from fferm.estimators.weight_search import HeldOutDecisions, Judged, choose_weight
from fferm.metrics import violation
from fferm.metrics.intervals import compared_of, violation_interval

BOUNDS = (0.02, 0.05, 0.1)
NOTIONS = ("demographic_parity", "equal_opportunity")
MODELS: dict[str, Callable[[], Any]] = {
    "linear": FairLogisticRegression,
    "trees": lambda: FairBoostingClassifier(n_jobs=1),
}
RULES = ("tests", "value", "interval")
# Splits of each cell in a run of all benchmarks.
N_SPLITS = 2


@dataclass(frozen=True)
class Source:
    """A population: how it is loaded, rows to fit and to judge on, how it is drawn."""

    load: Callable[[], FairDataset]
    n_fit: int
    n_judge: int
    is_simulated: bool = False


DATA = {
    "acs": Source(lambda: load_acs_income("all"), 10_000, 5_000),
    "acs, 10000 judged": Source(lambda: load_acs_income("all"), 10_000, 10_000),
    "acs, 30000 judged": Source(lambda: load_acs_income("all"), 10_000, 30_000),
    "adult": Source(lambda: load_adult("sex"), 10_000, 5_000),
    "adult, four groups": Source(
        lambda: load_adult(("sex", "race"), races=("Black", "White")), 10_000, 5_000
    ),
    "compas": Source(lambda: load_compas("race"), 3_500, 1_700, True),
    "german": Source(lambda: load_german("sex"), 700, 300, True),
}


class Population(NamedTuple):
    """All rows; ``chance`` is that of a label 1 if labels are drawn, else None."""

    X: np.ndarray
    y: np.ndarray
    group: np.ndarray
    chance: np.ndarray | None


class Split(NamedTuple):
    """Rows to fit and judge on, and what measures accuracy and true violation."""

    rows: FitInput
    measure: Callable[[Any], tuple[float, float]]


def run() -> dict[str, Any]:
    """Return the figures of every cell, with few splits."""
    found, lines = {}, list(HEADER)
    for data in DATA:
        for model in MODELS:
            for notion in NOTIONS:
                try:
                    cell = measure_cell(data, model, notion, range(N_SPLITS))
                except DataUnavailableError as error:
                    print(f"{data} is left out: {error}")
                    continue
                found[f"{data}, {model}, {notion}"] = cell
                lines += show(data, model, notion, cell)
    return {"cells": found, "tables": {"bound_kept": lines}}


def measure_cell(
    data: str,
    model: str,
    notion: str,
    seeds: Iterable[int],
    rules: Sequence[str] = RULES,
    path: Path | None = None,
) -> dict[str, Any]:
    """Return what each rule found and broke, by bound.

    Splits that the file of records has already are not measured again, and count.
    """
    records = _recorded(path, [data, model, notion])
    known = {(seed, rule) for _, rule, seed in records}
    population = None
    for seed in seeds:
        missing = [rule for rule in rules if (seed, rule) not in known]
        if not missing:
            continue
        source = DATA[data]
        population = _population(source) if population is None else population
        split = _draw(population, source, notion, seed)
        estimator = MODELS[model]().set_params(
            notion=notion,
            validation_fraction=source.n_judge / (source.n_fit + source.n_judge),
            random_state=seed,
        )
        lines = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FfermWarning)  # feasible_ says the same
            for bound, rule, is_found, fitted in _choose(
                estimator, split.rows, missing
            ):
                figures = is_found, *split.measure(fitted)
                records[bound, rule, seed] = figures
                lines.append([data, model, notion, bound, rule, seed, *figures])
        if path is not None:  # a whole split, or nothing
            with path.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
    bounds: dict[float, dict[str, Any]] = {bound: {} for bound in BOUNDS}
    for bound, rule in itertools.product(BOUNDS, rules):
        found = [each for key, each in records.items() if key[:2] == (bound, rule)]
        bounds[bound][rule] = _summary(found, bound)
    return {"splits": len({seed for *_, seed in records}), "bounds": bounds}


def _recorded(
    path: Path | None, cell: list[str]
) -> dict[tuple[float, str, int], tuple[bool, float, float]]:
    # What each rule found and measured, by bound, rule and seed.
    if path is None or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {tuple(line[3:6]): tuple(line[6:]) for line in lines if line[:3] == cell}


def _choose(
    estimator: Any, rows: FitInput, rules: Sequence[str]
) -> Iterator[tuple[float, str, bool, Any]]:
    # What each rule returns for each bound, from one path of models.
    encoded = clone(estimator).set_params(max_violation=0.1)._encode(rows)
    known: dict[float, Any] = {}
    path = type(estimator).fit_path

    def train(passed: FitInput, weights: list[float], start: Any = None) -> Any:
        missing = [weight for weight in weights if weight not in known]
        fitted = path(estimator, passed, missing, start) if missing else ()
        known.update(zip(missing, fitted, strict=True))
        return (known[weight] for weight in weights)

    estimator.fit_path = train
    for bound in BOUNDS:
        estimator.set_params(max_violation=bound)
        for rule in rules:
            estimator.confidence = 0.95 if rule == "tests" else None
            judges = UpperEnds if rule == "interval" else HeldOutDecisions
            choice, judged = choose_weight(estimator, judges(estimator, rows, encoded))
            is_found, weight = bool(choice.is_feasible), choice.fairness_weight
            if rule != "tests":
                again = clone(estimator).set_params(max_violation=None)
                judged = again.set_params(fairness_weight=weight).fit(**rows.tables)
            yield bound, rule, is_found, judged


class UpperEnds(HeldOutDecisions[Any]):
    """Held-out rows that judge by the upper end of an interval for all pairs."""

    def judge(self, model: Any) -> Judged[Any]:
        """Return a model with the upper end of its violation."""
        code = np.searchsorted(model.classes_, model.predict(self.X))
        high = violation_interval(*compared_of(self.setting.tables(code)))[1]
        judged = super().judge(model)
        return replace(judged, violation=high, passes=high <= self.bound)


def _population(source: Source) -> Population:
    data = source.load()
    X = np.vstack([data.X, data.X_test])
    y = np.concatenate([data.y, data.y_test])
    tables = data.sensitive_features, data.sensitive_features_test
    parts = pd.concat(tables, ignore_index=True)
    first, *others = (parts[name].astype(str) for name in parts)
    group = np.asarray(first.str.cat(others, sep=" "))
    if not source.is_simulated:
        return Population(X, y, group, None)
    model = LogisticRegression(max_iter=1000).fit(X, y)
    return Population(X, y, group, model.predict_proba(X)[:, 1])


def _draw(population: Population, source: Source, notion: str, seed: int) -> Split:
    X, y, group, chance = population
    rng, n_rows = np.random.default_rng(seed), source.n_fit + source.n_judge
    if chance is None:
        order = rng.permutation(y.size)
        taken, rest = order[:n_rows], order[n_rows:]

        def measure(model: Any) -> tuple[float, float]:
            decided = model.predict(X)[rest]  # without a copy of the rows
            options = {"sensitive_features": group[rest], "notion": notion}
            right = float(np.mean(decided == y[rest]))
            return right, violation(y[rest], decided, **options)

        return Split(FitInput(X[taken], y[taken], group[taken]), measure)
    taken = rng.integers(y.size, size=n_rows)
    drawn = (rng.random(n_rows) < chance[taken]).astype(int)

    def expect(model: Any) -> tuple[float, float]:
        decided = model.predict(X)
        weight = np.ones(y.size) if notion == "demographic_parity" else chance
        right = float(np.mean(np.where(decided == 1, chance, 1 - chance)))
        rates = [
            np.average(decided[group == name], weights=weight[group == name])
            for name in np.unique(group)
        ]
        return right, float(np.ptp(rates))

    return Split(FitInput(X[taken], drawn, group[taken]), expect)


def _summary(records: list[tuple[bool, float, float]], bound: float) -> dict[str, Any]:
    found = [record for record in records if record[0]]
    broken = sum(gap > bound for _, _, gap in found)
    return {
        "found": len(found) / len(records),
        # Of all splits: a rule that finds nothing breaks nothing.
        "broken": broken / len(records),
        "interval": _clopper_pearson(broken, len(records)),
        "accuracy": float(np.mean([right for _, right, _ in found])) if found else None,
        "violation": float(np.mean([gap for *_, gap in found])) if found else None,
    }


def _clopper_pearson(count: int, n: int) -> list[float]:
    low = beta.ppf(0.025, count, n - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, n - count) if count < n else 1.0
    return [float(low), float(high)]


HEADER = (
    "| data | model | notion | bound | rule | found | broken | 95 % | accuracy |",
    "|---|---|---|---|---|---|---|---|---|",
)


def show(data: str, model: str, notion: str, cell: dict[str, Any]) -> list[str]:
    """Print the lines of a cell, and return them."""
    lines = []
    for bound, rules in cell["bounds"].items():
        for rule, figures in rules.items():
            low, high = figures["interval"]
            right = figures["accuracy"]
            cells = (data, model, notion.replace("_", " "), f"{bound:g}", rule)
            rates = f"{figures['found']:.2f}", f"{figures['broken']:.3f}"
            ends = f"{low:.3f}–{high:.3f}", "" if right is None else f"{right:.4f}"
            lines.append(f"| {' | '.join((*cells, *rates, *ends))} |")
    print("\n".join(lines), flush=True)
    return lines


def main() -> None:
    """Run one cell."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bound_kept")
    parser.add_argument("--data", choices=DATA, default="adult")
    parser.add_argument("--model", choices=MODELS, default="linear")
    parser.add_argument("--notion", choices=NOTIONS, default=NOTIONS[0])
    parser.add_argument("--splits", type=int, default=N_SPLITS)
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--rules", choices=RULES, nargs="+", default=RULES)
    parser.add_argument("--records", type=Path, help="file of splits to add to")
    asked = parser.parse_args()
    cell = asked.data, asked.model, asked.notion
    seeds = range(asked.first, asked.first + asked.splits)
    figures = measure_cell(*cell, seeds, asked.rules, asked.records)
    print("\n".join(HEADER))
    show(*cell, figures)
    print(f"{figures['splits']} splits")


if __name__ == "__main__":
    main()
