"""Repair of frozen scores against others, and the speed of `fferm.deploy`.

The others are error-parity and fairlearn's ThresholdOptimizer.

Trees of scikit-learn, trained on a part of the rows and then frozen; the other methods
learn from a second part, and all are measured on a third. The model does not read the
group. Each method is compared with the accuracy of `repair` with the group at the
violation that the method has on the test rows, between two of its bounds, in the same
split. Without the group, `repair` reads the features alone, or the group as one more.
"""

import time
import warnings
from typing import Any

import numpy as np
from error_parity import RelaxedThresholdOptimizer
from fairlearn.postprocessing import ThresholdOptimizer
from scipy.stats import t as student
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks.timing import Timed, interleaved, ratio, spread
from fferm.datasets import load_acs_income, load_adult
from fferm.deploy import ParityController, repair
from fferm.metrics import violation

SEEDS = range(5)
NOTIONS = ("demographic_parity", "equalized_odds")
# Bounds of the line that baselines are compared with, and bounds of baselines.
LINE = (0.0, 0.01, 0.02, 0.04, 0.07, 0.12)
BOUNDS = (0.01, 0.05)
# How many rows train the model, are repaired on, and are measured on.
SHARES = (0.3, 0.35, 0.35)
MOST_ROWS = 60_000
TIMED_ROWS = 100_000
ROUNDS = 3
# Rows of a stream, and how many of them come at once or one by one.
STREAM_ROWS, BATCH_ROWS, SINGLE_ROWS = 1_000_000, 1000, 20_000

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def run() -> dict[str, Any]:
    """Return accuracies at equal violation, with paired intervals, and seconds."""
    found: dict[str, Any] = {"differences": {}}
    for name, rows in _data().items():
        for notion in NOTIONS:
            by_seed = [_compare(rows, notion, seed) for seed in SEEDS]
            for side in by_seed[0]:
                key = f"{name}, {notion.replace('_', ' ')}, {side}"
                found["differences"][key] = _interval([each[side] for each in by_seed])
                print(key, found["differences"][key], flush=True)
    found["seconds"], found["ratios"] = _time()
    found["stream"] = _stream()
    found["tables"] = {"repair": _table(found["differences"])}
    return found


def _data() -> dict[str, Rows]:
    races = ("White", "Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo")
    pair = {"sensitive": ("sex", "race"), "races": races[:2]}
    sets = {
        "Adult by sex": load_adult(drop_sensitive=True),
        "Adult, four groups": load_adult(**pair, drop_sensitive=True),
        "ACSIncome, four races": load_acs_income(
            sensitive=("race",), drop_sensitive=True
        ),
    }
    found = {}
    for name, data in sets.items():
        X, y = np.vstack([data.X, data.X_test]), np.append(data.y, data.y_test)
        parts = [data.sensitive_features, data.sensitive_features_test]
        names = np.concatenate(
            [part.astype(str).agg(" ".join, axis=1).to_numpy() for part in parts]
        )
        groups, code = np.unique(names, return_inverse=True)
        largest = np.argsort(-np.bincount(code))[:4]
        kept = np.flatnonzero(np.isin(code, largest))
        kept = np.random.default_rng(0).permutation(kept)[:MOST_ROWS]
        found[name] = X[kept], y[kept], groups[code[kept]]
    return found


