"""Reads a batch: which probabilities the penalty sees, and in which cells they count.

A batch holds one integer per sensitive column. Where the values of a column are whole
numbers they stand for themselves; other values are numbered, and `Column.encode` turns
them into their numbers. -1 and NaN mean that the group is unknown. Nothing here waits
for a GPU: shapes are checked always, values only on the CPU.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from fferm._typing import IntArray, Table
from fferm.data.groups import (
    Attribute,
    GroupMode,
    assign,
    band_names,
    column_kind,
    encode_column,
    encode_sensitive,
    group_name,
    missing_code,
    number_groups,
    partition,
    quantile_edges,
    split_columns,
)
from fferm.data.rows import Rows, add_control, check_aligned, warn_of_gaps
from fferm.data.validate import (
    SUM_TOLERANCE,
    OneOf,
    check_number,
    check_params,
    encode_labels,
    encode_weight,
)
from fferm.errors import InvalidInputError, InvalidParameterError, InvalidTypeError
from fferm.notions import Labels, Notion, Strata
from fferm.penalty.dual import group_ends, place_rows
from fferm.penalty.objective import Objective, Penalty
from fferm.penalty.soft_bins import SoftBins, make_bins

GroupWeighting = Literal["share", "equal"]
GROUP_WEIGHTS = OneOf(("share", "equal"))
Outputs = Literal["auto", "logits", "probabilities", "numbers"]

# What stands for an unknown group, in data and in batches.
UNKNOWN = "-1"
# Whole numbers are looked up in a table, which must not be longer than this.
MOST_WHOLE_NUMBERS = 100_000
# Rows of half precision sum to 1 up to this.
HALF_TOLERANCE = 1e-2


class Column(nn.Module):
    """The groups of one column, and the whole number that stands for each.

    Parameters
    ----------
    name, groups
        The column, and its groups.
    edges
        Where the bands of a continuous column meet, which are its groups.

    Attributes
    ----------
    values
        (n_groups,) whole numbers: the groups themselves, or their positions.
    """

    def __init__(
        self, name: str, groups: tuple[str, ...], edges: tuple[float, ...] | None = None
    ) -> None:
        super().__init__()
        self.name, self.groups, self.edges = name, groups, edges
        self.missing = missing_code(groups)
        try:
            values = np.array([int(group) for group in groups], dtype=np.int64)
        except (ValueError, OverflowError):
            values = np.arange(len(groups))
        if np.ptp(values) >= MOST_WHOLE_NUMBERS:
            raise InvalidInputError(
                f"{name} contains {values.min()} to {values.max()}, too far apart for "
                "a table. Number the groups 0, 1, 2..., or use strings."
            )
        self.values, self.low = values, int(values.min())
        table = np.full(int(np.ptp(values)) + 1, -1, dtype=np.int64)
        table[values - self.low] = np.arange(values.size)
        # Made from the column alone, so a state_dict need not hold it.
        self.register_buffer("table", torch.from_numpy(table), persistent=False)

    table: Tensor

    def encode(self, values: Table) -> IntArray:
        """Return the whole number of each value, -1 where it is missing."""
        if self.edges is not None:
            numbers = np.asarray(values, dtype=np.float64)
            band = assign(numbers, np.array(self.edges))
            return np.where(band < 0, self.missing, band)
        place = positions(values, self.name, self.groups)
        return np.append(self.values, -1)[place]

    def forward(self, values: Tensor, check: bool) -> Tensor:
        """Return positions of whole numbers, -1 where one is unknown."""
        if values.is_floating_point():
            is_missing = torch.isnan(values)
            if self.edges is not None:
                edges = torch.tensor(self.edges, dtype=torch.float64)
                numbers = values.double().contiguous()
                band = torch.bucketize(numbers, edges.to(values.device), right=True)
                return torch.where(is_missing, self.missing, band)
            values = torch.where(is_missing, -1, values)
        whole = values.long()
        place = whole - self.low
        inside = (place >= 0) & (place < len(self.table))
        position = torch.where(
            inside, self.table[place.clamp(0, len(self.table) - 1)], -1
        )
        if check and bool((whole != values).any()):
            raise InvalidInputError(
                f"{self.name} contains {float(values[whole != values][0]):g}, which is "
                "not a whole number. Pass what fair.encode returns for the values."
            )
        if check and bool((is_unknown := (position < 0) & (whole != -1)).any()):
            known = ", ".join(
                group if group == str(value) else f"{value} ({group})"
                for value, group in zip(self.values, self.groups, strict=True)
            )
            raise InvalidInputError(
                f"{self.name} contains {int(whole[is_unknown][0])}, which is not in "
                f"the training data. Pass one of {known}, or -1 where it is unknown."
            )
        if self.missing < 0:
            return position
        return torch.where(position < 0, self.missing, position)


@dataclass(frozen=True)
class BatchRows:
    """A batch, placed in the table.

    Attributes
    ----------
    prob
        (..., b, m) probabilities that the penalty sees; axes before these are models.
    cell
        (b, A) ``stratum * K + group`` for each attribute; ``R * K`` where the row is in
        no stratum or its group is unknown.
    weight
        (b,) sample weights of mean 1 over the training rows, or None.
    """

    prob: Tensor
    cell: Tensor
    weight: Tensor | None

    def mass(self, shape: tuple[int, int, int]) -> Tensor:
        """Return the (..., R, m, K) sums of probabilities, in double precision."""
        n_strata, n_classes, n_groups = shape
        prob = self.prob.detach().double()
        if self.weight is not None:
            prob = prob * self.weight[:, None]
        # A product with the rows' places: to add up rows in a few cells, one by one,
        # is slow on a GPU and in no fixed order.
        cells = torch.arange(n_strata * n_groups, device=prob.device)
        place = (self.cell[:, :, None] == cells).sum(dim=1).to(prob.dtype)  # (b, R K)
        table = prob.transpose(-1, -2) @ place  # (..., m, R K)
        models = prob.shape[:-2]
        table = table.reshape(*models, n_classes, n_strata, n_groups)
        return table.transpose(-2, -3)

    def term(self, payoff: Tensor) -> Tensor:
        """Return ``(1/b) sum_i sum_j prob[i, j] payoff[r_i, j, k_i]`` of each model."""
        by_cell = payoff.detach().transpose(-1, -2).flatten(-3, -2)  # (..., R K, m)
        flat = nn.functional.pad(by_cell, (0, 0, 0, 1)).to(self.prob.dtype)
        looked_up = flat[..., self.cell, :].sum(dim=-2)  # (..., b, m)
        by_row = (self.prob * looked_up).sum(dim=-1)
        if self.weight is not None:
            by_row = by_row * self.weight.to(by_row.dtype)
        return by_row.sum(dim=-1) / max(self.prob.shape[-2], 1)


class CellReader(nn.Module):
    """Reads rows whose cells in the table are known, for several models at once.

    Parameters
    ----------
    rows
        Groups and strata.
    classes
        The label of each class.
    sharpness
        The penalty sees ``softmax(sharpness * logits)``.
    bins
        Of predicted numbers, None where the models predict classes.
    """

    def __init__(
        self,
        rows: Rows,
        classes: Sequence[object],
        sharpness: float,
        bins: SoftBins | None = None,
    ) -> None:
        super().__init__()
        self.bins = bins
        self.classes, self.sharpness = tuple(classes), sharpness
        self.strata_names, self.groups = rows.strata.names, rows.group_names
        self.names = {attribute.name: attribute.groups for attribute in rows.attributes}
        self.ends: list[int] = group_ends(rows).tolist()
        self.shape = len(self.strata_names), len(self.classes), len(self.groups)

    def forward(
        self,
        output: Tensor,
        sensitive: Tensor,
        y: None = None,
        control: None = None,
        sample_weight: Tensor | None = None,
    ) -> BatchRows:
        """Return a batch of (..., b, m) logits or (..., b) numbers in (b, A) cells."""
        if self.bins is not None:
            output = bin_logits(output, self.bins)
        prob = torch.softmax(self.sharpness * output, dim=-1)
        return BatchRows(prob, sensitive, sample_weight)


class LabelReader(nn.Module):
    """Reads labels, control features and weights as those of training were read.

    Parameters
    ----------
    labels, notion, strata
        The training labels, and the stratum of each row under the notion.
    mean_weight
        Mean of the training rows' weights.
    check
        Whether values are checked where they are on the CPU.
    """

    def __init__(
        self,
        labels: Labels,
        notion: Notion,
        strata: Strata,
        mean_weight: float,
        check: bool = True,
    ) -> None:
        super().__init__()
        self.classes, self.strata_names = labels.classes, strata.names
        self.mean_weight, self.check = mean_weight, check
        # (n_classes + 1, n_controls + 1) the stratum by class and control, each shifted
        # by one because -1 is first. A notion assigns strata by class and control, so
        # asking about each pair once is enough.
        shape = len(labels.classes) + 1, len(labels.control_names) + 1
        y, control = np.indices(shape).reshape(2, -1) - 1
        asked = None if labels.control is None else control
        pairs = replace(labels, n_samples=y.size, y=np.maximum(y, 0), control=asked)
        code = notion.strata(pairs).code
        if notion.needs_labels:
            code = np.where(y < 0, -1, code)
        table = torch.tensor(code.reshape(shape))
        row, column = (0 if c is None else c + 1 for c in (labels.y, labels.control))
        if np.any(table.numpy()[row, column] != strata.code):
            raise InvalidParameterError(
                f"{notion!r} must assign strata by looking at one row at a time."
            )
        # Where the label changes nothing it need not be known.
        self.needs_labels = bool((table != table[:1]).any())
        self.register_buffer("stratum_of", table, persistent=False)
        codes = tuple(map(str, range(len(self.classes))))
        self.label = Column("y", codes)
        self.control: Column | None = None
        if labels.control is not None:
            self.control = Column("control", labels.control_names)

    stratum_of: Tensor

    def can_check(self, values: Tensor) -> bool:
        """Return whether values are looked at: on a GPU that would wait for it."""
        is_here = isinstance(values, Tensor) and values.device.type == "cpu"
        return self.check and is_here and not torch.compiler.is_compiling()

    def strata(self, y: Table, control: Table, like: Tensor) -> Tensor:
        """Return the (n,) stratum of each row of an output, -1 where it is in none."""
        row = column = torch.zeros(len(like), dtype=torch.int64, device=like.device)
        if self.needs_labels:
            codes = y if isinstance(y, Tensor | None) else self.encode_labels(y)
            row = 1 + self._place(codes, like, "y", self.label)
        if self.control is not None:
            is_read = isinstance(control, Tensor | None)
            codes = control if is_read else self.encode_control(control)
            column = 1 + self._place(codes, like, "control", self.control)
        return self.stratum_of[row, column]

    def _place(
        self, codes: Tensor | None, like: Tensor, name: str, column: Column
    ) -> Tensor:
        if codes is None:
            raise InvalidInputError(
                f"The notion conditions on {name}. Pass {name}= in each call."
            )
        position: Tensor = column(_aligned(codes, like, name), self.can_check(like))
        return position

    def weights(self, sample_weight: Table, n: int) -> Tensor:
        """Return (n,) weights of mean 1 over the training rows."""
        weight = torch.as_tensor(sample_weight).detach().double()
        weight = _aligned(weight, weight.new_empty(n), "sample_weight")
        if self.can_check(weight):
            is_sound = torch.isfinite(weight) & (weight >= 0)
            if len(wrong := weight[~is_sound]):
                raise InvalidInputError(
                    f"sample_weight contains {float(wrong[0]):g} in {len(wrong)} of "
                    f"{n} rows. Weights must be finite and at least 0."
                )
        return weight / self.mean_weight

    def encode_labels(self, y: Table) -> Tensor:
        """Return labels as class codes (n,)."""
        y = plain(y)
        code = encode_labels(y, count_rows(y), self.classes, "y").y
        return torch.as_tensor(code)

    def encode_control(self, values: Table) -> Tensor:
        """Return the control feature as whole numbers (n,)."""
        if self.control is None:
            raise InvalidInputError("The notion has no control feature; pass none.")
        return torch.from_numpy(self.control.encode(plain(values)))


class BatchReader(LabelReader):
    """Reads the batches of a user's loop as training labels were read.

    Parameters
    ----------
    labels, objective, rows
        Of training.
    columns
        The sensitive columns; ``rows`` has one attribute for each, or one for their
        intersection.
    outputs
        ``"logits"`` or ``"probabilities"``; ``"numbers"`` where there are bins.
    bins
        Of predicted numbers, None where the model predicts classes.
    check
        As in `LabelReader`.
    group_weights
        Whether groups count as among the rows, or all alike.
    """

    def __init__(
        self,
        labels: Labels,
        objective: Objective,
        rows: Rows,
        columns: Sequence[Attribute],
        outputs: Outputs,
        bins: SoftBins | None,
        *,
        check: bool,
        group_weights: GroupWeighting,
    ) -> None:
        mean_weight = float(rows.weight.mean())
        super().__init__(labels, objective.notion, rows.strata, mean_weight, check)
        self.sharpness, self.outputs, self.bins = objective.sharpness, outputs, bins
        self.groups = rows.group_names
        self.names = {attribute.name: attribute.groups for attribute in rows.attributes}
        self.ends: list[int] = group_ends(rows).tolist()
        self.shape = len(self.strata_names), len(self.classes), len(self.groups)
        self.columns = nn.ModuleList(  # type: ignore[assignment]
            Column(c.name, c.groups, c.edges.get(c.name)) for c in columns
        )
        joint = None
        if len(columns) > len(rows.attributes):
            # Positions in the columns, flattened -> group of their intersection.
            shape, code = [len(c.groups) for c in columns], rows.attributes[0].code
            joint, known = torch.full((math.prod(shape),), -1), code >= 0
            cell = np.ravel_multi_index([c.code[known] for c in columns], shape)
            joint[torch.from_numpy(cell)] = torch.from_numpy(code[known])
        self.register_buffer("_joint", joint, persistent=False)
        factor, self.group_weights = None, group_weights
        if group_weights == "equal":
            by_cell = rows.group_factor(objective.notion.compares_predictions)
            factor = torch.from_numpy(np.append(by_cell, 1.0))  # 1 where unknown
        self.register_buffer("_factor", factor, persistent=False)

    columns: Sequence[Column]
    _joint: Tensor | None
    _factor: Tensor | None

    def forward(
        self,
        output: Tensor,
        sensitive: Table,
        y: Table = None,
        control: Table = None,
        sample_weight: Tensor | None = None,
    ) -> BatchRows:
        """Return a batch, placed in the table."""
        outputs, (n_strata, n_classes, n_groups) = self.outputs, self.shape
        if self.bins is not None:
            output, outputs = bin_logits(as_numbers(output), self.bins), "logits"
        check = self.can_check(output)
        prob = penalized_prob(output, n_classes, self.sharpness, outputs, check)
        group = self._groups(sensitive, prob, check)  # (b, A)
        cell = torch.where(group >= 0, group, n_strata * n_groups)
        if self.needs_labels or self.control is not None or n_strata > 1:
            stratum = self.strata(y, control, prob)[:, None]
            is_known = (stratum >= 0) & (group >= 0)
            cell = torch.where(
                is_known, stratum * n_groups + group, n_strata * n_groups
            )
        weight = None
        if sample_weight is not None:
            weight = self.weights(sample_weight, len(prob))
        if self._factor is not None:
            factor = self._factor[cell[:, 0]]
            weight = factor if weight is None else weight.to(factor.device) * factor
        return BatchRows(prob, cell, weight)

    def encode(self, sensitive_features: Table) -> Tensor:
        """Return sensitive features as one whole number a column: (n,) or (n, a)."""
        values = split_like_training(sensitive_features, len(self.columns))
        numbers = [c.encode(part) for c, part in zip(self.columns, values, strict=True)]
        return torch.from_numpy(
            np.stack(numbers, axis=1) if len(numbers) > 1 else numbers[0]
        )

    def _groups(self, sensitive: Table, like: Tensor, check: bool) -> Tensor:
        # (n, A) groups numbered through all attributes, -1 where unknown.
        n, n_columns, n_groups = len(like), len(self.columns), self.shape[2]
        if not isinstance(sensitive, Tensor):
            sensitive = self.encode(sensitive)
        sensitive = sensitive.to(like.device, non_blocking=True)
        table = sensitive[:, None] if sensitive.dim() == 1 else sensitive
        widths = n_columns, n_groups
        if table.dim() != 2 or len(table) != n or table.shape[1] not in widths:
            raise InvalidInputError(
                f"sensitive must have shape ({n}, {n_columns}), or ({n}, {n_groups}) "
                f"one-hot; the output has {n} rows; got {tuple(sensitive.shape)}."
            )
        if table.shape[1] == n_groups != n_columns:
            groups = []
            for begin, end in pairwise(self.ends):
                part = torch.nan_to_num(table[:, begin:end])
                hot = part.argmax(dim=1) + begin
                groups.append(torch.where(part.amax(dim=1) > 0, hot, -1))
            return torch.stack(groups, dim=1)
        positions = [
            column(table[:, a], check) for a, column in enumerate(self.columns)
        ]
        if self._joint is None:
            numbered = [
                torch.where(position >= 0, position + begin, -1) if begin else position
                for position, begin in zip(positions, self.ends, strict=False)
            ]
            return torch.stack(numbered, dim=1)
        place, known = torch.zeros_like(positions[0]), positions[0] >= 0
        for position, column in zip(positions, self.columns, strict=True):
            place = place * len(column.groups) + position.clamp_min(0)
            known = known & (position >= 0)
        return torch.where(known, self._joint[place], -1)[:, None]


def table_cells(rows: Rows) -> IntArray:
    """Return the (n, A) cells of rows in the table of all attributes."""
    stratum, group, _ = place_rows(rows)
    n_strata, n_groups = len(rows.strata.names), len(rows.group_names)
    is_known = (stratum[:, None] >= 0) & (group >= 0)
    cell = stratum[:, None] * n_groups + group
    return np.where(is_known, cell, n_strata * n_groups)


def read_training(
    y: Table,
    sensitive_features: Table,
    objective: Objective,
    how: GroupMode,
    classes: Sequence[object] | None,
    sample_weight: Table,
    outputs: Outputs,
    *,
    bins: int | SoftBins | None = None,
    check: bool,
    group_weights: GroupWeighting = "share",
) -> tuple[BatchReader, Rows]:
    """Return what reads batches like training data with these labels, and its rows.

    ``bins`` are None where numbers cannot be predicted.
    """
    check_aligned(
        y=y, sensitive_features=sensitive_features, sample_weight=sample_weight
    )
    notion, soft = objective.notion, None
    if bins is not None:
        outputs = read_outputs(y, outputs)
    if bins is not None and outputs == "numbers":
        soft = read_bins(y, bins, notion)
        y, classes = None, band_names(soft.edges)
    else:
        options = {"outputs": OneOf(("logits", "probabilities"))}
        check_params({"outputs": outputs}, options)
    check_params({"group_weights": group_weights}, {"group_weights": GROUP_WEIGHTS})
    check_number("sharpness", objective.sharpness, above=True)
    sensitive_features = plain(sensitive_features)
    labels = read_labels(plain(y), count_rows(sensitive_features), classes, notion)
    encoded = encode_sensitive(sensitive_features, labels.n_samples, "marginal")
    columns = [_without_unknown(column) for column in encoded]
    for column in columns:
        if not column.groups:
            raise InvalidInputError(
                f"No row has a value of {column.name}; -1 and NaN mean unknown."
            )
    weight = encode_weight(plain(sample_weight), labels.n_samples)
    rows = Rows(partition(columns, how), notion.strata(labels), weight)
    warn_of_gaps(rows, labels)
    Penalty(objective, rows).check_comparable()
    reader = BatchReader(
        *(labels, objective, rows, columns, outputs, soft),
        check=check,
        group_weights=group_weights,
    )
    if group_weights == "equal":
        rows = rows.balanced(objective.notion.compares_predictions)
    return reader, rows


def plain(table: Table) -> Table:
    """Return a tensor as an array, anything else as it is."""
    if isinstance(table, dict):
        return {name: plain(values) for name, values in table.items()}
    if not isinstance(table, Tensor):
        return table
    table = table.detach().cpu()
    return table.float().numpy() if table.dtype == torch.bfloat16 else table.numpy()


def split_like_training(sensitive_features: Table, n_columns: int) -> list[Table]:
    """Return the values of each sensitive column; raise if training had others."""
    values = [part for _, part in split_columns(plain(sensitive_features))]
    if len(values) != n_columns:
        raise InvalidInputError(
            f"sensitive_features has {len(values)} columns; training had {n_columns}."
        )
    return values


def count_rows(table: Table) -> int:
    """Return the number of rows of labels or of sensitive features."""
    if isinstance(table, dict):
        return len(next(iter(table.values()))) if table else 0
    return table.shape[0] if hasattr(table, "shape") else len(table)


def read_labels(
    y: Table, n_rows: int, classes: Sequence[object] | None, notion: Notion
) -> Labels:
    """Return labels as codes among ``classes``, with the control feature of a notion.

    Without classes they are those of y; none are named where numbers are predicted.
    """
    if y is None and classes is None:
        raise InvalidParameterError(
            "Either y or classes is needed: the training labels, or classes=[0, 1]."
        )
    names = np.unique(np.asarray(y)).tolist() if classes is None else classes
    labels = encode_labels(y, n_rows if y is None else count_rows(y), names, "y")
    if len(labels.classes) == 1:
        raise InvalidInputError(
            f"y has one class only, {labels.classes[0]!r}. Name all: classes=[0, 1]."
        )
    feature = notion.control_feature()
    if isinstance(feature, str | int | np.integer):
        raise InvalidParameterError(
            f"The notion names column {feature!r} of X, and a loss sees no X. Pass one "
            "value per training row to ConditionalParity, and control= in each call."
        )
    if isinstance(feature, Tensor):
        notion = replace(notion, control=plain(feature))  # type: ignore[call-arg]
    return add_control(labels, notion, None)


def positions(values: Table, name: str, groups: Sequence[str]) -> IntArray:
    """Return the position of each value among groups, -1 where it is missing."""
    # Each row of a small batch may be of another group, so identifiers are allowed.
    batch = encode_column(values, name, len(values), is_batch=True)
    batch = batch if UNKNOWN in groups else _without_unknown(batch)
    unseen = [group for group in batch.groups if group not in groups]
    if unseen:
        raise InvalidInputError(
            f"{name} contains {unseen[0]!r}, which is not in the training data. Pass "
            f"one of {', '.join(groups)}, or -1 if unknown."
        )
    place = [groups.index(group) for group in batch.groups]
    return np.array([*place, -1], dtype=np.int64)[batch.code]


def _without_unknown(attribute: Attribute) -> Attribute:
    # -1 is not a group: batches use it where a group is unknown.
    if UNKNOWN not in attribute.groups:
        return attribute
    names = [group_name(None) if g == UNKNOWN else g for g in attribute.groups]
    groups, position = number_groups(names)
    return Attribute(attribute.name, groups, np.append(position, -1)[attribute.code])


def _aligned(values: Tensor, like: Tensor, name: str) -> Tensor:
    if values.numel() != (n := len(like)):
        raise InvalidInputError(
            f"{name} must have shape ({n},), as the output; got {tuple(values.shape)}."
        )
    return values.reshape(-1).to(like.device, non_blocking=True)


def penalized_prob(
    output: Tensor, n_classes: int, sharpness: float, outputs: Outputs, check: bool
) -> Tensor:
    """Return (n, n_classes) ``softmax(sharpness * logits)``, never in half precision.

    Parameters
    ----------
    output
        (n, n_classes); of two classes also (n, 1) or (n,), those of the second.
    n_classes, sharpness, outputs
        Classes, factor of the logits, and what ``output`` holds.
    check
        Whether probabilities are checked.
    """
    is_single = check_shape(output, n_classes)
    is_half = output.dtype in (torch.float16, torch.bfloat16)
    output = output.float() if is_half else output
    if outputs == "probabilities":
        if is_single:
            second = output.reshape(-1)
            output = torch.stack([1 - second, second], dim=1)
        if check:
            excess = (output.detach().sum(dim=1) - 1).abs()
            is_one = excess <= (HALF_TOLERANCE if is_half else SUM_TOLERANCE)
            if not bool(is_one.all() and (output >= 0).all()):
                raise InvalidInputError(
                    "Some rows of the output are not probabilities: negative, missing, "
                    "or not summing to 1. Apply a softmax, or use outputs='logits'."
                )
        if sharpness == 1:
            return output
        # A probability of 0 has no logarithm; the smallest normal number has.
        output = torch.log(output.clamp_min(torch.finfo(output.dtype).tiny))
    elif is_single:
        logit = sharpness * output.reshape(-1)
        return torch.stack([torch.sigmoid(-logit), torch.sigmoid(logit)], dim=1)
    return torch.softmax(sharpness * output, dim=1)


def as_numbers(output: Tensor) -> Tensor:
    """Return predicted numbers as (n,), never in half precision."""
    check_shape(output, 1)
    u = output.reshape(-1)
    return u.float() if u.dtype in (torch.float16, torch.bfloat16) else u


def check_shape(output: Tensor, n_classes: int) -> bool:
    """Return whether a row has one output; raise if outputs do not fit the classes.

    One class means that numbers are predicted.
    """
    is_tensor = isinstance(output, Tensor)
    if not is_tensor or not output.is_floating_point():
        what = f"tensor of {output.dtype}" if is_tensor else type(output).__name__
        raise InvalidTypeError(
            f"The output must be a floating tensor, such as logits; got a {what}."
        )
    is_single = output.dim() == 1 or (output.dim() == 2 and output.shape[1] == 1)
    is_full = output.dim() == 2 and output.shape[1] == n_classes
    if is_full or (is_single and n_classes <= 2):
        return is_single
    shape = f"(n, {n_classes})" if n_classes > 2 else f"(n, {n_classes}) or (n,)"
    reason = "is one number a row" if n_classes == 1 else f"are {n_classes} classes"
    raise InvalidInputError(
        f"Outputs must have shape {shape}: there {reason}; got {tuple(output.shape)}."
    )


def read_outputs(y: Table, outputs: Outputs) -> Outputs:
    """Return what a loss is called with; ``"auto"`` looks at the labels."""
    if outputs != "auto":
        return outputs
    values = np.asarray(plain(y))
    is_number = values.ndim == 1 and column_kind(pd.Series(values)) == "continuous"
    return "numbers" if is_number else "logits"


def read_bins(y: Table, bins: int | SoftBins, notion: Notion) -> SoftBins:
    """Return the bins, or as many as asked for, between quantiles of y."""
    check_numeric_notion(notion)
    if isinstance(bins, SoftBins):
        return bins
    if not isinstance(bins, int | np.integer) or bins < 2 or y is None:
        raise InvalidParameterError(
            "bins must be an integer of at least 2, with y to place them by, or "
            f"fferm.penalty.soft_bins.make_bins(edges); got {bins!r}."
        )
    values = np.asarray(plain(y), dtype=np.float64)
    edges = quantile_edges(values, int(bins), np.ones(values.size))
    if edges.size == 0:
        raise InvalidInputError(
            "y has one distinct number only, so there are no bins to predict."
        )
    return make_bins(edges)


def check_numeric_notion(notion: Notion) -> None:
    """Raise if a notion conditions on labels, which predicted numbers lack."""
    if notion.needs_labels:
        raise InvalidParameterError(
            f"{notion.name} conditions on a label, and the model predicts numbers. Use "
            "demographic_parity, or ConditionalParity with one value per row."
        )


def bin_logits(u: Tensor, bins: SoftBins) -> Tensor:
    """Return the (..., n, n_bins) logits of (..., n) predicted numbers."""
    slopes = torch.as_tensor(bins.slopes, device=u.device).to(u.dtype)
    offsets = torch.as_tensor(bins.offsets, device=u.device).to(u.dtype)
    return u[..., None] * slopes + offsets
