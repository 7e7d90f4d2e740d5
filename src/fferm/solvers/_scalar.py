"""The five functions of the formulas on one number, for compiled code.

The exponential is written out, because a loop over a call of the C library is not
vectorised: here the compiler makes one of several lanes at once.
"""

# Numba caches code by the text of its own file alone, so each names its release: 0.1.0.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc,call-arg,var-annotated"
# ruff: noqa: ANN001, ANN202

import math
from typing import Any, NamedTuple

import numba
from numba.core import types
from numba.extending import intrinsic

# Adding it to a number of moderate size rounds that to a whole one, which then stands
# in the lowest bits of the sum.
ROUNDING = 1.5 * 2.0**52
# ln 2 in two parts, the first with so few bits that whole multiples of it are exact.
LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
# Powers of 2 beyond are not normal numbers, and count as 0 and infinity.
LOWEST, HIGHEST = -708.0, 709.78
TAYLOR = tuple(1 / math.factorial(n) for n in range(14))
ARTANH = tuple(1 / n for n in range(21, 0, -2))
LN2, ROOT2 = math.log(2), math.sqrt(2)


@intrinsic
def _bits(_context, x):
    """Return the bits of a double as a whole number."""

    def cast(context, builder, _signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.int64))

    return types.int64(types.float64), cast


@intrinsic
def _double(_context, x):
    """Return the double of given bits."""

    def cast(context, builder, _signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.float64))

    return types.float64(types.int64), cast


@numba.njit(error_model="numpy")
def _power_series(x):
    # By pairs, and pairs of pairs: a chain of products would wait for each in turn.
    c = TAYLOR
    x2 = x * x
    x4 = x2 * x2
    low = (c[0] + c[1] * x) + (c[2] + c[3] * x) * x2
    middle = (c[4] + c[5] * x) + (c[6] + c[7] * x) * x2
    high = (c[8] + c[9] * x) + (c[10] + c[11] * x) * x2
    top = c[12] + c[13] * x
    return (low + middle * x4) + (high + top * x4) * (x4 * x4)


@numba.njit(error_model="numpy", cache=True)
def exp(x):
    """Return ``e^x`` to the last bit or two; 0 and infinity beyond the range."""
    inside = min(max(x, LOWEST), HIGHEST)
    shifted = inside * (1 / math.log(2)) + ROUNDING
    whole = shifted - ROUNDING
    rest = (inside - whole * LN2_HIGH) - whole * LN2_LOW  # at most ln(2) / 2
    power = _power_series(rest)
    # The whole power of 2 goes into the exponent's bits.
    found = _double(_bits(power) + (_bits(shifted) << 52))
    found = 0.0 if x < LOWEST else found
    found = math.inf if x > HIGHEST else found
    return found if x == x else x  # not a number stays so


@numba.njit(error_model="numpy", cache=True)
def log1p_of_share(x):
    """Return ``ln(1 + x)`` for ``x`` in [0, 1], by the series of ``2 artanh``.

    Above the root of 2, half of ``1 + x`` is taken: a series of more terms than these
    is not unrolled, and so not vectorised.
    """
    is_far = x > ROOT2 - 1
    s = (x - 1.0 if is_far else x) / (x + 3.0 if is_far else x + 2.0)
    total = 0.0
    for n in range(len(ARTANH)):
        total = total * (s * s) + ARTANH[n]
    return 2.0 * s * total + (LN2 if is_far else 0.0)


@numba.njit
def _log(x):
    return math.log(x) if x > 0 else -math.inf


@numba.njit
def _sqrt(x):
    return math.sqrt(x)


@numba.njit
def _abs(x):
    return abs(x)


@numba.njit
def _where(condition, x, y):
    return x if condition else y


class Scalars(NamedTuple):
    """A namespace that compiled code can carry: a tuple of compiled functions."""

    exp: Any
    log: Any
    sqrt: Any
    abs: Any
    where: Any


SCALARS = Scalars(exp, _log, _sqrt, _abs, _where)
