r"""The kernel of Algorithm 3: descent along the loss and a payoff that is looked up.

.. math::

    g_\theta = \frac1b \sum_{i \in B} \nabla \ell_i
        + \lambda \sum_j G_{r_i j k_i} \nabla F_{ij}

with a fixed payoff ``G``. There is no dual to move.
"""

# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN202

import numba
import numpy as np

from fferm.solvers._kernels import batch_gradients_into, descend


@numba.njit(nogil=True, cache=True)
def lookup_steps(rows, order, batch_size, model, payoff, steps, t):
    """Run over the rows in the given order and return the number of steps so far.

    ``model`` is changed in place; ``payoff`` is (R, m, K, L).
    """
    gradient = np.empty(model.theta.shape)
    mass = np.empty(payoff.shape)
    for begin in range(0, order.size, batch_size):
        batch = order[begin : begin + batch_size]
        ramp = min(1.0, (t + 1) / steps.warm_up)
        batch_gradients_into(
            rows, batch, model.theta, steps, payoff, gradient, mass, ramp
        )
        t += 1
        descend(model, gradient, steps, t)
    return t
