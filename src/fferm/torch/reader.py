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
from typing import Any, Literal

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
        self.values, low, high = values, int(values.min()), int(values.max())
        # -1 stands in the table too, unless it is far away.
        self.is_far = max(high, -1) - min(low, -1) >= 2 * MOST_WHOLE_NUMBERS
        if not self.is_far:
            low, high = min(low, -1), max(high, -1)
        self.first = low - 1
        self.unknown = len(groups) if self.missing < 0 else self.missing
        table = np.full(high - low + 3, len(groups) + 1, dtype=np.int64)
        if not self.is_far:
            table[-1 - self.first] = self.unknown
        table[values - self.first] = np.arange(values.size)
        self.n_entries = len(table)
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
        """Return positions of whole numbers.

        Unknown ones have the number of groups, or the position of those without a
        value; numbers that are not in the training data have one more than that.
        """
        given, numbers = values, values
        if values.is_floating_point():
            is_missing = torch.isnan(values)
            if self.edges is not None:
                edges = torch.tensor(self.edges, dtype=torch.float64)
                numbers = values.double().contiguous()
                band = torch.bucketize(numbers, edges.to(values.device), right=True)
                return torch.where(is_missing, self.unknown, band)
            values = values.nan_to_num(nan=-1.0)
            numbers = values.long()
            numbers = torch.where(numbers == values, numbers, self.first)
        elif values.dtype != torch.int64:
            numbers = values.long()
        place = (numbers - self.first).clamp(0, self.n_entries - 1)
        position = self.table.index_select(0, place)
        if self.is_far:
            position = torch.where(numbers == -1, self.unknown, position)
        if check and len(position) and int(position.max()) > len(self.groups):
            self._refuse(given[position > len(self.groups)][0].item())
        return position

    def _refuse(self, value: float) -> None:
        if value != int(value):
            raise InvalidInputError(
                f"{self.name} contains {value:g}, which is not a whole number. Pass "
                "what fair.encode returns for the values."
            )
        known = ", ".join(
            group if group == str(number) else f"{number} ({group})"
            for number, group in zip(self.values, self.groups, strict=True)
        )
        raise InvalidInputError(
            f"{self.name} contains {int(value)}, which is not in the training data. "
            f"Pass one of {known}, or -1 where it is unknown."
        )


