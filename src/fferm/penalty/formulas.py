"""Formulas of a divergence as compiled functions of one number.

The same method that runs on NumPy arrays and torch tensors is compiled to a function of
one number: ``self`` becomes a named tuple of the dataclass's fields and ``xp`` the
scalar namespace. A loop over a whole table is then one function pointer. Kernels take
pointers, so they are compiled once for all divergences, a user's own included. Those
that are known by name stay in the cache on disk.
"""

import functools
import hashlib
from collections import namedtuple
from types import FunctionType
from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import carray  # type: ignore[attr-defined]
from numba.core import types
from numba.extending import intrinsic

from fferm._jit import CACHE_KEY, SCALARS, exp, one_at_a_time
from fferm.divergences import Divergence
from fferm.divergences.base import is_kept
from fferm.errors import ComponentError

# Called functions would be passed their namespace by the addresses of its functions,
# which nothing on disk can hold.
INLINED: Any = {"error_model": "numpy", "forceinline": True}
_NUMBERS = types.CPointer(numba.float64)  # type: ignore[no-untyped-call]
TABLE_SIGNATURE = numba.void(_NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS, numba.intp)


@intrinsic
def read_table(_context, address, variable, dual, conjugate, ratio, size):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Call the function at an address on four arrays of ``size`` numbers, by address.

    A plain number may be passed to a kernel from the cache on disk, where a function
    object would be experimental.
    """

    def call(context, builder, _signature, arguments):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        numbers = context.get_value_type(_NUMBERS)
        whole = context.get_value_type(types.intp)
        signature = ir.FunctionType(ir.VoidType(), [numbers] * 4 + [whole])
        function = builder.inttoptr(arguments[0], signature.as_pointer())
        tables = [builder.inttoptr(table, numbers) for table in arguments[1:5]]
        builder.call(function, [*tables, arguments[5]])
        return context.get_dummy_value()

    return types.void(*[types.intp] * 6), call


@one_at_a_time
@functools.cache
def table_pointer(divergence: Divergence, reads: str) -> Any:
    """Return a pointer that reads a table and writes three of its size.

    Parameters
    ----------
    divergence
        Without transformations.
    reads
        ``"log_ratio"``: it reads ``z = ln(P / Q)`` and writes the dual
        ``A = f'(e^z)``, its conjugate ``f*(A)`` and the ratio ``e^z``. ``"slopes"``:
        likewise, but with the curvature ``f''(e^z)`` in place of the ratio.
        ``"projected"``: it reads duals ``A`` and writes them, their conjugate and the
        ratio ``(f*)'(A)``.
    """
    dual, conjugate = _same, _formula(divergence, "conjugate")
    if reads == "projected":
        last = _formula(divergence, "conjugate_prime")
    else:
        dual = _formula(divergence, "dual_at")
        dual = dual or _after(_formula(divergence, "f_prime"), exp)
        conjugate = _formula(divergence, "conjugate_at") or _after(conjugate, dual)
        is_ratio = reads == "log_ratio"
        last = exp if is_ratio else _after(_formula(divergence, "f_second"), exp)
    # Not a closure: what it holds would be part of numba's key, and differs from
    # process to process. The name stands for it.
    scope = {"dual": dual, "conjugate": conjugate, "ratio": last, "carray": carray}
    read = _with_scope(_read, scope)
    known = f"{divergence!r}{reads}{CACHE_KEY}".encode()
    read.__qualname__ = f"{reads}_{hashlib.sha256(known).hexdigest()[:16]}"
    compiled = numba.cfunc(
        TABLE_SIGNATURE, error_model="numpy", cache=is_kept(divergence)
    )
    try:
        return compiled(read)
    except Exception as error:  # the compiler fails in many ways
        raise ComponentError(
            f"{divergence!r} cannot be compiled. A formula may use arithmetic, its own "
            "numeric fields and xp.exp, log, sqrt, abs, where. Rewrite it so, or train "
            f"with solver='lbfgs'. numba says: {error}"
        ) from error


def _formula(divergence: Divergence, name: str) -> Any:
    """Return a formula as a function of one number, to be compiled when it is used.

    None for a default, which calls other methods and so cannot be compiled.
    """
    method = getattr(type(divergence), name)
    if method is getattr(Divergence, name):
        return None
    formula = _jitted(method)
    fields = divergence.parameters()
    this = namedtuple("Fields", fields)(**{k: float(v) for k, v in fields.items()})
    scalars = SCALARS

    @numba.njit(**INLINED)
    def of_number(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return formula(this, x, scalars)

    return of_number


def _jitted(function: FunctionType) -> Any:
    """Return a function compiled together with the plain functions that it calls."""
    scope = {}
    for name in function.__code__.co_names:
        if (value := function.__globals__.get(name)) is not None:
            scope[name] = _jitted(value) if isinstance(value, FunctionType) else value
    return numba.njit(_with_scope(function, scope), **INLINED)


def _with_scope(function: Any, scope: dict[str, Any]) -> FunctionType:
    return FunctionType(
        function.__code__,
        {**scope, "__name__": function.__module__},
        function.__name__,
        function.__defaults__,
    )


def _after(outer: Any, inner: Any) -> Any:
    @numba.njit(**INLINED)
    def composed(z):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return outer(inner(z))

    return composed


@numba.njit
def _same(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return x


# Stand-ins: every pointer is given its own.
dual = conjugate = ratio = _same


def _read(of, duals, conjugates, ratios, n):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    x, d = carray(of, n), carray(duals, n)
    c, r = carray(conjugates, n), carray(ratios, n)
    for i in range(n):
        d[i] = dual(x[i])
        c[i] = conjugate(x[i])
        r[i] = ratio(x[i])
