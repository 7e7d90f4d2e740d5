"""What the bootstrap of an audit draws from."""

import math

import numpy as np
from scipy.sparse import csr_array, hstack

from fferm._typing import FloatArray, IntArray
from fferm.metrics.intervals import Sample
from fferm.metrics.tabulator import Tabulator, compared, rates_of


def bootstrap_sample(
    setting: Tabulator, prob: FloatArray, decision: IntArray | None = None
) -> Sample:
    """Return what to draw from; kinds of rows where decisions are given, else rows."""
    weight, attributes = setting.rows.weight, setting.rows.attributes
    cells = [cell.by_row(len(prob)) for cell in setting.rows.cells]
    first, count = np.arange(len(prob)), np.ones(len(prob), dtype=np.int64)
    if decision is not None:
        code = np.unique(weight, return_inverse=True)[1]
        for column in (decision, *cells):
            # Numbered anew each time: of many columns the product would overflow.
            pair = code * (column.max() + 2) + column + 1
            code = np.unique(pair, return_inverse=True)[1]
        _, first, count = np.unique(code, return_index=True, return_counts=True)
    n_strata, n_classes = len(setting.rows.strata.names), prob.shape[1]
    shapes = [(n_strata, n_classes, len(a.groups)) for a in attributes]
    part = weight[first, None] * prob[first]
    totals = csr_array(
        hstack(
            [
                _cell_totals(part, cell[first], shape)
                for cell, shape in zip(cells, shapes, strict=True)
            ]
        )
    )
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]

    def split(table: FloatArray) -> list[FloatArray]:
        return [
            block.reshape(-1, *shape)
            for block, shape in zip(np.split(table, ends, axis=1), shapes, strict=True)
        ]

    def rates(table: FloatArray) -> list[FloatArray]:
        return [compared(rates_of(setting.orient(block))) for block in split(table)]

    is_present = []
    for (block,) in split((count @ totals)[None]):
        table = setting.orient(block)
        has_rows = np.broadcast_to(table.sum(axis=1, keepdims=True) > 0, table.shape)
        is_present.append(setting.comparison.pull_back(has_rows).ravel())
    return Sample(count, totals, np.concatenate(is_present), rates, weight.mean())


def _cell_totals(
    part: FloatArray, cell: IntArray, shape: tuple[int, int, int]
) -> csr_array:
    n_classes, n_groups = shape[1:]
    row, j = np.nonzero((part > 0) & (cell >= 0)[:, None])
    column = (cell[row] // n_groups * n_classes + j) * n_groups + cell[row] % n_groups
    return csr_array((part[row, j], (row, column)), shape=(len(part), math.prod(shape)))
