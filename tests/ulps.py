"""Equality up to the roundings that machines and array shapes are free to choose.

NumPy's exponentials, logarithms and powers, and the sums of BLAS, depend in their last
bits on the instructions of the processor and on the strides and shapes of arrays. Bits
are compared where they are promised: what is saved and loaded, and one seed run twice.
"""

import numpy as np
from numpy.testing import assert_allclose


def assert_same_up_to_ulps(actual, desired, *, ulps=8, size=0.0):
    """Fail where numbers are further apart than units in the last place.

    The units are those of ``desired`` or, where that is a difference of larger numbers,
    of their size.
    """
    unit = np.finfo(np.float64).eps
    assert_allclose(actual, desired, rtol=ulps * unit, atol=ulps * unit * size)
