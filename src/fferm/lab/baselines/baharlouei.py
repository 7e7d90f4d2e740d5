"""Baharlouei et al. 2020: Renyi fair inference."""

from typing import ClassVar

from fferm._typing import FloatArray, IntArray
from fferm.lab.baselines._kernels import group_sums
from fferm.lab.baselines.penalized import PenalizedBaseline


class RenyiFairInference(PenalizedBaseline):
    r"""Logistic regression with the Rényi correlation of prediction and group.

    The penalty of a batch is the squared maximal correlation of its soft table of
    class and group. With two classes the second singular value has a closed form,

    .. math::

        \rho^2 = \sum_k \pi_k \frac{(r_k - c)^2}{c (1 - c)},

    with shares :math:`\pi_k`, mean probabilities :math:`r_k` and :math:`c` of the
    groups and of all, all of the batch: it is the chi-square divergence of the batch's
    table. FERMI estimates the same number without bias; this baseline does not.

    Notes
    -----
    Differs from the original: L-BFGS or Adagrad with averaging, as in all our
    baselines, instead of plain gradient descent-ascent; the singular vector in closed
    form, which two classes allow, instead of an SVD or an ascent step; batches smaller
    than all rows, which the original does not speak of.

    References
    ----------
    S. Baharlouei, M. Nouiehed, A. Beirami, M. Razaviyayn. Rényi Fair Inference. ICLR
    2020.
    """

    tradeoff_values: ClassVar[tuple[float, ...]] = (0.0, 0.1, 0.3, 1, 3, 10, 30, 100)

    @staticmethod
    def penalty(
        prob: FloatArray,
        group: IntArray,
        n_groups: int,
        settings: FloatArray,
        slope: FloatArray,
    ) -> float:
        """Return the squared maximal correlation and write its derivative."""
        count, rate = group_sums(prob, group, n_groups)
        mean = rate.sum() / prob.size
        variance = mean * (1 - mean)
        if variance <= 0:
            return 0.0
        between = 0.0
        for k in range(n_groups):
            if count[k] > 0:
                rate[k] /= count[k]
                between += count[k] / prob.size * (rate[k] - mean) ** 2
        value = float(between / variance)
        for n in range(prob.size):
            push = 2 * (rate[group[n]] - mean) - value * (1 - 2 * mean)
            slope[n] = push / (prob.size * variance)
        return value
