"""Stochastic descent-ascent on data that arrive in batches of rows.

The steps are those of `SGDA`, but their number is unknown in advance.
The model is the mean of the iterates since a power of two of steps, so that it covers
between a half and three quarters of all steps, the later ones, whenever it is asked.
"""

import copy
from dataclasses import dataclass, replace

import numpy as np

from fferm._typing import FloatArray, IntArray
from fferm.divergences import trainable
from fferm.errors import NonFiniteError
from fferm.penalty.compiled import bind_dual, payoff_into
from fferm.penalty.dual import GroupWeights, dual_variable
from fferm.penalty.objective import Problem
from fferm.solvers._kernels import (
    Model,
    RowArrays,
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
class PartialRun:
    """Where a run stands after some of the data.

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

    def copy(self) -> "PartialRun":
        """Return an independent copy."""
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
class PartialData:
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


def make_partial(
    problem: Problem, weights: GroupWeights, stratum: IntArray, group: IntArray
) -> PartialData:
    """Return rows to train on; loss and penalty are means over them."""
    share = problem.share
    rows = as_rows(problem.X, problem.y, stratum, group, share, share)
    return PartialData(problem, rows, weights)


@dataclass(frozen=True)
class Start:
    """A model to go on from: parameters, and its dual where it fits the groups."""

    theta: FloatArray
    dual: FloatArray | None


class PartialTrainer:
    """Trains on some rows at a time.

    Parameters
    ----------
    solver
        Steps, batch size and seed.
    data
        The rows.
    """

    def __init__(self, solver: SGDA, data: PartialData) -> None:
        objective = data.problem.objective
        self._solver = solver
        self._data = data
        self._variable = dual_variable(objective.divergence, solver.dual)
        self._chosen = bind_dual(
            objective, data.weights, data.problem.n_classes, 1, solver.dual
        )
        self._steps = solver.steps(
            objective,
            [objective.fairness_weight],
            0,
            scale=self._chosen.scale,
            dual_lr=solver.dual_lr,
            warm_up=FIRST_STEPS,
        )

    def train(self, run: PartialRun | None, start: Start | None = None) -> PartialRun:
        """Take one pass over the rows and return where the run then stands.

        Parameters
        ----------
        run
            Where it stood before; None begins a new one.
        start
            Where a new one begins; None is 0.
        """
        run = self._begin(start) if run is None else run.copy()
        dual = self._chosen.dual._replace(z=run.z, rate=run.rate)
        scratch = make_scratch(run.model.theta, run.z)
        rows, batch_size = self._data.rows, self._solver.batch_size
        order = run.rng.permutation(rows.size)
        while order.size:
            # Up to the next power of two, where the average starts over.
            n_steps = (1 << run.n_steps.bit_length()) - run.n_steps
            part, order = np.split(order, [min(order.size, n_steps * batch_size)])
            after: int = sgda_epoch(
                rows,
                part,
                batch_size,
                run.model,
                dual,
                self._steps._replace(average_from=run.average_from),
                self._chosen.pointer,
                scratch,
                run.n_steps,
            )
            run = _turned(replace(run, n_steps=after))
        if not np.all(np.isfinite(run.model.theta)):
            raise NonFiniteError(Result.nonfinite.value)
        return run

    def parameters(self, run: PartialRun) -> FloatArray:
        """Return the (n_outputs, n_features + 1) parameters of the averaged model."""
        return lane_parameters(self._data.problem, run.mean(), 0)

    def dual(self, run: PartialRun) -> FloatArray:
        """Return the (R, m, K) dual where it stands."""
        dual: FloatArray = self._variable.dual_and_conjugate(run.z[..., 0], np)[0]
        return self._chosen.scale * dual

    def _begin(self, start: Start | None) -> PartialRun:
        problem, solver = self._data.problem, self._solver
        theta = None if start is None else start.theta
        model = make_model(problem, theta, 1, fit_intercept=solver.fit_intercept)
        run = PartialRun(
            model,
            self._chosen.dual.z,
            self._chosen.dual.rate,
            np.random.default_rng(solver.seed),
            0,
            np.zeros_like(model.theta),
            0,
            0,
        )
        return run if start is None else self._continued(run, start)

    def _continued(self, run: PartialRun, start: Start) -> PartialRun:
        """Return a run that stands where stochastic training would have ended.

        Its dual is that of the model, and its steps are as small as after
        `LEAST_STEPS`: Adagrad's first steps would throw the model away.
        """
        if start.dual is not None:
            divergence = trainable(self._data.problem.objective.divergence)
            z = self._variable.best(divergence.conjugate_prime(start.dual, np))
            box = self._chosen.dual
            run.z[:] = np.clip(z, box.lower, box.upper[:, None, :])[..., None]
        squares = LEAST_SQUARES + LEAST_STEPS * self._mean_squares(run)
        run.model.squares[:] = squares
        run.model.rate[:] = 1 / np.sqrt(squares)
        run.model.moved[:] = LEAST_STEPS
        return replace(
            run, n_steps=LEAST_STEPS, older_from=LEAST_STEPS, average_from=LEAST_STEPS
        )

    def _mean_squares(self, run: PartialRun) -> FloatArray:
        """Return the mean squared gradient of the first batches."""
        rows, size, theta = self._data.rows, self._solver.batch_size, run.model.theta
        scratch = make_scratch(theta, run.z)
        dual = self._chosen.dual._replace(z=run.z)
        payoff_into(dual, self._chosen.pointer, scratch)
        squares = np.zeros_like(theta)
        starts = range(0, rows.size, size)[:MOST_BATCHES]
        for begin in starts:
            batch = np.arange(begin, min(begin + size, rows.size))
            batch_gradients_into(
                rows, batch, batch[:0], theta, self._steps, 1.0, scratch
            )
            used = scratch.used[: scratch.counts[0]]
            squares[used] += scratch.gradient[used] ** 2
        return squares / len(starts)


def _turned(run: PartialRun) -> PartialRun:
    if run.n_steps & (run.n_steps - 1):
        return run
    older = summed_iterates(run.model, run.average_from, run.n_steps)
    run.model.total[:] = 0.0
    return replace(
        run, older=older, older_from=run.average_from, average_from=run.n_steps
    )
