"""What a fit takes besides X does not grow with the rows."""

import tracemalloc
import warnings

import numpy as np
import pytest

from fferm import FairLogisticRegression, LargeShift, SmallShift
from fferm.errors import ConvergenceWarning

FEW, MANY = 200_000, 600_000


def make_rows(n_rows, kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 6))
    y = (X[:, 0] + rng.normal(size=n_rows) > 0).astype(kind)
    return X, y, rng.integers(0, 4, n_rows).astype(kind)


def peak_of_fit(solver, n_rows, kind, **options):
    X, y, groups = make_rows(n_rows, kind)
    budget = {"max_epochs": 1, "max_iter": 2, "random_state": 0}
    model = FairLogisticRegression(
        solver=solver, fairness_weight=1.0, **budget, **options
    )
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y, sensitive_features=groups)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("solver", ["sgda", "lbfgs"])
@pytest.mark.parametrize(("kind", "n_bytes"), [(np.int64, 0), (np.int8, 16)])
def test_a_fit_keeps_codes_of_labels_and_groups_at_most(solver, kind, n_bytes):
    peak_of_fit(solver, FEW, kind)  # loads the code
    few, many = (peak_of_fit(solver, n_rows, kind) for n_rows in (FEW, MANY))

    # The order of blocks of rows takes an eighth of a byte.
    assert abs(many - few - n_bytes * (MANY - FEW)) < 0.5 * (MANY - FEW)


# The check after training that warns of wide radii read all rows at once.
@pytest.mark.parametrize("uncertainty", [SmallShift(0.01), LargeShift(0.01)])
def test_a_robust_fit_of_a_million_rows_takes_what_one_of_a_tenth_takes(uncertainty):
    options = {"uncertainty": uncertainty, "divergence": "jensen_shannon"}
    few, many = 100_000, 1_000_000

    def peak(n_rows):
        return peak_of_fit("semi_stochastic", n_rows, np.int64, **options)

    peak(few)  # loads the code
    assert abs(peak(many) - peak(few)) < 0.5 * (many - few)
