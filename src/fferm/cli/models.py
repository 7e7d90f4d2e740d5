"""The estimators that ``--model`` and the target stand for."""

from typing import Any, cast

import fferm
from fferm.cli.options import ModelKind, TaskKind
from fferm.cli.sources import Source
from fferm.errors import InvalidParameterError
from fferm.estimators.base import FairEstimator
from fferm.estimators.frame import is_quantity
from fferm.estimators.regression import FairRegressor
from fferm.metrics.dependence import get_measure

CLASSES = {
    ModelKind.linear: "FairLogisticRegression",
    ModelKind.net: "FairNetClassifier",
    ModelKind.boosting: "FairBoostingClassifier",
}
# Widths of the hidden layers of a regression's network.
HIDDEN = (64, 64)


def is_regression(source: Source, task: TaskKind) -> bool:
    """Return whether the target of a table is to be predicted as a number."""
    if task is not TaskKind.auto or source.target not in source.frame.columns:
        return task is TaskKind.regression
    return is_quantity(source.frame[source.target])


def make_estimator(
    kind: ModelKind, regression: bool, metric: str | None, **options: Any
) -> FairEstimator:
    """Return an unfitted estimator, after checking its options."""
    if regression:
        return _make_regressor(kind, metric, options)
    if metric is not None:
        raise InvalidParameterError(
            f"--metric {metric} came, and the target has classes, whose violation is "
            "the largest difference of rates. Leave --metric out, or give --task "
            "regression."
        )
    try:
        chosen = getattr(fferm, CLASSES[kind])
    except AttributeError as error:
        raise InvalidParameterError(
            f"--model {kind} came, and this version of fferm has no {CLASSES[kind]}. "
            "Use --model linear or --model net."
        ) from error
    return _checked(cast(FairEstimator, chosen(**options)))


def _make_regressor(
    kind: ModelKind, metric: str | None, options: dict[str, Any]
) -> FairEstimator:
    if kind is ModelKind.boosting:
        raise InvalidParameterError(
            "--model boosting came, and the target holds numbers. Use --model linear "
            "or --model net; or --task classification, if the numbers are classes."
        )
    if options.pop("confident", False):
        raise InvalidParameterError(
            "--confident came, and a regressor's bound is kept on held-out rows "
            "without it. Leave it out here; `fferm audit --confident` judges the "
            "interval."
        )
    if metric is not None:
        get_measure(metric)
        options["violation_metric"] = metric
    hidden = HIDDEN if kind is ModelKind.net else None
    return _checked(FairRegressor(hidden=hidden, **options))


def _checked(estimator: FairEstimator) -> FairEstimator:
    estimator._objective()  # names and ranges, before any work
    return estimator
