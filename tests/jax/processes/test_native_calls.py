"""Calls that processes issue themselves, and their owner: it has nothing to do with those that go well, and answers
those that don't (launch_logs.py, taken_calls.py)."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import distxla as dx
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.launch_board import Arrival
from distxla.errors import ClusterError, ExecutionError
from distxla.jax.processes import late, messages
from distxla.ops.custom_calls import user
from tests.jax.processes.fake_process_cases import Served, summing
from tests.jax.processes.native_process_cases import NativeProcess, stepping
from tests.jax.processes.slices_cases import Gate
from tests.stopwatch import eventually

pytestmark = pytest.mark.cluster
TOTAL = [10.0 + 2 * 6] * 2  # of 1 + the device, times 2, of four devices: 2 * (4 + 6)
ONE_AND_TWO = {0: ((0, 1),), 1: ((2, 3),)}


def broken(x: Any) -> Any:
    raise ValueError("broken")


@pytest.fixture(scope="module", autouse=True)
def issuing() -> Iterator[None]:
    dx.register_custom_call("broken_natively", broken)
    yield
    user.registered.clear()


class Both:
    """Two processes, and their owner. is_right: `require_right` has found nothing."""

    def __init__(self, folder: Path) -> None:
        self.served = Served(device_memory="256MiB", issues_all=False)
        joined = [self.served.join(0), self.served.join(1)]
        self.each = [NativeProcess(process) for process in joined]
        self.folder, self._numbers = folder, itertools.count()
        self.is_right = True

    def gate(self) -> Gate:
        name = f"native_gate{next(self._numbers)}"
        return Gate(name, self.folder / name)

    def programs(self, given: Any) -> list[Any]:
        return [process.program(given) for process in self.each]

    def require_right(self) -> None:
        """The next call of both runs, and nobody is told of it."""
        programs = self.programs(summing())
        calls = [process.call(program, 70) for process, program in zip(self.each, programs)]
        for process, call in zip(self.each, calls):
            assert process.done(call) == [20.0] * 2
            assert process.process.is_told_nothing()
        self.is_right = True

    def call(self, programs: list[Any], line: int = 10) -> list[Any]:
        return [process.call(program, line) for process, program in zip(self.each, programs)]


@pytest.fixture(scope="module")
def kept() -> Iterator[list[Both]]:
    """Those that the next test uses, too."""
    found: list[Both] = []
    yield found
    for both in found:
        both.served.end()


@pytest.fixture
def both(kept: list[Both], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Kept for the next test where this one leaves them as they were: a test that fails fails alone."""
    if not kept:
        kept.append(Both(tmp_path_factory.mktemp("gates")))
    (found,) = kept
    kept.clear()
    found.is_right = False
    yield found
    if found.is_right:
        kept.append(found)
    else:
        found.served.end()


def gated(gate: Gate) -> Any:
    return stepping(f'custom-call(v), custom_call_target="{gate.name}"', "gated")


def test_calls_that_go_well_are_told_by_nobody_and_are_in_the_history(both: Both) -> None:
    programs = both.programs(summing())
    for _ in range(100):
        for process, call in zip(both.each, both.call(programs)):
            assert process.done(call) == [20.0] * 2
    assert all(process.process.is_told_nothing() for process in both.each)
    calls = both.served.owner.calls
    assert not calls.look(0)
    for process in range(2):
        found = calls.ledger.history(process, 3)
        assert [(call.number, str(call)) for call in found] == [(k, "total (train.py:10)") for k in (98, 99, 100)]
    both.require_right()


def test_a_call_that_lasts_is_taken_over(both: Both) -> None:
    gate = both.gate()
    calls = both.call(both.programs(gated(gate)))
    for _ in range(2):
        for process, call in zip(both.each, calls):
            process.complain(call, messages.SLOW)
    cluster = both.served.owner.cluster
    assert eventually(lambda: gate.is_reached and cluster.is_held(0) and cluster.is_held(1))
    gate.open()
    for process, call in zip(both.each, calls):
        process.over(call)
        assert process.results() == [40.0] * 2
    both.require_right()


