"""JAX's shardings beside XLA's."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import distxla as dx
import distxla.jax as dxj
from distxla.ir.shards import Shards
from distxla.jax.shardings import mesh_of, most_devices, named_sharding, shards_of_sharding

P = PartitionSpec
MESH = dxj.make_mesh((2, 3, 2), ("a", "b", "c"))


@pytest.mark.parametrize(
    "spec", [P(), P("a"), P(None, "b"), P(("a", "c"), "b"), P(("c", "a")), P(None, ("b", "c", "a")), P("c", "b")]
)
def test_a_specification_survives_the_way_over_shards(spec: Any) -> None:
    shards = shards_of_sharding(NamedSharding(MESH, spec), (12, 12))
    assert named_sharding(shards, MESH) == NamedSharding(MESH, spec)
    whole = np.arange(144).reshape(12, 12)
    indices = jax.sharding.NamedSharding(MESH, spec).shard_shape((12, 12))
    assert shards.split(whole, 7).shape == indices
    np.testing.assert_array_equal(shards.join([shards.split(whole, d) for d in range(12)]), whole)


def test_the_order_of_devices_is_that_of_the_mesh() -> None:
    shards = shards_of_sharding(NamedSharding(MESH, P(("c", "a"), "b")), (4, 3))
    # device 7 is at a=1, b=0, c=1
    assert shards.places[7] == (3, 0)
    assert shards.places[2] == (0, 1)


def test_other_cuts_have_no_name() -> None:
    backwards = Shards((2,), ((1,),) * 6 + ((0,),) * 6)
    assert named_sharding(backwards, MESH) is None
    assert named_sharding(Shards.whole(1, 4), MESH) is None
    assert named_sharding(Shards.whole(1, 12), None) is None


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(dx.ArgumentError, match=r"\[4\] cannot be cut evenly by .* over \{'a': 2, 'b': 3, 'c': 2\}"):
        shards_of_sharding(NamedSharding(MESH, P("b")), (4,))
    with pytest.raises(dx.ArgumentError, match="for arrays of 2 dimensions and more, found 1"):
        shards_of_sharding(NamedSharding(MESH, P("b", "a")), (6,))


def test_meshes_and_devices_are_found_in_a_lowered_module() -> None:
    text = 'sdy.mesh @mesh = <["x"=2, "y"=4]>\n  func'
    mesh = mesh_of(text, {})
    assert mesh is not None
    assert dict(mesh.shape) == {"x": 2, "y": 4}
    assert most_devices(text) == 8
    assert mesh_of(text + '\nsdy.mesh @other = <["z"=3]>', {}) is None
    assert most_devices('{mhlo.sharding = "{devices=[2,1,2]<=[2,3]T(1,0) last_tile_dim_replicate}"}') == 6
    assert most_devices("sdy.mesh @empty_mesh = <[]>") == 1
