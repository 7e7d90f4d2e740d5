"""The order of rows: all of them, once, in whole batches, from all over the data."""

import numpy as np
import pytest

from fferm import FairLogisticRegression
from fferm.datasets import make_biased
from fferm.solvers.stochastic import BLOCK, FEW_ROWS, shuffled


@pytest.mark.parametrize("n_rows", [1, 1000, FEW_ROWS, FEW_ROWS + 1, 3 * FEW_ROWS + 7])
@pytest.mark.parametrize("batch_size", [1, 64, 1000, 3 * FEW_ROWS + 7])
def test_an_epoch_visits_every_row_once_in_whole_batches(n_rows, batch_size):
    parts = list(shuffled(np.random.default_rng(0), n_rows, batch_size))
    visited = np.concatenate(parts)
    assert np.array_equal(np.sort(visited), np.arange(n_rows))
    assert all(part.size % batch_size == 0 for part in parts[:-1])


def test_a_batch_draws_from_places_all_over_the_data():
    n_rows = 4 * FEW_ROWS
    part = next(shuffled(np.random.default_rng(0), n_rows, 64))
    for begin in range(0, 640, 64):
        batch = part[begin : begin + 64]
        assert np.unique(batch // BLOCK).size > 50
        # Every fifth of the data gives some; fewer than three in one of 1e4 draws.
        assert np.bincount(5 * batch // n_rows, minlength=5).min() >= 3


def test_every_position_of_an_epoch_is_as_likely_for_every_row():
    n_rows, n_draws = FEW_ROWS + BLOCK, 200
    rng = np.random.default_rng(0)
    first = [next(shuffled(rng, n_rows, 64))[0] for _ in range(n_draws)]
    share = np.mean(np.array(first) < n_rows / 2)
    assert abs(share - 0.5) < 5 * np.sqrt(0.25 / n_draws)  # five sigma


@pytest.mark.parametrize("solver", ["sgda", "semi_stochastic"])
def test_rows_that_are_sorted_by_group_train_as_well(solver):
    data = make_biased(120_000, random_state=0)
    order = np.lexsort([data.y, np.asarray(data.sensitive_features).reshape(-1)])
    assert order.size > 2 * FEW_ROWS
    models = [
        FairLogisticRegression(solver=how, fairness_weight=10.0, random_state=0).fit(
            np.asarray(data.X)[order],
            np.asarray(data.y)[order],
            sensitive_features=np.asarray(data.sensitive_features)[order],
        )
        for how in (solver, "lbfgs")
    ]
    found, best = (model.history_[-1]["objective"] for model in models)
    assert found < 1.005 * best
