"""How a linear model is trained: by which solver, from where, on which rows."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from fferm import solvers
from fferm._types import FloatArray
from fferm.data import FairRows
from fferm.errors import FfermWarning, InvalidInputError, InvalidParameterError
from fferm.estimators.base import FitInput
from fferm.estimators.bounds import read_fraction
from fferm.estimators.holdout import hold_out, kinds, weigh
from fferm.estimators.validation import TrainingData, check_number, check_whole
from fferm.objective import Objective, Problem
from fferm.solvers.linear import parameter_shape

if TYPE_CHECKING:
    from fferm.estimators.linear import FairLogisticRegression

STOPPING = (None, "objective", "validation")


def solver_name(
    model: "FairLogisticRegression",
    objective: Objective,
    size: int,
    weights: Sequence[float],
) -> str:
    """Return the solver for these fairness weights on ``size`` numbers in X."""
    solvers.check_name(model.solver)
    if model.early_stopping not in STOPPING:
        raise InvalidParameterError(
            f"early_stopping={model.early_stopping!r} came. Expected None, "
            "'objective' or 'validation'."
        )
    if model.early_stopping is None:
        if model.solver != "auto":
            return model.solver
        return solvers.choose(objective, size, weights)
    if model.solver == "lbfgs":
        raise InvalidParameterError(
            f"early_stopping={model.early_stopping!r} came with solver='lbfgs', "
            "which stops at the optimum. Use solver='sgda', 'semi_stochastic' or "
            "'sreda', or early_stopping=None."
        )
    if model.solver != "auto":
        return model.solver
    has_table_only = objective.uncertainty or objective.notion.is_sufficiency
    return "semi_stochastic" if has_table_only else "sgda"


def make_solver(
    model: "FairLogisticRegression", name: str, judged_on: Problem | None = None
) -> solvers.Solver[Any]:
    """Return a solver with the options that a model gives it.

    Options of None are left to the solver.
    """
    options: dict[str, Any] = {
        "tol": check_number("tol", model.tol, above=True),
        "max_iter": check_whole("max_iter", model.max_iter),
        "dual_lr": check_number("dual_learning_rate", model.dual_learning_rate),
        "dual": model.dual,
        "fit_intercept": bool(model.fit_intercept),
    }
    for option in ("batch_size", "max_epochs", "refresh_every"):
        if getattr(model, option) is not None:
            options[option] = check_whole(option, getattr(model, option))
    if model.learning_rate is not None:
        rate = check_number("learning_rate", model.learning_rate, above=True)
        options["lr"] = rate
    if name != "lbfgs":
        generator = check_random_state(model.random_state)
        options["seed"] = int(generator.randint(2**31 - 1))
    if model.early_stopping is not None:
        options["patience"] = check_whole("patience", model.patience)
        options["judged_on"] = judged_on
    return solvers.make(name, options)


def split_rows(
    model: "FairLogisticRegression",
    given: FitInput,
    data: TrainingData,
    rows: FairRows | None,
) -> tuple[TrainingData, Problem, FairRows | None, Problem]:
    """Return rows to train on, and the problem that early stopping judges by."""
    kind = data.y
    if rows is not None and given.penalty_data is None:
        kind = kinds(rows, data.y)
    held = hold_out(kind, read_fraction(model), model.random_state)
    with warnings.catch_warnings():
        # All rows together have said what there is to say.
        warnings.simplefilter("ignore", FfermWarning)
        judged_on = model._encode(weigh(given, data, held))[1]
        return *model._encode(weigh(given, data, ~held)), judged_on


def warm_parameters(
    model: "FairLogisticRegression", problem: Problem, data: TrainingData
) -> FloatArray | None:
    """Return the parameters of the last fit, None where there was none."""
    if not hasattr(model, "coef_"):
        return None
    theta = model._parameters()
    is_same = np.array_equal(model.classes_, data.classes)
    if not is_same or theta.shape != parameter_shape(problem):
        raise InvalidInputError(
            f"warm_start found {model.coef_.shape[1]} features and classes "
            f"{model.classes_.tolist()}, the data have {problem.X.shape[1]} and "
            f"{data.classes.tolist()}. Fit with warm_start=False."
        )
    return theta
