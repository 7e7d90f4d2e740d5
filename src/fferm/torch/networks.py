"""Networks to train, one alone or many as one, and the rows that they see.

The default network cuts each numeric feature into bins, because a network sees little
of a skewed feature, most of whose rows share a corner of its range; a row says how far
it has come through each bin (piecewise linear encoding: Gorishniy, Rubachev and
Babenko, 2022). Stacked networks hold the parameters of all as (L, ...) tensors;
`torch.func.vmap` turns the module into a function of them, so a step of many costs the
launches of one.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from fferm._typing import FloatArray, IntArray, Table, is_sparse
from fferm.errors import InvalidInputError, InvalidTypeError, PersistenceError
from fferm.torch.reader import check_shape

# Numeric columns, and the (n_numeric, n_bins + 1) edges of their bins.
Cuts = tuple[IntArray, FloatArray]
# Makes a network from (n_features, n_classes).
Factory = Callable[[int, int], nn.Module]
# Rows of a pass without gradients.
PASS_ROWS = 8192
# Bins of a numeric feature, and the most numeric features that are cut into bins.
N_BINS = 16
MOST_BINNED = 256
NO_CUTS: Cuts = (np.zeros(0, dtype=np.int64), np.zeros((0, N_BINS + 1)))


class Features:
    """A matrix of features: dense on the device, or CSR, made dense batch by batch.

    Parameters
    ----------
    X
        (n, d) array or CSR matrix.
    like
        A tensor, or what else has the dtype and the device of the batches.
    """

    def __init__(self, X: Table, like: Any) -> None:
        self.dtype, self.device = like.dtype, like.device
        self.is_sparse, self.n_rows = is_sparse(X), X.shape[0]
        self.table: Any = X.tocsr() if self.is_sparse else self._tensor(X)

    def take(self, index: Tensor | slice) -> Tensor:
        """Return the (b, d) rows at some positions."""
        if not self.is_sparse:
            rows: Tensor = self.table[index]
            return rows
        where = index if isinstance(index, slice) else index.cpu().numpy()
        return self._tensor(self.table[where].toarray())

    def blocks(self) -> Iterator[Tensor]:
        """Yield all rows in order, many at a time."""
        for begin in range(0, self.n_rows, PASS_ROWS):
            yield self.take(slice(begin, begin + PASS_ROWS))

    def _tensor(self, table: Table) -> Tensor:
        precise = np.float64 if self.dtype == torch.float64 else np.float32
        with np.errstate(over="ignore"):
            # A copy: PyTorch warns of memory that it may not write.
            rounded = np.array(table, dtype=precise, order="C")
        if not np.all(np.isfinite(rounded)):
            raise InvalidInputError(
                f"X contains values above {np.finfo(precise).max:.2g}, which single "
                "precision cannot hold. Scale the features, or set dtype='float64'."
            )
        return torch.from_numpy(rounded).to(self.device)


class DeviceRows:
    """What a loss, or a penalty, is taken on.

    Parameters
    ----------
    X
        Features; a penalty on the rows of the loss shares theirs.
    target
        (n,) class codes or numbers; the (n, A) cells of a penalty.
    weight
        (n,) weights of any scale. Kept with mean 1, or as None where all are the same.
    """

    def __init__(self, X: Features, target: NDArray[Any], weight: FloatArray) -> None:
        self.X, self.target = X, torch.tensor(target).to(X.device)
        self.weight: Tensor | None = None
        if np.any(weight != weight[0]):
            self.weight = torch.tensor(weight / weight.mean()).to(X.device)

    def blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Yield features, targets and weights in order, many rows at a time."""
        targets = torch.split(self.target, PASS_ROWS)
        weights: Sequence[Tensor | None] = [None] * len(targets)
        if self.weight is not None:
            weights = torch.split(self.weight, PASS_ROWS)
        yield from zip(self.X.blocks(), targets, weights, strict=True)


class Bins(nn.Module):
    """Replaces numeric columns by how far a row is through each of their bins.

    Parameters
    ----------
    n_features
        Columns that come in.
    cuts
        The columns that are cut, and the edges of their bins.
    """

    def __init__(self, n_features: int, cuts: Cuts) -> None:
        super().__init__()
        numeric, edges = cuts
        plain = np.delete(np.arange(n_features), numeric)
        self.register_buffer("plain", torch.tensor(plain))
        self.register_buffer("numeric", torch.tensor(numeric))
        for name, table in ("low", edges[:, :-1]), ("width", np.diff(edges, axis=1)):
            rounded = torch.tensor(table, dtype=torch.get_default_dtype())
            self.register_buffer(name, rounded)
        self.n_outputs = plain.size + table.size

    plain: Tensor
    numeric: Tensor
    low: Tensor
    width: Tensor

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
    cuts
        Columns that are cut into bins, and where.
    """

    draws = False  # no random numbers while it trains

    def __init__(
        self, n_features: int, n_classes: int, hidden: Sequence[int], cuts: Cuts
    ) -> None:
        bins = Bins(n_features, cuts)
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


# torch has one state of random numbers, and of how it multiplies, for all threads.
TURN = threading.RLock()


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed random numbers for a block, and leave the user's as they were.

    Blocks of several threads take turns.
    """
    devices = [device] if device is not None and device.type == "cuda" else []
    with TURN, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def make_network(
    module: nn.Module | Factory, n_features: int, n_classes: int, seed: int
) -> nn.Module:
    """Return a fresh network; an instance is copied and keeps its parameters."""
    if isinstance(module, nn.Module):
        return copy.deepcopy(module)
    with seeded(seed):
        made = module(n_features, n_classes)
    if not isinstance(made, nn.Module):
        raise InvalidTypeError(
            f"module must make a torch.nn.Module; it returned a {type(made).__name__}."
        )
    return made


