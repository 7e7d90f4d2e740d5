"""What researchers need and users do not: baselines, and the paper's experiments.

It may import every other package, and none but `fferm.testing`, `fferm.report` and
`fferm.cli` may import it.
"""

from typing import TYPE_CHECKING

from fferm._lazy import lazy

if TYPE_CHECKING:
    from fferm.lab import baselines as baselines
    from fferm.lab import experiments as experiments

__getattr__, __dir__ = lazy(__name__)
