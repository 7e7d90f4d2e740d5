"""Large shifts: the worst table in an l_inf ball (f-infinity, Section 3.2)."""

import math
import numbers
from dataclasses import dataclass
from typing import ClassVar, Literal

from fferm._typing import FloatArray
from fferm.divergences import Divergence
from fferm.errors import InvalidParameterError
from fferm.uncertainty.base import (
    Uncertainty,
    check_choice,
    check_radius,
    live_cells,
    spread,
)
from fferm.uncertainty.worst_cases import (
    CORNERS,
    MAX_EXACT_CELLS,
    Corners,
    interval,
    lagrangian_bound,
    worst_columns,
    worst_corners,
    worst_vertices,
)

MODES = ("corners", "paper", "simplex", "coupled")


@dataclass(frozen=True)
class LargeShift(Uncertainty):
    r"""The worst case over tables whose cells move by at most the radius.

    .. math:: \max_{|P'-P| \le \delta, \, |Q'-Q| \le \delta} D_f(P' \| Q')

    **Choose** ``js``, ``hellinger`` **or** ``tv``. They are symmetric, ``f(t) = t
    f(1/t)``, and under ``"corners"`` and ``"simplex"`` keep the fair model as the
    minimiser of the worst case (``"coupled"`` moves it by .005 at radius .02); ``kl``
    and ``chi2`` do not (at radius .02 their minimisers leave gaps of -.014 and -.044),
    and they are infinite where a product reaches 0. ``reverse_kl`` and powers up to 0
    are infinite where a joint reaches 0, that is at every cell within the radius of
    0; continue them linearly (`fferm.divergences.LinearTail`).

    Parameters
    ----------
    radius
        Largest change of a cell, at most 1.
    mode
        - ``"corners"``: cells move on their own, ``max(p - d, 0) <= p' <= min(p + d,
          1)`` and ``max(q - d, floor q) <= q' <= min(q + d, 1)``. Exact for that set,
          which contains tables that do not sum to 1, so an upper bound otherwise.
        - ``"simplex"``: both tables also keep their totals. Exact up to 6 cells;
          beyond, the Lagrangian bound, an upper bound (0.03 % above on average, 0.4 %
          at most, on random tables of 6 cells).
        - ``"coupled"``: only P moves, group weights stay, Q follows. Exact; refused
          where more than 65 536 tables would have to be looked at. ``floor`` is not
          used.
        - ``"paper"``: the one corner ``(min(p + d, 1), max(q - d, 0))``, to reproduce
          the paper. It is wrong at every cell with ``p < q`` and may fall *below* D:
          at [[.40, .05], [.20, .35]] and radius .01 it gives .0766 for hellinger
          (D = .0842), .0758 for js (.0828) and .1498 for kl (.1555). ``floor`` is not
          used.
    floor
        Least share of itself that a product may shrink to: products are often smaller
        than the radius, and kl or chi2 infinite at 0. From 0 (no floor) to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fferm.divergences import get
    >>> p = np.array([[0.4, 0.05], [0.2, 0.35]])
    >>> q = p.sum(axis=1, keepdims=True) * p.sum(axis=0)
    >>> value, by_p, by_q = LargeShift(0.01).penalty(p, q, get("hellinger"))
    >>> round(value, 6)
    0.114411
    """

    name: ClassVar[str] = "large_shift"

    radius: float
    mode: Literal["corners", "paper", "simplex", "coupled"] = "corners"
    floor: float = 0.1

    def __post_init__(self) -> None:
        check_radius("LargeShift", self.radius, largest=1)
        check_choice("LargeShift", "mode", self.mode, MODES)
        is_number = isinstance(self.floor, numbers.Real) and math.isfinite(self.floor)
        if not is_number or not 0 <= self.floor <= 1:
            raise InvalidParameterError(
                f"floor of LargeShift must be between 0 and 1; got {self.floor!r}. 0.1 "
                "lets a product shrink to a tenth of itself."
            )

    @property
    def reach(self) -> float:
        """The radius."""
        return float(self.radius)

    @property
    def is_coupled(self) -> bool:
        """Whether the mode is ``"coupled"``."""
        return self.mode == "coupled"

    def penalty(
        self, p: FloatArray, q: FloatArray, divergence: Divergence
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the worst case of the mode, and its slopes by both tables."""
        self._check_coupling(False)
        live = live_cells(p, q)
        value, by_p, by_q = self._worst(p[live], q[live], divergence)
        return value, spread(by_p, live), spread(by_q, live)

    def coupled_penalty(
        self, p: FloatArray, prior: FloatArray, divergence: Divergence
    ) -> tuple[float, FloatArray]:
        """Return the worst case at constant group weights, and its payoff."""
        self._check_coupling(True)
        return worst_columns(p, prior, self.radius, divergence)

    def _worst(
        self, p: FloatArray, q: FloatArray, divergence: Divergence
    ) -> tuple[float, FloatArray, FloatArray]:
        floor = 0.0 if self.mode == "paper" else self.floor
        joint, product = interval(p, self.radius), interval(q, self.radius, floor)
        if self.mode == "simplex":
            solve = worst_vertices if p.size <= MAX_EXACT_CELLS else lagrangian_bound
            return solve(p, q, (joint, product), divergence)
        chosen = CORNERS[:1] if self.mode == "paper" else CORNERS
        return worst_corners(Corners.of(joint, product, chosen), divergence)
