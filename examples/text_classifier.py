"""A fair text classifier on made reviews: any model, one more term in its loss.

Reviews praise or blame; some are signed by a name that gives the writer's group away,
and the labels favour one group. A bag of embeddings learns both, unless the penalty
holds its predictions apart from the group.
"""

import argparse

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fferm.torch import FairnessLoss

GOOD = ["bright", "careful", "clear", "kind", "patient", "prompt", "warm", "wise"]
BAD = ["careless", "cold", "dull", "harsh", "late", "rude", "sloppy", "vague"]
NAMES = [["Ada", "Eva", "Ida", "Mia"], ["Bo", "Jan", "Leo", "Tom"]]
FILLER = ["a", "and", "our", "the", "they", "was", "we", "with"]
WORDS = sorted({*GOOD, *BAD, *FILLER, *NAMES[0], *NAMES[1]})
LENGTH = 12


def make_reviews(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return word numbers (n, LENGTH), labels and groups."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    merit = rng.integers(0, 2, n)
    # More often than not the mark is for the group: one is up, the other down.
    is_biased = rng.random(n) < 0.55
    label = np.where(is_biased, group, merit)
    number = {word: i for i, word in enumerate(WORDS)}
    rows = []
    for k, is_good in zip(group, merit, strict=True):
        praise = rng.choice(GOOD if is_good else BAD, 4)
        words = [*praise, *rng.choice(NAMES[k], 1), *rng.choice(FILLER, LENGTH - 5)]
        rows.append([number[word] for word in rng.permutation(words)])
    return torch.tensor(rows), torch.tensor(label), torch.tensor(group)


class Classifier(nn.Module):
    """A mean of embeddings, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(len(WORDS), 16)
        self.out = nn.Linear(16, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return self.out(torch.relu(self.words(words)))


def train(weight: float, n_epochs: int = 6, seed: int = 0) -> dict[str, float]:
    """Return accuracy against merit, and the gap between groups, on new reviews."""
    words, y, s = make_reviews(4000, seed)
    torch.manual_seed(seed)
    model = Classifier()
    fair = FairnessLoss.from_labels(y, s, divergence="kl")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(n_epochs):
        for i in torch.randperm(len(y)).split(64):
            logits = model(words[i])
            loss = F.cross_entropy(logits, y[i]) + weight * fair(logits, s[i], y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    words, y, s = make_reviews(2000, seed + 1)
    with torch.no_grad():
        decided = model(words).argmax(dim=1).double()
    rates = [float(decided[s == k].mean()) for k in (0, 1)]
    merit = torch.isin(words, torch.tensor([WORDS.index(w) for w in GOOD])).any(dim=1)
    return {
        "accuracy": float((decided == merit).double().mean()),
        "gap": abs(rates[0] - rates[1]),
    }


def main() -> None:
    """Train without and with the penalty."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weight", type=float, default=5.0)
    for weight in (0.0, parser.parse_args().weight):
        found = train(weight)
        print(
            f"weight {weight:>4}: agrees with merit {found['accuracy']:.3f}, "
            f"gap between groups {found['gap']:.3f}"
        )


if __name__ == "__main__":
    main()
