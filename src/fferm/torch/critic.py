r"""Critics: a dual that is a function, for what no table holds.

The dual variable of a prediction :math:`u` and a sensitive value :math:`s` is

.. math:: z(u, s) = L \tanh\Big(\frac1{mL} \sum_{j=1}^m a_j(u) \, b_j(s)\Big)

the mean product of a few features of each side. Classes and groups have a row of a
table for their features, numbers a small network. Where both sides are discrete and the
features as many as groups, this is any table: the dual of `fferm.torch.dual`. With
``A = f'(e^z)`` and ``C = f*(A)``, the value of a critic is

.. math:: E_{P(u, s)}[A] - E_{P(u) P(s)}[C] \le D_f

and the largest value is the divergence. :math:`L` is the box of the dual, without which
one strange row could throw everything about.
"""

from typing import cast

import torch
from torch import Tensor, nn

from fferm._typing import Namespace
from fferm.penalty.dual import DualVariable

TORCH = cast(Namespace, torch)


class NumberFeatures(nn.Module):
    """Features of numbers, which are standardised first.

    Parameters
    ----------
    centre, scale
        (q,) of each column.
    width, rank
        Units of the hidden layers, and how many features.
    """

    def __init__(self, centre: Tensor, scale: Tensor, width: int, rank: int) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)
        self.layers = nn.Sequential(
            nn.Linear(centre.numel(), width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, rank),
        ).double()

    centre: Tensor
    scale: Tensor

    def forward(self, values: Tensor) -> Tensor:
        """Return the (n, rank) features of (n, q) numbers."""
        found: Tensor = self.layers((values.double() - self.centre) / self.scale)
        return found


class KindFeatures(nn.Module):
    """A row of features for each of some classes or groups."""

    def __init__(self, n_kinds: int, rank: int) -> None:
        super().__init__()
        table = torch.eye(n_kinds, rank, dtype=torch.float64)
        if n_kinds > rank:
            extra = torch.randn(n_kinds - rank, rank, dtype=torch.float64)
            table[rank:] = extra / rank**0.5
        self.table = nn.Parameter(table)

    def forward(self) -> Tensor:
        """Return the (n_kinds, rank) features."""
        return self.table


class Critic(nn.Module):
    """The dual variable of every pair of a prediction and a sensitive value.

    Parameters
    ----------
    left, right
        Features of predictions and of sensitive values, one pair of them a stratum.
    kind
        What the variable is: a log-ratio as a rule.
    """

    def __init__(
        self, left: list[nn.Module], right: list[nn.Module], kind: DualVariable
    ) -> None:
        super().__init__()
        self.left = nn.ModuleList(left)
        self.right = nn.ModuleList(right)
        self.kind = kind
        self.limit = -kind.lower
        for side in self.right:
            _begin_at_zero(side)

    def forward(
        self, stratum: int, u: Tensor | None, s: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return A and C of each pair, (predictions x sensitive values).

        None stands for all classes, or for all groups.
        """
        a = self.left[stratum]() if u is None else self.left[stratum](u)
        b = self.right[stratum]() if s is None else self.right[stratum](s)
        variable = self.limit * torch.tanh(a @ b.T / (a.shape[1] * self.limit))
        dual, charge = self.kind.dual_and_charge(variable, TORCH)
        return dual, charge


def _begin_at_zero(side: nn.Module) -> None:
    # At 0 the value is 0, the dual of independence; the other side's features are not
    # 0, so that this is no place where nothing moves.
    last = side.layers[-1] if isinstance(side, NumberFeatures) else side
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.zero_()
