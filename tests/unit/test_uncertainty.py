"""Uncertainty sets: slopes against differences, bounds, the paper's errors."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.optimize

from fferm.divergences import Alpha, Divergence, LinearTail, get, trainable
from fferm.errors import InvalidParameterError
from fferm.uncertainty import LargeShift, SmallShift, Uncertainty
from fferm.uncertainty.large import interval, lagrangian_bound, worst_vertices
from fferm.uncertainty.small import NORM_ROUNDING, norm_and_slope

DIVERGENCES = {
    "chi2": get("chi2"),
    "kl": get("kl"),
    "kl_paper": get("kl", normalisation="paper"),
    "reverse_kl": get("reverse_kl"),
    "js": get("js"),
    "hellinger": get("hellinger"),
    "alpha=3": Alpha(power=3.0),
    "alpha=-1": Alpha(power=-1.0),
    "tail_kl": LinearTail(get("kl"), floor=0.7),
    "tail_reverse_kl": trainable(get("reverse_kl")),
    "smooth_tv": trainable(get("tv")),
}
UNFAIR = np.array([[0.40, 0.05], [0.20, 0.35]])
STEP = 1e-6


def random_table(rng, n_classes, n_groups, *, with_empty_group=False):
    # Concentrated, so that a radius of .01 reaches no edge.
    table = rng.dirichlet(np.full(n_classes * n_groups, 8.0)).reshape(n_classes, -1)
    return np.insert(table, 1, 0.0, axis=1) if with_empty_group else table


def product_of(p):
    return p.sum(axis=1, keepdims=True) * p.sum(axis=0)


def plain(p, q, divergence):
    return divergence.perspective(p, q).sum()


def differences(function, table):
    """Return central differences of a function of a table, 0 at its empty cells."""
    slopes = np.zeros_like(table)
    for cell in zip(*np.nonzero(table), strict=True):
        up, down = table.copy(), table.copy()
        up[cell] += STEP
        down[cell] -= STEP
        slopes[cell] = (function(up) - function(down)) / (2 * STEP)
    return slopes


def assert_slopes_follow_differences(shift, p, divergence):
    # Central differences with step h are off by h^2 f''' and eps / h: 1e-9 or so.
    tolerance = {"rtol": 2e-5, "atol": 2e-7}
    prior, q = p.sum(axis=0), product_of(p)
    if shift.is_coupled:
        value, payoff = shift.coupled_penalty(p, prior, divergence)
        assert math.isfinite(value)
        expected = differences(
            lambda x: shift.coupled_penalty(x, prior, divergence)[0], p
        )
        np.testing.assert_allclose(payoff, expected, **tolerance)
        return
    value, by_p, by_q = shift.penalty(p, q, divergence)
    assert math.isfinite(value)
    expected = differences(lambda x: shift.penalty(x, q, divergence)[0], p)
    np.testing.assert_allclose(by_p, expected, **tolerance)
    expected = differences(lambda x: shift.penalty(p, x, divergence)[0], q)
    np.testing.assert_allclose(by_q, expected, **tolerance)


@pytest.mark.parametrize("label", DIVERGENCES)
@pytest.mark.parametrize("is_coupled", [False, True])
@pytest.mark.parametrize("norm", ["quotient", "dual"])
@pytest.mark.parametrize("p", [1, 1.5, 2, 3, math.inf])
def test_slopes_of_a_small_shift_equal_differences(p, norm, is_coupled, label):
    rng = np.random.default_rng(3)
    for power, with_empty_group in ((1, True), (2, False)):
        table = random_table(rng, 3, 3, with_empty_group=with_empty_group)
        shift = SmallShift(0.05, p=p, norm=norm, coupled=is_coupled, power=power)
        assert_slopes_follow_differences(shift, table, DIVERGENCES[label])


# At .06 some ends are clipped, at 0 or at the relative floor.
@pytest.mark.parametrize(("radius", "with_empty_group"), [(0.01, False), (0.06, True)])
@pytest.mark.parametrize(
    "label", ["kl", "kl_paper", "js", "alpha=3", "tail_kl", "tail_reverse_kl"]
)
@pytest.mark.parametrize("mode", ["corners", "paper", "simplex", "coupled"])
@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 3), (3, 3)])
def test_slopes_of_a_large_shift_equal_differences(
    shape, mode, label, radius, with_empty_group
):
    table = random_table(
        np.random.default_rng(5), *shape, with_empty_group=with_empty_group
    )
    shift = LargeShift(radius, mode=mode, floor=0.5)
    assert_slopes_follow_differences(shift, table, DIVERGENCES[label])


@pytest.mark.parametrize("mode", ["corners", "simplex", "coupled"])
def test_a_clipped_end_does_not_move_with_its_cell(mode):
    table = np.array([[0.02, 0.40], [0.38, 0.20]])
    shift = LargeShift(0.05, mode=mode, floor=0.9)
    assert_slopes_follow_differences(shift, table, get("js"))
    assert_slopes_follow_differences(shift, table, get("hellinger"))


def test_an_end_that_is_clipped_at_1_does_not_move_with_its_cell():
    table = np.array([[0.90, 0.02], [0.05, 0.03]])
    assert_slopes_follow_differences(LargeShift(0.15, floor=0.9), table, get("js"))


def test_thirteen_classes_are_looked_at_and_fourteen_are_refused():
    shift, one = LargeShift(0.0, mode="coupled"), np.ones(1)
    value, _ = shift.coupled_penalty(np.full((13, 1), 1 / 13), one, get("js"))
    assert value == pytest.approx(0, abs=1e-12)
    with pytest.raises(InvalidParameterError, match="at most 13 classes; got 14"):
        shift.coupled_penalty(np.full((14, 1), 1 / 14), one, get("js"))


@pytest.mark.parametrize(
    "shift",
    [
        *(SmallShift(0.0, p=p, power=n) for p in (1, 2, 3, "inf") for n in (1, 2)),
        *(LargeShift(0.0, mode=mode) for mode in ("corners", "paper", "simplex")),
    ],
    ids=repr,
)
@pytest.mark.parametrize("shape", [(2, 2), (4, 2)])
def test_radius_zero_is_the_divergence_itself(shift, shape):
    p = random_table(np.random.default_rng(0), *shape, with_empty_group=True)
    q, divergence = product_of(p), get("js")
    value, by_p, by_q = shift.penalty(p, q, divergence)
    assert value == pytest.approx(plain(p, q, divergence), rel=1e-13)
    np.testing.assert_allclose(by_p, divergence.slopes(p, q)[0], atol=1e-13)
    np.testing.assert_allclose(by_q, divergence.slopes(p, q)[1], atol=1e-13)


@pytest.mark.parametrize(
    "shift", [SmallShift(0.0, coupled=True), LargeShift(0.0, mode="coupled")]
)
def test_radius_zero_is_the_payoff_at_fixed_group_weights(shift):
    p = random_table(np.random.default_rng(0), 3, 2)
    prior, divergence = p.sum(axis=0), get("kl")
    by_p, by_q = divergence.slopes(p, product_of(p))
    payoff = shift.coupled_penalty(p, prior, divergence)[1]
    np.testing.assert_allclose(payoff, by_p + (by_q @ prior)[:, None], atol=1e-13)


@pytest.mark.parametrize("p", [1, 2, "inf"])
@pytest.mark.parametrize("norm", ["quotient", "dual"])
def test_a_fair_table_has_no_slope_in_canonical_form(p, norm):
    fair = np.full((2, 2), 0.25)
    value, by_p, by_q = SmallShift(0.1, p=p, norm=norm).penalty(fair, fair, get("kl"))
    assert value == 0
    if p == 2 or norm == "dual":
        assert not by_p.any()
        assert not by_q.any()


@pytest.mark.parametrize(
    "shift",
    [
        SmallShift(0.05, p=1),
        SmallShift(0.05, p=2),
        SmallShift(0.05, p="inf"),
        SmallShift(0.05, norm="dual"),
        LargeShift(0.02),
        LargeShift(0.02, mode="paper"),
        LargeShift(0.02, mode="simplex"),
    ],
    ids=repr,
)
def test_an_empty_group_changes_nothing(shift):
    p, divergence = UNFAIR, get("kl", normalisation="paper")
    wide = np.insert(p, 1, 0.0, axis=1)
    value, by_p, by_q = shift.penalty(p, product_of(p), divergence)
    again, wide_p, wide_q = shift.penalty(wide, product_of(wide), divergence)
    assert again == pytest.approx(value, rel=1e-14)
    np.testing.assert_allclose(wide_p, np.insert(by_p, 1, 0.0, axis=1), rtol=1e-12)
    np.testing.assert_allclose(wide_q, np.insert(by_q, 1, 0.0, axis=1), rtol=1e-12)


@pytest.mark.parametrize(
    "shift", [SmallShift(0.05, coupled=True), LargeShift(0.02, mode="coupled")]
)
def test_an_empty_group_changes_nothing_in_a_coupled_set(shift):
    wide = np.insert(UNFAIR, 1, 0.0, axis=1)
    value, payoff = shift.coupled_penalty(UNFAIR, UNFAIR.sum(axis=0), get("js"))
    again, wide_payoff = shift.coupled_penalty(wide, wide.sum(axis=0), get("js"))
    assert again == pytest.approx(value, rel=1e-14)
    np.testing.assert_allclose(
        wide_payoff, np.insert(payoff, 1, 0.0, axis=1), rtol=1e-12
    )


@pytest.mark.parametrize(
    "shift", [SmallShift(0.0, coupled=True), LargeShift(0.0, mode="coupled")]
)
@pytest.mark.parametrize("prior", [[0.5, 0.2, 0.3], [0.5, 0.5, 0.0]])
def test_a_group_without_rows_or_without_weight_counts_in_a_coupled_set(shift, prior):
    p, prior = np.array([[0.4, 0.0, 0.1], [0.2, 0.0, 0.3]]), np.array(prior)
    product = p.sum(axis=1, keepdims=True) * prior
    value, _ = shift.coupled_penalty(p, prior, get("js"))
    assert value == pytest.approx(plain(p, product, get("js")))


@pytest.mark.parametrize("label", ["kl", "js", "reverse_kl", "alpha=-1", "kl_paper"])
@pytest.mark.parametrize("table", [[[0.4, 0.0], [0.25, 0.35]], [[0.6, 0], [0, 0.4]]])
def test_infinite_penalties_come_without_warning_or_nan(label, table):
    p, divergence = np.array(table), DIVERGENCES[label]
    q, prior = product_of(p), p.sum(axis=0)
    sets = [
        *(SmallShift(0.1, p=n, power=k) for n in (1, 2, 3, "inf") for k in (1, 2)),
        *(SmallShift(0.1, p=n, coupled=True) for n in (1, 2, "inf")),
        *(LargeShift(0.3, mode=m, floor=0) for m in ("corners", "paper", "simplex")),
        LargeShift(0.3, mode="coupled"),
    ]
    for shift in sets:
        found = (
            shift.coupled_penalty(p, prior, divergence)
            if shift.is_coupled
            else shift.penalty(p, q, divergence)
        )
        assert not any(np.isnan(part).any() for part in found)
    assert SmallShift(0.1).penalty(p, q, divergence)[0] == math.inf


def test_many_cells_with_an_infinite_corner_give_an_infinite_bound():
    p = random_table(np.random.default_rng(1), 4, 3)
    shift = LargeShift(0.5, mode="simplex", floor=0)
    value, by_p, by_q = shift.penalty(p, product_of(p), get("kl"))
    assert value == math.inf
    assert not np.isnan(by_p).any()
    assert not np.isnan(by_q).any()


@pytest.mark.parametrize("label", ["chi2", "kl", "js", "hellinger"])
def test_corners_are_never_below_the_divergence_but_the_papers_are(label):
    # 10,000 tables in all: 2,500 a divergence, from 2 x 2 to 3 x 4 cells.
    rng, divergence, n_below = np.random.default_rng(7), DIVERGENCES[label], 0
    shapes = [(2, 2), (2, 2), (3, 2), (2, 4), (3, 4)]
    for shape in shapes * 500:
        p = rng.dirichlet(np.ones(shape[0] * shape[1])).reshape(shape)
        q, radius = product_of(p), rng.uniform(0, 0.05)
        value = plain(p, q, divergence)
        worst = LargeShift(radius).penalty(p, q, divergence)[0]
        paper = LargeShift(radius, mode="paper").penalty(p, q, divergence)[0]
        assert worst >= value
        n_below += paper < value
    assert n_below > 0


@pytest.mark.parametrize(
    ("name", "by_paper", "value"),
    [("hellinger", 0.0766, 0.0842), ("js", 0.0758, 0.0828), ("kl", 0.1498, 0.1555)],
)
def test_the_papers_corner_falls_below_the_divergence(name, by_paper, value):
    q, divergence = product_of(UNFAIR), get(name)
    found = LargeShift(0.01, mode="paper").penalty(UNFAIR, q, divergence)[0]
    assert found == pytest.approx(by_paper, abs=5e-5)
    assert plain(UNFAIR, q, divergence) == pytest.approx(value, abs=5e-5)
    assert LargeShift(0.01).penalty(UNFAIR, q, divergence)[0] > value


@dataclass(frozen=True)
class Raised(Divergence, abstract=True):  # abstract: other tests need not know it
    """A user's own ``t ln t + slope t + height``: any corner may be the worst."""

    height: float = 0.0
    slope: float = 0.0

    def f(self, t, xp):
        return t * (xp.log(t) + self.slope) + self.height

    def f_prime(self, t, xp):
        return xp.log(t) + 1 + self.slope

    def conjugate(self, a, xp):
        return xp.exp(a - 1 - self.slope) - self.height

    def conjugate_prime(self, a, xp):
        return xp.exp(a - 1 - self.slope)


