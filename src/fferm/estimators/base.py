"""What every fair model shares: encoding, checks after training, prediction."""

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from fferm._types import FloatArray, IntArray, Table
from fferm.bands import BandEdges, Cutting
from fferm.columns import GroupMode
from fferm.data import FairRows, check_aligned, control_labels, encode_rows
from fferm.divergences import Divergence
from fferm.errors import (
    CollapseWarning,
    ConvergenceWarning,
    DataFairnessWarning,
    InvalidParameterError,
    MissingSensitiveError,
    WideShiftWarning,
)
from fferm.estimators.validation import (
    TrainingData,
    check_number,
    read_penalty_data,
    validate_features,
    validate_training,
)
from fferm.labels import encode_labels, shares
from fferm.notions import Labels, Notion
from fferm.objective import Objective, Penalty, Problem, make_objective
from fferm.solvers import Result
from fferm.uncertainty import Uncertainty


@dataclass(frozen=True)
class FitInput:
    """The arguments of `fit`, as they came."""

    X: Table
    y: Table
    sensitive_features: Table = None
    sample_weight: Table = None
    penalty_data: tuple[Table, ...] | None = None
    # Where bands of numbers meet, if they were cut before.
    edges: BandEdges = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """The fairness weight of a fit and, where a bound chose it, how it did."""

    fairness_weight: float
    violation: float | None = None
    is_feasible: bool | None = None


def probabilities(scores: FloatArray) -> FloatArray:
    """Return (n_samples, n_classes) probabilities of `decision_function`'s logits."""
    if scores.ndim == 1:
        return np.column_stack([expit(-scores), expit(scores)])
    return np.asarray(softmax(scores, axis=1), dtype=np.float64)


class FairEstimator(BaseEstimator, ABC):
    """What fair classifiers and fair regressors share."""

    # Halvings, in logarithm, of the last step of a search for the weight that keeps a
    # bound: a weight is then right to about one percent.
    search_halvings: ClassVar[int] = 6

    divergence: str | Divergence
    notion: str | Notion
    uncertainty: Uncertainty | None
    fairness_weight: float
    max_violation: float | None
    validation_fraction: float
    sharpness: float
    groups: GroupMode
    continuous: Sequence[str] | str = "auto"
    l2: float = 0.0  # networks have weight decay instead
    random_state: int | np.random.RandomState | None
    groups_: NDArray[Any]
    band_edges_: BandEdges
    dual_: FloatArray
    fairness_weight_: float
    violation_: float
    feasible_: bool
    result_: Result

    @abstractmethod
    def fit_path(
        self,
        given: FitInput,
        fairness_weights: Sequence[float],
        start: Self | None = None,
    ) -> Iterator[Self]:
        """Yield one fitted model per weight, each begun where the last one ended.

        The first begins at ``start``, a model fitted on the same data, if there is one.
        """

    def trains_together(self, given: FitInput) -> bool:
        """Return whether `fit_path` trains all its models at once."""
        return False

    def reaches_beyond(self) -> bool:
        """Return whether weights beyond the default range train well."""
        return True

    def continues_path(
        self, given: FitInput, fairness_weights: Sequence[float]
    ) -> bool:
        """Return whether `fit_path` can go on from one of its models.

        If so, a path of the weights that are left, begun at the model before them,
        yields what the whole path would have yielded.
        """
        return False

    def __sklearn_tags__(self) -> Any:
        """Say that sparse input is welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_fitted_features(self, X: Table) -> Table:
        check_is_fitted(self)
        return self._read_features(X)

    def _read_features(self, X: Table) -> Table:
        return validate_features(self, X)

    def _objective(self) -> Objective:
        if self.divergence == "auto":
            raise InvalidParameterError(
                "divergence='auto' is for FairLogisticRegression.fit. Name a "
                "divergence here, or choose one with fferm.tuning.tune."
            )
        return make_objective(
            self.divergence,
            self.notion,
            self.uncertainty,
            # Under a bound the search sets it; until then, some penalty there is.
            fairness_weight=check_number("fairness_weight", self.fairness_weight)
            if self.max_violation is None
            else 1.0,
            sharpness=check_number("sharpness", self.sharpness, above=True),
            l2=check_number("l2", self.l2),
        )

    def _missing_sensitive(self) -> MissingSensitiveError:
        asked, without = f"fairness_weight={self.fairness_weight!r}", ""
        if self.max_violation is not None:
            asked, without = f"max_violation={self.max_violation!r}", " without it"
        return MissingSensitiveError(
            f"{asked} asks for fairness and no sensitive_features came. Pass "
            "fit(X, y, sensitive_features=...), or set fairness_weight=0"
            f"{without} to train without fairness."
        )

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return parameters and learned attributes, of kinds that a file can hold."""
        learned = {
            name: value
            for name, value in vars(self).items()
            if name.endswith("_") and not name.startswith("_")
        }
        return self.get_params(deep=False), learned

    def _from_saved(self, learned: dict[str, Any]) -> None:
        """Take the learned attributes that `_to_saved` gave."""
        for name, value in learned.items():
            setattr(self, name, value)

    def _with_weight(self, fairness_weight: float) -> Self:
        """Return this model with another weight, to be given what is learned."""
        # Parameters are never changed in place, so none is copied: to clone twenty
        # models takes a fifth of the time to train them.
        model = copy.copy(self)
        model.fairness_weight = fairness_weight
        model._learn_weight(Choice(fairness_weight))
        return model

    def _cutting(self, given: FitInput) -> Cutting:
        return Cutting(self.continuous, given.edges)

    def _learn_groups(self, rows: FairRows | None) -> None:
        self.groups_ = np.array(rows.group_names if rows else (), dtype=object)
        self.band_edges_ = rows.band_edges if rows else {}

    def _learn_weight(self, choice: Choice) -> None:
        self.fairness_weight_ = choice.fairness_weight
        learned = {"violation_": choice.violation, "feasible_": choice.is_feasible}
        for name, value in learned.items():
            if value is not None:
                setattr(self, name, value)
            elif hasattr(self, name):  # an earlier fit was under a bound
                delattr(self, name)

    def _warn_of_result(self, result: Result) -> None:
        if not result.is_success:
            warnings.warn(
                f"{type(self).__name__}: {result.value}",
                ConvergenceWarning,
                stacklevel=4,
            )


