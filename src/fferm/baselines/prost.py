"""Prost et al. 2019: matching distributions of scores by a kernel (MinDiff)."""

import math

import numpy as np

from fferm._types import FloatArray, IntArray
from fferm.baselines.penalized import PenalizedBaseline

BANDWIDTH = 0.1


class KernelMatching(PenalizedBaseline):
    r"""Logistic regression with the maximum mean discrepancy between groups' scores.

    The penalty of a batch is :math:`\frac1K \sum_k \|\mu_k - \bar\mu\|^2` over the
    groups that it holds, where :math:`\mu_k` embeds the probabilities of a group by
    the Laplace kernel :math:`e^{-|p - p'| / h}` with h = 0.1. For two groups it is a
    quarter of their squared discrepancy. Sorting makes it exact in O(b log b).

    Notes
    -----
    Differs from the original: any number of groups; any of three notions, where the
    original matches negatives (false positive rates) of two groups; the bandwidth is
    fixed and not searched for; Adagrad with averaging or L-BFGS; logistic regression,
    not a network.

    References
    ----------
    F. Prost, H. Qian, Q. Chen, E. Chi, J. Chen, A. Beutel. Toward a Better Trade-off
    Between Performance and Fairness with Kernel-based Distribution Matching. 2019,
    arXiv:1910.11779.
    """

    def _settings(self) -> tuple[float, ...]:
        return (BANDWIDTH,)

    @staticmethod
    def penalty(
        prob: FloatArray,
        group: IntArray,
        n_groups: int,
        settings: FloatArray,
        slope: FloatArray,
    ) -> float:
        """Return the mean squared discrepancy and write its derivative."""
        size, h = prob.size, settings[0]
        count = np.zeros(n_groups)
        for n in range(size):
            count[group[n]] += 1
        present = np.sum(count > 0)
        if present < 2:
            return 0.0
        order = np.argsort(prob)
        value = 0.0
        # Last comes the embedding of all groups together, which is taken away.
        for k in range(n_groups + 1):
            is_all = k == n_groups
            factor = -1 / present**2 if is_all else 1 / present
            for way in (1, -1):
                near = 0.0
                last = prob[order[0 if way == 1 else size - 1]]
                for n in range(size):
                    i = order[n if way == 1 else size - 1 - n]
                    near *= math.exp(-abs(prob[i] - last) / h)
                    last = prob[i]
                    if is_all or group[i] == k:
                        w = 1 / count[group[i]]
                        value += factor * w * (near + w / 2)
                        slope[i] -= way * 2 * factor * w * near / h
                        near += w
        return value
