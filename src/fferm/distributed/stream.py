"""Batches of rows from shards, shared by ranks and by the workers of a loader.

The row groups of an epoch are shuffled and laid end to end, and the rows are cut into
as many *streams* of equal length (up to one row). Each stream passes through a shuffle
buffer of its own, and a batch takes as many rows from each. Ranks and workers share the
streams among them, so a batch holds the same rows however many there are, and any rank
or worker knows where a batch stands without reading what comes before it.
"""

import math
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.random import default_rng
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from fferm._typing import IntArray
from fferm.data.validate import COUNT, OneOf, check_params
from fferm.distributed.shards import EncodedRows, ShardSummary, open_shard, reading
from fferm.errors import InvalidParameterError
from fferm.torch.distributed import rank_and_size

Batch = tuple[Tensor, Tensor, Tensor]

NUMPY_TYPES = {torch.float32: np.float32, torch.float64: np.float64}
# Streams of a batch, where it can be cut so: 1, 2 or 4 ranks may share them. Each keeps
# a row group open, which takes some 2 MiB a column for its pages.
USUAL_STREAMS = 4
# Rows that the shuffle buffer of a stream keeps.
BUFFER = 16_384
# Rows that are decoded at a time; a row group may hold many more.
N_DECODED = 1 << 14


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
        this_rank, all_ranks = rank_and_size()
        self.rank = this_rank if rank is None else rank
        self.n_ranks = all_ranks if n_ranks is None else n_ranks
        if streams is None:
            streams = math.gcd(batch_size, USUAL_STREAMS)
            streams = streams if streams % self.n_ranks == 0 else self.n_ranks
        counts = {"batch_size": batch_size, "streams": streams, "buffer": buffer}
        check_params(counts, dict.fromkeys(counts, COUNT))
        check_params({"dtype": dtype}, {"dtype": OneOf(tuple(NUMPY_TYPES))})
        if batch_size % streams:
            raise InvalidParameterError(
                "batch_size must be a multiple of streams, because each stream gives "
                f"as many rows to a batch; got {batch_size} and {streams}."
            )
        if streams % self.n_ranks or not 0 <= self.rank < self.n_ranks:
            raise InvalidParameterError(
                "streams must be a multiple of the number of ranks, which count from "
                f"0; got streams={streams} for rank {self.rank} of {self.n_ranks}."
            )
        self.summary, self.buffer = summary, buffer
        self.seed = seed if shuffle else None
        self.streams = _share(range(streams), self.rank, self.n_ranks)
        self.part = batch_size // streams  # rows of a batch that are of one stream
        # Stream s has the rows from bounds[s] to bounds[s + 1] of an epoch.
        self.bounds = summary.n_rows * np.arange(streams + 1) // streams
        self.drop_last = drop_last
        self.dtype = dtype
        self.epoch = 0
        self.step = 0

    @property
    def n_steps(self) -> int:
        """Batches of an epoch; not its length, because workers yield parts of them."""
        lengths = np.diff(self.bounds)
        n = lengths.min() if self.drop_last else lengths.max() + self.part - 1
        return int(n // self.part)

    def set_epoch(self, epoch: int, step: int = 0) -> None:
        """Begin at a batch of an epoch; what comes before it is not read."""
        self.epoch, self.step = epoch, step

    def n_rows(self, step: int) -> int:
        """Return how many rows batch ``step`` has, on all ranks together."""
        left = np.diff(self.bounds) - step * self.part
        return int(left.clip(0, self.part).sum())

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        place, n_places = (0, 1) if worker is None else (worker.id, worker.num_workers)
        streams = [Stream(self, n) for n in _share(self.streams, place, n_places)]
        none = self.summary.no_rows(NUMPY_TYPES[self.dtype])
        parts = [chain(stream.parts(self.step), repeat(none)) for stream in streams]
        try:
            for _ in range(self.step, self.n_steps if parts else 0):
                x, y, group = _joined([next(part) for part in parts])
                yield torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(group)
        finally:
            for stream in streams:
                stream.close()


class ShardLoader:
    """Iterates over the batches of a dataset, epoch after epoch, and can be resumed.

    Each ``for`` goes over the rest of one epoch. ``state_dict()`` in its body counts
    the current batch as done.

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
        """Resume where `state_dict` was called."""
        self.set_epoch(state["epoch"], state["step"])

    def __iter__(self) -> Iterator[Batch]:
        n_parts = max(self.num_workers, 1)
        parts: list[Batch] = []
        # The loader asks its workers in turn, so their parts come side by side.
        for part in self._loader:
            parts.append(part)
            if len(parts) == n_parts:
                self.dataset.step += 1
                if n_parts > 1:
                    x, y, group = map(torch.cat, zip(*parts, strict=True))
                    part = x, y, group
                yield part
                parts = []
        self.dataset.set_epoch(self.dataset.epoch + 1)


class Stream:
    """One stream of an epoch: read piece by piece, shuffled in a buffer.

    Parameters
    ----------
    data
        The rows, and how they are shuffled.
    stream
        Which stream of the current epoch.
    """

    def __init__(self, data: ShardDataset, stream: int) -> None:
        self._data, self._dtype = data, NUMPY_TYPES[data.dtype]
        homes = [
            (data.summary.path_of(shard), g, size)
            for shard, sizes in data.summary.shards.items()
            for g, size in enumerate(sizes)
        ]
        self._rng = None
        if data.seed is not None:
            order = default_rng([data.seed, data.epoch]).permutation(len(homes))
            homes = [homes[g] for g in order]
            self._rng = default_rng([data.seed, data.epoch, stream + 1])
        sizes = np.array([size for _, _, size in homes], dtype=np.int64)
        begins = np.cumsum(sizes) - sizes
        begin = np.maximum(data.bounds[stream] - begins, 0)
        length = np.minimum(data.bounds[stream + 1] - begins, sizes) - begin
        # The pieces of row groups that make the stream, in order of reading: where they
        # are, their first rows there, and the rows of the stream before each.
        kept = np.flatnonzero(length > 0)
        self._homes = [homes[k][:2] for k in kept]
        self._begin, self._ends = begin[kept], np.append(0, np.cumsum(length[kept]))
        self._file: pq.ParquetFile | None = None
        self._open = -1  # the piece that the file is open for
        self._at = 0  # the next row of its row group
        self._rest: pa.RecordBatch | None = None  # decoded from there on

    def parts(self, first: int) -> Iterator[EncodedRows]:
        """Yield the rows for each batch, from batch ``first`` to the last."""
        size, rest = self._data.part, self._data.summary.no_rows(self._dtype)
        for block in self._blocks(first * size):
            rest = _joined([rest, block])
            n_whole = len(rest.y) // size * size
            for begin in range(0, n_whole, size):
                yield rest.take(slice(begin, begin + size))
            rest = rest.take(slice(n_whole, None))
        if len(rest.y):
            yield rest
        self.close()

    def close(self) -> None:
        """Close the file that is open."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _blocks(self, skip: int) -> Iterator[EncodedRows]:
        """Yield shuffled rows, the first ``skip`` of them left out and never read."""
        length, buffer, at = self._ends[-1], self._data.buffer, 0
        places = np.arange(0)  # of the rows that the buffer keeps
        kept: EncodedRows | None = None
        while at < length:
            new = np.arange(at, min(at + (buffer if at else 2 * buffer), length))
            at, n = at + new.size, places.size + new.size
            order = np.arange(n) if self._rng is None else self._rng.permutation(n)
            # What stays meets the rows that come next; the last round leaves nothing.
            n_out = n if at == length else max(n - buffer, 1)
            places = np.concatenate([places, new])[order]
            if skip >= n_out:
                skip -= n_out
            else:
                if kept is None:
                    pool = self._load(places)
                else:
                    pool = _joined([kept, self._load(new)]).take(order)
                yield pool.take(slice(skip, n_out))
                skip, kept = 0, pool.take(slice(n_out, None))
            places = places[n_out:]

    def _load(self, places: IntArray) -> EncodedRows:
        """Return the rows at some places of the stream."""
        summary = self._data.summary
        by_place = np.argsort(places, kind="stable")
        ordered = places[by_place]
        piece = np.searchsorted(self._ends, ordered, side="right") - 1
        blocks = [summary.no_rows(self._dtype)]
        for p in np.unique(piece):
            here = ordered[piece == p] - self._ends[p] + self._begin[p]
            with reading(self._homes[p][0]):
                table = self._read(int(p), int(here[0]), int(here[-1]) + 1)
                if len(here) < table.num_rows:
                    table = table.take(here - here[0])
                blocks.append(summary.encode(table, self._dtype))
        return _joined(blocks).take(np.argsort(by_place))

    def _read(self, piece: int, begin: int, end: int) -> pa.Table:
        """Return a range of rows of a row group, onward from the last where it can."""
        if self._file is None or self._open != piece or self._at > begin:
            self.close()
            path, group = self._homes[piece]
            roles = self._data.summary.roles
            self._file, self._open = open_shard(path, roles.categorical), piece
            # Threads would outlive a fork, and processes already share the cores.
            self._batches = self._file.iter_batches(
                N_DECODED, row_groups=[group], columns=roles.columns, use_threads=False
            )
            self._at, self._rest = 0, None
        slices = []
        while self._at < end:
            batch = next(self._batches) if self._rest is None else self._rest
            low, high = max(begin - self._at, 0), min(end - self._at, batch.num_rows)
            if high > low:
                slices.append(batch.slice(low, high - low))
            self._rest = batch.slice(high) if high < batch.num_rows else None
            self._at += high
        return pa.Table.from_batches(slices)


def _joined(parts: list[EncodedRows]) -> EncodedRows:
    if len(parts) == 1:
        return parts[0]
    return EncodedRows(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _share(streams: range, part: int, n_parts: int) -> range:
    """Return the streams of one of several ranks or workers: neighbours, in order."""
    n = len(streams)
    return streams[n * part // n_parts : n * (part + 1) // n_parts]
