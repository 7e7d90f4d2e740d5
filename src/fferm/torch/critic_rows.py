"""What a critic reads: predictions on one side, sensitive values on the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.groups import (
    Attribute,
    encode_column,
    is_continuous,
    partition,
    read_numbers,
    split_columns,
)
from fferm.data.validate import encode_weight
from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    MissingGroupWarning,
    warn_user,
)
from fferm.notions import Labels, Notion, Strata
from fferm.torch.critic import KindFeatures, NumberFeatures
from fferm.torch.encoding import (
    Column,
    Encoding,
    count_rows,
    plain,
    read_classes,
    stratum_table,
    with_control,
)
from fferm.torch.numbers import as_numbers, read_outputs
from fferm.torch.outputs import Outputs, penalized_prob
from fferm.torch.rows import RowReader


@dataclass(frozen=True)
class Prediction:
    """The side of predictions: shares of classes, or numbers.

    Attributes
    ----------
    n_classes
        0 where predictions are numbers.
    outputs
        What the loss is called with.
    centre, scale
        Of numbers.
    """

    n_classes: int
    outputs: Outputs
    centre: float = 0.0
    scale: float = 1.0

    @property
    def is_discrete(self) -> bool:
        """Whether predictions are classes."""
        return self.n_classes > 0

    def read(self, output: Tensor) -> Tensor:
        """Return (n, n_classes) probabilities, or (n,) numbers."""
        if not self.is_discrete:
            return as_numbers(output)
        return penalized_prob(output, self.n_classes, 1.0, self.outputs, True)

    def features(self, width: int, rank: int) -> nn.Module:
        """Return new features of this side."""
        if self.is_discrete:
            return KindFeatures(self.n_classes, rank)
        centre, scale = torch.tensor([[self.centre], [self.scale]]).double()
        return NumberFeatures(centre, scale, width, rank)


@dataclass(frozen=True)
class Side:
    """The side of sensitive values: groups, or numbers and groups as columns.

    Attributes
    ----------
    columns
        Each with its groups; None where it is numbers.
    groups
        Of the intersection, where all columns are discrete, else empty.
    centre, scale
        (q,) of the numbers, one-hot groups included.
    """

    columns: tuple[tuple[str, tuple[str, ...] | None], ...]
    groups: tuple[str, ...]
    centre: FloatArray
    scale: FloatArray

    @property
    def is_discrete(self) -> bool:
        """Whether there are groups, and no numbers."""
        return bool(self.groups)

    def encode(self, sensitive_features: Table) -> Tensor:
        """Return (n,) group codes, or (n, q) numbers; -1 or NaN where missing."""
        width = self.centre.size
        if isinstance(sensitive_features, Tensor):
            table = sensitive_features
            if self.is_discrete and not table.is_floating_point() and table.dim() == 1:
                return table
            if not self.is_discrete and table.dim() == 2 and table.shape[1] == width:
                return table.double()
        parts = split_columns(plain(sensitive_features))
        if len(parts) != len(self.columns):
            raise InvalidInputError(
                f"sensitive_features has {len(parts)} columns. Expected "
                f"{len(self.columns)}, as in training."
            )
        values = [part for _, part in parts]
        if not self.is_discrete:
            return torch.from_numpy(_numbers(self.columns, values))
        names = _joined([name for name, _ in self.columns], values)
        unseen = sorted({name for name in names if name} - set(self.groups))
        if unseen:
            raise InvalidInputError(
                f"The group {unseen[0]!r} came, which training did not have. Expected "
                f"one of {', '.join(self.groups)}."
            )
        return torch.from_numpy(_codes(self.groups, names))

    def known(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """Return encoded values with gaps filled, and (n,) whether there were none."""
        if self.is_discrete:
            return s.clamp(min=0), s >= 0
        return s.nan_to_num(), ~s.isnan().any(dim=1)

    def features(self, width: int, rank: int) -> nn.Module:
        """Return new features of this side."""
        if self.is_discrete:
            return KindFeatures(len(self.groups), rank)
        centre, scale = torch.from_numpy(self.centre), torch.from_numpy(self.scale)
        return NumberFeatures(centre, scale, width, rank)


class CriticRows(nn.Module):
    """Reads batches, and knows the constants of the training data.

    Attributes
    ----------
    prediction, attribute
        The two sides.
    n_rows
        Of the training data.
    share, factor
        (R,) share of each stratum, and ``w_r / rho_r``.
    prior
        (R, K) group weights in each stratum; empty for numbers.
    """

    def __init__(
        self,
        prediction: Prediction,
        attribute: Side,
        reader: RowReader,
        share: FloatArray,
        factor: FloatArray,
        prior: FloatArray,
        n_rows: int,
    ) -> None:
        super().__init__()
        self.prediction, self.attribute, self.reader = prediction, attribute, reader
        self.share, self.factor = share.tolist(), factor.tolist()
        self.n_rows = n_rows
        self.register_buffer("prior", torch.from_numpy(prior))

    prior: Tensor

    @property
    def n_strata(self) -> int:
        """Number of strata."""
        return len(self.share)

    def places(
        self, n: int, y: Table, control: Table, sample_weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return (n,) strata, and weights of mean 1 over the training rows."""
        stratum = self.reader.strata(y, control, n, torch.device("cpu"))
        weight = self.reader.weights(sample_weight, n)
        if weight is None:
            weight = torch.ones(n, dtype=torch.float64)
        return stratum, weight


