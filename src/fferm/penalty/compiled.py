r"""The compiled penalty on the table that a pass over the rows adds up.

One table (strata, classes, groups) holds the groups of all attributes, and is a mean
over all rows, where the table of an attribute is a mean over the rows whose group is
known. Where the dual is linear in the table, the best log-ratios are ``z = ln(P / Q)``,
within their box, and the payoff ``G`` there gives value and gradient alike:
:math:`R = \sum_{rjk} G_{rjk} P_{rjk}`.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN201, C901

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fferm._jit import kernel
from fferm._typing import FloatArray, IntArray
from fferm.divergences import strip
from fferm.errors import InvalidParameterError
from fferm.penalty.dual import (
    NO_GROUPS,
    GroupWeights,
    dual_variable,
    group_ends,
    group_weights,
)
from fferm.penalty.formulas import (
    is_kept,
    log_ratio_pointer,
    projected_pointer,
    read_table,
)
from fferm.penalty.objective import Objective, Penalty, Problem

VARIABLES = ("auto", "log_ratio", "projected")


class Dual(NamedTuple):
    """The dual table of all lanes, and the constants of the data it needs.

    Attributes
    ----------
    z
        (R, m, K, L) the dual variable: log-ratios, or the dual itself.
    rate
        (R, m, A, L) running rates of the classes.
    prior
        (R, K) group weights within stratum and attribute.
    factor
        (R, A) ``w_r / rho_r``, the weight of a stratum over its share.
    share
        (R, A) ``1 / rho_r``.
    ends
        (A + 1,) where the groups of each attribute begin and end.
    lower
        The lower end of the box.
    upper
        (R, K) its upper ends.
    speed
        How far the variable moves where the ratio moves by 1.
    """

    z: FloatArray
    rate: FloatArray
    prior: FloatArray
    factor: FloatArray
    share: FloatArray
    ends: IntArray
    lower: float
    upper: FloatArray
    speed: float


class PayoffWorkspace(NamedTuple):
    """Arrays for the payoff of one dual table, (R, m, K, L) but for the sums (L,)."""

    dual: FloatArray
    conjugate: FloatArray
    ratio: FloatArray
    payoff: FloatArray
    sums: FloatArray


@kernel
def payoff_into(dual, pointer, work):
    """Write ``G`` of the current dual into the workspace, and the ratios with it.

    ``pointer`` is the address of the function that reads the dual's variable.
    """
    conjugate, payoff, sums = work.conjugate, work.payoff, work.sums
    read_table(
        pointer,
        dual.z.ctypes.data,
        work.dual.ctypes.data,
        conjugate.ctypes.data,
        work.ratio.ctypes.data,
        dual.z.size,
    )
    n_strata, n_classes, _, n_lanes = dual.z.shape
    for r in range(n_strata):
        for a in range(dual.ends.size - 1):
            begin, end = dual.ends[a], dual.ends[a + 1]
            for j in range(n_classes):
                for lane in range(n_lanes):
                    sums[lane] = 0.0
                for k in range(begin, end):
                    prior = dual.prior[r, k]
                    if prior > 0:
                        for lane in range(n_lanes):
                            sums[lane] += prior * conjugate[r, j, k, lane]
                for k in range(begin, end):
                    for lane in range(n_lanes):
                        value = work.dual[r, j, k, lane] - sums[lane]
                        payoff[r, j, k, lane] = dual.factor[r, a] * value


@kernel
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


@kernel
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


@kernel
def best_payoff_into(dual, mass, pointer, work):
    """Write the payoff ``G`` of a table into the workspace."""
    best_into(dual, mass)
    payoff_into(dual, pointer, work)


@dataclass(frozen=True)
class ChosenDual:
    """A dual at independence, the address of what reads it, the penalty's factor."""

    dual: Dual
    pointer: int
    scale: float


def make_dual(
    problem: Problem, n_lanes: int, *, solver: str, variable: str = "auto"
) -> ChosenDual:
    """Return the dual of independence, for a solver that ascends it.

    Parameters
    ----------
    problem
        Its penalty has to have a dual that is linear in the predictions.
    n_lanes
        How many duals.
    solver
        Who asks, for the message.
    variable
        ``"log_ratio"``, ``"projected"`` or ``"auto"``.
    """
    problem.objective.check_linear_dual(solver)
    return bind_dual(
        problem.objective, _group_weights(problem), problem.n_classes, n_lanes, variable
    )


