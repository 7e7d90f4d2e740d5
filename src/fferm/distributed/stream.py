"""The rows of one stream, read piece by piece and shuffled in a buffer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fferm._typing import IntArray
from fferm.distributed.folder import Roles, open_shard
from fferm.distributed.order import Order, Pieces
from fferm.distributed.summary import Rows, ShardSummary

# Rows that are decoded at a time; a row group may hold many more.
DECODE_ROWS = 1 << 14


def joined_rows(parts: list[Rows]) -> Rows:
    """Return the rows of all parts."""
    if len(parts) == 1:
        return parts[0]
    return Rows(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def chosen_rows(rows: Rows, which: IntArray | slice) -> Rows:
    """Return some of the rows."""
    return Rows(rows.x[which], rows.y[which], rows.group[which])


class GroupReader:
    """Reads ranges of rows of a row group, onward from the last one where it can.

    Parameters
    ----------
    path, row_group
        The file, and which of its row groups.
    roles
        What is read.
    """

    def __init__(self, path: Path, row_group: int, roles: Roles) -> None:
        self._file = open_shard(path, roles.categorical)
        # Threads would outlive a fork, and processes already share the cores.
        self._batches = self._file.iter_batches(
            DECODE_ROWS,
            row_groups=[row_group],
            columns=roles.columns,
            use_threads=False,
        )
        self._rest: pa.RecordBatch | None = None
        self.at = 0

    def read(self, begin: int, end: int) -> pa.Table:
        """Return rows ``begin`` to ``end``; not before the end of the last range."""
        found = []
        while self.at < end:
            batch = next(self._batches) if self._rest is None else self._rest
            low, high = max(begin - self.at, 0), min(end - self.at, batch.num_rows)
            if high > low:
                found.append(batch.slice(low, high - low))
            self._rest = batch.slice(high) if high < batch.num_rows else None
            self.at += high
        return pa.Table.from_batches(found)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Stream:
    """One stream of an epoch.

    Parameters
    ----------
    summary
        What the shards hold.
    order
        Which rows come when.
    epoch, stream
        Which of them.
    dtype
        Of the features.
    """

    def __init__(
        self, summary: ShardSummary, order: Order, epoch: int, stream: int, dtype: Any
    ) -> None:
        self._summary = summary
        self._order = order
        self._epoch, self._stream = epoch, stream
        self._dtype = dtype
        self._pieces: Pieces = order.pieces(epoch, stream)
        self._homes = [
            (summary.path_of(shard), g)
            for shard in summary.shards
            for g in range(len(shard.row_groups))
        ]
        self._reader: GroupReader | None = None
        self._open = -1  # the piece that the reader is in

    def parts(self, first: int) -> Iterator[Rows]:
        """Yield the rows for each batch, from batch ``first`` to the last."""
        size, rest = self._order.part, self.none()
        for block in self._blocks(first * size):
            rest = joined_rows([rest, block])
            n_whole = len(rest.y) // size * size
            for begin in range(0, n_whole, size):
                yield chosen_rows(rest, slice(begin, begin + size))
            rest = chosen_rows(rest, slice(n_whole, None))
        if len(rest.y):
            yield rest
        self.close()

    def close(self) -> None:
        """Close the file that is open."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _blocks(self, skip: int) -> Iterator[Rows]:
        """Yield shuffled rows, the first ``skip`` of them left out and never read."""
        places = np.arange(0)  # of the rows that the buffer keeps
        kept: Rows | None = None
        for turn in self._order.rounds(self._epoch, self._stream):
            come = np.arange(turn.first, turn.last)
            places = np.concatenate([places, come])[turn.order]
            if skip >= turn.n_out:
                skip -= turn.n_out
            else:
                if kept is None:
                    pool = self._load(places)
                else:
                    pool = joined_rows([kept, self._load(come)])
                    pool = chosen_rows(pool, turn.order)
                yield chosen_rows(pool, slice(skip, turn.n_out))
                skip, kept = 0, chosen_rows(pool, slice(turn.n_out, None))
            places = places[turn.n_out :]

    def _load(self, places: IntArray) -> Rows:
        """Return the rows at some places of the stream."""
        by_place = np.argsort(places, kind="stable")
        sought = places[by_place]
        piece = np.searchsorted(self._pieces.ends, sought, side="right") - 1
        found = [self.none()]
        for p in np.unique(piece):
            here = sought[piece == p] - self._pieces.ends[p] + self._pieces.begin[p]
            table = self._read(int(p), int(here[0]), int(here[-1]) + 1)
            if len(here) < table.num_rows:
                table = table.take(here - here[0])
            found.append(self._summary.encode(table, self._dtype))
        inverse = np.empty_like(by_place)
        inverse[by_place] = np.arange(len(by_place))
        return chosen_rows(joined_rows(found), inverse)

    def _read(self, piece: int, begin: int, end: int) -> pa.Table:
        reader = self._reader
        if reader is None or self._open != piece or reader.at > begin:
            self.close()
            path, row_group = self._homes[self._pieces.row_group[piece]]
            reader = GroupReader(path, row_group, self._summary.roles)
            self._reader, self._open = reader, piece
        return reader.read(begin, end)

    def none(self) -> Rows:
        """Return no rows."""
        n_columns = len(self._summary.groups)
        shape = (0,) if n_columns == 1 else (0, n_columns)
        return Rows(
            np.empty((0, len(self._summary.feature_names)), dtype=self._dtype),
            np.empty(0, dtype=np.int64),
            np.empty(shape, dtype=np.int64),
        )
