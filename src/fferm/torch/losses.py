r"""Fairness losses of tables, to be added to any loss.

`FairnessLoss` is Algorithm 1. With batch masses ``P``, its dual table moves by

.. math::

    G_{rjk} = \frac{w_r}{\rho_r}
        \Big(A_{rjk} - \sum_{k'} \pi_{rk'} f^*(A_{rjk'})\Big), \qquad
    g_{rjk} = \hat P_{rjk} - \pi_{rk} \hat P_{rj} (f^*)'(A_{rjk})

The table holds log-ratios, ``A = f'(e^z)``, or for steep divergences A itself, and
moves along ``g / (pi_k P_j)`` as in the fused kernel for linear models: it rests where
the ratio is ``P / Q``, whatever the divergence. The user's optimizer does not move it:
Adam would ignore the preconditioner, weight decay would pull the dual to the wrong
place, and a dual that was not passed to an optimizer would never move.

`SemiStochasticFairnessLoss` takes its payoff from a pass over all rows and holds it
fixed. Any penalty of the table can be trained so, also one whose dual is not linear in
the predictions: under shifts, or for sufficiency.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from fferm._typing import FloatArray, Namespace, Table
from fferm.data.groups import GroupMode, group_name
from fferm.data.rows import Rows
from fferm.divergences import Divergence, strip
from fferm.errors import InvalidInputError, InvalidParameterError, NonFiniteError
from fferm.metrics.tabulator import worst_violation
from fferm.notions import Notion
from fferm.penalty.dual import (
    FIRST_DUAL_STEP,
    LARGEST_STEP,
    SMALLEST_RATE,
    dual_variable,
    group_weights,
)
from fferm.penalty.objective import Objective, make_objective, table_penalty
from fferm.penalty.soft_bins import SoftBins
from fferm.torch.distributed import add_ranks
from fferm.torch.reader import (
    BatchReader,
    BatchRows,
    CellReader,
    GroupWeighting,
    Outputs,
    read_training,
)
from fferm.uncertainty import Uncertainty

if TYPE_CHECKING:
    from fferm.torch.networks import DeviceRows

# PyTorch spells the five functions of a formula as NumPy does.
TORCH = cast(Namespace, torch)
# (x) -> (n_models, b, m) logits.
Call = Callable[[Tensor], Tensor]
# Soft bins of a predicted number by default.
N_BINS = 10


# Constants of a dual that follow from the others, so a state_dict need not hold them.
DERIVED = (
    "lr",
    "none",
    "largest",
    "low",
    "product",
    "slow",
    "least",
    "most",
    "constants",
)
# Whether a transformation of `torch.func` is at work, which hides numbers from NumPy.
is_transformed = torch._C._are_functorch_transforms_active


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
                f"lr and window must be positive, accumulate at least 1; got {self!r}."
            )


class Dual(nn.Module):
    """The dual table of a penalty, and the constants of the data that it needs.

    Parameters
    ----------
    objective, rows
        Divergence and notion, and the rows whose groups and strata are weighed.
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
        objective: Objective,
        rows: Rows,
        n_classes: int,
        steps: DualSteps,
        n_models: int | None = None,
    ) -> None:
        super().__init__()
        self.kind = dual_variable(objective.divergence)
        self.lower, self.steps = self.kind.lower, steps
        weights = group_weights(rows, objective.notion.weighting)
        # All (R, 1, K), and 0 where a group is absent, so that its cell stays put.
        sizes, prior = np.diff(weights.ends), weights.prior
        share, factor = (
            np.repeat(table, sizes, axis=1) for table in (weights.share, weights.factor)
        )
        is_live = prior > 0
        constants = {
            "prior": prior,
            "pace": self.kind.speed * is_live / np.where(is_live, prior, 1.0),
            "factor": strip(objective.divergence)[1] * factor,
            "share": share,
            "upper": self.kind.upper(prior),
            "members": prior / np.where(is_live, share, 1.0),  # of a row, on average
        }
        for name, table in constants.items():
            self.register_buffer(name, torch.from_numpy(table)[:, None, :])
        block = np.repeat(np.eye(len(sizes)), sizes, axis=0)  # (K, A)
        self.register_buffer("block", torch.from_numpy(block))
        shape = len(prior), n_classes, int(sizes.sum())
        models = () if n_models is None else (n_models,)
        zeros = torch.zeros(*models, *shape, dtype=torch.float64)
        # A parameter, so that it is found where parameters are looked for; without a
        # gradient, so that no optimizer, weight decay or clipping touches it.
        self.variable = nn.Parameter(zeros, requires_grad=False)
        self.register_buffer("rate", zeros + 1 / n_classes)
        self.register_buffer("pooled", zeros.clone())
        for name in ("n_steps", "pooled_rows", "n_pooled"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))
        for name in DERIVED:
            self.register_buffer(name, torch.zeros((), dtype=torch.float64), False)
        self._derive()

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
    lr: Tensor
    none: Tensor
    largest: Tensor
    low: Tensor
    product: Tensor
    slow: Tensor
    least: Tensor
    most: Tensor
    constants: Tensor

    def _derive(self) -> None:
        one, window = torch.ones_like(self.n_steps), self.steps.window
        self.lr, self.none = self.steps.lr * one, 0 * one
        self.low, self.largest = self.lower * one, FIRST_DUAL_STEP * one
        self.product = -self.factor * self.prior
        self.slow = self.members @ self.block @ self.block.T / window
        self.least, self.most = self.members / window, LARGEST_STEP * self.members
        # All as the kernels of a GPU read them.
        tables = [self.product, self.factor, self.prior, self.pace, self.share]
        tables += [self.upper, self.slow, self.least, self.most]
        ends = torch.stack((self.low, self.lr))
        self.constants = torch.cat((torch.stack(tables).flatten(), ends))

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._derive()

    @torch.no_grad()
    def payoff(self) -> Tensor:
        """Return ``G`` of the current dual, (R, m, K)."""
        variable, formulas = self.variable, self.kind.dual_and_conjugate
        is_traced = torch.compiler.is_compiling() or is_transformed()
        if is_traced or variable.device.type != "cpu":
            dual, conjugate = formulas(variable, TORCH)
        else:  # NumPy calls a function on a small table in a third of the time
            with np.errstate(all="ignore"):
                parts = formulas(np.from_dlpack(variable), np)
            dual, conjugate = map(torch.from_numpy, parts)
        # The variable of an absent group is 0, and so is its conjugate.
        product = self._total(self.product * conjugate)
        return torch.addcmul(product, self.factor, dual)

    @torch.no_grad()
    def slope(self, mass: Tensor) -> Tensor:
        """Return ``g``, the gradient by A, of (R, m, K) mean masses."""
        mass, ratio = self.share * mass, self.kind.ratio(self.variable, TORCH)
        slope: Tensor = mass - self.prior * self._total(mass) * ratio
        return slope

    @torch.no_grad()
    def observe(self, mass: Tensor, n_rows: Tensor | float, is_due: Tensor) -> None:
        """Move the dual by (R, m, K) sums over ``n_rows`` rows, if it is due."""
        if self.steps.accumulate > 1:
            pool = self.pooled, self.pooled_rows, self.n_pooled
            self.pooled += mass
            self.pooled_rows += is_due * n_rows
            self.n_pooled += 1
            is_full = self.n_pooled >= self.steps.accumulate
            mass, n_rows = self.pooled.clone(), self.pooled_rows.clone()
            is_due = is_full & (n_rows > 0)
            mass = mass * is_due
            for total in pool:
                total.mul_(torch.where(is_full, 0.0, 1.0))
        # Branches would wait for the device: what is not due steps by 0.
        self.n_steps += is_due
        step, largest = self.lr / self.n_steps, self.largest * is_due
        mean = (
            mass / n_rows if isinstance(n_rows, float) else mass / n_rows.clamp_min(1)
        )
        mass = self.share * mean
        total = self._total(mass)
        # Steps of strata and of cells: not so short that the window is too long.
        pace = step.clamp(self.slow * n_rows, largest)
        self.rate.copy_(torch.lerp(self.rate, total, pace))
        most = torch.minimum(self.most * n_rows, largest)
        eta = step.clamp(self.least * n_rows, most) * self.pace
        ratio: Tensor = self.kind.ratio(self.variable, TORCH)
        slope = torch.addcmul(mass, self.prior * total, ratio, value=-1)
        move = eta * slope
        moved = torch.addcdiv(self.variable, move, self.rate.clamp_min(SMALLEST_RATE))
        self.variable.copy_(moved.clamp(self.low, self.upper))

    def _total(self, table: Tensor) -> Tensor:
        """Return (..., K) summed over the groups of each attribute, for each group."""
        if self.block.shape[1] == 1:
            return table.sum(dim=-1, keepdim=True)
        return table @ self.block @ self.block.T