def bind_dual(
    objective: Objective,
    weights: GroupWeights,
    n_classes: int,
    n_lanes: int,
    variable: str = "auto",
) -> ChosenDual:
    """Return the dual of independence for given weights of groups."""
    if variable not in VARIABLES:
        raise InvalidParameterError(
            f"dual must be one of {', '.join(VARIABLES)}; got {variable!r}."
        )
    chosen = dual_variable(objective.divergence, variable)
    pointer = projected_pointer if chosen.is_projected else log_ratio_pointer
    n_strata, n_attributes = weights.share.shape
    dual = Dual(
        np.zeros((n_strata, n_classes, weights.prior.shape[1], n_lanes)),
        np.full((n_strata, n_classes, n_attributes, n_lanes), 1 / n_classes),
        weights.prior,
        weights.factor,
        weights.share,
        weights.ends,
        chosen.lower,
        chosen.upper(weights.prior),
        chosen.speed,
    )
    scale = strip(objective.divergence)[1]
    return ChosenDual(dual, pointer(chosen.divergence).address, scale)


def _group_weights(problem: Problem) -> GroupWeights:
    if problem.penalty is None:
        return NO_GROUPS
    return group_weights(problem.penalty.rows, problem.objective.notion.weighting)


class TablePenalty:
    """A penalty on summed tables, whichever it is.

    Parameters
    ----------
    penalty
        Its formulas are NumPy's.
    """

    def __init__(self, penalty: Penalty) -> None:
        self._penalty = penalty
        ends = group_ends(penalty.rows)
        self._pieces = [
            (slice(begin, end), sums.known_share)
            for begin, end, sums in zip(
                ends[:-1], ends[1:], penalty.rows.cell_sums, strict=True
            )
        ]

    def duals(self, mass: FloatArray) -> tuple[FloatArray, ...]:
        """Return the optimal dual on the table of each attribute."""
        return self._penalty.duals(self._tables(mass))

    def value_and_payoff(self, mass: FloatArray) -> tuple[float, FloatArray]:
        """Return the penalty on a (R, m, K) table, and its slope by the table."""
        value, payoffs = self._penalty.on_tables(self._tables(mass))
        parts = [
            payoff / known
            for payoff, (_, known) in zip(payoffs, self._pieces, strict=True)
        ]
        return value, np.concatenate(parts, axis=2)

    def _tables(self, mass: FloatArray) -> list[FloatArray]:
        # The (R, m, K_a) table of each attribute.
        return [mass[:, :, groups] / known for groups, known in self._pieces]


class BestDualPenalty(TablePenalty):
    """A penalty whose dual is linear in the table, compiled.

    It has one dual and one work for payoffs, so it serves one thread.

    Parameters
    ----------
    problem, penalty
        The problem, whose penalty has such a dual, and that penalty.
    """

    def __init__(self, problem: Problem, penalty: Penalty) -> None:
        super().__init__(penalty)
        self._chosen = make_dual(problem, 1, solver="lbfgs", variable="log_ratio")
        z = self._chosen.dual.z
        tables = (np.empty(z.shape) for _ in range(4))
        self._workspace = PayoffWorkspace(*tables, np.empty(1))

    def value_and_payoff(self, mass: FloatArray) -> tuple[float, FloatArray]:
        """Return the penalty on a (R, m, K) table, and its slope by the table."""
        chosen, work = self._chosen, self._workspace
        table = np.ascontiguousarray(mass)[..., None]
        best_payoff_into(chosen.dual, table, chosen.pointer, work)
        payoff = chosen.scale * work.payoff[..., 0]
        return float(np.vdot(payoff, mass)), payoff


def make_table_penalty(problem: Problem, penalty: Penalty) -> TablePenalty:
    """Return the penalty of a problem on summed tables, compiled where that is quick.

    Formulas that are not on disk take a second to compile, which no run makes up for.
    """
    objective = problem.objective
    if objective.has_linear_dual and is_kept(strip(objective.divergence)[0]):
        return BestDualPenalty(problem, penalty)
    return TablePenalty(penalty)
