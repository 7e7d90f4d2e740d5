"""Where rows stand in the tables of a penalty, one code per row for all tables.

Rows that stand in the same cells of all tables are of one *kind*. Sums over kinds are
taken once, and a small matrix adds them up to the cells of each table.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fferm._typing import FloatArray, IntArray
from fferm.penalty.objective import Penalty


@dataclass(frozen=True)
class Placement:
    """The kind of each row, and the cells that each kind stands in.

    Attributes
    ----------
    kind
        (n_samples,) codes.
    weight
        (n_samples,) weights, 0 for rows in no cell.
    membership
        (n_cells, n_kinds): what one unit of weight adds to a cell of stratum and
        group, over all tables.
    shapes
        (n_strata, n_groups) of each table.
    """

    kind: IntArray
    weight: FloatArray
    membership: FloatArray
    shapes: tuple[tuple[int, int], ...]

    @functools.cached_property
    def mass(self) -> FloatArray:
        """(n_cells, 1) weights of all rows in a cell."""
        return self.sums(np.ones(self.kind.size))

    @functools.cached_property
    def ends(self) -> IntArray:
        """Where the cells of each table end."""
        return np.cumsum([n_strata * n_groups for n_strata, n_groups in self.shapes])

    @property
    def n_kinds(self) -> int:
        """Number of kinds."""
        return int(self.membership.shape[1])

    def sums(
        self,
        values: FloatArray,
        code: IntArray | NDArray[np.unsignedinteger] | None = None,
        n_codes: int = 1,
    ) -> FloatArray:
        """Return the (n_cells, n_codes) weighted sums of values, by code if given."""
        size = self.n_kinds * n_codes
        key = self.kind if code is None else self.kind * n_codes + code
        found = np.bincount(key, weights=self.weight * values, minlength=size)
        return self.membership @ found.reshape(self.n_kinds, n_codes)

    def tables(self, prob: FloatArray) -> list[FloatArray]:
        """Return the (strata, classes, groups) tables of (classes, n) probabilities."""
        others = np.hstack([self.sums(row) for row in prob[1:]])  # (cells, classes - 1)
        first = self.mass - others.sum(axis=1, keepdims=True)
        return self.split(np.hstack([np.maximum(first, 0.0), others]))

    def decided(self, code: IntArray, n_classes: int) -> list[FloatArray]:
        """Return the tables of decisions, (n,) class codes."""
        return self.split(self.sums(np.ones(code.size), code, n_classes))

    def split(self, flat: FloatArray) -> list[FloatArray]:
        """Return tables from their cells, (n_cells, n_classes)."""
        return [
            part.reshape(*shape, -1).transpose(0, 2, 1)
            for part, shape in zip(
                np.split(flat, self.ends[:-1]), self.shapes, strict=True
            )
        ]

    def join(self, tables: Sequence[FloatArray]) -> FloatArray:
        """Return the cells, (n_cells, n_classes), of tables."""
        parts = [table.transpose(0, 2, 1) for table in tables]
        return np.concatenate([p.reshape(-1, p.shape[2]) for p in parts])


def place(penalty: Penalty, n_samples: int, begin: int = 0) -> Placement:
    """Return the placement of rows in the tables of a penalty.

    Parameters
    ----------
    penalty
        What knows where its rows stand, by attribute.
    n_samples
        How many rows there are.
    begin
        The row at which those of the penalty begin.
    """
    cells = penalty.cells
    codes = np.full((len(cells), n_samples), -1, dtype=np.int64)
    kind = np.zeros(n_samples, dtype=np.int64)
    for a, c in enumerate(cells):
        codes[a, np.arange(begin, n_samples)[c.rows]] = c.cell
        size = c.n_strata * c.n_groups + 1
        first_of, kind = np.unique(
            kind * size + codes[a], return_index=True, return_inverse=True
        )[1:]
    present = codes[:, first_of]
    membership = np.zeros((sum(c.n_strata * c.n_groups for c in cells), len(present.T)))
    first = 0
    for a, c in enumerate(cells):
        # A share is a weight over the total of an attribute's known rows.
        unit = c.share.sum() / penalty.rows.weight[c.rows].sum()
        member = np.flatnonzero(present[a] >= 0)
        membership[first + present[a, member], member] = unit
        first += c.n_strata * c.n_groups
    weight = np.concatenate([np.zeros(begin), penalty.rows.weight])
    weight[(codes < 0).all(axis=0)] = 0.0
    shapes = tuple((c.n_strata, c.n_groups) for c in cells)
    return Placement(kind.astype(np.int64), weight, membership, shapes)
