"""Calls of real processes that agree, and the answer where they do not.

The module covers attached.py, attached_executable.py, attached_memory.py and introduced.py of distxla/jax/processes,
and distxla/jax/private/coordination.py.
"""

from __future__ import annotations

import pytest

from tests.jax.processes.group import Group


def test_processes_call_one_function_and_get_its_result(pair: Group) -> None:
    script = """
        print(jax.device_count(), jax.local_device_count(), PROCESS, PROCESSES)
        print(here(total(sharded(np.arange(4.0)))))
    """
    assert pair.printed(script) == [f"4 2 {k} 2\n[[6.0], [6.0]]" for k in range(2)]


def test_another_order_is_told_to_both_and_the_next_call_is_right(pair: Group) -> None:
    calls = """
        def f(v): return jax.lax.psum(v, "d")
        def g(v): return jax.lax.psum(100 * v, "d")
        f, g, x = mapped(f), mapped(g), sharded(np.arange(4.0))
        here(f(x)), here(g(x))
        first = {first}(x)
        second = {second}(x)
        for found in (first, second):
            print(caught(lambda: here(found)))
        require_right_total()
    """
    found = pair.printed(calls.format(first="f", second="g"), calls.format(first="g", second="f"))
    for told in found:
        assert "processes disagree in call" in told
        assert "process 0 calls f (script.py:6), process 1 calls g (script.py:6)" in told
        assert "process 0 calls g (script.py:7), process 1 calls f (script.py:7)" in told
        assert "the order differs" in told
    assert found[0].count("JaxRuntimeError") == found[1].count("JaxRuntimeError") == 2


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("jax.lax.psum(v * (2 + PROCESS), 'd')", "constant"),
        ("jax.lax.psum(jnp.concatenate([v] * (1 + PROCESS)), 'd')", "f32[8]"),
        ("jax.lax.psum(v, 'd') if PROCESS else jax.lax.all_gather(v, 'd', tiled=True)[:1]", "instruction"),
    ],
    ids=["constant", "shape", "kind"],
)
def test_another_program_is_told_to_both_and_the_next_call_is_right(pair: Group, function: str, says: str) -> None:
    script = f"""
        def step(v): return {function}
        print(caught(lambda: here(mapped(step, out=P("d"))(sharded(np.arange(4.0))))))
        require_right_total()
    """
    for told in pair.printed(script):
        assert "processes disagree in call" in told
        assert "process 0 calls step (script.py:3), process 1 calls step (script.py:3)" in told
        assert says in told


def test_a_mismatch_behind_a_long_program_is_told_before_that_ends(pair: Group) -> None:
    """Launches are told when they are submitted: the one that differs is not at the head of the queue."""
    script = """
        def wait(v):
            step = lambda k: (k[0] + 1, k[1] * 1.01)
            return jax.lax.psum(jax.lax.while_loop(lambda k: k[0] < limit, step, (0, v))[1], "d")
        def f(v): return jax.lax.psum(v, "d")
        def g(v): return jax.lax.psum(100 * v, "d")
        limit, x = 1, sharded(np.arange(4.0))
        f, g = mapped(f), mapped(g)
        here(f(x)), here(g(x))
        limit = 200_000_000
        long = mapped(wait)(x)
        bad = {mine}(x)
        print(caught(lambda: here(bad)).splitlines()[0], has_calls())
        here(long)
        require_right_total()
    """
    for told in pair.printed(script.format(mine="f"), script.format(mine="g")):
        assert "process 0 calls f (script.py:12), process 1 calls g (script.py:12)" in told
        assert told.endswith("True")


def test_what_needs_a_refused_result_fails_too_and_the_next_call_is_right(pair: Group) -> None:
    script = """
        def f(v): return v + {constant}
        x = sharded(np.arange(4.0))
        made = mapped(f, out=P("d"))(x)
        print(caught(lambda: here(total(made))))
        require_right_total()
    """
    for told in pair.printed(script.format(constant=1), script.format(constant=2)):
        assert "processes disagree in call" in told


def test_a_skipped_call_is_named_in_the_error_that_comes_of_it_later() -> None:
    """The next call of the same function agrees with the skipped one: its result is right, and its line differs."""
    script = """
        def step(v): return jax.lax.psum(v, "d")
        def other(v): return jax.lax.psum(3 * v, "d")
        step, other, x = mapped(step), mapped(other), sharded(np.arange(4.0))
        if PROCESS == 0:
            step(x)
        made = step(x)
        if PROCESS == 1:
            made = other(x)
        print(caught(lambda: here(made)))
    """
    with Group(2, devices=2) as group:
        for told in group.printed(script):
            assert "mismatch: processes disagree in call 2 of processes 0 and 1" in told
            assert "process 0 calls step (script.py:7), process 1 calls other (script.py:9)" in told
            assert "apart since call 1: process 0 at script.py:6, process 1 at script.py:7" in told


@pytest.mark.exhaustive
def test_pairs_of_processes_in_a_circle_are_told_and_go_on() -> None:
    script = """
        def pair(a, b):
            mesh = Mesh(np.array(jax.devices())[[a, b]], "d")
            return lambda: here(mapped(lambda v: jax.lax.psum(v, "d"), mesh=mesh)(sharded(np.arange(2.0), mesh)))

        calls = {(0, 1): pair(0, 1), (1, 2): pair(1, 2), (0, 2): pair(0, 2)}
        for pair in calls:
            calls[pair]()
        order = {0: [(0, 1), (0, 2)], 1: [(1, 2), (0, 1)], 2: [(0, 2), (1, 2)]}[PROCESS]
        print(caught(calls[order[0]]), caught(calls[order[1]]))
        barrier("told")
        for pair in calls:
            assert calls[pair]() == ([[1.0]] if PROCESS in pair else [])
        require_right_total()
    """
    with Group(3, devices=1) as group:
        for told in group.printed(script):
            assert told.count("a deadlock of processes 0 -> 1 -> 2 -> 0") == 2


@pytest.mark.exhaustive
def test_processes_that_differ_are_told_at_the_start() -> None:
    with Group(2, devices=2, late=True, last={"DISTXLA_DEVICES": "3"}) as group:
        script = """
            jax.distributed.initialize(f"localhost:{PORT}", 2, RANK)
            try:
                jax.device_put(1.0).block_until_ready()
            except Exception as error:
                print(error)
        """
        for told in group.printed(*(script.replace("RANK", str(rank)) for rank in range(2))):
            assert "process 1" in told
            assert "DISTXLA_DEVICES" in told
