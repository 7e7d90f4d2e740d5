"""Fair and differentially private: Adult by sex under Opacus.

The encoding uses constants and the categories of the data's documentation; nothing is
fitted to the rows.
"""

import numpy as np
import pandas as pd
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from fferm.datasets import load_adult
from fferm.integrations.opacus import PrivateFairnessLoss
from fferm.metrics import violation
from fferm.torch import DualSteps

DELTA = 1e-5
EPOCHS = 20
# A middle and a width of each number, chosen without the data.
NUMBERS = {"age": (40, 20), "education-num": (10, 3), "hours-per-week": (40, 15)}


def encode(frame: pd.DataFrame) -> torch.Tensor:
    """Return the rows as numbers."""
    text = frame.select_dtypes(exclude="number")
    parts = [pd.get_dummies(text)]
    parts += [(frame[name] - mid) / width for name, (mid, width) in NUMBERS.items()]
    parts += [np.log1p(frame[name]) / 5 for name in ("capital-gain", "capital-loss")]
    return torch.tensor(pd.concat(parts, axis=1).to_numpy(np.float32))


def train(epsilon: float, weight: float, seed: int = 0) -> dict[str, float]:
    """Return accuracy and violation on the test rows, and the epsilon spent."""
    data = load_adult(sensitive="sex")
    n, sex = len(data.frame), data.sensitive_features
    x = encode(pd.concat([data.frame, data.frame_test]))
    torch.manual_seed(seed)
    engine = PrivacyEngine()
    fair = PrivateFairnessLoss.from_noisy_counts(
        engine, data.y, sex, sharpness=2.0, dual_steps=DualSteps(window=3000)
    )
    model = nn.Linear(x.shape[1], 2)
    rows = TensorDataset(x[:n], torch.tensor(data.y), fair.encode(sex))
    model, optimizer, loader = fair.make_private(
        target_epsilon=epsilon,
        target_delta=DELTA,
        epochs=EPOCHS,
        module=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-2),
        data_loader=DataLoader(rows, batch_size=512),
        max_grad_norm=1.0,
    )
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, EPOCHS)
    for _ in range(EPOCHS):
        for x_batch, y, s in loader:
            logits = model(x_batch)
            loss = F.cross_entropy(logits, y) + weight * fair(logits, s, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    with torch.no_grad():
        decided = model(x[n:]).argmax(dim=1).numpy()
    groups = data.sensitive_features_test
    return {
        "accuracy": float(np.mean(decided == data.y_test)),
        "violation": violation(data.y_test, decided, sensitive_features=groups),
        "epsilon": float(engine.get_epsilon(DELTA)),
    }


if __name__ == "__main__":
    for epsilon in (1.0, 3.0, 8.0):
        for weight in (0.0, 30.0):
            found = pd.DataFrame([train(epsilon, weight, seed) for seed in range(5)])
            mean, noise = found.mean(), found.std()
            print(
                f"epsilon {mean['epsilon']:.3f} of {epsilon:g}, weight {weight:g}: "
                f"accuracy {mean['accuracy']:.3f} ± {noise['accuracy']:.3f} (lowest "
                f"{found['accuracy'].min():.3f}), violation {mean['violation']:.3f} ± "
                f"{noise['violation']:.3f} (highest {found['violation'].max():.3f})",
                flush=True,
            )
