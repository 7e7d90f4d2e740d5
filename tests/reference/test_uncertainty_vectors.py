"""Every robust value of vectors.json, which was computed with 50 digits."""

import json
from pathlib import Path

import numpy as np
import pytest

from fferm.divergences import Alpha, get
from fferm.uncertainty import LargeShift, SmallShift

VECTORS = Path(__file__).resolve().parents[2].parent / "shared" / "vectors.json"

DIVERGENCES = {
    **{name: get(name) for name in ("chi2", "kl", "reverse_kl", "tv", "js")},
    "hellinger": get("hellinger"),
    **{
        f"{name}_paper": get(name, normalisation="paper")
        for name in ("kl", "reverse_kl", "hellinger")
    },
    **{f"alpha={a}": Alpha(power=float(a)) for a in ("-1", "0.5", "2", "3")},
}
TABLES = (
    "t22_a",
    "t22_b",
    "t22_independent",
    "t22_near_dyadic",
    "t22_zero",
    "t22_perfect",
    "t24_a",
    "t34_a",
    "t34_zero",
)
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


@pytest.fixture(scope="module")
def vectors():
    if not VECTORS.exists():
        pytest.skip("vectors.json, the reference values, is not beside this checkout")
    return json.loads(VECTORS.read_text())


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


def assert_values(vectors, name, kind, of_reference):
    """Compare one kind of value on one table, at every divergence that has it."""
    table = vectors["tables"][name]
    n_compared = 0
    for label, divergence in DIVERGENCES.items():
        reference = vectors["results"][name][label].get(kind) or {}
        for shift, expected in of_reference(reference):
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


def test_vectors_name_the_tables_and_divergences_compared_here(vectors):
    assert set(vectors["tables"]) == set(TABLES)
    assert set(vectors["divergences"]) == set(DIVERGENCES)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("kind", SMALL)
def test_small_shift_equals_its_reference_value(vectors, name, kind):
    def of_reference(reference):
        for order, by_radius in reference.items():
            for radius, expected in by_radius.items():
                p = order.removeprefix("p=")
                p = p if p == "inf" else int(p)
                yield SmallShift(float(radius), p=p, **SMALL[kind]), expected

    n_compared = assert_values(vectors, name, kind, of_reference)
    # On tables with zeros the coupled slope is defined for some divergences only.
    has_zero = name in ("t22_zero", "t22_perfect", "t34_zero")
    assert n_compared == 13 * 6 or (kind == "first_order_coupled" and has_zero)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("kind", LARGE)
def test_large_shift_equals_its_reference_value(vectors, name, kind):
    def of_reference(reference):
        for radius, expected in reference.items():
            yield LargeShift(float(radius), **LARGE[kind]), expected

    n_compared = assert_values(vectors, name, kind, of_reference)
    is_small_enough = {
        "linf_simplex_exact_floor0.1": name.startswith("t22"),
        "linf_coupled_fixed_pi_exact": name.startswith("t2"),
    }
    assert n_compared == (26 if is_small_enough.get(kind, True) else 0)
