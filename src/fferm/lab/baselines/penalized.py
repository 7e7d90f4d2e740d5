"""Baselines that add a penalty on each batch to the loss of a logistic regression."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.utils import check_random_state

from fferm._typing import FloatArray, IntArray
from fferm.errors import ConvergenceWarning, NonFiniteError, warn_user
from fferm.lab.baselines._kernels import Terms, compiled, kernels
from fferm.lab.baselines.base import LinearBaseline, TrainingRows
from fferm.notions import Notion

MAX_EPOCHS = 6
LEAST_STEPS, LEAST_ROWS = 600, 100_000
# The full batch stops when an iteration gains less than this share of the objective.
MAX_ITER, LEAST_GAIN = 500, 1e-7
WEIGHTS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


@dataclass(kw_only=True, eq=False, repr=False)
class PenalizedBaseline(LinearBaseline):
    """Logistic regression with a penalty that is estimated on each batch.

    A subclass is its `penalty`, a function that is compiled and called thousands of
    times a second, and the ``settings`` that the function takes.

    Parameters
    ----------
    fairness_weight
        The weight of the penalty beside the mean cross-entropy; 0 is plain training.
    notion
        ``"demographic_parity"``, ``"equal_opportunity"`` or ``"equalized_odds"``; the
        penalties of the strata are added.
    batch_size
        Rows a step. None takes all rows at every step, by L-BFGS.
    max_epochs
        Passes over the data in minibatches; there are at least 600 steps and 100,000
        rows in all.
    learning_rate
        Adagrad's step on minibatches; by default that of fferm's own, so that only
        penalties differ.
    l2
        Strength of the ridge on coefficients.
    random_state
        Seed of the order of minibatches.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
    intercept_ : ndarray of shape (1,)
    classes_ : ndarray
    """

    tradeoff_values: ClassVar[tuple[float, ...]] = WEIGHTS

    fairness_weight: float = 1.0
    notion: str | Notion = "demographic_parity"
    batch_size: int | None = None
    max_epochs: int = MAX_EPOCHS
    learning_rate: float = 0.8
    l2: float = 1e-4
    random_state: int | np.random.RandomState | None = None

    @staticmethod
    @abstractmethod
    def penalty(
        prob: FloatArray,
        group: IntArray,
        n_groups: int,
        settings: FloatArray,
        slope: FloatArray,
    ) -> float:
        """Return the penalty of a batch and write its derivative into ``slope``.

        Parameters
        ----------
        prob
            (b,) probabilities of the positive class, 0 and 1 themselves included.
        group
            (b,) codes of groups; any of them may be absent from the batch.
        n_groups
            How many groups there are in all.
        settings
            The numbers that `_settings` gives.
        slope
            (b,) zeros, to be filled with the derivative by each probability.
        """

    def _settings(self) -> tuple[float, ...]:
        """Return the numbers that the penalty takes."""
        return ()

    def _train(self, rows: TrainingRows) -> None:
        settings = np.array(self._settings(), dtype=np.float64)
        terms = float(self.fairness_weight), settings, float(self.l2)
        penalty = compiled(type(self).penalty)
        try:
            train = _minimize if self.batch_size is None else self._descend
            theta = train(penalty, rows, terms)
        except ZeroDivisionError as error:  # compiled code says no more than that
            raise NonFiniteError(
                f"The penalty of {type(self).__name__} divided by zero. A batch may "
                "lack a group and hold probabilities 0 or 1: guard the divisor."
            ) from error
        self._store(theta)

    def _descend(self, penalty: Any, rows: TrainingRows, terms: Terms) -> FloatArray:
        """Return the mean of the second half of Adagrad's steps on minibatches."""
        n = rows.y.size
        size = min(self.batch_size or n, n)
        n_batches = -(-n // size)
        least = -(-LEAST_STEPS // n_batches), -(-LEAST_ROWS // n)
        n_epochs = max(self.max_epochs, *least)
        rng = np.random.default_rng(
            check_random_state(self.random_state).randint(2**31 - 1)
        )
        theta = np.zeros(rows.X.shape[1] + 1)
        state = theta, np.zeros_like(theta), np.zeros_like(theta), np.zeros(2)
        steps = size, terms, float(self.learning_rate), n_epochs * n_batches // 2
        run_epoch = kernels()[1]
        for _ in range(n_epochs):
            run_epoch(penalty, rows, rng.permutation(n), *steps, state)
        return np.asarray(state[2] / state[3][1])


def _minimize(penalty: Any, rows: TrainingRows, terms: Terms) -> FloatArray:
    """Return the optimum of all rows, sought from that of plain training.

    From equal probabilities some penalties are so steep that nothing is learned.
    """
    add_penalty, everyone = kernels()[0], np.arange(rows.y.size)

    def objective(theta: FloatArray, weight: float) -> tuple[float, FloatArray]:
        score = rows.X @ theta[:-1] + theta[-1]
        prob = np.asarray(expit(score))
        push = (prob - rows.y) / prob.size
        ridge = np.append(terms[2] * theta[:-1], 0.0)
        value = np.mean(np.logaddexp(0, score) - rows.y * score) + ridge @ theta / 2
        if weight > 0:
            value += add_penalty(penalty, rows, everyone, terms, prob, push)
        return float(value), np.append(push @ rows.X, push.sum()) + ridge

    theta = np.zeros(rows.X.shape[1] + 1)
    limits: Any = {"maxiter": MAX_ITER, "ftol": LEAST_GAIN}
    for weight in sorted({0.0, terms[0]}):
        solution = minimize(
            objective, theta, (weight,), "L-BFGS-B", jac=True, options=limits
        )
        theta = np.asarray(solution.x)
    # A kink stops the line search where nothing is left to gain; too few iterations
    # are another matter.
    if solution.nit >= MAX_ITER:
        warn_user(
            f"The full batch stopped after {MAX_ITER} iterations, before the optimum. "
            "Scale the features, or lower fairness_weight.",
            ConvergenceWarning,
        )
    return theta
