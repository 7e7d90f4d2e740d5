"""The order in which an epoch visits the rows.

A random order of many rows misses every cache at every row. So many rows are shuffled
in two stages: blocks of neighbours in random order, some hundreds of them at a time,
and the rows of these at random. A batch still draws from hundreds of places all over
the data, and what it reads lies close together.
"""

from collections.abc import Iterator

import numpy as np

from fferm._typing import IntArray

# Up to so many rows, the order is one permutation.
FEW_ROWS = 32_768
# Rows of a block, and rows shuffled together: 256 blocks, 2.6 MB of 20 columns.
BLOCK = 64
WINDOW = 16_384


def shuffled(
    rng: np.random.Generator, n_rows: int, batch_size: int
) -> Iterator[IntArray]:
    """Yield the positions of all rows in random order, in parts of whole batches.

    Only the last part may end with a batch that is smaller.
    """
    if n_rows <= FEW_ROWS:
        yield rng.permutation(n_rows)
        return
    waiting: IntArray = np.zeros(0, dtype=np.int64)
    for window in _windows(rng, n_rows):
        waiting = np.concatenate([waiting, window]) if waiting.size else window
        n_whole = waiting.size // batch_size * batch_size
        if n_whole:
            yield waiting[:n_whole]
            waiting = waiting[n_whole:]
    if waiting.size:
        yield waiting


def _windows(rng: np.random.Generator, n_rows: int) -> Iterator[IntArray]:
    blocks = rng.permutation(-(-n_rows // BLOCK))
    for begin in range(0, blocks.size, WINDOW // BLOCK):
        starts = blocks[begin : begin + WINDOW // BLOCK, None] * BLOCK
        window = (starts + np.arange(BLOCK)).reshape(-1)
        if starts.max() > n_rows - BLOCK:  # the last block may be smaller
            window = window[window < n_rows]
        rng.shuffle(window)
        yield window