def test_calls_of_processes_apart_run_at_once(both: Both) -> None:
    gate = both.gate()
    one, other = both.each
    step = f'custom-call(v), custom_call_target="{gate.name}"'
    long = one.call(one.program(stepping(step, "long", "0,1"), ONE_AND_TWO[0]))
    one.complain(long, messages.SLOW)
    assert eventually(lambda: gate.is_reached and both.served.owner.cluster.is_held(0))
    short = other.program(stepping("negate(v)", "short", "0,1"), ONE_AND_TWO[1])
    for _ in range(3):
        assert other.done(other.call(short)) == [-14.0] * 2
    by_owner = other.process.compile(stepping("negate(v)", "short", "0,1"), rows=ONE_AND_TWO[1], checks=("nan",))
    assert not by_owner.facts.native
    gate.open()
    one.over(long)
    both.require_right()


def test_another_program_is_a_mismatch_at_once(both: Both) -> None:
    (f, _), (_, g) = both.programs(summing("2", "f")), both.programs(summing("3", "g"))
    one, other = both.each
    calls = [one.call(f, 29), other.call(g, 31)]
    assert other.arrival == Arrival.DIFFERS
    other.complain(calls[1], messages.DISAGREES)
    for process, call in zip(both.each, calls):
        told = process.refused(call)
        assert "CollectiveMismatchError" in told
        assert "process 0 calls f (train.py:29), process 1 calls g (train.py:31)" in told
        assert "function: process 0 has f, process 1 has g" in told
    both.require_right()


def test_another_order_is_told_with_what_comes_next(both: Both) -> None:
    f, g = both.programs(summing("2", "f")), both.programs(summing("3", "g"))
    one, other = both.each
    first = [one.call(f[0], 29)]
    one.submit(g[0], 30)
    one.program(summing())  # answered behind that: the owner knows it before the order is seen to differ
    first.append(other.call(g[1], 31))
    other.submit(f[1], 32)
    other.complain(first[1], messages.DISAGREES)
    for process, call in zip(both.each, first):
        assert "process 0 calls g next, at train.py:30: the order differs" in process.refused(call)
    second = (first[0][0], first[0][1] + 1)
    for process in both.each:
        assert "processes disagree" in process.refused(second)
    both.require_right()


def test_a_native_call_and_one_by_frames_meet(both: Both) -> None:
    programs = both.programs(summing())
    one, other = both.each
    issue = other.submit(programs[1])
    call = one.call(programs[0])
    assert one.arrival == Arrival.WAITS
    one.complain(call, messages.SLOW)  # nothing to be done
    both.programs(summing())  # answered behind that: the owner has seen it before the other one comes
    assert issue() == call
    assert one.done(call) == other.done(call) == [20.0] * 2
    both.require_right()


def test_lines_that_differ_are_told_with_a_later_error(both: Both) -> None:
    programs = both.programs(summing())
    one, other = both.each
    for _ in range(70):  # more than logs keep
        calls = [one.call(programs[0], 41), other.call(programs[1], 54)]
        for process, call in zip(both.each, calls):
            process.done(call)
    call = one.call(programs[0], 42)
    skips = other.submit(programs[1], 42)
    assert skips is not None
    other.process.trouble(call, messages.SKIPPED, ClusterError("no memory"))
    told = one.refused(call)
    assert "process 1 can't take part in call" in told
    assert "process 0 at train.py:41, process 1 at train.py:54" in told
    other.refused(call)
    both.require_right()


def test_a_call_that_fails_is_told_to_both_and_the_next_one_runs(both: Both) -> None:
    programs = both.programs(stepping('custom-call(v), custom_call_target="broken_natively"', "fails"))
    calls = both.call(programs)
    assert eventually(lambda: any(p.control.load(control_words.H_ABORT, p.header) for p in both.each))
    aborted = next(p for p in both.each if p.control.load(control_words.H_ABORT, p.header))
    aborted.complain(calls[0], messages.ABORTED)
    for process, call in zip(both.each, calls):
        with pytest.raises(ExecutionError, match=r"on device \d \(process \d\): .*ValueError: broken"):
            process.over(call)
    both.require_right()


def test_processes_are_held_until_devices_of_a_failed_call_are_back(both: Both) -> None:
    gate = both.gate()
    first, begun, opened = (str(both.folder / f"{gate.name}.{part}") for part in ("first", "begun", "opened"))

    def one_fails(x: Any) -> Any:
        try:
            os.mkdir(first)
        except FileExistsError:
            Path(begun).touch()
            while not Path(opened).exists():
                threading.Event().wait(0.005)
            return x
        while not Path(begun).exists():
            threading.Event().wait(0.005)
        raise ValueError("the first")

    dx.register_custom_call("one_fails", one_fails)
    calls = both.call(both.programs(stepping('custom-call(v), custom_call_target="one_fails"', "late")))
    cluster = both.served.owner.cluster
    both.each[0].complain(calls[0], messages.SLOW)
    for process, call in zip(both.each, calls):
        with pytest.raises(ExecutionError, match="ValueError: the first"):
            process.process.over(call)
    assert cluster.is_held(0)
    assert cluster.is_held(1)
    Path(opened).touch()
    assert eventually(lambda: not cluster.is_held(0) and not cluster.is_held(1))
    both.require_right()