# The worst corner of a cell is the lower or upper end of p and of q.
RAISED = [Raised(), Raised(9), Raised(slope=-9), Raised(9, slope=-9)]


@pytest.mark.parametrize("divergence", RAISED, ids=repr)
@pytest.mark.parametrize("joint", [[0.4, 0.05, 0.2, 0.35], [0.1, 0.15, 0.35, 0.4]])
def test_the_worst_corner_of_each_cell_is_the_largest_of_its_box(divergence, joint):
    p = np.array(joint)
    q = product_of(p.reshape(2, 2)).ravel()
    shares = np.linspace(-0.04, 0.04, 5)
    moved_p, moved_q = p + shares[:, None, None], q + shares[None, :, None]
    largest = divergence.perspective(moved_p, moved_q).max(axis=(0, 1))
    value, *_ = LargeShift(0.04).penalty(p, q, divergence)
    assert value == pytest.approx(largest.sum(), rel=1e-12)


@pytest.mark.parametrize("label", ["kl", "js", "chi2"])
def test_the_lagrangian_bound_is_that_of_the_best_prices(label):
    rng, divergence, radius = np.random.default_rng(3), DIVERGENCES[label], 0.03
    p = random_table(rng, 4, 3)
    q = product_of(p)
    ends = np.array([p - radius, p + radius]), np.array([q - radius, q + radius])
    ends[0][0], ends[1][0] = np.maximum(ends[0][0], 0), np.maximum(ends[1][0], 0.1 * q)

    def bound(prices):
        cost = prices[0] * (ends[0] - p)[:, None] + prices[1] * (ends[1] - q)[None]
        corners = divergence.perspective(ends[0][:, None], ends[1][None]) - cost
        return corners.max(axis=(0, 1)).sum()

    best = scipy.optimize.minimize(
        bound, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}
    )
    value = LargeShift(radius, mode="simplex").penalty(p, q, divergence)[0]
    assert value == pytest.approx(best.fun, rel=1e-6)


