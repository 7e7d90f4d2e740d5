"""The penalty of rows whose places in the table are known, for several models."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fferm.data.rows import Rows
from fferm.errors import InvalidParameterError
from fferm.penalty.dual import group_weights
from fferm.penalty.objective import Objective
from fferm.torch.diagnostics import penalty_of
from fferm.torch.dual import Dual, DualSteps
from fferm.torch.encoding import Column, Encoding
from fferm.torch.fairness_loss import FairnessLoss, split_groups
from fferm.torch.rows import BatchRows
from fferm.torch.semi_stochastic import SemiStochasticFairnessLoss
from fferm.torch.table_rows import PASS_ROWS, PenaltyRows, parts_of

# The learning rate falls to 0 in the end, so the dual may average over more members
# than in a loop that keeps its pace; with 30, weight 100 ended 0.7 % higher on Adult.
WINDOW = 100.0
# (x) -> (n_models, b, m) logits.
Call = Callable[[Tensor], Tensor]


class CellReader(nn.Module):
    """Reads batches whose rows are placed in the table already.

    Parameters
    ----------
    rows
        Groups and strata.
    classes
        The label of each class.
    sharpness
        The penalty sees ``softmax(sharpness * logits)``.
    """

    def __init__(self, rows: Rows, classes: Sequence[object], sharpness: float) -> None:
        super().__init__()
        attributes = tuple(Column(a.name, a.groups) for a in rows.attributes)
        self.encoding = Encoding(
            attributes,
            attributes,
            None,
            tuple(classes),
            rows.strata.names,
            np.zeros((1, 1), dtype=np.int64),
            None,
        )
        self.sharpness = sharpness
        n_groups = sum(len(attribute.groups) for attribute in attributes)
        self.shape = len(rows.strata.names), len(classes), n_groups

    def forward(
        self,
        output: Tensor,
        cell: Tensor,
        y: None = None,
        control: None = None,
        sample_weight: Tensor | None = None,
    ) -> BatchRows:
        """Return a batch of (..., b, m) logits at (b, A) places."""
        prob = torch.softmax(self.sharpness * output, dim=-1)
        return BatchRows(prob, cell, sample_weight)


class TablePenalty(nn.Module, ABC):
    """The penalty of several models on the batches that they share."""

    @abstractmethod
    def forward(self, logits: Tensor, cell: Tensor, weight: Tensor | None) -> Tensor:
        """Return the (n_models,) penalties of a batch."""

    @abstractmethod
    def refresh(self, call: Call, rows: PenaltyRows, step: int) -> None:
        """Do what is due before a step."""

    @abstractmethod
    def of_epoch(self) -> list[float]:
        """Return the penalty of each model since this was last asked."""


class DescentAscent(TablePenalty):
    """Algorithm 1: a dual table for each model, which ascends with every batch."""

    def __init__(
        self, reader: CellReader, objective: Objective, rows: Rows, n_models: int
    ) -> None:
        super().__init__()
        dual = Dual(
            objective.divergence,
            group_weights(rows, objective.notion.weighting),
            reader.shape[1],
            DualSteps(window=WINDOW),
            n_models,
        )
        self.loss = FairnessLoss(reader, dual, objective)  # type: ignore[arg-type]

    def forward(self, logits: Tensor, cell: Tensor, weight: Tensor | None) -> Tensor:
        """Return the (n_models,) penalties of a batch, and move the duals."""
        found: Tensor = self.loss(logits, cell, sample_weight=weight)
        return found

    def refresh(self, call: Call, rows: PenaltyRows, step: int) -> None:
        """Do nothing: every batch is right alone."""

    def of_epoch(self) -> list[float]:
        """Return the penalty of the table of each model's batches."""
        encoding = self.loss.reader.encoding
        found = [
            penalty_of(split_groups(table, encoding), self.loss.objective)
            for table in self.loss.seen.cpu().numpy()
        ]
        self.loss.seen.zero_()
        return found


class SemiStochastic(TablePenalty):
    """Payoffs from passes over all rows, for penalties that no batch is right for."""

    def __init__(
        self, reader: CellReader, objective: Objective, n_models: int, every: int
    ) -> None:
        super().__init__()
        self.every = every
        self.losses = nn.ModuleList(
            SemiStochasticFairnessLoss(reader, objective)  # type: ignore[arg-type]
            for _ in range(n_models)
        )
        self.register_buffer("value", torch.zeros(n_models, dtype=torch.float64))

    value: Tensor

    def forward(self, logits: Tensor, cell: Tensor, weight: Tensor | None) -> Tensor:
        """Return the (n_models,) linearised penalties of a batch."""
        return torch.stack(
            [
                loss(part, cell, sample_weight=weight)
                for loss, part in zip(self.losses, logits, strict=True)
            ]
        )

    @torch.no_grad()
    def refresh(self, call: Call, rows: PenaltyRows, step: int) -> None:
        """Take payoffs from a pass over all rows where one is due."""
        if step % self.every:
            return
        logits = torch.cat([call(x) for x in rows.X.blocks()], dim=1)
        parts = [parts_of(rows.cell, PASS_ROWS)]
        if rows.weight is not None:
            parts.append(parts_of(rows.weight, PASS_ROWS))
        for lane, loss in enumerate(self.losses):
            blocks = zip(parts_of(logits[lane], PASS_ROWS), *parts, strict=True)
            batches = [(x, cell, None, None, *w) for x, cell, *w in blocks]
            assert isinstance(loss, SemiStochasticFairnessLoss)
            self.value[lane] = loss.refresh_from(batches).divergence

    def of_epoch(self) -> list[float]:
        """Return the penalty of each model at its last pass."""
        return [float(value) for value in self.value]


def make_penalty(
    solver: str,
    objective: Objective,
    rows: Rows,
    classes: Sequence[object],
    n_models: int,
    every: int,
) -> TablePenalty:
    """Return the penalty that a solver trains.

    Parameters
    ----------
    solver
        ``"auto"``, ``"sgda"`` or ``"semi_stochastic"``.
    objective, rows, classes
        What is penalised.
    n_models
        Number of models.
    every
        Of ``"semi_stochastic"``: steps between two passes.
    """
    reader = CellReader(rows, classes, objective.sharpness)
    if objective.has_linear_dual and solver != "semi_stochastic":
        return DescentAscent(reader, objective, rows, n_models)
    return SemiStochastic(reader, objective, n_models, every)


def check_solver(solver: str, objective: Objective) -> None:
    """Raise if a solver cannot train an objective."""
    if solver == "sgda" and not objective.has_linear_dual:
        shift = objective.uncertainty
        what = objective.notion.name if shift is None else repr(shift)
        raise InvalidParameterError(
            f"solver='sgda' needs a dual that is linear in the predictions, and {what} "
            "has none. Use solver='semi_stochastic' or 'auto'."
        )
