"""The objective as a function that LightGBM and XGBoost take in their own training."""

import copy
from numbers import Real
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fferm._typing import FloatArray, Table
from fferm.boosting.descent import Descent
from fferm.boosting.leaves import newton_step
from fferm.boosting.scores import ScoreObjective
from fferm.data.groups import GroupMode
from fferm.data.rows import control_labels, encode_rows
from fferm.data.validate import encode_labels
from fferm.divergences import Divergence
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.notions import Labels, Notion
from fferm.penalty.objective import Objective, Penalty, make_objective
from fferm.uncertainty import Uncertainty

# Outputs of leaves nearer than this, relative to the scores, are one: XGBoost keeps
# scores in single precision.
SAME_SINGLE = 1e-6


class LabelledData(Protocol):
    """What both libraries hand to an objective: ``Dataset`` or ``DMatrix``."""

    def get_label(self) -> NDArray[np.float32]:
        """Return the labels, class codes."""

    def get_weight(self) -> NDArray[np.float32] | None:
        """Return the weights; None, or nothing, where there are none."""


def boosting_objective(
    y: Table,
    sensitive_features: Table,
    *,
    divergence: str | Divergence = "kl",
    notion: str | Notion = "demographic_parity",
    fairness_weight: float = 1.0,
    sharpness: float = 1.5,
    calibrated: bool = True,
    groups: GroupMode = "intersection",
    uncertainty: Uncertainty | None = None,
    learning_rate: float = 0.1,
    X: Table = None,
) -> "BoostingObjective":
    """Return an objective for a training call of LightGBM or XGBoost.

    The libraries set the values of leaves themselves, one by one, so that steps are not
    tried before they are taken, as those of `FairBoostingClassifier` are. What keeps
    them from overshooting the gap together is the multiplier of a Newton step over the
    leaves of the last tree, in place of the payoff.

    Parameters
    ----------
    y
        (n_samples,) labels of the training rows, as the training data hold them: codes
        ``0 .. n_classes - 1``.
    sensitive_features
        Groups of the training rows, in any form that `fit` takes.
    divergence, notion, fairness_weight, sharpness, calibrated, groups, uncertainty
        As in `FairBoostingClassifier`.
    learning_rate
        That of the training call. Steps are short for the loss and whole for the gap
        between groups, and what is whole depends on it.
    X
        The features, for a notion that names one as its control feature.

    Returns
    -------
    BoostingObjective
        A function of raw scores and training data that returns gradient and curvature.
        Pass it as ``params["objective"]`` to ``lightgbm.train``, as ``obj`` to
        ``xgboost.train``. It serves one training call.

    Examples
    --------
    >>> import lightgbm
    >>> from fferm import boosting_objective
    >>> from fferm.datasets import make_biased
    >>> data = make_biased(random_state=0)
    >>> fair = boosting_objective(data.y, data.sensitive_features, fairness_weight=3)
    >>> booster = lightgbm.train(
    ...     {"objective": fair, "verbose": -1, "num_threads": 1},
    ...     lightgbm.Dataset(data.X, data.y), num_boost_round=20,
    ... )
    """
    objective = make_objective(
        divergence,
        notion,
        uncertainty,
        fairness_weight=_number("fairness_weight", fairness_weight, above=False),
        sharpness=_number("sharpness", sharpness),
    )
    codes = np.asarray(y)
    if codes.ndim != 1 or not codes.size:
        raise InvalidInputError(
            f"y has shape {codes.shape}. Expected one class code per row."
        )
    classes = np.unique(codes)
    if not np.array_equal(classes, np.arange(max(classes.size, 2))):
        raise InvalidInputError(
            f"y holds {classes[:5].tolist()}. Expected class codes 0, 1, ..., each of "
            "them in some row: neither library takes other labels."
        )
    labels = encode_labels(codes, codes.size, tuple(classes.tolist()), "y")
    found = BoostingObjective(objective, labels, sensitive_features, groups, X)
    found.is_calibrated = bool(calibrated)
    found.learning_rate = _number("learning_rate", learning_rate)
    return found


