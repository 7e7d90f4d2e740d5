"""The penalty: what a table of joint frequencies costs, and its gradient.

`objective` states the problem and is the oracle in plain NumPy; `dual` holds the
variables of the maximisation inside it; `soft_bins` and `losses` take numbers instead
of classes. `fferm.tables` offers the formulas on a table to users, behind checks.

Linear models, networks and trees share this package. It may import `divergences`,
`notions`, `uncertainty` and `data`; never solvers, estimators, torch or boosting.
"""

from fferm._lazy import lazy

__getattr__, __dir__ = lazy(__name__)
