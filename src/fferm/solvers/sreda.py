"""Stochastic recursive descent-ascent for linear models.

Algorithm 2 of the paper (SREDA, Luo et al. 2020) in its unambiguous form. A large batch
gives the gradients; small ones then say how they change from point to point. Between
two steps of the model, a few inner steps raise the dual, and one of them is kept at
random.

The dual is held as its log-ratio ``z``, ``A = f'(e^z)``, and moves along its gradient
by ``A`` over ``pi_k P_j``: one step size then serves every divergence, ``A`` stays in
the domain of the conjugate, and the box of ``A`` is a box of ``z``. Total variation
comes rounded, which is the regulariser ``-(eps / 2) (A - f'(1))^2`` on a cell.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fferm._types import FloatArray, IntArray
from fferm.objective import Problem
from fferm.solvers._kernels import (
    Dual,
    Model,
    NumbaExperimentalFeatureWarning,
    Rows,
    Steps,
)
from fferm.solvers._pointers import log_ratio_pointers, strip
from fferm.solvers._sreda_kernel import Estimate, estimate_into, sreda_steps
from fferm.solvers.base import Monitor, Result
from fferm.solvers.lanes import LaneSolver, begin_model, check_finite
from fferm.solvers.linear_sgda import check_linear_dual, make_dual, make_rows

# Passes over the data may hold few steps: go on until there are this many.
LEAST_STEPS = 1000
# Steps between two large batches. The estimators drift as a random walk: at 20 steps
# total variation ended 4.7 % above the optimum at weight 10, at 10 steps 1.6 %.
REFRESH_EVERY = 10


@dataclass(frozen=True)
class SredaState:
    """Where a run stands: arrays that the kernel changes, and how far it came."""

    rows: Rows
    model: Model
    dual: Dual
    steps: Steps
    pointers: tuple[Any, Any]
    rng: np.random.Generator
    held: Estimate  # the estimators
    n_epochs: int = 0
    n_steps: int = 0


@dataclass(frozen=True)
class SREDA(LaneSolver[SredaState]):
    """Stochastic recursive descent-ascent.

    Estimators, inner loop and projection are those of the paper. Three things are of
    practice, not of its theory: the model takes Adagrad steps instead of normalised
    ones, the dual step falls as ``1 / t``, and the average of the second half is
    returned instead of a random iterate.

    Parameters
    ----------
    batch_size
        Rows of a small batch. Small ones let the estimators drift.
    max_epochs
        Rows that are read, in passes over the data; more where they hold fewer than
        1000 steps of the model.
    refresh_every
        Steps of the model between two large batches; None is 10.
    refresh_size
        Rows of a large batch; None takes all.
    inner_steps
        Most inner steps of the dual.
    lr
        Step of Adagrad.
    dual_lr
        The dual step is ``dual_lr / t``, at most 0.2.
    fit_intercept
        Whether intercepts are free; otherwise they stay 0.
    seed
        Of the batches.
    """

    batch_size: int = 256
    max_epochs: int = 20
    refresh_every: int | None = None
    refresh_size: int | None = None
    inner_steps: int = 2
    lr: float = 0.4
    dual_lr: float = 4.0
    fit_intercept: bool = True
    seed: int = 0

    def begin(
        self, problem: Problem, start: FloatArray | None, weights: Sequence[float]
    ) -> SredaState:
        """Begin at given parameters or at 0, and at the best dual there."""
        check_linear_dual(problem, "sreda")
        divergence, scale, _ = strip(problem.objective.divergence)
        rows = make_rows(problem)
        steps = Steps(
            scale * np.asarray(weights, dtype=np.float64),
            float(problem.objective.sharpness),
            float(problem.objective.l2),
            float(self.lr),
            float(self.dual_lr),
            self._n_stages(rows.y.size) * self._every // 2,
            1,  # the dual is no guess, so the penalty counts from the first step
            bool(self.fit_intercept),
        )
        model = begin_model(problem, start, len(weights), self.fit_intercept)
        dual = make_dual(problem, len(weights))
        state = SredaState(
            rows,
            model,
            dual,
            steps,
            log_ratio_pointers(divergence),
            np.random.default_rng(self.seed),
            blank(model, dual),
        )
        refresh(state, np.arange(rows.y.size))
        dual.z[:] = best_log_ratios(dual, state.held.mass)
        return state

    def advance(
        self, problem: Problem, state: SredaState, monitor: Monitor
    ) -> SredaState:
        """Run from one large batch to the next; the last stage is measured."""
        n_rows = state.rows.y.size
        refresh(state, self._large_batch(state))
        shape = (self._every, self.inner_steps + 1, min(self.batch_size, n_rows))
        draws = state.rng.integers(n_rows, size=shape)
        picks = state.rng.integers(1, self.inner_steps + 1, size=self._every)
        n_steps = run_steps(state, draws, picks)
        check_finite(state.model)
        after = replace(state, n_epochs=state.n_epochs + 1, n_steps=n_steps)
        self._record_last(problem, after, monitor)
        return after

    def is_done(self, state: SredaState) -> Result | None:
        """Return the result once all stages are run."""
        is_over = state.n_epochs >= self._n_stages(state.rows.y.size)
        return Result.schedule_completed if is_over else None

    @property
    def _every(self) -> int:
        return self.refresh_every or REFRESH_EVERY

    def _large_batch(self, state: SredaState) -> IntArray:
        n_rows = state.rows.y.size
        if self.refresh_size is None or self.refresh_size >= n_rows:
            return np.arange(n_rows)
        return state.rng.choice(n_rows, self.refresh_size, replace=False)

    def _n_stages(self, n_rows: int) -> int:
        # An inner loop holds (m + 1) / 2 + 1 batches on average, each read twice.
        n_small = min(self.batch_size, n_rows) * (self.inner_steps + 3) * self._every
        n_large = min(self.refresh_size or n_rows, n_rows)
        n_passes = -(-self.max_epochs * n_rows // (n_small + n_large))
        return max(n_passes, -(-LEAST_STEPS // self._every))


def blank(model: Model, dual: Dual) -> Estimate:
    """Return estimators of 0."""
    return Estimate(
        np.zeros_like(model.theta), *(np.zeros_like(dual.z) for _ in range(3))
    )


def refresh(state: SredaState, batch: IntArray) -> None:
    """Take the estimators, and the rates of the classes, from a large batch."""
    _compiled(
        estimate_into,
        state.rows,
        batch,
        state.model.theta,
        state.dual,
        state.steps,
        state.pointers,
        state.held,
    )
    state.dual.rate[:] = class_rates(state.dual, state.held.mass)


def run_steps(state: SredaState, draws: IntArray, picks: IntArray) -> int:
    """Run some steps of the model with their inner steps; return how many there were.

    ``draws`` (q, m + 1, b) are the rows of the small batches, ``picks`` (q,) which
    inner step is kept.
    """
    model, dual = state.model, state.dual
    before = model.theta.copy(), dual._replace(z=dual.z.copy())
    n_steps: int = _compiled(
        sreda_steps,
        state.rows,
        draws,
        picks,
        model,
        (model.theta, dual),
        before,
        state.steps,
        state.pointers,
        state.held,
        blank(model, dual),
        state.n_steps,
    )
    return n_steps


def class_rates(dual: Dual, mass: FloatArray) -> FloatArray:
    """Return the (R, m, A, L) rates of the classes in a table."""
    if mass.size == 0:
        return np.zeros_like(dual.rate)
    totals = np.add.reduceat(mass, dual.ends[:-1], axis=2)
    return totals * dual.share[:, None, :, None]


def best_log_ratios(dual: Dual, mass: FloatArray) -> FloatArray:
    """Return ``z = ln(P / Q)`` of a table within the box, 0 where nobody is."""
    if mass.size == 0:
        return np.zeros_like(dual.z)
    sizes = np.diff(dual.ends)
    share = np.repeat(dual.share, sizes, axis=1)[:, None, :, None]
    rate = np.repeat(class_rates(dual, mass), sizes, axis=2)
    product = dual.prior[:, None, :, None] * rate
    ratio = np.ones_like(mass)
    np.divide(share * mass, product, out=ratio, where=product > 0)
    z = np.log(np.maximum(ratio, np.exp(dual.lower)))
    return np.minimum(z, dual.upper[:, None, :, None])


def _compiled(kernel: Any, *arguments: Any) -> Any:
    with warnings.catch_warnings():
        # numba calls functions as arguments experimental when it compiles them.
        warnings.simplefilter("ignore", NumbaExperimentalFeatureWarning)
        return kernel(*arguments)
