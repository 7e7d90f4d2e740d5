"""Fair logistic regression."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from sklearn.base import clone

from fferm import solvers
from fferm._types import FloatArray, Table
from fferm.data import FairRows, GroupMode
from fferm.divergences import Divergence
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.estimators.base import FairClassifier, FitInput
from fferm.estimators.progress import progress
from fferm.estimators.validation import TrainingData, check_number
from fferm.notions import Notion
from fferm.objective import Problem
from fferm.solvers.base import Solution
from fferm.solvers.conditioning import round_coordinates
from fferm.solvers.lbfgs import linear_logits, parameter_shape
from fferm.uncertainty import Uncertainty


class FairLogisticRegression(FairClassifier):
    r"""Logistic regression whose predictions depend as little on the group as asked.

    Minimises

    .. math::

        \frac1n \sum_i \ell_i + \lambda \, D_f\big(P(\hat y, s) \| P(\hat y) P(s)\big)
          + \frac{\text{l2}}2 \|\text{coef}\|^2

    with cross-entropy :math:`\ell` (softmax for more than two classes).

    Parameters
    ----------
    divergence
        ``"kl"``, ``"reverse_kl"``, ``"chi2"``, ``"total_variation"``,
        ``"jensen_shannon"``, ``"squared_hellinger"``, ``"alpha"`` or an instance.
    notion
        ``"demographic_parity"``, ``"equal_opportunity"``, ``"equalized_odds"``,
        ``"sufficiency"``, ``"predictive_parity"`` or an instance such as
        ``ConditionalParity("department")``.
    fairness_weight
        The weight :math:`\lambda`; 0 is plain training.
    sharpness
        The penalty sees ``softmax(sharpness * logits)``: larger is closer to
        decisions, 1 is the soft probability.
    groups
        ``"intersection"`` or ``"marginal"``: several sensitive columns jointly, or
        one by one.
    uncertainty
        None, ``SmallShift(radius)`` or ``LargeShift(radius)``.
    l2
        Strength of the ridge on coefficients; intercepts are free.
    fit_intercept
        Whether to learn intercepts.
    solver
        ``"auto"`` or ``"lbfgs"``: full batch.
    tol, max_iter
        Tolerance on the gradient, in coordinates in which the problem is round, and
        most iterations.
    warm_start
        Whether `fit` begins at the last solution.
    random_state
        Kept for solvers that draw batches; full batch is deterministic.
    verbose
        1 shows progress.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray
    groups_ : ndarray of group names
    dual_ : ndarray of shape (n_strata, n_classes, n_groups), the optimal dual
    result_ : how training ended
    history_ : tuple of records, one an iteration
    n_iter_ : int

    Examples
    --------
    >>> from fferm import FairLogisticRegression
    >>> from fferm.datasets import make_biased
    >>> from fferm.metrics import violation
    >>> data = make_biased(random_state=0)
    >>> model = FairLogisticRegression(fairness_weight=10.0)
    >>> _ = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> decisions = model.predict(data.X_test)
    """

    def __init__(
        self,
        *,
        divergence: str | Divergence = "kl",
        notion: str | Notion = "demographic_parity",
        fairness_weight: float = 1.0,
        sharpness: float = 1.0,
        groups: GroupMode = "intersection",
        uncertainty: Uncertainty | None = None,
        l2: float = 1e-4,
        fit_intercept: bool = True,
        solver: str = "auto",
        tol: float = 1e-5,
        max_iter: int = 1000,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.divergence = divergence
        self.notion = notion
        self.fairness_weight = fairness_weight
        self.sharpness = sharpness
        self.groups = groups
        self.uncertainty = uncertainty
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
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
        """Train on data.

        Parameters
        ----------
        X
            (n_samples, n_features): array, CSR matrix or numeric data frame.
        y
            (n_samples,) labels of any kind, two or more classes.
        sensitive_features
            The group of each row: list, array (n,) or (n, a), Series, DataFrame or
            dict of arrays. Rows with missing values train the loss only. Required
            unless ``fairness_weight`` is 0 or ``penalty_data`` is given.
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
        given = FitInput(X, y, sensitive_features, sample_weight, penalty_data)
        data, problem, rows = self._encode(given)
        start = self._warm_parameters(problem, data) if self.warm_start else None
        solver = self._solver()
        with progress(self.verbose, self.max_iter) as callbacks:
            solution = solver.solve(problem, start=start, callbacks=callbacks)
        return self._store(solution, data, rows)

    def decision_function(self, X: Table) -> FloatArray:
        """Return the logits: (n_samples,) for two classes, else (n_samples, m).

        Parameters
        ----------
        X
            (n_samples, n_features).
        """
        X = self._check_fitted_features(X)
        scores = np.asarray(X @ self.coef_.T) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def fit_path(
        self, given: FitInput, fairness_weights: Sequence[float]
    ) -> Iterator[Self]:
        """Yield one fitted model per weight, each begun where the last one ended.

        Data are encoded and round coordinates computed once for the whole path. Under
        an uncertainty set each begins afresh.
        """
        weights = [check_number("fairness_weights", w) for w in fairness_weights]
        widest = clone(self).set_params(fairness_weight=max(weights, default=0.0))
        data, problem, rows = widest._encode(given)
        coordinates = round_coordinates(problem.X, problem.share, problem.objective.l2)
        solver = replace(self._solver(), coordinates=coordinates)
        theta = None
        for weight in weights:
            objective = replace(problem.objective, fairness_weight=weight)
            weighted = replace(problem, objective=objective)
            with progress(self.verbose, self.max_iter) as callbacks:
                solution = solver.solve(weighted, start=theta, callbacks=callbacks)
            # A robust penalty has kinks, and none but a fresh start leaves one.
            theta = solution.value if objective.uncertainty is None else None
            model = clone(self).set_params(fairness_weight=weight)
            model.n_features_in_ = widest.n_features_in_
            if hasattr(widest, "feature_names_in_"):
                model.feature_names_in_ = widest.feature_names_in_
            yield model._store(solution, data, rows)

    def _solver(self) -> solvers.LBFGS:
        if not isinstance(self.max_iter, int | np.integer) or self.max_iter < 1:
            raise InvalidParameterError(
                f"max_iter={self.max_iter!r} came. Expected a whole number above 0."
            )
        return solvers.choose(self.solver)(
            tol=check_number("tol", self.tol, above=True),
            max_iter=int(self.max_iter),
            fit_intercept=bool(self.fit_intercept),
        )

    def _warm_parameters(
        self, problem: Problem, data: TrainingData
    ) -> FloatArray | None:
        if not hasattr(self, "coef_"):
            return None
        theta = np.column_stack([self.coef_, self.intercept_])
        is_same = np.array_equal(self.classes_, data.classes)
        if not is_same or theta.shape != parameter_shape(problem):
            raise InvalidInputError(
                f"warm_start found {self.coef_.shape[1]} features and classes "
                f"{self.classes_.tolist()}, the data have {problem.X.shape[1]} and "
                f"{data.classes.tolist()}. Fit with warm_start=False."
            )
        return theta

    def _store(
        self, solution: Solution, data: TrainingData, rows: FairRows | None
    ) -> Self:
        self.classes_ = data.classes
        self.coef_ = solution.value[:, :-1].copy()
        self.intercept_ = solution.value[:, -1].copy()
        self.groups_ = np.array(rows.group_names if rows else (), dtype=object)
        self.dual_ = (
            np.concatenate(solution.dual, axis=2)
            if solution.dual
            else np.zeros((0, 0, 0))
        )
        self.n_iter_ = int(solution.stats["n_iter"])
        self.history_ = solution.history
        self.result_ = solution.result
        codes = linear_logits(data.X, solution.value).argmax(axis=1)
        self._warn_of_outcome(solution.result, codes, data.y)
        return self
