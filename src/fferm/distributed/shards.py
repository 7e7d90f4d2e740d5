"""A folder of Parquet shards: its files, one pass over them, and rows as numbers.

`summarize` reads every file once, in constant memory. What each file holds is added up
in the order of the files, so the sums are the same to the last bit whichever ranks read
them.
"""

import json
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import reduce
from itertools import compress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import DTypeLike, NDArray

from fferm._typing import FloatArray, IntArray
from fferm.data.groups import GroupMode, group_name, natural_order, refuse_continuous
from fferm.data.rows import SMALL_GROUP
from fferm.divergences import Divergence
from fferm.errors import (
    FfermError,
    InvalidInputError,
    InvalidTypeError,
    MissingGroupWarning,
    explain,
    muted,
    warn_user,
)
from fferm.notions import Notion
from fferm.torch.distributed import collect_ranks, rank_and_size
from fferm.torch.losses import DualSteps, FairnessLoss
from fferm.torch.reader import UNKNOWN, Column

Key = Callable[[object], Hashable]
Cell = tuple[Hashable, ...]
Arrow: TypeAlias = pa.ChunkedArray | pa.Array
# The different values of a column, and the position of each row among them.
Distinct = tuple[list[Hashable], IntArray]

# How column chunks are read: few bytes at a time, because many are open at once.
READING = {"buffer_size": 1 << 18, "pre_buffer": False}
SCAN_ROWS = 1 << 16
# A column with more values than this names rows: it is neither a set of groups or of
# classes, nor a category, and its vocabulary would not stay small.
MOST_VALUES = 10_000
# The code of a missing value, and of one that a vocabulary lacks.
MISSING, UNSEEN = -1, -2


class EncodedRows(NamedTuple):
    """Encoded rows: features (n, d), class codes (n,) and groups (n,) or (n, a)."""

    x: NDArray[np.floating]
    y: IntArray
    group: IntArray

    def take(self, which: IntArray | slice) -> "EncodedRows":
        """Return some of the rows."""
        return EncodedRows(self.x[which], self.y[which], self.group[which])


class LabelCounts(NamedTuple):
    """Labels that stand for all rows, as ``from_labels`` of a loss takes them.

    Each class and group is there ten times or as often as in the data, whichever is
    less, with weights that make up for it.
    """

    y: list[object]
    sensitive_features: dict[str, list[str | None]]
    sample_weight: FloatArray


@dataclass(frozen=True)
class Roles:
    """What each column is for.

    Attributes
    ----------
    target
        The column of labels.
    sensitive
        The columns that make groups.
    numeric, categorical
        The columns that the model sees.
    """

    target: str
    sensitive: tuple[str, ...]
    numeric: tuple[str, ...]
    categorical: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        """All columns that are read, each once."""
        every = (self.target, *self.sensitive, *self.numeric, *self.categorical)
        return list(dict.fromkeys(every))

    @property
    def labels(self) -> list[tuple[str, Key]]:
        """Target and sensitive columns, and what makes two of their values the same."""
        return [(self.target, _as_class), *((n, _as_group) for n in self.sensitive)]


