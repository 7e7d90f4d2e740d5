"""Fair gradient-boosted trees with the contract of scikit-learn."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import clone

from fferm._typing import FloatArray, IntArray, Table
from fferm.boosting.links import make_link
from fferm.boosting.predictor import Predictor
from fferm.boosting.recipes import Recipe
from fferm.boosting.rounds import FairRounds, PlainRounds, Rounds, Start
from fferm.boosting.scores import ScoreObjective
from fferm.boosting.training import Grown, grow
from fferm.boosting.trees import TreeData, bin_rows, read_booster
from fferm.data.groups import GroupMode
from fferm.data.rows import FitInput, Rows
from fferm.data.validate import TrainingData, check_number
from fferm.divergences import Divergence
from fferm.estimators import boosting_data, boosting_settings
from fferm.estimators.base import Choice, FairClassifier
from fferm.estimators.boosting_start import Last, last_of
from fferm.estimators.progress import progress
from fferm.estimators.weight_search import choose_weight, read_bound
from fferm.notions import Notion
from fferm.penalty.objective import Problem
from fferm.uncertainty import Uncertainty


class FairBoostingClassifier(FairClassifier):
    r"""Boosted trees whose decisions depend as little on the group as asked.

    LightGBM grows the trees; each is grown to fit the Newton step of the mean
    cross-entropy plus ``fairness_weight`` times the divergence between the joint
    distribution of prediction and group and the product of its marginals. The outcome
    is one plain booster of LightGBM that needs neither fferm nor groups to predict.

    Parameters
    ----------
    divergence, notion, fairness_weight, max_violation, validation_fraction, confident
        As in `FairLogisticRegression`.
    sharpness
        The penalty's slope is that of ``softmax(sharpness * scores)``.
    calibrated
        True: the penalty is taken at the table of decisions, so that the gap between
        decisions follows the weight down to 0. False: at the table of probabilities
        ``softmax(sharpness * scores)``; decisions may then stay unfair. No round
        increases the objective, either way.
    groups, uncertainty
        As in `FairLogisticRegression`.
    n_estimators
        Rounds, of one tree for two classes, else one a class.
    learning_rate, num_leaves, min_child_samples, reg_lambda
        Of LightGBM: the share of a step that is taken, leaves of a tree, least rows of
        a leaf, and what is added to the curvature of a leaf.
    max_depth
        None for any.
    subsample, colsample_bytree
        Shares of rows and of columns that each tree sees.
    categorical_features
        Columns, by name or position, that hold categories. Columns of a data frame
        that are no numbers always do.
    lightgbm_params
        More settings of LightGBM, by its own names, for example ``{"max_bin": 63}``.
    early_stopping
        None: run all rounds. Or hold out a ``validation_fraction`` of the rows and keep
        the rounds up to the one with the least ``"loss"``, ``"violation"`` (of
        decisions) or ``"objective"`` on them.
    patience
        Rounds without a gain before training stops early.
    n_jobs
        Threads of LightGBM; None leaves it to LightGBM.
    warm_start
        Whether `fit` adds to the trees of the last fit until there are
        ``n_estimators`` rounds. Under ``max_violation`` it begins anew.
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
    history_ : tuple of records, one a round: objective, loss, penalty and others
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

    categorical_: tuple[int, ...]

    def __init__(
        self,
        *,
        divergence: str | Divergence = "kl",
        notion: str | Notion = "demographic_parity",
        fairness_weight: float = 1.0,
        max_violation: float | None = None,
        validation_fraction: float = 0.2,
        confident: bool = False,
        sharpness: float = 1.5,
        calibrated: bool = True,
        groups: GroupMode = "intersection",
        uncertainty: Uncertainty | None = None,
        n_estimators: int = 200,
        learning_rate: float = 0.1,
        num_leaves: int = 15,
        max_depth: int | None = None,
        min_child_samples: int = 20,
        reg_lambda: float = 0.0,
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        categorical_features: Sequence[int | str] | None = None,
        lightgbm_params: Mapping[str, Any] | None = None,
        early_stopping: Literal["loss", "violation", "objective"] | None = None,
        patience: int = 20,
        n_jobs: int | None = None,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.divergence = divergence
        self.notion = notion
        self.fairness_weight = fairness_weight
        self.max_violation = max_violation
        self.validation_fraction = validation_fraction
        self.confident = confident
        self.sharpness = sharpness
        self.calibrated = calibrated
        self.groups = groups
        self.uncertainty = uncertainty
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.max_depth = max_depth
        self.min_child_samples = min_child_samples
        self.reg_lambda = reg_lambda
        self.subsample = subsample
        self.colsample_bytree = colsample_bytree
        self.categorical_features = categorical_features
        self.lightgbm_params = lightgbm_params
        self.early_stopping = early_stopping
        self.patience = patience
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Table,
        y: Table,
        *,
        sensitive_features: Table = None,
        sample_weight: Table = None,
        penalty_data: tuple[Table, ...] | None = None,
    ) -> Self:
        """Train on data; parameters as in `FairLogisticRegression.fit`.

        X may have gaps (NaN) and, in a data frame, columns of categories.
        """
        given = FitInput(X, y, sensitive_features, sample_weight, penalty_data)
        bound = read_bound(self)
        boosting_settings.make_recipe(self)  # refuse bad parameters before data
        # Under a bound the weight is that of models from their first tree on.
        goes_on = self.warm_start and bound is None
        last = last_of(self) if goes_on else None
        data, problem, rows = self._encode(given)
        choice = Choice(problem.objective.fairness_weight)
        if bound is not None and rows is not None:
            choice = choose_weight(self, bound, given, data, rows)[0]
        if last is not None:
            last.checked(self, data)
        weights = [choice.fairness_weight]
        (grown,) = self._grow(given, (data, problem, rows), weights, last)
        self._learn_weight(choice)
        whole = grown if last is None else last.joined(grown)
        return self._store(whole, data, problem, rows)

    def decision_function(self, X: Table) -> FloatArray:
        """Return the raw scores: (n_samples,) for two classes, else (n_samples, m).

        Parameters
        ----------
        X
            (n_samples, n_features).
        """
        X = self._check_fitted_features(X)
        return self._raw_scores(X)

    def fit_path(
        self,
        given: FitInput,
        fairness_weights: Sequence[float],
        start: Self | None = None,
    ) -> Iterator[Self]:
        """Yield one fitted model per weight, each from its first tree on.

        They share the binned features. ``max_violation`` plays no part, and so does
        ``start``: trees that were grown for one weight are in the way of another.
        """
        weights = [check_number("fairness_weights", w) for w in fairness_weights]
        widest = clone(self).set_params(
            fairness_weight=max(weights, default=0.0), max_violation=None
        )
        data, problem, rows = widest._encode(given)
        path = widest._grow(given, (data, problem, rows), weights)
        for weight, grown in zip(weights, path, strict=True):
            model = clone(widest).set_params(fairness_weight=weight)
            model.n_features_in_ = widest.n_features_in_
            model.categorical_ = widest.categorical_
            if hasattr(widest, "feature_names_in_"):
                model.feature_names_in_ = widest.feature_names_in_
            model._learn_weight(Choice(weight))
            yield model._store(grown, data, problem, rows)

    def __sklearn_tags__(self) -> Any:
        """Say that gaps and categories are welcome too."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags

    def _read_training(self, given: FitInput) -> TrainingData:
        return boosting_data.read_training(self, given)

    def _read_features(self, X: Table) -> Table:
        return boosting_data.read_features(self, X)

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        parameters, learned = super()._to_saved()
        if self.lightgbm_params is not None:
            parameters["lightgbm_params"] = dict(self.lightgbm_params)
        learned["booster_"] = self.booster_.model_to_string()
        return parameters, learned

    def _from_saved(self, learned: dict[str, Any]) -> None:
        text = learned.pop("booster_")
        super()._from_saved(learned)
        self.booster_ = read_booster(text)
        self._predictor = Predictor(self.booster_, text)

    def _raw_scores(self, X: Table) -> FloatArray:
        if self._predictor.booster is not self.booster_:
            self._predictor = Predictor(self.booster_)
        return self._predictor.raw_scores(X, boosting_settings.n_threads(self))

    def _grow(
        self,
        given: FitInput,
        encoded: tuple[TrainingData, Problem, Rows | None],
        weights: Sequence[float],
        last: Last | None = None,
    ) -> Iterator[Grown]:
        held_out = start = None
        data, problem, rows = encoded
        if boosting_settings.check_stopping(self):
            parts = boosting_settings.split(self, given, data, rows)
            (data, problem, rows), held_out = parts
        X, y, weight = data.X, data.y, data.weight
        if problem.penalty_X is not None:
            n_more = problem.penalty_X.shape[0]
            X = boosting_data.stack(X, problem.penalty_X)
            y = np.concatenate([y, np.zeros(n_more, dtype=np.int64)])
            weight = np.concatenate([weight, np.zeros(n_more)])
        columns = boosting_data.describe(self, X)
        judged_by = None if held_out is None else held_out.data.X
        settings = boosting_settings.make_recipe(self).settings
        rows_of_trees = bin_rows(X, y, weight, columns, settings, judged_by)
        if last is not None:
            start = last.start(X, judged_by, boosting_settings.n_threads(self))
        for fairness_weight in weights:
            with progress(self.verbose, self.n_estimators) as callbacks:
                recipe = boosting_settings.make_recipe(self, callbacks)
                recipe = recipe if last is None else last.rest(recipe)
                judge = held_out.judge(self, fairness_weight) if held_out else None
                task = problem.with_weight(fairness_weight)
                rounds = _rounds(task, (y, weight), rows_of_trees, recipe, start)
                yield grow(rounds, recipe, judge)

    def _store(
        self,
        grown: Grown,
        data: TrainingData,
        problem: Problem,
        rows: Rows | None,
    ) -> Self:
        self.classes_ = data.classes
        self.booster_ = grown.booster
        self._predictor = Predictor(grown.booster, grown.text)
        self._learn_groups(rows)
        self.history_ = grown.history
        self.n_iter_ = grown.n_rounds
        self.result_ = grown.result
        self.dual_ = np.zeros((0, 0, 0))
        n_rows, known = data.y.size, grown.scores
        if known is None or known.shape[1] < n_rows:  # some rows were held out
            scores = _all_classes(self._raw_scores(data.X))
        else:
            scores = _all_classes(known.T[:n_rows].squeeze())
        if problem.penalty is not None:
            own = problem.penalty_X
            seen = scores if own is None else _all_classes(self._raw_scores(own))
            tables = problem.penalty.tables(problem.penalized_prob(seen))
            self.dual_ = np.concatenate(problem.penalty.duals(tables), axis=2)
            self._warn_of_reach(problem, seen)
        self._warn_of_result(grown.result)
        self._warn_of_collapse(scores.argmax(axis=1))
        return self


def _rounds(
    problem: Problem,
    labels: tuple[IntArray, FloatArray],
    data: TreeData,
    recipe: Recipe,
    start: Start | None,
) -> Rounds:
    y, weight = labels
    is_plain = problem.penalty is None or problem.objective.fairness_weight == 0
    if problem.penalty is None or is_plain or data.is_flat:
        return PlainRounds(make_link(problem.n_classes), data, recipe, start)
    objective = ScoreObjective(
        problem.objective, y, weight, problem.n_classes, problem.penalty
    )
    return FairRounds(objective, data, recipe, start)


def _all_classes(scores: FloatArray) -> FloatArray:
    # Logits of all classes; one score is that of the second.
    if scores.ndim == 2:
        return scores
    return np.column_stack([np.zeros(len(scores)), scores])
