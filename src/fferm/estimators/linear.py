"""Fair logistic regression."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import check_random_state

from fferm import solvers
from fferm._typing import FloatArray, IntArray, Table, is_sparse
from fferm.data.partitions import PartitionedRows
from fferm.data.rows import FitInput
from fferm.data.validate import COUNT, POSITIVE, Constraint, Number, OneOf
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.estimators.base import Encoded, FairClassifier, progress
from fferm.penalty.objective import Objective, Problem
from fferm.solvers import LANES_FROM, LARGE_NUMBER, Solution
from fferm.solvers.linear import make_evaluator, parameter_shape, predicted_codes

# Models predict together, as long as their logits take no more than 64 MB.
LOGITS_TOGETHER = 2**23
SOME_COUNT = Number(low=1, is_whole=True, is_optional=True)


@dataclass(kw_only=True, eq=False, repr=False)
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
        ``"auto"`` trains the six that need no parameters, under ``max_violation`` each
        with the weight that keeps it, else at the strength of ``fairness_weight`` in
        ``kl``, and takes the one that does best on held-out rows: the most accurate
        that keeps the bound, else the largest accuracy minus violation.
    notion
        ``"demographic_parity"``, ``"equal_opportunity"``, ``"equalized_odds"``,
        ``"sufficiency"``, ``"predictive_parity"`` or an instance such as
        ``ConditionalParity("department")``.
    fairness_weight
        The weight :math:`\lambda`; 0 is plain training. None is 10 for ``kl`` and as
        strong for other divergences, or what ``max_violation`` finds.
    max_violation
        None, or the largest violation of decisions allowed, in [0, 1]: find the
        smallest fairness weight, of those tried, that keeps it on held-out rows. A
        model that predicts one class for every held-out row never counts. If none keeps
        the bound, ``feasible_`` is False and the fairest model is returned, with an
        `InfeasibleWarning`.
    measure
        How ``max_violation`` and the penalty compare rates of groups.
        ``"difference"``: the largest difference. ``"ratio"``: one minus the lowest rate
        over the highest, of the larger of two classes or of every class; a
        ``max_violation`` of 0.2 is the four-fifths rule. ``"deviation"``: the largest
        distance from the overall rate, relative to it. The last two need a notion that
        compares predictions and no ``uncertainty``. Their penalty does not fall where a
        class becomes rare, and with ``groups="marginal"`` it takes
        ``group_weights="equal"`` too.
    max_divergence
        None, or the largest divergence of the table of the training rows: the
        constrained form of the problem, plain or, with ``uncertainty``, for the worst
        table of the set. The smallest weight tried that keeps it is used, and
        ``divergence_value_`` and ``feasible_`` say how it did.
        ``fferm.metrics.certificates.divergence_for`` turns a violation into it, of
        probabilities and of these rows.
    confidence
        With this probability, over the draw of the data, the returned model's violation
        is at most ``max_violation``, or ``feasible_`` is False: models are tested on
        held-out rows that none of them saw. Steps before it in a pipeline did see them.
        It covers rows like these, the groups that the held-out rows have, and no other
        notion. With sample weights it is an approximation. None: the value on the
        held-out rows keeps the bound, which other rows break as often as not.
    refit
        Whether to train again on all rows with the weight that was found. That is
        another model than the one that was tested, and the confidence is lost.
    validation_fraction
        The share of rows held out for ``max_violation`` and early stopping, stratified
        by label and group and drawn by ``random_state``. With ``penalty_data``, a share
        of those rows instead; early stopping holds out a share of both.
    sharpness
        The penalty sees ``softmax(sharpness * logits)``: larger is closer to
        decisions, 1 is the soft probability.
    groups
        ``"intersection"`` or ``"marginal"``: several sensitive columns jointly, or
        one by one.
    group_weights
        ``"share"``: groups count in the penalty as they do among the rows. ``"equal"``:
        all alike, within each stratum, so that the rates of small groups are brought
        to those of the others too; for one sensitive column, or intersections.
    continuous
        Names of the sensitive columns that are numbers, such as ages in whole years,
        to be cut into bands; ``"auto"``: those of more than 20 distinct fractional
        values.
    min_group_size
        Groups with fewer rows train the loss and have no part in the penalty, in the
        search of ``max_violation``, or in curves and audits of the model; a warning
        and ``small_groups_`` name them.
    categorical
        Names of columns of a table that hold codes, to be read as categories. Columns
        of text and of categorical type always are. None hints at columns that look
        like codes; ``[]`` does not.
    uncertainty
        None, ``SmallShift(radius)`` or ``LargeShift(radius)``.
    l2
        Strength of the ridge on coefficients; intercepts are free.
    fit_intercept
        Whether to learn intercepts.
    solver
        ``"lbfgs"``: full batch, any penalty. ``"semi_stochastic"``: minibatches, any
        penalty, with a pass over its rows every few steps. ``"sgda"``: descent-ascent
        on minibatches of any size, for notions that condition on labels or controls and
        no uncertainty set. ``"sreda"``: the same with less noise, in larger batches and
        more passes. ``"auto"``: ``"sgda"`` for many models of large data (a curve, the
        search of ``max_violation``), else ``"lbfgs"``.
    tol, max_iter
        Of ``"lbfgs"``: tolerance on the gradient, in coordinates in which the problem
        is round, and most iterations.
    batch_size, max_epochs
        Of minibatches: rows a step, from 1 to all, and passes over the data. None is 64
        rows and 6 passes, fewer for more than a million rows; 256 rows for ``"sreda"``,
        30 passes for ``"semi_stochastic"`` and 20 for ``"sreda"``. Few rows are passed
        more often than asked: until there are 600 steps (2000 of ``"sreda"``) and, for
        ``"sgda"``, 100,000 rows.
    learning_rate, dual_learning_rate
        Of minibatches: Adagrad's step (None is 0.8 for ``"sgda"``, 0.3 for
        ``"sreda"`` and ``"semi_stochastic"``, where it falls to 0, and 0.4 in
        `partial_fit`), and ``c`` of the dual step ``c / t`` of ``"sgda"`` and
        ``"sreda"``.
    dual
        Of ``"sgda"``: the variable that ascends. ``"log_ratio"``; ``"projected"``, the
        dual itself, clipped to its box; ``"auto"``, the latter where the dual has a
        kink. ``"plain"`` is Algorithm 1 of the paper as printed: the dual itself, and
        ``learning_rate`` and ``dual_learning_rate`` (there 1e-5 and 1e-6) are constant
        steps along the gradients, the last of which is the model.
    refresh_every
        Of ``"semi_stochastic"`` and ``"sreda"``: steps between two passes over all
        rows. None is a sixteenth of an epoch, and 10 steps for ``"sreda"``.
    early_stopping, patience
        Of minibatches: None runs all epochs. ``"validation"`` stops when the objective
        on a share ``validation_fraction`` of the rows, held out, has not fallen by 1e-4
        of itself for ``patience`` epochs (of at least 100 steps), and keeps the best
        model. ``"training"`` watches the objective on the training rows instead.
    warm_start
        Whether `fit` begins at the last solution.
    random_state
        Seed of the rows held out for ``max_violation`` and of the order of minibatches;
        the full batch is deterministic.
    verbose
        1 shows progress.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray
    groups_ : ndarray of group names
    dual_ : ndarray of shape (n_strata, n_classes, n_groups), the optimal dual
    fairness_weight_ : the weight that was used
    divergence_ : the divergence that was used, an instance
    violation_ : under ``max_violation``, the violation of decisions on the held-out
        rows with that weight, before training on all rows
    feasible_ : under ``max_violation``, whether it was kept on the held-out rows
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

    starts_at_judged: ClassVar[bool] = True
    reads_sparse: ClassVar[bool] = True
    learned_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "classes_": ("classes",),
        "coef_": ("scores", "inputs"),
        "intercept_": ("scores",),
    }
    constraints: ClassVar[Mapping[str, Constraint]] = {
        **FairClassifier.constraints,
        "tol": POSITIVE,
        "max_iter": COUNT,
        "batch_size": SOME_COUNT,
        "max_epochs": SOME_COUNT,
        "learning_rate": Number(open_low=True, is_optional=True),
        "dual_learning_rate": Number(),
        "dual": OneOf(("auto", "log_ratio", "plain", "projected")),
        "refresh_every": SOME_COUNT,
        "early_stopping": OneOf((None, "training", "validation")),
        "patience": COUNT,
    }

    l2: float = 1e-4
    fit_intercept: bool = True
    solver: str = "auto"
    tol: float = 1e-5
    max_iter: int = 1000
    batch_size: int | None = None
    max_epochs: int | None = None
    learning_rate: float | None = None
    dual_learning_rate: float = 4.0
    dual: str = "auto"
    refresh_every: int | None = None
    early_stopping: str | None = None
    patience: int = 3

    def partial_fit(
        self,
        X: Table,
        y: Table,
        *,
        classes: Table = None,
        groups: Table = None,
        sensitive_features: Table = None,
        sample_weight: Table = None,
    ) -> Self:
        """Train on a piece of the data, once through it in minibatches.

        Call it for each piece, and again for a further pass. The steps are those of
        ``solver="sgda"``; dual, step sizes and order of rows go on from call to call,
        and the model is the average over the later half, or more, of all steps. `fit`
        starts from scratch. After `fit`, or in a model that was loaded, it goes on from
        ``coef_`` with small steps.

        Parameters
        ----------
        X
            (n_samples, n_features): array, CSR matrix or numeric data frame; after
            `fit` on a table, a table of the same columns.
        y
            (n_samples,) labels, each one of ``classes``.
        classes
            All labels there are; in the first call at least, unless ``groups`` is a
            `GroupCounts` that has counted labels.
        groups
            How large the groups are in the whole data: a `GroupCounts` that a first
            pass has filled, or their shares by value, ``{"a": 0.4, "b": 0.6}``, by
            ``(value, value)`` for two sensitive columns, by ``(label, value)`` under
            notions that condition on the label, with None for a missing value. It
            holds until it is passed again. Without it the first piece says which groups
            there are, and the shares are those among all rows so far: right in the
            end, and at first only where pieces are like the whole.
        sensitive_features
            The group of each row, as in `fit`.
        sample_weight
            (n_samples,) weights of the rows, which count relative to the mean weight
            of all rows so far.

        Returns
        -------
        Self
        """
        from fferm.estimators.partial import fit_batch

        batch = FitInput(X, y, sensitive_features, sample_weight)
        return fit_batch(self, batch, classes, groups)

    def to_sklearn(self) -> Any:
        """Return a plain ``LogisticRegression`` that predicts the same.

        If the model was fitted on a table, it stands in a ``Pipeline`` behind the same
        encoding. It needs scikit-learn alone; `fferm.export` has other formats.
        """
        from sklearn.linear_model import LogisticRegression

        plain = LogisticRegression()
        model = self._to_sklearn(plain)
        plain.classes_ = self.classes_
        plain.n_iter_ = np.array([self.n_iter_], dtype=np.int32)
        return model

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

    @classmethod
    def scores_of(cls, models: Sequence[Self], X: Table) -> Iterator[FloatArray]:
        """Yield the logits of several models, which read X together."""
        if not models:
            return
        X = models[0]._check_fitted_features(X)
        count = max(1, LOGITS_TOGETHER // X.shape[0])
        for begin in range(0, len(models), count):
            part = models[begin : begin + count]
            coef = np.concatenate([model.coef_ for model in part])
            scores = np.asarray((X @ coef.T).T if is_sparse(X) else coef @ X.T)
            for model, rows in zip(part, np.split(scores, len(part)), strict=True):
                logits = rows.T + model.intercept_
                yield logits[:, 0] if logits.shape[1] == 1 else logits

    def fits_path_jointly(self, passed: FitInput) -> bool:
        """Return whether `fit_path` trains its models as lanes of one run."""
        return not self.warm_starts_path(passed, [0.0] * LANES_FROM)

    def supports_large_weights(self) -> bool:
        """Return whether weights beyond the default range train well."""
        return self.solver in ("auto", "lbfgs") and self.early_stopping is None

    def warm_starts_path(
        self, passed: FitInput, fairness_weights: Sequence[float]
    ) -> bool:
        """Return whether each model starts at the last one: with the full batch."""
        size = int(np.prod(np.shape(passed.X)))
        return self._solver_name(self._objective(), size, fairness_weights) == "lbfgs"

    def _fit_best_divergence(self, passed: FitInput) -> Self:
        from fferm.estimators.weight_search import choose_divergence

        if hasattr(passed.X, "__dask_graph__"):
            self._encode(passed)  # refuses divergence="auto"
        if self.max_divergence is not None:
            raise InvalidParameterError(
                "max_divergence needs a divergence by name; 'auto' compares several."
            )
        best = choose_divergence(self, passed).fit(**passed.tables)
        for name in self._to_saved()[1]:  # of an earlier fit, on other columns perhaps
            delattr(self, name)
        self._from_saved(best._to_saved()[1])
        self._partial = None
        return self

    def _encode_partitions(self, passed: FitInput) -> Encoded:
        from fferm.estimators.partitioned import encode_partitions

        return encode_partitions(self, passed)

    def _train(
        self, encoded: Encoded, weights: Sequence[float], start: Any, *, is_path: bool
    ) -> Iterator[Solution]:
        problem = encoded.problem
        is_bound = self.max_violation is not None  # and trained again
        # Under a bound, by the solver that the weight was searched with.
        planned = [*weights] * LANES_FROM if is_bound and not is_path else weights
        name = self._solver_name(
            problem.objective, problem.X.shape[0] * self.n_features_in_, planned
        )
        if isinstance(problem.X, PartitionedRows):
            name = "lbfgs"
        elif self.solver == "auto" and name == "sgda" and self.early_stopping is None:
            largest = max(problem.X.max(), -problem.X.min())
            name = "lbfgs" if largest > LARGE_NUMBER else name
        watched = encoded.watched and encoded.watched.problem
        solver = solvers.make(name, self._solver_options(name, watched))
        if is_path:
            yield from solver.solve_path(problem, weights, start=start)
            return
        problem = problem.with_weight(weights[0])
        with progress(self.verbose, getattr(solver, "max_iter", None)) as callbacks:
            yield solver.solve(problem, start=start, callbacks=callbacks)

    def _solver_name(
        self, objective: Objective, size: int, weights: Sequence[float]
    ) -> str:
        name = solvers.choose(self.solver, objective, size, weights)
        if self.early_stopping is None:
            return name
        if self.solver == "lbfgs":
            raise InvalidParameterError(
                "solver='lbfgs' has no early_stopping. Use solver='sgda'."
            )
        if self.solver != "auto":
            return self.solver
        return "sgda" if objective.has_linear_dual else "semi_stochastic"

    def _solver_options(
        self, name: str, watched: Problem | None = None
    ) -> dict[str, Any]:
        # Options of None are left to the solver.
        options: dict[str, Any] = {
            "tol": float(self.tol),
            "max_iter": int(self.max_iter),
            "batch_size": self.batch_size,
            "max_epochs": self.max_epochs,
            "lr": self.learning_rate,
            "dual_lr": float(self.dual_learning_rate),
            "dual": self.dual,
            "refresh_every": self.refresh_every,
            "fit_intercept": bool(self.fit_intercept),
        }
        if name != "lbfgs":
            generator = check_random_state(self.random_state)
            options["seed"] = int(generator.randint(2**31 - 1))
        if self.early_stopping is not None:
            options |= {"patience": int(self.patience), "judged_on": watched}
        return {key: value for key, value in options.items() if value is not None}

    def _path_start(self, encoded: Encoded) -> FloatArray | None:
        # Robust penalties are non-smooth and a warm start can stick at a kink.
        if encoded.problem.objective.uncertainty is not None:
            return None
        return self._parameters()

    def _parameters(self) -> FloatArray:
        return np.column_stack([self.coef_, self.intercept_])

    def _warm_start(self, last: Self, encoded: Encoded) -> FloatArray | None:
        if not hasattr(last, "coef_"):
            return None
        theta, data = last._parameters(), encoded.data
        is_same = np.array_equal(last.classes_, data.classes)
        if not is_same or theta.shape != parameter_shape(encoded.problem):
            raise InvalidInputError(
                "warm_start needs the features and classes of the last fit, "
                f"{last.coef_.shape[1]} and {last.classes_.tolist()}; got "
                f"{data.X.shape[1]} and {data.classes.tolist()}. Set warm_start=False."
            )
        return theta

    def _store(self, solution: Solution, encoded: Encoded, *, is_path: bool) -> None:
        problem = encoded.problem
        self.classes_ = encoded.data.classes
        self.coef_ = solution.value[:, :-1].copy()
        self.intercept_ = solution.value[:, -1].copy()
        dual = solution.dual or (np.zeros((0, 0, 0)),)
        self.dual_ = np.concatenate(dual, axis=2)
        self.n_iter_ = int(solution.stats["n_iter"])
        self.history_ = solution.history
        self.result_ = solution.result
        self.divergence_ = problem.objective.divergence
        self._partial = None
        if not is_path:  # the caller of a path looks for collapsed models itself
            if problem.objective.uncertainty is not None:
                tables = make_evaluator(problem).tables(problem, solution.value)
                self._warn_of_reach(problem, tables)
            self._warn_of_collapse(predicted_codes(problem.X, solution.value), encoded)

    def _predicted_codes(self, encoded: Encoded) -> IntArray:
        return predicted_codes(encoded.problem.X, self._parameters())
