"""Cho et al. 2020: a fair classifier by kernel density estimation."""

import math

import numpy as np

from fferm._typing import FloatArray, IntArray
from fferm.lab.baselines._kernels import group_sums
from fferm.lab.baselines.penalized import PenalizedBaseline

BANDWIDTH = 0.1


class KernelDensityClassifier(PenalizedBaseline):
    r"""Logistic regression with the gap of decisions, made smooth by a kernel.

    A decision :math:`1[p_i > 1/2]` is replaced by :math:`\Phi((p_i - 1/2) / h)`, and
    the penalty of a batch is :math:`\sum_k H(R_k - R)` with the mean :math:`R_k` of
    these in group k, :math:`R` in the batch, and Huber's function :math:`H`, which is
    half the square here since no gap is larger than 1. The bandwidth h is 0.1.

    Notes
    -----
    Differs from the original: the weight is :math:`\lambda / (1 - \lambda)` of theirs;
    the normal distribution function is exact, theirs an approximation by exponentials;
    Adagrad with averaging or L-BFGS, not Adam; a logistic regression, which they use
    too, and no network. Under equalized odds they compare with the rate within each
    label, as is done here.

    References
    ----------
    J. Cho, G. Hwang, C. Suh. A Fair Classifier Using Kernel Density Estimation. NeurIPS
    2020.
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
        """Return half the sum of squared gaps and write its derivative."""
        size, h = prob.size, settings[0]
        z = (prob - 0.5) / h
        decision = np.empty(size)
        for n in range(size):
            decision[n] = (1 + math.erf(z[n] / math.sqrt(2))) / 2
        count, rate = group_sums(decision, group, n_groups)
        mean = rate.sum() / size
        value, pull = 0.0, 0.0
        for k in range(n_groups):
            if count[k] > 0:
                rate[k] = rate[k] / count[k] - mean
                value += rate[k] ** 2 / 2
                pull += rate[k]
        for n in range(size):
            density = math.exp(-z[n] * z[n] / 2) / (h * math.sqrt(2 * math.pi))
            k = group[n]
            slope[n] = density * (rate[k] / count[k] - pull / size)
        return value