@pytest.mark.parametrize("label", ["kl", "js", "hellinger", "chi2", "kl_paper"])
@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 4), (3, 4)])
def test_simplex_lies_between_divergence_and_corners(label, shape):
    rng, divergence = np.random.default_rng(9), DIVERGENCES[label]
    for _ in range(15):
        p, radius = random_table(rng, *shape), rng.uniform(0.001, 0.2)
        q = product_of(p)
        value = LargeShift(radius, mode="simplex").penalty(p, q, divergence)[0]
        above = LargeShift(radius).penalty(p, q, divergence)[0]
        # 1e-7 is the tolerance of the linear program, relative after scaling.
        assert plain(p, q, divergence) <= value * (1 + 1e-12)
        assert value <= above + 1e-7 * abs(above)


@pytest.mark.parametrize("label", ["kl", "js", "chi2", "reverse_kl", "kl_paper"])
def test_lagrangian_bound_is_above_the_exact_worst_case(label):
    rng, divergence, gaps = np.random.default_rng(10), DIVERGENCES[label], []
    for _ in range(25):
        p = rng.dirichlet(np.full(6, 2.0))
        q = product_of(p.reshape(3, 2)).ravel()
        radius = rng.uniform(0.001, 0.05)
        intervals = interval(p, radius), interval(q, radius, 0.1)
        exact = worst_vertices(p, q, intervals, divergence)[0]
        bound = lagrangian_bound(p, q, intervals, divergence)[0]
        if math.isinf(exact):
            assert bound == math.inf
            continue
        assert bound >= exact * (1 - 1e-12)
        gaps.append(bound / exact - 1)
    assert np.mean(gaps) < 0.01


