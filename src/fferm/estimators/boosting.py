"""Fair gradient-boosted trees with the contract of scikit-learn."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import narwhals as nw
import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_y,
    check_consistent_length,
    validate_data,
)

from fferm._typing import FloatArray, Table, is_sparse
from fferm.boosting.objective import ScoreObjective, decide, mean_loss
from fferm.data.frame import (
    as_numbers,
    as_pandas,
    count_levels,
    hint_at_codes,
)
from fferm.data.rows import FitInput
from fferm.data.validate import (
    COUNT,
    FLAG,
    POSITIVE,
    Constraint,
    Number,
    OneOf,
    TrainingData,
    encode_classes,
    encode_weight,
    is_table,
    keep_weighted,
    named_errors,
    one_hot,
    plain_labels,
    refuse_unusable,
    rescaled,
)
from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    MissingDependencyError,
    PersistenceError,
)
from fferm.estimators.base import Encoded, FairClassifier, all_classes, progress
from fferm.metrics.tabulator import Tabulator
from fferm.notions import Labels

MISSING = ""  # the library that a model cannot be made without
try:
    from fferm.boosting.rounds import (
        FairRounds,
        Grown,
        PlainRounds,
        Start,
        aliases,
        bin_rows,
        check_tree_params,
        grow,
        is_constant,
        read_booster,
    )
except MissingDependencyError as error:
    MISSING = str(error)

# LightGBM's gradients are single precision, so weights with a mean outside this range
# are rescaled.
PLAIN_WEIGHTS = (1e-6, 1e6)
# Parameters of LightGBM that have a parameter here, or that a Newton step over all
# leaves would not respect.
REFUSED_PARAMS = {
    "objective": "the objective is that of fferm",
    "num_class": "y defines the number of classes",
    "metric": "use early_stopping",
    "boosting": "leaves are set by Newton steps, which only 'gbdt' keeps",
    "data_sample_strategy": "use subsample",
    "linear_tree": "leaves hold one number",
    "monotone_constraints": "Newton steps over leaves do not respect them",
    "num_iterations": "use n_estimators",
    "learning_rate": "use learning_rate of the estimator",
    "num_leaves": "use num_leaves of the estimator",
    "max_depth": "use max_depth of the estimator",
    "min_data_in_leaf": "use min_child_samples",
    "lambda_l1": "use reg_lambda",
    "lambda_l2": "use reg_lambda",
    "bagging_fraction": "use subsample",
    "feature_fraction": "use colsample_bytree",
    "num_threads": "use n_jobs",
    "seed": "use random_state",
}
SHARE = Number(0, 1, open_low=True)


@dataclass(kw_only=True, eq=False, repr=False)
class FairBoostingClassifier(FairClassifier):
    r"""Boosted trees whose decisions depend as little on the group as asked.

    LightGBM grows the trees; each is grown to fit the Newton step of the mean
    cross-entropy plus ``fairness_weight`` times the divergence between the joint
    distribution of prediction and group and the product of its marginals. The outcome
    is one plain booster of LightGBM that needs neither fferm nor groups to predict.

    Parameters
    ----------
    divergence, notion, fairness_weight, validation_fraction
        As in `FairLogisticRegression`.
    max_violation, measure, max_divergence, confidence, refit
        As in `FairLogisticRegression`; if ``calibrated``, the divergence is that of
        decisions.
    sharpness
        The penalty's slope is that of ``softmax(sharpness * scores)``.
    calibrated
        True: the penalty is taken at the table of decisions, so that the gap between
        decisions follows the weight down to 0. False: at the table of probabilities
        ``softmax(sharpness * scores)``; decisions may then stay unfair. No round
        increases the objective, either way.
    groups, group_weights, continuous, min_group_size, uncertainty
        As in `FairLogisticRegression`.
    n_estimators
        Number of rounds: one tree each for two classes, else one per class.
    learning_rate, num_leaves, min_child_samples, reg_lambda
        Parameters of LightGBM: the share of a step that is taken, leaves of a tree,
        least rows of a leaf, and what is added to the curvature of a leaf.
    max_depth
        The depth of a tree, None for no limit.
    subsample, colsample_bytree
        Shares of the rows and of the columns that each tree sees.
    categorical
        Columns of numbers, by name or position, that hold categories. Columns of a
        table that are not numeric always do.
    lightgbm_params
        More parameters of LightGBM by its names, for example ``{"max_bin": 63}``.
    early_stopping
        None runs all rounds. ``"validation"`` holds out a share
        ``validation_fraction`` of the rows and keeps the rounds up to the one with the
        least objective on them; ``"loss"`` and ``"violation"`` (of decisions) watch a
        part of it on the same rows.
    patience
        Stop after this many rounds without improvement.
    n_jobs
        Threads of LightGBM; None leaves it to LightGBM.
    warm_start
        Whether `fit` adds to the trees of the last fit until there are
        ``n_estimators`` rounds. Under ``max_violation`` it starts from scratch.
    random_state
        Seed of samples of rows and columns, and of held-out rows.
    verbose
        1 shows progress.

    Attributes
    ----------
    booster_ : the trained ``lightgbm.Booster``
    classes_ : ndarray
    groups_ : ndarray of group names
    categorical_ : tuple of the positions of columns that hold categories
    dual_ : ndarray of shape (n_strata, n_classes, n_groups), the optimal dual
    fairness_weight_, violation_, feasible_ : as in `FairLogisticRegression`
    result_ : how training ended
    history_ : tuple of records, one per round: objective, loss, penalty and others
    n_iter_ : int, rounds that were kept

    Examples
    --------
    >>> from fferm import FairBoostingClassifier
    >>> from fferm.datasets import make_biased
    >>> data = make_biased(random_state=0)
    >>> model = FairBoostingClassifier(n_estimators=20, n_jobs=1)
    >>> _ = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> decisions = model.predict(data.X_test)
    """

    # Trees differ by more than a finer search would show.
    search_halvings: ClassVar[int] = 3
    constraints: ClassVar[Mapping[str, Constraint]] = {
        **FairClassifier.constraints,
        "calibrated": FLAG,
        "n_estimators": COUNT,
        "learning_rate": POSITIVE,
        "num_leaves": Number(low=2, is_whole=True),
        "max_depth": Number(low=1, is_whole=True, is_optional=True),
        "min_child_samples": COUNT,
        "reg_lambda": Number(),
        "subsample": SHARE,
        "colsample_bytree": SHARE,
        "early_stopping": OneOf((None, "validation", "loss", "violation")),
        "patience": COUNT,
        "n_jobs": Number(low=1, is_whole=True, is_optional=True),
    }

    sharpness: float = 1.5
    calibrated: bool = True
    n_estimators: int = 200
    learning_rate: float = 0.1
    num_leaves: int = 15
    max_depth: int | None = None
    min_child_samples: int = 20
    reg_lambda: float = 0.0
    subsample: float = 1.0
    colsample_bytree: float = 1.0
    lightgbm_params: Mapping[str, Any] | None = None
    early_stopping: str | None = None
    patience: int = 20
    n_jobs: int | None = None

    if MISSING:

        def __post_init__(self) -> None:
            raise MissingDependencyError(MISSING)

    def decision_function(self, X: Table) -> FloatArray:
        """Return the raw scores: (n_samples,) for two classes, else (n_samples, m).

        Parameters
        ----------
        X
            (n_samples, n_features); it may have missing values (NaN) and, in a data
            frame, columns of categories.
        """
        return self._raw_scores(self._check_fitted_features(X))

    def __sklearn_tags__(self) -> Any:
        """Declare that missing values and categories are supported too."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags

    def _learn_columns(self, passed: FitInput) -> None:
        # LightGBM takes gaps and categories as they are.
        if not is_table(passed.X):
            return
        refuse_unusable(passed.X)
        frame, named = as_pandas(passed.X), set(map(str, self.categorical or ()))
        hint_at_codes(frame, self.categorical)
        for name in frame.columns:
            if as_numbers(frame[name]) is None:
                count_levels(name, frame[name], name in named)

    def _read_training(self, passed: FitInput) -> TrainingData:
        refuse_unusable(passed.X, y=passed.y, sample_weight=passed.sample_weight)
        X = self._read_features(passed.X, reset=True)
        y = passed.y
        with named_errors():
            is_plain = isinstance(y, np.ndarray) and y.dtype != object
            y = y if is_plain else plain_labels(y)
            y = _check_y(y, estimator=self)
            check_consistent_length(X, y)
        weight = np.ones(X.shape[0])
        if passed.sample_weight is not None:
            weight = encode_weight(passed.sample_weight, X.shape[0])
        X, y, weight, kept = keep_weighted(X, y, weight)
        # Levels that only other rows have are not known, unless a later fit may go on.
        if isinstance(X, pd.DataFrame) and not self.warm_start:
            X = X.copy(deep=False)
            for n in self.categorical_:
                column: Any = X.iloc[:, n].cat.remove_unused_categories()
                X.isetitem(n, column)
        with np.errstate(over="ignore"):
            is_usual = PLAIN_WEIGHTS[0] <= np.mean(weight) <= PLAIN_WEIGHTS[1]
        weight = weight if is_usual else rescaled(weight)
        classes, codes = encode_classes(y)
        return TrainingData(X, codes, classes, weight, kept)

    def _read_features(self, X: Table, *, reset: bool = False) -> Table:
        # A float64 array, a CSR matrix, or a data frame with categories.
        refuse_unusable(X)
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        is_frame = isinstance(frame, nw.DataFrame)
        options: dict[str, Any] = {"reset": reset}
        if is_frame:
            with named_errors():
                validate_data(self, X, skip_check_array=True, **options)
            if reset:
                self.categorical_ = self._find_categories(len(frame.columns), frame)
            if self.categorical_:
                return _read_frame(frame, self.categorical_)
        options |= {"accept_sparse": "csr", "dtype": np.float64, "order": "C"}
        with named_errors():
            X = validate_data(self, X, ensure_all_finite="allow-nan", **options)
        if reset and not is_frame:
            self.categorical_ = self._find_categories(X.shape[1])
        for n in self.categorical_:
            column = X[:, [n]].toarray()[:, 0] if is_sparse(X) else X[:, n]
            known = column[~np.isnan(column)]
            if np.any(known < 0) or np.any(known % 1):
                raise InvalidInputError(
                    f"Column {n} of categorical must hold integers of at least 0, or "
                    "NaN. Pass a data frame for categories of text."
                )
        return sp.csr_matrix(X) if is_sparse(X) else X  # LightGBM takes no sparse array

    def _find_categories(
        self, n_columns: int, frame: "nw.DataFrame[Any] | None" = None
    ) -> tuple[int, ...]:
        # The positions of columns that hold categories: those that are named, and those
        # of a data frame that are not numeric.
        names = [] if frame is None else list(frame.columns)
        dtypes = [] if frame is None else list(frame.schema.values())
        positions = {
            n
            for n, dtype in enumerate(dtypes)
            if not (dtype.is_numeric() or dtype == nw.Boolean)
        }
        for column in self.categorical or ():
            if isinstance(column, int | np.integer):
                position = int(column)
            else:
                position = names.index(column) if column in names else -1
            if 0 <= position < n_columns:
                positions.add(position)
            else:
                choices = f" or names: {', '.join(map(str, names))}" if names else ""
                raise InvalidParameterError(
                    f"categorical must be columns of X, positions below "
                    f"{n_columns}{choices}; got {column!r}."
                )
        return tuple(sorted(positions))

    def _columns(self, X: Table) -> tuple[list[str], list[int]]:
        # Names that LightGBM takes, and the columns that hold categories.
        passed = getattr(self, "feature_names_in_", None)
        if passed is None:
            passed = [f"Column_{n}" for n in range(X.shape[1])]
        names: list[str] = []
        for name in passed:
            # LightGBM refuses the signs of JSON, and cuts names at spaces.
            plain = re.sub(r"[^\w.+-]", "_", str(name)) or "_"
            while plain in names:
                plain += "_"
            names.append(plain)
        return names, list(self.categorical_)

    def _measured_prob(self, encoded: Encoded) -> FloatArray:
        prob = super()._measured_prob(encoded)
        return one_hot(prob.argmax(axis=1), prob.shape[1]) if self.calibrated else prob

    def _warm_start(self, last: Self, encoded: Encoded) -> Self | None:
        # Under a bound the weight is that of models from their first tree on.
        if self.max_violation is not None or not hasattr(last, "booster_"):
            return None
        X, classes, levels = encoded.data.X, encoded.data.classes, None
        if isinstance(X, pd.DataFrame):
            columns = X.select_dtypes("category")
            levels = [column.cat.categories.tolist() for _, column in columns.items()]
        if (
            last.n_features_in_ != self.n_features_in_
            or last.categorical_ != self.categorical_
            or not np.array_equal(last.classes_, classes)
            or levels not in (None, last.booster_.pandas_categorical or [])
        ):
            raise InvalidInputError(
                "warm_start needs features, levels of categories and classes of the "
                f"last fit, {last.n_features_in_} features and {last.classes_.tolist()}"
                f"; got {self.n_features_in_} and {classes.tolist()}. Fit without it."
            )
        if self.n_estimators < last.n_iter_:
            raise InvalidParameterError(
                f"n_estimators counts all rounds and must be at least {last.n_iter_}, "
                f"those of the last fit, with warm_start; got {self.n_estimators}."
            )
        return last

    def _train(
        self, encoded: Encoded, weights: Sequence[float], start: Any, *, is_path: bool
    ) -> "Iterator[Grown]":
        if encoded.watched is not None and encoded.passed.penalty_data is not None:
            raise InvalidParameterError(
                "early_stopping must be None with penalty_data; got "
                f"{self.early_stopping!r}."
            )
        data, problem, watched = encoded.data, encoded.problem, encoded.watched
        X, y, weight = data.X, data.y, data.weight
        if problem.penalty_X is not None:
            n_more = problem.penalty_X.shape[0]
            X = _stack(X, problem.penalty_X)
            y = np.concatenate([y, np.zeros(n_more, dtype=np.int64)])
            weight = np.concatenate([weight, np.zeros(n_more)])
        watched_X = None if watched is None else watched.data.X
        params = self._tree_params()
        bins = bin_rows(X, y, weight, self._columns(X), params, watched_X)
        begin, n_rounds = None, int(self.n_estimators)
        if start is not None:
            n_rounds -= start.n_iter_
            scores = [
                np.ascontiguousarray(np.atleast_2d(start._raw_scores(rows).T))
                for rows in (X, watched_X)
                if rows is not None
            ]
            begin = Start(start.booster_.model_to_string(num_iteration=-1), *scores)
        for fairness_weight in weights:
            criterion = watched and self._criterion(watched, fairness_weight)
            if fairness_weight == 0 or is_constant(bins[0]):
                rounds = PlainRounds(problem.n_classes, bins, params, begin)
            else:
                objective = problem.with_weight(fairness_weight).objective
                rows = y, weight, problem.n_classes, problem.penalty
                fair, how = ScoreObjective(objective, *rows), bool(self.calibrated)
                rounds = FairRounds(fair, bins, params, begin, is_calibrated=how)
            with progress(self.verbose, self.n_estimators) as callbacks:
                grown = grow(rounds, n_rounds, callbacks, criterion, int(self.patience))
            if start is not None:  # its rounds and these, as of one run
                history = (*start.history_, *grown.history)
                n_grown = start.n_iter_ + grown.n_rounds
                grown = replace(grown, history=history, n_rounds=n_grown)
            yield grown

    def _criterion(
        self, watched: Encoded, fairness_weight: float
    ) -> Callable[[FloatArray], float]:
        # What watches the scores of held-out rows after each round.
        data, problem = watched.data, watched.problem
        if self.early_stopping == "violation":
            return _violation(watched)
        if self.early_stopping == "loss" or fairness_weight == 0:
            return lambda scores: mean_loss(scores, data.y, data.weight)
        objective = problem.with_weight(fairness_weight).objective
        whole = ScoreObjective(
            objective, data.y, data.weight, problem.n_classes, problem.penalty
        )
        return whole.value

    def _tree_params(self) -> dict[str, Any]:
        extra = {} if self.lightgbm_params is None else self.lightgbm_params
        if not isinstance(extra, Mapping):
            raise InvalidParameterError(
                "lightgbm_params must be a dict of parameters of LightGBM by name, "
                f"such as {{'max_bin': 63}}, or None; got {extra!r}."
            )
        for name, reason in REFUSED_PARAMS.items():
            for alias in sorted(extra and aliases(name) & set(extra)):
                raise InvalidParameterError(
                    f"lightgbm_params must not contain {alias!r}: {reason}."
                )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        params: dict[str, Any] = {
            "learning_rate": float(self.learning_rate),
            "num_leaves": int(self.num_leaves),
            "max_depth": -1 if self.max_depth is None else int(self.max_depth),
            "min_data_in_leaf": int(self.min_child_samples),
            "lambda_l2": float(self.reg_lambda),
            "feature_fraction": float(self.colsample_bytree),
            "num_threads": self.n_jobs or 0,  # 0: as LightGBM likes
            "seed": seed,
            "deterministic": True,
            # Otherwise LightGBM measures which is faster, and sums differ by it. By
            # rows, it copies the columns of every tree that does not see all of them.
            "force_row_wise": self.colsample_bytree == 1,
            "force_col_wise": self.colsample_bytree != 1,
            # Bins are shared by all fits, whatever the least rows of a leaf.
            "feature_pre_filter": False,
            "metric": "none",
            "verbose": -1,
            **extra,
        }
        if extra:
            check_tree_params(params, extra)
        if self.subsample < 1:
            params |= {"bagging_fraction": float(self.subsample), "bagging_freq": 1}
        return params

    def _raw_scores(self, X: Table) -> FloatArray:
        # A file may ask for more threads than a process can have.
        n_threads = min(self.n_jobs or 0, os.cpu_count() or 1)
        scores = self.booster_.predict(X, raw_score=True, num_threads=n_threads)
        return np.asarray(scores, dtype=np.float64)

    def _store(self, grown: "Grown", encoded: Encoded, *, is_path: bool) -> None:
        data, problem = encoded.data, encoded.problem
        self.classes_ = data.classes
        self.booster_ = grown.booster
        self.history_ = grown.history
        self.n_iter_ = grown.n_rounds
        self.result_ = grown.result
        n_rows, known, dual = data.y.size, grown.scores, grown.dual
        if known is None:  # rounds were dropped
            known, dual = np.atleast_2d(self._raw_scores(data.X).T), None
        scores = all_classes(known.T[:n_rows].squeeze())
        penalized = scores
        if problem.penalty_X is not None:
            penalized = all_classes(self._raw_scores(problem.penalty_X))
        self.dual_ = self._best_dual(problem, penalized) if dual is None else dual
        if problem.objective.uncertainty is not None:
            self._warn_of_reach(problem, problem.tables(penalized))
        if not is_path:  # the caller of a path looks for collapsed models itself
            self._warn_of_collapse(scores.argmax(axis=1), encoded)

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        parameters, learned = super()._to_saved()
        if self.lightgbm_params is not None:
            parameters["lightgbm_params"] = dict(self.lightgbm_params)
        learned["booster_"] = self.booster_.model_to_string()
        return parameters, learned

    def _from_saved(self, learned: dict[str, Any]) -> None:
        n_classes, text = len(learned["classes_"]), learned["booster_"]
        n_scores = n_classes if n_classes > 2 else 1
        booster = read_booster(text, n_scores, learned["n_features_in_"])
        super()._from_saved({**learned, "booster_": booster})
        self._check_loaded()
        levels = booster.pandas_categorical
        dtypes = [pd.CategoricalDtype(each) for each in levels or ()]
        if levels is not None and len(dtypes) != len(self.categorical_):
            raise PersistenceError("booster_ does not have the levels of categorical_.")


