"""Wang et al. 2020: fairness where groups are recorded with errors."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fferm._typing import FloatArray, IntArray
from fferm.data.validate import Constraint, Number
from fferm.lab.baselines._kernels import group_sums
from fferm.lab.baselines.penalized import PenalizedBaseline
from fferm.notions import Notion


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
    notion, batch_size, max_epochs, l2, random_state
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

    constraints: ClassVar[Mapping[str, Constraint]] = {
        **PenalizedBaseline.constraints,
        "noise": Number(),
    }

    def __init__(
        self,
        *,
        fairness_weight: float = 1.0,
        noise: float = 0.05,
        notion: str | Notion = "demographic_parity",
        batch_size: int | None = None,
        max_epochs: int = 6,
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
        self.noise = noise

    def _settings(self) -> tuple[float, ...]:
        return (self.noise,)

    @staticmethod
    def penalty(  # noqa: C901 - groups, directions and rows
        prob: FloatArray,
        group: IntArray,
        n_groups: int,
        settings: FloatArray,
        slope: FloatArray,
    ) -> float:
        """Return half the sum of squared worst gaps and write its derivative."""
        size, noise = prob.size, settings[0]
        count, rate = group_sums(prob, group, n_groups)
        mean = rate.sum() / size
        order = np.argsort(prob)
        value = 0.0
        for k in range(n_groups):
            for way in (1, -1):
                if count[k] in (0, size):  # nobody to compare with
                    continue
                top = order[size - 1 if way == 1 else 0]
                moved, left = 0.0, noise
                for n in range(size):  # from the far end, take mass away
                    i = order[n if way == 1 else size - 1 - n]
                    if group[i] == k and left > 0:
                        taken = min(left, 1 / count[k])
                        moved += taken * (prob[top] - prob[i])
                        left -= taken
                gap = way * (rate[k] / count[k] + moved - mean)
                if gap <= 0:
                    continue
                value += gap * gap / 2
                left = noise
                for n in range(size):
                    i = order[n if way == 1 else size - 1 - n]
                    slope[i] -= way * gap / size
                    if group[i] == k:
                        taken = min(left, 1 / count[k])
                        slope[i] += way * gap * (1 / count[k] - taken)
                        slope[top] += way * gap * taken
                        left -= taken
        return value
