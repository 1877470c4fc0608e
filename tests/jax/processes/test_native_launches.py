"""Calls that JAX processes issue natively: that they do, beside calls of the queue, and what comes of those that can't
go on. native_launches.py and board_calls.py, with the owner's side of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jax.processes.group import Group

pytestmark = pytest.mark.cluster

BEGIN = """
from distxla.jax.pjrt import handles
from distxla.jax.pjrt.client import Client
require_right_total()
(client,) = [owner for owner, _ in list(handles.objects.values()) if isinstance(owner, Client)]
queue, gate = client.cluster.queue, client.direct()._gate
local = jax.jit(lambda v: v * 2 + 1)
x, mine = sharded(np.arange(4.0)), jax.device_put(np.float32(1), jax.local_devices()[0])

def warm(function, *args):
    for _ in range(4):
        jax.block_until_ready(function(*args))

def native(function, *args):  # of so many calls
    before = gate.issued
    for _ in range(50):
        found = jax.block_until_ready(function(*args))
    return found, gate.issued - before

warm(total, x)
warm(local, mine)
"""


def printed(group: Group, *bodies: str) -> list[str]:
    """What processes print that run such scripts behind BEGIN, and then have a right call."""
    indents = [len(body) - len(body.lstrip()) - 1 for body in bodies]
    begins = [BEGIN.replace("\n", "\n" + " " * indent) for indent in indents]
    ends = ["\n" + " " * indent + "require_right_total()\n" for indent in indents]
    return group.printed(*(begin + body + end for begin, body, end in zip(begins, bodies, ends)))


def test_calls_that_go_well_are_native(pair: Group) -> None:
    """But for those that come while another process has made the queue take one."""
    for told in printed(
        pair,
        """
        for _ in range(20):
            (a, of_all), (b, of_one) = native(total, x), native(local, mine)
            if min(of_all, of_one) > 25:
                break
            multihost_utils.sync_global_devices("again")  # all make as many calls
        print(here(a), float(b), min(of_all, of_one) > 25)
        """,
    ):
        assert told.startswith("[[6.0], [6.0]] 3.0")


@pytest.fixture(scope="module")
def alone() -> Iterator[Group]:
    """Processes of which no test before has made the owner take a call."""
    with Group(2, devices=1) as group:
        yield group


def test_no_frame_is_sent_for_native_calls(alone: Group) -> None:
    """The owner is told of nothing while all goes well, however many there are."""
    script = """
        x = sharded(np.arange(2.0))
        warm(total, x)
        connection, sent = client.cluster._connection, []
        send = connection.send_now
        connection.send_now = lambda frame, payload=(): sent.append(frame.NAME) or send(frame, payload)
        try:
            for _ in range(50):
                sent.clear()
                before = gate.issued
                for _ in range(10):
                    y = jax.block_until_ready(total(x))
                    z = jax.block_until_ready(local(mine))
                were_native = gate.issued - before == 20
                silent = were_native and not sent
                votes = here(total(sharded(np.full(2, float(silent)))))
                if votes == [[2.0]]:
                    break
            print(votes, here(y), float(z))
        finally:
            del connection.send_now
    """
    assert printed(alone, script) == ["[[2.0]] [[1.0]] 3.0"] * 2


def test_native_calls_beside_calls_of_the_queue(pair: Group) -> None:
    """New programs, and results that are too large for native calls, amid chains with donated arguments."""
    script = """
        step = jax.jit(
            jax.shard_map(
                lambda s, v: (s + jax.lax.psum(v, "d"), v + 1),
                mesh=MESH, in_specs=(P(), P("d")), out_specs=(P(), P("d")),
            ),
            donate_argnums=(0, 1),
        )
        large = mapped(lambda v: jax.lax.psum(jnp.broadcast_to(v, (3 << 20,)), "d"))
        s, v = jax.device_put(np.zeros(1, np.float32), NamedSharding(MESH, P())), sharded(np.zeros(4, np.float32))
        before = gate.issued
        for k in range(60):
            former = s
            s, v = step(s, v)
            assert former.is_deleted()
            if k % 20 == 7:
                assert here(large(x))[0][:2] == [6.0, 6.0]
            if k % 20 == 13:
                other = mapped(lambda v, k=k: jax.lax.psum(v * k, "d"))
                assert here(other(x)) == [[6.0 * k]] * 2
            if k % 3 == PROCESS:
                mine = local(mine) % 5
        print(here(s), here(v), gate.issued > before)
    """
    assert printed(pair, script) == ["[[7080.0], [7080.0]] [[60.0], [60.0]] True"] * 2


def test_another_order_is_told(pair: Group) -> None:
    script = """
        def double(v): return jax.lax.psum(2 * v, "d")
        other = mapped(double)
        warm(other, x)
        calls = [total, other] if PROCESS else [other, total]
        for answer in [caught(lambda call=call: here(call(x))) for call in calls]:
            print(answer)
    """
    for told in printed(pair, script):
        assert told.count("mismatch: processes disagree in call") == 2
        assert "process 0 calls double (script.py:" in told


def test_the_line_of_a_native_call_is_the_users(pair: Group) -> None:
    """As JAX tells it, also where one of its functions makes the call."""
    script = """
        warm(jnp.sin, x)
        warm(jnp.cos, x)
        def step():
            return (jnp.sin if PROCESS else jnp.cos)(x)
        answer = caught(lambda: here(step()))
        print(answer)
    """
    line = BEGIN.count("\n") + 5
    for told in printed(pair, script):
        assert f"process 0 calls cos (script.py:{line})" in told
        assert f"process 1 calls sin (script.py:{line})" in told


def test_a_process_that_is_busy_is_waited_for(pair: Group) -> None:
    """Its program lasts longer than a call may before the owner is asked."""
    script = """
        turn = lambda c: (c[0] + 1, jnp.sin(c[1]))
        spin = jax.jit(lambda n: jax.lax.while_loop(lambda c: c[0] < n, turn, (0, 1.0))[0])
        n = jax.device_put(np.int32(10), jax.local_devices()[0])
        warm(spin, n)
        for _ in range(3):
            if PROCESS:
                print(int(spin(jax.device_put(np.int32(3_000_000), jax.local_devices()[0]))))
            print(here(total(x)))
    """
    assert printed(pair, script) == [
        "[[6.0], [6.0]]\n" * 2 + "[[6.0], [6.0]]",
        "\n".join(["3000000\n[[6.0], [6.0]]"] * 3),
    ]


def test_handlers_that_raise_amid_waits_end_no_call(pair: Group) -> None:
    first = """
        class Stop(Exception):
            pass
        def stop(number, frame):
            raise Stop
        former, stops = signal.signal(signal.SIGALRM, stop), 0
        y = total(x)
        for k in range(10):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.02 * (k + 1))
                np.asarray(y.addressable_shards[0].data)
            except Stop:
                stops += 1
        signal.signal(signal.SIGALRM, former)
        barrier("stopped")
        print(here(y), stops)
    """
    second = """
        barrier("stopped")
        print(here(total(x)))
    """
    assert printed(pair, first, second) == ["[[6.0], [6.0]] 10", "[[6.0], [6.0]]"]
