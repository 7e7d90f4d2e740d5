"""The first pass over a folder of shards: one reading, in constant memory."""

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from fferm.data.groups import natural_order
from fferm.distributed.columns import MISSING
from fferm.distributed.folder import (
    Roles,
    Shard,
    assign_roles,
    check_same,
    describe_shard,
    find_shards,
)
from fferm.distributed.scan import Scan, joined, scan
from fferm.distributed.summary import ShardSummary, positions
from fferm.errors import FfermError, InvalidInputError
from fferm.torch.ranks import collect_ranks, rank_and_size


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
        raise InvalidInputError("sensitive names no column. Expected at least one.")
    paths = find_shards(folder)
    described = [describe_shard(path, folder) for path in paths]
    first = described[0][1]
    roles = assign_roles(
        first, target, sensitive, features, drop_sensitive, paths[0].name
    )
    wanted = roles.columns
    for shard, schema in described[1:]:
        names = schema.names if features is None else wanted
        check_same(schema, first, wanted, names, (shard.name, described[0][0].name))
    found = joined(_scan_all(paths, roles))
    return _summary(folder, tuple(shard for shard, _ in described), roles, found)


def _scan_all(paths: Sequence[Path], roles: Roles) -> list[Scan]:
    # An error must reach every rank, or the others would wait for the one that has it.
    rank, n_ranks = rank_and_size()
    found: dict[int, Scan] = {}
    failure: FfermError | None = None
    try:
        for i in range(rank, len(paths), n_ranks):
            found[i] = scan(paths[i], roles)
    except FfermError as error:
        failure = error
    by_file: dict[int, Scan] = {}
    for part, error_there in collect_ranks((found, failure)):
        if error_there is not None:
            raise error_there
        by_file |= part
    return [by_file[i] for i in range(len(paths))]


def _summary(
    folder: Path, shards: tuple[Shard, ...], roles: Roles, found: Scan
) -> ShardSummary:
    classes = sorted({cell[0] for cell in found.cells}, key=_class_order)
    if len(classes) < 2:
        raise InvalidInputError(
            f"{folder} holds {sum(found.cells.values())} rows, and {len(classes)} "
            f"values of {roles.target!r}. Expected rows of at least two classes."
        )
    groups = [
        sorted(
            {str(cell[1 + a]) for cell in found.cells if cell[1 + a] is not None},
            key=natural_order,
        )
        for a in range(len(roles.sensitive))
    ]
    places = [positions(classes), *({**positions(g), None: MISSING} for g in groups)]
    cells = sorted(
        (tuple(place[key] for place, key in zip(places, cell, strict=True)), n)
        for cell, n in found.cells.items()
    )
    return ShardSummary(
        folder,
        shards,
        roles,
        tuple(found.moments.mean.tolist()),
        tuple(found.moments.scale.tolist()),
        tuple(tuple(sorted(map(str, values))) for values in found.categories),
        tuple(classes),
        tuple(map(tuple, groups)),
        tuple(cell for cell, _ in cells),
        tuple(n for _, n in cells),
    )


def _class_order(label: Hashable) -> tuple[bool, Any]:
    return isinstance(label, str), label
