"""What a first pass over the shards finds, and how it turns rows into tensors."""

import json
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fferm._typing import FloatArray, IntArray
from fferm.data.groups import GroupMode
from fferm.data.rows import SMALL_GROUP
from fferm.distributed.columns import MISSING, as_class, as_group, codes, numbers
from fferm.distributed.folder import Roles, Shard
from fferm.divergences import Divergence
from fferm.errors import InvalidInputError, MissingGroupWarning
from fferm.notions import Notion
from fferm.torch.dual import DualSteps
from fferm.torch.encoding import Column
from fferm.torch.fairness_loss import FairnessLoss


class Rows(NamedTuple):
    """Encoded rows: features (n, d), class codes (n,) and groups (n,) or (n, a)."""

    x: NDArray[np.floating]
    y: IntArray
    group: IntArray


class LabelCounts(NamedTuple):
    """Labels that stand for all rows, as ``from_labels`` of a loss takes them.

    Each class and group is there ten times or as often as in the data, whichever is
    less, with weights that make up for it.
    """

    y: list[object]
    sensitive_features: dict[str, list[str | None]]
    sample_weight: FloatArray


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
            x[:, j] = np.nan_to_num((numbers(table[name]) - mean) / scale, nan=0.0)
        begin = len(self.roles.numeric)
        pairs = zip(self.roles.categorical, self.categories, strict=True)
        for name, values in pairs:
            code = codes(table[name], positions(values), str)
            known = np.flatnonzero(code >= 0)
            x[known, begin + code[known]] = 1
            begin += len(values)
        return x

    def encode(self, table: pa.Table, dtype: np.dtype[Any] | type = np.float32) -> Rows:
        """Return the rows of a table as numbers."""
        y = codes(table[self.roles.target], positions(self.classes), as_class)
        self._refuse(y < 0, self.roles.target)
        found = []
        for name, groups in zip(self.roles.sensitive, self.groups, strict=True):
            code = codes(table[name], positions(groups), as_group)
            self._refuse(code < MISSING, name)
            found.append(np.append(Column(name, groups).values, MISSING)[code])
        group = np.stack(found, axis=1)
        return Rows(
            self.features(table, dtype), y, group[:, 0] if len(found) == 1 else group
        )

    def labels(self) -> LabelCounts:
        """Return labels that stand for all rows: arguments of a loss."""
        copies = np.minimum(self.counts, SMALL_GROUP)
        weight = np.repeat(np.array(self.counts) / copies, copies)
        cells = np.repeat(np.array(self.cells), copies, axis=0)
        named = {
            name: [groups[k] if k >= 0 else None for k in cells[:, 1 + a]]
            for a, (name, groups) in enumerate(
                zip(self.roles.sensitive, self.groups, strict=True)
            )
        }
        return LabelCounts([self.classes[j] for j in cells[:, 0]], named, weight)

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
        self._warn_of_unknown()
        return loss

    def to_json(self) -> str:
        """Return all of it but the folder as text, for `from_json`."""
        return json.dumps({**asdict(self), "folder": None}, indent=1)

    @classmethod
    def from_json(cls, text: str, folder: str | Path) -> "ShardSummary":
        """Return what `to_json` wrote, for shards that are now in ``folder``."""
        read = json.loads(text)
        roles = {name: _tuples(value) for name, value in read.pop("roles").items()}
        shards = tuple(Shard(**_tuples_in(shard)) for shard in read.pop("shards"))
        read["folder"] = Path(folder)
        return cls(shards=shards, roles=Roles(**roles), **_tuples_in(read))

    def _refuse(self, is_strange: NDArray[np.bool_], name: str) -> None:
        if is_strange.any():
            raise InvalidInputError(
                f"{name!r} holds in {int(is_strange.sum())} rows what the first pass "
                "did not see. The shards changed since; summarize them again."
            )

    def _warn_of_unknown(self) -> None:
        unknown = np.array(self.cells)[:, 1:] < 0
        for name, is_unknown in zip(self.roles.sensitive, unknown.T, strict=True):
            n_missing = int(np.array(self.counts)[is_unknown].sum())
            if n_missing:
                warnings.warn(
                    f"{n_missing} of {self.n_rows} rows have no value of {name}. They "
                    "are left out of the penalty.",
                    MissingGroupWarning,
                    stacklevel=3,
                )


def positions(values: Sequence[Any]) -> dict[Hashable, int]:
    """Return the position of each value."""
    return {value: k for k, value in enumerate(values)}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _tuples_in(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _tuples(value) for name, value in fields.items()}
