"""Fairness losses for any PyTorch model: one term beside the loss you have.

`reader` places a batch in the table of stratum, class and group; `losses` has the dual
table that ascends and the two losses of tables, `critic` the loss of numbers, whose
dual is a function. `training` is the one loop, `networks` what it trains and on which
rows, `regression` its use for numbers; `serialize` keeps runs and networks,
`distributed` adds up over ranks. Every formula is that of `fferm.divergences`; every
constant comes from the NumPy path.
"""

from fferm.errors import import_extra

import_extra("torch", "torch")  # says what to install

from fferm.torch.critic import CriticFairnessLoss  # noqa: E402
from fferm.torch.losses import (  # noqa: E402
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
