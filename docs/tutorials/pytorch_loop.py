# %% [markdown]
# # A PyTorch loop
#
# You have a network and a training loop, and want to keep both. One more term in the loss makes the predictions independent of a group,
# with batches of any size.

# %%
import torch
from torch import nn
from torch.nn import functional as F

from fferm import audit
from fferm.datasets import load_adult
from fferm.torch import FairnessLoss

data = load_adult(sensitive="sex")
x = torch.tensor(data.X, dtype=torch.float32)
y = torch.tensor(data.y)
x_test = torch.tensor(data.X_test, dtype=torch.float32)

# %% [markdown]
# ## The loop
#
# `FairnessLoss` counts the groups of all training rows once. In each step it looks up what a row's prediction adds to the
# divergence, so a batch need not hold every group. With `weight=0` this is the loop that you have already.


# %%
def train(weight, batch_size, n_epochs=3):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, 2))
    fair = FairnessLoss.from_labels(y, data.sensitive_features, divergence="kl")
    s = fair.encode(data.sensitive_features)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=3e-3 * (batch_size / 256) ** 0.5
    )
    for _ in range(n_epochs):
        for i in torch.randperm(len(x)).split(batch_size):
            logits = model(x[i])
            loss = F.cross_entropy(logits, y[i]) + weight * fair(logits, s[i], y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


# %% [markdown]
# ## Before and after
#
# The trained model is a plain module; the audit takes its decisions. Networks differ from machine to machine in the last digits,
# so we print two.


# %%
def judge(model):
    with torch.no_grad():
        decisions = model(x_test).argmax(dim=1).numpy()
    return audit(
        y_true=data.y_test,
        y_pred=decisions,
        sensitive_features=data.sensitive_features_test,
    )


for weight in (0.0, 5.0):
    result = judge(train(weight, batch_size=256))
    print(
        f"weight {weight}: accuracy {result.accuracy:.2f}, gap {result.violation:.2f}"
    )

# %% [markdown]
# ## Tiny batches
#
# A penalty computed on a batch of 16 rows would see unfairness in every batch. This one does not:

# %%
result = judge(train(5.0, batch_size=16, n_epochs=1))
print(f"batch 16: accuracy {result.accuracy:.2f}, gap {result.violation:.2f}")

# %% [markdown]
# Next: [all options of the loss](../how-to/networks.md#in-your-own-pytorch-loop), or `FairNetClassifier`, which is this loop as an estimator of scikit-learn:
# [networks](../how-to/networks.md).