def _violation(watched: Encoded) -> Callable[[FloatArray], float]:
    if watched.rows is None:
        raise InvalidParameterError(
            "early_stopping='violation' needs fairness_weight above 0. Use 'loss'."
        )
    data, problem = watched.data, watched.problem
    labels = Labels(data.y.size, None, tuple(data.classes.tolist()))
    tabulator = Tabulator(watched.rows, problem.objective.notion, labels)

    def worst(scores: FloatArray) -> float:
        decided = decide(scores)
        if np.unique(decided).size == 1:  # fair and useless
            return np.inf
        violation = tabulator.violations(decided).worst
        return violation if np.isfinite(violation) else np.inf

    return worst


def _read_frame(frame: "nw.DataFrame[Any]", categories: Sequence[int]) -> pd.DataFrame:
    data: pd.DataFrame = frame.to_pandas().reset_index(drop=True)
    columns = []
    for n, name in enumerate(frame.columns):
        column = data.iloc[:, n]
        if n in categories:
            is_category = isinstance(column.dtype, pd.CategoricalDtype)
            columns.append(
                column if is_category else column.astype(pd.CategoricalDtype())
            )
            continue
        with named_errors():
            number = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if np.isinf(number).any():
            raise InvalidInputError(
                f"X contains infinity in {name!r}. Use NaN for missing values."
            )
        columns.append(pd.Series(number, name=name))
    return pd.concat(columns, axis=1)


def _stack(X: Table, more: Table) -> Table:
    # The rows of two feature tables, one below the other.
    if isinstance(X, pd.DataFrame):
        both = pd.concat([X, more], ignore_index=True)
        for name in X.select_dtypes("category"):  # concat forgets unequal levels
            both[name] = both[name].astype(pd.CategoricalDtype())
        return both
    if is_sparse(X) or is_sparse(more):
        return sp.vstack([sp.csr_matrix(X), sp.csr_matrix(more)], format="csr")
    return np.vstack([X, more])
