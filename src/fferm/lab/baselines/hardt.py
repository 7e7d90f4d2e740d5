"""Hardt et al. 2016: thresholds by group after training, by fairlearn."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.linear_model import LogisticRegression

from fferm._typing import FloatArray, Table
from fferm.data.validate import Constraint, Number
from fferm.errors import InvalidParameterError
from fferm.lab.baselines._fairlearn import (
    FairlearnBaseline,
    fairlearn,
    mute_fairlearn,
)
from fferm.notions import Notion


class ThresholdPostprocessing(FairlearnBaseline):
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
    constraints: ClassVar[Mapping[str, Constraint]] = {"tolerance": Number()}
    is_randomized: ClassVar[bool] = True
    predicts_with_groups: ClassVar[bool] = True

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

    def _make(self, estimator: LogisticRegression) -> Any:
        notion = self._notion().name
        if self.tolerance and notion == "equalized_odds":
            raise InvalidParameterError(
                "tolerance must be 0 for equalized odds, which fairlearn cannot relax; "
                f"got {self.tolerance!r}. Set tolerance=0, or choose another notion."
            )
        is_of_positives = notion == "equal_opportunity"
        return fairlearn("postprocessing").ThresholdOptimizer(
            estimator=estimator,
            constraints="true_positive_rate_parity" if is_of_positives else notion,
            predict_method="predict_proba",
            tol=self.tolerance or None,
        )

    def _chance(self, X: FloatArray, sensitive_features: Table) -> FloatArray:
        group = self._group_codes(sensitive_features, len(X))
        with mute_fairlearn():
            chance = self.model_._pmf_predict(X, sensitive_features=group)
        return np.asarray(chance[:, 1], dtype=np.float64)