def read_sides(
    y: Table,
    sensitive_features: Table,
    notion: Notion,
    classes: Sequence[object] | None,
    sample_weight: Table,
    outputs: Outputs,
    continuous: Sequence[str] | str,
) -> CriticRows:
    """Return what a critic reads, from training labels."""
    sensitive_features = plain(sensitive_features)
    n_rows = count_rows(sensitive_features)
    outputs = read_outputs(y, outputs)
    weight = encode_weight(plain(sample_weight), n_rows)
    prediction, labels = _read_prediction(y, outputs, classes, n_rows)
    if not prediction.is_discrete and notion.needs_labels:
        raise InvalidParameterError(
            f"{notion.name} conditions on a label, and the model predicts numbers. Use "
            "demographic_parity, or ConditionalParity with one value per row."
        )
    labels = with_control(labels, notion)
    strata = notion.strata(labels)
    attribute, code = _read_attribute(sensitive_features, n_rows, continuous)
    is_known = _is_known(code)
    if not is_known.all():
        names = " × ".join(name for name, _ in attribute.columns)
        n_missing = int(np.sum(~is_known))
        warn_user(
            f"{n_missing} of {n_rows} rows have no value of {names}. They are left out "
            "of the penalty.",
            MissingGroupWarning,
        )
    # Names of classes stand for the outputs where the strata do not look at labels.
    known = labels.classes or ("0", "1")
    labels = Labels(n_rows, labels.y, known, labels.control, labels.control_names)
    control = (
        None if labels.control is None else Column("control", labels.control_names)
    )
    encoding = Encoding(
        (), (), None, known, strata.names, stratum_table(labels, notion, strata.code),
        control,
    )  # fmt: skip
    # Rows without a value are part of the batches, and of no mean.
    counted = np.where(is_known, weight, 0.0)
    share, factor, prior = _weights(
        notion, strata, counted, float(weight.sum()), code, len(attribute.groups)
    )
    reader = RowReader(encoding, 1.0, outputs, float(weight.mean()), True)
    return CriticRows(prediction, attribute, reader, share, factor, prior, n_rows)


