"""Rows in partitions of Dask: functions go to the partitions, and sums come back.

Without a cluster the threads of this process read one partition after another.
"""

import functools
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fferm._typing import Table
from fferm.data.groups import split_columns
from fferm.errors import InvalidInputError, LostRankError, import_extra

Value = TypeVar("Value")

# A cluster without any worker for so many seconds has lost them.
PATIENCE = 60.0
# How often to look, in seconds.
PERIOD = 1.0


@dataclass(frozen=True)
class Partitions:
    """Parts of the data, each a value that Dask computes where it wants.

    Attributes
    ----------
    parts
        One delayed value per partition.
    """

    parts: tuple[Any, ...]

    @classmethod
    def of(cls, **tables: Table) -> "Partitions":
        """Return partitions of dicts of tables, by name; a table may be None."""
        for name, table in tables.items():
            if table is not None and not hasattr(table, "to_delayed"):
                raise InvalidInputError(
                    f"{name} must be a collection of Dask, as X is; got a "
                    f"{type(table).__name__}. Take it from where X is from."
                )
        dask, known = import_dask(), [n for n in tables if tables[n] is not None]
        if all(hasattr(tables[name], "map_partitions") for name in known):
            names, whole = join(tables, known)
            take = dask.delayed(functools.partial(split, tuple(tables), names))
            return cls(tuple(map(take, whole.to_delayed())))
        columns = [_blocks(tables[name]) for name in known]
        if len(set(map(len, columns))) > 1:
            counts = [f"{n} has {len(c)}" for n, c in zip(known, columns, strict=True)]
            raise InvalidInputError(
                "All arrays need the same chunks along their rows; "
                f"{', '.join(counts)}. Rechunk them."
            )
        rows = zip(*columns, strict=True)
        empty = dict.fromkeys(tables)
        return cls(tuple(empty | dict(zip(known, row, strict=True)) for row in rows))

    def map(
        self, function: Callable[..., Value], *args: Any, each: Sequence[Any] = ()
    ) -> list[Value]:
        """Return the function of every part and the arguments, in order.

        ``each`` has an argument for each part, which comes before the others.
        """
        return _compute(self._calls(function, args, each))

    def convert(self, function: Callable[..., Any], *args: Any) -> "Partitions":
        """Return the function's values as parts, which the workers of a cluster keep.

        Without a cluster they are computed whenever they are needed.
        """
        calls = self._calls(function, args)
        client = find_client()
        return Partitions(tuple(calls if client is None else client.persist(calls)))

    def select(self, kept: list[bool]) -> "Partitions":
        """Return some of the parts."""
        pairs = zip(self.parts, kept, strict=True)
        return Partitions(tuple(part for part, is_kept in pairs if is_kept))

    def _calls(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        each: Sequence[Any] = (),
    ) -> list[Any]:
        dask = import_dask()
        # Bound to the function, because Dask would look into every argument.
        call = dask.delayed(functools.partial(_apply, function, args), pure=False)
        return list(map(call, self.parts, *([each] if each else [])))


def _apply(
    function: Callable[..., Value], args: tuple[Any, ...], part: Any, *own: Any
) -> Value:
    return function(part, *own, *args)


def import_dask() -> Any:
    """Return Dask, or say how to install it."""
    return import_extra("dask", "cluster", "Training on partitions")


def join(
    tables: dict[str, Table], known: list[str]
) -> tuple[list[tuple[str, Any]], Table]:
    """Return a collection of all columns, and of which table those behind X are.

    Dask reads the columns of one collection together; it may cut two collections of the
    same files at other rows.
    """
    names: list[tuple[str, Any]] = []
    columns, X = {}, tables["X"]
    for name in known[1:]:
        table = tables[name]
        is_known = table.known_divisions and X.known_divisions
        if table.npartitions != X.npartitions and not is_known:
            raise InvalidInputError(
                f"{name} has {table.npartitions} partitions and X has {X.npartitions}, "
                "so rows cannot be matched. Take both from one collection, such as "
                "rows[features] and rows['label']."
            )
        table = table.to_frame() if table.ndim == 1 else table
        for column in table.columns:
            columns[f"{name}: {len(names)}"] = table[column]
            names.append((name, column))
    return names, X.assign(**columns)


