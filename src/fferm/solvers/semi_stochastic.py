"""Semi-stochastic descent for linear models: exact tables, minibatch steps.

Algorithm 3 of the paper in its unambiguous form. Every few steps one pass over the rows
of the penalty gives its table ``P`` and the payoff ``G = dR / dP``, whatever ``R`` is;
the steps between look the payoff up. So it trains every penalty.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fferm._typing import FloatArray
from fferm.errors import NonFiniteError
from fferm.penalty.objective import Problem, check_finite
from fferm.solvers._kernels import Model, lookup_steps, make_scratch
from fferm.solvers.base import Result
from fferm.solvers.full_batch import FusedEvaluator, make_rows
from fferm.solvers.stochastic import (
    LEAST_STEPS,
    StochasticSolver,
    StochasticState,
    lane_parameters,
    make_model,
    shuffled,
)

# Passes over the penalty's rows an epoch. A payoff held for longer lets the model
# overshoot: at 4 an epoch, chi2 ended 5 % above the optimum at weight 100.
REFRESHES = 16
# A refresh moves the payoff by min(FIRST_MOVE, LATE_MOVE / s) of the way. The whole
# way swings from side to side at large weights; at a kink it never settles.
FIRST_MOVE = 0.05
LATE_MOVE = 2.0
MAX_EPOCHS = 30


@dataclass(frozen=True, kw_only=True)
class LookupState(StochasticState):
    """Where a run stands: also what passes over the penalty's rows."""

    evaluator: FusedEvaluator


@dataclass(frozen=True)
class SemiStochastic(StochasticSolver[LookupState]):
    """Minibatch descent along payoffs of exact tables.

    Right after the first pass the gradient of a batch is unbiased for every penalty;
    later it is that of payoffs which are some steps old. A refresh moves the payoff by
    a twentieth of the way to the new one, later by ``2 / s`` at the ``s``-th pass: the
    average of payoffs settles where single ones would swing. The step falls to 0 over
    the epochs, or else a penalty with kinks would keep it at a distance; under
    ``patience``, when nobody knows how many there will be, it does not.

    Parameters
    ----------
    max_epochs, lr, fit_intercept, seed, patience, judged_on
        As in `StochasticSolver`.
    batch_size
        Rows a step, from 1 to all.
    refresh_every
        Steps between two passes over the penalty's rows; None takes a sixteenth of an
        epoch.
    """

    lr: float = 0.3
    batch_size: int = 64
    refresh_every: int | None = None

    def begin(
        self, problem: Problem, start: FloatArray | None, weights: Sequence[float]
    ) -> LookupState:
        """Begin at given parameters or at 0, with the payoff there."""
        rows = make_rows(problem)
        n_steps = self.n_chunks(rows.size) * self._n_batches(rows.size)
        model = make_model(
            problem, start, len(weights), fit_intercept=self.fit_intercept
        )
        evaluator = FusedEvaluator(problem, rows)
        payoffs = lane_payoffs(problem, evaluator, model, weights)
        scratch = make_scratch(model.theta, payoffs)
        scratch.payoff[:] = payoffs
        return LookupState(
            **self.common_state(rows, weights),
            model=model,
            steps=self.steps(problem.objective, weights, n_steps),
            scratch=scratch,
            evaluator=evaluator,
        )

    def run_chunk(self, problem: Problem, state: LookupState) -> int:
        """Run one epoch."""
        n_rows, t, steps = state.rows.size, state.n_steps, state.steps
        if self.patience is None:
            rest = 1 - state.n_epochs / self.n_chunks(n_rows)
            steps = steps._replace(lr=self.lr * rest)
        every = self.refresh_every or max(1, self._n_batches(n_rows) // REFRESHES)
        for order in shuffled(state.rng, n_rows, self.batch_size):
            begin = 0
            while begin < order.size:
                if t > 0 and t % every == 0:
                    exact = lane_payoffs(
                        problem, state.evaluator, state.model, state.weights
                    )
                    move = min(FIRST_MOVE, LATE_MOVE / (t // every))
                    state.scratch.payoff[:] += move * (exact - state.scratch.payoff)
                end = begin + (every - t % every) * self.batch_size
                t = lookup_steps(
                    state.rows,
                    order[begin:end],
                    self.batch_size,
                    state.model,
                    steps,
                    state.scratch,
                    t,
                )
                begin = end
        return t

    def n_chunks(self, n_rows: int) -> int:
        """Return the number of epochs."""
        n_least = -(-LEAST_STEPS // self._n_batches(n_rows))
        return max(self.max_epochs or MAX_EPOCHS, n_least)

    def _n_batches(self, n_rows: int) -> int:
        return -(-n_rows // self.batch_size)


def lane_payoffs(
    problem: Problem,
    evaluator: FusedEvaluator,
    model: Model,
    weights: Sequence[float],
) -> FloatArray:
    """Return the (R, m, K, L) payoffs of the exact tables of all lanes.

    A lane without a weight needs none.
    """
    if not np.all(np.isfinite(model.theta)):
        raise NonFiniteError(Result.nonfinite.value)
    on_table = evaluator.on_table(problem)
    if on_table is None:
        return np.zeros((0, problem.n_classes, 0, len(weights)))
    thetas = [lane_parameters(problem, model.theta, n) for n in range(len(weights))]
    mass = evaluator.mass(problem, thetas)
    payoffs = np.zeros_like(mass)
    for lane, weight in enumerate(weights):
        if weight > 0:
            payoffs[..., lane] = on_table.on_mass(mass[..., lane])[1]
    check_finite(0.0, payoffs)
    return payoffs
