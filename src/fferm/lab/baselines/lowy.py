"""Lowy et al. 2022: FERMI, which is f-FERM with the chi-square divergence."""

from typing import ClassVar

import numpy as np

from fferm._typing import FloatArray, Table
from fferm.estimators.linear import FairLogisticRegression
from fferm.lab.baselines.base import Baseline, TrainingRows
from fferm.notions import Notion


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

    tradeoff_param: ClassVar[str] = "fairness_weight"
    tradeoff_values: ClassVar[tuple[float, ...]] = (0.0, 0.1, 0.3, 1, 3, 10, 30, 50)

    model_: FairLogisticRegression

    def __init__(
        self,
        *,
        fairness_weight: float = 1.0,
        notion: str | Notion = "demographic_parity",
        batch_size: int | None = None,
        l2: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.fairness_weight = fairness_weight
        self.notion = notion
        self.batch_size = batch_size
        self.l2 = l2
        self.random_state = random_state

    def _train(self, rows: TrainingRows) -> None:
        model = FairLogisticRegression(
            divergence="chi2",
            notion=self._notion(),
            fairness_weight=self.fairness_weight,
            solver="lbfgs" if self.batch_size is None else "sgda",
            batch_size=self.batch_size,
            l2=self.l2,
            random_state=self.random_state,
        )
        y = rows.y.astype(np.int64)
        self.model_ = model.fit(rows.X, y, sensitive_features=rows.group)

    def _chance(self, X: FloatArray, sensitive_features: Table) -> FloatArray:
        return self.model_.predict_proba(X)[:, 1]
