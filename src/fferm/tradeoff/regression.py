"""What a sweep records of a regressor."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from fferm._typing import FloatArray
from fferm.auditing.number_columns import read_finite
from fferm.data.groups import BandEdges, Binning, encode_columns, merged_edges
from fferm.data.rows import check_aligned
from fferm.data.validate import encode_weight
from fferm.estimators.regression import FairRegressor
from fferm.metrics.dependence import (
    GROUP_MEASURES,
    f_information,
    make_regression_tabulator,
    take,
)
from fferm.tradeoff.measuring import CONFIDENCE
from fferm.tradeoff.splits import Split

# Draws of the bootstrap behind the interval of a violation.
N_DRAWS = 50


class RegressionMeasure:
    """Measures regressors on one split, whose groups are encoded once.

    Parameters are those of `Measure`.
    """

    def __init__(self, model: FairRegressor, split: Split, edges: BandEdges) -> None:
        check_aligned(**vars(split))
        self.X, self.y = split.X, read_finite(split.y, "y")
        self.weight = encode_weight(split.sample_weight, self.y.size)
        self.given_weight = None if split.sample_weight is None else self.weight
        notion = model._objective().notion
        self.divergence = model.divergence
        cutting = Binning(model.continuous, edges)
        columns = encode_columns(split.sensitive_features, self.y.size, cutting)
        self.edges = merged_edges(column.edges for column in columns)
        measures = {"violation": model.violation_metric}
        measures |= {name: name for name in GROUP_MEASURES if name != "violation"}
        self.settings = {
            column: make_regression_tabulator(
                measure,
                split.sensitive_features,
                notion,
                model.groups,
                split.X,
                Binning(model.continuous, self.edges),
                self.given_weight,
            )
            for column, measure in measures.items()
        }

    def outputs(self, models: Sequence[FairRegressor]) -> Iterator[FloatArray]:
        """Yield the predictions of several models."""
        return (model.predict(self.X) for model in models)

    def __call__(self, model: FairRegressor, prediction: FloatArray) -> dict[str, Any]:
        """Return the measures of a model with these predictions."""
        error = float(np.average((self.y - prediction) ** 2, weights=self.weight))
        mean = np.average(self.y, weights=self.weight)
        spread = float(np.average((self.y - mean) ** 2, weights=self.weight))
        violations = {
            column: setting.violation(prediction)
            for column, setting in self.settings.items()
        }
        low, high = self.settings["violation"].interval(prediction, CONFIDENCE, N_DRAWS)
        return {
            "accuracy": 1 - error / spread if spread > 0 else np.nan,
            **violations,
            # A number is no decision, so that there is one violation only.
            "soft_violation": violations["violation"],
            "loss": error,
            "divergence": max(
                f_information(
                    prediction[rows],
                    group,
                    weight=take(self.given_weight, rows),
                    divergence=self.divergence,
                )
                for group, rows in self.settings["mean_gap"].parts
            ),
            "collapsed": bool(np.ptp(prediction) == 0),
            "result": model.result_.name,
            **self._explained(prediction, error, spread),
            "violation_low": low,
            "violation_high": high,
        }

    def _explained(
        self, prediction: FloatArray, error: float, spread: float
    ) -> dict[str, float]:
        # The interval of the mean squared error, as a share of the variance of y.
        share = self.weight / self.weight.sum()
        squares = (self.y - prediction) ** 2
        deviation = np.sqrt(np.sum((share * (squares - error)) ** 2))
        half = norm.ppf((1 + CONFIDENCE) / 2) * deviation
        ends = (error + half, error - half)
        if not spread > 0:
            return dict.fromkeys(("accuracy_low", "accuracy_high"), np.nan)
        low, high = (float(1 - end / spread) for end in ends)
        return {"accuracy_low": low, "accuracy_high": min(high, 1.0)}