# What the docstring and the guide say, of tables that the uniform law gives.
@pytest.mark.parametrize(
    ("radius", "on_average", "at_most"),
    [(0.01, 0.0002, 0.03), (0.05, 0.006, 0.09), (0.1, 0.02, 0.11)],
)
def test_the_lagrangian_bound_is_as_close_as_is_said(radius, on_average, at_most):
    rng, gaps = np.random.default_rng(1), []
    for n in range(250):
        p = rng.dirichlet(np.ones(6)).reshape([(3, 2), (2, 3)][n % 2])
        q, divergence = product_of(p).ravel(), DIVERGENCES[["kl", "js", "chi2"][n % 3]]
        p = p.ravel()
        intervals = interval(p, radius), interval(q, radius, 0.1)
        exact = worst_vertices(p, q, intervals, divergence)[0]
        gaps.append(lagrangian_bound(p, q, intervals, divergence)[0] / exact - 1)
    assert np.mean(gaps) == pytest.approx(on_average, rel=0.3)
    assert at_most / 6 < max(gaps) < at_most


@pytest.mark.parametrize("label", ["kl", "js", "chi2"])
def test_simplex_worst_case_equals_that_of_random_tables_in_the_set(label):
    rng, divergence, radius = np.random.default_rng(11), DIVERGENCES[label], 0.06
    p = random_table(rng, 2, 2)
    q = product_of(p)
    value = LargeShift(radius, mode="simplex").penalty(p, q, divergence)[0]
    steps = radius * rng.choice([-1, 0, 1], size=(2, 20_000, 2, 2))
    moved_p, moved_q = p + steps[0], q + steps[1]
    inside = (
        (np.abs(steps.sum(axis=(2, 3))) < 1e-12).all(axis=0)
        & (moved_p >= 0).all(axis=(1, 2))
        & (moved_q >= 0.1 * q).all(axis=(1, 2))
    )
    seen = divergence.perspective(moved_p[inside], moved_q[inside]).sum(axis=(1, 2))
    assert seen.max() <= value * (1 + 1e-12)
    assert seen.max() > 0.9 * value


