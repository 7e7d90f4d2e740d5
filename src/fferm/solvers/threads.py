"""Compiled work on all cores, by plain threads: kernels release Python's lock.

The number is numba's, so ``NUMBA_NUM_THREADS`` sets it, and workers of joblib, which
set that to their share, do not crowd each other.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numba

Part = TypeVar("Part")


def n_threads() -> int:
    """Return how many threads may run at once."""
    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


def in_threads(
    function: Callable[..., Part], arguments: Iterable[tuple[Any, ...]]
) -> list[Part]:
    """Return the function's values, in the order of the arguments."""
    calls = list(arguments)
    if n_threads() == 1 or len(calls) == 1:
        return [function(*call) for call in calls]
    with ThreadPoolExecutor(min(n_threads(), len(calls))) as pool:
        return list(pool.map(lambda call: function(*call), calls))
