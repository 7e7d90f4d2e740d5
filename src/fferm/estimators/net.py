"""Fair neural networks with the contract of scikit-learn."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from fferm._types import FloatArray, Table
from fferm.data import FairRows, GroupMode
from fferm.divergences import Divergence
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.estimators.base import Choice, FairClassifier, FitInput
from fferm.estimators.bounds import choose_weight, hold_out, kinds_of, read_bound
from fferm.estimators.progress import progress
from fferm.estimators.validation import TrainingData, check_number, check_whole
from fferm.notions import Notion
from fferm.objective import Problem
from fferm.solvers.base import Callback
from fferm.torch import fitting, networks, recipes
from fferm.torch.training import Trained
from fferm.uncertainty import Uncertainty

if TYPE_CHECKING:
    import torch
    from torch import nn

Stopping = Literal["objective", "validation"]


class FairNetClassifier(FairClassifier):
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
        sharpness: float = 1.0,
        groups: GroupMode = "intersection",
        uncertainty: Uncertainty | None = None,
        solver: str = "auto",
        refresh_every: int | None = None,
        batch_size: int = 256,
        max_epochs: int | None = None,
        optimizer: "str | recipes.MakeOptimizer" = "adamw",
        learning_rate: float = 1e-3,
        schedule: str | Callable[[float], float] = "cosine",
        weight_decay: float = 1e-2,
        class_weight: Mapping[Any, float] | str | None = None,
        early_stopping: Stopping | None = None,
        patience: int = 5,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | None = None,
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
        given = FitInput(X, y, sensitive_features, sample_weight, penalty_data)
        bound = read_bound(self)
        data, problem, rows = self._encode(given)
        choice = Choice(problem.objective.fairness_weight)
        start = self._warm_module(data) if self.warm_start else None
        if bound is not None and rows is not None:
            choice, judged = choose_weight(self, bound, given, data, rows)
            start = judged.module_
        (trained,) = self._train(data, problem, rows, [choice.fairness_weight], start)
        self._learn_weight(choice)
        return self._store(trained, data, problem, rows)

    def decision_function(self, X: Table) -> FloatArray:
        X = self._check_fitted_features(X)
        logits = fitting.predict_logits(self.module_, X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def fit_path(
        self,
        given: FitInput,
        fairness_weights: Sequence[float],
        start: Self | None = None,
    ) -> Iterator[Self]:
        weights = [check_number("fairness_weights", w) for w in fairness_weights]
        widest = clone(self).set_params(
            fairness_weight=max(weights, default=0.0), max_violation=None
        )
        data, problem, rows = widest._encode(given)
        module = None if start is None else start.module_
        path = widest._train(data, problem, rows, weights, module)
        for weight, trained in zip(weights, path, strict=True):
            model = clone(widest).set_params(fairness_weight=weight)
            model.n_features_in_ = widest.n_features_in_
            if hasattr(widest, "feature_names_in_"):
                model.feature_names_in_ = widest.feature_names_in_
            model._learn_weight(Choice(weight))
            yield model._store(trained, data, problem, rows)

    def _train(
        self,
        data: TrainingData,
        problem: Problem,
        rows: FairRows | None,
        weights: Sequence[float],
        start: "nn.Module | None",
    ) -> Iterator[Trained]:
        recipe = self._recipe(problem)
        hidden = [check_whole("hidden", width) for width in self.hidden]
        n_features, n_classes = problem.X.shape[1], problem.n_classes

        def make(seed: int) -> "nn.Module":
            given = self.module if start is None else start
            return networks.make_network(given, hidden, n_features, n_classes, seed)

        plan = fitting.Plan(
            problem,
            rows,
            data.classes.tolist(),
            self._loss_weight(data),
            self._held_out(data, problem, rows),
            make,
            self.random_state is not None,
        )
        with ExitStack() as stack:

            def watch(n_epochs: int) -> tuple[Callback, ...]:
                return stack.enter_context(progress(self.verbose, n_epochs))

            yield from fitting.train_networks(plan, weights, recipe, watch)

    def _recipe(self, problem: Problem) -> recipes.Recipe:
        device = recipes.find_device(self.device)
        stopping = self.early_stopping
        if stopping not in (None, "objective", "validation"):
            raise InvalidParameterError(
                f"early_stopping={stopping!r} came. Expected None, 'objective' or "
                "'validation'."
            )
        generator = check_random_state(self.random_state)
        n_rows, n_features = problem.X.shape
        whole = {
            name: None if value is None else check_whole(name, value)
            for name, value in (
                ("n_epochs", self.max_epochs),
                ("refresh_every", self.refresh_every),
            )
        }
        return recipes.Recipe(
            batch_size=min(check_whole("batch_size", self.batch_size), n_rows),
            learning_rate=check_number(
                "learning_rate", self.learning_rate, above=True
            ),
            weight_decay=check_number("weight_decay", self.weight_decay),
            optimizer=recipes.check_optimizer(self.optimizer),
            schedule=recipes.check_schedule(self.schedule),
            solver=self.solver,
            is_stopped_early=stopping is not None,
            patience=check_whole("patience", self.patience),
            device=device,
            dtype=recipes.find_dtype(self.dtype, n_rows * n_features, device),
            seed=int(generator.randint(2**31 - 1)),
            checkpoints=None if self.checkpoint is None else str(self.checkpoint),
            callbacks=tuple(self.callbacks),
            **whole,
        )

    def _store(
        self,
        trained: Trained,
        data: TrainingData,
        problem: Problem,
        rows: FairRows | None,
    ) -> Self:
        self.classes_ = data.classes
        self.module_ = trained.module
        self.groups_ = np.array(rows.group_names if rows else (), dtype=object)
        self.history_ = trained.history
        self.n_iter_ = trained.n_epochs
        self.result_ = trained.result
        logits = fitting.predict_logits(trained.module, data.X)
        self.dual_ = np.zeros((0, 0, 0))
        if problem.penalty is not None:
            seen = logits
            if problem.penalty_X is not None:
                seen = fitting.predict_logits(trained.module, problem.penalty_X)
            tables = problem.penalty.tables(problem.penalized_prob(seen))
            self.dual_ = np.concatenate(problem.penalty.duals(tables), axis=2)
            self._warn_of_reach(problem, seen)
        self._warn_of_outcome(trained.result, logits.argmax(axis=1), data.y)
        return self

    def _loss_weight(self, data: TrainingData) -> FloatArray:
        return data.weight

    def _held_out(
        self, data: TrainingData, problem: Problem, rows: FairRows | None
    ) -> NDArray[np.bool_] | None:
        return None

    def _warm_module(self, data: TrainingData) -> "nn.Module | None":
        return getattr(self, "module_", None)
