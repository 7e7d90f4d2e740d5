"""What all fair models share: `fit` is written once, here.

``fit`` = check parameters -> encode the data -> choose the fairness weight -> train ->
store what was learned. A model writes `_train` and `_store`, and says how it predicts.
"""

import contextlib
import copy
import importlib
import itertools
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_is_fitted

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.frame import FrameEncoder, as_pandas, hint_at_codes
from fferm.data.groups import BandEdges, Binning, GroupMode, split_columns, take_rows
from fferm.data.partitions import Partitions
from fferm.data.rows import FitInput, Rows, check_aligned, encode_rows
from fferm.data.split import hold_out, keep_penalty_rows, keep_rows, kinds
from fferm.data.validate import (
    COUNT,
    FLAG,
    POSITIVE,
    SEED,
    Constraint,
    Number,
    OneOf,
    TrainingData,
    check_number,
    check_params,
    encode_labels,
    is_table,
    named_errors,
    read_penalty_data,
    refuse_unusable,
    shares,
    validate_rows,
    validate_training,
)
from fferm.divergences import Divergence
from fferm.errors import (
    CollapseWarning,
    ConvergenceWarning,
    DataFairnessWarning,
    FfermWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingSensitiveError,
    PersistenceError,
    WideShiftWarning,
    muted,
    warn_user,
)
from fferm.notions import MEASURES, Labels, Measure, Notion
from fferm.penalty.objective import (
    Objective,
    Penalty,
    Problem,
    RateRatios,
    make_objective,
    smallest_cell,
)
from fferm.registry import Saved
from fferm.solvers.base import Callback, Record, Result
from fferm.uncertainty import Uncertainty

if TYPE_CHECKING:
    from fferm.estimators.partial import PartialState
    from fferm.estimators.weight_search import HeldOut


# What a bar of progress shows of a record.
SHOWN = ("weight", "violation", "accuracy", "objective")


class Encoded(NamedTuple):
    """Validated data, the problem that they pose, and the rows of the penalty."""

    data: Any  # TrainingData; a regressor adds the unit of its target
    problem: Any  # Problem
    rows: Rows | None  # None without a penalty
    passed: FitInput
    kept: NDArray[np.bool_]  # which of the rows passed to the penalty these are
    watched: Any = None  # the held-out rows that early stopping watches, encoded


@dataclass(frozen=True)
class Choice:
    """The fairness weight of a fit and, if a bound chose it, how it did."""

    fairness_weight: float
    violation: float | None = None
    is_feasible: bool | None = None


def probabilities(scores: FloatArray) -> FloatArray:
    """Return (n_samples, n_classes) probabilities of `decision_function`'s logits."""
    if scores.ndim == 1:
        return np.column_stack([expit(-scores), expit(scores)])
    return np.asarray(softmax(scores, axis=1), dtype=np.float64)


def all_classes(scores: FloatArray) -> FloatArray:
    """Return (n_samples, n_classes) logits; one score is that of the second class."""
    if scores.ndim == 2:
        return scores
    return np.column_stack([np.zeros(len(scores)), scores])


class Attributes:
    """What models have beside their parameters, declared for type checkers."""

    reads_sparse: ClassVar[bool] = False  # whether tables of text become CSR rows
    l2: float = 0.0  # networks have weight decay, trees reg_lambda
    early_stopping: str | None = None  # regressors have none
    measure: Measure = "difference"  # of rates, which regressors have not
    n_features_in_: int
    classes_: NDArray[Any]
    encoder_: FrameEncoder  # of a model that was fitted on a table
    groups_: NDArray[Any]
    band_edges_: BandEdges
    small_groups_: dict[str, dict[str, int]]
    dual_: FloatArray
    fairness_weight_: float
    violation_: float
    divergence_value_: float
    feasible_: bool
    result_: Result
    # What partial_fit continues from, None after fit.
    _partial: "PartialState | None" = None