class FairClassifier(ClassifierMixin, FairEstimator):
    """Base of the fair classifiers; a subclass trains and computes logits.

    Notes
    -----
    Learned attributes: ``classes_``, ``groups_`` (names, in the order of the last axis
    of the dual), ``band_edges_`` (where the bands of sensitive numbers meet, by column;
    audits and curves of the model cut there), ``dual_``, ``history_``, ``n_iter_``,
    ``result_``, ``n_features_in_``, ``fairness_weight_``, under ``max_violation`` also
    ``violation_`` and ``feasible_`` and, for data frames, ``feature_names_in_``.
    """

    confident: bool
    classes_: NDArray[Any]

    @abstractmethod
    def decision_function(self, X: Table) -> FloatArray:
        """Return the logits: (n_samples,) for two classes, else (n_samples, m)."""

    def predict(self, X: Table) -> NDArray[Any]:
        """Return the most probable class of each row.

        Parameters
        ----------
        X
            (n_samples, n_features). Groups are never needed to predict.
        """
        scores = self.decision_function(X)
        codes = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes.astype(np.int64)])

    def predict_proba(self, X: Table) -> FloatArray:
        """Return the (n_samples, n_classes) probabilities.

        Parameters
        ----------
        X
            (n_samples, n_features).
        """
        return probabilities(self.decision_function(X))

    @classmethod
    def scores_of(cls, models: Sequence[Self], X: Table) -> Iterator[FloatArray]:
        """Yield the logits of several models that were fitted on the same features."""
        for model in models:
            yield model.decision_function(X)

    def predict_log_proba(self, X: Table) -> FloatArray:
        """Return the logarithms of the probabilities."""
        return np.asarray(log_softmax(self._logits(X), axis=1), dtype=np.float64)

    def _logits(self, X: Table) -> FloatArray:
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return scores
        return np.column_stack([np.zeros(len(scores)), scores])

    def _read_training(self, given: FitInput) -> TrainingData:
        return validate_training(self, given.X, given.y, given.sample_weight)

    def _encode(self, given: FitInput) -> tuple[TrainingData, Problem, FairRows | None]:
        """Return validated data and the problem they pose."""
        check_aligned(
            X=given.X,
            y=given.y,
            sensitive_features=given.sensitive_features,
            sample_weight=given.sample_weight,
        )
        objective = self._objective()
        data = self._read_training(given)
        share = shares(data.weight)
        if objective.fairness_weight == 0:
            problem = Problem(objective, data.X, data.y, share, data.classes.size)
            return data, problem, None
        classes = tuple(data.classes.tolist())
        if given.penalty_data is None:
            shifted, rows = None, self._own_rows(given, data, objective, classes)
        else:
            if given.sensitive_features is not None:
                warnings.warn(
                    "sensitive_features of the training rows are not used: the penalty "
                    "is taken on penalty_data. Leave one of them out.",
                    DataFairnessWarning,
                    stacklevel=3,
                )
            shifted, rows = self._other_rows(given, objective, classes)
        penalty = Penalty(objective, rows, objective.notion.kept_class(classes))
        penalty.check_comparable()
        problem = Problem(
            objective, data.X, data.y, share, data.classes.size, penalty, shifted
        )
        return data, problem, rows

    def _own_rows(
        self,
        given: FitInput,
        data: TrainingData,
        objective: Objective,
        classes: tuple[object, ...],
    ) -> FairRows:
        if given.sensitive_features is None:
            raise self._missing_sensitive()
        n_given = data.kept.size
        control, names = control_labels(objective.notion, given.X, n_given)
        y, weight = data.y, data.weight
        if not data.kept.all():
            y, weight = np.full(n_given, -1, dtype=np.int64), np.zeros(n_given)
            y[data.kept], weight[data.kept] = data.y, data.weight
        rows = encode_rows(
            given.sensitive_features,
            objective.notion,
            Labels(n_given, y, classes, control, names),
            how=self.groups,
            sample_weight=weight,
            cutting=self._cutting(given),
        )
        return rows if data.kept.all() else rows.take(data.kept)

    def _other_rows(
        self,
        given: FitInput,
        objective: Objective,
        classes: tuple[object, ...],
    ) -> tuple[Table, FairRows]:
        X, sensitive, *rest = read_penalty_data(given.penalty_data)
        parts = zip(("X", "s", "y"), (X, sensitive, *rest), strict=False)
        check_aligned(**{f"penalty_data's {name}": part for name, part in parts})
        shifted = self._read_features(X)
        n_samples = shifted.shape[0]
        y = rest[0] if rest else None
        labels = encode_labels(y, n_samples, classes, "penalty_data's y")
        control, names = control_labels(objective.notion, X, n_samples)
        labels = replace(labels, control=control, control_names=names)
        return shifted, encode_rows(
            sensitive,
            objective.notion,
            labels,
            how=self.groups,
            cutting=self._cutting(given),
        )

    def _warn_of_reach(self, problem: Problem, logits: FloatArray) -> None:
        uncertainty = problem.objective.uncertainty
        if problem.penalty is None or uncertainty is None or not uncertainty.reach:
            return
        smallest = problem.penalty.smallest_cell(problem.penalized_prob(logits))
        if uncertainty.reach >= smallest:
            warnings.warn(
                f"The radius {uncertainty.reach:g} reaches the smallest cell of class "
                f"and group, {smallest:.3g}: there the worst case is as bad whatever "
                "the model does, and the model may stay unfair. Lower the radius, and "
                "look at the violation.",
                WideShiftWarning,
                stacklevel=4,
            )

    def _warn_of_collapse(self, codes: IntArray) -> None:
        labels, predicted = self.classes_.tolist(), np.unique(codes)
        lost = [repr(labels[j]) for j in range(len(labels)) if j not in predicted]
        if not lost:
            return
        said = f"{', '.join(lost)} for no training row, although some have it."
        if predicted.size == 1:
            only = labels[predicted[0]]
            said = f"{only!r} for every training row, which is fair and useless."
        advice = (
            "The features say too little of the rare classes; give those rows more "
            "sample_weight."
            if self.fairness_weight_ == 0
            else "Lower fairness_weight."
            if self.max_violation is None
            else "Raise max_violation."
        )
        warnings.warn(
            f"The model predicts {said} {advice}", CollapseWarning, stacklevel=4
        )
