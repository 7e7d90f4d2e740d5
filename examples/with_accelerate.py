"""A fair model with Accelerate: prepare the model as ever, move the loss beside it."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from fferm.datasets import load_adult
from fferm.metrics import violation
from fferm.torch import FairnessLoss


def train(weight: float, n_epochs: int = 2) -> float:
    """Return the gap between the decisions for women and men in the test rows."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    data = load_adult(sensitive="sex")
    fair = FairnessLoss.from_labels(data.y, data.sensitive_features)
    x = torch.tensor(data.X, dtype=torch.float32)
    rows = TensorDataset(x, torch.tensor(data.y), fair.encode(data.sensitive_features))
    model = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(rows, batch_size=256, shuffle=True)

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    fair.to(accelerator.device)  # not prepared: it has no gradients to reduce
    accelerator.register_for_checkpointing(fair)
    for _ in range(n_epochs):
        for x, y, s in loader:
            logits = model(x)
            loss = F.cross_entropy(logits, y) + weight * fair(logits, s, y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()

    test = torch.tensor(data.X_test, dtype=torch.float32, device=accelerator.device)
    with torch.no_grad():
        decided = model(test).argmax(dim=1).cpu().numpy()
    return violation(
        data.y_test, decided, sensitive_features=data.sensitive_features_test
    )


if __name__ == "__main__":
    print(f"without the penalty {train(0.0):.3f}, with it {train(10.0):.3f}")
