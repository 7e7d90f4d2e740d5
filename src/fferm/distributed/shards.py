"""A folder of Parquet shards: its files, one pass over them, and rows as numbers.

`summarize` reads every file once, in constant memory. What each file holds is added up
in the order of the files, so the sums are the same to the last bit whichever ranks read
them.
"""

import json
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fferm._typing import FloatArray, IntArray
from fferm.data.groups import GroupMode, group_name, natural_order, refuse_continuous
from fferm.data.rows import SMALL_GROUP
from fferm.divergences import Divergence
from fferm.errors import (
    FfermError,
    InvalidInputError,
    InvalidTypeError,
    MissingGroupWarning,
    warn_user,
)
from fferm.notions import Notion
from fferm.torch.distributed import collect_ranks, rank_and_size
from fferm.torch.losses import DualSteps, FairnessLoss
from fferm.torch.reader import UNKNOWN, Column

Key = Callable[[object], Hashable]
Cell = tuple[Hashable, ...]
# A column, what its values count as, and their numbers, in the order of appearance.
Vocabulary = tuple[str, Key, dict[Hashable, int]]

# Bytes that a column chunk is read in: small, because many are open at once.
READ_BYTES = 1 << 18
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
class Shard:
    """One file: its name within the folder, and the rows of each of its row groups."""

    name: str
    row_groups: tuple[int, ...]


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


