"""Calls of processes that have none in common run side by side, and fail apart."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.collectives.protocols import control_block as control_words
from distxla.jax.processes.owned_cluster import OwnedCluster
from distxla.ops.custom_calls import user
from distxla.runtime.arrays.executable import Executable
from tests.deadlock_programs import by_device, reduce
from tests.jax.processes.slices_cases import (
    MINE,
    SUM,
    SUM_OF_ALL,
    WHOLE,
    Gate,
    Running,
    X,
    compiled,
    gated,
    long_call,
    run_on,
)
from tests.stopwatch import eventually

pytestmark = pytest.mark.cluster

LEFT, RIGHT = "{{0,1}}", "{{1,0}}"
FAILING = {
    "an error": (
        by_device(
            f'v = f32[4] custom-call(p), custom_call_target="broken"\n{reduce("ROOT c", "v", WHOLE)}',
            reduce("ROOT c", "p", WHOLE),
        ),
        dx.ExecutionError,
    ),
    "a deadlock": (by_device(reduce("ROOT a", "p", LEFT), "ROOT n = f32[4] negate(p)"), dx.DeadlockError),
    "a mismatch": (
        by_device(
            reduce("ROOT a", "p", WHOLE),
            "ROOT c = f32[4] all-to-all(p), replica_groups={{0,1}}, dimensions={0}",
        ),
        dx.CollectiveMismatchError,
    ),
}


class Owned:
    """A cluster and the programs of these tests."""

    def __init__(self, cluster: OwnedCluster, folder: Path) -> None:
        self.cluster, self._folder = cluster, folder
        self._numbers = itertools.count()
        self.sums = [compiled(cluster, SUM, devices) for devices in MINE]
        self.sum_of_all = compiled(cluster, SUM_OF_ALL, range(4))
        self.stops: dict[tuple[int, ...], dx.DistxlaError] = {}
        self.asked: set[tuple[int, ...]] = set()
        cluster.stop_reason = self.stop_reason

    def stop_reason(self, members: Sequence[int]) -> dx.DistxlaError | None:
        self.asked.add(tuple(members))
        return self.stops.get(tuple(members))

    def gate(self) -> Gate:
        number = next(self._numbers)
        return Gate(f"gate{number}", self._folder / str(number))

    def long(self, process: int = 1) -> tuple[Executable, Gate]:
        gate = self.gate()
        return compiled(self.cluster, gated(gate.name), MINE[process]), gate

    def require_right(self, process: int) -> None:
        assert np.array_equal(run_on(self.cluster, [process], self.sums[process]), [2 * X, 2 * X])

    def require_all_right(self) -> None:
        assert np.array_equal(run_on(self.cluster, [0, 1], self.sum_of_all), [4 * X] * 4)

    def issued(self, executable: Executable, process: int) -> tuple[int, int]:
        """Write the commands as a process would; nothing starts."""
        assert executable.number is not None
        part = self.cluster.hosts.local.slices[process]
        ticket = part.issue({d: executable.number for d in executable.devices if d in part.devices}, 1)
        return ticket.sequence, ticket.target


def broken(x: Any) -> Any:
    raise ValueError("broken")


def after(gate: Gate) -> Callable[[Any], Any]:
    """Fails once another device is at the gate."""
    begun = str(gate.begun)

    def fail(x: Any) -> Any:
        while not Path(begun).exists():
            time.sleep(0.005)
        raise ValueError("late")

    return fail


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owned]:
    dx.register_custom_call("broken", broken)
    with OwnedCluster([range(2), range(2, 4)]) as cluster:
        cluster.wait_started()
        yield Owned(cluster, tmp_path_factory.mktemp("gates"))
    user.registered.clear()


def test_each_process_has_its_own_header(owned: Owned) -> None:
    facts = owned.cluster.attached_memory()
    assert len(set(facts.slices)) == 2
    assert all(facts.slices)
    control = owned.cluster.hosts.local.control
    before = [control.load(control_words.H_COMMAND, offset) for offset in facts.slices]
    owned.require_right(1)
    after = [control.load(control_words.H_COMMAND, offset) for offset in facts.slices]
    assert after == [before[0], before[1] + 1]
    owned.require_all_right()
    assert [control.load(control_words.H_COMMAND, offset) for offset in facts.slices] == [before[0] + 1, before[1] + 2]
    assert control.load(control_words.H_COMMAND) == 0


def test_a_call_does_not_wait_for_one_of_another_process(owned: Owned) -> None:
    program, gate = owned.long()
    with long_call(owned.cluster, program, gate):
        for _ in range(3):
            owned.require_right(0)
    owned.require_all_right()


@pytest.mark.parametrize("why", FAILING)
def test_a_failure_does_not_touch_the_call_of_another_process(owned: Owned, why: str) -> None:
    text, error = FAILING[why]
    bad = compiled(owned.cluster, text, MINE[0])
    program, gate = owned.long()
    with long_call(owned.cluster, program, gate):
        for _ in range(2):
            with pytest.raises(error):
                run_on(owned.cluster, [0], bad)
            owned.require_right(0)
    owned.require_all_right()


def test_a_call_that_is_to_stop_does_not_touch_that_of_another_process(owned: Owned) -> None:
    feeds = "t = token[] after-all()\nf = (f32[4], token[]) infeed(t)\nROOT v = f32[4] get-tuple-element(f), index=0"
    waits = compiled(owned.cluster, by_device(feeds, feeds), MINE[0])
    program, gate = owned.long()
    with long_call(owned.cluster, program, gate):
        stopped = Running(lambda: run_on(owned.cluster, [0], waits))
        control = owned.cluster.hosts.local.control
        assert eventually(
            lambda: (
                control.record(1, control_words.R_STATE) == control_words.ReplicaState.WAITING
                and control.record(1, control_words.R_WAITS_FOR)
                == control_words.WAITS_FOR_HOST + control_words.UNSIGNED
            )
        )
        owned.stops[0,] = dx.ClusterError("interrupted")
        try:
            with pytest.raises(dx.ClusterError, match="interrupted"):
                stopped.found()
        finally:
            owned.stops.clear()
        owned.require_right(0)
    owned.require_all_right()


def test_a_call_waits_for_devices_of_one_that_has_failed_on_a_part_of_them(owned: Owned) -> None:
    gate = owned.gate()
    late = f'ROOT c = f32[4] custom-call(p), custom_call_target="{gate.name}"'
    dx.register_custom_call("late", after(gate))
    text = by_device('ROOT c = f32[4] custom-call(p), custom_call_target="late"', late)
    bad = compiled(owned.cluster, text, MINE[0])
    with pytest.raises(dx.ExecutionError, match="late"):
        run_on(owned.cluster, [0], bad)
    owned.require_right(1)  # has no part in it
    owned.asked.clear()
    both = Running(owned.require_all_right)
    assert eventually(lambda: (0, 1) in owned.asked)
    assert owned.cluster.hosts.local.control.record(1, control_words.R_COMMAND_PROGRAM) == bad.number
    gate.open()
    both.found()
    owned.require_right(0)
    owned.require_right(1)


def test_programs_are_loaded_while_another_runs(owned: Owned) -> None:
    program, gate = owned.long()
    with long_call(owned.cluster, program, gate):
        other = compiled(owned.cluster, SUM_OF_ALL.replace("main", "other"), range(4))
        assert owned.cluster.load(other, range(2, 4)).devices == (2, 3)
    assert np.array_equal(run_on(owned.cluster, [0, 1], other), [4 * X] * 4)


def test_a_program_is_not_unloaded_while_it_may_run(owned: Owned) -> None:
    gone = compiled(owned.cluster, SUM.replace("main", "gone"), MINE[0])
    run_on(owned.cluster, [0], gone)
    number, loader = gone.number, owned.cluster.loader
    assert loader is not None
    sequence, target = owned.issued(gone, 0)
    loaded = loader.loaded[number or 0]
    assert owned.cluster.is_in_use(loaded)
    owned.cluster.take_over({0: (sequence, target)}, gone.devices)
    assert not owned.cluster.is_in_use(loaded)


def test_a_held_process(owned: Owned) -> None:
    facts, control = owned.cluster.attached_memory(), owned.cluster.hosts.local.control
    for process in range(2):
        assert not owned.cluster.is_held(process)
        owned.cluster.hold(process)
        owned.cluster.hold(process)
        held = [control.load(control_words.H_HOLD, offset) != 0 for offset in facts.slices]
        assert held == [process == 0, process == 1]
        assert owned.cluster.is_held(process)
        owned.cluster.let_go(process)
    assert not any(control.load(control_words.H_HOLD, offset) for offset in facts.slices)


@pytest.mark.parametrize("starts", [(), (0,), (0, 1)])
def test_a_call_that_processes_have_issued_is_taken_over(owned: Owned, starts: tuple[int, ...]) -> None:
    """Whether it was started by all of them, or by some."""
    owned.require_all_right()  # its call area has places of results
    parts = {process: owned.issued(owned.sum_of_all, process) for process in range(2)}
    for process in starts:
        part = owned.cluster.hosts.local.slices[process]
        assert part.native_call is not None
        part.native_call(part.address, parts[process][0], control_done(owned, process), 0)
    owned.cluster.take_over(parts, range(4))
    owned.require_all_right()


def control_done(owned: Owned, process: int) -> int:
    part = owned.cluster.hosts.local.slices[process]
    return part.control.load(control_words.H_DONE, part.offset)


def test_what_a_failed_call_raises_that_a_process_has_issued(owned: Owned) -> None:
    text, error = FAILING["an error"]
    bad = compiled(owned.cluster, text, MINE[0])
    with pytest.raises(error):
        run_on(owned.cluster, [0], bad)
    program, gate = owned.long()
    part = owned.cluster.hosts.local.slices[0]
    with long_call(owned.cluster, program, gate):
        issued = owned.issued(bad, 0)
        with pytest.raises(error):
            owned.cluster.take_over({0: issued}, bad.devices, [bad])
        assert part.control.load(control_words.H_FAILED, part.offset) == issued[0]
        owned.require_right(0)
        assert part.control.load(control_words.H_FAILED, part.offset) == issued[0]


def test_a_process_that_has_left_a_call_is_not_waited_for(owned: Owned) -> None:
    ends = compiled(owned.cluster, by_device("ROOT n = f32[4] negate(p)", "ROOT n = f32[4] negate(p)"), [0, 2])
    run_on(owned.cluster, [0, 1], ends)
    parts = {process: owned.issued(ends, process) for process in range(2)}
    owned.cluster.take_over({1: parts[1]}, ends.devices)
    owned.require_right(1)
    owned.cluster.take_over({0: parts[0]}, ends.devices)
    owned.require_all_right()


def test_commands_that_will_never_start_are_withdrawn(owned: Owned) -> None:
    owned.require_right(0)
    sequence, _ = owned.issued(owned.sums[0], 0)
    owned.cluster.withdraw(0)
    control = owned.cluster.hosts.local.control
    assert [control.record(device, control_words.R_COMMAND_KIND) for device in MINE[0]] == [0, 0]
    assert all(control.record(device, control_words.R_COMMAND_SEQUENCE) != sequence for device in MINE[0])
    owned.require_right(0)
    owned.require_all_right()


def test_a_replica_that_ends_ends_the_calls_of_all_processes(tmp_path: Path) -> None:
    """Nothing can be called any more, as in one process."""
    with OwnedCluster([range(2), range(2, 4)]) as cluster:
        cluster.wait_started()
        found = Owned(cluster, tmp_path)
        (first, left), (second, right) = found.long(0), found.long(1)
        running = [Running(lambda: run_on(cluster, [0], first)), Running(lambda: run_on(cluster, [1], second))]
        while not (left.is_reached and right.is_reached):
            assert all(one.is_alive() for one in running)
        cluster.hosts.local.kill([1])
        left.open()
        right.open()
        with pytest.raises(dx.ReplicaLostError, match="device 1"):
            running[0].found()
        with contextlib.suppress(dx.ReplicaLostError):
            running[1].found()  # it may have been over before that was seen
        with pytest.raises(dx.ReplicaLostError, match="device 1"):
            found.require_right(1)
    user.registered.clear()
