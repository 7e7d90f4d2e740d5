r"""The dual table of a loss, which ascends by itself.

With batch masses ``P``,

.. math::

    G_{rjk} = \frac{w_r}{\rho_r}
        \Big(A_{rjk} - \sum_{k'} \pi_{rk'} f^*(A_{rjk'})\Big), \qquad
    g_{rjk} = \hat P_{rjk} - \pi_{rk} \hat P_{rj} (f^*)'(A_{rjk})

The table holds log-ratios, ``A = f'(e^z)``, or for steep divergences A itself, and
moves along ``g / (pi_k P_j)`` as in the fused kernel for linear models: it rests where
the ratio is ``P / Q``, whatever the divergence. An optimizer of the user has no part in
it: Adam would forget the preconditioner, weight decay would pull the dual to the wrong
place, and a dual that nobody gave to an optimizer would never move.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from fferm._typing import Namespace
from fferm.divergences import Divergence, strip
from fferm.errors import InvalidParameterError
from fferm.penalty.dual import (
    FIRST_DUAL_STEP,
    LARGEST_PUSH,
    SMALLEST_RATE,
    GroupWeights,
    dual_variable,
)

# PyTorch spells the five functions of a formula as NumPy does.
TORCH = cast(Namespace, torch)


@dataclass(frozen=True)
class DualSteps:
    """How the dual of a loss moves.

    Parameters
    ----------
    lr
        Step ``t`` is ``lr / t``: the dual averages over the last ``1 / lr`` of all.
    window
        But over no more than this many members of a group, so that it follows a model
        that keeps moving: a dual that lags behind makes the model swing, more than one
        that is noisy. ``math.inf`` averages for ever, as for a run that settles down.
    accumulate
        Calls a step. Set it to the number of backward passes between two steps of your
        optimizer, and small batches train exactly as the large one that they make.
    """

    lr: float = 4.0
    window: float = 30.0
    accumulate: int = 1

    def __post_init__(self) -> None:
        is_count = isinstance(self.accumulate, int) and self.accumulate >= 1
        if not (self.lr > 0 and self.window > 0 and is_count):
            raise InvalidParameterError(
                f"{self!r} came. Expected a positive lr, a positive window and a whole "
                "number of calls from 1 on."
            )


class Dual(nn.Module):
    """The dual table of a penalty, and the constants of the data that it needs.

    Parameters
    ----------
    divergence
        Any; its factor and its floor are taken apart from its formulas.
    weights
        Of groups and strata.
    n_classes
        Number of classes.
    steps
        How it moves.
    n_models
        How many tables there are, one for each of several models; None is one, without
        an axis for it.
    """

    def __init__(
        self,
        divergence: Divergence,
        weights: GroupWeights,
        n_classes: int,
        steps: DualSteps,
        n_models: int | None = None,
    ) -> None:
        super().__init__()
        self.kind = dual_variable(divergence)
        self.lower = self.kind.lower
        self.steps = steps
        n_strata, n_groups = weights.prior.shape
        self._add_constants(weights, strip(divergence)[1])
        shape = (n_strata, n_classes, n_groups)
        models = () if n_models is None else (n_models,)
        zeros = torch.zeros(*models, *shape, dtype=torch.float64)
        # A parameter, so that it is found where parameters are looked for; without a
        # gradient, so that no optimizer, weight decay or clipping touches it.
        self.variable = nn.Parameter(zeros, requires_grad=False)
        self.register_buffer("rate", zeros + 1 / n_classes)
        self.register_buffer("pooled", zeros.clone())
        for name in ("n_steps", "pooled_rows", "n_pooled"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    prior: Tensor
    pace: Tensor
    factor: Tensor
    share: Tensor
    upper: Tensor
    members: Tensor
    block: Tensor
    rate: Tensor
    n_steps: Tensor
    pooled: Tensor
    pooled_rows: Tensor
    n_pooled: Tensor

    def _add_constants(self, weights: GroupWeights, scale: float) -> None:
        # All (R, 1, K), and 0 where a group is absent, so that its cell stays put.
        sizes = np.diff(weights.ends)
        share, factor = (
            np.repeat(table, sizes, axis=1) for table in (weights.share, weights.factor)
        )
        prior, is_live = weights.prior, weights.prior > 0
        constants = {
            "prior": prior,
            "pace": self.kind.speed * is_live / np.where(is_live, prior, 1.0),
            "factor": scale * factor,
            "share": share,
            "upper": self.kind.upper(prior),
            "members": prior / np.where(is_live, share, 1.0),  # of a row, on average
        }
        for name, table in constants.items():
            self.register_buffer(name, torch.from_numpy(table)[:, None, :])
        block = np.repeat(np.eye(len(sizes)), sizes, axis=0)  # (K, A)
        self.register_buffer("block", torch.from_numpy(block))

    @torch.no_grad()
    def payoff(self) -> Tensor:
        """Return ``G`` of the current dual, (R, m, K)."""
        dual, charge = self.kind.dual_and_charge(self.variable.detach(), TORCH)
        # The variable of an absent group is 0, and so is its charge.
        found: Tensor = self.factor * (dual - self._total(self.prior * charge))
        return found

    @torch.no_grad()
    def slope(self, mass: Tensor) -> Tensor:
        """Return ``g``, the gradient by A, of (R, m, K) mean masses."""
        mass = self.share * mass
        ratio: Tensor = self.kind.ratio(self.variable.detach(), TORCH)
        return mass - self.prior * self._total(mass) * ratio

    @torch.no_grad()
    def observe(self, mass: Tensor, n_rows: Tensor) -> None:
        """Move the dual by (R, m, K) sums over ``n_rows`` rows.

        A batch that is not finite moves nothing.
        """
        finite = torch.isfinite(mass).all()
        mass = torch.where(finite, mass, 0.0)
        n_rows = torch.where(finite, n_rows, 0.0)
        if self.steps.accumulate == 1:
            self._ascend(mass, n_rows, n_rows > 0)
            return
        self.pooled += mass
        self.pooled_rows += n_rows
        self.n_pooled += 1
        is_due = self.n_pooled >= self.steps.accumulate
        self._ascend(self.pooled, self.pooled_rows, is_due & (self.pooled_rows > 0))
        for total in (self.pooled, self.pooled_rows, self.n_pooled):
            total.mul_(torch.where(is_due, 0.0, 1.0))

    def _ascend(self, mass: Tensor, n_rows: Tensor, is_due: Tensor) -> None:
        # Branches would wait for the device: what is not due steps by 0.
        mass = mass / n_rows.clamp_min(1)
        self.n_steps += is_due
        step = self.steps.lr / self.n_steps.clamp_min(1)
        slope, live = self.slope(mass), torch.where(is_due, 1.0, 0.0)
        pace = self._paced(step, n_rows * self._total(self.members))
        self.rate += live * pace * (self._total(self.share * mass) - self.rate)
        n_members = n_rows * self.members
        eta = torch.minimum(self._paced(step, n_members), LARGEST_PUSH * n_members)
        move = eta * self.pace * slope / self.rate.clamp_min(SMALLEST_RATE)
        moved = self.variable + live * move
        self.variable.copy_(torch.minimum(moved.clamp_min(self.lower), self.upper))

    def _paced(self, step: Tensor, n_members: Tensor) -> Tensor:
        """Return the step of each cell: not so short that the window is too long."""
        floor = n_members / self.steps.window
        return torch.maximum(step, floor).clamp_max(FIRST_DUAL_STEP)

    def _total(self, table: Tensor) -> Tensor:
        """Return (..., K) summed over the groups of each attribute, for each group."""
        if self.block.shape[1] == 1:
            return table.sum(dim=-1, keepdim=True)
        return table @ self.block @ self.block.T
