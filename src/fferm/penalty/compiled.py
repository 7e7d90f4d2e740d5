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
# ruff: noqa: ANN001, ANN201, ANN202, C901, PLR0913, PLR0917

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fferm._jit import kernel
from fferm._typing import FloatArray, IntArray, Namespace, Operand
from fferm.divergences import strip
from fferm.divergences.base import evaluate, is_kept
from fferm.errors import InvalidParameterError
from fferm.notions import Comparison
from fferm.penalty.dual import NO_GROUPS, GroupWeights, dual_variable, group_weights
from fferm.penalty.formulas import read_table, table_pointer
from fferm.penalty.objective import Objective, Penalty, Problem

VARIABLES = ("auto", "log_ratio", "plain", "projected")
WEIGHTINGS = ("unit", "frequency", "probability")
UNIT, FREQUENCY = 0, 1
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
    pointer
        The address of the function that reads the variable.
    scale
        The factor of the penalty.
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
    pointer: int
    scale: float


@kernel
def payoff_into(dual, work):
    """Write ``G`` of the current dual into the workspace, and the ratios with it."""
    conjugate, payoff, sums = work.conjugate, work.payoff, work.sums
    read_table(
        dual.pointer,
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


def make_dual(
    problem: Problem, n_lanes: int, *, solver: str, variable: str = "auto"
) -> Dual:
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
        ``"log_ratio"``, ``"projected"``, ``"plain"`` or ``"auto"``.
    """
    objective, weights = problem.objective, NO_GROUPS
    objective.check_linear_dual(solver)
    if problem.penalty is not None:
        weights = group_weights(problem.penalty.rows, objective.notion.weighting)
    return bind_dual(objective, weights, problem.n_classes, n_lanes, variable)


def bind_dual(
    objective: Objective,
    weights: GroupWeights,
    n_classes: int,
    n_lanes: int,
    variable: str = "auto",
) -> Dual:
    """Return the dual of independence for given weights of groups."""
    if variable not in VARIABLES:
        raise InvalidParameterError(
            f"dual must be one of {', '.join(VARIABLES)}; got {variable!r}."
        )
    chosen = dual_variable(objective.divergence, variable)
    reads = "projected" if chosen.is_projected else "log_ratio"
    n_strata, n_attributes = weights.share.shape
    return Dual(
        np.zeros((n_strata, n_classes, weights.prior.shape[1], n_lanes)),
        np.full((n_strata, n_classes, n_attributes, n_lanes), 1 / n_classes),
        *weights,
        chosen.lower,
        chosen.upper(weights.prior),
        chosen.speed,
        table_pointer(chosen.divergence, reads).address,
        strip(objective.divergence)[1],
    )


class CompiledPenalty:
    """A penalty as a function of the cells of its tables.

    The cells of all attributes are rows of one (n_cells, n_classes) array, in the order
    (attribute, stratum, group). Linear models sum up one (strata, classes, groups)
    table of all attributes instead, the *mass*.

    Parameters
    ----------
    penalty
        The penalty; only sums over its rows are read.
    """

    def __init__(self, penalty: Penalty) -> None:
        self._penalty = penalty
        objective, rows = penalty.objective, penalty.rows
        self._divergence = objective.trained_divergence
        self._pointer, self._constants = 0, (0.0, 1.0, 0.0)
        base, scale, floor = strip(self._divergence)
        if is_kept(base):  # others take a second to compile, which no run makes up for
            is_plain = base == objective.divergence.smoothed()
            tilt = 0.0 if is_plain else float(self._divergence.f_prime(1.0, np))
            self._pointer = table_pointer(base, "slopes").address
            self._constants = math.log(floor), scale, tilt
        self._is_robust = objective.uncertainty is not None
        comparison = penalty.comparison
        n_groups = np.array([len(attribute.groups) for attribute in rows.attributes])
        n_strata = len(rows.strata.names)
        self._shapes = np.column_stack([np.full_like(n_groups, n_strata), n_groups])
        self.ends = np.cumsum(n_strata * n_groups)
        # What is compared: tables of the same form, and the place in them of each cell
        # and class, None if it is the same.
        self._compared = self._shapes
        self._place: IntArray | None = None
        if comparison.place is not None:
            self._compared, self._place = _compared_places(comparison, self._shapes)
        weighting = WEIGHTINGS.index(objective.notion.weighting)
        self._rule = self._compared, weighting, not comparison.has_fixed_groups
        self._n_outcomes = len(comparison.outcomes)
        # The row of each cell in a (R K, m) mass, which is a mean over all rows, where
        # the table of an attribute is a mean over the rows whose group is known.
        self._order: IntArray | slice = slice(None)
        known = np.array([sums.known_share for sums in rows.cell_sums])
        self._known = known
        if known.size > 1:
            order = np.arange(n_strata * n_groups.sum()).reshape(n_strata, -1)
            parts = np.split(order, np.cumsum(n_groups)[:-1], axis=1)
            self._order = np.concatenate([part.ravel() for part in parts])
            self._known = np.repeat(known, n_strata * n_groups)[:, None]
        self._last: tuple[FloatArray, ...] = ()

    def value_and_payoff(self, cells: FloatArray) -> tuple[float, FloatArray]:
        """Return the penalty, and its (n_cells, n_classes) gradient by the cells."""
        if self._is_robust:
            value, payoffs = self._penalty.on_tables(self.split(cells))
            return value, self.join(payoffs)
        compared, product, dual, conjugate, _ = self._at(cells)
        payoff = np.empty_like(compared)
        value = _payoff_into(compared, *self._rule, product, dual, conjugate, payoff)
        if self._place is not None:
            padded = np.append(payoff.ravel(), 0.0)  # the last for cells left out
            payoff = padded[self._place].reshape(cells.shape)
        return value, payoff

    def root(self, cells: FloatArray) -> FloatArray:
        """Return a matrix whose Gram matrix is the curvature at the cells.

        Returns
        -------
        FloatArray
            Square, over the cells of all classes, classes last.
        """
        compared, product, dual, _, second = self._at(cells)
        root = np.zeros((compared.size, compared.size))
        _root_into(compared, *self._rule, product, dual, second, root)
        if self._place is None:
            return root
        used = np.unique(self._place[self._place < compared.size])
        padded = np.hstack([root, np.zeros((len(root), 1))])
        by_cell = np.zeros((cells.size, cells.size))
        by_cell[: used.size] = padded[used][:, self._place]
        return by_cell

    def on_mass(self, mass: FloatArray) -> tuple[float, FloatArray]:
        """Return the penalty on a (R, m, K) mass, and its gradient by the mass."""
        value, payoff = self.value_and_payoff(self.cells_of(mass))
        by_mass = np.empty_like(payoff)
        by_mass[self._order] = payoff / self._known
        tables = by_mass.reshape(mass.shape[0], mass.shape[2], -1).transpose(0, 2, 1)
        return value, np.ascontiguousarray(tables)

    def root_on_mass(self, mass: FloatArray) -> FloatArray:
        """Return the root at a (R, m, K) mass, by its (R K m) numbers, classes last."""
        cells = self.cells_of(mass)
        root = self.root(cells).reshape(-1, *cells.shape)
        by_mass = np.empty_like(root)
        by_mass[:, self._order] = root / self._known
        return by_mass.reshape(len(root), -1)

    def duals(self, cells: FloatArray) -> tuple[FloatArray, ...]:
        """Return the optimal dual on the (R, m, K) table of each attribute."""
        if self._penalty.comparison.kept is not None:  # duals of all conditions
            return self._penalty.duals(self.split(cells))
        dual = self._at(cells)[2]
        if self._place is not None:
            dual = np.append(dual.ravel(), 0.0)[self._place].reshape(cells.shape)
        return tuple(self.split(dual))

    def split(self, cells: FloatArray) -> list[FloatArray]:
        """Return the (strata, classes, groups) table of each attribute."""
        parts = np.split(cells, self.ends[:-1])
        return [
            part.reshape(*shape, -1).transpose(0, 2, 1)
            for part, shape in zip(parts, self._shapes, strict=True)
        ]

    def join(self, tables: Sequence[FloatArray]) -> FloatArray:
        """Return the cells of the tables of all attributes."""
        parts = [table.transpose(0, 2, 1) for table in tables]
        cells = np.concatenate([part.reshape(-1, part.shape[2]) for part in parts])
        return np.ascontiguousarray(cells)

    def cells_of(self, mass: FloatArray) -> FloatArray:
        """Return the cells of all attributes in a (R, m, K) mass."""
        flat = mass.transpose(0, 2, 1).reshape(-1, mass.shape[1])
        return np.asarray(np.ascontiguousarray(flat[self._order]) / self._known)

    def _at(self, cells: FloatArray) -> tuple[FloatArray, ...]:
        # The compared cells, their products of marginals, and f', its conjugate and f''
        # at the ratios. The root is computed at the cells of the last payoff.
        if self._last and self._last[0] is cells:
            return self._last[1:]
        compared = cells
        if self._place is not None:
            size = self._compared.prod(axis=1).sum() * self._n_outcomes
            sums = np.bincount(self._place, cells.ravel(), size + 1)[:-1]
            compared = np.asarray(sums, np.float64).reshape(-1, self._n_outcomes)
        product, ratio, *slopes = (np.empty_like(compared) for _ in range(5))
        tables = compared, self._compared, product, ratio
        _slopes_into(*tables, self._pointer, self._constants, tuple(slopes))
        if not self._pointer:
            f = self._divergence

            # By the log-ratio: at large t the dual rounds to the end of its domain,
            # where the conjugate is infinite although f*(f'(t)) is not.
            def conjugate(t: Operand, xp: Namespace) -> Operand:
                z = xp.where(t > 0, xp.log(xp.where(t > 0, t, 1.0)), -np.inf)
                return f.conjugate_at(z, xp)

            formulas = f.f_prime, conjugate, f.f_second
            slopes = [evaluate(formula, ratio) for formula in formulas]
        self._last = cells, compared, product, *slopes
        return self._last[1:]


def _compared_places(
    comparison: Comparison, shapes: IntArray
) -> tuple[IntArray, IntArray]:
    # The shapes of the compared tables, and the flat place in them of each cell and
    # class, one beyond the last for those that are left out.
    assert comparison.place is not None
    n_outcomes, kept = len(comparison.outcomes), comparison.kept
    condition, outcome = np.divmod(comparison.place, n_outcomes)
    is_out = comparison.place < 0
    n_conditions = len(comparison.conditions)
    if kept is not None:
        is_out |= condition != kept
        condition, n_conditions = np.zeros_like(condition), 1
    places, begin = [], 0
    for n_groups in shapes[:, 1]:
        group = np.arange(n_groups)[:, None]  # strata, groups, classes
        row = begin + condition[:, None, :] * n_groups + group
        place = row * n_outcomes + outcome[:, None, :]
        places.append(np.where(is_out[:, None, :], -1, place).ravel())
        begin += n_conditions * n_groups
    place = np.concatenate(places)
    compared = np.column_stack([np.full(len(shapes), n_conditions), shapes[:, 1]])
    return compared, np.where(place < 0, begin * n_outcomes, place)


@kernel
def _slopes_into(cells, shapes, product, ratio, pointer, constants, slopes):
    # The products of marginals, the ratios to them (1 if both are 0), and f', its
    # conjugate and f'' there if there is a pointer to formulas: those of a scaled and
    # tilted divergence with a linear tail. The ratios are then replaced.
    begin = 0
    for a in range(shapes.shape[0]):
        n_conditions, n_groups = shapes[a, 0], shapes[a, 1]
        for first in range(begin, begin + n_conditions * n_groups, n_groups):
            for k in range(n_groups):
                for j in range(cells.shape[1]):
                    q = first + k
                    by_group, by_outcome, mass = _marginals(
                        cells, first, n_groups, k, j
                    )
                    expected = by_group * by_outcome / mass if mass > 0 else 0.0
                    product[q, j] = expected
                    ratio[q, j] = cells[q, j] / expected if expected > 0 else 1.0
        begin += n_conditions * n_groups
    if pointer == 0:
        return
    lower, scale, tilt = constants
    dual, conjugate, second = slopes
    for q in range(cells.shape[0]):
        for j in range(cells.shape[1]):
            t = ratio[q, j]
            ratio[q, j] = max(math.log(t), lower) if t > 0 else lower
    read_table(
        pointer,
        ratio.ctypes.data,
        dual.ctypes.data,
        conjugate.ctypes.data,
        second.ctypes.data,
        ratio.size,
    )
    for q in range(cells.shape[0]):
        for j in range(cells.shape[1]):
            dual[q, j] = scale * dual[q, j] + tilt
            conjugate[q, j] = scale * conjugate[q, j] + tilt
            second[q, j] = scale * second[q, j] if ratio[q, j] > lower else 0.0


@kernel
def _marginals(cells, first, n_groups, k, j):
    # The mass of a group, of an outcome, and of all, within the condition of a cell.
    by_group, by_outcome, mass = 0.0, 0.0, 0.0
    for g in range(n_groups):
        for o in range(cells.shape[1]):
            value = cells[first + g, o]
            by_group += value if g == k else 0.0
            by_outcome += value if o == j else 0.0
            mass += value
    return by_group, by_outcome, mass


@kernel
def _scale(mass, whole, weighting):
    # The weight of a condition over its mass.
    if weighting == UNIT:
        return 1.0 / mass
    return 1.0 / whole if weighting == FREQUENCY else 1.0


@kernel
def _payoff_into(cells, shapes, weighting, is_moving, product, dual, conjugate, payoff):
    # Writes the payoff, and returns the penalty.
    value, begin = 0.0, 0
    for a in range(shapes.shape[0]):
        n_groups = shapes[a, 1]
        end = begin + shapes[a, 0] * n_groups
        whole, before = cells[begin:end].sum(), value
        for first in range(begin, end, n_groups):
            part, mass = _part(cells, product, dual, conjugate, first, n_groups)
            if mass > 0:
                value += _scale(mass, whole, weighting) * part
        for first in range(begin, end, n_groups):
            part, mass = _part(cells, product, dual, conjugate, first, n_groups)
            if mass <= 0:  # an empty condition
                payoff[first : first + n_groups, :] = 0.0
                continue
            _fixed_slopes_into(cells, first, n_groups, mass, dual, conjugate, payoff)
            scale, shift = _scale(mass, whole, weighting), 0.0
            if is_moving:
                radial = _move_groups(cells, first, n_groups, mass, conjugate, payoff)
                # The product rule: the weight of a condition moves with its mass.
                if weighting == FREQUENCY:
                    shift = (part / mass - (value - before)) / whole
                elif weighting != UNIT:
                    shift = part / mass
                shift -= scale * radial
            for q in range(first, first + n_groups):
                for j in range(cells.shape[1]):
                    payoff[q, j] = scale * payoff[q, j] + shift
        begin = end
    return value


@kernel
def _part(cells, product, dual, conjugate, first, n_groups):
    # The divergence of a condition times its mass, and its mass.
    part, mass = 0.0, 0.0
    for q in range(first, first + n_groups):
        for j in range(cells.shape[1]):
            part += cells[q, j] * dual[q, j] - product[q, j] * conjugate[q, j]
            mass += cells[q, j]
    return part, mass


@kernel
def _fixed_slopes_into(cells, first, n_groups, mass, dual, conjugate, payoff):
    # The slope of the divergence at fixed group weights.
    for j in range(cells.shape[1]):
        mean = 0.0
        for q in range(first, first + n_groups):
            prior = 0.0
            for o in range(cells.shape[1]):
                prior += cells[q, o]
            mean += prior / mass * conjugate[q, j]
        for q in range(first, first + n_groups):
            payoff[q, j] = dual[q, j] - mean


@kernel
def _move_groups(cells, first, n_groups, mass, conjugate, payoff):
    # Adds what moving group weights change, and returns the slope along the cells.
    radial, n_outcomes = 0.0, cells.shape[1]
    for q in range(first, first + n_groups):
        mean = 0.0
        for j in range(n_outcomes):
            by_outcome = 0.0
            for g in range(first, first + n_groups):
                by_outcome += cells[g, j]
            mean += by_outcome / mass * conjugate[q, j]
        for j in range(n_outcomes):
            payoff[q, j] -= mean
            radial += payoff[q, j] * cells[q, j] / mass
    return radial


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
def _root_into(cells, shapes, weighting, is_moving, product, dual, second, root):
    # Writes the root of the curvature, over cells and outcomes, into zeros.
    begin, m = 0, cells.shape[1]
    for a in range(shapes.shape[0]):
        n_groups = shapes[a, 1]
        end = begin + shapes[a, 0] * n_groups
        whole = cells[begin:end].sum()
        for q in range(begin, end):
            k = (q - begin) % n_groups
            first = q - k
            for j in range(m):
                if product[q, j] <= 0:
                    continue
                by_group, by_outcome, mass = _marginals(cells, first, n_groups, k, j)
                t = cells[q, j] / product[q, j]
                curvature = _curvature(t, dual[q, j], second[q, j])
                scale = _scale(mass, whole, weighting) / product[q, j]
                for g in range(n_groups):
                    for o in range(m):
                        # The derivative of the product by the other cell.
                        moved = by_group / mass if o == j else 0.0
                        if is_moving:
                            moved += by_outcome / mass if g == k else 0.0
                            moved -= by_group * by_outcome / (mass * mass)
                        itself = 1.0 if g == k and o == j else 0.0
                        root[q * m + j, (first + g) * m + o] = math.sqrt(
                            curvature * scale
                        ) * (itself - t * moved)
        begin = end
