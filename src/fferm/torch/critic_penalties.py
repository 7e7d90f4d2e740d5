"""The penalty of networks by critics: sensitive values as they are, not in a table."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fferm._typing import IntArray, Table
from fferm.data.groups import take_rows
from fferm.data.rows import Rows
from fferm.errors import FfermWarning
from fferm.notions import ConditionalParity, Notion
from fferm.penalty.objective import Objective
from fferm.torch.critic_loss import CriticFairnessLoss
from fferm.torch.fairness_loss import keep_precision
from fferm.torch.table_penalties import Call, TablePenalty
from fferm.torch.table_rows import PenaltyRows


@dataclass(frozen=True)
class CriticPlan:
    """What a critic looks at.

    Attributes
    ----------
    columns
        Sensitive columns of the penalty's rows, by name.
    continuous
        Names of those that are numbers, or ``"auto"``.
    """

    columns: dict[str, Table]
    continuous: Sequence[str] | str

    def take(self, kept: NDArray[np.bool_]) -> "CriticPlan":
        """Return the plan of some of the rows."""
        rows = np.flatnonzero(kept)
        return CriticPlan(take_rows(self.columns, rows), self.continuous)

    def digests(self) -> list[NDArray[Any]]:
        """Return numbers that tell columns apart."""
        return [
            pd.util.hash_array(np.asarray(values, dtype=object))
            for values in self.columns.values()
        ]


class CriticPenalty(TablePenalty):
    """A critic for each model, which ascends with every batch.

    Parameters
    ----------
    plan
        The sensitive values.
    objective, rows, n_classes
        What is penalised.
    n_models, seed
        How many critics, and the seed of their parameters.
    """

    def __init__(
        self,
        plan: CriticPlan,
        objective: Objective,
        rows: Rows,
        n_classes: int,
        n_models: int,
        seed: int,
    ) -> None:
        super().__init__()
        notion, control = strata_as_control(rows, objective.notion)
        self.sharpness = objective.sharpness
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FfermWarning)  # said when rows were encoded
            self.losses = nn.ModuleList(
                CriticFairnessLoss.from_labels(
                    None,
                    plan.columns,
                    divergence=objective.divergence,
                    notion=notion,
                    classes=range(n_classes),
                    # Batches bring weights of mean 1.
                    sample_weight=rows.weight / rows.weight.mean(),
                    outputs="logits",
                    continuous=plan.continuous,
                    n_ascents=2,
                    random_state=seed,
                )
                for _ in range(n_models)
            )
        self.register_buffer("values", self._first.encode(plan.columns))
        self.control = control
        self.register_buffer("total", torch.zeros(n_models, dtype=torch.float64))
        self.register_buffer("n_batches", torch.zeros((), dtype=torch.float64))

    values: Tensor
    total: Tensor
    n_batches: Tensor

    @property
    def _first(self) -> CriticFairnessLoss:
        loss = self.losses[0]
        assert isinstance(loss, CriticFairnessLoss)
        return loss

    def forward(self, logits: Tensor, cell: Tensor, weight: Tensor | None) -> Tensor:
        """Return the (n_models,) penalties of a batch, and move the critics."""
        if len(cell) < 2 and not self._first.rows.attribute.is_discrete:
            # The last row of an epoch has no other to be compared with.
            return logits.new_zeros(len(logits))
        place = cell[:, 0]
        control = None if self.control is None else self.control[place.cpu()]
        found = torch.stack(
            [
                loss(
                    self.sharpness * part,
                    self.values[place],
                    control=control,
                    sample_weight=weight,
                )
                for loss, part in zip(self.losses, logits, strict=True)
            ]
        )
        self.total += found.detach().double()
        self.n_batches += 1
        return found

    def refresh(self, call: Call, rows: PenaltyRows, step: int) -> None:
        """Do nothing: every batch is right alone."""

    def of_epoch(self) -> list[float]:
        """Return what each model's critic saw on average."""
        found: list[float] = (self.total / self.n_batches.clamp(min=1)).tolist()
        self.total.zero_()
        self.n_batches.zero_()
        return found

    def _apply(self, fn: Any, recurse: bool = True) -> "CriticPenalty":
        # Sums and values stay in double precision wherever they are moved to.
        super()._apply(keep_precision(fn), recurse)  # type: ignore[no-untyped-call]
        return self


def number_rows(n: int) -> Tensor:
    """Return (n, 1) row numbers: where a critic finds the values of a row."""
    return torch.arange(n)[:, None]


def strata_as_control(
    rows: Rows, notion: Notion
) -> tuple[str | ConditionalParity, Tensor | None]:
    """Return a notion that knows strata by their numbers, and the number of each row.

    Batches know neither columns of X nor labels, only which rows they hold.
    """
    code: IntArray = rows.strata.code
    if len(rows.strata.names) == 1 and np.all(code == 0):
        return "demographic_parity", None
    values = np.array([*map(str, range(len(rows.strata.names))), None], dtype=object)
    return (
        ConditionalParity(values[code].tolist(), notion.weighting),
        torch.tensor(code),
    )
