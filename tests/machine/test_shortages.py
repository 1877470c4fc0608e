"""Processes and threads that cannot be started: errors of the documented classes, which say what is missing."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from typing import NoReturn

import pytest

import distxla as dx
from distxla.compiler.server import CompileServer
from distxla.ir.counts import Counts
from distxla.jax.partitioner.partition_server import PartitionServer
from distxla.machine.shortages import FILE_SIZE, FILES, MEMORY, PROCESSES, load, not_started, started_thread, unwritten
from distxla.runtime.arrays.call_queue import CallQueue, PendingCall

SHORTAGES = [
    (errno.EAGAIN, dx.ClusterError, PROCESSES),
    (errno.ENOMEM, dx.OutOfMemoryError, MEMORY),
    (errno.EMFILE, dx.ClusterError, FILES),
    (errno.EPERM, dx.ClusterError, "Operation not permitted"),
]


@pytest.mark.parametrize(("number", "kind", "missing"), SHORTAGES)
def test_a_process_that_cannot_be_started(number: int, kind: type[dx.DistxlaError], missing: str) -> None:
    error = not_started("the server cannot be started", OSError(number, os.strerror(number)))
    assert type(error) is kind
    assert error.message == f"the server cannot be started: {missing}"


@pytest.mark.parametrize(("number", "kind", "missing"), SHORTAGES)
def test_servers(number: int, kind: type[dx.DistxlaError], missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing stays open."""

    def failing(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(subprocess, "Popen", failing)
    module = dx.parse("ENTRY e { ROOT p = f32[4] parameter(0) }")
    with pytest.raises(kind, match=f"the compile server cannot be started: {missing[:20]}"):
        CompileServer().compile(module, Counts(1, 1))
    pytest.importorskip("jax")
    with pytest.raises(kind, match=f"the partitioner's process cannot be started: {missing[:20]}"):
        PartitionServer().convert(b"")
    assert set(os.listdir("/proc/self/fd")) == before


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(thread: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", failing)
    with pytest.raises(dx.ClusterError, match="no thread: this machine allows no more"):
        started_thread(threading.Thread(), "no thread")
    with pytest.raises(dx.ClusterError, match="the call could not be issued: this machine allows no more"):
        CallQueue().submit(PendingCall("f", lambda: None))


def test_why_a_file_cannot_be_written() -> None:
    assert unwritten(OSError(errno.EFBIG, "File too large")) == FILE_SIZE
    assert unwritten(OSError(errno.ENOSPC, "No space left on device")) == "No space left on device"


def test_the_load_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (21.347, 8.0, 3.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert load() == "load 21.3 on 2 processors"
