"""What a sweep records of a regressor."""

from typing import Any

import numpy as np

from fferm._types import Table
from fferm.dependence import GROUP_MEASURES, f_information
from fferm.errors import InvalidParameterError
from fferm.estimators.base import FairEstimator
from fferm.estimators.regression import FairRegressor
from fferm.estimators.regression_bounds import make_number_setting
from fferm.labels import encode_weight


class RegressionMeasure:
    """Measures regressors on one split, whose groups are encoded once.

    Violations are of the rows as they are, without weights; errors are weighted.
    """

    def __init__(
        self,
        model: FairEstimator,
        X: Table,
        y: Table,
        sensitive_features: Table,
        sample_weight: Table,
    ) -> None:
        if not isinstance(model, FairRegressor):
            raise InvalidParameterError(
                f"A {type(model).__name__} came. Expected a FairRegressor."
            )
        self.X, self.y = X, np.asarray(y, dtype=np.float64)
        self.weight = encode_weight(sample_weight, self.y.size)
        notion = model._objective().notion
        self.divergence = model.divergence
        measures = {"violation": model.violation_metric}
        measures |= {name: name for name in GROUP_MEASURES if name != "violation"}
        self.settings = {
            column: make_number_setting(
                measure, sensitive_features, notion, model.groups, X
            )
            for column, measure in measures.items()
        }

    def __call__(self, model: FairRegressor) -> dict[str, Any]:
        """Return the measures of one model."""
        prediction = model.predict(self.X)
        error = float(np.average((self.y - prediction) ** 2, weights=self.weight))
        mean = np.average(self.y, weights=self.weight)
        spread = float(np.average((self.y - mean) ** 2, weights=self.weight))
        violations = {
            column: setting.violation(prediction)
            for column, setting in self.settings.items()
        }
        return {
            "accuracy": 1 - error / spread if spread > 0 else np.nan,
            **violations,
            # A number is no decision, so that there is one violation only.
            "soft_violation": violations["violation"],
            "loss": error,
            "divergence": max(
                f_information(prediction[rows], group, divergence=self.divergence)
                for group, rows in self.settings["mean_gap"].parts
            ),
            "collapsed": bool(np.ptp(prediction) == 0),
            "result": model.result_.name,
        }
