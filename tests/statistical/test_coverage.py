"""Intervals for the violation cover the truth as often as they say."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from fferm.data.validate import encode_labels
from fferm.metrics.dependence import OrderedPredictions
from fferm.metrics.intervals import (
    Sample,
    bootstrap_interval,
    bootstrap_sample,
    violation_interval,
)
from fferm.metrics.tabulator import compared, make_tabulator, rates_of
from fferm.notions import get

N_AUDITS = 400
N_ROWS = 1000
LEVEL = 0.95
# Three standard errors of a share of 400 audits below the level.
LEAST = LEVEL - 3 * np.sqrt(LEVEL * (1 - LEVEL) / N_AUDITS)
SHARES = {2: [0.7, 0.3], 4: [0.4, 0.3, 0.2, 0.1]}

gaps = pytest.mark.parametrize("gap", [0.0, 0.05, 0.2])
groups = pytest.mark.parametrize("n_groups", [2, 4])


def rates_at(gap, n_groups):
    return 0.3 + gap * np.linspace(0, 1, n_groups)


def coverage(gap, intervals):
    # A sum of floats such as 0.3 + 0.05 is off by an ulp; no interval is that sharp.
    return np.mean(
        [low <= gap + 1e-9 and gap <= high + 1e-9 for low, high in intervals]
    )


def tables(gap, n_groups, seed):
    """Yield (2 x groups) counts of audits, and the generator that drew them."""
    rng = np.random.default_rng(seed)
    rate, share = rates_at(gap, n_groups), np.array(SHARES[n_groups])
    law = np.concatenate([share * (1 - rate), share * rate])
    for _ in range(N_AUDITS):
        yield rng.multinomial(N_ROWS, law).reshape(2, n_groups), rng


def cell_rates(n_groups):
    return lambda totals: [compared(rates_of(totals.reshape(-1, 1, 2, n_groups)))]


@gaps
@groups
def test_the_closed_form_covers_at_its_level(gap, n_groups):
    intervals = [
        violation_interval(
            [(count[1] / count.sum(axis=0))[None]], [count.sum(axis=0)[None]], LEVEL
        )
        for count, _ in tables(gap, n_groups, seed=1)
    ]

    assert coverage(gap, intervals) >= LEAST


@gaps
@groups
def test_the_bootstrap_of_decisions_covers_at_its_level(gap, n_groups):
    cells = csr_array(np.eye(2 * n_groups))
    added = np.ones(2 * n_groups)
    intervals = [
        bootstrap_interval(
            Sample(count.ravel(), cells, added, cell_rates(n_groups)),
            LEVEL,
            n_bootstrap=300,
            random_state=rng,
        )
        for count, rng in tables(gap, n_groups, seed=2)
    ]

    assert coverage(gap, intervals) >= LEAST


def drawn_probabilities(gap, n_groups, rng):
    """Return the table rows of 300 probabilities, one group each."""
    group = rng.choice(n_groups, size=300, p=SHARES[n_groups])
    rate = rates_at(gap, n_groups)[group]
    prob = rng.beta(4 * rate, 4 * (1 - rate))
    rows = np.zeros((group.size, 2 * n_groups))
    rows[np.arange(group.size), group] = 1 - prob
    rows[np.arange(group.size), n_groups + group] = prob
    return csr_array(rows)


@pytest.mark.parametrize(("gap", "n_groups"), [(0.0, 2), (0.05, 2), (0.0, 4)])
def test_the_bootstrap_of_probabilities_covers_at_its_level(gap, n_groups):
    rng = np.random.default_rng(3)
    one_each = np.ones(300, dtype=np.int64)
    added = np.ones(2 * n_groups)
    intervals = [
        bootstrap_interval(
            Sample(
                one_each,
                drawn_probabilities(gap, n_groups, rng),
                added,
                cell_rates(n_groups),
            ),
            LEVEL,
            n_bootstrap=200,
            random_state=rng,
        )
        for _ in range(N_AUDITS)
    ]

    assert coverage(gap, intervals) >= LEAST


def weighted_interval(gap, rng):
    """Return the closed form of one audit whose rows have unequal weights."""
    group = rng.choice(2, size=N_ROWS, p=SHARES[2])
    decision = rng.random(N_ROWS) < rates_at(gap, 2)[group]
    weight = rng.exponential(size=N_ROWS)
    total, square, chosen = (
        np.bincount(group, weights=values)
        for values in (weight, weight**2, weight * decision)
    )
    return violation_interval([(chosen / total)[None]], [(total**2 / square)[None]])


@gaps
def test_the_closed_form_covers_under_weights_with_effective_sizes(gap):
    rng = np.random.default_rng(4)

    assert coverage(gap, [weighted_interval(gap, rng) for _ in range(400)]) >= LEAST


def draw_few(rng):
    """Return 20 rows of two groups, of which a fifth are twenty times as heavy."""
    return np.arange(20) % 2, np.where(rng.random(20) < 0.2, 20.0, 1.0)


@pytest.mark.parametrize("gap", [0.0, 0.4])
def test_the_bootstrap_of_decisions_covers_on_few_rows_of_uneven_weights(gap):
    # It covered a gap of 0 in 0.89 of such audits.
    rng = np.random.default_rng(6)
    labels, notion, intervals = (
        encode_labels(None, 20, [0, 1]),
        get("demographic_parity"),
        [],
    )
    for _ in range(N_AUDITS):
        group, weight = draw_few(rng)
        decision = (rng.random(20) < 0.5 + gap * group).astype(int)
        rows = make_tabulator(labels, notion, group, "intersection", weight)
        sample = bootstrap_sample(rows, decision)
        interval = bootstrap_interval(sample, n_bootstrap=100, random_state=rng)
        intervals.append(interval)

    assert coverage(gap, intervals) >= LEAST


@pytest.mark.parametrize("gap", [0.0, 1.0])
def test_the_bootstrap_of_numbers_covers_on_few_rows_of_uneven_weights(gap):
    # It covered a gap of 0 in 0.84 of such audits.
    rng = np.random.default_rng(7)
    intervals = {"mean_gap": [], "wasserstein": []}
    for _ in range(N_AUDITS):
        group, weight = draw_few(rng)
        predictions = OrderedPredictions(rng.normal(gap * group))
        options = {"n_bootstrap": 100, "random_state": rng, "weight": weight}
        found = predictions.intervals(group, [*intervals], LEVEL, **options)
        for name, interval in found.items():
            intervals[name].append(interval)

    for each in intervals.values():
        assert coverage(gap, each) >= LEAST
