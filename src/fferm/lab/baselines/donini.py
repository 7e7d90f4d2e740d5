"""Donini et al. 2018: linear fair empirical risk minimisation."""

import numpy as np

from fferm._typing import FloatArray
from fferm.lab.baselines.base import TrainingRows
from fferm.lab.baselines.constrained import ConstrainedBaseline, group_means


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
        _, mean, _ = group_means(rows)
        difference = mean - mean.mean(axis=1, keepdims=True)
        return np.asarray(difference.reshape(-1, rows.X.shape[1]))
