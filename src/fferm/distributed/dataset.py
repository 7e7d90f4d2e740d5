"""Batches from shards, shared by ranks and by the workers of a loader."""

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from fferm.distributed.order import Order, share_streams, usual_streams
from fferm.distributed.stream import Stream, joined_rows
from fferm.distributed.summary import ShardSummary
from fferm.errors import InvalidParameterError
from fferm.torch.ranks import rank_and_size

Batch = tuple[Tensor, Tensor, Tensor]

NUMPY_TYPES = {torch.float32: np.float32, torch.float64: np.float64}
# Rows that the shuffle buffer of a stream keeps.
BUFFER = 16_384


class ShardDataset(IterableDataset[Batch]):
    """Batches ``(x, y, group)`` of the rows of all shards, each row once an epoch.

    A batch of ``batch_size`` rows is shared by the ranks of a distributed run, and by
    the workers of a ``DataLoader(dataset, batch_size=None, num_workers=...)``: each
    yields its part of every batch. `ShardLoader` puts the parts of workers together.
    The same seed gives the same batches, whatever the number of ranks and workers.

    Parameters
    ----------
    summary
        Of `summarize`.
    batch_size
        Rows of a batch, on all ranks together.
    shuffle
        Whether row groups are shuffled, and their rows in a buffer.
    seed
        Of the shuffles.
    buffer
        Rows that the buffer of each stream keeps; it holds up to twice as many.
    streams
        Into how many parts an epoch is cut, to be read side by side. A multiple of the
        number of ranks, and a divisor of ``batch_size``. By default 4 where both allow
        it.
    drop_last
        Whether the last batch is left out, so that all are equal.
    dtype
        Of ``x``: ``torch.float32`` or ``torch.float64``.
    rank, n_ranks
        Which part of each batch; by default as ``torch.distributed`` says.
    """

    def __init__(
        self,
        summary: ShardSummary,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        buffer: int = BUFFER,
        streams: int | None = None,
        drop_last: bool = False,
        dtype: torch.dtype = torch.float32,
        rank: int | None = None,
        n_ranks: int | None = None,
    ) -> None:
        super().__init__()
        own_rank, all_ranks = rank_and_size()
        self.rank = own_rank if rank is None else rank
        self.n_ranks = all_ranks if n_ranks is None else n_ranks
        sizes = tuple(n for shard in summary.shards for n in shard.row_groups)
        streams = (
            usual_streams(batch_size, self.n_ranks) if streams is None else streams
        )
        self.summary = summary
        self.order = Order(
            sizes, batch_size, streams, buffer, seed if shuffle else None
        )
        if streams % self.n_ranks or not 0 <= self.rank < self.n_ranks:
            raise InvalidParameterError(
                f"streams={streams} came for rank {self.rank} of {self.n_ranks}. "
                "Expected a multiple of the number of ranks; ranks count from 0."
            )
        if dtype not in NUMPY_TYPES:
            raise InvalidParameterError(
                f"dtype={dtype} came. Expected torch.float32 or torch.float64."
            )
        self.streams = share_streams(range(streams), self.rank, self.n_ranks)
        self.drop_last = drop_last
        self.dtype = dtype
        self.epoch = 0
        self.step = 0

    @property
    def n_steps(self) -> int:
        """Batches of an epoch; not its length, for workers yield parts of them."""
        return self.order.n_steps(self.drop_last)

    def set_epoch(self, epoch: int, step: int = 0) -> None:
        """Begin at a batch of an epoch; what comes before it is not read."""
        self.epoch, self.step = epoch, step

    def n_rows(self, step: int) -> int:
        """Return how many rows batch ``step`` has, on all ranks together."""
        return self.order.n_in_batch(step, range(self.order.streams))

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        place, n_places = (0, 1) if worker is None else (worker.id, worker.num_workers)
        dtype = NUMPY_TYPES[self.dtype]
        streams = [
            Stream(self.summary, self.order, self.epoch, stream, dtype)
            for stream in share_streams(self.streams, place, n_places)
        ]
        parts = [
            chain(stream.parts(self.step), repeat(stream.none())) for stream in streams
        ]
        try:
            for _ in range(self.step, self.n_steps if parts else 0):
                rows = joined_rows([next(part) for part in parts])
                yield (
                    torch.from_numpy(rows.x),
                    torch.from_numpy(rows.y),
                    torch.from_numpy(rows.group),
                )
        finally:
            for stream in streams:
                stream.close()


class ShardLoader:
    """Iterates over the batches of a dataset, epoch after epoch, and can be resumed.

    Each ``for`` goes over the rest of one epoch. ``state_dict()`` in its body counts
    the batch at hand as done.

    Parameters
    ----------
    dataset
        The rows.
    num_workers
        Processes that read ahead; 0 reads in this one. No more than this rank has
        streams are used.
    prefetch_factor
        Batches that each of them reads ahead.
    """

    def __init__(
        self, dataset: ShardDataset, *, num_workers: int = 0, prefetch_factor: int = 4
    ) -> None:
        self.dataset = dataset
        self.num_workers = min(num_workers, len(dataset.streams))
        self._loader = DataLoader(
            dataset,
            batch_size=None,
            num_workers=self.num_workers,
            prefetch_factor=prefetch_factor if self.num_workers else None,
        )

    def __len__(self) -> int:
        return self.dataset.n_steps

    def set_epoch(self, epoch: int, step: int = 0) -> None:
        """Begin at a batch of an epoch; what comes before it is not read."""
        self.dataset.set_epoch(epoch, step)

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader stands."""
        return {"epoch": self.dataset.epoch, "step": self.dataset.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where `state_dict` was called."""
        self.set_epoch(state["epoch"], state["step"])

    def __iter__(self) -> Iterator[Batch]:
        n_parts = max(self.num_workers, 1)
        parts: list[Batch] = []
        # The loader asks its workers in turn, so their parts come side by side.
        for part in self._loader:
            parts.append(part)
            if len(parts) == n_parts:
                self.dataset.step += 1
                yield _joined(parts)
                parts = []
        self.dataset.set_epoch(self.dataset.epoch + 1)


def _joined(parts: list[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    x, y, group = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return x, y, group
