"""Intervals of a dossier hold at once for all categories, in small groups too."""

import numpy as np
import pytest

from fferm.auditing import dossier

CONFIDENCE = 0.95


def coverage(n_tables, seed, most_rows, monkeypatch):
    """Return how often all intervals of a measure hold the truth, on random tables."""
    monkeypatch.setattr(dossier, "fisher_exact", lambda table: (0.0, 1.0))
    rng, held = np.random.default_rng(seed), {}
    for _ in range(n_tables):
        k = rng.integers(2, 6)
        n_rows = rng.integers(5, most_rows, k).astype(float)
        rate = rng.uniform(0.05, 0.95, k)
        counts = rng.binomial(n_rows.astype(int), rate)
        asked = counts, n_rows, np.ones(k, dtype=bool)
        found, r = dossier._compare(*asked, None, CONFIDENCE)
        odds = rate / (1 - rate)
        truth = {
            "rate": rate,
            "impact_ratio": rate / rate.max(),
            "adverse_impact_ratio": rate / rate[r],
            "odds_ratio": odds / odds[r],
        }
        for name, value in truth.items():
            low, high = found[f"{name}_low"], found[f"{name}_high"]
            inside = (low - 1e-9 <= value) & (value <= high + 1e-9)
            # The reference has no odds ratio; without anybody selected there are none.
            held.setdefault(name, []).append(np.all(inside | np.isnan(low)))
    return {name: float(np.mean(each)) for name, each in held.items()}


def least(n_tables):
    return CONFIDENCE - 3 * np.sqrt(CONFIDENCE * (1 - CONFIDENCE) / n_tables)


def test_intervals_hold_at_once_in_small_groups(monkeypatch):
    held = coverage(300, 0, 40, monkeypatch)
    assert min(held.values()) >= least(300), held


@pytest.mark.slow
@pytest.mark.parametrize("most_rows", [15, 400])
def test_intervals_hold_at_once_on_ten_thousand_tables(most_rows, monkeypatch):
    held = coverage(10_000, 1, most_rows, monkeypatch)
    print(held)  # noqa: T201 - shown by pytest -rP
    assert min(held.values()) >= least(10_000), held
