"""Audits of rows: by a model, or of predictions that a table already holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fferm
from fferm.auditing import Audit, audit_regression
from fferm.cli.options import TaskKind
from fferm.cli.sources import drop_unlabelled, read_table
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.estimators.frame import (
    FrameModel,
    FrameRegressor,
    is_quantity,
    label_text,
    target_numbers,
)


@dataclass(frozen=True)
class Given:
    """A table that holds predictions, and the names of its columns."""

    path: str
    prediction: str
    target: str | None
    sensitive: Sequence[str] | None


class _Fixed:
    """An estimator that predicts what a table says."""

    def __init__(self, decisions: NDArray[Any], classes: NDArray[Any]) -> None:
        self.decisions, self.classes_ = decisions, classes

    def predict(self, X: object) -> NDArray[Any]:
        """Return the decisions."""
        return self.decisions


def measure(
    model: FrameModel,
    rows: pd.DataFrame,
    notion: str | None = None,
    metric: str | None = None,
) -> Audit:
    """Return what a model does to each group of some rows."""
    is_number = isinstance(model, FrameRegressor)
    _check_options(is_number, notion, metric)
    if not is_number:
        return fferm.audit(
            model,
            rows,
            model.labels(rows),
            sensitive_features=model.groups(rows),
            notion=notion,
        )
    return audit_regression(
        model,
        rows,
        model.labels(rows),
        sensitive_features=model.sensitive_values(rows),
        groups=model.estimator_.groups,
        metric=metric,
    )


def measure_given(
    given: Given, task: TaskKind, notion: str | None, metric: str | None
) -> Audit:
    """Return what the predictions of a table do to each of its groups."""
    if given.target is None or not given.sensitive:
        missing = "--target" if given.target is None else "--sensitive"
        raise InvalidParameterError(
            f"{missing} is missing. With --prediction, name the column, for example "
            f"{missing} NAME."
        )
    rows = read_table(Path(given.path))
    for name in (given.prediction, given.target, *given.sensitive):
        if name not in rows.columns:
            raise InvalidInputError(
                f"The data have no column {name!r}. Columns: "
                f"{', '.join(map(str, rows.columns))}."
            )
    rows = drop_unlabelled(rows, given.target)
    sensitive = rows[list(dict.fromkeys(given.sensitive))]
    truth, predicted = rows[given.target], rows[given.prediction]
    is_number = task is TaskKind.regression
    if task is TaskKind.auto:
        is_number = is_quantity(truth) or is_quantity(predicted)
    _check_options(is_number, notion, metric)
    if is_number:
        return audit_regression(
            None,
            target_numbers(predicted),
            target_numbers(truth),
            sensitive_features=sensitive,
            metric=metric,
        )
    decisions, labels = label_text(predicted), label_text(truth)
    model = _Fixed(decisions, np.unique([*decisions, *labels]))
    return fferm.audit(model, rows, labels, sensitive_features=sensitive, notion=notion)


def _check_options(is_number: bool, notion: str | None, metric: str | None) -> None:
    if is_number and notion is not None:
        raise InvalidParameterError(
            f"--notion {notion} came, and the predictions are numbers. Leave it out; "
            "--metric names a measure."
        )
    if not is_number and metric is not None:
        raise InvalidParameterError(
            f"--metric {metric} came, and the predictions are classes. Leave it out; "
            "--notion says what is compared."
        )
