"""Networks to train: the default one, the user's own, one alone or many as one.

The default network cuts each numeric feature into bins, because a network sees little
of a skewed feature, most of whose rows share a corner of its range; a row says how far
it has come through each bin (piecewise linear encoding: Gorishniy, Rubachev and
Babenko, 2022). Stacked networks hold the parameters of all as (L, ...) tensors;
`torch.func.vmap` turns the module into a function of them, so a step of many costs the
launches of one.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from fferm._typing import FloatArray, IntArray, Table, is_sparse
from fferm.errors import InvalidInputError, InvalidParameterError, InvalidTypeError
from fferm.torch.penalties import Features
from fferm.torch.reader import check_shape

# Numeric columns, and the (n_numeric, n_bins + 1) edges of their bins.
Cuts = tuple[IntArray, FloatArray]
# Makes a network from (n_features, n_classes).
Factory = Callable[[int, int], nn.Module]
# Bins of a numeric feature, and the most numeric features that are cut into bins.
N_BINS = 16
MOST_BINNED = 256
NO_CUTS: Cuts = (np.zeros(0, dtype=np.int64), np.zeros((0, N_BINS + 1)))


class Bins(nn.Module):
    """Replaces numeric columns by how far a row is through each of their bins.

    Parameters
    ----------
    n_features
        Columns that come in.
    n_numeric
        Columns that are cut; `cut` says which, and where.
    n_bins
        Bins of each.
    """

    def __init__(self, n_features: int, n_numeric: int, n_bins: int = N_BINS) -> None:
        super().__init__()
        plain = torch.arange(n_features - n_numeric)
        self.register_buffer("plain", plain)
        self.register_buffer("numeric", torch.arange(n_numeric) + len(plain))
        self.register_buffer("low", torch.zeros(n_numeric, n_bins))
        self.register_buffer("width", torch.ones(n_numeric, n_bins))
        self.n_outputs = len(plain) + n_numeric * n_bins

    plain: Tensor
    numeric: Tensor
    low: Tensor
    width: Tensor

    def cut(self, numeric: IntArray, edges: FloatArray) -> None:
        """Cut columns at (n_numeric, n_bins + 1) edges."""
        n_features = len(self.plain) + len(self.numeric)
        self.plain.copy_(torch.from_numpy(np.delete(np.arange(n_features), numeric)))
        self.numeric.copy_(torch.from_numpy(numeric))
        self.low.copy_(torch.from_numpy(edges[:, :-1]))
        self.width.copy_(torch.from_numpy(np.diff(edges, axis=1)))

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, n_outputs) rows."""
        past = x[:, self.numeric, None] - self.low  # (n, n_numeric, n_bins)
        # A bin without width is a step: nothing below, all of it above.
        share = torch.where(
            self.width > 0, past / self.width.clamp_min(1e-12), torch.sign(past)
        )
        return torch.cat([x[:, self.plain], share.clamp(0, 1).flatten(1)], dim=1)


class DefaultNet(nn.Sequential):
    """Bins, then linear layers with ReLU between them.

    Parameters
    ----------
    n_features, n_classes
        Width of its ends.
    hidden
        Width of each hidden layer; none makes a linear model of the bins.
    n_numeric
        Columns that are cut into bins.
    """

    def __init__(
        self, n_features: int, n_classes: int, hidden: Sequence[int], n_numeric: int
    ) -> None:
        bins = Bins(n_features, n_numeric)
        layers: list[nn.Module] = []
        for before, after in pairwise([bins.n_outputs, *hidden, n_classes]):
            layers += [nn.Linear(before, after), nn.ReLU()]
        super().__init__(bins, *layers[:-1])


def find_bins(X: Table) -> Cuts:
    """Return the numeric columns of X, and the edges of their bins.

    Edges are quantiles of a column's distinct values, so that neither weights nor
    repeated rows move them, and a skewed column has bins all along its range. Columns
    of two values stay as they are; so do sparse matrices and tables of very many
    numeric columns.
    """
    if is_sparse(X):
        return NO_CUTS
    values = [np.unique(column) for column in np.asarray(X).T]
    numeric = np.array([j for j, v in enumerate(values) if v.size > 2], dtype=np.int64)
    if not 0 < numeric.size <= MOST_BINNED:
        return NO_CUTS
    share = np.linspace(0, 1, N_BINS + 1)
    edges = np.stack([np.quantile(values[j], share) for j in numeric])
    return numeric, edges


