r"""The kernel of Algorithm 2: descent and ascent along recursive estimators.

After one large batch an estimator moves with the point, and is not drawn anew:

.. math::

    \tilde v_t = \tilde v_{t-1} + \frac1b \sum_{i \in B_t}
        \big(g_i(\theta_t, z_t) - g_i(\theta_{t-1}, z_{t-1})\big)

with the *same* rows in both terms, and so does ``u``, the gradient by the dual. The
gradients and both kinds of steps are those of `fferm.solvers._kernels`.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917

from typing import NamedTuple

import numba

from fferm._types import FloatArray
from fferm.solvers._kernels import (
    ascend,
    batch_gradients_into,
    descend,
    dual_gradient_into,
    payoff_into,
)

# The first steps of the dual, before c / t is small.
FIRST_DUAL_STEP = 0.2


class Estimate(NamedTuple):
    """Gradients at a point, and what they are computed from.

    Attributes
    ----------
    v
        (d + 1, C L) by the model, without the ridge.
    u
        (R, m, K, L) by the dual A.
    mass
        (R, m, K, L) mean of ``F`` by stratum and group.
    payoff
        (R, m, K, L) of the dual.
    """

    v: FloatArray
    u: FloatArray
    mass: FloatArray
    payoff: FloatArray


@numba.njit(nogil=True, cache=True)
def estimate_into(rows, batch, theta, dual, steps, pointers, found):
    """Write the gradients of one batch at a point into ``found``."""
    dual_at, conjugate_at = pointers
    payoff_into(dual, dual_at, conjugate_at, found.payoff)
    batch_gradients_into(
        rows, batch, theta, steps, found.payoff, found.v, found.mass, 1.0
    )
    dual_gradient_into(dual, found.mass, found.u)


@numba.njit(nogil=True, cache=True)
def add_into(term, sign, total):
    """Add ``sign * term`` to ``total``, arrays of one shape."""
    flat, sums = term.reshape(-1), total.reshape(-1)
    for a in range(flat.size):
        sums[a] += sign * flat[a]


@numba.njit(nogil=True, cache=True)
def follow(rows, batch, before, now, steps, pointers, work, held):
    """Add the change of a batch's gradients from one point to the next to ``held``.

    A point is the parameters of the model and the dual; ``work`` is scratch.
    """
    estimate_into(rows, batch, before[0], before[1], steps, pointers, work)
    add_into(work.v, -1.0, held.v)
    add_into(work.u, -1.0, held.u)
    estimate_into(rows, batch, now[0], now[1], steps, pointers, work)
    add_into(work.v, 1.0, held.v)
    add_into(work.u, 1.0, held.u)


@numba.njit(nogil=True, cache=True)
def copy_into(values, copy):
    """Copy an array into another of its shape."""
    flat, copied = values.reshape(-1), copy.reshape(-1)
    for a in range(flat.size):
        copied[a] = flat[a]


@numba.njit(nogil=True, cache=True)
def sreda_steps(rows, draws, picks, model, now, before, steps, pointers, held, work, t):
    """Run from one large batch to the next and return the number of steps so far.

    ``held`` comes with the gradients of the large batch. ``draws`` (q, m + 1, b) are
    the rows of the small ones, ``picks`` (q,) the inner steps that are kept. ``model``,
    the point ``now`` and ``held`` are changed in place, the others are scratch.
    """
    theta, dual = now
    for k in range(picks.size):
        copy_into(theta, before[0])
        copy_into(dual.z, before[1].z)
        t += 1
        descend(model, held.v, steps, t)
        for s in range(picks[k] + 1):
            follow(rows, draws[k, s], before, now, steps, pointers, work, held)
            if s < picks[k]:
                copy_into(theta, before[0])
                copy_into(dual.z, before[1].z)
                step = min(FIRST_DUAL_STEP, steps.dual_lr / t)
                ascend(dual, held.mass, held.u, step, draws.shape[2])
    return t