def split(
    tables: tuple[str, ...], names: list[tuple[str, Any]], whole: Table
) -> dict[str, Table]:
    """Return the tables of a partition that `join` put together."""
    end = whole.shape[1] - len(names)
    parts: dict[str, Table] = {**dict.fromkeys(tables), "X": whole.iloc[:, :end]}
    for table in dict.fromkeys(name for name, _ in names):
        columns = [k for k, (name, _) in enumerate(names) if name == table]
        part = whole.iloc[:, [end + k for k in columns]]
        parts[table] = part.set_axis([names[k][1] for k in columns], axis=1)
    return parts


def _blocks(array: Table) -> list[Any]:
    if not hasattr(array, "rechunk"):
        return list(array.to_delayed())
    whole_rows = array.rechunk(dict.fromkeys(range(1, array.ndim), -1))
    return list(whole_rows.to_delayed().reshape(-1))


def column_names(table: Table) -> tuple[str, ...]:
    """Return the names of sensitive columns that are a collection of Dask."""
    return tuple(dict(split_columns(getattr(table, "_meta", table))))


def find_client() -> Any:
    """Return the client of the cluster that Dask computes on, None if there is none."""
    distributed = sys.modules.get("distributed")
    try:
        return None if distributed is None else distributed.default_client()
    except ValueError:
        return None


def _compute(calls: list[Any]) -> list[Any]:
    client = find_client()
    if client is None:
        return list(import_dask().compute(*calls))
    futures = client.compute(calls)
    wait_for(client, lambda: all(future.done() for future in futures))
    return list(client.gather(futures))


def workers_of(client: Any) -> set[str]:
    """Return the addresses of the workers, none if the scheduler does not answer."""
    try:
        return set(client.nthreads())
    except (OSError, RuntimeError, AttributeError):
        return set()  # the last two are of a client that has given up


def wait_for(client: Any, is_done: Callable[[], bool]) -> None:
    """Wait until something is done; raise once the cluster has lost all its workers."""
    last_seen, pause = time.monotonic(), PERIOD / 256
    while not is_done():
        time.sleep(pause)
        pause = min(2 * pause, PERIOD)
        if pause < PERIOD or workers_of(client):
            last_seen = max(last_seen, time.monotonic())
        elif time.monotonic() - last_seen > PATIENCE:
            raise LostRankError(
                f"The cluster has had no worker for {PATIENCE:.0f} seconds, or its "
                "scheduler is gone. Start them, and fit again."
            )


@dataclass(frozen=True)
class PartitionedRows:
    """The encoded rows of partitions, in the place of X in a problem.

    Attributes
    ----------
    partitions
        The rows of each, as kernels take them; their shares are those among all rows.
    sizes
        How many rows each has.
    n_features
        The columns of X.
    """

    partitions: Partitions
    sizes: tuple[int, ...]
    n_features: int

    @property
    def shape(self) -> tuple[int, int]:
        """(n_samples, n_features)."""
        return sum(self.sizes), self.n_features

    @property
    def size(self) -> int:
        """The number of entries."""
        return self.shape[0] * self.shape[1]

    def map(self, function: Callable[..., Value], *args: Any) -> list[Value]:
        """Return the function of the rows of every partition and the arguments."""
        return self.partitions.map(function, *args)

    def map_from(self, function: Callable[..., Value], *args: Any) -> list[Value]:
        """Return it with the number of rows before those of the partition, too."""
        begins = itertools.accumulate((0, *self.sizes[:-1]))
        return self.partitions.map(function, *args, each=tuple(begins))