def make_default(
    n_features: int, n_classes: int, hidden: Sequence[int], cuts: Cuts
) -> DefaultNet:
    """Return a default network with its columns cut."""
    net = DefaultNet(n_features, n_classes, hidden, len(cuts[0]))
    first = net[0]
    assert isinstance(first, Bins)
    first.cut(*cuts)
    return net


def default_of(
    state: Mapping[str, Tensor], n_features: int, n_classes: int, hidden: Sequence[int]
) -> DefaultNet:
    """Return a default network of the shape of a state, which is not loaded yet."""
    return DefaultNet(n_features, n_classes, hidden, len(state["0.numeric"]))


def make_network(
    module: nn.Module | Factory | None,
    make_default: Factory,
    n_features: int,
    n_classes: int,
    seed: int,
) -> nn.Module:
    """Return a fresh network; an instance is copied and keeps its parameters."""
    if isinstance(module, nn.Module):
        return copy.deepcopy(module)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = (make_default if module is None else module)(n_features, n_classes)
    if not isinstance(made, nn.Module):
        raise InvalidTypeError(
            "module(n_features, n_classes) must return a torch.nn.Module; it returned "
            f"a {type(made).__name__}."
        )
    return made


def check_trainable(module: nn.Module) -> None:
    """Raise if a network has nothing to train."""
    if not any(p.requires_grad for p in module.parameters()):
        raise InvalidParameterError(
            f"{type(module).__name__} has no parameter with requires_grad=True, so "
            "there is nothing to train. Unfreeze some."
        )


def probe(module: nn.Module, x: Tensor, n_classes: int) -> None:
    """Call a network on some rows and raise if its outputs are not logits."""
    was_training = module.training
    module.eval()  # in training mode a batch norm would count these rows
    try:
        with torch.no_grad():
            output = module(x)
    except (RuntimeError, ValueError, TypeError) as error:
        raise InvalidInputError(
            f"{type(module).__name__} cannot be called on a {x.dtype} tensor of shape "
            f"{tuple(x.shape)} ({error}). It must take (n, {x.shape[1]}) rows of X; a "
            "network for images begins with nn.Unflatten."
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


def predict(
    module: nn.Module, X: Table, read: Callable[[Tensor], Tensor] = two_columns
) -> FloatArray:
    """Return the outputs of a module in evaluation mode, in double precision.

    By default (n, m) logits.
    """
    first = next(module.parameters())
    features = Features(X, first.dtype, first.device)
    with torch.no_grad():
        parts = [read(module(x)).double().cpu() for x in features.blocks()]
    return torch.cat(parts).numpy()


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

    def __init__(
        self, module: nn.Module, read: Callable[[Tensor], Tensor] = two_columns
    ) -> None:
        self.module, self.read = module, read

    def __call__(self, x: Tensor) -> Tensor:
        """Return (1, b, m) logits, or what else ``read`` returns of the output."""
        return self.read(self.module(x))[None]

    def parameters(self) -> list[Tensor]:
        """Return the module's parameters."""
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
        buffers = {n: t for n, t in self.buffers.items() if n not in self._shared}
        shared = {n: self.buffers[n][0] for n in self._shared}
        logits: Tensor = self._call(self.params, buffers, shared, x)
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
        buffers: dict[str, Tensor],
        shared: dict[str, Tensor],
        x: Tensor,
    ) -> Tensor:
        state = (params, buffers, shared)
        return two_columns(functional_call(self.template, state, (x,)))


def _loaded(module: nn.Module, state: dict[str, Tensor], lane: int) -> nn.Module:
    copied = copy.deepcopy(module)
    with torch.no_grad():
        for name, tensor in copied.state_dict().items():
            tensor.copy_(state[name][lane])
    return copied.eval()
