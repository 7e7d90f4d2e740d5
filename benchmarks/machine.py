"""How far full-batch training is from the machine: passes and fits over their floors.

A pass over all rows gives value and gradient of loss and penalty. Its floor is what
NumPy or SciPy takes for the two products with the same X alone, and for dense rows an
exponential of each row. The floor of a fit is scikit-learn's plain one. All on one
thread; two are compared with one by the clock on the wall, so they need two idle cores.
"""

import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import scipy.sparse
from sklearn.linear_model import LogisticRegression

from benchmarks.growth import make_rows
from benchmarks.timing import Timed, in_words, interleaved, ratio, spread
from fferm import FairLogisticRegression
from fferm.data.rows import FitInput
from fferm.datasets import load_adult
from fferm.solvers.full_batch import FusedEvaluator

ROUNDS = 9
N_ROWS = 10**6
L2 = 1e-4


def run() -> dict[str, Any]:
    """Return the seconds of passes and fits, and their ratios to the floors."""
    adult = load_adult(sensitive=("sex", "race"), races=("Black", "White"))
    tables = adult.X, adult.y, adult.sensitive_features
    large = make_rows(N_ROWS)
    pairs = {
        "full-batch pass / BLAS and exp, 20 columns": (
            _pass_over(large),
            _products(large[0], with_exp=True),
            "≤ 1.5",
        ),
        "full-batch pass / SciPy's CSR products, Adult": (
            _pass_over(tables),
            _products(scipy.sparse.csr_array(adult.X)),
            "≤ 2",
        ),
        "fair fit / newton-cholesky, Adult": (
            lambda: FairLogisticRegression(fairness_weight=10.0).fit(
                adult.X, adult.y, sensitive_features=adult.sensitive_features
            ),
            lambda: LogisticRegression(
                solver="newton-cholesky", C=1 / (L2 * len(adult.y)), tol=1e-5
            ).fit(adult.X, adult.y),
            "≤ 0.25",
        ),
    }
    found: dict[str, Any] = {"ratios": {}, "seconds": {}}
    for name, (side, floor, asked) in pairs.items():
        sides: dict[str, Any] = {"side": Timed(side), "floor": Timed(floor)}
        seconds = interleaved(sides, rounds=ROUNDS)
        found["seconds"][name] = [spread(seconds[each]) for each in sides]
        found["ratios"][name] = ratio(seconds["side"], seconds["floor"], asked)
        print(f"{name}: {in_words(found['ratios'][name])}", flush=True)
    one_pass = _pass_over(large)
    threads = {f"{n}": lambda n=n: _on_wall(one_pass, n) for n in (1, 2)}
    seconds = interleaved(threads, rounds=ROUNDS)
    name = "full-batch pass, 1 thread / 2 threads, 20 columns"
    found["ratios"][name] = ratio(seconds["1"], seconds["2"], "≥ 1.7")
    print(f"{name}: {in_words(found['ratios'][name])}")
    return found


def _pass_over(rows: Any) -> Callable[[], Any]:
    problem = FairLogisticRegression()._encode(FitInput(*rows))[1]
    evaluator = FusedEvaluator(problem)
    theta = np.full((1, problem.X.shape[1] + 1), 0.1)
    return lambda: evaluator.value_and_gradient(problem, theta)


def _products(X: Any, *, with_exp: bool = False) -> Callable[[], Any]:
    n_rows, n_columns = X.shape
    theta, factor = np.full(n_columns, 0.1), np.full(n_rows, 0.1)

    def products() -> Any:
        logits = X @ theta
        return np.exp(logits) if with_exp else logits, X.T @ factor

    return products


def _on_wall(function: Callable[[], Any], n_threads: int) -> float:
    numba.config.NUMBA_NUM_THREADS = n_threads  # type: ignore[attr-defined]
    began = time.perf_counter()
    function()
    return time.perf_counter() - began
