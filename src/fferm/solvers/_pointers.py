"""Formulas of a divergence as compiled functions of one number.

The same method that runs on NumPy arrays and torch tensors is compiled to a
``float64(float64)`` function pointer: ``self`` becomes a named tuple of the
dataclass's fields and ``xp`` the scalar namespace. Kernels take pointers, so they are
compiled once for all divergences, a user's own included.
"""

import functools
import types
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numba

from fferm.divergences import Divergence
from fferm.errors import ComponentError
from fferm.solvers._scalar import SCALARS

SIGNATURE = numba.float64(numba.float64)


@functools.cache
def log_ratio_pointers(divergence: Divergence) -> tuple[Any, Any]:
    """Return pointers to ``dual_at`` and ``conjugate_at`` of a divergence."""
    dual = _compiled_or_default(
        divergence, "dual_at", lambda: _after_exp(_compiled(divergence, "f_prime"))
    )
    conjugate = _compiled_or_default(
        divergence,
        "conjugate_at",
        lambda: _after(_compiled(divergence, "conjugate"), dual),
    )
    return _pointer(dual), _pointer(conjugate)


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

    @numba.njit
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


def _jitted(function: types.FunctionType) -> Any:
    """Return a function compiled together with the plain functions that it calls."""
    names = function.__code__.co_names
    scope = {
        name: _jitted(value) if isinstance(value, types.FunctionType) else value
        for name in names
        if (value := function.__globals__.get(name)) is not None
    }
    copy = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__
    )
    return numba.njit(copy)


def _after_exp(function: Any) -> Any:
    exp = SCALARS.exp

    @numba.njit
    def composed(z):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return function(exp(z))

    return composed


def _after(outer: Any, inner: Any) -> Any:
    @numba.njit
    def composed(z):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return outer(inner(z))

    return composed


def _pointer(function: Any) -> Any:
    @numba.cfunc(SIGNATURE)
    def pointer(z):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return function(z)

    return pointer
