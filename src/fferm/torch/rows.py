"""From a batch to the probabilities that the penalty sees and their cells in the table.

Nothing here waits for a GPU: shapes are checked always, values only on the CPU.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fferm._typing import IntArray, Table
from fferm.data.groups import split_columns
from fferm.data.validate import encode_labels
from fferm.errors import InvalidInputError
from fferm.penalty.soft_bins import SoftBins
from fferm.torch.encoding import Column, Encoding, count_rows, plain
from fferm.torch.numbers import bin_logits
from fferm.torch.outputs import Outputs, is_readable, penalized_prob


@dataclass(frozen=True)
class BatchRows:
    """A batch, placed.

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

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.prob.shape[-2]

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
        return by_row.sum(dim=-1) / max(self.n_rows, 1)


class RowReader(nn.Module):
    """Reads batches as training labels were read.

    Parameters
    ----------
    encoding
        What the labels looked like.
    sharpness
        The penalty sees ``softmax(sharpness * logits)``.
    outputs
        ``"logits"`` or ``"probabilities"``; ``"numbers"`` where there are bins.
    mean_weight
        Mean of the training rows' weights.
    check
        Whether values are checked where they are on the CPU.
    bins
        Of predicted numbers, None where the model predicts classes.
    """

    def __init__(
        self,
        encoding: Encoding,
        sharpness: float,
        outputs: Outputs,
        mean_weight: float,
        check: bool,
        bins: SoftBins | None = None,
    ) -> None:
        super().__init__()
        self.bins = bins
        self.encoding = encoding
        self.sharpness = float(sharpness)
        self.outputs = outputs
        self.mean_weight = mean_weight
        self.check = check
        # Where the label changes nothing it need not be known.
        stratum_of = encoding.stratum_of
        self.needs_labels = bool((stratum_of != stratum_of[:1]).any())
        self.n_groups = sum(len(attribute.groups) for attribute in encoding.attributes)
        self.shape = len(encoding.strata), len(encoding.classes), self.n_groups
        sizes = [len(column.groups) for column in encoding.columns]
        self._begins = np.cumsum([0, *sizes])[:-1].tolist()
        self._lowest: dict[str, int] = {}
        for a, column in enumerate(encoding.columns):
            self._add_numbers(f"_position_{a}", column)
        if encoding.control is not None:
            self._add_numbers("_position_control", encoding.control)
        self._add("_stratum_of", encoding.stratum_of)
        if encoding.joint is not None:
            self._add("_joint", encoding.joint)

    def forward(
        self,
        output: Tensor,
        sensitive: Table,
        y: Table = None,
        control: Table = None,
        sample_weight: Tensor | None = None,
    ) -> BatchRows:
        """Return a batch, placed."""
        outputs = self.outputs
        if self.bins is not None:
            output, outputs = bin_logits(output, self.bins), "logits"
        prob = penalized_prob(
            output, self.shape[1], self.sharpness, outputs, self.check
        )
        device, n = prob.device, len(prob)
        group = self._groups(_on(device, sensitive, self.encode), n)  # (b, A)
        stratum = self.strata(y, control, n, device)  # (b,)
        cell = stratum[:, None] * self.n_groups + group
        nowhere = self.shape[0] * self.n_groups
        known = (stratum[:, None] >= 0) & (group >= 0)
        weight = self.weights(sample_weight, n)
        return BatchRows(prob, torch.where(known, cell, nowhere), weight)

    def weights(self, sample_weight: Table, n: int) -> Tensor | None:
        """Return (n,) weights of mean 1 over the training rows, None for none."""
        if sample_weight is None:
            return None
        weight = torch.as_tensor(sample_weight).detach().double()
        _check_length(weight, n, "sample_weight")
        if self.check and is_readable(weight):
            is_sound = torch.isfinite(weight) & (weight >= 0)
            if not bool(is_sound.all()):
                raise InvalidInputError(
                    f"sample_weight holds {float(weight[~is_sound][0]):g} in "
                    f"{int((~is_sound).sum())} of {n} rows. Expected finite weights of "
                    "0 and above; give 0 to rows that are not to count."
                )
        return weight.reshape(-1) / self.mean_weight

    def encode(self, sensitive_features: Table) -> Tensor:
        """Return sensitive features as one whole number a column: (n,) or (n, a)."""
        names = [column.name for column in self.encoding.columns]
        values = _split(plain(sensitive_features), len(names))
        numbers = [
            column.encode(part)
            for column, part in zip(self.encoding.columns, values, strict=True)
        ]
        return torch.from_numpy(
            np.stack(numbers, axis=1) if len(numbers) > 1 else numbers[0]
        )

    def _add(self, name: str, table: IntArray) -> None:
        # Made from the encoding alone, so a state_dict need not hold it.
        self.register_buffer(name, torch.from_numpy(table.copy()), persistent=False)

    def _add_numbers(self, name: str, column: Column) -> None:
        values = column.values
        table = np.full(int(np.ptp(values)) + 1, -1, dtype=np.int64)
        table[values - values.min()] = np.arange(values.size)
        self._add(name, table)
        self._lowest[name] = int(values.min())

    def _groups(self, sensitive: Tensor, n: int) -> Tensor:
        columns = self.encoding.columns
        table = sensitive[:, None] if sensitive.dim() == 1 else sensitive
        if table.dim() != 2 or len(table) != n:
            raise InvalidInputError(
                f"sensitive has shape {tuple(sensitive.shape)} and the output has {n} "
                f"rows. Expected ({n},), ({n}, {len(columns)}) with one number a "
                f"column, or ({n}, {self.n_groups}) one-hot."
            )
        if table.shape[1] == len(columns):
            return self._positions(table)
        if table.shape[1] == self.n_groups:
            return self._of_one_hot(table)
        raise InvalidInputError(
            f"sensitive has {table.shape[1]} columns. Expected {len(columns)}, as in "
            f"training, or one-hot {self.n_groups}: one for each of the groups."
        )

    def _positions(self, table: Tensor) -> Tensor:
        found = [
            self._look_up(table[:, a], f"_position_{a}", column)
            for a, column in enumerate(self.encoding.columns)
        ]
        if self.encoding.joint is None:
            numbered = [
                torch.where(position >= 0, position + begin, -1) if begin else position
                for position, begin in zip(found, self._begins, strict=True)
            ]
            return torch.stack(numbered, dim=1)
        place, known = torch.zeros_like(found[0]), found[0] >= 0
        for position, column in zip(found, self.encoding.columns, strict=True):
            place = place * len(column.groups) + position.clamp_min(0)
            known = known & (position >= 0)
        return torch.where(known, self._buffer("_joint")[place], -1)[:, None]

    def _of_one_hot(self, table: Tensor) -> Tensor:
        begin, found = 0, []
        for attribute in self.encoding.attributes:
            part = torch.nan_to_num(table[:, begin : begin + len(attribute.groups)])
            position = part.argmax(dim=1) + begin
            found.append(torch.where(part.amax(dim=1) > 0, position, -1))
            begin += len(attribute.groups)
        return torch.stack(found, dim=1)

    def strata(self, y: Table, control: Table, n: int, device: torch.device) -> Tensor:
        """Return the (n,) stratum of each row, -1 where it is in none."""
        table = self._buffer("_stratum_of")
        zero = torch.zeros(n, dtype=torch.int64, device=device)
        row, column = zero, zero
        if self.needs_labels:
            row = self._labels(y, n, device) + 1
        if self.encoding.control is not None:
            if control is None:
                raise InvalidInputError(
                    "The notion conditions on a control feature, and control= did not "
                    "come. Give its value for each row of the batch."
                )
            values = _on(device, control, self.encode_control)
            _check_length(values, n, "control")
            found = self._look_up(values, "_position_control", self.encoding.control)
            column = found + 1
        return table[row, column]

    def encode_control(self, values: Table) -> Tensor:
        """Return the control feature as whole numbers (n,)."""
        if self.encoding.control is None:
            raise InvalidInputError("The notion has no control feature; give none.")
        return torch.from_numpy(self.encoding.control.encode(plain(values)))

    def encode_labels(self, y: Table) -> Tensor:
        """Return labels as class codes (n,)."""
        y = plain(y)
        code = encode_labels(y, count_rows(y), self.encoding.classes, "y").y
        return torch.as_tensor(code)

    def _labels(self, y: Table, n: int, device: torch.device) -> Tensor:
        if y is None:
            raise InvalidInputError(
                "The notion conditions on the label, and y did not come. Call "
                "fair(output, sensitive, y), or use demographic parity."
            )
        y = _on(device, y, self.encode_labels)
        _check_length(y, n, "y")
        code = self._whole(y.reshape(-1), "y")
        n_classes = len(self.encoding.classes)
        if self.check and is_readable(code) and len(code):
            low, high = int(code.min()), int(code.max())
            if low < -1 or high >= n_classes:
                raise InvalidInputError(
                    f"y holds the codes {low} to {high}. Expected class codes 0 to "
                    f"{n_classes - 1}, -1 where unknown; fair.encode_labels makes them."
                )
        return torch.where((code >= 0) & (code < n_classes), code, -1)

    def _look_up(self, values: Tensor, name: str, column: Column) -> Tensor:
        if column.edges is not None and values.is_floating_point():
            edges = torch.tensor(column.edges, dtype=torch.float64).to(values.device)
            band = torch.bucketize(values.double().contiguous(), edges, right=True)
            return torch.where(torch.isnan(values), -1, band)
        table, low = self._buffer(name), self._lowest[name]
        place = self._whole(values, column.name) - low
        inside = (place >= 0) & (place < len(table))
        found = torch.where(inside, table[place.clamp(0, len(table) - 1)], -1)
        if self.check and is_readable(found):
            strange = (found < 0) & (place != -1 - low)
            if bool(strange.any()):
                raise InvalidInputError(
                    f"{column.name} holds {int(place[strange][0]) + low}. Expected one "
                    f"of {', '.join(map(str, column.values))} ("
                    f"{', '.join(column.groups)}), or -1 where it is unknown."
                )
        return found

    def _whole(self, values: Tensor, name: str) -> Tensor:
        if not values.is_floating_point():
            return values.long()
        values = torch.where(torch.isnan(values), -1, values)
        whole = values.long()
        if self.check and is_readable(values) and bool((whole != values).any()):
            raise InvalidInputError(
                f"{name} holds {float(values[whole != values][0]):g}. Expected whole "
                "numbers; give the values of training, or what fair.encode made of "
                "them."
            )
        return whole

    def _buffer(self, name: str) -> Tensor:
        return self.get_buffer(name)


def _on(device: torch.device, values: Table, encode: Any) -> Tensor:
    tensor: Tensor = values if isinstance(values, Tensor) else encode(values)
    return tensor.to(device, non_blocking=True)


def _check_length(values: Tensor, n: int, name: str) -> None:
    if values.numel() != n:
        raise InvalidInputError(
            f"{name} has shape {tuple(values.shape)} and the output has {n} rows. "
            f"Expected ({n},)."
        )


def _split(table: Table, n_columns: int) -> list[Table]:
    columns = [values for _, values in split_columns(table)]
    if len(columns) != n_columns:
        raise InvalidInputError(
            f"sensitive_features has {len(columns)} columns of {count_rows(table)} "
            f"rows. Expected {n_columns}, as in training."
        )
    return columns
