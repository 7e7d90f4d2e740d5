import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fferm.divergences import (
    Affine,
    Alpha,
    Divergence,
    LinearTail,
    TotalVariation,
    get,
)
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.metrics.certificates import (
    curvature_constant,
    divergence_for,
    tight_violation_bound,
    violation_bound,
)

DIVERGENCES = [
    *map(get, ("chi2", "kl", "reverse_kl", "total_variation")),
    *map(get, ("jensen_shannon", "squared_hellinger", "alpha")),
    Alpha(power=3.0),
    Alpha(power=-1.5),
    Affine(get("kl"), scale=2.5, slope=1.0),
    LinearTail(get("reverse_kl")),
    TotalVariation(smoothing=0.1),
]
names = pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)


@dataclass(frozen=True)
class NaiveKL(Divergence, abstract=True):  # abstract: other tests need not know it
    """A user's own divergence, written without care for digits near 1."""

    def f(self, t, xp):
        return t * xp.log(xp.where(t > 0, t, 1.0)) - t + 1

    def f_prime(self, t, xp):
        return xp.log(t)

    def conjugate(self, a, xp):
        return xp.exp(a) - 1

    def conjugate_prime(self, a, xp):
        return xp.exp(a)


def random_table(seed):
    """Return a (classes x groups) table, with small cells and zeros among them."""
    rng = np.random.default_rng(seed)
    shape = rng.integers(2, 5), rng.integers(2, 6)
    table = rng.gamma(rng.choice([0.1, 0.5, 2.0]), size=shape) + 1e-12
    table[rng.random(shape) < 0.05] = 0
    table[0] += 1e-6  # every group has a member
    return table / table.sum()


def gap_per_class(table):
    rate = table / table.sum(axis=0)
    return rate.max(axis=1) - rate.min(axis=1)


@names
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_no_table_exceeds_the_bound(divergence, seed):
    table = random_table(seed)
    value, prior = divergence.between(table), table.sum(axis=0)
    gaps = gap_per_class(table)

    assert gaps.max() <= violation_bound(value, prior, divergence) + 1e-9
    for gap, rate in zip(gaps, table.sum(axis=1), strict=True):
        rate = min(float(rate), 1.0)
        assert gap <= violation_bound(value, prior, divergence, rate) + 1e-9


@names
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=8)
def test_the_tight_bound_lies_between_the_violation_and_the_closed_form(
    divergence, seed
):
    table = random_table(seed)
    value, prior = divergence.between(table), table.sum(axis=0)
    rate = min(float(table[0].sum()), 1.0)

    tight = tight_violation_bound(value, prior, divergence, rate)

    assert gap_per_class(table)[0] <= tight + 1e-9
    assert tight <= violation_bound(value, prior, divergence, rate)


def exact_gaps(table):
    """Return the gap of each class as a fraction, of the numbers as they are."""
    cells = [[Fraction(float(cell)) for cell in row] for row in table]
    weights = [sum(column) for column in zip(*cells, strict=True)]
    rates = [[p / w for p, w in zip(row, weights, strict=True)] for row in cells]
    return [max(row) - min(row) for row in rates]


def uneven_table(seed):
    """Return a table of groups down to 1e-15 of the whole, near independence or not."""
    rng = np.random.default_rng(seed)
    n_classes, n_groups = rng.integers(2, 5), rng.integers(2, 6)
    weights = 10.0 ** rng.uniform(-rng.choice([1, 6, 12, 15]), 0, size=n_groups)
    rates = np.repeat(rng.dirichlet(np.ones(n_classes))[:, None], n_groups, axis=1)
    if seed % 2:
        rates *= 1 + 10.0 ** rng.uniform(-16, -2) * rng.uniform(-1, 1, rates.shape)
    # The more the smallest groups stand apart, the nearer a table comes to its bound.
    apart = np.argsort(weights)[: rng.integers(0, 3)]
    rates[:, apart] = rng.dirichlet(np.ones(n_classes), size=apart.size).T
    return rates * weights


@names
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=80)
def test_rounding_lets_no_table_exceed_the_bound(divergence, seed):
    table = uneven_table(seed)
    value, prior = divergence.between(table), table.sum(axis=0)

    assert max(exact_gaps(table)) <= violation_bound(value, prior, divergence)


