"""From a problem in arrays to trained networks: where, how many at once, and from what.

Many networks of the same architecture train as one stack where ``vmap`` takes their
module, else one after another.
"""

import functools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fferm._typing import FloatArray, Table
from fferm.data.rows import Rows
from fferm.errors import StackingWarning
from fferm.penalty.objective import Penalty, Problem
from fferm.solvers.base import Callback
from fferm.torch.checkpoints import Checkpoint, digest_of
from fferm.torch.critic_penalties import CriticPlan, number_rows
from fferm.torch.judging import Judge
from fferm.torch.networks import (
    Alone,
    Networks,
    Stacked,
    check_trainable,
    probe,
    two_columns,
)
from fferm.torch.recipes import Recipe
from fferm.torch.table_rows import (
    Features,
    LossRows,
    make_loss_rows,
    make_penalty_rows,
)
from fferm.torch.training import Run, Task, Trained, own_randomness

# Networks in one stack; more hardly share anything more, and need memory.
MOST_STACKED = {"cpu": 32, "cuda": 256}


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
    """

    problem: Problem
    rows: Rows | None
    classes: Sequence[object]
    loss_weight: FloatArray
    held: NDArray[np.bool_] | None
    make: Callable[[int], nn.Module]
    is_seeded: bool
    critic: CriticPlan | None = None


def train_networks(
    plan: Plan,
    weights: Sequence[float],
    recipe: Recipe,
    watch: Callable[[int], tuple[Callback, ...]] = lambda n_epochs: (),
) -> Iterator[Trained]:
    """Yield a trained network per fairness weight, in the order given.

    Parameters
    ----------
    plan, weights, recipe
        What, with which fairness weights, and how.
    watch
        Returns callbacks for the first network of each run, by its number of epochs.
    """
    size = _stack_size(plan, len(weights), recipe)
    for begin in range(0, len(weights), size):
        yield from _train(plan, weights[begin : begin + size], recipe, watch)


def predict_logits(module: nn.Module, X: Table) -> FloatArray:
    """Return (n, m) logits of a module in evaluation mode, in double precision."""
    first = next(module.parameters())
    features = Features(X, first.dtype, first.device)
    with torch.no_grad():
        parts = [two_columns(module(x)).double().cpu() for x in features.blocks()]
    return torch.cat(parts).numpy()


def _train(
    plan: Plan,
    weights: Sequence[float],
    recipe: Recipe,
    watch: Callable[[int], tuple[Callback, ...]],
) -> list[Trained]:
    checkpoint = None
    if recipe.checkpoints is not None:
        checkpoint = Checkpoint(recipe.checkpoints, _digest(plan, weights, recipe))
        found = checkpoint.read()
        if found is not None:
            recipe = replace(recipe, seed=found["seed"])
    module = _begin(plan, recipe)
    many = [module] * len(weights)
    networks: Networks = Stacked(many) if len(weights) > 1 else Alone(module)
    task = _make_task(plan, weights, recipe)
    probe(module, next(task.loss_rows.X.blocks())[:2], plan.problem.n_classes)
    run = Run(networks, task, recipe, checkpoint)
    run.monitors[0].callbacks += watch(run.n_epochs)
    return run.train()


def _begin(plan: Plan, recipe: Recipe) -> nn.Module:
    module = plan.make(recipe.seed).to(recipe.device, recipe.dtype)
    check_trainable(module)
    return module


def _make_task(plan: Plan, weights: Sequence[float], recipe: Recipe) -> Task:
    problem, rows, held, critic = plan.problem, plan.rows, plan.held, plan.critic
    where = recipe.dtype, recipe.device
    if held is None:
        X = Features(problem.X, *where)
        loss_rows, judge = make_loss_rows(X, problem.y, plan.loss_weight), None
    else:
        X = Features(problem.X[~held], *where)
        loss_rows = make_loss_rows(X, problem.y[~held], plan.loss_weight[~held])
        judge = _make_judge(plan, held, recipe)
        rows = None if rows is None else rows.take(~held)
        critic = None if critic is None else critic.take(~held)
    penalty_rows = None
    if rows is not None:
        own = problem.penalty_X
        penalty_rows = make_penalty_rows(
            X if own is None else Features(own, *where), rows
        )
        if critic is not None:
            place = number_rows(len(rows.weight)).to(recipe.device)
            penalty_rows = replace(penalty_rows, cell=place)
    parts = loss_rows, penalty_rows, problem.objective, rows, plan.classes, weights
    return Task(*parts, judge, critic)


def _make_judge(plan: Plan, held: NDArray[np.bool_], recipe: Recipe) -> Judge:
    problem, penalty = plan.problem, None
    X = Features(problem.X[held], recipe.dtype, recipe.device)
    if plan.rows is not None and problem.penalty is not None:
        rows = plan.rows.take(held)
        penalty = Penalty(problem.objective, rows, problem.penalty.classes)
    weight = plan.loss_weight[held]
    loss_rows: LossRows = make_loss_rows(X, problem.y[held], weight)
    return Judge(loss_rows, penalty, problem.objective.sharpness)


def _stack_size(plan: Plan, n_weights: int, recipe: Recipe) -> int:
    # An optimizer of the user's own may look at whole tensors, as LBFGS does.
    if n_weights == 1 or callable(recipe.optimizer):
        return 1
    module = _begin(plan, recipe)
    X = Features(plan.problem.X[:4], recipe.dtype, recipe.device)
    try:
        with own_randomness(recipe):
            logits = Stacked([module] * 2)(next(X.blocks()))
            logits.sum().backward()  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever a module may do that vmap does not know
        warnings.warn(
            f"torch.func.vmap refuses {type(module).__name__} "
            f"({str(error).splitlines()[0]}), so {n_weights} networks train one after "
            "another.",
            StackingWarning,
            stacklevel=5,
        )
        return 1
    n_stacks = math.ceil(n_weights / MOST_STACKED[recipe.device.type])
    return math.ceil(n_weights / n_stacks)


def _digest(plan: Plan, weights: Sequence[float], recipe: Recipe) -> str:
    # With the seed of nobody's choice, a run is known by its data and settings alone.
    seed = recipe.seed if plan.is_seeded else 0
    module = plan.make(seed)
    settings = [
        [float(weight) for weight in weights],
        replace(plan.problem.objective, fairness_weight=1.0),
        repr(module),
        *(
            _spelled(getattr(recipe, name))
            for name in recipe.__dataclass_fields__
            if name not in ("seed", "checkpoints", "callbacks")
        ),
        seed,
        plan.classes,
    ]
    tables: list[Table] = [plan.problem.X, plan.problem.y, plan.loss_weight, plan.held]
    if plan.rows is not None:
        tables += [attribute.code for attribute in plan.rows.attributes]
        tables += [plan.rows.strata.code, plan.rows.weight, plan.problem.penalty_X]
    if plan.critic is not None:
        settings.append(plan.critic.continuous)
        tables += plan.critic.digests()
    tables += [tensor.detach().cpu().numpy() for tensor in module.state_dict().values()]
    return digest_of(settings, tables)


def _spelled(setting: object) -> object:
    if isinstance(setting, functools.partial) or not callable(setting):
        return setting
    return getattr(setting, "__qualname__", setting)
