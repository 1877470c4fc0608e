"""Devices of all processes as JAX sees them, and programs on some of them; as on JAX's own CPUs with several processes.

The module covers jax/pjrt/client.py, devices.py and executables.py where there are several processes.
"""

from __future__ import annotations

from tests.jax.processes.group import Group


def test_ids_are_contiguous_by_process_and_each_addresses_its_own(pair: Group) -> None:
    script = """
        print([(d.id, d.process_index, d.local_hardware_id) for d in jax.devices()])
        print([d.id for d in jax.local_devices()], [d.id for d in jax.local_devices(process_index=1 - PROCESS)])
        print(jax.process_count(), jax.process_indices(), jax.devices()[0].platform)
        print(jax.local_devices()[0].memory_stats() is not None)
    """
    first, second = pair.printed(script)
    assert first.splitlines() == [
        "[(0, 0, 0), (1, 0, 1), (2, 1, None), (3, 1, None)]",
        "[0, 1] [2, 3]",
        "2 [0, 1] cpu",
        "True",
    ]
    assert second.splitlines() == [
        "[(0, 0, None), (1, 0, None), (2, 1, 0), (3, 1, 1)]",
        "[2, 3] [0, 1]",
        "2 [0, 1] cpu",
        "True",
    ]


def test_programs_on_devices_of_one_process_are_its_own_affair(pair: Group) -> None:
    script = """
        mine = Mesh(jax.local_devices(), "d")
        x = jax.device_put(np.arange(4.0), NamedSharding(mine, P("d")))
        for k in range(3 * (PROCESS + 1)):  # not equally often
            y = jax.jit(lambda v: v.sum() + k)(x)
        print(float(y), float(jnp.sin(jnp.float32(PROCESS))) == float(np.sin(np.float32(PROCESS))))
        require_right_total()
    """
    assert pair.printed(script) == ["8.0 True", "11.0 True"]


def test_programs_on_a_part_of_the_processes_devices(pair: Group) -> None:
    script = """
        found = []
        for ids in ([0, 2], [3, 1], [1, 2, 3], [2, 3], [0]):
            mesh = Mesh(np.array(jax.devices())[ids], "d")
            x = sharded(np.arange(1.0, len(ids) + 1), mesh)
            y = mapped(lambda v: jax.lax.psum(10 * v, "d"), mesh=mesh)(x)
            z = jax.jit(lambda v: v[::-1], out_shardings=NamedSharding(mesh, P("d")))(x)
            found.append((here(y), here(z), y.is_fully_addressable, y.is_fully_replicated))
        print(*found, sep="\\n")
        require_right_total()
    """
    first, second = (told.splitlines() for told in pair.printed(script))
    assert first == [
        "([[30.0]], [[2.0]], False, True)",
        "([[30.0]], [[1.0]], False, True)",
        "([[60.0]], [[3.0]], False, True)",
        "([], [], False, True)",
        "([[10.0]], [[1.0]], True, True)",
    ]
    assert second == [
        "([[30.0]], [[1.0]], False, True)",
        "([[30.0]], [[2.0]], False, True)",
        "([[60.0], [60.0]], [[2.0], [1.0]], False, True)",
        "([[30.0], [30.0]], [[2.0], [1.0]], True, True)",
        "([], [], False, True)",
    ]


def test_a_process_without_devices_of_a_program_is_not_waited_for(pair: Group) -> None:
    """JAX compiles and executes it there, too, with no device."""
    script = """
        mesh = Mesh(jax.devices()[:2], "d")
        for k in range(5):
            y = mapped(lambda v: jax.lax.psum(v + k, "d"), mesh=mesh)(sharded(np.arange(2.0), mesh))
        print(here(y))
        require_right_total()
    """
    assert pair.printed(script) == ["[[9.0], [9.0]]", "[]"]


def test_threads_that_run_local_programs_do_not_disturb_calls_of_all(pair: Group) -> None:
    script = """
        def local():
            x = jax.device_put(np.arange(8.0), jax.local_devices()[1])
            for k in range(30):
                found.append(float(jax.jit(lambda v: (v * 2).sum())(x)))
        found = []
        threads = [threading.Thread(target=local) for _ in range(3)]
        for thread in threads:
            thread.start()
        x = sharded(np.arange(4.0))
        for _ in range(30):
            x = mapped(lambda v: v + jax.lax.psum(v, "d") * 0, out=P("d"))(x)
        for thread in threads:
            thread.join()
        print(set(found), len(found), here(total(x)))
    """
    assert pair.printed(script) == ["{56.0} 90 [[6.0], [6.0]]"] * 2


def test_four_processes_are_one_mesh() -> None:
    with Group(4, devices=1) as group:
        script = """
            mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
            x = sharded(np.arange(16.0).reshape(4, 4), mesh, P("a", "b"))
            y = jax.jit(lambda v: v @ v.T, out_shardings=NamedSharding(mesh, P("b", "a")))(x)
            expected = np.arange(16.0).reshape(4, 4) @ np.arange(16.0).reshape(4, 4).T
            print(all((shard.data == expected[shard.index]).all() for shard in y.addressable_shards))
        """
        assert group.printed(script) == ["True"] * 4