def test_the_bound_is_still_one_where_the_linear_program_gives_up(monkeypatch):
    p = random_table(np.random.default_rng(2), 4, 2)
    monkeypatch.setattr(
        scipy.optimize,
        "linprog",
        lambda *_, **__: scipy.optimize.OptimizeResult(x=None),
    )
    for divergence in (get("js"), *RAISED):
        args = p, product_of(p), divergence
        bound = LargeShift(0.01, mode="simplex").penalty(*args)[0]
        assert bound == pytest.approx(LargeShift(0.01).penalty(*args)[0], rel=1e-14)


@pytest.mark.parametrize("label", ["kl", "js", "hellinger", "chi2"])
@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 2)])
def test_coupled_worst_case_is_above_the_divergence_and_a_grid(label, shape):
    rng, divergence, radius = np.random.default_rng(12), DIVERGENCES[label], 0.04
    p = random_table(rng, *shape)
    prior = p.sum(axis=0)
    value = LargeShift(radius, mode="coupled").coupled_penalty(p, prior, divergence)[0]
    assert value >= plain(p, product_of(p), divergence)
    seen = max(
        plain(moved, moved.sum(axis=1, keepdims=True) * prior, divergence)
        for moved in coupled_grid(p, radius)
    )
    # The grid holds the ends of every interval, hence some vertex close by.
    assert seen <= value * (1 + 1e-12)
    assert seen == pytest.approx(value, rel=1e-12)


