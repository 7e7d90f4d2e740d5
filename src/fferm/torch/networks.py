"""Networks to train: one, or many of the same shape as one.

Stacked networks hold the parameters of all as (L, ...) tensors; `torch.func.vmap` turns
the module into a function of them, so a step of many costs the launches of one.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from fferm.errors import InvalidInputError, InvalidParameterError, InvalidTypeError
from fferm.torch.bins import Bins
from fferm.torch.outputs import check_shape

# What a user may give: a network, or what makes one of (n_features, n_classes).
Factory = Callable[[int, int], nn.Module]


def make_network(
    given: nn.Module | Factory | None,
    make_default: Factory,
    n_features: int,
    n_classes: int,
    seed: int,
) -> nn.Module:
    """Return a fresh network; an instance is copied and keeps its parameters."""
    if isinstance(given, nn.Module):
        return copy.deepcopy(given)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = (make_default if given is None else given)(n_features, n_classes)
    if not isinstance(made, nn.Module):
        raise InvalidTypeError(
            "module(n_features, n_classes) must return a torch.nn.Module; it returned "
            f"a {type(made).__name__}."
        )
    return made


def check_trainable(module: nn.Module) -> None:
    """Refuse a network that has nothing to train."""
    if not any(p.requires_grad for p in module.parameters()):
        raise InvalidParameterError(
            f"{type(module).__name__} has no parameter with requires_grad=True, so "
            "there is nothing to train. Unfreeze some."
        )


def probe(module: nn.Module, x: Tensor, n_classes: int) -> None:
    """Call a network on some rows and refuse it where its outputs are no logits."""
    was_training = module.training
    module.eval()  # in training mode a batch norm would count these rows
    try:
        with torch.no_grad():
            output = module(x)
    except (RuntimeError, ValueError, TypeError) as error:
        raise InvalidInputError(
            f"{type(module).__name__} cannot be called on a {x.dtype} tensor of shape "
            f"{tuple(x.shape)} ({error}). Expected a module that takes (n, "
            f"{x.shape[1]}) rows of X; one for images begins with nn.Unflatten."
        ) from error
    finally:
        module.train(was_training)
    check_shape(output, n_classes)


def two_columns(output: Tensor) -> Tensor:
    """Return (n, m) logits of (n, m), or of (n, 1) or (n,) for two classes."""
    if output.dim() == 2 and output.shape[1] > 1:
        return output
    logit = output.reshape(-1)
    return torch.stack([torch.zeros_like(logit), logit], dim=1)


class Networks(ABC):
    """Networks of one architecture, trained on the same batches."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Return (n_models, b, m) logits."""

    @abstractmethod
    def parameters(self) -> list[Tensor]:
        """Return what an optimizer moves."""

    @abstractmethod
    def train(self, is_training: bool) -> None:
        """Say whether dropout and the like are on."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return (n_models, ...) parameters and buffers, as they are in memory."""

    @abstractmethod
    def modules(self, state: dict[str, Tensor]) -> list[nn.Module]:
        """Return one module per network, with the parameters of a state."""

    def load(self, state: dict[str, Tensor]) -> None:
        """Take the parameters and buffers of a state."""
        with torch.no_grad():
            for name, tensor in self.state().items():
                tensor.copy_(state[name])


class Alone(Networks):
    """One network, called as its own module."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, x: Tensor) -> Tensor:
        """Return (1, b, m) logits."""
        return two_columns(self.module(x))[None]

    def parameters(self) -> list[Tensor]:
        """Return the module's own parameters."""
        return [p for p in self.module.parameters() if p.requires_grad]

    def train(self, is_training: bool) -> None:
        """Set the mode of the module."""
        self.module.train(is_training)

    def state(self) -> dict[str, Tensor]:
        """Return views of the module's tensors with an axis in front."""
        return {n: t.detach()[None] for n, t in self.module.state_dict().items()}

    def modules(self, state: dict[str, Tensor]) -> list[nn.Module]:
        """Return a copy of the module."""
        return [_loaded(self.module, state, 0)]


class Stacked(Networks):
    """Many networks: parameters with an axis in front, and one call for all.

    Raises
    ------
    RuntimeError
        Where ``vmap`` refuses the module, when it is first called.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.template = copy.deepcopy(modules[0])
        self.is_frozen = {
            n: not p.requires_grad for n, p in self.template.named_parameters()
        }
        params, self.buffers = stack_module_state(list(modules))
        self.params = {name: p.detach().clone() for name, p in params.items()}
        for name, p in self.params.items():
            p.requires_grad_(not self.is_frozen[name])
        # Bins are the same for all: with one set of edges a batch is cut only once.
        self._shared = {
            f"{prefix}.{name}"
            for prefix, module in self.template.named_modules()
            if isinstance(module, Bins)
            for name, _ in module.named_buffers()
        }
        # The same draws of dropout for all: each trains as it would alone.
        self._call = vmap(self._one, in_dims=(0, 0, None, None), randomness="same")

    def __call__(self, x: Tensor) -> Tensor:
        """Return (n_models, b, m) logits."""
        own = {n: t for n, t in self.buffers.items() if n not in self._shared}
        shared = {n: self.buffers[n][0] for n in self._shared}
        logits: Tensor = self._call(self.params, own, shared, x)
        return logits

    def parameters(self) -> list[Tensor]:
        """Return the stacked parameters."""
        return [p for p in self.params.values() if p.requires_grad]

    def train(self, is_training: bool) -> None:
        """Set the mode of the module that is called."""
        self.template.train(is_training)

    def state(self) -> dict[str, Tensor]:
        """Return the stacked tensors."""
        return {n: t.detach() for n, t in {**self.params, **self.buffers}.items()}

    def modules(self, state: dict[str, Tensor]) -> list[nn.Module]:
        """Return each network as a module of its own."""
        count = len(next(iter(state.values())))
        return [_loaded(self.template, state, lane) for lane in range(count)]

    def _one(
        self,
        params: dict[str, Tensor],
        own: dict[str, Tensor],
        shared: dict[str, Tensor],
        x: Tensor,
    ) -> Tensor:
        state = (params, own, shared)
        return two_columns(functional_call(self.template, state, (x,)))


def _loaded(module: nn.Module, state: dict[str, Tensor], lane: int) -> nn.Module:
    copied = copy.deepcopy(module)
    with torch.no_grad():
        for name, tensor in copied.state_dict().items():
            tensor.copy_(state[name][lane])
    return copied.eval()
