"""Labels and groups become codes."""

import numpy as np
import pytest

from fferm.data.validate import ROWS_AT_ONCE, encode_sorted


@pytest.mark.parametrize(
    "values",
    [
        np.array([2, 0, 1, 0]),
        np.array([3, -1, 3, 7], dtype=np.int8),
        np.array([200, 3, 200], dtype=np.uint8),
        np.array([True, False, True]),
        np.array([1.5, -2.0, 1.5]),
        np.array([1, 0], dtype=">i8"),
        np.array([1.0, 0.5], dtype=np.float16),
        np.array(["b", "a", "b"]),
        np.array(["b", "a", "b"], dtype=object),
    ],
    ids=lambda values: values.dtype.str,
)
def test_values_are_coded_in_their_order_whatever_their_kind(values):
    distinct, code = encode_sorted(values)
    expected, inverse = np.unique(values, return_inverse=True)
    assert distinct.dtype == expected.dtype
    assert distinct.tolist() == expected.tolist()
    assert code.dtype == np.int64
    assert code.tolist() == inverse.tolist()


def test_values_that_are_their_own_codes_are_not_copied():
    own = np.array([1, 0, 2, 1])
    assert encode_sorted(own)[1] is own
    assert not np.shares_memory(encode_sorted(own + 1)[1], own)


def test_codes_of_many_rows_are_made_part_by_part():
    values = np.random.default_rng(0).integers(5, 9, 2 * ROWS_AT_ONCE + 3)
    distinct, code = encode_sorted(values)
    assert distinct.tolist() == [5, 6, 7, 8]
    np.testing.assert_array_equal(code, values - 5)
