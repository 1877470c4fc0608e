"""`psend`, `precv` and `pbroadcast`, which JAX lowers for GPUs only: values by their definitions, and deadlocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

import distxla as dx
import distxla.jax as dxj
from distxla.scheduler.verdict import Outcome

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore:jax.lax.p(send|recv) is deprecated")]
ROW, GRID = dxj.make_mesh((4,), ("i",)), dxj.make_mesh((2, 2), ("a", "b"))
X = np.arange(1, 9, dtype=np.float32)
Edges = list[tuple[int, int]]
RING: Edges = [(0, 1), (1, 2), (2, 3), (3, 0)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[dx.Cluster]:
    with dx.Cluster(partitions=4) as found:
        yield found


def by_rows(f: Callable[[Any], Any], mesh: Any = ROW) -> Any:
    cut = P(mesh.axis_names)
    return jax.shard_map(f, mesh=mesh, in_specs=cut, out_specs=cut, check_vma=False)


def sent(x: Any, edges: Edges, axis: str = "i", *, tied: bool = True) -> Any:
    """tied: the receipt waits for the end of the send."""
    token = jax.lax.psend(x, axis, edges)
    given = token if tied else jax.lax.create_token()
    return jax.lax.precv(given, jax.ShapeDtypeStruct(x.shape, x.dtype), axis, edges)


def moved(x: Any, edges: Edges) -> Any:
    """By definition: the value of the source, zeros where there is none."""
    rows = x.reshape(4, -1)
    out = np.zeros_like(rows)
    for source, target in edges:
        out[target] = rows[source]
    return out.reshape(-1)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex64, np.bool_])
@pytest.mark.parametrize("edges", [[(0, 1)], [(3, 0), (2, 1)], [(0, 3), (1, 2)], []])
def test_a_pair_of_psend_and_precv_moves_values(cluster: dx.Cluster, edges: Edges, dtype: Any) -> None:
    x = X.astype(dtype)
    got = dxj.jit(by_rows(lambda x: sent(x, edges)), cluster=cluster)(x)
    np.testing.assert_array_equal(np.asarray(got), moved(x, edges))


def test_a_ring_whose_receipts_do_not_wait_for_sends(cluster: dx.Cluster) -> None:
    got = dxj.jit(by_rows(lambda x: sent(x, RING, tied=False)), cluster=cluster)(X)
    np.testing.assert_array_equal(np.asarray(got), moved(X, RING))


def test_beside_other_collectives(cluster: dx.Cluster) -> None:
    """To which JAX gives one channel."""
    got = dxj.jit(by_rows(lambda x: sent(jax.lax.psum(x, "i"), [(0, 1)])), cluster=cluster)(X)
    assert np.asarray(got).tolist() == [0, 0, 16, 20, 0, 0, 0, 0]


def test_tokens_say_which_receipt_belongs_to_which_send(cluster: dx.Cluster) -> None:
    def both(x: Any) -> Any:
        edges, shape = [(0, 1), (2, 3)], jax.ShapeDtypeStruct(x.shape, x.dtype)
        first, second = jax.lax.psend(x, "i", edges), jax.lax.psend(x * 10, "i", edges)
        later = jax.lax.precv(second, shape, "i", edges)
        return later * 100 + jax.lax.precv(first, shape, "i", edges)

    got = dxj.jit(by_rows(both), cluster=cluster)(X)
    np.testing.assert_array_equal(np.asarray(got), moved(X, [(0, 1), (2, 3)]) * 1001)


def test_devices_send_and_receive_in_branches_of_their_own(cluster: dx.Cluster) -> None:
    def local(x: Any) -> Any:
        def send(x: Any) -> Any:
            jax.lax.psend(x, "i", [(0, 1)])
            return x

        def receive(x: Any) -> Any:
            return jax.lax.precv(jax.lax.create_token(), jax.ShapeDtypeStruct(x.shape, x.dtype), "i", [(0, 1)])

        return jax.lax.switch(jax.lax.axis_index("i"), [send, receive, lambda x: -x, lambda x: x + 1], x)

    got = dxj.jit(by_rows(local), cluster=cluster)(X)
    assert np.asarray(got).tolist() == [1, 2, 1, 2, -5, -6, 8, 9]


def test_along_one_axis_of_a_mesh(cluster: dx.Cluster) -> None:
    def local(x: Any) -> Any:
        return sent(x, [(1, 0)], "b"), jax.lax.pbroadcast(x, "a", 1)

    moved_, spread = dxj.jit(by_rows(local, GRID), cluster=cluster)(X)
    assert np.asarray(moved_).tolist() == [3, 4, 0, 0, 7, 8, 0, 0]
    assert np.asarray(spread).tolist() == [5, 6, 7, 8, 5, 6, 7, 8]


def test_pbroadcast_and_its_gradient(cluster: dx.Cluster) -> None:
    weights = np.array([1, 10, 100, 1000], np.float32)

    def local(x: Any) -> Any:
        return jax.lax.pbroadcast(x, "i", 2)

    def slope(x: Any) -> Any:
        weight = jnp.asarray(weights)[jax.lax.axis_index("i")]
        return jax.grad(lambda x: local(x.sum()) * weight)(x)  # JAX has the gradient of scalars only

    got = dxj.jit(by_rows(lambda x: (local(x), slope(x))), cluster=cluster)(X)
    np.testing.assert_array_equal(np.asarray(got[0]), np.tile(X[4:6], 4))
    assert np.asarray(got[1]).tolist() == [0, 0, 0, 0, 1111, 1111, 0, 0]


@pytest.mark.skipif(not hasattr(jax._src.lax.parallel, "pbroadcast_dynamic_p"), reason="jax 0.12 has it first")
def test_pbroadcast_from_a_source_that_is_computed(cluster: dx.Cluster) -> None:
    step = dxj.jit(
        jax.shard_map(
            lambda x, source: jax.lax.pbroadcast(x, "i", source),
            mesh=ROW,
            in_specs=(P("i"), P()),
            out_specs=P("i"),
            check_vma=False,
        ),
        cluster=cluster,
    )
    for source in range(4):
        np.testing.assert_array_equal(np.asarray(step(X, np.int32(source))), np.tile(X.reshape(4, 2)[source], 4))


def test_programs_that_jax_has_lowered_for_a_mesh_without_devices(cluster: dx.Cluster) -> None:
    lowered = jax.jit(by_rows(lambda x: sent(x, [(0, 1)]))).trace(X).lower(lowering_platforms=("cpu",))
    got = dxj.compile(lowered, cluster=cluster)(X)
    np.testing.assert_array_equal(np.asarray(got), moved(X, [(0, 1)]))


# --- deadlocks


def only_sent(x: Any) -> Any:
    jax.lax.psend(x, "i", [(0, 1), (2, 3)])
    return x


def only_received(x: Any) -> Any:
    return jax.lax.precv(jax.lax.create_token(), jax.ShapeDtypeStruct(x.shape, x.dtype), "i", [(0, 1)])


def received_first(x: Any) -> Any:
    got = jax.lax.precv(jax.lax.create_token(), jax.ShapeDtypeStruct(x.shape, x.dtype), "i", RING)
    jax.lax.psend(got, "i", RING)
    return got


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (only_sent, r"no program of the run has a recv .*belongs on devices 1, 3"),
        (only_received, r"no program of the run has a send .*belongs on device 0"),
        (received_first, r"cycle: 0 -> 3 -> 2 -> 1 -> 0"),
        (lambda x: sent(x, RING), r"cycle: 0 -> 1 -> 2 -> 3 -> 0"),
    ],
)
def test_deadlocks_are_reported_with_the_users_line(cluster: dx.Cluster, f: Any, what: str) -> None:
    with pytest.raises(dx.DeadlockError, match=rf"(?s){what}") as raised:
        np.asarray(dxj.jit(by_rows(f), cluster=cluster)(X))
    assert __file__ in str(raised.value)


def test_check_finds_a_cycle_before_any_call(cluster: dx.Cluster) -> None:
    step = dxj.jit(by_rows(lambda x: sent(x, RING)), cluster=cluster)
    assert step.compile(X).check().outcome == Outcome.DEADLOCK


# --- JAX's own CPU


@pytest.mark.parametrize("name", ["psend", "precv", "pbroadcast"])
def test_jaxs_own_cpu_refuses_them_as_before(name: str) -> None:
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices("cpu")[:1])
    local = {
        "psend": only_sent,
        "precv": only_received,
        "pbroadcast": lambda x: jax.lax.pbroadcast(x, "i", 0),
    }[name]
    with pytest.raises(NotImplementedError, match=f"{name}('? not found for platform cpu| is currently only)"):
        jax.jit(by_rows(local, mesh))(X)
