"""Penalties on a batch, compiled: one baseline each.

They differ from each other and from f-FERM in the penalty alone. A `penalty` is
compiled; `PenalizedBaseline.penalty` says what it is passed.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,override"
# ruff: noqa: ANN001, ANN205

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fferm._typing import FloatArray, Table
from fferm.estimators.linear import FairLogisticRegression
from fferm.lab.baselines._kernels import TINY, discrepancy_into, group_rates
from fferm.lab.baselines.base import Baseline, TrainingRows
from fferm.lab.baselines.penalized import PenalizedBaseline
from fferm.notions import Notion

# Of penalties whose values are small: up to weights after which nothing changes.
LONG_SWEEP = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
# The width of kernels on probabilities.
BANDWIDTH = 0.1
# Of scores, in which Zhong and Tandon compare groups.
N_BINS = 10
# The grid of Mary et al.: up to this many points over this many deviations.
MOST_POINTS = 50.0
REACH = 2.5


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
    def penalty(prob, group, n_groups, settings, slope):
        """Return the squared maximal correlation and write its derivative."""
        count, rate, mean = group_rates(prob, group, n_groups)
        variance = mean * (1 - mean)
        if variance <= 0:
            return 0.0
        between = np.sum(count * (rate - mean) ** 2) / prob.size
        value = float(between / variance)
        push = 2 * (rate[group] - mean) - value * (1 - 2 * mean)
        slope[:] = push / (prob.size * variance)
        return value


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
    def penalty(prob, group, n_groups, settings, slope):
        """Return the sum of relative gaps and write its derivative."""
        count, rate, mean = group_rates(prob, group, n_groups)
        if mean <= 0:  # where all are sure of the other label, no rate differs
            return 0.0
        sign = np.sign(rate - mean)
        pull = np.sum(sign * rate) / mean
        slope[:] = (sign[group] / count[group] - pull / prob.size) / mean
        return float(np.sum(np.abs(rate / mean - 1)))


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

    tradeoff_values: ClassVar[tuple[float, ...]] = LONG_SWEEP

    @staticmethod
    def penalty(prob, group, n_groups, settings, slope):
        """Return half the sum of squared gaps and write its derivative."""
        z = (prob - 0.5) / BANDWIDTH
        decision = np.empty(prob.size)
        for n in range(prob.size):
            decision[n] = (1 + math.erf(z[n] / math.sqrt(2))) / 2
        count, rate, mean = group_rates(decision, group, n_groups)
        gap = rate - mean
        density = np.exp(-z * z / 2) / (BANDWIDTH * math.sqrt(2 * math.pi))
        slope[:] = density * (gap[group] / count[group] - gap.sum() / prob.size)
        return float(np.sum(gap**2) / 2)


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
    def penalty(prob, group, n_groups, settings, slope):
        """Return the mean distance to all scores and write its derivative."""
        size = prob.size
        share = group_rates(prob, group, n_groups)[0] / size
        order = np.argsort(prob)
        below = np.zeros(n_groups)
        value, before = 0.0, 0.0
        for n in range(size):
            i = order[n]
            below[group[i]] += 1
            gap = np.sum(np.abs(below - share * (n + 1))) / size
            # Moving this score up lengthens the gap before it, and shortens the next.
            slope[i] = before - gap
            if n + 1 < size:
                value += gap * (prob[order[n + 1]] - prob[i])
            before = gap
        return value


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

    @staticmethod
    def penalty(prob, group, n_groups, settings, slope):
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
        n_points = int(min(MOST_POINTS, 2 * REACH / h))
        distance = np.linspace(-REACH, REACH, n_points) - u.reshape(-1, 1)
        kernel = np.exp(-((distance / h) ** 2) / 2)
        density = np.zeros((n_groups, n_points))
        for n in range(size):
            density[group[n]] += kernel[n]
        total = density.sum()
        density /= total
        by_point, by_group = density.sum(axis=0), density.sum(axis=1)
        # A point or a group without any density has none to divide.
        ratio = density / np.maximum(np.outer(by_group, by_point), TINY)
        cell = density * ratio
        point_pull = cell.sum(axis=0) / np.maximum(by_point, TINY)
        group_pull = cell.sum(axis=1) / np.maximum(by_group, TINY)
        push = np.zeros(size)
        for n in range(size):
            worth = 2 * ratio[group[n]] - point_pull - group_pull[group[n]]
            push[n] = np.sum(kernel[n] * distance[n] * worth) / (h * h * total)
        along = np.sum(push * u) / (size - 1)
        slope[:] = (push - push.mean() - along * u) / deviation
        return float(cell.sum() - 1)


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

    tradeoff_values: ClassVar[tuple[float, ...]] = LONG_SWEEP

    @staticmethod
    def penalty(prob, group, n_groups, settings, slope):
        """Return the mean squared discrepancy and write its derivative."""
        return float(discrepancy_into(prob, group, n_groups, BANDWIDTH, slope))


class IndependenceCriterion(PenalizedBaseline):
    r"""Logistic regression with the Hilbert-Schmidt independence criterion (HSIC).

    The penalty of a batch is :math:`\operatorname{tr}(K H L H) / b^2` with the Laplace
    kernel of width 0.1 on probabilities, equality as the kernel on groups, and H
    centering both: :math:`\sum_k \pi_k^2 \|\mu_k - \mu\|^2` with the embeddings of the
    groups' probabilities and of all. Sorting makes it exact in O(b log b).

    Notes
    -----
    Differs from the original: logistic regression with cross-entropy, not kernel ridge
    regression in closed form; the kernel is on the prediction alone, of a fixed width;
    Adagrad with averaging or L-BFGS. Within a label, for equal opportunity and
    equalized odds, it is our extension.

    References
    ----------
    A. Pérez-Suay, V. Laparra, G. Mateo-García, J. Muñoz-Marí, L. Gómez-Chova, G.
    Camps-Valls. Fair Kernel Learning. ECML PKDD 2017, arXiv:1710.05578.
    """

    tradeoff_values: ClassVar[tuple[float, ...]] = LONG_SWEEP

    @staticmethod
    def penalty(prob, group, n_groups, settings, slope):
        """Return the criterion and write its derivative."""
        size = prob.size
        share = group_rates(prob, group, n_groups)[0] / size
        order = np.argsort(prob)
        value, squares = 0.0, np.sum(share**2)
        near = np.zeros(n_groups)  # of the rows passed, by the kernel
        for way in (1, -1):
            near[:] = 0.0
            last = prob[order[0 if way == 1 else size - 1]]
            for n in range(size):
                i = order[n if way == 1 else size - 1 - n]
                near *= math.exp(-abs(prob[i] - last) / BANDWIDTH)
                last = prob[i]
                k = group[i]
                # The sum over rows j of the centred kernel on groups of i and j.
                gap = near[k] - share[k] * near.sum() - np.sum(share * near)
                gap += squares * near.sum()
                value += (gap + (1 - 2 * share[k] + squares) / 2) / size**2
                slope[i] -= way * 2 * gap / (BANDWIDTH * size**2)
                near[k] += 1
        return float(value)


class EnergyDistance(PenalizedBaseline):
    r"""Logistic regression with the energy distance of the groups' scores.

    The penalty of a batch is the mean over pairs of groups of

    .. math:: 2 E|S - T| - E|S - S'| - E|T - T'|

    where the means are over pairs of *different* rows, so that the batch estimates it
    without bias: apart from f-FERM and FERMI the only method here that does. Groups of
    which the batch holds fewer than two rows are left out, so batches need about two
    rows of each group: of smaller ones nothing is learned.

    Notes
    -----
    Differs from the original: any number of groups, by the mean over pairs, where the
    original has two; batches are drawn from all rows, where the original puts two rows
    of each group into every batch; the energy distance alone of its kernels; Adagrad
    with averaging or L-BFGS; logistic regression, not a network. On all rows it leaves
    out the same pairs.

    References
    ----------
    Y. Rychener, B. Taskesen, D. Kuhn. Metrizing Fairness. 2022, arXiv:2205.15049.
    """

    tradeoff_values: ClassVar[tuple[float, ...]] = LONG_SWEEP

    @staticmethod
    def penalty(prob, group, n_groups, settings, slope):
        """Return the mean energy distance and write its derivative."""
        count = group_rates(prob, group, n_groups)[0]
        known = count >= 2
        present = np.sum(known)
        if present < 2:
            return 0.0
        n_pairs = present * (present - 1) / 2
        below, order = np.zeros(n_groups), np.argsort(prob)
        for i in order:
            k = group[i]
            if not known[k]:
                continue
            for g in range(n_groups):
                if not known[g]:
                    continue
                # How many of the group are below the row, less how many are above.
                if g == k:
                    lead = 2 * below[g] - (count[g] - 1)
                    weight = -2 * (present - 1) / (count[k] * (count[k] - 1))
                else:
                    lead = 2 * below[g] - count[g]
                    weight = 2 / (count[k] * count[g])
                slope[i] += weight * lead / n_pairs
            below[k] += 1
        return float(np.sum(slope * prob))


class MinMaxDivergence(PenalizedBaseline):
    r"""Logistic regression with the f-divergence of the groups' scores on a batch.

    The penalty of a batch is :math:`\sum_k \pi_k D_f(S_k \| S)`, the Jensen-Shannon
    divergence of the distributions of the score in group k and in the batch,
    :math:`\max_T E_{S_k}[T] - E_S[f^*(T)]`, over estimators T that are constant on ten
    bins of the score, to which a score belongs by linear weights of the nearest two.

    Notes
    -----
    Differs from the original: the estimator T is the best on bins, in closed form,
    where the original trains a network by some ascent steps; each group is compared
    with all rows, where the original compares two groups; Adagrad with averaging or
    L-BFGS; logistic regression, not a network. As in the original the expectations are
    those of the batch, which makes the maximum biased.

    References
    ----------
    M. Zhong, R. Tandon. Learning Fair Classifiers via Min-Max F-divergence
    Regularization. 2023, arXiv:2306.16552.
    """

    tradeoff_values: ClassVar[tuple[float, ...]] = LONG_SWEEP

    @staticmethod
    def penalty(prob, group, n_groups, settings, slope):
        """Return the divergence on bins and write its derivative."""
        size = prob.size
        share = group_rates(prob, group, n_groups)[0] / size
        place = np.minimum((prob * N_BINS).astype(np.int64), N_BINS - 1)
        part = prob * N_BINS - place
        joint = np.zeros((n_groups, N_BINS + 1))
        for n in range(size):
            joint[group[n], place[n]] += (1 - part[n]) / size
            joint[group[n], place[n] + 1] += part[n] / size
        product = np.outer(share, joint.sum(axis=0))
        # f(t) = t ln t - (t + 1) ln((t + 1) / 2); an empty cell has nothing to divide.
        half = np.maximum((joint + product) / 2, TINY)
        by_joint = np.log(np.maximum(joint, TINY) / half)
        by_product = np.log(np.maximum(product, TINY) / half)
        # A row also moves the products of all groups, by their shares.
        moved = np.sum(by_product * share.reshape(-1, 1), axis=0)
        for n in range(size):
            worth = by_joint[group[n]] + moved
            slope[n] = (worth[place[n] + 1] - worth[place[n]]) * N_BINS / size
        return float(np.sum(joint * by_joint + product * by_product))


@dataclass(kw_only=True, eq=False, repr=False)
class NoisyGroupsRobust(PenalizedBaseline):
    r"""Logistic regression that is fair to every group near the recorded one.

    The members of a recorded group may be any distribution within total variation
    ``noise`` of it. The worst of these moves that much mass from the lowest of the
    group's probabilities to the highest of all, or the other way round, and the penalty
    is :math:`\frac12 \sum_k \max(0, \text{worst gap})^2` over both directions.

    Parameters
    ----------
    fairness_weight
        The weight of the penalty beside the mean cross-entropy; 0 is plain training.
    noise
        The largest share of a recorded group that may belong elsewhere.
    notion, batch_size, max_epochs, learning_rate, l2, random_state
        As in `PenalizedBaseline`. A batch says little of worst cases: use all rows.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
    intercept_ : ndarray of shape (1,)
    classes_ : ndarray

    Notes
    -----
    Differs from the original: the inner maximum in closed form, where the original
    ascends by projected gradients; a penalty of squared worst gaps with a weight, where
    the original has constraints with a slack, solved as a Lagrangian game, so that one
    parameter trades accuracy for fairness as everywhere here; probabilities for the
    original's hinge on decisions. Of its two methods this is the first (DRO); the
    second, soft assignments, needs rows with true groups.

    References
    ----------
    S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta, M. I. Jordan. Robust
    Optimization for Fairness with Noisy Protected Groups. NeurIPS 2020.
    """

    tradeoff_values: ClassVar[tuple[float, ...]] = (0.0, 0.1, 0.3, 1, 3, 10, 30, 100)
    # Its penalty is of bounded strength: it gives up before half of the gap is gone.
    largest_rest: ClassVar[float] = 0.9

    noise: float = 0.05

    def _settings(self) -> tuple[float, ...]:
        return (self.noise,)

    @staticmethod
    def penalty(prob, group, n_groups, settings, slope):
        """Return half the sum of squared worst gaps and write its derivative."""
        size, noise = prob.size, settings[0]
        count, rate, mean = group_rates(prob, group, n_groups)
        order = np.argsort(prob)
        value = 0.0
        for k in range(n_groups):
            for way in (1, -1):
                if count[k] in (0, size):  # nobody to compare with
                    continue
                top = order[size - 1 if way == 1 else 0]
                taken, left = np.zeros(size), noise
                for n in range(size):  # from the far end, take mass away
                    i = order[n if way == 1 else size - 1 - n]
                    if group[i] == k:
                        taken[i] = min(left, 1 / count[k])
                        left -= taken[i]
                moved = np.sum(taken * (prob[top] - prob))
                gap = max(way * (rate[k] + moved - mean), 0.0)
                value += gap * gap / 2
                slope += way * gap * ((group == k) / count[k] - taken - 1 / size)
                slope[top] += way * gap * taken.sum()
        return value


@dataclass(kw_only=True, eq=False, repr=False)
class CurvatureMatching(PenalizedBaseline):
    r"""Logistic regression whose loss bends alike around the rows of every group.

    A shift moves rows, and how much the loss of a row may then change is told by its
    curvature, the largest eigenvalue of the second derivative by the features. For a
    logistic regression this is :math:`p (1 - p) \|\theta\|^2`. The penalty is

    .. math::

        D(p) + \text{curvature\_weight} \cdot D(p (1 - p))

    where D is the maximum mean discrepancy between the groups' distributions, as in
    `KernelMatching`: the first term is fairness on the training rows, the second is to
    keep it when rows move.

    Parameters
    ----------
    fairness_weight
        The weight of the penalty beside the mean cross-entropy; 0 is plain training.
    curvature_weight
        The weight of matched curvatures beside that of matched probabilities.
    notion, batch_size, max_epochs, learning_rate, l2, random_state
        As in `PenalizedBaseline`.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
    intercept_ : ndarray of shape (1,)
    classes_ : ndarray

    Notes
    -----
    The curvature is read here as that by the features, which is what moves in a shift;
    by the parameters it would be :math:`p (1 - p) (\|x\|^2 + 1)`. The description that
    this was written from does not settle which.

    Differs from the original: logistic regression, not a network, for which curvatures
    are exact and need no power iteration; they are measured in units of
    :math:`\|\theta\|^2`, which all rows share, so that small coefficients do not
    help; the fairness term is the discrepancy of probabilities, which is the best that
    an adversary from the unit ball of the kernel can do, where the original trains an
    adversary that is a network; the Laplace kernel, of width 0.1 for probabilities and
    a quarter of it for curvatures, whose range is a quarter as wide; any number of
    groups, where the original has two.

    With one score for all, a row's curvature is a function of its probability: where
    the groups' probabilities match in distribution their curvatures do, too. The second
    term can only choose among models on the way there.

    References
    ----------
    H. Wang, J. Hong, J. Zhou, Z. Wang. How Robust is Your Fairness? Evaluating and
    Sustaining Fairness under Unseen Distribution Shifts. TMLR 2023, arXiv:2207.01168.
    """

    tradeoff_values: ClassVar[tuple[float, ...]] = LONG_SWEEP

    curvature_weight: float = 1.0

    def _settings(self) -> tuple[float, ...]:
        return (self.curvature_weight,)

    @staticmethod
    def penalty(prob, group, n_groups, settings, slope):
        """Return the sum of both discrepancies and write its derivative."""
        weight, h = settings[0], BANDWIDTH / 4
        value = discrepancy_into(prob, group, n_groups, BANDWIDTH, slope)
        curvature, bend = prob * (1 - prob), np.zeros(prob.size)
        value += weight * discrepancy_into(curvature, group, n_groups, h, bend)
        slope += weight * bend * (1 - 2 * prob)
        return float(value)


@dataclass(kw_only=True, eq=False, repr=False)
class Fermi(Baseline):
    """Logistic regression with the exponential Rényi mutual information.

    ERMI is the chi-square divergence of the table of class and group from
    independence, so this baseline is ``FairLogisticRegression(divergence="chi2",
    solver="sgda")`` with the signature of a baseline.

    Parameters
    ----------
    fairness_weight
        The weight of the penalty; 0 is plain training.
    notion
        ``"demographic_parity"``, ``"equal_opportunity"`` or ``"equalized_odds"``.
    batch_size
        Rows a step; None takes all rows at every step, by L-BFGS.
    learning_rate
        Adagrad's step on minibatches.
    l2
        Strength of the ridge on coefficients.
    random_state
        Seed of the order of minibatches.

    Attributes
    ----------
    model_ : FairLogisticRegression
    classes_ : ndarray

    Notes
    -----
    Differs from the original: Adagrad for the model and a decaying, preconditioned step
    for the dual, where the original has two constant steps; the dual is a table over
    class and group, where the original writes the same as a matrix W.

    References
    ----------
    A. Lowy, S. Baharlouei, R. Pavan, M. Razaviyayn, A. Beirami. A Stochastic
    Optimization Framework for Fair Risk Minimization. TMLR 2022.
    """

    tradeoff_values: ClassVar[tuple[float, ...]] = (0.0, 0.1, 0.3, 1, 3, 10, 30, 50)

    fairness_weight: float = 1.0
    notion: str | Notion = "demographic_parity"
    batch_size: int | None = None
    learning_rate: float = 0.8
    l2: float = 1e-4
    random_state: int | np.random.RandomState | None = None

    def _train(self, rows: TrainingRows) -> None:
        model = FairLogisticRegression(
            divergence="chi2",
            notion=self._notion(),
            fairness_weight=self.fairness_weight,
            solver="lbfgs" if self.batch_size is None else "sgda",
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            l2=self.l2,
            random_state=self.random_state,
        )
        y = rows.y.astype(np.int64)
        self.model_ = model.fit(rows.X, y, sensitive_features=rows.group)

    def _chance(self, X: FloatArray, sensitive_features: Table) -> FloatArray:
        return self.model_.predict_proba(X)[:, 1]
