"""Fair neural networks."""

import copy
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from pandas.util import hash_array
from sklearn.utils import check_random_state

from fferm._typing import FloatArray, Table
from fferm.data.validate import (
    COUNT,
    Constraint,
    Number,
    OneOf,
    TrainingData,
    check_number,
    check_widths,
)
from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
    MissingDependencyError,
    PersistenceError,
    StackingWarning,
    warn_user,
)
from fferm.estimators.base import Encoded, FairClassifier, progress
from fferm.penalty.objective import Problem
from fferm.solvers.base import Callback

MISSING = ""  # the library that a model cannot be made without
try:
    from fferm.torch import networks, training
    from fferm.torch.networks import DeviceRows, Features
    from fferm.torch.training import BatchObjective, Trained, TrainingConfig
except MissingDependencyError as error:
    MISSING = str(error)

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fferm.torch.serialize import Checkpoint

# Makes a network from a seed.
Maker = Callable[[int], "nn.Module"]
SOME_COUNT = Number(low=1, is_whole=True, is_optional=True)
# Networks in one stack; more hardly share anything more, and need memory.
MOST_STACKED = {"cpu": 32, "cuda": 256}
# So many numbers are trained in double precision on a CPU, where that costs nothing.
SMALL_DATA = 100_000
# Passes for semi-stochastic payoffs in an epoch, where the user did not say.
PASSES = 8


