"""The penalties of several models on the batches that they share.

Rows are placed in the table once, before training; a batch is (b, A) cells, or the
numbers of its rows for a critic, which sees sensitive values as they are.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fferm._typing import FloatArray, Table, is_sparse
from fferm.data.groups import take_rows
from fferm.data.rows import Rows
from fferm.data.validate import shares
from fferm.errors import FfermWarning, InvalidInputError
from fferm.notions import ConditionalParity, Notion
from fferm.penalty.compiled import CompiledPenalty
from fferm.penalty.dual import group_ends, group_weights
from fferm.penalty.objective import Objective, Penalty
from fferm.torch.critic import CriticFairnessLoss
from fferm.torch.losses import (
    Dual,
    DualSteps,
    FairnessLoss,
    SemiStochasticFairnessLoss,
    keep_precision,
)
from fferm.torch.reader import CellReader, Outputs, split_groups

# The learning rate falls to 0 in the end, so the dual may average over more members
# than in a loop that keeps its pace; with 30, weight 100 ended 0.7 % higher on Adult.
WINDOW = 100.0
# Rows of a pass without gradients.
PASS_ROWS = 8192
# (x) -> (n_models, b, m) logits.
Call = Callable[[Tensor], Tensor]


class Features:
    """A matrix of features: dense on the device, or CSR, made dense batch by batch.

    Parameters
    ----------
    X
        (n, d) array or CSR matrix.
    dtype, device
        Of the batches.
    """

    def __init__(self, X: Table, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.sparse = X.tocsr() if is_sparse(X) else None
        self.dense = None if is_sparse(X) else self._tensor(X)
        self.n_rows, self.n_columns = X.shape

    def take(self, index: Tensor) -> Tensor:
        """Return the (b, d) rows at some positions."""
        if self.dense is not None:
            return self.dense[index]
        assert self.sparse is not None
        return self._tensor(self.sparse[index.cpu().numpy()].toarray())

    def blocks(self) -> Iterator[Tensor]:
        """Yield all rows in order, many at a time."""
        for begin in range(0, self.n_rows, PASS_ROWS):
            rows = slice(begin, begin + PASS_ROWS)
            if self.dense is not None:
                yield self.dense[rows]
            else:
                assert self.sparse is not None
                yield self._tensor(self.sparse[rows].toarray())

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


@dataclass(frozen=True)
class DeviceRows:
    """What a loss, or a penalty, is taken on.

    Attributes
    ----------
    X
        Features; a penalty on the rows of the loss shares theirs.
    target
        (n,) class codes or numbers; the (n, A) cells of a penalty.
    weight
        (n,) weights of mean 1, or None where all are the same.
    """

    X: Features
    target: Tensor
    weight: Tensor | None


def loss_rows(X: Features, y: NDArray[Any], weight: FloatArray) -> DeviceRows:
    """Return the rows of a loss with weights of any scale."""
    return DeviceRows(X, torch.tensor(y).to(X.device), _scaled(weight, X, X.dtype))


def penalty_rows(X: Features, rows: Rows, is_placed: bool = True) -> DeviceRows:
    """Return the rows of a penalty: their cells, or their numbers for a critic.

    (n, A) cells are those in the table of all attributes, one past the last if a row is
    in none.
    """
    cell = np.arange(len(rows.weight))[:, None]
    if is_placed:
        begins = group_ends(rows)
        n_groups = int(begins[-1])
        nowhere = len(rows.strata.names) * n_groups
        cell = np.full((len(rows.weight), len(rows.cells)), nowhere, dtype=np.int64)
        for a, index in enumerate(rows.cells):
            stratum, group = np.divmod(index.cell, index.shape[1])
            cell[index.rows, a] = stratum * n_groups + group + begins[a]
    weight = _scaled(shares(rows.weight), X, torch.float64)
    return DeviceRows(X, torch.as_tensor(cell).to(X.device), weight)


def _scaled(weight: FloatArray, X: Features, dtype: torch.dtype) -> Tensor | None:
    if np.all(weight == weight[0]):
        return None
    return torch.as_tensor(weight / weight.mean()).to(X.device, dtype)


class BatchPenalty(nn.Module, ABC):
    """The penalty of several models on the batches that they share."""

    @abstractmethod
    def of_epoch(self) -> list[float]:
        """Return the penalty of each model since this was last asked."""

    def refresh(self, call: Call, rows: DeviceRows, step: int) -> None:
        """Do what is due before a step: nothing where every batch is right alone."""


class DescentAscent(BatchPenalty):
    """Algorithm 1: a dual table for each model, which ascends with every batch."""

    def __init__(
        self,
        reader: CellReader,
        objective: Objective,
        rows: Rows,
        n_models: int,
        window: float = WINDOW,
    ) -> None:
        super().__init__()
        dual = Dual(
            objective.divergence,
            group_weights(rows, objective.notion.weighting),
            reader.shape[1],
            DualSteps(window=window),
            n_models,
        )
        self.loss = FairnessLoss(reader, dual, objective)
        self.exact = CompiledPenalty(Penalty(objective, rows, reader.classes))

    def forward(self, output: Tensor, cell: Tensor, weight: Tensor | None) -> Tensor:
        """Return the (n_models,) penalties of a batch, and move the duals."""
        penalty: Tensor = self.loss(output, cell, sample_weight=weight)
        return penalty

    def of_epoch(self) -> list[float]:
        """Return the penalty of the table of each model's batches."""
        penalties = []
        for mass in self.loss.seen.cpu().numpy():
            tables = split_groups(mass, self.loss.reader)
            shares = [table / (table.sum() or 1.0) for table in tables]
            penalties.append(self.exact.value_and_payoff(self.exact.join(shares))[0])
        self.loss.seen.zero_()
        return penalties


