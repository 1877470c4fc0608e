"""distxla/jax/processes/late.py."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from distxla.jax.processes.late import LateWatch, Questions, doing_of, lines_of
from distxla.jax.processes.launches import LaunchSite
from distxla.jax.processes.ledger_facts import Called, Notice
from distxla.jax.processes.places import Stack


def called(process: int, line: int = 44) -> Called:
    return Called(process, (0, 1, 2), 2, 2, 1, "jit_step", LaunchSite("/home/a/train.py", line, "main"))


def test_processes_that_wait_in_the_same_call_share_a_line() -> None:
    notices = [Notice(0, 1, called(0), 1.04, None), Notice(2, 1, called(2), 1.01, None)]
    where = {1: f"it is {Stack('train.py', 49, 'load', 'time.sleep(60)')}"}
    assert lines_of(notices, where) == [
        (
            (0, 2),
            1,
            "processes 0 and 2 wait for process 1: it is at train.py:49: time.sleep(60) "
            "[1.0 s so far, in call 3: step (train.py:44)]",
        )
    ]


def test_processes_at_different_lines_have_one_each() -> None:
    notices = [Notice(0, 1, called(0), 2, None), Notice(2, 1, called(2, 45), 2, None)]
    assert [waiting for waiting, _, _ in lines_of(notices, {1: "it is at its end"})] == [(0,), (2,)]


def test_one_that_waits_itself_is_told_by_its_call() -> None:
    ((_, _, line),) = lines_of([Notice(0, 1, called(0), 4, called(1, 90))], {})
    assert line.startswith("process 0 waits for process 1: it waits itself in step (train.py:90) [4.0 s so far")


@pytest.mark.parametrize(
    ("stack", "said"),
    [
        (None, "it does not answer: it holds the GIL in C code"),
        (Stack("/a/train.py", 30, "main", "breakpoint()", True), "it is at a breakpoint at train.py:30"),
        (Stack(inside="jax._src.distributed.shutdown"), "it is at its end, in jax._src.distributed.shutdown"),
    ],
)
def test_what_a_late_process_does(stack: Stack | None, said: str) -> None:
    assert doing_of(stack, os.getpid()) == said


def test_a_stopped_process_is_told_as_one() -> None:
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
    try:
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert doing_of(None, child.pid) == "it is stopped, until SIGCONT"
    finally:
        child.kill()
        child.wait()


def test_answers_are_waited_for_and_late_ones_are_dropped() -> None:
    asked: list[tuple[int, int]] = []

    def send(process: int, number: int) -> bool:
        asked.append((process, number))
        if process == 0:
            questions.told(number, Stack(text="here"))
        return process != 3

    questions = Questions(send)
    assert questions.ask([0, 3], seconds=600) == {0: Stack(text="here")}
    assert questions.ask([1], seconds=0) == {}
    questions.told(asked[-1][1], Stack())
    assert questions.ask([], seconds=600) == {}


def test_the_watch_tells_each_that_waits(capfd: pytest.CaptureFixture[str]) -> None:
    told: queue.Queue[tuple[int, int, str]] = queue.Queue()
    found = [[Notice(0, 1, called(0), 1, None), Notice(2, 1, called(2), 1, None)]]

    def where(processes: Sequence[int]) -> dict[int, str]:
        return dict.fromkeys(processes, "it is at its end")

    looks = iter([ValueError("broken")])  # a look that fails ends nothing

    def look(now: float) -> list[Notice]:
        for error in looks:
            raise error
        return found.pop() if found else []

    watch = LateWatch(look, where, lambda *one: told.put(one))
    try:
        first, second = told.get(timeout=30), told.get(timeout=30)
    finally:
        watch.close()
    assert first[:2] == (0, 1)
    assert second[:2] == (2, 1)
    assert first[2] == second[2]
    assert capfd.readouterr().err == "distxla: ValueError: broken\n"
