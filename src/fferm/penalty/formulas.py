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
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import carray  # type: ignore[attr-defined]
from numba.core import types
from numba.extending import intrinsic

from fferm import _jit, divergences
from fferm._jit import SCALARS, exp
from fferm.divergences import Divergence
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


@functools.cache
def log_ratio_pointer(divergence: Divergence) -> Any:
    """Return a pointer that reads a table of log-ratios ``z = ln(P / Q)``.

    It writes the dual ``A = f'(e^z)``, its conjugate ``f*(A)`` and the ratio ``e^z``.
    """
    return _table_pointer(divergence, "log_ratio", (*_at_log_ratio(divergence), exp))


@functools.cache
def slopes_pointer(divergence: Divergence) -> Any:
    """Return a pointer that reads a table of log-ratios, as `log_ratio_pointer` does.

    It writes the curvature ``f''(e^z)`` in place of the ratio.
    """
    dual, conjugate = _at_log_ratio(divergence)
    second = _after(_formula(divergence, "f_second"), exp)
    return _table_pointer(divergence, "slopes", (dual, conjugate, second))


@functools.cache
def projected_pointer(divergence: Divergence) -> Any:
    """Return a pointer that reads a table of duals ``A``.

    It writes the dual itself, its conjugate ``f*(A)`` and the ratio ``(f*)'(A)``.
    """
    conjugate = _formula(divergence, "conjugate")
    ratio = _formula(divergence, "conjugate_prime")
    return _table_pointer(divergence, "projected", (_same, conjugate, ratio))


def is_kept(divergence: Divergence) -> bool:
    """Return whether compiled formulas stay in the cache on disk.

    Those of this library do, as it gives them by name. A sweep of parameters would
    fill the cache, and somebody's own formulas may change under the same name.
    """
    cls = type(divergence)
    is_ours = cls.__module__.startswith(f"{divergences.__name__}.")
    return is_ours and divergence == cls().smoothed()


def _at_log_ratio(divergence: Divergence) -> tuple[Any, Any]:
    # Dual and conjugate as functions of the log-ratio.
    dual = _formula_or_none(divergence, "dual_at")
    dual = dual or _after(_formula(divergence, "f_prime"), exp)
    conjugate = _formula_or_none(divergence, "conjugate_at")
    return dual, conjugate or _after(_formula(divergence, "conjugate"), dual)


def _formula_or_none(divergence: Divergence, name: str) -> Any:
    is_default = getattr(type(divergence), name) is getattr(Divergence, name)
    return None if is_default else _formula(divergence, name)


def _formula(divergence: Divergence, name: str) -> Any:
    """Return a formula as a function of one number, to be compiled when it is used."""
    formula = _jitted(getattr(type(divergence), name))
    fields = divergence.parameters()
    this = namedtuple("Fields", fields)(**{k: float(v) for k, v in fields.items()})
    scalars = SCALARS

    @numba.njit(**INLINED)
    def of_number(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return formula(this, x, scalars)

    return of_number


def _jitted(function: FunctionType) -> Any:
    """Return a function compiled together with the plain functions that it calls."""
    names = function.__code__.co_names
    scope = {
        name: _jitted(value) if isinstance(value, FunctionType) else value
        for name in names
        if (value := function.__globals__.get(name)) is not None
    }
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


def _table_pointer(divergence: Divergence, how: str, functions: tuple[Any, ...]) -> Any:
    # Not a closure: what it holds would be part of numba's key, and differs from
    # process to process. The name stands for it.
    scope = {"carray": carray}
    scope |= zip(("dual", "conjugate", "ratio"), functions, strict=True)
    read = _with_scope(_read, scope)
    known = f"{divergence!r}{how}{_text_of_formulas()}".encode()
    read.__qualname__ = f"{how}_{hashlib.sha256(known).hexdigest()[:16]}"
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


@functools.cache
def _text_of_formulas() -> str:
    files = [*Path(divergences.__path__[0]).glob("*.py"), Path(_jit.__file__)]
    return "".join(path.read_text("utf-8") for path in sorted(files))
