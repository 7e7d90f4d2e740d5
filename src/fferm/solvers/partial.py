"""Stochastic descent-ascent on data that arrive in batches of rows.

The steps are those of `SGDA`, but their number is unknown in advance.
The model is the mean of the iterates since a power of two of steps, so that it covers
between a half and three quarters of all steps, the later ones, whenever it is asked.
"""

import copy
from dataclasses import dataclass, replace

import numpy as np

from fferm._typing import FloatArray, IntArray
from fferm.errors import NonFiniteError
from fferm.penalty.compiled import bind_dual, payoff_into
from fferm.penalty.dual import GroupWeights, dual_variable
from fferm.penalty.objective import Problem
from fferm.solvers._kernels import (
    Model,
    batch_gradients_into,
    make_scratch,
    run_batches,
)
from fferm.solvers.base import Result
from fferm.solvers.full_batch import as_rows
from fferm.solvers.stochastic import (
    LEAST_SQUARES,
    LEAST_STEPS,
    SGDA,
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


class PartialTrainer:
    """Trains on some rows at a time.

    Parameters
    ----------
    solver
        Steps, batch size and seed.
    problem
        The objective, and the loss on these rows; loss and penalty are means over them.
    weights
        Of the groups among all rows there will be.
    stratum, group
        (n_samples,) and (n_samples, n_attributes), as the kernel takes them.
    """

    def __init__(
        self,
        solver: SGDA,
        problem: Problem,
        weights: GroupWeights,
        stratum: IntArray,
        group: IntArray,
    ) -> None:
        objective, share = problem.objective, problem.share
        self.problem, self.weights = problem, weights
        self.rows = as_rows(problem.X, problem.y, stratum, group, share, share)
        self._solver = solver
        self._dual = bind_dual(objective, weights, problem.n_classes, 1, solver.dual)
        self._variable = dual_variable(objective.divergence, solver.dual)
        factors = [objective.fairness_weight]
        steps = solver.steps(objective, factors, 0, self._dual.scale)
        self._steps = steps._replace(warm_up=FIRST_STEPS)

    def train(
        self,
        run: PartialRun | None,
        theta: FloatArray | None = None,
        dual: FloatArray | None = None,
    ) -> PartialRun:
        """Take one pass over the rows and return where the run then stands.

        Parameters
        ----------
        run
            Where it stood before; None begins a new one.
        theta, dual
            The model that a new one goes on from, and its dual where it fits the
            groups; without parameters it begins at 0.
        """
        run = self._begin(theta, dual) if run is None else copy.deepcopy(run)
        table = self._dual._replace(z=run.z, rate=run.rate)
        scratch = make_scratch(run.model.theta, run.z)
        batch_size = self._solver.batch_size
        order = run.rng.permutation(self.rows.size)
        while order.size:
            # Up to the next power of two, where the average starts over.
            n_steps = (1 << run.n_steps.bit_length()) - run.n_steps
            part, order = np.split(order, [min(order.size, n_steps * batch_size)])
            steps = self._steps._replace(average_from=run.average_from)
            changed = run.model, table, steps, scratch
            after = run_batches(self.rows, part, batch_size, *changed, run.n_steps)
            run = replace(run, n_steps=after)
            if after & (after - 1) == 0:
                older = summed_iterates(run.model, run.average_from, after)
                run.model.total[:] = 0.0
                ends = {"older_from": run.average_from, "average_from": after}
                run = replace(run, older=older, **ends)
        if not np.all(np.isfinite(run.model.theta)):
            raise NonFiniteError(Result.nonfinite.value)
        return run

    def parameters(self, run: PartialRun) -> FloatArray:
        """Return the (n_outputs, n_features + 1) parameters of the averaged model."""
        total = summed_iterates(run.model, run.average_from, run.n_steps)
        mean = (run.older + total) / max(1, run.n_steps - run.older_from)
        return lane_parameters(self.problem, mean, 0)

    def dual(self, run: PartialRun) -> FloatArray:
        """Return the (R, m, K) dual where it stands."""
        dual: FloatArray = self._variable.dual_and_conjugate(run.z[..., 0], np)[0]
        return self._dual.scale * dual

    def _begin(self, theta: FloatArray | None, dual: FloatArray | None) -> PartialRun:
        """Return a run at 0, or one where stochastic training would have ended.

        Its dual is then that of the model, and its steps are as small as after
        `LEAST_STEPS`: Adagrad's first steps would throw the model away.
        """
        solver, box = self._solver, self._dual
        model = make_model(self.problem, theta, 1, fit_intercept=solver.fit_intercept)
        rng, older = np.random.default_rng(solver.seed), np.zeros_like(model.theta)
        run = PartialRun(model, box.z, box.rate, rng, 0, older, 0, 0)
        if theta is None:
            return run
        if dual is not None:
            divergence = self.problem.objective.trained_divergence
            z = self._variable.best(divergence.conjugate_prime(dual, np))
            run.z[:] = np.clip(z, box.lower, box.upper[:, None, :])[..., None]
        squares = LEAST_SQUARES + LEAST_STEPS * self._mean_squares(run)
        model.squares[:] = squares
        model.rate[:] = 1 / np.sqrt(squares)
        model.moved[:] = LEAST_STEPS
        return replace(
            run, n_steps=LEAST_STEPS, older_from=LEAST_STEPS, average_from=LEAST_STEPS
        )

    def _mean_squares(self, run: PartialRun) -> FloatArray:
        """Return the mean squared gradient of the first batches."""
        rows, size, theta = self.rows, self._solver.batch_size, run.model.theta
        scratch = make_scratch(theta, run.z)
        payoff_into(self._dual._replace(z=run.z), scratch)
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
