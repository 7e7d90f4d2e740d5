"""The boundary between users' data and fair regression: numbers in, a problem out."""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fferm import losses
from fferm._types import FloatArray, IntArray, Table
from fferm.data import FairRows, check_aligned, control_labels, encode_rows
from fferm.errors import DataFairnessWarning, InvalidInputError, InvalidParameterError
from fferm.estimators.base import FitInput
from fferm.estimators.validation import (
    read_penalty_data,
    validate_features,
    validate_numbers,
)
from fferm.notions import Labels
from fferm.objective import Objective, Penalty
from fferm.regression import RegressionProblem

if TYPE_CHECKING:
    from fferm.estimators.regression import FairRegressor


@dataclass(frozen=True)
class NumberData:
    """Validated training data; rows of weight 0 are gone.

    Attributes
    ----------
    X
        (n_samples, n_features) float64, dense or CSR.
    y
        (n_samples,) numbers to predict.
    weight
        (n_samples,) positive weights, the largest between 1/2 and 1.
    kept
        (n_rows_given,) which rows are left.
    centre, scale
        Mean of y (0 without an intercept) and its standard deviation (1 if it is 0).
    """

    X: Table
    y: FloatArray
    weight: FloatArray
    kept: NDArray[np.bool_]
    centre: float
    scale: float

    @property
    def target(self) -> FloatArray:
        """(n_samples,) y as models are trained on it."""
        return (self.y - self.centre) / self.scale


@dataclass(frozen=True)
class Encoded:
    """Everything that training looks at."""

    data: NumberData
    problem: RegressionProblem
    rows: FairRows | None  # of the penalty, None without one

    @property
    def penalty_X(self) -> Table:  # noqa: N802 - X is mathematics
        """The features of the rows that the penalty is taken on."""
        shifted = self.problem.penalty_X
        return self.data.X if shifted is None else shifted


def encode(model: "FairRegressor", given: FitInput) -> Encoded:
    """Return validated data and the problem they pose, its bins not yet placed."""
    check_aligned(
        X=given.X,
        y=given.y,
        sensitive_features=given.sensitive_features,
        sample_weight=given.sample_weight,
    )
    objective, loss = model._objective(), losses.get(model.loss)
    data = read_numbers(model, given)
    shifted: Table = None
    rows = penalty = None
    if objective.fairness_weight > 0:
        _check_notion(objective)
        _check_rows(data)
        if given.penalty_data is None:
            rows = _own_rows(model, given, data, objective)
        else:
            shifted, rows = _other_rows(model, given, objective)
        penalty = Penalty(objective, rows)
        penalty.check_comparable()
    no_labels: IntArray = np.zeros(data.y.size, dtype=np.int64)
    share = data.weight / data.weight.sum()
    # Two classes make one output.
    parts = (objective, data.X, no_labels, share, 2, penalty, shifted)
    problem = RegressionProblem(*parts, target=data.target, loss_of=loss)
    return Encoded(data, problem, rows)


def read_numbers(model: "FairRegressor", given: FitInput) -> NumberData:
    """Return training data in the form that training takes."""
    X, y, weight, kept = validate_numbers(model, given.X, given.y, given.sample_weight)
    centre = float(np.average(y, weights=weight)) if model.fit_intercept else 0.0
    scale = float(np.sqrt(np.average((y - centre) ** 2, weights=weight)))
    # Of numbers that are all alike nothing is left but rounding.
    is_flat = not scale > 1e-12 * max(float(np.abs(y).max()), 1e-300)
    return NumberData(X, y, weight, kept, centre, 1.0 if is_flat else scale)


def _check_rows(data: NumberData) -> None:
    if data.y.size < 2:
        raise InvalidInputError(
            "X has 1 sample, which is fair whatever is predicted. Expected rows of two "
            "groups at least, or fairness_weight=0."
        )


def _check_notion(objective: Objective) -> None:
    notion = objective.notion
    if notion.needs_labels or notion.is_sufficiency:
        raise InvalidParameterError(
            f"notion={notion.name!r} conditions on a label, and y holds numbers. Use "
            "'demographic_parity', or ConditionalParity(control); given the target "
            "itself: ConditionalParity(pandas.qcut(y, 5, labels=False))."
        )


def _own_rows(
    model: "FairRegressor", given: FitInput, data: NumberData, objective: Objective
) -> FairRows:
    if given.sensitive_features is None:
        raise model._missing_sensitive()
    n_given = data.kept.size
    control, names = control_labels(objective.notion, given.X, n_given)
    weight = np.zeros(n_given)
    weight[data.kept] = data.weight
    rows = encode_rows(
        given.sensitive_features,
        objective.notion,
        Labels(n_given, None, (), control, names),
        how=model.groups,
        sample_weight=weight,
        cutting=model._cutting(given),
    )
    return rows if data.kept.all() else rows.take(data.kept)


def _other_rows(
    model: "FairRegressor", given: FitInput, objective: Objective
) -> tuple[Table, FairRows]:
    if given.sensitive_features is not None:
        warnings.warn(
            "sensitive_features of the training rows are not used: the penalty is "
            "taken on penalty_data. Leave one of them out.",
            DataFairnessWarning,
            stacklevel=4,
        )
    X, sensitive, *rest = read_penalty_data(given.penalty_data)
    if rest:
        raise InvalidInputError(
            "penalty_data has three parts. No notion of a regression looks at y; give "
            "(X, sensitive_features)."
        )
    shifted = validate_features(model, X)
    n_samples = shifted.shape[0]
    control, names = control_labels(objective.notion, X, n_samples)
    labels = Labels(n_samples, None, (), control, names)
    return shifted, encode_rows(
        sensitive,
        objective.notion,
        labels,
        how=model.groups,
        cutting=model._cutting(given),
    )
