"""Stochastic solvers that train several fairness weights as lanes of one run.

They share how a run begins, when it ends and what it gives back; they differ in their
steps: `SGDA`, `SemiStochastic` and `SREDA` are Algorithms 1, 3 and 2 of the paper in
their unambiguous form.

A random order of many rows misses every cache at every row. So many rows are shuffled
in two stages: blocks of neighbours in random order, some hundreds of them at a time,
and the rows of these at random. A batch still draws from hundreds of places all over
the data, and what it reads lies close together.
"""

import contextlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from fferm._typing import FloatArray, IntArray
from fferm.errors import NonFiniteError
from fferm.penalty.compiled import make_dual
from fferm.penalty.objective import Objective, Problem, check_finite
from fferm.solvers import _kernels
from fferm.solvers._kernels import Model, RowArrays, Scratch, Steps, make_scratch
from fferm.solvers.base import (
    LARGE_NUMBER,
    Callback,
    EarlyStopping,
    Monitor,
    Result,
    Solution,
    Solver,
)
from fferm.solvers.full_batch import (
    FusedEvaluator,
    Measured,
    in_threads,
    make_rows,
    n_threads,
)
from fferm.solvers.lbfgs import LBFGS, whiten
from fferm.solvers.linear import parameter_shape

# Adagrad divides by the root of this at least: no gradient yet, no step of 0 / 0.
LEAST_SQUARES = 1e-12
# An epoch of few batches has few steps: go on until there are this many.
LEAST_STEPS = 600
# The penalty comes in over the first hundredth of the run.
WARM_UP = 100
# Fewer lanes than this are not worth a thread: they cost what one costs.
LANES_PER_THREAD = 8
# Early stopping looks at the objective after an epoch that makes so many steps, or more
# epochs of fewer; what lowers it by less than this share has gained nothing.
STEPS_TO_JUDGE = 100
LEAST_GAIN = 1e-4
# Penalties with kinks, and features beyond `LARGE_NUMBER`, may end far from the
# optimum. So few steps on all rows show whether the objective falls by more than this
# share.
CHECKING_STEPS = 10
LARGEST_EXCESS = 0.01

# Up to so many rows, the order is one permutation.
FEW_ROWS = 32_768
# RowArrays of a block, and rows shuffled together: 256 blocks, 2.6 MB of 20 columns.
BLOCK = 64
WINDOW = 16_384

# Of SGDA: six passes over the data by default, fewer where they would hold more than
# the last number of rows, and more where they would hold fewer than the first.
LEAST_ROWS, MOST_ROWS = 100_000, 1_000_000

# Of semi-stochastic descent: passes over the penalty's rows an epoch. A payoff held for
# longer lets the model overshoot: at 4 an epoch, chi2 ended 5 % above the optimum at
# weight 100.
REFRESHES = 16
# A refresh moves the payoff by min(FIRST_MOVE, LATE_MOVE / s) of the way. The whole
# way swings from side to side at large weights; at a kink it never settles.
FIRST_MOVE = 0.05
LATE_MOVE = 2.0

# Of SREDA: passes over the data may hold few steps: go on until there are this many.
# After 1000 total variation was 1.9 % above the optimum at weight 10, after 2000 0.6 to
# 1.0 %, and with steps of 0.3 instead of 0.2 at most 0.7 %.
LEAST_SREDA_STEPS = 2000
# Steps between two large batches. The estimators drift as a random walk: at 20 steps
# total variation ended 4.7 % above the optimum at weight 10, at 10 steps 1.6 %.
REFRESH_EVERY = 10


@dataclass(kw_only=True)
class RunState:
    """Where a run stands.

    Attributes
    ----------
    weights
        The fairness weight of each lane.
    rows, model, steps, scratch, dual
        What the kernel takes; it changes the model, and the dual where there is one.
    evaluator
        What passes over all rows.
    rng
        Draws the rows.
    stopping
        What says when no lane improves any more.
    held
        The estimators of SREDA: ``v`` as gradient, ``u`` as slope, and the mass of the
        last large batch.
    n_epochs, n_steps
        Chunks and steps of the model so far.
    thetas, measured
        The parameters of each lane and what was measured at them, the best so far.
    measured_at
        The step of the last measurement.
    above
        The lanes that ended well above their optimum.
    """

    weights: tuple[float, ...]
    rows: RowArrays
    model: Model
    steps: Steps
    scratch: Scratch
    dual: Any
    evaluator: FusedEvaluator
    rng: np.random.Generator
    stopping: EarlyStopping
    held: Any = None
    n_epochs: int = 0
    n_steps: int = 0
    thetas: Sequence[FloatArray] = ()
    measured: Sequence[Measured] = ()
    measured_at: int = 0
    above: tuple[int, ...] = ()


