"""Ctrl-C while a cluster is taken down."""

from __future__ import annotations

import dis
import itertools
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType

import psutil
import pytest

import distxla as dx
from distxla.runtime.values.interrupts import deferred_interrupt


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def deferring(*steps: Callable[[], object]) -> None:
    with deferred_interrupt():
        for step in steps:
            step()


def fail() -> None:
    raise ValueError("within")


def test_the_first_interrupt_comes_at_the_end_and_the_second_at_once() -> None:
    done: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        deferring(interrupt, lambda: done.append("first"))
    assert done == ["first"]
    with pytest.raises(KeyboardInterrupt):
        deferring(interrupt, interrupt, lambda: done.append("second"))
    assert done == ["first"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_within_is_not_lost() -> None:
    with pytest.raises(ValueError, match="within"):
        deferring(fail)
    with pytest.raises(KeyboardInterrupt) as caught:
        deferring(interrupt, fail)
    assert isinstance(caught.value.__context__, ValueError)


def test_other_threads_and_other_handlers_keep_theirs() -> None:
    def within() -> None:
        with deferred_interrupt():
            seen.append(signal.getsignal(signal.SIGINT))

    seen: list[object] = []
    thread = threading.Thread(target=within)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred_interrupt():
            interrupt()
    finally:
        signal.signal(signal.SIGINT, before)


def cluster_interrupted(delay: float) -> set[psutil.Process]:
    """Close a cluster and interrupt that after so many seconds; returns the processes that it had."""
    before = set(psutil.Process().children(recursive=True))
    timer = threading.Timer(delay, interrupt)
    try:
        with dx.Cluster(2) as cluster:
            cluster.wait_started()
            started = set(psutil.Process().children(recursive=True)) - before
            timer.start()
        time.sleep(5)  # where it was quicker
    except KeyboardInterrupt:
        timer.join()
        return started
    raise AssertionError("no interrupt")


@pytest.mark.cluster
@pytest.mark.own_ray
@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("delay", [0.0, 0.03, 0.1])
def test_an_interrupted_close_leaves_nothing(delay: float) -> None:
    started = cluster_interrupted(delay)
    assert len(started) >= 5  # supervisor, raylet, gcs_server, replicas
    assert not [process for process in started if process.is_running()]


def uncovered_loops(code: CodeType, lines: list[str]) -> Iterator[str]:
    """Loops in a with-body that has a lock, of which the compiler has left the end of an iteration out of the body's
    handler: an exception that arrives there keeps the lock."""
    for found in code.co_consts:
        if isinstance(found, CodeType):
            yield from uncovered_loops(found, lines)
    instructions = {found.offset: found for found in dis.get_instructions(code)}
    ranges = dis._parse_exception_table(code)  # type: ignore[attr-defined]

    def handler(offset: int) -> int | None:
        around = [found for found in ranges if found.start <= offset < found.end]
        return max(around, key=lambda found: found.start).target if around else None

    for offset, found in instructions.items():
        if found.opname != "JUMP_BACKWARD" or handler(offset) == handler(found.jump_target):
            continue
        target = handler(found.jump_target)
        begin = instructions[target].positions if target is not None else None
        opens = begin is not None and begin.lineno is not None and lines[begin.lineno - 1].strip()
        if opens and opens.startswith("with ") and re.search(r"lock|_news|_changed|TAKING", opens):
            yield f"{code.co_qualname}, line {found.positions.lineno if found.positions else None}: {opens}"


@pytest.mark.skipif(sys.version_info < (3, 13), reason="dis has the targets of jumps from Python 3.13 on")
def test_no_interrupt_keeps_a_lock() -> None:
    root = Path(dx.__file__).parent
    found = []
    for file in itertools.chain(*((root / name).rglob("*.py") for name in ("machine", "runtime", "jax", "testing"))):
        text = file.read_text()
        found += [f"{file}: {where}" for where in uncovered_loops(compile(text, file, "exec"), text.splitlines())]
    assert not found
    text = "def f(a):\n    with a.lock:\n        for x in a:\n            if x:\n                return x\n"
    assert [*uncovered_loops(compile(text, "f", "exec"), text.splitlines())], "such loops are found"
