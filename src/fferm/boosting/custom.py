"""The objective as a function that LightGBM and XGBoost take in their own training."""

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fferm._typing import FloatArray, Table
from fferm.boosting.newton import Descent
from fferm.boosting.objective import Gradients, ScoreObjective
from fferm.data.groups import GroupMode
from fferm.data.rows import Rows, encode_rows
from fferm.data.validate import check_number, encode_labels
from fferm.divergences import Divergence
from fferm.errors import InvalidInputError
from fferm.notions import Labels, Notion
from fferm.penalty.objective import Objective, Penalty, make_objective
from fferm.uncertainty import Uncertainty

# Outputs of leaves nearer than this, relative to the scores, are one: XGBoost keeps
# scores in single precision.
SAME_SINGLE = 1e-6


def boosting_objective(
    y: Table,
    sensitive_features: Table,
    *,
    divergence: str | Divergence = "kl",
    notion: str | Notion = "demographic_parity",
    fairness_weight: float | None = None,
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
        (n_samples,) labels of the training rows as in the training data: codes
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
        ``xgboost.train``. Make one for each training call.

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
    if fairness_weight is not None:
        check_number("fairness_weight", fairness_weight)
    objective = make_objective(
        divergence,
        notion,
        uncertainty,
        fairness_weight=fairness_weight,
        sharpness=check_number("sharpness", sharpness, above=True),
    )
    rate = check_number("learning_rate", learning_rate, above=True)
    codes = np.asarray(y)
    classes = np.unique(codes)
    is_coded = np.array_equal(classes, np.arange(max(classes.size, 2)))
    if codes.ndim != 1 or not is_coded:
        raise InvalidInputError(
            "y must hold one class code per row, 0, 1, ..., each in some row; got "
            f"shape {codes.shape} and {classes[:5].tolist()}. Encode other labels."
        )
    labels = encode_labels(codes, codes.size, tuple(classes.tolist()), "y")
    rows = encode_rows(sensitive_features, objective.notion, labels, X, how=groups)
    if objective.fairness_weight > 0:
        Penalty(objective, rows).check_comparable()
    # A copy, because codes may be the caller's array and are read much later.
    rows = copy.deepcopy(rows)
    return BoostingObjective(objective, labels, rows, bool(calibrated), rate)


@dataclass(eq=False, repr=False)
class BoostingObjective:
    """Gradient and curvature of loss and penalty, by raw scores."""

    _objective: Objective
    _labels: Labels
    _rows: Rows
    is_calibrated: bool
    learning_rate: float
    _bound: ScoreObjective | None = None
    _measured: ScoreObjective | None = None
    _descent: Descent | None = None
    _last: FloatArray | None = None

    def __call__(self, scores: FloatArray, data: Any) -> Gradients:
        """Return gradient and curvature in the shape of the scores.

        Parameters
        ----------
        scores
            (n_samples,) or (n_samples, n_classes) raw scores.
        data
            The training data: a ``Dataset`` of LightGBM or a ``DMatrix`` of XGBoost.
        """
        if self._bound is None:
            self._bound = self._bind(data)
        shape, shaped = np.shape(scores), self._shaped(self._bound, scores)
        if self._descent is None or self._last is None:
            self._descent = Descent(self._bound, shaped, self.is_calibrated)
            self._last = np.zeros_like(shaped)
        else:
            self._descent.restart(shaped)
        # The next tree is not there yet; the leaves of the last one stand for it.
        bound, at = self._bound, self._descent.at
        _, sums = bound.gather(at, self._last, shaped, SAME_SINGLE)
        step = self._descent.newton_step(sums, self.learning_rate)
        gradient, diagonal = bound.gradients(at, step.payoff)
        return gradient.T.reshape(shape), diagonal.T.reshape(shape)

    def value(self, scores: FloatArray, data: Any) -> float:
        """Return loss plus penalty at raw scores, at the table of probabilities."""
        # Not the one that trains: a pass over the rows overwrites that of the last.
        if self._measured is None:
            self._measured = self._bind(data)
        return self._measured.value(self._shaped(self._measured, scores))

    def _shaped(self, bound: ScoreObjective, scores: FloatArray) -> FloatArray:
        shaped = np.asarray(scores, dtype=np.float64)
        expected = (bound.y.size, bound.n_scores)
        if shaped.size != expected[0] * expected[1]:
            raise InvalidInputError(
                f"Scores must have shape {expected}, as the objective; got "
                f"{shaped.shape}. With more than two classes, pass num_class too."
            )
        return np.ascontiguousarray(shaped.reshape(expected).T)

    def _bind(self, data: Any) -> ScoreObjective:
        y = self._labels.y
        label = np.asarray(data.get_label())
        if y is None or not np.array_equal(label, y):
            raise InvalidInputError(
                f"The training data have {label.size} labels that are not those of y. "
                "Make the objective with the training rows, in the same order."
            )
        weight = data.get_weight()
        weights = np.ones(y.size)
        if weight is not None and np.size(weight):
            weights = np.asarray(weight, dtype=np.float64)
        rows = replace(self._rows, weight=weights)
        classes = self._labels.classes
        penalty = Penalty(self._objective, rows, classes)
        penalty.check_comparable()
        return ScoreObjective(self._objective, y, weights, len(classes), penalty)