@dataclass(frozen=True)
class BatchRows:
    """A batch, placed in the table.

    Attributes
    ----------
    prob
        (..., b, m) probabilities that the penalty sees; axes before these are models.
    cells
        (b,) ``stratum * K + group``, for each attribute; ``R * K`` where the row is in
        no stratum or its group is unknown, ``R * K + 1`` where training had no such.
    weight
        (b,) sample weights of mean 1 over the training rows, or None.
    reader
        What holds the constants of a flat table.
    flat
        (b, m) places in it, for each attribute.
    """

    prob: Tensor
    cells: tuple[Tensor, ...]
    weight: Tensor | None
    reader: Any
    flat: list[Tensor]

    @property
    def cell(self) -> Tensor:
        """(b, A) the cells of all attributes."""
        return torch.stack(self.cells, dim=1)

    def mass(self, shape: tuple[int, int, int]) -> Tensor:
        """Return the (..., R, m, K) sums of probabilities, in double precision."""
        places, models = self.reader, self.prob.shape[:-2]
        weight = places.one if self.weight is None else self.weight[:, None]
        part = (self.prob.detach() * weight).flatten(-2)
        mass: Tensor = places.empty.expand(*models, -1) if models else places.empty
        for flat in self.flat:
            place = flat.flatten()
            mass = mass.scatter_add(
                -1, place.expand_as(part) if models else place, part
            )
        return mass[..., : math.prod(shape)].view(*models, *shape)

    def term(self, payoff: Tensor) -> Tensor:
        """Return ``(1/b) sum_i sum_j prob[i, j] payoff[r_i, j, k_i]`` of each model."""
        prob, (*models, _, _, _) = self.prob, payoff.shape
        flat = payoff.flatten(-3) / max(float(prob.shape[-2]), 1.0)
        nothing = self.reader.nothing
        nothing = nothing.expand(*models, -1) if models else nothing
        flat = torch.cat((flat, nothing), dim=-1).to(prob.dtype)
        first, *others = (flat[..., place] for place in self.flat)
        looked_up = sum(others, start=first)
        if self.weight is not None:
            looked_up = looked_up * self.weight[:, None].to(prob.dtype)
        value = prob * looked_up
        return value.sum() if value.dim() == 2 else value.sum(dim=(-2, -1))


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

    of_cell: Tensor

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
        cells = sensitive.unbind(1)
        flat = [self.of_cell.index_select(0, cell) for cell in cells]
        return BatchRows(prob, cells, sample_weight, self, flat)


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
        # The stratum by class and control, of which the last two are unknown, and not
        # in the training data. A notion assigns strata by class and control, so asking
        # about each pair once is enough.
        sizes = len(labels.classes), len(labels.control_names)
        shape, n_strata = (sizes[0] + 2, sizes[1] + 2), len(strata.names)
        y, control = np.indices(shape).reshape(2, -1)
        y, control = (
            np.where(code < size, code, -1)
            for code, size in zip((y, control), sizes, strict=True)
        )
        asked = None if labels.control is None else control
        pairs = replace(labels, n_samples=y.size, y=np.maximum(y, 0), control=asked)
        code = notion.strata(pairs).code
        if notion.needs_labels:
            code = np.where(y < 0, -1, code)
        table = np.where(code < 0, n_strata, code).reshape(shape)
        row, column = (
            size if c is None else np.where(c < 0, size, c)
            for c, size in zip((labels.y, labels.control), sizes, strict=True)
        )
        if np.any(
            table[row, column] != np.where(strata.code < 0, n_strata, strata.code)
        ):
            raise InvalidParameterError(
                f"{notion!r} must assign strata by looking at one row at a time."
            )
        # Where the label changes nothing it need not be known.
        self.needs_labels = bool((table != table[:1]).any())
        table[-1, :], table[:, -1] = n_strata + 1, n_strata + 1
        self.register_buffer("stratum_of", torch.from_numpy(table), persistent=False)
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
        """Return the (n,) stratum of each row of an output; R or more: in none."""
        row: Tensor | int = 0
        column: Tensor | int = 0
        if self.needs_labels:
            codes = y if isinstance(y, Tensor | None) else self.encode_labels(y)
            row = self._place(codes, like, "y", self.label)
        if self.control is not None:
            is_read = isinstance(control, Tensor | None)
            codes = control if is_read else self.encode_control(control)
            column = self._place(codes, like, "control", self.control)
        stratum = self.stratum_of[row, column]
        return stratum if stratum.dim() else stratum.expand(len(like))

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
        if n and self.can_check(weight):
            low, high = map(float, weight.aminmax())
            if not (low >= 0 and high < math.inf):
                wrong = weight[~((weight >= 0) & (weight < math.inf))]
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
        n_strata, _, n_groups = self.shape
        joint: Tensor | None = None
        if len(columns) > len(rows.attributes):
            # Positions in the columns, flattened -> group of their intersection.
            code = rows.attributes[0].code
            groups = np.full([len(c.groups) + 2 for c in columns], n_groups)
            known = code >= 0
            groups[tuple(c.code[known] for c in columns)] = code[known]
            for axis in range(groups.ndim):
                np.moveaxis(groups, axis, 0)[-1] = n_groups + 1
            joint = torch.from_numpy(groups.reshape(-1))
        self.register_buffer("_joint", joint, persistent=False)
        # Stratum and group -> cell; the last two of each are in no cell.
        inside = [np.append(np.arange(*ends), [-1, -2]) for ends in pairwise(self.ends)]
        group = np.concatenate(inside)[:, None]
        stratum = np.append(np.arange(n_strata), [-1, -2])
        outside = n_strata * n_groups - np.minimum(group, stratum) - 1
        is_inside = (stratum >= 0) & (group >= 0)
        cell_of = np.where(is_inside, stratum * n_groups + group, outside)
        self.register_buffer("_cell_of", torch.from_numpy(cell_of), persistent=False)
        # Group and class -> cell, where there is no control feature.
        direct = self._cell_of[:, self.stratum_of[:, 0]]
        self.register_buffer("_direct", direct.contiguous(), persistent=False)
        factor, self.group_weights = None, group_weights
        if group_weights == "equal":
            by_cell = rows.group_factor(objective.notion.compares_predictions)
            factor = torch.from_numpy(np.append(by_cell, [1.0, 1.0]))  # 1 where unknown
        self.register_buffer("_factor", factor, persistent=False)

    columns: Sequence[Column]
    of_cell: Tensor
    _joint: Tensor | None
    _cell_of: Tensor
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
        outputs, (n_strata, n_classes, _) = self.outputs, self.shape
        if self.bins is not None:
            output, outputs = bin_logits(as_numbers(output), self.bins), "logits"
        check = self.can_check(output)
        prob = penalized_prob(output, n_classes, self.sharpness, outputs, check)
        cells = self._groups(sensitive, prob, check)
        has_strata = self.needs_labels or self.control is not None or n_strata > 1
        if has_strata or len(cells) > 1:
            stratum = self.strata(y, control, prob) if has_strata else 0
            begins = [begin + 2 * a for a, begin in enumerate(self.ends[:-1])]
            cells = tuple(
                self._cell_of[group + begin if begin else group, stratum]
                for group, begin in zip(cells, begins, strict=True)
            )
        weight = None
        if sample_weight is not None:
            weight = self.weights(sample_weight, len(prob))
        if self._factor is not None:
            factor = self._factor[cells[0]]
            weight = factor if weight is None else weight.to(factor.device) * factor
        flat = [self.of_cell.index_select(0, cell) for cell in cells]
        return BatchRows(prob, cells, weight, self, flat)

    def encode(self, sensitive_features: Table) -> Tensor:
        """Return sensitive features as one whole number a column: (n,) or (n, a)."""
        values = split_like_training(sensitive_features, len(self.columns))
        numbers = [c.encode(part) for c, part in zip(self.columns, values, strict=True)]
        return torch.from_numpy(
            np.stack(numbers, axis=1) if len(numbers) > 1 else numbers[0]
        )

    def _groups(
        self, sensitive: Table, like: Tensor, check: bool
    ) -> tuple[Tensor, ...]:
        # (n,) groups of each attribute, numbered from 0; the number of its groups or
        # one more where unknown.
        n, n_columns, n_groups = len(like), len(self.columns), self.shape[2]
        if not isinstance(sensitive, Tensor):
            sensitive = self.encode(sensitive)
        if sensitive.device != like.device:
            sensitive = sensitive.to(like.device, non_blocking=True)
        width = sensitive.shape[1] if sensitive.dim() == 2 else 1
        is_table = sensitive.dim() in (1, 2) and len(sensitive) == n
        if not is_table or width not in (n_columns, n_groups):
            raise InvalidInputError(
                f"sensitive must have shape ({n}, {n_columns}), or ({n}, {n_groups}) "
                f"one-hot; the output has {n} rows; got {tuple(sensitive.shape)}."
            )
        if width == n_groups != n_columns:
            groups = []
            for begin, end in pairwise(self.ends):
                part = torch.nan_to_num(sensitive[:, begin:end])
                is_hot = part.amax(dim=1) > 0
                groups.append(torch.where(is_hot, part.argmax(dim=1), end - begin))
            return tuple(groups)
        parts = (sensitive,) if sensitive.dim() == 1 else sensitive.unbind(1)
        positions = tuple(
            column(part, check)
            for column, part in zip(self.columns, parts, strict=True)
        )
        if self._joint is None:
            return positions
        place = positions[0]
        for position, column in zip(positions[1:], self.columns[1:], strict=True):
            place = place * (len(column.groups) + 2) + position
        return (self._joint[place],)


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
    columns = [c if UNKNOWN not in c.groups else _without_unknown(c) for c in encoded]
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
    values = values if values.dim() == 1 else values.reshape(-1)
    is_here = values.device == like.device
    return values if is_here else values.to(like.device, non_blocking=True)


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
    if outputs == "logits" and sharpness == 1 and not is_single:
        return torch.softmax(output, dim=1, dtype=torch.float32 if is_half else None)
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
