"""Predictions of any kind in the place of a model: boosters, functions, arrays."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import type_of_target

from fferm._typing import FloatArray, Table
from fferm.data.rows import check_aligned
from fferm.data.validate import (
    factorize,
    is_table,
    plain_labels,
    read_array,
    reason_of,
)
from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
    import_extra,
)
from fferm.registry import kind_of

# How XGBoost and LightGBM call objectives whose predictions are probabilities.
PROBABLE = ("binary", "multi", "cross_entropy", "xentropy")
# Objectives whose predictions are numbers.
NUMERIC = ("reg", "rank", "count", "quantile", "huber", "fair", "poisson", "mape")


@dataclass(eq=False)
class Decisions(ClassifierMixin, BaseEstimator):
    """Decisions about known rows, perhaps with probabilities."""

    decided: NDArray[Any]
    classes_: Sequence[Any]
    prob: FloatArray | None = None
    # How many rows each stands for, if `AuditCounts` were made of them.
    counts: Any = None

    def predict(self, X: Table) -> NDArray[Any]:
        """Return the decisions, whatever the rows."""
        return self.decided

    def __getattr__(self, name: str) -> Any:
        """Have ``predict_proba`` only with probabilities."""
        if name == "predict_proba" and self.__dict__.get("prob") is not None:
            return lambda X: self.prob
        raise AttributeError(name)


@dataclass(eq=False)
class Numbers(RegressorMixin, BaseEstimator):
    """Predicted numbers of known rows."""

    predicted: FloatArray

    def predict(self, X: Table) -> FloatArray:
        """Return the numbers, whatever the rows."""
        return self.predicted


def read_predictions(
    estimator: Any, X: Table, y: Table, y_true: Table, y_pred: Table, y_prob: Table
) -> tuple[Any, Table, Table]:
    """Return something with ``predict``, the rows it is asked about, and labels."""
    passed = [each is not None for each in (y_true, y_pred, y_prob)]
    if estimator is not None and any(passed):
        raise InvalidParameterError(
            "Pass a model with X and y, or y_true with y_pred or y_prob; got both."
        )
    is_lacking = X is None
    if estimator is None:
        is_lacking = y is not None or not any(passed[1:])
    if is_lacking:
        raise InvalidInputError(
            "audit needs a fitted model with X and y, or y_true with y_pred or y_prob."
        )
    if estimator is None:
        check_aligned(are_equal=True, y_true=y_true, y_pred=y_pred, y_prob=y_prob)
        made = _read(y_true, y_pred, y_prob)
        return (
            made,
            (y_pred if y_pred is not None else y_prob) if X is None else X,
            y_true,
        )
    module = type(estimator).__module__.partition(".")[0]
    if module in ("lightgbm", "xgboost") and type(estimator).__name__ == "Booster":
        return _interpret(ask_booster(estimator, X, module), y), X, y
    is_made = not isinstance(estimator, type)
    if is_made and hasattr(estimator, "predict"):
        return estimator, X, y
    if is_made and callable(estimator):
        return _interpret(estimator(X), y), X, y
    raise InvalidTypeError(
        "estimator must be a fitted model with predict, a booster or a function; got "
        f"{kind_of(estimator)}."
    )


def _read(y_true: Table, y_pred: Table, y_prob: Table) -> Any:
    # Predictions that a user passed.
    if y_prob is None and _is_numeric(y_true, y_pred):
        return Numbers(np.asarray(read_array(y_pred, "y_pred"), dtype=np.float64))
    _refuse_other_labels(y_true, y_pred)
    if y_prob is None:
        return Decisions(read_array(plain_labels(y_pred), "y_pred"), ())
    classes = sort_labels(y_true, y_pred)
    prob = make_probabilities(y_prob, classes)
    decided = None if y_pred is None else read_array(plain_labels(y_pred), "y_pred")
    if decided is None:
        decided = label_array(classes)[prob.argmax(axis=1)]
    return Decisions(decided, classes, prob)


def _refuse_other_labels(y_true: Table, y_pred: Table) -> None:
    if y_true is None or y_pred is None:
        return
    seen, decided = (factorize(part, "y")[1] for part in (y_true, y_pred))
    if min(len(seen), len(decided)) > 1 and not {*seen} & {*decided}:
        raise InvalidInputError(
            f"y_pred must hold labels of y_true, such as {seen[0]!r}; got "
            f"{decided[0]!r} and no label that both have. Pass other predictions."
        )


def _interpret(predicted: Any, y: Table) -> Any:
    # What a function or a booster returned: probabilities, numbers or labels.
    values = read_array(predicted, "The prediction")
    if values.ndim == 2 or _is_share(values):
        if values.ndim == 1 and _is_numeric(y, None):
            return Numbers(values.astype(np.float64))
        classes = sort_labels(y, None)
        prob = make_probabilities(values, classes)
        return Decisions(label_array(classes)[prob.argmax(axis=1)], classes, prob)
    if values.dtype.kind == "f" and _is_numeric(y, values):
        return Numbers(values.astype(np.float64))
    return Decisions(values, ())


def ask_booster(booster: Any, X: Table, module: str) -> Any:
    """Return what a booster of xgboost or lightgbm predicts."""
    if module == "xgboost":
        xgboost = import_extra("xgboost", "xgboost")
        config = json.loads(booster.save_config())
        objective = config["learner"]["learner_train_param"]["objective"]
        is_frame = is_table(X)
        X = xgboost.DMatrix(X, enable_categorical=is_frame)
    else:
        objective = str(booster.params.get("objective") or _lightgbm_objective(booster))
    known = (*PROBABLE, *NUMERIC)
    if not objective.startswith(known) or objective.endswith("raw"):
        raise InvalidInputError(
            f"The booster has the objective {objective!r}, whose scores are neither "
            "probabilities nor numbers to predict. Pass y_true and y_prob, or y_pred."
        )
    return booster.predict(X)


def _lightgbm_objective(booster: Any) -> str:
    lines = booster.model_to_string(num_iteration=1).splitlines()
    named = [line[10:].split(" ")[0] for line in lines if line.startswith("objective=")]
    return named[0] if named else "custom"


def _is_numeric(y: Table, predicted: Table) -> bool:
    parts = [part for part in (y, predicted) if part is not None]
    return any(
        type_of_target(read_array(plain_labels(part), "y")) == "continuous"
        for part in parts
    )


def _is_share(values: NDArray[Any]) -> bool:
    # Probabilities of the second class, not labels 0 and 1.
    is_float = values.ndim == 1 and values.dtype.kind == "f"
    inside = is_float and bool(np.all((values >= 0) & (values <= 1)))
    return inside and bool(np.any(values % 1))


def sort_labels(y: Table, y_pred: Table) -> list[Any]:
    """Return the labels of both in order, 0 and 1 if there is one alone of them."""
    parts = [part for part in (y, y_pred) if part is not None]
    known = {label for part in parts for label in factorize(part, "y_true")[1]}
    return sorted(known) if known and known not in ({0}, {1}) else [0, 1]


def label_array(classes: list[Any]) -> NDArray[Any]:
    """Return labels as an array of objects."""
    labels = np.empty(len(classes), dtype=object)
    labels[:] = classes
    return labels


def make_probabilities(prob: Table, classes: list[Any]) -> FloatArray:
    """Return one column of probabilities per class."""
    try:
        values = np.asarray(prob, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"y_prob must hold numbers between 0 and 1 ({reason_of(error)}). Pass "
            "labels as y_pred."
        ) from error
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 1 and len(classes) == 2:
        values = np.column_stack([1 - values, values])
    if values.ndim != 2 or values.shape[1] != len(classes):
        raise InvalidInputError(
            f"y_prob must have one column per class, {classes!r}, in this order; got "
            f"shape {np.shape(prob)}."
        )
    return values
