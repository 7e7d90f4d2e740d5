"""Synthetic data whose dependence between group and label is known exactly."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import softmax

from fferm._typing import FloatArray
from fferm.data.validate import COUNT, POSITIVE, Number, check_params
from fferm.datasets._dataset import FairDataset, Table, make_rng
from fferm.errors import InvalidParameterError

TWO = Number(2, is_whole=True)

DESCRIPTION = """\
Synthetic, drawn by fferm.datasets.make_biased. Nobody's data, under fferm's licence.
Harm: none by the data; a method that is fair here has been shown to be fair nowhere
else.
"""


def make_biased(  # noqa: PLR0913 (a generator lists its parameters)
    n_samples: int = 1000,
    *,
    n_features: int = 5,
    n_groups: int = 2,
    n_classes: int = 2,
    bias: float = 1.0,
    group_weights: Sequence[float] | None = None,
    noise: float = 1.0,
    test_size: float = 0.3,
    random_state: int | np.random.Generator | None = 0,
) -> FairDataset:
    r"""Return synthetic data with a set dependence of the label on the group.

    With ``m`` classes, ``K`` groups and ``d`` features, each row is drawn by

    .. math::

        s &\sim \text{group\_weights}, \qquad c_s = 2 s / (K - 1) - 1 \in [-1, 1] \\
        P(y = j \mid s) &\propto \exp(\text{bias} \cdot c_s \cdot j / (m - 1)) \\
        x &= \bigl(2 y / (m - 1) - 1 + \text{bias} \cdot c_s / 2\bigr)\, u
             + \text{noise} \cdot \varepsilon, \qquad
             u = (1, \dots, 1) / \sqrt d,\ \varepsilon \sim N(0, I_d)

    so `bias` is the log-odds of the last class against the first in the last group,
    and half of it shifts the features along the direction that tells the label. With
    ``bias=0`` neither label nor features depend on the group. :func:`biased_rates`
    gives P(y | s) itself.

    Parameters
    ----------
    n_samples : int
        Rows in both parts together.
    n_features, n_groups, n_classes : int
        Sizes d, K (at least 2) and m (at least 2).
    bias : float
        Strength of the dependence; a negative one turns it round.
    group_weights : sequence of float, optional
        Probabilities of the groups up to a factor; equal if not given.
    noise : float
        Standard deviation of the features around their mean, above 0.
    test_size : float
        Share of test rows; the split is stratified by label and group.
    random_state : int, Generator or None
        Seed of the draw and of the split.

    Returns
    -------
    FairDataset
        `y` holds 0 to ``n_classes - 1``. The only sensitive column is ``group``, with
        the strings ``"0"`` to ``str(n_groups - 1)``; it is not among the features.

    Examples
    --------
    >>> from fferm.datasets import biased_rates, make_biased
    >>> make_biased(100, bias=2.0)
    FairDataset('biased': 70 train + 30 test rows, 5 features, sensitive: group)
    >>> biased_rates(bias=2.0).round(3)
    array([[0.881, 0.119],
           [0.119, 0.881]])
    """
    check_params(
        {"n_samples": n_samples, "n_features": n_features, "noise": noise},
        {"n_samples": TWO, "n_features": COUNT, "noise": POSITIVE},
    )
    rates = biased_rates(n_groups=n_groups, n_classes=n_classes, bias=bias)
    weights = np.ones(n_groups) if group_weights is None else np.array(group_weights)
    if weights.shape != (n_groups,) or not all(map(POSITIVE.accepts, weights)):
        raise InvalidParameterError(
            f"group_weights must be {n_groups} positive numbers, one per group; got "
            f"{group_weights!r}."
        )
    rng = make_rng(random_state)
    group = rng.choice(n_groups, size=n_samples, p=weights / weights.sum())
    # Inverse transform: the label is the number of cumulative sums below u. The last
    # sum is 1 up to rounding and is left out, so no label can exceed m - 1.
    below = np.cumsum(rates[group], axis=1)[:, :-1] <= rng.random(n_samples)[:, None]
    y = below.sum(axis=1, dtype=np.int64)
    centre = 2 * y / (n_classes - 1) - 1 + bias * _spread(n_groups)[group] / 2
    drawn = rng.standard_normal((n_samples, n_features))
    X = centre[:, None] / np.sqrt(n_features) + noise * drawn
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(n_features)])
    # Groups are names, not numbers: as strings they stratify the split.
    sensitive = pd.DataFrame({"group": group.astype(str)})
    return Table("biased", DESCRIPTION, frame, y, sensitive).split(test_size, rng)


def biased_rates(
    *, n_groups: int = 2, n_classes: int = 2, bias: float = 1.0
) -> FloatArray:
    """Return P(y | group) of :func:`make_biased`, shape (n_groups, n_classes).

    The other parameters of :func:`make_biased` do not enter.

    Parameters
    ----------
    n_groups, n_classes, bias
        As in :func:`make_biased`.

    Examples
    --------
    >>> from fferm.datasets import biased_rates
    >>> biased_rates(n_groups=3, bias=0.0)
    array([[0.5, 0.5],
           [0.5, 0.5],
           [0.5, 0.5]])
    """
    check_params(
        {"n_groups": n_groups, "n_classes": n_classes, "bias": bias},
        {"n_groups": TWO, "n_classes": TWO, "bias": Number(-np.inf)},
    )
    level = np.arange(n_classes) / (n_classes - 1)
    rates: FloatArray = softmax(bias * _spread(n_groups)[:, None] * level, axis=1)
    return rates  # (K, m)


def _spread(n_groups: int) -> FloatArray:
    return np.linspace(-1.0, 1.0, n_groups)
