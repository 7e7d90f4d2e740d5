"""Formulas that are compiled for kernels against the same formulas in NumPy."""

import ctypes
import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from instances import REGISTERED
from numpy.testing import assert_allclose, assert_array_equal

from fferm._jit import HIGHEST, LOWEST, exp
from fferm.divergences import Alpha, get, strip
from fferm.errors import ComponentError
from fferm.penalty.formulas import is_kept, table_pointer


@pytest.mark.parametrize("divergence", REGISTERED)
def test_compiled_formulas_are_those_of_numpy(divergence):
    base, *_ = strip(REGISTERED[divergence])
    z = np.linspace(-6, 6, 49)
    duals, charges, ratios = read_table(table_pointer(base, "log_ratio"), z)
    assert_allclose(duals, base.dual_at(z, np), rtol=1e-14, atol=1e-15)
    assert_allclose(charges, base.conjugate_at(z, np), rtol=1e-14, atol=1e-15)
    assert_allclose(ratios, np.exp(z), rtol=1e-15)
    inside = base.f_prime(np.exp(np.linspace(-3, 3, 31)), np)
    same, charges, ratios = read_table(table_pointer(base, "projected"), inside)
    assert_array_equal(same, inside)
    assert_allclose(charges, base.conjugate(inside, np), rtol=1e-13, atol=1e-15)
    assert_allclose(ratios, base.conjugate_prime(inside, np), rtol=1e-13)


def read_table(pointer, values):
    """Return what a compiled pointer writes for a table."""
    tables = [np.ascontiguousarray(values, dtype=float)]
    tables += [np.empty_like(tables[0]) for _ in range(3)]
    doubles = ctypes.POINTER(ctypes.c_double)
    pointer.ctypes(*(table.ctypes.data_as(doubles) for table in tables), values.size)
    return tables[1:]


@pytest.mark.parametrize("reads", ["log_ratio", "projected"])
@pytest.mark.parametrize("name", REGISTERED)
def test_formulas_known_by_name_are_read_from_the_disk(name, reads):
    divergence, *_ = strip(REGISTERED[name])
    assert is_kept(divergence)
    z = np.linspace(-0.5, 0.5, 11)
    here = table_pointer(divergence, reads)
    again = inspect.unwrap(table_pointer)(divergence, reads)  # as another process would
    assert again.cache_hits == 1
    assert again.address != here.address
    assert_array_equal(read_table(again, z), read_table(here, z))


def test_neither_own_formulas_nor_sweeps_of_a_parameter_fill_the_disk():
    class Own(type(get("kl"))):
        name = "kl_under_the_name_of_its_user"

    for divergence in (Own(), Alpha(power=1.25)):
        assert not is_kept(divergence)
        for _ in range(2):
            pointer = inspect.unwrap(table_pointer)(divergence, "log_ratio")
            assert pointer.cache_hits == 0


@given(st.floats(-800, 800))
def test_the_written_exponential_is_the_exponential(x):
    with np.errstate(over="ignore", under="ignore"):
        expected = np.exp(x)
    if x < LOWEST:
        assert exp(x) == 0
    elif x > HIGHEST:
        assert exp(x) == np.inf
    else:
        # It is right to 2.2 units in the last place, and NumPy's to 0.7.
        np.testing.assert_array_max_ulp(exp(x), expected, maxulp=3)


@pytest.mark.parametrize("x", [np.inf, -np.inf, np.nan, 0.0, -0.0])
def test_the_written_exponential_knows_its_limits(x):
    assert_array_equal(exp(x), np.exp(x))


def test_a_formula_that_cannot_be_compiled_is_refused_by_name():
    class Strange(type(get("kl"))):
        name = "kl_of_strings_in_the_kernel_test"

        def dual_at(self, z, xp):
            return float(str(z))

    with pytest.raises(ComponentError, match=r"Strange.* cannot be compiled"):
        table_pointer(Strange(), "log_ratio")
