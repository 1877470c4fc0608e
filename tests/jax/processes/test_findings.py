"""The errors of calls that will never run: their first line, and those below it."""

from __future__ import annotations

import pytest

from distxla.errors import (
    ClusterError,
    CollectiveMismatchError,
    DeadlockError,
    DistxlaError,
    OutOfMemoryError,
    ReplicaLostError,
    TimeLimitError,
)
from distxla.jax.processes.findings import error_of
from distxla.jax.processes.launches import LaunchSite
from distxla.jax.processes.ledger_facts import Ending
from distxla.jax.processes.program_text import ProgramText
from tests.jax.processes.ledger_cases import PROGRAMS, Told
from tests.jax.processes.program_cases import edited, program

BOTH = (0, 1)
THREE = (0, 1, 2)


def text(number: int) -> ProgramText:
    name = next(name for name, its_number in PROGRAMS.items() if its_number == number)
    if name == "scaled_by_3":
        return program(edited(("constant(2)", "constant(3)")), number)
    return program(edited(("jit_scaled", f"jit_{name}")), number)


def lines(told: Told) -> list[str]:
    return str(error_of(told.finding, text)).splitlines()


def test_a_constant() -> None:
    told = Told(2)
    for _ in range(3):
        told.run(BOTH, "step", 20)
    told.call(0, BOTH, "scaled", 29)
    told.call(1, BOTH, "scaled_by_3", 29)
    assert lines(told) == [
        "mismatch: processes disagree in call 4 of processes 0 and 1: process 0 calls scaled (train.py:29), "
        "process 1 calls scaled (train.py:29)",
        "  constant multiply.2 (w2.py:12): process 0 has 2, process 1 has 3",
    ]
    error = error_of(told.finding, text)
    assert isinstance(error, CollectiveMismatchError)
    assert error.exit_status == 3


def test_another_order_after_a_skipped_call() -> None:
    told = Told(2)
    key = told.call(0, BOTH, "step", 41)
    told.call(1, BOTH, "step", 54)
    told.ledger.over(key)
    told.call(1, BOTH, "g", 30)
    told.call(1, BOTH, "f", 32)
    told.call(0, BOTH, "f", 31)
    assert lines(told) == [
        "mismatch: processes disagree in call 2 of processes 0 and 1: process 0 calls f (train.py:31), "
        "process 1 calls g (train.py:30)",
        "  function: process 0 has f, process 1 has g",
        "  process 1 calls f next, at train.py:32: the order differs, or one of them has left out a call",
        "  apart since call 1: process 0 at train.py:41, process 1 at train.py:54",
    ]


def test_another_order_seen_afterwards() -> None:
    told = Told(2)
    told.call(0, BOTH, "f", 31)
    told.call(1, BOTH, "g", 31)
    told.call(0, BOTH, "g", 32)
    told.decisions.clear()
    told.call(1, BOTH, "f", 32)
    assert lines(told)[-2:] == [
        "  process 0 called f before, at train.py:31, in call 1: the order differs",
        "  process 1 called g before, at train.py:31, in call 1: the order differs",
    ]


def test_one_of_many() -> None:
    told = Told(8)
    for process in (0, 1, 2, 6):
        told.call(process, range(8), "f", 31)
    told.call(5, range(8), "g", 40)
    assert lines(told) == [
        "mismatch: processes disagree in call 1 of processes 0-7: processes 0-2, 6 call f (train.py:31), "
        "process 5 calls g (train.py:40)",
        "  function: process 0 has f, process 5 has g",
        "  processes 3, 4, 7: each has not made call 1 yet",
    ]


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        (Ending("signal", signal="SIGKILL"), "process 1 was ended by SIGKILL after its call 3 (step, train.py:20)"),
        (
            Ending("raised", "ValueError: data loader", LaunchSite("/x/train.py", 47, "load")),
            "process 1 ends with ValueError: data loader (train.py:47), after its call 3",
        ),
        (Ending("end"), "process 1 has ended after its call 3 (step, train.py:20)"),
        (
            Ending("exit", status=0),
            "process 1 has left with status 0 and no word after its call 3 (step, train.py:20)",
        ),
        (Ending("lost"), "process 1 was lost after its call 3 (step, train.py:20)"),
    ],
)
def test_one_that_has_ended(how: Ending, wanted: str) -> None:
    told = Told(2)
    for _ in range(3):
        told.run(BOTH, "step", 20)
    told.call(0, BOTH, "total", 44)
    told.end(1, how)
    assert lines(told) == [f"lost: {wanted}; process 0 calls total (train.py:44), which needs it"]
    error = error_of(told.finding, text)
    assert isinstance(error, ReplicaLostError)
    assert error.exit_status == 4


def test_one_that_ends_before_any_call() -> None:
    told = Told(2)
    told.end(1, Ending("end"))
    told.call(0, BOTH, "total", 44)
    assert lines(told) == [
        "lost: process 1 has ended before its first call of processes 0 and 1; process 0 calls total (train.py:44), "
        "which needs it"
    ]


def test_one_that_ends_in_a_call() -> None:
    told = Told(2)
    told.call(1, BOTH, "total", 44)
    told.end(1)
    assert lines(told) == [
        "lost: process 1 was ended by SIGKILL in its call 1 (total, train.py:44), before all had made it"
    ]


