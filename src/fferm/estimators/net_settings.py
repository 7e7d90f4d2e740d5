"""What the parameters of a `FairNetClassifier` mean, checked against the data."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from fferm._typing import FloatArray
from fferm.data.groups import take_rows
from fferm.data.rows import FitInput, Rows
from fferm.data.split import hold_out, kinds
from fferm.data.validate import TrainingData, check_number, check_whole
from fferm.errors import InvalidInputError, InvalidParameterError, InvalidTypeError
from fferm.penalty.objective import Problem
from fferm.torch import recipes
from fferm.torch.critic_penalties import CriticPlan
from fferm.torch.table_penalties import check_solver

if TYPE_CHECKING:
    from fferm.estimators.net import FairNetClassifier


def make_recipe(model: "FairNetClassifier", problem: Problem) -> recipes.Recipe:
    """Return how a model wants to be trained."""
    device = recipes.find_device(model.device)
    check_solver(model.solver, problem.objective)
    _check_stopping(model, problem)
    n_rows, n_features = problem.X.shape
    generator = check_random_state(model.random_state)
    return recipes.Recipe(
        batch_size=min(check_whole("batch_size", model.batch_size), n_rows),
        n_epochs=_whole_or_none("max_epochs", model.max_epochs),
        learning_rate=_learning_rate(model),
        weight_decay=check_number("weight_decay", model.weight_decay),
        optimizer=recipes.check_optimizer(model.optimizer),
        schedule=recipes.check_schedule(model.schedule),
        solver=model.solver,
        refresh_every=_whole_or_none("refresh_every", model.refresh_every),
        is_stopped_early=model.early_stopping is not None,
        patience=check_whole("patience", model.patience),
        device=device,
        dtype=recipes.find_dtype(model.dtype, n_rows * n_features, device),
        seed=int(generator.randint(2**31 - 1)),
        checkpoints=None if model.checkpoint is None else str(model.checkpoint),
        callbacks=_check_callbacks(model.callbacks),
    )


def make_critic(
    model: "FairNetClassifier",
    given: FitInput,
    data: TrainingData,
    problem: Problem,
    rows: Rows | None,
) -> CriticPlan | None:
    """Return what critics look at, None where the dual is a table."""
    if model.method not in ("table", "critic"):
        raise InvalidParameterError(
            f"method={model.method!r} came. Expected 'table' or 'critic'."
        )
    if model.method == "table":
        return None
    objective = problem.objective
    is_linear = objective.uncertainty is None and not objective.notion.is_sufficiency
    if not is_linear or model.solver == "semi_stochastic":
        raise InvalidParameterError(
            "method='critic' descends and ascends on minibatches, without uncertainty, "
            "sufficiency or solver='semi_stochastic'. Use method='table' for these."
        )
    if model.batch_size == 1:
        raise InvalidParameterError(
            "batch_size=1 came. A critic compares pairs; expected batches of two rows."
        )
    if rows is None:
        return None
    kept, sensitive = np.flatnonzero(data.kept), given.sensitive_features
    if given.penalty_data is not None:
        sensitive, kept = given.penalty_data[1], np.arange(len(rows.weight))
    return CriticPlan(take_rows(sensitive, kept), model.continuous)


def loss_weight(
    class_weight: Mapping[Any, float] | str | None, data: TrainingData
) -> FloatArray:
    """Return the weights of rows in the loss: those of samples times those of classes.

    The penalty knows nothing of class weights: rates are what they are.
    """
    if class_weight is None:
        return data.weight
    labels = data.classes.tolist()
    if isinstance(class_weight, str) and class_weight == "balanced":
        mass = np.bincount(data.y, weights=data.weight)
        return np.asarray(data.weight * (mass.mean() / mass)[data.y])
    if not isinstance(class_weight, Mapping):
        raise InvalidParameterError(
            f"class_weight={class_weight!r} came. Expected None, 'balanced' or a dict "
            "of weights by label."
        )
    strange = [label for label in class_weight if label not in labels]
    if strange:
        raise InvalidParameterError(
            f"class_weight names {strange[0]!r}, which is no label of y. Labels: "
            f"{', '.join(map(repr, labels))}."
        )
    by_class = [
        check_number("class_weight", class_weight.get(label, 1.0)) for label in labels
    ]
    if not any(by_class):
        raise InvalidParameterError(
            "Every class_weight is 0. Expected at least one positive weight."
        )
    return np.asarray(data.weight * np.array(by_class)[data.y])


def held_out(
    model: "FairNetClassifier", data: TrainingData, rows: Rows | None
) -> NDArray[np.bool_] | None:
    """Return which rows early stopping is judged by, None where it needs none."""
    if model.early_stopping != "validation":
        return None
    fraction = check_number(
        "validation_fraction", model.validation_fraction, above=True
    )
    kind = data.y if rows is None else kinds(rows, data.y)
    held = hold_out(kind, min(fraction, 1.0), model.random_state)
    if not held.any():
        raise InvalidInputError(
            f"early_stopping='validation' can hold out none of {held.size} rows: no "
            "two are of the same label and group. Use 'objective', or more rows."
        )
    return held


def _check_stopping(model: "FairNetClassifier", problem: Problem) -> None:
    if model.early_stopping not in (None, "objective", "validation"):
        raise InvalidParameterError(
            f"early_stopping={model.early_stopping!r} came. Expected None, 'objective' "
            "or 'validation'."
        )
    if model.early_stopping == "validation" and problem.penalty_X is not None:
        raise InvalidParameterError(
            "early_stopping='validation' holds out training rows, and the penalty is "
            "taken on penalty_data. Use early_stopping='objective'."
        )


def _check_callbacks(callbacks: Any) -> tuple[Any, ...]:
    try:
        found = tuple(callbacks)
    except TypeError as error:
        raise InvalidTypeError(
            f"callbacks={callbacks!r} came. Expected a list of functions of a record."
        ) from error
    for callback in found:
        if not callable(callback):
            raise InvalidTypeError(
                f"callbacks holds {callback!r}. Expected functions of a record, a dict "
                "of numbers; one that returns True stops training."
            )
    return found


def _learning_rate(model: "FairNetClassifier") -> float:
    if model.learning_rate is not None:
        return check_number("learning_rate", model.learning_rate, above=True)
    size = check_whole("batch_size", model.batch_size)
    return recipes.BASE_RATE * float(np.sqrt(size / recipes.BASE_SIZE))


def _whole_or_none(name: str, value: object) -> int | None:
    return None if value is None else check_whole(name, value)
