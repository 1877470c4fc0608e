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
