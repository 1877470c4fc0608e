"""Arrays of which a process has a part, and what JAX says of them; multihost_utils."""

from __future__ import annotations

import pytest

from tests.jax.processes.group import Group


def test_arrays_from_what_each_process_has(pair: Group) -> None:
    script = """
        sharding = NamedSharding(MESH, P("d"))
        local = np.arange(4.0) + 10 * PROCESS
        a = jax.make_array_from_process_local_data(sharding, local)
        b = jax.make_array_from_callback((8,), sharding, lambda index: np.arange(8.0)[index])
        c = jax.device_put(np.arange(8.0), sharding)
        pieces = [jax.device_put(np.full(2, device.id), device) for device in jax.local_devices()]
        d = jax.make_array_from_single_device_arrays((8,), sharding, pieces)
        e = jax.device_put(np.arange(3.0), NamedSharding(MESH, P()))
        for array in (a, b, c, d, e):
            print(array.shape, array.is_fully_addressable, array.is_fully_replicated, here(array))
        print(here(jax.jit(lambda a, b, c, d: (a + b + c + d).sum())(a, b, c, d)), np.asarray(e).tolist())
    """
    first, second = (told.splitlines() for told in pair.printed(script))
    assert first == [
        "(8,) False False [[0.0, 1.0], [2.0, 3.0]]",
        "(8,) False False [[0.0, 1.0], [2.0, 3.0]]",
        "(8,) False False [[0.0, 1.0], [2.0, 3.0]]",
        "(8,) False False [[0, 0], [1, 1]]",
        "(3,) False True [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]",
        "[120.0, 120.0] [0.0, 1.0, 2.0]",
    ]
    assert second[0] == "(8,) False False [[10.0, 11.0], [12.0, 13.0]]"
    assert second[1] == second[2] == "(8,) False False [[4.0, 5.0], [6.0, 7.0]]"
    assert second[4:] == first[4:]


def test_what_is_not_here_is_refused_in_jaxs_words(pair: Group) -> None:
    script = """
        x = sharded(np.arange(8.0))
        print(caught(lambda: np.asarray(x)))
        print(caught(lambda: jax.device_put(x.addressable_shards[0].data, jax.devices()[2 - 2 * PROCESS])))
        print(caught(lambda: jax.jit(lambda v: v + 1)(np.arange(4.0)).shape))
        print(caught(lambda: jax.jit(lambda v: v + 1, in_shardings=NamedSharding(MESH, P("d")))(np.arange(4.0))))
        require_right_total()
    """
    for told in pair.printed(script):
        whole, elsewhere, local, uncommitted = told.splitlines()
        assert "RuntimeError" in whole
        assert "non-addressable" in whole
        assert "Error" in elsewhere
        assert local == "(4,)"
        assert "ValueError" in uncommitted


def test_the_tools_for_several_hosts(pair: Group) -> None:
    script = """
        from jax.experimental import multihost_utils as tools
        print(tools.process_allgather(np.array([PROCESS, 7])).tolist())
        print(tools.broadcast_one_to_all(np.array([3.0 + PROCESS])).tolist())
        tools.sync_global_devices("here")
        tools.assert_equal(np.arange(3), "they differ")
        print(caught(lambda: tools.assert_equal(np.array([PROCESS]), "they differ")).splitlines()[0])
        whole = tools.process_allgather(sharded(np.arange(8.0)), tiled=True)
        print(whole.tolist())
        spread = tools.host_local_array_to_global_array(np.arange(4.0) + PROCESS, MESH, P("d"))
        print(here(spread), tools.global_array_to_host_local_array(spread, MESH, P("d")).tolist())
        require_right_total()
    """
    first, second = (told.splitlines() for told in pair.printed(script))
    for told in (first, second):
        assert told[:2] == ["[[0, 7], [1, 7]]", "[3.0]"]
        assert "they differ" in told[2]
        assert told[3] == "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]"
    assert first[4] == "[[0.0, 1.0], [2.0, 3.0]] [0.0, 1.0, 2.0, 3.0]"
    assert second[4] == "[[1.0, 2.0], [3.0, 4.0]] [1.0, 2.0, 3.0, 4.0]"


def test_donated_arguments_are_given_up_and_results_lie_in_their_memory(pair: Group) -> None:
    script = """
        step = jax.jit(lambda v, u: (v + u, (v * u).sum()), donate_argnums=0)
        x, y = sharded(np.zeros(1 << 16, np.float32)), sharded(np.ones(1 << 16, np.float32))
        for _ in range(20):
            old, (x, s) = x, step(x, y)
            assert old.is_deleted()
        print(float(x.addressable_shards[0].data[0]), here(s))
        assert caught(lambda: old.addressable_shards[0].data + 1).startswith("RuntimeError")
        require_right_total()
    """
    assert pair.printed(script) == ["20.0 [1245184.0, 1245184.0]"] * 2


@pytest.mark.exhaustive
def test_memory_is_given_back(pair: Group) -> None:
    script = """
        def used(): return jax.local_devices()[0].memory_stats()["bytes_in_use"]
        def step():
            x = sharded(np.ones(1 << 20, np.float32))
            for _ in range(10):
                x = mapped(lambda v: v + jax.lax.pmax(v, "d"), out=P("d"))(x)
            here(total(x))
        step()
        before = used()
        for _ in range(5):
            step()
        print(used() <= before)
    """
    assert pair.printed(script) == ["True", "True"]