def coupled_grid(p, radius):
    """Yield the tables of a grid over the set: all rows but the last choose."""
    n_classes, n_groups = p.shape
    size = (n_classes - 1) * n_groups
    for steps in itertools.product(np.linspace(-1, 1, 5), repeat=size):
        step = radius * np.reshape(steps, (n_classes - 1, n_groups))
        step = np.vstack([step, -step.sum(axis=0)])
        moved = p + step
        if np.abs(step).max() <= radius * (1 + 1e-12) and moved.min() >= 0:
            yield moved


def test_coupled_worst_case_of_two_classes_is_that_of_two_ends_a_group():
    p = np.array([[0.02, 0.28, 0.20], [0.18, 0.22, 0.10]])
    prior, radius, divergence = p.sum(axis=0), 0.05, get("js")
    ends = [(-min(radius, a), min(radius, b)) for a, b in p.T]
    values = []
    for step in itertools.product(*ends):
        moved = p + np.array([step, np.negative(step)])
        values.append(
            plain(moved, moved.sum(axis=1, keepdims=True) * prior, divergence)
        )
    found = LargeShift(radius, mode="coupled").coupled_penalty(p, prior, divergence)[0]
    assert found == pytest.approx(max(values), rel=1e-14)


def test_small_shift_is_a_lower_bound_of_the_exact_worst_case():
    q, divergence = product_of(UNFAIR), get("kl")
    for radius in (0.001, 0.01, 0.05):
        first_order = SmallShift(radius, p="inf").penalty(UNFAIR, q, divergence)[0]
        exact = LargeShift(radius, mode="simplex", floor=0).penalty(
            UNFAIR, q, divergence
        )[0]
        assert first_order < exact


def length_of(shift, p):
    top = np.abs(shift).max()
    p = min(float(p), 1e9)  # beyond it, all but the largest count for nothing
    return top * np.sum((np.abs(shift) / top) ** p) ** (1 / p)


@pytest.mark.parametrize("p", [1, 1.001, 1.5, 2, 3, 50, 1e6, 1e300, math.inf])
@pytest.mark.parametrize("is_quotient", [False, True])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_the_norm_of_a_slope_is_the_most_that_a_shift_of_length_1_gains(
    p, is_quotient, scale
):
    rng = np.random.default_rng(0)
    g = scale * rng.normal(size=7)
    size, slope = norm_and_slope(g, p, is_quotient=is_quotient)
    assert length_of(slope, p) == pytest.approx(1, rel=1e-6)
    assert slope @ g == pytest.approx(size, rel=1e-9)
    if is_quotient:
        assert slope.sum() == pytest.approx(0, abs=1e-9)
    for other in (
        slope + rng.normal(size=(500, 7)) * np.geomspace(1e-3, 10, 500)[:, None]
    ):
        other -= other.mean() if is_quotient else 0
        assert other @ g <= size * length_of(other, p) * (1 + 1e-9)


