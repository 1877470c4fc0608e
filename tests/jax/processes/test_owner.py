"""The owner of the devices, and processes that talk to it: what they get, and what is refused."""

from __future__ import annotations

import gc
import math
import os
import signal
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distxla.compiler.cache_folder import CacheFolder, cache_folder, cache_limit
from distxla.errors import ClusterError, CollectiveMismatchError, DistxlaError, PartitioningError, ReplicaLostError
from distxla.jax.partitioner.early_start import Needed
from distxla.jax.partitioner.partition_server import SERVER
from distxla.jax.private.names import PartitionerOptions
from distxla.jax.processes import messages, owned_calls, owner
from distxla.jax.processes.launches import LaunchSite
from distxla.jax.processes.messages import pack_json, unpack_json
from distxla.jax.processes.owner import HANDLERS
from distxla.jax.processes.places import Stack
from distxla.jax.processes.told_errors import pack_error
from tests.jax.processes.fake_process_cases import LOCAL, FakeProcess, Served, summing


@pytest.fixture(scope="module")
def served():
    found = Served()
    yield found
    found.end()
    assert {"attached": 2} in found.news[:3]


@pytest.fixture(scope="module")
def both(served):
    """Two attached processes."""
    found = [served.join(0), served.join(1)]
    for process in found:
        process.attached()
    return found


def run(processes: list[FakeProcess], programs: list[object], offset: int = 0) -> list[np.ndarray]:
    """A call of both, whose argument is the device's number: the results of all devices."""
    calls = [process.launch(program) for process, program in zip(processes, programs)]
    segments = {}
    for process, call in zip(processes, calls):
        rows = []
        for device in range(LOCAL * process.process, LOCAL * (process.process + 1)):
            memory = process.segment(device)
            begin = process.memory.device_bytes + offset
            memory.bytes[begin : begin + 16].view(np.float32)[:] = device + 1
            rows.append([begin, begin + 64])
            segments[device] = memory, begin + 64
        process.ready(call, rows)
    for process, call in zip(processes, calls):
        process.over(call)
    return [memory.bytes[at : at + 16].view(np.float32).copy() for memory, at in segments.values()]


def test_a_program_is_compiled_once_and_runs_on_the_devices_of_both(both) -> None:
    first, second = (process.compile(summing(line=12 + process.process)) for process in both)
    assert first.program == second.program
    assert first.facts.fingerprint == second.facts.fingerprint
    assert (first.facts.members, first.facts.set) == ((0, 1), second.facts.set)
    loaded = [process.load(first.program) for process in both]
    assert [one.devices for one in loaded] == [(0, 1), (2, 3)]
    assert loaded[0].number == loaded[1].number
    for _ in range(3):
        np.testing.assert_array_equal(run(both, [first, second]), np.full((4, 4), 20, np.float32))