@dataclass(frozen=True)
class ShardSummary:
    """What one pass over a folder of shards finds; made by `summarize`.

    Attributes
    ----------
    folder
        Where the shards are.
    shards
        The rows of each row group of a file, by its name within the folder.
    roles
        What each column is for.
    mean, scale
        Of the numeric columns.
    categories
        The values of each categorical column.
    classes
        The labels, sorted.
    groups
        The groups of each sensitive column.
    cells, counts
        Position of class and groups (-1 unknown), and how many rows are there.
    """

    folder: Path
    shards: Mapping[str, tuple[int, ...]]
    roles: Roles
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    categories: tuple[tuple[str, ...], ...]
    classes: tuple[object, ...]
    groups: tuple[tuple[str, ...], ...]
    cells: tuple[tuple[int, ...], ...] = field(repr=False)
    counts: tuple[int, ...] = field(repr=False)

    @property
    def n_rows(self) -> int:
        """Rows of all shards."""
        return sum(self.counts)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What each number that the model sees stands for."""
        pairs = zip(self.roles.categorical, self.categories, strict=True)
        hot = [f"{name}={value}" for name, values in pairs for value in values]
        return (*self.roles.numeric, *hot)

    def path_of(self, shard: str) -> Path:
        """Return where the shard of this name is."""
        return self.folder if self.folder.is_file() else self.folder / shard

    def features(
        self, table: pa.Table, dtype: DTypeLike = np.float32
    ) -> NDArray[np.floating]:
        """Return (n, d) standardised numbers and one-hot categories of a table.

        A missing number is the mean; a missing or unknown category is 0 throughout.
        """
        x = np.zeros((table.num_rows, len(self.feature_names)), dtype=dtype)
        stats = zip(self.roles.numeric, self.mean, self.scale, strict=True)
        for j, (name, mean, scale) in enumerate(stats):
            x[:, j] = np.nan_to_num((_numbers(table[name]) - mean) / scale, nan=0.0)
        begin = len(self.roles.numeric)
        for name, values in zip(self.roles.categorical, self.categories, strict=True):
            code = _codes(table[name], values, str)
            known = np.flatnonzero(code >= 0)
            x[known, begin + code[known]] = 1
            begin += len(values)
        return x

    def encode(self, table: pa.Table, dtype: DTypeLike = np.float32) -> EncodedRows:
        """Return the rows of a table as numbers."""
        codes: list[IntArray] = []
        values = self.classes, *self.groups
        for known, (name, key) in zip(values, self.roles.labels, strict=True):
            code = _codes(table[name], known, key)
            n_unseen = int(np.sum(code < (MISSING if codes else 0)))
            if n_unseen:
                raise InvalidInputError(
                    f"{name!r} has values in {n_unseen} rows that the first pass did "
                    "not see. The shards changed since; summarize them again."
                )
            codes.append(code)
        columns = [
            np.append(Column(name, groups).values, MISSING)[code]
            for name, groups, code in zip(
                self.roles.sensitive, self.groups, codes[1:], strict=True
            )
        ]
        group = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        return EncodedRows(self.features(table, dtype), codes[0], group)

    def no_rows(self, dtype: DTypeLike) -> EncodedRows:
        """Return encoded rows, none of them."""
        x = np.empty((0, len(self.feature_names)), dtype=dtype)
        group = np.empty((0, len(self.groups)), dtype=np.int64)
        y = group[:, 0]
        return EncodedRows(x, y, y if len(self.groups) == 1 else group)

    def labels(self) -> LabelCounts:
        """Return labels that stand for all rows: arguments of a loss."""
        copies = np.minimum(self.counts, SMALL_GROUP)
        weight = np.repeat(np.array(self.counts) / copies, copies)
        label, *codes = np.repeat(np.array(self.cells), copies, axis=0).T
        columns = zip(self.roles.sensitive, self.groups, codes, strict=True)
        named = {
            name: [groups[k] if k >= 0 else None for k in code]
            for name, groups, code in columns
        }
        return LabelCounts([self.classes[j] for j in label], named, weight)

    def fairness_loss(
        self,
        *,
        divergence: str | Divergence = "kl",
        notion: str | Notion = "demographic_parity",
        sharpness: float = 1.0,
        groups: GroupMode = "intersection",
        dual_steps: DualSteps | None = None,
    ) -> FairnessLoss:
        """Return the loss for all rows; parameters as in `FairnessLoss.from_labels`."""
        # It would count the rows that stand for others.
        with muted(MissingGroupWarning):
            loss = FairnessLoss.from_labels(
                **self.labels()._asdict(),
                divergence=divergence,
                notion=notion,
                sharpness=sharpness,
                groups=groups,
                classes=self.classes,
                dual_steps=dual_steps,
            )
        is_unknown = np.array(self.cells)[:, 1:] < 0
        n_unknown = np.array(self.counts) @ is_unknown
        for name, n_missing in zip(self.roles.sensitive, n_unknown, strict=True):
            if n_missing:
                text = f"{n_missing} of {self.n_rows} rows have no value of {name}."
                warn_user(f"{text} The penalty leaves them out.", MissingGroupWarning)
        return loss

    def to_json(self) -> str:
        """Return all of it but the folder as text, for `from_json`."""
        return json.dumps({**asdict(self), "folder": None}, indent=1)

    @classmethod
    def from_json(cls, text: str, folder: str | Path) -> Self:
        """Return what `to_json` wrote, for shards that are now in ``folder``."""
        fields = _tuples(json.loads(text))
        fields |= {"folder": Path(folder), "roles": Roles(**fields["roles"])}
        return cls(**fields)


def summarize(
    folder: str | Path,
    *,
    target: str,
    sensitive: str | Sequence[str],
    features: Sequence[str] | None = None,
    drop_sensitive: bool = False,
) -> ShardSummary:
    """Return what a folder of Parquet shards holds, after one pass in constant memory.

    Where ``torch.distributed`` is running each rank reads a part of the files; every
    rank must call, and gets the same summary.

    Parameters
    ----------
    folder
        Files ``*.parquet`` with the same columns, or one such file.
    target
        The column of labels; of any number of classes, strings or numbers.
    sensitive
        The column, or columns, that make groups. Missing values and -1: unknown.
    features
        The columns that the model sees; by default all but the target. Numbers and
        booleans are standardised, strings one-hot.
    drop_sensitive
        Whether the model does not see the sensitive columns.
    """
    folder = Path(folder)
    sensitive = (sensitive,) if isinstance(sensitive, str) else tuple(sensitive)
    if not sensitive:
        raise InvalidInputError("sensitive must name at least one column; got none.")
    shards, schemas = find_shards(folder)
    roles = _assign_roles(schemas, target, sensitive, features, drop_sensitive)
    paths = [folder if folder.is_file() else folder / shard for shard in shards]
    scan = _scan_all(paths, roles)
    n_labels = len(roles.labels)
    classes = sorted(scan.values[0], key=lambda label: (isinstance(label, str), label))
    if len(classes) < 2:
        raise InvalidInputError(
            f"{folder} has {scan.cells.total()} rows and {len(classes)} values of "
            f"{target!r}. Training needs rows of at least two classes."
        )
    groups = [sorted(g, key=natural_order) for g in scan.values[1:n_labels]]
    places = [{None: MISSING, **_positions(values)} for values in (classes, *groups)]
    cells = sorted(
        (tuple(place[key] for place, key in zip(places, cell, strict=True)), n)
        for cell, n in scan.cells.items()
    )
    count, mean, square = scan.moments
    scale = np.sqrt(square / np.where(count > 0, count, 1.0))
    # Rounding leaves a constant column with a little spread.
    is_constant = scale <= 1e-12 * np.maximum(np.abs(mean), 1e-30)
    return ShardSummary(
        folder,
        shards,
        roles,
        tuple(mean.tolist()),
        tuple(np.where(is_constant, 1.0, scale).tolist()),
        tuple(tuple(sorted(values)) for values in scan.values[n_labels:]),
        tuple(classes),
        tuple(map(tuple, groups)),
        *zip(*cells, strict=True),
    )


# The files


def find_shards(root: Path) -> tuple[dict[str, tuple[int, ...]], dict[str, pa.Schema]]:
    """Return the row groups and schemas of the Parquet files below a folder, by name.

    The folder may be one such file.
    """
    paths = [root] if root.is_file() else sorted(root.rglob("*.parquet"))
    paths = [path for path in paths if not path.name.startswith(("_", "."))]
    if not paths:
        problem = "has no Parquet files" if root.is_dir() else "is not a folder"
        raise InvalidInputError(
            f"{root} {problem}. Pass a folder of *.parquet files, or one such file."
        )
    shards, schemas = {}, {}
    for path in paths:
        with open_shard(path) as file:
            groups = map(file.metadata.row_group, range(file.num_row_groups))
            name = path.name if path == root else path.relative_to(root).as_posix()
            shards[name] = tuple(group.num_rows for group in groups)
            schemas[name] = file.schema_arrow
    return shards, schemas


def open_shard(path: Path, categorical: Sequence[str] = ()) -> pq.ParquetFile:
    """Return an open file, read in small pieces; categories by their numbers in it."""
    with reading(path):
        return pq.ParquetFile(path, read_dictionary=list(categorical), **READING)


def reading(path: Path) -> AbstractContextManager[None]:
    """Name the shard that cannot be read, or not as the first pass read it."""
    problem = f"{path} could not be read as Parquet"
    advice = "It is damaged, or was changed after the first pass. Write it again."
    return explain(problem, advice, Exception, InvalidInputError)


def _assign_roles(
    schemas: Mapping[str, pa.Schema],
    target: str,
    sensitive: tuple[str, ...],
    features: Sequence[str] | None,
    drop_sensitive: bool,
) -> Roles:
    """Return what each column is for, after checking that all files have them."""
    first_name, first = next(iter(schemas.items()))
    names = [n for n in first.names if n != target] if features is None else features
    seen = [name for name in names if not (drop_sensitive and name in sensitive)]
    for file, schema in schemas.items():
        for column in (target, *sensitive, *seen):
            if schema.names.count(column) != 1:
                raise InvalidInputError(
                    f"{file} has no column {column!r}, or two; every shard needs one. "
                    f"Its columns: {', '.join(schema.names)}."
                )
            type_, expected = schema.field(column).type, first.field(column).type
            if _kind_of(type_) is None:
                raise InvalidTypeError(
                    f"{file} has {column!r} as {type_}. Columns must hold numbers, "
                    "booleans or strings; convert it, or leave it out with features=."
                )
            if _kind_of(type_) != _kind_of(expected):
                raise InvalidInputError(
                    f"{file} has {column!r} as {type_}, {first_name} as {expected}. "
                    "All shards need the same types; write the file again."
                )
        extra = [column for column in schema.names if column not in first.names]
        if extra and features is None:
            raise InvalidInputError(
                f"{file} also has {extra[0]!r}, unlike {first_name}. Name the columns "
                "to read with features=, or write the file again."
            )
    if not seen:
        raise InvalidInputError(
            f"{first_name} has no column for the model to see beside {target!r} and "
            f"{', '.join(map(repr, sensitive))}."
        )
    is_text = [_kind_of(first.field(column).type) == "text" for column in seen]
    text = tuple(compress(seen, is_text))
    return Roles(target, sensitive, tuple(c for c in seen if c not in text), text)


# Columns as numbers


def _kind_of(type_: pa.DataType) -> Literal["numeric", "text"] | None:
    """Return how a column is read, None where its type cannot be."""
    is_ = pa.types
    if is_.is_dictionary(type_):
        type_ = type_.value_type
    texts = (is_.is_string, is_.is_large_string, is_.is_string_view)
    numbers = (is_.is_integer, is_.is_floating, is_.is_boolean, is_.is_decimal)
    if any(is_such(type_) for is_such in texts):
        return "text"
    return "numeric" if any(is_such(type_) for is_such in numbers) else None


def _numbers(column: Arrow) -> FloatArray:
    """Return a numeric column in double precision, NaN where a value is missing."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    array = pc.cast(column, pa.float64(), safe=False)
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.float64)


