"""A network that looks at the colour, and one that is told not to.

Squares and crosses are drawn on the spot. The label is the shape, wrong for a quarter
of the pictures; the colour agrees with that label nine times in ten. So the colour says
more of the label than the shape does, and a plain network learns the colour. Where it
says nothing, in the test pictures, that network is lost. Asked for equalized odds
between the colours, the same network has to read the shape.

Run it with ``python examples/coloured_shapes.py``; it needs ``fferm[torch]``.
"""

import numpy as np
from torch import nn

from fferm import FairNetClassifier

SIZE = 12  # pixels a side
N_TRAIN, N_TEST = 4000, 2000
LABEL_NOISE = 0.25


def draw(n: int, agreement: float, seed: int) -> tuple[np.ndarray, ...]:
    """Return (n, 2 * SIZE * SIZE) pictures, noisy labels and colours.

    Parameters
    ----------
    n
        Number of pictures.
    agreement
        How often the colour is that of the label.
    seed
        Of everything random.
    """
    rng = np.random.default_rng(seed)
    shape = rng.integers(0, 2, n)
    label = np.where(rng.random(n) < LABEL_NOISE, 1 - shape, shape)
    colour = np.where(rng.random(n) < agreement, label, 1 - label)
    pictures = rng.normal(0, 0.3, (n, 2, SIZE, SIZE))
    for i in range(n):
        top, left = rng.integers(0, SIZE - 7, 2)
        pictures[i, colour[i], top : top + 7, left : left + 7] += outline(shape[i])
    return pictures.reshape(n, -1), label, colour


def outline(shape: int) -> np.ndarray:
    """Return a square (0) or a cross (1) of 7 x 7 pixels."""
    drawn = np.zeros((7, 7))
    if shape == 0:
        drawn[[0, -1]] = drawn[:, [0, -1]] = 1.0
    else:
        drawn[np.arange(7), np.arange(7)] = drawn[np.arange(7), 6 - np.arange(7)] = 1.0
    return drawn


def make_net(n_features: int, n_classes: int) -> nn.Module:
    """Return a small convolutional network; X holds one picture a row."""
    return nn.Sequential(
        nn.Unflatten(1, (2, SIZE, SIZE)),
        nn.Conv2d(2, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 3 * 3, n_classes),
    )


def main(n_train: int = N_TRAIN) -> dict[str, float]:
    """Train both, print and return their accuracy on the test pictures."""
    X, y, colour = draw(n_train, 0.9, seed=0)
    X_test, y_test, _ = draw(N_TEST, 0.5, seed=1)
    accuracy = {}
    for name, weight in {"plain": 0.0, "fair": 3.0}.items():
        model = FairNetClassifier(
            module=make_net,
            notion="equalized_odds",
            fairness_weight=weight,
            batch_size=64,
            learning_rate=3e-3,
            random_state=0,
        )
        model.fit(X, y, sensitive_features=colour)
        accuracy[name] = model.score(X_test, y_test)
        print(f"{name}: right for {accuracy[name]:.1%} of the test pictures")
    print(f"The best possible is {1 - LABEL_NOISE:.0%}: a quarter of labels is wrong.")
    return accuracy


if __name__ == "__main__":
    main()