def _compare(rows: Rows, notion: str, seed: int) -> dict[str, float]:
    # Accuracy minus that of each baseline at its violation, in points.
    order = np.random.default_rng(seed).permutation(len(rows[1]))
    cuts = (np.cumsum(SHARES)[:2] * len(order)).astype(int)
    trained, mended, tested = (
        tuple(part[at] for part in rows) for at in np.split(order, cuts)
    )
    model = HistGradientBoostingClassifier(random_state=seed).fit(*trained[:2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # FfermWarning of chance, and those of others
        line = [
            _measure(_repaired(model, mended, notion, bound, True), tested, notion)
            for bound in LINE
        ]
        fair = _repaired(model, mended, notion, BOUNDS[-1], False)
        sides = {"without the group": [_measure(fair, tested, notion)]}
        n_columns, names = rows[0].shape[1], np.unique(rows[2])
        fair = _repaired(
            lambda X: model.predict_proba(X[:, :n_columns]),
            _with_group(mended, names),
            notion,
            BOUNDS[-1],
            False,
        )
        told = _with_group(tested, names)
        sides["the group as a feature"] = [_measure(fair, told, notion)]
        sides["error-parity"] = [
            _measure(_error_parity(model, mended, notion, bound), tested, notion)
            for bound in BOUNDS
        ]
        # fairlearn cannot relax equalized odds.
        bounds = BOUNDS if notion == "demographic_parity" else (0.0,)
        sides["fairlearn"] = [
            _measure(_fairlearn(model, mended, notion, bound), tested, notion)
            for bound in bounds
        ]
    line.sort()
    gaps, accuracy = np.array(line).T
    return {
        side: 100
        * float(
            np.mean([np.interp(gap, gaps, accuracy) - right for gap, right in points])
        )
        for side, points in sides.items()
    }


def _with_group(rows: Rows, names: np.ndarray) -> Rows:
    X, y, group = rows
    return np.hstack([X, group[:, None] == names]), y, group


def _repaired(
    model: Any, rows: Rows, notion: str, bound: float, uses_group: bool
) -> Any:
    X, y, group = rows
    fair = repair(
        model,
        X,
        y,
        sensitive_features=group,
        max_violation=bound,
        confidence=None,
        notion=notion,
        uses_group=uses_group,
    )
    if uses_group:
        return lambda X, group: fair.predict(X, sensitive_features=group)
    return lambda X, group: fair.predict(X)


def _error_parity(model: Any, rows: Rows, notion: str, bound: float) -> Any:
    X, y, group = rows
    names = np.unique(group)
    fair = RelaxedThresholdOptimizer(
        predictor=lambda X: model.predict_proba(X)[:, 1],
        constraint=notion,
        tolerance=bound,
    )
    fair.fit(X=X, y=y, group=np.searchsorted(names, group))
    return lambda X, group: np.asarray(fair(X, group=np.searchsorted(names, group)))


def _fairlearn(model: Any, rows: Rows, notion: str, bound: float) -> Any:
    X, y, group = rows
    fair = ThresholdOptimizer(
        estimator=model,
        constraints=notion,
        predict_method="predict_proba",
        prefit=True,
        tol=bound or None,
    )
    fair.fit(X, y, sensitive_features=group)
    return lambda X, group: fair.predict(X, sensitive_features=group, random_state=0)


def _measure(decide: Any, rows: Rows, notion: str) -> tuple[float, float]:
    X, y, group = rows
    decided = decide(X, group)
    gap = violation(y, decided, sensitive_features=group, notion=notion)
    return float(gap), float((decided == y).mean())


def _interval(values: list[float]) -> list[float]:
    # Mean and 95 % interval of paired differences.
    mean, n = float(np.mean(values)), len(values)
    half = float(student.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return [mean, mean - half, mean + half]


def _time() -> tuple[dict[str, Any], dict[str, Any]]:
    # Five groups, drawn: seconds of one fit on frozen scores.
    rng = np.random.default_rng(0)
    group = rng.integers(0, 5, TIMED_ROWS)
    p = 1 / (1 + np.exp(-1.5 * rng.normal(size=TIMED_ROWS) - 0.4 * group + 1.5))
    y = (rng.random(TIMED_ROWS) < p).astype(int)
    rows = p, y, group.astype(str)

    class Frozen:
        classes_ = np.array([0, 1])

        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            return np.column_stack([1 - X, X])

    frozen, seconds, ratios = Frozen(), {}, {}
    for notion in NOTIONS:
        sides = {
            "repair": Timed(lambda n=notion: _repaired(frozen, rows, n, 0.02, True)),
            "error-parity": Timed(
                lambda n=notion: _error_parity(frozen, rows, n, 0.02)
            ),
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            timed = interleaved(sides, rounds=ROUNDS)
        for side, values in timed.items():
            seconds[f"{side}, {notion}"] = spread(values)
        row = f"error-parity / repair, 100,000 rows, {notion.replace('_', ' ')}"
        ratios[row] = ratio(timed["error-parity"], timed["repair"])
    print(seconds, ratios, flush=True)
    return seconds, ratios


def _stream() -> dict[str, list[float]]:
    # Rows a second of a controller in batches, and microseconds of a single row, by the
    # clock on the wall: what others do meanwhile counts against it.
    rng = np.random.default_rng(0)
    scores, groups = rng.random(STREAM_ROWS), rng.choice([*"abcde"], STREAM_ROWS)
    batches = [
        (scores[begin : begin + BATCH_ROWS], groups[begin : begin + BATCH_ROWS])
        for begin in range(0, STREAM_ROWS, BATCH_ROWS)
    ]
    single = [([scores[n]], [str(groups[n])]) for n in range(SINGLE_ROWS)]

    def seconds(rows: list[Any]) -> float:
        controller, began = ParityController(), time.perf_counter()
        for batch in rows:
            controller.update(*batch)
        return time.perf_counter() - began

    timed = interleaved(
        {"batches": lambda: seconds(batches), "single": lambda: seconds(single)},
        rounds=ROUNDS,
    )
    found = {
        "rows a second": spread(STREAM_ROWS / np.array(timed["batches"])),
        "microseconds a row": spread(1e6 * np.array(timed["single"]) / SINGLE_ROWS),
    }
    print(found, flush=True)
    return found


def _table(differences: dict[str, list[float]]) -> list[str]:
    names = tuple(dict.fromkeys(key.rpartition(", ")[2] for key in differences))
    lines = [
        f"| data and notion | splits | {' | '.join(names)} |",
        "|---|---|" + "---|" * len(names),
    ]
    for what in dict.fromkeys(key.rpartition(", ")[0] for key in differences):
        cells = [what, str(len(SEEDS))]
        for name in names:
            mean, low, high = differences[f"{what}, {name}"]
            cells.append(f"{mean:+.2f} ({low:+.2f} to {high:+.2f})")
        lines.append(f"| {' | '.join(cells)} |")
    return lines