@pytest.mark.parametrize("p", [1.5, 2, 3])
@pytest.mark.parametrize("is_quotient", [False, True])
def test_the_slope_of_a_tiny_norm_is_that_of_finite_differences(p, is_quotient):
    # So small that the kink at 0 is rounded.
    g = NORM_ROUNDING * np.array([0.3, -0.8, 0.5, 1.1])
    slope = norm_and_slope(g, p, is_quotient=is_quotient)[1]
    for move in 1e-4 * NORM_ROUNDING * np.eye(4):
        up, down = (
            norm_and_slope(g + sign * move, p, is_quotient=is_quotient)[0]
            for sign in (1, -1)
        )
        assert (up - down) / (2 * move.max()) == pytest.approx(
            slope @ move / move.max(), rel=1e-5
        )


@pytest.mark.parametrize("name", ["kl", "reverse_kl", "hellinger"])
@pytest.mark.parametrize("p", [1, 1.5, 2, 3, "inf"])
@pytest.mark.parametrize("is_coupled", [False, True])
def test_the_quotient_norm_does_not_see_a_tilt(name, p, is_coupled):
    table = random_table(np.random.default_rng(13), 3, 3)
    shift = SmallShift(0.05, p=p, coupled=is_coupled)
    side = table.sum(axis=0) if is_coupled else product_of(table)
    method = shift.coupled_penalty if is_coupled else shift.penalty
    value = method(table, side, get(name))[0]
    tilted = method(table, side, get(name, normalisation="paper"))[0]
    assert tilted == pytest.approx(value, rel=1e-12)


def test_the_dual_norm_sees_a_tilt():
    shift, q = SmallShift(0.05, norm="dual"), product_of(UNFAIR)
    value = shift.penalty(UNFAIR, q, get("kl"))[0]
    tilted = shift.penalty(UNFAIR, q, get("kl", normalisation="paper"))[0]
    assert tilted > value + 0.08


def gap_of_least_penalty(shift, divergence, weight_of_value=1.0):
    """Return the gap r1 - r0 that minimises the penalty, r0 = .3, pi = (.8, .2)."""

    def penalty(gap):
        rates = np.array([0.3, 0.3 + gap])
        p = np.stack([rates, 1 - rates]) * [0.8, 0.2]
        q = product_of(p)
        value = shift.penalty(p, q, divergence)[0]
        return value - (1 - weight_of_value) * plain(p, q, divergence)

    grid = np.linspace(-0.29, 0.69, 491)
    start = grid[np.argmin([penalty(gap) for gap in grid])]
    return scipy.optimize.minimize_scalar(
        penalty, bounds=(start - 0.01, start + 0.01), method="bounded"
    ).x


@pytest.mark.parametrize(
    ("name", "p", "gap"),
    [
        ("kl", 2, -0.172),
        ("kl", "inf", -0.205),
        ("reverse_kl", 2, 0.055),
        ("hellinger", 2, 0.087),
    ],
)
def test_a_fair_model_does_not_minimise_the_papers_penalty(name, p, gap):
    shift = SmallShift(1.0, p=p, norm="dual")
    tilted = get(name, normalisation="paper")
    found = gap_of_least_penalty(shift, tilted, weight_of_value=0.0)
    assert found == pytest.approx(gap, abs=1e-3)
    fair = gap_of_least_penalty(shift, get(name), weight_of_value=0.0)
    assert fair == pytest.approx(0, abs=1e-4)


def test_adding_the_divergence_does_not_cure_the_papers_penalty():
    shift = SmallShift(0.05, norm="dual")
    found = gap_of_least_penalty(shift, get("kl", normalisation="paper"))
    assert found == pytest.approx(-0.062, abs=1e-3)
    assert gap_of_least_penalty(shift, get("kl")) == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("name", ["kl", "reverse_kl", "hellinger"])
def test_a_fair_model_minimises_the_quotient_penalty_in_any_normalisation(name):
    shift = SmallShift(0.05)
    found = gap_of_least_penalty(shift, get(name, normalisation="paper"))
    assert found == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "gap"), [("js", 0.0), ("hellinger", 0.0), ("kl", -0.014), ("chi2", -0.044)]
)
def test_symmetric_divergences_keep_the_fair_model_in_a_large_shift(name, gap):
    found = gap_of_least_penalty(LargeShift(0.02), get(name))
    assert found == pytest.approx(gap, abs=2e-3)


