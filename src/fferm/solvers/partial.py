"""Stochastic descent-ascent on data that arrive in pieces.

The steps are those of `SGDA`; what differs is that nobody knows how many there will be.
The model is the mean of the iterates since a power of two of steps, so that it covers
between a half and three quarters of all steps, the later ones, whenever it is asked.
"""

import copy
from dataclasses import dataclass, replace

import numpy as np

from fferm._typing import FloatArray, IntArray
from fferm.divergences import strip, trainable
from fferm.errors import NonFiniteError
from fferm.penalty.compiled import ChosenDual, bind_dual, payoff_into
from fferm.penalty.dual import GroupWeights, dual_variable
from fferm.penalty.objective import Problem
from fferm.solvers._kernels import (
    Model,
    RowArrays,
    Steps,
    batch_gradients_into,
    make_scratch,
    sgda_epoch,
)
from fferm.solvers.base import Result
from fferm.solvers.full_batch import as_rows
from fferm.solvers.sgda import SGDA
from fferm.solvers.stochastic import (
    LEAST_SQUARES,
    LEAST_STEPS,
    lane_parameters,
    make_model,
    summed_iterates,
)

# The penalty comes in over the first steps: before, its dual is a guess.
FIRST_STEPS = 20

# So many batches say how large gradients are.
MOST_BATCHES = 100


@dataclass(frozen=True)
class PieceRun:
    """Where a run stands after some pieces.

    Attributes
    ----------
    model
        Iterate, Adagrad's sums and the sum of iterates since ``average_from``.
    z, rate
        The dual's variable, and the running rates of the classes.
    rng
        Draws the order of rows.
    n_steps
        Steps so far.
    older, older_from
        The sum of the iterates from one power of two to the next, ``average_from``.
    average_from
        The last power of two.
    """

    model: Model
    z: FloatArray
    rate: FloatArray
    rng: np.random.Generator
    n_steps: int
    older: FloatArray
    older_from: int
    average_from: int

    def copy(self) -> "PieceRun":
        """Return a run that may go its own way."""
        return replace(
            self,
            model=Model._make(array.copy() for array in self.model),
            z=self.z.copy(),
            rate=self.rate.copy(),
            rng=copy.deepcopy(self.rng),
        )

    def mean(self) -> FloatArray:
        """Return the mean of the later iterates."""
        total = summed_iterates(self.model, self.average_from, self.n_steps)
        return (self.older + total) / max(1, self.n_steps - self.older_from)


@dataclass(frozen=True)
class Piece:
    """Some rows, and the weights of groups among all rows there will be.

    Attributes
    ----------
    problem
        The objective, and the loss on these rows.
    rows
        The rows as the kernel takes them.
    weights
        Of the groups.
    """

    problem: Problem
    rows: RowArrays
    weights: GroupWeights


def make_piece(
    problem: Problem, weights: GroupWeights, stratum: IntArray, group: IntArray
) -> Piece:
    """Return a piece; loss and penalty are means over its rows."""
    share = problem.share
    rows = as_rows(problem.X, problem.y, stratum, group, share, share)
    return Piece(problem, rows, weights)


@dataclass(frozen=True)
class Start:
    """A model to go on from: parameters, and its dual where it fits the groups."""

    theta: FloatArray
    dual: FloatArray | None


def train_piece(
    solver: SGDA, piece: Piece, run: PieceRun | None, start: Start | None = None
) -> PieceRun:
    """Take one pass over a piece and return where the run then stands.

    Parameters
    ----------
    solver
        Steps, batch size and seed.
    piece
        The rows.
    run
        Where it stood before; None begins a new one.
    start
        Where a new one begins; None is 0.
    """
    chosen = bind_dual(
        piece.problem.objective, piece.weights, piece.problem.n_classes, 1, solver.dual
    )
    run = _begin(solver, piece, chosen, start) if run is None else run.copy()
    dual = chosen.dual._replace(z=run.z, rate=run.rate)
    steps = _steps(solver, piece, chosen)
    scratch = make_scratch(run.model.theta, run.z)
    order = run.rng.permutation(piece.rows.size)
    while order.size:
        # Up to the next power of two, where the average begins anew.
        n_steps = (1 << run.n_steps.bit_length()) - run.n_steps
        part, order = np.split(order, [min(order.size, n_steps * solver.batch_size)])
        after: int = sgda_epoch(
            piece.rows,
            part,
            solver.batch_size,
            run.model,
            dual,
            steps._replace(average_from=run.average_from),
            chosen.pointer,
            scratch,
            run.n_steps,
        )
        run = _turned(replace(run, n_steps=after))
    if not np.all(np.isfinite(run.model.theta)):
        raise NonFiniteError(Result.nonfinite.value)
    return run


