import math
from dataclasses import dataclass

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
@settings(max_examples=60, deadline=None, derandomize=True)
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
@settings(max_examples=8, deadline=None, derandomize=True)
def test_the_tight_bound_lies_between_the_violation_and_the_closed_form(
    divergence, seed
):
    table = random_table(seed)
    value, prior = divergence.between(table), table.sum(axis=0)
    rate = min(float(table[0].sum()), 1.0)

    tight = tight_violation_bound(value, prior, divergence, rate)

    assert gap_per_class(table)[0] <= tight + 1e-9
    assert tight <= violation_bound(value, prior, divergence, rate)


@names
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None, derandomize=True)
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
