"""The estimators that ``--model`` stands for."""

from typing import Any, cast

import fferm
from fferm.cli.options import ModelKind
from fferm.errors import InvalidParameterError
from fferm.estimators.base import FairClassifier

CLASSES = {
    ModelKind.linear: "FairLogisticRegression",
    ModelKind.net: "FairNetClassifier",
    ModelKind.boosting: "FairBoostingClassifier",
}


def make_estimator(kind: ModelKind, **options: Any) -> FairClassifier:
    """Return an unfitted estimator, after checking its options."""
    try:
        chosen = getattr(fferm, CLASSES[kind])
    except AttributeError as error:
        raise InvalidParameterError(
            f"--model {kind} came, and this version of fferm has no {CLASSES[kind]}. "
            "Use --model linear or --model net."
        ) from error
    estimator = cast(FairClassifier, chosen(**options))
    estimator._objective()  # names and ranges, before any file is read
    return estimator
