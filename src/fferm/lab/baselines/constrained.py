"""Baselines that bound linear functions of a linear model's coefficients."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from scipy.linalg import block_diag, null_space
from scipy.optimize import LinearConstraint, minimize

from fferm._typing import FloatArray
from fferm.errors import ConvergenceWarning, warn_user
from fferm.lab.baselines.base import SHARES, LinearBaseline, TrainingRows
from fferm.notions import Notion

MAX_ITER = 200


class ConstrainedBaseline(LinearBaseline):
    r"""A linear model, the groups of which may differ by a share of what they would.

    Minimises a convex loss of the scores :math:`\theta^T x` subject to
    :math:`|a_k^T \theta| \le \text{share} \cdot |a_k^T \theta_0|` for each row
    :math:`a_k` of a matrix made of the data; :math:`\theta_0` is the unconstrained
    minimum.

    Parameters
    ----------
    share
        From 1, plain training, to 0, no difference at all.
    notion
        ``"demographic_parity"``, ``"equal_opportunity"`` or ``"equalized_odds"``.
    l2
        Strength of the ridge on coefficients.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
    intercept_ : ndarray of shape (1,)
    classes_ : ndarray
    """

    tradeoff_param: ClassVar[str] = "share"
    tradeoff_values: ClassVar[tuple[float, ...]] = SHARES

    def __init__(
        self,
        *,
        share: float = 0.0,
        notion: str | Notion = "demographic_parity",
        l2: float = 1e-4,
    ) -> None:
        self.share = share
        self.notion = notion
        self.l2 = l2

    @abstractmethod
    def _loss(self, score: FloatArray, y: FloatArray) -> tuple[float, FloatArray]:
        """Return the mean loss and its derivative by the (n_samples,) scores."""

    @abstractmethod
    def _differences(self, rows: TrainingRows) -> FloatArray:
        """Return the (n_constraints, n_features) matrix of what is bounded."""

    def _train(self, rows: TrainingRows) -> None:
        differences = self._differences(rows)
        free = np.zeros_like(differences) if self.share > 0 else differences
        # Where nothing may differ, what is free is a linear space, and nothing else is
        # asked for.
        basis = _null_space(free)
        start = np.zeros(basis.shape[1])
        solution = minimize(
            self._evaluate, start, (rows, basis), jac=True, method="L-BFGS-B"
        )
        theta = np.asarray(basis @ solution.x)
        if 0 < self.share < 1:
            theta = self._minimize_within(rows, theta, differences)
        self._store(theta)

    def _evaluate(
        self, z: FloatArray, rows: TrainingRows, basis: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return value and gradient at a combination of the columns of a basis."""
        theta = basis @ z
        loss, slope = self._loss(rows.X @ theta[:-1] + theta[-1], rows.y)
        ridge = np.append(self.l2 * theta[:-1], 0.0)
        gradient = np.append(rows.X.T @ slope, slope.sum()) + ridge
        return loss + float(ridge @ theta) / 2, basis.T @ gradient

    def _minimize_within(
        self, rows: TrainingRows, start: FloatArray, differences: FloatArray
    ) -> FloatArray:
        bound = self.share * np.abs(differences @ start[:-1])
        limited = np.column_stack([differences, np.zeros(len(bound))])
        solution = minimize(
            self._evaluate,
            start,
            (rows, np.eye(start.size)),
            jac=True,
            method="SLSQP",
            constraints=LinearConstraint(limited, -bound, bound),
            options={"maxiter": MAX_ITER, "ftol": 1e-9},
        )
        if not solution.success:
            warn_user(
                f"{type(self).__name__} stopped before the optimum: "
                f"{solution.message}. Scale the features, or take another share.",
                ConvergenceWarning,
            )
        return np.asarray(solution.x)


def _null_space(differences: FloatArray) -> FloatArray:
    """Return coefficients, and the intercept, that make no difference, in columns."""
    n_features = differences.shape[1]
    if not differences.any():
        return np.eye(n_features + 1)
    return block_diag(null_space(differences), np.ones((1, 1)))


def group_means(rows: TrainingRows) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the shares and mean features of groups by stratum, and of all in it.

    Shapes (n_strata, n_groups), (n_strata, n_groups, d) and (n_strata, 1, d); a group
    without rows in a stratum has share 0 and the mean of the stratum.
    """
    n_strata, n_groups = rows.n_strata, rows.n_groups
    share = np.zeros((n_strata, n_groups))
    mean = np.zeros((n_strata, n_groups, rows.X.shape[1]))
    overall = np.zeros((n_strata, 1, rows.X.shape[1]))
    for r in range(n_strata):
        inside = rows.stratum == r
        overall[r] = rows.X[inside].mean(axis=0)
        for k in range(n_groups):
            part = inside & (rows.group == k)
            share[r, k] = part.sum() / inside.sum()
            mean[r, k] = rows.X[part].mean(axis=0) if part.any() else overall[r]
    return share, mean, overall
