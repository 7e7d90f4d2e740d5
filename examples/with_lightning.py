"""A fair model with Lightning: the loss is one more submodule."""

import lightning as L
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from fferm.datasets import load_adult
from fferm.metrics import violation
from fferm.torch import FairnessLoss


class FairModule(L.LightningModule):
    """A network; as a submodule, the loss moves with it and is in its checkpoints."""

    def __init__(self, n_features: int, fair: FairnessLoss, weight: float) -> None:
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(n_features, 32), nn.ReLU(), nn.Linear(32, 2)
        )
        self.fair = fair
        self.weight = weight

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        """Return the loss of a batch."""
        x, y, s = batch
        logits = self.model(x)
        return F.cross_entropy(logits, y) + self.weight * self.fair(logits, s, y)

    def on_train_epoch_end(self) -> None:
        """Log how the penalty fares."""
        self.log("violation", self.fair.diagnostics().violation)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer of the network."""
        return torch.optim.Adam(self.model.parameters(), lr=3e-3)


def train(weight: float, n_epochs: int = 2) -> float:
    """Return the gap between the decisions for women and men in the test rows."""
    L.seed_everything(0, verbose=False)
    data = load_adult(sensitive="sex")
    fair = FairnessLoss.from_labels(data.y, data.sensitive_features)
    x = torch.tensor(data.X, dtype=torch.float32)
    rows = TensorDataset(x, torch.tensor(data.y), fair.encode(data.sensitive_features))
    module = FairModule(x.shape[1], fair, weight)
    trainer = L.Trainer(
        max_epochs=n_epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(rows, batch_size=256, shuffle=True))
    with torch.no_grad():
        logits = module.model(torch.tensor(data.X_test, dtype=torch.float32))
    decided = logits.argmax(dim=1).numpy()
    return violation(
        data.y_test, decided, sensitive_features=data.sensitive_features_test
    )


if __name__ == "__main__":
    print(f"without the penalty {train(0.0):.3f}, with it {train(10.0):.3f}")
