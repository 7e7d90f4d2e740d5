r"""The penalty as a compiled function of its tables: value, payoff and curvature.

With ``Q`` the product of marginals, the dual ``A = f'(t)`` and its conjugate
``C = f*(A)`` at the ratios ``t = P / Q`` are enough: the perspective is homogeneous, so
``Q f(P / Q) = P A - Q C`` by Euler's theorem. With group weights fixed, the second
derivative along a direction ``dP`` of the table is

.. math:: d^2 R = \sum_{rjk} \frac{w_r}{\rho_r^2} \frac{f''(t)}{Q}
          \big(dP - t \, dQ\big)^2 ,

a sum of squares, so its root is at hand and nothing has to be decomposed. Robust
penalties have the value and payoff of `fferm.tables`, and the curvature of the plain
penalty at the same table: a Newton step is tried before it is taken, and all it needs
is a scale. `fferm.tables` is the oracle of values and payoffs.

Solvers that ascend the dual by minibatches keep its table themselves: `make_dual`.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg"
# ruff: noqa: ANN001, ANN201, ANN202, C901, PLR0912, PLR0913, PLR0917

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fferm._jit import kernel
from fferm._typing import FloatArray, IntArray, Namespace, Operand
from fferm.divergences import Divergence, strip
from fferm.divergences.base import evaluate
from fferm.errors import InvalidParameterError
from fferm.penalty.dual import (
    NO_GROUPS,
    GroupWeights,
    dual_variable,
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
# Nearer to 1 than this, the slope of f over the distance is nothing but rounding.
SECANT_WIDTH = 1e-6


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


class CompiledPenalty:
    """A penalty as a function of the cells of its tables.

    The cells of all attributes are rows of one (n_cells, n_classes) array, in the order
    (attribute, stratum, group). Linear models sum up one (strata, classes, groups)
    table of all attributes instead, the *mass*. Kernels run over the cells of the
    tables that the notion compares, (attribute, condition, group) times outcomes.

    Parameters
    ----------
    penalty
        The penalty; only sums over its rows are read.
    """

    def __init__(self, penalty: Penalty) -> None:
        self._penalty = penalty
        self._comparison = penalty.comparison
        objective, rows = penalty.objective, penalty.rows
        self._divergence = objective.trained_divergence
        self._weighting = objective.notion.weighting
        self._is_fixed = self._comparison.has_fixed_groups
        is_compiled = self._is_fixed or self._weighting == "probability"
        self._is_plain = objective.uncertainty is None and is_compiled
        n_strata = len(rows.strata.names)
        n_conditions = len(self._comparison.kept_conditions)
        sizes = [len(attribute.groups) for attribute in rows.attributes]
        self._shapes = np.array([(n_strata, size) for size in sizes])
        self._compared = np.array([(n_conditions, size) for size in sizes])
        self.ends = np.cumsum(self._shapes.prod(axis=1))
        self._ones = np.ones(len(sizes))
        # The row of each cell in a (R K, m) mass, which is a mean over all rows, where
        # the table of an attribute is a mean over the rows whose group is known.
        n_groups = self._shapes[:, 1]
        place = np.arange(n_strata * n_groups.sum()).reshape(n_strata, -1)
        parts = np.split(place, np.cumsum(n_groups)[:-1], axis=1)
        self._place = np.concatenate([part.ravel() for part in parts])
        known = [sums.known_share for sums in rows.cell_sums]
        self._known = np.repeat(known, n_strata * n_groups)[:, None]
        self._formulas = _compiled_formulas(self._divergence)
        self._last: tuple[FloatArray, ...] = ()

    def value_and_payoff(self, cells: FloatArray) -> tuple[float, FloatArray]:
        """Return the penalty, and its (n_cells, n_classes) gradient by the cells."""
        if not self._is_plain:
            value, payoffs = self._penalty.on_tables(self.split(cells))
            return value, self.join(payoffs)
        compared, product, _, dual, conjugate = self._at(cells)
        payoff, shapes = np.empty_like(compared), self._compared
        slopes = product, dual, conjugate, payoff
        if self._is_fixed:
            rule = self._weighting == "unit", self._whole(compared)
            value = _fixed_into(compared, shapes, *rule, *slopes)
        else:
            value = _moving_into(compared, shapes, *slopes)
        return value, self._pull_back(payoff)

    def on_mass(self, mass: FloatArray) -> tuple[float, FloatArray]:
        """Return the penalty on a (R, m, K) mass, and its gradient by the mass."""
        value, payoff = self.value_and_payoff(self._cells(mass))
        by_mass = np.empty_like(payoff)
        by_mass[self._place] = payoff / self._known
        tables = by_mass.reshape(mass.shape[0], mass.shape[2], -1).transpose(0, 2, 1)
        return value, np.ascontiguousarray(tables)

    def duals(self, mass: FloatArray) -> tuple[FloatArray, ...]:
        """Return the optimal dual on the table of each attribute."""
        return self._penalty.duals(self.split(self._cells(mass)))

    def _cells(self, mass: FloatArray) -> FloatArray:
        flat = mass.transpose(0, 2, 1).reshape(-1, mass.shape[1])
        return np.asarray(flat[self._place] / self._known)

    def root(self, cells: FloatArray) -> FloatArray:
        """Return a matrix whose Gram matrix is the curvature at the cells.

        Returns
        -------
        FloatArray
            Square, over the cells of all classes, classes last.
        """
        compared, product, ratio, dual, _ = self._at(cells)
        second = evaluate(self._divergence.f_second, ratio)
        root = np.zeros((compared.size, compared.size))
        rule = self._is_fixed, self._weighting == "unit"
        whole = self._whole(compared)
        _root_into(compared, self._compared, *rule, whole, product, dual, second, root)
        if self._comparison.place is None:
            return root
        # A cell moves the one that it is counted in; -1, the last, is none of them.
        numbers = np.arange(1.0, compared.size + 1).reshape(compared.shape)
        counted = self._pull_back(numbers).astype(np.int64).reshape(-1) - 1
        is_repeated = np.ones(counted.size, dtype=bool)
        is_repeated[np.unique(counted, return_index=True)[1]] = False
        moved = np.pad(root, (0, 1))[counted][:, counted]
        moved[is_repeated] = 0.0
        return moved

    def split(self, cells: FloatArray) -> list[FloatArray]:
        """Return the (strata, classes, groups) table of each attribute."""
        return _split(cells, self._shapes)

    def join(self, tables: Sequence[FloatArray]) -> FloatArray:
        """Return the cells of the tables of all attributes."""
        parts = [table.transpose(0, 2, 1) for table in tables]
        cells = np.concatenate([part.reshape(-1, part.shape[2]) for part in parts])
        return np.ascontiguousarray(cells)

    def _pull_back(self, compared: FloatArray) -> FloatArray:
        # What the cells of compared tables hold, for the cells that they are made of.
        if self._comparison.place is None:
            return compared
        tables = _split(compared, self._compared)
        return self.join([self._comparison.pull_back(table) for table in tables])

    def _whole(self, compared: FloatArray) -> FloatArray:
        # The mass that a condition's share is taken of, by attribute.
        if self._weighting != "frequency":
            return self._ones
        ends = np.cumsum(self._compared.prod(axis=1))
        return np.array([part.sum() for part in np.split(compared, ends[:-1])])

    def _at(self, cells: FloatArray) -> tuple[FloatArray, ...]:
        # The cells that are compared, the product of marginals, the ratio to it, and
        # dual and conjugate there. The root is taken at the cells of the last payoff.
        if not self._last or self._last[0] is not cells:
            compared = cells
            if self._comparison.place is not None:
                tables = map(self._comparison.tables, self.split(cells))
                compared = self.join(list(tables))
            product, ratio = np.empty_like(compared), np.empty_like(compared)
            _products_into(compared, self._compared, product, ratio)
            self._last = cells, compared, product, ratio, *self._formulas(ratio)
        return self._last[1:]


def _split(cells: FloatArray, shapes: IntArray) -> list[FloatArray]:
    parts = np.split(cells, np.cumsum([n * size for n, size in shapes])[:-1])
    return [
        part.reshape(n, size, -1).transpose(0, 2, 1)
        for part, (n, size) in zip(parts, shapes, strict=True)
    ]


def _compiled_formulas(
    divergence: Divergence,
) -> Callable[[FloatArray], tuple[FloatArray, FloatArray]]:
    # Dual and conjugate as functions of an array of ratios. Formulas that are not on
    # disk take a second to compile, which no run makes up for.
    base, scale, floor = strip(divergence)

    def conjugate(t: Operand, xp: Namespace) -> Operand:
        # By the log-ratio: at large t the dual rounds to the end of its domain, where
        # the conjugate is infinite although f*(f'(t)) is not.
        z = xp.where(t > 0, xp.log(xp.where(t > 0, t, 1.0)), -np.inf)
        return divergence.conjugate_at(z, xp)

    def interpreted(ratio: FloatArray) -> tuple[FloatArray, FloatArray]:
        return evaluate(divergence.f_prime, ratio), evaluate(conjugate, ratio)

    if not is_kept(base):
        return interpreted
    tilt = float(divergence.f_prime(np.float64(1), np))
    constants = log_ratio_pointer(base).address, math.log(floor), scale, tilt

    def compiled(ratio: FloatArray) -> tuple[FloatArray, FloatArray]:
        z, *tables = (np.empty_like(ratio) for _ in range(4))
        _formulas_into(*constants, ratio, z, *tables)
        return tables[0], tables[1]

    return compiled


@kernel
def _formulas_into(pointer, lower, scale, tilt, ratio, z, dual, conjugate, unused):
    # Dual and conjugate of a scaled and tilted divergence with a linear tail.
    for q in range(ratio.shape[0]):
        for j in range(ratio.shape[1]):
            t = ratio[q, j]
            z[q, j] = max(math.log(t), lower) if t > 0 else lower
    read_table(
        pointer,
        z.ctypes.data,
        dual.ctypes.data,
        conjugate.ctypes.data,
        unused.ctypes.data,
        z.size,
    )
    for q in range(ratio.shape[0]):
        for j in range(ratio.shape[1]):
            dual[q, j] = scale * dual[q, j] + tilt
            conjugate[q, j] = scale * conjugate[q, j] + tilt


@kernel
def _products_into(cells, shapes, product, ratio):
    """Write the products of marginals, and the ratios to them; 1 if both are 0."""
    begin = 0
    for a in range(shapes.shape[0]):
        n_conditions, n_groups = shapes[a, 0], shapes[a, 1]
        for c in range(n_conditions):
            first = begin + c * n_groups
            for q in range(first, first + n_groups):
                for j in range(cells.shape[1]):
                    by_group, by_outcome, mass = _marginals(
                        cells, first, n_groups, q, j
                    )
                    expected = by_group * by_outcome / mass if mass > 0 else 0.0
                    product[q, j] = expected
                    ratio[q, j] = cells[q, j] / expected if expected > 0 else 1.0
        begin += n_conditions * n_groups


@kernel
def _marginals(cells, first, n_groups, q, j):
    # Of the group and of the outcome of a cell, and the mass of its condition.
    by_group, by_outcome, mass = 0.0, 0.0, 0.0
    for other in range(first, first + n_groups):
        for o in range(cells.shape[1]):
            value = cells[other, o]
            by_group += value if other == q else 0.0
            by_outcome += value if o == j else 0.0
            mass += value
    return by_group, by_outcome, mass


@kernel
def _fixed_into(cells, shapes, counts_one, whole, product, dual, conjugate, payoff):
    """Write the payoff at fixed group weights; return the penalty."""
    value, begin = 0.0, 0
    n_outcomes = cells.shape[1]
    for a in range(shapes.shape[0]):
        n_conditions, n_groups = shapes[a, 0], shapes[a, 1]
        for c in range(n_conditions):
            first = begin + c * n_groups
            share, part = 0.0, 0.0
            for q in range(first, first + n_groups):
                for j in range(n_outcomes):
                    share += cells[q, j]
                    part += cells[q, j] * dual[q, j] - product[q, j] * conjugate[q, j]
            if share <= 0:  # an empty condition
                payoff[first : first + n_groups, :] = 0.0
                continue
            scale = 1.0 / (share if counts_one else whole[a])
            value += scale * part
            for j in range(n_outcomes):
                mean = 0.0
                for q in range(first, first + n_groups):
                    prior = 0.0
                    for o in range(n_outcomes):
                        prior += cells[q, o]
                    mean += prior / share * conjugate[q, j]
                for q in range(first, first + n_groups):
                    payoff[q, j] = scale * (dual[q, j] - mean)
        begin += n_conditions * n_groups
    return value


@kernel
def _moving_into(cells, shapes, product, dual, conjugate, payoff):
    """Write the payoff of conditions that count by probability; return the penalty.

    Group weights move with the model: the product of marginals is differentiated by
    both, and the mass of a condition too.
    """
    value, begin = 0.0, 0
    n_outcomes = cells.shape[1]
    for a in range(shapes.shape[0]):
        n_conditions, n_groups = shapes[a, 0], shapes[a, 1]
        for c in range(n_conditions):
            first = begin + c * n_groups
            last = first + n_groups
            mass, part = 0.0, 0.0
            for q in range(first, last):
                for j in range(n_outcomes):
                    mass += cells[q, j]
                    part += cells[q, j] * dual[q, j] - product[q, j] * conjugate[q, j]
            if mass <= 0:
                payoff[first:last, :] = 0.0
                continue
            value += part
            radial = 0.0
            for q in range(first, last):
                for j in range(n_outcomes):
                    slope = dual[q, j]
                    for other in range(first, last):
                        by_group = 0.0
                        for o in range(n_outcomes):
                            by_group += cells[other, o]
                        slope -= by_group / mass * conjugate[other, j]
                    for o in range(n_outcomes):
                        by_outcome = 0.0
                        for other in range(first, last):
                            by_outcome += cells[other, o]
                        slope -= by_outcome / mass * conjugate[q, o]
                    payoff[q, j] = slope
                    radial += slope * cells[q, j] / mass
            # R = mass V(cells / mass): the product rule takes out the radial part.
            for q in range(first, last):
                for j in range(n_outcomes):
                    payoff[q, j] += part / mass - radial
        begin += n_conditions * n_groups
    return value


@kernel
def _curvature(t, slope, second):
    # The curvature of the parabola that stands for f at a ratio: the larger of f''(t)
    # and f'(t) / (t - 1). The second is that of the parabola which touches f at t and
    # is lowest at 1; it lies above the total variation everywhere, whose own curvature
    # is 0 off its kink.
    secant = slope / (t - 1.0) if abs(t - 1.0) > SECANT_WIDTH else 0.0
    larger = max(second, secant)
    return larger if larger < math.inf else 0.0


@kernel
def _root_into(cells, shapes, is_fixed, counts_one, whole, product, dual, second, root):
    """Write the root of the curvature, over cells and outcomes, into zeros.

    Parameters
    ----------
    cells, shapes
        The tables.
    is_fixed, counts_one, whole
        Whether group weights are fixed; whether conditions have equal weights; the mass
        that their shares are taken of, by attribute.
    product
        Of marginals.
    dual, second
        ``f'`` and ``f''`` at each ratio.
    root
        (n_cells * n_outcomes, the same) of zeros.
    """
    begin, m = 0, cells.shape[1]
    for a in range(shapes.shape[0]):
        n_conditions, n_groups = shapes[a, 0], shapes[a, 1]
        end = begin + n_conditions * n_groups
        for q in range(begin, end):
            first = q - (q - begin) % n_groups
            for j in range(m):
                if product[q, j] <= 0:
                    continue
                by_group, by_outcome, mass = _marginals(cells, first, n_groups, q, j)
                # The penalty weighs D of a table over its share: unit weights leave one
                # factor of 1 / share behind, others that of the whole.
                share = mass if counts_one else whole[a]
                t = cells[q, j] / product[q, j]
                curvature = _curvature(t, dual[q, j], second[q, j])
                scale = math.sqrt(curvature / (product[q, j] * share))
                for other in range(first, first + n_groups):
                    for o in range(m):
                        if is_fixed and o != j:
                            continue
                        # The derivative of the product by the other cell.
                        moved = by_group / mass if o == j else 0.0
                        if not is_fixed:
                            moved += by_outcome / mass if other == q else 0.0
                            moved -= by_group * by_outcome / (mass * mass)
                        itself = 1.0 if other == q and o == j else 0.0
                        root[q * m + j, other * m + o] = scale * (itself - t * moved)
        begin = end
