"""Every robust value of vectors.json, which was computed with 50 digits."""

import numpy as np
import pytest
from instances import REFERENCE as DIVERGENCES
from instances import TABLES

from fferm.uncertainty import LargeShift, SmallShift

LARGE = {
    "linf_corner": {"mode": "corners", "floor": 0.0},
    "linf_corner_floor0.1": {"mode": "corners"},
    "linf_paper_rule": {"mode": "paper"},
    "linf_simplex_exact_floor0.1": {"mode": "simplex"},
    "linf_coupled_fixed_pi_exact": {"mode": "coupled"},
}
SMALL = {
    "first_order": {"norm": "dual"},
    "first_order_simplex": {"norm": "quotient"},
    "first_order_coupled": {"norm": "quotient", "coupled": True},
}


def penalty(shift, table, divergence):
    p, prior = np.array(table["P"]), np.array(table["pi"])
    if shift.is_coupled:
        value, *slopes = shift.coupled_penalty(p, prior, divergence)
    else:
        product = p.sum(axis=1, keepdims=True) * prior
        value, *slopes = shift.penalty(p, product, divergence)
    assert not any(np.isnan(slope).any() for slope in slopes)
    return value


def slack(name, label):
    """Return the absolute error to expect beside a relative one of 1e-12."""
    if name == "t22_independent":  # the answer is 0, the table is rounded
        return 1e-14
    # A tilt of 1 leaves slopes of 4e-6 an error of 1e-16 a cell; the radius is .05.
    is_tilted = name == "t22_near_dyadic" and label.endswith("_paper")
    return 1e-16 if is_tilted else 0.0


def assert_values(reference, name, kind, of_reference):
    """Compare one kind of value on one table, at every divergence that has it."""
    table = reference["tables"][name]
    n_compared = 0
    for label, divergence in DIVERGENCES.items():
        values = reference["results"][name][label].get(kind) or {}
        for shift, expected in of_reference(values):
            value = penalty(shift, table, divergence)
            np.testing.assert_allclose(
                value,
                float(expected),
                rtol=1e-12,
                atol=slack(name, label),
                err_msg=label,
            )
            n_compared += 1
    return n_compared


def test_vectors_name_the_tables_and_divergences_compared_here(reference):
    assert set(reference["tables"]) == set(TABLES)
    assert set(reference["divergences"]) == set(DIVERGENCES)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("kind", SMALL)
def test_small_shift_equals_its_reference_value(reference, name, kind):
    def of_reference(values):
        for order, by_radius in values.items():
            for radius, expected in by_radius.items():
                p = order.removeprefix("p=")
                p = p if p == "inf" else int(p)
                yield SmallShift(float(radius), p=p, **SMALL[kind]), expected

    n_compared = assert_values(reference, name, kind, of_reference)
    # On tables with zeros the coupled slope is defined for some divergences only.
    has_zero = name in ("t22_zero", "t22_perfect", "t34_zero")
    assert n_compared == 13 * 6 or (kind == "first_order_coupled" and has_zero)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("kind", LARGE)
def test_large_shift_equals_its_reference_value(reference, name, kind):
    def of_reference(values):
        for radius, expected in values.items():
            yield LargeShift(float(radius), **LARGE[kind]), expected

    n_compared = assert_values(reference, name, kind, of_reference)
    is_small_enough = {
        "linf_simplex_exact_floor0.1": name.startswith("t22"),
        "linf_coupled_fixed_pi_exact": name.startswith("t2"),
    }
    assert n_compared == (26 if is_small_enough.get(kind, True) else 0)