def empty_net(
    state: dict[str, Tensor], hidden: Sequence[int], n_features: int, n_classes: int
) -> DefaultNet:
    """Return the default network of a state, without memory of its own."""
    numeric = state["0.numeric"].numpy()
    if n_features != numeric.size + state["0.plain"].numel():
        raise PersistenceError(f"The network does not take {n_features!r} features.")
    with torch.device("meta"):
        cuts = numeric, np.zeros((numeric.size, N_BINS + 1))
        return DefaultNet(n_features, n_classes, hidden, cuts)


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
            f"{tuple(x.shape)} ({error}). For images, begin with nn.Unflatten."
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
    features = Features(X, next(module.parameters()))
    with torch.no_grad():
        parts = [read(module(x)).double().cpu() for x in features.blocks()]
    outputs = torch.cat(parts).numpy()
    if not np.isfinite(outputs).all():
        raise InvalidInputError(
            f"{type(module).__name__} returns NaN or infinity for some rows of X. "
            "Check them, or scale the features."
        )
    return outputs


class Network:
    """One network, called as its own module; its tensors have an axis in front.

    Parameters
    ----------
    module
        The network, trained in place.
    read
        Turns its output into logits, or into what else the objective takes.
    """

    def __init__(
        self, module: nn.Module, read: Callable[[Tensor], Tensor] = two_columns
    ) -> None:
        self.module, self.read = module, read

    def __call__(self, x: Tensor) -> Tensor:
        """Return (n_models, b, m) logits, or what else ``read`` returns."""
        return self.read(self.module(x))[None]

    def parameters(self) -> list[Tensor]:
        """Return what an optimizer moves."""
        return [p for p in self.module.parameters() if p.requires_grad]

    def state(self) -> dict[str, Tensor]:
        """Return (n_models, ...) parameters and buffers, as they are in memory."""
        return {n: t.detach()[None] for n, t in self.module.state_dict().items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take the parameters and buffers of a state."""
        with torch.no_grad():
            for name, tensor in self.state().items():
                tensor.copy_(state[name])

    @torch.no_grad()
    def modules(self, state: dict[str, Tensor]) -> list[nn.Module]:
        """Return one module per network, with the parameters of a state."""
        copies = []
        for lane in range(len(next(iter(state.values())))):
            copies.append(copy.deepcopy(self.module).eval())
            for name, tensor in copies[-1].state_dict().items():
                tensor.copy_(state[name][lane])
        return copies


class Stacked(Network):
    """Many networks: parameters with an axis in front, and one call for all.

    Raises
    ------
    RuntimeError
        Where ``vmap`` refuses the module, when it is first called.
    """

    def __init__(self, module: nn.Module, n_models: int) -> None:
        super().__init__(copy.deepcopy(module))
        params, self.buffers = stack_module_state([module] * n_models)
        self.params = {name: p.detach().clone() for name, p in params.items()}
        for name, p in self.module.named_parameters():
            self.params[name].requires_grad_(p.requires_grad)
        # Bins are the same for all: with one set of edges a batch is cut only once.
        self._shared = {
            f"{prefix}.{name}"
            for prefix, part in self.module.named_modules()
            if isinstance(part, Bins)
            for name, _ in part.named_buffers()
        }

        def one(*arguments: Any) -> Tensor:
            *state, x = arguments
            return self.read(functional_call(self.module, tuple(state), (x,)))

        # The same draws of dropout for all: each trains as it would alone.
        self._call = vmap(one, in_dims=(0, 0, None, None), randomness="same")

    def __call__(self, x: Tensor) -> Tensor:
        """Return (n_models, b, m) logits."""
        buffers = {n: t for n, t in self.buffers.items() if n not in self._shared}
        shared = {n: self.buffers[n][0] for n in self._shared}
        logits: Tensor = self._call(self.params, buffers, shared, x)
        return logits

    def parameters(self) -> list[Tensor]:
        """Return the stacked parameters."""
        return [p for p in self.params.values() if p.requires_grad]

    def state(self) -> dict[str, Tensor]:
        """Return the stacked tensors."""
        return {n: t.detach() for n, t in {**self.params, **self.buffers}.items()}
