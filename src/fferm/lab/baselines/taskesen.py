"""Taskesen et al. 2020: fair logistic regression, robust in Wasserstein's sense."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit

from fferm._typing import FloatArray
from fferm.data.validate import Constraint, Number
from fferm.lab.baselines.base import LinearBaseline, TrainingRows
from fferm.notions import Notion

# The norm has a kink at 0, far below any coefficient that counts.
ROUNDING = 1e-12


class WassersteinRobust(LinearBaseline):
    r"""Logistic regression, fair in log-probability against shifts of the features.

    Minimises the worst case over a Wasserstein ball of

    .. math::

        E[\ell] + \eta \, \big| E[\log h \mid s = 1, y = 1]
          - E[\log h \mid s = 0, y = 1] \big|

    where labels and groups are trusted and features may move by ``radius`` on average
    (Euclidean norm). Either sign of the difference gives a weighted log-loss, whose
    worst case adds ``radius`` times its largest weight times the norm of the
    coefficients; the larger of the two convex functions is minimised.

    Parameters
    ----------
    unfairness_share
        :math:`\eta` as a share of the largest value for which the problem is convex,
        the smaller of P(s = 1, y = 1) and P(s = 0, y = 1): from 0, no fairness, to 1.
    radius
        The radius of the ball.
    notion
        ``"equal_opportunity"``, the only one that the method knows.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
    intercept_ : ndarray of shape (1,)
    classes_ : ndarray

    Notes
    -----
    Differs from the original: the maximum of two functions is found as the best mixture
    of them (minimax theorem), by L-BFGS and a search over the mixture, not by a conic
    solver; the variant that trusts labels and groups only; two groups, as there.

    References
    ----------
    B. Taskesen, V. A. Nguyen, D. Kuhn, J. Blanchet. A Distributionally Robust Approach
    to Fair Classification. 2020, arXiv:2007.09530.
    """

    tradeoff_param: ClassVar[str] = "unfairness_share"
    tradeoff_values: ClassVar[tuple[float, ...]] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    # Its penalty is of bounded strength: it gives up before half of the gap is gone.
    largest_rest: ClassVar[float] = 0.9
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "unfairness_share": Number(high=1),  # beyond it the problem is not convex
        "radius": Number(),
    }
    notions: ClassVar[tuple[str, ...]] = ("equal_opportunity",)
    takes_two_groups: ClassVar[bool] = True

    def __init__(
        self,
        *,
        unfairness_share: float = 1.0,
        radius: float = 1e-3,
        notion: str | Notion = "equal_opportunity",
    ) -> None:
        self.unfairness_share = unfairness_share
        self.radius = radius
        self.notion = notion

    def _train(self, rows: TrainingRows) -> None:
        weights = self._weights(rows)
        start = np.zeros(rows.X.shape[1] + 1)

        def solve(mixture: float) -> tuple[float, FloatArray]:
            args = rows, weights, np.array([mixture, 1 - mixture])
            solution = minimize(
                self._worst_case, start, args, jac=True, method="L-BFGS-B"
            )
            return float(solution.fun), np.asarray(solution.x)

        # The least of the larger function is the largest least of a mixture.
        best = minimize_scalar(
            lambda mixture: -solve(mixture)[0],
            bounds=(0, 1),
            method="bounded",
            options={"xatol": 1e-2},
        )
        self._store(solve(float(best.x))[1])

    def _weights(self, rows: TrainingRows) -> FloatArray:
        """Return the (2, n_samples) weights of the log-loss, one row per sign."""
        inside = rows.stratum == 0
        sizes = [np.mean(inside & (rows.group == k)) for k in (0, 1)]
        eta = self.unfairness_share * min(sizes)
        tilt = np.where(rows.group == 1, eta / sizes[1], -eta / sizes[0]) * inside
        return np.array([1 + tilt, 1 - tilt])

    def _worst_case(
        self,
        theta: FloatArray,
        rows: TrainingRows,
        weights: FloatArray,
        mixture: FloatArray,
    ) -> tuple[float, FloatArray]:
        score = rows.X @ theta[:-1] + theta[-1]
        weight = mixture @ weights / score.size
        largest = self.radius * mixture @ weights.max(axis=1)
        norm = np.sqrt(theta[:-1] @ theta[:-1] + ROUNDING)
        loss = weight @ (np.logaddexp(0, score) - rows.y * score) + largest * norm
        slope = weight * (expit(score) - rows.y)
        gradient = np.append(rows.X.T @ slope, slope.sum())
        gradient[:-1] += largest * theta[:-1] / norm
        return float(loss), gradient
