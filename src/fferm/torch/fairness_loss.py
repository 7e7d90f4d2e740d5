"""The fairness loss of Algorithm 1: right at any batch size, for any model."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from fferm._typing import FloatArray, Table
from fferm.data.groups import GroupMode, band_names
from fferm.data.rows import Rows
from fferm.divergences import Divergence
from fferm.errors import InvalidParameterError
from fferm.notions import Notion
from fferm.penalty.dual import group_weights
from fferm.penalty.objective import Objective, Penalty, make_objective
from fferm.penalty.soft_bins import SoftBins
from fferm.torch.diagnostics import (
    Diagnostics,
    distance_of,
    penalty_of,
    violation_of,
)
from fferm.torch.dual import Dual, DualSteps
from fferm.torch.encoding import Encoding, read_labels
from fferm.torch.numbers import read_bins, read_outputs
from fferm.torch.outputs import Outputs
from fferm.torch.ranks import add_ranks
from fferm.torch.rows import BatchRows, RowReader

# Soft bins of a predicted number by default.
N_BINS = 10


class FairnessLoss(nn.Module):
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

    def __init__(self, reader: RowReader, dual: Dual, objective: Objective) -> None:
        super().__init__()
        self.reader = reader
        self.dual = dual
        self.objective = objective
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
            cut into quantile bands; `fferm.bands.quantile_bands` cuts others.
        divergence, notion, sharpness, groups
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
            Whether values are checked where they are on the CPU. On a GPU they never
            are, for that would wait for it: a group that training did not have is
            left out there.
        """
        objective = make_objective(divergence, notion, sharpness=sharpness)
        if not objective.has_linear_dual:
            raise InvalidParameterError(
                f"The dual of {objective.notion.name} is not linear in the predictions,"
                " so no batch is right alone. Use SemiStochasticFairnessLoss."
            )
        outputs, soft = read_outputs(y, outputs), None
        if outputs == "numbers":
            soft = read_bins(y, bins, objective.notion)
            y, classes = None, band_names(soft.edges)
        encoding, rows = read_labels(
            y, sensitive_features, objective.notion, groups, classes, sample_weight
        )
        reader = make_reader(objective, encoding, rows, outputs, check, soft)
        dual = Dual(
            objective.divergence,
            group_weights(rows, objective.notion.weighting),
            len(encoding.classes),
            dual_steps or DualSteps(),
        )
        return cls(reader, dual, objective)

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of all groups, in the order of the table."""
        return group_names(self.reader.encoding)

    @property
    def strata(self) -> tuple[str, ...]:
        """Names of the strata, in the order of the table."""
        return self.reader.encoding.strata

    @property
    def classes(self) -> tuple[object, ...]:
        """The label of each class."""
        return self.reader.encoding.classes

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
            one-hot in the order of `groups`. Or raw values that are no tensor. Unknown:
            -1, NaN or no hot column; such rows add nothing.
        y
            (n,) class codes, or raw labels that are no tensor; -1 where unknown. Not
            looked at under demographic parity.
        control
            (n,) control feature, if the notion has one.
        sample_weight
            (n,) weights, if the training rows had some.
        """
        rows: BatchRows = self.reader(output, sensitive, y, control, sample_weight)
        value = rows.term(self.dual.payoff())
        if self.training and torch.is_grad_enabled():
            self._observe(rows)
        return value

    def encode(self, sensitive_features: Table) -> Tensor:
        """Return sensitive features as `forward` takes them: once, before training."""
        return self.reader.encode(sensitive_features)

    def encode_labels(self, y: Table) -> Tensor:
        """Return labels as (n,) class codes."""
        return self.reader.encode_labels(y)

    def encode_control(self, values: Table) -> Tensor:
        """Return the control feature of the notion as (n,) whole numbers."""
        return self.reader.encode_control(values)

    def diagnostics(self, *, reset: bool = True) -> Diagnostics:
        """Return how the loss fares since it was last asked, in training mode.

        Waits for the device, so ask once an epoch. ``reset=False`` goes on counting.
        """
        n_rows = float(self.n_seen)
        if n_rows == 0:
            nan = math.nan
            return Diagnostics(nan, nan, nan, nan, 0)
        tables = split_groups(self.seen.cpu().numpy(), self.reader.encoding)
        found = Diagnostics(
            float((self.dual.payoff() * self.seen).sum()) / n_rows,
            penalty_of(tables, self.objective),
            violation_of(tables),
            distance_of(
                tables,
                self.dual_variable.detach().cpu().numpy(),
                self.dual.kind,
            ),
            round(n_rows),
        )
        if reset:
            self.seen.zero_()
            self.n_seen.zero_()
        return found

    def extra_repr(self) -> str:
        """Return what `repr` says first."""
        return describe(self.objective, self.reader.encoding)

    @torch.no_grad()
    def _observe(self, rows: BatchRows) -> None:
        mass = rows.mass(self.reader.shape)
        mass, n_rows = add_ranks(mass, mass.new_full((), float(rows.n_rows)))
        self.dual.observe(mass, n_rows)
        finite = torch.isfinite(mass).all()
        self.seen += torch.where(finite, mass, 0.0)
        self.n_seen += torch.where(finite, n_rows, 0.0)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(keep_precision(fn), recurse)  # type: ignore[no-untyped-call]
        return self


def make_reader(
    objective: Objective,
    encoding: Encoding,
    rows: Rows,
    outputs: Outputs,
    check: bool,
    bins: SoftBins | None = None,
) -> RowReader:
    """Return a reader of batches, after checking that there is something to compare."""
    if outputs not in ("logits", "probabilities") and bins is None:
        raise InvalidParameterError(
            f"outputs={outputs!r} came. Expected 'logits' or 'probabilities'."
        )
    if not 0 < objective.sharpness < math.inf:
        raise InvalidParameterError(
            f"sharpness={objective.sharpness!r} came. Expected a positive number; 1 is "
            "the soft probability itself."
        )
    Penalty(objective, rows).check_comparable()
    weight = float(rows.weight.mean())
    return RowReader(encoding, objective.sharpness, outputs, weight, check, bins)


def describe(objective: Objective, encoding: Encoding) -> str:
    """Return divergence, notion and groups in one line."""
    n_groups = len(group_names(encoding))
    return f"{objective.divergence!r}, {objective.notion.name}, n_groups={n_groups}"


def group_names(encoding: Encoding) -> tuple[str, ...]:
    """Return the names of all groups; with their column where there are several."""
    if len(encoding.attributes) == 1:
        return encoding.attributes[0].groups
    return tuple(f"{a.name}={group}" for a in encoding.attributes for group in a.groups)


def split_groups(table: FloatArray, encoding: Encoding) -> list[FloatArray]:
    """Return the (R, m, K) table of all groups as one table per attribute."""
    found, begin = [], 0
    for attribute in encoding.attributes:
        end = begin + len(attribute.groups)
        found.append(table[:, :, begin:end])
        begin = end
    return found


def keep_precision(fn: Callable[[Tensor], Tensor]) -> Callable[[Any], Any]:
    """Return a conversion of tensors that moves tables and does not round them."""

    def moved(tensor: Tensor) -> Tensor:
        converted = fn(tensor)
        if converted.dtype == tensor.dtype:
            return converted
        return tensor.to(converted.device)

    return moved
