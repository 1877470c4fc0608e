"""Callbacks of programs of several processes: each runs in the process of the device that calls it."""

from __future__ import annotations

import textwrap

import pytest

from tests.jax.processes.group import Group


def test_prints_come_from_the_process_of_the_device(pair: Group) -> None:
    script = """
        told = []
        def tell(v):
            jax.debug.callback(lambda x: told.append(float(x[0])), v)
            return jax.lax.psum(v, "d")
        print(here(mapped(tell)(sharded(np.arange(4.0)))))
        jax.effects_barrier()
        print(sorted(told))
        require_right_total()
    """
    assert pair.printed(script) == [f"[[6.0], [6.0]]\n[{2 * k}.0, {2 * k + 1}.0]" for k in range(2)]


def test_debug_print_prints_where_the_device_is(pair: Group) -> None:
    script = """
        def tell(v):
            jax.debug.print("value {}", v)
            return v
        here(mapped(tell, out=P("d"))(sharded(np.arange(4.0))))
        jax.effects_barrier()
    """
    found = pair.printed(script)
    assert [sorted(told.splitlines()) for told in found] == [
        ["value [0.]", "value [1.]"],
        ["value [2.]", "value [3.]"],
    ]


def test_results_of_callbacks_go_on_to_all_devices(pair: Group) -> None:
    script = """
        import os
        def add(v):
            twice = jax.pure_callback(lambda x: 2 * np.asarray(x) + 0 * os.getpid(), v, v)
            return jax.lax.psum(twice, "d")
        for _ in range(3):
            print(here(mapped(add)(sharded(np.arange(4.0)))))
    """
    assert pair.printed(script) == ["\n".join(["[[12.0], [12.0]]"] * 3)] * 2


def test_ordered_io_callbacks_keep_their_order(pair: Group) -> None:
    script = """
        from jax.experimental import io_callback
        seen = []
        def note(x):
            seen.append(int(x))
            return np.float32(len(seen))
        @jax.jit
        def local(v):
            def step(k, total):
                return total + io_callback(note, jax.ShapeDtypeStruct((), np.float32), k, ordered=True)
            return jax.lax.fori_loop(0, 5, step, v)
        print(float(local(jnp.float32(0))), seen)
    """
    assert pair.printed(script) == ["15.0 [0, 1, 2, 3, 4]"] * 2


def test_a_callback_of_a_program_of_one_device_runs_where_that_is(pair: Group) -> None:
    """Under jit a callback that is not sharded has one device, the first one."""
    script = """
        told = []
        @jax.jit
        def tell(v):
            jax.debug.callback(lambda x: told.append(float(x)), v.sum())
            return v.sum()
        print(float(tell(sharded(np.arange(4.0))).addressable_data(0)))
        jax.effects_barrier()
        print(told)
    """
    assert pair.printed(script) == ["6.0\n[6.0]", "6.0\n[]"]


@pytest.mark.parametrize("kind", ["pure_callback", "io_callback"])
def test_a_callback_that_raises_is_told_to_all_with_process_and_line(pair: Group, kind: str) -> None:
    script = f"""
        from jax.experimental import io_callback
        from jax import pure_callback
        def raises(x):
            if PROCESS == 1 and x[0] == 3:
                raise ValueError("no data today")
            return np.asarray(x)
        def step(v):
            return jax.lax.psum({kind}(raises, v, v), "d")
        print(caught(lambda: here(mapped(step)(sharded(np.arange(4.0))))))
        caught(jax.effects_barrier)  # which tells the failure of an effect once more
        require_right_total()
    """
    for told in pair.printed(script):
        first = told.splitlines()[0]
        assert "on device 3 (process 1)" in first
        assert "raised ValueError: no data today (" in first
        assert "script.py:6)" in first


def test_a_callback_without_results_that_raises_is_told_to_all(pair: Group) -> None:
    script = """
        from jax.experimental import io_callback
        def raises(x):
            if PROCESS == 0 and x[0] == 1:
                raise ValueError("nothing is written")
        def step(v):
            io_callback(raises, None, v)
            return jax.lax.psum(v, "d")
        print(caught(lambda: here(mapped(step)(sharded(np.arange(4.0))))))
        caught(jax.effects_barrier)  # which tells the failure of an effect once more
        require_right_total()
    """
    for told in pair.printed(script):
        assert "on device 1 (process 0)" in told.splitlines()[0]
        assert "raised ValueError: nothing is written (" in told.splitlines()[0]


def test_functions_of_equal_programs_are_those_of_each_process(pair: Group) -> None:
    script = """
        def make(number):
            def step(v):
                return jax.lax.psum(jax.pure_callback(lambda x: np.asarray(x) + number, v, v), "d")
            return mapped(step)
        x = sharded(np.zeros(4, np.float32))
        first, second = make(1 + 10 * PROCESS), make(2)
        print(here(first(x))[0], here(second(x))[0], here(first(x))[0])
    """
    assert pair.printed(script) == ["[24.0] [8.0] [24.0]"] * 2


