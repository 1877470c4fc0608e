"""Arguments and results of bounded dynamic dimensions on a cluster."""

from __future__ import annotations

import numpy as np
import pytest

import distxla as dx
from distxla.ir.element_type import F32
from distxla.ir.shape import Shape
from distxla.runtime.arrays.executable import as_argument

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
TEXT = """HloModule joined, num_partitions=2
ENTRY main {
  p = f32[<=6,2] parameter(0)
  q = f32[<=3,2] parameter(1)
  c = f32[<=9,2] concatenate(p, q), dimensions={0}
  r = f32[<=6,2] reverse(p), dimensions={0}
  ROOT t = (f32[<=9,2], f32[<=6,2]) tuple(c, r)
}
"""


def rows(count: int) -> Floats:
    return np.arange(2 * count, dtype=np.float32).reshape(count, 2)


@pytest.mark.cluster
@pytest.mark.devices(2)
def test_every_device_has_sizes_of_its_own(cluster: dx.Cluster) -> None:
    joined = cluster.compile(dx.parse(TEXT))
    outs = joined([[rows(4), rows(1)], [rows(0), rows(3)]])
    for device, (p, q) in enumerate(((rows(4), rows(1)), (rows(0), rows(3)))):
        np.testing.assert_array_equal(np.asarray(outs[device][0]), np.concatenate([p, q]))
        np.testing.assert_array_equal(np.asarray(outs[device][1]), p[::-1])
        assert outs[device][0].shape == (len(p) + len(q), 2)
    # a result goes back in where it lies; an array with other bounds is padded anew
    again = joined([[outs[0][1], cluster.put(rows(2), 0)], [outs[1][1], rows(1)]])
    np.testing.assert_array_equal(np.asarray(again[0][0]), np.concatenate([rows(4)[::-1], rows(2)]))
    np.testing.assert_array_equal(np.asarray(again[1][0]), rows(1))
    with pytest.raises(dx.ArgumentError, match=r"argument 1 on device 0: expected f32\[<=3,2\], found f32\[4,2\]"):
        joined([rows(1), rows(4)])
    with pytest.raises(dx.ArgumentError, match="argument 0 on device 0: it has no dimension 0"):
        joined([1.0, rows(1)])


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        np.arange(6, dtype=np.float32).reshape(2, 3)[::-1, ::-1],
        np.arange(24, dtype=np.float32).reshape(4, 6)[1::2, ::2],
        np.broadcast_to(np.float32(7), (2, 3)),
    ],
)
def test_arguments_are_logical_arrays_whatever_their_strides(array: Floats) -> None:
    there = as_argument(array, Shape(F32, (2, 3)), 0, 0)
    assert there.tobytes() == array.tobytes()
    padded = as_argument(array, Shape(F32, (2, 5), (False, True)), 0, 0)
    assert padded.tobytes() == np.pad(array, ((0, 0), (0, 2))).tobytes()
