"""Linear models in plain NumPy: logits, and the objective with its gradient.

The oracle of linear models: written to be read, and what every kernel is held to.
"""

import numpy as np
from sklearn.utils import gen_batches

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.partitions import PartitionedRows
from fferm.penalty.objective import Problem

# Numbers in X from which a fused pass is worth loading the kernels.
FUSED_FROM = 500_000
# Classes that are predicted are looked for in parts of so many rows.
ROWS_PER_PART = 8192
# A fused pass keeps a gradient per cell of the table; beyond this many numbers in all
# of them, two products with X are cheaper.
LARGEST_JACOBIAN = 4_000_000


def parameter_shape(problem: Problem) -> tuple[int, int]:
    """Return (n_outputs, n_features + 1): two classes need one output."""
    n_outputs = 1 if problem.n_classes == 2 else problem.n_classes
    return n_outputs, problem.X.shape[1] + 1


def linear_logits(X: Table, theta: FloatArray) -> FloatArray:
    """Return (n_samples, n_classes) logits; with one output the first class has 0."""
    logits = np.asarray(X @ theta[:, :-1].T) + theta[:, -1]
    n_samples, n_outputs = logits.shape
    if n_outputs > 1:
        return np.asfortranarray(logits)
    # Column by column in memory: sums over few classes then run along many rows.
    both = np.zeros((n_samples, 2), order="F")
    both[:, 1] = logits[:, 0]
    return both


def predicted_codes(X: Table, theta: FloatArray) -> IntArray:
    """Return the codes of the classes that are predicted for some row."""
    if isinstance(X, PartitionedRows):
        from fferm.solvers.partitioned import codes_of

        return np.unique(np.concatenate(X.map(codes_of, theta)))
    codes: IntArray = np.zeros(0, dtype=np.int64)
    # Logits of all rows at once would be the largest array of a fit but for X.
    for part in gen_batches(X.shape[0], ROWS_PER_PART):
        logits = linear_logits(X[part], theta)
        codes = np.union1d(codes, logits.argmax(axis=1))
        if codes.size == logits.shape[1]:
            break
    return codes


def value_and_gradient(problem: Problem, theta: FloatArray) -> tuple[float, FloatArray]:
    """Return the whole objective at linear parameters, and its gradient."""
    coef, l2 = theta[:, :-1], problem.objective.l2
    logits = linear_logits(problem.X, theta)
    loss, by_logits = problem.loss(logits)
    if problem.penalty_X is None:
        fairness, by_fairness = problem.fairness(logits)
        parts = [(problem.X, by_logits + by_fairness)]
    else:
        penalized = linear_logits(problem.penalty_X, theta)
        fairness, by_fairness = problem.fairness(penalized)
        parts = [(problem.X, by_logits), (problem.penalty_X, by_fairness)]
    gradient = np.zeros(theta.shape)
    gradient[:, :-1] = l2 * coef
    for X, slopes in parts:
        used = slopes if len(theta) > 1 else slopes[:, 1:]
        gradient[:, :-1] += np.asarray(X.T @ used).T
        gradient[:, -1] += used.sum(axis=0)
    return loss + fairness + l2 / 2 * float(np.sum(coef * coef)), gradient


class Evaluator:
    """Evaluates a problem, under any fairness weight, at linear parameters.

    In plain NumPy: two products with X, one model after another.
    """

    is_fused = False
    value_and_gradient = staticmethod(value_and_gradient)

    def duals(self, problem: Problem, theta: FloatArray) -> tuple[FloatArray, ...]:
        """Return the optimal dual of each attribute, none without a penalty."""
        if problem.penalty is None:
            return ()
        prob = problem.penalized_prob(linear_logits(problem.penalized_X, theta))
        return problem.penalty.duals(problem.penalty.tables(prob))

    def tables(self, problem: Problem, theta: FloatArray) -> list[FloatArray]:
        """Return the (strata, classes, groups) table of each attribute."""
        return problem.tables(linear_logits(problem.penalized_X, theta))


def make_evaluator(problem: Problem) -> Evaluator:
    """Return the evaluator that suits the size of a problem."""
    n_numbers = problem.X.shape[0] * problem.X.shape[1]
    n_outputs, n_columns = parameter_shape(problem)
    n_cells = 0
    if problem.penalty is not None:
        rows = problem.penalty.rows
        n_groups = sum(len(attribute.groups) for attribute in rows.attributes)
        n_cells = len(rows.strata.names) * n_groups * n_outputs
    is_wide = n_cells * n_outputs * n_columns > LARGEST_JACOBIAN
    is_fused = n_numbers >= FUSED_FROM and not is_wide
    # Kernels are imported when they are needed: compiling is not free.
    if isinstance(problem.X, PartitionedRows):
        from fferm.solvers.partitioned import PartitionedEvaluator

        evaluator = PartitionedEvaluator(problem)
        evaluator.is_fused = is_fused  # by which the solver chooses where to begin
        return evaluator
    if not is_fused:
        return Evaluator()
    from fferm.solvers.full_batch import FusedEvaluator

    return FusedEvaluator(problem)