@dataclass(kw_only=True, eq=False, repr=False)
class FairEstimator(Attributes, Saved, BaseEstimator, ABC):
    """What fair classifiers and fair regressors share.

    A parameter is declared once, as a field: name, type and default.
    """

    # How often the search for a fairness weight halves its last step, in logarithm:
    # the weight is then right to about one percent.
    search_halvings: ClassVar[int] = 6
    # Whether the final fit under a bound starts at the model that was judged.
    starts_at_judged: ClassVar[bool] = False
    # What each parameter must satisfy.
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "fairness_weight": Number(is_optional=True),
        "max_violation": Number(is_optional=True),
        "max_divergence": Number(is_optional=True),
        "confidence": Number(0.5, 1, open_high=True, is_optional=True),
        "refit": FLAG,
        "validation_fraction": Number(0, 1, open_low=True, open_high=True),
        "min_group_size": COUNT,
        "random_state": SEED,
        "fit_intercept": FLAG,
        "warm_start": FLAG,
        "sharpness": POSITIVE,
        "group_weights": OneOf(("share", "equal")),
        "l2": Number(),
    }

    divergence: str | Divergence = "kl"
    notion: str | Notion = "demographic_parity"
    fairness_weight: float | None = None
    max_violation: float | None = None
    max_divergence: float | None = None
    confidence: float | None = 0.95
    refit: bool = False
    validation_fraction: float = 0.2
    sharpness: float = 1.0
    groups: GroupMode = "intersection"
    group_weights: Literal["share", "equal"] = "share"
    continuous: Sequence[str] | str = "auto"
    min_group_size: int = 1
    categorical: Sequence[int | str] | None = None
    uncertainty: Uncertainty | None = None
    warm_start: bool = False
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    def fit(
        self,
        X: Table,
        y: Table,
        *,
        sensitive_features: Table = None,
        sample_weight: Table = None,
        penalty_data: tuple[Table, ...] | None = None,
    ) -> Self:
        """Train on data.

        Parameters
        ----------
        X
            (n_samples, n_features): array, CSR matrix, or a table of pandas, polars or
            pyarrow as it is, with text, categories, booleans and gaps.
        y
            (n_samples,) labels of any kind, two or more classes; numbers for a
            regressor.
        sensitive_features
            The group of each row: list, array (n,) or (n, a), Series, DataFrame or dict
            of arrays. Rows with missing values train the loss only. Required unless
            ``fairness_weight`` is 0 or ``penalty_data`` is given.
        sample_weight
            (n_samples,) weights of the rows in loss and penalty.
        penalty_data
            ``(X, sensitive_features)`` or ``(X, sensitive_features, y)``: take the
            penalty on these rows instead, for example on a target domain;
            ``sensitive_features`` of the training rows are then not used.

        Returns
        -------
        Self
        """
        passed = FitInput(X, y, sensitive_features, sample_weight, penalty_data)
        check_params(vars(self), self.constraints)
        is_free = self.max_violation is None and self.max_divergence is None
        if (
            not is_free
            and (bound := self._bound())
            and self.fairness_weight is not None
        ):
            warn_user(
                f"fairness_weight={self.fairness_weight!r} is not used, because "
                f"{bound} finds its own. Leave one out.",
                FfermWarning,
            )
        if self.divergence == "auto":
            return self._fit_best_divergence(passed)
        last = copy.copy(self)  # what an earlier fit learned, before it is replaced
        encoded = self._prepare(passed)
        choice = Choice(encoded.problem.objective.fairness_weight)
        start = self._warm_start(last, encoded) if self.warm_start else None
        if self.max_divergence is not None and encoded.rows is not None:
            from fferm.estimators.weight_search import TrainingRows, choose_weight

            choice, judged = choose_weight(self, TrainingRows(encoded, self))
            return self._adopt(judged, encoded, choice)
        if self.max_violation is not None and encoded.rows is not None:
            from fferm.estimators.weight_search import choose_weight

            choice, judged = choose_weight(self, self._hold_out(encoded))
            if not self.refit:
                return self._adopt(judged, encoded, choice)
            if self.confidence is not None and choice.is_feasible:
                warn_user(
                    "refit=True trains again on all rows. That is not the model that "
                    f"was tested, so max_violation={self.max_violation!r} is not "
                    f"promised at confidence={self.confidence!r}. Use refit=False.",
                    FfermWarning,
                )
            if self.starts_at_judged and self._encodes_like(judged):
                start = judged._path_start(encoded)
        weights = [choice.fairness_weight]
        (trained,) = self._train(encoded, weights, start, is_path=False)
        return self._finish(trained, encoded, choice, is_path=False)

    def _adopt(self, judged: Self, encoded: Encoded, choice: Choice) -> Self:
        """Return this estimator with all that a judged one learned."""
        for learned in (self, judged):
            for name, value in list(vars(learned).items()):
                if not name.endswith("_") and name != "_partial":
                    continue
                if learned is judged:
                    setattr(self, name, value)
                else:
                    delattr(self, name)
        self.fairness_weight_ = choice.fairness_weight
        is_divergence = self.max_divergence is not None
        name = "divergence_value_" if is_divergence else "violation_"
        setattr(self, name, float(np.float64(choice.violation)))
        self.feasible_ = bool(choice.is_feasible)
        if not self.result_.is_success:
            name = type(self).__name__
            warn_user(f"{name}: {self.result_.value}", ConvergenceWarning)
        return self

    def fit_path(
        self,
        passed: FitInput,
        fairness_weights: Sequence[float],
        start: Self | None = None,
    ) -> Iterator[Self]:
        """Yield one fitted model per weight; the data are encoded once for all.

        The first starts at ``start``, a model fitted on the same data, if there is one
        and if this model can. ``max_violation`` is ignored.
        """
        weights = [check_number("fairness_weights", w) for w in fairness_weights]
        check_params(vars(self), self.constraints)
        # Who asks for a path shows its progress.
        widest = clone(self).set_params(
            fairness_weight=max(weights, default=0.0),
            max_violation=None,
            max_divergence=None,
            verbose=0,
        )
        encoded = widest._prepare(passed)
        first = None if start is None else start._path_start(encoded)
        path = widest._train(encoded, weights, first, is_path=True)
        for weight, trained in zip(weights, path, strict=True):
            # Parameters are never changed in place, so none is copied: cloning twenty
            # models takes a fifth of the time to train them.
            model = copy.copy(widest)
            model.fairness_weight, model.verbose = weight, self.verbose
            yield model._finish(trained, encoded, Choice(weight), is_path=True)

    @abstractmethod
    def _train(
        self, encoded: Encoded, weights: Sequence[float], start: Any, *, is_path: bool
    ) -> Iterator[Any]:
        """Yield what training with each fairness weight gives, for `_store`."""

    @abstractmethod
    def _store(self, trained: Any, encoded: Encoded, *, is_path: bool) -> None:
        """Keep what training gave as learned attributes."""

    def _hold_out(self, encoded: Encoded) -> "HeldOut[Any]":
        """Return the held-out rows that judge the models of a search."""
        raise NotImplementedError

    def _warm_start(self, last: Self, encoded: Encoded) -> Any:
        """Return what `_train` starts from: ``last`` if it was fitted, else None."""
        return last._path_start(encoded)

    def _path_start(self, encoded: Encoded) -> Any:
        """Return what the next model of a path starts from, None for from scratch."""
        return None

    def fits_path_jointly(self, passed: FitInput) -> bool:
        """Return whether `fit_path` trains all its models at once."""
        return False

    def supports_large_weights(self) -> bool:
        """Return whether weights beyond the default range train well."""
        return True

    def warm_starts_path(
        self, passed: FitInput, fairness_weights: Sequence[float]
    ) -> bool:
        """Return whether `fit_path` can resume after one of its models.

        If so, a path of the remaining weights, started at the model before them,
        yields what the whole path would have yielded.
        """
        return False

    def __sklearn_tags__(self) -> Any:
        """Declare that sparse input is supported."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_loaded(self: Any) -> None:
        """Raise if a model that was loaded cannot predict."""
        row: Table = sp.csr_matrix((1, self.n_features_in_))
        if hasattr(self, "encoder_"):
            row = np.full((1, self.n_features_in_), None)
        if hasattr(self, "feature_names_in_"):
            value = None if hasattr(self, "encoder_") else 0.0
            row = pd.DataFrame(value, index=[0], columns=self.feature_names_in_)
        scores, classes = self.predict(row), [0, 1]
        if isinstance(self, FairClassifier):
            scores, classes = self.decision_function(row), self.classes_.tolist()
        if all_classes(scores).shape != (1, *np.shape(classes)):
            raise PersistenceError(
                f"The model must have one score for each of {classes}; got {scores}."
            )

    def _to_sklearn(self, model: Any) -> Any:
        # A linear model of scikit-learn with our coefficients, behind the encoding.
        with named_errors():
            check_is_fitted(self)
        model.coef_, model.intercept_ = self.coef_, self.intercept_
        model.n_features_in_ = self.coef_.shape[-1]
        if not hasattr(self, "encoder_"):
            if hasattr(self, "feature_names_in_"):
                model.feature_names_in_ = self.feature_names_in_
            return model
        return make_pipeline(self.encoder_.to_sklearn(), model)

    def _check_fitted_features(self, X: Table) -> Table:
        with named_errors():
            check_is_fitted(self)
        return self._read_features(X)

    def _read_features(self, X: Table) -> Table:
        return validate_rows(self, X)[0]

    def _read_training(self, passed: FitInput) -> TrainingData:
        return validate_training(self, passed.X, passed.y, passed.sample_weight)

    def _fit_best_divergence(self, passed: FitInput) -> Self:
        self._objective()  # refuses divergence="auto"
        return self

    def _bound(self) -> str:
        """Return the bound that finds a weight, in words; empty if there is none."""
        if self.max_violation is not None and self.max_divergence is not None:
            raise InvalidParameterError(
                f"max_violation={self.max_violation!r} and "
                f"max_divergence={self.max_divergence!r} contradict each other. Set "
                "one of them to None."
            )
        if self.max_divergence is not None:
            return f"max_divergence={self.max_divergence!r}"
        is_free = self.max_violation is None
        return "" if is_free else f"max_violation={self.max_violation!r}"

    def _measured_prob(self, encoded: Encoded) -> FloatArray:
        """Return what the penalty sees of the rows that it is taken on."""
        raise NotImplementedError

    def _rate_ratios(self) -> RateRatios:
        notion = Notion.resolve(self.notion)
        if self.uncertainty is not None or not notion.compares_predictions:
            raise InvalidParameterError(
                f"measure={self.measure!r} compares rates of predictions and knows no "
                f"uncertainty; got {self.uncertainty or notion!r}. Use "
                "measure='difference'."
            )
        return RateRatios(is_even=self.group_weights == "equal")

    def _objective(self) -> Objective:
        if self.divergence == "auto":
            raise InvalidParameterError(
                "divergence='auto' is supported by FairLogisticRegression.fit only. "
                "Name a divergence, or choose one with fferm.tuning.tune."
            )
        # Under a bound any weight will do until the search has found one.
        is_free = self.max_violation is None and self.max_divergence is None
        weight = self.fairness_weight if is_free else 1.0
        is_plain = self.measure == "difference"
        return make_objective(
            self.divergence,
            self.notion,
            self.uncertainty if is_plain else self._rate_ratios(),
            fairness_weight=weight,
            sharpness=float(self.sharpness),
            l2=float(self.l2),
        )

    def _prepare(self, passed: FitInput) -> Encoded:
        """Return the data to train on."""
        return self._encode(passed)

    def _learn_columns(self, passed: FitInput) -> None:
        """Learn the encoding of a table from the rows of positive weight."""
        if not is_table(passed.X):
            if self.categorical:
                raise InvalidParameterError(
                    "categorical names columns of a data frame; X is a "
                    f"{type(passed.X).__name__}. Pass a data frame."
                )
            return
        refuse_unusable(passed.X)
        frame = as_pandas(passed.X)
        hint_at_codes(frame, self.categorical)
        encoder = FrameEncoder(categorical=self.categorical)
        self.encoder_ = encoder.fit(frame, sample_weight=passed.sample_weight)

    def _encodes_like(self, other: Self) -> bool:
        """Return whether two models see the same features after encoding."""
        return self._input_names() == other._input_names()

    def _input_names(self) -> Sequence[Any]:
        """Return the names of the features after encoding, or positions in an array."""
        if not hasattr(self, "encoder_"):
            return range(int(self.n_features_in_))
        return list(self.encoder_.get_feature_names_out())

    def _encode(self, passed: FitInput, *, learn_columns: bool = True) -> Encoded:
        """Return all data, validated, and the problem they pose."""
        if isinstance(passed.X, Partitions) or hasattr(passed.X, "__dask_graph__"):
            return self._encode_partitions(passed)
        check_aligned(**passed.tables)
        objective = self._objective()
        if learn_columns:
            self.__dict__.pop("encoder_", None)
            if self.categorical or not isinstance(passed.X, np.ndarray):
                self._learn_columns(passed)
        data = self._read_training(passed)
        classes = tuple(data.classes.tolist())
        penalty_X, rows, penalty, kept = None, None, None, data.kept
        if objective.fairness_weight > 0:
            penalty_X, rows, kept = self._penalty_rows(passed, data, objective)
            penalty = Penalty(objective, rows, classes)
            penalty.check_comparable()
        parts = data.X, data.y, shares(data.weight), len(classes)
        problem = Problem(objective, *parts, penalty, penalty_X)
        return Encoded(data, problem, rows, passed, kept)

    def _encode_partitions(self, passed: FitInput) -> Encoded:
        raise InvalidInputError(
            f"{type(self).__name__} trains on rows in memory; got a collection of "
            "Dask. Pass X.compute(), or use FairLogisticRegression."
        )

    def _penalty_rows(
        self, passed: FitInput, data: TrainingData, objective: Objective
    ) -> tuple[Table, Rows, NDArray[np.bool_]]:
        # Features of the penalty's rows if they are not those of X, the rows, and
        # which of the rows passed these are.
        X, sensitive, penalty_X = passed.X, passed.sensitive_features, None
        y: Table = data.y
        weight, kept = None, data.kept
        classes = tuple(data.classes.tolist())
        if passed.penalty_data is not None:
            X, sensitive, *rest = self._read_penalty_data(passed)
            penalty_X, y = self._read_features(X), rest[0] if rest else None
            name, some = "penalty_data's y", passed.penalty_kept
            kept = np.ones(penalty_X.shape[0], dtype=bool) if some is None else some
            labels = encode_labels(y, kept.size, classes, name)
        elif sensitive is None:
            asked = self._bound() or f"fairness_weight={objective.fairness_weight!r}"
            raise MissingSensitiveError(
                f"{asked} needs sensitive_features. Pass them "
                "to fit, or set fairness_weight=0 and max_violation=None."
            )
        else:
            weight = data.weight
            if not kept.all():  # groups are read from all rows, then some are dropped
                y, weight = np.full(kept.size, -1, y.dtype), np.zeros(kept.size)
                y[kept], weight[kept] = data.y, data.weight
            labels = Labels(kept.size, y if classes else None, classes)
        rows = encode_rows(
            sensitive,
            objective.notion,
            labels,
            X,
            how=self.groups,
            sample_weight=weight,
            binning=Binning(self.continuous, passed.edges, kept, self.min_group_size),
        )
        if not kept.all():
            penalty_X = None if penalty_X is None else penalty_X[kept]
            rows = rows.take(kept)
        is_balanced = isinstance(objective.uncertainty, RateRatios)  # on its tables
        if self.group_weights == "equal" and not is_balanced:
            rows = rows.balanced(objective.notion.compares_predictions)
        return penalty_X, rows, kept

    def _penalty_columns(self, encoded: Encoded) -> dict[str, Table]:
        """Return the sensitive columns of the penalty's rows, as a critic sees them."""
        passed, other = encoded.passed, encoded.passed.penalty_data
        sensitive = passed.sensitive_features if other is None else other[1]
        return take_rows(sensitive, np.flatnonzero(encoded.kept))

    def _read_penalty_data(self, passed: FitInput) -> tuple[Table, ...]:
        if passed.sensitive_features is not None:
            warn_user(
                "sensitive_features of the training rows are not used, because the "
                "penalty is taken on penalty_data. Leave one of them out.",
                DataFairnessWarning,
            )
        parts = read_penalty_data(passed.penalty_data)
        named = zip(("X", "s", "y"), parts, strict=False)
        check_aligned(**{f"penalty_data's {name}": part for name, part in named})
        return parts

    def _learn(self, rows: Rows | None, choice: Choice) -> None:
        self.groups_ = np.array(rows.group_names if rows else (), dtype=object)
        columns = rows.attributes if rows else ()
        self.band_edges_ = {n: e for c in columns for n, e in c.edges.items()}
        self.small_groups_ = {c.name: dict(c.small) for c in columns if c.small}
        self.fairness_weight_ = choice.fairness_weight
        learned = {"violation_": choice.violation, "feasible_": choice.is_feasible}
        learned["divergence_value_"] = None
        for name, value in learned.items():
            self.__dict__.pop(name, None)  # an earlier fit may have been under a bound
            if value is not None:
                setattr(self, name, value)

    def _finish(
        self, trained: Any, encoded: Encoded, choice: Choice, *, is_path: bool
    ) -> Self:
        passed = encoded.passed
        self.target_name_ = str(getattr(passed.y, "name", None) or "")
        sensitive = passed.sensitive_features
        named = () if sensitive is None else split_columns(sensitive)
        self.sensitive_names_ = tuple(dict(named))
        self._learn(encoded.rows, choice)
        self._store(trained, encoded, is_path=is_path)
        if not self.result_.is_success:
            name = type(self).__name__
            warn_user(f"{name}: {self.result_.value}", ConvergenceWarning)
        return self

    def _best_dual(self, problem: Problem, logits: FloatArray) -> FloatArray:
        """Return the optimal dual at the logits of the penalty's rows."""
        if problem.penalty is None:
            return np.zeros((0, 0, 0))
        return np.concatenate(problem.penalty.duals(problem.tables(logits)), axis=2)


