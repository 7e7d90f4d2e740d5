"""How networks are trained: what a user chose, and optimizer and schedule for it."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from fferm.errors import InvalidParameterError, InvalidTypeError
from fferm.solvers.base import Callback

# An epoch of few batches has few steps: go on until there are this many.
LEAST_STEPS = 400
# Passes over the data where the user did not say how many.
EPOCHS = 10
# The default learning rate at batches of so many rows. Adam divides by the root of the
# mean square, mostly noise, which falls with the root of the batch size: with a rate
# that goes with that root, an epoch moves a network as far at any batch size.
BASE_RATE, BASE_SIZE = 1e-3, 256
# The penalty comes in over this share of the run: the dual has to find the model first.
WARM_UP = 0.02
# So many numbers are trained in double precision on a CPU, where that costs nothing.
SMALL_DATA = 100_000

MakeOptimizer = Callable[[Iterable[Tensor]], Optimizer]
Schedule = Callable[[float], float]

OPTIMIZERS: dict[str, type[Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}
# Factor of the learning rate by the share of the run that is over.
SCHEDULES: dict[str, Schedule] = {
    "constant": lambda done: 1.0,
    "cosine": lambda done: 0.5 * (1 + math.cos(math.pi * done)),
    "linear": lambda done: 1 - done,
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a user chose, checked.

    Attributes
    ----------
    batch_size, n_epochs
        Rows a step; passes, None for `EPOCHS` and at least `LEAST_STEPS` steps.
    learning_rate, weight_decay, optimizer, schedule
        Of the optimizer; a function of (parameters) makes one of its own.
    solver, refresh_every
        Of the penalty.
    is_stopped_early, patience
        Whether to stop after so many epochs without a gain.
    device, dtype
        Where, and how precisely.
    seed
        Of parameters and the order of rows.
    checkpoints
        Folder of checkpoints, or None.
    callbacks
        Called after each epoch with its record; True stops.
    """

    batch_size: int
    n_epochs: int | None
    learning_rate: float
    weight_decay: float
    optimizer: str | MakeOptimizer
    schedule: str | Schedule
    solver: str
    refresh_every: int | None
    is_stopped_early: bool
    patience: int
    device: torch.device
    dtype: torch.dtype
    seed: int
    checkpoints: str | None
    callbacks: tuple[Callback, ...]

    def epochs(self, n_batches: int) -> int:
        """Return the number of epochs of so many batches."""
        if self.n_epochs is not None:
            return self.n_epochs
        return max(EPOCHS, math.ceil(LEAST_STEPS / n_batches))

    def factor(self, done: float) -> float:
        """Return the factor of the learning rate once a share of the run is over."""
        if callable(self.schedule):
            return float(self.schedule(done))
        return SCHEDULES[self.schedule](done)


def find_device(asked: object) -> torch.device:
    """Return the device that is meant, after seeing that it is there."""
    if isinstance(asked, str) and asked == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device: torch.device = torch.device(asked)  # type: ignore[call-overload]
    except (RuntimeError, TypeError) as error:
        raise InvalidParameterError(
            f"device must be 'auto', 'cpu', 'cuda' or a torch.device; got {asked!r}."
        ) from error
    if device.type == "cpu":
        return device
    if device.type != "cuda":
        raise InvalidParameterError(
            "device must be 'auto', 'cpu' or 'cuda', because duals are in double "
            f"precision, which others may lack; got {asked!r}."
        )
    if (
        not torch.cuda.is_available()
        or (device.index or 0) >= torch.cuda.device_count()
    ):
        raise InvalidParameterError(
            f"device={asked!r} needs a GPU, and PyTorch finds "
            f"{torch.cuda.device_count()} CUDA devices. Use device='auto' or 'cpu', or "
            "install a build for your GPU."
        )
    return device


def find_dtype(asked: object, n_numbers: int, device: torch.device) -> torch.dtype:
    """Return the precision that is meant; ``"auto"`` looks at the size of the data."""
    known = {"float32": torch.float32, "float64": torch.float64}
    if asked == "auto":
        is_small = device.type == "cpu" and n_numbers <= SMALL_DATA
        return torch.float64 if is_small else torch.float32
    return known[str(asked)]


def check_schedule(asked: object) -> str | Schedule:
    """Return a schedule by name or as a function."""
    if callable(asked) or asked in SCHEDULES:
        return asked
    raise InvalidParameterError(
        f"schedule must be {', '.join(map(repr, SCHEDULES))}, or a function of the "
        f"share of the run that is over, from 0 to 1; got {asked!r}."
    )


def check_optimizer(asked: object) -> str | MakeOptimizer:
    """Return an optimizer by name or as a function."""
    if callable(asked) or asked in OPTIMIZERS:
        return asked
    raise InvalidParameterError(
        f"optimizer must be {', '.join(map(repr, OPTIMIZERS))}, or a function of the "
        f"parameters that returns one; got {asked!r}."
    )


def make_optimizer(recipe: Recipe, parameters: list[Tensor]) -> Optimizer:
    """Return the optimizer of a recipe.

    Named ones run fused; on a GPU their learning rate is a tensor, so that a captured
    step follows the schedule.
    """
    if callable(recipe.optimizer):
        made = recipe.optimizer(parameters)
        if isinstance(made, Optimizer):
            return made
        raise InvalidTypeError(
            "optimizer(parameters) must return a torch.optim.Optimizer, for example "
            "functools.partial(torch.optim.SGD, lr=0.1); it returned a "
            f"{type(made).__name__}."
        )
    options: dict[str, Any] = {"weight_decay": recipe.weight_decay, "fused": True}
    options["lr"] = recipe.learning_rate
    if recipe.optimizer == "sgd":
        options["momentum"] = 0.9
    elif recipe.device.type == "cuda":
        options["lr"] = torch.tensor(recipe.learning_rate, device=recipe.device)
        options["capturable"] = True
    kind = OPTIMIZERS[recipe.optimizer]
    return kind(parameters, **options)


def set_rate(optimizer: Optimizer, base: list[float], factor: float) -> None:
    """Set the learning rate of each group to ``factor`` times what it began with."""
    for group, rate in zip(optimizer.param_groups, base, strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * factor)
        else:
            group["lr"] = rate * factor
