"""Baselines that fairlearn and error-parity implement, around logistic regression."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.linear_model import LogisticRegression

from fferm._typing import FloatArray, Table
from fferm.errors import InvalidParameterError, import_extra
from fferm.lab.baselines.base import Baseline, TrainingRows
from fferm.notions import Notion

MAX_ITER = 1000
# fairlearn's moment of each notion.
MOMENTS = {
    "demographic_parity": "DemographicParity",
    "equal_opportunity": "TruePositiveRateParity",
    "equalized_odds": "EqualizedOdds",
}


class FairlearnBaseline(Baseline):
    """A model of fairlearn with the signature of a baseline."""

    model_: Any

    @abstractmethod
    def _make(self, estimator: LogisticRegression) -> Any:
        """Return fairlearn's model around an estimator."""

    def _train(self, rows: TrainingRows) -> None:
        model = self._make(LogisticRegression(max_iter=MAX_ITER))
        self.model_ = model.fit(rows.X, rows.y, sensitive_features=rows.group)


@dataclass(kw_only=True, eq=False, repr=False)
class ExponentiatedGradient(FairlearnBaseline):
    """A randomised ensemble of logistic regressions within a bound.

    Parameters
    ----------
    difference_bound
        How far a group's rate may lie from that of all.
    notion
        ``"demographic_parity"``, ``"equal_opportunity"`` or ``"equalized_odds"``.
    random_state
        Seed of the decisions that are drawn.

    Attributes
    ----------
    model_ : fairlearn.reductions.ExponentiatedGradient
    classes_ : ndarray

    Notes
    -----
    Differs from the original: nothing that we know of. It is fairlearn's own, around
    scikit-learn's LogisticRegression.

    References
    ----------
    A. Agarwal, A. Beygelzimer, M. Dudík, J. Langford, H. Wallach. A Reductions Approach
    to Fair Classification. ICML 2018.
    """

    tradeoff_param: ClassVar[str] = "difference_bound"
    tradeoff_values: ClassVar[tuple[float, ...]] = (0.3, 0.1, 0.06, 0.03, 0.01, 0.003)
    is_randomized: ClassVar[bool] = True

    difference_bound: float = 0.01
    notion: str | Notion = "demographic_parity"
    random_state: int | np.random.RandomState | None = None

    def _make(self, estimator: LogisticRegression) -> Any:
        library = import_extra("fairlearn.reductions", "baselines")
        moment = getattr(library, MOMENTS[self._notion().name])
        return library.ExponentiatedGradient(
            estimator, moment(difference_bound=self.difference_bound)
        )

    def _chance(self, X: FloatArray, sensitive_features: Table) -> FloatArray:
        chance = np.asarray(self.model_._pmf_predict(X)[:, 1], dtype=np.float64)
        return np.clip(chance, 0, 1)  # weights of the ensemble sum to 1 by rounding


@dataclass(kw_only=True, eq=False, repr=False)
class ReductionsGrid(FairlearnBaseline):
    """The best of a grid of reweighted logistic regressions.

    Parameters
    ----------
    constraint_weight
        From 0, the most accurate of the grid, to 1, the fairest.
    grid_size
        How many models are trained.
    notion
        ``"demographic_parity"``, ``"equal_opportunity"`` or ``"equalized_odds"``.

    Attributes
    ----------
    model_ : fairlearn.reductions.GridSearch
    classes_ : ndarray

    Notes
    -----
    Differs from the original: nothing that we know of. It is fairlearn's own, around
    scikit-learn's LogisticRegression. With many groups a grid of this size is sparse.

    References
    ----------
    A. Agarwal, A. Beygelzimer, M. Dudík, J. Langford, H. Wallach. A Reductions Approach
    to Fair Classification. ICML 2018, section 3.4.
    """

    tradeoff_param: ClassVar[str] = "constraint_weight"
    tradeoff_values: ClassVar[tuple[float, ...]] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

    constraint_weight: float = 0.5
    grid_size: int = 20
    notion: str | Notion = "demographic_parity"

    def _make(self, estimator: LogisticRegression) -> Any:
        library = import_extra("fairlearn.reductions", "baselines")
        return library.GridSearch(
            estimator,
            getattr(library, MOMENTS[self._notion().name])(),
            constraint_weight=self.constraint_weight,
            grid_size=self.grid_size,
        )

    def _chance(self, X: FloatArray, sensitive_features: Table) -> FloatArray:
        return np.asarray(self.model_.predict_proba(X)[:, 1], dtype=np.float64)


