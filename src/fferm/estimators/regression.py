"""Fair regression of a number, by a linear model or a network."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin, clone
from sklearn.utils import _safe_indexing, check_random_state

from fferm._typing import FloatArray, IntArray, Table, is_sparse
from fferm.data.groups import Binning, quantile_edges, take_rows
from fferm.data.rows import FitInput
from fferm.data.split import hold_out, hold_out_evenly, keep_rows, kinds
from fferm.data.validate import (
    COUNT,
    POSITIVE,
    Constraint,
    Number,
    OneOf,
    TrainingData,
    check_widths,
    validate_training,
)
from fferm.errors import (
    FfermWarning,
    InvalidInputError,
    InvalidParameterError,
    muted,
)
from fferm.estimators.base import Encoded, FairEstimator, all_classes, progress
from fferm.estimators.weight_search import (
    Expected,
    HeldOut,
    Judged,
    by_chance_words,
)
from fferm.metrics.dependence import (
    GROUP_MEASURES,
    RegressionTabulator,
    get_measure,
    make_regression_tabulator,
)
from fferm.penalty.losses import Loss
from fferm.penalty.objective import Problem
from fferm.penalty.soft_bins import UNUSED_BINS, make_bins
from fferm.solvers import LBFGS, Result, Solution
from fferm.solvers.base import Callback
from fferm.solvers.linear import Evaluator, linear_logits

# Adam's steps for a linear model and for a network. A step moves all coefficients at
# once, and predictions by the root of how many there are.
LINEAR_RATE, LINEAR_REACH = 0.02, 0.05
NETWORK_RATE = 0.003
# How many standard errors below a bound a distance must be to keep it with confidence.
RATE_MARGIN, MEAN_MARGIN = 1.7, 3.5
# A penalty as large as the loss that keeps more than this share of it has done nothing.
KEPT = 0.9


@dataclass(frozen=True)
class Fitted:
    """What training gave.

    Attributes
    ----------
    problem
        With the bins that were used.
    theta
        (n_features + 1,) of a linear model, else None.
    module
        A network, else None.
    result, history, n_iter
        How training went.
    """

    problem: Problem
    theta: FloatArray | None
    module: Any
    result: Result
    history: tuple[dict[str, float], ...]
    n_iter: int

    @classmethod
    def linear(cls, problem: Problem, solution: Solution) -> Self:
        """Return the linear model of a solution."""
        n_iter, theta = int(solution.stats["n_iter"]), solution.value[0]
        return cls(problem, theta, None, solution.result, solution.history, n_iter)

    def predict(self, X: Table) -> FloatArray:
        """Return predictions in standard deviations of y."""
        if self.theta is not None:
            return linear_logits(X, self.theta[None])[:, 1]
        return _torch().predict(self.module, X)  # type: ignore[no-any-return]


@dataclass(kw_only=True, eq=False, repr=False)
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
    divergence, fairness_weight, groups, group_weights, uncertainty
        As in `FairLogisticRegression`.
    notion
        ``"demographic_parity"`` or ``ConditionalParity(control)``.
    max_violation, violation_metric
        None, or the most that a measure of `fferm.metrics.dependence` may be on
        held-out rows: ``"kolmogorov_smirnov"``, ``"wasserstein"`` and ``"mean_gap"``
        (in the unit of y) between groups, or bands of numbers;
        ``"distance_correlation"``, ``"maximal_correlation"``, ``"f_information"`` and
        ``"correlation"`` with numbers.
    max_divergence
        As in `FairLogisticRegression`, of the soft bins.
    confidence, refit
        As in `FairLogisticRegression`, for measures between groups. Means and
        Wasserstein distances are tested with predictions cut to the range of those on
        the training rows. Other measures have no test and need ``confidence=None``.
    validation_fraction
        The share of rows held out for ``max_violation``.
    loss
        ``"squared"``, ``"absolute"``, ``"huber"``, ``"quantile"`` or an instance such
        as ``Quantile(0.9)`` and ``Huber(width=0.5)`` of `fferm.penalty.losses`.
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
    min_group_size, categorical
        As in `FairLogisticRegression`.
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

    constraints: ClassVar[Mapping[str, Constraint]] = {
        **FairEstimator.constraints,
        "n_bins": Number(low=2, is_whole=True),
        "steepness": POSITIVE,
        "method": OneOf(("bins", "critic")),
        "solver": OneOf(("auto", "lbfgs", "sgda")),
        "tol": POSITIVE,
        "max_iter": COUNT,
        "batch_size": COUNT,
        "max_epochs": COUNT,
        "learning_rate": Number(open_low=True, is_optional=True),
    }

    violation_metric: str = "kolmogorov_smirnov"
    loss: str | Loss = "squared"
    n_bins: int = 10
    steepness: float = 4.0
    method: str = "bins"
    hidden: Sequence[int] | None = None
    l2: float = 0.0
    fit_intercept: bool = True
    solver: str = "auto"
    tol: float = 1e-5
    max_iter: int = 1000
    batch_size: int = 64
    max_epochs: int = 30
    learning_rate: float | None = None

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
        centre, scale = self.unit_
        return np.asarray(_torch().predict(self.module_, X) * scale + centre)

    def to_sklearn(self) -> Any:
        """Return a plain ``LinearRegression``, as `FairLogisticRegression` does."""
        if hasattr(self, "module_"):
            raise InvalidInputError(
                "to_sklearn needs a linear model; this one is a network. Use "
                "fferm.export.onnx(model, path, example)."
            )
        from sklearn.linear_model import LinearRegression

        return self._to_sklearn(LinearRegression())

    def _read_training(self, passed: FitInput) -> TrainingData:
        data = validate_training(
            self, passed.X, passed.y, passed.sample_weight, is_number=True
        )
        objective, y, weight = self._objective(), data.y, data.weight
        if objective.fairness_weight > 0 and objective.notion.needs_labels:
            raise InvalidParameterError(
                f"notion={objective.notion.name!r} conditions on a label; y is "
                "numeric. Use ConditionalParity(pandas.qcut(y, 5, labels=False))."
            )
        if objective.fairness_weight > 0 and y.size < 2:
            raise InvalidInputError(
                "X has 1 sample. Pass rows of two groups, or set fairness_weight=0."
            )
        centre = float(np.average(y, weights=weight)) if self.fit_intercept else 0.0
        scale = float(np.sqrt(np.average((y - centre) ** 2, weights=weight)))
        # If all numbers are equal, nothing is left but rounding.
        is_flat = not scale > 1e-12 * max(float(np.abs(y).max()), 1e-300)
        return replace(data, centre=centre, scale=1.0 if is_flat else scale)

    def _read_penalty_data(self, passed: FitInput) -> tuple[Table, ...]:
        parts = super()._read_penalty_data(passed)
        if len(parts) > 2:
            raise InvalidInputError(
                "penalty_data must be (X, sensitive_features); got three parts."
            )
        return parts

    def _encode(self, passed: FitInput, *, learn_columns: bool = True) -> Encoded:
        encoded = super()._encode(passed, learn_columns=learn_columns)
        y = (encoded.data.y - encoded.data.centre) / encoded.data.scale
        # Bins are placed later. Two classes make one output.
        problem, loss = encoded.problem, Loss.resolve(self.loss)
        problem = replace(problem, y=y, n_classes=2, loss_of=loss, bins=UNUSED_BINS)
        return encoded._replace(problem=problem)

    def _measured_prob(self, encoded: Encoded) -> FloatArray:
        if self.method == "critic":
            raise InvalidParameterError(
                "max_divergence needs method='bins'; a critic has no table."
            )
        problem, data, other = (
            encoded.problem,
            encoded.data,
            encoded.passed.penalty_data,
        )
        prediction = self.predict(encoded.passed.X if other is None else other[0])
        unit = (prediction[encoded.kept] - data.centre) / data.scale
        edges = (self.bin_edges_ - data.centre) / data.scale
        placed: Problem = replace(problem, bins=make_bins(edges, float(self.steepness)))
        return placed.penalized_prob(all_classes(unit))

    def _hold_out(self, encoded: Encoded) -> "HeldOutNumbers":
        data, rows, passed = encoded.data, encoded.rows, encoded.passed
        if rows is None or passed.penalty_data is not None:
            raise InvalidInputError(
                "max_violation is judged on held-out training rows; omit penalty_data."
            )
        get_measure(self.violation_metric)
        if self.confidence is not None and self.violation_metric not in GROUP_MEASURES:
            raise InvalidParameterError(
                f"confidence must be None with {self.violation_metric!r}, which has no "
                f"test that keeps its level; got {self.confidence!r}. Or use one of "
                f"{', '.join(GROUP_MEASURES)}."
            )
        label = np.zeros(data.y.size, dtype=np.int64)
        part = self.validation_fraction, self.random_state
        if self.confidence is None:
            held = hold_out(kinds(rows, label), *part)
        else:
            held = hold_out_evenly(rows, label, *part)
        shown, edges = keep_rows(passed, data, ~held), rows.band_edges
        if edges:  # bands are those of the training rows
            with muted(FfermWarning):
                trained = clone(self)._encode(shown).rows
            edges = {} if trained is None else trained.band_edges
            shown = replace(shown, edges=edges)
        small = {column.name: column.small for column in rows.attributes}
        binning = Binning(self.continuous, edges, small=small)
        sides = [
            self._side(encoded, binning, np.flatnonzero(data.kept)[side], side)
            for side in (held, ~held)
        ]
        bound = float(self.max_violation or 0.0)
        return HeldOutNumbers(shown, bound, self.confidence, *sides[0], *sides[1])

    def _side(
        self,
        encoded: Encoded,
        binning: Binning,
        position: IntArray,
        side: NDArray[np.bool_],
    ) -> tuple[Table, RegressionTabulator]:
        # Features of some rows, and what measures predictions on them.
        passed, notion = encoded.passed, encoded.problem.objective.notion
        control = notion.control_feature()
        if not isinstance(control, str | int | np.integer | None):  # a value per row
            notion = replace(notion, control=_safe_indexing(control, position))
        X = passed.X.tocsr() if is_sparse(passed.X) else passed.X
        taken = _safe_indexing(X, position)
        weight = None if passed.sample_weight is None else encoded.data.weight[side]
        sensitive = take_rows(passed.sensitive_features, position)
        parts = sensitive, notion, self.groups, taken, binning, weight
        return taken, make_regression_tabulator(self.violation_metric, *parts)

    def _path_start(self, encoded: Encoded) -> FloatArray | None:
        if not hasattr(self, "coef_"):
            return None
        data = encoded.data
        if self.coef_.size != data.X.shape[1]:
            raise InvalidInputError(
                f"warm_start needs the {self.coef_.size} features of the last fit; got "
                f"{data.X.shape[1]}. Fit with warm_start=False."
            )
        intercept = (self.intercept_ - data.centre) / data.scale
        return np.append(self.coef_ / data.scale, intercept)

    def _train(
        self, encoded: Encoded, weights: Sequence[float], start: Any, *, is_path: bool
    ) -> Iterator[Fitted]:
        is_full = self._is_full_batch()
        with progress(self.verbose, self.max_iter) as callbacks:
            if not is_full:
                yield from self._minibatches(encoded, weights, callbacks)
                return
            plain = self._train_plain(encoded.problem, start)
            problem = self._place_bins(encoded, Fitted.linear(encoded.problem, plain))
            if problem.penalty is None:
                yield from [Fitted.linear(problem, plain)] * len(weights)
                return
            first = plain.value if start is None else start[None]
            solver = self._linear_solver()
            path = solver.solve_path(problem, weights, start=first, callbacks=callbacks)
            for weight, solution in zip(weights, path, strict=True):
                yield Fitted.linear(problem.with_weight(weight), solution)

    def _is_full_batch(self) -> bool:
        if self.method == "critic" and self.sharpness != 1:
            raise InvalidParameterError(
                f"sharpness must be 1 with method='critic'; got {self.sharpness!r}."
            )
        is_full = self.hidden is None and self.method == "bins"
        if self.solver == "lbfgs" and not is_full:
            raise InvalidParameterError(
                "solver='lbfgs' trains linear models in bins. Use solver='sgda'."
            )
        return is_full and self.solver != "sgda"

    def _linear_solver(self) -> LBFGS:
        return LBFGS(
            tol=float(self.tol),
            max_iter=int(self.max_iter),
            fit_intercept=bool(self.fit_intercept),
            evaluator=Evaluator(),
        )

    def _train_plain(self, problem: Problem, start: FloatArray | None) -> Solution:
        plain = replace(problem, penalty=None, penalty_X=None)
        first = None if start is None else start[None]
        return self._linear_solver().solve(plain, start=first)

    def _place_bins(self, encoded: Encoded, plain: Fitted) -> Problem:
        # Bins lie between quantiles of the plain model's predictions.
        problem: Problem = encoded.problem
        if encoded.rows is None:
            return problem
        predicted = plain.predict(problem.penalized_X)
        edges = quantile_edges(predicted, int(self.n_bins), encoded.rows.weight)
        if edges.size == 0:
            # All predictions are equal, so nothing depends on the group.
            return problem
        return replace(problem, bins=make_bins(edges, float(self.steepness)))

    def _minibatches(
        self,
        encoded: Encoded,
        weights: Sequence[float],
        callbacks: tuple[Callback, ...],
    ) -> Iterator[Fitted]:
        torch, problem, rows = _torch(), encoded.problem, encoded.rows
        if problem.objective.uncertainty is not None:
            raise InvalidParameterError(
                "uncertainty needs the exact tables of the full batch. Use "
                "solver='lbfgs' with hidden=None and method='bins'."
            )
        if self.hidden is not None and not self.fit_intercept:
            raise InvalidParameterError(
                "fit_intercept=False needs a linear model: use hidden=None."
            )
        hidden = check_widths(() if self.hidden is None else self.hidden)
        rate = min(LINEAR_RATE, LINEAR_REACH / float(np.sqrt(problem.X.shape[1])))
        rate = rate if self.hidden is None else NETWORK_RATE
        config = torch.make_config(
            float(self.learning_rate or rate),
            batch_size=min(int(self.batch_size), encoded.data.y.size),
            n_epochs=int(self.max_epochs),
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
        )
        parts = encoded.data.X, problem.share, hidden, config.seed
        module = torch.make_module(*parts, bool(self.fit_intercept))
        if self.hidden is None:
            plain = Fitted.linear(problem, self._train_plain(problem, None))
            module.set_linear(plain.theta)
        else:
            trained = torch.train(module, problem, None, config)
            module = trained.module
            plain = Fitted(problem, None, module, trained.result, (), 0)
        problem = self._place_bins(encoded, plain)
        config, critic = replace(config, callbacks=callbacks), None
        if self.method == "critic" and rows is not None:
            critic = self._penalty_columns(encoded), self.continuous
        for weight in weights:
            weighted, start = problem.with_weight(weight), copy.deepcopy(module)
            judged = rows if weight > 0 else None
            trained = torch.train(start, weighted, judged, config, critic)
            theta = trained.module.linear() if self.hidden is None else None
            history, n_epochs = trained.history, len(trained.history)
            made = weighted, theta, trained.module, trained.result, history, n_epochs
            yield _checked(Fitted(*made), plain)

    def _store(self, fitted: Fitted, encoded: Encoded, *, is_path: bool) -> None:
        data = encoded.data
        for name in ("coef_", "intercept_", "module_", "unit_"):
            # Of an earlier fit, perhaps of the other sort.
            self.__dict__.pop(name, None)
        if fitted.theta is not None:
            self.coef_ = fitted.theta[:-1] * data.scale
            self.intercept_ = float(fitted.theta[-1] * data.scale + data.centre)
        else:
            self.module_ = fitted.module
            self.unit_ = np.array([data.centre, data.scale])
        self.bin_edges_ = fitted.problem.bins.edges * data.scale + data.centre
        u = fitted.predict(fitted.problem.penalized_X)
        self.dual_ = self._best_dual(fitted.problem, all_classes(u))
        self.n_iter_ = fitted.n_iter
        self.history_: tuple[dict[str, Any], ...] = fitted.history
        self.result_ = fitted.result

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        parameters, learned = super()._to_saved()
        if "module_" in learned:
            learned["module_"] = _torch().serialize.pack(learned["module_"])
        return parameters, learned

    def _from_saved(self, learned: dict[str, Any]) -> None:
        packed = learned.pop("module_", None)
        super()._from_saved(learned)
        if packed is not None:
            n_features = len(self._input_names())
            self.module_ = _torch().restore(packed, n_features)
        self._check_loaded()


def _checked(fitted: Fitted, plain: Fitted) -> Fitted:
    # Minibatches end when their schedule does, wherever the model is by then.
    problem = fitted.problem
    penalty, weight = problem.penalty, problem.objective.fairness_weight
    if penalty is None or weight == 0 or not fitted.result.is_success:
        return fitted
    losses, distances = [], []
    for predict in (fitted.predict, plain.predict):
        residual = problem.y - predict(problem.X)
        losses.append(float(problem.share @ problem.loss_of.value(residual, np)))
        logits = all_classes(predict(problem.penalized_X))
        tables = penalty.tables(problem.penalized_prob(logits))
        distances.append(penalty.value(tables))
    constant = float(problem.share @ problem.loss_of.value(problem.y, np))
    result = fitted.result
    if losses[0] > constant:
        result = Result.worse_than_constant
    elif distances[0] > KEPT * distances[1] and weight * distances[1] > losses[1]:
        result = Result.dependence_kept
    return replace(fitted, result=result)


@dataclass
class HeldOutNumbers(HeldOut[FairRegressor]):
    """Held-out rows that judge the predictions of regressors."""

    X: Table
    measured: RegressionTabulator
    trained_X: Table  # noqa: N815 - X is mathematics
    trained: RegressionTabulator

    def judge(self, model: FairRegressor) -> Judged[FairRegressor]:
        """Return a model with its violation on the held-out rows."""
        prediction = model.predict(self.X)
        value = self.measured.violation(prediction)
        passes = value <= self.bound
        if passes and self.confidence is not None:
            shown = model.predict(self.trained_X)
            span = float(shown.min()), float(shown.max())
            p = self.measured.certify(prediction, self.bound, span)
            passes = p <= 1 - self.confidence
        return Judged(model, value, True, passes)

    def expected(self, model: FairRegressor) -> Expected[FairRegressor]:
        """Return the bound that a model will be shown to keep, by the training rows."""
        prediction = model.predict(self.trained_X)
        scale, margin = 0.5, RATE_MARGIN
        if self.measured.measure != "kolmogorov_smirnov":
            scale, margin = float(prediction.std()), MEAN_MARGIN
        counts = [
            np.unique(values, return_counts=True)[1]
            for values, _ in self.measured.parts
        ]
        smallest = [np.sort(count)[:2] for count in counts]
        error = scale * float(np.sqrt(max(np.sum(1 / n) for n in smallest)))
        value = self.trained.violation(prediction)
        limit = value + margin * error if np.ptp(prediction) > 0 else np.inf
        return Expected(model, value, limit, error)

    def floor(self) -> float:
        """Return the distance of distribution functions that chance alone makes."""
        if self.measured.measure != "kolmogorov_smirnov":
            return 0.0  # others depend on how far predictions are apart
        return self.measured.by_chance(np.arange(float(self.X.shape[0])))

    def infeasible(self, closest: Judged[FairRegressor], highest: float) -> str:
        """Return the warning for a bound that no weight up to ``highest`` keeps."""
        prediction = closest.model.predict(self.X)
        sizes = self.measured.worst_pair(prediction)
        pair = " and ".join(f"{g} ({n} held-out rows)" for g, n in sizes.items())
        name, n_rows = self.measured.measure, self.X.shape[0]
        fairest = (
            f"fairness_weight={closest.fairness_weight:.4g}, measures "
            f"{closest.violation:.4g}{f', between {pair}' if pair else ''}. "
            + by_chance_words(self.measured.by_chance(prediction), self.bound)
        )
        if self.confidence is not None:
            return (
                f"No model up to fairness_weight={highest:g} passes the test of "
                f"max_violation={self.bound:g} for {name} at "
                f"confidence={self.confidence:g} on {n_rows} held-out rows, so "
                "feasible_ is False. The fairest is kept and not shown to be fair "
                f"enough: {fairest}"
            )
        return (
            f"No fairness_weight up to {highest:g} brings {name} on {n_rows} held-out "
            f"rows to max_violation={self.bound:g}. The closest, {fairest}"
        )


def _torch() -> Any:
    # Imported when needed: the full batch does without.
    import fferm.torch.regression

    return fferm.torch.regression
