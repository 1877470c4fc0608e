"""distxla/jax/processes/daemon_threads.py."""

from __future__ import annotations

import threading

import pytest

from distxla.jax.processes.daemon_threads import DaemonThreads


def test_work_is_done_at_once_by_as_many_threads_as_it_takes() -> None:
    threads, both = DaemonThreads("work", 2), threading.Barrier(3)

    def meet() -> None:
        both.wait(60)

    for _ in range(2):
        for _ in range(2):
            threads.do(meet)
        both.wait(60)
    threads.close()


def test_more_work_waits_for_a_thread() -> None:
    threads, go, done = DaemonThreads("work", 1), threading.Event(), threading.Event()

    def wait() -> None:
        go.wait(60)

    threads.do(wait)
    threads.do(done.set)
    assert not done.is_set()
    go.set()
    assert done.wait(60)
    threads.close()


def test_work_that_raises_ends_no_thread(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ValueError("broken")

    threads, done = DaemonThreads("work", 1), threading.Event()
    threads.do(fail)
    threads.do(done.set)
    assert done.wait(60)
    threads.close()
    assert capfd.readouterr().err == "distxla: ValueError: broken\n"