def test_another_function_that_gives_values_is_told_with_both(pair: Group) -> None:
    script = """
        def halved(x):
            return np.asarray(x) / 2
        def doubled(x):
            return np.asarray(x) * 2
        def step(v):
            return jax.lax.psum(jax.pure_callback(doubled if PROCESS else halved, v, v), "d")
        print(caught(lambda: here(mapped(step)(sharded(np.zeros(4, np.float32))))))
        require_right_total()
    """
    for told in pair.printed(script):
        assert "mismatch: processes disagree" in told
        assert "callback: process 0 has halved (script.py:2), process 1 has doubled (script.py:4)" in told


def test_functions_that_give_no_values_may_differ(pair: Group) -> None:
    """As where process 0 alone writes a log."""
    script = """
        told = []
        def step(v):
            jax.debug.callback((lambda x: told.append(float(x[0]))) if PROCESS == 0 else (lambda x: None), v)
            jax.debug.print(f"process {PROCESS}: {{}}", v)
            return jax.lax.psum(v, "d")
        print(here(mapped(step)(sharded(np.arange(4.0)))))
        jax.effects_barrier()
        print(sorted(told), file=sys.stderr)
        assert len(told) == (2 if PROCESS == 0 else 0)
    """
    for process, told in enumerate(pair.printed(script)):
        assert "[[6.0], [6.0]]" in told
        assert f"process {process}: " in told


def test_a_callback_may_not_run_a_program(pair: Group) -> None:
    script = """
        mine = jax.device_put(np.float32(1), jax.local_devices()[0])
        def runs(x):
            return np.asarray(x) + np.asarray(mine + 1 if PROCESS else 2)
        def step(v):
            return jax.lax.psum(jax.pure_callback(runs, v, v), "d")
        print(caught(lambda: here(mapped(step)(sharded(np.arange(4.0))))))
        caught(jax.effects_barrier)  # which tells the failure of an effect once more
        require_right_total()
    """
    for told in pair.printed(script):
        assert "it cannot run a program on a cluster itself" in told


def test_buffer_callbacks_fill_the_results_here(pair: Group) -> None:
    pytest.importorskip("jax.experimental.buffer_callback")
    script = """
        from jax.experimental.buffer_callback import buffer_callback
        def fill(context, result, value):
            np.asarray(result)[...] = np.asarray(value) + 1 + PROCESS
        def step(v):
            return jax.lax.psum(buffer_callback(fill, jax.ShapeDtypeStruct((1,), np.float32))(v), "d")
        print(here(mapped(step)(sharded(np.arange(4, dtype=np.float32)))))
    """
    assert pair.printed(script) == ["[[12.0], [12.0]]"] * 2


def test_threads_have_functions_of_their_own(pair: Group) -> None:
    script = """
        def run(factor):
            x = jax.device_put(np.float32(1), jax.local_devices()[factor % 2])
            def scaled(x):
                scalar = jax.ShapeDtypeStruct((), np.float32)
                return jax.pure_callback(lambda v: np.asarray(v) * np.float32(factor), scalar, x)
            for _ in range(3):
                last = float(jax.jit(scaled)(x))
            found.append(last)
        found = []
        threads = [threading.Thread(target=run, args=(factor,)) for factor in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(sorted(found))
    """
    assert pair.printed(script) == ["[0.0, 1.0, 2.0, 3.0]"] * 2


def test_large_arrays_pass_in_one_piece(pair: Group) -> None:
    script = """
        seen = []
        def more(y):
            seen.append(y.shape)
            return np.asarray(y) + 1
        y = mapped(lambda v: jax.pure_callback(more, v, v), out=P("d"))(sharded(np.arange(12e6, dtype=np.float32)))
        print([shard.data[0].item() for shard in y.addressable_shards], seen)
    """
    sizes = [(3000000,), (3000000,)]
    assert pair.printed(script) == [f"[{k}.0, {k + 3000000}.0] {sizes}" for k in (1, 6000001)]


@pytest.mark.exhaustive
def test_a_process_that_ends_in_its_function_ends_the_call() -> None:
    script = """
        def ends(x):
            if PROCESS == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return np.asarray(x)
        def step(v):
            return jax.lax.psum(jax.pure_callback(ends, v, v), "d")
        print(caught(lambda: here(mapped(step)(sharded(np.arange(4.0))))).splitlines()[0])
        print(jax.jit(lambda v: v + 1)(np.arange(3)))
        caught(jax.effects_barrier)
    """
    group = Group(2, devices=2)
    group.printed("require_right_total()")
    for member in group.members:
        member.send(textwrap.dedent(script))
    try:
        group.members[0].answer()
        told, local = group.members[0].told["printed"].splitlines()
    finally:
        for member in group.members:
            member.popen.kill()  # JAX would wait for the other one
        group.close()
    assert "lost: process 1 was ended by SIGKILL during its call 2 (step, script.py:8)" in told
    assert "whose devices call its functions" in told
    assert local == "[1 2 3]"
