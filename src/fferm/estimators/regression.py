"""Fair regression of a number, by a linear model."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin, clone

from fferm._types import FloatArray, Table
from fferm.columns import GroupMode
from fferm.divergences import Divergence
from fferm.estimators.base import Choice, FairEstimator, FitInput
from fferm.estimators.progress import progress
from fferm.estimators.regression_data import Encoded, encode
from fferm.estimators.validation import check_number, check_whole
from fferm.losses import Loss
from fferm.notions import Notion
from fferm.regression import RegressionProblem
from fferm.soft_bins import make_bins, quantile_edges
from fferm.solvers import LBFGS, Solution
from fferm.solvers.evaluation import PlainEvaluator
from fferm.solvers.linear import penalized_logits
from fferm.uncertainty import Uncertainty


class FairRegressor(RegressorMixin, FairEstimator):
    r"""Regression whose predictions depend as little on the group as asked.

    Minimises

    .. math::

        \frac1n \sum_i \ell(y_i - \hat y_i)
          + \lambda \, D_f\big(P(\text{bin}, s) \| P(\text{bin}) P(s)\big)
          + \frac{\text{l2}}2 \|\text{coef}\|^2

    with y in its standard deviations and the prediction counted in soft bins, whose
    edges are quantiles of the plain model's predictions.

    Parameters
    ----------
    divergence, fairness_weight, groups, uncertainty
        As in `FairLogisticRegression`.
    notion
        ``"demographic_parity"`` or ``ConditionalParity(control)``.
    loss
        ``"squared"``, ``"absolute"``, ``"huber"``, ``"quantile"`` or an instance such
        as ``Quantile(0.9)`` and ``Huber(width=0.5)`` of `fferm.losses`.
    n_bins
        How many soft bins the prediction is counted in.
    steepness
        How steeply neighbouring bins change over, in units of one over the distance of
        their edges: 4 is soft, 100 is nearly hard.
    l2
        Strength of the ridge on coefficients, of y in standard deviations.
    fit_intercept
        Whether to learn an intercept.
    tol, max_iter
        As in `FairLogisticRegression`.
    warm_start
        Whether `fit` begins at the last solution.
    verbose
        1 shows progress.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    groups_ : ndarray of group names
    bin_edges_ : ndarray of shape (n_bins - 1,), in units of y
    dual_ : ndarray of shape (n_strata, n_bins, n_groups), the optimal dual
    fairness_weight_ : the weight that was used
    result_ : how training ended
    history_ : tuple of records, one an iteration
    n_iter_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from fferm import FairRegressor
    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(2, size=1000)
    >>> X = np.column_stack([rng.normal(size=1000) + group, rng.normal(size=1000)])
    >>> y = X @ [1.0, 2.0] + rng.normal(size=1000)
    >>> model = FairRegressor(fairness_weight=10.0)
    >>> prediction = model.fit(X, y, sensitive_features=group).predict(X)
    """

    coef_: FloatArray
    intercept_: float

    def __init__(
        self,
        *,
        divergence: str | Divergence = "kl",
        notion: str | Notion = "demographic_parity",
        fairness_weight: float = 1.0,
        loss: str | Loss = "squared",
        n_bins: int = 10,
        steepness: float = 4.0,
        groups: GroupMode = "intersection",
        uncertainty: Uncertainty | None = None,
        l2: float = 0.0,
        fit_intercept: bool = True,
        tol: float = 1e-5,
        max_iter: int = 1000,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.divergence = divergence
        self.notion = notion
        self.fairness_weight = fairness_weight
        self.loss = loss
        self.n_bins = n_bins
        self.steepness = steepness
        self.groups = groups
        self.uncertainty = uncertainty
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    max_violation = None

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
            (n_samples,) numbers.
        sensitive_features, sample_weight
            As in `FairLogisticRegression.fit`.
        penalty_data
            ``(X, sensitive_features)``: take the penalty on these rows instead.

        Returns
        -------
        Self
        """
        given = FitInput(X, y, sensitive_features, sample_weight, penalty_data)
        encoded = encode(self, given)
        start = self._start(encoded) if self.warm_start else None
        with progress(self.verbose, self.max_iter) as callbacks:
            placed, plain = self._place_bins(encoded, start)
            solution = plain
            if placed.penalty is not None:
                first = plain.value if start is None else start
                solution = self._solver().solve(
                    placed, start=first, callbacks=callbacks
                )
        self._learn_weight(Choice(placed.objective.fairness_weight))
        return self._store(solution, placed, encoded)

    def predict(self, X: Table) -> FloatArray:
        """Return the prediction for each row, in units of y.

        Parameters
        ----------
        X
            (n_samples, n_features). Groups are never needed to predict.
        """
        X = self._check_fitted_features(X)
        return np.asarray(X @ self.coef_).reshape(-1) + self.intercept_

    def fit_path(
        self,
        given: FitInput,
        fairness_weights: Sequence[float],
        start: Self | None = None,
    ) -> Iterator[Self]:
        """Yield one fitted model per weight, each begun where the last one ended.

        The bins are placed once, so the models of a path are compared on the same.
        """
        weights = [check_number("fairness_weights", w) for w in fairness_weights]
        widest = clone(self).set_params(fairness_weight=max(weights, default=0.0))
        encoded = encode(widest, given)
        placed, plain = widest._place_bins(encoded, None)
        first = plain.value if start is None else start._start(encoded)
        path = widest._solver().solve_path(placed, weights, start=first)
        for weight, solution in zip(weights, path, strict=True):
            yield widest._with_weight(weight)._store(solution, placed, encoded)

    def _solver(self) -> LBFGS:
        return LBFGS(
            tol=check_number("tol", self.tol, above=True),
            max_iter=check_whole("max_iter", self.max_iter),
            fit_intercept=bool(self.fit_intercept),
            evaluator=PlainEvaluator(),
        )

    def _place_bins(
        self, encoded: Encoded, start: FloatArray | None
    ) -> tuple[RegressionProblem, Solution]:
        # The plain model says where predictions are, and is where training begins.
        problem = encoded.problem
        n_bins = check_whole("n_bins", self.n_bins)
        plain = replace(problem, penalty=None, penalty_X=None)
        solution = self._solver().solve(plain, start=start)
        if encoded.rows is None or problem.penalty is None:
            return problem, solution
        predicted = penalized_logits(problem, solution.value)[:, 1]
        edges = quantile_edges(predicted, n_bins, encoded.rows.weight)
        if edges.size == 0:
            # Nothing is predicted, so nothing depends on the group: any bins do.
            return problem, solution
        return replace(problem, bins=make_bins(edges, self.steepness)), solution

    def _start(self, encoded: Encoded) -> FloatArray | None:
        if not hasattr(self, "coef_"):
            return None
        data = encoded.data
        intercept = (self.intercept_ - data.centre) / data.scale
        return np.append(self.coef_ / data.scale, intercept)[None, :]

    def _store(
        self, solution: Solution, problem: RegressionProblem, encoded: Encoded
    ) -> Self:
        data, rows = encoded.data, encoded.rows
        self.coef_ = solution.value[0, :-1] * data.scale
        self.intercept_ = float(solution.value[0, -1] * data.scale + data.centre)
        self.groups_ = np.array(rows.group_names if rows else (), dtype=object)
        self.bin_edges_ = problem.bins.edges * data.scale + data.centre
        self.dual_ = (
            np.concatenate(solution.dual, axis=2)
            if solution.dual
            else np.zeros((0, 0, 0))
        )
        self.n_iter_ = int(solution.stats["n_iter"])
        self.history_: tuple[dict[str, Any], ...] = solution.history
        self.result_ = solution.result
        self._warn_of_result(solution.result)
        return self