def _as_class(value: object) -> Hashable:
    """Return a label as a class: whole numbers are the same as float or as int."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_group(value: object) -> Hashable:
    """Return the name of a group, None where it is unknown."""
    name = group_name(value)
    return group_name(None) if name == UNKNOWN else name


def _codes(column: Arrow, values: Sequence[Any], key: Key) -> IntArray:
    """Return the position of each value, `MISSING` or `UNSEEN` where it has none."""
    keys, index = _distinct(column, key)
    position_of = {None: MISSING, **_positions(values)}
    return np.array([position_of.get(k, UNSEEN) for k in keys], dtype=np.int64)[index]


def _distinct(column: Arrow, key: Key) -> Distinct:
    """Return keys of distinct values, of missing ones last, and which a row has."""
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # an older pyarrow keeps empty ones so
        column = pa.array([], column.type)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    values = column.dictionary.to_pylist()
    index = column.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    missing = group_name(None) if key is _as_group else None
    keys = [missing if v is None or v != v else key(v) for v in values]
    return [*keys, missing], index.astype(np.int64)


def _positions(values: Sequence[Any]) -> dict[Hashable, int]:
    return {value: k for k, value in enumerate(values)}


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tuples(part) for name, part in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


# The first pass


class Scan(NamedTuple):
    """What one file, or several, hold.

    Attributes
    ----------
    moments
        (3, d) number, mean and sum of squares around it, of each numeric column.
    values
        The values of each column of labels, and of each categorical one.
    cells
        Rows of each class and groups; None where a group is unknown.
    """

    moments: FloatArray
    values: tuple[frozenset[Any], ...]
    cells: Counter[Cell]

    def plus(self, other: "Scan") -> "Scan":
        """Return what both hold (Chan, Golub and LeVeque, 1979)."""
        (n, mean, square), (m, other_mean, other_square) = self.moments, other.moments
        safe, gap = np.where(n + m > 0, n + m, 1.0), other_mean - mean
        mean = mean + gap * m / safe
        square = square + other_square + gap**2 * n * m / safe
        moments = np.stack([n + m, mean, square])
        values = tuple(map(frozenset.union, self.values, other.values))
        return Scan(moments, values, self.cells + other.cells)


def _scan_all(paths: Sequence[Path], roles: Roles) -> Scan:
    # An error must reach every rank, or the others would wait for the one that has it.
    rank, n_ranks = rank_and_size()
    scans: dict[Path, Scan] = {}
    failure: FfermError | None = None
    try:
        scans = {path: _scan(path, roles) for path in paths[rank::n_ranks]}
    except FfermError as error:
        failure = error
    by_file: dict[Path, Scan] = {}
    for part, error_there in collect_ranks((scans, failure)):
        if error_there is not None:
            raise error_there
        by_file |= part
    return reduce(Scan.plus, (by_file[path] for path in paths))


def _scan(path: Path, roles: Roles) -> Scan:
    """Return what a file holds."""
    columns: list[tuple[str, Key]] = [*roles.labels]
    columns += [(name, str) for name in roles.categorical]
    none = tuple(frozenset[Any]() for _ in columns)
    total = Scan(np.zeros((3, len(roles.numeric))), none, Counter())
    with open_shard(path, roles.categorical) as file, reading(path):
        batches = file.iter_batches(SCAN_ROWS, columns=roles.columns, use_threads=False)
        for batch in batches:
            pairs = [_distinct(batch.column(name), key) for name, key in columns]
            values = tuple(frozenset(keys) - {None} for keys, _ in pairs)
            cells = _count(batch, roles, pairs)
            moments = _moments(batch, roles.numeric, path)
            total = total.plus(Scan(moments, values, cells))
            for (name, _), seen in zip(columns, total.values, strict=True):
                if len(seen) > MOST_VALUES:
                    raise InvalidInputError(
                        f"{name!r} has more than {MOST_VALUES} different values, so it "
                        "names rows. Leave it out with features=, or cut it into bands."
                    )
    n_missing = sum(n for cell, n in total.cells.items() if cell[0] is None)
    if n_missing:
        raise InvalidInputError(
            f"{path} has {n_missing} rows without a value of {roles.target!r}. Every "
            "row needs a label; drop those rows first."
        )
    return total


def _moments(batch: pa.RecordBatch, names: Sequence[str], path: Path) -> FloatArray:
    """Return the (3, d) counts, means and sums of squares of a batch."""
    if not names or not batch.num_rows:
        return np.zeros((3, len(names)))
    values = np.stack([_numbers(batch.column(name)) for name in names])  # (d, n)
    known = ~np.isnan(values)
    count = known.sum(axis=1).astype(np.float64)
    values = np.where(known, values, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = values.sum(axis=1) / np.maximum(count, 1.0)
        square = np.sum(known * (values - mean[:, None]) ** 2, axis=1)
    infinite = np.flatnonzero(~np.isfinite(square))
    if infinite.size:
        raise InvalidInputError(
            f"{path} has infinite or too large numbers in {names[infinite[0]]!r}. "
            "Numbers must be finite; leave missing ones empty."
        )
    return np.stack([count, mean, square])


def _count(batch: pa.RecordBatch, roles: Roles, pairs: list[Distinct]) -> Counter[Cell]:
    """Return the rows of each class and groups in a batch."""
    for name in roles.sensitive:
        column = batch.column(name)
        if pa.types.is_floating(column.type):
            refuse_continuous(column.to_pandas(), name)
    keys, index = zip(*pairs[: len(roles.labels)], strict=True)
    shape = tuple(map(len, keys))
    places, counts = np.unique(np.ravel_multi_index(index, shape), return_counts=True)
    cells: Counter[Cell] = Counter()
    for *at, n in zip(*np.unravel_index(places, shape), counts.tolist(), strict=True):
        cells[tuple(key[k] for key, k in zip(keys, at, strict=True))] += n
    return cells
