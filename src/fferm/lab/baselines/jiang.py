"""Jiang et al. 2020: Wasserstein fair classification."""

import numpy as np

from fferm._typing import FloatArray, IntArray
from fferm.lab.baselines.penalized import PenalizedBaseline


class WassersteinClassifier(PenalizedBaseline):
    r"""Logistic regression with Wasserstein-1 distances between groups' scores.

    The penalty of a batch is :math:`\sum_k \pi_k W_1(S_k, S)`, the distance of each
    group's probabilities from those of everybody, where

    .. math::

        W_1(S_k, S) = \int |F_k(t) - F(t)| \, dt

    is exact on the sorted batch.

    Notes
    -----
    Differs from the original: the target of every group is the distribution of all
    scores in the batch, not a barycentre held fixed over steps; batches are drawn from
    all rows, not of equal size from each group; Adagrad with averaging or L-BFGS.

    References
    ----------
    R. Jiang, A. Pacchiano, T. Stepleton, H. Jiang, S. Chiappa. Wasserstein Fair
    Classification. UAI 2019 (PMLR 115, 2020).
    """

    @staticmethod
    def penalty(
        prob: FloatArray,
        group: IntArray,
        n_groups: int,
        settings: FloatArray,
        slope: FloatArray,
    ) -> float:
        """Return the mean distance to all scores and write its derivative."""
        size = prob.size
        count = np.zeros(n_groups)
        for n in range(size):
            count[group[n]] += 1
        order = np.argsort(prob)
        below = np.zeros(n_groups)
        value, before = 0.0, 0.0
        for n in range(size):
            i = order[n]
            below[group[i]] += 1
            gap = 0.0
            for k in range(n_groups):
                if count[k] > 0:
                    share = count[k] / size
                    gap += share * abs(below[k] / count[k] - (n + 1) / size)
            # Moving this score up lengthens the gap before it, and shortens the next.
            slope[i] = before - gap
            if n + 1 < size:
                value += gap * (prob[order[n + 1]] - prob[i])
            before = gap
        return value
