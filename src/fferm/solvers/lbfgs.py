"""Full-batch L-BFGS on any penalty, with the analytic gradient of its payoff.

It runs in coordinates in which a linear problem is round. The Hessian of cross-entropy
is ``X' diag(p (1 - p)) X``, so in the coordinates ``theta = M phi`` with
``M M' = (X' X / 4n + l2)^{-1}`` it is near the identity, however the features are
scaled or correlated. L-BFGS then needs tens of iterations where it needs hundreds on
raw columns. One pass over the data, shared by a whole path.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
import scipy.optimize
from scipy.sparse.linalg import LinearOperator, minres
from sklearn.utils import gen_batches

from fferm._typing import FloatArray, Table, is_sparse
from fferm.data.partitions import PartitionedRows
from fferm.errors import NonFiniteError
from fferm.penalty.objective import Problem
from fferm.solvers.base import Callback, Monitor, Result, Solution, Solver
from fferm.solvers.linear import Evaluator, make_evaluator, parameter_shape

if TYPE_CHECKING:
    from fferm.solvers.full_batch import FusedEvaluator

# Pairs of steps and gradients that the inverse Hessian is made of.
MEMORY = 20
# Robust penalties are not convex: they also start at this share of the optimum of the
# loss. Objectives further apart than the second share are of different optima.
SHRUNKEN = 0.3
SAME_OPTIMUM = 0.005
# The objective is right to this share. A step gains about half the squared gradient in
# round coordinates, so below it no value can show a descent.
VALUE_ROUNDING = 1e-14
# Up to this many numbers in X times classes, the last digits cost next to nothing, and
# a model then depends neither on the order of rows nor on how weights are written.
SMALL_PROBLEM = 100_000
POLISHED = 1e-13
POLISHING_STEPS = 5
# A sample is solved to this multiple of the tolerance, to begin near the optimum.
ROUGH = 100


# Above this width the Gram matrix costs more than it saves: use its diagonal.
WIDEST_GRAM = 1024
ROWS_PER_BLOCK = 8192
ENTRIES_PER_BLOCK = 2**20
# Directions without data get this share of the mean curvature, so M stays finite.
RIDGE = 1e-8
# A column below this says nothing that a double can tell from 0.
SMALLEST_SIZE = 1e-150


@dataclass(frozen=True)
class Coordinates:
    """A linear change of coordinates, ``theta = scale * (factor^-T phi)``.

    Attributes
    ----------
    scale
        (n_features + 1,) the scale of each coordinate.
    factor
        Lower triangular (n_features + 1, n_features + 1), or None for the identity.
    """

    scale: FloatArray
    factor: FloatArray | None = None

    def to_theta(self, phi: FloatArray) -> FloatArray:
        """Return the parameters at round coordinates, row by row."""
        if self.factor is not None:
            phi = scipy.linalg.solve_triangular(
                self.factor, phi.T, lower=True, trans=1
            ).T
        return phi * self.scale

    def to_phi(self, theta: FloatArray) -> FloatArray:
        """Return the round coordinates of parameters, row by row."""
        phi = theta / self.scale
        return phi if self.factor is None else phi @ self.factor

    def gradient(self, by_theta: FloatArray) -> FloatArray:
        """Return the gradient in round coordinates."""
        by_phi = by_theta * self.scale
        if self.factor is None:
            return by_phi
        return scipy.linalg.solve_triangular(self.factor, by_phi.T, lower=True).T


def whiten(X: Table, share: FloatArray, l2: float) -> Coordinates:
    """Return coordinates in which cross-entropy on X is near round.

    Parameters
    ----------
    X
        (n_samples, n_features) dense or CSR.
    share
        (n_samples,) weights that sum to 1.
    l2
        Strength of the ridge on the features.
    """
    is_csr = is_sparse(X)
    is_whole = not isinstance(X, PartitionedRows)
    # By parts, or not by abs(X), because either would copy X.
    if is_csr:
        largest = np.zeros(X.shape[1])
        for part in gen_batches(X.nnz, ENTRIES_PER_BLOCK):
            np.maximum.at(largest, X.indices[part], np.abs(X.data[part]))
    elif not is_whole:
        from fferm.solvers import partitioned  # compiled code

        largest = np.max(X.map(partitioned.largest_of, X.shape[1]), axis=0)
    else:
        largest = np.maximum(X.max(0), -X.min(0))
    # The curvature of each column, as a root: squares of tiny features underflow.
    size = np.hypot(largest / 2, np.sqrt(l2))
    size = np.append(size, 0.5)
    scale = 1 / np.where(size > SMALLEST_SIZE, size, 1.0)
    n_columns = scale.size
    if n_columns > WIDEST_GRAM:
        return Coordinates(scale)
    gram = np.zeros((n_columns, n_columns))
    if not is_whole:
        gram = np.sum(X.map(partitioned.gram_of, scale), axis=0)
    # Block by block, so that no weighted copy of X is ever held.
    for begin in range(0, X.shape[0] if is_whole else 0, ROWS_PER_BLOCK):
        block = X[begin : begin + ROWS_PER_BLOCK]
        dense = block.toarray() if is_csr else block
        with_ones = np.column_stack([dense, np.ones(len(dense))]) * scale
        weight = share[begin : begin + ROWS_PER_BLOCK, None]
        gram += with_ones.T @ (weight * with_ones)
    ridge = np.append(np.full(n_columns - 1, l2), 0.0) * scale**2
    curvature = gram / 4 + np.diag(ridge)
    curvature += np.eye(n_columns) * (RIDGE * np.trace(curvature) / n_columns)
    return Coordinates(scale, scipy.linalg.cholesky(curvature, lower=True))


def whiten_at(
    problem: Problem, evaluator: "FusedEvaluator", theta: FloatArray
) -> Coordinates | None:
    """Return coordinates in which a problem is near round at some parameters.

    None where their curvature costs too much.
    """
    curvature = evaluator.curvature(problem, theta)
    if curvature is None:
        return None
    features = np.arange(len(curvature) - 1)
    curvature[features, features] += problem.objective.l2
    size = np.sqrt(np.diag(curvature))
    scale = 1 / np.where(size > SMALLEST_SIZE, size, 1.0)
    curvature = curvature * np.outer(scale, scale) + RIDGE * np.eye(scale.size)
    return Coordinates(scale, scipy.linalg.cholesky(curvature, lower=True))


@dataclass
class RoundObjective:
    """The objective in round coordinates, behind a wall where it is infinite.

    Attributes
    ----------
    problem, coordinates, evaluator, fit_intercept
        What is evaluated, where and how.
    lowest
        The lowest value so far, its gradient and its coordinates.
    """

    problem: Problem
    coordinates: Coordinates
    evaluator: Evaluator
    fit_intercept: bool
    lowest: tuple[float, FloatArray, FloatArray] | None = None

    def __call__(self, phi: FloatArray) -> tuple[float, FloatArray]:
        """Return value and gradient at flat coordinates."""
        theta = self.coordinates.to_theta(phi.reshape(parameter_shape(self.problem)))
        try:
            value, by_theta = self.evaluator.value_and_gradient(self.problem, theta)
            if not (np.isfinite(value) and np.all(np.isfinite(by_theta))):
                raise NonFiniteError(Result.nonfinite.value)
        except NonFiniteError:
            if self.lowest is None or not np.all(np.isfinite(phi)):
                raise
            # A cone around the lowest point: the line search steps back to it.
            value, slope, best = self.lowest
            away, steepness = phi - best, float(np.linalg.norm(slope))
            distance = float(np.linalg.norm(away))
            return value + steepness * distance, away * (steepness / distance)
        by_phi = self.coordinates.gradient(by_theta)
        if not self.fit_intercept:
            by_phi[:, -1] = 0  # the intercept is a multiple of this alone
        slope = by_phi.reshape(-1)
        if self.lowest is None or value < self.lowest[0]:
            self.lowest = value, slope, phi.copy()
        return value, slope


@dataclass(frozen=True)
class LbfgsState:
    """Where a run stands.

    Attributes
    ----------
    phi
        Parameters in round coordinates, flat.
    coordinates
        How to return to parameters.
    evaluator
        What evaluates the objective.
    other
        Where another start ended, None if there is one start.
    objective
        Value at ``phi``.
    n_iter, n_evaluations
        Iterations and evaluations so far.
    result
        How the run ended, None while it goes on.
    """

    phi: FloatArray
    coordinates: Coordinates
    evaluator: Evaluator
    other: Solution | None = None
    objective: float = np.inf
    n_iter: int = 0
    n_evaluations: int = 0
    result: Result | None = None


@dataclass(frozen=True)
class LBFGS(Solver[LbfgsState]):
    """Limited-memory BFGS of scipy in round coordinates.

    Parameters
    ----------
    tol
        Largest absolute entry of the gradient in round coordinates at the end.
    max_iter
        Most iterations.
    fit_intercept
        Whether the last column is free; otherwise it stays 0.
    coordinates, evaluator
        Of this X, when they are known already.
    """

    tol: float = 1e-5
    max_iter: int = 1000
    fit_intercept: bool = True
    coordinates: Coordinates | None = None
    evaluator: Evaluator | None = None

    def init(self, problem: Problem, start: FloatArray | None) -> LbfgsState:
        """Begin at given parameters, else at 0, or at the optimum of the loss."""
        other, coordinates = None, self.coordinates
        evaluator: Any = self.evaluator or make_evaluator(problem)
        theta = np.zeros(parameter_shape(problem)) if start is None else start.copy()
        if evaluator.is_fused and problem.is_smooth:
            if start is None:
                theta = self._guess(problem, evaluator)
            coordinates = coordinates or whiten_at(problem, evaluator, theta)
        coordinates = coordinates or whiten(
            problem.X, problem.share, problem.objective.l2
        )
        if start is None and problem.objective.uncertainty and not problem.is_smooth:
            # At 0 every table is independent, which is a kink of a robust penalty: a
            # large weight would hold the model there from the first step.
            solver = replace(self, coordinates=coordinates, evaluator=evaluator)
            theta = solver.solve(replace(problem, penalty=None, penalty_X=None)).value
            with contextlib.suppress(NonFiniteError):
                other = solver.solve(problem, start=SHRUNKEN * theta)
        if not self.fit_intercept:
            theta[:, -1] = 0
        phi = coordinates.to_phi(theta).reshape(-1)
        return LbfgsState(phi, coordinates, evaluator, other)

    def advance(
        self, problem: Problem, state: LbfgsState, monitor: Monitor
    ) -> LbfgsState:
        """Run L-BFGS until it stops."""
        evaluate = RoundObjective(
            problem, state.coordinates, state.evaluator, self.fit_intercept
        )

        def watch(intermediate_result: scipy.optimize.OptimizeResult) -> None:
            if monitor.record(objective=float(intermediate_result.fun)):
                raise StopIteration

        optimum = scipy.optimize.minimize(
            evaluate,
            state.phi,
            jac=True,
            method="L-BFGS-B",
            callback=watch,
            options={
                "maxcor": MEMORY,
                "maxiter": self.max_iter,
                "maxfun": 20 * self.max_iter,
                "gtol": self.tol,
                "ftol": 0.0,
            },
        )
        phi, result = optimum.x, self._judge(problem, optimum)
        is_small = problem.n_classes * problem.X.size <= SMALL_PROBLEM
        if result is Result.converged and problem.is_smooth and is_small:
            phi = _polish(evaluate, phi)
        state = replace(
            state,
            phi=phi,
            objective=float(optimum.fun),
            n_iter=optimum.nit,
            n_evaluations=optimum.nfev,
            result=result,
        )
        return state if state.other is None else _best_of(state, state.other, monitor)

    def is_done(self, state: LbfgsState) -> Result | None:
        """Return the verdict of the last chunk."""
        return state.result

    def finish(self, problem: Problem, state: LbfgsState) -> dict[str, Any]:
        """Return the parameters and the dual that is optimal for them."""
        theta = state.coordinates.to_theta(state.phi.reshape(parameter_shape(problem)))
        if len(theta) > 1:
            # Softmax does not see what all classes share; of equal models, the centred.
            theta = theta - theta.mean(axis=0)
        return {
            "value": theta,
            "dual": state.evaluator.duals(problem, theta),
            "stats": {
                "objective": state.objective,
                "n_iter": state.n_iter,
                "n_evaluations": state.n_evaluations,
            },
        }

    def solve_path(
        self,
        problem: Problem,
        weights: Sequence[float],
        *,
        start: FloatArray | None = None,
        callbacks: tuple[Callback, ...] = (),
    ) -> Iterator[Solution]:
        """Yield one solution after another, each begun where the last one ended.

        Kernel rows are computed once, and round coordinates where they do not follow
        the penalty. Robust penalties are non-smooth and a warm start can stick at a
        kink, so each weight starts from scratch.
        """
        evaluator, coordinates = self.evaluator or make_evaluator(problem), None
        objective = problem.objective
        is_robust = objective.uncertainty is not None
        if is_robust or not (evaluator.is_fused and objective.divergence.is_smooth):
            coordinates = whiten(problem.X, problem.share, objective.l2)
        solver = replace(self, coordinates=coordinates, evaluator=evaluator)
        theta = None if is_robust else start
        for weight in weights:
            solution = solver.solve(
                problem.with_weight(weight), start=theta, callbacks=callbacks
            )
            theta = None if is_robust else solution.value
            yield solution

    def _guess(self, problem: Problem, evaluator: "FusedEvaluator") -> FloatArray:
        # The optimum on a sample of the rows, 0 where they are few.
        theta = np.zeros(parameter_shape(problem))
        few = evaluator.sample(problem)
        if few is not None:
            rough = replace(self, evaluator=few, coordinates=None, tol=ROUGH * self.tol)
            with contextlib.suppress(NonFiniteError):
                theta = rough.solve(problem).value
        return theta

    def _judge(
        self, problem: Problem, optimum: scipy.optimize.OptimizeResult
    ) -> Result:
        if np.max(np.abs(optimum.jac)) <= self.tol:
            return Result.converged
        if optimum.nit >= self.max_iter:
            return Result.max_epochs_reached
        if not problem.is_smooth:
            return Result.kink_reached
        is_flat = np.sum(optimum.jac**2) <= VALUE_ROUNDING * abs(optimum.fun)
        return Result.converged if is_flat else Result.stalled


def _best_of(state: LbfgsState, other: Solution, monitor: Monitor) -> LbfgsState:
    if state.result is None or monitor.stopped is not None:
        return state
    here, there = state.objective, other.stats["objective"]
    is_same = abs(there - here) <= SAME_OPTIMUM * min(abs(here), abs(there))
    if there < here:
        monitor.record(objective=there)
        phi = state.coordinates.to_phi(other.value).reshape(-1)
        state = replace(state, phi=phi, objective=there, result=other.result)
    if is_same or not (state.result and state.result.is_success):
        return state
    return replace(state, result=Result.several_optima)


def _polish(
    evaluate: Callable[[FloatArray], tuple[float, FloatArray]], phi: FloatArray
) -> FloatArray:
    # Values of the objective cannot tell points apart that lie within the root of the
    # rounding error; gradients can. Newton's method on them settles the last digits.
    def times_hessian(v: FloatArray) -> FloatArray:
        h = 1e-5 / max(float(np.linalg.norm(v)), 1e-300)
        return (evaluate(phi + h * v)[1] - evaluate(phi - h * v)[1]) / (2 * h)

    slope = evaluate(phi)[1]
    hessian = LinearOperator((phi.size, phi.size), matvec=times_hessian)
    for _ in range(POLISHING_STEPS):
        if np.max(np.abs(slope)) <= POLISHED:
            break
        # MINRES: symmetric, and singular where softmax does not mind a constant.
        trial = phi + minres(hessian, -slope, rtol=1e-8, maxiter=2 * phi.size)[0]
        by_trial = evaluate(trial)[1]
        if not np.max(np.abs(by_trial)) < np.max(np.abs(slope)):
            break
        phi, slope = trial, by_trial
    return phi
