"""The five functions of the formulas on one number, for compiled code."""

import math
from typing import Any, NamedTuple

import numba


@numba.njit
def _exp(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return math.exp(x) if x < 709.7 else math.inf  # numpy overflows; math would raise


@numba.njit
def _log(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return math.log(x) if x > 0 else -math.inf


@numba.njit
def _sqrt(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return math.sqrt(x)


@numba.njit
def _abs(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return abs(x)


@numba.njit
def _where(condition, x, y):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return x if condition else y


class Scalars(NamedTuple):
    """A namespace that compiled code can carry: a tuple of compiled functions."""

    exp: Any
    log: Any
    sqrt: Any
    abs: Any
    where: Any


SCALARS = Scalars(_exp, _log, _sqrt, _abs, _where)
