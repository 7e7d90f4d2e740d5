"""Semi-stochastic descent for linear models: exact tables, minibatch steps.

Algorithm 3 of the paper in its unambiguous form. Every few steps one pass over the rows
of the penalty gives its table ``P`` and the payoff ``G = dR / dP``, whatever ``R`` is;
the steps between look the payoff up. So it trains every penalty.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse

from fferm._types import FloatArray, Table, is_sparse
from fferm.errors import NonFiniteError
from fferm.objective import INFINITE_PENALTY, Penalty, Problem
from fferm.solvers._kernels import Model, Rows, Steps
from fferm.solvers._lookup_kernel import lookup_steps
from fferm.solvers.base import Monitor, Result
from fferm.solvers.lanes import LaneSolver, begin_model, check_finite
from fferm.solvers.lbfgs import penalized_logits
from fferm.solvers.linear_sgda import LEAST_STEPS, WARM_UP, lane_parameters, make_rows

# Passes over the penalty's rows an epoch. A payoff held for longer lets the model
# overshoot: at 4 an epoch, chi2 ended 5 % above the optimum at weight 100.
REFRESHES = 16
# A refresh moves the payoff by min(FIRST_MOVE, LATE_MOVE / s) of the way. The whole
# way swings from side to side at large weights; at a kink it never settles.
FIRST_MOVE = 0.05
LATE_MOVE = 2.0
# Below this share of numbers that are not 0, a pass over them alone is cheaper.
SPARSE_SHARE = 1 / 3


@dataclass(frozen=True)
class LookupState:
    """Where a run stands: arrays that are changed in place, and how far it came."""

    rows: Rows
    model: Model
    payoff: FloatArray  # (R, m, K, L)
    lanes: tuple[Problem, ...]  # the problem of each weight, light to pass over
    steps: Steps
    rng: np.random.Generator
    n_epochs: int = 0
    n_steps: int = 0


@dataclass(frozen=True)
class SemiStochastic(LaneSolver[LookupState]):
    """Minibatch descent along payoffs of exact tables.

    Right after the first pass the gradient of a batch is unbiased for every penalty;
    later it is that of payoffs which are some steps old. A refresh moves the payoff by
    a twentieth of the way to the new one, later by ``2 / s`` at the ``s``-th pass: the
    average of payoffs settles where single ones would swing.

    Parameters
    ----------
    batch_size
        Rows a step, from 1 to all.
    max_epochs
        Passes of minibatches over the data; more where they hold fewer than 600 steps.
    refresh_every
        Steps between two passes over the penalty's rows; None takes a sixteenth of an
        epoch.
    lr
        Step of Adagrad.
    fit_intercept
        Whether intercepts are free; otherwise they stay 0.
    seed
        Of the order of rows, drawn anew for every epoch.
    """

    batch_size: int = 64
    max_epochs: int = 20
    refresh_every: int | None = None
    lr: float = 0.4
    fit_intercept: bool = True
    seed: int = 0

    def begin(
        self, problem: Problem, start: FloatArray | None, weights: Sequence[float]
    ) -> LookupState:
        """Begin at given parameters or at 0, with the payoff there."""
        rows = make_rows(problem)
        n_steps = self._n_epochs(rows.y.size) * self._n_batches(rows.y.size)
        steps = Steps(
            np.asarray(weights, dtype=np.float64),
            float(problem.objective.sharpness),
            float(problem.objective.l2),
            float(self.lr),
            0.0,  # there is no dual
            n_steps // 2,
            max(1, n_steps // WARM_UP),
            bool(self.fit_intercept),
        )
        light = _light(problem)
        lanes = tuple(light.with_weight(weight) for weight in weights)
        model = begin_model(problem, start, len(lanes), self.fit_intercept)
        return LookupState(
            rows,
            model,
            lane_payoffs(lanes, model),
            lanes,
            steps,
            np.random.default_rng(self.seed),
        )

    def advance(
        self, problem: Problem, state: LookupState, monitor: Monitor
    ) -> LookupState:
        """Run one epoch; the last one is measured."""
        order = state.rng.permutation(state.rows.y.size)
        every = self.refresh_every or max(1, self._n_batches(order.size) // REFRESHES)
        t, begin = state.n_steps, 0
        while begin < order.size:
            if t > 0 and t % every == 0:
                _refresh(state, t // every)
            end = begin + (every - t % every) * self.batch_size
            t = lookup_steps(
                state.rows,
                order[begin:end],
                self.batch_size,
                state.model,
                state.payoff,
                state.steps,
                t,
            )
            check_finite(state.model)
            begin = end
        after = replace(state, n_epochs=state.n_epochs + 1, n_steps=t)
        self._record_last(problem, after, monitor)
        return after

    def is_done(self, state: LookupState) -> Result | None:
        """Return the result once all epochs are run."""
        is_over = state.n_epochs >= self._n_epochs(state.rows.y.size)
        return Result.schedule_completed if is_over else None

    def _n_batches(self, n_rows: int) -> int:
        return -(-n_rows // self.batch_size)

    def _n_epochs(self, n_rows: int) -> int:
        return max(self.max_epochs, -(-LEAST_STEPS // self._n_batches(n_rows)))


def lane_payoffs(lanes: Sequence[Problem], model: Model) -> FloatArray:
    """Return the (R, m, K, L) payoffs of all lanes at their parameters."""
    return np.stack(
        [
            payoff_at(problem, lane_parameters(problem, model.theta, lane))
            for lane, problem in enumerate(lanes)
        ],
        axis=-1,
    )


def payoff_at(problem: Problem, theta: FloatArray) -> FloatArray:
    """Return the (R, m, K) payoff of the exact table, groups of all attributes.

    It is per mean over all rows, as the kernel weighs them, where the table of an
    attribute is a mean over the rows that have it.
    """
    penalty = problem.penalty
    if penalty is None:
        return np.zeros((0, problem.n_classes, 0))
    shape = (
        penalty.cells[0].n_strata,
        problem.n_classes,
        sum(cells.n_groups for cells in penalty.cells),
    )
    if problem.objective.fairness_weight == 0:
        return np.zeros(shape)
    logits = penalized_logits(problem, theta)
    if not np.all(np.isfinite(logits)):
        raise NonFiniteError(Result.nonfinite.value)
    tables = penalty.tables(problem.penalized_prob(logits))
    parts = [
        penalty.on_table(table)[1] / known
        for table, known in zip(tables, _known(penalty), strict=True)
    ]
    payoff = np.concatenate(parts, axis=2)
    if not np.all(np.isfinite(payoff)):
        raise NonFiniteError(INFINITE_PENALTY)
    return payoff


def _refresh(state: LookupState, count: int) -> None:
    move = min(FIRST_MOVE, LATE_MOVE / count)
    state.payoff[:] += move * (lane_payoffs(state.lanes, state.model) - state.payoff)


def _known(penalty: Penalty) -> list[float]:
    # The share of weight that each attribute is known for.
    weight = penalty.rows.weight
    return [
        float(weight[attribute.code >= 0].sum() / weight.sum())
        for attribute in penalty.rows.attributes
    ]


def _light(problem: Problem) -> Problem:
    """Return the problem with the rows of its penalty as CSR where that is faster."""
    X: Table = problem.X if problem.penalty_X is None else problem.penalty_X
    if is_sparse(X) or np.count_nonzero(X) > SPARSE_SHARE * X.size:
        return problem
    return replace(problem, penalty_X=scipy.sparse.csr_array(X))
