"""Formulas of a divergence as compiled functions of one number.

The same method that runs on NumPy arrays and torch tensors is compiled to a function of
one number: ``self`` becomes a named tuple of the dataclass's fields and ``xp`` the
scalar namespace. A loop over a whole table is then one function pointer. Kernels take
pointers, so they are compiled once for all divergences, a user's own included.
"""

# Numba caches code by the text of its own file alone, so each names its release: 0.1.0.

import functools
from collections import namedtuple
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import carray  # type: ignore[attr-defined]
from numba.core import types
from numba.extending import intrinsic

from fferm.divergences import Divergence
from fferm.errors import ComponentError
from fferm.solvers._scalar import SCALARS, exp

SIGNATURE = numba.float64(numba.float64)
_NUMBERS = types.CPointer(numba.float64)  # type: ignore[no-untyped-call]
TABLE_SIGNATURE = numba.void(_NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS, numba.intp)


@intrinsic
def read_table(_context, address, variable, dual, charge, ratio, size):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Call the function at an address on four arrays of ``size`` numbers, by address.

    A plain number may be passed to a kernel from the cache on disk, where a function
    object would be experimental.
    """

    def call(context, builder, _signature, arguments):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        numbers = context.get_value_type(_NUMBERS)
        whole = context.get_value_type(types.intp)
        kind = ir.FunctionType(ir.VoidType(), [numbers] * 4 + [whole])
        function = builder.inttoptr(arguments[0], kind.as_pointer())
        tables = [builder.inttoptr(table, numbers) for table in arguments[1:5]]
        builder.call(function, [*tables, arguments[5]])
        return context.get_dummy_value()

    return types.void(*[types.intp] * 6), call


@functools.cache
def log_ratio_pointer(divergence: Divergence) -> Any:
    """Return a pointer that reads a table of log-ratios ``z = ln(P / Q)``.

    It writes the dual ``A = f'(e^z)``, its charge ``f*(A)`` and the ratio ``e^z``.
    """
    dual = _compiled_or_default(
        divergence, "dual_at", lambda: _after(_compiled(divergence, "f_prime"), exp)
    )
    charge = _compiled_or_default(
        divergence,
        "conjugate_at",
        lambda: _after(_compiled(divergence, "conjugate"), dual),
    )
    return _table_pointer(dual, charge, exp)


@functools.cache
def projected_pointer(divergence: Divergence) -> Any:
    """Return a pointer that reads a table of duals ``A``.

    It writes the dual itself, its charge ``f*(A)`` and the ratio ``(f*)'(A)``.
    """
    return _table_pointer(
        _same,
        _compiled(divergence, "conjugate"),
        _compiled(divergence, "conjugate_prime"),
    )


def _compiled_or_default(
    divergence: Divergence, name: str, default: Callable[[], Any]
) -> Any:
    if getattr(type(divergence), name) is getattr(Divergence, name):
        return default()
    return _compiled(divergence, name)


def _compiled(divergence: Divergence, name: str) -> Any:
    """Return a formula as a compiled function of one number."""
    formula = _jitted(getattr(type(divergence), name))
    fields = divergence.parameters()
    this = namedtuple("Fields", fields)(**{k: float(v) for k, v in fields.items()})
    scalars = SCALARS

    @numba.njit(error_model="numpy")
    def compiled(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return formula(this, x, scalars)

    try:
        compiled.compile(SIGNATURE)
    except Exception as error:  # the compiler fails in many ways
        raise ComponentError(
            f"{divergence!r}.{name} cannot be compiled. A formula may use arithmetic, "
            "its own numeric fields and xp.exp, log, sqrt, abs, where. Rewrite it so, "
            f"or train with solver='lbfgs'. numba says: {error}"
        ) from error
    return compiled


def _jitted(function: FunctionType) -> Any:
    """Return a function compiled together with the plain functions that it calls."""
    names = function.__code__.co_names
    scope = {
        name: _jitted(value) if isinstance(value, FunctionType) else value
        for name in names
        if (value := function.__globals__.get(name)) is not None
    }
    copy = FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__
    )
    return numba.njit(copy, error_model="numpy")


def _after(outer: Any, inner: Any) -> Any:
    @numba.njit
    def composed(z):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return outer(inner(z))

    return composed


@numba.njit
def _same(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return x


def _table_pointer(dual: Any, charge: Any, ratio: Any) -> Any:
    @numba.cfunc(TABLE_SIGNATURE, error_model="numpy")
    def pointer(of, duals, charges, ratios, n):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        x, d = carray(of, n), carray(duals, n)
        c, r = carray(charges, n), carray(ratios, n)
        for i in range(n):
            d[i] = dual(x[i])
            c[i] = charge(x[i])
            r[i] = ratio(x[i])

    return pointer
