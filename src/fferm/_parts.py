"""Rows taken part by part, so that what it takes besides does not grow with them."""

from collections.abc import Iterator

ROWS_AT_ONCE = 2**16


def parts_of(n_rows: int) -> Iterator[slice]:
    """Yield slices of so many rows that their arrays stay small, in order."""
    for begin in range(0, n_rows, ROWS_AT_ONCE):
        yield slice(begin, begin + ROWS_AT_ONCE)
