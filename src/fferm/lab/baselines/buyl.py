"""Buyl et al. 2024: the norm regulariser of fairret."""

import numpy as np

from fferm._typing import FloatArray, IntArray
from fferm.lab.baselines._kernels import group_sums
from fferm.lab.baselines.penalized import PenalizedBaseline


class FairretNorm(PenalizedBaseline):
    r"""Logistic regression with fairret's norm of relative gaps.

    The penalty of a batch is :math:`\sum_k |r_k / c - 1|` with the mean probability
    :math:`r_k` of group k and :math:`c` of the batch, the ``NormLoss`` of fairret with
    its ``PositiveRate`` (within a label: true and false positive rates).

    Notes
    -----
    Differs from the original: the formula is written out, because autograd is slow
    in batches of two rows; tests hold value and gradient to fairret's own. Groups that
    a batch lacks are left out, where fairret counts them as a constant. Adagrad with
    averaging or L-BFGS.

    References
    ----------
    M. Buyl, M. Defrance, T. De Bie. fairret: a Framework for Differentiable Fairness
    Regularization Terms. ICLR 2024.
    """

    @staticmethod
    def penalty(
        prob: FloatArray,
        group: IntArray,
        n_groups: int,
        settings: FloatArray,
        slope: FloatArray,
    ) -> float:
        """Return the sum of relative gaps and write its derivative."""
        size = prob.size
        count, rate = group_sums(prob, group, n_groups)
        mean = rate.sum() / size
        if mean <= 0:  # where all are sure of the other label, no rate differs
            return 0.0
        value, pull = 0.0, 0.0
        sign = np.zeros(n_groups)
        for k in range(n_groups):
            if count[k] > 0:
                rate[k] /= count[k]
                sign[k] = np.sign(rate[k] - mean)
                value += abs(rate[k] / mean - 1)
                pull += sign[k] * rate[k] / mean
        for n in range(size):
            k = group[n]
            slope[n] = (sign[k] / count[k] - pull / size) / mean
        return value