@pytest.mark.parametrize("weight", [1e-15, 1e-12, 1e-9, 1e-3, 1.0])
@pytest.mark.parametrize("n_groups", [2, 3, 7])
@pytest.mark.parametrize("common", [0.3, 1 - 1e-6])
@pytest.mark.parametrize("divergence", ["total_variation", "chi2"])
def test_a_tiny_group_does_not_exceed_its_bound(divergence, common, n_groups, weight):
    # These two reach their bound on tables of two groups and two classes.
    prior = np.append(np.ones(n_groups - 1), weight)
    for apart in np.linspace(0.05, 0.95, 19):
        rate = np.append(np.full(n_groups - 1, common), apart)
        table = np.stack([rate * prior, (1 - rate) * prior])
        share = float(table[0].sum() / table.sum())
        for class_rate in (None, share):
            bound = violation_bound(
                get(divergence).between(table), prior, divergence, class_rate
            )
            assert exact_gaps(table)[0] <= bound


@names
def test_training_to_the_divergence_for_a_violation_keeps_it(divergence):
    for prior in ([0.5, 0.3, 0.2], [1.0, 1e-12], [1.0, 1e-6, 1e-12]):
        for violation in (1e-9, 0.07, 1.0):
            value = divergence_for(violation, prior, divergence)
            bound = violation_bound(value, prior, divergence, capped=False)
            # Where rounding alone hides more, no divergence promises the violation.
            hidden = violation_bound(0.0, prior, divergence)
            assert value >= 0
            assert bound <= max(violation, hidden) * (1 + 1e-15)


def best_split(name, c, upper, lower):
    """Return a D and two group weights by which rates `upper` and `lower` are farthest.

    At the best split the slopes of d_f, times the weights of the groups, are the same.
    """

    def slope(r):
        divergence = get(name)
        above, below = divergence.f_prime(np.array([r / c, (1 - r) / (1 - c)]), np)
        return above - below

    def distance(r):
        p, q = np.array([r, 1 - r]), np.array([c, 1 - c])
        return get(name).total(p, q)

    weights = np.array([1 / slope(upper), -1 / slope(lower)])
    weights *= 0.1 / weights.sum()
    return weights @ [distance(upper), distance(lower)], weights


@pytest.mark.parametrize(
    ("c", "upper", "lower"),
    [
        # The other order of the groups, weights swapped, is never farther for these.
        (0.05, 0.335, 0.03),
        (0.05, 0.525, 0.025),
        (0.37, 0.9559, 0.3626),
        (0.37, 0.685, 0.185),
        (0.5, 0.65, 0.3),
        (0.5, 0.965, 0.49),
        (0.8, 0.82, 0.08),
        (0.8, 0.9, 0.4),
    ],
)
@pytest.mark.parametrize("name", ["kl", "reverse_kl", "jensen_shannon", "hellinger"])
def test_the_tight_bound_is_the_farthest_that_two_groups_can_be(name, c, upper, lower):
    value, weights = best_split(name, c, upper, lower)
    prior = np.append(weights, 1 - weights.sum())

    tight = tight_violation_bound(value, prior, name, c)

    assert upper - lower <= tight <= (upper - lower) * (1 + 1e-6)


def test_the_tight_bound_of_two_groups_of_one_size_is_not_below_their_gap():
    # Any split of a total variation is as good, so no allowance hides a rounding down.
    for rate in np.linspace(0.01, 0.99, 99):
        table = np.array([[0.5 * rate, 0.15], [0.5 - 0.5 * rate, 0.35]])
        value, share = get("total_variation").between(table), float(table[0].sum())

        tight = tight_violation_bound(value, [0.5, 0.5], "total_variation", share)

        assert exact_gaps(table)[0] <= tight


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_rounding_lets_no_table_exceed_the_bounds_of_a_class(seed):
    table = uneven_table(seed)
    prior, rate = table.sum(axis=0), float(table[0].sum() / table.sum())
    gap = exact_gaps(table)[0]

    for name in ("total_variation", "chi2", "kl"):
        value = get(name).between(table)
        assert gap <= violation_bound(value, prior, name, rate)
        assert gap <= tight_violation_bound(value, prior, name, rate)


