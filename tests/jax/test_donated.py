"""Arrays that calls of `distxla.jax` functions give up."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import distxla as dx
import distxla.jax as dxj

pytestmark = [pytest.mark.cluster, pytest.mark.devices(1)]
ONE = NamedSharding(dxj.make_mesh((1,), ("i",)), PartitionSpec())
VALUES = np.arange(8, dtype=np.float32).reshape(2, 4)


def write(cache: Any, row: Any, k: Any) -> Any:
    return jax.lax.dynamic_update_slice(cache, row[None], (k, 0)), cache.shape[0]


def test_a_donated_array_is_updated_where_it_is(cluster: dx.Cluster) -> None:
    step = dxj.jit(write, cluster=cluster, donate_argnums=0)
    cache, _ = step(np.zeros((64, 32), np.float32), np.ones(32, np.float32), 0)
    place = cache.column.place
    for k in range(1, 4):
        cache, _ = step(cache, np.full(32, k + 1, np.float32), k)
        assert cache.column.place == place
    np.testing.assert_array_equal(np.asarray(cache)[:, 0], [1, 2, 3, 4] + [0] * 60)


def test_elementwise_results_are_in_donated_arrays(cluster: dx.Cluster) -> None:
    def adam(p: Any, m: Any, g: Any) -> Any:
        m = 0.9 * m + 0.1 * g
        return p - 0.5 * m, m

    step = dxj.jit(adam, cluster=cluster, donate_argnums=(0, 1))
    p, m = step(np.ones((64, 32), np.float32), np.zeros((64, 32), np.float32), np.full((64, 32), 2, np.float32))
    places = p.column.place, m.column.place
    for _ in range(3):
        p, m = step(p, m, np.full((64, 32), 2, np.float32))
        assert (p.column.place, m.column.place) == places
    want, moment = 1.0, 0.0
    for _ in range(4):
        moment = 0.9 * moment + 0.2
        want -= 0.5 * moment
    np.testing.assert_allclose(np.asarray(p), np.full((64, 32), want), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(m), np.full((64, 32), moment), rtol=1e-5)


def test_what_others_see_of_an_elementwise_operand_stays(cluster: dx.Cluster) -> None:
    step = dxj.jit(lambda x: x + 1, cluster=cluster, donate_argnums=0)
    first = step(np.zeros((64, 32), np.float32))
    seen, place = np.asarray(first), first.column.place
    second = step(first)
    assert second.column.place != place
    np.testing.assert_array_equal(seen, np.ones((64, 32)))
    np.testing.assert_array_equal(np.asarray(second), np.full((64, 32), 2))


def test_what_others_see_of_a_donated_array_stays(cluster: dx.Cluster) -> None:
    step = dxj.jit(write, cluster=cluster, donate_argnums=0)
    cache, _ = step(np.zeros((64, 32), np.float32), np.ones(32, np.float32), 0)
    seen, place = np.asarray(cache), cache.column.place
    cache, _ = step(cache, np.full(32, 7, np.float32), 0)
    assert cache.column.place != place
    np.testing.assert_array_equal(seen[0], np.ones(32))
    np.testing.assert_array_equal(np.asarray(cache)[0], np.full(32, 7))


@pytest.mark.parametrize("donated", [0, 1, (0, 1)])
def test_an_array_that_is_donated_is_no_other_argument(cluster: dx.Cluster, donated: Any) -> None:
    def both(cache: Any, same: Any) -> Any:
        return jax.lax.dynamic_update_slice(cache, jnp.ones((1, 4), np.float32), (0, 0)), same * 2

    step = dxj.jit(both, cluster=cluster, donate_argnums=donated)
    cache = dxj.device_put(VALUES, ONE, cluster=cluster)
    path = r"args\[1\]" if donated == 1 else r"args\[0\]"
    with pytest.raises(dx.ArgumentError, match=rf"args\[0\] and args\[1\] are the same array, and {path} is donated"):
        step(cache, cache)
    updated, twice = step(cache, np.asarray(cache))  # nothing was called, and it is still there
    np.testing.assert_array_equal(np.asarray(updated)[0], np.ones(4))
    np.testing.assert_array_equal(np.asarray(twice), 2 * VALUES)


def test_what_no_result_can_take_may_be_donated_and_given_once_more(cluster: dx.Cluster) -> None:
    """As in JAX, which gives such an argument's memory to nothing."""
    step = dxj.jit(lambda x, y: (x[:2] + 1, y[1:3]), cluster=cluster, donate_argnums=0)
    x = dxj.jit(lambda: jnp.arange(4.0), cluster=cluster)()
    with pytest.warns(UserWarning, match="donated buffers were not usable"):
        found = step(x, x)
    assert [np.asarray(each).tolist() for each in found] == [[1, 2], [1, 2]]
