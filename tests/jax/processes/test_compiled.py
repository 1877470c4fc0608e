"""What JAX asks of a compiled program of several processes, and executables that it keeps."""

from __future__ import annotations

from pathlib import Path

from tests.jax.processes.group import Group


def test_a_compiled_program_says_what_it_costs_and_is_called(pair: Group) -> None:
    script = """
        x = sharded(np.arange(8.0))
        found = jax.jit(lambda v: (v * 2).sum()).lower(x).compile()
        print(here(found(x)), "all-reduce" in found.as_text(), found.memory_analysis().argument_size_in_bytes)
        print(found.memory_analysis().generated_code_size_in_bytes > 0, found.cost_analysis()["flops"] > 0)
        print(found.input_shardings[0][0].spec, [d.id for d in found.runtime_executable().local_devices()])
    """
    first, second = pair.printed(script)
    assert first == "[56.0, 56.0] True 8\nTrue True\nP('d',) [0, 1]"
    assert second == "[56.0, 56.0] True 8\nTrue True\nP('d',) [2, 3]"


def test_a_program_is_serialised_and_loaded_again_in_each_process(pair: Group) -> None:
    script = """
        from jax.experimental import serialize_executable as files

        x = sharded(np.arange(8.0))
        found = jax.jit(lambda v: v + v.sum()).lower(x).compile()
        again = files.deserialize_and_load(*files.serialize(found))
        print(here(again(x)) == here(found(x)), len(here(again(x))))
        require_right_total()
    """
    assert pair.printed(script) == ["True 2"] * 2


def test_timings_are_told_by_each_process(tmp_path: Path) -> None:
    with Group(2, devices=1, DISTXLA_TIMINGS="1") as group:
        script = """
            x = sharded(np.arange(2.0))
            print(here(jax.jit(lambda v: v.sum() + 17, out_shardings=NamedSharding(MESH, P()))(x)))
        """
        assert group.printed(script) == ["[18.0]"] * 2
        assert group.errors.count("distxla: jit__lambda") >= 2


def test_jaxs_compilation_cache_serves_all_processes(tmp_path: Path) -> None:
    script = f"""
        jax.config.update("jax_compilation_cache_dir", "{tmp_path}")
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        x = sharded(np.arange(2.0))
        print(here(jax.jit(lambda v: v.sum() + 17)(x)))
    """
    for _ in range(2):
        with Group(2, devices=1) as group:
            assert group.printed(script) == ["[18.0]"] * 2
    assert list(tmp_path.iterdir())