def test_an_interrupt_ends_a_call_that_runs_for_both(both: Both) -> None:
    loop = """while(v), condition=always, body=same"""
    given = stepping(loop, "endless")
    text = given.short_text.replace(
        "ENTRY main",
        "same {\n  v = f32[4]{0} parameter(0)\n  z = f32[4]{0} multiply(v, v)\n  ROOT y = f32[4]{0} all-reduce(z), "
        "channel_id=7, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add\n}\n\n"
        "always {\n  v = f32[4]{0} parameter(0)\n  ROOT t = pred[] constant(true)\n}\n\nENTRY main",
    )
    calls = both.call(both.programs(given.__class__(**{**vars(given), "short_text": text})), 33)
    one, other = both.each
    one.complain(calls[0], messages.SLOW)
    assert eventually(lambda: both.served.owner.cluster.is_held(0))
    other.process.trouble(calls[1], messages.INTERRUPTED, ClusterError("interrupted"))
    for process, call in zip(both.each, calls):
        with pytest.raises(ClusterError, match=r"process 1 was interrupted in jit_endless \(train.py:33\)"):
            process.over(call)
    both.require_right()


def test_an_interrupt_ends_the_wait_for_another_process(both: Both) -> None:
    (program, _) = both.programs(summing())
    one, other = both.each
    call = one.call(program, 44)
    one.process.trouble(call, messages.INTERRUPTED, ClusterError("interrupted"))
    told = [process.refused(call) for process in both.each]
    assert all("process 0 can't take part in call" in text and "interrupted" in text for text in told)
    other.call(both.programs(summing())[1], 45)
    assert other.arrival == Arrival.REFUSED
    other.withdraw((call[0], call[1]))
    both.require_right()


def test_one_that_is_late_is_told_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "LOOK_S", 3600.0)  # the owner does not look by itself
    found = Both(Path("/nonexistent"))
    try:
        (program, second) = found.programs(summing())
        one, other = found.each
        call = one.call(program, 44)
        calls = found.served.owner.calls
        calls.look(0)
        (notice,) = calls.look(1.5)
        assert (notice.waiting, notice.late, str(notice.call)) == (0, 1, "total (train.py:44)")
        assert other.call(second, 44) == call
        assert one.done(call) == other.done(call) == [20.0] * 2
        assert not calls.look(2)
        found.require_right()
    finally:
        found.served.end()


def test_one_that_dies_after_it_has_come_to_a_call() -> None:
    """Where all have, the call runs; else it is lost, and so are later ones."""
    found = Both(Path("/nonexistent"))
    try:
        one, other = found.each
        programs = found.programs(summing())
        first, call = other.call(programs[1], 20), one.call(programs[0], 20)
        assert other.done(first) == one.done(call) == [20.0] * 2
        other.call(programs[1], 21)
        other.close()
        lost = call[0], call[1] + 1
        told = one.refused(lost)
        assert "ReplicaLostError: process 1 was lost in its call 2 (total, train.py:21), before all had made it" in told
        assert one.call(programs[0], 21) == lost
        assert one.arrival == Arrival.REFUSED
        one.withdraw(lost)
        call = one.call(programs[0], 22)
        one.complain(call, messages.SLOW)
        told = one.refused(call)
        assert "process 1 was lost after its call 2 (total, train.py:21); process 0 calls total (train.py:22)" in told
    finally:
        found.served.end()


def test_a_replica_that_ends_while_a_process_waits_for_another() -> None:
    found = Both(Path("/nonexistent"))
    try:
        one = found.each[0]
        programs = found.programs(summing())
        for process, call in zip(found.each, found.call(programs)):
            process.done(call)
        call = one.call(programs[0])
        os.kill(found.served.owner.cluster.replicas_info[3][2], signal.SIGKILL)
        assert eventually(lambda: one.control.load(control_words.H_ABORT, one.header) != 0)
        one.complain(call, messages.ABORTED)
        for process in found.each:
            told = process.refused(call)
            assert "ReplicaLostError" in told
            assert "the replica of device 3" in told
            assert process.process.told_error["unusable"] is True
    finally:
        found.served.end()
