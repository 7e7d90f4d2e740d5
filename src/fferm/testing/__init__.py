"""The laws that a divergence and a notion must obey, for ours and for yours.

`check_divergence` and `check_notion` hold one instance to a table of laws and raise
`ComponentError` naming the first that is broken, the point and the two numbers. Our
own tests call them for every registered component, so a class that passes runs
wherever ours do.
"""

from fferm.testing.divergences import check_divergence
from fferm.testing.notions import check_notion
from fferm.testing.solvers import check_solver

__all__ = ["check_divergence", "check_notion", "check_solver"]
