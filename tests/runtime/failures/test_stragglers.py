"""Notices about those whom others wait for."""

from __future__ import annotations

import signal
import subprocess

from distxla.collectives.protocols import control_block as control_words
from distxla.diagnosis.facts.blocked import HOST, DeviceState, Doing
from distxla.location import Location
from distxla.machine.processes import is_stopped
from distxla.runtime.failures.stragglers import late, notices
from distxla.runtime.hosts.local import LocalHost
from tests.stopwatch import eventually


def waiting(device: int, *others: int, name: str = "c", host: str = "") -> DeviceState:
    where = Location("m.hlo", 3, 1, 2)
    return DeviceState(device, Doing.WAITS, "m", name, "all-reduce", where, waits_for=others, host=host)


def computing(device: int, name: str = "") -> DeviceState:
    return DeviceState(device, Doing.COMPUTES, "m", name, location=Location("m.hlo", 9, 1, 2) if name else None)


def lines(*devices: DeviceState) -> list[str]:
    return notices({device.device: device for device in devices}, 5.2)


def test_the_straggler_and_those_behind_it_are_named() -> None:
    assert lines(waiting(0, 3), waiting(1, 3), waiting(2, 3), computing(3, "dot")) == [
        "device 3 computes dot (m.hlo:9:1); devices 0-2 wait for it in c (m.hlo:3:1), for 5 s so far"
    ]


def test_those_who_are_waited_for_by_nobody_or_wait_themselves_are_none() -> None:
    assert lines(waiting(0, 1), waiting(1, 2), computing(2), computing(3)) == [
        "device 2 computes; device 1 waits for it in c (m.hlo:3:1), for 5 s so far"
    ]


def test_one_that_has_not_begun() -> None:
    assert lines(waiting(0, 1), DeviceState(1, Doing.NOT_BEGUN, "m")) == [
        "device 1 has not begun; device 0 waits for it in c (m.hlo:3:1), for 5 s so far"
    ]


def test_several_places() -> None:
    assert lines(waiting(0, 2), waiting(1, 2, name="d"), computing(2)) == [
        "device 2 computes; devices 0, 1 wait for it in 2 different instructions, for 5 s so far"
    ]


def test_those_who_are_late_for_the_next_call() -> None:
    assert late([computing(1), computing(2, "dot"), computing(4, "dot")], 5.2) == [
        "device 1 still computes, in a call that has failed; the next one waits for that, for 5 s so far",
        "devices 2, 4 still compute dot (m.hlo:9:1), in a call that has failed; the next one waits for that, "
        "for 5 s so far",
    ]


def test_a_host_that_does_not_feed() -> None:
    assert lines(waiting(0, host=HOST), computing(1)) == [
        "device 0 waits in c (m.hlo:3:1) for the host, at the other end of the stream, for 5 s so far"
    ]


def test_stopped_ones() -> None:
    stopped = [DeviceState(d, Doing.STOPPED, "m", "dot", location=Location("m.hlo", 9, 1, 2)) for d in (1, 2)]
    assert lines(waiting(0, 1), *stopped) == ["devices 1, 2 are stopped in dot (m.hlo:9:1), until SIGCONT"]
    assert lines(DeviceState(3, Doing.STOPPED, "m")) == ["device 3 is stopped, until SIGCONT"]


def test_a_stopped_process_shows_in_what_is_read_of_its_record() -> None:
    host = LocalHost(0, "here", range(2), 2, 1 << 21)
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            host.control.store(control_words.R_PID, process.pid, control_words.record_offset(1))
            for number, expected in ((signal.SIGSTOP, 1), (signal.SIGCONT, 0)):
                process.send_signal(number)
                assert eventually(lambda: is_stopped(process.pid) == bool(expected))  # noqa: B023
                rows = host.records()
                assert [row[control_words.R_IS_STOPPED] for row in rows.values()] == [0, expected]
        finally:
            process.kill()
    host.close()