@pytest.mark.parametrize("radius", [-0.1, math.nan, math.inf, "0.1", None])
@pytest.mark.parametrize("shift", [SmallShift, LargeShift])
def test_a_radius_that_is_no_distance_is_refused(shift, radius):
    with pytest.raises(InvalidParameterError, match=r"radius of .*finite number"):
        shift(radius)


def test_a_radius_above_one_is_a_weight_for_small_and_refused_for_large_shifts():
    assert SmallShift(10).radius == 10
    with pytest.raises(InvalidParameterError, match=r"at most 1; got 10\."):
        LargeShift(10)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"p": 0.9}, r"p of .* number of at least 1, or 'inf'; got 0\.9"),
        ({"p": math.nan}, r"p of .* at least 1, .*; got nan"),
        ({"p": "2"}, r"p of .* at least 1, .*; got '2'"),
        ({"p": True}, r"p of .* at least 1, .*; got True"),
        ({"norm": "l2"}, r"norm of .* 'quotient', 'dual'; got 'l2'"),
        ({"power": 3}, r"power of .* one of 1, 2; got 3"),
        ({"coupled": "yes"}, r"coupled of .* one of False, True; got 'yes'"),
    ],
)
def test_wrong_options_of_a_small_shift_are_refused(parameters, message):
    with pytest.raises(InvalidParameterError, match=message):
        SmallShift(0.1, **parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mode": "corner"}, r"mode of .* 'corners', 'paper', .*; got 'corner'"),
        ({"floor": -0.1}, r"floor of .* at least 0 and at most 1; got -0\.1"),
        ({"floor": math.nan}, "at most 1; got nan"),
        ({"floor": "0"}, "at most 1; got '0'"),
    ],
)
def test_wrong_options_of_a_large_shift_are_refused(parameters, message):
    with pytest.raises(InvalidParameterError, match=message):
        LargeShift(0.1, **parameters)


def test_infinity_may_be_spelled_three_ways():
    args = UNFAIR, product_of(UNFAIR), get("kl")
    values = {SmallShift(0.1, p=p).penalty(*args)[0] for p in ("inf", np.inf, math.inf)}
    assert len(values) == 1


@pytest.mark.parametrize("shift", [SmallShift(0.1), LargeShift(0.1)])
def test_a_decoupled_set_refuses_the_coupled_penalty(shift):
    assert not shift.is_coupled
    with pytest.raises(InvalidParameterError, match=r"but is_coupled is False"):
        shift.coupled_penalty(UNFAIR, UNFAIR.sum(axis=0), get("kl"))


@pytest.mark.parametrize(
    "shift", [SmallShift(0.1, coupled=True), LargeShift(0.1, mode="coupled")]
)
def test_a_coupled_set_refuses_the_decoupled_penalty(shift):
    assert shift.is_coupled
    with pytest.raises(InvalidParameterError, match=r"but is_coupled is True"):
        shift.penalty(UNFAIR, product_of(UNFAIR), get("kl"))


@pytest.mark.parametrize("shape", [(2, 17), (4, 7), (14, 2)])
def test_too_many_tables_are_refused_with_a_way_out(shape):
    p = random_table(np.random.default_rng(0), *shape)
    shift = LargeShift(0.001, mode="coupled")
    with pytest.raises(InvalidParameterError, match=r"use mode='corners'"):
        shift.coupled_penalty(p, p.sum(axis=0), get("js"))


def test_sets_are_registered_by_name(only_ours):
    assert Uncertainty.known() == ("large_shift", "small_shift")
    assert Uncertainty.registered("small-shift") is SmallShift
    assert SmallShift(0.1).parameters()["coupled"] is False


def test_only_a_large_shift_reaches_as_far_as_its_radius_in_every_cell():
    assert LargeShift(0.03).reach == 0.03
    assert SmallShift(0.03).reach == 0
    modes = [LargeShift(0.03, mode=mode).is_coupled for mode in ("corners", "coupled")]
    assert modes == [False, True]
    assert [SmallShift(0.03, coupled=each).is_coupled for each in (False, True)] == [
        False,
        True,
    ]