@dataclass(frozen=True)
class Diagnostics:
    """The state of a loss, over the batches since it was last asked.

    Attributes
    ----------
    dual_value
        Mean of the loss at the dual as it is now: a lower bound of the divergence, up
        to the noise of a part of an epoch.
    divergence
        The penalty of the table of those batches.
    violation
        Its largest gap between the rates of two groups, of probabilities; NaN where
        the batches held no two groups to compare.
    dual_distance
        How far the dual's variable (log-ratios, as a rule) is from its optimum on that
        table: root of the mean square, cells weighted by their probability.
    n_samples
        Rows that were seen, NaN figures where there were none.
    """

    dual_value: float
    divergence: float
    violation: float
    dual_distance: float
    n_samples: int

    @property
    def gap(self) -> float:
        """What the dual still misses of the divergence."""
        return self.divergence - self.dual_value


class BatchPenalty(nn.Module):
    """A penalty of batches, of one model or of several that train together."""

    def begin_step(self, call: Call, rows: "DeviceRows", step: int) -> None:
        """Do what is due before a step: nothing where every batch is right alone."""

    def of_epoch(self) -> list[float]:
        """Return the penalty of each of several models since this was last asked."""
        raise NotImplementedError

    def _made_for(self) -> str:
        reader: Any = self.reader
        classes = [*map(group_name, reader.classes)]  # 1 and 1.0 are one
        names = f"{reader.names}, classes {classes}, strata {reader.strata_names}"
        return f"{self.extra_repr()}, groups {names}"

    def _load_from_state_dict(self, state: Any, prefix: str, *args: Any) -> None:
        # Tables of other groups may have the same shape: look before they are loaded.
        extra = state.get(f"{prefix}_extra_state")
        if extra is not None:
            is_text = isinstance(extra, Tensor)
            saved = bytes(extra.tolist()).decode() if is_text else extra.get("made_for")
            if saved != self._made_for():
                raise InvalidInputError(
                    f"The state is of a loss for {saved}; this loss is for "
                    f"{self._made_for()}. Make the loss as the other was made."
                )
        super()._load_from_state_dict(state, prefix, *args)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def moved(tensor: Tensor) -> Tensor:
            # Tables are moved between devices and never rounded.
            converted = fn(tensor)
            is_same = converted.dtype == tensor.dtype
            return converted if is_same else tensor.to(converted.device)

        super()._apply(moved, recurse)  # type: ignore[no-untyped-call]
        return self


