"""`check=` of `distxla.jax.jit` and `compile`: the user's own line, and declarations that JAX was told not to check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

import distxla as dx
import distxla.jax as dxj
from distxla.testing import ClusterPool
from tests.jax.programs import P, numbers

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[dx.Cluster]:
    with cluster_pool.lease(partitions=4) as cluster:
        yield cluster


def entropy(p: Any) -> Any:
    logs = jnp.log(p)
    return -jnp.sum(p * logs, axis=-1)


def masked_entropy(p: Any) -> Any:
    return -jnp.sum(jnp.where(p > 0, p * jnp.log(p), 0), axis=-1)


def squared(x: Any) -> Any:
    return jax.lax.fori_loop(0, 8, lambda _, x: x * x, x)


@pytest.mark.parametrize("function", [entropy, masked_entropy])
def test_line_of_a_nan(cluster: dx.Cluster, function: Any) -> None:
    mesh = dxj.make_mesh((4,), ("i",))
    rows = jax.sharding.NamedSharding(mesh, P("i"))
    step = dxj.jit(function, cluster=cluster, in_shardings=rows, out_shardings=rows, check="nan")
    p = np.full((8, 4), 0.25, np.float32)
    p[5] = [0, 0, 0.5, 0.5]  # on device 2
    if function is masked_entropy:
        assert np.isfinite(np.asarray(step(p))).all()
        return
    with pytest.raises(dx.NonFiniteError, match="NaN first appears in") as raised:
        np.asarray(step(p))
    assert raised.value.device == 2
    assert raised.value.source is not None
    assert "in entropy" in raised.value.source
    assert "its operands have Inf: Inf first appears in log" in " ".join(raised.value.__notes__)


def test_iteration_of_an_overflow(cluster: dx.Cluster) -> None:
    step = dxj.jit(squared, cluster=cluster, check=("nan", "replication"))
    with pytest.raises(dx.NonFiniteError) as raised:
        np.asarray(step(np.float32(10)))
    assert (raised.value.kind, raised.value.iterations[0][1]) == ("Inf", 6)
    assert float(step(np.float32(1))) == 1


@pytest.mark.parametrize("is_joined", [True, False])
def test_result_that_is_declared_the_same(cluster: dx.Cluster, *, is_joined: bool) -> None:
    mesh = dxj.make_mesh((4,), ("i",))

    def total(x: Any) -> Any:
        return jax.lax.psum(jnp.sum(x), "i") if is_joined else jnp.sum(x)

    mapped = jax.shard_map(total, mesh=mesh, in_specs=P("i"), out_specs=P(), check_vma=False)
    step = dxj.jit(mapped, cluster=cluster, check="replication")
    x = numbers(8)
    unsure = step.compile(x).unsure_results()
    if is_joined:
        assert not unsure
        np.testing.assert_allclose(np.asarray(step(x)), x.sum(), rtol=1e-6)
        return
    assert [found.frame is not None and "in test_" in found.frame for found in unsure] == [True]
    with pytest.raises(dx.ReplicationError, match="out0 is declared the same on devices 0-3"):
        np.asarray(step(x))


@pytest.mark.parametrize("is_joined", [True, False])
def test_value_inside_that_is_declared_the_same(cluster: dx.Cluster, *, is_joined: bool) -> None:
    """The result is the same everywhere, because XLA adds it up."""
    mesh = dxj.make_mesh((4,), ("i",))

    def part(x: Any) -> Any:
        total = jnp.sum(x * x)
        return jax.lax.psum(total, "i") if is_joined else total

    mapped = jax.shard_map(part, mesh=mesh, in_specs=P("i"), out_specs=P(), check_vma=False)

    def loss(x: Any) -> Any:
        """Only from the second iteration on devices have different parts."""
        return jax.lax.fori_loop(0, 3, lambda k, c: c * mapped(c) + x * k + x, jnp.ones_like(x)).sum()

    step = dxj.jit(loss, cluster=cluster, check="replication", in_shardings=NamedSharding(mesh, P("i")))
    x = numbers(8)
    if is_joined:
        assert not step.compile(x).unsure_results()
        assert np.isfinite(np.asarray(step(x)))
        return
    (unsure,) = step.compile(x).unsure_results()
    with pytest.raises(dx.ReplicationError, match="is declared the same on devices 0-3") as raised:
        np.asarray(step(x))
    error = raised.value
    assert error.array == unsure.value
    assert "(jit(loss)/" in error.message
    assert ", in iteration 2 of while" in error.message
    assert error.differing == (1, 2, 3)
    assert "test_checked_calls.py" in str(error)
    assert any("a psum of" in note for note in error.__notes__)