def test_a_module_is_partitioned_once_for_both(both) -> None:
    text = b"""HloModule whole, num_partitions=4
ENTRY main {
  x = f32[8] parameter(0), sharding={devices=[4]<=[4]}
  ROOT y = f32[8] negate(x), sharding={devices=[4]<=[4]}
}
"""
    options = PartitionerOptions(4, 1, False, (False,), (False,))
    before, answers = SERVER.answered, []
    threads = [threading.Thread(target=lambda p=p: answers.append(p.partition(text, options))) for p in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers[0] == answers[1] == both[1].partition(text, options)
    assert answers[0].parameter_shardings == ("{devices=[4]<=[4]}",)
    assert SERVER.answered - before <= 1  # 0 where the cache has it of an earlier run
    with pytest.raises(PartitioningError):
        both[0].partition(b"HloModule broken", options)


def test_another_constant_is_another_program_and_both_are_told(both) -> None:
    first, second = both[0].compile(summing("2")), both[1].compile(summing("3"))
    assert first.program != second.program
    sites = [LaunchSite(f"w{process}.py", 29, "f") for process in (0, 1)]
    calls = [process.launch(one, site) for process, one, site in zip(both, (first, second), sites)]
    for process, call in zip(both, calls):
        with pytest.raises(CollectiveMismatchError, match=r"w0\.py:29.*w1\.py:29"):
            process.over(call)
    np.testing.assert_array_equal(run(both, [first, first]), np.full((4, 4), 20, np.float32))


def test_another_order_is_told_before_anything_is_ready(both) -> None:
    f, g = (
        (process.compile(summing("5", "f")) for process in both),
        (both[0].compile(summing("7", "g")), both[1].compile(summing("7", "g"))),
    )
    f = tuple(f)
    calls = [(both[0].launch(f[0]), both[0].launch(g[0])), (both[1].launch(g[1]), both[1].launch(f[1]))]
    for process, two in zip(both, calls):
        for call in two:
            with pytest.raises(CollectiveMismatchError, match="processes disagree"):
                process.over(call)
    np.testing.assert_array_equal(run(both, list(f)), np.full((4, 4), 50, np.float32))


def test_a_program_of_one_process_runs_without_the_other(both) -> None:
    text = summing().short_text.replace("{0,1,2,3}", "{0,1}").replace("num_partitions=4", "num_partitions=2")
    alone = both[1].compile(
        summing().__class__(**{**vars(summing()), "short_text": text, "partitions": 2}), rows=((2, 3),)
    )
    assert alone.facts.members == (1,)
    assert both[1].load(alone.program).devices == (2, 3)
    np.testing.assert_array_equal(run([both[1]], [alone]), np.full((2, 4), 14, np.float32))


def test_a_process_that_cannot_run_its_call_ends_it_for_the_other(both) -> None:
    programs = [process.compile(summing()) for process in both]
    calls = [process.launch(program) for process, program in zip(both, programs)]
    both[0].trouble(calls[0], messages.SKIPPED, ClusterError("its argument is gone"))
    for process, call in zip(both, calls):
        with pytest.raises(DistxlaError, match="its argument is gone"):
            process.over(call)
    np.testing.assert_array_equal(run(both, programs), np.full((4, 4), 20, np.float32))


def test_a_program_whose_call_was_refused_before_the_other_came_goes_with_its_last_holder(served, both) -> None:
    programs = [process.compile(summing("13")) for process in both]
    call = both[0].launch(programs[0])
    both[0].trouble(call, messages.SKIPPED, ClusterError("its argument is gone"))
    for process in both:
        with pytest.raises(DistxlaError, match="its argument is gone"):
            process.over(call)
    both[1].launch(programs[1])
    executable = weakref.ref(served.owner.programs.executable(programs[0].program))
    for process in both:
        process.connection.send(messages.Drop(programs[0].program))
        with pytest.raises(ClusterError):  # and so the frames before have been handled
            process.load(999)
    gc.collect()
    assert executable() is None


def test_wrong_rows_are_an_error_in_both_and_the_next_call_runs(both) -> None:
    programs = [process.compile(summing()) for process in both]
    calls = [process.launch(program) for process, program in zip(both, programs)]
    both[0].ready(calls[0], [[0, 0], [0, 0]])
    both[1].ready(calls[1], [[0]])
    for process, call in zip(both, calls):
        with pytest.raises(ClusterError, match="process 1 is ready with 8 bytes of offsets for jit_total; expected 32"):
            process.over(call)
    np.testing.assert_array_equal(run(both, programs), np.full((4, 4), 20, np.float32))


def test_errors_of_the_compiler_come_back(both) -> None:
    with pytest.raises(DistxlaError, match="devices \\[0, 9\\]: the processes have devices 0 to 3"):
        both[0].compile(summing(), rows=((0, 9),))
    with pytest.raises(ClusterError, match="no process has program 999"):
        both[0].load(999)


def test_a_program_that_nobody_has_any_more_keeps_its_number(both) -> None:
    first = both[0].compile(summing("11"))
    assert both[0].compile(summing("11")).program == first.program
    for _ in range(2):
        both[0].connection.send(messages.Drop(first.program))
    with pytest.raises(ClusterError, match="no process has program"):
        both[0].load(first.program)
    again = [process.compile(summing("11")) for process in both]
    assert [one.program for one in again] == [first.program] * 2
    np.testing.assert_array_equal(run(both, again), np.full((4, 4), 110, np.float32))


def listening() -> list[list[str]]:
    """The rows of the kernel's table for sockets of this process."""
    places = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    own = {os.readlink(place) for place in places if os.path.exists(place)}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]