def piece_parameters(piece: Piece, run: PieceRun) -> FloatArray:
    """Return the (n_outputs, n_features + 1) parameters of the averaged model."""
    return lane_parameters(piece.problem, run.mean(), 0)


def piece_dual(solver: SGDA, piece: Piece, run: PieceRun) -> FloatArray:
    """Return the (R, m, K) dual where it stands."""
    divergence = piece.problem.objective.divergence
    variable = dual_variable(divergence, solver.dual)
    dual: FloatArray = variable.dual_and_conjugate(run.z[..., 0], np)[0]
    return strip(divergence)[1] * dual


def _steps(solver: SGDA, piece: Piece, chosen: ChosenDual) -> Steps:
    objective = piece.problem.objective
    return Steps(
        chosen.scale * np.array([objective.fairness_weight], dtype=np.float64),
        float(objective.sharpness),
        float(objective.l2),
        float(solver.lr),
        float(solver.dual_lr),
        0,
        FIRST_STEPS,
        bool(solver.fit_intercept),
    )


def _turned(run: PieceRun) -> PieceRun:
    if run.n_steps & (run.n_steps - 1):
        return run
    older = summed_iterates(run.model, run.average_from, run.n_steps)
    run.model.total[:] = 0.0
    return replace(
        run, older=older, older_from=run.average_from, average_from=run.n_steps
    )


def _begin(
    solver: SGDA, piece: Piece, chosen: ChosenDual, start: Start | None
) -> PieceRun:
    theta = None if start is None else start.theta
    model = make_model(piece.problem, theta, 1, fit_intercept=solver.fit_intercept)
    run = PieceRun(
        model,
        chosen.dual.z,
        chosen.dual.rate,
        np.random.default_rng(solver.seed),
        0,
        np.zeros_like(model.theta),
        0,
        0,
    )
    return run if start is None else _continued(solver, piece, chosen, run, start)


def _continued(
    solver: SGDA, piece: Piece, chosen: ChosenDual, run: PieceRun, start: Start
) -> PieceRun:
    """Return a run that stands where stochastic training would have ended.

    Its dual is that of the model, and its steps are as small as after `LEAST_STEPS`:
    Adagrad's first steps would throw the model away.
    """
    divergence = piece.problem.objective.divergence
    if start.dual is not None:
        ratio = trainable(divergence).conjugate_prime(start.dual, np)
        z = dual_variable(divergence, solver.dual).best(ratio)
        upper = chosen.dual.upper[:, None, :]
        run.z[:] = np.clip(z, chosen.dual.lower, upper)[..., None]
    run.model.squares[:] = LEAST_SQUARES + LEAST_STEPS * _mean_squares(
        solver, piece, chosen, run
    )
    run.model.rate[:] = 1 / np.sqrt(run.model.squares)
    run.model.moved[:] = LEAST_STEPS
    return replace(
        run, n_steps=LEAST_STEPS, older_from=LEAST_STEPS, average_from=LEAST_STEPS
    )


def _mean_squares(
    solver: SGDA, piece: Piece, chosen: ChosenDual, run: PieceRun
) -> FloatArray:
    """Return the mean squared gradient of the first batches of a piece."""
    scratch = make_scratch(run.model.theta, run.z)
    steps = _steps(solver, piece, chosen)
    payoff_into(chosen.dual._replace(z=run.z), chosen.pointer, scratch)
    squares = np.zeros_like(run.model.theta)
    starts = range(0, piece.rows.size, solver.batch_size)[:MOST_BATCHES]
    for begin in starts:
        batch = np.arange(begin, min(begin + solver.batch_size, piece.rows.size))
        here = run.model.theta
        batch_gradients_into(piece.rows, batch, batch[:0], here, steps, 1.0, scratch)
        used = scratch.used[: scratch.counts[0]]
        squares[used] += scratch.gradient[used] ** 2
    return squares / len(starts)