@dataclass(kw_only=True, eq=False, repr=False)
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
        (n, n_classes) logits, for two classes also (n, 1) or (n,). X has two axes: a
        network for images begins with ``nn.Unflatten``.
    hidden
        Widths of the hidden layers of the default network.
    divergence, notion, fairness_weight, validation_fraction
        As in `FairLogisticRegression`.
    max_violation, measure, max_divergence, confidence, refit
        As in `FairLogisticRegression`. Without a confidence, the search trains a stack
        of weights and then halves the last step less often, because two runs of a
        network differ more than a finer search would show.
    sharpness
        The penalty sees ``softmax(sharpness * logits)``. The default is 1 for linear
        models and regressors, 1.25 for networks and 1.5 for trees: the more flexible a
        model, the more easily it is fair in probability and unfair in decisions. More
        sharpness brings decisions along and costs accuracy.
    groups, group_weights, uncertainty
        As in `FairLogisticRegression`.
    method
        ``"bins"``: the dual is a table, and numbers among the sensitive features are
        cut into bands. ``"critic"``: a network takes its place and sees the numbers
        themselves; all sensitive columns count together. Numbers need batches of two.
    continuous
        Names of the sensitive columns that are numbers, as in
        `FairLogisticRegression`.
    min_group_size, categorical
        As in `FairLogisticRegression`.
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
    early_stopping, patience
        None runs to the end of the schedule. ``"validation"`` stops when the objective
        on a share ``validation_fraction`` of the rows, held out, has not fallen by 1e-4
        of itself for ``patience`` epochs, and keeps the best network. ``"training"``
        watches the objective on the training rows instead.
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
    starts_at_judged: ClassVar[bool] = True
    constraints: ClassVar[Mapping[str, Constraint]] = {
        **FairClassifier.constraints,
        "method": OneOf(("bins", "critic")),
        "solver": OneOf(("auto", "sgda", "semi_stochastic")),
        "refresh_every": SOME_COUNT,
        "batch_size": COUNT,
        "max_epochs": SOME_COUNT,
        "learning_rate": Number(open_low=True, is_optional=True),
        "weight_decay": Number(),
        "early_stopping": OneOf((None, "training", "validation")),
        "patience": COUNT,
        "dtype": OneOf(("auto", "float32", "float64")),
    }

    module: "nn.Module | networks.Factory | None" = None
    hidden: Sequence[int] = (64, 64)
    sharpness: float = 1.25
    method: str = "bins"
    solver: str = "auto"
    refresh_every: int | None = None
    batch_size: int = 256
    max_epochs: int | None = None
    optimizer: "str | training.MakeOptimizer" = "adamw"
    learning_rate: float | None = None
    schedule: str | Callable[[float], float] = "cosine"
    weight_decay: float = 1e-2
    class_weight: Mapping[Any, float] | str | None = None
    early_stopping: Literal["training", "validation"] | None = None
    patience: int = 5
    callbacks: Sequence[Callback] = ()
    checkpoint: str | os.PathLike[str] | None = None
    device: "str | torch.device" = "auto"
    dtype: str = "auto"

    if MISSING:

        def __post_init__(self) -> None:
            raise MissingDependencyError(MISSING)

    def decision_function(self, X: Table) -> FloatArray:
        """Return the logits: (n_samples,) for two classes, else (n_samples, m).

        Parameters
        ----------
        X
            (n_samples, n_features).
        """
        X = self._check_fitted_features(X)
        logits = networks.predict(self.module_, X)
        if np.shape(self.classes_) != logits.shape[1:]:
            raise InvalidInputError(f"module must have {len(self.classes_)} outputs.")
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def supports_large_weights(self) -> bool:
        """Return False: minibatches do not train well with such weights."""
        return False

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the network is moved to the CPU, which all have."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "module_" in state:
            state["module_"] = copy.deepcopy(state["module_"]).cpu()
        return state

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        from fferm.torch import serialize

        parameters, learned = super()._to_saved()
        if self.module is not None:
            del parameters["module"]
            learned["own_module_"] = type(self.module_).__name__
        learned["module_"] = serialize.pack(self.module_)
        return {**parameters, "device": str(self.device)}, learned

    def _from_saved(self, learned: dict[str, Any]) -> None:
        from fferm.torch import serialize

        name, packed = learned.pop("own_module_", None), learned.pop("module_")
        super()._from_saved(learned)
        if name is not None and self.module is None:
            raise PersistenceError(
                f"The model was trained with a module of your own, {name}, and a file "
                f"holds no code. Pass it: fferm.load(path, module={name}(...))."
            )
        state = serialize.unpack(packed)
        module, sizes = self.module, (len(self._input_names()), self.classes_.size)
        if module is None:
            module = networks.empty_net(state, serialize.widths(state), *sizes)
        self.module_ = serialize.load(state, networks.make_network(module, *sizes, 0))
        if self.module is None:  # a row of zeros may be nothing to a user's module
            self._check_loaded()

    def _warm_start(self, last: Self, encoded: Encoded) -> "nn.Module | None":
        if not hasattr(last, "module_"):
            return None
        data, n_features = encoded.data, len(last._input_names())
        is_same = np.array_equal(last.classes_, data.classes)
        if is_same and n_features == data.X.shape[1]:
            return last.module_
        raise InvalidInputError(
            f"warm_start needs the {n_features} features and the classes of the last "
            f"fit, {last.classes_.tolist()}; got {data.X.shape[1]} and "
            f"{data.classes.tolist()}. Fit with warm_start=False."
        )

    def _path_start(self, encoded: Encoded) -> "nn.Module":
        return self.module_

    def _train(
        self, encoded: Encoded, weights: Sequence[float], start: Any, *, is_path: bool
    ) -> "Iterator[Trained]":
        if encoded.watched is not None and encoded.passed.penalty_data is not None:
            raise InvalidParameterError(
                "early_stopping='validation' holds out training rows, and the penalty "
                "is taken on penalty_data. Use early_stopping='training'."
            )
        config, checkpoint = self._config(encoded.problem), None
        critic = self._critic(encoded)
        make = self._module_maker(encoded.problem, start, config)
        size = self._stack_size(encoded.problem, make, config, len(weights))
        for begin in range(0, len(weights), size):
            some = weights[begin : begin + size]
            if self.checkpoint is not None:
                checkpoint = self._checkpoint(encoded, critic, make, config, some)
                seed = (checkpoint.read() or {}).get("seed", config.seed)
                config = replace(config, seed=seed)
            module = make(config.seed)
            objective = self._batch_objective(encoded, critic, config, some)
            probed = next(objective.rows.X.blocks())[:2]
            networks.probe(module, probed, encoded.problem.n_classes)
            nets = networks.Network(module)
            if len(some) > 1:
                nets = networks.Stacked(module, len(some))
            run = training.Run(nets, objective, config, checkpoint)
            with progress(self.verbose, run.n_epochs) as callbacks:
                run.monitors[0].callbacks += callbacks
                yield from run.train()

    def _stack_size(
        self, problem: Problem, make: Maker, config: "TrainingConfig", n_weights: int
    ) -> int:
        # How many networks train as one: those whose module vmap supports. An optimizer
        # of the user's own may look at whole tensors, as LBFGS does.
        if n_weights == 1 or callable(config.optimizer):
            return 1
        module, X = make(config.seed), Features(problem.X[:4], config)
        try:
            with networks.seeded(config.seed, config.device):
                logits = networks.Stacked(module, 2)(next(X.blocks()))
                logits.sum().backward()  # type: ignore[no-untyped-call]
        except Exception as error:  # whatever a module may do that vmap does not know
            warn_user(
                f"torch.func.vmap does not support {type(module).__name__} "
                f"({str(error).splitlines()[0]}), so {n_weights} networks train one "
                "after another.",
                StackingWarning,
            )
            return 1
        n_stacks = math.ceil(n_weights / MOST_STACKED[config.device.type])
        return math.ceil(n_weights / n_stacks)

    def _batch_objective(
        self,
        encoded: Encoded,
        critic: dict[str, Table] | None,
        config: "TrainingConfig",
        weights: Sequence[float],
    ) -> "BatchObjective":
        problem, watched, held_out = encoded.problem, encoded.watched, None
        trained, every = self._device_rows(encoded, config), 0
        if watched is not None:
            held_out = self._device_rows(watched, config), watched.problem.penalty
        if not problem.objective.has_linear_dual or self.solver == "semi_stochastic":
            n_batches = training.count_batches(problem.y.size, config.batch_size)
            every = self.refresh_every or max(1, n_batches // PASSES)
        seen = None if critic is None else (critic, self.continuous)
        parts = trained, weights, config, problem, encoded.rows, seen
        return BatchObjective(*parts, every=every, held_out=held_out)

    def _device_rows(self, encoded: Encoded, config: "TrainingConfig") -> "DeviceRows":
        data = encoded.data
        return DeviceRows(Features(data.X, config), data.y, self._loss_weight(data))

    def _checkpoint(
        self,
        encoded: Encoded,
        critic: dict[str, Table] | None,
        make: Maker,
        config: "TrainingConfig",
        weights: Sequence[float],
    ) -> "Checkpoint":
        from fferm.torch.serialize import Checkpoint

        # A seed that nobody chose does not tell runs apart; data and settings do.
        seed = config.seed if self.random_state is not None else 0
        module, problem = make(seed), encoded.problem
        options = {**vars(config), "seed": seed, "callbacks": ()}
        for name, setting in options.items():
            if callable(setting) and not isinstance(setting, functools.partial):
                options[name] = getattr(setting, "__qualname__", setting)
        objective = replace(problem.objective, fairness_weight=1.0)
        settings = [
            [float(weight) for weight in weights],
            objective,
            repr(module),
            options,
            encoded.data.classes.tolist(),
            self.solver,
            self.refresh_every,
        ]
        tables: list[Table] = []
        for part in (encoded, encoded.watched):
            if part is None:
                continue
            tables += [part.problem.X, part.problem.y, self._loss_weight(part.data)]
            if (rows := part.rows) is not None:
                tables += [attribute.code for attribute in rows.attributes]
                tables += [rows.strata.code, rows.weight, part.problem.penalty_X]
        if critic is not None:
            settings.append(self.continuous)
            columns = critic.values()
            tables += [hash_array(np.asarray(part, dtype=object)) for part in columns]
        tables += [part.detach().cpu().numpy() for part in module.state_dict().values()]
        return Checkpoint(str(self.checkpoint), settings, tables)

    def _config(self, problem: Problem) -> "TrainingConfig":
        calls = self.callbacks
        if not isinstance(calls, Sequence) or not all(map(callable, calls)):
            raise InvalidTypeError(
                f"callbacks must be a list of functions of a record; got {calls!r}."
            )
        device, dtype = training.find_device(self.device), self.dtype
        n_rows, n_features = problem.X.shape
        if dtype == "auto":
            is_small = device.type == "cpu" and n_rows * n_features <= SMALL_DATA
            dtype = "float64" if is_small else "float32"
        rate, generator = self.learning_rate, check_random_state(self.random_state)
        if rate is None:
            rate = training.BASE_RATE * np.sqrt(self.batch_size / training.BASE_SIZE)
        return TrainingConfig(
            batch_size=min(int(self.batch_size), n_rows),
            n_epochs=self.max_epochs,
            learning_rate=float(rate),
            weight_decay=float(self.weight_decay),
            optimizer=self.optimizer,
            schedule=self.schedule,
            patience=None if self.early_stopping is None else int(self.patience),
            device=device,
            dtype=training.DTYPES[dtype],
            seed=int(generator.randint(2**31 - 1)),
            callbacks=tuple(calls),
        )

    def _critic(self, encoded: Encoded) -> dict[str, Table] | None:
        # The columns that critics look at, None where the dual is a table.
        problem, rows = encoded.problem, encoded.rows
        objective = problem.objective
        if self.solver == "sgda" and not objective.has_linear_dual:
            raise InvalidParameterError(
                "solver='sgda' needs a penalty with a linear dual, unlike that of "
                f"{objective.uncertainty or objective.notion!r}. Use solver='auto'."
            )
        if self.method == "bins":
            return None
        if not objective.has_linear_dual or self.solver == "semi_stochastic":
            raise InvalidParameterError(
                "method='critic' does not support uncertainty, sufficiency or "
                "solver='semi_stochastic'. Use method='bins' with these."
            )
        return None if rows is None else self._penalty_columns(encoded)

    def _loss_weight(self, data: TrainingData) -> FloatArray:
        # Weights of samples times those of classes, which the penalty does not see.
        weights, labels = self.class_weight, data.classes.tolist()
        if weights is None:
            return data.weight
        if isinstance(weights, str) and weights == "balanced":
            mass = np.bincount(data.y, weights=data.weight)
            return np.asarray(data.weight * (mass.mean() / mass)[data.y])
        by_class = []
        if isinstance(weights, Mapping) and set(weights) <= set(labels):
            values = [weights.get(label, 1.0) for label in labels]
            by_class = [check_number("class_weight", value) for value in values]
        if not any(by_class):
            raise InvalidParameterError(
                "class_weight must be None, 'balanced' or a dict from labels of y, "
                f"{labels!r}, to weights, one of them positive; got {weights!r}."
            )
        return np.asarray(data.weight * np.array(by_class)[data.y])

    def _module_maker(
        self, problem: Problem, start: "nn.Module | None", config: "TrainingConfig"
    ) -> Maker:
        # What makes a network from a seed; with a start, a copy of that.
        module: Any = self.module if start is None else start
        if not (module is None or callable(module)):
            raise InvalidTypeError(
                "module must be None, a torch.nn.Module, or a function that makes one "
                f"from (n_features, n_classes); got {type(module).__name__}."
            )
        hidden = check_widths(self.hidden)
        sizes = problem.X.shape[1], problem.n_classes
        if module is None:
            cuts = networks.find_bins(problem.X)
            module = functools.partial(networks.DefaultNet, hidden=hidden, cuts=cuts)

        def make(seed: int) -> "nn.Module":
            made = networks.make_network(module, *sizes, seed)
            if any(p.requires_grad for p in made.parameters()):
                return made.to(config.device, config.dtype)
            raise InvalidParameterError(
                f"{type(made).__name__} has nothing to train: unfreeze some parameters."
            )

        return make

    def _store(self, trained: "Trained", encoded: Encoded, *, is_path: bool) -> None:
        data, problem = encoded.data, encoded.problem
        self.classes_ = data.classes
        self.module_ = trained.module
        self.history_ = trained.history
        self.n_iter_ = len(trained.history)
        self.result_ = trained.result
        logits = penalized = networks.predict(trained.module, data.X)
        if problem.penalty_X is not None:
            penalized = networks.predict(trained.module, problem.penalty_X)
        self.dual_ = self._best_dual(problem, penalized)
        if problem.objective.uncertainty is not None:
            self._warn_of_reach(problem, problem.tables(penalized))
        if not is_path:  # the caller of a path looks for collapsed models itself
            self._warn_of_collapse(logits.argmax(axis=1), encoded)
