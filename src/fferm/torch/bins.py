"""The default network: bins for numeric features, then a multi-layer perceptron.

A network sees little of a skewed feature: most rows share a corner of its range. So
each numeric feature is cut into bins, and a row says how far it has come through each
of them (piecewise linear encoding: Gorishniy, Rubachev and Babenko, 2022).
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from fferm._typing import FloatArray, IntArray, Table, is_sparse

# Numeric columns, and the (n_numeric, n_bins + 1) edges of their bins.
Cuts = tuple[IntArray, FloatArray]
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
