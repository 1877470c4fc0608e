"""`distxla.jax.Array` as an array of NumPy, JAX and DLPack."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import distxla as dx
import distxla.jax as dxj

pytestmark = pytest.mark.cluster
MESH = dxj.make_mesh((2,), ("i",))
X = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture(scope="module")
def arrays() -> Iterator[dict[str, dxj.Array]]:
    """X cut, X whole, and a scalar."""
    rows, whole = NamedSharding(MESH, PartitionSpec("i")), NamedSharding(MESH, PartitionSpec())
    with dx.Cluster(partitions=2) as cluster:
        make = dxj.jit(
            lambda a: (a, a, a[0, 1]), cluster=cluster, in_shardings=rows, out_shardings=(rows, whole, whole)
        )
        yield dict(zip(("cut", "whole", "scalar"), make(X)))


@pytest.mark.parametrize("kind", ["cut", "whole"])
def test_numpy_and_jax_take_it(arrays: dict[str, dxj.Array], kind: str) -> None:
    array: Any = arrays[kind]
    assert (array.shape, array.dtype, array.ndim, array.size, array.nbytes) == ((4, 3), np.float32, 2, 12, 48)
    for got in (array, array.to_jax(), jnp.asarray(array), np.from_dlpack(array), array + 0):
        np.testing.assert_array_equal(got, X)
    assert isinstance(array.to_jax(), jax.Array)
    assert not np.asarray(array).flags.writeable
    np.testing.assert_array_equal(array[1:, 0], X[1:, 0])
    np.testing.assert_array_equal(array.T @ X, X.T @ X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(array)), X)
    assert len(array) == 4
    assert [list(row) for row in array] == X.tolist()
    assert np.array(array, dtype=np.float64, copy=True).dtype == np.float64
    with pytest.raises(TypeError, match="never written"):
        np.add(array, 1, out=array)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = array.nothing


def test_views_are_of_the_devices_memory_where_that_holds_the_whole(arrays: dict[str, dxj.Array]) -> None:
    first = arrays["whole"].shards[0].data
    assert np.shares_memory(np.asarray(arrays["whole"]), np.asarray(first))
    assert np.shares_memory(np.from_dlpack(arrays["whole"]), np.asarray(first))
    with pytest.raises(BufferError, match="without a copy"):
        np.from_dlpack(arrays["cut"], copy=False)


def test_scalars_are_numbers(arrays: dict[str, dxj.Array]) -> None:
    scalar = arrays["scalar"]
    assert (float(scalar), int(scalar), bool(scalar), complex(scalar), f"{scalar:.2f}") == (1, 1, True, 1, "1.00")
    with pytest.raises(TypeError, match="without dimensions"):
        len(scalar)


def test_it_shows_its_values_and_its_place(arrays: dict[str, dxj.Array]) -> None:
    assert repr(arrays["scalar"].block_until_ready()) == "Array(1., float32[] on 2 devices)"
    assert [str(shard.index) for shard in arrays["cut"].shards] == [
        "(slice(0, 2, None), slice(0, 3, None))",
        "(slice(2, 4, None), slice(0, 3, None))",
    ]
    assert [shard.device for shard in arrays["cut"].shards] == [0, 1]
    assert arrays["cut"].sharding == NamedSharding(MESH, PartitionSpec("i"))
