"""The first pass over one file: moments, vocabularies and counts, in constant memory.

What is found in each file is put together in the order of the files, so that it is the
same to the last bit whichever ranks read them.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa

from fferm._typing import FloatArray, IntArray
from fferm.data.groups import refuse_continuous
from fferm.distributed.columns import Vocabulary, as_class, as_group, numbers
from fferm.distributed.folder import Roles, open_shard
from fferm.errors import InvalidInputError

SCAN_ROWS = 1 << 16

Cell = tuple[Hashable, ...]


@dataclass(frozen=True)
class Moments:
    """Number, mean and sum of squares around it, of each numeric column."""

    count: FloatArray
    mean: FloatArray
    square: FloatArray

    def plus(self, other: "Moments") -> "Moments":
        """Return the moments of both parts (Chan, Golub and LeVeque, 1979)."""
        count = self.count + other.count
        safe = np.where(count > 0, count, 1.0)
        gap = other.mean - self.mean
        return Moments(
            count,
            self.mean + gap * other.count / safe,
            self.square + other.square + gap**2 * self.count * other.count / safe,
        )

    @property
    def scale(self) -> FloatArray:
        """Standard deviation; 1 where a column does not vary."""
        found = np.sqrt(self.square / np.where(self.count > 0, self.count, 1.0))
        # Rounding leaves a constant column with a little spread.
        return np.where(found > 1e-12 * np.maximum(np.abs(self.mean), 1e-30), found, 1)


@dataclass(frozen=True)
class Scan:
    """What one file, or several, hold.

    Attributes
    ----------
    moments
        Of the numeric columns.
    categories
        The values of each categorical column.
    cells
        Rows of each class and groups; None where a group is unknown.
    """

    moments: Moments
    categories: tuple[frozenset[Hashable], ...]
    cells: Counter[Cell]

    def plus(self, other: "Scan") -> "Scan":
        """Return what both hold."""
        pairs = zip(self.categories, other.categories, strict=True)
        return Scan(
            self.moments.plus(other.moments),
            tuple(one | another for one, another in pairs),
            self.cells + other.cells,
        )


def scan(path: Path, roles: Roles) -> Scan:
    """Return what a file holds."""
    texts = [Vocabulary(column, str) for column in roles.categorical]
    labels = [
        Vocabulary(roles.target, as_class),
        *(Vocabulary(column, as_group) for column in roles.sensitive),
    ]
    moments, cells = _nothing(len(roles.numeric)), Counter[Cell]()
    with open_shard(path, roles.categorical) as file:
        for batch in file.iter_batches(
            SCAN_ROWS, columns=roles.columns, use_threads=False
        ):
            moments = moments.plus(_moments(batch, roles.numeric, path))
            for vocabulary in texts:
                vocabulary.encode(batch.column(vocabulary.name))
            cells += _count(batch, labels, path)
    categories = tuple(frozenset(vocabulary.position_of) for vocabulary in texts)
    return Scan(moments, categories, cells)


def joined(scans: Sequence[Scan]) -> Scan:
    """Return what all files hold."""
    return reduce(Scan.plus, scans)


def _nothing(n_columns: int) -> Moments:
    return Moments(*np.zeros((3, n_columns)))


def _moments(batch: pa.RecordBatch, names: Sequence[str], path: Path) -> Moments:
    if not names or not batch.num_rows:
        return _nothing(len(names))
    values = np.stack([numbers(batch.column(name)) for name in names])  # (d, n)
    known = ~np.isnan(values)
    count = known.sum(axis=1).astype(np.float64)
    values = np.where(known, values, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = values.sum(axis=1) / np.maximum(count, 1.0)
        square = np.sum(known * (values - mean[:, None]) ** 2, axis=1)
    endless = np.flatnonzero(~np.isfinite(square))
    if endless.size:
        raise InvalidInputError(
            f"{path} holds infinite or too large numbers in {names[endless[0]]!r}. "
            "Expected finite ones, or none where a value is missing."
        )
    return Moments(count, mean, square)


def _count(
    batch: pa.RecordBatch, labels: Sequence[Vocabulary], path: Path
) -> Counter[Cell]:
    for vocabulary in labels[1:]:
        column = batch.column(vocabulary.name)
        if pa.types.is_floating(column.type):
            refuse_continuous(column.to_pandas(), vocabulary.name)
    found = [vocabulary.encode(batch.column(vocabulary.name)) for vocabulary in labels]
    n_missing = int(np.sum(found[0] < 0))
    if n_missing:
        raise InvalidInputError(
            f"{path} has {n_missing} rows without a value of {labels[0].name!r}. "
            "Expected a label in every row; drop those rows first."
        )
    shape = tuple(len(vocabulary.position_of) + 1 for vocabulary in labels)
    place = np.ravel_multi_index(tuple(np.stack(found) + 1), shape)
    present, count = np.unique(place, return_counts=True)
    keys = [[None, *vocabulary.position_of] for vocabulary in labels]
    cells = zip(*np.unravel_index(present, shape), strict=True)
    return Counter(
        {
            _named(cell, keys): int(n)
            for cell, n in zip(cells, count.tolist(), strict=True)
        }
    )


def _named(cell: Sequence[int] | IntArray, keys: list[list[Hashable]]) -> Cell:
    return tuple(names[k] for names, k in zip(keys, cell, strict=True))