@dataclass(kw_only=True, eq=False, repr=False)
class FairClassifier(ClassifierMixin, FairEstimator):
    """Base of the fair classifiers; a subclass trains and computes logits.

    Notes
    -----
    Learned attributes: ``classes_``, ``groups_`` (names, in the order of the last axis
    of the dual), ``band_edges_`` (edges of the bands of continuous attributes, by
    column; audits and curves of the model use the same), ``dual_``, ``history_``,
    ``n_iter_``, ``result_``, ``n_features_in_``, ``fairness_weight_``, under
    ``max_violation`` also ``violation_`` and ``feasible_`` and, for tables,
    ``feature_names_in_``, ``target_name_``, ``sensitive_names_`` and ``encoder_``,
    whose ``get_feature_names_out`` names the features after encoding.
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {
        **FairEstimator.constraints,
        "max_violation": Number(0, 1, is_optional=True),
        "measure": OneOf(MEASURES),
    }

    measure: Measure = "difference"

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

    def predict_log_proba(self, X: Table) -> FloatArray:
        """Return the logarithms of the probabilities."""
        logits = all_classes(self.decision_function(X))
        return np.asarray(log_softmax(logits, axis=1), dtype=np.float64)

    @classmethod
    def scores_of(cls, models: Sequence[Self], X: Table) -> Iterator[FloatArray]:
        """Yield the logits of several models that were fitted on the same features."""
        for model in models:
            yield model.decision_function(X)

    def _measured_prob(self, encoded: Encoded) -> FloatArray:
        passed, other = encoded.passed, encoded.passed.penalty_data
        scores = self.decision_function(passed.X if other is None else other[0])
        problem: Problem = encoded.problem
        return problem.penalized_prob(all_classes(scores)[encoded.kept])

    def _hold_out(self, encoded: Encoded) -> "HeldOut[Any]":
        from fferm.estimators.weight_search import HeldOutDecisions

        return HeldOutDecisions(self, encoded.passed, encoded)

    def _adopt(self, judged: Self, encoded: Encoded, choice: Choice) -> Self:
        adopted = super()._adopt(judged, encoded, choice)
        passed, other = encoded.passed, encoded.passed.penalty_data
        codes = np.searchsorted(self.classes_, self.predict(passed.X))
        if encoded.problem.objective.uncertainty is not None:
            scores = self.decision_function(passed.X if other is None else other[0])
            problem: Problem = encoded.problem
            logits = all_classes(scores)[encoded.kept]
            self._warn_of_reach(problem, problem.tables(logits))
        self._warn_of_collapse(codes, encoded)
        return adopted

    def _predicted_codes(self, encoded: Encoded) -> IntArray:
        """Return the codes of the classes that are predicted for training rows."""
        return np.searchsorted(self.classes_, self.predict(encoded.passed.X))

    def _warn_of_reach(self, problem: Problem, tables: list[FloatArray]) -> None:
        uncertainty = problem.objective.uncertainty
        reach = uncertainty.reach if uncertainty is not None else 0.0
        if reach and reach >= (smallest := smallest_cell(tables)):
            warn_user(
                f"The radius {reach:g} reaches the smallest cell of class "
                f"and group, {smallest:.3g}, so the model may stay unfair. Lower it, "
                "and check the violation.",
                WideShiftWarning,
            )

    def _prepare(self, passed: FitInput) -> Encoded:
        """Return rows to train on, with held-out rows that early stopping watches."""
        encoded = self._encode(passed)
        if self.early_stopping in (None, "training"):
            return encoded
        data, rows, is_own = encoded.data, encoded.rows, passed.penalty_data is None
        kind = kinds(rows, data.y) if rows is not None and is_own else data.y
        held = hold_out(kind, self.validation_fraction, self.random_state)
        sides = [np.unique(data.y[side]).size for side in (held, ~held)]
        if min(sides) < data.classes.size:
            raise InvalidInputError(
                f"early_stopping can hold out {int(held.sum())} of {held.size} rows, "
                "and not with every class on both sides. Use more rows of each class."
            )
        with muted(FfermWarning):  # all rows together have warned already
            trained, watched = (keep_rows(passed, data, side) for side in (~held, held))
            if rows is not None and not is_own:
                kind = kinds(rows, rows.strata.code)
                held = hold_out(kind, self.validation_fraction, self.random_state)
                trained = keep_penalty_rows(trained, encoded.kept, ~held)
                watched = keep_penalty_rows(watched, encoded.kept, held)
            encoded = self._encode(trained)
            edges = encoded.rows.band_edges if encoded.rows is not None else {}
            others = self._encode(replace(watched, edges=edges), learn_columns=False)
            return encoded._replace(watched=others)

    def _warn_of_collapse(self, codes: IntArray, encoded: Encoded) -> None:
        labels, predicted = self.classes_.tolist(), np.unique(codes)
        lost = [repr(labels[j]) for j in range(len(labels)) if j not in predicted]
        if not lost:
            return
        what = f"{', '.join(lost)} for no training row, although some have it."
        if predicted.size == 1:
            only = labels[predicted[0]]
            what = f"{only!r} for every training row, which is fair and useless."
        is_plain = self.fairness_weight_ == 0
        if is_plain or self._collapses_without_penalty(encoded):
            advice = "" if is_plain else "So does a model without a penalty. "
            advice += "The features hardly predict the rare classes; give them more "
            advice += "sample_weight."
        else:
            bound = self._bound().partition("=")[0]
            advice = f"Raise {bound}." if bound else "Lower fairness_weight."
        warn_user(f"The model predicts {what} {advice}", CollapseWarning)

    def _collapses_without_penalty(self, encoded: Encoded) -> bool:
        """Return whether a model without a penalty leaves a class out as well."""
        quiet = {"verbose": 0, "checkpoint": None, "callbacks": ()}
        params = quiet.keys() & self.get_params(deep=False)
        plain = clone(self).set_params(**{name: quiet[name] for name in params})
        with muted(FfermWarning):
            (model,) = plain.fit_path(encoded.passed, [0.0])
            decided = model._predicted_codes(encoded)
        return bool(np.unique(decided).size < self.classes_.size)


def replace_last(model: Any, last: Any) -> Any:
    """Return a pipeline with another last step; without a pipeline, that step."""
    if not isinstance(model, Pipeline):
        return last
    joined = copy.copy(model)
    joined.steps = [*model.steps[:-1], (model.steps[-1][0], last)]
    return joined


def fit_steps(
    model: Any, train: FitInput, *others: FitInput
) -> tuple[Any, list[FitInput]]:
    """Return a pipeline whose first steps are fitted, and rows as its last sees them.

    The steps learn from the training rows only. Without a pipeline, all stays as is.
    """
    parts = [train, *others]
    if not isinstance(model, Pipeline) or len(model.steps) == 1:
        return model, parts
    with named_errors():
        steps = clone(model[:-1]).fit(train.X, train.y)
        parts = [replace(part, X=steps.transform(part.X)) for part in parts]
    fitted = copy.copy(model)
    fitted.steps = [*steps.steps, model.steps[-1]]
    return fitted, parts


@contextlib.contextmanager
def progress(
    verbose: int, total: int | None, label: str = "training"
) -> Iterator[tuple[Callback, ...]]:
    """Give the callbacks that show progress; none unless asked for.

    A bar of tqdm if it is installed, else one line that is written over. A callback
    takes the numbers to show. ``total`` is how often it is called at most, None if that
    is not known. Code that is compiled meanwhile is spoken of once.
    """
    if not verbose:
        yield ()
        return
    from fferm._jit import telling_of_compilation  # slow to import

    try:
        bar = importlib.import_module("tqdm.auto").tqdm(total=total, desc=label)
    except ImportError:
        bar = None
    counted = itertools.count(1)

    def advance(record: Record) -> None:
        shown = [name for name in SHOWN if name in record]
        words = ", ".join(f"{name} {record[name]:.4g}" for name in shown)
        if bar is None:
            most = "" if total is None else f" of {total}"
            sys.stderr.write(f"\r{label}: {next(counted)}{most}, {words}")
        else:
            bar.update()
            bar.set_postfix_str(words)

    with bar or contextlib.nullcontext(), telling_of_compilation():
        yield (advance,)
        if bar is None:
            sys.stderr.write("\n")
        else:
            bar.total = bar.n  # few fits need all of their iterations
