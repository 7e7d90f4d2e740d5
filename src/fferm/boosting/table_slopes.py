r"""A penalty on its tables: value, payoff and curvature, every round.

With ``Q`` the product of marginals, the dual ``A = f'(t)`` and its charge ``C = f*(A)``
at the ratios ``t = P / Q`` are enough: by Euler's theorem, for the perspective is
homogeneous, ``Q f(P / Q) = P A - Q C``. With group weights fixed, the second derivative
along a direction ``dP`` of the table is

.. math:: d^2 R = \sum_{rjk} \frac{w_r}{\rho_r^2} \frac{f''(t)}{Q}
          \big(dP - t \, dQ\big)^2 ,

a sum of squares, so that a root of it is at hand and nothing has to be decomposed.
Robust penalties are given the curvature of the plain one at the same table: a step is
tried before it is taken, and all it needs is a scale. `fferm.tables` is the oracle of
values and payoffs.
"""

import math
from dataclasses import dataclass

import numpy as np

from fferm._typing import FloatArray, Namespace, Operand
from fferm.boosting import _table_kernels as kernels
from fferm.boosting.placement import Placement
from fferm.divergences import Divergence
from fferm.divergences.base import Formula, evaluate
from fferm.penalty.objective import Penalty, check_finite


@dataclass(frozen=True)
class TableSlopes:
    """A penalty and its derivative by the cells of its tables."""

    value: float
    payoff: FloatArray  # (n_cells, n_classes)


class TablePenalty:
    """The penalty of an objective as a function of the cells of its tables.

    Parameters
    ----------
    penalty
        What knows the rules.
    placement
        How the cells of all tables stand in one array.
    """

    def __init__(self, penalty: Penalty, placement: Placement) -> None:
        self._penalty = penalty
        self._placement = placement
        objective = penalty.objective
        self._divergence = objective.trained_divergence
        self._charge = _charge(self._divergence)
        self._is_robust = objective.uncertainty is not None
        self._is_sufficiency = not penalty.comparison.has_fixed_groups
        self._counts_one = objective.notion.weighting == "unit"
        kept = penalty.comparison.kept
        self._kept = -1 if kept is None else kept  # below 0 for all
        self._shapes = np.array(placement.shapes, dtype=np.int64)
        self._last: (
            tuple[FloatArray, tuple[FloatArray, FloatArray, FloatArray]] | None
        ) = None

    def at(self, cells: FloatArray) -> TableSlopes:
        """Return value and payoff at (n_cells, n_classes) cells."""
        if self._is_robust:
            split, join = self._placement.split, self._placement.join
            value, payoffs = self._penalty.on_tables(split(cells))
            payoff = join(payoffs)
        else:
            value, payoff = self._plain(cells)
        if not math.isfinite(value + payoff.sum()):  # one look at all of them
            check_finite(value, payoff)
        return TableSlopes(value, payoff)

    def root(self, cells: FloatArray) -> FloatArray:
        """Return a matrix whose Gram matrix is the curvature at given cells.

        Returns
        -------
        FloatArray
            Square, over cells in the order (attribute, stratum, group, class).
        """
        product, ratio, dual = self._ratios(cells)
        second = evaluate(self._divergence.f_second, ratio)
        found = np.zeros((cells.size, cells.size))
        kind = self._shapes, self._is_sufficiency, self._counts_one, self._kept
        kernels.root_into(cells, *kind, product, dual, second, found)
        return found

    def _plain(self, cells: FloatArray) -> tuple[float, FloatArray]:
        product, ratio, dual = self._ratios(cells)
        payoff = np.empty_like(cells)
        slopes = product, dual, evaluate(self._charge, ratio), payoff
        if self._is_sufficiency:
            kept = self._kept
            return kernels.sufficiency_into(cells, self._shapes, kept, *slopes), payoff
        one = self._counts_one
        return kernels.independence_into(cells, self._shapes, one, *slopes), payoff

    def _ratios(self, cells: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        # The product of marginals of each cell, the ratio to it, and f' there. The root
        # is asked for where the payoff was.
        if self._last is None or self._last[0] is not cells:
            product, ratio = np.empty_like(cells), np.empty_like(cells)
            kind = self._shapes, self._is_sufficiency
            kernels.products_into(cells, *kind, product, ratio)
            dual = evaluate(self._divergence.f_prime, ratio)
            self._last = cells, (product, ratio, dual)
        return self._last[1]


def _charge(divergence: Divergence) -> Formula:
    # By the log-ratio: at large t the dual rounds to the end of its domain, where the
    # conjugate is infinite although f*(f'(t)) is not.
    def charge(t: Operand, xp: Namespace) -> Operand:
        z = xp.where(t > 0, xp.log(xp.where(t > 0, t, 1.0)), -np.inf)
        return divergence.conjugate_at(z, xp)

    return charge
