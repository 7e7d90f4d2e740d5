"""Mary et al. 2019: the chi-square relaxation of HGR by kernel density."""

import math

import numpy as np

from fferm._typing import FloatArray, IntArray
from fferm.lab.baselines.penalized import PenalizedBaseline

# The grid of the original: up to this many points over this many deviations.
MOST_POINTS = 50.0
REACH = 2.5


class KernelChiSquare(PenalizedBaseline):
    r"""Logistic regression with a kernel estimate of chi-square of score and group.

    Scores of the batch are standardised, their density by group is estimated on a grid
    with a Gaussian kernel of width :math:`(3b/4)^{-1/5}`, and the penalty is the
    chi-square divergence of the density of score and group from the product of its
    marginals: an upper bound on the squared maximal correlation (HGR). The derivative
    passes through the standardisation, as it does in the original. In a batch of two
    rows standardised scores are constants, so that the penalty has no derivative at
    all: the method then trains the loss alone.

    Notes
    -----
    Differs from the original: groups are groups, where the original smooths a binary
    or continuous attribute as a second coordinate; batches whose scores are all equal
    are passed over, where the original divides by 0; Adagrad with averaging or L-BFGS,
    not Adam; logistic regression, not a network.

    References
    ----------
    J. Mary, C. Calauzènes, N. El Karoui. Fairness-Aware Learning for Continuous
    Attributes and Treatments. ICML 2019.
    """

    def _settings(self) -> tuple[float, ...]:
        return (MOST_POINTS, REACH)

    @staticmethod
    def penalty(  # noqa: C901 - one loop over rows and one over cells
        prob: FloatArray,
        group: IntArray,
        n_groups: int,
        settings: FloatArray,
        slope: FloatArray,
    ) -> float:
        """Return the chi-square divergence on the grid and write its derivative."""
        size = prob.size
        mean = prob.mean()
        if size < 2:
            return 0.0
        deviation = math.sqrt(np.sum((prob - mean) ** 2) / (size - 1))
        if deviation < 1e-12:
            return 0.0
        u = (prob - mean) / deviation
        h = (0.75 * size) ** -0.2
        n_points = int(min(settings[0], 2 * settings[1] / h))
        grid = np.linspace(-settings[1], settings[1], n_points)
        kernel = np.empty((size, n_points))
        density = np.zeros((n_points, n_groups))
        for n in range(size):
            for g in range(n_points):
                kernel[n, g] = math.exp(-(((grid[g] - u[n]) / h) ** 2) / 2)
                density[g, group[n]] += kernel[n, g]
        total = density.sum()
        density /= total
        by_point, by_group = density.sum(axis=1), density.sum(axis=0)
        value = -1.0
        point_pull, group_pull = np.zeros(n_points), np.zeros(n_groups)
        ratio = np.zeros((n_groups, n_points))
        for g in range(n_points):
            for k in range(n_groups):
                if density[g, k] > 0:
                    ratio[k, g] = density[g, k] / (by_point[g] * by_group[k])
                    cell = density[g, k] * ratio[k, g]
                    value += cell
                    point_pull[g] += cell / by_point[g]
                    group_pull[k] += cell / by_group[k]
        push = np.zeros(size)
        for n in range(size):
            k = group[n]
            for g in range(n_points):
                worth = 2 * ratio[k, g] - point_pull[g] - group_pull[k]
                push[n] += kernel[n, g] * (grid[g] - u[n]) * worth
            push[n] /= h * h * total
        across, along = push.mean(), np.sum(push * u) / (size - 1)
        for n in range(size):
            slope[n] = (push[n] - across - along * u[n]) / deviation
        return value