def test_nothing_but_the_owner_listens_and_on_loopback_alone() -> None:
    before = listening()  # for other tests
    served = Served()
    try:
        assert [row[1].partition(":")[0] for row in listening() if row not in before] == ["0100007F"]
    finally:
        served.join(0).close()
        served.join(1).close()
        served.end()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"jax": "0.11"}, "jax: process 0 has '0.12', process 1 has '0.11'"),
        ({"devices": 3}, "process 1 has 3 devices, and the owner was started for 2"),
        ({"jax_config": {"x64": True}}, "x64: process 0 has None, process 1 has True"),
    ],
)
def test_processes_that_differ_are_told_so_at_the_start(change, said) -> None:
    served = Served()
    try:
        one, other = served.join(0), served.join(1, **change)
        with pytest.raises(ClusterError, match=said):
            other.attached()
        other.close()
        with pytest.raises(ClusterError):
            one.attached()
    finally:
        served.end()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"device_memory": "1GiB"}, "device_memory='1GiB', and the owner .* with '64MiB': set DISTXLA_DEVICE_MEMORY"),
        ({"backend": "cuda"}, "backend='cuda', and the owner .* with 'cpu': set DISTXLA_BACKEND"),
        ({"address": "a:1"}, "address='a:1', and the owner .* with None"),
        ({"device_memory": 64 << 20}, None),
    ],
)
def test_processes_whose_settings_are_not_those_of_the_owner_are_told_so(change, said) -> None:
    served = Served()
    try:
        for process in [served.join(0, **change), served.join(1, **change)]:
            if said is None:
                process.attached()
                continue
            with pytest.raises(ClusterError, match=said):
                process.attached()
    finally:
        served.end()