@names
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_no_table_exceeds_the_largest_divergence(divergence, seed):
    table = random_table(seed)

    largest = divergence.largest(table.sum(axis=0))

    assert divergence.between(table) <= largest * (1 + 1e-9) + 1e-12


@names
@pytest.mark.parametrize("class_rate", [None, 0.3])
def test_the_divergence_for_a_violation_inverts_the_bound(divergence, class_rate):
    prior = [0.5, 0.3, 0.2]

    value = divergence_for(0.07, prior, divergence, class_rate)

    assert violation_bound(value, prior, divergence, class_rate) == pytest.approx(
        0.07, rel=1e-12
    )


@pytest.mark.parametrize("rate", [0.0003, 0.004, 0.2])
@pytest.mark.parametrize("name", ["reverse_kl", "js", "hellinger", "alpha"])
def test_a_class_and_all_others_together_have_the_same_constant(name, rate):
    constant = curvature_constant(name, rate)

    assert curvature_constant(name, 1 - rate) == pytest.approx(constant, rel=1e-6)


def test_what_rounding_hides_grows_with_groups_and_shrinks_with_their_weights():
    ulps, spread = (3 + 2) * np.finfo(float).eps, 1 / 0.3 + 1 / 0.1

    of_squares = violation_bound(0.0, [0.6, 0.3, 0.1], "kl")
    of_total_variation = violation_bound(0.0, [0.6, 0.3, 0.1], "tv")

    assert of_squares == pytest.approx(ulps * math.sqrt(spread / 4), rel=1e-12)
    assert of_total_variation == pytest.approx(ulps * spread / 4, rel=1e-12)


@dataclass(frozen=True)
class Flat(Divergence, abstract=True):  # abstract: other tests need not know it
    """A user's own divergence that is 0 at all ratios between 1/2 and 3/2."""

    def f(self, t, xp):
        return xp.where(xp.abs(t - 1) > 0.5, (xp.abs(t - 1) - 0.5) ** 2, 0.0)

    def f_prime(self, t, xp):
        beyond = xp.where(t < 0.5, 2 * t - 1, 0.0)
        return xp.where(t > 1.5, 2 * t - 3, beyond)

    def conjugate(self, a, xp):
        return a + xp.abs(a) / 2 + a**2 / 4

    def conjugate_prime(self, a, xp):
        return 1 + xp.where(a < 0, -0.5, 0.5) + a / 2


def test_a_divergence_that_is_flat_at_1_promises_nothing():
    assert curvature_constant(Flat()) == 0
    assert violation_bound(0.01, [0.5, 0.5], Flat()) == 1.0
    assert violation_bound(0.01, [0.5, 0.5], Flat(), capped=False) == math.inf


def test_no_violation_needs_no_divergence():
    assert divergence_for(0, [0.5, 0.5], "kl") == 0


@pytest.mark.parametrize(
    ("name", "kappa"),
    [
        ("chi2", 4.0),
        ("kl", 2.0),
        ("reverse_kl", 2.0),
        ("jensen_shannon", 1.0),
        ("squared_hellinger", 1.0),
        (Alpha(power=-1.0), 2.0),
        (Alpha(power=1.7), 2.0),
    ],
    ids=str,
)
def test_closed_constants_are_the_smallest_quotients(name, kappa):
    assert curvature_constant(name) == kappa

    # LinearTail far below every ratio that matters hides the closed form.
    numeric = curvature_constant(LinearTail(get(name), floor=1e-12))

    assert numeric == pytest.approx(kappa, rel=1e-9)


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.5, 0.75])
@pytest.mark.parametrize("name", ["chi2", "kl"])
def test_closed_constants_at_a_class_rate_are_the_smallest_quotients(name, rate):
    numeric = curvature_constant(LinearTail(get(name), floor=1e-12), rate)

    assert curvature_constant(name, rate) == pytest.approx(numeric, rel=1e-9)


@pytest.mark.parametrize(("power", "kappa"), [(-1.5, 1.91), (2.25, 1.95), (2.5, 1.91)])
def test_the_alpha_family_weakens_outside_of_its_range(power, kappa):
    assert curvature_constant(Alpha(power=power)) == pytest.approx(kappa, abs=5e-3)


def test_the_constant_is_the_same_for_a_power_and_its_mirror():
    mirrored = curvature_constant(Alpha(power=4.0))

    assert curvature_constant(Alpha(power=-3.0)) == pytest.approx(mirrored, rel=1e-10)