@dataclass(kw_only=True, eq=False, repr=False)
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
    is_randomized: ClassVar[bool] = True
    predicts_with_groups: ClassVar[bool] = True

    tolerance: float = 0.0
    notion: str | Notion = "demographic_parity"
    random_state: int | np.random.RandomState | None = None

    def _make(self, estimator: LogisticRegression) -> Any:
        notion = self._notion().name
        if self.tolerance and notion == "equalized_odds":
            raise InvalidParameterError(
                "tolerance must be 0 for equalized odds, which fairlearn cannot relax; "
                f"got {self.tolerance!r}. Set tolerance=0, or choose another notion."
            )
        is_of_positives = notion == "equal_opportunity"
        library = import_extra("fairlearn.postprocessing", "baselines")
        return library.ThresholdOptimizer(
            estimator=estimator,
            constraints="true_positive_rate_parity" if is_of_positives else notion,
            predict_method="predict_proba",
            tol=self.tolerance or None,
        )

    def _chance(self, X: FloatArray, sensitive_features: Table) -> FloatArray:
        group = self._group_codes(sensitive_features, len(X))
        chance = self.model_._pmf_predict(X, sensitive_features=group)
        return np.asarray(chance[:, 1], dtype=np.float64)


@dataclass(kw_only=True, eq=False, repr=False)
class RelaxedThresholds(Baseline):
    """Logistic regression with the best randomised thresholds by group.

    A linear programme over points below the groups' ROC curves finds the rates of
    least error that differ by no more than ``tolerance``; thresholds, drawn by chance
    where needed, then have them.

    Parameters
    ----------
    tolerance
        How far apart the rates of groups may lie.
    notion
        ``"demographic_parity"``, ``"equal_opportunity"`` or ``"equalized_odds"``.
    random_state
        Seed of the decisions that are drawn.

    Attributes
    ----------
    model_ : error_parity.RelaxedThresholdOptimizer
    groups_ : tuple of the names of groups
    classes_ : ndarray

    Notes
    -----
    Differs from the original: nothing that we know of. It is error-parity's own, around
    scikit-learn's LogisticRegression, and the expectation of its draws. It decides by
    group, which is unlawful in places and impossible where the group is unknown.

    References
    ----------
    A. F. Cruz, M. Hardt. Unprocessing Seven Years of Algorithmic Fairness. ICLR 2024.
    """

    tradeoff_param: ClassVar[str] = "tolerance"
    tradeoff_values: ClassVar[tuple[float, ...]] = (0.3, 0.2, 0.1, 0.05, 0.02, 0.0)
    is_randomized: ClassVar[bool] = True
    predicts_with_groups: ClassVar[bool] = True

    tolerance: float = 0.0
    notion: str | Notion = "demographic_parity"
    random_state: int | np.random.RandomState | None = None

    def _train(self, rows: TrainingRows) -> None:
        library = import_extra("error_parity", "baselines")
        plain = LogisticRegression(max_iter=MAX_ITER).fit(rows.X, rows.y)
        notion = self._notion().name
        is_of_positives = notion == "equal_opportunity"
        model = library.RelaxedThresholdOptimizer(
            predictor=lambda X: plain.predict_proba(X)[:, 1],
            constraint="true_positive_rate_parity" if is_of_positives else notion,
            tolerance=self.tolerance,
        )
        y = rows.y.astype(np.int64)
        self.model_ = model.fit(X=rows.X, y=y, group=rows.group)

    def _chance(self, X: FloatArray, sensitive_features: Table) -> FloatArray:
        group = self._group_codes(sensitive_features, len(X))
        by_group = self.model_._realized_classifier.group_to_clf
        chance = np.zeros(len(X))
        for code, classifier in by_group.items():
            rows = group == code
            chance[rows] = _expected(classifier, X[rows])
        return chance


def _expected(classifier: Any, X: FloatArray) -> FloatArray:
    """Return the chance that a classifier of error-parity says 1."""
    if hasattr(classifier, "probabilities"):
        parts = zip(classifier.probabilities, classifier.classifiers, strict=True)
        return np.asarray(sum(share * _expected(each, X) for share, each in parts))
    if hasattr(classifier, "target_fpr"):  # a coin
        return np.full(len(X), float(classifier.target_fpr))
    return np.asarray(classifier(X), dtype=np.float64)
