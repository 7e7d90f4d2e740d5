"""Stochastic gradient descent-ascent for linear models, at any batch size.

Algorithm 1 of the paper in its unambiguous form, by one fused kernel for every
divergence and every notion that conditions on strata. Several fairness weights are
trained as lanes of one run, which reads the data once for all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fferm._typing import FloatArray
from fferm.penalty.compiled import Dual, make_dual
from fferm.penalty.objective import Problem
from fferm.solvers._kernels import make_scratch, sgda_epoch
from fferm.solvers.full_batch import make_rows
from fferm.solvers.stochastic import (
    LEAST_STEPS,
    StochasticSolver,
    StochasticState,
    make_model,
    shuffled,
)

# Six passes over the data by default, fewer where they would hold more than the last
# number of rows, and more where they would hold fewer than the first.
MAX_EPOCHS = 6
LEAST_ROWS, MOST_ROWS = 100_000, 1_000_000


@dataclass(frozen=True, kw_only=True)
class SgdaState(StochasticState):
    """Where a run stands: also the dual, and the pointer that reads it."""

    dual: Dual
    pointer: int


@dataclass(frozen=True)
class SGDA(StochasticSolver[SgdaState]):
    """Stochastic gradient descent-ascent.

    Parameters
    ----------
    max_epochs, lr, fit_intercept, seed, patience, judged_on
        As in `StochasticSolver`, but None is 6 passes, or as many as hold a million
        rows; there are 600 steps and 100,000 rows at least.
    batch_size
        Rows a step, from 1 to all.
    dual_lr
        The dual step is ``dual_lr / t``.
    dual
        The variable that ascends: ``"log_ratio"``, of which the dual is a function,
        ``"projected"``, the dual itself, clipped to its box, or ``"auto"``, the latter
        where the dual has a kink or is steep.
    """

    lr: float = 0.8
    batch_size: int = 64
    dual_lr: float = 4.0
    dual: str = "auto"

    def begin(
        self, problem: Problem, start: FloatArray | None, weights: Sequence[float]
    ) -> SgdaState:
        """Begin at given parameters or at 0, and at the dual of independence."""
        chosen = make_dual(problem, len(weights), solver="sgda", variable=self.dual)
        rows = make_rows(problem)
        n_rows = rows.size
        n_steps = self.n_chunks(n_rows) * self._n_batches(n_rows)
        model = make_model(
            problem, start, len(weights), fit_intercept=self.fit_intercept
        )
        return SgdaState(
            **self.common_state(rows, weights),
            model=model,
            steps=self.steps(
                problem.objective,
                weights,
                n_steps,
                scale=chosen.scale,
                dual_lr=self.dual_lr,
            ),
            scratch=make_scratch(model.theta, chosen.dual.z),
            dual=chosen.dual,
            pointer=chosen.pointer,
        )

    def run_chunk(self, problem: Problem, state: SgdaState) -> int:
        """Run one epoch."""
        *_, n_steps = self.run_parts(state)
        return n_steps

    def run_parts(self, state: SgdaState) -> Iterator[int]:
        """Yield the number of steps so far after each part of an epoch."""
        n_rows, n_steps = state.rows.size, state.n_steps
        batch_size = min(self.batch_size, n_rows)
        for order in shuffled(state.rng, n_rows, batch_size):
            n_steps = sgda_epoch(
                state.rows,
                order,
                batch_size,
                state.model,
                state.dual,
                state.steps,
                state.pointer,
                state.scratch,
                n_steps,
            )
            yield n_steps

    def n_chunks(self, n_rows: int) -> int:
        """Return the number of epochs."""
        n_epochs = self.max_epochs or min(MAX_EPOCHS, -(-MOST_ROWS // n_rows))
        n_least = -(-LEAST_STEPS // self._n_batches(n_rows))
        return max(n_epochs, n_least, -(-LEAST_ROWS // n_rows))

    def _n_batches(self, n_rows: int) -> int:
        return -(-n_rows // self.batch_size)
