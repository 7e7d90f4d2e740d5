"""Measures of fairness, for predictions from anywhere.

`tabulator` turns predictions into tables of rates and reads gaps off them;
`classification` is the same for users, in one call. `intervals` says how sure a gap is,
`certificates` what a divergence promises about it, and `dependence` measures
predictions that are numbers. Nothing here knows a model or a solver.
"""

from fferm.metrics.classification import (
    group_table,
    soft_violation,
    violation,
    violations,
)
from fferm.metrics.tabulator import Absence, Gap, Violations

__all__ = [
    "Absence",
    "Gap",
    "Violations",
    "group_table",
    "soft_violation",
    "violation",
    "violations",
]
