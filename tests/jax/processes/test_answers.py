"""What real processes are told where they disagree: the words for each kind of difference. test_agreement.py has order,
shapes and kinds of collectives."""

from __future__ import annotations

import pytest

from tests.jax.processes.group import Group


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            """
            def step(v): return v * 2
            f = jax.jit(step, donate_argnums=(0,) if PROCESS else ())
            answer = caught(lambda: here(f(sharded(np.arange(4.0)))))
            """,
            "donation: process 0 has none, process 1 has argument 0",
        ),
        (
            """
            mesh = Mesh(jax.devices() if PROCESS else jax.devices()[::-1], "d")
            f = mapped(lambda v: jax.lax.psum(v, "d"), mesh=mesh)
            answer = caught(lambda: here(f(sharded(np.arange(4.0), mesh))))
            """,
            "devices: process 0 has [3, 2, 1, 0], process 1 has [0, 1, 2, 3]",
        ),
        (
            """
            f = jax.jit(lambda v: v * 2, out_shardings=NamedSharding(MESH, P("d") if PROCESS else P()))
            answer = caught(lambda: here(f(sharded(np.arange(4.0)))))
            """,
            "sharding of result 0: process 0 has {",
        ),
        (
            """
            values = np.arange(1000.0, dtype=np.float32)
            values[637] += PROCESS
            f = jax.jit(lambda v: v.sum() * jnp.tile(values, 2))
            answer = caught(lambda: here(f(sharded(np.arange(4.0)))))
            """,
            "(script.py:4): process 0 has 637.0 at [0, 637], process 1 has 638.0 at [0, 637]",
        ),
        (
            """
            x = sharded(np.arange(4, dtype=np.float32 if PROCESS else np.int32))
            answer = caught(lambda: here(mapped(lambda v: jax.lax.psum(v, "d"))(x)))
            """,
            "shape of argument 0 (v): process 0 has s32[4], process 1 has f32[4]",
        ),
        (
            """
            f = mapped(lambda v: (jax.lax.pmax if PROCESS else jax.lax.pmin)(v, "d"))
            answer = caught(lambda: here(f(sharded(np.arange(4.0)))))
            """,
            "process 1 has %max.0 = f32[] maximum(",
        ),
    ],
    ids=["donation", "devices", "sharding", "large constant", "type", "reduction"],
)
def test_what_differs(pair: Group, script: str, says: str) -> None:
    for told in pair.printed(script + "\n            print(answer)\n            require_right_total()\n"):
        assert "mismatch: processes disagree in call" in told
        assert says in told


def test_a_call_that_one_leaves_out_is_told_with_the_error_that_comes_of_it(pair: Group) -> None:
    """Its next call of the same function takes the place of the one before."""
    script = """
        def step(v): return jax.lax.psum(v, "d")
        def last(v): return jax.lax.psum(2 * v, "d")
        step, last, x = mapped(step), mapped(last), sharded(np.arange(4.0))
        if PROCESS == 0:
            step(x)
        found = [step(x), last(x)]
        if PROCESS == 1:
            found += [last(x)]
        for each in found:
            print(caught(lambda: here(each)))
        require_right_total()
    """
    for told in pair.printed(script):
        assert "process 0 calls step (script.py:7), process 1 calls last (script.py:7)" in told
        assert "process 0 at script.py:6, process 1 at script.py:7" in told
        assert "process 0 calls last next, at script.py:7: the order differs" in told


def test_one_program_has_the_name_that_each_process_gives_it(pair: Group) -> None:
    script = """
        def mine(v): return jax.lax.psum(v + 3, "d")
        def other(v): return jax.lax.psum(v + 4, "d")
        mine.__name__ = f"of_{PROCESS}"
        x = sharded(np.arange(4.0))
        here(mapped(mine)(x))
        print(caught(lambda: here(mapped(other if PROCESS else mine)(x))))
        require_right_total()
    """
    for told in pair.printed(script):
        assert "process 0 calls of_0 (script.py:7), process 1 calls other (script.py:7)" in told


@pytest.mark.exhaustive
def test_pairs_in_a_circle() -> None:
    script = """
        for pair in {0: [(0, 1), (0, 2)], 1: [(1, 2), (0, 1)], 2: [(0, 2), (1, 2)]}[PROCESS]:
            mesh = Mesh([d for d in jax.devices() if d.process_index in pair], "d")
            f = mapped(lambda v: jax.lax.psum(v, "d"), mesh=mesh)
            print(caught(lambda: here(f(sharded(np.arange(4.0), mesh)))))
        require_right_total()
    """
    with Group(3) as group:
        for told in group.printed(script):
            assert told.count("a deadlock of processes 0 -> 1 -> 2 -> 0") == 2
            assert "makes call 1 of processes 0 and 1, <lambda> (script.py:5): waits for process 1" in told
