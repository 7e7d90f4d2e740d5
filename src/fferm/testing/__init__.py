"""The laws that a divergence, a notion and a rival must obey, ours and yours.

`check_divergence`, `check_notion` and `check_baseline` hold one instance to a table of
laws and raise `ComponentError` naming the first that is broken, the point and the two
numbers. Our own tests call them for every registered component, so a class that passes
runs wherever ours do.
"""

from fferm.testing.baselines import check_baseline
from fferm.testing.divergences import check_divergence
from fferm.testing.notions import check_notion

__all__ = ["check_baseline", "check_divergence", "check_notion"]