def test_what_a_script_needs_is_started_by_the_owner_and_kept(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("DISTXLA_CACHE_DIR", str(tmp_path))
    key = "ab" * 32
    for known in (None, Needed(compiles=False, partitions=False)):
        assert CacheFolder(cache_folder(), cache_limit()).read_object(key, Needed) == known
        served = Served()
        both = [served.join(0, needed=key), served.join(1, needed="")]
        for process in both:
            process.attached()
        if known is not None:
            both[1].compile(summing())
        served.end()
    assert CacheFolder(cache_folder(), cache_limit()).read_object(key, Needed).compiles


def test_a_process_that_comes_twice_or_is_none_of_them_is_refused() -> None:
    served = Served()
    try:
        served.join(0)
        for process, said in ((0, "process 0 has come already"), (2, "process 2: there are 2")):
            with pytest.raises(ClusterError, match=said):
                served.join(process).attached()
        served.join(1)
    finally:
        served.end()


def test_one_that_ends_is_told_to_the_other_and_to_its_later_calls() -> None:
    served = Served()
    try:
        both = [served.join(0), served.join(1)]
        for process in both:
            process.attached()
        programs = [process.compile(summing()) for process in both]
        call = both[0].launch(programs[0])
        both[1].close()
        for _ in range(2):
            with pytest.raises(ReplicaLostError, match="process 1"):
                both[0].over(call)
            call = both[0].launch(programs[0])
        ended = [news["ended"] for news in served.news if "ended" in news]
        assert [(one["process"], one["how"]) for one in ended] == [(1, "lost")]
    finally:
        served.end()


def test_an_owner_whose_starter_has_ended_before_the_others_came_gives_up(monkeypatch) -> None:
    served = Served()
    try:
        monkeypatch.setattr(owner, "LEFT_S", math.inf)
        served.join(0).close()
        while not any("ended" in news for news in served.news):
            threading.Event().wait(0.01)
        assert not served.owner.give_up(0)  # the others may come yet
        monkeypatch.setattr(owner, "LEFT_S", 0)
        while not served.owner.give_up(0):
            threading.Event().wait(0.01)
        with pytest.raises(ClusterError, match=r"process 0 .* has ended before the devices served"):
            served.join(1).attached()
    finally:
        served.end()


def test_one_that_waits_for_another_to_come_is_told_so() -> None:
    served = Served()
    try:
        one = served.join(0)
        for _ in range(2):
            frame, payload = one.next_told()
            assert frame == messages.News(1, messages.LATE)
            said = "process 0 waits for process 1, which has not used its devices yet ["
            assert messages.unpack_json(payload)["text"].startswith(said)
        served.join(1).attached()
        one.attached()
    finally:
        served.end()


def test_calls_after_the_loss_of_a_device_are_told_that_none_can_run_any_more() -> None:
    served = Served()
    try:
        both = [served.join(0), served.join(1)]
        for process in both:
            process.attached()
        programs = [process.compile(summing()) for process in both]
        run(both, programs)
        os.kill(served.owner.cluster.replicas_info[3][2], signal.SIGKILL)
        for _ in range(2):
            calls = [process.launch(program) for process, program in zip(both, programs)]
            for process, call in zip(both, calls):
                begin = process.memory.device_bytes
                process.ready(call, [[begin, begin + 64]] * 2)
            for process, call in zip(both, calls):
                with pytest.raises(ReplicaLostError, match="the replica of device 3"):
                    process.over(call)
                assert process.told_error["unusable"] is True
    finally:
        served.end()


def test_a_process_that_breaks_the_protocol_is_not_served_any_more(capfd) -> None:
    served = Served()
    try:
        both = [served.join(0), served.join(1)]
        for process in both:
            process.attached()
        both[1].connection.send(messages.Launch(5, 1, 0, 0), [LaunchSite().pack()])
        assert both[1].next_told() is None
        assert "process 1 has broken the protocol" in capfd.readouterr().err
    finally:
        served.end()


def test_an_error_of_the_owner_ends_neither_its_threads_nor_a_process(monkeypatch, capfd, both) -> None:
    programs = [process.compile(summing()) for process in both]
    failures: list[str] = []

    def failing(error: BaseException, processes: tuple[int, ...] = ()) -> dict[str, Any]:
        if not failures:
            failures.append(str(error))
            raise ValueError("no room")
        return pack_error(error, processes)

    for is_started in (False, True):
        calls = [process.launch(program) for process, program in zip(both, programs)]
        failures.clear()
        monkeypatch.setattr(owned_calls, "pack_error", failing)
        if is_started:
            for process, call in zip(both, calls):
                process.ready(call, [[0]])
        else:
            both[0].trouble(calls[0], messages.SKIPPED, ClusterError("its argument is gone"))
        for process, call in zip(both, calls):
            with pytest.raises(ClusterError, match="why can't be told: ValueError: no room"):
                process.over(call)

    def broken(*_: object) -> None:
        raise ValueError("broken")

    for frame in (messages.Compile, messages.Ready):
        monkeypatch.setitem(HANDLERS, frame, broken)
    with pytest.raises(ClusterError, match="COMPILE of process 1: ValueError: broken"):
        both[1].compile(summing())
    calls = [process.launch(program) for process, program in zip(both, programs)]
    both[1].ready(calls[1], [[0]])
    for process, call in zip(both, calls):
        with pytest.raises(ClusterError, match="READY of process 1: ValueError: broken"):
            process.over(call)
    assert "READY of process 1: ValueError: broken" in capfd.readouterr().err
    monkeypatch.undo()
    np.testing.assert_array_equal(run(both, programs), np.full((4, 4), 20, np.float32))


def test_a_late_process_is_told_to_the_one_that_waits() -> None:
    served = Served()
    try:
        both = [served.join(0), served.join(1)]
        for process in both:
            process.attached()
        programs = [process.compile(summing()) for process in both]
        both[0].launch(programs[0], LaunchSite("train.py", 44, "main"))
        asked = both[1].next_told()
        assert asked is not None
        stack = Stack("train.py", 49, "load", "time.sleep(60)")
        both[1].connection.send(messages.Told(asked[0].request), [pack_json(stack.to_json())])
        news = both[0].next_told()
        assert news is not None
        assert (type(news[0]), news[0].process, news[0].kind) == (messages.News, 1, messages.LATE)
        said = unpack_json(news[1])["text"]
        assert said.startswith("process 0 waits for process 1: it is at train.py:49: time.sleep(60) [1.")
    finally:
        served.end()