@dataclass(frozen=True)
class ShardSummary:
    """What one pass over a folder of shards finds; made by `summarize`.

    Attributes
    ----------
    folder
        Where the shards are.
    shards
        Name and row groups of each.
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
    shards: tuple[Shard, ...]
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

    def path_of(self, shard: Shard) -> Path:
        """Return where a shard is."""
        return self.folder if self.folder.is_file() else self.folder / shard.name

    def features(
        self, table: pa.Table, dtype: np.dtype[Any] | type = np.float32
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
            code = _codes(table[name], _positions(values), str)
            known = np.flatnonzero(code >= 0)
            x[known, begin + code[known]] = 1
            begin += len(values)
        return x

    def encode(
        self, table: pa.Table, dtype: np.dtype[Any] | type = np.float32
    ) -> EncodedRows:
        """Return the rows of a table as numbers."""
        y = _codes(table[self.roles.target], _positions(self.classes), _as_class)
        _refuse_unseen(y < 0, self.roles.target)
        columns = []
        for name, groups in zip(self.roles.sensitive, self.groups, strict=True):
            code = _codes(table[name], _positions(groups), _as_group)
            _refuse_unseen(code < MISSING, name)
            columns.append(np.append(Column(name, groups).values, MISSING)[code])
        group = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        return EncodedRows(self.features(table, dtype), y, group)

    def no_rows(self, dtype: np.dtype[Any] | type) -> EncodedRows:
        """Return encoded rows, none of them."""
        shape = (0,) if len(self.groups) == 1 else (0, len(self.groups))
        return EncodedRows(
            np.empty((0, len(self.feature_names)), dtype=dtype),
            np.empty(0, dtype=np.int64),
            np.empty(shape, dtype=np.int64),
        )

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
        labels = self.labels()
        with warnings.catch_warnings():
            # It would count the rows that stand for others.
            warnings.simplefilter("ignore", MissingGroupWarning)
            loss = FairnessLoss.from_labels(
                labels.y,
                labels.sensitive_features,
                divergence=divergence,
                notion=notion,
                sharpness=sharpness,
                groups=groups,
                classes=self.classes,
                sample_weight=labels.sample_weight,
                dual_steps=dual_steps,
            )
        is_unknown = np.array(self.cells)[:, 1:] < 0
        n_unknown = np.array(self.counts) @ is_unknown
        for name, n_missing in zip(self.roles.sensitive, n_unknown, strict=True):
            if n_missing:
                warn_user(
                    f"{n_missing} of {self.n_rows} rows have no value of {name}. They "
                    "are left out of the penalty.",
                    MissingGroupWarning,
                )
        return loss

    def to_json(self) -> str:
        """Return all of it but the folder as text, for `from_json`."""
        return json.dumps({**asdict(self), "folder": None}, indent=1)

    @classmethod
    def from_json(cls, text: str, folder: str | Path) -> Self:
        """Return what `to_json` wrote, for shards that are now in ``folder``."""
        fields = {name: _tuples(value) for name, value in json.loads(text).items()}
        fields["folder"] = Path(folder)
        fields["shards"] = tuple(
            Shard(shard["name"], tuple(shard["row_groups"]))
            for shard in fields["shards"]
        )
        roles = fields["roles"].items()
        fields["roles"] = Roles(**{name: _tuples(value) for name, value in roles})
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
    first = schemas[0]
    if features is None:
        seen = [column for column in first.names if column != target]
    else:
        seen = list(features)
    if drop_sensitive:
        seen = [column for column in seen if column not in sensitive]
    roles = _assign_roles(first, target, sensitive, seen, shards[0].name)
    for shard, schema in zip(shards[1:], schemas[1:], strict=True):
        names = schema.names if features is None else roles.columns
        _check_same(schema, first, roles.columns, names, (shard.name, shards[0].name))
    paths = [folder if folder.is_file() else folder / shard.name for shard in shards]
    return _summary(folder, shards, roles, reduce(Scan.plus, _scan_all(paths, roles)))


# The files


def find_shards(folder: Path) -> tuple[tuple[Shard, ...], list[pa.Schema]]:
    """Return the Parquet files of a folder and below, or the one file it is."""
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*.parquet"))
    paths = [path for path in paths if not path.name.startswith(("_", "."))]
    if not paths:
        problem = "has no Parquet files" if folder.is_dir() else "is not a folder"
        raise InvalidInputError(
            f"{folder} {problem}. Pass a folder of files named *.parquet, or one such "
            "file."
        )
    shards, schemas = [], []
    for path in paths:
        with open_shard(path) as file:
            groups = map(file.metadata.row_group, range(file.num_row_groups))
            sizes = tuple(group.num_rows for group in groups)
            name = path.name if path == folder else path.relative_to(folder).as_posix()
            shards.append(Shard(name, sizes))
            schemas.append(file.schema_arrow)
    return tuple(shards), schemas


def open_shard(path: Path, categorical: Sequence[str] = ()) -> pq.ParquetFile:
    """Return an open file, read in small pieces; categories by their numbers in it."""
    try:
        return pq.ParquetFile(
            path,
            buffer_size=READ_BYTES,
            pre_buffer=False,
            read_dictionary=list(categorical),
        )
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInputError(
            f"{path} could not be read as Parquet ({error}). Write it again, or take "
            "it out of the folder."
        ) from error


def _assign_roles(
    schema: pa.Schema,
    target: str,
    sensitive: Sequence[str],
    features: Sequence[str],
    name: str,
) -> Roles:
    """Return what each column of the first file is for."""
    kinds = {}
    for column in (target, *sensitive, *features):
        if schema.names.count(column) != 1:
            raise InvalidInputError(
                f"{name} has no column {column!r}, or two. Its columns: "
                f"{', '.join(schema.names)}."
            )
        type_ = schema.field(column).type
        kinds[column] = _kind_of(type_)
        if kinds[column] is None:
            raise InvalidTypeError(
                f"{name} has {column!r} as {type_}. Columns must hold numbers, "
                "booleans or strings; convert it, or leave it out with features=."
            )
    if not features:
        raise InvalidInputError(
            f"{name} has no column for the model to see. It needs features beside "
            f"{target!r} and {', '.join(map(repr, sensitive))}."
        )
    numeric = tuple(column for column in features if kinds[column] == "numeric")
    text = tuple(column for column in features if kinds[column] == "text")
    return Roles(target, tuple(sensitive), numeric, text)


def _check_same(
    schema: pa.Schema,
    first: pa.Schema,
    wanted: Sequence[str],
    names: Sequence[str],
    files: tuple[str, str],
) -> None:
    """Refuse a file whose columns, among ``names``, are not the wanted of the first."""
    name, first_name = files
    lacking = [column for column in wanted if column not in schema.names]
    extra = [column for column in names if column not in wanted]
    if lacking or extra:
        difference = f"lacks {lacking[0]!r}" if lacking else f"also has {extra[0]!r}"
        raise InvalidInputError(
            f"{name} {difference}, unlike {first_name}. All shards need the same "
            "columns; name those to read with features=, or write the file again."
        )
    for column in wanted:
        here, there = schema.field(column).type, first.field(column).type
        if _kind_of(here) != _kind_of(there):
            raise InvalidInputError(
                f"{name} has {column!r} as {here}, {first_name} as {there}. All shards "
                "need the same types; write the file again."
            )


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


def _numbers(column: pa.ChunkedArray | pa.Array) -> FloatArray:
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
    return None if name == UNKNOWN else name


def _codes(
    column: pa.ChunkedArray | pa.Array, position_of: Mapping[Hashable, int], key: Key
) -> IntArray:
    """Return the position of each value, `MISSING` or `UNSEEN` where it has none."""
    keys, index = _distinct(column, key)
    code = [MISSING if k is None else position_of.get(k, UNSEEN) for k in keys]
    return np.array([*code, MISSING], dtype=np.int64)[index]


def _distinct(
    column: pa.ChunkedArray | pa.Array, key: Key
) -> tuple[list[Hashable], IntArray]:
    """Return the keys of distinct values (None: missing), and which one a row has."""
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # an older pyarrow keeps empty ones so
        column = pa.array([], column.type)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    values = column.dictionary.to_pylist()
    index = column.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    keys = [None if v is None or v != v else key(v) for v in values]
    return keys, index.astype(np.int64)


def _positions(values: Sequence[Any]) -> dict[Hashable, int]:
    return {value: k for k, value in enumerate(values)}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _refuse_unseen(is_unseen: NDArray[np.bool_], name: str) -> None:
    if is_unseen.any():
        raise InvalidInputError(
            f"{name!r} has values in {int(is_unseen.sum())} rows that the first pass "
            "did not see. The shards changed since; summarize them again."
        )


# The first pass


@dataclass(frozen=True)
class Scan:
    """What one file, or several, hold.

    Attributes
    ----------
    moments
        (3, d) number, mean and sum of squares around it, of each numeric column.
    categories
        The values of each categorical column.
    cells
        Rows of each class and groups; None where a group is unknown.
    """

    moments: FloatArray
    categories: tuple[frozenset[Hashable], ...]
    cells: Counter[Cell]

    def plus(self, other: "Scan") -> "Scan":
        """Return what both hold (Chan, Golub and LeVeque, 1979)."""
        (n, mean, square), (m, other_mean, other_square) = self.moments, other.moments
        safe, gap = np.where(n + m > 0, n + m, 1.0), other_mean - mean
        mean = mean + gap * m / safe
        square = square + other_square + gap**2 * n * m / safe
        pairs = zip(self.categories, other.categories, strict=True)
        categories = tuple(one | another for one, another in pairs)
        moments = np.stack([n + m, mean, square])
        return Scan(moments, categories, self.cells + other.cells)

    @property
    def scale(self) -> FloatArray:
        """Standard deviation; 1 where a column does not vary."""
        count, mean, square = self.moments
        scale = np.sqrt(square / np.where(count > 0, count, 1.0))
        # Rounding leaves a constant column with a little spread.
        return np.where(scale > 1e-12 * np.maximum(np.abs(mean), 1e-30), scale, 1)


def _learn(
    batch: pa.RecordBatch, name: str, key: Key, position_of: dict[Hashable, int]
) -> IntArray:
    """Return the number of each value of a column, after numbering the new ones."""
    keys, index = _distinct(batch.column(name), key)
    for value in keys:
        if value is not None:
            position_of.setdefault(value, len(position_of))
    if len(position_of) > MOST_VALUES:
        raise InvalidInputError(
            f"The column {name!r} has more than {MOST_VALUES} different values, so it "
            "names rows. Leave it out with features=, or cut it into bands."
        )
    code = [MISSING if value is None else position_of[value] for value in keys]
    return np.array([*code, MISSING], dtype=np.int64)[index]


def _scan_all(paths: Sequence[Path], roles: Roles) -> list[Scan]:
    # An error must reach every rank, or the others would wait for the one that has it.
    rank, n_ranks = rank_and_size()
    scans: dict[int, Scan] = {}
    failure: FfermError | None = None
    try:
        for i in range(rank, len(paths), n_ranks):
            scans[i] = _scan(paths[i], roles)
    except FfermError as error:
        failure = error
    by_file: dict[int, Scan] = {}
    for part, error_there in collect_ranks((scans, failure)):
        if error_there is not None:
            raise error_there
        by_file |= part
    return [by_file[i] for i in range(len(paths))]


def _scan(path: Path, roles: Roles) -> Scan:
    """Return what a file holds."""
    texts: list[Vocabulary] = [(name, str, {}) for name in roles.categorical]
    labels: list[Vocabulary] = [(roles.target, _as_class, {})]
    labels += [(name, _as_group, {}) for name in roles.sensitive]
    none = tuple(frozenset[Hashable]() for _ in texts)
    total = Scan(np.zeros((3, len(roles.numeric))), none, Counter())
    with open_shard(path, roles.categorical) as file:
        batches = file.iter_batches(SCAN_ROWS, columns=roles.columns, use_threads=False)
        for batch in batches:
            for vocabulary in texts:
                _learn(batch, *vocabulary)
            moments = _moments(batch, roles.numeric, path)
            total = total.plus(Scan(moments, none, _count(batch, roles, labels, path)))
    categories = tuple(frozenset(position_of) for _, _, position_of in texts)
    return Scan(total.moments, categories, total.cells)


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


def _count(
    batch: pa.RecordBatch, roles: Roles, labels: Sequence[Vocabulary], path: Path
) -> Counter[Cell]:
    """Return the rows of each class and groups in a batch."""
    for name in roles.sensitive:
        column = batch.column(name)
        if pa.types.is_floating(column.type):
            refuse_continuous(column.to_pandas(), name)
    codes = np.stack([_learn(batch, *vocabulary) for vocabulary in labels])
    n_missing = int(np.sum(codes[0] < 0))
    if n_missing:
        raise InvalidInputError(
            f"{path} has {n_missing} rows without a value of {roles.target!r}. Every "
            "row needs a label; drop those rows first."
        )
    keys = [[None, *position_of] for _, _, position_of in labels]
    shape = tuple(map(len, keys))
    cells, counts = np.unique(
        np.ravel_multi_index(tuple(codes + 1), shape), return_counts=True
    )
    by_column = zip(keys, np.unravel_index(cells, shape), strict=True)
    names = zip(*([key[k] for k in code] for key, code in by_column), strict=True)
    return Counter(dict(zip(names, counts.tolist(), strict=True)))


def _summary(
    folder: Path, shards: tuple[Shard, ...], roles: Roles, scan: Scan
) -> ShardSummary:
    columns = list(zip(*scan.cells, strict=True)) or [()] * (1 + len(roles.sensitive))
    classes = sorted(set(columns[0]), key=lambda label: (isinstance(label, str), label))
    if len(classes) < 2:
        raise InvalidInputError(
            f"{folder} has {sum(scan.cells.values())} rows and {len(classes)} values "
            f"of {roles.target!r}. Training needs rows of at least two classes."
        )
    groups = [
        sorted({str(name) for name in column if name is not None}, key=natural_order)
        for column in columns[1:]
    ]
    places = [_positions(classes), *({**_positions(g), None: MISSING} for g in groups)]
    cells = sorted(
        (tuple(place[key] for place, key in zip(places, cell, strict=True)), n)
        for cell, n in scan.cells.items()
    )
    return ShardSummary(
        folder,
        shards,
        roles,
        tuple(scan.moments[1].tolist()),
        tuple(scan.scale.tolist()),
        tuple(tuple(sorted(map(str, values))) for values in scan.categories),
        tuple(classes),
        tuple(map(tuple, groups)),
        *zip(*cells, strict=True),
    )
