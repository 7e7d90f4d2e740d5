"""The objective of linear models and what is read off with it, plain or fused.

`make_evaluator` chooses: NumPy for small data, where nothing needs compiling, and one
fused pass over X for large.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from fferm._typing import FloatArray
from fferm.penalty.objective import Problem
from fferm.solvers.linear import parameter_shape, penalized_logits, value_and_gradient

# Numbers in X from which a fused pass is worth loading the kernels.
FUSED_FROM = 500_000
# A fused pass keeps a gradient per cell of the table; beyond this many numbers in all
# of them, two products with X are cheaper.
LARGEST_JACOBIAN = 4_000_000


@dataclass(frozen=True)
class Measured:
    """The objective at some parameters, and the dual that is optimal for them."""

    objective: float
    dual: tuple[FloatArray, ...]


class Evaluator(ABC):
    """Evaluates a problem, under any fairness weight, at linear parameters."""

    @abstractmethod
    def value_and_gradient(
        self, problem: Problem, theta: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the whole objective, and its gradient by (n_outputs, d + 1)."""

    @abstractmethod
    def measure(
        self, problem: Problem, thetas: Sequence[FloatArray], weights: Sequence[float]
    ) -> list[Measured]:
        """Return objective and dual of several models, each under its own weight."""


class PlainEvaluator(Evaluator):
    """Plain NumPy: two products with X, one model after another."""

    def value_and_gradient(
        self, problem: Problem, theta: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the whole objective, and its gradient by (n_outputs, d + 1)."""
        return value_and_gradient(problem, theta)

    def measure(
        self, problem: Problem, thetas: Sequence[FloatArray], weights: Sequence[float]
    ) -> list[Measured]:
        """Return objective and dual of several models, each under its own weight."""
        return [
            Measured(
                value_and_gradient(problem.with_weight(weight), theta)[0],
                self._dual(problem, theta),
            )
            for theta, weight in zip(thetas, weights, strict=True)
        ]

    def _dual(self, problem: Problem, theta: FloatArray) -> tuple[FloatArray, ...]:
        if problem.penalty is None:
            return ()
        prob = problem.penalized_prob(penalized_logits(problem, theta))
        return problem.penalty.duals(problem.penalty.tables(prob))


def make_evaluator(problem: Problem) -> Evaluator:
    """Return the evaluator that suits the size of a problem."""
    n_numbers = problem.X.shape[0] * problem.X.shape[1]
    n_outputs, n_columns = parameter_shape(problem)
    n_cells = 0
    if problem.penalty is not None:
        rows = problem.penalty.rows
        n_groups = sum(len(attribute.groups) for attribute in rows.attributes)
        n_cells = len(rows.strata.names) * n_groups * n_outputs
    if n_numbers < FUSED_FROM or n_cells * n_outputs * n_columns > LARGEST_JACOBIAN:
        return PlainEvaluator()
    # Kernels are imported when they are needed: compiling is not free.
    from fferm.solvers.full_batch import FusedEvaluator

    return FusedEvaluator(problem)