class SemiStochastic(BatchPenalty):
    """Payoffs from passes over all rows, for penalties that no batch is right for."""

    def __init__(
        self, reader: CellReader, objective: Objective, n_models: int, every: int
    ) -> None:
        super().__init__()
        self.every = every
        self.losses = nn.ModuleList(
            SemiStochasticFairnessLoss(reader, objective) for _ in range(n_models)
        )
        self.register_buffer("value", torch.zeros(n_models, dtype=torch.float64))

    value: Tensor

    def forward(self, output: Tensor, cell: Tensor, weight: Tensor | None) -> Tensor:
        """Return the (n_models,) linearised penalties of a batch."""
        return torch.stack(
            [
                loss(part, cell, sample_weight=weight)
                for loss, part in zip(self.losses, output, strict=True)
            ]
        )

    @torch.no_grad()
    def refresh(self, call: Call, rows: DeviceRows, step: int) -> None:
        """Take payoffs from a pass over all rows where one is due."""
        if step % self.every:
            return
        logits = torch.cat([call(x) for x in rows.X.blocks()], dim=1)
        tables = [t for t in (rows.target, rows.weight) if t is not None]
        parts = [torch.split(table, PASS_ROWS) for table in tables]
        for lane, loss in enumerate(self.losses):
            blocks = zip(torch.split(logits[lane], PASS_ROWS), *parts, strict=True)
            batches = [(x, cell, None, None, *w) for x, cell, *w in blocks]
            assert isinstance(loss, SemiStochasticFairnessLoss)
            self.value[lane] = loss.refresh_from(batches).divergence

    def of_epoch(self) -> list[float]:
        """Return the penalty of each model at its last pass."""
        return [float(value) for value in self.value]


@dataclass(frozen=True)
class CriticColumns:
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

    def take(self, kept: NDArray[np.bool_]) -> "CriticColumns":
        """Return some of the rows."""
        rows = np.flatnonzero(kept)
        return CriticColumns(take_rows(self.columns, rows), self.continuous)


class CriticPenalty(BatchPenalty):
    """A critic for each model, which ascends with every batch.

    Parameters
    ----------
    looked_at
        The sensitive values.
    objective, rows
        What is penalised.
    n_models, seed
        How many critics, and the seed of their parameters.
    n_classes
        How many classes are predicted; 0 for numbers.
    target
        The numbers to predict, which say how large predictions are.
    """

    def __init__(
        self,
        looked_at: CriticColumns,
        objective: Objective,
        rows: Rows,
        n_models: int,
        seed: int,
        *,
        n_classes: int = 0,
        target: FloatArray | None = None,
    ) -> None:
        super().__init__()
        # A notion that knows strata by their numbers: batches know neither columns of X
        # nor labels, only which rows they hold.
        code, names = rows.strata.code, rows.strata.names
        notion: Notion | str = "demographic_parity"
        control = None
        if len(names) > 1 or np.any(code != 0):
            values = np.array([*map(str, range(len(names))), None], dtype=object)
            notion = ConditionalParity(
                values[code].tolist(), objective.notion.weighting
            )
            control = torch.tensor(code)
        outputs: Outputs = "logits" if n_classes else "numbers"
        self.sharpness = objective.sharpness
        with warnings.catch_warnings():
            # Encoding the rows has warned already.
            warnings.simplefilter("ignore", FfermWarning)
            self.losses = nn.ModuleList(
                CriticFairnessLoss.from_labels(
                    target,
                    looked_at.columns,
                    divergence=objective.divergence,
                    notion=notion,
                    classes=range(n_classes) if n_classes else None,
                    # Batches bring weights of mean 1.
                    sample_weight=rows.weight / rows.weight.mean(),
                    outputs=outputs,
                    continuous=looked_at.continuous,
                    n_ascents=2,
                    random_state=seed,
                )
                for _ in range(n_models)
            )
        self.register_buffer("values", self._first.encode(looked_at.columns))
        self.register_buffer("control", control, persistent=False)
        self.register_buffer("total", torch.zeros(n_models, dtype=torch.float64))
        self.register_buffer("n_batches", torch.zeros((), dtype=torch.float64))

    values: Tensor
    control: Tensor | None
    total: Tensor
    n_batches: Tensor

    @property
    def _first(self) -> CriticFairnessLoss:
        loss = self.losses[0]
        assert isinstance(loss, CriticFairnessLoss)
        return loss

    @property
    def is_discrete(self) -> bool:
        """Whether critics compare groups, and no numbers."""
        return self._first.reader.attribute.is_discrete

    def forward(self, output: Tensor, cell: Tensor, weight: Tensor | None) -> Tensor:
        """Return the (n_models,) penalties of a batch, and move the critics."""
        if len(cell) < 2 and not self.is_discrete:
            # The last row of an epoch has no other to be compared with.
            return output.new_zeros(len(output))
        place = cell[:, 0]
        control = None if self.control is None else self.control[place]
        penalties = torch.stack(
            [
                loss(
                    self.sharpness * part,
                    self.values[place],
                    control=control,
                    sample_weight=weight,
                )
                for loss, part in zip(self.losses, output, strict=True)
            ]
        )
        self.total += penalties.detach().double()
        self.n_batches += 1
        return penalties

    def of_epoch(self) -> list[float]:
        """Return what each model's critic saw on average."""
        means: list[float] = (self.total / self.n_batches.clamp(min=1)).tolist()
        self.total.zero_()
        self.n_batches.zero_()
        return means

    def _apply(self, fn: Any, recurse: bool = True) -> "CriticPenalty":
        # Sums and values stay in double precision wherever they are moved to.
        super()._apply(keep_precision(fn), recurse)  # type: ignore[no-untyped-call]
        return self
