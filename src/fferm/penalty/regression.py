r"""The objective of fair regression, with the prediction in soft bins.

.. math::

    \min_\theta \; \frac1n \sum_i \ell\big(y_i - u_i\big)
      + \lambda \, D_f\big(P(\text{bin}, s) \,\|\, P(\text{bin}) P(s)\big)
      + \frac{\text{l2}}2 \|\text{coef}\|^2

with the prediction :math:`u` and y in standard deviations of y. The table of bin and
group is that of a classifier, so `Problem` knows the penalty already.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.special import softmax

from fferm._typing import FloatArray
from fferm.penalty.losses import Loss, Squared
from fferm.penalty.objective import Problem
from fferm.penalty.soft_bins import SoftBins, make_bins

# A problem without a penalty needs no bins, and a table needs some.
UNUSED_BINS = make_bins(np.zeros(1))


@dataclass(frozen=True)
class RegressionProblem(Problem):
    """A fair regression bound to data.

    Solvers of linear models see one output, as of two classes: the second logit is the
    prediction, the first is 0 and nothing depends on it.

    Attributes
    ----------
    target
        (n_samples,) y, centred, in its standard deviations.
    loss_of
        What residuals cost.
    bins
        Where predictions are counted, in the same unit.
    """

    target: FloatArray = field(default_factory=lambda: np.zeros(0))
    loss_of: Loss = field(default_factory=Squared)
    bins: SoftBins = UNUSED_BINS

    def loss(self, logits: FloatArray) -> tuple[float, FloatArray]:
        """Return the weighted mean loss and its gradient by the prediction."""
        residual = self.target - logits[:, 1]
        gradient = np.zeros_like(logits)
        gradient[:, 1] = -self.share * self.loss_of.slope(residual, np)
        return float(self.share @ self.loss_of.value(residual, np)), gradient

    def fairness(self, logits: FloatArray) -> tuple[float, FloatArray]:
        """Return the weighted penalty and its gradient by the prediction."""
        value, by_bins = super().fairness(logits)
        if self.penalty is None or self.objective.fairness_weight == 0:
            return value, by_bins
        gradient = np.zeros_like(logits)
        gradient[:, 1] = by_bins @ self.bins.slopes
        return value, gradient

    def penalized_prob(self, logits: FloatArray) -> FloatArray:
        """Return the (n_samples, n_bins) share of each bin in each prediction."""
        by_bin = self.bins.logits(logits[:, 1])
        return np.asarray(softmax(self.objective.sharpness * by_bin, axis=1))
