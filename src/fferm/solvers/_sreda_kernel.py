r"""The kernel of Algorithm 2: descent and ascent along recursive estimators.

After one large batch an estimator moves with the point, and is not drawn anew:

.. math::

    \tilde v_t = \tilde v_{t-1} + \frac1b \sum_{i \in B_t}
        \big(g_i(\theta_t, z_t) - g_i(\theta_{t-1}, z_{t-1})\big)

with the *same* rows in both terms, and so does ``u``, the gradient by the dual. The
gradients and both kinds of steps are those of `fferm.solvers._kernels`; the estimators
are held where a scratch keeps gradient, slope and mass.
"""

# Numba caches code by the text of its own file alone, so each names its release: 0.1.0.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917

import numba

from fferm.solvers._kernels import (
    ascend,
    batch_gradients_into,
    descend,
    dual_gradient_into,
    payoff_into,
)
from fferm.solvers._rows import FAST

# The first steps of the dual, before c / t is small.
FIRST_DUAL_STEP = 0.2


@numba.njit(**FAST)
def estimate_into(rows, batch, theta, dual, steps, pointer, scratch):
    """Write the gradients of one batch at a point into the scratch."""
    payoff_into(dual, pointer, scratch)
    # The same rows are read twice, and then others that are not known here.
    batch_gradients_into(rows, batch, batch[:0], theta, steps, 1.0, scratch)
    dual_gradient_into(dual, scratch)


@numba.njit(**FAST)
def add_into(scratch, sign, held):
    """Add the gradients of a batch, times a sign, to the estimators."""
    for n in range(scratch.counts[0]):
        a = scratch.used[n]
        for q in range(held.gradient.shape[1]):
            held.gradient[a, q] += sign * scratch.gradient[a, q]
    slope, sums = scratch.slope.reshape(-1), held.slope.reshape(-1)
    for n in range(slope.size):
        sums[n] += sign * slope[n]


@numba.njit(**FAST)
def follow(rows, batch, before, now, steps, pointer, scratch, held):
    """Add the change of a batch's gradients from one point to the next.

    A point is the parameters of the model and the dual.
    """
    estimate_into(rows, batch, before[0], before[1], steps, pointer, scratch)
    add_into(scratch, -1.0, held)
    estimate_into(rows, batch, now[0], now[1], steps, pointer, scratch)
    add_into(scratch, 1.0, held)


@numba.njit(**FAST)
def copy_into(values, copy):
    """Copy an array into another of its shape."""
    flat, copied = values.reshape(-1), copy.reshape(-1)
    for a in range(flat.size):
        copied[a] = flat[a]


@numba.njit(**FAST)
def sreda_steps(
    rows, draws, picks, model, dual, before, steps, pointer, scratch, held, t
):
    """Run from one large batch to the next and return the number of steps so far.

    ``held`` comes with the estimators of the large batch. ``draws`` (q, m + 1, b) are
    the rows of the small ones, ``picks`` (q,) the inner steps that are kept. ``model``,
    ``dual`` and ``held`` are changed in place; the point ``before`` is room.
    """
    now = (model.theta, dual)
    for k in range(picks.size):
        copy_into(model.theta, before[0])
        copy_into(dual.z, before[1].z)
        t += 1
        descend(model, held, steps, t)
        for s in range(picks[k] + 1):
            follow(rows, draws[k, s], before, now, steps, pointer, scratch, held)
            if s < picks[k]:
                copy_into(model.theta, before[0])
                copy_into(dual.z, before[1].z)
                step = min(FIRST_DUAL_STEP, steps.dual_lr / t)
                ascend(dual, held, step, draws.shape[2])
    return t
