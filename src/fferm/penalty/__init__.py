"""The penalty: what a table of joint frequencies costs, and its gradient.

`objective` states the problem and is the oracle in plain NumPy; `dual` holds the
variables of the maximisation inside it; `soft_bins` and `losses` take numbers instead
of classes. `fferm.tables`, the formulas on a table, stays importable at the top.

Linear models, networks and trees share this package. It may import `divergences`,
`notions`, `uncertainty` and `data`; never solvers, estimators, torch or boosting.
"""
