r"""The payoff of a whole table: the fused kernel's, at the dual that is best for it.

The best log-ratios are ``z = ln(P / Q)``, within their box. There the penalty is linear
in its table, so the payoff ``G`` gives its value, :math:`\sum_{rjk} G_{rjk} P_{rjk}`,
and its gradient alike.
"""

# Numba caches code by the text of its own file alone, so each names its release: 0.1.0.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN202

import math

import numba

from fferm.solvers._kernels import payoff_into
from fferm.solvers._rows import FAST


@numba.njit(**FAST)
def rates_into(dual, mass):
    """Write the rates of the classes in a table into the dual."""
    n_strata, n_classes, _, n_lanes = mass.shape
    for r in range(n_strata):
        for a in range(dual.ends.size - 1):
            for j in range(n_classes):
                for lane in range(n_lanes):
                    total = 0.0
                    for k in range(dual.ends[a], dual.ends[a + 1]):
                        total += mass[r, j, k, lane]
                    dual.rate[r, j, a, lane] = dual.share[r, a] * total


@numba.njit(**FAST)
def best_into(dual, mass):
    """Write rates and log-ratios of a table into the dual; 0 where nobody is."""
    rates_into(dual, mass)
    n_strata, n_classes, _, n_lanes = mass.shape
    for r in range(n_strata):
        for a in range(dual.ends.size - 1):
            for k in range(dual.ends[a], dual.ends[a + 1]):
                for j in range(n_classes):
                    for lane in range(n_lanes):
                        product = dual.prior[r, k] * dual.rate[r, j, a, lane]
                        z = 0.0
                        if product > 0:
                            z = math.log(
                                dual.share[r, a] * mass[r, j, k, lane] / product
                            )
                            z = min(max(z, dual.lower), dual.upper[r, k])
                        dual.z[r, j, k, lane] = z


@numba.njit(**FAST)
def best_payoff_into(dual, mass, pointer, scratch):
    """Write the payoff ``G`` of a table into the scratch."""
    best_into(dual, mass)
    payoff_into(dual, pointer, scratch)
