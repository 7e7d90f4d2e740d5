"""From a problem in arrays to trained networks, many at once.

Networks of the same architecture train as one stack where ``vmap`` takes their module,
else one after another.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fferm._typing import FloatArray, Table
from fferm.data.rows import Rows
from fferm.errors import StackingWarning, warn_user
from fferm.penalty.objective import Penalty, Problem
from fferm.solvers.base import Callback
from fferm.torch.networks import Alone, Networks, Stacked, check_trainable, probe
from fferm.torch.penalties import (
    BatchPenalty,
    CriticColumns,
    CriticPenalty,
    Features,
    loss_rows,
    make_penalty,
    penalty_rows,
)
from fferm.torch.training import (
    ClassObjective,
    HeldOutObjective,
    Run,
    Trained,
    TrainingConfig,
    count_batches,
    forked_randomness,
)

# Networks in one stack; more hardly share anything more, and need memory.
MOST_STACKED = {"cpu": 32, "cuda": 256}
# Passes for semi-stochastic payoffs in an epoch, where the user did not say.
PASSES = 8


@dataclass(frozen=True)
class Plan:
    """What is to be trained.

    Attributes
    ----------
    problem
        Rows, labels and penalty.
    rows
        The penalty's rows, or None.
    classes
        The label of each class.
    loss_weight
        (n,) weights of the rows in the loss, of any scale.
    held
        (n,) rows held out for early stopping, or None.
    make
        Returns a network to begin with, made from a seed.
    is_seeded
        Whether the user chose the seed, so that it tells runs apart.
    critic
        What critics look at; None where the dual is a table.
    solver, refresh_every
        Of the penalty; steps between two passes, None for a part of an epoch.
    """

    problem: Problem
    rows: Rows | None
    classes: Sequence[object]
    loss_weight: FloatArray
    held: NDArray[np.bool_] | None
    make: Callable[[int], nn.Module]
    is_seeded: bool
    critic: CriticColumns | None = None
    solver: str = "auto"
    refresh_every: int | None = None


def train_networks(
    plan: Plan,
    weights: Sequence[float],
    config: TrainingConfig,
    watch: Callable[[int], tuple[Callback, ...]] = lambda n_epochs: (),
) -> Iterator[Trained]:
    """Yield a trained network per fairness weight, in their order.

    Parameters
    ----------
    plan, weights, config
        What, with which fairness weights, and how.
    watch
        Returns callbacks for the first network of each run, by its number of epochs.
    """
    size = _stack_size(plan, len(weights), config)
    for begin in range(0, len(weights), size):
        run = make_run(plan, weights[begin : begin + size], config)
        run.monitors[0].callbacks += watch(run.n_epochs)
        yield from run.train()


def make_run(plan: Plan, weights: Sequence[float], config: TrainingConfig) -> Run:
    """Return the run of one stack of networks, from its checkpoint if there is one."""
    checkpoint = None
    if config.checkpoints is not None:
        from fferm.torch.serialize import Checkpoint

        checkpoint = Checkpoint(config.checkpoints, _digest(plan, weights, config))
        content = checkpoint.read()
        if content is not None:
            config = replace(config, seed=content["seed"])
    module, many = _first_module(plan, config), len(weights)
    networks: Networks = Stacked([module] * many) if many > 1 else Alone(module)
    objective = _make_objective(plan, weights, config)
    probe(module, next(objective.rows.X.blocks())[:2], plan.problem.n_classes)
    return Run(networks, objective, config, checkpoint)


def _first_module(plan: Plan, config: TrainingConfig) -> nn.Module:
    module = plan.make(config.seed).to(config.device, config.dtype)
    check_trainable(module)
    return module


def _make_objective(
    plan: Plan, weights: Sequence[float], config: TrainingConfig
) -> ClassObjective:
    problem, rows, held, critic = plan.problem, plan.rows, plan.held, plan.critic
    X, y, weight, held_out = problem.X, problem.y, plan.loss_weight, None
    if held is not None:
        held_out = _hold_out(plan, held, config)
        X, y, weight = X[~held], y[~held], weight[~held]
        rows = None if rows is None else rows.take(~held)
        critic = None if critic is None else critic.take(~held)
    features = Features(X, config.dtype, config.device)
    trained = loss_rows(features, y, weight)
    if rows is None:
        return ClassObjective(trained, weights, config, held_out=held_out)
    if problem.penalty_X is not None:
        features = Features(problem.penalty_X, config.dtype, config.device)
    judged = penalty_rows(features, rows, is_placed=critic is None)
    n_batches = count_batches(trained.X.n_rows, config.batch_size)
    every = plan.refresh_every or max(1, n_batches // PASSES)
    penalty: BatchPenalty
    if critic is None:
        parts = problem.objective, rows, plan.classes, len(weights), every
        penalty = make_penalty(plan.solver, *parts)
    else:
        n_classes = len(plan.classes)
        many = len(weights), config.seed
        penalty = CriticPenalty(
            critic, problem.objective, rows, *many, n_classes=n_classes
        )
    penalty = penalty.to(config.device)
    return ClassObjective(trained, weights, config, penalty, judged, held_out)


def _hold_out(
    plan: Plan, held: NDArray[np.bool_], config: TrainingConfig
) -> HeldOutObjective:
    problem, penalty = plan.problem, None
    X = Features(problem.X[held], config.dtype, config.device)
    if plan.rows is not None and problem.penalty is not None:
        rows = plan.rows.take(held)
        penalty = Penalty(problem.objective, rows, problem.penalty.classes)
    rows_held = loss_rows(X, problem.y[held], plan.loss_weight[held])
    return HeldOutObjective(rows_held, penalty, problem.objective.sharpness)


def _stack_size(plan: Plan, n_weights: int, config: TrainingConfig) -> int:
    # An optimizer of the user's own may look at whole tensors, as LBFGS does.
    if n_weights == 1 or callable(config.optimizer):
        return 1
    module = _first_module(plan, config)
    X = Features(plan.problem.X[:4], config.dtype, config.device)
    try:
        with forked_randomness(config):
            logits = Stacked([module] * 2)(next(X.blocks()))
            logits.sum().backward()  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever a module may do that vmap does not know
        warn_user(
            f"torch.func.vmap does not support {type(module).__name__} "
            f"({str(error).splitlines()[0]}), so {n_weights} networks train one after "
            "another.",
            StackingWarning,
        )
        return 1
    n_stacks = math.ceil(n_weights / MOST_STACKED[config.device.type])
    return math.ceil(n_weights / n_stacks)


def _digest(plan: Plan, weights: Sequence[float], config: TrainingConfig) -> str:
    from fferm.torch.serialize import digest_of

    # A seed that nobody chose does not tell runs apart; data and settings do.
    seed = config.seed if plan.is_seeded else 0
    module = plan.make(seed)
    settings = [
        [float(weight) for weight in weights],
        replace(plan.problem.objective, fairness_weight=1.0),
        repr(module),
        *(
            _spelled(getattr(config, name))
            for name in config.__dataclass_fields__
            if name not in ("seed", "checkpoints", "callbacks")
        ),
        seed,
        plan.classes,
        plan.solver,
        plan.refresh_every,
    ]
    tables: list[Table] = [plan.problem.X, plan.problem.y, plan.loss_weight, plan.held]
    if plan.rows is not None:
        tables += [attribute.code for attribute in plan.rows.attributes]
        tables += [plan.rows.strata.code, plan.rows.weight, plan.problem.penalty_X]
    if plan.critic is not None:
        settings.append(plan.critic.continuous)
        tables += plan.critic.hashes()
    tables += [tensor.detach().cpu().numpy() for tensor in module.state_dict().values()]
    return digest_of(settings, tables)


def _spelled(setting: object) -> object:
    if isinstance(setting, functools.partial) or not callable(setting):
        return setting
    return getattr(setting, "__qualname__", setting)
