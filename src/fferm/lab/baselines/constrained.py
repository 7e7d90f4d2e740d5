"""Baselines that bound linear functions of a linear model's coefficients."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import block_diag, null_space
from scipy.optimize import LinearConstraint, minimize
from scipy.special import expit

from fferm._typing import FloatArray
from fferm.errors import ConvergenceWarning, warn_user
from fferm.lab.baselines.base import SHARES, LinearBaseline, TrainingRows
from fferm.notions import Notion

MAX_ITER = 200


@dataclass(kw_only=True, eq=False, repr=False)
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

    share: float = 0.0
    notion: str | Notion = "demographic_parity"
    l2: float = 1e-4

    @abstractmethod
    def _loss(self, score: FloatArray, y: FloatArray) -> tuple[float, FloatArray]:
        """Return the mean loss and its derivative by the (n_samples,) scores."""

    @abstractmethod
    def _differences(self, rows: TrainingRows) -> FloatArray:
        """Return the (n_constraints, n_features) matrix of what is bounded."""

    def _train(self, rows: TrainingRows) -> None:
        differences = self._differences(rows)
        basis = np.eye(rows.X.shape[1] + 1)
        if self.share == 0 and differences.any():
            # Nothing may differ: what is free is a linear space, and the intercept.
            basis = block_diag(null_space(differences), np.ones((1, 1)))

        def evaluate(z: FloatArray) -> tuple[float, FloatArray]:
            theta = basis @ z
            loss, slope = self._loss(rows.X @ theta[:-1] + theta[-1], rows.y)
            ridge = np.append(self.l2 * theta[:-1], 0.0)
            gradient = np.append(rows.X.T @ slope, slope.sum()) + ridge
            return loss + float(ridge @ theta) / 2, basis.T @ gradient

        start = np.zeros(basis.shape[1])
        solution = minimize(evaluate, start, jac=True, method="L-BFGS-B")
        if 0 < self.share < 1:
            bound = self.share * np.abs(differences @ solution.x[:-1])
            limited = np.column_stack([differences, np.zeros(len(bound))])
            solution = minimize(
                evaluate,
                solution.x,
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
        self._store(np.asarray(basis @ solution.x))


class LinearFERM(ConstrainedBaseline):
    r"""A support vector machine, the mean scores of whose groups are held together.

    Minimises the squared hinge loss subject to
    :math:`|\theta^T (u_k - u)| \le \text{share} \cdot |\theta_0^T (u_k - u)|`, where
    :math:`u_k` is the mean of the features in group k (of positives, under equal
    opportunity) and :math:`u` their mean over groups.

    Notes
    -----
    Differs from the original: the squared hinge loss, which is smooth, for the hinge;
    a linear kernel only; any number of groups, compared with their mean, where the
    original has two. At ``share=0`` and two groups the constraint is the original's.
    Scores are not probabilities; ``predict_proba`` is their logistic function, and only
    its order and sign mean anything.

    References
    ----------
    M. Donini, L. Oneto, S. Ben-David, J. Shawe-Taylor, M. Pontil. Empirical Risk
    Minimization under Fairness Constraints. NeurIPS 2018.
    """

    def _loss(self, score: FloatArray, y: FloatArray) -> tuple[float, FloatArray]:
        sign = 2 * y - 1
        short = np.maximum(1 - sign * score, 0)
        return float(np.mean(short**2)), -2 * sign * short / score.size

    def _differences(self, rows: TrainingRows) -> FloatArray:
        _, mean, _ = _group_means(rows)
        difference = mean - mean.mean(axis=1, keepdims=True)
        return np.asarray(difference.reshape(-1, rows.X.shape[1]))


class CovarianceConstraint(ConstrainedBaseline):
    r"""Logistic regression with a bound on the covariance of group and score.

    For each group the covariance of membership and the signed distance to the decision
    boundary is bounded by a share of what it is without the bound, which is linear in
    the coefficients:

    .. math::

        \Big|\frac1n \sum_i (1[s_i = k] - \pi_k) \, \theta^T x_i\Big|
          \le \text{share} \cdot |\text{the same at } \theta_0|

    Notes
    -----
    Differs from the original: a ridge of 1e-4 as everywhere here; SLSQP of SciPy. The
    covariance within a label, for equal opportunity and equalized odds, is our
    extension: the authors' paper on those notions bounds other covariances.

    References
    ----------
    M. B. Zafar, I. Valera, M. Gomez Rodriguez, K. P. Gummadi. Fairness Constraints:
    Mechanisms for Fair Classification. AISTATS 2017.
    """

    def _loss(self, score: FloatArray, y: FloatArray) -> tuple[float, FloatArray]:
        loss = np.mean(np.logaddexp(0, score) - y * score)
        return float(loss), (expit(score) - y) / score.size

    def _differences(self, rows: TrainingRows) -> FloatArray:
        share, mean, overall = _group_means(rows)
        covariance = share[..., None] * (mean - overall)
        return covariance.reshape(-1, rows.X.shape[1])


def _group_means(rows: TrainingRows) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the shares and mean features of groups by stratum, and of all in it.

    Shapes (n_strata, n_groups), (n_strata, n_groups, d) and (n_strata, 1, d); a group
    without rows in a stratum has share 0 and the mean of the stratum.
    """
    # Rows of no stratum have the code -1, the last, which is left out.
    inside = np.eye(rows.n_strata + 1)[rows.stratum, :-1]
    size = inside.sum(axis=0)[:, None]
    overall = (inside.T @ rows.X / size)[:, None]
    member = inside.T[:, None] * np.eye(rows.n_groups)[rows.group].T
    count = member.sum(axis=2)
    mean = member @ rows.X / np.maximum(count, 1)[..., None]
    return count / size, np.where(count[..., None] > 0, mean, overall), overall
