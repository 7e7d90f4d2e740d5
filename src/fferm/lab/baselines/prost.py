"""Prost et al. 2019: matching distributions of scores by a kernel (MinDiff)."""

from fferm._typing import FloatArray, IntArray
from fferm.lab.baselines._kernels import discrepancy_into
from fferm.lab.baselines.penalized import PenalizedBaseline

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
        return float(discrepancy_into(prob, group, n_groups, settings[0], slope))
