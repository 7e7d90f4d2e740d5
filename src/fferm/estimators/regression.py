"""Fair regression of a number, by a linear model or a network."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin, clone

from fferm._types import FloatArray, Table
from fferm.columns import GroupMode
from fferm.divergences import Divergence
from fferm.errors import InvalidInputError
from fferm.estimators.base import Choice, FairEstimator, FitInput
from fferm.estimators.progress import progress
from fferm.estimators.regression_bounds import choose_regression_weight
from fferm.estimators.regression_data import Encoded, encode
from fferm.estimators.regression_training import Fitted, train
from fferm.estimators.validation import check_number
from fferm.losses import Loss
from fferm.notions import Notion
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
    max_violation, violation_metric
        None, or the most that a measure of `fferm.dependence` may be on held-out rows:
        ``"kolmogorov_smirnov"``, ``"wasserstein"`` and ``"mean_gap"`` (in the unit of
        y) between groups, or bands of numbers; ``"distance_correlation"``,
        ``"maximal_correlation"``, ``"f_information"`` and ``"correlation"`` with
        numbers. The smallest fairness weight tried that keeps it is used for all rows.
    validation_fraction
        The share of rows held out for ``max_violation``.
    loss
        ``"squared"``, ``"absolute"``, ``"huber"``, ``"quantile"`` or an instance such
        as ``Quantile(0.9)`` and ``Huber(width=0.5)`` of `fferm.losses`.
    n_bins
        How many soft bins the prediction is counted in.
    steepness
        How steeply neighbouring bins change over, in units of one over the distance of
        their edges: 4 is soft, 100 is nearly hard.
    sharpness
        The penalty sees the softmax of ``sharpness`` times the logits of the bins, as
        that of a classifier does of its classes: bins are then ``sharpness`` times as
        steep. A critic has no bins, and takes 1 alone.
    method
        ``"bins"``: the penalty counts the prediction in soft bins, and numbers among
        the sensitive features in quantile bands. ``"critic"``: a network takes the
        place of the dual table and sees the numbers themselves; all sensitive columns
        count together.
    continuous
        Names of the sensitive columns that are numbers, such as ages in whole years;
        ``"auto"``: those of more than 20 different fractional values.
    hidden
        None is a linear model; else a network with hidden layers of these widths.
    l2
        Strength of the ridge on coefficients, of y in standard deviations.
    fit_intercept
        Whether to learn an intercept.
    solver
        ``"lbfgs"``: full batch, linear models with bins. ``"sgda"``: descent-ascent on
        minibatches of any size, for all; needs the extra ``torch``. ``"auto"``: the
        first where it can.
    tol, max_iter
        Of ``"lbfgs"``, as in `FairLogisticRegression`.
    batch_size, max_epochs, learning_rate
        Of ``"sgda"``: rows a step, passes over the data, and Adam's step; None is 0.02,
        and 0.003 for networks.
    warm_start
        Whether `fit` begins at the last solution, of the full batch.
    random_state
        Seed of minibatches and networks.
    verbose
        1 shows progress.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,), of a linear model
    intercept_ : float, of a linear model
    module_ : the network, where it is one
    groups_ : ndarray of group names
    bin_edges_ : ndarray of shape (n_bins - 1,), in units of y
    dual_ : ndarray of shape (n_strata, n_bins, n_groups), the optimal dual
    fairness_weight_ : the weight that was used
    violation_, feasible_ : under ``max_violation``, the measure on the held-out rows
        and whether it was kept
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
        max_violation: float | None = None,
        violation_metric: str = "kolmogorov_smirnov",
        validation_fraction: float = 0.2,
        loss: str | Loss = "squared",
        n_bins: int = 10,
        steepness: float = 4.0,
        sharpness: float = 1.0,
        groups: GroupMode = "intersection",
        uncertainty: Uncertainty | None = None,
        method: str = "bins",
        continuous: Sequence[str] | str = "auto",
        hidden: Sequence[int] | None = None,
        l2: float = 0.0,
        fit_intercept: bool = True,
        solver: str = "auto",
        tol: float = 1e-5,
        max_iter: int = 1000,
        batch_size: int = 64,
        max_epochs: int = 30,
        learning_rate: float | None = None,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.divergence = divergence
        self.notion = notion
        self.fairness_weight = fairness_weight
        self.max_violation = max_violation
        self.violation_metric = violation_metric
        self.validation_fraction = validation_fraction
        self.loss = loss
        self.n_bins = n_bins
        self.steepness = steepness
        self.sharpness = sharpness
        self.groups = groups
        self.uncertainty = uncertainty
        self.method = method
        self.continuous = continuous
        self.hidden = hidden
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
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
        choice = Choice(encoded.problem.objective.fairness_weight)
        if self.max_violation is not None:
            choice = choose_regression_weight(self, given, encoded)
        weight = choice.fairness_weight
        start = self._start(encoded) if self.warm_start else None
        with progress(self.verbose, self.max_iter) as callbacks:
            (fitted,) = train(self, encoded, given, [weight], start, callbacks)
        self._learn_weight(choice)
        return self._store(fitted, encoded)

    def predict(self, X: Table) -> FloatArray:
        """Return the prediction for each row, in units of y.

        Parameters
        ----------
        X
            (n_samples, n_features). Groups are never needed to predict.
        """
        X = self._check_fitted_features(X)
        if not hasattr(self, "module_"):
            return np.asarray(X @ self.coef_).reshape(-1) + self.intercept_
        from fferm.torch.regression import predict  # linear models do without

        centre, scale = self.unit_
        return np.asarray(predict(self.module_, X) * scale + centre)

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
        widest = clone(self).set_params(
            fairness_weight=max(weights, default=0.0), max_violation=None
        )
        encoded = encode(widest, given)
        first = None if start is None else start._start(encoded)
        path = train(widest, encoded, given, weights, first)
        for weight, fitted in zip(weights, path, strict=True):
            yield widest._with_weight(weight)._store(fitted, encoded)

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        parameters, learned = super()._to_saved()
        if "module_" in learned:
            from fferm.torch import states

            learned["module_"] = states.pack(learned["module_"])
        return parameters, learned

    def _from_saved(self, learned: dict[str, Any]) -> None:
        packed = learned.pop("module_", None)
        super()._from_saved(learned)
        if packed is not None:
            from fferm.torch.regression import restore

            self.module_ = restore(packed)

    def _start(self, encoded: Encoded) -> FloatArray | None:
        if not hasattr(self, "coef_"):
            return None
        data = encoded.data
        if self.coef_.size != data.X.shape[1]:
            raise InvalidInputError(
                f"warm_start found {self.coef_.size} features, the data have "
                f"{data.X.shape[1]}. Fit with warm_start=False."
            )
        intercept = (self.intercept_ - data.centre) / data.scale
        return np.append(self.coef_ / data.scale, intercept)

    def _store(self, fitted: Fitted, encoded: Encoded) -> Self:
        data, rows = encoded.data, encoded.rows
        for name in ("coef_", "intercept_", "module_", "unit_"):
            if hasattr(self, name):  # of an earlier fit, perhaps of the other kind
                delattr(self, name)
        if fitted.theta is not None:
            self.coef_ = fitted.theta[:-1] * data.scale
            self.intercept_ = float(fitted.theta[-1] * data.scale + data.centre)
        else:
            self.module_ = fitted.module
            self.unit_ = np.array([data.centre, data.scale])
        self._learn_groups(rows)
        self.bin_edges_ = fitted.problem.bins.edges * data.scale + data.centre
        self.dual_ = fitted.dual
        self.n_iter_ = fitted.n_iter
        self.history_: tuple[dict[str, Any], ...] = fitted.history
        self.result_ = fitted.result
        self._warn_of_result(fitted.result)
        return self