def _weights(
    notion: Notion,
    strata: Strata,
    weight: FloatArray,
    total: float,
    code: Table,
    n_groups: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    # Share of each stratum, w_r / rho_r, and the weights of groups within each.
    n_strata = len(strata.names)
    mass = np.array([weight[strata.code == r].sum() for r in range(n_strata)])
    share, safe = mass / total, np.where(mass > 0, mass, 1.0)
    factor = (mass > 0) * total / safe
    if notion.weighting == "frequency":
        factor = (mass > 0) / share.sum()
    prior = np.zeros((n_strata, n_groups))
    for r in range(n_strata if n_groups else 0):
        inside = (strata.code == r) & (code >= 0)
        prior[r] = np.bincount(code[inside], weight[inside], n_groups) / safe[r]
    return share, np.asarray(factor, dtype=np.float64), prior


def _read_prediction(
    y: Table, outputs: Outputs, classes: Sequence[object] | None, n_rows: int
) -> tuple[Prediction, Labels]:
    if outputs != "numbers":
        labels = read_classes(plain(y), n_rows, classes)
        return Prediction(len(labels.classes), outputs), labels
    if y is None:
        return Prediction(0, outputs), Labels(n_rows)
    values = np.asarray(plain(y), dtype=np.float64)
    scale = float(values.std()) or 1.0
    return Prediction(0, outputs, float(values.mean()), scale), Labels(n_rows)


def _read_attribute(
    sensitive_features: Table, n_rows: int, continuous: Sequence[str] | str
) -> tuple[Side, Table]:
    parts = split_columns(sensitive_features)
    names = [name for name, _ in parts]
    wanted = [] if isinstance(continuous, str) else list(continuous)
    strange = [name for name in wanted if name not in names]
    if strange:
        raise InvalidParameterError(
            f"continuous names {strange[0]!r}, which is no sensitive column. Columns: "
            f"{', '.join(names)}."
        )
    kinds: list[tuple[str, tuple[str, ...] | None]] = []
    for name, values in parts:
        is_number = name in wanted
        if isinstance(continuous, str):
            is_number = is_continuous(pd.Series(np.asarray(values)))
        found = None if is_number else encode_column(values, name, n_rows).groups
        kinds.append((name, found))
    values = [part for _, part in parts]
    if all(groups is not None for _, groups in kinds):
        joined = _joined(names, values)
        groups = tuple(sorted({name for name in joined if name is not None}))
        side = Side(tuple(kinds), groups, np.zeros(0), np.ones(0))
        return side, _codes(groups, joined)
    table = _numbers(tuple(kinds), values)
    whole = table[_is_known(table)]
    if len(whole) == 0:
        raise InvalidInputError(
            f"No row has a value in each of {', '.join(names)}. Check how "
            "sensitive_features was read."
        )
    deviation = whole.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    return Side(tuple(kinds), (), whole.mean(axis=0), scale), table


def _is_known(values: Table) -> NDArray[np.bool_]:
    # Of group codes, or of rows of numbers.
    if values.ndim == 1:
        return np.asarray(values >= 0)
    return np.asarray(~np.isnan(values).any(axis=1))


def _codes(groups: Sequence[str], names: Sequence[str | None]) -> IntArray:
    position: dict[str | None, int] = {group: k for k, group in enumerate(groups)}
    return np.array([position.get(name, -1) for name in names], dtype=np.int64)


def _joined(names: Sequence[str], values: Sequence[Table]) -> list[str | None]:
    columns: list[Attribute] = [
        encode_column(part, name, len(part))
        for name, part in zip(names, values, strict=True)
    ]
    (joint,) = partition(columns, "intersection")
    return [*map([*joint.groups, None].__getitem__, joint.code)]


def _numbers(
    columns: tuple[tuple[str, tuple[str, ...] | None], ...], values: Sequence[Table]
) -> FloatArray:
    found = []
    for (name, groups), part in zip(columns, values, strict=True):
        if groups is None:
            found.append(read_numbers(pd.Series(np.asarray(part)), name)[:, None])
            continue
        column = encode_column(part, name, len(part))
        unseen = [group for group in column.groups if group not in groups]
        if unseen:
            raise InvalidInputError(
                f"{name} holds {unseen[0]!r}, which training did not. Expected one of "
                f"{', '.join(groups)}."
            )
        one_hot = np.vstack([np.eye(len(groups)), np.full(len(groups), np.nan)])
        place = np.array([*(groups.index(group) for group in column.groups), -1])
        found.append(one_hot[place[column.code]])
    return np.concatenate(found, axis=1)
