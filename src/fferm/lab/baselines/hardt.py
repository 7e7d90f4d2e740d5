"""Hardt et al. 2016: thresholds by group after training, by fairlearn."""

from typing import Any, ClassVar

import numpy as np
from sklearn.linear_model import LogisticRegression

from fferm._typing import FloatArray, Table
from fferm.data.validate import check_number
from fferm.errors import InvalidParameterError
from fferm.lab.baselines.base import Baseline, Rows
from fferm.lab.baselines.extra import fairlearn, their_warnings_apart
from fferm.notions import Notion

CONSTRAINTS = {
    "demographic_parity": "demographic_parity",
    "equal_opportunity": "true_positive_rate_parity",
    "equalized_odds": "equalized_odds",
}
MAX_ITER = 1000


class ThresholdPostprocessing(Baseline):
    """Logistic regression with thresholds by group, drawn by chance where needed.

    Parameters
    ----------
    tolerance
        How far apart the rates of groups may lie. Equalized odds know 0 only.
    notion
        ``"demographic_parity"``, ``"equal_opportunity"`` or ``"equalized_odds"``.
    random_state
        Seed of the decisions that are drawn.

    Attributes
    ----------
    model_ : fairlearn.postprocessing.ThresholdOptimizer
    groups_ : tuple of the names of groups
    classes_ : ndarray

    Notes
    -----
    Differs from the original: nothing that we know of. It is fairlearn's own, around
    scikit-learn's LogisticRegression, and its ``tol``. It decides by group, which is
    unlawful in places and impossible where the group is unknown.

    References
    ----------
    M. Hardt, E. Price, N. Srebro. Equality of Opportunity in Supervised Learning. NIPS
    2016.
    """

    tradeoff_param: ClassVar[str] = "tolerance"
    tradeoff_values: ClassVar[tuple[float, ...]] = (0.3, 0.2, 0.1, 0.05, 0.02, 0.0)
    is_randomized: ClassVar[bool] = True
    predicts_with_groups: ClassVar[bool] = True

    model_: Any
    groups_: tuple[str, ...]

    def __init__(
        self,
        *,
        tolerance: float = 0.0,
        notion: str | Notion = "demographic_parity",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.tolerance = tolerance
        self.notion = notion
        self.random_state = random_state

    def _train(self, rows: Rows) -> None:
        tolerance = check_number("tolerance", self.tolerance)
        if tolerance and self._notion().name == "equalized_odds":
            raise InvalidParameterError(
                f"tolerance={self.tolerance!r} came with equalized odds, which "
                "fairlearn cannot relax. Set tolerance=0, or choose another notion."
            )
        model = fairlearn("postprocessing").ThresholdOptimizer(
            estimator=LogisticRegression(max_iter=MAX_ITER),
            constraints=CONSTRAINTS[self._notion().name],
            predict_method="predict_proba",
            tol=tolerance or None,
        )
        with their_warnings_apart():
            self.model_ = model.fit(rows.X, rows.y, sensitive_features=rows.group)
        self.groups_ = rows.groups

    def _chance(self, X: FloatArray, sensitive_features: Table) -> FloatArray:
        group = self._known_groups(
            sensitive_features, len(X), self.groups_, "threshold"
        )
        with their_warnings_apart():
            chance = self.model_._pmf_predict(X, sensitive_features=group)
        return np.asarray(chance[:, 1], dtype=np.float64)