class TableLoss(BatchPenalty):
    """What the losses of tables share: how batches are read, and names.

    Parameters
    ----------
    reader
        Places a batch in the table.
    objective
        Divergence, notion and uncertainty set.
    """

    def __init__(self, reader: BatchReader | CellReader, objective: Objective) -> None:
        super().__init__()
        # One that reads cells has nothing to encode, and is called by this package.
        self.reader = cast(BatchReader, reader)
        self.objective = objective
        # Where cells lie in a table that is made flat, with two more places for rows in
        # no cell, and what batches need beside it.
        n, n_classes, double = math.prod(reader.shape), reader.shape[1], torch.float64
        inside = torch.arange(n).view(reader.shape).transpose(1, 2)
        outside = torch.tensor([[n], [n + 1]]).expand(2, n_classes)
        constants = {
            "of_cell": torch.cat((inside.reshape(-1, n_classes), outside)),
            "empty": torch.zeros(n + 2, dtype=double),
            "nothing": torch.zeros(2, dtype=double),
            "one": torch.ones(1, dtype=double),
        }
        for name, table in constants.items():
            reader.register_buffer(name, table, persistent=False)

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of all groups, in the order of the table."""
        return self.reader.groups

    @property
    def strata(self) -> tuple[str, ...]:
        """Names of the strata, in the order of the table."""
        return self.reader.strata_names

    @property
    def classes(self) -> tuple[object, ...]:
        """The label of each class."""
        return self.reader.classes

    def encode(self, sensitive_features: Table) -> Tensor:
        """Return sensitive features as `forward` takes them: once, before training."""
        return self.reader.encode(sensitive_features)

    def encode_labels(self, y: Table) -> Tensor:
        """Return labels as (n,) class codes."""
        return self.reader.encode_labels(y)

    def encode_control(self, values: Table) -> Tensor:
        """Return the control feature of the notion as (n,) whole numbers."""
        return self.reader.encode_control(values)

    def extra_repr(self) -> str:
        """Return what `repr` shows first: divergence, notion, groups and shift."""
        name, shift = self.objective.notion.name, self.objective.uncertainty
        text = f"{self.objective.divergence!r}, {name}, n_groups={len(self.groups)}"
        if getattr(self.reader, "group_weights", "share") != "share":
            text += f", group_weights={self.reader.group_weights!r}"
        return text if shift is None else f"{text}, {shift!r}"

    def get_extra_state(self) -> Tensor:
        """Return what the loss was made for as bytes, part of the ``state_dict``."""
        return torch.tensor([*self._made_for().encode()], dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Take what a loss was made for; that it is this one has been checked."""

    def _fused(
        self,
        output: Tensor,
        batch: tuple[Any, ...],
        payoff: Tensor | None = None,
        dual: Dual | None = None,
        moves: bool = False,
    ) -> Tensor | None:
        # The value by kernels on a GPU, None where operators serve.
        kernels = None if torch.compiler.is_compiling() else gpu_kernels()
        if kernels is None or not kernels.can_run(output, self.reader, dual):
            return None
        value: Tensor = kernels.term(self, output, batch, payoff, dual, moves)
        return value

    def _split(self, table: FloatArray) -> list[FloatArray]:
        # The (R, m, K) table of all groups as one table for each attribute.
        return np.split(table, self.reader.ends[1:-1], axis=2)


