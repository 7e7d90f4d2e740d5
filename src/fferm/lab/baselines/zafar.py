"""Zafar et al. 2017: a bound on the covariance of group and score."""

import numpy as np
from scipy.special import expit

from fferm._typing import FloatArray
from fferm.lab.baselines.base import TrainingRows
from fferm.lab.baselines.constrained import ConstrainedBaseline, group_means


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
        share, mean, overall = group_means(rows)
        covariance = share[..., None] * (mean - overall)
        return covariance.reshape(-1, rows.X.shape[1])
