"""Fair neural networks with the contract of scikit-learn."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import clone

from fferm._typing import FloatArray, Table
from fferm.data.groups import GroupMode
from fferm.data.rows import FitInput, Rows
from fferm.data.validate import TrainingData, check_number
from fferm.divergences import Divergence
from fferm.estimators import net_modules, net_settings
from fferm.estimators.base import Choice, FairClassifier
from fferm.estimators.progress import progress
from fferm.estimators.weight_search import choose_weight, read_bound
from fferm.notions import Notion
from fferm.penalty.objective import Problem
from fferm.solvers.base import Callback
from fferm.torch import fitting, networks, recipes, states
from fferm.torch.training import Trained
from fferm.uncertainty import Uncertainty

if TYPE_CHECKING:
    import os

    import torch
    from torch import nn


class FairNetClassifier(FairClassifier):
    r"""A neural network whose predictions depend as little on the group as asked.

    Minimises the mean cross-entropy plus ``fairness_weight`` times the divergence
    between the joint distribution of prediction and group and the product of its
    marginals, on minibatches of any size.

    Parameters
    ----------
    module
        None for a multi-layer perceptron behind bins for numeric features; a
        ``torch.nn.Module``, which is copied; or a class or function that makes one of
        ``(n_features, n_classes)``. It takes (n, n_features) rows and returns
        (n, n_classes) logits, of two classes also (n, 1) or (n,). X has two axes: a
        network for images begins with ``nn.Unflatten``.
    hidden
        Widths of the hidden layers of the default network.
    divergence, notion, fairness_weight, max_violation, validation_fraction, confident
        As in `FairLogisticRegression`. Of ``max_violation``, the search tries a stack
        of weights and then fewer halvings, for a network is not that exact.
    sharpness
        The penalty sees ``softmax(sharpness * logits)``. A network can be fair in
        probability and unfair in decisions; a little more than 1 brings decisions
        along, more costs accuracy.
    groups, uncertainty
        As in `FairLogisticRegression`.
    method, continuous
        ``"table"``: the dual is a table, and numbers among the sensitive features are
        cut into bands. ``"critic"``: a network takes its place and sees the numbers
        themselves; all sensitive columns count together, and ``continuous`` names
        those that are numbers, as in `FairRegressor`. Needs batches of two rows.
    solver
        ``"sgda"``: stochastic descent-ascent, for notions that condition on labels or
        controls and without an uncertainty set. ``"semi_stochastic"``: any penalty,
        with a pass over the penalty's rows every few steps. ``"auto"``: ``"sgda"``
        where it can.
    refresh_every
        Of ``"semi_stochastic"``: steps between two passes; None is an eighth of an
        epoch.
    batch_size
        Rows a step, from 1 on.
    max_epochs
        Passes over the data. None is 10, and more where these are fewer than 400
        steps.
    optimizer
        ``"adamw"``, ``"adam"``, ``"sgd"`` (momentum 0.9), or a function of the
        parameters that returns a ``torch.optim.Optimizer``, whose own learning rate
        and weight decay count then.
    learning_rate, weight_decay
        Of a named optimizer. A learning rate of None is 0.001 at batches of 256 rows
        and goes with the root of ``batch_size``, so that an epoch of small batches
        moves a network as far as one of large batches.
    schedule
        ``"cosine"`` or ``"linear"`` to 0, ``"constant"``, or a function from the share
        of the run that is over to the factor of the learning rate.
    class_weight
        None, ``"balanced"`` or a dict by label: weights of classes in the loss. The
        penalty does not see them.
    early_stopping
        None: run to the end of the schedule. ``"objective"``: stop after ``patience``
        epochs in which the objective gained less than a ten-thousandth.
        ``"validation"``: the same on a ``validation_fraction`` of the rows, held out.
        The best network that was met is kept.
    patience
        Epochs without a gain before training stops early.
    callbacks
        Functions that are called after each epoch with a dict of numbers; one that
        returns True stops training.
    checkpoint
        None, or a folder: what is trained is written there after every epoch, and a
        `fit` on the same data with the same parameters goes on where the last one was
        interrupted, to the same network bit for bit on a CPU. A run that is finished
        is not trained again.
    device
        ``"auto"``: a GPU if there is one. Or ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
    dtype
        ``"float32"``, ``"float64"``, or ``"auto"``: double precision on a CPU for up
        to 100,000 numbers in X, where it costs nothing, else single.
    warm_start
        Whether `fit` begins at the last network.
    random_state
        Seed of parameters, batches, dropout and held-out rows.
    verbose
        1 shows progress.

    Attributes
    ----------
    module_ : the trained network, in evaluation mode
    classes_ : ndarray
    groups_ : ndarray of group names
    dual_ : ndarray of shape (n_strata, n_classes, n_groups), the optimal dual
    fairness_weight_, violation_, feasible_ : as in `FairLogisticRegression`
    result_ : how training ended
    history_ : tuple of records, one an epoch: objective, loss, penalty and others
    n_iter_ : int, epochs

    Examples
    --------
    >>> from fferm import FairNetClassifier
    >>> from fferm.datasets import make_biased
    >>> data = make_biased(random_state=0)
    >>> model = FairNetClassifier(hidden=(16,), max_epochs=5, random_state=0)
    >>> _ = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> decisions = model.predict(data.X_test)
    """

    # Trained twice, a network differs by more than a finer search would show.
    search_halvings: ClassVar[int] = 2

    def __init__(
        self,
        *,
        module: "nn.Module | networks.Factory | None" = None,
        hidden: Sequence[int] = (64, 64),
        divergence: str | Divergence = "kl",
        notion: str | Notion = "demographic_parity",
        fairness_weight: float = 1.0,
        max_violation: float | None = None,
        validation_fraction: float = 0.2,
        confident: bool = False,
        sharpness: float = 1.25,
        groups: GroupMode = "intersection",
        uncertainty: Uncertainty | None = None,
        method: str = "table",
        continuous: Sequence[str] | str = "auto",
        solver: str = "auto",
        refresh_every: int | None = None,
        batch_size: int = 256,
        max_epochs: int | None = None,
        optimizer: "str | recipes.MakeOptimizer" = "adamw",
        learning_rate: float | None = None,
        schedule: str | Callable[[float], float] = "cosine",
        weight_decay: float = 1e-2,
        class_weight: Mapping[Any, float] | str | None = None,
        early_stopping: Literal["objective", "validation"] | None = None,
        patience: int = 5,
        callbacks: Sequence[Callback] = (),
        checkpoint: "str | os.PathLike[str] | None" = None,
        device: "str | torch.device" = "auto",
        dtype: str = "auto",
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.module = module
        self.hidden = hidden
        self.divergence = divergence
        self.notion = notion
        self.fairness_weight = fairness_weight
        self.max_violation = max_violation
        self.validation_fraction = validation_fraction
        self.confident = confident
        self.sharpness = sharpness
        self.groups = groups
        self.uncertainty = uncertainty
        self.method = method
        self.continuous = continuous
        self.solver = solver
        self.refresh_every = refresh_every
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.weight_decay = weight_decay
        self.class_weight = class_weight
        self.early_stopping = early_stopping
        self.patience = patience
        self.callbacks = callbacks
        self.checkpoint = checkpoint
        self.device = device
        self.dtype = dtype
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
        """Train on data; parameters as in `FairLogisticRegression.fit`."""
        given = FitInput(X, y, sensitive_features, sample_weight, penalty_data)
        bound = read_bound(self)
        last = net_modules.last_of(self) if self.warm_start else None
        data, problem, rows = self._encode(given)
        choice = Choice(problem.objective.fairness_weight)
        start = None if last is None else last.checked(data)
        if bound is not None and rows is not None:
            choice, judged = choose_weight(self, bound, given, data, rows)
            start = judged.module_  # near which the bound was judged
        encoded, weight = (data, problem, rows), choice.fairness_weight
        (trained,) = self._train(given, encoded, [weight], start)
        self._learn_weight(choice)
        return self._store(trained, data, problem, rows)

    def decision_function(self, X: Table) -> FloatArray:
        """Return the logits: (n_samples,) for two classes, else (n_samples, m).

        Parameters
        ----------
        X
            (n_samples, n_features).
        """
        X = self._check_fitted_features(X)
        logits = fitting.predict_logits(self.module_, X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def fit_path(
        self,
        given: FitInput,
        fairness_weights: Sequence[float],
        start: Self | None = None,
    ) -> Iterator[Self]:
        """Yield one fitted model per weight; all train at once, as one stack.

        All begin with the same parameters and see the same batches. A module that
        ``torch.func.vmap`` refuses, with a `StackingWarning`, and an optimizer of the
        user's own train one network after another. ``max_violation`` plays no part.
        """
        weights = [check_number("fairness_weights", w) for w in fairness_weights]
        widest = clone(self).set_params(
            fairness_weight=max(weights, default=0.0), max_violation=None
        )
        data, problem, rows = widest._encode(given)
        module = None if start is None else start.module_
        path = widest._train(given, (data, problem, rows), weights, module)
        for weight, trained in zip(weights, path, strict=True):
            yield widest._with_weight(weight)._store(trained, data, problem, rows)

    def supports_large_weights(self) -> bool:
        """Return False: minibatches do not bear such weights."""
        return False

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the network is moved to the CPU, which all have."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "module_" in state:
            state["module_"] = copy.deepcopy(state["module_"]).cpu()
        return state

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        parameters, learned = super()._to_saved()
        if self.module is not None:
            del parameters["module"]
            learned["own_module_"] = type(self.module_).__name__
        learned["module_"] = states.pack(self.module_)
        return {**parameters, "device": str(self.device)}, learned

    def _from_saved(self, learned: dict[str, Any]) -> None:
        own, packed = learned.pop("own_module_", None), learned.pop("module_")
        super()._from_saved(learned)
        self.module_ = net_modules.restore(self, packed, own)

    def _train(
        self,
        given: FitInput,
        encoded: tuple[TrainingData, Problem, Rows | None],
        weights: Sequence[float],
        start: "nn.Module | None",
    ) -> Iterator[Trained]:
        data, problem, rows = encoded
        critic = net_settings.make_critic(self, given, *encoded)
        recipe = net_settings.make_recipe(self, problem)
        plan = fitting.Plan(
            problem,
            rows,
            data.classes.tolist(),
            net_settings.loss_weight(self.class_weight, data),
            net_settings.held_out(self, data, rows),
            net_modules.maker(self, problem, start),
            self.random_state is not None,
            critic,
        )
        with ExitStack() as bars:

            def watch(n_epochs: int) -> tuple[Callback, ...]:
                return bars.enter_context(progress(self.verbose, n_epochs))

            yield from fitting.train_networks(plan, weights, recipe, watch)

    def _store(
        self,
        trained: Trained,
        data: TrainingData,
        problem: Problem,
        rows: Rows | None,
    ) -> Self:
        self.classes_ = data.classes
        self.module_ = trained.module
        self._learn_groups(rows)
        self.history_ = trained.history
        self.n_iter_ = trained.n_epochs
        self.result_ = trained.result
        self.dual_ = np.zeros((0, 0, 0))
        logits = fitting.predict_logits(trained.module, data.X)
        if problem.penalty is not None:
            own = problem.penalty_X
            seen = logits if own is None else fitting.predict_logits(self.module_, own)
            tables = problem.penalty.tables(problem.penalized_prob(seen))
            self.dual_ = np.concatenate(problem.penalty.duals(tables), axis=2)
            self._warn_of_reach(problem, seen)
        self._warn_of_result(trained.result)
        self._warn_of_collapse(logits.argmax(axis=1))
        return self
