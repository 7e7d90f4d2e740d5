"""Wang et al. 2023: matching the curvature of the loss between groups (CUMA)."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fferm._typing import FloatArray, IntArray
from fferm.data.validate import Constraint, Number
from fferm.lab.baselines._kernels import discrepancy_into
from fferm.lab.baselines.penalized import MAX_EPOCHS, PenalizedBaseline
from fferm.lab.baselines.prost import BANDWIDTH
from fferm.notions import Notion


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
    notion, batch_size, max_epochs, l2, random_state
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

    constraints: ClassVar[Mapping[str, Constraint]] = {
        **PenalizedBaseline.constraints,
        "curvature_weight": Number(),
    }

    def __init__(
        self,
        *,
        fairness_weight: float = 1.0,
        curvature_weight: float = 1.0,
        notion: str | Notion = "demographic_parity",
        batch_size: int | None = None,
        max_epochs: int = MAX_EPOCHS,
        l2: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(
            fairness_weight=fairness_weight,
            notion=notion,
            batch_size=batch_size,
            max_epochs=max_epochs,
            l2=l2,
            random_state=random_state,
        )
        self.curvature_weight = curvature_weight

    def _settings(self) -> tuple[float, ...]:
        return BANDWIDTH, self.curvature_weight

    @staticmethod
    def penalty(
        prob: FloatArray,
        group: IntArray,
        n_groups: int,
        settings: FloatArray,
        slope: FloatArray,
    ) -> float:
        """Return the sum of both discrepancies and write its derivative."""
        h, weight = settings[0], settings[1]
        value = discrepancy_into(prob, group, n_groups, h, slope)
        curvature, bend = prob * (1 - prob), np.zeros(prob.size)
        value += weight * discrepancy_into(curvature, group, n_groups, h / 4, bend)
        slope += weight * bend * (1 - 2 * prob)
        return float(value)
