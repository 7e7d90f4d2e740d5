"""The laws that a divergence, a notion, a solver and a baseline must obey.

`check_divergence`, `check_notion`, `check_solver` and `check_baseline` hold one
instance, ours or yours, to a table of laws and raise `ComponentError` naming the first
that is broken, the point and the two numbers. Our own tests call them for every
registered component, so a class that passes runs wherever ours do.
"""

from fferm.testing.baselines import check_baseline
from fferm.testing.divergences import check_divergence
from fferm.testing.notions import check_notion
from fferm.testing.solvers import check_solver

__all__ = ["check_baseline", "check_divergence", "check_notion", "check_solver"]
