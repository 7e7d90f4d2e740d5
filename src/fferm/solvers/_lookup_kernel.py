r"""The kernel of Algorithm 3: descent along the loss and a payoff that is looked up.

.. math::

    g_\theta = \frac1b \sum_{i \in B} \nabla \ell_i
        + \lambda \sum_j G_{r_i j k_i} \nabla F_{ij}

with a fixed payoff ``G``. There is no dual to move.
"""

# Numba caches code by the text of its own file alone, so each names its release: 0.1.0.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN202

import numba

from fferm.solvers._kernels import batch_gradients_into, descend
from fferm.solvers._rows import FAST


@numba.njit(**FAST)
def lookup_steps(rows, order, batch_size, model, steps, scratch, t):
    """Run over the rows in the given order and return the number of steps so far.

    ``model`` is changed in place; the payoff is that of the scratch.
    """
    for begin in range(0, order.size, batch_size):
        batch = order[begin : begin + batch_size]
        ramp = min(1.0, (t + 1) / steps.warm_up)
        following = order[begin + batch_size : begin + 2 * batch_size]
        batch_gradients_into(rows, batch, following, model.theta, steps, ramp, scratch)
        t += 1
        descend(model, scratch, steps, t)
    return t