class BoostingObjective:
    """Gradient and curvature of loss and penalty, by raw scores."""

    def __init__(
        self,
        objective: Objective,
        labels: Labels,
        sensitive_features: Table,
        groups: GroupMode,
        X: Table = None,
    ) -> None:
        control, names = control_labels(objective.notion, X, labels.n_samples)
        self._labels = Labels(
            labels.n_samples, labels.y, labels.classes, control, names
        )
        # A copy, for codes may be the caller's own array, and are read much later.
        self._rows = copy.deepcopy(
            encode_rows(sensitive_features, objective.notion, self._labels, how=groups)
        )
        self._objective = objective
        if objective.fairness_weight > 0:
            Penalty(objective, self._rows).check_comparable()
        self.is_calibrated = True
        self.learning_rate = 0.1
        self._bound: ScoreObjective | None = None
        self._descent: Descent | None = None
        self._last: FloatArray | None = None

    def __call__(
        self, scores: FloatArray, data: LabelledData
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return gradient and curvature in the shape of the scores."""
        if self._bound is None:
            self._bound = self._bind(data)
        shape, found = np.shape(scores), self._shaped(self._bound, scores)
        if self._descent is None or self._last is None:
            self._descent = Descent(self._bound, found, self.is_calibrated)
            self._last = np.zeros_like(found)
        else:
            self._descent.restart(found)
        payoff = self._multiplier(self._descent, self._last, found)
        gradient, diagonal = self._descent.aim(payoff)
        return gradient.T.reshape(shape), diagonal.T.reshape(shape)

    def value(self, scores: FloatArray, data: LabelledData) -> float:
        """Return loss plus penalty at raw scores, the table as it is."""
        bound = self._bound or self._bind(data)
        return bound.value(bound.at(self._shaped(bound, scores)))

    def _multiplier(
        self, descent: Descent, last: FloatArray, scores: FloatArray
    ) -> FloatArray:
        # The next tree is not there yet; the leaves of the last one stand for its own.
        _, sums = descent.gather(last, scores, SAME_SINGLE)
        return newton_step(sums, descent.bowl(), self.learning_rate).payoff

    def _shaped(self, bound: ScoreObjective, scores: FloatArray) -> FloatArray:
        found = np.asarray(scores, dtype=np.float64)
        expected = (self._labels.n_samples, bound.link.n_scores)
        if found.size != expected[0] * expected[1]:
            raise InvalidInputError(
                f"Scores of shape {found.shape} came. Expected {expected}: the rows "
                "that the objective was made of, and num_class in the training call "
                "where there are more than two classes."
            )
        return np.ascontiguousarray(found.reshape(expected).T)

    def _bind(self, data: LabelledData) -> ScoreObjective:
        y = self._labels.y
        given = np.asarray(data.get_label())
        if y is None or not np.array_equal(given, y):
            raise InvalidInputError(
                f"The training data have {given.size} labels that are not those of y. "
                "Make the objective of the rows that it is trained on, in their order."
            )
        weight = data.get_weight()
        weights = np.ones(y.size)
        if weight is not None and np.size(weight):
            weights = np.asarray(weight, dtype=np.float64)
        rows = type(self._rows)(self._rows.attributes, self._rows.strata, weights)
        classes = self._labels.classes
        penalty = Penalty(self._objective, rows, classes)
        penalty.check_comparable()
        return ScoreObjective(self._objective, y, weights, len(classes), penalty)


def _number(name: str, value: object, *, above: bool = True) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    number = float(value) if is_number else np.nan  # type: ignore[arg-type]
    if np.isfinite(number) and (number > 0 or (number == 0 and not above)):
        return number
    bound = "above" if above else "of at least"
    raise InvalidParameterError(
        f"{name}={value!r} came. Expected a finite number {bound} 0."
    )
