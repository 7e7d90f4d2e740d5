"""Elementary functions without cancellation, from five operations.

The formulas of the divergences may use ``exp, log, sqrt, abs, where`` only, because
these are spelled alike in numpy and torch. What they need beyond is built here.
"""

import math

from fferm._typing import Namespace, Operand

# Enough terms for full double precision on |u| < 0.1.
SERIES_TERMS = 18
# (artanh(s) / s - 1) / s^2 likewise, in powers of s^2, highest first.
ARTANH_SERIES = tuple(1 / n for n in range(17, 2, -2))
# (e^x - 1) / x to full double precision on |x| < 0.5, highest power first.
EXP_SERIES = tuple(1 / math.factorial(n) for n in range(14, 0, -1))


def log1p(u: Operand, xp: Namespace) -> Operand:
    """Return ``ln(1 + u)`` to full precision.

    ``ln(w) u / (w - 1)`` with ``w = 1 + u`` rounded: the rounding error of ``w``
    cancels between numerator and denominator (a classical device of W. Kahan).
    """
    w = 1 + u
    is_small = xp.abs(u) < 0.5
    inexact = xp.where(is_small & (w != 1), w, 2.0)
    corrected = xp.log(inexact) * (u / (inexact - 1))
    far = xp.log(xp.where(is_small | (w <= 0), 1.0, w))
    far = xp.where(w > 0, far, -float("inf"))
    return xp.where(is_small, xp.where(w == 1, u, corrected), far)


def expm1(x: Operand, xp: Namespace) -> Operand:
    """Return ``e^x - 1`` to full precision."""
    is_small = xp.abs(x) < 0.5
    near = xp.where(is_small, x, 0.0)
    total = 0 * near
    for n in range(len(EXP_SERIES)):
        total = EXP_SERIES[n] + near * total
    return xp.where(is_small, near * total, xp.exp(x) - 1)


def log1p_minus(u: Operand, xp: Namespace) -> Operand:
    """Return ``ln(1 + u) - u`` for ``|u| < 0.1`` (elsewhere any finite number).

    ``ln(1 + u) = 2 artanh(s)`` with ``s = u / (2 + u)``, whose series takes a third of
    the terms; and ``2 s - u = -s u``.
    """
    v = xp.where(xp.abs(u) < 0.1, u, 0.0)
    s = v / (2 + v)
    square = s * s
    total = 0 * v
    for n in range(len(ARTANH_SERIES)):
        total = ARTANH_SERIES[n] + square * total
    return s * (2 * square * total - v)


def power_series(u: Operand, power: float) -> Operand:
    """Return the alpha generator near 1: ``sum_n u^n / n! prod_i (power - i)``."""
    total = 1 + 0 * u
    for n in range(SERIES_TERMS, 2, -1):
        total = 1 + u * (power - (n - 1)) / n * total
    return u * u / 2 * total


def exp_family(z: Operand, b: float, xp: Namespace) -> Operand:
    """Return ``(e^(b z) - 1) / b``, which is ``z`` at ``b = 0``."""
    if b == 0:
        return z
    return expm1(b * z, xp) / b


def box_cox(y: Operand, b: float, xp: Namespace) -> Operand:
    """Return the inverse of `exp_family` in ``z``: ``ln(1 + b y) / b``."""
    if b == 0:
        return y
    return log1p(b * y, xp) / b


def log_mean_exp(z: Operand, xp: Namespace) -> Operand:
    """Return ``ln((1 + e^z) / 2)`` without overflow, and without cancellation at 0."""
    is_near = xp.abs(z) < 1
    near = log1p(expm1(xp.where(is_near, z, 0.0), xp) / 2, xp)
    far = xp.where(z > 0, z, 0.0) + log1p(xp.exp(-xp.abs(z)), xp) - math.log(2)
    return xp.where(is_near, near, far)
