"""Fairness losses for any PyTorch model: one term beside the loss you have.

`reader` places a batch in the table of stratum, class and group; `losses` has the dual
table that ascends and the two losses of tables, `critic` the loss of numbers, whose
dual is a function. `training` is the one loop, `networks` what it trains and on which
rows, `regression` its use for numbers; `serialize` keeps runs and networks,
`distributed` adds up over ranks. Every formula is that of `fferm.divergences`; every
constant comes from the NumPy path.
"""

from fferm.errors import missing_package

try:
    import torch as _torch  # noqa: F401 - the package of PyTorch, not this one
except (ImportError, OSError) as error:
    raise missing_package("fferm.torch", "torch", "torch", error) from error

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
