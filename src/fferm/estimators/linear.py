"""Fair logistic regression."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from fferm._types import Table
from fferm.columns import GroupMode
from fferm.divergences import Divergence
from fferm.estimators.base import Choice, FitInput
from fferm.estimators.bounds import choose_weight, read_bound
from fferm.estimators.divergence_choice import AUTO, choose_divergence
from fferm.estimators.linear_scores import LinearClassifier
from fferm.estimators.pieces import (
    PIECE_RATE,
    PieceInput,
    check_solver,
    learn_piece,
)
from fferm.estimators.progress import progress
from fferm.estimators.solving import (
    make_solver,
    solver_name,
    split_rows,
    warm_parameters,
)
from fferm.estimators.validation import check_number
from fferm.notions import Notion
from fferm.objective import Problem
from fferm.solvers import LANES_FROM, Result, Solver
from fferm.uncertainty import Uncertainty


class FairLogisticRegression(LinearClassifier):
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
        The weight :math:`\lambda`; 0 is plain training. Ignored under
        ``max_violation``.
    max_violation
        None, or a number in [0, 1] that the violation of decisions has to keep: find
        the smallest fairness weight that keeps it on held-out rows, then train on all
        rows with that weight, begun at the model that was judged. The weight is
        searched for among growing weights, then between two of them. On a sample the
        violation does not fall everywhere, so "smallest" means that of the weights
        tried. A model that predicts one class for every held-out row never counts.
        Where none keeps the bound, the closest is taken, with an `InfeasibleWarning`.
    validation_fraction
        The share of rows held out for ``max_violation``, drawn by ``random_state``
        within each label and group; any two rows of one kind are parted. With
        ``penalty_data``, a share of those rows instead.
    confident
        Whether the upper end of the 95 % interval of the held-out violation, and not
        its value, has to keep ``max_violation``.
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
        kink.
    refresh_every
        Of ``"semi_stochastic"`` and ``"sreda"``: steps between two passes over all
        rows. None is a sixteenth of an epoch, and 10 steps for ``"sreda"``.
    early_stopping, patience
        Of minibatches: None runs all epochs. ``"objective"`` stops when the objective,
        ``"validation"`` when the objective on a share ``validation_fraction`` of the
        rows, held out, has not fallen by 1e-4 of it for ``patience`` epochs (of 100
        steps at least), and keeps the best model met.
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

    def __init__(
        self,
        *,
        divergence: str | Divergence = "kl",
        notion: str | Notion = "demographic_parity",
        fairness_weight: float = 1.0,
        max_violation: float | None = None,
        validation_fraction: float = 0.2,
        confident: bool = False,
        sharpness: float = 1.0,
        groups: GroupMode = "intersection",
        uncertainty: Uncertainty | None = None,
        l2: float = 1e-4,
        fit_intercept: bool = True,
        solver: str = "auto",
        tol: float = 1e-5,
        max_iter: int = 1000,
        batch_size: int | None = None,
        max_epochs: int | None = None,
        learning_rate: float | None = None,
        dual_learning_rate: float = 4.0,
        dual: str = "auto",
        refresh_every: int | None = None,
        early_stopping: str | None = None,
        patience: int = 3,
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
        self.groups = groups
        self.uncertainty = uncertainty
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
        self.dual_learning_rate = dual_learning_rate
        self.dual = dual
        self.refresh_every = refresh_every
        self.early_stopping = early_stopping
        self.patience = patience
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
        given = FitInput(X, y, sensitive_features, sample_weight, penalty_data)
        if self.divergence == AUTO:
            return self._fit_best(given)
        bound = read_bound(self)
        data, problem, rows = self._encode(given)
        judged_on = None
        if self.early_stopping == "validation":
            data, problem, rows, judged_on = split_rows(self, given, data, rows)
        choice = Choice(problem.objective.fairness_weight)
        start = warm_parameters(self, problem, data) if self.warm_start else None
        if bound is not None and rows is not None:
            choice, judged = choose_weight(self, bound, given, data, rows)
            problem = problem.with_weight(choice.fairness_weight)
            # Of several optima, the one near which the bound was judged.
            start = None if problem.objective.uncertainty else judged._parameters()
        # Under a bound, by the solver that the weight was searched with.
        weights = [choice.fairness_weight] * (1 if bound is None else LANES_FROM)
        solver = self._solver(problem, weights, judged_on)
        with progress(self.verbose, getattr(solver, "max_iter", None)) as callbacks:
            solution = solver.solve(problem, start=start, callbacks=callbacks)
        self._learn_weight(choice)
        self._store(solution, data, rows)._warn_of_model(problem, solution)
        return self

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
        begins anew. After `fit`, or in a model that was loaded, it goes on from
        ``coef_`` with small steps.

        Parameters
        ----------
        X
            (n_samples, n_features): array, CSR matrix or numeric data frame.
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
            holds until it is given anew. Without it the first piece says which groups
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
        check_solver(self.solver, self.max_violation)
        given = PieceInput(X, y, classes, groups, sensitive_features, sample_weight)
        options = {} if self.learning_rate else {"learning_rate": PIECE_RATE}
        solver = make_solver(clone(self).set_params(**options), "sgda")
        start = self._parameters() if hasattr(self, "coef_") else None
        learned = learn_piece(self, given, solver, self._pieces, start)
        self._pieces = learned.pieces
        self.classes_ = learned.classes
        self.coef_ = learned.theta[:, :-1].copy()
        self.intercept_ = learned.theta[:, -1].copy()
        self.groups_ = learned.groups
        self.band_edges_ = {}
        self.dual_ = learned.dual
        self.n_iter_ = learned.pieces.n_pieces
        self.history_: tuple[dict[str, float], ...] = ()
        self.result_ = Result.schedule_completed
        self._learn_weight(Choice(learned.pieces.objective.fairness_weight))
        return self

    def _fit_best(self, given: FitInput) -> Self:
        # With the divergence that does best, and all that its fit learns.
        best = choose_divergence(self, given).fit(
            given.X,
            given.y,
            sensitive_features=given.sensitive_features,
            sample_weight=given.sample_weight,
        )
        for name in self._to_saved()[1]:  # of an earlier fit, on other columns perhaps
            delattr(self, name)
        self._from_saved(best._to_saved()[1])
        self._pieces = None
        return self

    def fit_path(
        self,
        given: FitInput,
        fairness_weights: Sequence[float],
        start: Self | None = None,
    ) -> Iterator[Self]:
        """Yield one fitted model per weight; the data are encoded once for all.

        The full batch begins each model where the last one ended, the first at
        ``start`` if there is one, fitted on the same data; minibatches train all as
        lanes of one run. ``max_violation`` plays no part, and whether a model predicts
        one class for all is for the caller to see.
        """
        weights = [check_number("fairness_weights", w) for w in fairness_weights]
        widest = clone(self).set_params(
            fairness_weight=max(weights, default=0.0), max_violation=None
        )
        data, problem, rows = widest._encode(given)
        judged_on = None
        if self.early_stopping == "validation":
            data, problem, rows, judged_on = split_rows(widest, given, data, rows)
        theta = None if start is None else start._parameters()
        solver = self._solver(problem, weights, judged_on)
        path = solver.solve_path(problem, weights, start=theta)
        for weight, solution in zip(weights, path, strict=True):
            yield widest._with_weight(weight)._store(solution, data, rows)

    def trains_together(self, given: FitInput) -> bool:
        """Return whether `fit_path` trains its models as lanes of one run."""
        size = int(np.prod(np.shape(given.X)))
        return solver_name(self, self._objective(), size, [0.0] * LANES_FROM) != "lbfgs"

    def reaches_beyond(self) -> bool:
        """Return whether weights beyond the default range train well."""
        return self.solver in ("auto", "lbfgs") and self.early_stopping is None

    def continues_path(
        self, given: FitInput, fairness_weights: Sequence[float]
    ) -> bool:
        """Return whether models begin where the last one ended: the full batch."""
        size = int(np.prod(np.shape(given.X)))
        objective = self._objective()
        return solver_name(self, objective, size, fairness_weights) == "lbfgs"

    def _solver(
        self, problem: Problem, weights: Sequence[float], judged_on: Problem | None
    ) -> Solver[Any]:
        size = problem.X.shape[0] * problem.X.shape[1]
        name = solver_name(self, problem.objective, size, weights)
        return make_solver(self, name, judged_on)
