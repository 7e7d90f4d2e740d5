"""Components that a user writes work like ours."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from fferm import FairLogisticRegression, solvers, tables
from fferm.datasets import load_german
from fferm.solvers import Result, Solver
from fferm.solvers.linear import linear_logits, parameter_shape, value_and_gradient
from fferm.testing import check_solver
from fferm.uncertainty import Uncertainty


@pytest.fixture(scope="module")
def german():
    data = load_german("age_over_25")
    return {"X": data.X, "y": data.y, "sensitive_features": data.sensitive_features}


@dataclass(frozen=True)
class DescentState:
    """Parameters, and the step that worked last."""

    theta: np.ndarray
    step: float = 1.0
    n_iter: int = 0
    result: Result | None = None


@dataclass(frozen=True)
class GradientDescent(Solver):
    """Steepest descent; a step is halved until the objective falls."""

    tol: float = 1e-5
    max_iter: int = 1000

    def init(self, problem, start):
        theta = np.zeros(parameter_shape(problem)) if start is None else start.copy()
        return DescentState(theta)

    def advance(self, problem, state, monitor):
        value, slope = value_and_gradient(problem, state.theta)
        is_over = monitor.record(objective=value)
        if np.abs(slope).max() <= self.tol:
            return replace(state, result=Result.converged)
        if is_over or state.n_iter >= self.max_iter:
            return replace(state, result=Result.max_epochs_reached)
        step = 2 * state.step
        while True:
            theta = state.theta - step * slope
            gain = value - value_and_gradient(problem, theta)[0]
            if gain >= step * np.sum(slope**2) / 2 or step < 1e-12:
                return DescentState(theta, step, state.n_iter + 1)
            step /= 2

    def is_done(self, state):
        return state.result

    def finish(self, problem, state):
        dual = ()
        if problem.penalty is not None:
            logits = linear_logits(problem.penalized_X, state.theta)
            prob = problem.penalized_prob(logits)
            dual = problem.penalty.duals(problem.penalty.tables(prob))
        stats = {"n_iter": state.n_iter}
        return {"value": state.theta, "dual": dual, "stats": stats}

    def solve_path(self, problem, weights, *, start=None, callbacks=()):
        for weight in weights:
            found = self.solve(
                problem.with_weight(weight), start=start, callbacks=callbacks
            )
            start = found.value
            yield found


def test_a_solver_of_ones_own_obeys_the_laws_and_trains_by_name(german, monkeypatch):
    check_solver(GradientDescent(), slack=1e-4)
    monkeypatch.setitem(solvers.LINEAR, "descent", (__name__, "GradientDescent"))
    options = {"fairness_weight": 5.0, "l2": 0.01, "tol": 1e-4}
    own, ours = (
        FairLogisticRegression(solver=name, **options)
        .fit(**german)
        .predict(german["X"])
        for name in ("descent", "lbfgs")
    )
    assert np.mean(own == ours) >= 0.99


@dataclass(frozen=True)
class NoisyGroups(Uncertainty):
    """The table behind one in which a share of the groups was recorded at random."""

    name: ClassVar[str] = "noisy_groups"

    share: float

    def penalty(self, p, q, divergence):
        """Return the divergence of the table without noise, and its slopes."""
        gain = 1 / (1 - self.share)
        hidden = q + gain * (p - q)
        true = np.maximum(hidden, 0.0)
        by_true, by_q = divergence.slopes(true, q)
        by_true = np.where(hidden > 0, by_true, 0.0)
        value = float(divergence.perspective(true, q).sum())
        return value, gain * by_true, by_q + (1 - gain) * by_true

    def coupled_penalty(self, p, prior, divergence):
        """Return the same with Q following P, and its payoff."""
        q = p.sum(axis=1, keepdims=True) * prior
        value, by_p, by_q = self.penalty(p, q, divergence)
        return value, by_p + (by_q * prior).sum(axis=1, keepdims=True)


def test_the_payoff_of_a_set_of_ones_own_is_its_slope():
    table, noisy, step = np.array([[0.40, 0.15], [0.20, 0.25]]), NoisyGroups(0.2), 1e-6
    _, payoff = tables.penalty(table, "kl", noisy)
    for group in range(2):
        move = np.zeros_like(table)
        move[:, group] = step, -step
        up, down = (
            tables.penalty(table + sign * move, "kl", noisy)[0] for sign in (1, -1)
        )
        slope = (up - down) / (2 * step)
        assert slope == pytest.approx(payoff[0, group] - payoff[1, group], rel=1e-5)


def test_a_set_of_ones_own_trains(german):
    model = FairLogisticRegression(uncertainty=NoisyGroups(0.1), fairness_weight=10.0)
    assert model.fit(**german).result_.is_success
