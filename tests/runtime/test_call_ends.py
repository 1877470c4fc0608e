"""The end of a call that does not end well: nothing of it may count for the next one."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.transports.shared_memory.transport import SharedMemory
from distxla.errors import DeadlockError
from distxla.ops.custom_calls import user
from distxla.runtime.calls import dispatch
from distxla.runtime.calls.dispatch import Dispatcher
from distxla.runtime.cluster import Cluster
from distxla.runtime.hosts.local import LocalHost
from distxla.runtime.hosts.slice import Slice
from distxla.text.parser import parse_module
from tests.runtime import hand_made
from tests.stopwatch import Stopwatch

DEVICES = 2
X = np.arange(4, dtype=np.float32)


@pytest.fixture
def host() -> Iterator[LocalHost]:
    """Without replicas: the test writes what they would write."""
    made = LocalHost(0, "here", range(DEVICES), DEVICES, 1 << 21)
    yield made
    made.close()


def kind(host: LocalHost, device: int) -> int:
    return host.control.record(device, control_words.R_COMMAND_KIND)


def test_a_device_that_has_not_counted_itself_yet_is_waited_for(host: LocalHost) -> None:
    block = host.control
    ticket = host.calls.issue(dict.fromkeys(range(DEVICES), 0), 1)
    block.store(control_words.H_COMMAND, ticket.sequence)  # as starting it does
    for device in range(DEVICES):
        block.store(control_words.R_COMMAND_KIND, control_words.CommandKind.NONE, control_words.record_offset(device))
    block.configure(control_words.H_DONE, ticket.target - 1)

    def count() -> None:
        block.configure(control_words.H_DONE, ticket.target)

    late = threading.Timer(0.2, count)
    late.start()
    host.calls.end(range(DEVICES))
    assert block.load(control_words.H_DONE) == ticket.target
    late.join()


def test_a_call_that_was_not_started_is_withdrawn(host: LocalHost) -> None:
    before = host.control.load(control_words.H_COMMAND)
    ticket = host.calls.issue({1: 0}, 1)
    watch = Stopwatch()
    host.calls.end([1])
    assert watch.seconds < 1  # nobody was waited for
    assert kind(host, 1) == control_words.CommandKind.NONE
    again = host.calls.issue({0: 0}, 1)
    assert again.sequence == ticket.sequence == before + 1
    assert host.control.record(1, control_words.R_COMMAND_SEQUENCE) != again.sequence  # device 1 has no part in it


def test_a_call_whose_commands_are_half_written_is_withdrawn(host: LocalHost) -> None:
    class Interrupted(dict[int, int]):
        def items(self) -> Any:
            yield 1, 0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        host.calls.issue(Interrupted({1: 0, 0: 0}), 1)
    assert kind(host, 1) == control_words.CommandKind.RUN
    watch = Stopwatch()
    host.calls.end(range(DEVICES))
    assert watch.seconds < 1
    assert [kind(host, device) for device in range(DEVICES)] == [control_words.CommandKind.NONE] * DEVICES


@pytest.mark.cluster
def test_an_interrupt_before_the_start_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(DEVICES) as cluster:
        step = hand_made.adopted(cluster, hand_made.add_one(DEVICES))
        step([X])

        def interrupted(self: Slice, nanoseconds: int) -> int:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Slice, "wait", interrupted)
            watch = Stopwatch()
            with pytest.raises(KeyboardInterrupt):
                step([X])
            assert watch.seconds < 2  # 3 s later the replicas would have been killed
        outs = step([X])
        assert all(np.array_equal(np.asarray(row[0]), X + 1) for row in outs)


@pytest.mark.cluster
def test_an_interrupt_while_a_failure_is_looked_at_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = 'ENTRY main {\n  x = f32[4] parameter(0)\n  ROOT r = f32[4] custom-call(x), custom_call_target="fails"\n}\n'

    def failing(x: Any) -> Any:
        raise ValueError

    def interrupted(self: Dispatcher, records: Any, devices: Any) -> Any:
        raise KeyboardInterrupt

    user.register_custom_call("fails", failing)
    try:
        with Cluster(DEVICES) as cluster:
            step, bad = (
                hand_made.adopted(cluster, hand_made.add_one(DEVICES)),
                cluster.compile(parse_module(fails, "fails.hlo")),
            )
            step([X])
            with monkeypatch.context() as patched:
                patched.setattr(Dispatcher, "post_mortem", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    bad([X])
            assert all(np.array_equal(np.asarray(row[0]), X + 1) for row in step([X]))
    finally:
        user.registered.clear()


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_a_script_ends_without_a_word() -> None:
    script = f"""
import numpy as np, distxla as dx
with dx.Cluster({DEVICES}) as cluster:
    step = cluster.compile(dx.parse("ENTRY e {{ ROOT p = f32[4] parameter(0) }}"))
    outs = step([[np.ones(4, np.float32)]] * {DEVICES})
print(np.asarray(outs[0][0]))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[1. 1. 1. 1.]\n", "")


DEADLOCK = """
ENTRY main {
  x = f32[4] parameter(0)
  token = token[] after-all()
  r = (f32[4], u32[], token[]) recv(token), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}
  rd = (f32[4], token[]) recv-done(r), channel_id=1
  s = (f32[4], u32[], token[]) send(x, token), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}, control-predecessors={rd}
  sd = token[] send-done(s), channel_id=1
  ROOT left = f32[4] get-tuple-element(rd), index=0
}
"""  # noqa: E501


@pytest.mark.cluster
@pytest.mark.parametrize("method", ["release", "reset"])
def test_an_interrupt_amid_the_end_of_a_failed_call_leaves_the_rest_to_the_next(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: SharedMemory, *arguments: Any) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with Cluster(DEVICES) as cluster:
        step, bad = (
            hand_made.adopted(cluster, hand_made.add_one(DEVICES)),
            cluster.compile(parse_module(DEADLOCK, "deadlock.hlo")),
        )
        monkeypatch.setattr(SharedMemory, method, interrupted)
        # where other processes take the time, devices are late, and what follows is the next call's
        monkeypatch.setattr(dispatch, "PATIENCE_S", 60.0)
        with pytest.raises(KeyboardInterrupt):
            bad([X])
        assert all(np.array_equal(np.asarray(row[0]), X + 1) for row in step([X]))
        with pytest.raises(DeadlockError):
            bad([X])
