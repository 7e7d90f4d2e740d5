"""How fferm compiles: options, one key for numba's cache, and scalar arithmetic.

The exponential is written out, because a loop over a call of the C library is not
vectorised: here the compiler makes one of several lanes at once.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc,call-arg,var-annotated"
# ruff: noqa: ANN001, ANN202

import contextlib
import functools
import hashlib
import math
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import event, types
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

# Sums of products may be reordered: that is what makes them fast, and no more. Division
# by 0 gives infinity as in NumPy; a check would keep loops from being vectorised.
# References are not counted, so kernels allocate nothing: counting took longer than the
# arithmetic.
IN_ORDER: Any = {"fastmath": {"contract"}, "error_model": "numpy", "_nrt": False}
REORDERED: Any = {**IN_ORDER, "fastmath": {"contract", "reassoc"}}
INLINED: Any = {**IN_ORDER, "forceinline": True}

# While it infers types, numba would catch the warnings of all threads, only to move its
# own to the line that they are about. A thread that catches some at the same time may
# leave numba's list in place of what shows warnings, and none would be shown again.
WarningsFixer: Any = numba.core.errors.WarningsFixer  # type: ignore[attr-defined]
WarningsFixer.catch_warnings = lambda *_, **__: contextlib.nullcontext()

# What was compiled when it was told of.
TOLD: list[str] = []

PACKAGE = Path(__file__).parent
# Every file whose functions or constants are compiled.
COMPILED_FILES = (
    Path(__file__),
    *sorted((PACKAGE / "divergences").glob("*.py")),  # their formulas
    *(PACKAGE / "penalty" / f"{name}.py" for name in ("compiled", "dual", "formulas")),
    *sorted((PACKAGE / "solvers").glob("_[!_]*.py")),
    *sorted((PACKAGE / "boosting").glob("_[!_]*.py")),
    PACKAGE / "deploy" / "_kernels.py",
    PACKAGE / "lab" / "baselines" / "_kernels.py",
)


# Numba caches a function by the text of its own file alone, but compiles it together
# with those it calls. The names of cached functions carry this key, so that a change in
# any of these files discards what was compiled before.
_TEXT = b"".join(path.read_bytes() for path in COMPILED_FILES)
CACHE_KEY = hashlib.sha256(_TEXT).hexdigest()[:12]


def telling_of_compilation() -> Any:
    """Return a context in which code of ours that is compiled is told of, once."""

    class FirstCompilation(event.Listener):
        def on_start(self, started: Any) -> None:
            name = started.data["dispatcher"].py_func.__module__
            if not TOLD and name.startswith("fferm."):
                TOLD.append(name)
                sys.stderr.write(
                    "fferm compiles its kernels for this machine, which takes up to a "
                    "minute and is kept for the next time.\n"
                )

        def on_end(self, ended: Any) -> None:
            pass

    return event.install_listener("numba:compile", FirstCompilation())


def cached(function: Callable[..., Any], **options: Any) -> Any:
    """Return a function compiled when it is first called, and kept on disk."""
    function.__qualname__ += f"_{CACHE_KEY}"
    return numba.njit(function, cache=True, **options)


# For functions that keep what they compile: threads that ask for the same at once would
# each get their own, of which one is kept and the others' code is lost.
one_at_a_time: Callable[[Callable[..., Any]], Callable[..., Any]] = global_compiler_lock

# For functions that loop over arrays, without Python's lock.
kernel: Callable[..., Any] = functools.partial(cached, nogil=True, **REORDERED)
# For those that run for every row: they are compiled into their callers, because to
# pass arrays on would take as long as the arithmetic.
row_kernel: Callable[..., Any] = functools.partial(kernel, forceinline=True)

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


@functools.partial(cached, error_model="numpy")
def exp(x):
    """Return ``e^x`` to the last bit or two; 0 and infinity beyond the range."""
    inside = min(max(x, LOWEST), HIGHEST)
    shifted = inside * (1 / math.log(2)) + ROUNDING
    whole = shifted - ROUNDING
    rest = (inside - whole * LN2_HIGH) - whole * LN2_LOW  # at most ln(2) / 2
    # By pairs, and pairs of pairs: a chain of products would wait for each in turn.
    c, square = TAYLOR, rest * rest
    fourth = square * square
    low = (c[0] + c[1] * rest) + (c[2] + c[3] * rest) * square
    middle = (c[4] + c[5] * rest) + (c[6] + c[7] * rest) * square
    high = (c[8] + c[9] * rest) + (c[10] + c[11] * rest) * square
    top = c[12] + c[13] * rest
    power = (low + middle * fourth) + (high + top * fourth) * (fourth * fourth)
    # The whole power of 2 goes into the exponent's bits.
    value = _double(_bits(power) + (_bits(shifted) << 52))
    value = 0.0 if x < LOWEST else value
    value = math.inf if x > HIGHEST else value
    return value if x == x else x  # not a number stays so


@functools.partial(cached, error_model="numpy")
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
def _where(condition, x, y):
    return x if condition else y


# A namespace that compiled code can carry: a tuple of compiled functions.
SCALARS = namedtuple("Scalars", "exp log sqrt abs where")(
    exp, _log, numba.njit(lambda x: math.sqrt(x)), numba.njit(lambda x: abs(x)), _where
)
