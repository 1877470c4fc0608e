"""Arrays in memory up to a limit, in a file beyond it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from distxla.differ.value_store import ValueStore

ARRAYS = [
    np.arange(12, dtype=np.float32).reshape(3, 4),
    np.float64(2.5) * np.ones(()),
    np.zeros((0, 3), np.int8),
    np.array([True, False]),
    np.arange(6, dtype=np.complex64),
    np.arange(6).astype(ml_dtypes.bfloat16),
    np.arange(24, dtype=np.int64).reshape(2, 3, 4).T,  # not contiguous
]


@pytest.mark.parametrize("limit", [0, 60, 1 << 20])
def test_arrays_come_back(limit: int) -> None:
    with ValueStore(limit) as store:
        kept = [store.keep(array) for array in ARRAYS]
        for stored, array in reversed(list(zip(kept, ARRAYS, strict=True))):
            found = stored.array()
            assert (stored.dims, stored.dtype) == (array.shape, array.dtype)
            assert (found.shape, found.dtype) == (array.shape, array.dtype)
            assert found.tobytes() == array.tobytes()


def test_memory_is_limited() -> None:
    """96 bytes: the first two are held, the third is in the file, a small one is held again."""
    with ValueStore(96) as store:
        arrays = [np.full(size, k, np.float32) for k, size in enumerate((10, 10, 10, 4))]
        kept = [store.keep(array) for array in arrays]
        is_held = [stored.array() is array for stored, array in zip(kept, arrays, strict=True)]
        assert is_held == [True, True, False, True]
        assert not kept[2].array().flags.writeable


def test_an_array_that_is_kept_twice_is_held_once() -> None:
    array = np.ones(10, np.float32)
    with ValueStore(array.nbytes) as store:
        assert store.keep(array) is store.keep(array)
        assert store.keep(array.copy()).array() is not array


def test_the_file_goes_at_the_end() -> None:
    with ValueStore(0) as store:
        stored = store.keep(np.ones(3))
    with pytest.raises(ValueError, match="closed file"):
        stored.array()
