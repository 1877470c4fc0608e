"""The yardstick itself."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from distxla.ir.element_type import F32, S32
from tests.tolerances import assert_close, ulps_between


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_neighbours_are_one_apart(dtype: type) -> None:
    one = np.array([1, -1, 0], dtype)
    bits = one.view(f"uint{8 * one.dtype.itemsize}") + np.array(1, f"uint{8 * one.dtype.itemsize}")
    assert ulps_between(bits.view(dtype), one).tolist() == [1, 1, 1]


def test_zeros_and_nans_are_equal_infinities_are_not() -> None:
    got = np.array([0.0, np.nan, np.nan, np.inf], np.float32)
    wanted = np.array([-0.0, np.nan, 1.0, -np.inf], np.float32)
    distance = ulps_between(got, wanted)
    assert distance[:2].tolist() == [0, 0]
    assert np.isinf(distance[2])
    assert distance[3] > 1e9


def test_a_failure_names_the_worst_element() -> None:
    wanted = np.ones((2, 3), np.float32)
    got = wanted.copy()
    got[1, 2] = 1.5
    with pytest.raises(AssertionError, match=r"1 of 6 elements .* at \[1, 2\]: 1.5 instead of 1.0"):
        assert_close(got, wanted, F32)
    with pytest.raises(AssertionError):
        assert_close(np.array([1], np.int32), np.array([2], np.int32), S32)
