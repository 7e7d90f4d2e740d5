r"""How a batch estimates the mean over pairs of rows, without bias.

The product term of a divergence is a mean over all pairs of training rows,
:math:`\frac1{n^2} \sum_{i i'} c(i, i')`. Of the pairs within a batch, those of two
different rows are right for rows drawn independently of each other. A batch of an epoch
draws without replacement: there a row meets itself once in n times, so

.. math:: \frac{n-1}{n} \, \overline{c}_{i \ne i'} + \frac1n \, \overline{c}_{i = i'}

To take all pairs of the batch is biased in both cases: a row meets itself once in b
times, and its joint and product are then the same.
"""

from typing import Literal

import torch
from torch import Tensor

from fferm.errors import InvalidInputError, InvalidParameterError

Sampling = Literal["epochs", "independent"]


def check_sampling(sampling: str) -> None:
    """Refuse a way to draw batches that is not known."""
    if sampling not in ("epochs", "independent"):
        raise InvalidParameterError(
            f"sampling={sampling!r} came. Expected 'epochs' (a batch holds no row "
            "twice) or 'independent' (each row is drawn from all)."
        )


def pair_weights(n_batch: int, n_total: int, sampling: Sampling) -> Tensor:
    """Return the (b, b) weights that pairs of a batch have in the mean over all pairs.

    Parameters
    ----------
    n_batch
        Rows in the batch.
    n_total
        Rows of the training data.
    sampling
        How the batch was drawn.
    """
    if n_batch < 2 and n_total > 1:
        raise InvalidInputError(
            "A batch of one row came. A continuous sensitive attribute is compared "
            "over pairs of rows; expected batches of at least 2."
        )
    same = torch.eye(n_batch, dtype=torch.float64)
    if n_total == 1:
        return same
    apart = (1 - same) / (n_batch * (n_batch - 1))
    if sampling == "independent":
        return apart
    return (n_total - 1) / n_total * apart + same / (n_batch * n_total)
