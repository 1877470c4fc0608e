"""Checkpoints that several processes write and read together: orbax's, and those of jax.experimental."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jax.processes.group import Group


def test_a_tree_is_written_and_read_by_orbax(pair: Group, tmp_path: Path) -> None:
    pytest.importorskip("orbax.checkpoint")
    script = f"""
        import orbax.checkpoint as orbax

        whole = np.arange(16.0, dtype=np.float32).reshape(4, 4)
        tree = {{"cut": sharded(whole), "same": sharded(whole, spec=P()), "step": 7}}
        with orbax.StandardCheckpointer() as files:
            files.save("{tmp_path}/tree", tree)
        shape = lambda *spec: jax.ShapeDtypeStruct((4, 4), np.float32, sharding=NamedSharding(MESH, P(*spec)))
        abstract = {{"cut": shape(None, "d"), "same": shape(), "step": 0}}
        with orbax.StandardCheckpointer() as files:
            found = files.restore("{tmp_path}/tree", abstract)
        shards = [shard for name in ("cut", "same") for shard in found[name].addressable_shards]
        right = [(shard.data == whole[shard.index]).all() for shard in shards]
        print(all(right), len(right), found["step"])
        require_right_total()
    """
    assert pair.printed(script) == ["True 4 7"] * 2


def test_arrays_are_written_and_read_by_jaxs_own_format(pair: Group, tmp_path: Path) -> None:
    pytest.importorskip("tensorstore")
    script = f"""
        from jax.experimental.array_serialization import serialization

        whole = np.arange(16.0, dtype=np.float32).reshape(4, 4)
        files = serialization.GlobalAsyncCheckpointManager()
        specs = [serialization.get_tensorstore_spec("{tmp_path}/arrays")]
        files.serialize([sharded(whole)], specs, on_commit_callback=lambda: None)
        files.wait_until_finished()
        (found,) = files.deserialize([NamedSharding(MESH, P(None, "d"))], specs)
        right = [(shard.data == whole[shard.index]).all() for shard in found.addressable_shards]
        print(all(right), tuple(found.sharding.spec))
        require_right_total()
    """
    assert pair.printed(script) == ["True (None, 'd')"] * 2
