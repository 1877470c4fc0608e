"""Executables of several processes as bytes, and modules whose partitioner calls functions of each process."""

from __future__ import annotations

from tests.jax.processes.group import Group


def test_an_executable_is_loaded_again_in_all_processes(pair: Group) -> None:
    script = """
        from jax.experimental import serialize_executable
        f = jax.jit(lambda x: x + x.sum(), out_shardings=NamedSharding(MESH, P("d")))
        x = sharded(np.arange(4.0))
        bytes_, ins, outs = serialize_executable.serialize(f.lower(x).compile())
        print(here(serialize_executable.deserialize_and_load(bytes_, ins, outs)(x)))
        g = mapped(lambda v: jax.pure_callback(np.asarray, v, v), out=P("d"))
        print(caught(lambda: serialize_executable.serialize(g.lower(x).compile())))
    """
    first, second = pair.printed(script)
    assert first.startswith("[[6.0], [7.0]]\n")
    assert second.startswith("[[8.0], [9.0]]\n")
    for told in (first, second):
        assert "calls functions of this process, which cannot be serialised" in told


def test_functions_that_the_partitioner_calls_are_those_of_each_process(pair: Group) -> None:
    script = """
        from jax.experimental.custom_partitioning import custom_partitioning
        seen = []
        @custom_partitioning
        def reverse(x):
            return x[::-1]
        def partition(mesh, args, result):
            seen.append(args[0].shape)
            return mesh, lambda x: x[::-1], args[0].sharding, (args[0].sharding,)
        same = lambda mesh, args, result: args[0].sharding
        reverse.def_partition(infer_sharding_from_operands=same, partition=partition, sharding_rule="i -> i")
        print(here(jax.jit(reverse)(sharded(np.arange(8.0)))), seen)
    """
    assert pair.printed(script) == ["[[1.0, 0.0], [3.0, 2.0]] [(8,)]", "[[5.0, 4.0], [7.0, 6.0]] [(8,)]"]
