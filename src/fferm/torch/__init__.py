"""Fairness losses for any PyTorch model: one term beside the loss you have.

`encoding` remembers what training labels look like, `outputs`, `numbers` and `rows`
place a batch in the table of stratum, class and group, `dual` is the table that
ascends, `fairness_loss` and `semi_stochastic` are the two losses; `critic_loss` is that
of numbers, whose dual is a function; `diagnostics` says how they fare. Every formula is
that of `fferm.divergences`; every constant comes from the NumPy path.
"""

try:
    import torch as _torch  # noqa: F401 - the package of PyTorch, not this one
except ImportError as error:
    from fferm.errors import MissingDependencyError

    raise MissingDependencyError(
        "fferm.torch needs the package torch, which is not installed. Run: "
        'pip install "fferm[torch]"'
    ) from error

from fferm.torch.critic import CriticFairnessLoss
from fferm.torch.losses import (
    Diagnostics,
    DualSteps,
    FairnessLoss,
    SemiStochasticFairnessLoss,
)

__all__ = [
    "CriticFairnessLoss",
    "Diagnostics",
    "DualSteps",
    "FairnessLoss",
    "SemiStochasticFairnessLoss",
]
