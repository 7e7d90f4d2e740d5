"""What a batch says of the whole: the mean of a loss over batches against all rows.

A predictor that is fair up to noise, four groups. `FairnessLoss` with its dual at the
optimum of all rows, and fairret's NormLoss of the positive rate, each as the mean over
batches of one shuffled pass after another.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from fairret.loss import NormLoss
from fairret.statistic import PositiveRate
from torch import Tensor

from fferm.tables import joint, penalty
from fferm.torch import FairnessLoss

N_ROWS, N_GROUPS, N_PASSES = 8192, 4, 20
SIZES = (2, 8, 64, 512)


def run() -> dict[str, Any]:
    """Return the means of both losses by batch size."""
    rng = np.random.default_rng(0)
    s = torch.from_numpy(rng.choice(N_GROUPS, N_ROWS, p=[0.4, 0.3, 0.2, 0.1]))
    logits = torch.from_numpy(rng.normal(size=(N_ROWS, 1)))
    y = torch.from_numpy(rng.integers(0, 2, N_ROWS))
    sides = {"`FairnessLoss`": _ours(logits, y, s), "fairret `NormLoss`": _theirs()}
    lines = [
        f"| mean over batches of | all rows | {' | '.join(map(str, SIZES))} |",
        "|---|---|" + "---|" * len(SIZES),
    ]
    for name, loss in sides.items():
        whole = float(loss(logits, s))
        means = [_mean(loss, logits, s, size) for size in SIZES]
        cells = [f"{value:.3g}" for value in (whole, *means)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return {"tables": {"batch_bias": lines}}


def _ours(logits: Tensor, y: Tensor, s: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    fair = FairnessLoss.from_labels(y, s)
    prob = torch.sigmoid(logits[:, 0]).numpy()
    table = joint(np.column_stack([1 - prob, prob]), s.numpy(), N_GROUPS)
    product = table.sum(axis=1, keepdims=True) * table.sum(axis=0)
    with torch.no_grad():
        fair.dual_variable.copy_(torch.from_numpy(np.log(table / product))[None])
    fair.eval()
    print(f"divergence of all rows: {penalty(table, 'kl')[0]:.6g}")
    return lambda part, group: fair(part, group)


def _theirs() -> Callable[[Tensor, Tensor], Tensor]:
    norm, eye = NormLoss(PositiveRate()), torch.eye(N_GROUPS, dtype=torch.float64)
    return lambda part, group: norm(part, eye[group])


def _mean(
    loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, s: Tensor, size: int
) -> float:
    generator = torch.Generator().manual_seed(0)
    found = []
    # The same number of batches for all sizes is enough to see a bias.
    for _ in range(max(1, N_PASSES * size // max(SIZES))):
        order = torch.randperm(N_ROWS, generator=generator)
        found += [float(loss(logits[part], s[part])) for part in order.split(size)]
    return float(np.mean(found))