def test_a_users_own_divergence_written_naively_gets_its_constant():
    assert curvature_constant(NaiveKL()) == pytest.approx(2.0, rel=1e-8)
    assert curvature_constant(NaiveKL(), 0.2) == pytest.approx(
        curvature_constant("kl", 0.2), rel=1e-8
    )


def test_scaling_and_tilting_a_divergence_scale_its_constant():
    assert curvature_constant(Affine(get("kl"), scale=3.0, slope=-1.0)) == 6.0


def test_chi2_with_a_known_rate_is_exact_for_two_groups_and_two_classes():
    table = np.array([[0.3, 0.15], [0.25, 0.3]])

    bound = violation_bound(get("chi2").between(table), [0.55, 0.45], "chi2", 0.45)

    assert bound == pytest.approx(gap_per_class(table)[0], rel=1e-12)


def test_total_variation_is_exact_for_two_groups_and_two_classes():
    table = np.array([[0.3, 0.15], [0.25, 0.3]])

    bound = violation_bound(
        get("total_variation").between(table), [0.55, 0.45], "total_variation"
    )

    assert bound == pytest.approx(gap_per_class(table)[0], rel=1e-12)


def test_the_tight_bound_improves_on_the_closed_form_for_rare_classes():
    closed = violation_bound(0.02, [0.7, 0.3], "kl", 0.1)

    assert tight_violation_bound(0.02, [0.7, 0.3], "kl", 0.1) < 0.8 * closed


def test_a_bound_is_capped_at_1_unless_the_formula_is_asked_for():
    assert violation_bound(2.0, [0.9, 0.1], "kl") == 1.0
    assert violation_bound(2.0, [0.9, 0.1], "kl", capped=False) > 1


def test_an_infinite_divergence_promises_nothing():
    assert violation_bound(math.inf, [0.5, 0.5], "reverse_kl") == 1.0
    assert tight_violation_bound(math.inf, [0.5, 0.5], "reverse_kl", 0.4) == 1.0


@pytest.mark.parametrize("rate", [0, 1])
def test_a_class_that_nobody_or_everybody_gets_has_no_gap(rate):
    assert violation_bound(0.5, [0.5, 0.5], "kl", rate) == 0.0
    assert tight_violation_bound(0.5, [0.5, 0.5], "kl", rate) == 0.0
    assert divergence_for(0.1, [0.5, 0.5], "kl", rate) == math.inf
    assert curvature_constant("kl", rate) == math.inf


def test_groups_without_weight_are_left_out():
    with_empty = violation_bound(0.01, [0.6, 0.0, 0.4], "kl")

    assert with_empty == violation_bound(0.01, [0.6, 0.4], "kl")


def test_group_counts_serve_as_weights():
    assert violation_bound(0.01, [60, 40], "kl") == violation_bound(
        0.01, [0.6, 0.4], "kl"
    )


@pytest.mark.parametrize("prior", [[1.0], [1.0, 0.0]])
def test_fewer_than_two_groups_are_refused(prior):
    with pytest.raises(InvalidInputError, match="at least two that are positive"):
        violation_bound(0.1, prior, "kl")


@pytest.mark.parametrize("prior", [[0.5, -0.5], [0.5, math.nan], [[0.5, 0.5]]])
def test_weights_that_are_none_are_refused(prior):
    with pytest.raises(InvalidInputError, match="one non-negative weight per group"):
        violation_bound(0.1, prior, "kl")


@pytest.mark.parametrize("value", [-0.1, math.nan])
def test_a_negative_divergence_is_refused(value):
    with pytest.raises(InvalidInputError, match="non-negative"):
        violation_bound(value, [0.5, 0.5], "kl")


@pytest.mark.parametrize("violation", [-0.1, 1.5, math.nan])
def test_a_violation_that_is_no_difference_of_rates_is_refused(violation):
    with pytest.raises(InvalidParameterError, match="violation must be between 0"):
        divergence_for(violation, [0.5, 0.5], "kl")


def test_a_class_rate_outside_of_0_and_1_is_refused():
    with pytest.raises(InvalidParameterError, match=r"class_rate must be .* 1\.2"):
        curvature_constant("kl", 1.2)