class FairnessLoss(TableLoss):
    r"""The fairness penalty of a batch, to be added to any loss.

    .. math:: \frac1b \sum_{i \in B} \sum_j F_{ij} \, G_{r_i j k_i}

    with the payoff ``G`` of a dual table. For that dual, its value, its gradient by the
    model and the gradient of the dual are unbiased at every batch size, 1 included:
    the sizes of groups and strata are those of the training labels, never of the batch.
    Make one with `FairnessLoss.from_labels`.

    The dual ascends by itself, once for every call in training mode with gradients on,
    as the running averages of a batch norm do. It is a parameter without a gradient, so
    it may be given to your optimizer, which leaves it alone: no learning rate, weight
    decay, clipping, loss scale or fairness weight changes how it moves. Use ``eval()``
    or ``torch.no_grad()`` to look at the loss without moving it.

    Where ``torch.distributed`` is running, the batches of all ranks move the dual
    together, so it is the same on each; call the loss as often on every rank.

    Parameters
    ----------
    reader
        Places a batch in the table.
    dual
        The dual table.
    objective
        Divergence and notion.

    Examples
    --------
    >>> import torch.nn.functional as F
    >>> y, s = torch.tensor([0, 1] * 40), torch.tensor([0, 0, 1, 1] * 20)
    >>> fair = FairnessLoss.from_labels(y, s, divergence="kl")
    >>> logits = torch.zeros(80, 2, requires_grad=True)
    >>> loss = F.cross_entropy(logits, y) + 2.0 * fair(logits, s, y)
    >>> loss.backward()
    """

    def __init__(
        self, reader: BatchReader | CellReader, dual: Dual, objective: Objective
    ) -> None:
        super().__init__(reader, objective)
        self.dual = dual
        self.register_buffer("seen", torch.zeros_like(dual.variable))
        self.register_buffer("n_seen", torch.zeros((), dtype=torch.float64))

    seen: Tensor
    n_seen: Tensor

    @classmethod
    def from_labels(
        cls,
        y: Table,
        sensitive_features: Table,
        *,
        divergence: str | Divergence = "kl",
        notion: str | Notion = "demographic_parity",
        sharpness: float = 1.0,
        groups: GroupMode = "intersection",
        group_weights: GroupWeighting = "share",
        classes: Sequence[object] | None = None,
        sample_weight: Table = None,
        outputs: Outputs = "auto",
        bins: int | SoftBins = N_BINS,
        dual_steps: DualSteps | None = None,
        check: bool = True,
    ) -> Self:
        """Return the loss for training data with these labels.

        Parameters
        ----------
        y
            Training labels: tensor, array, list or Series; strings too. None where the
            notion does not need them and ``classes`` are given.
        sensitive_features
            As in `fferm.FairLogisticRegression.fit`, or a tensor (n,) or (n, a). -1 and
            missing values: the group is unknown. A column of many fractional numbers is
            cut into quantile bands; `fferm.data.groups.quantile_bands` cuts others.
        divergence, notion, sharpness, groups, group_weights
            As in `fferm.FairLogisticRegression`. The control feature of
            `ConditionalParity` is one value per training row.
        classes
            The classes that the model predicts, in the order of its outputs; by default
            those of ``y``, sorted.
        sample_weight
            Weights of the training rows. Give those of a batch in each call then.
        outputs
            What the loss is called with: ``"logits"``, ``"probabilities"``, or
            ``"numbers"`` of a regression, which are counted in soft bins. ``"auto"``:
            numbers where y holds more than 20 different fractional numbers.
        bins
            Of predicted numbers: how many, with edges at quantiles of y, or the bins
            themselves, `fferm.penalty.soft_bins.make_bins`.
        dual_steps
            How the dual moves.
        check
            Whether values are checked. On a GPU that would wait for it: a group that
            training did not have is left out there, and where Triton is installed a
            later call raises.
        """
        objective = linear_objective(divergence, notion, sharpness)
        parts = objective, groups, classes, sample_weight, outputs
        reader, rows = read_training(
            y,
            sensitive_features,
            *parts,
            bins=bins,
            check=check,
            group_weights=group_weights,
        )
        steps = dual_steps or DualSteps()
        return cls(reader, Dual(objective, rows, reader.shape[1], steps), objective)

    @property
    def dual_variable(self) -> Tensor:
        """(n_strata, n_classes, n_groups) what the dual table holds.

        At its optimum ``ln(P / Q)``; for steep divergences (total variation) the dual
        ``f'(P / Q)`` itself.
        """
        return self.dual.variable

    def forward(
        self,
        output: Tensor,
        sensitive: Table,
        y: Table = None,
        *,
        control: Table = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the penalty of a batch, a number to be added to the loss.

        Parameters
        ----------
        output
            (n, n_classes) logits or probabilities; of two classes also (n, 1) or (n,),
            those of the second.
        sensitive
            One whole number per row and column, (n,) or (n, a): the values themselves
            where they are whole numbers, else as `encode` gives them. Or (n, n_groups)
            one-hot in the order of `groups`. Or raw values, not a tensor. Unknown:
            -1, NaN or no hot column; such rows add nothing.
        y
            (n,) class codes, or raw labels, not a tensor; -1 where unknown. Not
            looked at under demographic parity.
        control
            (n,) control feature, if the notion has one.
        sample_weight
            (n,) weights, if the training rows had some.
        """
        batch = sensitive, y, control, sample_weight
        moves = self.training and torch.is_grad_enabled()
        value = None
        if getattr(output, "is_cuda", False):
            value = self._fused(output, batch, dual=self.dual, moves=moves)
        if value is None:
            rows: BatchRows = self.reader(output, *batch)
            value = rows.term(self.dual.payoff())
            if moves:
                self._observe(rows)
        return value

    def diagnostics(self, *, reset: bool = True) -> Diagnostics:
        """Return how the loss fares since it was last asked, in training mode.

        Waits for the device, so ask once an epoch. ``reset=False`` goes on counting.
        """
        n_rows = float(self.n_seen)
        if n_rows == 0:
            return Diagnostics(math.nan, math.nan, math.nan, math.nan, 0)
        tables = self._split(self.seen.cpu().numpy())
        variables = self._split(self.dual_variable.detach().cpu().numpy())
        square = weight = 0.0
        for table, variable in zip(tables, variables, strict=True):
            mass = table.sum(axis=(1, 2), keepdims=True)
            p = table / np.where(mass > 0, mass, 1.0)
            q = p.sum(axis=1, keepdims=True) * p.sum(axis=2, keepdims=True)
            ratio = np.where(q > 0, p, 1.0) / np.where(q > 0, q, 1.0)
            square += float(np.sum(q * (variable - self.dual.kind.best(ratio)) ** 2))
            weight += float(q.sum())
        report = Diagnostics(
            float((self.dual.payoff() * self.seen).sum()) / n_rows,
            self._penalties()[0],
            worst_violation(tables),
            math.sqrt(square / weight) if weight > 0 else math.nan,
            round(n_rows),
        )
        if reset:
            self.seen.zero_()
            self.n_seen.zero_()
        return report

    def of_epoch(self) -> list[float]:
        """Return the penalty of the table of each model's batches."""
        values = self._penalties()
        self.seen.zero_()
        return values

    def _penalties(self) -> list[float]:
        values = []
        for mass in self.seen.cpu().numpy().reshape(-1, *self.reader.shape):
            values.append(0.0)
            for table in self._split(mass):
                if table.sum() > 0:
                    share = table / table.sum()
                    values[-1] += table_penalty(self.objective, share)[0]
        return values

    @torch.no_grad()
    def _observe(self, rows: BatchRows) -> None:
        mass = rows.mass(self.reader.shape)
        b = float(rows.prob.shape[-2])
        n_rows: Tensor | float = b
        if dist.is_available() and dist.is_initialized():
            mass, n_rows = add_ranks(mass, torch.full_like(self.n_seen, b))
        elif b == 0:
            return
        # A batch that is not finite moves nothing.
        is_due = mass.sum().isfinite()
        mass = torch.where(is_due, mass, self.dual.none)
        self.seen += mass
        self.n_seen += is_due * n_rows
        self.dual.observe(mass, n_rows, is_due)


class SemiStochasticFairnessLoss(TableLoss):
    r"""The fairness penalty linearised at the table of the last `refresh`.

    .. math:: R(P_0) + \langle \nabla R(P_0), \hat P_B - P_0 \rangle

    Right after a refresh its mean over batches is the penalty and its gradient that of
    the penalty, at any batch size; then it grows stale until the next. Refresh once an
    epoch or more often. Make one with `SemiStochasticFairnessLoss.from_labels`.

    Parameters
    ----------
    reader
        Places a batch in the table.
    objective
        Divergence, notion and uncertainty set.
    n_models
        How many models there are; None is one, without an axis for it.
    every
        Steps between two passes, where the training loop of this package takes them.

    Examples
    --------
    >>> from fferm import SmallShift
    >>> y, s = torch.tensor([0, 1] * 40), torch.tensor([0, 0, 1, 1] * 20)
    >>> fair = SemiStochasticFairnessLoss.from_labels(
    ...     y, s, uncertainty=SmallShift(0.01)
    ... )
    >>> model = torch.nn.Linear(3, 2)
    >>> x = torch.ones(80, 3)
    >>> _ = fair.refresh(model, [(x[:40], s[:40]), (x[40:], s[40:])])
    >>> fair(model(x), s).backward()
    """

    def __init__(
        self,
        reader: BatchReader | CellReader,
        objective: Objective,
        n_models: int | None = None,
        every: int = 1,
    ) -> None:
        super().__init__(reader, objective)
        self._is_fresh, self.every = False, every
        models = () if n_models is None else (n_models,)
        shapes = {"payoff": (*models, *reader.shape), "offset": models, "n_rows": ()}
        for name, shape in {**shapes, "value": models}.items():
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    payoff: Tensor
    offset: Tensor
    n_rows: Tensor
    value: Tensor

    @classmethod
    def from_labels(
        cls,
        y: Table,
        sensitive_features: Table,
        *,
        divergence: str | Divergence = "kl",
        notion: str | Notion = "demographic_parity",
        uncertainty: Uncertainty | None = None,
        sharpness: float = 1.0,
        groups: GroupMode = "intersection",
        group_weights: GroupWeighting = "share",
        classes: Sequence[object] | None = None,
        sample_weight: Table = None,
        outputs: Outputs = "logits",
        check: bool = True,
    ) -> Self:
        """Return the loss for training data with these labels.

        Parameters are those of `FairnessLoss.from_labels`; ``uncertainty`` is None,
        `SmallShift` or `LargeShift`, and every notion is allowed.
        """
        objective = make_objective(divergence, notion, uncertainty, sharpness=sharpness)
        parts = objective, groups, classes, sample_weight, outputs
        reader, _ = read_training(
            y, sensitive_features, *parts, check=check, group_weights=group_weights
        )
        return cls(reader, objective)

    def refresh(self, model: nn.Module, loader: Iterable[Sequence[Any]]) -> Diagnostics:
        """Take the payoff from the model's predictions on all batches of a loader.

        A batch is ``(x, sensitive)``, or ``(x, sensitive, y, control, sample_weight)``
        as far as needed. The model is in evaluation mode for the pass; ``x`` is moved
        to the device of its first parameter.
        """
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        was_training = model.training
        model.eval()
        try:
            return self.refresh_from(
                (model(x.to(device) if isinstance(x, Tensor) else x), *rest)
                for x, *rest in loader
            )
        finally:
            model.train(was_training)

    @torch.no_grad()
    def refresh_from(self, batches: Iterable[Sequence[Any]]) -> Diagnostics:
        """Take the payoff from batches ``(output, sensitive, ...)`` of a whole pass.

        Returns
        -------
        Diagnostics
            Penalty and violation of the table.
        """
        mass, total = torch.zeros_like(self.payoff), torch.zeros_like(self.n_rows)
        for batch in batches:
            rows: BatchRows = self.reader(*batch)
            mass += rows.mass(self.reader.shape)
            total += rows.prob.shape[-2]
        mass, total = add_ranks(mass, total)
        n_rows = float(total)
        if n_rows == 0 or not bool(torch.isfinite(mass).all()):
            raise InvalidInputError(
                f"The pass had {int(n_rows)} rows, or outputs that are not finite. It "
                "must see every training row once; a used-up generator yields none."
            )
        masses = mass.cpu().numpy().reshape(-1, *self.reader.shape)
        parts = [self._linearise(table, n_rows) for table in masses]
        values, offsets, payoffs, violations = zip(*parts, strict=True)
        made = (self.value, values), (self.offset, offsets), (self.payoff, payoffs)
        for buffer, part in made:
            buffer.copy_(torch.tensor(np.reshape(part, buffer.shape)))
        self.n_rows.fill_(n_rows)
        self._is_fresh = True
        return Diagnostics(values[0], values[0], violations[0], 0.0, round(n_rows))

    @torch.no_grad()
    def begin_step(self, call: Call, rows: "DeviceRows", step: int) -> None:
        """Take payoffs from a pass over all rows where one is due."""
        if step % self.every:
            return
        self.refresh_from(
            (call(x), cell, None, None, weight) for x, cell, weight in rows.blocks()
        )

    def of_epoch(self) -> list[float]:
        """Return the penalty of each model at its last pass."""
        values: list[float] = self.value.tolist()
        return values

    def forward(
        self,
        output: Tensor,
        sensitive: Table,
        y: Table = None,
        *,
        control: Table = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the linearised penalty of a batch; parameters as in `FairnessLoss`."""
        if not self._is_fresh:
            raise InvalidInputError(
                "There is no payoff yet. Call fair.refresh(model, loader) first."
            )
        batch = sensitive, y, control, sample_weight
        value = None
        if getattr(output, "is_cuda", False):
            value = self._fused(output, batch, self.payoff)
        if value is None:
            rows: BatchRows = self.reader(output, *batch)
            value = rows.term(self.payoff)
        return value + self.offset.to(value.dtype)

    def _linearise(
        self, mass: FloatArray, n_rows: float
    ) -> tuple[float, float, FloatArray, float]:
        # Value, offset, payoff and violation of one model's table.
        reader, value, payoffs = self.reader, 0.0, []
        comparison = self.objective.notion.comparison(
            reader.strata_names, reader.classes
        )
        tables = self._split(mass)
        for table in tables:
            known = float(table.sum())
            if known <= 0:
                payoffs.append(np.zeros_like(table))
                continue
            part, payoff = table_penalty(self.objective, table / known, comparison)
            value += part
            # A batch is a mean over all its rows, the table one over some of them.
            payoffs.append(payoff * (n_rows / known))
        payoff = np.concatenate(payoffs, axis=2)
        if not (np.isfinite(value) and np.all(np.isfinite(payoff))):
            raise NonFiniteError(
                "The penalty is infinite here. Give LargeShift a floor, or choose "
                "jensen_shannon, squared_hellinger or total_variation."
            )
        offset = value - float(np.sum(payoff * mass)) / n_rows
        violation = worst_violation(map(comparison.tables, tables))
        return value, offset, payoff, violation

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._is_fresh = bool(self.n_rows > 0)


@functools.cache
def gpu_kernels() -> Any:
    """Return the module of kernels for a GPU, None where they cannot be compiled."""
    try:
        from fferm.torch import fused

        fused.check_compiler()
    except Exception:  # no Triton, no compiler, no such device
        return None
    return fused


def linear_objective(
    divergence: str | Divergence, notion: str | Notion, sharpness: float = 1.0
) -> Objective:
    """Return an objective whose dual is linear in the predictions, or raise."""
    objective = make_objective(divergence, notion, sharpness=sharpness)
    if not objective.has_linear_dual:
        raise InvalidParameterError(
            f"The dual of {objective.notion.name} is not linear in the predictions, so "
            "no batch is right alone. Use SemiStochasticFairnessLoss."
        )
    return objective
