"""The files of a folder of shards, and what all of them must have."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fferm.distributed.columns import kind_of
from fferm.errors import InvalidInputError, InvalidTypeError

# Bytes that a column chunk is read in: small, for many are open at once.
READ_BYTES = 1 << 18


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


def find_shards(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder and below, or the one file it is."""
    if folder.is_file():
        return [folder]
    found = sorted(
        path
        for path in folder.rglob("*.parquet")
        if not path.name.startswith(("_", "."))
    )
    if not found:
        raise InvalidInputError(
            f"{folder} {'holds no' if folder.is_dir() else 'is no folder of'} Parquet "
            "files. Expected a folder of files named *.parquet, or one such file."
        )
    return found


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


def describe_shard(path: Path, folder: Path) -> tuple[Shard, pa.Schema]:
    """Return the sizes and the schema in the footer of a file."""
    with open_shard(path) as file:
        sizes = tuple(
            file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)
        )
        name = path.name if path == folder else path.relative_to(folder).as_posix()
        return Shard(name, sizes), file.schema_arrow


def assign_roles(
    schema: pa.Schema,
    target: str,
    sensitive: Sequence[str],
    features: Sequence[str] | None,
    drop_sensitive: bool,
    name: str,
) -> Roles:
    """Return what each column of the first file is for."""
    if features is None:
        features = [column for column in schema.names if column != target]
    dropped = set(sensitive) if drop_sensitive else set()
    seen = [column for column in features if column not in dropped]
    for column in (target, *sensitive, *seen):
        _check_column(schema, column, name)
    if not seen:
        raise InvalidInputError(
            f"{name} leaves no column for the model to see. Expected features beside "
            f"{target!r} and {', '.join(map(repr, sensitive))}."
        )
    kinds = {column: kind_of(schema.field(column).type) for column in seen}
    return Roles(
        target,
        tuple(sensitive),
        tuple(column for column in seen if kinds[column] == "numeric"),
        tuple(column for column in seen if kinds[column] == "text"),
    )


def check_same(
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
        said = f"lacks {lacking[0]!r}" if lacking else f"holds {extra[0]!r} too"
        raise InvalidInputError(
            f"{name} {said}, unlike {first_name}. Expected the same columns in every "
            "shard; name those to be read with features=, or write the file again."
        )
    for column in wanted:
        here, there = schema.field(column).type, first.field(column).type
        if kind_of(here) != kind_of(there):
            raise InvalidInputError(
                f"{name} holds {column!r} as {here}, {first_name} as {there}. "
                "Expected one type in every shard; write the file again."
            )


def _check_column(schema: pa.Schema, column: str, name: str) -> None:
    if schema.names.count(column) != 1:
        raise InvalidInputError(
            f"{name} has no column {column!r}, or two. Its columns: "
            f"{', '.join(schema.names)}."
        )
    type_ = schema.field(column).type
    if kind_of(type_) is None:
        raise InvalidTypeError(
            f"{name} holds {column!r} as {type_}. Expected numbers, booleans or "
            "strings; turn it into one of these, or leave it out with features=."
        )
