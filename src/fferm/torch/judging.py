"""The objective of networks on rows that they are not trained on."""

from collections.abc import Sequence

import torch
from torch import nn

from fferm.penalty.objective import Penalty
from fferm.torch.table_penalties import Call
from fferm.torch.table_rows import LossRows


class Judge:
    """Measures loss plus weighted penalty on held-out rows.

    Parameters
    ----------
    rows
        The rows; features, labels and weights.
    penalty
        The penalty on the same rows, or None.
    sharpness
        The penalty sees ``softmax(sharpness * logits)``.
    """

    def __init__(
        self, rows: LossRows, penalty: Penalty | None, sharpness: float
    ) -> None:
        self.rows, self.penalty, self.sharpness = rows, penalty, sharpness

    @torch.no_grad()
    def __call__(self, call: Call, weights: Sequence[float]) -> list[float]:
        """Return the objective of each network."""
        logits = torch.cat([call(x) for x in self.rows.X.blocks()], dim=1).double()
        found = []
        for part, weight in zip(logits, weights, strict=True):
            loss = nn.functional.cross_entropy(part, self.rows.y, reduction="none")
            if self.rows.weight is not None:
                loss = loss * self.rows.weight
            value = float(loss.mean())
            if self.penalty is not None and weight > 0:
                prob = torch.softmax(self.sharpness * part, dim=1).cpu().numpy()
                value += weight * self.penalty.value_and_gradient(prob)[0]
            found.append(value)
        return found