def test_a_circle() -> None:
    told = Told(3)
    for process, members, function in ((0, (0, 1), "f"), (1, (1, 2), "g"), (2, (0, 2), "h")):
        told.call(process, members, function, 10 + process)
    error = error_of(told.findings[0], text)
    assert str(error).splitlines() == [
        "deadlock: each waits for the next, a deadlock of processes 0 -> 1 -> 2 -> 0",
        "  process 0 makes call 1 of processes 0 and 1, f (train.py:10): waits for process 1",
        "  process 1 makes call 1 of processes 1 and 2, g (train.py:11): waits for process 2",
        "  process 2 makes call 1 of processes 0 and 2, h (train.py:12): waits for process 0",
    ]
    assert type(error) is DeadlockError


def test_a_late_one() -> None:
    told = Told(2, stall_limit=5)
    told.run(BOTH, "step", 20)
    told.call(0, BOTH, "total", 44)
    told.look(0)
    told.look(5)
    error = error_of(told.finding, text, {1: ("train.py:90 in main", "train.py:49: time.sleep(60)")})
    assert str(error).splitlines() == [
        "time-limit: process 0 calls total (train.py:44) and has waited for process 1 for 5.0 s, longer than the limit "
        "for late processes",
        "  process 1 has not made call 2 yet; its last was call 1 (step, train.py:20)",
        "    train.py:90 in main",
        "    train.py:49: time.sleep(60)",
    ]
    assert isinstance(error, TimeLimitError)
    assert error.exit_status == 5


@pytest.mark.parametrize(
    ("why", "by_argument", "wanted"),
    [
        (
            CollectiveMismatchError("processes disagree in call 1\nmore"),
            True,
            "mismatch: process 1 can't take part in call 1 of processes 0 and 1 (step, train.py:44): its argument "
            "comes from a call that failed: processes disagree in call 1",
        ),
        (
            OutOfMemoryError("device 5 has 1 GiB left"),
            False,
            "memory: process 1 can't take part in call 1 of processes 0 and 1 (step, train.py:44): "
            "device 5 has 1 GiB left",
        ),
        (
            OutOfMemoryError("device 5 has 1 GiB left"),
            True,
            "memory: process 1 can't take part in call 1 of processes 0 and 1 (step, train.py:44): its argument comes "
            "from a call that failed: device 5 has 1 GiB left",
        ),
        (
            ClusterError("the call was interrupted"),
            False,
            "cluster: process 1 can't take part in call 1 of processes 0 and 1 (step, train.py:44): the call was "
            "interrupted",
        ),
    ],
)
def test_one_that_can_not_run_it(why: DistxlaError, by_argument: bool, wanted: str) -> None:
    told = Told(2)
    key = told.call(0, BOTH, "step", 43)
    told.call(1, BOTH, "step", 44)
    told.decisions += told.ledger.skipped(1, key, why, by_argument=by_argument)
    error = error_of(told.finding, text)
    assert str(error).splitlines()[0] == wanted
    assert type(error) is type(why)


def test_a_program_that_nobody_remembers() -> None:
    def forgotten(number: int) -> ProgramText:
        raise KeyError(number)

    told = Told(2)
    told.call(0, BOTH, "f", 31)
    told.call(1, BOTH, "g", 40)
    assert "process 0 calls f (train.py:31)" in str(error_of(told.finding, forgotten))


def test_the_report_has_all() -> None:
    told = Told(2)
    told.run(BOTH, "step", 20)
    told.call(0, BOTH, "scaled", 29)
    told.call(1, BOTH, "scaled_by_3", 29)
    diagnosis = error_of(told.finding, text).diagnosis
    assert diagnosis is not None
    found = diagnosis.as_json()
    assert found["kind"] == "mismatch"
    assert found["process_differences"] == [
        {
            "what": "constant",
            "where": "multiply.2",
            "processes": [0, 1],
            "values": ["2", "3"],
            "frames": ["w2.py:12", "w2.py:12"],
            "text": "constant multiply.2 (w2.py:12): process 0 has 2, process 1 has 3",
        }
    ]
    assert [each["calls"] for each in found["processes"]] == [["step (train.py:20)", "scaled (train.py:29)"]] * 2
    assert [each["frame"] for each in found["processes"]] == ["train.py:29 in main"] * 2
    assert [each["doing"] for each in found["processes"]] == ["has come", "has come"]


def test_the_page_has_all() -> None:
    told = Told(2)
    told.run(BOTH, "step", 20)
    key = told.call(0, BOTH, "step", 21)
    told.call(1, BOTH, "step", 22)
    told.ledger.over(key)
    told.call(0, BOTH, "scaled", 29)
    told.call(1, BOTH, "scaled_by_3", 29)
    diagnosis = error_of(told.finding, text).diagnosis
    assert diagnosis is not None
    page = diagnosis.page()
    assert "<h1>Mismatch: processes disagree in call 3 of processes 0 and 1</h1>" in page
    assert '<th rowspan="2">constant multiply.2</th><td>0</td><td class="first">2</td><td>w2.py:12</td>' in page
    assert "apart since call 2: process 0 at train.py:21, process 1 at train.py:22" in page
    assert '<li class="who">process 0</li><li>step (train.py:20)</li><li class="first">step (train.py:21)</li>' in page
    assert page.count("<h2>") == 4


def test_the_page_escapes_names() -> None:
    told = Told(2)
    told.call(0, BOTH, "f", 29)
    told.end(1, Ending("raised", "ValueError: <script>"))
    diagnosis = error_of(told.finding, text).diagnosis
    assert diagnosis is not None
    page = diagnosis.page()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
