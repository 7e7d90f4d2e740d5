"""A fair model with skorch: groups travel with X, and the loss adds one term."""

from typing import Any

import numpy as np
import torch
from skorch import NeuralNetClassifier
from torch import Tensor, nn

from fferm.datasets import load_adult
from fferm.metrics import violation
from fferm.torch import FairnessLoss


class Network(nn.Module):
    """A network that is handed the groups and does not look at them."""

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(n_features, 32), nn.ReLU(), nn.Linear(32, 2)
        )

    def forward(self, x: Tensor, s: Tensor | None = None) -> Tensor:
        """Return logits."""
        return self.layers(x)


class FairNet(NeuralNetClassifier):
    """A classifier whose training loss has the penalty."""

    def __init__(
        self, *args: Any, fair: FairnessLoss, weight: float, **kwargs: Any
    ) -> None:
        self.fair = fair
        self.weight = weight
        super().__init__(*args, **kwargs)

    def get_loss(
        self, y_pred: Tensor, y_true: Tensor, X: Any = None, training: bool = False
    ) -> Tensor:
        """Return the loss of a batch."""
        loss = super().get_loss(y_pred, y_true, X=X, training=training)
        if not training:
            return loss
        return loss + self.weight * self.fair(y_pred, X["s"], y_true)


def train(weight: float, n_epochs: int = 2) -> float:
    """Return the gap between the decisions for women and men in the test rows."""
    torch.manual_seed(0)
    data = load_adult(sensitive="sex")
    fair = FairnessLoss.from_labels(data.y, data.sensitive_features)
    net = FairNet(
        Network,
        module__n_features=data.X.shape[1],
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=3e-3,
        batch_size=256,
        max_epochs=n_epochs,
        iterator_train__shuffle=True,
        train_split=None,
        verbose=0,
        fair=fair,
        weight=weight,
    )
    s = fair.encode(data.sensitive_features).numpy()
    net.fit({"x": data.X.astype(np.float32), "s": s}, data.y)
    decided = net.predict({"x": data.X_test.astype(np.float32)})
    return violation(
        data.y_test, decided, sensitive_features=data.sensitive_features_test
    )


if __name__ == "__main__":
    print(f"without the penalty {train(0.0):.3f}, with it {train(10.0):.3f}")
