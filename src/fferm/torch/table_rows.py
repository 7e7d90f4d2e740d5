"""The rows of a table as a training loop takes them: tensors of a batch, on demand."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fferm._typing import FloatArray, IntArray, Table, is_sparse
from fferm.data.rows import Rows
from fferm.errors import InvalidInputError
from fferm.penalty.dual import place_rows

# Rows of a pass without gradients.
PASS_ROWS = 8192


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
        return self._made_dense(self.sparse[index.cpu().numpy()])

    def blocks(self) -> Iterator[Tensor]:
        """Yield all rows in order, many at a time."""
        for begin in range(0, self.n_rows, PASS_ROWS):
            rows = slice(begin, begin + PASS_ROWS)
            if self.dense is not None:
                yield self.dense[rows]
            else:
                assert self.sparse is not None
                yield self._made_dense(self.sparse[rows])

    def _made_dense(self, rows: Table) -> Tensor:
        return self._tensor(rows.toarray())

    def _tensor(self, table: Table) -> Tensor:
        precise = np.float64 if self.dtype == torch.float64 else np.float32
        with np.errstate(over="ignore"):
            # A copy: PyTorch warns of memory that it may not write.
            rounded = np.array(table, dtype=precise)
        if not np.all(np.isfinite(rounded)):
            raise InvalidInputError(
                f"X holds values above {np.finfo(precise).max:.2g}, which single "
                "precision does not reach. Scale the features, for example with "
                "sklearn.preprocessing.StandardScaler, or train with dtype='float64'."
            )
        return torch.from_numpy(rounded).to(self.device)


@dataclass(frozen=True)
class LossRows:
    """What the loss is taken on.

    Attributes
    ----------
    X
        Features.
    y
        (n,) class codes.
    weight
        (n,) weights of mean 1, or None where all are 1.
    """

    X: Features
    y: Tensor
    weight: Tensor | None


@dataclass(frozen=True)
class PenaltyRows:
    """What the penalty is taken on.

    Attributes
    ----------
    X
        Features; those of the loss where the rows are the same.
    cell
        (n, A) places in the table, as in `fferm.torch.rows.BatchRows`.
    weight
        (n,) weights of mean 1, in double precision, or None where all are 1.
    """

    X: Features
    cell: Tensor
    weight: Tensor | None


def make_loss_rows(X: Features, y: IntArray, weight: FloatArray) -> LossRows:
    """Return the rows of a loss with weights of any scale."""
    return LossRows(X, torch.tensor(y).to(X.device), scaled(weight, X, X.dtype))


def make_penalty_rows(X: Features, rows: Rows) -> PenaltyRows:
    """Return the rows of a penalty, placed once for all."""
    stratum, group, weight = place_rows(rows)
    n_groups = sum(len(attribute.groups) for attribute in rows.attributes)
    nowhere = len(rows.strata.names) * n_groups
    is_known = (stratum[:, None] >= 0) & (group >= 0)
    cell = np.where(is_known, stratum[:, None] * n_groups + group, nowhere)
    return PenaltyRows(
        X, torch.as_tensor(cell).to(X.device), scaled(weight, X, torch.float64)
    )


def scaled(weight: FloatArray, X: Features, dtype: torch.dtype) -> Tensor | None:
    """Return weights of mean 1, None where all are the same."""
    if np.all(weight == weight[0]):
        return None
    return torch.as_tensor(weight / weight.mean()).to(X.device, dtype)


def batch_order(seed: int, epoch: int, n_rows: int) -> IntArray:
    """Return the order of rows in an epoch, a function of seed and epoch alone."""
    return np.random.default_rng([seed, epoch]).permutation(n_rows)


def batches_of(order: Tensor, size: int) -> tuple[Tensor, ...]:
    """Return batches of ``size`` rows, the last with what is left.

    A row that would be left alone joins the batch before it: a batch norm, which
    compares the rows of a batch, has nothing to do with one.
    """
    batches = parts_of(order, size)
    if size > 1 and len(batches) > 1 and len(batches[-1]) == 1:
        return *batches[:-2], torch.cat(batches[-2:])
    return batches


def parts_of(table: Tensor, size: int) -> tuple[Tensor, ...]:
    """Return a table in parts of ``size`` rows, the last with what is left."""
    parts: tuple[Tensor, ...] = torch.split(table, size)
    return parts