@dataclass(frozen=True)
class StochasticSolver(Solver[RunState]):
    """A solver whose model is an average over the later half of its steps.

    Parameters
    ----------
    max_epochs
        Passes over the data, more where they hold too few steps; None is
        ``default_epochs``.
    lr
        Step of Adagrad.
    fit_intercept
        Whether intercepts are free; otherwise they stay 0.
    seed
        Of the order of rows.
    patience
        Stop after so many epochs (of 100 steps at least) in which no lane gained a
        ten-thousandth, and return the best that each has met; None runs to the end of
        the schedule.
    judged_on
        The rows that gains are measured on; None takes those of training.
    batch_size
        Rows a step, from 1 to all.
    dual_lr
        The step of a dual that ascends is ``dual_lr / t``.
    """

    default_epochs: ClassVar[int]
    has_warm_up: ClassVar[bool] = True

    max_epochs: int | None = None
    lr: float = 0.3
    fit_intercept: bool = True
    seed: int = 0
    patience: int | None = None
    judged_on: Problem | None = None
    batch_size: int = 64
    dual_lr: float = 4.0

    @abstractmethod
    def run_chunk(self, problem: Problem, state: RunState) -> Iterator[int]:
        """Run an epoch mostly; yield the number of steps so far after each part."""

    def make_dual(self, problem: Problem, n_lanes: int) -> Any:
        """Return the dual to begin at; None for a solver that ascends none."""

    def prepare(self, problem: Problem, state: RunState) -> None:
        """Fill what else the state begins with."""

    def chunk_steps(self, n_rows: int) -> int:
        """Return how many steps a chunk has."""
        return -(-n_rows // self.batch_size)

    def n_chunks(self, n_rows: int) -> int:
        """Return how many chunks the schedule has."""
        n_least = -(-LEAST_STEPS // self.chunk_steps(n_rows))
        return max(self.max_epochs or self.default_epochs, n_least)

    @final
    def begin(
        self, problem: Problem, start: FloatArray | None, weights: Sequence[float]
    ) -> RunState:
        """Return the state to begin from, with one lane for each weight."""
        dual, rows = self.make_dual(problem, len(weights)), make_rows(problem)
        model = make_model(
            problem, start, len(weights), fit_intercept=self.fit_intercept
        )
        evaluator = FusedEvaluator(problem, rows)
        n_steps = self.n_chunks(rows.size) * self.chunk_steps(rows.size)
        scale = 1.0 if dual is None else dual.scale
        table = np.zeros((*evaluator.table_shape, len(weights)))
        state = RunState(
            weights=tuple(weights),
            rows=rows,
            model=model,
            steps=self.steps(problem.objective, weights, n_steps, scale),
            scratch=make_scratch(model.theta, table),
            dual=dual,
            evaluator=evaluator,
            rng=np.random.default_rng(self.seed),
            stopping=EarlyStopping(self.patience, LEAST_GAIN),
        )
        self.prepare(problem, state)
        return state

    @final
    def steps(
        self,
        objective: Objective,
        weights: Sequence[float],
        n_steps: int,
        scale: float = 1.0,
    ) -> Steps:
        """Return how far to go in each of so many steps.

        Parameters
        ----------
        objective
            Sharpness and ridge.
        weights
            The fairness weight of each lane, to be multiplied by ``scale``.
        n_steps
            Steps of the whole schedule; the later half is averaged.
        scale
            Of the dual, where there is one.
        """
        average_from = n_steps // 2 if self.patience is None else 0
        is_plain = getattr(self, "dual", "") == "plain"  # of `SGDA`
        if is_plain:  # the last iterate is the model
            average_from = n_steps
        has_warm_up = self.has_warm_up and not is_plain
        return Steps(
            scale * np.asarray(weights, dtype=np.float64),
            float(objective.sharpness),
            float(objective.l2),
            float(self.lr),
            float(self.dual_lr),
            average_from,
            max(1, n_steps // WARM_UP) if has_warm_up else 1,
            bool(self.fit_intercept),
            is_plain,
        )

    @final
    def init(self, problem: Problem, start: FloatArray | None) -> RunState:
        """Begin at given parameters or at 0, with one lane."""
        return self.begin(problem, start, [problem.objective.fairness_weight])

    @final
    def advance(self, problem: Problem, state: RunState, monitor: Monitor) -> RunState:
        """Run a chunk; the last is measured, and all are under ``patience``."""
        *_, state.n_steps = self.run_chunk(problem, state)
        if not np.all(np.isfinite(state.model.theta)):
            raise NonFiniteError(Result.nonfinite.value)
        state.n_epochs += 1
        is_due = self.patience and state.n_steps - state.measured_at >= STEPS_TO_JUDGE
        is_last = state.n_epochs >= self.n_chunks(state.rows.size)
        if is_due or is_last:
            self._measure(problem, state)
            monitor.record(objective=state.measured[0].objective)
        if is_last and self.patience is None:
            penalty = problem.objective
            has_kinks = penalty.uncertainty or not penalty.divergence.is_smooth
            x = state.rows.X[0]  # the copy that leaves zeros out
            if has_kinks or max(x.max(initial=0), -x.min(initial=0)) > LARGE_NUMBER:
                self._check_end(problem, state)
        if self.patience and state.n_steps >= 2 * state.steps.average_from:
            # The end is unknown: the average starts over when steps have doubled.
            state.model.total[:] = 0.0
            state.steps = state.steps._replace(average_from=state.n_steps)
        return state

    @final
    def is_done(self, state: RunState, lane: int = 0) -> Result | None:
        """Return the result once the schedule is run, or nothing is gained any more."""
        if state.stopping.is_over:
            return Result.nothing_gained
        if state.n_epochs < self.n_chunks(state.rows.size):
            return None
        is_above = lane in state.above
        return Result.above_optimum if is_above else Result.schedule_completed

    @final
    def finish(
        self, problem: Problem, state: RunState, lane: int = 0
    ) -> dict[str, Any]:
        """Return the averaged parameters of a lane."""
        objective, dual = state.measured[lane]
        stats = {
            "objective": objective,
            "n_iter": state.n_epochs,
            "n_evaluations": state.n_steps,
        }
        return {"value": state.thetas[lane], "dual": dual, "stats": stats}

    @final
    def solve_path(
        self,
        problem: Problem,
        weights: Sequence[float],
        *,
        start: FloatArray | None = None,
        callbacks: tuple[Callback, ...] = (),
    ) -> Iterator[Solution]:
        """Yield the solutions of all weights, trained as lanes of one run.

        Many lanes are shared out between the cores; a lane does not depend on which.
        Under ``patience`` all stop together, and share one core.
        """

        def run(part: list[float]) -> list[Solution]:
            monitor = Monitor(callbacks=callbacks)
            state = self.begin(problem, start, part)
            while self.is_done(state) is None:
                state = self.advance(problem, state, monitor)
            history = tuple(monitor.history)
            return [
                Solution(
                    result=self.is_done(state, lane) or Result.schedule_completed,
                    history=history,
                    **self.finish(problem, state, lane),
                )
                for lane in range(len(part))
            ]

        count = max(1, min(n_threads(), len(weights) // LANES_PER_THREAD))
        count = 1 if self.patience else count
        parts = np.array_split(np.asarray(weights), count)
        for solutions in in_threads(run, [(list(part),) for part in parts]):
            yield from solutions

    def _check_end(self, problem: Problem, state: RunState) -> None:
        coordinates = whiten(problem.X, problem.share, problem.objective.l2)
        solver = LBFGS(
            max_iter=CHECKING_STEPS,
            fit_intercept=self.fit_intercept,
            coordinates=coordinates,
        )
        for lane, weight in enumerate(state.weights):
            objective = state.measured[lane].objective
            with contextlib.suppress(NonFiniteError):
                lower = solver.solve(
                    problem.with_weight(weight), start=state.thetas[lane]
                ).stats["objective"]
                if objective - lower > LARGEST_EXCESS * abs(lower):
                    state.above += (lane,)

    def _measure(self, problem: Problem, state: RunState) -> None:
        average, lanes = mean_iterate(state), range(len(state.weights))
        thetas = [lane_parameters(problem, average, lane) for lane in lanes]
        evaluator = state.evaluator
        if self.judged_on is not None:
            problem, evaluator = self.judged_on, FusedEvaluator(self.judged_on)
        measured = evaluator.measure(problem, thetas, state.weights)
        state.measured_at = state.n_steps
        is_lower = state.stopping.update([m.objective for m in measured])
        if state.measured:
            for lane in lanes:
                if not is_lower[lane]:
                    thetas[lane] = state.thetas[lane]
                    measured[lane] = state.measured[lane]
        state.thetas, state.measured = thetas, measured


@dataclass(frozen=True)
class SGDA(StochasticSolver):
    """Stochastic gradient descent-ascent, at any batch size.

    One fused kernel for every divergence and every notion that conditions on strata.

    Parameters
    ----------
    max_epochs, lr, fit_intercept, seed, patience, judged_on, batch_size, dual_lr
        As in `StochasticSolver`, but None is 6 passes, or as many as hold a million
        rows; there are 600 steps and 100,000 rows at least.
    dual
        The variable that ascends: ``"log_ratio"``, of which the dual is a function,
        ``"projected"``, the dual itself, clipped to its box, or ``"auto"``, the latter
        where the dual has a kink or is steep. ``"plain"`` is Algorithm 1 as printed:
        the dual itself, and constant steps ``lr`` and ``dual_lr`` along the gradients.
    """

    default_epochs: ClassVar[int] = 6

    lr: float = 0.8
    dual: str = "auto"

    def make_dual(self, problem: Problem, n_lanes: int) -> Any:
        """Return the dual of independence."""
        return make_dual(problem, n_lanes, solver="sgda", variable=self.dual)

    def run_chunk(self, problem: Problem, state: RunState) -> Iterator[int]:
        """Run one epoch."""
        rows, n_steps = state.rows, state.n_steps
        batch_size = min(self.batch_size, rows.size)
        changed = state.model, state.dual, state.steps, state.scratch
        for order in shuffled(state.rng, rows.size, batch_size):
            n_steps = _kernels.run_batches(rows, order, batch_size, *changed, n_steps)
            yield n_steps

    def n_chunks(self, n_rows: int) -> int:
        """Return the number of epochs."""
        n_most = min(self.default_epochs, -(-MOST_ROWS // n_rows))
        n_least = -(-LEAST_STEPS // self.chunk_steps(n_rows))
        return max(self.max_epochs or n_most, n_least, -(-LEAST_ROWS // n_rows))


@dataclass(frozen=True)
class SemiStochastic(StochasticSolver):
    """Minibatch descent along payoffs of exact tables.

    Every few steps one pass over the rows of the penalty gives its table ``P`` and the
    payoff ``G = dR / dP``, whatever ``R`` is; the steps between look the payoff up. So
    it trains every penalty. Right after the first pass the gradient of a batch is
    unbiased for every penalty; later it is that of payoffs which are some steps old. A
    refresh moves the payoff by a twentieth of the way to the new one, later by
    ``2 / s`` at the ``s``-th pass: the average of payoffs settles where single ones
    would swing. The step falls to 0 over the epochs, or else a penalty with kinks would
    keep it at a distance; under ``patience``, when nobody knows how many there will be,
    it does not.

    Parameters
    ----------
    max_epochs, lr, fit_intercept, seed, patience, judged_on, batch_size
        As in `StochasticSolver`; None is 30 passes.
    refresh_every
        Steps between two passes over the penalty's rows; None takes a sixteenth of an
        epoch.
    """

    default_epochs: ClassVar[int] = 30

    refresh_every: int | None = None

    def prepare(self, problem: Problem, state: RunState) -> None:
        """Begin with the payoff of the start."""
        state.scratch.payoff[:] = lane_payoffs(problem, state)

    def run_chunk(self, problem: Problem, state: RunState) -> Iterator[int]:
        """Run one epoch."""
        n_rows, t, steps = state.rows.size, state.n_steps, state.steps
        payoff = state.scratch.payoff
        if self.patience is None:
            rest = 1 - state.n_epochs / self.n_chunks(n_rows)
            steps = steps._replace(lr=self.lr * rest)
        every = self.refresh_every or max(1, self.chunk_steps(n_rows) // REFRESHES)
        for order in shuffled(state.rng, n_rows, self.batch_size):
            begin = 0
            while begin < order.size:
                if t > 0 and t % every == 0:
                    move = min(FIRST_MOVE, LATE_MOVE / (t // every))
                    payoff += move * (lane_payoffs(problem, state) - payoff)
                end = begin + (every - t % every) * self.batch_size
                batches = state.rows, order[begin:end], self.batch_size
                changed = state.model, None, steps, state.scratch
                t = _kernels.run_batches(*batches, *changed, t)
                begin = end
            yield t


@dataclass(frozen=True)
class SREDA(StochasticSolver):
    """Stochastic recursive descent-ascent (Luo et al. 2020).

    A large batch gives the gradients; small ones then say how they change from point to
    point. Between two steps of the model, a few inner steps raise the dual, and one of
    them is kept at random. The dual is held as its log-ratio ``z``, ``A = f'(e^z)``,
    and moves along its gradient by ``A`` over ``pi_k P_j``: one step size then serves
    every divergence, ``A`` stays in the domain of the conjugate, and the box of ``A``
    is a box of ``z``. Total variation is rounded, which is the regulariser
    ``-(eps / 2) (A - f'(1))^2`` on a cell.

    Estimators, inner loop and projection are those of the paper. Three things are of
    practice, not of its theory: the model takes Adagrad steps instead of normalised
    ones, the dual step falls as ``1 / t``, and the average of the second half is
    returned instead of a random iterate.

    Parameters
    ----------
    max_epochs, lr, fit_intercept, seed, patience, judged_on
        As in `StochasticSolver`; there are 2000 steps at least.
    batch_size
        Rows of a small batch. Small ones let the estimators drift.
    dual_lr
        The dual step is ``dual_lr / t``, at most 0.2.
    refresh_every
        Steps of the model between two large batches; None is 10.
    refresh_size
        Rows of a large batch; None takes all.
    inner_steps
        Most inner steps of the dual.
    """

    default_epochs: ClassVar[int] = 20
    has_warm_up: ClassVar[bool] = False  # the dual is the best from the first step on

    batch_size: int = 256
    refresh_every: int | None = None
    refresh_size: int | None = None
    inner_steps: int = 2

    def make_dual(self, problem: Problem, n_lanes: int) -> Any:
        """Return the dual of independence."""
        return make_dual(problem, n_lanes, solver="sreda", variable="log_ratio")

    def prepare(self, problem: Problem, state: RunState) -> None:
        """Begin with the estimators of all rows, and at the best dual."""
        dual = state.dual
        state.held = make_estimators(state.model.theta, dual.z)
        refresh(state, np.arange(state.rows.size))
        sizes = np.diff(dual.ends)
        rate = np.repeat(dual.rate, sizes, axis=2) * dual.prior[:, None, :, None]
        share = np.repeat(dual.share, sizes, axis=1)[:, None, :, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.log(share * state.held.mass / rate)
        z = np.clip(z, dual.lower, dual.upper[:, None, :, None])
        dual.z[:] = np.where(rate > 0, z, 0.0)  # 0 where nobody is

    def run_chunk(self, problem: Problem, state: RunState) -> Iterator[int]:
        """Run from one large batch to the next."""
        n_rows, every = state.rows.size, self.chunk_steps(state.rows.size)
        large = np.arange(n_rows)
        if self.refresh_size is not None and self.refresh_size < n_rows:
            large = state.rng.choice(n_rows, self.refresh_size, replace=False)
        refresh(state, large)
        shape = (every, self.inner_steps + 1, min(self.batch_size, n_rows))
        draws = state.rng.integers(n_rows, size=shape)
        picks = state.rng.integers(1, self.inner_steps + 1, size=every)
        yield run_steps(state, draws, picks)

    def chunk_steps(self, n_rows: int) -> int:
        """Return the number of steps between two large batches."""
        return self.refresh_every or REFRESH_EVERY

    def n_chunks(self, n_rows: int) -> int:
        """Return the number of large batches."""
        every = self.chunk_steps(n_rows)
        # An inner loop holds (m + 1) / 2 + 1 batches on average, each read twice.
        n_small = min(self.batch_size, n_rows) * (self.inner_steps + 3) * every
        n_large = min(self.refresh_size or n_rows, n_rows)
        n_read = (self.max_epochs or self.default_epochs) * n_rows
        n_passes = -(-n_read // (n_small + n_large))
        return max(n_passes, -(-LEAST_SREDA_STEPS // every))


def lane_payoffs(problem: Problem, state: RunState) -> FloatArray:
    """Return the (R, m, K, L) payoffs of the exact tables of all lanes.

    A lane without a weight needs none.
    """
    theta, weights = state.model.theta, state.weights
    if not np.all(np.isfinite(theta)):
        raise NonFiniteError(Result.nonfinite.value)
    payoffs = np.zeros(state.scratch.payoff.shape)
    on_table = state.evaluator.on_table(problem)
    if on_table is None:
        return payoffs
    thetas = [lane_parameters(problem, theta, n) for n in range(len(weights))]
    mass = state.evaluator.mass(problem, thetas)
    for lane, weight in enumerate(weights):
        if weight > 0:
            payoffs[..., lane] = on_table.on_mass(mass[..., lane])[1]
    check_finite(0.0, payoffs)
    return payoffs


def make_estimators(theta: FloatArray, z: FloatArray) -> Scratch:
    """Return arrays for the estimators of SREDA, which concern every column."""
    held = make_scratch(theta, z)
    held.used[:] = np.arange(len(theta))
    held.counts[0] = len(theta)
    return held


def refresh(state: RunState, batch: IntArray) -> None:
    """Take the estimators, and the rates of the classes, from a large batch."""
    scratch, held = state.scratch, state.held
    point = state.model.theta, state.dual
    _kernels.estimate_into(state.rows, batch, *point, state.steps, scratch)
    held.gradient[:] = 0.0
    held.slope[:] = 0.0
    _kernels.add_into(scratch, 1.0, held)
    held.mass[:] = scratch.mass
    mass = np.add.reduceat(held.mass, state.dual.ends[:-1], axis=2)
    state.dual.rate[:] = state.dual.share[:, None, :, None] * mass


def run_steps(state: RunState, draws: IntArray, picks: IntArray) -> int:
    """Run some steps of SREDA with their inner steps; return how many there were.

    ``draws`` (q, m + 1, b) are the rows of the small batches, ``picks`` (q,) which
    inner step is kept.
    """
    model, dual = state.model, state.dual
    n_steps: int = _kernels.sreda_steps(
        state.rows,
        draws,
        picks,
        model,
        dual,
        (model.theta.copy(), dual._replace(z=dual.z.copy())),
        state.steps,
        state.scratch,
        state.held,
        state.n_steps,
    )
    return n_steps


def make_model(
    problem: Problem, start: FloatArray | None, n_lanes: int, *, fit_intercept: bool
) -> Model:
    """Return parameters of all lanes, at a start or at 0."""
    n_outputs, n_columns = parameter_shape(problem)
    lanes = np.zeros((n_columns, n_outputs, n_lanes))
    if start is not None:
        lanes += start.T[:, :, None]
    if not fit_intercept:
        lanes[-1] = 0.0
    theta = lanes.reshape(n_columns, -1)
    squares = np.full_like(theta, LEAST_SQUARES)
    moved = np.zeros(n_columns, dtype=np.int64)
    return Model(theta, squares, 1 / np.sqrt(squares), np.zeros_like(theta), moved)


def mean_iterate(state: RunState) -> FloatArray:
    """Return the mean of the iterates since averaging began, or else the last one."""
    model, begin, n_steps = state.model, state.steps.average_from, state.n_steps
    if n_steps <= begin:
        return model.theta
    return summed_iterates(model, begin, n_steps) / (n_steps - begin)


def summed_iterates(model: Model, begin: int, n_steps: int) -> FloatArray:
    """Return the sum of the iterates after step ``begin``."""
    # What each column is still due since it last moved.
    due = np.maximum(0, n_steps + 1 - np.maximum(model.moved, begin + 1))
    total: FloatArray = model.total + due[:, None] * model.theta
    return total


def lane_parameters(problem: Problem, theta: FloatArray, lane: int) -> FloatArray:
    """Return (n_outputs, n_features + 1) parameters of one lane."""
    n_outputs, n_columns = parameter_shape(problem)
    of_lane = theta.reshape(n_columns, n_outputs, -1)[:, :, lane].T
    return of_lane - of_lane.mean(axis=0) if n_outputs > 1 else of_lane.copy()


def shuffled(
    rng: np.random.Generator, n_rows: int, batch_size: int
) -> Iterator[IntArray]:
    """Yield the positions of all rows in random order, in parts of whole batches.

    Only the last part may end with a batch that is smaller.
    """
    if n_rows <= FEW_ROWS:
        yield rng.permutation(n_rows)
        return
    waiting: IntArray = np.zeros(0, dtype=np.int64)
    blocks = rng.permutation(-(-n_rows // BLOCK))
    for begin in range(0, blocks.size, WINDOW // BLOCK):
        starts = blocks[begin : begin + WINDOW // BLOCK, None] * BLOCK
        window = (starts + np.arange(BLOCK)).reshape(-1)
        if starts.max() > n_rows - BLOCK:  # the last block may be smaller
            window = window[window < n_rows]
        rng.shuffle(window)
        waiting = np.concatenate([waiting, window]) if waiting.size else window
        n_whole = waiting.size // batch_size * batch_size
        if n_whole:
            yield waiting[:n_whole]
            waiting = waiting[n_whole:]
    if waiting.size:
        yield waiting
