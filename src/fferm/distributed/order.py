"""Which rows come when: a plan that every rank and worker can work out alone.

The row groups of an epoch are shuffled and laid end to end, and the rows are cut into
as many *streams* of equal length (up to one row). Each stream passes through a shuffle
buffer of its own, and a batch takes as many rows from each. Ranks and workers share the
streams among them, so a batch holds the same rows however many there are, and where it
stands is known without reading what came before.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fferm._typing import IntArray
from fferm.errors import InvalidParameterError

# Streams of a batch, where it can be cut so: 1, 2 or 4 ranks may share them. Each keeps
# a row group open, which takes some 2 MiB a column for its pages.
USUAL_STREAMS = 4


@dataclass(frozen=True)
class Pieces:
    """The rows of a stream as pieces of row groups, in the order of reading.

    Attributes
    ----------
    row_group
        (p,) number of the row group, through all shards.
    begin
        (p,) first row within it.
    ends
        (p + 1,) rows of the stream before each piece.
    """

    row_group: IntArray
    begin: IntArray
    ends: IntArray


@dataclass(frozen=True)
class Round:
    """One filling of the shuffle buffer.

    Attributes
    ----------
    first, last
        Rows of the stream, ``first`` to ``last``, that come into the buffer.
    order
        Permutation of the buffer: the rows that were kept, then those that came.
    n_out
        How many of them, in the new order, leave it.
    """

    first: int
    last: int
    order: IntArray
    n_out: int


@dataclass(frozen=True)
class Order:
    """The order of the rows in every epoch.

    Parameters
    ----------
    sizes
        Rows of each row group.
    batch_size
        Rows of a batch, on all ranks together.
    streams
        How many rows of it are drawn apart from each other.
    buffer
        Rows that the shuffle buffer of a stream holds, and at most as many more.
    seed
        Of the shuffles; None leaves the rows in their order.
    """

    sizes: tuple[int, ...]
    batch_size: int
    streams: int
    buffer: int
    seed: int | None

    def __post_init__(self) -> None:
        for name in ("batch_size", "streams", "buffer"):
            if not (isinstance(value := getattr(self, name), int) and value >= 1):
                raise InvalidParameterError(
                    f"{name}={value!r} came. Expected a whole number from 1 on."
                )
        if self.batch_size % self.streams:
            raise InvalidParameterError(
                f"batch_size={self.batch_size} came with streams={self.streams}. "
                "Expected a multiple: each stream gives as many rows to a batch."
            )

    @property
    def n_rows(self) -> int:
        """Rows of an epoch."""
        return sum(self.sizes)

    @property
    def part(self) -> int:
        """Rows of a batch that come from one stream."""
        return self.batch_size // self.streams

    def bounds(self, stream: int) -> tuple[int, int]:
        """Return the first row of a stream and the one after its last."""
        n = self.n_rows
        return n * stream // self.streams, n * (stream + 1) // self.streams

    def n_steps(self, drop_last: bool) -> int:
        """Return how many batches an epoch has."""
        lengths = [end - begin for begin, end in map(self.bounds, range(self.streams))]
        if drop_last:
            return min(lengths) // self.part
        return math.ceil(max(lengths) / self.part)

    def n_in_batch(self, step: int, streams: range) -> int:
        """Return how many rows some streams give to a batch, fewer to the last."""
        left = (
            end - begin - step * self.part for begin, end in map(self.bounds, streams)
        )
        return sum(min(max(n, 0), self.part) for n in left)

    def pieces(self, epoch: int, stream: int) -> Pieces:
        """Return where the rows of a stream are."""
        group = np.arange(len(self.sizes))
        if self.seed is not None:
            group = np.random.default_rng([self.seed, epoch]).permutation(group)
        sizes = np.array(self.sizes, dtype=np.int64)[group]
        ends = np.cumsum(sizes)
        first, last = self.bounds(stream)
        begin = np.maximum(first - (ends - sizes), 0)
        end = np.minimum(last - (ends - sizes), sizes)
        kept = np.flatnonzero(end > begin)
        length = (end - begin)[kept]
        return Pieces(group[kept], begin[kept], np.append(0, np.cumsum(length)))

    def rounds(self, epoch: int, stream: int) -> Iterator[Round]:
        """Yield how the shuffle buffer of a stream is filled and emptied."""
        first, last = self.bounds(stream)
        length, at, n_kept = last - first, 0, 0
        rng = None
        if self.seed is not None:
            rng = np.random.default_rng([self.seed, epoch, stream + 1])
        while at < length:
            come = min(self.buffer if at else 2 * self.buffer, length - at)
            n = n_kept + come
            order = np.arange(n) if rng is None else rng.permutation(n)
            # What stays meets the rows that come next; the last round leaves nothing.
            n_out = n if at + come == length else max(n - self.buffer, 1)
            yield Round(at, at + come, order, n_out)
            at, n_kept = at + come, n - n_out


def usual_streams(batch_size: int, n_ranks: int) -> int:
    """Return how many streams a batch has where nobody says."""
    streams = math.gcd(batch_size, USUAL_STREAMS)
    return streams if streams % n_ranks == 0 else n_ranks


def share_streams(streams: range, part: int, n_parts: int) -> range:
    """Return the streams of one of several ranks or workers: neighbours, in order."""
    n = len(streams)
    return streams[n * part // n_parts : n * (part + 1) // n_parts]
